"""Messages between hosts in virtual time: each pair of hosts and direction has a connection that keeps their order.

A message is a tensor of 32-bit words in the emulator's transport (``collectives.message``): it is cut into packets, which queues
hold up and wires lose, and sent again until all of it has arrived. Between messages, hosts do what they have planned.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ina.lab.virtual import virtual_network
from ina.net.ports import PS
from ina.worlds.virtual import collectives
from ina.worlds.virtual.network import NEVER, checked

if TYPE_CHECKING:
    from ina.lab.virtual.keys import Virtual
    from ina.lab.virtual.timeline import Timeline
    from ina.worlds.virtual.fabric import Fabric, FabricJob
    from ina.worlds.virtual.network import Completion


class Stuck(virtual_network.WrongSum):
    """Nothing is left to happen, and hosts still wait: a protocol between them is broken."""


Handler = Callable[[np.ndarray], None]


class Mail:
    """All connections of a network, which are made when they are first used. ``bytes``: words that were sent, times four, by
    the kind that the sender gives; ``messages``: their number. Headers and what is sent again are not in them."""

    def __init__(self, config: Virtual, network: Fabric):
        self.config, self.network = config, network
        self.bytes: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        self.jobs: list[FabricJob] = []  # all that there ever were
        self._open: dict[tuple[str, str], FabricJob] = {}
        self._handlers: dict[int, tuple[str, np.ndarray, Handler]] = {}  # by the receiver's ticket, with the receiver
        self.dead: set[str] = set()
        self._forgotten: set[str] = set()  # of these, those of which all others know
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []  # a heap: ps, number, action
        self._actions = self._clock = 0

    @property
    def now(self) -> int:
        """Virtual time, ps: the network's, which stands still while nothing is under way, or later."""
        return max(self._clock, self.network.now)

    def plan(self, after: float, action: Callable[[], None]) -> None:
        """Plans an action, ``after`` s from now. Raises EndOfTime: so late is no time."""
        self._actions += 1
        heapq.heappush(self._agenda, (checked(self.now + round(after * PS)), self._actions, action))

    def run(self, timeline: Timeline, done: Callable[[], bool]) -> None:
        """Delivers messages and does what is planned until ``done``.

        Raises:
            JobError: a message has not arrived within the deadline.
            Stuck: nothing is left to happen before.
        """
        self.network.stop_at_completions()
        while not done():
            due = self._agenda[0][0] if self._agenda else NEVER - 1
            idle = timeline.run(self.network, due)
            completions = self.network.completions()
            for completion in completions:
                self._clock = max(self._clock, completion.time)
                self._completed(completion)
            if completions:
                continue
            if self._agenda and (idle or self.network.now >= due):
                self._clock = max(self._clock, due)
                heapq.heappop(self._agenda)[2]()
            elif idle:
                raise Stuck("nothing is left to happen, and hosts still wait")

    def send(self, source: str, target: str, words: np.ndarray, kind: str, handler: Handler) -> None:
        """Sends int32 ``words``; ``handler`` gets those that arrive, at ``target``, when they do. What a dead host sends, and
        what is sent to it, goes nowhere."""
        if source in self.dead or target in self._forgotten:
            return
        self.bytes[kind] += words.nbytes
        self.messages[kind] += 1
        job = self._open.get((source, target)) or self._connect(source, target)
        self.network.submit(job.machines[0], words, at=self.now)
        if target not in self.dead:
            arrived = np.zeros_like(words)
            self._handlers[self.network.submit(job.machines[1], arrived, at=self.now)] = target, arrived, handler

    def _connect(self, source: str, target: str) -> FabricJob:
        config = self.config
        job = self.network.collective(
            [source, target], collectives.message(), config.values, name=f"{source} to {target}", window=config.flow,
            rto=config.rto_min, timeout=config.timeout, congestion=virtual_network.CONGESTION[config.transport])
        self._open[source, target] = job
        self.jobs.append(job)
        if target in self.dead:
            self.network.stop_machine(job.machines[1])
        return job

    def _completed(self, completion: Completion) -> None:
        """Gives a message that has arrived to its handler."""
        completion.raise_failed()
        if (arrived := self._handlers.pop(completion.ticket, None)) and arrived[0] not in self.dead:
            arrived[2](arrived[1])

    def kill(self, host: str) -> None:
        """Ends a host's side of its connections at once; the others go on to send until they are told by ``forget``."""
        self.dead.add(host)
        for ends, job in self._open.items():
            for name, machine in zip(ends, job.machines, strict=True):
                if name == host:
                    self.network.stop_machine(machine)

    def forget(self, host: str) -> None:
        """Ends the others' side of the connections to and from a dead host, to which they send nothing more."""
        self._forgotten.add(host)
        for ends in [ends for ends in self._open if host in ends]:
            job = self._open.pop(ends)
            if ends[ends[0] == host] not in self.dead:
                self.network.stop_machine(job.machines[ends[0] == host])

    def revive(self, host: str) -> None:
        """Has a dead host, which all others have forgotten, send and receive again."""
        self.dead.remove(host)
        self._forgotten.remove(host)
