"""Bases of the kinds whose hosts send messages of their own through the switch of a star: their keys and checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ina.aggregation.entries import program_named
from ina.base.bounds import Range
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check
from ina.lab.virtual.virtual_network import Networked


@dataclass(frozen=True)
class Sending(Networked):
    """Keys and checks of these kinds."""

    dtype: str = key("float32", "float32", choices=("float32",))
    rate: float = key(10e9, "of each wire, bit/s; not of a topology's file, nor between a topoopt server and its own element",
                      limits.LINK_RATE)

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield not program_named(self.protocol).needs_server, "protocol", "one without a parameter server of its own"
        yield self.jobs == 1, "jobs", "1"
        yield self.stripes == 1, "stripes", "1"
        yield self.topology == "star", "topology", "star"
        yield self.payload, "payload", "true: values are real"
        yield self.check != "keyed", "check", "off or sum"


@dataclass(frozen=True)
class Mailing(Sending):
    """Keys of those whose workers and servers exchange messages (parameter_server/mail.py)."""

    algorithm: str = key("parameter-server", "what is measured", choices=("parameter-server",))
    workers: int = key(8, "workers, each at a host of its own", limits.WORKERS)
    servers: int = key(4, "hosts that are parameter servers, at first", Range(1, 1024))
    rto_min: float = key(1e-3, "least retransmission time-out, s", limits.TIME)
    rto_max: float = key(1.0, "largest, s; also between two questions of a worker that waits", limits.TIME)
    timeout: float = key(10_000.0, "virtual seconds after which a message has failed", limits.TIME)
