"""Signs with error feedback: one bit a value up, the number of ayes down.

    round 1, maxima: the mean size of each block      round 2, sums: votes, in lanes of ceil(log2(n + 1)) bits

sign         EF-signSGD (Karimireddy et al., ICML'19): the average of the workers' signs, each for the mean of its block
sign-vote    their majority (signSGD with majority vote: Bernstein et al., ICML'18), with feedback on both sides, as in
             dist-EF-SGD (Zheng et al., NeurIPS'19) and 1-bit Adam: all workers keep what it misses of the average

Workers have a common mean, the largest of theirs, so that votes add up. What a worker's sign misses of its value is added to its
next one. The switch sends the count back whatever is made of it, so here the majority saves no byte, and loses the count: it is
for what a switch of one bit would do, and for optimisers that are made for it.

An infinity or NaN of any worker makes its block NaN in this call, and what earlier sums missed of it stays for the next. Zero
votes aye. A block of zeros, on all workers, is zero. Up to 65,535 workers.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ina.base.native import ffi, lib
from ina.codecs.codec import ADD, MAXIMUM, Call, Feedback, Round, Rounds, Traffic, both_ways
from ina.codecs.lanes import Packing
from ina.codecs.pointers import pointer


class Sign(Feedback):
    """``block``: values with a common mean. ``missed``: of this worker's values, so far."""

    name = "sign"
    accumulator = "lanes of ceil(log2(n + 1)) bits"
    rounds = 2
    operations = frozenset({ADD, MAXIMUM})
    votes: ClassVar[bool] = False

    def __init__(self, block: int = 512) -> None:
        super().__init__()
        if block < 1:
            raise ValueError(f"codec {self.name}: blocks of {block}, expected 1 value at least")
        self.block = block
        self.missed = self.missed_by_all = np.empty(0, np.float32)

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        """Yields the means, then the votes."""
        packing, size = self._packing(call.workers), values.size
        if self.missed.size != size:
            self.missed, self.missed_by_all = np.zeros_like(values), np.zeros(size if self.votes else 0, np.float32)
        native = ffi.new("struct ina_signs *", {"count": size, "block": self.block, "workers": call.workers})
        wanted = values + self.missed
        means = yield Round(self._means(wanted), MAXIMUM)
        means = means.copy()  # the round's words may be used again
        words = yield Round(packing.pack((wanted >= 0).view(np.uint8)), ADD)
        ayes, result = packing.sums(words, size), wanted
        lib.ina_signs_missed(native, pointer(means), pointer(wanted), pointer(self.missed))
        if not self.votes:
            lib.ina_signs_values(native, pointer(means), pointer(ayes), 1 / call.divisor, pointer(result))
            return result
        lib.ina_signs_values(native, pointer(means), pointer(ayes), 1 / call.workers, pointer(result))
        result += self.missed_by_all
        means = self._means(result)
        lib.ina_signs_missed(native, pointer(means), pointer(result), pointer(self.missed_by_all))
        lib.ina_signs_replace(native, pointer(means), call.workers / call.divisor, pointer(result))
        return result

    def _means(self, values: np.ndarray) -> np.ndarray:
        """Returns the bits of each block's mean |x|, the same on every processor."""
        means = np.empty(-(-values.size // self.block), np.int32)
        native = ffi.new("struct ina_signs *", {"count": values.size, "block": self.block})
        lib.ina_signs_means(native, pointer(values), pointer(means))
        return means

    def _packing(self, workers: int) -> Packing:
        if workers > 65535:
            raise ValueError(f"codec {self.name}: {workers} workers, expected at most 65535: lanes have 16 bits")
        return Packing(workers, 1)

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns the bytes of means and votes, as many down as up."""
        return both_ways(-(-elements // self.block) + self._packing(workers).words(elements))


class SignVote(Sign):
    """The majority. ``missed_by_all``: by the majority, so far, the same on all workers."""

    name = "sign-vote"
    votes = True
