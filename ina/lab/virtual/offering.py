"""Kinds whose workers offer what they have computed to sums that do not wait for everybody: the keys and checks that such kinds
share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ina.aggregation import protocols
from ina.aggregation.entries import BITMAP
from ina.base.bounds import Range
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check
from ina.lab.virtual.computing import Computing

OFFERING = tuple(name for name in protocols.names() if protocols.has_offers(name))


@dataclass(frozen=True)
class Offering(Computing):
    """Keys that these kinds share."""

    protocol: str = key(protocols.offering(), "what switch and workers speak: one that can choose the workers of a sum",
                        choices=OFFERING)
    workers: int = key(8, "workers, each at a host of its own", Range(0, BITMAP, "the bits of an offer"))
    least: int = key(0, "workers that are enough for a sum; 0: all", Range(0, BITMAP, "workers", "workers"))
    gamma: float = key(-0.2, "nurd: of its delta, which is 1 / (1 + rho) - gamma", Range(-1, 1))
    counter_noise: float = key(0.3, "nurd: standard deviation of the logarithm of what a worker's counters say of its speed",
                               Range(0, 10))
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
