"""Lets tables with the same constant entries and the same keys decide once: the first one's decision serves the others.

A constant table is an if-chain that gives its action variable a constant. Programs that treat each value of a packet in a
control of its own have one such chain for each; the statements that remain are runs that `roll` turns into loops.
"""

from __future__ import annotations

from dataclasses import dataclass

from ina.p4.compiler import ir


@dataclass(slots=True)
class Decision:
    variable: ir.Var
    read: set[ir.Expr]  # the variables that it depends on, itself included
    block: list[ir.Stmt]
    at: ir.Stmt  # the first of its two statements
    served: bool = False


def decide_once(body: list[ir.Stmt]) -> bool:
    """Rewrites the statements of a phase in place. Returns True if a decision served another place."""
    return _block(body, {})


def _block(body: list[ir.Stmt], decisions: dict[object, Decision]) -> bool:
    changed = False
    mine: list[Decision] = []
    i = 0
    while i < len(body):
        stmt = body[i]
        candidate = _decision(body, i)
        if candidate is not None:
            identity, variable, read = candidate
            earlier = decisions.get(identity)
            _forget(decisions, {variable})
            if earlier is not None and earlier.variable is not variable:
                copy = ir.Assign(variable, earlier.variable)
                copy.origin = stmt.origin
                body[i : i + 2] = [copy]
                earlier.served = changed = True
                i += 1
                continue
            decisions[identity] = decision = Decision(variable, read, body, stmt)
            mine.append(decision)
            i += 2
            continue
        for inner in ir.blocks(stmt):
            changed |= _block(inner, dict(decisions))
        if decisions and any(isinstance(s, ir.Label) for s in ir.walk([stmt])):
            decisions.clear()
        if decisions:
            _forget(decisions, {t for s in ir.walk([stmt]) for t in ir.writes(s)})
        i += 1
    for decision in mine:
        if decision.served:
            _hoist(decision)
    return changed


def _forget(decisions: dict[object, Decision], written: set[ir.Expr]) -> None:
    for identity in [w for w, d in decisions.items() if d.read & written]:
        del decisions[identity]


def _decision(body: list[ir.Stmt], i: int) -> tuple[object, ir.Var, set[ir.Expr]] | None:
    """Returns (identity, variable, variables that it depends on) of a default and an if-chain at body[i], body[i + 1]."""
    first = body[i]
    if not isinstance(first, ir.Assign) or not isinstance(first.target, ir.Var) or not isinstance(first.value, ir.Const):
        return None
    second = body[i + 1] if i + 1 < len(body) else None
    if not isinstance(second, ir.If):
        return None
    read: set[ir.Expr] = {first.target}
    chain = _chain(second, first.target, read)
    return None if chain is None else ((first.value.value, chain), first.target, read)


def _chain(stmt: ir.If, variable: ir.Var, read: set[ir.Expr]) -> object:
    for leaf in ir.leaves(stmt.condition):
        if leaf is variable or not isinstance(leaf, ir.Var | ir.Const):
            return None
        read.add(leaf)
    parts: list[object] = [ir.key(stmt.condition)]
    for block in (stmt.then, stmt.otherwise):
        match block:
            case []:
                parts.append(None)
            case [ir.Assign(target=target, value=ir.Const() as value)] if target is variable:
                parts.append(value.value)
            case [ir.If() as inner]:
                nested = _chain(inner, variable, read)
                if nested is None:
                    return None
                parts.append(nested)
            case _:
                return None
    return tuple(parts)


def _hoist(decision: Decision) -> None:
    """Moves a decision before assignments that it does not depend on, so that its surroundings look like those of the places it
    serves."""
    body = decision.block
    at = next(i for i, stmt in enumerate(body) if stmt is decision.at)
    to = at
    while to:
        before = body[to - 1]
        if not isinstance(before, ir.Assign):
            break
        touched = {leaf for leaf in ir.leaves(before.value)}
        if before.target in decision.read or decision.variable in touched:
            break
        to -= 1
    body[to : at + 2] = [*body[at : at + 2], *body[to:at]]
