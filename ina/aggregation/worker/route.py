"""Routes: sums that have values from some workers only, and go to some only (host/protocol/route.h, p4/receivers.p4).

    Route.reduce_scatter([5, 0, 7])     worker 0 gets the sums of the first 5 elements, worker 2 those of the last 7
    Route.all_gather([5, 0, 7])         they have these elements, and all others get them
    Route.reduce(1), Route.broadcast(1), Route.gather(1, pieces), Route.scatter(1, pieces), Route.barrier()
    Route.all_to_all(sizes, 1, 512)     of worker 1: its array has the pieces for each worker, then room for those from each
    Route.of(pieces)                    any list of pieces, each from and to any set of workers, anywhere in a worker's array

Pieces of all-gathers and reduce-scatters take turns, TURN packets each, so that all links are busy: one behind the other, an
owner's link would be idle one way while the others get its piece, or add to it. A protocol has all of these or none
(``protocols.routes``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ina.base.native import CData, ffi, lib

# struct ina_piece. `end` is the worker's own.
PIECE = np.dtype([("count", "u8"), ("at", "u8"), ("sources", "u4"), ("receivers", "u4"), ("end", "u8")])
Table: TypeAlias = npt.NDArray[np.void]  # of PIECE
ALL, OWNER = "all", "owner"
TURN = 4  # packets of a piece, before it is the next one's turn


class Route:
    """Pieces of a tensor, each with its sources and receivers. ``one_source``: at most one source each, so nothing is summed."""

    def __init__(self, table: Callable[[int, int, int], Table], one_source: bool):
        """``table``: of a tensor of so many elements, in a job of so many workers, with so many values in a packet."""
        self._table, self.one_source = table, one_source
        self._tables: dict[tuple[int, int, int], Table] = {}  # tensors that are not done have pointers to them

    @classmethod
    def _between(cls, sources: int | str, receivers: int | str, pieces: Sequence[int] | None = None) -> Route:
        """Pieces that lie one behind the other, each from and to one worker, ALL, or its OWNER; None: one piece. They take turns
        where ALL have or get all of them."""

        def table(count: int, workers: int, values: int) -> Table:
            counts = np.array([count] if pieces is None else pieces, np.int64)
            if pieces is not None and (counts.size != workers or counts.min() < 0 or counts.sum() != count):
                raise ValueError(f"route: pieces {tuple(pieces)}, expected one of each of {workers} workers, "
                                 f"{count} elements together")
            rows = np.zeros(counts.size, PIECE)
            rows["count"], rows["at"] = counts, np.cumsum(counts) - counts
            rows["sources"], rows["receivers"] = _sets(sources, workers), _sets(receivers, workers)
            return _in_turns(rows, TURN * values) if {sources, receivers} == {ALL, OWNER} else rows

        return cls(table, sources != ALL)

    @classmethod
    def reduce(cls, root: int) -> Route:
        """The sum goes to ``root``."""
        return cls._between(ALL, root)

    @classmethod
    def reduce_scatter(cls, pieces: Sequence[int]) -> Route:
        """The sums of each piece go to its owner."""
        return cls._between(ALL, OWNER, pieces)

    @classmethod
    def broadcast(cls, root: int) -> Route:
        """All others get what ``root`` has."""
        return cls._between(root, ALL)

    @classmethod
    def all_gather(cls, pieces: Sequence[int]) -> Route:
        """All others get each piece from its owner."""
        return cls._between(OWNER, ALL, pieces)

    @classmethod
    def gather(cls, root: int, pieces: Sequence[int]) -> Route:
        """``root`` gets each piece from its owner."""
        return cls._between(OWNER, root, pieces)

    @classmethod
    def scatter(cls, root: int, pieces: Sequence[int]) -> Route:
        """Each owner gets its piece from ``root``."""
        return cls._between(root, OWNER, pieces)

    @classmethod
    def barrier(cls) -> Route:
        """Nobody gets anything: of a tensor without elements, in one packet."""
        return cls.of(np.zeros(0, PIECE))

    @classmethod
    def all_to_all(cls, sizes: Sequence[Sequence[int]] | npt.NDArray[np.integer], worker: int, chunk: int) -> Route:
        """Each ``worker`` i has ``sizes[i][j]`` elements for worker j, the same ``sizes`` at all of them. Its array has those,
        one piece behind the other, then room for the pieces that it gets, by source. The piece for itself stays where it is.
        Pieces take turns in parts of ``chunk`` elements, so that all links are busy."""
        matrix = np.asarray(sizes, np.int64)
        workers, sent = len(matrix), int(matrix[worker].sum())
        source, target = (axis.ravel() for axis in np.indices(matrix.shape))
        pair, number = _chunks(matrix.ravel() * (source != target), chunk)
        order = np.lexsort((source[pair], (target - source)[pair] % workers, number))
        pair, number = pair[order], number[order]
        table = np.zeros(pair.size, PIECE)
        table["count"] = np.minimum(chunk, matrix.ravel()[pair] - chunk * number)
        table["sources"], table["receivers"] = 1 << source[pair], 1 << target[pair]
        out = np.cumsum(matrix[worker]) - matrix[worker]
        into = sent + np.cumsum(matrix[:, worker]) - matrix[:, worker]
        begin = np.where(source[pair] == worker, out[target[pair]], into[source[pair]])
        mine = (source[pair] == worker) | (target[pair] == worker)
        table["at"] = np.where(mine, begin + chunk * number, 0)
        return cls(lambda count, workers, values: table, True)

    @classmethod
    def of(cls, table: Table) -> Route:
        """Pieces as they are listed: an array of PIECE. ``count``, ``sources`` and ``receivers`` are the same at all workers;
        ``at`` is where this worker's array, of any size, has the piece, if it is in one of the sets."""
        return cls(lambda count, workers, values: table, False)

    def table(self, count: int, workers: int, values: int) -> Table:
        """Returns the pieces of a tensor of ``count`` elements in a job of so many ``workers``, with so many ``values`` in a
        packet."""
        key = count, workers, values
        if key not in self._tables:
            self._tables[key] = self._table(*key)
        return self._tables[key]

    def fill(self, c: CData, workers: int, worker: int, values: int) -> None:
        """Describes the route in a ``struct ina_tensor``, whose other fields are there; the caller keeps this object until the
        tensor is done. Raises ValueError: it does not fit the tensor, or the job of so many ``workers``, with so many ``values``
        in a packet."""
        if c.reduction != lib.INA_SUM:
            raise ValueError("route: of a maximum, expected a sum")
        room = c.count
        table = self.table(room, workers, values)
        if table.dtype != PIECE or table.ndim != 1 or not table.flags.c_contiguous or not table.flags.writeable:
            raise ValueError(f"route: pieces are {table.dtype} of shape {table.shape}, expected a contiguous row of PIECE")
        sets = table["sources"] | table["receivers"]
        if (sets & ~np.uint32(_all(workers))).any():
            raise ValueError(f"route: a piece from or to others than the workers 0..{workers - 1}")
        if c.dtype != lib.INA_INT32 and (table["sources"] != _all(workers)).any():
            raise ValueError("route: float32 from some workers only, expected int32: they have no exponents in common")
        own = table[(sets >> np.uint32(worker) & 1) != 0]
        if (own["count"] > room).any() or (own["at"] > room - own["count"]).any():
            raise ValueError(f"route: a piece of worker {worker} lies outside of its {room} elements")
        c.routed, c.count = 1, int(table["count"].sum())
        c.pieces, c.pieces_count = ffi.cast("struct ina_piece *", table.ctypes.data), table.size


def _all(workers: int) -> int:
    return (1 << workers) - 1


def _chunks(counts: npt.NDArray[np.int64], chunk: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Cuts pieces into chunks of ``chunk`` elements at most. Returns of each chunk its piece, and which of the piece's it is."""
    parts = -(-counts // chunk)
    piece = np.repeat(np.arange(counts.size), parts)
    return piece, np.arange(piece.size) - np.repeat(np.cumsum(parts) - parts, parts)


def _in_turns(rows: Table, chunk: int) -> Table:
    """Returns the pieces in chunks, the first of each, the second of each, ..."""
    counts = rows["count"].astype(np.int64)
    piece, number = _chunks(counts, chunk)
    order = np.argsort(number, kind="stable")
    piece, number = piece[order], number[order]
    table, before = rows[piece], chunk * number
    table["count"] = np.minimum(chunk, counts[piece] - before)
    table["at"] += before.astype(np.uint64)
    return table


def _sets(who: int | str, workers: int) -> list[int] | int:
    """Returns bitmaps: one for all pieces, or that of each piece's owner."""
    if isinstance(who, str):
        return _all(workers) if who == ALL else [1 << worker for worker in range(workers)]
    if not 0 <= who < workers:
        raise ValueError(f"route: worker {who}, expected 0..{workers - 1}")
    return 1 << who


def fill_route(c: CData, route: Route | None, workers: int, worker: int, values: int) -> None:
    """Describes a route, or that there is none. Raises ValueError."""
    c.routed, c.pieces, c.pieces_count = 0, ffi.NULL, 0
    if route is not None:
        route.fill(c, workers, worker, values)
