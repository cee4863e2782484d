"""Floats as digits of a fixed-point number for each block of values (host/codec/limbs.h): `block-256`, `block-64`, `block-32`,
`two-limb`, `exact`.

    round 1, maxima: the largest exponent and the lowest bit of each block      round 2, sums: the digits

Infinities and NaN stay with their own elements, zero blocks cost nothing in round 2, and sums and averages are rounded once, over
all of the type's range. `exact` keeps the sign of zero (-0 if all workers have -0), and `two-limb` in blocks of two digits;
else -0 becomes +0. `block-*` drop what is more than 30 - ceil(log2 n) bits below a block's largest value,
`two-limb` what is more than twice that, `exact` nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ina.aggregation.lane import INT32
from ina.base.native import CData, ffi, lib
from ina.codecs.codec import ADD, MAXIMUM, Call, Codec, Round, Rounds, Traffic, both_ways, rounding
from ina.codecs.pointers import pointer

SURVEY = lib.INA_LIMBS_SURVEY


class Limbs(Codec):
    """``block``: values that have their exponents in common; ``most``: digits of a value, 0: as many as it takes."""

    rounds = 2
    dtypes = ("float32", "float64")
    operations = frozenset({ADD, MAXIMUM})
    block: ClassVar[int] = 64
    most: ClassVar[int]

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        limbs = self._limbs(values, call.workers)
        source = pointer(values)
        survey = np.empty(SURVEY * -(-values.size // self.block), np.int32)
        lib.ina_limbs_survey(limbs, source, pointer(survey))
        survey = yield Round(survey, MAXIMUM)
        survey = survey.copy()  # the round's words may be used again
        count = lib.ina_limbs_words(limbs, pointer(survey))
        if count == 2**64 - 1:
            raise ValueError(f"codec {self.name}: no worker has sent such exponents: do all workers use this codec?")
        words = np.empty(count, np.int32)
        lib.ina_limbs_encode(limbs, source, pointer(survey), pointer(words))
        if self.most:
            self.flushed += lib.ina_limbs_flushed(limbs, source, pointer(survey))
        words = (yield Round(words, ADD)) if count else words
        result = np.empty_like(values)
        lib.ina_limbs_decode(limbs, pointer(result), pointer(survey), pointer(words), call.divisor)
        return result

    def _limbs(self, values: np.ndarray, workers: int) -> CData:
        return ffi.new("struct ina_limbs *", {"count": values.size, "size": values.itemsize, "block": self.block,
                                              "most": self.most, "workers": workers})

    def bound(self, tensors: Sequence[np.ndarray], average: bool = False) -> np.ndarray:
        n, elements = len(tensors), tensors[0].size
        dtype, most = tensors[0].dtype.name, np.finfo(np.float64).max
        total = np.sum(np.asarray(tensors, np.longdouble), axis=0)
        once = rounding(np.clip(total, -most, most).astype(np.float64) if average else total.astype(np.float64), dtype)
        if self.most:
            largest = np.max(np.abs(np.asarray(tensors, np.float64)), axis=0, initial=0.0)
            blocks = np.maximum.reduceat(largest, np.arange(0, elements, self.block)) if elements else largest
            _, exponent = np.frexp(blocks)
            exponent = np.maximum(exponent, np.finfo(dtype).minexp)  # subnormal numbers are digits of the least normal one's
            off = np.where(blocks > 0, n * np.ldexp(1.0, exponent - self.most * INT32.shift(n) - 1), 0)
            once = once + np.repeat(off, self.block)[:elements]
        return once / n + rounding((total / n).astype(np.float64), dtype) if average else once

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns those for float32."""
        digits = self.most or -(-277 // INT32.shift(workers)) + 1
        return both_ways(elements * digits + SURVEY * -(-elements // self.block), exact=False)


class Block256(Limbs):
    name, block, most = "block-256", 256, 1


class Block64(Limbs):
    name, block, most = "block-64", 64, 1


class Block32(Limbs):
    name, block, most = "block-32", 32, 1


class TwoLimb(Limbs):
    name, most = "two-limb", 2


class Exact(Limbs):
    name, most = "exact", 0

