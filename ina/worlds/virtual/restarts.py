"""Jobs one after the other for the explorer: controller, switches and hosts begin anew, at any time and each by itself.

    explorer = jobs(program, topology, ["next", "lost"])     # three jobs of one number, in the same slots
    report = explorer.saturate()

Real controllers (ina/aggregation/controller/admission.py) admit the jobs while the explorer is made; the entries that they write
are kept as one era for each job. In the walk a machine stands for them: it sends the next era to switches and hosts, and repeats
that until they answer. Messages may be late, lost or repeated like any frame, so switches of a tree change at different times,
and hosts go on with the old job for any time, while their old frames may arrive for ever. Leases are sent when all switches have
changed, as by a controller. Only where nobody knows the last job's life (GONE) its hosts have stopped before, and their frames
have died out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ina.aggregation.controller.admission import Controller, Job, switch_address
from ina.aggregation.entries import pool_of
from ina.aggregation.entries.switchml import PROGRAM, SwitchML
from ina.aggregation.worker.config import WorkerConfig
from ina.aggregation.worker.worker import Worker
from ina.p4.runtime.embedded import Switch
from ina.p4.runtime.entities import Entity, MulticastGroupEntry, TableEntry, insert
from ina.topology import Topology
from ina.topology.tree import aggregation_tree
from ina.worlds.virtual.explorable import SwitchMachine, WorkerMachine, describe, tensors
from ina.worlds.virtual.explorer import Explorer, Machine, Sent
from ina.worlds.virtual.fabric import Source

NEXT, LOST, OLD, GONE = "next", "lost", "old", "gone"
BETWEEN = {
    NEXT: "the controller goes on, or begins anew with its state: the next job",
    LOST: "a controller begins without a state",
    OLD: "a controller begins with a state that is older than the last job",
    GONE: "a controller begins without a state when the last job has ended, and waits for a packet lifetime",
}
CONTROL = 1 << 16  # of every machine: the port towards the controller; frames there: operation and era
WRITE, STOP, LEASE, DONE = b"WSLD"


class OneNumber(SwitchML):
    """SwitchML with a single job number, so that every job gets the number of the one before."""

    max_jobs = 1


@dataclass(frozen=True)
class Era:
    """One job: the ``entries`` of each switch, and the configuration of each host's worker, by name."""

    entries: dict[str, list[Entity]]
    workers: dict[str, WorkerConfig]


class ControllerMachine(Machine):
    """The controller; its ports lead to switches, then hosts. It writes an era at all switches, sends it to the hosts, then
    begins the next; after GONE only once all hosts have stopped and no frame is in flight. Timers: 0 begins the next era; 1 does
    so after GONE; 2 repeats messages."""

    name, timers, quiet = "controller", (0, 1, 2), (1,)

    def __init__(self, switches: int, hosts: int, between: Sequence[str]):
        self._switches, self._hosts, self._between = range(switches), range(switches, switches + hosts), between
        self.era, self.doing, self._answers = 0, LEASE, 0  # bit i: port i has done it

    def receive(self, port: int, frame: bytes) -> Sent:
        if frame[1:] != bytes([self.era, self.doing]):
            return []
        self._answers |= 1 << port
        if self.doing == WRITE and not self._unanswered:
            return self._begin(LEASE)
        return []

    def expire(self, timer: int) -> Sent | None:
        if timer == 2:
            return self._messages()
        if self.done():
            return None
        if self._between[self.era] == GONE and timer == 0:
            return None if self.doing == STOP else self._begin(STOP)
        if (timer == 1) != (self.doing == STOP) or (timer == 1 and self._unanswered):
            return None
        self.era += 1
        return self._begin(WRITE)

    def _begin(self, operation: int) -> Sent:
        self.doing, self._answers = operation, 0
        return self._messages()

    @property
    def _unanswered(self) -> list[int]:
        ports = self._switches if self.doing == WRITE else self._hosts
        return [port for port in ports if not self._answers >> port & 1]

    def _messages(self) -> Sent:
        return [(port, bytes([self.doing, self.era])) for port in self._unanswered]

    def save(self) -> tuple[bytes, bytes]:
        saved = bytes([self.era, self.doing]) + self._answers.to_bytes(8, "big")
        return saved, saved

    def restore(self, saved: bytes) -> None:
        self.era, self.doing, self._answers = saved[0], saved[1], int.from_bytes(saved[2:], "big")

    def done(self) -> bool:
        return self.era == len(self._between)


class EraSwitch(Machine):
    """One switch, with the tables of each era; registers stay when they change."""

    def __init__(self, name: str, eras: Sequence[SwitchMachine]):
        self.name, self.timers, self._eras, self.era = name, eras[0].timers, eras, 0

    def receive(self, port: int, frame: bytes) -> Sent:
        if port != CONTROL:
            return self._eras[self.era].receive(port, frame)
        if frame[1] > self.era:
            registers = self._eras[self.era].save()[1]
            self.era = frame[1]
            self._eras[self.era].restore(registers)
        return [(CONTROL, bytes([DONE, self.era, WRITE]))]

    def expire(self, timer: int) -> Sent | None:
        return self._eras[self.era].expire(timer)

    def save(self) -> tuple[bytes, bytes]:
        behaviour, whole = self._eras[self.era].save()
        return bytes([self.era]) + behaviour, bytes([self.era]) + whole

    def restore(self, saved: bytes) -> None:
        self.era = saved[0]
        self._eras[self.era].restore(saved[1:])


class EraHost(Machine):
    """One host, which has a worker of its own in each era."""

    def __init__(self, name: str, eras: Sequence[WorkerMachine]):
        self.name, self.timers, self._eras = name, eras[0].timers, eras
        self.era, self._stopped = 0, False
        self._new = [machine.save()[1] for machine in eras]

    def start(self) -> Sent:
        return self._eras[0].start()

    def receive(self, port: int, frame: bytes) -> Sent:
        if port != CONTROL:
            return [] if self._stopped else self._eras[self.era].receive(port, frame)
        operation, era = frame
        if operation == LEASE and era > self.era:
            self.era, self._stopped = era, False
            self._eras[era].restore(self._new[era])
            return self._eras[era].start()
        if operation == STOP and era == self.era:
            self._stopped = True
        return [(CONTROL, bytes([DONE, era, STOP]))] if operation == STOP and era <= self.era else []

    def expire(self, timer: int) -> Sent | None:
        return None if self._stopped else self._eras[self.era].expire(timer)

    def save(self) -> tuple[bytes, bytes]:
        behaviour, whole = self._eras[self.era].save()
        head = bytes([self.era, self._stopped])
        return head + behaviour, head + whole

    def restore(self, saved: bytes) -> None:
        self.era, self._stopped = saved[0], bool(saved[1])
        self._eras[self.era].restore(saved[2:])

    def violation(self) -> str | None:
        return self._eras[self.era].violation()

    def done(self) -> bool:
        return self.era == len(self._eras) - 1 and self._eras[self.era].done()


def jobs(
    program: Source, topology: Topology, between: Sequence[str], *, slots: int = 1, values: int = 32, elements: int = 32,
    restarts: bool = False, chance: Callable[[int], random.Random] = random.Random, first: int = 0,
) -> Explorer:
    """Makes SwitchML jobs of a worker at each host: the first, and one after each of ``between``, which are keys of BETWEEN. All
    have one number and the same slots, and sums of their own.

    ``program``: compiled with VALUES = ``values`` and a small SLOTS. ``restarts``: of switches, at any time. ``chance``: the
    random numbers of the n-th controller, from 0. ``first``: number of each job's first packet.
    """
    eras = _eras(program, topology, between, slots, values, chance, first)
    work = [tensors(1, number, 1, len(topology.hosts), elements, np.int32, values) for number in range(len(eras))]
    hosts = [EraHost(host.name, [WorkerMachine(host.name, Worker(era.workers[host.name]), each[i])
                                 for era, each in zip(eras, work, strict=True)]) for i, host in enumerate(topology.hosts)]
    switches = [EraSwitch(node.name, [SwitchMachine(node.name, _switch(program, topology, node.name, era), restarts)
                                      for era in eras]) for node in topology.switches]
    controller = ControllerMachine(len(switches), len(hosts), between)
    wires = [((a.node, a.port), (b.node, b.port)) for a, b in topology.ends]
    wires += [(("controller", port), (machine.name, CONTROL)) for port, machine in enumerate([*switches, *hosts])]
    return Explorer([*hosts, *switches, controller], wires, _describe)


def _eras(program: Source, topology: Topology, between: Sequence[str], slots: int, values: int,
          chance: Callable[[int], random.Random], first: int) -> list[Era]:
    """Runs controllers one after the other; returns the switch entries and worker configurations of each."""
    hosts = [host.name for host in topology.hosts]
    targets = {node.name: Switch(program) for node in topology.switches}
    for switch in targets.values():
        pool_of(PROGRAM, switch.program.p4info, slots)

    def new_controller(number: int) -> Controller:
        return Controller(targets, slots, protocol=OneNumber(), topology=topology, chance=chance(number))

    controller, started, eras = new_controller(0), 1, []
    before = controller.snapshot()
    for step in [NEXT, *between]:
        if step in (NEXT, GONE):
            for name in list(controller.jobs):
                controller.release(name)
        if step != NEXT:
            controller, started = new_controller(started), started + 1
            if step == OLD:
                controller.restore(before)
            controller.survey()
        before = controller.snapshot()
        job = controller.admit("explored", len(hosts), slots, tree=aggregation_tree(topology, hosts),
                               check="off")  # walked is what keeps sums right without check words
        for index in range(len(hosts)):
            controller.attach(job, index)
        eras.append(Era({name: _entries(target) for name, target in targets.items()},
                        {host: _config(topology, job, index, values, first) for index, host in enumerate(hosts)}))
    return eras


def _config(topology: Topology, job: Job, index: int, values: int, first: int) -> WorkerConfig:
    return job.config(index, switch_address(topology.switch_of(job.hosts[index])), values=values, rto_min=1.0, rto_max=1.0,
                      timeout=1e5, first_packet=first)


def _entries(target: Switch) -> list[Entity]:
    patterns: list[Entity] = [*(TableEntry(table) for table in OneNumber.tables), MulticastGroupEntry(0)]
    return [entity for entity in target.read(patterns) if not getattr(entity, "is_default", False)]


def _switch(program: Source, topology: Topology, name: str, era: Era) -> Switch:
    """Returns a switch with the entries of one era."""
    switch = Switch(program)
    switch.write(insert(*sorted(era.entries[name], key=lambda entity: isinstance(entity, TableEntry))))
    for ends in topology.ends:
        for end in ends:
            if end.node == name:
                switch.add_port(end.port)
    return switch


def _describe(frame: bytes) -> str:
    if len(frame) < 4:
        return {WRITE: "entries", DONE: "answer", LEASE: "lease", STOP: "end"}[frame[0]] + f" of job {frame[1]}"
    return f"{describe(frame)} of life {frame[51]}"
