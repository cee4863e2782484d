"""Calls of a mixture of experts: `dispatch`, `combine`, and handles of those under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from ina.backend.eager import eager
from ina.backend.moe.agreement import agreed, common_text
from ina.backend.moe.autograd import BeginCombine, BeginDispatch, EndCombine, EndDispatch, Flight
from ina.backend.moe.checks import DTYPES, problem_of_outputs, raise_problem, routing_group
from ina.backend.moe.exchange import Exchange

__all__ = ["Handle", "Plan", "combine", "dispatch"]

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Plan:
    """Tokens that a rank has got for its experts: where they come from, and which experts each is for.

    Row i, of R, is token ``token[i]`` of rank ``source[i]``; rows are sorted by these two. Pair j, of N, says that row ``row[j]``
    is for this rank's expert number ``expert[j]`` (counted from 0 on each rank) as choice ``slot[j]``, of k, with the weight
    ``weights[j]``; pairs are sorted by expert, and those of expert e are ``tokens_per_expert[e]``. All indices are int64, on the
    tokens' device; ``weights`` are float32, or None, and part of autograd's graph.
    """

    source: torch.Tensor
    token: torch.Tensor
    row: torch.Tensor
    expert: torch.Tensor
    slot: torch.Tensor
    tokens_per_expert: list[int]
    weights: torch.Tensor | None
    _exchange: Exchange = field(repr=False)
    _anchor: torch.Tensor = field(repr=False)


class Handle(Generic[Result]):
    """A `dispatch` or `combine` that has begun: rows on their way. One thread at a time may call its methods."""

    def __init__(self, works: Sequence[dist.Work], result: Callable[[], Result]):
        """``works``: move the rows. ``result``: makes the result of them when they have come; called once."""
        self._works = works
        self._make: Callable[[], Result] | None = result
        self._result: Result
        self._inference, self._grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    @eager
    def is_completed(self) -> bool:
        """Returns True if `wait` need not wait for other ranks. RuntimeError: another thread looks for too long."""
        return all(work.is_completed() for work in self._works)

    @eager
    def wait(self, timeout: timedelta = timedelta(0)) -> Result:
        """Returns the result, the same each time: of `dispatch` rows and plan, of `combine` the sums. Blocks until the rows are
        here, up to ``timeout`` if it is positive. Whether it has gradients is as it was in the call.

        RuntimeError: they have not come within ``timeout``, and may be waited for again; or the group's time-out is over, a rank
        is lost, the ranks do not agree, or the group is destroyed.
        """
        if not isinstance(timeout, timedelta):
            raise TypeError(f"ina: moe: timeout of a handle: {timeout!r}, expected a datetime.timedelta")
        if self._make is not None:
            for work in self._works:
                work.wait(timeout)
            with torch.inference_mode(self._inference), torch.set_grad_enabled(self._grad):
                self._result = self._make()
            self._works, self._make = (), None  # and with them the memory of what was on its way
        return self._result


@overload
def dispatch(tokens: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor | None = None, *, num_experts: int,
             group: dist.ProcessGroup | None = None, async_op: Literal[False] = False) -> tuple[torch.Tensor, Plan]: ...
@overload
def dispatch(tokens: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor | None = None, *, num_experts: int,
             group: dist.ProcessGroup | None = None, async_op: Literal[True]) -> Handle[tuple[torch.Tensor, Plan]]: ...
@eager
def dispatch(tokens: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor | None = None, *, num_experts: int,
             group: dist.ProcessGroup | None = None,
             async_op: bool = False) -> tuple[torch.Tensor, Plan] | Handle[tuple[torch.Tensor, Plan]]:
    """Sends each of this rank's tokens to the ranks of its experts, once to each rank. To be called by all ranks of ``group``
    (None: the default one).

    ``tokens``: (T, H), float32, bfloat16 or float16; T may differ between ranks, and be 0. ``experts``: (T, k) integers, the
    experts of each token out of ``num_experts``, of which each of n ranks has the next ``num_experts / n``; -1: none. One that
    occurs twice for a token counts twice. ``weights``: (T, k) floats, by which `combine` multiplies outputs, as float32; None: it
    does not.

    Returns the rows that this rank's experts get, (R, H), the tokens' bits, and the plan, which says whose they are and for which
    experts. Gradients go back to tokens and weights: the rows' as those of `combine`, within its bound, those of weights as their
    bits. All ranks have to call the backward pass, also those that got no rows; there is no second derivative (RuntimeError).

    ``async_op``: returns a handle as soon as the ranks know each other's experts and the rows are on their way; `Handle.wait`
    returns rows and plan. The caller may change ``tokens`` meanwhile. The gradients' way back overlaps in the same manner with
    whatever autograd has to do between the two. 64 of a group can be on their way at a time; one more waits in its call until the
    first has ended. All ranks have to call all of these, `combine`, and, where there are gradients, `Handle.wait` in the same
    order; all or none ask for ``async_op``.

    ValueError, on all ranks: tensors or numbers that do not fit, on any rank; ranks that differ in H, dtype, k, num_experts, in
    having weights or in ``async_op``; more than 32 ranks. TypeError: a group of another back end. RuntimeError: the group's job
    is over.
    """
    ours = routing_group(group)
    exchange = agreed(ours, tokens, experts, weights, num_experts, async_op)
    known = exchange.tokens
    join = torch.zeros(0, requires_grad=exchange.gives_tokens or exchange.gives_weights, device="cpu")
    flight, device, weighted = Flight(exchange, async_op), tokens.device, weights is not None
    ticket = BeginDispatch.apply(flight, tokens, weights, join)

    def result() -> tuple[torch.Tensor, Plan]:
        rows, given, anchor = EndDispatch.apply(flight, ticket)

        def indices(of: npt.NDArray[np.integer]) -> torch.Tensor:
            return exchange.indices(of, device)

        begins = np.cumsum([0, *known.counts])
        source = known.source[known.rows]
        return rows, Plan(indices(source), indices(known.rows - begins[source]), indices(known.row), indices(known.expert),
                          indices(known.slot), known.per_expert, given if weighted else None, exchange, anchor)

    return Handle(flight.rows.works, result) if async_op else result()


@overload
def combine(outputs: torch.Tensor, plan: Plan, *, async_op: Literal[False] = False) -> torch.Tensor: ...
@overload
def combine(outputs: torch.Tensor, plan: Plan, *, async_op: Literal[True]) -> Handle[torch.Tensor]: ...
@eager
def combine(outputs: torch.Tensor, plan: Plan, *, async_op: bool = False) -> torch.Tensor | Handle[torch.Tensor]:
    """Sends the experts' outputs back, and adds them up: each token gets the sum over its experts of weight times output. To be
    called by all ranks, also those that got no rows.

    ``outputs``: (N, H), one for each of the plan's pairs, in their order; float32, bfloat16 or float16, of any H. Returns (T, H)
    of the same dtype, in the order of the tokens given to `dispatch`; zeros for a token without experts. A plan can be used for
    several of these. Gradients go back to outputs, and through the plan to weights and tokens.

    Each rank adds up its own experts' outputs of a token as float32, in the order of its pairs (on a GPU in any order), and
    rounds the sum to the dtype. Of a token whose experts one rank has, that is the result, bit for bit. Else the ranks' sums are
    added up as float64, then rounded to float32, and to the dtype. Those of m ranks, other than the token's own, that the
    switch adds up are integers first, which is off by m * 2^(c - 31) * a at most, where 2^c is m rounded up to a power of two,
    and a is the largest absolute value in these ranks' sums for the token (2^-29 a for two ranks, 2^-25 a for eight). If any of
    them has a NaN or an infinity for it, they are added up by the token's rank, each value by itself, as IEEE 754 says; so are
    those of two ranks in 16 bits, and all where the group has no routes. A sum beyond the dtype becomes an infinity.

    ``async_op``: as of `dispatch`; returns a handle once the ranks know the rows' exponents, and `Handle.wait` the sums, bit for
    bit the same. It is a direction of its own, beside dispatches, with 64 on their way at most.

    ValueError, on all ranks: outputs that do not fit, on any rank; ranks that differ in the plan, in ``async_op``, or their
    outputs in H or dtype. TypeError, on this rank alone: the plan is none.
    RuntimeError: the group's job is over.
    """
    if not isinstance(plan, Plan):
        hint = ": wait() returns rows and plan" if isinstance(plan, Handle) else ""
        raise TypeError(f"ina: moe.combine: plan: {type(plan).__name__}, expected what dispatch returns beside the rows{hint}")
    exchange = plan._exchange
    problem = problem_of_outputs(outputs, plan.row)
    rows = torch.zeros(0, 1, device="cpu") if problem else _by_row(outputs, plan)
    grad = torch.is_grad_enabled() and (rows.requires_grad or plan._anchor.requires_grad)
    common = [0] * 4 if problem else [exchange.number, rows.shape[1], DTYPES.index(rows.dtype), bool(async_op)]
    own = [bool(problem), grad, *common, *(-each for each in common)]
    largest, levels = exchange.agree(own, None if problem else rows)
    if largest[0]:
        raise_problem(exchange.group, "combine", problem)
    for name, high, low in zip(("plan", "hidden size", "dtype", "async_op"), largest[2:6], largest[6:], strict=True):
        if high != -low:
            raise ValueError(f"ina: moe.combine: the ranks differ in {name}: {common_text(name, -low)} on one, "
                             f"{common_text(name, high)} on another")
    join = torch.zeros(0, requires_grad=bool(largest[1]), device="cpu")
    flight = Flight(exchange, async_op)
    ticket = BeginCombine.apply(flight, rows, levels, plan._anchor, join)

    def result() -> torch.Tensor:
        sums: torch.Tensor = EndCombine.apply(flight, ticket)
        return sums

    return Handle(flight.rows.works, result) if async_op else result()


def _by_row(outputs: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Returns the weighted sum of the outputs of each row's experts. One output without a weight is its bits."""
    first, rest = (Exchange.indices(of, outputs.device) for of in (plan._exchange.tokens.first, plan._exchange.tokens.rest))
    if plan.weights is None and not len(rest):
        return outputs.index_select(0, first)
    wide = outputs.float() if plan.weights is None else outputs.float() * plan.weights[:, None]
    rows = wide.index_select(0, first).index_add_(0, plan.row[rest], wide.index_select(0, rest))
    return rows.to(outputs.dtype)
