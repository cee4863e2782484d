"""One program while it is lowered: its parts, the calls that lead from one to another, and the interface of externs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import Context, Lowered, unsupported
from ina.p4.compiler.lower.deparser import Deparsers
from ina.p4.compiler.lower.expressions import Expressions
from ina.p4.compiler.lower.inline import Inliner
from ina.p4.compiler.lower.matching import Matching
from ina.p4.compiler.lower.parser import Parsers
from ina.p4.compiler.lower.statements import Statements
from ina.p4.compiler.lower.table_description import Descriptions, TableUse
from ina.p4.compiler.lower.tables import Tables
from ina.p4.compiler.lower.value_trees import Choice, Value
from ina.p4.compiler.lower.values import Values

Function = Callable[[ast.Call], Value | None]
Method = Callable[[ast.Call, Instance], Value | None]


class Calls:
    """Lowers calls. `function` and `method` lower those of externs."""

    def __init__(self, parsers: Parsers, deparsers: Deparsers, tables: Tables, function: Function, method: Method) -> None:
        self.inliner, self.expressions = parsers.inliner, parsers.expressions
        self.values, self.code = parsers.values, parsers.code
        self.parsers, self.deparsers, self.tables = parsers, deparsers, tables
        self.function, self.method = function, method

    def call(self, e: ast.Call) -> Lowered:
        """Lowers a call; the result is a value tree, None for void."""
        inliner = self.inliner
        match e.kind:
            case "action":
                inliner.inline(e.decl.params, e.args, e, lambda: inliner.statements.body(e.decl.body), by_reference=False)
            case "function":
                t = e.decl.return_type
                result = None if isinstance(t, types.VoidType) else inliner.context.storage.place(t, "result")
                inliner.inline(e.decl.params, e.args, e, lambda: inliner.statements.body(e.decl.body), result=result)
                return result
            case "control_apply" | "parser_apply":
                instance = inliner.resolve_instance(e.receiver)
                enter = inliner.enter_control if e.kind == "control_apply" else self.parsers.enter_parser
                enter(instance, inliner.arguments(instance.decl.params, e.args, e), e)
            case "table_apply":
                return self.tables.apply(e)
            case "header_method":
                return self._header_method(e)
            case "stack_method":
                self._stack_method(e)
            case "packet_in":
                return self.parsers.packet_in(e)
            case "packet_out":
                self.deparsers.packet_out(e)
            case "extern_function":
                return self.function(inliner.settled(e))
            case "method":
                return self.method(inliner.settled(e), inliner.resolve_instance(e.receiver))
            case kind:
                raise unsupported(e, f"a call of kind {kind}")
        return None

    def _header_method(self, e: ast.Call) -> Value | None:
        place = self.expressions.lvalue(e.on)
        if e.method == "isValid":
            return self.values.read(self.values.select(place, self.values.is_valid))
        if isinstance(place, Choice):
            for i, item in enumerate(place.items):
                body = self.code.block(partial(self.values.set_valid, value_trees.header(item), e.method == "setValid"))
                self.code.emit(ir.If(fold.eq(place.index, fold.const(i, place.index.width)), body))
        else:
            self.values.set_valid(value_trees.header(place), e.method == "setValid")
        return None

    def _stack_method(self, e: ast.Call) -> None:
        stack = self.expressions.lvalue(e.on)
        if not isinstance(stack, value_trees.Stack):
            raise unsupported(e, f"{e.method} on this stack")
        count, size = e.given(0).const, len(stack.items)
        count = min(count, size)
        order = range(size - 1, count - 1, -1) if e.method == "push_front" else range(size - count)
        for i in order:
            self.values.assign(stack.items[i], stack.items[i - count if e.method == "push_front" else i + count], e)
        for i in range(count) if e.method == "push_front" else range(size - count, size):
            for header in value_trees.headers(stack.items[i]):
                self.values.reset(header, e)
        if stack.next is None:
            return
        limit, amount = fold.const(size, 32), fold.const(count, 32)
        if e.method == "push_front":
            moved = fold.add(stack.next, amount)
            self.code.emit(ir.Assign(stack.next, fold.cond(ir.Op("gt", (moved, limit), 1), limit, moved)))
        else:
            less = ir.Op("sub", (stack.next, amount), 32)
            self.code.emit(ir.Assign(stack.next, fold.cond(ir.Op("lt", (stack.next, amount), 1), fold.const(0, 32), less)))



class ExternLowering(Protocol):
    """The externs of an architecture, as lowering sees them (externs/extern.py). `attachable`: the table properties that name
    objects."""

    attachable: tuple[str, ...]

    def lower_function(self, low: Lowering, call: ast.Call) -> Value | None: ...

    def lower_method(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None: ...

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None: ...

    def declare(self, low: Lowering, instance: Instance) -> None: ...


class Lowering:
    """Lowers one program (TNA: one pipeline, `instance`). `keeps_fields`: see Values. `places`: the values that the architecture
    gives to the program's blocks, by name.

    Externs use `emit`; `scalar` and `value` of an argument; `result`, the place of an `out` argument; `assign`; and `state`, what
    externs of one kind remember of this program."""

    def __init__(
        self, program: CheckedProgram, instance: Instance, externs: ExternLowering, keeps_fields: bool = False
    ) -> None:
        self.program, self.externs = program, externs
        self.context = context = Context(program, instance)
        self.code = context.code
        self.values = Values(context, keeps_fields)
        self.expressions = Expressions(context, self.values)
        self.statements = Statements(context, self.expressions)
        self.inliner = Inliner(context, self.statements)
        self.matching = Matching(context, self.expressions)
        self.parsers = Parsers(self.inliner, self.matching)
        self.deparsers = Deparsers(self.inliner)
        descriptions = Descriptions(self.matching, externs.attachable, partial(externs.attach, self))
        self.tables = Tables(self.inliner, self.matching, descriptions)
        function, method = partial(externs.lower_function, self), partial(externs.lower_method, self)
        context.call = Calls(self.parsers, self.deparsers, self.tables, function, method).call
        self.places: dict[str, Value] = {}
        self.state, self.emit, self.assign = context.state, context.code.emit, self.values.assign
        self.scalar, self.result = self.expressions.scalar, self.expressions.result

    # --- for externs ------------------------------------------------------------------------------------------------

    def value(self, e: ast.Expr) -> Value:
        """Returns the value of an argument of any type."""
        return self.values.read(self.expressions.value(e))

    def field(self, place: str, name: str) -> ir.Var | ir.Elem:
        """Returns a field of one of the architecture's structs."""
        return value_trees.field_of(self.places[place], name)
