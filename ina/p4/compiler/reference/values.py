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

from collections.abc import Iterator
from typing import Any, NamedTuple

from ina.p4.compiler.types import (
    BitType,
    BoolType,
    EnumType,
    ErrorType,
    HeaderType,
    InfIntType,
    RecordType,
    SerEnumType,
    StackType,
    StringType,
    StructType,
    TupleType,
    Type,
    UnionType,
    VarbitType,
    strip_new,
    underlying,
)


class Varbit(NamedTuple):
    """A varbit value: its current width in bits, and its bits as an unsigned number."""

    width: int
    bits: int


class Record:
    """A struct, header or header union. `valid` is a header's validity, `union` the union that it belongs to."""

    __slots__ = ("type", "fields", "valid", "union")

    def __init__(self, t: RecordType) -> None:
        self.type = t
        self.fields: dict[str, Any] = {name: default_value(f.type) for name, f in t.fields.items()}
        self.valid = False
        self.union: Record | None = None
        if isinstance(t, UnionType):
            for member in self.fields.values():
                member.union = self

    @property
    def is_header(self) -> bool:
        return isinstance(self.type, HeaderType)

    def is_valid(self) -> bool:
        """Returns `isValid()`; for a union, True if any of its headers is valid (§8.20)."""
        if isinstance(self.type, UnionType):
            return any(h.valid for h in self.fields.values())
        return self.valid

    def mark_valid(self) -> None:
        """Sets the validity bit; a union has at most one valid header (§8.20)."""
        if self.union is not None:
            for sibling in self.union.fields.values():
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
        for header in [self] if self.union is None else self.union.fields.values():
            header.valid = False

    def __repr__(self) -> str:
        mark = "" if not self.is_header or self.valid else "!"
        return f"{mark}{self.type.name}{self.fields}"


class Stack:
    """A header stack: `next` is the index that `.next` names (§8.19)."""

    __slots__ = ("type", "items", "next")

    def __init__(self, t: StackType) -> None:
        self.type = t
        self.items = [default_value(t.element) for _ in range(t.size)]
        self.next = 0

    def push_front(self, count: int) -> None:
        """Shifts towards higher indices; the first `count` elements become invalid (§8.19)."""
        size = len(self.items)
        for i in range(size - 1, -1, -1):
            assign(self.items[i], self.items[i - count] if i >= count else default_value(self.type.element))
        self.next = min(self.next + count, size)

    def pop_front(self, count: int) -> None:
        """Shifts towards lower indices; the last `count` elements become invalid (§8.19)."""
        size = len(self.items)
        for i in range(size):
            assign(self.items[i], self.items[i + count] if i + count < size else default_value(self.type.element))
        self.next = max(self.next - count, 0)

    def __repr__(self) -> str:
        return f"{self.items}@{self.next}"


class TupleValue:
    """A tuple."""

    __slots__ = ("type", "items")

    def __init__(self, t: TupleType, items: list[Any] | None = None) -> None:
        self.type = t
        self.items = [default_value(e) for e in t.elements] if items is None else items

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self.items))}}}"


def default_value(t: Type) -> Any:
    """Returns the value of an uninitialised location, and of `...` (§7.3, §8.27)."""
    t = strip_new(t)
    match t:
        case BitType() | InfIntType():
            return 0
        case SerEnumType():
            return 0
        case BoolType():
            return False
        case ErrorType():
            return "NoError"
        case EnumType():
            return t.members[0]
        case StringType():
            return ""
        case VarbitType():
            return Varbit(0, 0)
        case RecordType():
            return Record(t)
        case StackType():
            return Stack(t)
        case TupleType():
            return TupleValue(t)
    return None


def assign(target: Any, source: Any) -> None:
    """Copies aggregate `source` into the storage `target` of the same shape."""
    if not isinstance(target, Record):
        for i, value in enumerate(parts(source)):
            store_part(target.items, i, value)
        if isinstance(target, Stack) and isinstance(source, Stack):
            target.next = source.next
    elif isinstance(target.type, UnionType):
        for mine, other in zip(target.fields.values(), source.fields.values(), strict=True):
            mine.fields.update({name: copy(v) for name, v in other.fields.items()})
            mine.valid = other.valid
    else:
        for name, value in zip(target.fields, parts(source), strict=True):
            store_part(target.fields, name, value)
        if target.is_header:
            if source.valid:
                target.mark_valid()
            else:
                target.set_invalid()


def is_aggregate(value: Any) -> bool:
    return isinstance(value, Record | Stack | TupleValue)


def copy(value: Any) -> Any:
    """Returns a separate value: aggregates are duplicated, leaves are immutable."""
    if isinstance(value, Record):
        duplicate = Record.__new__(Record)
        duplicate.type, duplicate.valid, duplicate.union = value.type, value.valid, None
        duplicate.fields = {name: copy(v) for name, v in value.fields.items()}
        if isinstance(value.type, UnionType):
            for member in duplicate.fields.values():
                member.union = duplicate
        return duplicate
    if isinstance(value, Stack):
        stack = Stack.__new__(Stack)
        stack.type, stack.items, stack.next = value.type, [copy(v) for v in value.items], value.next
        return stack
    if isinstance(value, TupleValue):
        return TupleValue(value.type, [copy(v) for v in value.items])
    return value


def equal(a: Any, b: Any) -> bool:
    """Compares field by field (`==`); headers are equal if both are invalid, or both valid with equal fields (§8.18, §8.20)."""
    if isinstance(a, Record) and a.is_header and isinstance(b, Record):
        if not (a.valid and b.valid):
            return a.valid == b.valid
    if is_aggregate(a):
        return all(equal(x, y) for x, y in zip(parts(a), parts(b), strict=True))
    same: bool = a == b
    return same


def parts(value: Any) -> list[Any]:
    """Returns the fields or elements of an aggregate, in order."""
    return list(value.fields.values()) if isinstance(value, Record) else list(value.items)


# --- bits ---------------------------------------------------------------------------------------------------------


def wrap(value: int, t: Type) -> int:
    """Returns `value` modulo 2^width, in the range of `t` (§8.7, §8.8); an `int` unchanged (§8.9)."""
    if not isinstance(t, BitType):
        return value
    value &= (1 << t.width) - 1
    if t.signed and t.width and value >> (t.width - 1):
        value -= 1 << t.width
    return value


def to_bits(value: Any, t: Type) -> tuple[int, int]:
    """Returns a leaf as (width, unsigned bits)."""
    t = underlying(t)
    if isinstance(value, Varbit):
        return value
    if isinstance(t, BoolType):
        return 1, int(value)
    if isinstance(t, BitType):
        return t.width, value & ((1 << t.width) - 1)
    raise TypeError(f"a value of type {t} has no bits")


def leaves(value: Any, t: Type) -> Iterator[tuple[Any, Type]]:
    """Yields the leaves below a value with their types, invalid headers left out."""
    t = strip_new(t)
    if isinstance(value, Record):
        if not value.is_header or value.valid:
            for name, f in value.type.fields.items():
                yield from leaves(value.fields[name], f.type)
    elif isinstance(value, Stack):
        for item in value.items:
            yield from leaves(item, value.type.element)
    elif isinstance(value, TupleValue):
        for item, element in zip(value.items, value.type.elements, strict=True):
            yield from leaves(item, element)
    else:
        yield value, t


def pack(value: Any, t: Type) -> tuple[int, int]:
    """Returns all leaves of a value in order, most significant first, as (width, unsigned bits)."""
    width = bits = 0
    for leaf, leaf_type in leaves(value, t):
        w, b = to_bits(leaf, leaf_type)
        width, bits = width + w, bits << w | b
    return width, bits


def unpack_leaf(bits: int, t: Type) -> Any:
    """Returns bits of the width of `t` as a leaf value of type `t`."""
    t = underlying(t)
    if isinstance(t, BoolType):
        return bool(bits)
    if isinstance(t, BitType):
        return wrap(bits, t)
    raise TypeError(f"type {t} cannot be read from a packet")


def from_const(const: Any, t: Type) -> Any:
    """Returns a run-time value for the checker's `Expr.const` (see ast.py)."""
    t = strip_new(t)
    if isinstance(t, StructType | HeaderType) and isinstance(const, dict):
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
    return const


def store_part(container: Any, key: Any, value: Any) -> None:
    """Writes one field or element: into the aggregate that is there, or in place of the leaf."""
    if is_aggregate(container[key]):
        assign(container[key], value)
    else:
        container[key] = value
