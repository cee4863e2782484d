"""Filters: which entries of a push are sent (Li et al., OSDI 2014, section 3.6). The rest waits for a later push."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Filter = Callable[[np.ndarray, float, np.random.Generator], np.ndarray]


def _significant(values: np.ndarray, threshold: float, rng: np.random.Generator) -> np.ndarray:
    """The significantly modified filter: what has changed by more than the threshold since it was last sent."""
    return np.abs(values) > threshold


def _random(values: np.ndarray, threshold: float, rng: np.random.Generator) -> np.ndarray:
    """A baseline of our own: each entry with probability 1 - threshold, whatever it is."""
    return rng.random(len(values)) >= threshold


FILTERS: dict[str, Filter | None] = {"none": None, "significant": _significant, "random": _random}  # True: is sent
