"""Kinds whose workers compute for times that differ: their keys, and the times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ina.base.bounds import Range
from ina.base.settings import key
from ina.lab import limits
from ina.lab.virtual.virtual_network import Networked

DRAWN: dict[str, Callable[[np.random.Generator], float]] = {  # with a mean of 1
    "exponential": lambda rng: rng.exponential(),
    "lognormal": lambda rng: rng.lognormal(-0.5, 1.0),
    "pareto": lambda rng: (1 + rng.pareto(2.0)) / 2,  # shape 2: no variance
    "half": lambda rng: (1 + rng.exponential()) / 2,  # half of it constant, half exponential
    "constant": lambda rng: 1.0,
}


@dataclass(frozen=True)
class Computing(Networked):
    """Keys of these kinds."""

    computing: float = key(0.1, "s that a worker computes in a step, on average", limits.TIME)
    distribution: str = key("exponential", f"of these times: {', '.join(DRAWN)}", choices=tuple(DRAWN))
    straggler: float = key(1.0, "how many times slower worker 0 computes", Range(1, 1000))

    def seconds(self, worker: int, rng: np.random.Generator, steps: int = 1) -> float:
        """Draws how long a worker computes for so many steps, s."""
        slow = self.straggler if worker == 0 else 1.0
        return slow * self.computing * sum(DRAWN[self.distribution](rng) for _ in range(steps))
