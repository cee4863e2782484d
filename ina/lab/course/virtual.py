"""Runs of a step in virtual time: a walk's network, with wires that lose, repeat and delay frames, and many blocks. A student's
compiled program is in its switches (ina/worlds/virtual/network.py).

A worker sends a block in each of its slots, again when no result comes, and the slot's next block, in the other version, when
one has come. Every result is compared. Seeds say which frames are lost: two runs of a program are equal.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ina.aggregation import protocols
from ina.base.native import CData, ffi
from ina.lab.course import frames
from ina.lab.course.step import Walk
from ina.lab.course.walks import CONTRIBUTION, LANES, LAYOUT, RESULT, end_of
from ina.net.ports import PS, Faults
from ina.p4.compiler.compiled import CompiledProgram
from ina.p4.tools import stf_file as stf
from ina.p4.tools.stf_target import CompiledTarget
from ina.worlds.virtual.network import NEVER, End, Network, Wire

BLOCKS = 256  # of each worker
FIRST = 0x7F80  # the first block's number: blocks differ in more than their lowest bits, and pass the largest number with a sign
SLOTS = 4  # of a worker, one block in each
AGAIN = 100_000_000  # ps from a contribution to its repetition
DEADLINE = PS // 10  # ps of virtual time; solutions need some milliseconds
EVENTS = 1_000_000  # at most: a switch may answer without an end
RATE, DELAY = 10e9, 1e-6  # of each wire, bit/s and s
FAULTS = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.1, "duplicate_delay": 20e-6, "reorder_delay": 20e-6}
SHOWN = 12  # frames before a failure


@cache
def values(worker: int, block: int) -> tuple[int, ...]:
    """Returns a worker's contribution to a block, any numbers of 32 bits."""
    drawn = random.Random(f"{worker}/{block}")
    return tuple(drawn.getrandbits(32) for _ in range(LANES))


@dataclass(frozen=True)
class Outcome:
    """The result of a run. `problem`: the first thing that went wrong ("": nothing); `trace`: the frames before it, in lines.
    `frames`, `lost`: of all wires; `time`: s of virtual time."""

    problem: str
    trace: tuple[str, ...]
    frames: int
    lost: int
    time: float


class RunWorker:
    """A worker of a run, at a host of its own. All of a run share `problems`, of which there is one at most, the first, and
    `log`: the frames up to there."""

    def __init__(self, network: Network, number: int, workers: int, versions: int, problems: list[str], log: list[str]):
        self.name, self.number = f"w{number}", number
        self._workers, self._versions, self._network = workers, versions, network
        self._problems, self._log = problems, log
        self._next = list(range(SLOTS))  # of each slot, its block, from 0
        self._due = [0] * len(self._next)  # when that is sent, ps
        protocol = ffi.new("struct ina_protocol *")
        types = dict(ffi.typeof("struct ina_protocol").fields)
        functions: dict[str, tuple[Callable[..., int], int]] = {  # and what C gets if one raises an error
            "next_handle": (lambda _state: -errno.EAGAIN, -errno.EAGAIN), "events": (lambda *_: 0, 0),
            "next_timer": (lambda _state: self.due(), NEVER), "receive": (self._receive, 0), "frames_to_send": (self._send, 0),
        }
        self._error: BaseException | None = None
        self._callbacks = {name: ffi.callback(types[name].type, function, error, self._failed)
                           for name, (function, error) in functions.items()}
        for name, function in self._callbacks.items():
            setattr(protocol, name, function)
        protocol.reductions = 1 << protocols.SUM
        self._protocol = protocol  # kept as long as the network may call it
        self.host = network.add_host()
        self._machine = network.add_machine(self.host, protocol, ffi.NULL, 0, workers)

    def begin(self) -> None:
        """Sends the first contributions. Call it when the network is complete."""
        self._network.submit(self._machine, np.zeros(1, np.int32))  # wakes the machine, which takes no tensor

    def _failed(self, _type: Any, error: BaseException, _traceback: Any) -> None:
        self._error = self._error or error

    def raise_failed(self) -> None:
        """Raises an error of this class itself: C code that calls it cannot."""
        if self._error is not None:
            raise self._error

    def due(self) -> int:
        """Returns when it sends next, ps; NEVER: it has all results, or there is a problem."""
        return NEVER if self._problems else min(self._due)

    def waits_for(self) -> list[int]:
        """Returns the numbers of blocks that it has contributed to and has no result of."""
        return sorted(FIRST + block for block in self._next if block < BLOCKS)

    def _send(self, _state: CData, _tensors: CData, packets: CData, most: int, now: int) -> int:
        sent = 0
        for slot, block in enumerate(self._next):
            if sent < most and self.due() <= now and self._due[slot] <= now:
                frame = self._contribution(slot, block)
                ffi.memmove(packets[sent].data, frame, len(frame))
                packets[sent].len = packets[sent].wire_len = len(frame)
                self._due[slot] = now + AGAIN
                self._say(now, "sends", frame)
                sent += 1
        return sent

    def _contribution(self, slot: int, block: int) -> bytes:
        source, version = bytes([2, 0, 0, 0, 0, self.number]), block // SLOTS % self._versions
        return LAYOUT.pack(bytes([2, 0, 0, 0, 1, 0]), source, frames.TYPE, CONTRIBUTION, LANES, 8, 0, self.number,
                           slot << 1 | version, FIRST + block, *values(self.number, block))

    def _receive(self, _state: CData, _tensors: CData, packet: CData, _one: int, now: int) -> int:
        frame = bytes(ffi.buffer(packet.data, packet.len))
        self._say(now, "gets", frame)
        if not self._problems and (problem := self._take(frame)):
            self._problems.append(f"{self.name} gets {problem}")
        return 0

    def _take(self, frame: bytes) -> str:
        """Takes a frame. Returns what is wrong with it, "" if nothing is."""
        got = frames.fields(frame)
        if "values.v3" not in got or got["sum.kind"] != RESULT:
            return f"a frame that is no result: {frames.words(frame)}"
        block, slot = got["sum.block"] - FIRST, got["sum.slot"]
        if not 0 <= block < BLOCKS or block % SLOTS != slot or got["sum.version"] != block // SLOTS % self._versions:
            return f"a result of no block of its slot and version: {frames.words(frame)}"
        if block > self._next[slot]:
            return f"a result of block {got['sum.block']}, to which it has not contributed"
        expected = [sum(lane) & 0xFFFFFFFF for lane in zip(*(values(w, block) for w in range(self._workers)), strict=True)]
        lanes = [got[f"values.v{i}"] for i in range(LANES)]
        if lanes != expected:
            return f"a wrong sum of block {got['sum.block']}: expected {expected}, got {lanes}"
        if block == self._next[slot]:
            self._next[slot] += SLOTS
            self._due[slot] = 0 if self._next[slot] < BLOCKS else NEVER
        return ""

    def _say(self, now: int, verb: str, frame: bytes) -> None:
        if self._problems:
            return
        self._log.append(f"{now / PS * 1e6:9.1f} us  {self.name} {verb} {frames.words(frame)}")
        del self._log[:-SHOWN]


def run(walk: Walk, compiled: CompiledProgram, seed: int = 1) -> Outcome:
    """Runs a walk's network with faults. Raises StfError, EntityError: the program cannot be configured as the walk wants."""
    ends = [end for wire in walk.wires for end in wire]
    numbers = sorted(int(end[1:]) for end in ends if ":" not in end)
    problems: list[str] = []
    log: list[str] = []
    with Network() as network:
        switches = {}
        for name, commands in walk.switches.items():
            target = CompiledTarget(compiled, ())
            switches[name] = network.add_switch(target.switch)  # which closes it
            stf.run(commands, target)
        workers = {f"w{number}": RunWorker(network, number, len(numbers), walk.versions, problems, log) for number in numbers}
        for place, (a, b) in enumerate(walk.wires):
            there, back = (Wire(RATE, DELAY, faults=Faults(**FAULTS, seed=2 * (1000 * seed + place) + way)) for way in (0, 1))
            network.connect(_at(a, workers, switches), _at(b, workers, switches), there, back)
        for worker in workers.values():
            worker.begin()
        ended = network.run(DEADLINE, EVENTS)
        for worker in workers.values():
            worker.raise_failed()
        stats = network.stats()
        problems += [f"{worker.name} still waits for the result of block {worker.waits_for()[0]}, after {network.now / PS:.3f} s"
                     for worker in workers.values() if worker.waits_for()]
        if not ended:
            problems.append(f"frames without an end: there are still some after {stats['events']} events")
        problem = problems[0] if problems else ""
        return Outcome(problem, tuple(log) if problem else (), stats["frames"], stats["lost"], network.now / PS)


def _at(name: str, workers: dict[str, RunWorker], switches: dict[str, int]) -> End:
    machine, port = end_of(name)
    return End(True, switches[machine], port) if machine in switches else End(False, workers[machine].host)
