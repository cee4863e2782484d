"""Whoever wants to see what the reference interpreter does to a packet: assign one to `Interpreter.observer`."""

from __future__ import annotations

from typing import Any

from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.tables import BoundAction, Entry, Table


class Observer:
    """Told of each step as it happens, before its effects. This one takes no notice."""

    def parser_state(self, parser: Instance, name: str) -> None:
        """A parser enters a state; `accept` and `reject` are states too."""

    def parser_failed(self, error: str) -> None:
        """The parser ended with a parser error, "NoError" for a transition to `reject`."""

    def table_applied(self, table: Table, keys: list[Any], action: BoundAction, entry: Entry | None) -> None:
        """`entry` None: a miss. The action has not run yet."""

    def function_called(self, name: str, args: list[Any]) -> None:
        """An extern function with the values of its arguments (places for those that it writes)."""

    def method_called(self, instance: Instance, method: str, args: list[Any], state: Any) -> None:
        """A method of an extern object; `state` is what is behind it (RegisterArray, CounterArray, ...) or None."""

    def register_changed(self, instance: Instance, index: int, before: Any, after: Any) -> None:
        """A TNA RegisterAction has run on a cell of a register: what it held, what it holds."""
