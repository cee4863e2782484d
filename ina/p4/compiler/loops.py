"""Bounds of loops: known at compile time, or counted at run time against a limit for each packet.

P4 allows loops that depend on the packet; an endless one would stop the switch. So a pass of a packet (ingress, or egress)
makes at most LOOP_LIMIT rounds, in total, of loops without a constant bound; one more and the packet is dropped and counted as
`loop_limit`. `@loop_limit(N)` before the main package sets another number. Compiled programs and the interpreter count the same
rounds:

- `for` with constant bounds counts nothing, as long as its rounds, times those of the loops around it, stay within the limit;
- every other `for` counts its rounds, and so do all loops in it;
- states of a parser count where a cycle leads through them that takes nothing off the packet.
"""

from __future__ import annotations

from collections.abc import Iterator

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.const import fold_binary
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.instances import annotation_constant, walk

LOOP_LIMIT = 10_000
LARGEST_LIMIT = 2**32 - 2  # they are counted in 32 bits


def loop_limit(program: CheckedProgram) -> int:
    """Returns the limit of rounds. Raises CompileError for a `@loop_limit` without a number, and for one out of range."""
    site = program.main.site if program.main is not None else None
    note = site.annotation("loop_limit") if site is not None else None
    if note is None:
        return LOOP_LIMIT
    value = annotation_constant(program, note.exprs[0]) if len(note.exprs) == 1 else None
    if type(value) is not int or not 0 < value <= LARGEST_LIMIT:
        raise CompileError(note.span, f"@loop_limit takes a number of rounds, 1 to {LARGEST_LIMIT}, as in @loop_limit(100000)")
    return value


def within(around: int | None, rounds: int | None, limit: int) -> int | None:
    """Returns the rounds of a loop of `rounds` within loops of `around`. None if either is None or the product exceeds the
    limit: then they are counted at run time."""
    return None if around is None or rounds is None or around * rounds > limit else around * rounds


def known_rounds(loop: ast.ForC | ast.ForIn, limit: int) -> int | None:
    """Returns the most rounds that a loop makes; None if they are not constant, or more than `limit`."""
    rounds = _range_rounds(loop) if isinstance(loop, ast.ForIn) else _counter_rounds(loop, limit)
    return rounds if rounds is not None and rounds <= limit else None


def _range_rounds(loop: ast.ForIn) -> int | None:
    """Returns the rounds of `for (x in low .. high)`; 1 for a loop over a list, which is unrolled. None: not constant."""
    if not isinstance(loop.collection, ast.Range):
        return 1
    low, high = loop.collection.lo.const, loop.collection.hi.const
    return max(0, high - low + 1) if isinstance(low, int) and isinstance(high, int) else None


def _counter_rounds(loop: ast.ForC, limit: int) -> int | None:
    """Returns the rounds of loops like `for (bit<8> i = 0; i < 10; i = i + 1)` whose body does not write `i`. None: not
    constant."""
    if len(loop.init) != 1 or len(loop.update) != 1 or not isinstance(loop.init[0], ast.VarDecl):
        return None
    counter, update, test = loop.init[0], loop.update[0], loop.condition
    t = types.underlying(counter.type)
    if counter.init is None or not isinstance(counter.init.const, int) or not isinstance(t, types.BitType):
        return None
    if not isinstance(test, ast.Binary) or test.op not in ("<", "<=", ">", ">=", "!=") or not _names(test.left, counter):
        return None
    step = _step(update, counter)
    if step is None or not isinstance(test.right.const, int) or counter in _written(loop.body):
        return None
    op, by = step
    value, rounds = counter.init.const, 0
    while rounds <= limit and fold_binary(test.op, value, test.right.const, t):
        value, rounds = fold_binary(op, value, by, t), rounds + 1
    return rounds


def _step(update: ast.Node, counter: ast.VarDecl) -> tuple[str, int] | None:
    """Returns (operator, constant) of `i = i + 1` and `i += 1`, else None."""
    if not isinstance(update, ast.Assign) or not _names(update.target, counter):
        return None
    op, by = update.op, update.value
    if op == "=":
        if not isinstance(by, ast.Binary) or not _names(by.left, counter):
            return None
        op, by = by.op, by.right
    return (op, by.const) if op in ("+", "-", "|+|", "|-|") and isinstance(by.const, int) else None


def _names(e: ast.Expr, decl: ast.Node) -> bool:
    return isinstance(e, ast.Name) and e.decl is decl


def _written(body: ast.Node) -> set[ast.Node]:
    """Returns the variables that a statement may write, by declaration."""
    declarations: set[ast.Node] = set()
    for target in _targets(body):
        while isinstance(target, ast.Member | ast.Index | ast.Slice | ast.Cast):
            target = target.operand if isinstance(target, ast.Cast) else target.base
        if isinstance(target, ast.Name) and isinstance(target.decl, ast.Node):
            declarations.add(target.decl)
    return declarations


def _targets(node: ast.Node) -> Iterator[ast.Expr]:
    for inner in walk(node):
        if isinstance(inner, ast.Assign):
            yield inner.target
        elif isinstance(inner, ast.Call):
            outputs = (arg for p, arg in zip(inner.params, inner.args, strict=True) if p.direction in ("out", "inout"))
            yield from (arg for arg in outputs if arg is not None)


def endless_states(parser: ast.ParserDecl) -> set[ast.ParserState]:
    """Returns the states on a cycle of states of which none is certain to take anything off the packet."""
    idle = {s for s in parser.states.values() if not any(_takes(statement) for statement in s.statements)}
    following = {s: [t for t in _targets_of(s) if t in idle] for s in idle}
    return {s for s in idle if s in _reached(following, s)}


def _targets_of(state: ast.ParserState) -> list[ast.ParserState]:
    branches = state.transition.branches if state.transition is not None else ()
    return [branch.target for branch in branches if branch.target is not None]


def _reached(following: dict[ast.ParserState, list[ast.ParserState]], start: ast.ParserState) -> set[ast.ParserState]:
    """Returns the states that can follow `start`; `start` itself only if it is on a cycle."""
    states: set[ast.ParserState] = set()
    waiting = list(following[start])
    while waiting:
        state = waiting.pop()
        if state not in states:
            states.add(state)
            waiting += following[state]
    return states


def _takes(statement: ast.Node) -> bool:
    """Returns True if a statement advances the parser by at least a byte, or ends it."""
    if not isinstance(statement, ast.CallStatement) or statement.call.kind != "packet_in":
        return False
    call = statement.call
    if call.method == "advance":
        return bool(call.given(0).const)
    if call.method != "extract":
        return False
    width = types.fixed_width(call.params[0].type)
    return width is not None and width > 0
