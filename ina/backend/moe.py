"""Mixture of experts: tokens go to the ranks of their experts (dispatch), and the experts' outputs come back, added up (combine).

    1  all-gather    each token's experts and weights, and what the ranks must have in common; if that is more than a packet has
                     room for, and than it was before, a second one has the rest
    2  dispatch      a token's bits go up once, and down once to each rank, but its own, that has some of its experts
    3  all-reduce    of maxima: the exponents of the rows that are to be added up, and what the ranks must have in common
    4  combine       each rank's sum of a token's outputs goes up once; the switch adds up over the ranks; down comes one row

The backward pass of combine is 2, with gradients; that of dispatch is 3 and 4, and, for the weights' gradients, a reduce-scatter.
Which rows travel, from whom and to whom, all ranks know from 1 (ina/aggregation/worker/token_routes.py).

In 4 a row that one other rank has travels as its bits. Those that several have become integers in units of one power of two for
each row, which its *level* says, that of the largest value of all of them: no sum of m of them leaves 32 bits. With level APART
each rank's bits come, and the token's rank adds them: where a rank has a NaN or an infinity; where two ranks have 16-bit values,
which is as much down as one row of 32 bits, half as much up, and exact; and where the group has no routes, so that 2 and 4 go
through Gloo.

With ``async_op``, 1 and 3 still end in the call, in the group's own job; 2 and 4 go on in the background, each in a job of its
own (Membership.lane), so that rows up do not wait for rows down, nor 1 and 3 for either. Both are autograd functions in two
parts, as torchrec's all-to-alls are (torchrec/distributed/comm_ops.py: All2All_Pooled_Req, All2All_Pooled_Wait):

    forward     begin: rows are on their way ── whatever the caller does ── end: waits for them
    backward    end: gradients are on their way ── the same, backwards ── begin: waits for them

Autograd goes backwards through a thread's functions in the reverse order of their calls, since it takes the latest one that is
ready, and what a function waits for was called later. So gradients begin in the same order on all ranks if all call `dispatch`,
`combine` and `wait` in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from numbers import Integral
from typing import Any, Generic, Literal, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from ina.aggregation.worker.token_routes import Indices, Leg, Tokens, ranks_in
from ina.backend.eager import eager
from ina.backend.membership import membership_of
from ina.backend.movements import IN_BACKGROUND, WAITED_FOR
from ina.backend.process_group import InaProcessGroup
from ina.base.native import lib

__all__ = ["Handle", "Plan", "combine", "dispatch"]

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NUMBERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)  # dtypes of experts
MOST_EXPERTS = 1 << 15  # whose numbers travel as int16
NOTHING, APART = -(1 << 20), 1 << 20  # levels of rows of zeros, and of those that are not added up on the way
BITS = 31  # of a sum, without its sign
WORD = torch.int32.itemsize  # bytes
LEAST = 16  # words of each rank in the first all-gather
COMMON = ("hidden size", "dtype", "experts per token", "num_experts", "having weights", "async_op")  # of all ranks of a dispatch
HEADER = 4 + len(COMMON)  # words: a problem, tokens, which gradients are needed, and those
Words: TypeAlias = npt.NDArray[np.int32]
Fill: TypeAlias = Callable[[Indices, torch.Tensor], None]  # writes the rows of tokens into memory
Moved: TypeAlias = list[tuple[Indices, torch.Tensor]]  # tokens, and their rows
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
    ours = _routing_group(group)
    exchange = _agreed(ours, tokens, experts, weights, num_experts, async_op)
    known = exchange.tokens
    join = torch.zeros(0, requires_grad=exchange.gives_tokens or exchange.gives_weights, device="cpu")
    flight, device, weighted = Flight(exchange, async_op), tokens.device, weights is not None
    ticket = _BeginDispatch.apply(flight, tokens, weights, join)

    def result() -> tuple[torch.Tensor, Plan]:
        rows, given, anchor = _EndDispatch.apply(flight, ticket)

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
    problem = _problem_of_outputs(outputs, plan)
    rows = torch.zeros(0, 1, device="cpu") if problem else _by_row(outputs, plan)
    grad = torch.is_grad_enabled() and (rows.requires_grad or plan._anchor.requires_grad)
    common = [0] * 4 if problem else [exchange.number, rows.shape[1], DTYPES.index(rows.dtype), bool(async_op)]
    own = [bool(problem), grad, *common, *(-each for each in common)]
    largest, levels = exchange.agree(own, None if problem else rows)
    if largest[0]:
        _raise_problem(exchange.group, "combine", problem)
    for name, high, low in zip(("plan", "hidden size", "dtype", "async_op"), largest[2:6], largest[6:], strict=True):
        if high != -low:
            raise ValueError(f"ina: moe.combine: the ranks differ in {name}: {_common(name, -low)} on one, "
                             f"{_common(name, high)} on another")
    join = torch.zeros(0, requires_grad=bool(largest[1]), device="cpu")
    flight = Flight(exchange, async_op)
    ticket = _BeginCombine.apply(flight, rows, levels, plan._anchor, join)

    def result() -> torch.Tensor:
        sums: torch.Tensor = _EndCombine.apply(flight, ticket)
        return sums

    return Handle(flight.rows.works, result) if async_op else result()


class Transfer:
    """Rows on their way."""

    def __init__(self, works: Sequence[dist.Work], finish: Callable[[], torch.Tensor]):
        """``finish``: returns what has become of the rows when all ``works`` have ended."""
        self.works, self._finish = works, finish

    def result(self) -> torch.Tensor:
        """Returns what has become of the rows, when they are here; once. RuntimeError: as of Handle.wait."""
        for work in self.works:
            work.wait()
        finish = self._finish
        del self.works, self._finish  # and with them what travelled, since autograd's graph has this for as long as it lives
        return finish()


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


class Exchange:
    """The rows of one dispatch, as they go to the experts' ranks and come back, once or several times. ``number``: of the plan,
    the same on all ranks."""

    def __init__(self, group: InaProcessGroup, tokens: Tokens, weights: torch.Tensor | None, gives_tokens: bool,
                 gives_weights: bool):
        """``weights``: of all ranks' tokens, (tokens, k). ``gives_tokens``, ``gives_weights``: some rank's need gradients."""
        self.group, self.tokens, self.weights = group, tokens, weights
        self.number = next(group.plans)
        self.gives_tokens, self.gives_weights = gives_tokens, gives_weights
        self.reason = group.why_no_routes()  # or "": what several ranks have is added up on the way
        self._packet = group.packet_words()
        self._several = ranks_in(tokens.others[tokens.several])

    @staticmethod
    def indices(of: npt.NDArray[np.integer], device: torch.device | None = None) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(of, np.int64)).to(device)

    def send(self, tokens: torch.Tensor, asynchronous: bool) -> Transfer:
        """Sends this rank's tokens to their experts' ranks. The result is the rows that it gets."""
        known, device, words = self.tokens, tokens.device, _words(tokens)
        rows = words.new_empty(known.rows.size, words.shape[1])
        rows.index_copy_(0, self.indices(known.own_row, device), words.index_select(0, self.indices(known.own, device)))

        def fill(which: Indices, memory: torch.Tensor) -> None:
            torch.index_select(words, 0, self.indices(which - known.begin, device), out=memory)

        works, (moved,) = self._move("moe_dispatch", device, asynchronous, (known.out, words.shape[1], fill))
        dtype, width = tokens.dtype, tokens.shape[1]

        def finish() -> torch.Tensor:
            for which, memory in moved:
                rows.index_copy_(0, self.indices(known.row_of(which), device), memory)
            return _values(rows, dtype, width)

        return Transfer(works, finish)

    def agree(self, own: Sequence[int], rows: torch.Tensor | None) -> tuple[list[int], Words]:
        """Returns the largest over all ranks of each of the numbers ``own``, and the levels of the rows of tokens that several
        ranks have, whose values are below 2^level. ``rows``: this rank's; None: it has no part in them."""
        self.group.why_no_routes()  # RuntimeError: the group's job is over
        known = self.tokens
        levels = np.full(0 if self.reason else known.several.size, NOTHING, np.int32)
        if rows is not None and levels.size:
            here = np.flatnonzero(known.others[known.several] >> np.uint32(known.rank) & 1)
            mine = rows.detach().index_select(0, self.indices(known.row_of(known.several[here]), rows.device))
            levels[here] = _levels(mine).cpu().numpy()
        words = torch.from_numpy(np.concatenate([np.array(own, np.int32), levels]))
        if words.numel():
            dist.all_reduce(words, dist.ReduceOp.MAX, group=self.group)
        levels = words[len(own) :].numpy() if levels.size else np.full(known.several.size, APART, np.int32)
        if rows is not None and rows.dtype != torch.float32:
            levels[self._several == 2] = APART
        return words[: len(own)].tolist(), levels

    def collect(self, rows: torch.Tensor, levels: Words, asynchronous: bool) -> Transfer:
        """Sends the rows to their tokens' ranks, which get the sums over the ranks. The result is those of this rank's tokens."""
        known, device = self.tokens, rows.device
        summed, single = known.back(levels == APART)
        shifts = BITS - np.frexp(self._several - 1)[1] - np.where(levels == NOTHING, 0, levels)

        def shift(which: Indices) -> torch.Tensor:
            """Returns s, a column: a token's integers are its values times 2^s."""
            return self.indices(shifts[np.searchsorted(known.several, which)], device)[:, None]

        def fill_bits(which: Indices, memory: torch.Tensor) -> None:
            torch.index_select(words, 0, self.indices(known.row_of(which), device), out=memory)

        def fill_integers(which: Indices, memory: torch.Tensor) -> None:
            values = rows.index_select(0, self.indices(known.row_of(which), device)).float()
            memory.copy_(_scaled(values, shift(which)).round_())

        words, width = _words(rows), rows.shape[1]
        works, (bits, integers) = self._move("moe_combine", device, asynchronous, (single, words.shape[1], fill_bits),
                                             (summed, width, fill_integers))
        own = rows.index_select(0, self.indices(known.own_row, device))

        def finish() -> torch.Tensor:
            parts = [(known.own, own)]
            parts += [(which - known.begin, _values(memory, own.dtype, width)) for which, memory in bits]
            parts += [(which - known.begin, memory * _powers(-shift(which), torch.float64)) for which, memory in integers]
            return self._total(parts, own)

        return Transfer(works, finish)

    def _total(self, parts: list[tuple[Indices, torch.Tensor]], like: torch.Tensor) -> torch.Tensor:
        """Returns the sums of rows, each with the number of its token; the bits of those that are alone."""
        known, device = self.tokens, like.device
        result = like.new_zeros(known.end - known.begin, like.shape[1])
        of_several = ranks_in(known.targets[known.begin : known.end]) > 1
        place: Indices = np.cumsum(of_several) - of_several
        total = torch.zeros(int(of_several.sum()), like.shape[1], dtype=torch.float64, device=device)
        for numbers, values in parts:
            adds = of_several[numbers]
            if not adds.all():
                alone = values.index_select(0, self.indices(np.flatnonzero(~adds), device))
                result.index_copy_(0, self.indices(numbers[~adds], device), alone.to(like.dtype))
                values = values.index_select(0, self.indices(np.flatnonzero(adds), device))
            total.index_add_(0, self.indices(place[numbers[adds]], device), values.double())
        return result.index_copy_(0, self.indices(np.flatnonzero(of_several), device), total.float().to(like.dtype))

    def pair_weights(self) -> torch.Tensor:
        """Returns the weights of the plan's pairs."""
        assert self.weights is not None
        known = self.tokens
        return self.weights[self.indices(known.rows[known.row]), self.indices(known.slot)]

    def return_weights(self, gradients: torch.Tensor) -> torch.Tensor:
        """Returns the gradients of this rank's weights, each of which one rank has, of those ``gradients`` of pairs."""
        known = self.tokens
        ranks, most, k = len(known.counts), max(known.counts), known.experts.shape[1]
        begins = np.cumsum([0, *known.counts])
        token = known.rows[known.row]
        source = known.source[token]
        bits = torch.zeros(ranks, most, k, dtype=torch.int32, device="cpu")
        bits[self.indices(source), self.indices(token - begins[source]), self.indices(known.slot)] = (
            gradients.to("cpu", torch.float32).view(torch.int32))
        own = torch.zeros(most, k, dtype=torch.int32, device="cpu")
        if own.numel():
            dist.reduce_scatter(own, list(bits), group=self.group)
        return own.view(torch.float32)[: known.end - known.begin].to(gradients.device)

    def _move(self, name: str, device: torch.device, asynchronous: bool,
              *loads: tuple[Leg, int, Fill]) -> tuple[list[dist.Work], list[Moved]]:
        """Moves rows of words as one collective: for each load a leg, the width of its rows, and what writes those of the given
        tokens, which this rank sends, into memory. Returns the works that move them, and for each load the rows that this rank
        gets when they have ended, in parts with the tokens whose they are."""
        if self.reason:
            works, everything = [], []
            for load in loads:
                sent, moved = self._exchanged(name, device, *load)
                works += sent
                everything.append(moved)
                if not asynchronous:
                    for work in sent:
                        work.wait()
            return works, everything
        sizes = [leg.here * width for leg, width, _ in loads]
        words = torch.empty(max(1, sum(sizes)), dtype=torch.int32, device=device)
        everything, tables, begin = [], [], 0
        for (leg, width, fill), size in zip(loads, sizes, strict=True):
            if not leg.rows:
                everything.append([])
                continue
            memory = words[begin : begin + size].view(leg.here, width)
            for which, place in leg.places(leg.sent):
                fill(which, memory[place])
            everything.append([(which, memory[place]) for which, place in leg.places(leg.got)])
            tables.append(leg.pieces(width, begin, self._packet))
            begin += size
        if not tables:
            return [], everything
        group = self.group.lane(name) if asynchronous else self.group
        work = group.route_words(words, name, np.concatenate(tables), f"of plan {self.number}",
                                 IN_BACKGROUND if asynchronous else WAITED_FOR)
        if not asynchronous:
            work.wait()
        return [work], everything

    def _exchanged(self, name: str, device: torch.device, leg: Leg, width: int, fill: Fill) -> tuple[list[dist.Work], Moved]:
        """Moves rows of words through Gloo."""
        if not leg.rows:
            return [], []
        out, into = leg.by_rank(self.group.size())
        which, whose = leg.sent[np.concatenate(out)], leg.got[np.concatenate(into)]
        sent, received = (torch.empty(each.size, width, dtype=torch.int32, device=device) for each in (which, whose))
        fill(which, sent)
        return [self.group.exchange_words(received, sent, list(map(len, into)), list(map(len, out)), name,
                                          self.reason)], [(whose, received)]


# The backward passes of the ends run on all ranks, whatever their experts did: `join` needs gradients wherever any rank's tensors
# do, and an anchor ties a combine to its dispatch. Tickets and anchors have no elements.


class _BeginDispatch(torch.autograd.Function):
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


class _EndDispatch(torch.autograd.Function):
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


class _BeginCombine(torch.autograd.Function):
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


class _EndCombine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flight: Flight, ticket: torch.Tensor) -> torch.Tensor:
        ctx.flight = flight
        return flight.rows.result()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, result: torch.Tensor) -> tuple[None, torch.Tensor]:
        ctx.flight.back = ctx.flight.exchange.send(result, ctx.flight.asynchronous)
        return None, result.new_empty(0)


def _agreed(group: InaProcessGroup, tokens: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor | None,
            num_experts: int, asynchronous: bool) -> Exchange:
    """Exchanges which experts the ranks' tokens have. Raises ValueError, on all ranks."""
    problem = _problem_of_tokens(tokens, experts, weights, num_experts, group.size())
    own = np.array([1], np.int32)
    if not problem:
        grad = torch.is_grad_enabled()
        header = [0, len(tokens), tokens.requires_grad and grad, weights is not None and weights.requires_grad and grad,
                  tokens.shape[1], DTYPES.index(tokens.dtype), experts.shape[1], num_experts, weights is not None,
                  bool(asynchronous)]
        ids = experts.detach().cpu().numpy().astype(np.int16).reshape(-1)
        own = np.concatenate([np.array(header, np.int32), np.append(ids, np.zeros(ids.size % 2, np.int16)).view(np.int32)])
        if weights is not None:
            bits = weights.detach().to("cpu", torch.float32).contiguous().view(torch.int32)
            own = np.concatenate([own, bits.numpy().reshape(-1)])
    gathered = _gather_words(group, own)
    if any(words[0] for words in gathered):
        _raise_problem(group, "dispatch", problem)
    for place, name in enumerate(COMMON, HEADER - len(COMMON)):
        if len({int(words[place]) for words in gathered}) > 1:
            each = ", ".join(f"{_common(name, words[place])} at rank {rank}" for rank, words in enumerate(gathered))
            raise ValueError(f"ina: moe.dispatch: the ranks differ in {name}: {each}")
    k, all_experts, all_weights = experts.shape[1], [], []
    for words in gathered:
        count = int(words[1]) * k
        middle = HEADER + (count + 1) // 2
        all_experts.append(words[HEADER:middle].view(np.int16)[:count].reshape(-1, k))
        all_weights.append(words[middle:].view(np.float32))
    given = None if weights is None else torch.from_numpy(np.concatenate(all_weights).reshape(-1, k))
    return Exchange(group, Tokens(all_experts, num_experts // group.size(), group.rank()), given,
                    any(words[2] for words in gathered), any(words[3] for words in gathered))


def _gather_words(group: InaProcessGroup, own: Words) -> list[Words]:
    """All-gathers as many words as each rank has: in one all-gather of as many as a packet has room for, or a rank had the last
    time, and a second one of what is left on any rank."""
    ranks = group.size()
    room = max(LEAST, group.packet_words() // ranks, 1 + group.most_words) - 1
    first = np.zeros(1 + room, np.int32)
    first[0], first[1 : 1 + min(room, own.size)] = own.size, own[:room]
    together = torch.empty(ranks, first.size, dtype=torch.int32, device="cpu")
    dist.all_gather(list(together), torch.from_numpy(first), group=group)
    parts = together.numpy()
    group.most_words = int(parts[:, 0].max())
    left = [torch.empty(max(0, int(size) - room), dtype=torch.int32, device="cpu") for size in parts[:, 0]]
    if any(map(len, left)):
        dist.all_gather(left, torch.from_numpy(own[room:]), group=group)
    return [np.concatenate([part[1 : 1 + part[0]], rest.numpy()]) for part, rest in zip(parts, left, strict=True)]


def _routing_group(group: dist.ProcessGroup | None) -> InaProcessGroup:
    ours = membership_of(group)
    assert isinstance(ours, InaProcessGroup)
    if ours.size() > lib.INA_BITMAP_WORKERS:
        raise ValueError(f"ina: moe.dispatch: a group of {ours.size()} ranks, expected {lib.INA_BITMAP_WORKERS} at most")
    return ours


def _problem_of_tokens(tokens: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor | None, num_experts: int,
                       ranks: int) -> str:
    """Returns what is wrong with the arguments of `dispatch`; "": nothing."""
    if problem := _problem_of_rows("tokens", tokens):
        return problem
    if not isinstance(num_experts, Integral) or not 1 <= num_experts <= MOST_EXPERTS or num_experts % ranks:
        return f"num_experts: {num_experts!r}, expected an integer, a multiple of the {ranks} ranks, {MOST_EXPERTS} at most"
    if not _dense(experts) or experts.dtype not in NUMBERS:
        return f"experts: {_described(experts)}, expected int64, int32, int16, int8 or uint8"
    if experts.dim() != 2 or len(experts) != len(tokens) or experts.shape[1] < 1:
        return f"experts: {_described(experts)}, expected ({len(tokens)}, k): k of each token"
    if experts.numel() and not (-1 <= int(experts.min()) and int(experts.max()) < num_experts):
        return f"experts: from {int(experts.min())} to {int(experts.max())}, expected 0 to {num_experts - 1}, or -1 for none"
    if weights is not None and not (_dense(weights) and weights.is_floating_point() and weights.shape == experts.shape):
        return f"weights: {_described(weights)}, expected floats, {tuple(experts.shape)} as experts"
    return ""


def _problem_of_outputs(outputs: torch.Tensor, plan: Plan) -> str:
    """Returns what is wrong with the outputs of a `combine`; "": nothing."""
    if problem := _problem_of_rows("outputs", outputs):
        return problem
    if len(outputs) != len(plan.row):
        return f"outputs: {_described(outputs)}, expected ({len(plan.row)}, H): one for each of the plan's pairs"
    if outputs.device != plan.row.device:
        return f"outputs: on {outputs.device}, expected {plan.row.device}, as the rows"
    return ""


def _problem_of_rows(name: str, rows: torch.Tensor) -> str:
    if not _dense(rows) or rows.dtype not in DTYPES:
        return f"{name}: {_described(rows)}, expected dense float32, bfloat16 or float16"
    if rows.dim() != 2 or rows.shape[1] < 1:
        return f"{name}: {_described(rows)}, expected two dimensions, the second of 1 or more"
    return ""


def _dense(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type in ("cpu", "cuda")


def _described(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    where = f" on {value.device}" * (value.device.type != "cpu")
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}{where}"


def _common(name: str, number: int) -> str:
    return str(DTYPES[number]).removeprefix("torch.") if name == "dtype" else str(number)


def _raise_problem(group: InaProcessGroup, call: str, problem: str) -> None:
    """Raises ValueError on all ranks, with the problem of the first rank that has one."""
    problems: list[str] = [""] * group.size()
    dist.all_gather_object(problems, problem, group=group)
    rank = next(rank for rank, each in enumerate(problems) if each)
    raise ValueError(f"ina: moe.{call}: rank {rank}: {problems[rank]}")


def _by_row(outputs: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Returns the weighted sum of the outputs of each row's experts. One output without a weight is its bits."""
    first, rest = (Exchange.indices(of, outputs.device) for of in (plan._exchange.tokens.first, plan._exchange.tokens.rest))
    if plan.weights is None and not len(rest):
        return outputs.index_select(0, first)
    wide = outputs.float() if plan.weights is None else outputs.float() * plan.weights[:, None]
    rows = wide.index_select(0, first).index_add_(0, plan.row[rest], wide.index_select(0, rest))
    return rows.to(outputs.dtype)


def _words(rows: torch.Tensor) -> torch.Tensor:
    """Returns the bits of rows as int32, each with zeros up to a whole word; their own memory where possible."""
    size = rows.element_size()
    whole = rows.detach().resolve_neg().contiguous()
    if rows.shape[1] * size % WORD:
        whole = torch.nn.functional.pad(whole, (0, 1))
    elif whole.storage_offset() * size % WORD or whole.data_ptr() % WORD:
        whole = whole.clone()
    return whole.flatten().view(torch.int32).view(len(whole), whole.shape[1] * size // WORD)  # no rows have any strides


def _values(words: torch.Tensor, dtype: torch.dtype, width: int) -> torch.Tensor:
    """Returns rows of ``width`` values, of their bits as int32."""
    return words.view(dtype)[:, :width].contiguous()


def _levels(rows: torch.Tensor) -> torch.Tensor:
    """Returns for each row the least e so that all absolute values are below 2^e; NOTHING for zeros, APART if some are not
    finite."""
    largest = rows.abs().amax(1).float()
    levels = torch.where(largest == 0, NOTHING, torch.frexp(largest).exponent)
    return torch.where(largest.isfinite(), levels, APART).to(torch.int32)


def _scaled(rows: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Multiplies float32 rows by 2^shift in place, and returns them. Two factors, as one may be beyond float32; both products
    are exact, or too small to be more than 0 as integers."""
    half = shift // 2
    return rows.mul_(_powers(half, torch.float32)).mul_(_powers(shift - half, torch.float32))


def _powers(exponents: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns 2^exponents, of normal numbers."""
    if dtype == torch.float64:
        return (exponents + 1023 << 52).view(dtype)
    return (exponents + 127 << 23).to(torch.int32).view(dtype)
