"""Autograd functions of a mixture of experts, each of two parts.

The backward passes of the ends run on all ranks, whatever their experts did: `join` needs gradients wherever any rank's tensors
do, and an anchor ties a combine to its dispatch. Tickets and anchors have no elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ina.backend.moe.exchange import Exchange, Transfer
from ina.backend.moe.rows import Words


@dataclass(eq=False)
class Flight:
    """One dispatch or combine: its rows on their way, and in a backward pass their gradients. ``of_weights``: gradients of a
    dispatch's weights."""

    exchange: Exchange
    asynchronous: bool
    rows: Transfer = field(init=False)
    back: Transfer | None = None
    of_weights: torch.Tensor | None = None

    def take_back(self) -> torch.Tensor | None:
        """Returns the gradients that were on their way, if any were."""
        transfer, self.back = self.back, None
        return None if transfer is None else transfer.result()


class BeginDispatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flight: Flight, tokens: torch.Tensor, weights: torch.Tensor | None, join: torch.Tensor) -> torch.Tensor:
        ctx.flight, ctx.of = flight, None if weights is None else weights.dtype
        flight.rows = flight.exchange.send(tokens, flight.asynchronous)
        return tokens.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, ticket: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        of_weights, ctx.flight.of_weights = ctx.flight.of_weights, None
        return None, ctx.flight.take_back(), None if of_weights is None else of_weights.to(ctx.of), None


class EndDispatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flight: Flight, ticket: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns rows, the pairs' weights, and an anchor."""
        ctx.flight, exchange = flight, flight.exchange
        rows, anchor = flight.rows.result(), ticket.new_empty(0)
        given = anchor.clone() if exchange.weights is None else exchange.pair_weights().to(ticket.device)
        ctx.mark_non_differentiable(*([] if exchange.gives_tokens else [rows]), *([] if exchange.gives_weights else [given]))
        return rows, given, anchor

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, rows: torch.Tensor, given: torch.Tensor, anchor: torch.Tensor) -> tuple[None, torch.Tensor]:
        flight, exchange = ctx.flight, ctx.flight.exchange
        if exchange.gives_tokens:
            flight.back = exchange.collect(rows, exchange.agree([], rows)[1], flight.asynchronous)
        if exchange.gives_weights:
            flight.of_weights = exchange.return_weights(given)
        return None, anchor.new_empty(0)


class BeginCombine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flight: Flight, rows: torch.Tensor, levels: Words, anchor: torch.Tensor,
                join: torch.Tensor) -> torch.Tensor:
        ctx.flight, ctx.anchor = flight, anchor.detach()
        flight.rows = flight.exchange.collect(rows, levels, flight.asynchronous)
        return rows.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, ticket: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, ctx.flight.take_back(), None, torch.zeros_like(ctx.anchor), None


class EndCombine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flight: Flight, ticket: torch.Tensor) -> torch.Tensor:
        ctx.flight = flight
        return flight.rows.result()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, result: torch.Tensor) -> tuple[None, torch.Tensor]:
        ctx.flight.back = ctx.flight.exchange.send(result, ctx.flight.asynchronous)
        return None, result.new_empty(0)
