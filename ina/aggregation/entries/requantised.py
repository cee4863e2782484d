"""Entries of p4/requantised.p4: SwitchML's, as only what the switch does with the payload differs. Its own reduction is the sum
of two lanes in each word, rounded."""

from __future__ import annotations

import numpy as np

from ina.aggregation.entries.switchml import SwitchML
from ina.aggregation.lane import INT32
from ina.codecs.requantised import rounded


class Requantised(SwitchML):
    name = "requantised"
    title = "requantised"

    def reduced(self, tensors: np.ndarray) -> np.ndarray:
        """Returns the sums of the workers' int32 words, each of whose halves is rounded to a multiple of 256."""
        return rounded(INT32.sums(np.ascontiguousarray(tensors, np.int32)))


PROGRAM = Requantised()
