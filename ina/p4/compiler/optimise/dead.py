"""Drops assignments to variables that nothing reads, and branches that became empty.

The C compiler would drop them too; here they would make the C text harder to read. Lookups, externs
and writes to headers and registers stay.
"""

from __future__ import annotations

from ina.p4.compiler import ir
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.operations import Deparse


def drop_dead(module: ir.Module) -> None:
    """Rewrites both phases in place, until nothing changes."""
    while True:
        read = _read(module)
        if not any([_clean(phase.body, read) for phase in (module.ingress, module.egress)]):
            return


def _read(module: ir.Module) -> set[ir.Expr]:
    """Returns the variables that something may read."""
    read: set[ir.Expr] = {region.valid for region in module.regions}

    def add(e: ir.Expr) -> None:
        read.update(leaf for leaf in ir.leaves(e) if isinstance(leaf, ir.Var))

    for phase in (module.ingress, module.egress):
        for stmt in ir.walk(phase.body):
            for e in ir.reads(stmt):
                add(e)
            if isinstance(stmt, Deparse):
                for header in stmt.headers:
                    for leaf in value_trees.expressions(header):
                        add(leaf)
    for values in module.preserved.values():
        for v in values:
            add(v)
    for digest in module.digests:
        for f in digest.fields:
            add(f.var)
    return read


def _clean(body: list[ir.Stmt], read: set[ir.Expr]) -> bool:
    """Drops dead statements; returns True if there were any."""
    before = len(body)
    body[:] = [s for s in body if not _is_dead(s, read)]
    changed = len(body) != before
    for stmt in body:
        for inner in ir.blocks(stmt):
            changed |= _clean(inner, read)
    return changed


def _is_dead(stmt: ir.Stmt, read: set[ir.Expr]) -> bool:
    match stmt:
        case ir.Assign() | ir.RegRead():
            return isinstance(stmt.target, ir.Var) and (stmt.target not in read or _is_itself(stmt))
        case ir.If():
            return not stmt.then and not stmt.otherwise
    return False


def _is_itself(stmt: ir.Stmt) -> bool:
    """Returns True for x = x."""
    return isinstance(stmt, ir.Assign) and stmt.value is stmt.target
