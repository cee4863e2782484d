"""Passes over the IR before emission. The C compiler does what it is good at; these do what it cannot see.

`propagate` makes equal index expressions look equal, and drops what is then unused; `decisions` lets equal constant tables decide
once; `layout` fuses registers; `roll` turns runs into loops, for which it puts variables side by side in arrays; `bounds` checks
an index once for many accesses; `fast_path` adds a version of ingress without unlikely branches.
"""

from __future__ import annotations

from ina.p4.compiler import ir, layout
from ina.p4.compiler.optimise.bounds import split
from ina.p4.compiler.optimise.decisions import decide_once
from ina.p4.compiler.optimise.fast_path import fast_path, hinted
from ina.p4.compiler.optimise.propagate import drop_dead, propagate
from ina.p4.compiler.optimise.roll import make_arrays, roll


def optimise(module: ir.Module) -> None:
    """Rewrites the module in place and places its registers in memory."""
    for phase in (module.ingress, module.egress):
        drop_unused_labels(phase.body)
        propagate(phase.body)
    drop_dead(module)
    for phase in (module.ingress, module.egress):
        if decide_once(phase.body):
            propagate(phase.body)
            drop_dead(module)
    rows = layout.groups(module)
    layout.place_state(module, rows, set())
    while make_arrays(module, roll(module)):
        pass
    # Only now are the registers known that loops run over: those move to the end of the row, onto a cache line.
    layout.place_state(module, rows, bulk_registers(module))
    has_fast_path = module.architecture == "v1model" and hinted(module.ingress)
    split(module)
    if has_fast_path:
        module.ingress.fast_path = fast_path(module.ingress)
        drop_unused_labels(module.ingress.fast_path or [])


def bulk_registers(module: ir.Module) -> set[ir.Register]:
    """Returns the registers that rolled loops run over."""
    by_group: dict[int, list[ir.Register]] = {}
    for register in module.registers:
        by_group.setdefault(register.group, []).append(register)
    registers: set[ir.Register] = set()
    for loop in (s for s in module.statements() if isinstance(s, ir.Roll)):
        for stmt in ir.walk(loop.body):
            if isinstance(stmt, ir.RegRead | ir.RegWrite) and stmt.step:
                ends = stmt.register.offset, stmt.register.offset + stmt.step * (loop.count - 1)
                registers |= {r for r in by_group[stmt.register.group] if min(ends) <= r.offset <= max(ends)}
    return registers


def drop_unused_labels(body: list[ir.Stmt]) -> None:
    """Drops labels without jumps to them, since facts about variables end at labels."""
    targets = {stmt.label for stmt in ir.walk(body) if isinstance(stmt, ir.Goto)}
    ir.drop(body, lambda stmt: isinstance(stmt, ir.Label) and stmt.label not in targets)
