"""Values worth a try: constants that both programs compare fields with, keys and arguments of entries, the ends of ranges."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.types import fixed_width
from ina.p4.runtime.entities import as_match
from ina.p4.runtime.p4info import P4Info
from ina.p4.tools.equal.control import PORT_BITS, Call
from ina.p4.tools.equal.shapes import Shapes, field_key, nodes

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
PORT = "port"  # pseudo-field: the ingress port
PORTS, LENGTHS = ("ingress_port",), ("packet_length",)  # fields of intrinsic metadata with a packet's port and length


@dataclass
class Row:
    """Keys of one entry that match on fields of a packet: (value, mask) by field, PORT among them."""

    table: str
    keys: dict[str, tuple[int, int]]


@dataclass
class Values:
    """Values by field and by width; `rows`: entries, of programs and control planes. `ports`, `lengths`: constants that a program
    compares these with; ports by A's numbers."""

    by_field: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    by_width: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    rows: list[Row] = field(default_factory=list)
    ports: set[int] = field(default_factory=set)
    lengths: set[int] = field(default_factory=set)
    _choices: dict[tuple[str, int], tuple[list[int], list[int]]] = field(default_factory=dict)

    def add(self, key: str, width: int, value: int) -> None:
        value &= (1 << width) - 1
        self.by_field[key].add(value)
        self.by_width[width].add(value)

    def wanted_ports(self) -> set[int]:
        """Returns the ingress ports that some branch or entry compares with."""
        return self.ports | {row.keys[PORT][0] for row in self.rows if PORT in row.keys}

    def choose(self, key: str, width: int, rng: random.Random) -> int:
        if (key, width) not in self._choices:
            full = (1 << width) - 1
            own = sorted(v & full for v in self.by_field.get(key, ()))
            general = sorted(v & full for v in self.by_width.get(width, ()))
            self._choices[key, width] = own, [0, 1, full, full >> 1, 1 << width - 1, *general]
        own, general = self._choices[key, width]
        chance = rng.random()
        if own and chance < 0.5:
            return rng.choice(own)
        if chance < 0.9:
            return rng.choice(general)
        if own and chance < 0.95:
            return rng.choice(own) + rng.choice((-1, 1)) & (1 << width) - 1
        return rng.getrandbits(width)


def collect(values: Values, program: CheckedProgram, shapes: Shapes, renamed: dict[str, str], ports: dict[int, int]) -> None:
    """Collects values of a program. `renamed`: the other program's names of fields or headers; `ports`: likewise."""
    widths = shapes.fields()

    def key_of(e: Any) -> str | None:
        while isinstance(e, (ast.Cast, ast.Slice)):
            e = e.operand if isinstance(e, ast.Cast) else e.base
        if not isinstance(e, ast.Member) or e.kind != "field":
            return None
        if e.member in PORTS:
            return PORT
        key = field_key(ast.source_text(e))
        header, _, name = key.partition(".")
        key = renamed.get(key, f"{renamed.get(header, header)}.{name}")
        return key if key in widths else None

    def compared(subjects: Iterable[Any], numbers: Iterable[Any]) -> None:
        """Adds the constants in `numbers` for the fields in `subjects`."""
        below = [e for subject in subjects for e in _below(subject)]
        keys = {key for e in below if (key := key_of(e))}
        lengths = any(isinstance(e, ast.Member) and e.member in LENGTHS for e in below)
        for e in (e for number in numbers for e in _below(number)):
            for value in _numbers(e):
                for key in keys - {PORT}:
                    values.add(key, widths[key], value)
                if width := fixed_width(e.type) if e.type is not None else None:
                    values.by_width[width].add(value & (1 << width) - 1)
                if PORT in keys:
                    values.ports.add(ports.get(value, value))
                if lengths:
                    values.lengths.add(value)

    for shape in shapes.paths:
        for f, value, _ in shape.wants:
            if f.key in widths:
                values.add(f.key, widths[f.key], value)
    for node in nodes(program):
        if isinstance(node, ast.Binary) and node.op in COMPARISONS:
            compared([node], [node])
        elif isinstance(node, ast.Transition):
            for case in node.cases:
                for subject, number in zip(node.keys, case.keys, strict=False):
                    compared([subject], [number])
        elif isinstance(node, ast.Switch):
            compared([node.subject], [case.label for case in node.cases if case.label is not None and case.action is None])
        elif isinstance(node, ast.Assign) and (key := key_of(node.target)) and key != PORT:
            for value in (v for e in _below(node.value) for v in _numbers(e)):
                values.add(key, widths[key], value)
        elif isinstance(node, ast.TableDecl):
            for entry in node.entries:
                for column, number in zip(node.keys, entry.keys, strict=False):
                    compared([column.expr], [number])
                _rows(values, node, entry, [key_of(k.expr) for k in node.keys], {**widths, PORT: PORT_BITS}, ports)
        elif isinstance(node, ast.ConstDecl) and isinstance(node.value.const, int) and (width := fixed_width(node.value.type)):
            values.by_width[width].add(int(node.value.const) & (1 << width) - 1)


def _rows(values: Values, table: Any, entry: Any, keys: list[str | None], widths: dict[str, int], ports: dict[int, int]) -> None:
    """Adds an entry of the program; with ranges, also a row with their ends."""
    rows = []
    for last in (False, True):
        row = {key: pair for key, e in zip(keys, entry.keys, strict=False) if key and (pair := _pair(e, widths[key], last))}
        if PORT in row:
            row[PORT] = ports.get(row[PORT][0], row[PORT][0]), row[PORT][1]
        if row and row not in rows:
            rows.append(row)
    values.rows += [Row(table.name, row) for row in rows]


def _numbers(e: Any) -> Iterator[int]:
    """Yields the value of a constant expression."""
    if isinstance(e.const, int) and not isinstance(e.const, bool):
        yield int(e.const)


def _below(e: Any) -> Iterator[ast.Expr]:
    stack = [e]
    while stack:
        node = stack.pop()
        if not isinstance(node, ast.Expr):
            continue
        yield node
        if node.const is None:
            for name in ("operand", "base", "left", "right", "value", "mask", "lo", "hi", "then", "otherwise"):
                stack.append(getattr(node, name, None))


def _pair(e: ast.Expr, width: int, last: bool) -> tuple[int, int] | None:
    """Returns (value, mask); `last`: a range's end instead of its beginning."""
    full = (1 << width) - 1
    if isinstance(e, ast.Mask) and isinstance(e.value.const, int) and isinstance(e.mask.const, int):
        return int(e.value.const) & full, int(e.mask.const) & full
    if isinstance(e, ast.Range):
        end = (e.hi if last else e.lo).const
        return (int(end) & full, full) if isinstance(end, int) else None
    return (int(e.const) & full, full) if isinstance(e.const, int) else None


def collect_entries(values: Values, calls: Iterable[Call], p4info: dict[str, Any], shapes: Shapes) -> None:
    """Collects keys and arguments of a control plane's entries; `p4info` is the first program's."""
    info, widths = P4Info(p4info), shapes.fields()
    for call in calls:
        if call.method in ("insert", "set_default", "add_member"):
            name, args = call.args[2:4] if call.method == "insert" else call.args[1:3]
            for param in info.actions[name].params:
                if param.width and param.width != PORT_BITS:
                    values.by_width[param.width].add(args.get(param.name, 0))
        elif call.method == "fill_value_set":
            for width in widths.values():
                values.by_width[width] |= {member for member in call.args[1] if member < 1 << width}
        if call.method not in ("insert", "point"):
            continue
        table = info.table(call.args[0])
        rows: list[dict[str, tuple[int, int]]] = [{}, {}]  # with the beginnings of ranges, and with their ends
        for match_field in table.fields:
            item = call.args[1].get(match_field.name)
            if item is None:
                continue
            key, full = field_key(match_field.name), (1 << match_field.width) - 1
            pair = as_match(item, match_field, table.name)
            pairs = ((pair[0], full), (pair[1], full)) if match_field.match == "range" else (pair, pair)
            if match_field.name.rpartition(".")[2] in PORTS:
                key = PORT
            elif key in widths:
                for value, _ in pairs:
                    values.add(key, widths[key], value)
            else:
                values.by_width[match_field.width] |= {value for value, _ in pairs}
                continue
            for row, choice in zip(rows, pairs, strict=True):
                row[key] = choice
        values.rows += [Row(table.name, row) for row in (rows[:1] if rows[0] == rows[1] else rows) if row]
