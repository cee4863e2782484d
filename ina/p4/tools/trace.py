"""`ina trace`: the path of each packet through a program, as the reference interpreter runs it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import hexdigits

from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.p4info import p4info
from ina.p4.compiler.reference.interpreter import Interpreter
from ina.p4.compiler.reference.machine import Item, Observer, Output
from ina.p4.compiler.reference.objects import RegisterArray
from ina.p4.compiler.reference.places import Argument, Place
from ina.p4.compiler.reference.signals import PacketFailed, ParserError
from ina.p4.compiler.reference.tables import BoundAction, Entry, Table
from ina.p4.compiler.reference.values import Value, leaves
from ina.p4.compiler.types import RecordType, fixed_width, strip_new
from ina.p4.runtime.embedded import ranges
from ina.p4.tools import stf_file as stf
from ina.p4.tools.explain import runs
from ina.p4.tools.stf_target import InterpreterTarget

SHOWN = 64  # bytes of a frame that leaves
CELLS = 8  # values of neighbouring registers shown in a line
CHECKS = ("verify", "static_assert")  # their effect is the parser's next state
SILENT = ("verify_checksum", "update_checksum", "verify_checksum_with_payload", "update_checksum_with_payload")
PCAP = {b"\xd4\xc3\xb2\xa1": ("<", 1e-6), b"\xa1\xb2\xc3\xd4": (">", 1e-6),
        b"\x4d\x3c\xb2\xa1": ("<", 1e-9), b"\xa1\xb2\x3c\x4d": (">", 1e-9)}


def packets(source: str, limit: int) -> Iterator[tuple[float, bytes]]:
    """Yields (seconds since the first one, frame) of a pcap file, or the one frame that hexadecimal digits spell.

    Raises ValueError, OSError.
    """
    digits = "".join(source.split())
    if digits and not set(digits) - set(hexdigits):
        if len(digits) % 2:
            raise ValueError(f"{len(digits)} hexadecimal digits: expected two for each byte")
        yield 0.0, bytes.fromhex(digits)
        return
    try:
        data = Path(source).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{source}: there is no such pcap file, and a frame is hexadecimal digits") from None
    if data[:4] == b"\x0a\x0d\x0d\x0a":
        raise ValueError(f"{source} is a pcapng file: convert it with 'editcap -F pcap'")
    if data[:4] not in PCAP or len(data) < 24:
        raise ValueError(f"{source} is no pcap file")
    order, unit = PCAP[data[:4]]
    at, start = 24, None
    for _ in range(limit):
        if at >= len(data):
            return
        if at + 16 > len(data):
            raise ValueError(f"{source}: cut off in the record at byte {at}")
        seconds, part, size, _ = struct.unpack_from(f"{order}4I", data, at)
        if at + 16 + size > len(data):
            raise ValueError(f"{source}: cut off in the frame at byte {at + 16}")
        time = seconds + part * unit
        start = time if start is None else start
        yield time - start, data[at + 16 : at + 16 + size]
        at += 16 + size


class Tracer(Observer):
    """A switch with `program` and the entries of `entries` (STF commands, from `file`), that reports its steps.

    `externs`: a Python file with the bodies of the program's own externs."""

    def __init__(self, program: CheckedProgram, entries: str = "", file: str = "", externs: Path | None = None) -> None:
        self._switch = Interpreter(program, externs=externs)
        stf.run(stf.control(entries), InterpreterTarget(self._switch, p4info.build(program)), file)
        self._switch.machine.observer = self
        self._lines: list[str] = []
        self._states: list[str] = []
        self._reads: dict[tuple[str, int], Value] = {}  # of cells that have not been written since
        self._writes: list[tuple[str, tuple[int, Value, Value]]] = []

    def packet(self, number: int, frame: bytes, port: int, seconds: float) -> Iterator[str]:
        """Yields the trace of one frame, in lines."""
        yield f"packet {number}: {len(frame)} bytes into port {port} at {seconds:.6f} s"
        if not frame:
            yield "  dropped: malformed"
            return
        queue: list[Item] = [self._switch.architecture.item(frame, port, round(seconds * 1e12))]
        while queue:
            item = queue.pop(0)
            yield f"  {item.title}"
            results, problem = self._step(item)
            yield from (f"    {line}" for line in [*self._take_lines(), *problem])
            for result in results:
                if isinstance(result, Output):
                    yield f"  out of port {result.port}: {len(result.frame)} bytes{_changes(frame, result.frame)}"
                    more = f" ... {len(result.frame) - SHOWN} more" if len(result.frame) > SHOWN else ""
                    yield f"    {result.frame[:SHOWN].hex()}{more}"
                else:
                    queue.append(result)

    def _step(self, item: Item) -> tuple[Sequence[Item | Output], list[str]]:
        """Runs one pass; returns its results, and digests, log lines and drops."""
        switch = self._switch
        digests, log, drops = len(switch.digests), len(switch.log), dict(switch.drops)
        results: Sequence[Item | Output] = []
        problem = []
        try:
            results = switch.step(item)
        except (PacketFailed, ParserError) as error:
            problem = [f"stopped: {error}"]
        problem += [f"digest {d.name}{d.values}" for d in list(switch.digests)[digests:]]
        problem += [f"log: {text}" for text in switch.log[log:]]
        problem += [f"dropped: {reason}" for reason, n in switch.drops.items() if n > drops.get(reason, 0)]
        return results, problem

    def _take_lines(self) -> list[str]:
        self._end()
        lines, self._lines = self._lines, []
        return lines

    # --- the interpreter's callbacks ------------------------------------------------------------------------------

    def parser_state(self, parser: Instance, name: str) -> None:
        if name == "start":
            self._end_states()
            self._states = [f"parser {parser.name}: start"]
        else:
            self._states.append(name)

    def parser_failed(self, error: str) -> None:
        self._states.append(f"error.{error}")

    def table_applied(self, table: Table, keys: list[Value], action: BoundAction, entry: Entry | None) -> None:
        self._end()
        values = ", ".join(f"{n}={_value(v)}" for n, v in zip(table.key_names, keys, strict=True))
        arguments = iter(action.args)
        bound = action.ref.args or [None] * len(action.ref.decl.params)
        args = [
            f"{p.cp_name}={_value(next(arguments, '?') if e is None else e.const)}"
            for p, e in zip(action.ref.decl.params, bound, strict=True)
            if e is None or e.const is not None
        ]
        result = "miss, default" if entry is None else f"hit entry {entry.handle},"
        self._lines.append(f"table {table.name} [{values}]: {result} {action.ref.decl.name}({', '.join(args)})")

    def function_called(self, name: str, args: list[Argument]) -> None:
        if name in CHECKS:
            return
        self._end()
        if name not in SILENT:
            values = [_value(a) for a in args if isinstance(a, int | str)]
            self._lines.append(f"{name}({', '.join(values)})")

    def method_called(self, instance: Instance, method: str, args: list[Argument], state: object) -> None:
        self._end_states()
        if instance.decl.name == "register" and isinstance(state, RegisterArray):
            index = args[0] if method == "write" else args[1]
            assert isinstance(index, int)
            index &= (1 << (fixed_width(instance.type.args[1]) or 0)) - 1 if len(instance.type.args) > 1 else -1
            if index < len(state):
                self._cell_used((instance.name, index), state.read(index), args[1] if method == "write" else None)
                return
        if instance.decl.name == "RegisterAction" and method != "predicate":
            return  # register_changed reports its effect
        self._end_cells()
        values = [_value(a) for a in args if isinstance(a, int | str)]
        self._lines.append(f"{instance.decl.name} {instance.name}.{method}({', '.join(values)})")

    def _cell_used(self, cell: tuple[str, int], before: Value, after: Argument) -> None:
        """Notes that a register's cell is read (``after`` None) or written. A write's line says what was there before and after,
        so reads next to it have none."""
        name, index = cell
        if after is not None:
            assert not isinstance(after, Place)
            self._reads.pop(cell, None)
            self._writes.append((name, (index, before, after)))
        elif not any(cell == (written, at) for written, (at, _, _) in self._writes):
            self._reads[cell] = before

    def register_changed(self, instance: Instance, index: int, before: Value, after: Value) -> None:
        old, new = ([v for v, _ in leaves(x, instance.type.args[0])] for x in (before, after))
        t = strip_new(instance.type.args[0])
        names = [f"{instance.name}.{f}" for f in t.fields] if isinstance(t, RecordType) else [instance.name]
        self._writes += [(name, (index, a, b)) for name, a, b in zip(names, old, new, strict=False)]

    def _end(self) -> None:
        self._end_states()
        self._end_cells()

    def _end_states(self) -> None:
        if self._states:
            self._lines.append(" > ".join(self._states))
            self._states = []

    def _end_cells(self) -> None:
        """Adds pending reads, then writes; those of one cell of neighbouring registers (a row of values, say) are one line."""
        reads = list(self._reads.values())
        for group in runs(list(self._reads)):
            (first, index), values = group[0], [_value(value) for value in reads[: len(group)]]
            if len(group) == 1:
                self._lines.append(f"register {first}[{index}] is {values[0]}")
            else:
                more = " ..." if len(values) > CELLS else ""
                self._lines.append(f"registers {first} .. {group[-1][0]}, cell {index}, are {' '.join(values[:CELLS])}{more}")
            del reads[: len(group)]
        self._reads.clear()
        for group in runs([(name, index) for name, (index, _, _) in self._writes]):
            count = len(group)
            (first, index), cells = group[0], [(old, new) for _, (_, old, new) in self._writes[:count]]
            old, new = (" ".join(map(_value, values)) for values in zip(*cells, strict=True))
            change = "unchanged" if old == new else f"{'was' if count == 1 else 'were'} {old}"
            if count == 1:
                self._lines.append(f"register {first}[{index}] = {new} ({change})")
            elif count <= CELLS:
                self._lines.append(f"registers {first} .. {group[-1][0]}, cell {index} = {new} ({change})")
            else:
                changes = sum(old != new for old, new in cells)
                self._lines.append(f"registers {first} .. {group[-1][0]}, cell {index}: {changes} of {count} changed")
            del self._writes[:count]


def _value(v: object) -> str:
    return hex(v) if isinstance(v, int) and not isinstance(v, bool) and abs(v) > 9 else str(v)


def _changes(before: bytes, after: bytes) -> str:
    """Returns the bytes that differ from the frame that came in, as ranges."""
    if before == after:
        return ", unchanged"
    words = ranges(i for i in range(min(len(before), len(after))) if before[i] != after[i])
    return f", changed: {' '.join(words[:8])}{' ...' if len(words) > 8 else ''}" if words else ""
