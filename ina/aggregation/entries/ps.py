"""Entries of p4/ps.p4: those of p4/atp.p4, for jobs that the switch does not aggregate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ina.aggregation.entries.atp import ATP
from ina.aggregation.entries.base import Place


class ParameterServer(ATP):
    name = "ps"
    title = "parameter server"
    aggregates = False
    multicasts = False

    def held(self, read: Callable[[str], np.ndarray], places: Sequence[Place]) -> dict[int, int]:
        """Returns {}: its program has no aggregators."""
        return {}


PROGRAM = ParameterServer()
