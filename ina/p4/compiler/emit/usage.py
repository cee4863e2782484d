"""Storage that the phases of a program use, and what egress takes over from ingress."""

from __future__ import annotations

from ina.p4.compiler import ir, operations
from ina.p4.compiler.arch.v1model_operations import Preserve, Transmit
from ina.p4.compiler.lower import value_trees

Used = dict[ir.Storage, None]


def used_storage(body: list[ir.Stmt], written: bool = True) -> dict[ir.Storage, None]:
    """Returns the variables and arrays that a phase reads or (`written`) writes, and headers in wire order with their
    variables."""
    used: dict[ir.Storage, None] = {}

    def add(e: ir.Expr) -> None:
        if isinstance(e, ir.Var):
            used[e] = None
        elif isinstance(e, ir.Elem):
            used[e.array] = None
            if e.array.region:
                add_region(e.array.region)

    def add_region(region: ir.Region) -> None:
        used[region] = used[region.valid] = None

    for stmt in ir.walk(body):
        for e in ir.reads(stmt):
            for leaf in ir.leaves(e):
                add(leaf)
        for e in ir.writes(stmt):
            if written or isinstance(e, ir.Elem):
                add(e)
        for region in stmt.regions() if isinstance(stmt, ir.Operation) else ():
            add_region(region)
        for header in stmt.headers if isinstance(stmt, operations.Deparse) else ():
            if header.region:
                add_region(header.region)
            else:
                for leaf in value_trees.expressions(header):
                    add(leaf)
    return used


def storage_of(v: ir.Var | ir.Elem) -> ir.Storage:
    return v.array if isinstance(v, ir.Elem) else v


def preserved(module: ir.Module) -> list[ir.Storage]:
    """Returns the storage of the fields that packets take along into their next pass."""
    return list(dict.fromkeys(storage_of(v) for values in module.preserved.values() for v in values))


def carried(module: ir.Module) -> list[ir.Storage]:
    """Returns the storage that egress takes over from ingress: used by both, or passed on by egress, except what egress sets
    first."""
    ingress = used_storage(module.ingress.body)
    fresh: set[ir.Storage] = set()
    for stmt in module.egress.body:
        if not isinstance(stmt, ir.Assign) or not isinstance(stmt.target, ir.Var):
            break
        if any(isinstance(leaf, ir.Var | ir.Elem) for leaf in ir.leaves(stmt.value)):
            break
        fresh.add(stmt.target)
    read = used_storage(module.egress.body, written=False)
    if any(isinstance(s, Preserve | Transmit) and isinstance(s.args[0], ir.Var) for s in module.egress.body):
        for item in preserved(module):  # stored for clones and recirculated packets
            read.setdefault(item)
    return [v for v in read if v in ingress and v not in fresh and not (isinstance(v, ir.Array) and v.region)]


def reads_metadata(module: ir.Module) -> bool:
    """Returns True if egress of v1model never writes the metadata: no header lies there, no fields are preserved."""
    for stmt in ir.walk(module.egress.body):
        written = [target.array.region for target in ir.writes(stmt) if isinstance(target, ir.Elem)]
        if isinstance(stmt, Preserve | Transmit) and isinstance(stmt.args[0], ir.Var):
            return False
        if isinstance(stmt, ir.Operation):
            written += stmt.regions()
        if any(region is not None and region.own_buffer for region in written):
            return False
    return module.architecture == "v1model"
