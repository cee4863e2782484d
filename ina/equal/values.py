"""Values worth a try: what both programs compare fields with, keys and arguments of their entries, the ends of ranges."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ina.compiler import ast
from ina.compiler.program import CheckedProgram
from ina.compiler.types import fixed_width
from ina.equal.control import PORT_BITS, Call
from ina.equal.shapes import Shapes, field_key
from ina.equal.sides import nodes
from ina.switch.p4info import P4Info

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
PORT = "port"  # as a field: by which a packet comes


@dataclass
class Row:
    """Keys of one entry that fields of a packet can have: (value, mask) by field, PORT among them."""

    table: str
    keys: dict[str, tuple[int, int]]


@dataclass
class Values:
    """By field and by width; `rows`: entries, of programs and control planes."""

    by_field: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    by_width: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    rows: list[Row] = field(default_factory=list)
    _choices: dict[tuple[str, int], tuple[list[int], list[int]]] = field(default_factory=dict)

    def add(self, key: str, width: int, value: int) -> None:
        value &= (1 << width) - 1
        self.by_field[key].add(value)
        self.by_width[width].add(value)

    def choose(self, key: str, width: int, rng: random.Random) -> int:
        if (key, width) not in self._choices:
            full = (1 << width) - 1
            known = sorted(v & full for v in self.by_field.get(key, ()))
            others = sorted(v & full for v in self.by_width.get(width, ()))
            self._choices[key, width] = known, [0, 1, full, full >> 1, 1 << width - 1, *others]
        known, others = self._choices[key, width]
        chance = rng.random()
        if known and chance < 0.5:
            return rng.choice(known)
        if chance < 0.9:
            return rng.choice(others)
        if known and chance < 0.95:
            return rng.choice(known) + rng.choice((-1, 1)) & (1 << width) - 1
        return rng.getrandbits(width)


def collect(values: Values, program: CheckedProgram, shapes: Shapes, renamed: dict[str, str]) -> None:
    """`renamed`: fields, or headers, of this program as the other one calls them."""
    widths = shapes.fields()

    def key_of(e: Any) -> str | None:
        while isinstance(e, (ast.Cast, ast.Slice)):
            e = e.operand if isinstance(e, ast.Cast) else e.base
        if not isinstance(e, ast.Member) or e.kind != "field":
            return None
        key = field_key(ast.source_text(e))
        header, _, name = key.partition(".")
        key = renamed.get(key, f"{renamed.get(header, header)}.{name}")
        return key if key in widths else None

    def compared(key: str, e: Any) -> None:
        for node in _below(e):
            if isinstance(node.const, int) and not isinstance(node.const, bool):
                values.add(key, widths[key], int(node.const))

    for shape in shapes.paths:
        for f, value, _ in shape.wants:
            if f.key in widths:
                values.add(f.key, widths[f.key], value)
    for node in nodes(program):
        if isinstance(node, ast.Binary) and node.op in COMPARISONS:
            both = [*_below(node)]
            for key in {key for e in both if (key := key_of(e))}:
                compared(key, node)
        elif isinstance(node, ast.Assign) and (key := key_of(node.target)):
            compared(key, node.value)
        elif isinstance(node, ast.TableDecl):
            keys = [key_of(k.expr) for k in node.keys]
            for entry in node.entries:
                row = {key: pair for key, e in zip(keys, entry.keys, strict=True) if key and (pair := _pair(e, widths[key]))}
                for key, (value, _) in row.items():
                    values.add(key, widths[key], value)
                if row:
                    values.rows.append(Row(node.name, row))
        elif isinstance(node, ast.ConstDecl) and isinstance(node.value.const, int) and (width := fixed_width(node.value.type)):
            values.by_width[width].add(int(node.value.const) & (1 << width) - 1)


def _below(e: Any) -> Iterator[ast.Expr]:
    stack = [e]
    while stack:
        node = stack.pop()
        if not isinstance(node, ast.Expr):
            continue
        yield node
        if node.const is None:
            for name in ("operand", "base", "left", "right", "value", "then", "otherwise"):
                stack.append(getattr(node, name, None))


def _pair(e: ast.Expr, width: int) -> tuple[int, int] | None:
    full = (1 << width) - 1
    if isinstance(e, ast.Mask) and isinstance(e.value.const, int) and isinstance(e.mask.const, int):
        return int(e.value.const) & full, int(e.mask.const) & full
    if isinstance(e, ast.Range) and isinstance(e.lo.const, int):
        return int(e.lo.const) & full, full
    return (int(e.const) & full, full) if isinstance(e.const, int) else None


def collect_entries(values: Values, calls: Iterable[Call], p4info: dict[str, Any], shapes: Shapes) -> None:
    """Keys and arguments of what a control plane has written; `p4info` is the first program's."""
    info, widths = P4Info(p4info), shapes.fields()
    for call in calls:
        if call.method not in ("insert", "set_default"):
            continue
        table = info.table(call.args[0])
        name, args = call.args[-3:-1] if call.method == "insert" else call.args[1:]
        for param in info.actions[name].params:
            if param.width and param.width != PORT_BITS:
                values.by_width[param.width].add(args.get(param.name, 0))
        if call.method != "insert":
            continue
        row: dict[str, tuple[int, int]] = {}
        for match_field in table.fields:
            found = call.args[1].get(match_field.name)
            if found is None:
                continue
            key, full = field_key(match_field.name), (1 << match_field.width) - 1
            pair = (found, full) if isinstance(found, int) else (found[0], _mask(match_field.match, found, match_field.width))
            if match_field.name.rpartition(".")[2] == "ingress_port":
                row[PORT] = pair
            elif key in widths:
                values.add(key, widths[key], pair[0])
                row[key] = pair
        if row:
            values.rows.append(Row(table.name, row))


def _mask(kind: str, match: tuple[int, int], width: int) -> int:
    full = (1 << width) - 1
    if kind == "lpm":
        return full & ~((1 << width - match[1]) - 1)
    return match[1] if kind == "ternary" else full
