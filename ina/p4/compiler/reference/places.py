"""Evaluated lvalues of the reference interpreter (P4_16 v1.2.5 §6.6)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeAlias, TypeVar

from ina.p4.compiler.reference.values import Storage, Value, default_value, number, store_part, wrap
from ina.p4.compiler.types import Type

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


Argument: TypeAlias = Value | Place
"""An extern's argument: a Place for a parameter that is `out` or `inout`; None for one that is omitted."""
