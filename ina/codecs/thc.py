"""THC (Li et al., NSDI'24): 4 bits a value on a table, rotated so that one table fits all tensors, with error feedback.

    round 1, maxima: the norm of each part      round 2, sums: the levels of the rotated values, in lanes

A tensor and what its worker's earlier sums missed are cut into parts of a power of two, each rotated by random signs and a
Hadamard transform (host/codec/thc.h); all workers scale a part by the largest of their norms, so the levels that they send can be
added up. The signs are common to all workers and fresh in each call, the rounding is each worker's own.

`thc` works with any program that adds up: a worker sends levels, in lanes of 7 bits with 3 or 4 workers, 8 with 5 to 8.
`thc-lookup` needs p4/thc.p4, which looks them up: 4 bits a value go up, 8 come down, for up to 8 workers.

An infinity or NaN of any worker makes its part NaN in this call, and what earlier sums missed of it stays for the next.
So does a norm beyond float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import ClassVar

import numpy as np

from ina.aggregation.lane import INT32
from ina.base.native import CData, ffi, lib
from ina.codecs import thc_tables
from ina.codecs.codec import ADD, MAXIMUM, OWN, Call, Feedback, Round, Rounds, Traffic, both_ways
from ina.codecs.lanes import Packing
from ina.codecs.pointers import pointer

LARGEST = 1 << 23  # values of a part
SMALLEST = 64  # smaller ones are padded rather than cut
INFINITE = 0x7F800000  # float32's bits: those of floats that are not negative order as integers


def parts(elements: int) -> list[tuple[int, int, int]]:
    """Returns where each part of a tensor begins, its values, and the power of two that it is padded to: by 1/8 or to 64. Only
    the last is padded, so parts begin at the same places with and without."""
    result = []
    start = 0
    while start < elements:
        rest = elements - start
        size = min(LARGEST, 1 << (rest - 1).bit_length())
        while size > SMALLEST and size > rest + rest // 8:
            size //= 2
        result.append((start, min(size, rest), size))
        start += size
    return result


class Thc(Feedback):
    """``bits``, ``granularity``, ``outside``: of the table (ina.codecs.thc_tables)."""

    name = "thc"
    rounds = 2
    operations = frozenset({ADD, MAXIMUM})
    accumulator = "lanes of 16 bits or less"
    sum_bits: ClassVar[int] = 16

    def __init__(self, bits: int = 4, granularity: int = 30, outside: float = 1 / 32) -> None:
        super().__init__()
        self.table = thc_tables.levels(bits, granularity, outside)
        self.missed = np.empty(0, np.float32)
        self.native = _table(self.table, thc_tables.limit(outside))

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        """Yields the norms, during whose way it rotates the first part, then the levels."""
        self._check_room(call.workers)
        wanted = values + self.missed if self.missed.size == values.size else values
        cuts = parts(values.size)
        own = np.array([_norm(wanted[at : at + count]) for at, count, _ in cuts], np.float32)

        @cache
        def rotated() -> np.ndarray:
            _, count, size = cuts[0]
            return self._rotated(wanted[:count], size, own[0], (call.step, 0))

        norms = yield Round(own.view(np.int32).copy(), MAXIMUM, meanwhile=rotated if cuts else None)
        norms = norms.copy()  # the round's words may be used again
        total = sum(size for _, _, size in cuts)
        levels = np.zeros(total, np.uint8)
        missed = np.zeros_like(values) if self.missed.size != values.size else self.missed.copy()
        for number, ((at, count, size), norm) in enumerate(zip(cuts, norms, strict=True)):
            if norm < INFINITE:
                here = slice(at, at + count)
                seed = (call.step, number)
                part = self._rotated(wanted[here], size, own[number], seed) if number else rotated()
                self._encode(part, own[number], missed[here], levels[at : at + size], norm, seed, call.rank)
        words = yield self._sent(levels, call.workers)
        self.missed = missed
        sums = self._sums(words, total, call.workers)
        result = np.empty_like(values)
        for number, ((at, count, size), norm) in enumerate(zip(cuts, norms, strict=True)):
            self._decode(sums[at : at + size], result[at : at + count], norm, (call.step, number), call)
        return result

    def _rotated(self, wanted: np.ndarray, size: int, norm: np.float32, seed: tuple[int, int]) -> np.ndarray:
        """Returns ``wanted``, rotated, in units of its own ``norm``."""
        rotated = np.empty(size, np.float32)
        factor = 1 / float(norm) if 0 < norm < np.inf else 0.0
        lib.ina_thc_rotate(wanted.size, size, pointer(wanted), factor, lib.ina_thc_seed(*seed, 0), pointer(rotated))
        return rotated

    def _encode(self, rotated: np.ndarray, own: np.float32, missed: np.ndarray, levels: np.ndarray, norm: np.int32,
                seed: tuple[int, int], rank: int) -> None:
        """Writes ``levels``, in units of all workers' largest ``norm``, and what they miss of values that are ``rotated`` in
        units of their ``own``."""
        scale, size = float(norm.view(np.float32)), levels.size
        factor = float(own) / scale if scale else 0.0
        lib.ina_thc_quantise(self.native, size, pointer(rotated), factor, lib.ina_thc_seed(*seed, rank + 1), pointer(levels))
        lib.ina_thc_rotate_back(missed.size, size, pointer(missed), scale / size, lib.ina_thc_seed(*seed, 0), pointer(rotated))

    def _decode(self, sums: np.ndarray, result: np.ndarray, norm: np.int32, seed: tuple[int, int], call: Call) -> None:
        if norm >= INFINITE:
            result[:] = np.nan
            return
        rotated = np.empty(sums.size, np.float32)
        lib.ina_thc_dequantise(self.native, sums.size, pointer(sums), call.workers, pointer(rotated))
        scale = float(norm.view(np.float32)) / sums.size / call.divisor
        lib.ina_thc_rotate_back(result.size, sums.size, pointer(result), scale, lib.ina_thc_seed(*seed, 0), pointer(rotated))

    def _check_room(self, workers: int) -> None:
        """Raises ValueError: sums of so many workers have no room."""
        limit = ((1 << self.sum_bits) - 1) // self.table[-1]
        if workers > limit:
            raise ValueError(f"codec {self.name}: {workers} workers with a table of granularity {self.table[-1]}, expected at "
                             f"most {limit}: sums have {self.sum_bits} bits")

    def _sent(self, levels: np.ndarray, workers: int) -> Round:
        """Returns the round in which the workers' levels are added up."""
        return Round(Packing(workers, self.table[-1]).pack(levels), ADD)

    def _sums(self, words: np.ndarray, count: int, workers: int) -> np.ndarray:
        """Returns the sums of ``count`` levels, as int32, of that round's result."""
        return Packing(workers, self.table[-1]).sums(words, count)

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns the bytes over a switch without a look-up."""
        self._check_room(workers)
        cuts = parts(elements)
        return both_ways(len(cuts) + Packing(workers, self.table[-1]).words(sum(size for _, _, size in cuts)))


class ThcLookup(Thc):
    """THC on its own program, whose table this is."""

    name = "thc-lookup"
    operations = frozenset({MAXIMUM, OWN})
    protocol = "thc"
    accumulator = "bytes"
    sum_bits = 8

    def __init__(self) -> None:
        super().__init__(*thc_tables.LOOKED_UP)

    def own(self, words: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the sums of the levels of which the words' bytes are the indices."""
        levels = np.array(self.table, np.uint8)
        return np.add.reduce([levels[each.view(np.uint8) & 15] for each in words], dtype=np.uint8).view(np.int32)

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns 4 bits a value up and 8 down, and the norms."""
        self._check_room(workers)
        cuts = parts(elements)
        norms, sums = INT32.bytes(len(cuts)), INT32.bytes(_words(sum(size for _, _, size in cuts)))
        return Traffic(norms + sums // 2, norms + sums)

    def _sent(self, levels: np.ndarray, workers: int) -> Round:
        index = np.zeros(256, np.uint8)
        index[list(self.table)] = range(len(self.table))
        words = np.zeros(_words(levels.size), np.int32)
        words.view(np.uint8)[: levels.size] = index[levels]
        return Round(words, OWN)

    def _sums(self, words: np.ndarray, count: int, workers: int) -> np.ndarray:
        return words.view(np.uint8)[:count].astype(np.int32)


def _words(values: int) -> int:
    """Returns the words that so many values take, a byte each."""
    return -(-values // INT32.bytes(1))


def _norm(values: np.ndarray) -> np.float32:
    """Returns the Euclidean norm, rounded up; infinity if a value is none or not a number."""
    with np.errstate(over="ignore"):
        norm = float(np.sqrt(lib.ina_thc_squares(values.size, pointer(values))))
        if not np.isfinite(norm):
            return np.float32(np.inf)
        rounded = np.float32(norm)
        return rounded if rounded >= norm else np.nextafter(rounded, np.float32(np.inf))


def _table(levels: tuple[int, ...], limit: float) -> CData:
    """The table as the compiled part has it: for each integer, the levels below and above."""
    native = ffi.new("struct ina_thc_table *", {"limit": limit, "granularity": levels[-1]})
    for whole in range(levels[-1] + 1):
        index = max(i for i, level in enumerate(levels) if level <= whole)
        low, high = levels[index], levels[min(index + 1, len(levels) - 1)]
        native.low[whole], native.gap[whole] = low, high - low
    return native
