"""Evaluated lvalues and arguments of the reference interpreter (P4_16 v1.2.5 §6.6)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeAlias, TypeVar

from ina.p4.compiler import ast
from ina.p4.compiler.check.const import wrap
from ina.p4.compiler.reference.values import Items, Record, Storage, Value, default_value, number, store_part, to_bits
from ina.p4.compiler.types import AnyType, Type

K = TypeVar("K")


class Place(ABC):
    """An evaluated lvalue."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> Value:
        """Returns the value that is there: an aggregate itself, not a copy."""

    @abstractmethod
    def set(self, value: Value) -> None:
        """Stores a value; an aggregate is copied into the one that is there."""


class Location(Place, Generic[K]):
    """One field, element or variable."""

    __slots__ = ("container", "key")

    def __init__(self, container: Storage[K], key: K) -> None:
        self.container, self.key = container, key

    def get(self) -> Value:
        return self.container[self.key]

    def set(self, value: Value) -> None:
        store_part(self.container, self.key, value)


class SliceLocation(Place):
    """Bits hi..lo of another place (§8.7)."""

    __slots__ = ("base", "type", "hi", "lo")

    def __init__(self, base: Place, t: Type, hi: int, lo: int) -> None:
        self.base, self.type, self.hi, self.lo = base, t, hi, lo

    def get(self) -> int:
        return number(self.base.get()) >> self.lo & ((1 << self.hi - self.lo + 1) - 1)

    def set(self, value: Value) -> None:
        mask = ((1 << self.hi - self.lo + 1) - 1) << self.lo
        self.base.set(wrap(number(self.base.get()) & ~mask | number(value) << self.lo & mask, self.type))


class Nowhere(Place):
    """A place beyond a stack, or `_` for an out argument: reads give the default, writes do nothing (§8.19, §8.26)."""

    __slots__ = ("value",)

    def __init__(self, t: Type) -> None:
        self.value = default_value(t)

    def get(self) -> Value:
        return self.value

    def set(self, value: Value) -> None:
        return


def followed(target: Place, variables: dict[ast.Node, Value], param: ast.Node, place: Place) -> Place:
    """Returns the same part of `place` that `target` is of the parameter `param` among `variables`, which was copied there;
    `target` itself if it is no part of it."""
    if isinstance(target, SliceLocation):
        return SliceLocation(followed(target.base, variables, param, place), target.type, target.hi, target.lo)
    if not isinstance(target, Location):
        return target
    if target.container is variables:
        return place if target.key is param else target
    container = _counterpart(variables[param], place.get(), target.container)
    return target if container is None else Location(container, target.key)


def _counterpart(old: Value, new: Value, container: object) -> Storage[Any] | None:
    """Returns the storage in `new` where `container` is in `old`, which has the same shape; None: it is not in it."""
    for a, b in _aggregates(old, new):
        if (a.fields if isinstance(a, Record) else a.items) is container:
            return b.fields if isinstance(b, Record) else b.items
    return None


def _aggregates(a: Value, b: Value) -> Iterator[tuple[Record | Items, Record | Items]]:
    """Yields the aggregates in two values of one shape, side by side."""
    if isinstance(a, Record | Items) and isinstance(b, Record | Items):
        yield a, b
        for parts in zip(a.parts(), b.parts(), strict=True):
            yield from _aggregates(*parts)


Argument: TypeAlias = Value | Place
"""An extern's argument: a Place for a parameter that is `out` or `inout`; None for one that is omitted."""


# --- arguments of one call of an extern -------------------------------------------------------------------------------

Key = int | str
"""A parameter's position or its name in P4."""


class Arguments:
    """Values, and places for parameters that are `out` or `inout`, by position and by name; without the omitted ones. `all`: in
    order, None for omitted ones."""

    __slots__ = ("call", "all", "_by_key")

    def __init__(self, call: ast.Call, values: list[Argument]) -> None:
        self.call, self.all = call, values
        self._by_key: dict[Key, tuple[int, Argument]] = {}
        for i, value in enumerate(values):
            if value is not None:
                self._by_key[i] = self._by_key[call.params[i].name] = i, value

    def __contains__(self, key: Key) -> bool:
        """Returns True if the call has this argument."""
        return key in self._by_key

    def value(self, key: Key) -> Value:
        value = self._by_key[key][1]
        assert not isinstance(value, Place)
        return value

    def number(self, key: Key, default: int | None = None) -> int:
        """Returns a number or a bool; `default` if it is omitted."""
        if default is not None and key not in self:
            return default
        value = self.value(key)
        assert isinstance(value, int)
        return value

    def index(self, key: Key, default: int | None = None) -> int:
        """Returns the index of a cell: a number's bits as an unsigned one, as a Tofino takes them; `default` if it is omitted."""
        if default is not None and key not in self:
            return default
        number = self.number(key)
        if number >= 0:
            return number
        position = self._by_key[key][0]
        expected, given = self.call.params[position].type, self.call.args[position]
        assert given is not None
        return to_bits(number, given.type if isinstance(expected, AnyType) else expected)[1]

    def text(self, key: Key) -> str:
        """Returns a string, or the name of an enum's member."""
        value = self.value(key)
        assert isinstance(value, str)
        return value

    def place(self, key: Key) -> Place:
        place = self._by_key[key][1]
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
        return self.call.given(self._by_key[key][0])
