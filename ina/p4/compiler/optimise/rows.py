"""Groups registers that share a row.

Cell i of every register in a group lies in row i, so the layout is right whatever the program does; it is fast when
one packet touches the same row of all of them. Registers go together when they have one size and are most often
indexed by one expression.
"""

from __future__ import annotations

from collections import Counter as Tally

from ina.p4.compiler import ir


def key(e: ir.Expr) -> object:
    """Returns a key that is equal for expressions of equal text."""
    match e:
        case ir.Const():
            return e.value
        case ir.Elem():
            return (e.array, e.index)
        case ir.Op():
            return (e.op, e.width, *(key(a) for a in e.args))
        case ir.Native():
            return e.text
        case ir.Wire():
            return (key(e.pos), e.bit, e.width)
    return e


def groups(module: ir.Module) -> list[list[ir.Register]]:
    """Returns all registers, in groups; within one in order of first use, which is how loops will run over them."""
    used: dict[ir.Register, Tally[object]] = {}
    first: dict[ir.Register, int] = {}
    for phase in (module.ingress, module.egress):
        for stmt in ir.walk(phase.body):
            if isinstance(stmt, ir.RegRead | ir.RegWrite):
                used.setdefault(stmt.register, Tally())[key(stmt.index)] += 1
                first.setdefault(stmt.register, len(first))
    by_key: dict[object, list[ir.Register]] = {}
    # Registers of pairs: all first words, then all second ones.
    for register in sorted(module.registers, key=lambda r: (r.part, first.get(r, len(first)))):
        tally = used.get(register)
        # One of several indices, if it is a constant or a variable, means a scalar or an array with a life of its own.
        index = tally.most_common(1)[0][0] if tally else None
        alone = tally is None or index is None or isinstance(index, int | ir.Expr) and register.size > 1 and len(tally) > 1
        by_key.setdefault(register if alone else (register.size, index), []).append(register)
    return list(by_key.values())
