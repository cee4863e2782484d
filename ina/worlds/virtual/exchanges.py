"""All-to-alls between hosts with any number of rows from each rank to each: flat, and in two levels. Phases of a longer schedule.

    flat        each row goes from its rank to the other one: as many as there are
    two levels  within a server first, to the rank whose place is that of the receiver in its own server; then between servers,
                among ranks of one place. A row whose two ranks differ in place travels in the first, one whose servers differ
                in the second, so one that differs in both travels twice; in return a rank sends to fewer others

The latter is the two-dimensional all-to-all of Tutel (microsoft/tutel: `nccl_all_to_all_2d_async` in custom_kernel.cpp), but for
a barrier: a rank's own rows do not wait for those that it passes on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ina.worlds.virtual.collectives import COPY, Schedule

Rows = npt.NDArray[np.int64]  # (ranks, ranks): from each rank to each


@dataclass(frozen=True)
class Servers:
    """Servers of equal numbers of ranks: the server of each rank, and its place there."""

    server: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]

    @classmethod
    def of(cls, names: Sequence[str]) -> Servers | None:
        """``names``: of each rank's server. None: two levels would be one, as there is one server, or one rank in each; or
        servers differ in size."""
        order = list(dict.fromkeys(names))
        server = np.array([order.index(name) for name in names], np.int64)
        place = np.array([names[:rank].count(name) for rank, name in enumerate(names)], np.int64)
        sizes = {names.count(name) for name in order}
        return cls(server, place) if len(sizes) == 1 and 1 < sizes.pop() < len(names) else None

    def rank(self, server: int, place: int) -> int:
        """Returns a rank by its server and its place there."""
        return int(np.flatnonzero((self.server == server) & (self.place == place))[0])

    def carried(self, rows: Rows) -> tuple[int, int]:
        """Returns how many rows travel in each of the two levels."""
        other_place, other_server = (each[:, None] != each[None, :] for each in (self.place, self.server))
        return int(rows[other_place].sum()), int(rows[other_server].sum())


def begins(rows: Rows, servers: Servers | None = None) -> Rows:
    """Returns where each pair's rows begin in a tensor of all rows: by sender, then by the receiver's place and server."""
    ranks = np.arange(len(rows))
    order = ranks if servers is None else np.lexsort((servers.server, servers.place))
    ordered = rows[:, order].ravel()
    found = np.zeros_like(rows)
    found[:, order] = (np.cumsum(ordered) - ordered).reshape(rows.shape)
    return found


def flat(schedule: Schedule, rows: Rows, at: Rows, after: int, gate: int) -> None:
    """Adds an all-to-all: sends wait for gate ``after``, and ``gate`` opens at a rank that has all of its rows. ``at``: where
    each pair's rows begin."""
    n = len(rows)
    for turn, rank in itertools.product(range(1, n), range(n)):
        other = (rank + turn) % n
        if rows[rank, other]:
            begin = int(at[rank, other])
            schedule.move(rank, other, (begin, begin + int(rows[rank, other])), COPY, after, (gate, gate))


def two_levels(schedule: Schedule, servers: Servers, rows: Rows, at: Rows, after: int, gate: int) -> None:
    """Adds an all-to-all as `flat`, in two levels. Gates ``gate`` and ``gate + 1`` are its own: all rows of the first level, and
    all rows of a rank. ``at``: of `begins` with these servers."""
    n, many, each = len(rows), int(servers.server.max()) + 1, int(servers.place.max()) + 1
    rank_of = np.array([[servers.rank(server, place) for place in range(each)] for server in range(many)])
    for turn, rank in itertools.product(range(1, each), range(n)):
        place = (servers.place[rank] + turn) % each
        to = rank_of[:, place]  # of the receiver's place, on each server: their rows are neighbours
        begin, count = int(at[rank, to].min()), int(rows[rank, to].sum())
        if count:
            schedule.move(rank, int(rank_of[servers.server[rank], place]), (begin, begin + count), COPY, after, (gate, gate + 1))
    for passed_on in (False, True):
        for turn, rank in itertools.product(range(1, many), range(n)):
            other = int(rank_of[(servers.server[rank] + turn) % many, servers.place[rank]])
            for source in rank_of[servers.server[rank]] if passed_on else (rank,):
                if rows[source, other] and passed_on == (source != rank):
                    begin = int(at[source, other])
                    schedule.move(rank, other, (begin, begin + int(rows[source, other])), COPY, gate if passed_on else after,
                                  (gate + 1, gate + 1))
