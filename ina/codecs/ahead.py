"""OmniReduce's look-ahead (Fei et al., SIGCOMM'21), in a switch with p4/omnireduce.p4: packets whose values are zero at all
workers are not sent, and those of one worker only by that worker.

    round 1, maxima: the largest value      round 2, the program's own sum: the values, below that one

All values of a tensor have one exponent in common, so that zeros stay zeros whatever lies beside them: what is more than
30 - ceil(log2 n) bits below the tensor's largest value is flushed to zero, and counted. An infinity or NaN of any worker makes
the whole result NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ina.aggregation.lane import INT32
from ina.codecs.codec import MAXIMUM, OWN, Call, Codec, Round, Rounds, Traffic, both_ways, rounding

INFINITE = 0x7F800000  # float32's bits: those of floats that are not negative order as integers


class OmniReduceAhead(Codec):
    name = "omnireduce-ahead"
    rounds = 2
    operations = frozenset({MAXIMUM, OWN})
    protocol = "omnireduce"

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        largest = np.max(np.abs(values), initial=np.float32(0)).reshape(1)  # NaN, if there is one
        (agreed,) = yield Round(largest.view(np.int32) & 0x7FFFFFFF, MAXIMUM)
        if agreed >= INFINITE:
            words = np.zeros(values.size, np.int32)
        else:
            unit = self._unit(float(agreed.view(np.float32)), call.workers)
            words = np.rint(values / unit).astype(np.int32)
            self.flushed += int(np.count_nonzero(values)) - int(np.count_nonzero(words))
        total = yield Round(words, OWN)
        if agreed >= INFINITE:
            return np.full_like(values, np.nan)
        return (total * (unit / call.divisor)).astype(np.float32)

    @staticmethod
    def _unit(largest: float, workers: int) -> np.float64:
        """Returns what a word of 1 stands for: the sum of all workers' words is within 2^30."""
        _, exponent = np.frexp(largest)
        return np.float64(INT32.unit(int(exponent), workers))

    def own(self, words: Sequence[np.ndarray]) -> np.ndarray:
        return INT32.sums(words)

    def bound(self, tensors: Sequence[np.ndarray], average: bool = False) -> np.ndarray:
        n = len(tensors)
        unit = self._unit(float(np.max(np.abs(tensors), initial=0.0)), n)
        exact = np.sum(np.asarray(tensors, np.float64), axis=0)
        return (n * unit / 2 + 2 * rounding(exact)) / (n if average else 1) + rounding(np.zeros(1))

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns the bytes of a tensor without blocks of zeros."""
        return both_ways(1 + elements, exact=False)
