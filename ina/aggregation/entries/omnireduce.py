"""Entries of p4/omnireduce.p4: SwitchML's, as only packets of zeros differ. Its own reduction is a sum, which passes over blocks
that are zero at all workers."""

from __future__ import annotations

import numpy as np

from ina.aggregation.entries.switchml import SwitchML
from ina.aggregation.lane import INT32


class OmniReduce(SwitchML):
    name = "omnireduce"
    title = "OmniReduce"

    def reduced(self, tensors: np.ndarray) -> np.ndarray:
        """Returns the sum of the workers' int32 words, modulo 2^32."""
        return INT32.sums(tensors)


PROGRAM = OmniReduce()
