"""Entries of p4/fpisa.p4: SwitchML's, as only what the switch does with the payload differs. Its own reduction is the sum of the
floats whose bits the words are."""

from __future__ import annotations

import numpy as np

from ina.aggregation.entries.switchml import SwitchML
from ina.codecs.fpisa import sums


class Fpisa(SwitchML):
    name = "fpisa"
    title = "FPISA"

    def reduced(self, tensors: np.ndarray) -> np.ndarray:
        """Returns the bits of the workers' sums in their order at one switch: with other orders, last places may differ."""
        return sums(list(np.ascontiguousarray(tensors, np.int32).view(np.float32))).view(np.int32)


PROGRAM = Fpisa()
