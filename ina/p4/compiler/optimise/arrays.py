"""Variables that a program numbers itself (t0, t1, ... t255) become elements of one array, so that sweeps over them are loops.

`optimise_roll` says which ones: those that took each other's place in statements of one shape. An array is storage like any
other, so nothing has to be shown but that all uses of a variable can be elements.
"""

from __future__ import annotations

from ina.p4.compiler import ir
from ina.p4.compiler.lower import value_trees

MIN_ELEMENTS = 8
WIDTHS = (8, 16, 32, 64)


def make_arrays(module: ir.Module, wishes: list[list[ir.Var]]) -> bool:
    """Turns what it can of `wishes`, lists of variables in the order of the elements, into arrays. Whether it did any."""
    if not wishes:
        return False
    fixed = _fixed(module)
    made: dict[int, ir.Elem] = {}
    for variables in wishes:
        first = variables[0]
        if len(variables) < MIN_ELEMENTS or first.width not in WIDTHS or len({id(v) for v in variables}) < len(variables):
            continue
        if any(id(v) in fixed or id(v) in made or (v.width, v.signed) != (first.width, first.signed) for v in variables):
            continue
        array = ir.Array(first.name, first.width, len(variables), first.signed)
        made |= {id(v): ir.Elem(array, i) for i, v in enumerate(variables)}
    if made:
        for phase in (module.ingress, module.egress):
            for stmt in ir.walk(phase.body):
                _rewrite(stmt, made)
    return bool(made)


def _fixed(module: ir.Module) -> set[int]:
    """Ids of variables that must stay what they are: both phases know them, or something else than an expression does."""
    fixed = {id(region.valid) for region in module.regions}
    fixed |= {id(v) for values in module.preserved.values() for v in values}
    fixed |= {id(f["var"]) for digest in module.digests for f in digest["fields"]}
    seen: list[set[int]] = []
    for phase in (module.ingress, module.egress):
        used: set[int] = set()
        for stmt in ir.walk(phase.body):
            found = {id(leaf) for e in (*ir.reads(stmt), *ir.writes(stmt)) for leaf in ir.leaves(e)}
            used |= found
            if isinstance(stmt, ir.Extern):
                fixed |= found
                if stmt.op == "deparse":
                    fixed |= {id(part) for h, _ in stmt.data for leaf in value_trees.leaves(h) for part in ir.leaves(leaf)}
            elif isinstance(stmt, ir.Lookup):
                fixed |= {id(v) for v in (stmt.hit, stmt.action, stmt.color, stmt.selector)}
            elif isinstance(stmt, ir.Roll):  # may sum up in a variable, which memory would make slow and `ivdep` wrong
                fixed |= {id(x) for s in ir.walk(stmt.body) for e in (*ir.reads(s), *ir.writes(s)) for x in ir.leaves(e)}
        seen.append(used)
    return fixed | seen[0] & seen[1]


def _rewrite(stmt: ir.Stmt, made: dict[int, ir.Elem]) -> None:
    match stmt:
        case ir.Assign():
            stmt.target, stmt.value = _place(stmt.target, made), _expr(stmt.value, made)
        case ir.RegRead():
            stmt.target, stmt.index = _place(stmt.target, made), _expr(stmt.index, made)
        case ir.RegWrite():
            stmt.index, stmt.value = _expr(stmt.index, made), _expr(stmt.value, made)
        case ir.If():
            stmt.condition = _expr(stmt.condition, made)
        case ir.Switch():
            stmt.subject = _expr(stmt.subject, made)
        case ir.Lookup():
            stmt.keys = [_expr(k, made) for k in stmt.keys]


def _place(v: ir.Var | ir.Elem, made: dict[int, ir.Elem]) -> ir.Var | ir.Elem:
    return made.get(id(v), v)


def _expr(e: ir.Expr, made: dict[int, ir.Elem]) -> ir.Expr:
    match e:
        case ir.Var():
            return made.get(id(e), e)
        case ir.Op():
            args = tuple(_expr(a, made) for a in e.args)
            return ir.Op(e.op, args, e.width, e.signed) if any(a is not b for a, b in zip(args, e.args, strict=True)) else e
        case ir.Wire():
            return ir.Wire(_expr(e.pos, made), e.bit, e.width, e.signed)
    return e
