"""The base of externs: functions and objects that an architecture, or a user, adds to the language.

Each is one class with two halves. `lower` (`declare`, `attach`) makes intermediate code for the compiled switch; `interpret`
(`create`, `join`) says what it does to values, for the reference interpreter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ina.p4.compiler import ast, ir
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.table_description import TableUse
from ina.p4.compiler.lower.value_trees import Value
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.places import Arguments
from ina.p4.compiler.reference.signals import InterpreterError
from ina.p4.compiler.reference.tables import Table
from ina.p4.compiler.reference.values import Value as RunTimeValue

MISSING = "an extern of one's own needs a file with its bodies: ina compile --externs FILE.py"


@dataclass(slots=True)
class Objects:
    """The objects that a program publishes, while it is lowered. `logs`: the next cell of execute_log; `messages` of log_msg:
    text, place in the program, and how often it was logged; `selectors`: of each action profile, its name and its number of
    groups; `hashes`: those that the control plane can change."""

    registers: dict[Instance, list[ir.Register]] = field(default_factory=dict)
    counters: dict[Instance, ir.Counter] = field(default_factory=dict)
    meters: dict[Instance, ir.Meter] = field(default_factory=dict)
    filters: dict[Instance, ir.Filter] = field(default_factory=dict)
    logs: dict[Instance, ir.Register] = field(default_factory=dict)
    messages: list[tuple[str, str, ir.Counter]] = field(default_factory=list)
    digests: list[ir.Digest] = field(default_factory=list)
    selectors: dict[str, tuple[str, int]] = field(default_factory=dict)
    hashes: dict[Instance, ir.DynamicHash] = field(default_factory=dict)



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
        table.attached.append(instance)


class Externs:
    """The externs of an architecture, by name. `attachable`: the table properties that name objects."""

    def __init__(self, externs: Iterable[ExternFunction | ExternObject], attachable: tuple[str, ...] = ()) -> None:
        self.attachable, self._all = attachable, tuple(externs)
        self._functions = {name: e for e in self._all if isinstance(e, ExternFunction) for name in e.names}
        self._objects = {name: e for e in self._all if isinstance(e, ExternObject) for name in e.names}

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
