"""The arguments of one call of an extern."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.reference.places import Argument, Place
from ina.p4.compiler.reference.values import Record, Value
from ina.p4.compiler.types import Type

Key = int | str
"""A parameter's position or its name in P4."""


class Arguments:
    """Values, and places for parameters that are `out` or `inout`; None for omitted ones."""

    __slots__ = ("call", "all")

    def __init__(self, call: ast.Call, values: list[Argument]) -> None:
        self.call, self.all = call, values

    def _index(self, key: Key) -> int | None:
        if isinstance(key, int):
            return key if key < len(self.all) else None
        return next((i for i, p in enumerate(self.call.params) if p.name == key), None)

    def __contains__(self, key: Key) -> bool:
        """Returns True if the call has this argument."""
        index = self._index(key)
        return index is not None and self.all[index] is not None

    def value(self, key: Key) -> Value:
        index = self._index(key)
        assert index is not None
        value = self.all[index]
        assert not isinstance(value, Place)
        return value

    def number(self, key: Key, default: int | None = None) -> int:
        """Returns a number or a bool; `default` if it is omitted."""
        if default is not None and key not in self:
            return default
        value = self.value(key)
        assert isinstance(value, int)
        return value

    def text(self, key: Key) -> str:
        """Returns a string, or the name of an enum's member."""
        value = self.value(key)
        assert isinstance(value, str)
        return value

    def place(self, key: Key) -> Place:
        index = self._index(key)
        assert index is not None
        place = self.all[index]
        assert isinstance(place, Place)
        return place

    def record(self, key: Key) -> Record:
        """Returns the record at a place."""
        record = self.place(key).get()
        assert isinstance(record, Record)
        return record

    def type(self, key: Key) -> Type:
        """Returns the type of the argument's expression."""
        return self.expression(key).type

    def expression(self, key: Key) -> ast.Expr:
        index = self._index(key)
        assert index is not None
        return self.call.given(index)
