"""The base of externs in the reference interpreter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.signals import InterpreterError
from ina.p4.compiler.reference.tables import Table
from ina.p4.compiler.reference.values import Value


class ExternFunction(ABC):
    """An extern function, or several that differ little. `names`: theirs in P4."""

    names: ClassVar[tuple[str, ...]]

    @abstractmethod
    def interpret(self, machine: Any, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        """Runs a call; returns its value, None if it is void. `machine`: the architecture's."""


class ExternObject(ABC):
    """An extern type, or several that differ little. `names`: theirs in P4."""

    names: ClassVar[tuple[str, ...]]

    def create(self, machine: Any, instance: Instance) -> object | None:
        """Returns the state of an object; None: it has none."""
        return None

    def join(self, machine: Any, table: Table, prop: str, instance: Instance) -> None:  # noqa: B027
        """Attaches an object to a table, by a property of the table."""

    def interpret(self, machine: Any, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        """Runs a call of a method; returns its value, None if it is void."""
        raise InterpreterError(call, f"{machine.name} has no method '{instance.decl.name}.{call.method}'")


class Externs:
    """The externs of an architecture, by name."""

    def __init__(self, externs: Iterable[ExternFunction | ExternObject]) -> None:
        self._functions: dict[str, ExternFunction] = {}
        self._objects: dict[str, ExternObject] = {}
        for extern in externs:
            for name in extern.names:
                if isinstance(extern, ExternFunction):
                    self._functions[name] = extern
                else:
                    self._objects[name] = extern

    def function(self, name: str) -> ExternFunction | None:
        return self._functions.get(name)

    def object(self, name: str) -> ExternObject | None:
        return self._objects.get(name)
