"""Base of the kinds of several jobs with routes: one may fill the links up from the workers while another fills those down."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ina.aggregation import protocols
from ina.aggregation.entries import BITMAP, program_named
from ina.aggregation.worker.route import Route
from ina.base.bounds import Range
from ina.base.settings import key
from ina.lab.kind import Check, Finding
from ina.lab.virtual import bottleneck, virtual_network
from ina.lab.virtual.timeline import Span, Timeline
from ina.lab.virtual.virtual_network import Networked
from ina.net.ports import PS
from ina.worlds.virtual.fabric import Fabric

Words = npt.NDArray[np.int32]
Part = TypeVar("Part")  # of a kind's work, that one worker submits at once


@dataclass(frozen=True)
class Routed(Networked):
    """Keys and checks of kinds with ``streams`` jobs on routes."""

    streams = 2

    protocol: str = key(protocols.routed()[0], "what switch and workers speak: one with routes", choices=protocols.routed())
    workers: int = key(8, "workers, each at a host of its own", Range(2, BITMAP, "what the sets of a route have room for"))
    dtype: str = key("int32", "int32", choices=("int32",))

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield self.algorithm == "in-network" and self.stripes == 1, "algorithm", "in-network, with one stripe"
        yield self.jobs == 1, "jobs", "1"
        yield not program_named(self.protocol).needs_server, "protocol", "one without a parameter server"
        yield self.payload, "payload", "true"
        yield self.check != "keyed", "check", "off or sum"

    @property
    def window(self) -> int:
        """Slots of each of the jobs."""
        return self.window_of(self.streams)

    def why(self, run: dict, summary: dict) -> Finding:
        return bottleneck.network(self, run, 1.0, summary["time_ms"])


class Driven(ABC, Generic[Part]):
    """All workers, driven by the network's events: each submits parts, checks what it gets, and goes on."""

    def __init__(self, config: Routed, network: Fabric, place: virtual_network.Place, jobs: Sequence[str]):
        """Admits a job for each of the names ``jobs``."""
        self.network, self.hosts = network, place.hosts(config)[0]
        self.jobs = {name: virtual_network.admit_one(network, config, place, self.hosts, name, config.window, None)
                     for name in jobs}
        self.spans: list[list[Span]] = [[] for _ in self.hosts]
        self.ended = 0.0  # s, when the last part was over
        self._pending: dict[int, tuple[Part, int, Words, int]] = {}  # of a ticket: the part, its worker, memory, beginning

    @abstractmethod
    def start(self, worker: int) -> None:
        """Submits a worker's first part."""

    @abstractmethod
    def over(self, part: Part, worker: int, memory: Words) -> None:
        """Checks a worker's result, and submits what waited for it. Raises WrongSum."""

    @abstractmethod
    def finished(self) -> bool:
        """Tells whether all workers have all results."""

    def submit(self, job: str, part: Part, worker: int, memory: Words, *, tag: int, route: Route | None = None,
               reduction: int = protocols.SUM) -> None:
        """Submits a worker's ``memory`` for a part, in place. ``tag``: the part's number, the same at all workers."""
        (ticket,) = self.network.submit_one(self.jobs[job], worker, memory, tag=tag, reduction=reduction, route=route)
        self._pending[ticket] = part, worker, memory, self.network.now

    def run(self, timeline: Timeline, name: str) -> None:
        """Runs all of it. ``timeline`` records the events and, under ``name``, each worker's parts.

        Raises:
            JobError: a part failed, at a deadline or otherwise.
            WrongSum: a result is not the right one.
        """
        self.network.stop_at_completions()
        for worker in range(len(self.hosts)):
            self.start(worker)
        while not self.finished():
            timeline.run(self.network)
            for completion in self.network.completions():
                completion.raise_failed()
                part, worker, memory, began = self._pending.pop(completion.ticket)
                self.ended = completion.time / PS
                self.spans[worker].append((str(part), began / PS, self.ended))
                self.over(part, worker, memory)
        while not timeline.run(self.network):
            pass  # copies that come late
        self.network.check()
        timeline.jobs.append((name, self.spans))

    def counters(self, config: Routed) -> dict[str, dict]:
        """Returns sums over the workers, and the network's counters."""
        return virtual_network.counters(self.network, config, list(self.jobs.values()), self.hosts)
