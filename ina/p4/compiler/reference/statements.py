"""Statements of the reference interpreter (P4_16 v1.2.5 §12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ina.p4.compiler import ast
from ina.p4.compiler.reference.expressions import evaluate, evaluate_number, operate, place
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.signals import BreakSignal, ContinueSignal, ExitSignal, InterpreterError, ReturnSignal
from ina.p4.compiler.reference.values import Aggregate, Value, copy, default_value, equal
from ina.p4.compiler.types import ActionRunType


def execute(s: ast.Node, frame: Frame) -> None:
    executor = EXECUTORS.get(type(s))
    if executor is None:
        raise InterpreterError(s, f"{type(s).__name__} is no statement")
    executor(s, frame)


def run_body(body: ast.Block, frame: Frame) -> Value:
    """Runs the body of an action, function or control; returns what it returns."""
    try:
        execute(body, frame)
    except ReturnSignal as signal:
        return signal.value
    return None


def declare_variables(nodes: list[ast.Node], frame: Frame) -> None:
    """Declares the variables among the locals of a parser or control."""
    for node in nodes:
        if isinstance(node, ast.VarDecl):
            execute(node, frame)


def _block(s: ast.Block, frame: Frame) -> None:
    for statement in s.statements:
        execute(statement, frame)


def _declare(s: ast.VarDecl, frame: Frame) -> None:
    """Declares a variable (§11.2): without an initialiser it has the default value."""
    frame.vars[s] = default_value(s.type) if s.init is None else copy(evaluate(s.init, frame))


def _nothing(s: ast.Node, frame: Frame) -> None:
    """Does nothing: the checker has dealt with these."""


def _call(s: ast.CallStatement, frame: Frame) -> None:
    evaluate(s.call, frame)


def _assign(s: ast.Assign, frame: Frame) -> None:
    """Assigns (§12.1): the target is evaluated before the value."""
    target = place(s.target, frame)
    old = target.get() if s.op != "=" else None
    value = evaluate(s.value, frame)
    if s.op != "=":
        value = operate(s.op, old, value, s.target.type, s.target.type, s.value.type)
    target.set(copy(value))


def _if(s: ast.If, frame: Frame) -> None:
    if evaluate(s.condition, frame):
        execute(s.then, frame)
    elif s.otherwise is not None:
        execute(s.otherwise, frame)


def _return(s: ast.Return, frame: Frame) -> None:
    raise ReturnSignal(None if s.value is None else copy(evaluate(s.value, frame)))


def _leave(s: ast.Exit | ast.Break | ast.Continue, frame: Frame) -> None:
    raise {ast.Exit: ExitSignal, ast.Break: BreakSignal, ast.Continue: ContinueSignal}[type(s)]


def _switch(s: ast.Switch, frame: Frame) -> None:
    """Runs the first label that matches, or `default` if none does; a label without a block falls through (§12.7)."""
    subject = evaluate(s.subject, frame)
    by_action = isinstance(s.subject.type, ActionRunType)
    index = None
    for i, case in enumerate(s.cases):
        if case.label is None or isinstance(case.label, ast.DontCare):
            index = i if index is None else index
            continue
        if by_action:
            matches = case.action is not None and case.action.decl is subject
        else:
            matches = equal(evaluate(case.label, frame), subject)
        if matches:
            index = i
            break
    if index is not None:
        body = next((case.body for case in s.cases[index:] if case.body is not None), None)
        if body is not None:
            execute(body, frame)


def _for(s: ast.ForC, frame: Frame) -> None:
    """Runs a `for` loop with a condition (§12.8)."""
    for node in s.init:
        execute(node, frame)
    while evaluate(s.condition, frame) and _counted_round(s, frame):
        for statement in s.update:
            execute(statement, frame)


def _for_in(s: ast.ForIn, frame: Frame) -> None:
    """Runs a `for` loop over a collection, which is evaluated once (§12.8)."""
    for item in _items(s.collection, frame):
        frame.vars[s.target] = copy(item)
        if not (_counted_round(s, frame) if isinstance(s.collection, ast.Range) else _round(s.body, frame)):
            break


def _counted_round(s: ast.ForC | ast.ForIn, frame: Frame) -> bool:
    """Runs one round of a loop that is not unrolled (loops.py); returns False after `break`."""
    with frame.machine.loops.round(s):
        return _round(s.body, frame)


def _round(body: ast.Statement, frame: Frame) -> bool:
    """Runs the body once; returns False after `break`."""
    try:
        execute(body, frame)
    except ContinueSignal:
        return True
    except BreakSignal:
        return False
    return True


def _items(collection: ast.Expr, frame: Frame) -> Iterable[Value]:
    if isinstance(collection, ast.Range):
        return range(evaluate_number(collection.lo, frame), evaluate_number(collection.hi, frame) + 1)
    value = copy(evaluate(collection, frame))
    assert isinstance(value, Aggregate | list)
    return value.parts() if isinstance(value, Aggregate) else value


EXECUTORS: dict[type[ast.Node], Callable[..., None]] = {
    ast.Block: _block,
    ast.VarDecl: _declare,
    ast.EmptyStatement: _nothing,
    ast.ConstDecl: _nothing,
    ast.Instantiation: _nothing,
    ast.CallStatement: _call,
    ast.Assign: _assign,
    ast.If: _if,
    ast.Return: _return,
    ast.Exit: _leave,
    ast.Break: _leave,
    ast.Continue: _leave,
    ast.Switch: _switch,
    ast.ForC: _for,
    ast.ForIn: _for_in,
}
"""The function that executes each class of statement."""
