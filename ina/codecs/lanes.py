"""Lanes: several small values in each int32, which a switch adds up as one (host/codec/lanes.h).

`Packing` is of bytes: int8, uint8 and bool, exactly; `Shorts` of int16, modulo 2^16. `lanes-16` is of floats in 16 bits, room for
the sum of n workers included (13 bits for 8, 6 for 1,024): half of float32's packets. Floats on narrower grids: microscaling.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ina.aggregation.lane import INT32
from ina.base.native import CData, ffi, lib
from ina.codecs.codec import ADD, MAXIMUM, Call, Codec, Operation, Round, Rounds, Traffic, both_ways, rounding
from ina.codecs.halves import FLOATS, narrowing, widened
from ina.codecs.pointers import pointer

FLOAT_BITS = 16  # of a lane of floats, at most: two in a word


@dataclass(frozen=True)
class Packing:
    """Lanes of bytes with room for the sum of ``workers`` values. ``largest``: of a value as an unsigned integer: 255, or 1 for
    bool; ``bias``: of signed ones, 128. ``wraps``: sums are needed modulo 256 only, so the highest lane has no room for more."""

    workers: int
    largest: int
    bias: int = 0
    wraps: bool = False

    @classmethod
    def of(cls, dtype: str, workers: int, wraps: bool = False) -> Packing:
        """``dtype``: int8, uint8 or bool."""
        return cls(workers, 1 if dtype == "bool" else 255, 128 if dtype == "int8" else 0, wraps and dtype != "bool")

    @property
    def bits(self) -> int:
        """The width of a lane: the sum of all workers fits."""
        return (self.workers * self.largest).bit_length()

    @property
    def lanes(self) -> int:
        """The number of values in a word."""
        return 1 + (INT32.bits - 8) // self.bits if self.wraps else INT32.bits // self.bits

    def words(self, elements: int) -> int:
        """Returns the number of int32 that so many values travel in."""
        return -(-elements // self.lanes)

    def holds(self, words: int) -> int:
        """Returns the number of values in so many words."""
        return words * self.lanes

    def pack(self, values: np.ndarray) -> np.ndarray:
        """Returns the int32 words of contiguous bytes."""
        words = np.empty(self.words(values.size), np.int32)
        lib.ina_lanes_pack_bytes(self._lanes(values.size), pointer(values.view(np.uint8)), self.bias, pointer(words))
        return words

    def sums(self, words: np.ndarray, elements: int) -> np.ndarray:
        """Returns the workers' sums, as int32, of the sums of their words; with ``wraps``, modulo 256 in some."""
        sums = np.empty(elements, np.int32)
        lib.ina_lanes_sum_bytes(self._lanes(elements), pointer(words), self.bias, pointer(sums))
        return sums

    def place(self, words: np.ndarray, values: np.ndarray, divisor: int = 1) -> None:
        """Writes the sums over contiguous ``values`` of the type that was packed: modulo 256, or whether any is True; with a
        ``divisor``, averages, rounded towards zero (not of ``wraps``)."""
        lanes, octets = self._lanes(values.size), pointer(values.view(np.uint8))
        if divisor > 1:
            values[...] = np.trunc(self.sums(words, values.size) / divisor)  # exact in float64
        elif self.largest == 1:
            lib.ina_lanes_any_bytes(lanes, pointer(words), octets)
        else:
            lib.ina_lanes_wrap_bytes(lanes, pointer(words), self.bias, octets)

    def _lanes(self, elements: int) -> CData:
        return ffi.new("struct ina_lanes *", {"count": elements, "bits": self.bits, "workers": self.workers,
                                              "lanes": self.lanes})


class Shorts:
    """int16, three in two words, for sums modulo 2^16 of up to ``WORKERS`` workers."""

    WORKERS = 257

    @staticmethod
    def words(elements: int) -> int:
        """Returns the number of int32 that so many values travel in."""
        return 2 * -(-elements // 3)

    @staticmethod
    def holds(words: int) -> int:
        """Returns the number of values in so many words."""
        return words // 2 * 3

    @classmethod
    def pack(cls, values: np.ndarray) -> np.ndarray:
        """Returns the int32 words of contiguous int16."""
        words = np.empty(cls.words(values.size), np.int32)
        lib.ina_lanes_pack_shorts(values.size, pointer(values), pointer(words))
        return words

    @staticmethod
    def place(words: np.ndarray, values: np.ndarray) -> None:
        """Writes the workers' sums, of the sums of their words, over contiguous ``values``."""
        lib.ina_lanes_sum_shorts(values.size, pointer(words), pointer(values))


@dataclass(frozen=True)
class Element:
    """Floats that may travel, in units of their block: ``largest``, a whole number, and multiples of 2^(e - ``fraction``) where
    2^e is the value's power of two; of 1 at least. ``bits``: of a lane with room for all workers' sum."""

    bits: int
    largest: int
    fraction: int

    @property
    def lanes(self) -> int:
        """The number of values in a word."""
        return INT32.bits // self.bits


class ScaledLanes(Codec):
    """Floats in lanes, in units that a block's largest value of all workers gives.

        round 1, maxima: the largest |x| of each block      round 2, sums: whole numbers of units, in lanes

    An infinity or NaN makes its block NaN. -0 becomes +0. Tensors of 16-bit floats are read and written as they are.
    """

    rounds = 2
    dtypes = ("float32", "bfloat16", "float16")
    operations = frozenset({ADD, MAXIMUM})
    accumulator = "lanes of 16 bits or less"
    added: ClassVar[Operation] = ADD
    off: ClassVar[int] = 0  # units that the switch may round a sum by
    block: ClassVar[int]

    @abstractmethod
    def element(self, workers: int) -> Element:
        """Returns the values that travel. ValueError: lanes have no room for so many workers."""

    @abstractmethod
    def units(self, bits: np.ndarray, workers: int) -> np.ndarray:
        """Returns the units of blocks, as float64, from the bits of their largest values, as int32. 0: all of a block's values
        are; NaN: some are not finite."""

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        lanes, element = self._native(values, call.workers)
        source = pointer(values)
        largest = np.empty(-(-values.size // self.block), np.int32)
        lib.ina_lanes_scales(lanes, source, pointer(largest))
        largest = yield Round(largest, MAXIMUM)
        units = self.units(largest, call.workers)
        words = np.empty(lib.ina_lanes_float_words(lanes), np.int32)
        self.flushed += lib.ina_lanes_encode(lanes, element, pointer(units), source, pointer(words))
        words = yield Round(words, self.added)
        result = values if call.in_place else np.empty_like(values)
        lib.ina_lanes_decode(lanes, element, pointer(units), pointer(words), call.divisor, pointer(result))
        return result

    def _native(self, values: np.ndarray, workers: int) -> tuple[CData, CData]:
        element = self.element(workers)
        lanes = ffi.new("struct ina_lanes *", {"count": values.size, "bits": element.bits, "workers": workers,
                                               "block": self.block, "lanes": element.lanes, "floats": FLOATS[values.dtype]})
        return lanes, ffi.new("struct ina_element *", {"largest": element.largest, "fraction": element.fraction})

    def bound(self, tensors: Sequence[np.ndarray], average: bool = False) -> np.ndarray:
        n, elements, element = len(tensors), tensors[0].size, self.element(len(tensors))
        everyone = np.asarray([widened(each) for each in tensors], np.float64).reshape(n, elements)
        largest = np.max(np.abs(everyone), axis=0, initial=0.0)
        blocks = np.maximum.reduceat(largest, np.arange(0, elements, self.block)) if elements else largest
        units = np.repeat(self.units(blocks.astype(np.float32).view(np.int32), n), self.block)[:elements]
        sent = np.abs(everyone) / np.where(units, units, 1)
        _, exponent = np.frexp(np.minimum(sent, element.largest))
        off = np.exp2(np.maximum(exponent - 1 - element.fraction, 0) - 1.0) + np.maximum(sent - element.largest, 0)
        off = np.sum((off + sent * 2.0**-23) * units, axis=0) + self.off * units  # values in units are float32
        exact = np.sum(everyone, axis=0)
        off = (off + 2 * rounding(exact) + rounding(off)) / (n if average else 1) + rounding(np.zeros(1))
        return off + narrowing(exact / (n if average else 1), off, tensors[0].dtype)

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns the bytes of maxima and words."""
        blocks = -(-elements // self.block)
        return both_ways(blocks + -(-blocks // self.element(workers).lanes) * self.block)


class Lanes16(ScaledLanes):
    """All whole numbers of 16 bits less room: opt-in, as it is coarser than bfloat16's own rounding for values far below their
    block's largest."""

    name, block = "lanes-16", 64
    most: ClassVar[int] = 2**FLOAT_BITS - 1  # of a sum

    def element(self, workers: int) -> Element:
        largest, limit = self.most // (2 * workers), self.most // 2
        if largest < 1:
            raise ValueError(f"codec {self.name}: {workers} workers, expected at most {limit}, for {FLOAT_BITS} bits")
        return Element(FLOAT_BITS, largest, fraction=23)

    def units(self, bits: np.ndarray, workers: int) -> np.ndarray:
        units = np.empty(bits.shape)
        lib.ina_lanes_units(bits.size, pointer(bits), self.element(workers).largest, pointer(units))
        return units
