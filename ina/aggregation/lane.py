"""Lanes: what a value of a packet is. The table is host/protocol/lane.h; whoever needs a value's width or head-room asks here.

    INT32.bytes(256)                       -> 1024: of so many values on the wire
    INT32.unit(exponent=0, workers=8)      -> 2.0**-27: floats travel as multiples of it
    INT32.error(exponent=0, workers=8)     -> 2.0**-25: largest distance of their sum from the exact one
    INT32.values                           -> (32, 64, ...): how many a packet may have
    INT32.sums(rows)                       -> what a switch makes of integers: sums modulo 2^bits
    INT32.overflows(rows)                  -> whether it must, and whether it may, say that they have wrapped

docs/design/architecture.md says how to add one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ina.base.native import lib, rows

Count = TypeVar("Count", int, float)
Exponent = TypeVar("Exponent", float, np.ndarray)


@dataclass(frozen=True)
class Lane:
    """A row of the table: ``number``, its place there; ``bits`` of a value; ``signed``: two's complement; ``values``: how many a
    packet may have."""

    number: int
    bits: int
    signed: bool
    values: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        """The integers that travel as they are."""
        return np.dtype(f"{'i' if self.signed else 'u'}{self.bits // 8}")

    @property
    def limit(self) -> int:
        """One more than the largest value."""
        return 1 << (self.bits - self.signed)

    def bytes(self, values: Count) -> Count:
        """Returns the bytes of so many values on the wire (a mean of them need not be whole)."""
        return self.bits // 8 * values

    def shift(self, workers: int) -> int:
        """Returns the bits that a float's value has: the sum of all workers' needs the others."""
        return lib.ina_lane_shift(self.number, workers)

    def unit(self, exponent: Exponent, workers: int) -> Exponent:
        """Returns the unit of floats in a block of this exponent: 2^(exponent - shift)."""
        unit: Exponent = 2.0 ** (exponent - self.shift(workers))
        return unit

    def error(self, exponent: Exponent, workers: int) -> Exponent:
        """Returns the largest distance of a sum of floats from the exact one: half a unit for each worker. Rounding the sum to
        float32 adds to it."""
        return workers * self.unit(exponent, workers) / 2

    def sums(self, rows: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
        """Returns the sums over the first axis of integers of ``dtype``, which wrap."""
        return np.asarray(np.sum(rows, axis=0, dtype=self.dtype))

    def overflows(self, rows: Sequence[np.ndarray] | np.ndarray) -> tuple[bool, bool]:
        """Returns whether a switch must say that ``sums`` have wrapped: one does not fit; and whether it may: the sum of
        magnitudes does not, so in some order of additions a sum on the way does not."""
        wide = np.asarray(rows, np.int64)
        return (bool(np.any(np.abs(wide.sum(axis=0) + 0.5) > self.limit)),
                bool(np.any(np.abs(wide).sum(axis=0) >= self.limit)))


LANES = tuple(Lane(number, row.bits, bool(row.is_signed), tuple(1 << i for i in range(32) if row.values >> i & 1))
              for number, row in enumerate(rows(lib.ina_lane_at)))
INT32 = LANES[lib.INA_LANE_INT32]
DEFAULT = INT32  # of jobs and programs that do not name one


def lane_for(dtype: np.dtype | type) -> Lane | None:
    """Returns the lane in which integers of a dtype travel as they are; None: there is none."""
    return next((lane for lane in LANES if lane.dtype == dtype), None)


INTEGERS = {lane.dtype: int(lib.ina_lane_at(lane.number).dtype) for lane in LANES}  # of tensors, by NumPy's dtype: enum ina_dtype
BFLOAT16 = np.dtype([("bfloat16", "<u2")])  # its bits, as NumPy has no such type
FLOATS: dict[np.dtype, int] = {
    np.dtype(np.float32): lib.INA_FLOAT32, np.dtype(np.float16): lib.INA_FLOAT16, BFLOAT16: lib.INA_BFLOAT16}
DTYPES: dict[np.dtype, int] = {**INTEGERS, **FLOATS}


def dtype_name(dtype: np.dtype) -> str:
    """Returns the name of one of DTYPES, which is torch's, too."""
    return dtype.names[0] if dtype.names else dtype.name
