"""The two sides: a program each, compiled on the embedded switch or on the interpreter, that can go back to any earlier state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy as _same
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ina.base.native import ffi, lib
from ina.p4.compiler import ast, frontend
from ina.p4.compiler.build import compile_program
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.p4info import p4info
from ina.p4.compiler.reference.interpreter import Interpreter
from ina.p4.compiler.reference.values import copy, leaves, number
from ina.p4.tools.equal.control import Call, replay
from ina.p4.tools.equal.shapes import nodes
from ina.p4.tools.stf_target import PERIOD, CompiledTarget, InterpreterTarget

Sent = tuple[tuple[int, tuple[bytes, ...]], ...]  # by port, frames in order
Digests = tuple[tuple[str, tuple[int, ...]], ...]
CLOCKS = ("timestamp", "tstamp", "timedelta")  # in names of intrinsic metadata


@dataclass(frozen=True)
class Answer:
    """Frames and digests that one packet caused."""

    sent: Sent
    digests: Digests = ()


class Side(ABC):
    """A program on a switch. `write` sets the control plane once."""

    def __init__(self, program: CheckedProgram) -> None:
        self.program = program
        self.p4info: dict[str, Any] = p4info.build(program)
        self.now = 0  # packets since the start

    def open(self, ports: Iterable[int]) -> None:  # noqa: B027
        """Adds ports. The interpreter has all."""

    @abstractmethod
    def write(self, calls: Iterable[Call]) -> None:
        """Writes the control plane; the state after it is the start."""

    @abstractmethod
    def reset(self) -> None: ...

    @abstractmethod
    def send(self, port: int, frame: bytes) -> Answer:
        """Sends a packet, one millisecond after the one before, as `ina stf` does."""

    @abstractmethod
    def save(self) -> tuple[bytes, Any]:
        """Returns the state that decides all further answers, as a key for comparison, and the argument for `restore`."""

    @abstractmethod
    def restore(self, saved: Any) -> None: ...

    @abstractmethod
    def counter(self, name: str) -> list[int]:
        """Returns packets by cell, over all pipes."""

    @abstractmethod
    def register(self, name: str) -> list[int]:
        """Returns cells; of a TNA program those of pipe 0."""

    def changed(self) -> tuple[int, ...]:
        """Returns the numbers of the program's objects whose cells the last packet changed: its way through the program."""
        return ()

    @property
    def reads_clock(self) -> bool:
        """True if answers may depend on time: then states that are equal at different times are not the same state."""
        return bool(self.p4info.get("meters") or self.p4info.get("directMeters")) or any(
            isinstance(n, ast.Member) and any(clock in n.member for clock in CLOCKS) for n in nodes(self.program)
        )

    @property
    def draws(self) -> bool:
        """True if the program uses random numbers."""
        return any(
            (isinstance(n, ast.Call) and n.kind == "extern_function" and ast.source_text(n.callee) == "random")
            or (isinstance(n, ast.Instantiation) and getattr(n.type, "name", "") == "Random")
            for n in nodes(self.program)
        )


def _different(now: npt.NDArray[np.uint8], then: npt.NDArray[np.uint8]) -> npt.NDArray[np.intp]:
    """Returns the offsets of bytes that differ; compares words first, since states are large and most of them stays the same."""
    whole = len(now) // 8 * 8
    words = np.flatnonzero(now[:whole].view(np.uint64) != then[:whole].view(np.uint64))
    near = np.concatenate(((8 * words[:, None] + np.arange(8)).ravel(), np.arange(whole, len(now))))
    different: npt.NDArray[np.intp] = near[now[near] != then[near]]
    return different


def _by_port(frames: Iterable[tuple[int, bytes]]) -> Sent:
    ports: dict[int, list[bytes]] = {}
    for port, frame in frames:
        ports.setdefault(port, []).append(frame)
    return tuple((port, tuple(ports[port])) for port in sorted(ports))


class Compiled(Side):
    def __init__(self, path: Path, program: CheckedProgram, defines: Mapping[str, str], includes: Sequence[Path]) -> None:
        super().__init__(program)
        self._target = CompiledTarget(compile_program(path, defines=defines, include_dirs=includes), ())
        switch = self._target.switch
        self._state = ffi.buffer(lib.ina_switch_state(switch.pointer), lib.ina_switch_state_size(switch.pointer))
        pipelines, stride = switch.program.pipelines, lib.ina_switch_state_stride(switch.pointer)
        self._heads = [slice(p * stride, p * stride + pipelines[p % len(pipelines)].stats_offset)
                       for p in range(max(1, switch.pipes))]
        self._objects = self._owners(switch, stride)
        self._before = b""

    def _owners(self, switch: Any, stride: int) -> npt.NDArray[np.int32]:
        """Returns, for each byte of the state, the number of its object: a register, or a counter's cell."""
        owners = np.zeros(len(self._state), np.int32)
        number = 0
        for pipe in range(max(1, switch.pipes)):
            for register in switch.program.layout.get("registers", ()):
                number += 1
                cells = owners[pipe * stride + register["offset"] :]
                shape, strides = (register["size"], register["bytes"]), (register["stride"] * owners.itemsize, owners.itemsize)
                np.lib.stride_tricks.as_strided(cells, shape, strides)[:] = number
            for counter in switch.program.layout.get("counters", ()):
                at = pipe * stride + counter["offset"]
                cells = np.arange(counter["size"], dtype=np.int32) % 16
                owners[at : at + 16 * counter["size"]] = np.repeat(number + 1 + cells, 16)
                number += 16
        return owners

    def open(self, ports: Iterable[int]) -> None:
        for port in sorted(set(ports).difference(self._target.switch.ports)):
            self._target.switch.add_port(port)

    def write(self, calls: Iterable[Call]) -> None:
        replay(calls, self._target)
        self._start = bytes(self._state)
        self.reset()

    def reset(self) -> None:
        self._state[:] = self._start
        self.now = 0

    def send(self, port: int, frame: bytes) -> Answer:
        self._before = bytes(self._state)
        self.now += 1
        self._target.now = (self.now - 1) * PERIOD
        return Answer(_by_port(self._target.send(port, frame)), tuple(self._target.digests()))

    def changed(self) -> tuple[int, ...]:
        at = _different(np.frombuffer(memoryview(self._state), np.uint8), np.frombuffer(self._before, np.uint8))
        return tuple(np.unique(self._objects[at]).tolist()) if len(at) else ()

    def save(self) -> tuple[bytes, Any]:
        whole = bytes(self._state)
        now, start = np.frombuffer(whole, np.uint8), np.frombuffer(self._start, np.uint8)
        key = b""
        for head in self._heads:  # the difference from the start is small, and enough
            at = _different(now[head], start[head])
            key += len(at).to_bytes(8, "big") + at.tobytes() + now[head][at].tobytes()
        return key, (whole, self.now)

    def restore(self, saved: Any) -> None:
        self._state[:], self.now = saved

    def counter(self, name: str) -> list[int]:
        return list(self._target.switch.counter(name)[:, 0].tolist())

    def register(self, name: str) -> list[int]:
        switch = self._target.switch
        return list(switch.register(name, pipe=0 if switch.pipes else None).tolist())


class Interpreted(Side):
    def __init__(self, program: CheckedProgram) -> None:
        super().__init__(program)
        self._interpreter = Interpreter(program)
        self._target = InterpreterTarget(self._interpreter, self.p4info)

    def write(self, calls: Iterable[Call]) -> None:
        replay(calls, self._target)
        _, self._start = self.save()

    def reset(self) -> None:
        self.restore(self._start)

    def send(self, port: int, frame: bytes) -> Answer:
        self.now += 1
        self._interpreter.digests.clear()
        sent = self._interpreter.process(frame, port, self.now * PERIOD)
        return Answer(_by_port(sent), tuple(self._target.digests()))

    def save(self) -> tuple[bytes, Any]:
        i = self._interpreter
        registers = {name: [copy(value) for value in array.values] for name, array in i.registers.items()}
        meters = {name: {n: _same(s) for n, s in array.states.items()} for name, array in i.meters.items()}
        counters = {name: (list(c.packets), list(c.octets)) for name, c in i.counters.items()}
        key = repr([self.register(name) for name in registers]).encode()
        return key, (registers, meters, counters, self.now)

    def restore(self, saved: Any) -> None:
        registers, meters, counters, self.now = saved
        i = self._interpreter
        for name, values in registers.items():
            i.registers[name].values = [copy(value) for value in values]
        for name, states in meters.items():
            i.meters[name].states = {n: _same(s) for n, s in states.items()}
        for name, (packets, octets) in counters.items():
            i.counters[name].packets[:], i.counters[name].octets[:] = packets, octets

    def counter(self, name: str) -> list[int]:
        return list(self._interpreter.counters[name].packets)

    def register(self, name: str) -> list[int]:
        array = self._interpreter.registers[name]
        return [int(number(value)) for cell in array.values for value, _ in leaves(cell, array.type)]


def side(
    path: Path, defines: Mapping[str, str], includes: Sequence[Path], interpreter: bool, program: CheckedProgram | None = None
) -> Side:
    """Returns the side of a program. `program`: that of `path`, if checked before. Raises CompileError, BuildError, OSError."""
    program = program or frontend.load(path, defines=defines, include_dirs=includes)
    return Interpreted(program) if interpreter else Compiled(path, program, defines, includes)
