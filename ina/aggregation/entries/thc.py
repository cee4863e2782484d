"""Entries of p4/thc.p4: SwitchML's, as only the payload differs. Its own reduction adds up what the indices in the bytes of words
stand for."""

from __future__ import annotations

import numpy as np

from ina.aggregation.entries.switchml import SwitchML
from ina.aggregation.lane import INT32
from ina.codecs import thc_tables

LEVELS = np.array(thc_tables.levels(*thc_tables.LOOKED_UP), np.uint8)


class Thc(SwitchML):
    name = "thc"
    title = "THC"

    def reduced(self, tensors: np.ndarray) -> np.ndarray:
        """Returns what the switch makes of the workers' int32 words of indices, the lower 4 bits of each byte."""
        indices = np.ascontiguousarray(tensors, np.int32).view(np.uint8) & 15
        return INT32.sums(LEVELS[indices].view(np.int32))


PROGRAM = Thc()
