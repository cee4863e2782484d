"""Programs that have SwitchML's headers and a reduction of their own, on every kind of switch: the same packets into each."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from forger import sealed
from model_switch import ip_checksum
from switchml_targets import CompiledTarget, Target, TnaTarget

from ina.aggregation import protocols
from ina.aggregation.controller.admission import Controller
from ina.aggregation.entries import JobProgram
from ina.aggregation.worker import SWITCH, Route, Worker, WorkerConfig
from ina.base import paths
from ina.net.ports import Faults
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.topology import load
from ina.worlds.virtual.explorable import Tensor, job
from ina.worlds.virtual.explorer import Budget
from ina.worlds.virtual.fabric import Fabric, FabricJob

WORKERS, SLOTS = 3, 4
PORTS = 6
LOSS, REPEATED, SPOILT = 0.01, 0.1, 0.15  # of packets; those of a switch are lost, too
STEP = 2_000_000  # picoseconds from one packet to the next
MANY = 100_000  # packets into two switches, in the long run
PATIENCE = 400  # packets after which a job of which no tensor has ended is begun anew
CHECK = 52  # where a frame's check header begins
SHORT = CHECK + 12 + 64  # bytes: less than any frame with the values of a twin's first pass
STAR, TREE = load("star", hosts=3), load("leaf-spine", leaves=2, spines=1, hosts=2)
FAULTS = {
    "clean": Faults(seed=1),
    "lossy": Faults(loss=0.01, duplicate=0.02, reorder=0.02, duplicate_delay=100e-6, seed=1),
    "very lossy": Faults(loss=0.2, duplicate=0.2, reorder=0.2, seed=2),
}
UNSEEN = (b"\x81\x00", b"\x88\xa8", b"\x88\xb5")  # EtherTypes that sockets do not show as they are, and BMv2's markers


def made(protocol: str, kind: type[Target], values: int, variant: Mapping[str, str]) -> Target:
    """The protocol's program, or its twin, on a switch of this kind."""
    source = paths.p4_dir() / ("tofino" if issubclass(kind, TnaTarget) else "") / f"{protocol}.p4"
    return type(kind.__name__, (kind,), {"source": source, "variant": tuple(variant.items())})(values)


def check_interleavings(program: JobProgram, tree: bool, work: Callable[[int], list[np.ndarray]], tensors: int = 1,
                        **variant: str) -> None:
    """Explores two workers that reduce ``tensors`` as the program itself does. At one switch: with any losses, duplicates and
    time-outs, as many as there are; at a ``tree`` of three: 14 events, one of each of them among these. ``work``: the words of so
    many workers, 32 a packet; ``variant``: macros of the program."""
    topology = load("leaf-spine", leaves=2, spines=1, hosts=1) if tree else load("star", hosts=2)
    built = compile_program(paths.p4_dir() / f"{program.name}.p4", defines={"VALUES": "32", "SLOTS": "1", **variant})
    arrays = work(2)
    expected = program.reduced(np.array(arrays))
    each = [[Tensor(array, expected, reduction=protocols.OWN)] * tensors for array in arrays]
    explorer = job(Program(built.so_path), topology, protocol=program.name, work=each)
    report = explorer.explore(14, Budget(losses=1, duplicates=1, timeouts=1)) if tree else explorer.saturate()
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert (report.complete or tree) and report.states > (100 if tree else 100 * tensors**2)


def check_maxima(fabric: Fabric, job: FabricJob) -> None:
    """Reduces integers to the largest: each program does that, too."""
    workers = len(job.hosts)
    arrays = [np.arange(500, dtype=np.int32) * rank for rank in range(workers)]
    fabric.all_reduce(job, arrays, reduction=protocols.MAX).raise_failed()
    assert all(np.array_equal(array, np.arange(500) * (workers - 1)) for array in arrays)


def check_plain_sums(fabric: Fabric, job: FabricJob) -> None:
    """Adds up integers: each program does that, too."""
    workers = len(job.hosts)
    arrays = [np.arange(500, dtype=np.int32) * (rank + 1) for rank in range(workers)]
    fabric.all_reduce(job, arrays).raise_failed()
    assert all(np.array_equal(array, np.arange(500) * sum(range(1, workers + 1))) for array in arrays)


class Stream:
    """Packets of a job's workers, which go on by the first switch's answers: right ones, some of them lost, repeated at once or
    late, and spoiled ones, also with right checksums. Each goes into all switches, whose answers must be the same.

    ``work``: each worker's words of a tensor, by seed. Tensors of the program's own reduction, or sums along one of ``routes``
    each, take turns with sums and maxima of integers, and with sums of floats; where packets spoil them, the job is begun anew,
    as a later life of the same number.
    """

    def __init__(self, targets: Sequence[Target], protocol: str, work: Callable[[int], list[np.ndarray]], seed: int = 0,
                 routes: Sequence[Route] = ()):
        self.targets, self.protocol, self.work, self.routes = targets, protocol, work, routes
        self.rng, self.values = random.Random(seed), targets[0].values
        self.now = self.ended = self.waits = self.tensors = 0
        self.kinds: Counter[int] = Counter()  # of answers: the frames' first byte behind UDP
        self.history: deque[tuple[int, bytes]] = deque(maxlen=300)
        for target in targets:
            target.reset(PORTS)
        self.controllers = [Controller(t, 16, protocol=protocol, chance=random.Random(1)) for t in targets]
        self.begin()

    def begin(self) -> None:
        """Admits the job at all switches, and makes its workers."""
        admitted = [controller.admit("job", WORKERS, SLOTS) for controller in self.controllers]
        self.workers = []
        for rank in range(WORKERS):
            child = [c.attach(a, rank, rank) for c, a in zip(self.controllers, admitted, strict=True)][0]
            self.workers.append(Worker(WorkerConfig(
                rank, WORKERS, job=admitted[0].number, life=admitted[0].life, slots=SLOTS, values=self.values,
                protocol=self.protocol, address=child.address, switch=SWITCH, rto_min=1e-4, rto_max=4e-4, timeout=1e3),
                self.now))
        self.waits, self.out = 0, [deque() for _ in range(WORKERS)]
        self.submit()

    def submit(self) -> None:
        self.tensors += 1
        own = self.work(self.tensors)
        for rank, worker in enumerate(self.workers):
            if self.tensors % 5 in (0, 1, 2):
                route = self.routes[self.tensors % len(self.routes)] if self.routes else None
                plain = route or protocols.OWN not in protocols.reductions(self.protocol)
                worker.submit(own[rank], reduction=protocols.SUM if plain else protocols.OWN, now=self.now, route=route)
            elif self.tensors % 5 == 3:
                integers = np.random.default_rng([self.tensors, rank]).integers(-(2**31), 2**31, 3 * self.values)
                how = protocols.MAX if self.tensors % 2 else protocols.SUM
                worker.submit(integers.astype(np.int32), reduction=how, now=self.now)
            else:
                worker.submit(np.full(2 * self.values, rank + 0.5, np.float32), now=self.now)
        self.left = WORKERS

    def next(self) -> tuple[int, bytes]:
        """A packet, and the port by which it comes."""
        while True:
            self.now += STEP
            chance = self.rng.random()
            if self.history and chance < REPEATED:
                return self.rng.choice(self.history)
            if self.history and chance < REPEATED + SPOILT:
                return self.spoilt(*self.rng.choice(self.history))
            rank = self.rng.randrange(WORKERS)
            self.out[rank] += self.workers[rank].frames_to_send(self.now)
            if self.out[rank]:
                self.history.append((rank, self.out[rank].popleft()))
                return self.history[-1]

    def spoilt(self, port: int, frame: bytes) -> tuple[int, bytes]:
        """The frame with bytes changed, or shorter, or longer, or by another port; often with right checksums."""
        rng, data = self.rng, bytearray(frame)
        how = rng.randrange(8)
        if how == 0:
            return rng.randrange(PORTS), frame
        if how == 1:
            return port, frame[: rng.randrange(14, SHORT)]  # a twin sees later what lacks more
        if how == 2:
            return port, frame + rng.randbytes(rng.randrange(1, 9))
        if how == 3:
            data[42] = rng.randrange(256)  # type, overflow, size
        elif how == 4:
            data[16:18] = data[38:40] = rng.randbytes(2)
        else:
            for _ in range(rng.randint(1, 2)):
                data[rng.randrange(len(data) if how < 7 else CHECK + 12)] ^= rng.randrange(1, 256)
        if data[42] >> 4 != frame[42] >> 4 or rng.random() < 0.7:  # of another type, another length is right: see SHORT
            data[24:26] = bytes(2)
            data[24:26] = ip_checksum(bytes(data[14:34])).to_bytes(2, "big")
            return port, sealed(bytes(data), CHECK)
        return port, bytes(data)

    def send(self, port: int, frame: bytes) -> None:
        one, *others = [sorted(target.send(frame, port)) for target in self.targets]
        for target, other in zip(self.targets[1:], others, strict=True):
            assert one == other, (target.name, port, frame.hex(), [f.hex() for _, f in one], [f.hex() for _, f in other])
        for to, answer in one:
            self.kinds[answer[42] if len(answer) > 42 else -1] += 1
            if to < WORKERS and self.rng.random() >= LOSS:
                self.workers[to].receive(answer, self.now)
        self.waits += 1
        events = [event.code for worker in self.workers for event in worker.events()]
        self.left -= events.count(0)
        if self.left == 0:
            self.ended += 1
            self.waits = 0
            try:
                self.submit()
            except BrokenPipeError:  # a worker was refused while it was idle
                self.waits = PATIENCE
        if any(events) or self.waits >= PATIENCE:
            for controller in self.controllers:
                controller.release("job")
            self.begin()

    def run(self, packets: int) -> None:
        for _ in range(packets):
            port, frame = self.next()
            if frame[12:14] not in UNSEEN and self.rng.random() >= LOSS:
                self.send(port, frame)
        first, *others = [target.drops() for target in self.targets]
        assert all(first == other for other in others)
        self.drops = first


def check_switches_agree(
    protocol: str, other: type[Target], packets: int, work: Callable[[int], list[np.ndarray]], values: int = 32,
    routes: Sequence[Route] = (), **variant: str,
) -> None:
    """Packets of a Stream into the compiled program and into another switch. ``variant``: macros of the program."""
    targets: list[Any] = [made(protocol, kind, values, variant) for kind in (CompiledTarget, other)]
    stream = Stream(targets, protocol, work, routes=routes)
    stream.run(packets)
    assert {1, 2} <= {kind >> 4 for kind in stream.kinds}  # results, and pending frames
    assert stream.ended > packets // 100, stream.ended  # tensors
    for target in targets:
        if hasattr(target, "close"):
            target.close()
