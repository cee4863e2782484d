"""Observers of the reference interpreter's steps: assign one to `Interpreter.observer`."""

from __future__ import annotations

from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.places import Argument
from ina.p4.compiler.reference.tables import BoundAction, Entry, Table
from ina.p4.compiler.reference.values import Value


class Observer:
    """Receives each step before its effects. This one ignores them."""

    def parser_state(self, parser: Instance, name: str) -> None:
        """Reports that a parser enters a state; `accept` and `reject` are states too."""

    def parser_failed(self, error: str) -> None:
        """Reports a parser error, "NoError" for a transition to `reject`."""

    def table_applied(self, table: Table, keys: list[Value], action: BoundAction, entry: Entry | None) -> None:
        """Reports a look-up. `entry` None: a miss. The action has not run yet."""

    def function_called(self, name: str, args: list[Argument]) -> None:
        """Reports a call of an extern function with the values of its arguments (places for those that it writes)."""

    def method_called(self, instance: Instance, method: str, args: list[Argument], state: object) -> None:
        """Reports a method of an extern object; `state` is the object's state (RegisterArray, CounterArray, ...) or None."""

    def register_changed(self, instance: Instance, index: int, before: Value, after: Value) -> None:
        """Reports that a TNA RegisterAction has run on a cell of a register: its value before and after."""
