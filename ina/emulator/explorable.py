"""What the explorer (explorer.py) walks through: the compiled switch program, the real worker, and small jobs of them.

    explorer = job(program, leaf_spine.topology(leaves=2, spines=1, hosts=1), slots=1)
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from ina.control.controller import Controller, switch_address
from ina.emulator.explorer import Explorer, Machine, Sent
from ina.native import ffi, lib
from ina.switch.embedded import Switch
from ina.transport import protocols
from ina.transport.config import WorkerConfig
from ina.transport.parameter_server import ParameterServer
from ina.transport.worker import Worker
from ina.wire import layout
from topologies import Topology
from topologies.tree import aggregation_tree


class SwitchMachine(Machine):
    """A switch with a compiled program (a small one: its state is saved whole). Its tables do not change any more.

    ``restarts``: at any time it may lose all that its registers hold (which a timer stands for), as when it has been off.
    """

    def __init__(self, name: str, switch: Switch, restarts: bool = False):
        self.name, self.switch = name, switch
        self.timers = (0,) if restarts else ()
        self._state = ffi.buffer(lib.ina_switch_state(switch.pointer), lib.ina_switch_state_size(switch.pointer))
        pipelines, stride = switch.program.pipelines, lib.ina_switch_state_stride(switch.pointer)
        self._heads = [  # what is no statistics, of each pipe (a v1model program has one)
            slice(p * stride, p * stride + pipelines[p % len(pipelines)].stats_offset) for p in range(max(1, switch.pipes))
        ]
        self._new = bytes(self._state)

    def expire(self, timer: int) -> Sent | None:
        self._state[:] = self._new
        return []

    def receive(self, port: int, frame: bytes) -> Sent:
        return self.switch.step(frame, port, 0)

    def save(self) -> tuple[bytes, bytes]:
        whole = bytes(self._state)
        return b"".join(whole[head] for head in self._heads), whole

    def restore(self, saved: bytes) -> None:
        self._state[:] = saved


@dataclass
class WorkerMachine(Machine):
    """A worker that all-reduces ``source``; ``expected`` is the sum, or maximum, that it must get, to the bit. Its port is 0."""

    name: str
    worker: Worker
    source: np.ndarray
    expected: np.ndarray
    maximum: bool = False
    out: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.out = np.zeros_like(self.source)
        self.timers = range(self.worker.config.slots)
        self._wrong: str | None = None

    def start(self) -> Sent:
        self.worker.submit(self.source, self.out, reduction=protocols.MAX if self.maximum else protocols.SUM)
        return self._speak()

    def receive(self, port: int, frame: bytes) -> Sent:
        self.worker.receive(frame, 0)
        return self._speak()

    def expire(self, timer: int) -> Sent | None:
        return self._speak() if self.worker.expire(timer, 0) else None

    def _speak(self) -> Sent:
        self._wrong = None
        for event in self.worker.events():
            if event.code:
                self._wrong = f"{self.name} failed: {event.error()}"
            elif not self.done():
                self._wrong = f"{self.name} finished with a wrong sum"
        return [(0, frame) for frame in self.worker.frames_to_send(0)]

    def save(self) -> tuple[bytes, bytes]:
        out = self.out.tobytes()
        return self.worker.behaviour() + out, self.worker.snapshot() + out

    def restore(self, saved: bytes) -> None:
        self.worker.restore(saved[: -self.out.nbytes])
        self.out[:] = np.frombuffer(saved[-self.out.nbytes :], self.out.dtype)

    def violation(self) -> str | None:
        return self._wrong

    def done(self) -> bool:
        return self.out.tobytes() == self.expected.tobytes()


@dataclass
class ServerMachine(Machine):
    """A parameter server of one job. Its port is 0."""

    name: str
    server: ParameterServer

    def receive(self, port: int, frame: bytes) -> Sent:
        self.server.receive(frame, 0)
        return [(0, answer) for answer in self.server.frames_to_send(0)]

    def save(self) -> tuple[bytes, bytes]:
        return self.server.behaviour(), self.server.snapshot()

    def restore(self, saved: bytes) -> None:
        self.server.restore(saved)


def job(
    program, topology: Topology, *, slots: int = 1, values: int = 32, elements: int = 64, dtype: type = np.int32,
    strict: bool = True, maximum: bool = False, restarts: bool = False,
) -> Explorer:  # fmt: skip
    """One SwitchML job of a worker at each host, along the topology's aggregation tree.

    ``program``: compiled with VALUES = ``values`` and a small SLOTS. ``strict`` False, with one switch only: as for unmodified
    SwitchML clients, without the tsi check. float32 tensors are of integers that every sum has exactly. ``maximum``: of int32,
    not sums but maxima. ``restarts``: of switches, at any time.
    """
    hosts = [host.name for host in topology.hosts]
    switches = {node.name: Switch(program) for node in topology.switches}
    controller = Controller(switches, slots, topology=topology, chance=random.Random(1))
    tree = aggregation_tree(topology, hosts) if strict else None
    admitted = controller.admit("explored", len(hosts), slots, strict, tree=tree)
    rng = np.random.default_rng(1)
    span = 2**31 if dtype is np.int32 else 2**20
    inputs = [rng.integers(-span, span, elements, dtype=np.int64).astype(dtype) for _ in hosts]
    expected = np.max(inputs, axis=0) if maximum else np.sum(inputs, axis=0, dtype=dtype)
    wires, machines = [], []
    for link, (a, b) in zip(topology.links, topology.ends, strict=True):
        wires.append(((link.a, a.port), (link.b, b.port)))
        for end in (a, b):
            if end.node in switches:
                switches[end.node].add_port(end.port)
    ports = {a.node: b for a, b in topology.ends} | {b.node: a for a, b in topology.ends}
    for index, host in enumerate(hosts):
        at = ports[host]
        child = controller.attach(admitted, index, at.port)
        config = WorkerConfig(
            worker=index, workers=len(hosts), job=admitted.number, life=admitted.life, slots=slots, values=values,
            address=child.address, switch=switch_address(at.node), rto_min=1.0, rto_max=1.0, timeout=1e5,
        )  # fmt: skip
        machines.append(WorkerMachine(host, Worker(config), inputs[index], expected, maximum))
    return Explorer([*machines, *(SwitchMachine(name, switch, restarts) for name, switch in switches.items())], wires, describe)


def describe(frame: bytes) -> str:
    """A SwitchML frame for people."""
    wire = layout.load(32)
    head = wire["switchml"].unpack(frame, wire.offset("switchml"))
    return f"{'pending frame' if head['msg_type'] == wire.constants['SWITCHML_PENDING'] else 'packet'} {head['tsi']}"
