"""Requantised results: 16 bits of each value go up, of the sum 8 come back (p4/requantised.p4), as in SCIN's switches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ina.aggregation.lane import INT32
from ina.codecs.codec import MAXIMUM, OWN, Traffic
from ina.codecs.lanes import FLOAT_BITS, Element, Lanes16

ROUNDED = 256  # sums that come back are multiples of it


class Lanes16To8(Lanes16):
    """`lanes-16`, of whose sums 8 bits come back: those of p4/requantised.p4. A sum is up to 128 units off, a unit being the
    largest value of the block over that of a lane; one that is zero is exact for up to 127 workers."""

    name = "lanes-16-8"
    operations = frozenset({MAXIMUM, OWN})
    protocol = "requantised"
    accumulator = "lanes of 16 bits, rounded to 8"
    added, off = OWN, ROUNDED // 2
    most = 2**FLOAT_BITS - 1 - ROUNDED // 2  # a larger one would be rounded to more than a lane has

    def element(self, workers: int) -> Element:
        """Returns those of `lanes-16` whose biases add up to a number that is not rounded, where there is room."""
        room, step = super().element(workers), ROUNDED // math.gcd(workers, ROUNDED)
        return replace(room, largest=room.largest // step * step or room.largest)

    def own(self, words: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the sums, each lane rounded."""
        return rounded(INT32.sums(words))

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns the bytes of maxima and words up, and of maxima and half of the words down."""
        both = super().traffic(elements, workers)
        maxima = INT32.bytes(-(-elements // self.block))
        return Traffic(both.up, maxima + (both.down - maxima) // 2)


def rounded(words: np.ndarray) -> np.ndarray:
    """Returns int32 words, each of whose halves is rounded to a multiple of ROUNDED, ties up, and stays within 16 bits."""
    lanes = words.view(np.uint16).astype(np.uint32) + ROUNDED // 2
    return (np.minimum(lanes, 2**FLOAT_BITS - 1) // ROUNDED * ROUNDED).astype(np.uint16).view(np.int32)
