"""Run-time values of the reference interpreter.

Leaf values are plain Python objects:
    bit<w>, int<w>, int, serialisable enum   int (two's complement range when signed)
    bool                                     bool
    error, enum, match_kind                  the member's name (str)
    varbit<w>                                Varbit
Aggregates are mutable storage, one object per location: Record (struct, header, union), Stack, TupleValue. A
location always keeps the same object; assignment copies *into* it (`assign`), so an lvalue that was evaluated early
stays valid.

Behaviour that the language leaves open (P4_16 v1.2.5 §8.26) follows BMv2:
- variables, `out` parameters and metadata start as zero, false, the first enum member, NoError; headers start invalid;
- fields of an invalid header are storage like any other: the value last written can be read; `setValid()` on an
  invalid header zeroes its fields, on a valid one it changes nothing;
- reading beyond a stack gives the element type's default value; writing there has no effect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from ina.p4.compiler import ast
from ina.p4.compiler.check.const import wrap
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.types import (
    BitType,
    BoolType,
    HeaderType,
    RecordType,
    StackType,
    StructType,
    TupleType,
    Type,
    UnionType,
    VarbitType,
    strip_new,
    underlying,
    zero,
)


class Varbit(NamedTuple):
    """A varbit value: its current width in bits, and its bits as an unsigned number."""

    width: int
    bits: int


class Handle:
    """A name's meaning that is no value of P4: a packet, the result of `apply()`."""

    __slots__ = ()


class Aggregate(ABC):
    """Storage of several values: a Record, Stack or TupleValue."""

    __slots__ = ()

    @abstractmethod
    def parts(self) -> list[Value]:
        """Returns the fields or elements, in order."""

    @abstractmethod
    def copy(self) -> Aggregate:
        """Returns a separate value of the same type."""

    @abstractmethod
    def assign(self, source: Aggregate) -> None:
        """Copies `source`, which has the same shape, into this storage."""

    @abstractmethod
    def leaves(self) -> Iterator[tuple[Value, Type]]:
        """Yields the leaves with their types, invalid headers left out."""


class Record(Aggregate):
    """A struct, header or header union. `valid` is a header's validity, `union` the union that it belongs to."""

    __slots__ = ("type", "fields", "valid", "union")

    def __init__(self, t: RecordType) -> None:
        self.type = t
        self.fields: dict[str, Value] = {name: default_value(f.type) for name, f in t.fields.items()}
        self.valid = False
        self.union: Record | None = None
        if isinstance(t, UnionType):
            for member in self.headers():
                member.union = self

    @property
    def is_header(self) -> bool:
        return isinstance(self.type, HeaderType)

    def headers(self) -> list[Record]:
        """Returns the headers among the fields: all fields of a union."""
        return [field for field in self.fields.values() if isinstance(field, Record)]

    def is_valid(self) -> bool:
        """Returns `isValid()`; for a union, True if any of its headers is valid (§8.20)."""
        if isinstance(self.type, UnionType):
            return any(h.valid for h in self.headers())
        return self.valid

    def mark_valid(self) -> None:
        """Sets the validity bit; a union has at most one valid header (§8.20)."""
        if self.union is not None:
            for sibling in self.union.headers():
                sibling.valid = False
        self.valid = True

    def set_valid(self) -> None:
        """Runs `setValid()` (§8.18)."""
        if not self.valid:
            for name, f in self.type.fields.items():
                self.fields[name] = default_value(f.type)
        self.mark_valid()

    def set_invalid(self) -> None:
        """Runs `setInvalid()` (§8.18); on a union's header it leaves no header of the union valid (§8.20)."""
        for header in [self] if self.union is None else self.union.headers():
            header.valid = False

    def set(self, **values: Value) -> None:
        """Sets fields by name."""
        self.fields.update(values)

    def parts(self) -> list[Value]:
        return list(self.fields.values())

    def copy(self) -> Record:
        duplicate = Record.__new__(Record)
        duplicate.type, duplicate.valid, duplicate.union = self.type, self.valid, None
        duplicate.fields = {name: copy(v) for name, v in self.fields.items()}
        if isinstance(self.type, UnionType):
            for member in duplicate.headers():
                member.union = duplicate
        return duplicate

    def assign(self, source: Aggregate) -> None:
        if isinstance(self.type, UnionType):
            assert isinstance(source, Record)
            for mine, other in zip(self.headers(), source.headers(), strict=True):
                mine.fields.update({name: copy(v) for name, v in other.fields.items()})
                mine.valid = other.valid
            return
        for name, value in zip(self.fields, source.parts(), strict=True):
            store_part(self.fields, name, value)
        if self.is_header:
            if isinstance(source, Record) and source.valid:
                self.mark_valid()
            else:
                self.set_invalid()

    def leaves(self) -> Iterator[tuple[Value, Type]]:
        if not self.is_header or self.valid:
            for name, f in self.type.fields.items():
                yield from leaves(self.fields[name], f.type)

    def __repr__(self) -> str:
        mark = "" if not self.is_header or self.valid else "!"
        return f"{mark}{self.type.name}{self.fields}"


class Items(Aggregate):
    """Values by index."""

    __slots__ = ("items",)
    items: list[Value]

    def parts(self) -> list[Value]:
        return list(self.items)

    def assign(self, source: Aggregate) -> None:
        for i, value in enumerate(source.parts()):
            store_part(self.items, i, value)


class Stack(Items):
    """A header stack: `next` is the index that `.next` names (§8.19)."""

    __slots__ = ("type", "next")

    def __init__(self, t: StackType) -> None:
        self.type = t
        self.items = [default_value(t.element) for _ in range(t.size)]
        self.next = 0

    def push_front(self, count: int) -> None:
        """Shifts towards higher indices; the first `count` elements become invalid (§8.19)."""
        size = len(self.items)
        for i in range(size - 1, -1, -1):
            store_part(self.items, i, self.items[i - count] if i >= count else default_value(self.type.element))
        self.next = min(self.next + count, size)

    def pop_front(self, count: int) -> None:
        """Shifts towards lower indices; the last `count` elements become invalid (§8.19)."""
        size = len(self.items)
        for i in range(size):
            store_part(self.items, i, self.items[i + count] if i + count < size else default_value(self.type.element))
        self.next = max(self.next - count, 0)

    def copy(self) -> Stack:
        duplicate = Stack.__new__(Stack)
        duplicate.type, duplicate.items, duplicate.next = self.type, [copy(v) for v in self.items], self.next
        return duplicate

    def assign(self, source: Aggregate) -> None:
        super().assign(source)
        if isinstance(source, Stack):
            self.next = source.next

    def leaves(self) -> Iterator[tuple[Value, Type]]:
        for item in self.items:
            yield from leaves(item, self.type.element)

    def __repr__(self) -> str:
        return f"{self.items}@{self.next}"


class TupleValue(Items):
    """A tuple."""

    __slots__ = ("type",)

    def __init__(self, t: TupleType, items: list[Value] | None = None) -> None:
        self.type = t
        self.items = [default_value(e) for e in t.elements] if items is None else items

    def copy(self) -> TupleValue:
        return TupleValue(self.type, [copy(v) for v in self.items])

    def leaves(self) -> Iterator[tuple[Value, Type]]:
        for item, element in zip(self.items, self.type.elements, strict=True):
            yield from leaves(item, element)

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self.items))}}}"


Value: TypeAlias = int | str | Varbit | Aggregate | list["Value"] | Instance | Handle | ast.ActionDecl | None
"""A run-time value; bool is an int. A list is P4's `list<T>`; an Instance, a Handle and an ActionDecl are what names and
`action_run` may stand for; None is the value of a type that has none."""

K = TypeVar("K", contravariant=True)


class Storage(Protocol[K]):
    """Values by name, index or declaration: a record's fields, a stack's elements, variables."""

    def __getitem__(self, key: K, /) -> Value: ...

    def __setitem__(self, key: K, value: Value, /) -> None: ...


def default_value(t: Type) -> Value:
    """Returns the value of an uninitialised location, and of `...` (§7.3, §8.27)."""
    t = strip_new(t)
    match t:
        case VarbitType():
            return Varbit(0, 0)
        case RecordType():
            return Record(t)
        case StackType():
            return Stack(t)
        case TupleType():
            return TupleValue(t)
    return zero(t)


def default_record(t: Type) -> Record:
    """Returns the default value of a struct, header or union type."""
    t = strip_new(t)
    assert isinstance(t, RecordType)
    return Record(t)


def copy(value: Value) -> Value:
    """Returns a separate value: aggregates are duplicated, leaves are immutable."""
    return value.copy() if isinstance(value, Aggregate) else value


def equal(a: Value, b: Value) -> bool:
    """Compares field by field (`==`); headers are equal if both are invalid, or both valid with equal fields (§8.18, §8.20)."""
    if not isinstance(a, Aggregate):
        return bool(a == b)
    assert isinstance(b, Aggregate)
    if isinstance(a, Record) and a.is_header and isinstance(b, Record) and not (a.valid and b.valid):
        return a.valid == b.valid
    return all(equal(x, y) for x, y in zip(a.parts(), b.parts(), strict=True))


def number(value: Value) -> int:
    """Returns a value that the checker has found to be a number or a bool."""
    assert isinstance(value, int)
    return value


# --- bits ---------------------------------------------------------------------------------------------------------


def to_bits(value: Value, t: Type) -> tuple[int, int]:
    """Returns a leaf as (width, unsigned bits)."""
    if isinstance(value, Varbit):
        return value
    t = underlying(t)
    if isinstance(value, int):
        if isinstance(t, BitType):
            return t.width, value & ((1 << t.width) - 1)
        if isinstance(t, BoolType):
            return 1, int(value)
    raise TypeError(f"a value of type {t} has no bits")


def leaves(value: Value, t: Type) -> Iterator[tuple[Value, Type]]:
    """Yields the leaves below a value of type `t` with their types, invalid headers left out."""
    if isinstance(value, Aggregate):
        yield from value.leaves()
    else:
        yield value, strip_new(t)


def pack(value: Value, t: Type) -> tuple[int, int]:
    """Returns all leaves of a value in order, most significant first, as (width, unsigned bits)."""
    width = bits = 0
    for leaf, leaf_type in leaves(value, t):
        w, b = to_bits(leaf, leaf_type)
        width, bits = width + w, bits << w | b
    return width, bits


def unpack_leaf(bits: int, t: Type) -> Value:
    """Returns bits of the width of `t` as a leaf value of type `t`."""
    t = underlying(t)
    if isinstance(t, BoolType):
        return bool(bits)
    if isinstance(t, BitType):
        return wrap(bits, t)
    raise TypeError(f"type {t} cannot be read from a packet")


def from_const(const: object, t: Type) -> Value:
    """Returns a run-time value for the checker's `Expr.const` (see ast.py)."""
    t = strip_new(t)
    if isinstance(const, dict) and isinstance(t, StructType | HeaderType):
        record = Record(t)
        for name, value in const.items():
            store_part(record.fields, name, from_const(value, t.fields[name].type))
        record.valid = True
        return record
    if isinstance(const, list | tuple):
        if isinstance(t, TupleType):
            return TupleValue(t, [from_const(v, e) for v, e in zip(const, t.elements, strict=True)])
        if isinstance(t, RecordType):
            return from_const(dict(zip(t.fields, const, strict=True)), t)
        return list(const)
    if isinstance(t, BoolType):
        return bool(const)
    assert const is None or isinstance(const, int | str)
    return const


def store_part(container: Storage[K], key: K, value: Value) -> None:
    """Writes one field or element: into the aggregate that is there, or in place of the leaf."""
    part = container[key]
    if isinstance(part, Aggregate):
        assert isinstance(value, Aggregate)
        part.assign(value)
    else:
        container[key] = value
