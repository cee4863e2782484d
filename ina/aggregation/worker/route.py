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

import operator
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ina.aggregation.lane import DTYPES, FLOATS, dtype_name
from ina.base.native import CData, ffi, lib

PIECE = np.dtype([("count", "u8"), ("at", "u8"), ("sources", "u4"), ("receivers", "u4")])  # struct ina_piece
Table: TypeAlias = npt.NDArray[np.void]  # of PIECE
ALL, OWNER = "all", "owner"
TURN = 4  # packets of a piece, before it is the next one's turn
MOST_ELEMENTS = 2**61 - 1  # of a tensor: ina_tensor_valid
MOST_PIECES = 2**28  # of an all-to-all
WIDTHS = {code: dtype.itemsize for dtype, code in DTYPES.items()}  # bytes of an element
_FLOATS = {code: dtype_name(dtype) for dtype, code in FLOATS.items()}


class Route:
    """Pieces of a tensor, each with its sources and receivers. ``one_source``: at most one source each, so nothing is summed.
    Any number of tensors may have it, at once, too, and in other jobs."""

    def __init__(self, table: Callable[[int, int, int], Table], one_source: bool, worker: int | None = None):
        """``table``: of a tensor of so many elements, in a job of so many workers, with so many values in a packet; nobody
        changes it any more. ``worker``: the only one whose route this is; None: it is everybody's."""
        self._table, self.one_source, self._worker = table, one_source, worker
        self._tables: dict[tuple[int, int, int], Table] = {}
        self._apart: set[tuple[int, ...]] = set()  # what has been looked at: no two pieces meet where one is received

    @classmethod
    def _between(cls, sources: int | str, receivers: int | str, pieces: Sequence[int] | None = None) -> Route:
        """Pieces that lie one behind the other, each from and to one worker, ALL, or its OWNER; None: one piece. They take turns
        where ALL have or get all of them."""
        ends = [_whole("root", who) if who not in (ALL, OWNER) else who for who in (sources, receivers)]
        sizes = None if pieces is None else _sizes("pieces", pieces, 1)

        def table(count: int, workers: int, values: int) -> Table:
            counts = np.array([count], np.int64) if sizes is None else sizes
            if sizes is not None and (sizes.size != workers or sum(sizes.tolist()) != count):
                raise ValueError(f"route: pieces: {tuple(sizes.tolist())}, expected one of each of {workers} workers, "
                                 f"{count} elements together")
            rows = np.zeros(counts.size, PIECE)
            rows["count"], rows["at"] = counts, np.cumsum(counts) - counts
            rows["sources"], rows["receivers"] = (_sets(who, workers) for who in ends)
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
        Pieces take turns in parts of ``chunk`` elements, so that all links are busy; MOST_PIECES parts at most.

        TypeError, ValueError: no square matrix of sizes, no ``worker`` of these, or no such ``chunk``.
        """
        matrix = _sizes("sizes", sizes, 2)
        workers, total = len(matrix), sum(matrix.ravel().tolist())
        if matrix.shape != (workers, workers):
            raise ValueError(f"route: sizes: of shape {matrix.shape}, expected a row and a column for each worker")
        if total > MOST_ELEMENTS:
            raise ValueError(f"route: sizes: {total} elements together, expected at most {MOST_ELEMENTS}")
        if not 0 <= _whole("worker", worker) < workers:
            raise ValueError(f"route: worker: {worker}, expected 0..{workers - 1}, a row of sizes")
        if _whole("chunk", chunk) < 1:
            raise ValueError(f"route: chunk: {chunk}, expected 1 element or more")
        if (parts := sum(-(-size // chunk) for size in matrix.ravel().tolist())) > MOST_PIECES:
            raise ValueError(f"route: chunk: {chunk} makes {parts} pieces of {total} elements, expected at most {MOST_PIECES}; "
                             "choose a larger one")
        table = _exchange(matrix, worker, chunk)

        def table_of(count: int, of: int, values: int) -> Table:
            if of != workers:
                raise ValueError(f"route: sizes: of {workers} workers, expected a row and a column for each of the job's {of}")
            return table

        return cls(table_of, True, worker)

    @classmethod
    def of(cls, table: Table) -> Route:
        """Pieces as they are listed: a one-dimensional array of PIECE, which is copied. ``count``, ``sources`` and ``receivers``
        are the same at all workers; ``at`` is where this worker's array, of any size, has the piece, if it is in one of the sets.
        Where a worker gets a piece, it has no other one, unless two arrays are submitted and it only sends that.

        TypeError: no such array.
        """
        if not isinstance(table, np.ndarray) or table.dtype != PIECE or table.ndim != 1:
            given = f"{table.dtype} of shape {table.shape}" if isinstance(table, np.ndarray) else f"a {type(table).__name__}"
            raise TypeError(f"route: table: {given}, expected a one-dimensional numpy array of dtype PIECE, one of each piece")
        copy = table.copy()
        return cls(lambda count, workers, values: copy, False)

    def table(self, count: int, workers: int, values: int) -> Table:
        """Returns the pieces of a tensor of ``count`` elements in a job of so many ``workers``, with so many ``values`` in a
        packet: an array that cannot be written to."""
        key = count, workers, values
        if key not in self._tables:
            table = self._table(*key)
            table.flags.writeable = False  # tensors that are not done have pointers to it
            self._tables[key] = table
        return self._tables[key]

    def fill(self, c: CData, workers: int, worker: int, values: int) -> object:
        """Describes the route in a ``struct ina_tensor``, whose other fields are there. Returns the memory that the tensor points
        to, and which the caller keeps until the tensor is done. Raises ValueError: the route does not fit the tensor, or the job
        of so many ``workers``, with so many ``values`` in a packet."""
        if c.reduction != lib.INA_SUM:
            raise ValueError("route: of a maximum, expected a sum")
        if self._worker not in (None, worker):
            raise ValueError(f"route: of worker {self._worker}, submitted by worker {worker}; expected its own")
        room = c.count
        table = self.table(room, workers, values)
        sets = table["sources"] | table["receivers"]
        if (sets & ~np.uint32(_all(workers))).any():
            raise ValueError(f"route: a piece from or to others than the workers 0..{workers - 1}")
        if c.dtype in _FLOATS and (table["sources"] != _all(workers)).any():
            raise ValueError(f"route: {_FLOATS[c.dtype]} from some workers only, expected integers: no exponent is in common")
        if (total := _total(table["count"])) > MOST_ELEMENTS:
            raise ValueError(f"route: pieces of {total} elements together, expected at most {MOST_ELEMENTS}")
        own = (sets >> np.uint32(worker) & 1) != 0
        if (table["count"][own] > room).any() or (table["at"][own] > room - table["count"][own]).any():
            raise ValueError(f"route: a piece of worker {worker} lies outside of its {room} elements")
        self._check_apart(table, worker, (room, workers, values), c)
        ends = np.empty(table.size, np.uint64)
        c.routed, c.count = 1, total
        c.pieces, c.pieces_count = ffi.cast("const struct ina_piece *", table.ctypes.data), table.size
        c.ends = ffi.cast("uint64_t *", ends.ctypes.data)
        return table, ends

    def _check_apart(self, table: Table, worker: int, key: tuple[int, int, int], c: CData) -> None:
        """Raises ValueError: where the worker gets a piece, it gets another one, too, or has one that it sends (then either of
        them may be overwritten before it is sent again)."""
        width = WIDTHS[c.dtype]
        size, addresses = width * c.count, [int(ffi.cast("uintptr_t", each)) for each in (getattr(c, "in"), c.out)]
        apart = addresses[1] - addresses[0]
        apart = apart if abs(apart) < size else size  # two arrays
        looked_at = *key, worker, apart, c.dtype
        if looked_at in self._apart:
            return
        own, counts = np.uint32(1 << worker), table["count"].astype(np.int64)
        sources, receivers = table["sources"], table["receivers"]
        receivers = np.where(sources & (sources - np.uint32(1)), receivers, receivers & ~sources)  # its only source has it
        moves = (sources != 0) & (receivers != 0) & (counts > 0)
        sends, gets = sources & own != 0, moves & (receivers & own != 0)
        sends &= moves if c.dtype == lib.INA_INT32 else counts > 0  # the exponents of floats are everybody's
        begins, ends = width * table["at"].astype(np.int64), width * (table["at"].astype(np.int64) + counts)
        received = np.flatnonzero(gets)
        received = received[np.argsort(begins[received], kind="stable")]
        if (wrong := np.flatnonzero(begins[received[1:]] < ends[received[:-1]])).size:
            first, second = sorted(received[wrong[0] : wrong[0] + 2].tolist())
            raise ValueError(f"route: worker {worker} gets piece {second} where it gets piece {first}; expected places apart")
        read = np.flatnonzero(sends & ~gets if not apart else sends)  # in place, it adds to what it sends
        at = np.searchsorted(ends[received] + apart, begins[read], side="right")
        met = at < received.size
        read, into = read[met], received[at[met]]
        if (wrong := np.flatnonzero(begins[into] + apart < ends[read])).size:
            sent, got = int(read[wrong[0]]), int(into[wrong[0]])
            raise ValueError(f"route: worker {worker} gets piece {got} where it has piece {sent}, which it sends; "
                             "expected places apart, or another array for `out`")
        self._apart.add(looked_at)


def _whole(name: str, value: object) -> int:
    """Returns a whole number. Raises TypeError."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"route: {name}: {value!r}, expected a whole number") from None


def _sizes(name: str, sizes: object, dimensions: int) -> npt.NDArray[np.int64]:
    """Returns numbers of elements. Raises TypeError, ValueError."""
    expected = f"expected {'a list' if dimensions == 1 else 'rows of equal length'} of whole numbers, 0 or more"
    try:
        given = np.asarray(sizes)
    except ValueError:  # rows of several lengths
        raise ValueError(f"route: {name}: {sizes!r}, {expected}") from None
    if given.ndim != dimensions or (given.size and given.dtype.kind not in "iu"):
        raise TypeError(f"route: {name}: {sizes!r}, {expected}")
    if given.size and not 0 <= int(given.min()) <= int(given.max()) <= MOST_ELEMENTS:
        raise ValueError(f"route: {name}: {sizes!r}, {expected}, and at most {MOST_ELEMENTS}")
    return given.astype(np.int64)


def _total(counts: npt.NDArray[np.uint64]) -> int:
    """Returns the sum, exactly."""
    small = not counts.size or int(counts.max()) <= MOST_ELEMENTS // counts.size
    return int(counts.sum()) if small else sum(counts.tolist())


def _exchange(matrix: npt.NDArray[np.int64], worker: int, chunk: int) -> Table:
    """Returns the pieces of an all-to-all, as a worker has them."""
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
    return table


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
        raise ValueError(f"route: root: {who}, expected a worker, 0..{workers - 1}")
    return 1 << who


def fill_route(c: CData, route: Route | None, workers: int, worker: int, values: int) -> object:
    """Describes a route, or that there is none. Returns what the caller keeps (Route.fill). Raises ValueError."""
    c.routed, c.pieces, c.ends, c.pieces_count = 0, ffi.NULL, ffi.NULL, 0
    return None if route is None else route.fill(c, workers, worker, values)
