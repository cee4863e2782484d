"""The base of externs: functions and objects that an architecture, or a user, adds to the language.

Each is one class with two halves. `lower` (`declare`, `attach`) makes intermediate code for the compiled switch; `interpret`
(`create`, `join`) says what it does to values, for the reference interpreter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.table_description import TableUse
from ina.p4.compiler.lower.value_trees import Value
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.signals import InterpreterError
from ina.p4.compiler.reference.tables import Table
from ina.p4.compiler.reference.values import Value as RunTimeValue

MISSING = "an extern of one's own needs a file with its bodies: ina compile --externs FILE.py"


class ExternFunction:
    """An extern function, or several that differ little. `names`: theirs in P4."""

    names: tuple[str, ...]

    def lower(self, low: Lowering, call: ast.Call) -> Value | None:
        """Lowers a call; returns its value, None if it is void."""
        raise unsupported(call, f"the function '{call.decl.name}'")

    def interpret(self, machine: Any, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        """Runs a call; returns its value, None if it is void. `machine`: the architecture's."""
        raise InterpreterError(call, f"the interpreter cannot run the function '{call.decl.name}'")


class ExternObject:
    """An extern type, or several that differ little. `names`: theirs in P4; `properties`: the table properties that may name one
    of its objects."""

    names: tuple[str, ...]
    properties: ClassVar[tuple[str, ...]] = ()

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        """Lowers a call of a method; returns its value, None if it is void."""
        raise unsupported(call, f"{instance.decl.name}.{call.method}")

    def declare(self, low: Lowering, instance: Instance) -> None:
        """Creates what the compiled program has of an object even if no statement uses it."""

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        """Attaches an object to a table, by one of `properties`."""

    def create(self, machine: Any, instance: Instance) -> object | None:
        """Returns the state of an object in the interpreter; None: it has none."""
        return None

    def interpret(self, machine: Any, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        """Runs a call of a method; returns its value, None if it is void."""
        raise InterpreterError(call, f"the interpreter cannot run '{instance.decl.name}.{call.method}'")

    def join(self, machine: Any, table: Table, prop: str, instance: Instance) -> None:
        """Attaches an object to a table of the interpreter, by one of `properties`."""


class Externs:
    """The externs of an architecture, by name. `attachable`: the table properties that name objects."""

    def __init__(self, externs: Iterable[ExternFunction | ExternObject], attachable: tuple[str, ...] = ()) -> None:
        self.attachable, self._all = attachable, tuple(externs)
        self._functions: dict[str, ExternFunction] = {}
        self._objects: dict[str, ExternObject] = {}
        for extern in self._all:
            for name in extern.names:
                if isinstance(extern, ExternFunction):
                    self._functions[name] = extern
                else:
                    self._objects[name] = extern

    def extended(self, others: Iterable[ExternFunction | ExternObject]) -> Externs:
        """Returns these externs and others."""
        return Externs((*self._all, *others), self.attachable)

    def function(self, name: str) -> ExternFunction | None:
        return self._functions.get(name)

    def object(self, name: str) -> ExternObject | None:
        return self._objects.get(name)

    # --- lowering ---------------------------------------------------------------------------------------------------

    def lower_function(self, low: Lowering, call: ast.Call) -> Value | None:
        extern = self.function(call.decl.name)
        if extern is None:
            raise unsupported(call, f"the function '{call.decl.name}'", MISSING)
        return extern.lower(low, call)

    def lower_method(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        extern = self.object(instance.decl.name)
        if extern is None:
            raise unsupported(call, f"{instance.decl.name}.{call.method}", MISSING)
        return extern.lower(low, call, instance)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        extern = self.object(instance.decl.name)
        if extern is None or prop.name not in extern.properties:
            raise unsupported(prop, f"'{prop.name}' of type {instance.decl.name}")
        extern.attach(low, use, prop, instance)

    def declare(self, low: Lowering, instance: Instance) -> None:
        extern = self.object(instance.decl.name)
        if extern is not None:
            extern.declare(low, instance)
