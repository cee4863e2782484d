"""Registers, counters, meters and filters of a program while it is lowered, by object."""

from __future__ import annotations

from dataclasses import dataclass, field

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.lowering import Lowering


@dataclass(slots=True)
class Cells:
    """The objects with a cell for each index, or for each entry of a table. `logs`: the next cell of execute_log."""

    registers: dict[Instance, list[ir.Register]] = field(default_factory=dict)
    counters: dict[Instance, ir.Counter] = field(default_factory=dict)
    meters: dict[Instance, ir.Meter] = field(default_factory=dict)
    filters: dict[Instance, ir.Filter] = field(default_factory=dict)
    logs: dict[Instance, ir.Register] = field(default_factory=dict)


def index32(low: Lowering, e: ast.Expr) -> ir.Expr:
    """Returns the index of a cell, as an unsigned number."""
    index = low.scalar(e)
    if index.width > 64:
        raise unsupported(e, "an index of more than 64 bits")
    return fold.cast(index, index.width)


def direct_entry(low: Lowering, call: ast.Call, instance: Instance) -> ir.Expr:
    """Returns the entry of its table whose cell a direct object's call uses here."""
    entry = low.tables.entries.get(instance)
    if entry is None:
        raise unsupported(call, f"{instance.decl.name}.{call.method} outside of the actions of the table that names it")
    return entry


def scalars_of(t: types.Type, path: str, node: ast.Node) -> list[tuple[str, int, bool]]:
    """Returns (path, width, signed) of each scalar of a register's element: "" of one that is a scalar, else ".x", ".y.z"."""
    t = types.strip_new(t)
    shape = value_trees.scalar_shape(t)
    if shape is not None:
        return [(path, *shape)]
    if isinstance(t, types.StructType):
        return [s for f in t.fields.values() for s in scalars_of(f.type, f"{path}.{f.name}", node)]
    if isinstance(t, types.TupleType):
        return [s for i, part in enumerate(t.elements) for s in scalars_of(part, f"{path}.f{i}", node)]
    raise unsupported(node, f"a register of {t}")


def named_arguments(call: ast.Call) -> dict[str, ast.Expr]:
    """Returns the arguments that a call gives, by parameter name."""
    return {p.name: a for p, a in zip(call.params, call.args, strict=True) if a is not None}
