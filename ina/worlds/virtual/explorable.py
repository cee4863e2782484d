"""Machines for the explorer (explorer.py): the compiled switch program, the real worker, and small jobs of them, of any protocol
that needs no parameter server.

    explorer = job(program, leaf_spine.topology(leaves=2, spines=1, hosts=1), slots=1)
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ina.aggregation import completion, protocols
from ina.aggregation.controller.admission import Controller, switch_address
from ina.aggregation.entries import JobProgram, lane_of, pool_of, program_named
from ina.aggregation.entries.switchml import PROGRAM as SWITCHML
from ina.aggregation.ps.state_machine import ParameterServer
from ina.aggregation.wire import layout
from ina.aggregation.worker.errors import Event
from ina.aggregation.worker.route import Route
from ina.aggregation.worker.worker import Worker
from ina.base.native import ffi, lib
from ina.net.ports import PS
from ina.p4.runtime.embedded import Switch
from ina.topology import Topology
from ina.topology.tree import aggregation_tree
from ina.worlds.virtual.applications import applied_reductions
from ina.worlds.virtual.explorer import Explorer, Machine, Sent
from ina.worlds.virtual.fabric import Source
from ina.worlds.virtual.samples import Sample, exact

UDP_END = 14 + 20 + 8  # of Ethernet, IPv4 and UDP


class SwitchMachine(Machine):
    """A switch with a compiled program (a small one: its state is saved whole). Its tables do not change any more.

    ``restarts``: at any time it may lose its registers' contents, as if it had been off; a timer stands for that.
    """

    def __init__(self, name: str, switch: Switch, restarts: bool = False):
        self.name, self.switch = name, switch
        self.timers = (0,) if restarts else ()
        self._state = ffi.buffer(lib.ina_switch_state(switch.pointer), lib.ina_switch_state_size(switch.pointer))
        pipelines, stride = switch.program.pipelines, lib.ina_switch_state_stride(switch.pointer)
        self._heads = [  # state without statistics, of each pipe (a v1model program has one)
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


@dataclass(frozen=True)
class Tensor:
    """A worker's tensor; the sum, or other ``reduction``, or along a ``route``, that it must get, to the bit (0: it gets
    nothing there); and whether an overflow must be reported. ``or_else``: other sums that are right."""

    source: np.ndarray
    expected: np.ndarray
    overflow: bool = False
    reduction: int = protocols.SUM
    route: Route | None = None
    or_else: Sequence[tuple[np.ndarray, bool]] = ()

    def overflow_of(self, out: np.ndarray) -> bool | None:
        """Returns whether an overflow must be reported with a sum; None: it is wrong."""
        right = ((self.expected, self.overflow), *self.or_else)
        return next((overflow for sums, overflow in right if out.tobytes() == sums.tobytes()), None)


@dataclass
class WorkerMachine(Machine):
    """A worker that all-reduces ``tensors``, one after the other; no more than it can have under way. Its port is 0.

    ``late``: a slot whose timer has expired may also wait until something else happens before its packet is sent again: an answer
    may come in between. Second timers of the slots stand for that.
    """

    name: str
    worker: Worker
    tensors: Sequence[Tensor]
    late: bool = False
    out: list[np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        self.out = [np.zeros_like(tensor.source) for tensor in self.tensors]
        self._slots = range(self.worker.config.slots)
        self.timers = range(len(self._slots) << self.late)
        self._wrong: str | None = None

    def start(self) -> Sent:
        for tensor, out in zip(self.tensors, self.out, strict=True):
            self.worker.submit(tensor.source, out, reduction=tensor.reduction, route=tensor.route)
        return self._speak()

    def receive(self, port: int, frame: bytes) -> Sent:
        self.worker.receive(frame, 0)
        return self._speak()

    def expire(self, timer: int) -> Sent | None:
        self._wrong = None
        if not self.worker.expire(timer % len(self._slots), 0):
            return None
        return self._speak() if timer in self._slots else []

    def _speak(self) -> Sent:
        self._wrong = None
        for event in self.worker.events():
            self._finished(event)
        most = 64 + 4 * len(self._slots)
        frames = self.worker.frames_to_send(0, most)
        if len(frames) == most:
            self._wrong = f"{self.name} has sent {most} frames at one time, and has more"
        self._wrong = self._wrong or self._wrong_timer()
        return [(0, frame) for frame in frames]

    def _finished(self, event: Event) -> None:
        tensor, out = self.tensors[event.handle], self.out[event.handle]
        if event.code:
            self._wrong = f"{self.name} failed: {event.error()}"
        elif (overflow := tensor.overflow_of(out)) is None:
            self._wrong = f"{self.name} finished with a wrong sum"
        elif event.overflow != overflow:
            self._wrong = f"{self.name} finished with a wrong overflow flag"

    def _wrong_timer(self) -> str | None:
        """Returns a violation: a timer, other than the deadline, runs without a packet in flight, or none runs with one. The walk
        expires timers whether they run or not."""
        due, saved = self.worker.next_timer(), self.worker.snapshot()
        runs = due is not None and due < self.worker.config.timeout * PS
        in_flight = any(self.worker.expire(slot, 0) for slot in self._slots)
        self.worker.restore(saved)
        if runs == in_flight:
            return None
        return f"{self.name} has a packet in flight, but no timer runs" if in_flight else \
            f"{self.name} has no packet in flight, but a timer runs"

    def save(self) -> tuple[bytes, bytes]:
        out = b"".join(out.tobytes() for out in self.out)
        return self.worker.behaviour() + out, self.worker.snapshot() + out

    def restore(self, saved: bytes) -> None:
        end = len(saved)
        for out in reversed(self.out):
            out[:] = np.frombuffer(saved[end - out.nbytes : end], out.dtype)
            end -= out.nbytes
        self.worker.restore(saved[:end])

    def violation(self) -> str | None:
        return self._wrong

    def done(self) -> bool:
        return all(tensor.overflow_of(out) is not None for tensor, out in zip(self.tensors, self.out, strict=True))


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


def tensors(seed: int, first: int, count: int, workers: int, elements: int, dtype: type, values: int,
            maximum: bool = False, program: JobProgram = SWITCHML, rule: str = completion.DEFAULT) -> list[list[Tensor]]:
    """Returns ``count`` tensors for each worker, by worker: those from turn ``first`` on (samples.py). ``maximum``: maxima and
    sums by turns, so that rows change their kind. ``program``: the protocol's, which may have neither, but results of its own.
    ``rule``: the job's, which says whose values a sum may have."""
    declared = applied_reductions(program)
    turns = (protocols.MAX, declared[0]) if maximum else declared[:1]
    result: list[list[Tensor]] = [[] for _ in range(workers)]
    for number in range(count):
        reduction = turns[number % len(turns)]
        sample = exact(seed, first + number, workers, elements, dtype, values, reduction == protocols.MAX)
        right = [_result(program, sample, reduction, rows) for rows in completion.named(rule).contributions([*sample.rows])]
        for row, each in zip(sample.rows, result, strict=True):
            each.append(Tensor(row, *right[0], reduction, or_else=right[1:]))
    return result


def _result(program: JobProgram, sample: Sample, reduction: int, rows: Sequence[np.ndarray]) -> tuple[np.ndarray, bool]:
    """Returns the result for some of a sample's rows, and whether an overflow must be reported."""
    if reduction == protocols.OWN:
        own = program.reduced(np.stack(rows))
        assert own is not None  # applied_reductions has asked
        return own, False
    result, overflow = sample.result(rows)
    return result, overflow and program.overflows


def job(
    compiled: Source, topology: Topology, *, slots: int = 1, values: int = 32, elements: int = 64, dtype: type = np.int32,
    strict: bool = True, maximum: bool = False, restarts: bool = False, count: int = 1,
    check: str = "off", protocol: str = protocols.DEFAULT, work: Sequence[Sequence[Tensor]] | None = None,
    first: int = 0, late: bool = False, rule: str = completion.DEFAULT, machine: type[WorkerMachine] = WorkerMachine,
) -> Explorer:
    """Makes one job of a worker at each host, along the topology's aggregation tree. Tensors ask for sums, or for the first
    reduction that the protocol has.

    ``compiled``: the protocol's program, with VALUES = ``values`` and a small SLOTS. ``strict`` False, with one switch only: as
    for unmodified SwitchML clients, without the tsi check. ``count``: tensors of so many ``elements``, every third one with an
    overflow.
    ``maximum``: maxima of int32, and a sum after each. ``restarts``: of switches, at any time. ``check``: how check words are
    made; without them, what is wrong shows as a wrong sum. ``protocol``: one without a parameter server; ``work``: tensors by
    worker, instead of these. ``first``: number of the job's first packet. ``late``: as WorkerMachine's. ``rule``:
    of completion. ``machine``: of a worker. ValueError, AdmissionError: the protocol has no such jobs.
    """
    program = program_named(protocol)
    if program.needs_server:
        raise ValueError(f"the protocol {program.title} has a parameter server, and no walk is made of one: "
                         f"ina simulate --protocol {protocol} takes random paths with it")
    hosts = [host.name for host in topology.hosts]
    switches = {node.name: Switch(compiled) for node in topology.switches}
    for switch in switches.values():
        pool_of(program, switch.program.p4info, slots)
    controller = Controller(switches, slots, protocol=program, topology=topology, chance=random.Random(1))
    tree = aggregation_tree(topology, hosts) if strict else None
    admitted = controller.admit("explored", len(hosts), slots, strict, tree=tree, check=check, rule=rule)
    work = work or tensors(1, 0, count, len(hosts), elements, dtype, values, maximum, program, rule)
    for end in (end for ends in topology.ends for end in ends if end.node in switches):
        switches[end.node].add_port(end.port)
    wires = [((a.node, a.port), (b.node, b.port)) for a, b in topology.ends]
    machines = []
    ports = {a.node: b for a, b in topology.ends} | {b.node: a for a, b in topology.ends}
    for index, host in enumerate(hosts):
        at = ports[host]
        controller.attach(admitted, index, at.port)
        config = admitted.config(index, switch_address(at.node, program.udp_port), values=values,
                                 lane=lane_of(switches[at.node].program.p4info), rto_min=1.0, rto_max=1.0, timeout=1e5,
                                 protocol=protocol, first_packet=first)
        machines.append(machine(host, Worker(config), work[index], late))
    shown = describe if program.udp_port == SWITCHML.udp_port else _in_bytes
    return Explorer([*machines, *(SwitchMachine(name, switch, restarts) for name, switch in switches.items())], wires, shown)


def starts(program: JobProgram, slots: int) -> tuple[int, ...]:
    """Returns numbers of a first packet: 0, and those with which every slot's second packet is beyond a wrap."""
    return 0, *(wrap - slots for wrap in program.wraps() if wrap > slots)


def describe(frame: bytes) -> str:
    """Describes a SwitchML frame for people."""
    wire = layout.load(32)
    fields = wire["switchml"].unpack(frame, wire.offset("switchml"))
    return f"{'pending frame' if fields['msg_type'] == wire.constants['SWITCHML_PENDING'] else 'packet'} {fields['tsi']}"


def _in_bytes(frame: bytes) -> str:
    """Describes a frame of a user's own protocol: its first bytes behind UDP's header."""
    return f"packet {frame[UDP_END : UDP_END + 12].hex(' ', 4)}"
