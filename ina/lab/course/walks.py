"""Walks of a step: every order in which the frames of a small network can arrive, with a student's compiled program as switches.

The workers here are the course's own, a few lines of Python: a worker has one slot, sends a contribution for each of its blocks,
and goes on with the next when it has the result. Whoever waits may send again at any time (ina/worlds/virtual/explorer.py).
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

from ina.lab.course import frames
from ina.lab.course.step import Walk
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.compiled import CompiledProgram
from ina.p4.tools import stf_file as stf
from ina.p4.tools import trace
from ina.p4.tools.stf_target import CompiledTarget
from ina.worlds.virtual.explorable import SwitchMachine
from ina.worlds.virtual.explorer import Budget, Explorer, Machine, Report, Sent

STATES = 50_000  # walked at most, and said if there are more
LANES = 4
CONTRIBUTION, RESULT = 1, 2
LAYOUT = struct.Struct("!6s6sHBBBBBBH4I")  # of a frame: slot and version are one byte


def values(worker: int, block: int) -> list[int]:
    """Returns a contribution of one of at most 4 workers to one of at most 3 blocks: no sum of others, or of one twice, is the
    right one."""
    return [(lane + 1) * 4 ** (4 * block + worker) for lane in range(LANES)]


class CourseWorker(Machine):
    """A worker with `blocks` to reduce among `workers`, in slot 0. Its versions alternate among `versions`. Its port is 0."""

    def __init__(self, number: int, workers: int, blocks: int, versions: int, repeats: bool):
        self.name, self.number = f"w{number}", number
        self._workers, self._blocks, self._versions = workers, blocks, versions
        self.timers = (0,) if repeats else ()
        self._block = 0
        self._wrong: str | None = None

    def _contribution(self) -> Sent:
        if self.done():
            return []
        source, version = bytes([2, 0, 0, 0, 0, self.number]), self._block % self._versions
        return [(0, LAYOUT.pack(bytes([2, 0, 0, 0, 1, 0]), source, frames.TYPE, CONTRIBUTION, LANES, 8, 0, self.number, version,
                                self._block, *values(self.number, self._block)))]

    def start(self) -> Sent:
        return self._contribution()

    def receive(self, port: int, frame: bytes) -> Sent:
        self._wrong = self._problem(frame)
        got = frames.fields(frame)
        if self._wrong or self.done() or got["sum.block"] != self._block:
            return []  # a result that came before, or one of a wrong sum
        self._block += 1
        return self._contribution()

    def _problem(self, frame: bytes) -> str | None:
        """Returns what is wrong with a frame, None for a result that a worker may get."""
        got = frames.fields(frame)
        if "values.v3" not in got or got["sum.kind"] != RESULT:
            return f"{self.name} gets a frame that is no result: {frames.words(frame)}"
        block = got["sum.block"]
        if block > self._block or block >= self._blocks:
            return f"{self.name} gets a result of block {block}, to which it has not contributed"
        expected = [sum(lane) for lane in zip(*(values(w, block) for w in range(self._workers)), strict=True)]
        lanes = [got[f"values.v{i}"] for i in range(LANES)]
        if lanes != expected:
            return f"{self.name} gets a wrong sum of block {block}: expected {expected}, got {lanes}"
        if got["sum.version"] != block % self._versions or got["sum.slot"]:
            return f"{self.name} gets a result of block {block} for another slot or version: {frames.words(frame)}"
        return None

    def expire(self, timer: int) -> Sent | None:
        self._wrong = None
        return None if self.done() else self._contribution()

    def save(self) -> tuple[bytes, bytes]:
        state = self._block.to_bytes(2, "big")
        return state, state

    def restore(self, saved: bytes) -> None:
        self._block = int.from_bytes(saved, "big")

    def violation(self) -> str | None:
        return self._wrong

    def done(self) -> bool:
        return self._block == self._blocks


@contextlib.contextmanager
def network(walk: Walk, compiled: CompiledProgram) -> Iterator[Explorer]:
    """Makes a walk's network. Raises StfError, EntityError: the program cannot be configured as the walk wants."""
    ends = [end for wire in walk.wires for end in wire]
    workers = sorted(end for end in ends if ":" not in end)
    with contextlib.ExitStack() as stack:
        machines: list[Machine] = [
            CourseWorker(int(name[1:]), len(workers), walk.blocks, walk.versions, walk.faults) for name in workers
        ]
        for name, commands in walk.switches.items():
            target = CompiledTarget(compiled, range(8))
            stack.enter_context(target.switch)
            stf.run(commands, target)
            machines.append(SwitchMachine(name, target.switch))
        yield Explorer(machines, [(end_of(a), end_of(b)) for a, b in walk.wires], _describe)


def end_of(text: str) -> tuple[str, int]:
    name, _, port = text.partition(":")
    return name, int(port or 0)


def _describe(frame: bytes) -> str:
    got = frames.fields(frame)
    if "values.v3" not in got:
        return frames.words(frame)
    kind = frames.KINDS.get(got["sum.kind"], f"kind {got['sum.kind']}")
    by = f" by worker {got['sum.worker']}" if got["sum.kind"] == CONTRIBUTION else ""
    return f"{kind} of block {got['sum.block']}{by}"


def run(walk: Walk, compiled: CompiledProgram) -> Report:
    """Walks a network's states, `STATES` of them at most. Raises StfError, EntityError, and ValueError: a switch sends a frame to
    a port where nobody is."""
    with network(walk, compiled) as explorer:
        return explorer.saturate(STATES) if walk.faults else explorer.explore(10**6, Budget(0, 0, 0), STATES)


def traced(walk: Walk, report: Report, program: CheckedProgram) -> Iterator[str]:
    """Yields lines on how the walk's switches handled the frames of a report's steps, as `ina trace` says it: tables, registers
    read and written, and what left. Raises StfError, EntityError."""
    tracers = {name: trace.Tracer(program, commands, name) for name, commands in walk.switches.items()}
    for number, arrival in enumerate(report.arrivals, 1):
        if arrival is not None and arrival.machine in tracers:
            yield f"step {number}, into port {arrival.port} of {arrival.machine}: {frames.words(arrival.frame)}"
            _, *lines = tracers[arrival.machine].packet(number, arrival.frame, arrival.port, 0.0)
            yield from lines
