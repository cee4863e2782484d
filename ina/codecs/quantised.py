"""Values rounded by chance to a few levels, right on average (host/codec/levels.h): no feedback, no bias, more noise.

    round 1, maxima: the scale of each block      round 2, sums: levels in lanes, n times the bias too large

qsgd-8, qsgd-4   QSGD (Alistarh et al., NIPS'17) with 127 or 7 levels of each sign
terngrad         TernGrad (Wen et al., NIPS'17): -1, 0 or 1, of values cut at 2.5 standard deviations
natural          natural compression (Horvath et al., 2019): the power of two below or above
intsgd           IntSGD (Mishchenko et al., ICLR'22): one scale, which follows from the averages before; sums of 8 bits, one round

All workers have one scale, so that their levels add up: the largest of theirs (TernGrad's "scaler sharing"; QSGD's own are each
worker's). Each worker rounds by chance of its own, fresh in each call. An infinity or NaN of any worker makes its block NaN, with
`intsgd` the tensor; beyond 2^127, the power of two above is infinity. -0 becomes +0. None counts values as flushed: one that is
zero in this call is larger in another.

Powers of two add up as integers, which keep all bits between the smallest and the largest: in 16 bits, n workers' powers have
room from 2^-octaves of a block's scale, 11 octaves with 8 workers; what is below is rounded to the smallest or to zero. So a
switch gains nothing from the few bits that a power of two has on its way up: `natural` is here to be compared with, and for its
error, which is relative. Codes of 4 bits up would need a program that looks them up, as p4/thc.p4 does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ina.base.native import CData, ffi, lib
from ina.codecs.codec import ADD, MAXIMUM, Call, Codec, Round, Rounds, Traffic, both_ways, rounding
from ina.codecs.lanes import Packing
from ina.codecs.pointers import pointer

LANE = 16  # bits at most


class Rounded(Codec):
    """``block``: values with a common scale."""

    rounds = 2
    operations = frozenset({ADD, MAXIMUM})
    accumulator = "lanes of 16 bits or less"

    def __init__(self, block: int = 512) -> None:
        super().__init__()
        if block < 1:
            raise ValueError(f"codec {self.name}: blocks of {block}, expected 1 value at least")
        self.block = block

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        """Yields the scales, then the levels."""
        self._check_room(call.workers)
        values = self._cut(values)
        scales = yield Round(self._scales(values), MAXIMUM)
        scales = scales.copy()  # the round's words may be used again
        words = yield Round(self._levels(values, scales, call), ADD)
        return self._values(words, values.size, scales, call)

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns the bytes of scales and levels, as many down as up."""
        self._check_room(workers)
        return both_ways(-(-elements // self.block) + self._words(elements, workers))

    def bound(self, tensors: Sequence[np.ndarray], average: bool = False) -> np.ndarray:
        """Returns one level's distance for each worker, and what is cut."""
        n, size = len(tensors), tensors[0].size
        self._check_room(n)
        cut = [self._cut(np.asarray(each, np.float32)) for each in tensors]
        scales = np.max([self._scales(each) for each in cut], axis=0, initial=0).astype(np.int32).view(np.float32)
        of_each = np.repeat(scales.astype(np.float64), self.block)[:size]
        off = sum(self._off(np.abs(each.astype(np.float64)), of_each, n) for each in cut)
        off = off + np.sum(np.abs(np.asarray(tensors, np.float64) - cut), axis=0)
        exact = np.sum(np.asarray(tensors, np.float64), axis=0)
        return (off * (1 + 2.0**-20) + 2 * rounding(np.abs(exact) + off)) / (n if average else 1) + rounding(np.zeros(1))

    def _cut(self, values: np.ndarray) -> np.ndarray:
        return values

    def _scales(self, values: np.ndarray) -> np.ndarray:
        """Returns the bits of each block's largest |x|."""
        scales = np.empty(-(-values.size // self.block), np.int32)
        lanes = ffi.new("struct ina_lanes *", {"count": values.size, "block": self.block})
        lib.ina_lanes_scales(lanes, pointer(values), pointer(scales))
        return scales

    @abstractmethod
    def _check_room(self, workers: int) -> None:
        """Raises ValueError: lanes have no room for so many workers."""

    @abstractmethod
    def _words(self, elements: int, workers: int) -> int:
        """Returns the number of int32 of the second round."""

    @abstractmethod
    def _levels(self, values: np.ndarray, scales: np.ndarray, call: Call) -> np.ndarray:
        """Returns the words of the second round."""

    @abstractmethod
    def _values(self, words: np.ndarray, elements: int, scales: np.ndarray, call: Call) -> np.ndarray:
        """Returns the workers' sum or average of the second round's result."""

    @abstractmethod
    def _off(self, sizes: np.ndarray, scales: np.ndarray, workers: int) -> np.ndarray:
        """Returns how far one worker's values may be off."""


class Qsgd(Rounded):
    """``levels``: of each sign, 1 to 127. ``norm``: of a block, "largest" value or "euclidean", as in the paper's formula, whose
    error bound is in proportion to the root of the block."""

    name = "qsgd-8"

    def __init__(self, levels: int = 127, block: int = 512, norm: str = "largest") -> None:
        super().__init__(block)
        if not 1 <= levels <= 127 or norm not in ("largest", "euclidean"):
            raise ValueError(f"codec {self.name}: {levels} levels, norm {norm!r}: expected 1 to 127, 'largest' or 'euclidean'")
        self.levels, self.norm = levels, norm

    def _scales(self, values: np.ndarray) -> np.ndarray:
        if self.norm == "largest":
            return super()._scales(values)
        starts = range(0, values.size, self.block)
        squares = [lib.ina_thc_squares(part.size, pointer(part)) for part in (values[at : at + self.block] for at in starts)]
        with np.errstate(over="ignore"):
            norms = np.nextafter(np.sqrt(np.array(squares)).astype(np.float32), np.float32(np.inf))
        norms[np.array(squares) == 0] = 0
        return np.abs(norms).view(np.int32)  # NaN's sign would make it small

    def _check_room(self, workers: int) -> None:
        _room(self.name, workers, ((1 << LANE) - 1) // (2 * self.levels))

    def _packing(self, workers: int) -> Packing:
        return Packing(workers, 2 * self.levels)

    def _native(self, elements: int) -> CData:
        return ffi.new("struct ina_levels *", {"count": elements, "block": self.block, "most": self.levels})

    def _words(self, elements: int, workers: int) -> int:
        return self._packing(workers).words(elements)

    def _levels(self, values: np.ndarray, scales: np.ndarray, call: Call) -> np.ndarray:
        levels = np.empty(values.size, np.uint8)
        lib.ina_levels_uniform(self._native(values.size), pointer(values), pointer(scales), _seed(call), pointer(levels))
        return self._packing(call.workers).pack(levels)

    def _values(self, words: np.ndarray, elements: int, scales: np.ndarray, call: Call) -> np.ndarray:
        sums, result = self._packing(call.workers).sums(words, elements), np.empty(elements, np.float32)
        lib.ina_levels_values(self._native(elements), pointer(sums), pointer(scales), call.workers, call.divisor, pointer(result))
        return result

    def _off(self, sizes: np.ndarray, scales: np.ndarray, workers: int) -> np.ndarray:
        return scales / self.levels


class Qsgd4(Qsgd):
    """QSGD with 7 levels of each sign: 4 bits."""

    name = "qsgd-4"

    def __init__(self) -> None:
        super().__init__(7)


class TernGrad(Qsgd):
    """``clip``: standard deviations about zero of a block's values, where they are cut; 0: nowhere. What is cut is lost."""

    name = "terngrad"

    def __init__(self, clip: float = 2.5, block: int = 512) -> None:
        super().__init__(1, block)
        if clip < 0:
            raise ValueError(f"codec {self.name}: clip {clip}, expected 0 or more")
        self.clip = clip

    def _cut(self, values: np.ndarray) -> np.ndarray:
        if not self.clip or not values.size:
            return values
        starts = np.arange(0, values.size, self.block)
        counts = np.diff(starts, append=values.size)
        with np.errstate(invalid="ignore", over="ignore"):  # not finite: its block is NaN anyway
            wide = values.astype(np.float64)
            deviations = np.sqrt(np.add.reduceat(wide * wide, starts) / counts)
            limits = np.repeat((self.clip * deviations).astype(np.float32), self.block)[: values.size]
            limits[~np.isfinite(limits)] = np.inf
            return np.clip(values, -limits, limits)


class Natural(Rounded):
    """Powers of two. ``block``: values with a common scale."""

    name = "natural"

    def _octaves(self, workers: int) -> int:
        """Returns how far below a block's scale powers of two have room: n (2^(octaves + 1)) < 2^16."""
        return (((1 << LANE) - 1) // workers).bit_length() - 2

    def _check_room(self, workers: int) -> None:
        _room(self.name, workers, ((1 << LANE) - 1) // 4)

    def _native(self, elements: int, workers: int) -> CData:
        return ffi.new("struct ina_levels *", {"count": elements, "block": self.block, "octaves": self._octaves(workers)})

    def _words(self, elements: int, workers: int) -> int:
        return -(-elements // 2)

    def _levels(self, values: np.ndarray, scales: np.ndarray, call: Call) -> np.ndarray:
        words = np.zeros(self._words(values.size, call.workers), np.int32)
        native = self._native(values.size, call.workers)
        lib.ina_levels_powers(native, pointer(values), pointer(scales), _seed(call), pointer(words.view(np.uint16)))
        return words

    def _values(self, words: np.ndarray, elements: int, scales: np.ndarray, call: Call) -> np.ndarray:
        result, native = np.empty(elements, np.float32), self._native(elements, call.workers)
        lib.ina_levels_values_of_powers(native, pointer(words.view(np.uint16)), pointer(scales), call.workers, call.divisor,
                                        pointer(result))
        return result

    def _off(self, sizes: np.ndarray, scales: np.ndarray, workers: int) -> np.ndarray:
        return np.maximum(sizes, 2 * scales * 2.0 ** -self._octaves(workers)) * (scales > 0)


class IntSgd(Codec):
    """Integers with one scale, which no round is needed for: it follows from the averages of the calls before,

        r = decay r + (1 - decay) |average|^2        scale = sqrt(size / (2 n (r + 1e-16))) integers for 1

    as in the public code (bokunwang1/intsgd), in which the first sum is exact, too. A worker's integers are cut at 127 / n, so
    that sums have 8 bits: up to 127 workers. After averages of nothing but zeros, the next sum is exact again.
    """

    name = "intsgd"
    accumulator = "lanes of 8 bits"
    remembers = True
    bits: ClassVar[int] = 8

    def __init__(self, decay: float = 0.9) -> None:
        super().__init__()
        if not 0 <= decay < 1:
            raise ValueError(f"codec {self.name}: decay {decay}, expected 0 up to, not including, 1")
        self.decay = decay
        self.square = 0.0  # r; 0: nothing to go by
        self.size = 0

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        """Yields the integers; the values, where there is no scale yet."""
        most = self._most(call.workers)
        if self.size != values.size or not self.square:
            total = yield Round(values.copy(), ADD)
            result = total / np.float32(call.divisor)
            self._learn(result, call)
            return result
        scale = np.float32(most / np.sqrt(values.size / (2 * call.workers * (self.square + 1e-16))))
        scales = np.array([scale], np.float32).view(np.int32)
        native = ffi.new("struct ina_levels *", {"count": values.size, "block": values.size, "most": most})
        levels = np.empty(values.size, np.uint8)
        lib.ina_levels_uniform(native, pointer(values), pointer(scales), _seed(call), pointer(levels))
        packing = Packing(call.workers, 2 * most)
        lost = np.array([not np.isfinite(values).all()], np.int32)  # counted: an integer cannot say so
        words = yield Round(np.concatenate((lost, packing.pack(levels))), ADD)
        if words[0]:
            return np.full_like(values, np.nan)
        sums, result = packing.sums(words[1:], values.size), np.empty_like(values)
        lib.ina_levels_values(native, pointer(sums), pointer(scales), call.workers, call.divisor, pointer(result))
        self._learn(result, call)
        return result

    def _learn(self, result: np.ndarray, call: Call) -> None:
        square = lib.ina_thc_squares(result.size, pointer(result)) / (1 if call.average else call.workers**2)
        if np.isfinite(square):
            known = self.square if self.size == result.size else 0.0
            self.square = self.decay * known + (1 - self.decay) * square if known else square
            self.size = result.size

    def _most(self, workers: int) -> int:
        _room(self.name, workers, 127)
        return 127 // workers

    def bound(self, tensors: Sequence[np.ndarray], average: bool = False) -> np.ndarray:
        """Returns infinities: the scale follows from earlier calls, and integers are cut."""
        return np.full(tensors[0].shape, np.inf)

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns the bytes of calls after the first."""
        return both_ways(1 + Packing(workers, 2 * self._most(workers)).words(elements) if elements else 0)


def _seed(call: Call) -> int:
    return lib.ina_thc_seed(call.step, 0, call.rank + 1)


def _room(name: str, workers: int, limit: int) -> None:
    if workers > limit:
        raise ValueError(f"codec {name}: {workers} workers, expected at most {limit}: lanes have no room for more")
