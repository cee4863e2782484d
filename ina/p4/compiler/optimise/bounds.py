"""Checks a register index once for all accesses that use it, instead of at each access.

Statements that use one index which does not change among them come in two copies: in the first every access is inside, in the
second every read gives 0 and no write has an effect (BMv2's rule), so little of it remains.
"""

from __future__ import annotations

import copy as copies
from collections import Counter as Tally
from collections.abc import Iterator

from ina.p4.compiler import fold, ir

MIN_ACCESSES = 2
Index = tuple[int, object]  # size of the registers, key of the index


def split(module: ir.Module) -> None:
    """Rewrites both phases in place."""
    for phase in (module.ingress, module.egress):
        _block(phase.body)


def _accesses(body: list[ir.Stmt]) -> Iterator[ir.RegRead | ir.RegWrite]:
    for stmt in ir.walk(body):
        if isinstance(stmt, ir.RegRead | ir.RegWrite) and not stmt.inside and not ir.in_range(stmt.register, stmt.index):
            yield stmt


def _index(stmt: ir.RegRead | ir.RegWrite) -> Index:
    return stmt.register.size, ir.key(stmt.index)


def _block(body: list[ir.Stmt]) -> None:
    tried: set[Index] = set()
    while True:
        tally = Tally(_index(access) for access in _accesses(body))
        if not tally:
            return
        index = next((i for i, n in tally.most_common() if n >= MIN_ACCESSES and i not in tried), None)
        if index is None:
            break
        tried.add(index)
        _split_at(body, index)
    for stmt in body:
        for inner in ir.blocks(stmt):
            if not isinstance(stmt, ir.Roll):
                _block(inner)


def _split_at(body: list[ir.Stmt], common: Index) -> None:
    """Splits the statements from the first that uses the index to the last one, if there are several."""
    users = [n for n, stmt in enumerate(body) if any(_index(a) == common for a in _accesses([stmt]))]
    first, last = users[0], users[-1] + 1
    part = body[first:last]
    index = next(a.index for a in _accesses(part) if _index(a) == common)
    if len(users) == 1 or any(isinstance(s, ir.Label) for s in ir.walk(part)) or not _is_fixed(index, part):
        return
    inside = ir.Op("lt", (index, fold.const(common[0], index.width)), 1)
    branch = ir.If(inside, _copy(part, common, True), _copy(part, common, False), likely=True)
    branch.origin = part[0].origin
    body[first:last] = [branch]


def _is_fixed(index: ir.Expr, part: list[ir.Stmt]) -> bool:
    """Returns True if no statement changes a variable of the index."""
    leaves = list(ir.leaves(index))
    if not all(isinstance(leaf, ir.Var | ir.Const) for leaf in leaves):
        return False
    return not any(target in leaves for stmt in ir.walk(part) for target in ir.writes(stmt))


def copied(body: list[ir.Stmt]) -> list[ir.Stmt]:
    """Returns a copy of the statements."""
    return _copy(body, (-1, None), True)


def _copy(body: list[ir.Stmt], index: Index, inside: bool) -> list[ir.Stmt]:
    return [copy for stmt in body for copy in _copied(stmt, index, inside)]


def _copied(stmt: ir.Stmt, index: Index, inside: bool) -> list[ir.Stmt]:
    copy = copies.copy(stmt)
    match copy:
        case ir.RegWrite() if _index(copy) == index and not inside:
            return []
        case ir.RegRead() if _index(copy) == index and not inside:
            zero = ir.Assign(copy.target, fold.const(0, copy.target.width, copy.target.signed))
            zero.origin = copy.origin
            return [zero]
        case ir.RegRead() | ir.RegWrite():
            copy.inside = copy.inside or _index(copy) == index
        case ir.If():
            copy.then, copy.otherwise = _copy(copy.then, index, inside), _copy(copy.otherwise, index, inside)
            return [copy] if copy.then or copy.otherwise else []
        case ir.Switch():
            copy.cases = [(value, _copy(body, index, inside)) for value, body in copy.cases]
            copy.default = _copy(copy.default, index, inside)
        case ir.Roll():
            copy.body = _copy(copy.body, index, inside)
            return [copy] if copy.body else []
    return [copy]
