"""Masked sums: integers that a worker sends look random, and the masks cancel where a switch adds them up.

Each pair of workers adds to a sum the same random words, one of them with a minus sign, modulo 2^32, as in Bonawitz et al.,
Practical Secure Aggregation: who sees the packets of fewer than all workers sees words that are uniform, and the sum of all is
that of what was masked, to the bit. A worker that is missing would leave its pairs' masks in the sum: such a sum is refused,
and needs the masks of shared_masks.py.

    masks = Masks(seed=1, workers=8)
    masks.cover(3, 17, whole(update, 8))        -> what worker 3 gives to sum 17
    parts(total)                                -> the sum of the updates, from the switch's sum

Words are of SHAKE-256, of a key that each pair derives from ``seed`` here, in place of an agreement on keys.
"""

from __future__ import annotations

import hashlib

import numpy as np

from ina.aggregation.lane import INT32
from ina.base.settings import ConfigError

FRACTION = 16  # bits: updates travel as multiples of 2^-16
LARGEST = 2.0**31 / 2**FRACTION  # of a sum's values, which have a sign


def whole(values: np.ndarray, workers: int) -> np.ndarray:
    """Returns float values as int32 multiples of 2^-FRACTION, to the nearest. Raises ConfigError: a sum of as large ones of all
    ``workers`` might not fit."""
    largest = float(np.max(np.abs(values), initial=0.0))
    if not largest * workers < LARGEST:
        raise ConfigError(f"masked = true: an update has a value of {largest:g}, expected less than {LARGEST / workers:g} with "
                          f"{workers} workers; give a lower lr, or masked = false")
    return np.rint(values.astype(np.float64) * 2**FRACTION).astype(np.int32)


def parts(values: np.ndarray) -> np.ndarray:
    """Returns what int32 multiples of 2^-FRACTION stand for, float32."""
    return (values.astype(np.float64) / 2**FRACTION).astype(np.float32)


class Masks:
    """Masks of a job's ``workers``, which know a common ``seed``: that of the experiment."""

    def __init__(self, seed: int, workers: int):
        self.seed, self.workers = seed, workers

    def cover(self, worker: int, number: int, values: np.ndarray) -> np.ndarray:
        """Returns int32 ``values`` with the masks of a worker's pairs for sum ``number``, modulo 2^32."""
        covered = values.view(np.uint32).copy()
        for other in range(self.workers):
            if other != worker:
                words = self._words(min(worker, other), max(worker, other), number, covered.size)
                covered += words if worker < other else -words
        return covered.view(np.int32)

    def _words(self, low: int, high: int, number: int, count: int) -> np.ndarray:
        """Returns a pair's words for a sum, uint32: nobody uses them twice."""
        key = f"{self.seed} {low} {high} {number}".encode()
        return np.frombuffer(hashlib.shake_256(key).digest(INT32.bytes(count)), "<u4").astype(np.uint32)
