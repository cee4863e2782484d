"""Statements of the reference interpreter (P4_16 v1.2.5 §12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ina.p4.compiler import ast
from ina.p4.compiler.reference.expressions import evaluate, evaluate_number, operate, place
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.signals import BreakSignal, ContinueSignal, ExitSignal, InterpreterError, ReturnSignal
from ina.p4.compiler.reference.values import Aggregate, Value, copy, default_value, equal
from ina.p4.compiler.types import ActionRunType

N = TypeVar("N", bound=ast.Node)
EXECUTORS: dict[type[ast.Node], Callable[..., None]] = {}
"""The function that executes each class of statement."""


def executes(*kinds: type[N]) -> Callable[[Callable[[N, Frame], None]], Callable[[N, Frame], None]]:
    """Makes a function the executor of a class of statements."""

    def register(function: Callable[[N, Frame], None]) -> Callable[[N, Frame], None]:
        EXECUTORS.update(dict.fromkeys(kinds, function))
        return function

    return register


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


@executes(ast.Block)
def _block(s: ast.Block, frame: Frame) -> None:
    for statement in s.statements:
        execute(statement, frame)


@executes(ast.VarDecl)
def _declare(s: ast.VarDecl, frame: Frame) -> None:
    """Declares a variable (§11.2): without an initialiser it has the default value."""
    frame.vars[s] = default_value(s.type) if s.init is None else copy(evaluate(s.init, frame))


@executes(ast.EmptyStatement, ast.ConstDecl, ast.Instantiation)
def _nothing(s: ast.Node, frame: Frame) -> None:
    """Does nothing: the checker has dealt with these."""


@executes(ast.CallStatement)
def _call(s: ast.CallStatement, frame: Frame) -> None:
    evaluate(s.call, frame)


@executes(ast.Assign)
def _assign(s: ast.Assign, frame: Frame) -> None:
    """Assigns (§12.1): the target is evaluated before the value."""
    target = place(s.target, frame)
    old = target.get() if s.op != "=" else None
    value = evaluate(s.value, frame)
    if s.op != "=":
        value = operate(s.op, old, value, s.target.type, s.target.type, s.value.type)
    target.set(copy(value))


@executes(ast.If)
def _if(s: ast.If, frame: Frame) -> None:
    if evaluate(s.condition, frame):
        execute(s.then, frame)
    elif s.otherwise is not None:
        execute(s.otherwise, frame)


@executes(ast.Return)
def _return(s: ast.Return, frame: Frame) -> None:
    raise ReturnSignal(None if s.value is None else copy(evaluate(s.value, frame)))


@executes(ast.Exit)
def _exit(s: ast.Exit, frame: Frame) -> None:
    raise ExitSignal


@executes(ast.Break)
def _break(s: ast.Break, frame: Frame) -> None:
    raise BreakSignal


@executes(ast.Continue)
def _continue(s: ast.Continue, frame: Frame) -> None:
    raise ContinueSignal


@executes(ast.Switch)
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


@executes(ast.ForC)
def _for(s: ast.ForC, frame: Frame) -> None:
    """Runs a `for` loop with a condition (§12.8)."""
    for node in s.init:
        execute(node, frame)
    while evaluate(s.condition, frame) and _counted_round(s, frame):
        for statement in s.update:
            execute(statement, frame)


@executes(ast.ForIn)
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
