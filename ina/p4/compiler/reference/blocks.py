"""Parsers, controls and tables of the reference interpreter (P4_16 v1.2.5 §13, §14), and copy-in and copy-out (§6.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.expressions import evaluate, evaluate_number, place_or_nowhere
from ina.p4.compiler.reference.machine import ApplyResult, Frame
from ina.p4.compiler.reference.signals import ExitSignal, ParserError
from ina.p4.compiler.reference.statements import declare_variables, execute, run_body
from ina.p4.compiler.reference.values import Aggregate, TupleValue, Value, copy, default_value, equal
from ina.p4.compiler.types import TupleType, Type, fixed_width

NO_TYPE = TupleType(())  # the type of several keys that are matched as one


def invoke(
    params: Sequence[ast.Param],
    types: Sequence[Type],
    args: Sequence[ast.Expr | None],
    caller: Frame,
    callee: Frame,
    body: Callable[[], Value],
    order: Iterable[int] | None = None,
) -> Value:
    """Copies arguments in, runs `body`, and copies results out, both left to right (§6.7).

    `order`: the order in which the arguments are written, if it is not that of the parameters. Copy-out also happens when
    `exit` (§12.5) or a parser error ends the callee.
    """
    results = []
    for i in range(len(params)) if order is None else order:
        param, t, arg = params[i], types[i], args[i]
        if param.direction in ("out", "inout"):
            place = place_or_nowhere(arg, t, caller)
            results.append((place, param))
            callee.vars[param] = default_value(t) if param.direction == "out" else copy(place.get())
        else:
            callee.vars[param] = copy(evaluate(arg, caller)) if arg is not None else default_value(t)
    try:
        return body()
    finally:
        for place, param in results:
            place.set(callee.vars[param])
            caller.machine.copied_out(callee.vars, param, place)


# --- parsers ----------------------------------------------------------------------------------------------------------


def run_parser(instance: Instance, frame: Frame) -> None:
    """Runs from `start` to `accept`; raises ParserError on `reject` (§13.3-§13.6).

    An explicit transition to `reject` leaves the error at NoError.
    """
    loops, observer = frame.machine.loops, frame.machine.observer
    parser: ast.ParserDecl = instance.decl
    declare_variables(parser.locals, frame)
    state: ast.ParserState | None = parser.states["start"]
    name = "reject"
    while state is not None:
        observer.parser_state(instance, state.name)
        with loops.state(parser, state):
            for statement in state.statements:
                execute(statement, frame)
            state, name = _next_state(state, frame)
    observer.parser_state(instance, name)
    if name != "accept":
        raise ParserError("NoError")


def _next_state(state: ast.ParserState, frame: Frame) -> tuple[ast.ParserState | None, str]:
    transition = state.transition
    if transition is None:
        return None, "reject"
    if transition.target_name is not None:
        return transition.target, transition.target_name
    values = [copy(evaluate(key, frame)) for key in transition.keys]
    for case in transition.cases:  # §13.6: the first case that matches
        if _matches(case.keys, values, frame):
            return case.target, case.target_name
    raise ParserError("NoMatch")


def _matches(keys: list[ast.Expr], values: list[Value], frame: Frame) -> bool:
    if len(keys) == 1 and len(values) > 1:  # one set over all keys: a value set of tuples or structs
        return _in_set(keys[0], TupleValue(NO_TYPE, values), frame)
    return all(_in_set(key, value, frame) for key, value in zip(keys, values, strict=True))


def _in_set(key: ast.Expr, value: Value, frame: Frame) -> bool:
    """Returns True if `value` is in the set that `key` denotes (§8.16)."""
    match key:
        case ast.DontCare():
            return True
        case ast.Mask() if isinstance(value, int):
            mask = evaluate_number(key.mask, frame)
            return evaluate_number(key.value, frame) & mask == value & mask
        case ast.Range() if isinstance(value, int):
            return evaluate_number(key.lo, frame) <= value <= evaluate_number(key.hi, frame)
        case ast.Name(decl=ast.ValueSetDecl()):
            return frame.machine.value_sets[frame.instance, key.decl].contains(value)
        case ast.ListExpr() if isinstance(value, Aggregate) and key.const is None:
            return all(_in_set(k, v, frame) for k, v in zip(key.values or key.items, value.parts(), strict=True))
    return equal(evaluate(key, frame), value)


# --- controls and tables ----------------------------------------------------------------------------------------------


def run(instance: Instance, frame: Frame) -> None:
    """Runs a parser, or a control: initialises the locals, then runs the apply block (§14)."""
    if isinstance(instance.decl, ast.ParserDecl):
        run_parser(instance, frame)
    else:
        declare_variables(instance.decl.locals, frame)
        run_body(instance.decl.body, frame)


def run_block(instance: Instance, frame: Frame) -> None:
    """Runs a parser or control of the architecture, with its arguments in `frame`. `exit` ends it (§12.5)."""
    try:
        run(instance, frame)
    except ExitSignal:
        return


def apply_table(decl: ast.TableDecl, frame: Frame) -> ApplyResult:
    """Evaluates the keys, looks up, and runs the entry's action or else the default one (§14.2.3)."""
    machine, control = frame.machine, frame.outer or frame
    table = machine.tables[control.instance, decl]
    values = [copy(evaluate(key.expr, frame)) for key in decl.keys]
    action, entry = table.lookup(values)
    machine.observer.table_applied(table, values, action, entry)
    machine.table_applied(table, entry)
    callee = frame.inner()
    ref = action.ref
    runtime = iter(action.args)
    args = [
        _constant(p, next(runtime)) if e is None else e
        for p, e in zip(ref.decl.params, ref.args or [None] * len(ref.decl.params), strict=True)
    ]
    types = [p.type for p in ref.params]
    invoke(ref.decl.params, types, args, frame, callee, lambda: run_body(ref.decl.body, callee))
    return ApplyResult(entry is not None, ref.decl)


def _constant(param: ast.Param, value: Value) -> ast.Expr:
    """Returns a control-plane argument as an expression."""
    literal = ast.IntLiteral(param.span, 0, fixed_width(param.type))
    literal.type, literal.const = param.type, value
    return literal
