"""Passes over the IR before emission. The C compiler does what it is good at; these do what it cannot see.

`propagate` makes equal index expressions look equal; `optimise_dead` drops what is then unused; `optimise_decisions` has equal
constant tables decide once; `optimise_rows` fuses
registers; `optimise_roll` turns runs into loops, for which `optimise_arrays` puts variables side by side;
`optimise_bounds` looks at an index once for many accesses; `optimise_usual` has ingress once more without what is unlikely.
"""

from __future__ import annotations

from ina.p4.compiler import ir, layout
from ina.p4.compiler.optimise.arrays import make_arrays
from ina.p4.compiler.optimise.bounds import split
from ina.p4.compiler.optimise.dead import drop_dead
from ina.p4.compiler.optimise.decisions import decide_once
from ina.p4.compiler.optimise.fast_path import hinted, usual
from ina.p4.compiler.optimise.propagate import propagate
from ina.p4.compiler.optimise.roll import roll
from ina.p4.compiler.optimise.rows import groups


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
    rows = groups(module)
    layout.place_state(module, rows, set())
    while make_arrays(module, roll(module)):
        pass
    # Now it is known which registers loops run over: those move to the end of the row, onto a cache line.
    layout.place_state(module, rows, bulk_registers(module))
    wanted = module.architecture == "v1model" and hinted(module.ingress)
    split(module)
    if wanted:
        module.ingress.usual = usual(module.ingress)
        drop_unused_labels(module.ingress.usual or [])


def bulk_registers(module: ir.Module) -> set[int]:
    """Ids of the registers that rolled loops run over."""
    by_group: dict[int, list[ir.Register]] = {}
    for register in module.registers:
        by_group.setdefault(register.group, []).append(register)
    found: set[int] = set()
    for phase in (module.ingress, module.egress):
        for loop in ir.walk(phase.body):
            if not isinstance(loop, ir.Roll):
                continue
            for stmt in ir.walk(loop.body):
                if isinstance(stmt, ir.RegRead | ir.RegWrite) and stmt.step:
                    ends = stmt.register.offset, stmt.register.offset + stmt.step * (loop.count - 1)
                    found |= {id(r) for r in by_group[stmt.register.group] if min(ends) <= r.offset <= max(ends)}
    return found


def drop_unused_labels(body: list[ir.Stmt]) -> None:
    """Labels end what is known about variables, so none stays without need."""
    wanted = {stmt.label for stmt in ir.walk(body) if isinstance(stmt, ir.Goto)}

    def clean(block: list[ir.Stmt]) -> None:
        block[:] = [s for s in block if not isinstance(s, ir.Label) or s.label in wanted]
        for stmt in block:
            for inner in ir.blocks(stmt):
                clean(inner)

    clean(body)
