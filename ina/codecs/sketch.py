"""Lossless homomorphic compression (Li et al., arXiv 2402.07529): an index, and a sketch from which sums are read exactly.

    round 1, maxima: the exponent of the tensor      round 2, sums: an index of values other than zero, in lanes
    round 3, sums: a sketch of the values that the index has, and those that cannot be read from it, as they are

The index tells all workers where any of them has a value, and so how long the sketch has to be, and which values it gives back
(host/codec/sketch.h): the workers leave the others out of it, and send them densely. No sum is ever guessed, whatever
the values and their places. A value travels as an integer of 30 - ceil(log2 n) bits below the largest of the whole tensor (in the
torch back end, of 2^20 values): the sums are the same to the bit as those of these integers in a dense tensor. The places'
hashes are others in each call.

Unlike the published one, it hashes each place (not rows of 1,024), adds up integers (not floats), and sends the index first.

A tensor in which a worker has an infinity or NaN travels as in `block-64`, where these stay with their own element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ina.aggregation.lane import INT32
from ina.base.native import ffi, lib
from ina.codecs.codec import ADD, MAXIMUM, Call, Codec, Round, Rounds, Traffic, both_ways, rounding
from ina.codecs.lanes import Packing
from ina.codecs.limbs import Block64
from ina.codecs.pointers import pointer

ZERO, NONFINITE = -1000, 1000  # exponents of a tensor of zeros, and of one with infinities or NaN
LEAST, MOST = -149, 128  # of the others


class Sketch(Codec):
    """``load``: values in a bucket, on average. With many values, all are read from the sketch up to about 0.8, half of them at
    0.85. ``left``: values of the last call that were not, and travelled densely; of ``union`` that any worker had."""

    name = "sketch"
    rounds = 3
    operations = frozenset({ADD, MAXIMUM})

    def __init__(self, load: float = 1 / 1.3) -> None:
        super().__init__()
        if not 0.01 <= load <= 1e6:
            raise ValueError(f"codec {self.name}: load = {load}: expected values in a bucket, 0.01 to 1e6")
        self.load, self.left, self.union = load, 0, 0

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        """Yields the exponent, the index, then the sketch with what it cannot give back."""
        exponent = int((yield Round(np.array([exponent_of(values)], np.int32), MAXIMUM))[0])
        self.left = self.union = 0
        if exponent == NONFINITE:
            dense = Block64()
            result = yield from dense.reduce(values, call)
            self.flushed += dense.flushed
            return result
        result = np.zeros_like(values)
        if exponent == ZERO:
            return result
        if not LEAST <= exponent <= MOST:
            raise ValueError(f"codec {self.name}: no worker has sent the exponent {exponent}: do all workers use this codec?")
        index = Packing(call.workers, 1)
        counts = yield Round(index.pack((values != 0).view(np.uint8)), ADD)
        places = np.flatnonzero(index.sums(counts, values.size)).astype(np.uint32)
        unit = INT32.unit(exponent, call.workers)
        own = np.rint(values[places].astype(np.float64) / unit).astype(np.int32)
        self.flushed += int(np.count_nonzero(values[places])) - int(np.count_nonzero(own))
        sums = yield from self._sums(places, own, call.step)
        result[places] = (sums * unit / call.divisor).astype(np.float32)
        return result

    def _sums(self, places: np.ndarray, own: np.ndarray, step: int) -> Rounds:
        """Returns the sums of the workers' integers at the places."""
        each = max(1, math.ceil(places.size / lib.INA_SKETCH_RANGES / self.load))
        sketch = ffi.new("struct ina_sketch *", {"count": places.size, "each": each, "seed": step % 2**30,
                                                 "places": pointer(places)})
        order, ranges = np.empty(places.size, np.uint32), np.empty(places.size, np.uint8)
        buckets = lib.INA_SKETCH_RANGES * each
        scratch = np.empty(3 * buckets, np.uint32)
        peeled = lib.ina_sketch_order(sketch, pointer(order), pointer(ranges), pointer(scratch))
        left = order[peeled:]
        self.left, self.union = left.size, places.size
        words = np.zeros(buckets + left.size, np.int32)
        lib.ina_sketch_add(sketch, pointer(ranges), pointer(own), pointer(words))
        words[buckets:] = own[left]
        words = yield Round(words, ADD)
        sums = np.empty(places.size, np.int32)
        lib.ina_sketch_peel(sketch, pointer(order), pointer(ranges), peeled, pointer(words), pointer(sums))
        sums[left] = words[buckets:]
        return sums

    def bound(self, tensors: Sequence[np.ndarray], average: bool = False) -> np.ndarray:
        """Returns half a unit of the tensor's exponent for each worker, and the roundings."""
        n, exact = len(tensors), np.sum(np.asarray(tensors, np.float64), axis=0)
        exponent = max(map(exponent_of, tensors), default=ZERO)
        half = 0.0 if exponent == ZERO else INT32.unit(exponent, n) / 2
        divisor = n if average else 1
        return (n * half + rounding(exact)) / divisor + 2 * rounding((np.abs(exact) + n * half) / divisor)

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns those of a tensor without zeros, all of which go densely."""
        buckets = lib.INA_SKETCH_RANGES * max(1, math.ceil(elements / lib.INA_SKETCH_RANGES / self.load))
        return both_ways(1 + Packing(workers, 1).words(elements) + buckets + elements, exact=False)


def exponent_of(values: np.ndarray) -> int:
    """Returns the least e with |x| <= 2^e for all values."""
    largest = float(np.max(np.abs(values), initial=0.0))
    if not math.isfinite(largest):
        return NONFINITE
    if not largest:
        return ZERO
    mantissa, exponent = math.frexp(largest)
    return exponent - (mantissa == 0.5)
