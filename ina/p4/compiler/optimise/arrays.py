"""Turns variables that a program numbers itself (t0, t1, ... t255) into elements of one array, so that sweeps over them are
loops.

`roll` finds the candidates: variables at the same place in statements of one shape. An array is storage like any other, so it
only has to be checked that all uses of a variable can be elements.
"""

from __future__ import annotations

from ina.p4.compiler import ir
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.operations import Deparse

MIN_ELEMENTS = 8
WIDTHS = (8, 16, 32, 64)


def make_arrays(module: ir.Module, candidates: list[list[ir.Var]]) -> bool:
    """Turns `candidates`, lists of variables in the order of the elements, into arrays where possible. Returns True if it did
    any."""
    if not candidates:
        return False
    fixed = _fixed(module)
    elements: dict[ir.Expr, ir.Elem] = {}
    for variables in candidates:
        first = variables[0]
        if len(variables) < MIN_ELEMENTS or first.width not in WIDTHS or len(set(variables)) < len(variables):
            continue
        if any(v in fixed or v in elements or (v.width, v.signed) != (first.width, first.signed) for v in variables):
            continue
        array = ir.Array(first.name, first.width, len(variables), first.signed)
        elements |= {v: ir.Elem(array, i) for i, v in enumerate(variables)}
    if elements:
        for phase in (module.ingress, module.egress):
            for stmt in ir.walk(phase.body):
                _rewrite(stmt, elements)
    return bool(elements)


def _fixed(module: ir.Module) -> set[object]:
    """Returns the variables that cannot be elements: used by both phases, or by something else than an expression."""
    fixed: set[object] = {region.valid for region in module.regions}
    fixed |= {v for values in module.preserved.values() for v in values}
    fixed |= {f.var for digest in module.digests for f in digest.fields}
    used_by_phase: list[set[object]] = []
    for phase in (module.ingress, module.egress):
        used: set[object] = set()
        for stmt in ir.walk(phase.body):
            here = {leaf for e in (*ir.reads(stmt), *ir.writes(stmt)) for leaf in ir.leaves(e)}
            used |= here
            if isinstance(stmt, ir.Operation):
                fixed |= here
                if isinstance(stmt, Deparse):
                    fixed |= {part for h in stmt.headers for leaf in value_trees.expressions(h) for part in ir.leaves(leaf)}
            elif isinstance(stmt, ir.Lookup):
                fixed |= {v for v in (stmt.hit, stmt.action, stmt.color, stmt.selector)}
            elif isinstance(stmt, ir.Roll):  # may sum up in a variable, which memory would make slow and `ivdep` wrong
                fixed |= {x for s in ir.walk(stmt.body) for e in (*ir.reads(s), *ir.writes(s)) for x in ir.leaves(e)}
        used_by_phase.append(used)
    return fixed | used_by_phase[0] & used_by_phase[1]


def _rewrite(stmt: ir.Stmt, elements: dict[ir.Expr, ir.Elem]) -> None:
    match stmt:
        case ir.Assign():
            stmt.target, stmt.value = _place(stmt.target, elements), _expr(stmt.value, elements)
        case ir.RegRead():
            stmt.target, stmt.index = _place(stmt.target, elements), _expr(stmt.index, elements)
        case ir.RegWrite():
            stmt.index, stmt.value = _expr(stmt.index, elements), _expr(stmt.value, elements)
        case ir.If():
            stmt.condition = _expr(stmt.condition, elements)
        case ir.Switch():
            stmt.subject = _expr(stmt.subject, elements)
        case ir.Lookup():
            stmt.keys = [_expr(k, elements) for k in stmt.keys]


def _place(v: ir.Var | ir.Elem, elements: dict[ir.Expr, ir.Elem]) -> ir.Var | ir.Elem:
    return elements.get(v, v)


def _expr(e: ir.Expr, elements: dict[ir.Expr, ir.Elem]) -> ir.Expr:
    match e:
        case ir.Var():
            return elements.get(e, e)
        case ir.Op():
            args = tuple(_expr(a, elements) for a in e.args)
            return ir.Op(e.op, args, e.width, e.signed) if any(a is not b for a, b in zip(args, e.args, strict=True)) else e
        case ir.Wire():
            return ir.Wire(_expr(e.pos, elements), e.bit, e.width, e.signed)
    return e
