"""Filters: which entries of a push are sent (Li et al., OSDI 2014, section 3.6, and NIPS 2014, Communication efficient
distributed machine learning with the parameter server, sections 3.3 and 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Entries(NamedTuple):
    """Entries of a push, float32. ``values``: by how much the worker would have its ``weights`` fall; ``threshold``: the
    filter's; ``shrink``: by how much servers move weights towards 0 in an iteration (server.py)."""

    values: np.ndarray
    weights: np.ndarray
    threshold: float
    shrink: float


class Filter(NamedTuple):
    """A filter. ``sent``: True for entries that are; ``waits``: what is not sent is added to the next push, else it is dropped;
    ``scaled``: what is sent is divided by the part that is sent on average, 1 - threshold."""

    sent: Callable[[Entries, np.random.Generator], np.ndarray]
    waits: bool = False
    scaled: bool = False


def _significant(push: Entries, rng: np.random.Generator) -> np.ndarray:
    """The significantly modified filter: what has changed by more than the threshold since it was last sent."""
    return np.abs(push.values) > push.threshold


def _random(push: Entries, rng: np.random.Generator) -> np.ndarray:
    """Each entry with probability 1 - threshold, whatever it is."""
    return rng.random(len(push.values)) >= push.threshold


def _kkt(push: Entries, rng: np.random.Generator) -> np.ndarray:
    """The KKT filter: a weight of 0 stays so if the gradient is within lambda, so the entry is left out if the worker's own is
    within lambda - delta (section 5; here times the learning rate, with the threshold as delta)."""
    return (push.weights != 0) | (np.abs(push.values) > push.shrink - push.threshold)


FILTERS: dict[str, Filter | None] = {
    "none": None,
    "significant": Filter(_significant, waits=True),
    "random": Filter(_random, waits=True),  # a baseline of our own
    "skip": Filter(_random, scaled=True),  # the random skip filter; divided so as to be unbiased (NIPS 2014, appendix A)
    "kkt": Filter(_kkt),
}
