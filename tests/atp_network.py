"""Jobs of ATP workers, compiled switches and parameter servers on an event clock: every frame may be lost, doubled or late.

network = Network([JobSpec(workers=3)], pool=16)                    # all on one switch
network = Network([JobSpec(4), JobSpec(4)], leaves=2, pool=4)       # two racks: worker i of a job is in rack i mod 2
network.submit(0, rows); network.run(); network.events[0][worker]   # job 0
"""

from __future__ import annotations

import functools
import heapq
import random
from dataclasses import dataclass, field, replace

import numpy as np
from capabilities import need
from model_network import DELAY, US, Faults

from ina.aggregation.entries.atp import ATP
from ina.aggregation.entries.atp_routes import Routes
from ina.aggregation.entries.base import Child, Parent, Place
from ina.aggregation.ps.state_machine import ParameterServer, ServerConfig
from ina.aggregation.worker import Event, Worker, WorkerConfig, worker_address
from ina.aggregation.worker.config import ATP_SWITCH, SERVER
from ina.base.paths import p4_dir
from ina.net.ports import Address
from ina.p4.compiler import build
from ina.p4.runtime import Program, Switch
from ina.p4.runtime.entities import TableEntry, insert, modify

VALUES = 32
NONE = Faults()
__all__ = ["DELAY", "US", "Faults", "JobSpec", "Network", "fixed_point", "program"]


@functools.cache
def program(pool: int, values: int = VALUES, source: str = "atp.p4") -> Program:
    need("cc")
    return Program(build.compile_program(p4_dir() / source, defines={"VALUES": str(values), "SLOTS": str(pool)}).so_path)


def fixed_point(exponent: int | None) -> dict:
    """Returns options of a job whose float32 blocks have this exponent; None: agreed for each."""
    return {} if exponent is None else {"options": {"exponent": exponent}}


@dataclass
class JobSpec:
    """``options``: of WorkerConfig. ``plain``: no help from switches (the program relays only)."""

    workers: int = 3
    slots: int = 8
    plain: bool = False
    options: dict = field(default_factory=dict)


@dataclass
class Job:
    number: int
    life: int
    spec: JobSpec
    workers: list[Worker]
    server: ParameterServer
    tensors: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


Node = tuple[str, int, int]  # "switch" | "worker" | "server"; switch: its number, port; others: job, worker


class Network:
    """ATP jobs numbered from 0, job n with life 7 + n. Switch 0 is the root, to which the servers are attached; with
    ``leaves`` the workers are below switches 1 .. leaves. ``routes``: with p4/atp_routes.p4, whose sums may have routes."""

    def __init__(self, jobs: list[JobSpec], *, pool: int = 16, leaves: int = 0, faults: Faults = NONE, seed: int = 0,
                 values: int = VALUES, lifetime: float = 0.05, ecn_depth: int = 0, compiled: Program | None = None,
                 routes: bool = False):
        self.values, self.now, self.frames = values, 0, 0
        self.program = (Routes if routes else ATP)(ecn_depth=ecn_depth, lifetime=lifetime)
        self.plain = ATP(ecn_depth=ecn_depth, lifetime=lifetime)
        self.plain.aggregates = False
        compiled = compiled or program(pool, values, f"{self.program.name}.p4")
        self.switches = [Switch(compiled, max_frame=9500) for _ in range(1 + leaves)]
        self.wires: dict[tuple[int, int], Node] = {}  # far end of each switch port
        self._ports: dict[Node, tuple[int, int]] = {}
        self._next_port = [0] * (1 + leaves)
        self._trunks = [(self._port(0, ("switch", leaf, 0)), self._port(leaf, ("switch", 0, 0)))
                        for leaf in range(1, 1 + leaves)]
        for leaf, (down, up) in enumerate(self._trunks, 1):
            self.wires[0, down], self.wires[leaf, up] = ("switch", leaf, up), ("switch", 0, down)
        self.jobs = [self._admit(number, spec) for number, spec in enumerate(jobs)]
        self.events: list[list[list[Event]]] = [[[] for _ in job.workers] for job in self.jobs]
        self.silent: set[tuple[int, int]] = set()  # (job, worker) that neither send nor receive
        self.lose = None  # function of (from, to, frame); true: the frame is lost
        self._faults, self._random = faults, random.Random(seed)
        self._queue: list[tuple[int, int, Node, bytes]] = []
        self._order = 0
        self._timers: dict[tuple[int, int], int] = {}

    # ---- building

    def _port(self, switch: int, node: Node) -> int:
        number = self._next_port[switch]
        self._next_port[switch] += 1
        self.switches[switch].add_port(number)
        self.wires[switch, number] = node
        self._ports[node] = (switch, number)
        return number

    @staticmethod
    def address(switch: int) -> Address:
        return ATP_SWITCH if switch == 0 else Address(f"02:ff:00:00:00:{switch:02x}", f"10.255.0.{switch}", ATP_SWITCH.port)

    def _admit(self, number: int, spec: JobSpec) -> Job:
        life, leaves = 7 + number, len(self.switches) - 1
        homes = [1 + i % leaves if leaves else 0 for i in range(spec.workers)]
        workers = [self._worker(number, life, i, home, spec) for i, home in enumerate(homes)]
        server = ParameterServer(ServerConfig(spec.workers, number, spec.slots, self.values, life=life,
                                              multicast=not spec.plain, key=spec.options.get("key", b""),
                                              routes=isinstance(self.program, Routes)))
        up = self._port(0, ("server", number, 0))
        used = sorted(set(homes))
        if leaves:
            below = {leaf: tuple(i for i, h in enumerate(homes) if h == leaf) for leaf in used}
            children = [Child(n, self._trunks[leaf - 1][0], self.address(leaf), below[leaf]) for n, leaf in enumerate(used)]
            self._write(0, number, life, spec, Parent(up, SERVER, ATP_SWITCH), children)
            for leaf in used:
                parent = Parent(self._trunks[leaf - 1][1], ATP_SWITCH, self.address(leaf))
                self._write(leaf, number, life, spec, parent, self._hosts(number, leaf, below[leaf]))
        else:
            self._write(0, number, life, spec, Parent(up, SERVER, ATP_SWITCH), self._hosts(number, 0, range(spec.workers)))
        return Job(number, life, spec, workers, server)

    def _worker(self, number: int, life: int, index: int, home: int, spec: JobSpec) -> Worker:
        self._port(home, ("worker", number, index))
        options = {"slots": spec.slots, "values": self.values, "rto_min": 40e-6, "rto_max": 1e-3, "timeout": 5.0} | spec.options
        peer = {"switch": self.address(home), "protocol": "ps" if spec.plain else self.program.name, "server": self.address(home)}
        return Worker(WorkerConfig(index, spec.workers, job=number, life=life, **peer, **options))

    def _hosts(self, number: int, switch: int, workers) -> list[Child]:
        return [Child(n, self._ports["worker", number, w][1], worker_address(number, w), (w,)) for n, w in enumerate(workers)]

    def _write(self, switch: int, number: int, life: int, spec: JobSpec, parent: Parent, children: list[Child]) -> None:
        workers = tuple(w for child in children for w in child.workers)
        place = Place(number=number, incarnation=1000 + number, life=life, children=len(children), workers=workers, slot_base=0,
                      slots=spec.slots, group=number + 1, strict=True, parent=parent)
        program = self.plain if spec.plain else self.program
        entities = [*program.job(place), *(e for c in children for e in program.child(place, c)), program.group(place, children)]
        self.switches[switch].write(insert(*entities))

    def renew(self, number: int, incarnation: int, life: int) -> None:
        """Gives the number to another job: its workers and server replace the old ones, whose frames are still under way."""
        for switch in self.switches:
            for entry in switch.read([TableEntry("job", {"hdr.atp.job": number})]):
                switch.write(modify(replace(entry, params={**entry.params, "incarnation": incarnation, "life": life})))
        job = self.jobs[number]
        job.life, job.server = life, ParameterServer(replace(job.server.config, life=life), self.now)
        job.workers = [Worker(replace(worker.config, life=life), self.now) for worker in job.workers]
        self.events[number] = [[] for _ in job.workers]
        self._timers = {at: timer for at, timer in self._timers.items() if at[0] != number}

    # ---- running

    def submit(self, job: int, rows: np.ndarray, only: list[int] | None = None, **options) -> None:
        """Starts an all-reduce: each worker (or those in ``only``) sums its row in place."""
        for i, worker in enumerate(self.jobs[job].workers):
            if only is None or i in only:
                worker.submit(rows[i], now=self.now, **options)

    def inject(self, job: int, worker: int, frame: bytes) -> None:
        """Injects a frame at a worker's place, whatever it contains."""
        self._to_switch(("worker", job, worker), frame)

    def run(self, until: int = 10**13) -> list[list[list[Event]]]:
        """Runs until no event is left, or the clock reads ``until``."""
        for job in range(len(self.jobs)):
            for worker in range(len(self.jobs[job].workers)):
                self._drive(job, worker)
        while True:
            timer = min(((t, at) for at, t in self._timers.items()), default=None)
            due = self._queue[0][0] if self._queue else None
            if timer is None and due is None:
                return self.events
            if timer is not None and (due is None or timer[0] <= due):
                if timer[0] > until:
                    return self.events
                self.now = max(self.now, timer[0])
                self._drive(*timer[1])
            else:
                if due > until:
                    return self.events
                self.now = due
                self._deliver(*heapq.heappop(self._queue)[2:])

    def _deliver(self, node: Node, frame: bytes) -> None:
        kind, a, b = node
        if kind == "switch":
            for port, out in self.switches[a].step(frame, b, self.now):
                self._send(("switch", a, port), self.wires[a, port], out)
        elif kind == "server":
            server = self.jobs[a].server
            server.receive(frame, self.now)
            for out in server.frames_to_send(self.now):
                self._to_switch(node, out)
        elif (a, b) not in self.silent:
            answer = self.jobs[a].workers[b].receive(frame, self.now)
            if answer is not None:
                self._to_switch(node, answer)
            self._drive(a, b)

    def _drive(self, job: int, index: int) -> None:
        worker = self.jobs[job].workers[index]
        if (job, index) in self.silent:
            self._timers.pop((job, index), None)
            return
        for frame in worker.frames_to_send(self.now):
            self._to_switch(("worker", job, index), frame)
        self.events[job][index] += worker.events()
        timer = worker.next_timer()
        if timer is None:
            self._timers.pop((job, index), None)
        else:
            self._timers[job, index] = timer

    def _to_switch(self, node: Node, frame: bytes) -> None:
        switch, port = self._ports[node]
        self._send(node, ("switch", switch, port), frame)

    def _send(self, source: Node, to: Node, frame: bytes) -> None:
        self.frames += 1
        copies = [0]
        if self._random.random() < self._faults.loss or (self.lose is not None and self.lose(source, to, frame)):
            copies = []
        if self._random.random() < self._faults.duplicate:
            copies.append(self._random.randrange(self._faults.late))
        for late in copies:
            if self._random.random() < self._faults.reorder:
                late += self._random.randrange(self._faults.late)
            self._order += 1
            heapq.heappush(self._queue, (self.now + DELAY + late, self._order, to, frame))

    # ---- looking

    def fates(self, job: int, switch: int = 0) -> dict[str, int]:
        """Counts of the job's packets at a switch by outcome."""
        names = ("claimed", "merged", "completed", "collided", "passed", "evicted", "taken")
        counts = self.switches[switch].counter("fates")[8 * job : 8 * job + 7, 0].tolist()
        return dict(zip(names, counts, strict=True))

    def drops(self, switch: int = 0) -> dict[str, int]:
        names = ("none", "malformed", "wrong size", "unknown job", "wrong source", "wrong workers", "old life", "repeated",
                 "lost", "corrupt", "version")
        return {n: c for n, c in zip(names, self.switches[switch].counter("drops")[:, 0].tolist(), strict=True) if c}

    def held(self, switch: int = 0) -> int:
        """Number of aggregators in use."""
        return int(np.count_nonzero(self.switches[switch].register("bitmaps")))
