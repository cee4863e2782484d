"""One program while it is lowered: its parts, each with its own work, and the interface that externs are written against."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ina.p4.compiler import ast, ir
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.calls import Calls
from ina.p4.compiler.lower.context import Context
from ina.p4.compiler.lower.deparser import Deparsers
from ina.p4.compiler.lower.expressions import Expressions
from ina.p4.compiler.lower.inline import Inliner
from ina.p4.compiler.lower.matching import Matching
from ina.p4.compiler.lower.parser import Parsers
from ina.p4.compiler.lower.statements import Statements
from ina.p4.compiler.lower.table_description import Descriptions, TableUse
from ina.p4.compiler.lower.tables import Tables
from ina.p4.compiler.lower.value_trees import Value
from ina.p4.compiler.lower.values import Values

S = TypeVar("S")


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
    gives to the program's blocks, by name."""

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
        descriptions = Descriptions(self.matching, externs.attachable, self._attach)
        self.tables = Tables(self.inliner, self.matching, descriptions)
        context.call = Calls(self.parsers, self.deparsers, self.tables, self._function, self._method).call
        self.places: dict[str, Value] = {}

    def _function(self, call: ast.Call) -> Value | None:
        return self.externs.lower_function(self, call)

    def _method(self, call: ast.Call, instance: Instance) -> Value | None:
        return self.externs.lower_method(self, call, instance)

    def _attach(self, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        self.externs.attach(self, use, prop, instance)

    # --- for externs ------------------------------------------------------------------------------------------------

    def state(self, kind: type[S]) -> S:
        """Returns what externs of one kind remember of this program, made at its first use."""
        return self.context.state(kind)

    def emit(self, stmt: ir.Stmt) -> None:
        self.code.emit(stmt)

    def scalar(self, e: ast.Expr) -> ir.Expr:
        """Returns the value of an argument that is one scalar."""
        return self.expressions.scalar(e)

    def value(self, e: ast.Expr) -> Value:
        """Returns the value of an argument of any type."""
        return self.values.read(self.expressions.value(e))

    def result(self, call: ast.Call, i: int) -> Value:
        """Returns the place of an `out` argument."""
        return self.expressions.result(call, i)

    def assign(self, place: Value, value: Value, node: ast.Node) -> None:
        self.values.assign(place, value, node)

    def field(self, place: str, name: str) -> ir.Var | ir.Elem:
        """Returns a field of one of the architecture's structs."""
        return value_trees.field_of(self.places[place], name)
