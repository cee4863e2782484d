"""Statements, parsers, controls and table application of the reference interpreter (P4_16 v1.2.5 §12, §13, §14)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.lower.loops import endless_states, known_rounds, within
from ina.p4.compiler.reference.calls import Calls
from ina.p4.compiler.reference.expressions import ExitSignal, Frame, InterpreterError, PacketFailed, ReturnSignal
from ina.p4.compiler.reference.observer import Observer
from ina.p4.compiler.reference.packet import ParserError
from ina.p4.compiler.reference.tables import Table, ValueSet
from ina.p4.compiler.reference.values import TupleValue, copy, default_value, equal, is_aggregate, parts
from ina.p4.compiler.types import ActionRunType, TupleType, fixed_width

NO_TYPE = TupleType(())  # the type of several keys that are matched as one


class BreakSignal(Exception):
    """Signal of `break` (§12.8)."""


class ContinueSignal(Exception):
    """Signal of `continue`."""


@dataclass(frozen=True)
class ApplyResult:
    """The result of `table.apply()` (§14.2.2): `action` is the declaration of the action that ran."""

    hit: bool
    action: ast.ActionDecl


class Statements(Calls):
    """Executes statements. The subclass provides tables and value sets."""

    limit: int

    def __init__(self) -> None:
        super().__init__()
        self.observer = Observer()
        self._known_rounds: dict[ast.Node, int | None] = {}
        self._endless: dict[ast.ParserDecl, set[ast.ParserState]] = {}
        self.start_pass()
        self._executors: dict[type, Callable[[Any, Frame], None]] = {
            ast.Assign: self._assign,
            ast.CallStatement: lambda s, f: self.call(s.call, f),
            ast.EmptyStatement: lambda s, f: None,
            ast.Block: self._block,
            ast.If: self._if,
            ast.Switch: self._switch,
            ast.ForC: self._for,
            ast.ForIn: self._for_in,
            ast.Break: lambda s, f: throw(BreakSignal()),
            ast.Continue: lambda s, f: throw(ContinueSignal()),
            ast.Return: self._return,
            ast.Exit: lambda s, f: throw(ExitSignal()),
            ast.VarDecl: self._declare,
            ast.ConstDecl: lambda s, f: None,
            ast.Instantiation: lambda s, f: None,
        }

    def table_of(self, instance: Instance | None, decl: ast.TableDecl) -> Table:
        raise TypeError("defined in reference/interpreter.py")

    def value_set_of(self, instance: Instance | None, decl: ast.ValueSetDecl) -> ValueSet:
        raise TypeError("defined in reference/interpreter.py")

    def start_pass(self) -> None:
        """Resets the budget of loop rounds, which every pass of a packet has (loops.py)."""
        self.rounds = 0
        self.around: int | None = 1

    def execute(self, s: ast.Node, frame: Frame) -> None:
        executor = self._executors.get(type(s))
        if executor is None:
            raise InterpreterError(s, f"{type(s).__name__} is no statement")
        executor(s, frame)

    def _block(self, s: ast.Block, frame: Frame) -> None:
        for statement in s.statements:
            self.execute(statement, frame)

    def _declare(self, s: ast.VarDecl, frame: Frame) -> None:
        """Declares a variable (§11.2): without an initialiser it has the default value."""
        frame.vars[s] = default_value(s.type) if s.init is None else copy(self.evaluate(s.init, frame))

    def _assign(self, s: ast.Assign, frame: Frame) -> None:
        """Assigns (§12.1): the target is evaluated before the value."""
        target = self.lvalue(s.target, frame)
        old = target.get() if s.op != "=" else None
        value = self.evaluate(s.value, frame)
        if s.op != "=":
            value = self.operate(s.op, old, value, s.target.type, s.target.type, s.value.type)
        target.set(copy(value))

    def _if(self, s: ast.If, frame: Frame) -> None:
        if self.evaluate(s.condition, frame):
            self.execute(s.then, frame)
        elif s.otherwise is not None:
            self.execute(s.otherwise, frame)

    def _return(self, s: ast.Return, frame: Frame) -> None:
        raise ReturnSignal(None if s.value is None else copy(self.evaluate(s.value, frame)))

    def _switch(self, s: ast.Switch, frame: Frame) -> None:
        """Runs the first label that matches, or `default` if none does; a label without a block falls through (§12.7)."""
        subject = self.evaluate(s.subject, frame)
        by_action = isinstance(s.subject.type, ActionRunType)
        index = None
        for i, case in enumerate(s.cases):
            if case.label is None or isinstance(case.label, ast.DontCare):
                index = i if index is None else index
                continue
            if by_action:
                matches = case.action is not None and case.action.decl is subject
            else:
                matches = equal(self.evaluate(case.label, frame), subject)
            if matches:
                index = i
                break
        if index is not None:
            body = next((case.body for case in s.cases[index:] if case.body is not None), None)
            if body is not None:
                self.execute(body, frame)

    def _loop(self, body: ast.Statement, frame: Frame) -> bool:
        """Runs the body once; returns False after `break`."""
        try:
            self.execute(body, frame)
        except ContinueSignal:
            return True
        except BreakSignal:
            return False
        return True

    def _for(self, s: ast.ForC, frame: Frame) -> None:
        """Runs a `for` loop with a condition (§12.8)."""
        for node in s.init:
            self.execute(node, frame)
        while self.evaluate(s.condition, frame) and self._round(s, frame):
            for statement in s.update:
                self.execute(statement, frame)

    def _for_in(self, s: ast.ForIn, frame: Frame) -> None:
        """Runs a `for` loop over a collection, which is evaluated once (§12.8)."""
        for item in self._items(s.collection, frame):
            frame.vars[s.target] = copy(item)
            if not (self._round(s, frame) if isinstance(s.collection, ast.Range) else self._loop(s.body, frame)):
                break

    def _round(self, s: ast.ForC | ast.ForIn, frame: Frame) -> bool:
        """Runs one round of a loop that is not unrolled (loops.py); returns False after `break`."""
        if s not in self._known_rounds:
            self._known_rounds[s] = known_rounds(s, self.limit)
        outer = self.around
        self.around = within(outer, self._known_rounds[s], self.limit)
        try:
            if self.around is None:
                self._count_round(s)
            return self._loop(s.body, frame)
        finally:
            self.around = outer

    def _count_round(self, node: ast.Node) -> None:
        self.rounds += 1
        if self.rounds > self.limit:
            raise PacketFailed("loop_limit", f"{node.span}: more than {self.limit} rounds of loops, see @loop_limit")

    def _items(self, collection: ast.Expr, frame: Frame) -> Iterable[Any]:
        if isinstance(collection, ast.Range):
            return range(self.evaluate(collection.lo, frame), self.evaluate(collection.hi, frame) + 1)
        value = copy(self.evaluate(collection, frame))
        return parts(value) if is_aggregate(value) else value

    # --- parsers --------------------------------------------------------------------------------------------------

    def run_parser(self, instance: Instance, frame: Frame) -> None:
        """Runs from `start` to `accept`; raises ParserError on `reject` (§13.3-§13.6).

        An explicit transition to `reject` leaves the error at NoError.
        """
        for node in instance.decl.locals:
            if isinstance(node, ast.VarDecl):
                self.execute(node, frame)
        state: ast.ParserState | None = instance.decl.states["start"]
        if instance.decl not in self._endless:
            self._endless[instance.decl] = endless_states(instance.decl)
        around = self.around
        while state is not None:
            self.observer.parser_state(instance, state.name)
            try:
                if state in self._endless[instance.decl]:
                    self.around = None
                    self._count_round(state)
                for statement in state.statements:
                    self.execute(statement, frame)
                state, name = self._next_state(state, frame)
            finally:
                self.around = around
        self.observer.parser_state(instance, name)
        if name != "accept":
            raise ParserError("NoError")

    def _next_state(self, state: ast.ParserState, frame: Frame) -> tuple[ast.ParserState | None, str]:
        transition = state.transition
        if transition is None:
            return None, "reject"
        if transition.target_name is not None:
            return transition.target, transition.target_name
        values = [copy(self.evaluate(key, frame)) for key in transition.keys]
        for case in transition.cases:  # §13.6: the first case that matches
            if self.matches(case.keys, values, frame):
                return case.target, case.target_name
        raise ParserError("NoMatch")

    def matches(self, keys: list[ast.Expr], values: list[Any], frame: Frame) -> bool:
        if len(keys) == 1 and len(values) > 1:  # one set over all keys: a value set of tuples or structs
            return self.in_set(keys[0], TupleValue(NO_TYPE, values), frame)
        return all(self.in_set(key, value, frame) for key, value in zip(keys, values, strict=True))

    def in_set(self, key: ast.Expr, value: Any, frame: Frame) -> bool:
        """Returns True if `value` is in the set that `key` denotes (§8.16)."""
        inside: bool
        match key:
            case ast.DontCare():
                return True
            case ast.Mask():
                mask = self.evaluate(key.mask, frame)
                inside = self.evaluate(key.value, frame) & mask == value & mask
                return inside
            case ast.Range():
                inside = self.evaluate(key.lo, frame) <= value <= self.evaluate(key.hi, frame)
                return inside
            case ast.Name(decl=ast.ValueSetDecl()):
                return self.value_set_of(frame.instance, key.decl).contains(value)
            case ast.ListExpr() if is_aggregate(value) and key.const is None:
                return all(self.in_set(k, v, frame) for k, v in zip(key.values or key.items, parts(value), strict=True))
        return equal(self.evaluate(key, frame), value)

    # --- controls and tables --------------------------------------------------------------------------------------

    def run_control(self, instance: Instance, frame: Frame) -> None:
        """Initialises the locals, then runs the apply block (§14)."""
        for node in instance.decl.locals:
            if isinstance(node, ast.VarDecl):
                self.execute(node, frame)
        self.run_body(instance.decl.body, frame)

    def apply_table(self, decl: ast.TableDecl, frame: Frame) -> ApplyResult:
        """Evaluates the keys, looks up, and runs the entry's action or else the default one (§14.2.3)."""
        control = frame.outer or frame
        table: Table = self.table_of(control.instance, decl)
        values = [copy(self.evaluate(key.expr, frame)) for key in decl.keys]
        action, entry = table.lookup(values)
        self.observer.table_applied(table, values, action, entry)
        self.architecture.table_applied(table, entry)
        callee = Frame(control.instance, control)
        ref = action.ref
        types = [p.type for p in ref.params]
        runtime = iter(action.args)
        args = [
            constant(p, next(runtime)) if e is None else e
            for p, e in zip(ref.decl.params, ref_arguments(ref), strict=True)
        ]
        self.invoke(ref.decl.params, types, args, frame, callee, lambda: self.run_body(ref.decl.body, callee))
        return ApplyResult(entry is not None, ref.decl)


def ref_arguments(ref: ast.ActionRef) -> list[ast.Expr | None]:
    return ref.args or [None] * len(ref.decl.params)


def constant(param: ast.Param, value: Any) -> ast.Expr:
    """Returns a control-plane argument as an expression."""
    literal = ast.IntLiteral(param.span, 0, fixed_width(param.type))
    literal.type, literal.const = param.type, value
    return literal


def throw(signal: Exception) -> None:
    raise signal
