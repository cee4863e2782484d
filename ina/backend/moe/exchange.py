"""Rows of one dispatch on their way: to the experts' ranks, and back, added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from ina.aggregation.worker.token_routes import Indices, Leg, Tokens, ranks_in
from ina.backend.moe.rows import APART, BITS, NOTHING, Words, levels_of, powers, scaled, values_of, words_of
from ina.backend.movements import IN_BACKGROUND, WAITED_FOR
from ina.backend.process_group import InaProcessGroup

Fill: TypeAlias = Callable[[Indices, torch.Tensor], None]  # writes the rows of tokens into memory
Moved: TypeAlias = list[tuple[Indices, torch.Tensor]]  # tokens, and their rows


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
        known, device, words = self.tokens, tokens.device, words_of(tokens)
        rows = words.new_empty(known.rows.size, words.shape[1])
        rows.index_copy_(0, self.indices(known.own_row, device), words.index_select(0, self.indices(known.own, device)))

        def fill(which: Indices, memory: torch.Tensor) -> None:
            torch.index_select(words, 0, self.indices(which - known.begin, device), out=memory)

        works, (moved,) = self._move("moe_dispatch", device, asynchronous, (known.out, words.shape[1], fill))
        dtype, width = tokens.dtype, tokens.shape[1]

        def finish() -> torch.Tensor:
            for which, memory in moved:
                rows.index_copy_(0, self.indices(known.row_of(which), device), memory)
            return values_of(rows, dtype, width)

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
            levels[here] = levels_of(mine).cpu().numpy()
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
            memory.copy_(scaled(values, shift(which)).round_())

        words, width = words_of(rows), rows.shape[1]
        works, (bits, integers) = self._move("moe_combine", device, asynchronous, (single, words.shape[1], fill_bits),
                                             (summed, width, fill_integers))
        own = rows.index_select(0, self.indices(known.own_row, device))

        def finish() -> torch.Tensor:
            parts = [(known.own, own)]
            parts += [(which - known.begin, values_of(memory, own.dtype, width)) for which, memory in bits]
            parts += [(which - known.begin, memory * powers(-shift(which), torch.float64)) for which, memory in integers]
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
