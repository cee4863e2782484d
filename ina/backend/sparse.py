"""Sums of sparse_coo tensors through the switch: agree on the union of the ranks' rows, then add up its values as a dense tensor.

A row is a place in the sparse dimensions; its values are those of the dense dimensions (of an embedding's gradient: a vector).

    round 1: each rank's number of rows      round 2: which rows      then: the values of the union, as sums.py and coded.py do

Rows travel as whichever is shorter, which all ranks know after the first round: their numbers, each rank's at a place of its
own, or a lane for every row of the tensor, which counts the ranks that have it. As with Gloo, the result is coalesced, the same
on all ranks, and has all rows that any rank had, those whose values cancel out included.

Gloo gathers the rows and values of all ranks and adds them up everywhere: n - 1 ranks' come to each rank, with 8 bytes for each
number of a place. The switch brings the union of all n once. Without common rows it moves up to n / (n - 1) of Gloo's bytes, less
where numbers of rows decide, and less the more rows are common: which way is faster is measured (planner.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator

import numpy as np
import torch

from ina.aggregation.lane import INT32
from ina.backend.coded import CodecError
from ina.backend.counters import COUNTERS
from ina.backend.sums import Sum
from ina.codecs.lanes import Packing

MOST_ROWS = 2**62
MOST_OWN = 2**31 - 1  # rows of a rank


def why_not(tensor: torch.Tensor) -> str:
    """Returns "" or the reason why a sparse_coo tensor is summed by Gloo: by properties that all ranks' tensors have."""
    if tensor.device.type != "cpu":
        return f"layout {tensor.layout} on {tensor.device.type}"
    return "" if places(tensor) < MOST_ROWS else "a sparse tensor of 2^62 rows or more"


def places(tensor: torch.Tensor) -> int:
    """Returns the number of rows that there may be."""
    return math.prod(tensor.shape[: tensor.sparse_dim()])


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor that gets the result of an all-reduce of ``tensor``: of torch.view_as_real of a complex one, which is
    what dist.all_reduce hands over, the complex one, since a sparse view keeps to itself what is written to it.

    Inference mode keeps no trace of views, so there ``tensor`` is returned. ValueError: the complex tensor cannot be reached, as
    it is a view, too.
    """
    base = tensor._base if tensor._is_view() else None
    if base is None or base.layout != torch.sparse_coo or not base.is_complex() or tensor.is_complex():
        return tensor
    pairs = ((tensor._indices(), base._indices()), (tensor._values(), base._values()))
    if base.shape != tensor.shape[:-1] or any(mine.data_ptr() != below.data_ptr() for mine, below in pairs):
        raise ValueError(f"ina: all-reduce of a view of a sparse {str(base.dtype).removeprefix('torch.')} tensor, which the sum "
                         f"would not reach: expected a tensor of its own, such as the view's clone()")
    return base


class SparseSum(Sum):
    """The sum of all ranks' ``tensor`` in place: a row of sums, each of which begins when the one before has ended."""

    in_rounds = True

    def __init__(self, tensor: torch.Tensor, rank: int, size: int, dense: Callable[[torch.Tensor], list[Sum]]):
        """``dense``: returns the sums, in place, of the union's values."""
        super().__init__(max(1, tensor.numel()), torch.int32, lambda: torch.empty(0, device="cpu"), staged=True)
        self._tensor, self._rank, self._size, self._dense = tensor, rank, size, dense
        self._steps: Iterator[tuple[Sum, bool]] | None = None
        self._part: Sum | None = None
        self._final = False  # its part is the last one

    @property
    def begun(self) -> bool:
        return self._steps is not None

    @property
    def last(self) -> bool:
        return self._final and self._part is not None and self._part.last

    def begin(self) -> torch.Tensor:
        if self._steps is None:
            self._steps = self._run()
            self._go_on()
        part = self._part
        assert part is not None  # after the end, none begins
        self.buffer = part.begin()
        self.dtype, self.average, self.reduction = part.dtype, part.average, part.reduction
        if not part.in_rounds:
            COUNTERS.travelled(self.buffer.numel())
        return self.buffer

    def end(self) -> bool:
        assert self._part is not None  # begun
        self.buffer = None
        return self._part.end() and not self._go_on()

    def _go_on(self) -> bool:
        """Takes the next part; returns False if there is none."""
        assert self._steps is not None
        try:
            self._part, self._final = next(self._steps, (None, True))
        except Exception as error:
            if isinstance(error, CodecError):
                raise
            raise CodecError(f"ina: sparse sum of {tuple(self._tensor.shape)}: {type(error).__name__}: {error}") from error
        return self._part is not None

    def _run(self) -> Iterator[tuple[Sum, bool]]:
        """Yields the sums, and whether each is the last one; then writes the result."""
        own = self._tensor.detach().coalesce()
        shape, sparse = own.shape, own.sparse_dim()
        rows = numbers(own.indices(), shape[:sparse])
        if rows.size > MOST_OWN:
            raise ValueError(f"{rows.size} rows of a rank, expected at most {MOST_OWN}")
        counts = torch.zeros(self._size, dtype=torch.int32, device="cpu")
        counts[self._rank] = rows.size
        yield Sum.of(counts), False
        union = rows[:0]
        if counts.any():
            union = yield from self._union(rows, counts.numpy().astype(np.int64))
        values = torch.zeros((union.size, *shape[sparse:]), dtype=own.dtype, device="cpu")
        values[torch.from_numpy(np.searchsorted(union, rows))] = own.values()
        parts = self._dense(values) if union.size else []
        for part in parts:
            yield part, part is parts[-1]
        result = torch.sparse_coo_tensor(indices(union, shape[:sparse]), values, shape, check_invariants=False, is_coalesced=True,
                                         device="cpu")
        self._tensor.copy_(result)

    def _union(self, rows: np.ndarray, counts: np.ndarray) -> Generator[tuple[Sum, bool], None, np.ndarray]:
        """Yields the sum that tells all ranks' rows. Returns their union, in order."""
        total, lanes, number = int(counts.sum()), Packing(self._size, 1), np.int32 if places(self._tensor) < 2**31 else np.int64
        if INT32.bytes(lanes.words(places(self._tensor))) < total * number().itemsize:
            bits = np.zeros(places(self._tensor), np.uint8)
            bits[rows] = 1
            words = lanes.pack(bits)
            yield Sum.of(torch.from_numpy(words)), False
            return np.flatnonzero(lanes.sums(words, bits.size))
        everyone = np.zeros(total, number)
        start = int(counts[: self._rank].sum())
        everyone[start : start + rows.size] = rows
        yield Sum.of(torch.from_numpy(everyone.view(np.int32))), False
        return np.unique(everyone).astype(np.int64)


def numbers(places: torch.Tensor, shape: torch.Size) -> np.ndarray:
    """Returns the numbers, in order of memory, of places: int64 of (dimensions, places)."""
    result = np.zeros(places.shape[1], np.int64)
    for length, one in zip(shape, places.numpy(), strict=True):
        result = result * length + one
    return result


def indices(numbers: np.ndarray, shape: torch.Size) -> torch.Tensor:
    """Returns the places of these numbers, as a sparse_coo tensor has them."""
    result = np.empty((len(shape), numbers.size), np.int64)
    for dimension in reversed(range(len(shape))):
        numbers, result[dimension] = np.divmod(numbers, shape[dimension])
    return torch.from_numpy(result)
