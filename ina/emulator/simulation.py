"""Kills, restarts and lost memory in virtual time, from seeds, as FoundationDB's and TigerBeetle's simulators do it.

    report = Simulation(program, seed=17).run(events=50_000)
    assert report.violation is None, report

SwitchML's compiled program, its C workers, and the real controller over a small network whose wires lose, duplicate and reorder
frames. After any event any of them may end and come back: a switch without its registers and entries, a worker without its
state, the controller with its latest state, an older one, or none, in the middle of a write, too, that a switch has then
taken whole, in part, or not at all. Jobs are all-reduces without an end; when something of
a job is lost it begins anew, as another job under its name. Checked:

- no wrong sum: every life of a job has data of its own, so what comes from elsewhere or twice is none of its sums;
- no entry that the controller does not know of, at a switch of which it is sure, and no slots that are held by nobody;
- no stuck job: one that nothing hinders after it began gets on, and all do when all is up again and stays up. Some lives are
  spared until their first sum, since where something ends every few milliseconds nothing is stuck for long.

Each violation names its seed, with which the run repeats to the event.
"""

from __future__ import annotations

import errno
import json
import random
from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from ina.control.controller import AdmissionError, Controller, Job
from ina.control.programs import program_named
from ina.control.repair import repair
from ina.control.writing import REFUSED
from ina.emulator.fabric import Fabric
from ina.native import ffi, lib
from ina.switch.embedded import Switch
from ina.switch.entities import MulticastGroupEntry, TableEntry, as_int
from ina.transport import protocols
from ina.transport.config import PS
from ina.transport.errors import JobTimeout
from ina.transport.ports import Faults
from topologies import Topology, load

VALUES, POOL = 32, 8  # elements of a packet, slots of a switch: few, so that all are used again soon
RATE, DELAY = 10e9, 1e-6
RTO_MIN, RTO_MAX = 30e-6, 300e-6  # s
TIMEOUT = 10e-3  # s after which a worker gives up: longer than any switch is away
LATE = 0.8e-3  # s that a duplicate comes late, at most
LIFETIME = round(1e-3 * PS)  # ps: no packet is under way for longer
SPARED = 0.3  # of the lives: nothing fails until their first sum
QUIET = round(100e-3 * PS)  # ps within which every job gets on, when nothing fails any more
AHEAD = 3  # tensors that a worker has under way


class Killed(BaseException):
    """The controller's process ended here."""


@dataclass(frozen=True)
class Report:
    """One run. ``events``: of the emulator; ``tensors``: results that were checked; ``faults``: what was done, how often;
    ``violation``: None, or what went wrong, and ``story`` has the last things that were done before."""

    seed: int
    events: int
    tensors: int
    faults: dict[str, int]
    violation: str | None = None
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.violation is None:
            return f"seed {self.seed}: {self.events} events, {self.tensors} sums"
        return "\n".join((f"seed {self.seed}: {self.violation}", *(f"  {step}" for step in self.story)))


class Violation(Exception):
    """An invariant does not hold."""


@dataclass
class Target:
    """A switch as the controller reaches it."""

    name: str
    switch: Switch
    simulation: Simulation
    up: bool = True

    def write(self, updates: list) -> None:
        taken = self.simulation.fate(self, len(updates))
        self.switch.write(updates[:taken])
        self.simulation.after_write(self, taken == len(updates))

    def read(self, entities) -> list:
        if not self.up:
            raise OSError(errno.ECONNREFUSED, f"{self.name} is down")
        return self.switch.read(entities)


@dataclass
class Client:
    """An application: all-reduces one after the other, in one life of its job after the other."""

    name: str
    hosts: tuple[str, ...]
    slots: int
    elements: int
    dtype: type
    job: Job | None = None
    lives: int = 0
    machines: dict[int, int] = field(default_factory=dict)  # by worker, those that live
    done: int = 0  # tensors that all workers have
    had: Counter[int] = field(default_factory=Counter)  # by tensor of this life, workers that have it
    next: dict[int, int] = field(default_factory=dict)  # by worker, the tensor that it submits next
    due: int = 0  # ps at which it tries to begin
    hindered: bool = False  # since it began, something ended that it needs, or that may have had its entries deleted
    spared: bool = False  # nothing fails until all of its workers have a sum


class Simulation:
    """``program``: SwitchML's, compiled for VALUES elements and POOL slots or more. ``controller``: what makes one, for planted
    defects."""

    def __init__(self, program, seed: int, controller: Callable[..., Controller] = Controller):
        self.seed, self.chance = seed, random.Random(seed)
        self._make, self.protocol = controller, copy(program_named(protocols.DEFAULT))
        chance = self.chance
        loss = chance.choice((0, 0.001, 0.02, 0.15))
        faults = Faults(loss, chance.choice((0, 0.01, 0.1)), chance.choice((0, 0.01, 0.1)), 0, LATE, 100e-6, seed)
        self.topology = self._network()
        self.fabric = Fabric(program, self.topology, pool=POOL, protocol=self.protocol.name, faults=faults, seed=seed,
                             max_frame=512)  # fmt: skip
        self.fabric.stop_at_completions()
        self.targets = {name: Target(name, switch, self) for name, switch in self.fabric.switch_at.items()}
        self._blank = {name: bytes(_state(switch)) for name, switch in self.fabric.switch_at.items()}
        self.states: list[str] = []  # that were saved, the latest last
        self.pace = chance.choice((10, 60, 300))  # events between two chances of a fault, at most
        self.faults: Counter[str] = Counter()
        self.story: list[str] = []
        self.tensors, self._clock, self.quiet_until, self.settling = 0, 0, 0, False
        self._returns: list[tuple[int, str, str]] = []  # when what comes back
        self.tickets: dict[int, tuple[Client, Job, int, int, np.ndarray]] = {}
        self.controller: Controller | None = None
        self.clients = self._applications()
        self.protocol.max_jobs = len(self.clients) + chance.choice((0, 1))  # numbers: as few
        self._start_controller("with nothing")

    def _network(self) -> Topology:
        hosts = self.chance.choice((2, 3))
        if self.chance.random() < 0.4:
            return load("star", hosts=2 * hosts, rate=RATE, delay=DELAY, queue=0)
        return load("leaf-spine", leaves=2, spines=2, hosts=hosts, rate=RATE, delay=DELAY, queue=0)

    def _applications(self) -> list[Client]:
        hosts = [host.name for host in self.topology.hosts]
        self.chance.shuffle(hosts)
        half = len(hosts) // 2
        groups = [hosts[:half], hosts[half:]] if self.chance.random() < 0.6 else [hosts]
        dtypes = (np.int32, np.float32)
        return [Client(f"job{i}", tuple(group), self.chance.choice((1, 2, 4)), VALUES * self.chance.randint(1, 12),
                       self.chance.choice(dtypes)) for i, group in enumerate(groups)]  # fmt: skip

    # ---- time

    @property
    def now(self) -> int:
        return max(self.fabric.now, self._clock)

    def _say(self, text: str) -> None:
        self.story.append(f"{self.now / PS * 1e6:12.3f} us: {text}")
        del self.story[:-40]

    def run(self, events: int) -> Report:
        """About so many events, and then until every job has got on."""
        violation = None
        try:
            while self.fabric.stats()["events"] < events:
                self._round(self.chance.randint(1, self.pace))
                self._fail()
            self._settle()
        except Violation as error:
            violation = str(error)
        return Report(self.seed, self.fabric.stats()["events"], self.tensors, dict(sorted(self.faults.items())), violation,
                      tuple(self.story) if violation else ())  # fmt: skip

    def close(self) -> None:
        self.fabric.close()

    def _round(self, most: int) -> None:
        """Events, and what follows from them."""
        due = min([client.due for client in self.clients if client.job is None] + [when for when, _, _ in self._returns]
                  + [self.now + LIFETIME])  # fmt: skip
        if self.fabric.run(max(self.now, due), most):
            self._clock = max(self.now, due)
        for completion in self.fabric.completions():
            self._complete(completion)
        for entry in [entry for entry in self._returns if entry[0] <= self.now]:
            self._returns.remove(entry)
            self._come_back(*entry[1:])
        try:
            if self.chance.random() < 0.1:
                self._watch()
            for client in self.clients:
                if client.job is None and client.due <= self.now:
                    self._begin(client)
            self._check_entries()
        except Killed:
            self._kill_controller()

    def _settle(self) -> None:
        """Nothing fails any more."""
        self._say("all comes back, and stays")
        self.settling = True
        self._returns = [(min(when, self.now), kind, name) for when, kind, name in self._returns]
        goal = {client.name: client.done + 5 for client in self.clients}
        began = self.now
        while late := [client for client in self.clients if client.done < goal[client.name]]:
            self._round(2000)
            if self.now - began > QUIET:
                what = f"runs as job {late[0].job.number}" if late[0].job else "has not begun"
                raise Violation(f"stuck: {late[0].name} {what}; it has not got on for {QUIET / PS * 1e3:g} ms without a fault")
        for client in self.clients:
            self._end(client, "it is done")
        for name in self.targets:
            self.controller.repair(name)
            if (free := self.controller.free_slots(name)) != POOL:
                raise Violation(f"leaked slots: nobody has a job, and {name} has {free} of {POOL} slots free "
                                f"({', '.join(self.controller.jobs)})")  # fmt: skip
        self._check_entries(always=True)

    # ---- faults

    def _fail(self) -> None:
        if self._nothing_fails():
            return
        kind = self.chance.choices(("nothing", "switch", "worker", "controller"), (90, 3, 4, 4))[0]
        if kind == "switch":
            up = [target for target in self.targets.values() if target.up]
            if up:
                self._kill_switch(self.chance.choice(up))
        elif kind == "worker":
            alive = [(client, worker) for client in self.clients for worker in client.machines]
            if alive:
                self._kill_worker(*self.chance.choice(alive))
        elif kind == "controller" and self.controller is not None:
            self._kill_controller()

    def _nothing_fails(self) -> bool:
        return self.settling or any(client.spared for client in self.clients)

    def _later(self, least: float, most: float) -> int:
        return self.now + round(self.chance.uniform(least, most) * PS)

    def _kill_switch(self, target: Target) -> None:
        """End a switch: it loses its queues, registers and entries; frames on its wires are lost, or delivered elsewhere."""
        self.faults["switches killed"] += 1
        self._say(f"{target.name} ends")
        target.up = False
        for client in self.clients:
            client.hindered |= client.job is not None and target.name in client.job.branches
        for link, side in self._ends(target.name):
            self.fabric.close_port(self.fabric.end(link, side))
        self._returns.append((self._later(0, 3e-3), "switch", target.name))

    def _kill_worker(self, client: Client, worker: int) -> None:
        self.faults["workers killed"] += 1
        self._say(f"worker {worker} of {client.name} ends")
        client.hindered = True
        self.fabric.stop_machine(client.machines.pop(worker))
        self._returns.append((self._later(0, 1e-3), "worker", client.name))

    def _kill_controller(self) -> None:
        self.faults["controllers killed"] += 1
        self._say("the controller ends")
        self.controller = None
        for client in self.clients:
            client.hindered = True
        self._returns.append((self._later(0, 2e-3), "controller", self.chance.choice(("latest", "latest", "older", "none"))))

    def _come_back(self, kind: str, name: str) -> None:
        if kind == "switch":
            target = self.targets[name]
            self._say(f"{name} is back, without memory")
            repair(target.switch, self.protocol, [], lambda _: None)
            _state(target.switch)[:] = self._blank[name]
            for link, side in self._ends(name):
                self.fabric.open_port(self.fabric.end(link, side), self.fabric.wire(link, side))
            target.up = True
        elif kind == "controller":
            self._start_controller(name)
        else:
            client = next(client for client in self.clients if client.name == name)
            if client.job is not None:
                self._end(client, "a worker was lost")

    def _start_controller(self, state: str) -> None:
        """As ``ina controller`` begins (ina/control/watch.py)."""
        self._say(f"a controller begins, state: {state}")
        controller = self._make(dict(self.targets), POOL, protocol=self.protocol, topology=self.topology,
                                chance=random.Random(self.chance.getrandbits(32)))  # fmt: skip
        if self.states and state in ("latest", "older"):
            place = -1 if state == "latest" else self.chance.randrange(len(self.states))
            controller.restore(json.loads(self.states[place]))
            if state == "older":
                self.faults["older states"] += 1
        elif self.states:
            self.faults["lost states"] += 1
        self.controller = self.fabric.controller = controller
        self.quiet_until = self.now + LIFETIME if self.states else 0
        try:
            controller.survey()
            known = {client.name: client.job.incarnation for client in self.clients if client.job is not None}
            for name, job in list(controller.jobs.items()):
                if known.get(name) != job.incarnation:  # its workers do not come back
                    controller.release(name)
            for client in self.clients:
                if client.job is not None and client.name not in controller.jobs:
                    self._end(client, "its controller does not know it")
            self._save()
        except Killed:
            self._kill_controller()

    def fate(self, target: Target, updates: int) -> int:
        """Before a write: how many of its updates the switch takes. Raises what the controller sees."""
        if not target.up:
            raise OSError(errno.ECONNREFUSED, f"{target.name} is down")
        self._refused = self._dies = False
        if self._nothing_fails():
            return updates
        luck = self.chance.random()
        self._dies, self._refused = luck < 0.02, 0.02 <= luck < 0.04
        return self.chance.randint(0, updates) if luck < 0.04 else updates

    def after_write(self, target: Target, whole: bool) -> None:
        if self._dies:
            self.faults["killed in a write"] += 1
            raise Killed
        if self._refused:
            self.faults["writes without an answer"] += 1
            self._say(f"{target.name} does not answer a write, of which it took {'all' if whole else 'a part, or nothing'}")
            raise TimeoutError(f"{target.name} does not answer")

    # ---- what the controller's process does

    def _save(self) -> None:
        self.states.append(json.dumps(self.controller.snapshot()))
        del self.states[:-20]

    def _watch(self) -> None:
        """Looks at one switch: does it answer, and hold what it should?"""
        controller = self.controller
        if controller is None:
            return
        name = self.chance.choice(list(self.targets))
        try:
            lost = controller.missing(name, ask=True)
            if lost or name in controller.down or name in controller.unsure:
                controller.repair(name)
            controller.down.pop(name, None)
        except REFUSED as error:
            controller.down[name] = str(error)
            lost = [job.name for job in controller.jobs.values() if name in job.branches]
        for client in self.clients:
            if client.name in lost:
                self._end(client, f"{name} was lost")

    def _begin(self, client: Client) -> None:
        """Another life of its job, where all is there that it needs."""
        controller = self.controller
        client.due = self._later(20e-6, 200e-6)
        if controller is None or self.now < self.quiet_until:
            client.due = max(client.due, self.quiet_until)
            return
        try:
            if client.name in controller.jobs:
                controller.release(client.name)
            (tree,) = controller.place(client.name, client.hosts, client.slots)
            job = controller.admit(client.name, len(client.hosts), client.slots, tree=tree, hosts=client.hosts)
            self._save()
            for worker in range(job.workers):
                controller.attach(job, worker)
                self._save()
        except AdmissionError:
            self.faults["refused admissions"] += 1
            return
        self._say(f"{client.name} begins as job {job.number}, life {job.life}, incarnation {job.incarnation:08x}")
        self.faults["lives"] += 1
        client.job, client.had = job, Counter()
        client.lives, client.hindered = client.lives + 1, False
        client.spared = self.chance.random() < SPARED
        for worker, host in enumerate(client.hosts):
            config = self.fabric.worker_config(job, worker, host, client.slots, VALUES, rto_min=RTO_MIN, rto_max=RTO_MAX,
                                               timeout=TIMEOUT)  # fmt: skip
            client.machines[worker] = self.fabric.add_worker(self.fabric.host(host), config)
            client.next[worker] = client.done
            for _ in range(AHEAD):
                self._submit(client, worker)

    def _end(self, client: Client, why: str) -> None:
        """Its workers end; so does the job, unless nobody can be told."""
        if client.job is None:
            return
        self._say(f"{client.name} ends: {why}")
        for machine in client.machines.values():
            self.fabric.stop_machine(machine)
        client.machines.clear()
        client.job, client.spared, client.due = None, False, self._later(0, 100e-6)
        if self.controller is not None and client.name in self.controller.jobs:
            try:
                self.controller.release(client.name)
                self._save()
            except Killed:
                self._kill_controller()

    def _check_entries(self, always: bool = False) -> None:
        """At switches of which it is sure the controller's entries are all that there are."""
        if self.controller is None or not (always or self.chance.random() < 0.3):
            return
        for name, target in self.targets.items():
            if not target.up or name in self.controller.unsure or name in self.controller.down:
                continue
            known = {(job.number, job.incarnation) for job in self.controller.jobs.values() if name in job.branches}
            entries = target.switch.read([TableEntry(self.protocol.tables[0])])
            held = [self.protocol.identity(entry) for entry in entries]
            ranges = sorted((as_int(e.params["base"], 16, "base"), as_int(e.params["mask"], 14, "mask")) for e in entries)
            if any(base + mask >= after for (base, mask), (after, _) in zip(ranges, ranges[1:], strict=False)):
                raise Violation(f"slots of {name} are held twice: (first, last - first) are {ranges}")
            extra = {(job.number, job.incarnation) for job in held} - known
            groups = {group.group_id for group in target.switch.read([MulticastGroupEntry(0)])}
            if extra or groups - {number + 1 for number, _ in known}:
                raise Violation(f"leaked: {name} serves jobs {sorted(extra)} with groups {sorted(groups)}; its controller, which "
                                f"is sure of it, knows of {sorted(known)}")  # fmt: skip

    # ---- jobs

    def _ends(self, switch: str):
        """Links of a switch, and on which side it is."""
        return [(link, side) for link, pair in enumerate(self.topology.ends) for side in (0, 1) if pair[side].node == switch]

    def _data(self, client: Client, tensor: int) -> list[np.ndarray]:
        """Draw each worker's data, different for each life, tensor and worker. Magnitudes differ from block to block and worker
        to worker, and so do exponents and which sums overflow."""
        rng = np.random.default_rng((self.seed, self.clients.index(client), client.lives, tensor))
        shape = len(client.hosts), client.elements // VALUES
        if client.dtype is np.int32:
            bounds = np.repeat(2 ** rng.integers(4, 32, shape), VALUES, axis=1)
            return list(rng.integers(-bounds, bounds).clip(-(2**31), 2**31 - 1).astype(np.int32))
        spans = np.repeat(2.0 ** rng.integers(-20, 20, shape), VALUES, axis=1)
        return list((rng.uniform(-1, 1, spans.shape) * spans).astype(np.float32))

    def _submit(self, client: Client, worker: int) -> None:
        tensor = client.next[worker]
        client.next[worker] += 1
        out = np.empty(client.elements, client.dtype)
        source = self._data(client, tensor)[worker]
        reduction = protocols.MAX if _is_maximum(client, tensor) else protocols.SUM
        ticket = self.fabric.submit(client.machines[worker], source, out, at=self.now, reduction=reduction)
        self.tickets[ticket] = client, client.job, tensor, worker, out

    def _complete(self, completion) -> None:
        client, job, tensor, worker, out = self.tickets.pop(completion.ticket)
        if client.job is not job:
            return
        if (error := completion.event.error()) is not None:
            if not isinstance(error, JobTimeout):
                raise Violation(f"a wrong sum: worker {worker} of {client.name} (job {job.number}, life {job.life}): {error}")
            if not client.hindered:
                raise Violation(f"stuck: nothing that {client.name}, job {job.number}, needs has failed since it began: {error}")
            self._end(client, f"worker {worker} failed: {error}")
            return
        inputs = self._data(client, tensor)
        maximum = _is_maximum(client, tensor)
        if client.dtype is np.int32 and (wrong := _wrong_overflow(completion.event.overflow, inputs, maximum)):
            raise Violation(f"a wrong overflow flag: {wrong}, tensor {tensor} of {client.name} at worker {worker}")
        exact = np.int32 if client.dtype is np.int32 else np.float64
        right = np.max(inputs, axis=0) if maximum else np.sum(inputs, axis=0, dtype=exact)
        if not _equal(out, right, inputs):
            twice = [w for w, source in enumerate(inputs) if np.any(source) and _equal(out, right + source, inputs)]
            what = f"the contribution of worker {twice[0]} is in it twice" if twice else "a wrong sum"
            raise Violation(f"{what}: tensor {tensor} of {client.name} (job {job.number}, life {job.life}) at worker {worker}")
        self.tensors += 1
        client.had[tensor] += 1
        if client.had[tensor] == len(client.hosts):
            client.done, client.spared = tensor + 1, False
        if worker in client.machines:
            self._submit(client, worker)


def _wrong_overflow(told: bool, inputs: list[np.ndarray], maximum: bool) -> str:
    """Check an overflow flag; empty if it is right. It must be set if a sum does not fit, and must not if all magnitudes together
    do; in between it depends on the order of additions."""
    wide = np.stack(inputs).astype(np.int64)
    must = not maximum and bool(np.any(np.abs(wide.sum(axis=0) + 0.5) > 2**31))
    may = not maximum and bool(np.any(np.abs(wide).sum(axis=0) >= 2**31))
    return "none, where a sum does not fit" if must and not told else "one, where all sums fit" if told and not may else ""


def _is_maximum(client: Client, tensor: int) -> bool:
    return client.dtype is np.int32 and tensor % 4 == 3


def _state(switch: Switch):
    return ffi.buffer(lib.ina_switch_state(switch.pointer), lib.ina_switch_state_size(switch.pointer))


def _equal(out: np.ndarray, right: np.ndarray, inputs: list[np.ndarray]) -> bool:
    """Integers to the bit; floats as close as their block's largest magnitude allows (README)."""
    if out.dtype == np.int32:
        return np.array_equal(out, right)
    blocks = np.abs(np.stack(inputs)).reshape(len(inputs), -1, VALUES).max(axis=(0, 2)).astype(float)
    bound = len(inputs) * 2.0 ** (np.ceil(np.log2(blocks)) - 31 + np.ceil(np.log2(len(inputs)))) + blocks * len(inputs) * 2.0**-24
    return bool(np.all(np.abs(out.astype(float) - right) <= np.repeat(bound, VALUES)))
