"""Rows of a mixture of experts (ina/backend/moe/) on their way between ranks: from whom, to whom, and where each rank has them.

Sets of ranks are bitmaps: rank i is bit i. A token does not travel to its own rank, nor its sum from there, so no rank is in both
sets of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ina.aggregation.worker.route import PIECE, Table

Indices: TypeAlias = npt.NDArray[np.int64]
Bitmaps: TypeAlias = npt.NDArray[np.uint32]
CHUNK = 4  # packets of one rank's rows, before it is the next one's turn


class Leg:
    """Rows of one width on their way out from their tokens' ranks, or back to them, as one rank sees them. Its memory has those
    that it sends or gets, ``here``, one after the other; those with the same two sets are neighbours, so that they share packets.
    Sets are in no order of ranks, so that all ranks have rows from the first packet to the last.

    ``sent``, ``got``: the tokens of the rows that it sends and gets, in the order of its memory.
    """

    def __init__(self, tokens: Indices, owners: Indices, others: Bitmaps, rank: int, outward: bool):
        """For each row: its token, the token's rank, and the other end."""
        order = np.lexsort((tokens, others, _mixed(others), owners))
        tokens, self._owners = tokens[order], owners[order]
        ends = _bit(self._owners), others[order]
        self._sources, self._receivers = ends if outward else ends[::-1]
        sends, gets = _has(self._sources, rank), _has(self._receivers, rank)
        self._mine, self._outward = sends | gets, outward
        self._at: Indices = np.cumsum(self._mine) - self._mine
        self.rows, self.here = len(order), int(self._mine.sum())
        self.sent: Indices = tokens[sends]
        self.got: Indices = tokens[gets]
        self._of_sent, self._of_got = self._receivers[sends], self._sources[gets]
        before = int(self._mine[self._owners < rank].sum())
        self._own = slice(before, before + int((self._owners == rank).sum()))

    def places(self, tokens: Indices) -> list[tuple[Indices, slice]]:
        """Returns the tokens ``sent`` or ``got`` in parts, with the rows of each part: those of the rank's own tokens are
        together, and those of others before and behind."""
        first, behind = self._own.start, self._own.stop
        if (tokens is self.sent) == self._outward:
            return [(tokens, self._own)]
        return [(tokens[:first], slice(first)), (tokens[first:], slice(behind, self.here))]

    def pieces(self, width: int, begin: int, values: int) -> Table:
        """Returns the rows as pieces of a route, of ``width`` words each; the rank's memory of them is from word ``begin`` on.
        Ranks take turns after CHUNK packets of ``values`` words, so that all links are busy."""
        differs = np.diff(self._owners) | np.diff(self._sources) | np.diff(self._receivers)  # not 0: another row's sets
        first = np.flatnonzero(np.concatenate([np.ones(min(1, self.rows), bool), differs != 0]))
        words = width * np.diff(first, append=self.rows)
        parts = -(-words // (CHUNK * values))
        run = np.repeat(np.arange(first.size), parts)
        done = CHUNK * values * (np.arange(run.size) - np.repeat(np.cumsum(parts) - parts, parts))
        owners = self._owners[first][run]
        order = np.lexsort((owners, np.arange(run.size) - np.searchsorted(owners, owners)))
        run, done = run[order], done[order]
        table = np.zeros(run.size, PIECE)
        table["count"] = np.minimum(CHUNK * values, words[run] - done)
        table["sources"], table["receivers"] = self._sources[first][run], self._receivers[first][run]
        table["at"] = np.where(self._mine[first][run], begin + width * self._at[first][run] + done, 0)
        return table

    def by_rank(self, ranks: int) -> tuple[list[Indices], list[Indices]]:
        """Returns which of ``sent`` go to each rank, and which of ``got`` come from each, in the same order at both ends; of rows
        with one source."""
        return ([np.flatnonzero(_has(self._of_sent, rank)) for rank in range(ranks)],
                [np.flatnonzero(_has(self._of_got, rank)) for rank in range(ranks)])


class Tokens:
    """The tokens of all ranks, one rank's after the other's, and the ranks of their experts, as one ``rank`` sees them.

    ``experts``: (tokens, k), -1: none; ``source``: each token's rank; ``targets``: the ranks of its experts, ``others``: without
    its own; ``begin``, ``end``: this rank's own tokens. ``rows``: the tokens that have experts here; ``own``, ``own_row``: those
    of them that are this rank's, counted from ``begin``, and which rows they are. ``row``, ``slot``, ``expert``: of each pair of
    a row and one of its experts here, sorted by expert; ``first``, ``rest``: the first pair of each row, and all others.
    """

    def __init__(self, experts: Sequence[npt.NDArray[np.integer]], per_rank: int, rank: int):
        """``experts``: of each rank's tokens."""
        counts = [len(each) for each in experts]
        self.rank, self.counts = rank, counts
        self.experts = np.concatenate(experts).astype(np.int64)
        self.source = np.repeat(np.arange(len(counts)), counts)
        owned = np.where(self.experts >= 0, np.int64(1) << np.maximum(self.experts, 0) // per_rank, 0)
        self.targets: Bitmaps = np.bitwise_or.reduce(owned, axis=1).astype(np.uint32)
        self.others: Bitmaps = self.targets & ~_bit(self.source)
        self.rows = np.flatnonzero(_has(self.targets, rank))
        self.begin = sum(counts[:rank])
        self.end = self.begin + counts[rank]
        chosen = self.experts[self.rows]
        row, slot = np.nonzero((chosen >= 0) & (chosen // per_rank == rank))
        expert = chosen[row, slot] - per_rank * rank
        order = np.argsort(expert, kind="stable")
        self.row, self.slot, self.expert = row[order], slot[order], expert[order]
        self.per_expert: list[int] = np.bincount(expert, minlength=per_rank).tolist()
        own = self.begin + np.flatnonzero(_has(self.targets[self.begin : self.end], rank))
        self.own, self.own_row = own - self.begin, self.row_of(own)
        first = np.unique(self.row, return_index=True)[1]
        self.first, self.rest = first, np.delete(np.arange(self.row.size), first)
        self._ways_back: dict[bytes, tuple[Leg, Leg]] = {}

    @cached_property
    def out(self) -> Leg:
        """Tokens on their way to their experts' ranks, each once."""
        tokens = np.flatnonzero(self.others)
        return Leg(tokens, self.source[tokens], self.others[tokens], self.rank, outward=True)

    @cached_property
    def several(self) -> Indices:
        """Tokens for which several other ranks have something: sums."""
        return np.flatnonzero(self.others & (self.others - np.uint32(1)))

    def back(self, apart: npt.NDArray[np.bool_]) -> tuple[Leg, Leg]:
        """Returns the way back: of sums, and of rows that are added to nothing on the way, which are those of one other rank, and
        of ``several`` those ``apart``."""
        key = apart.tobytes()
        if key not in self._ways_back:
            self._ways_back[key] = self._back(apart)
        return self._ways_back[key]

    def _back(self, apart: npt.NDArray[np.bool_]) -> tuple[Leg, Leg]:
        summed, alone = self.several[~apart], self.others.astype(bool)
        alone[summed] = False
        tokens = np.flatnonzero(alone)
        which, contributor = np.nonzero(self.others[tokens, None] >> np.arange(len(self.counts), dtype=np.uint32) & 1)
        single = tokens[which]
        return (Leg(summed, self.source[summed], self.others[summed], self.rank, outward=False),
                Leg(single, self.source[single], _bit(contributor), self.rank, outward=False))

    def row_of(self, tokens: Indices) -> Indices:
        """Returns the rows of tokens that have experts at this rank."""
        return np.searchsorted(self.rows, tokens)


def ranks_in(sets: Bitmaps) -> Indices:
    """Returns how many ranks are in each set."""
    counts: Indices = np.unpackbits(sets.astype("<u4").view(np.uint8).reshape(-1, 4), axis=1).sum(axis=1, dtype=np.int64)
    return counts


def _mixed(sets: Bitmaps) -> Bitmaps:
    """Returns a number for each set that depends on all of its ranks, and is small or large whatever rank is in it."""
    mixed = sets.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # odd: 2^64 over the golden ratio
    mixed ^= mixed >> np.uint64(32)
    return (mixed * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)).astype(np.uint32)


def _bit(ranks: Indices) -> Bitmaps:
    return np.left_shift(np.uint32(1), ranks.astype(np.uint32))


def _has(sets: Bitmaps, rank: int) -> npt.NDArray[np.bool_]:
    return (sets >> np.uint32(rank) & 1).astype(bool)
