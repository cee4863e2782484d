"""Kinds whose workers compute for times that differ, and offer what they have to sums that do not wait for everybody: the keys
and the checks that such kinds share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ina.aggregation import protocols
from ina.base.bounds import Range
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check
from ina.lab.virtual.virtual_network import Networked

OFFERING = tuple(name for name in protocols.names() if protocols.has_offers(name))
DRAWN: dict[str, Callable[[np.random.Generator], float]] = {  # with a mean of 1
    "exponential": lambda rng: rng.exponential(),
    "lognormal": lambda rng: rng.lognormal(-0.5, 1.0),
    "pareto": lambda rng: (1 + rng.pareto(2.0)) / 2,  # shape 2: no variance
    "half": lambda rng: (1 + rng.exponential()) / 2,  # half of it constant, half exponential
    "constant": lambda rng: 1.0,
}


@dataclass(frozen=True)
class Offering(Networked):
    """Keys that these kinds share."""

    protocol: str = key(protocols.offering(), "what switch and workers speak: one that can choose the workers of a sum",
                        choices=OFFERING)
    workers: int = key(8, "workers, each at a host of its own", limits.WORKERS)
    least: int = key(0, "workers that are enough for a sum; 0: all", Range(0, 32, "workers", "workers"))
    computing: float = key(0.1, "s that a worker computes in a step, on average", limits.TIME)
    distribution: str = key("exponential", f"of these times: {', '.join(DRAWN)}", choices=tuple(DRAWN))
    straggler: float = key(1.0, "how many times slower worker 0 computes", Range(1, 1000))
    dtype: str = key("float32", "float32", choices=("float32",))
    rto_min: float = key(1e-3, "least retransmission time-out, s", limits.TIME)
    rto_max: float = key(1.0, "largest, s; also between two questions of a worker that waits", limits.TIME)
    timeout: float = key(10_000.0, "virtual seconds after which a sum has failed", limits.TIME)

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield self.least <= self.workers, "least", f"at most {self.workers}, the workers"
        yield self.algorithm == "in-network" and self.stripes == 1, "algorithm", "in-network, with one stripe"
        yield self.jobs == 1, "jobs", "1"
        yield self.check != "keyed", "check", "off or sum"

    def seconds(self, worker: int, rng: np.random.Generator, steps: int = 1) -> float:
        """Draws how long a worker computes for so many steps, s."""
        slow = self.straggler if worker == 0 else 1.0
        return slow * self.computing * sum(DRAWN[self.distribution](rng) for _ in range(steps))
