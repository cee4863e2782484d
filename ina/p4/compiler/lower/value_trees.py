"""Storage of values while lowering: trees of scalars in the shape of the P4 type.

A *place* can be written; its leaves are `ir.Var` or `ir.Elem`. A *value* has the same shape with any `ir.Expr` as leaves (a
place is a value). Slices of scalars and elements selected at run time are places of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ina.p4.compiler import ir, types
from ina.p4.compiler.errors import NO_SPAN, CompileError, Span

BULK_FIELDS = 8  # so many consecutive fields of one machine width, or more, are kept as an array
MACHINE_WIDTHS = (8, 16, 32, 64)
MOST_PLACES = 200_000  # a protocol with 2048 values in a packet has 6,000


@dataclass(eq=False, slots=True)
class Record:
    """A struct (or an anonymous one)."""

    type: types.Type
    fields: dict[str, Value]


@dataclass(eq=False, slots=True)
class Header:
    """A header. `valid`: a Var, or as a value any one-bit expression. `region`: kept in wire order, its leaves are
    Elems of it."""

    type: types.HeaderType
    fields: dict[str, Value]
    valid: ir.Expr
    region: ir.Region | None = None
    union: Union | None = None

    @property
    def flag(self) -> ir.Var:
        """Returns the variable `valid` of a place."""
        assert isinstance(self.valid, ir.Var)
        return self.valid


@dataclass(eq=False, slots=True)
class Union:
    type: types.UnionType
    fields: dict[str, Header]


@dataclass(eq=False, slots=True)
class Stack:
    """A header stack, or an array of something else, which has no `next`: index of the next element to extract."""

    type: types.StackType
    items: list[Value]
    next: ir.Var | None = None


@dataclass(eq=False, slots=True)
class Sequence:
    """A tuple."""

    type: types.Type
    items: list[Value]


@dataclass(eq=False, slots=True)
class Varbit:
    """A varbit: `size` bits are in use, a multiple of 8; they are the low ones of `bits`, the others are zero."""

    type: types.VarbitType
    bits: ir.Expr
    size: ir.Expr


@dataclass(eq=False, slots=True)
class Choice:
    """One of `items` (of one shape), selected at run time by `index`; out of range there is none."""

    index: ir.Expr
    items: list[Value]


@dataclass(eq=False, slots=True)
class SliceOf:
    base: Value
    hi: int
    lo: int


COMPOSITE = Record | Header | Union | Stack | Sequence | Varbit
Value = ir.Expr | Record | Header | Union | Stack | Sequence | Varbit | Choice | SliceOf
"""A value or a place"""


def varbit(t: types.HeaderType) -> types.VarbitType | None:
    """Returns the type of a header's varbit field, or None."""
    field_types = (types.strip_new(f.type) for f in t.fields.values())
    return next((f for f in field_types if isinstance(f, types.VarbitType)), None)


def fixed_bits(t: types.HeaderType) -> int:
    """Returns the bits of a header without its varbit field."""
    return sum(types.fixed_width(f.type) or 0 for f in t.fields.values()) + sum(t.padding().values())


def scalar_shape(t: types.Type) -> tuple[int, bool] | None:
    """Returns (width, signed) of a type that is one scalar, else None."""
    t = types.underlying(t)
    match t:
        case types.BitType():
            return t.width, t.signed
        case types.BoolType():
            return 1, False
        case types.ErrorType() | types.EnumType() | types.ActionRunType():
            return 32, False
    return None


def span(f: types.Field) -> Span:
    """Returns the place of a field's declaration."""
    return f.decl.span if f.decl is not None else NO_SPAN


def expression(value: Value) -> ir.Expr:
    """Returns a value that is one scalar."""
    assert isinstance(value, ir.Expr), type(value).__name__
    return value


def variable(value: Value) -> ir.Var | ir.Elem:
    """Returns a place that is one scalar."""
    assert isinstance(value, ir.Var | ir.Elem), type(value).__name__
    return value


def header(value: Value) -> Header:
    assert isinstance(value, Header), type(value).__name__
    return value


def type_of(value: Value) -> types.Type:
    """Returns the type of a composite."""
    assert isinstance(value, COMPOSITE), type(value).__name__
    return value.type


def part(value: Value, name: str) -> Value:
    """Returns a field of a struct, header or union."""
    assert isinstance(value, Record | Header | Union), type(value).__name__
    return value.fields[name]


def field_of(value: Value, name: str) -> ir.Var | ir.Elem:
    """Returns a field that is one scalar."""
    return variable(part(value, name))


def mapped(values: list[Value], leaf: Callable[[list[Value]], ir.Expr]) -> Value:
    """Returns a value of the shape that all of `values` have: each scalar is `leaf` of theirs."""
    first = values[0]
    match first:
        case Record() | Header() | Union():
            fields = {name: mapped([part(v, name) for v in values], leaf) for name in first.fields}
            if isinstance(first, Record):
                return Record(first.type, fields)
            if isinstance(first, Union):
                return Union(first.type, {name: header(field) for name, field in fields.items()})
            return Header(first.type, fields, leaf([header(v).valid for v in values]))
        case Sequence() | Stack() | Varbit():
            items = [mapped(list(column), leaf) for column in zip(*map(members, values), strict=True)]
            if isinstance(first, Varbit):
                return Varbit(first.type, *map(expression, items))
            return Stack(first.type, items) if isinstance(first, Stack) else Sequence(first.type, items)
    return leaf(values)


def members(value: Value) -> list[Value]:
    """Returns the parts of a composite, without validity."""
    match value:
        case Record() | Header() | Union():
            return list(value.fields.values())
        case Stack() | Sequence():
            return value.items
        case Varbit():
            return [value.bits, value.size]
    raise TypeError(type(value).__name__)


def scalars(value: Value) -> Iterator[Value]:
    """Yields all scalar leaves of a value in order of declaration, validity left out."""
    if isinstance(value, COMPOSITE):
        for member in members(value):
            yield from scalars(member)
    else:
        yield value


def variables(place: Value) -> Iterator[ir.Var | ir.Elem]:
    """Yields all scalars of a place in order of declaration, validity left out."""
    return map(variable, scalars(place))


def on_the_wire(value: Value) -> Iterator[ir.Expr]:
    """Yields the scalars of a value in their order in a packet, with zeros for the padding behind `@flexible` fields."""
    if not isinstance(value, COMPOSITE):
        yield expression(value)
        return
    padding = value.type.padding() if isinstance(value, Header) else {}
    names = value.fields if isinstance(value, Record | Header | Union) else [""] * len(members(value))
    for name, member in zip(names, members(value), strict=True):
        yield from on_the_wire(member)
        if name in padding:
            yield ir.Const(0, padding[name])


def leaves(value: Value) -> Iterator[Value]:
    """Yields all variables of a place: scalars, validity, stack indices."""
    if isinstance(value, Header):
        yield value.valid
    if isinstance(value, Stack) and value.next is not None:
        yield value.next
    if isinstance(value, COMPOSITE):
        for member in members(value):
            yield from leaves(member)
    else:
        yield value


def expressions(value: Value) -> Iterator[ir.Expr]:
    """Yields all scalars of a value without choices: fields, validity, stack indices."""
    return map(expression, leaves(value))


def headers(value: Value) -> Iterator[Header]:
    """Yields all headers of a value."""
    if isinstance(value, Header):
        yield value
    elif isinstance(value, Record | Union | Stack | Sequence):
        for member in members(value):
            yield from headers(member)


def name_fields(fields: dict[str, ir.Var | ir.Elem], name: str, place: Value) -> None:
    """Adds the scalars of a place to `fields`, by their P4 path."""
    match place:
        case Header() | Record() | Union():
            if isinstance(place, Header):
                fields[f"{name}.$valid$"] = place.flag
            for key, part in place.fields.items():
                name_fields(fields, f"{name}.{key}", part)
        case Stack() | Sequence():
            for i, part in enumerate(place.items):
                name_fields(fields, f"{name}[{i}]", part)
        case ir.Var() | ir.Elem():
            fields[name] = place


@dataclass(slots=True)
class Storage:
    """Creates places and keeps the regions that the memory layout needs."""

    regions: list[ir.Region] = field(default_factory=list)
    count: int = 0

    def place(self, t: types.Type, name: str, in_packet: bool = False, where: Span = NO_SPAN) -> Value:
        """Returns a place for a variable of type `t`. `in_packet`: headers in it stay in the packet's buffer. Raises
        CompileError if the program has too many places or the type is not supported."""
        t = types.strip_new(t)
        self.count += 1
        if self.count > MOST_PLACES:
            at = where if where.line else getattr(getattr(t, "decl", None), "span", where)
            raise CompileError(at, f"the program's variables have more than {MOST_PLACES:,} parts (fields, elements)")
        shape = scalar_shape(t)
        if shape:
            return ir.Var(name, *shape)
        match t:
            case types.HeaderType():
                return self._header(t, name, in_packet)
            case types.UnionType():
                places = {f.name: self.place(f.type, f"{name}_{f.name}", in_packet, span(f)) for f in t.fields.values()}
                union = Union(t, {key: header(place) for key, place in places.items()})
                for inner in union.fields.values():
                    inner.union = union
                return union
            case types.RecordType():
                return Record(t, self._fields(t, name, in_packet))
            case types.StackType():
                items = [self.place(t.element, f"{name}_{i}", in_packet, where) for i in range(t.size)]
                is_header = isinstance(t.element, types.HeaderType | types.UnionType)
                return Stack(t, items, ir.Var(f"{name}_next", 32) if is_header else None)
            case types.TupleType():
                return Sequence(t, [self.place(e, f"{name}_{i}", in_packet, where) for i, e in enumerate(t.elements)])
            case types.VarbitType():
                return Varbit(t, ir.Var(name, max(1, t.max_width)), ir.Var(f"{name}_size", 32))
        raise CompileError(where, f"variables of type {t} are not supported by this back end")

    def _runs(self, t: types.RecordType) -> list[tuple[list[types.Field], tuple[int, bool] | None]]:
        """Returns the fields of a record, with consecutive ones of one machine width together."""
        runs: list[tuple[list[types.Field], tuple[int, bool] | None]] = []
        for f in t.fields.values():
            shape = scalar_shape(f.type)
            if shape and shape[0] in MACHINE_WIDTHS and runs and runs[-1][1] == shape:
                runs[-1][0].append(f)
            else:
                runs.append(([f], shape))
        return runs

    def _fields(self, t: types.RecordType, name: str, in_packet: bool) -> dict[str, Value]:
        fields: dict[str, Value] = {}
        for run, shape in self._runs(t):
            if shape and len(run) >= BULK_FIELDS and shape[0] in MACHINE_WIDTHS:
                array = ir.Array(f"{name}_{run[0].name}", shape[0], len(run), shape[1])
                fields |= {f.name: ir.Elem(array, i) for i, f in enumerate(run)}
            else:
                fields |= {f.name: self.place(f.type, f"{name}_{f.name}", in_packet, span(f)) for f in run}
        return fields

    def _header(self, t: types.HeaderType, name: str, in_packet: bool) -> Header:
        valid = ir.Var(f"{name}_valid", 1)
        runs = self._runs(t)
        bulk = any(len(run) >= BULK_FIELDS and shape for run, shape in runs)
        width = types.fixed_width(t)
        # Padding has no place of its own, and leaves as zeros: such a header is written anew.
        if not (bulk or in_packet) or t.padding() or width is None or width % 8:
            return Header(
                t, {f.name: self.place(f.type, f"{name}_{f.name}", where=span(f)) for f in t.fields.values()}, valid
            )
        region = ir.Region(name, width // 8, valid)
        region.in_place = in_packet
        region.own_buffer = not in_packet
        self.regions.append(region)
        fields: dict[str, Value] = {}
        offset = 0
        for run, shape in runs:
            if shape and shape[0] in MACHINE_WIDTHS and offset % 8 == 0:
                names = tuple(f.name for f in run)
                array = ir.Array(f"{name}_{run[0].name}", shape[0], len(run), shape[1], region, offset, names)
                fields |= {f.name: ir.Elem(array, i) for i, f in enumerate(run)}
                offset += shape[0] * len(run)
                continue
            for f in run:
                inner = scalar_shape(f.type)
                if inner is None:  # a struct inside a header: its scalars in wire order
                    place = self.place(f.type, f"{name}_{f.name}", where=span(f))
                    fields[f.name], offset = self._wire_struct(place, region, offset)
                    continue
                array = ir.Array(f"{name}_{f.name}", inner[0], 1, inner[1], region, offset, (f.name,))
                fields[f.name] = ir.Elem(array, 0)
                offset += inner[0]
        return Header(t, fields, valid, region)

    def _wire_struct(self, place: Value, region: ir.Region, offset: int) -> tuple[Value, int]:
        if isinstance(place, Stack):
            for i, item in enumerate(place.items):
                place.items[i], offset = self._wire_struct(item, region, offset)
            return place, offset
        if isinstance(place, Record):
            for name, inner in place.fields.items():
                place.fields[name], offset = self._wire_struct(inner, region, offset)
            return place, offset
        place = variable(place)
        name = place.name if isinstance(place, ir.Var) else place.array.name
        array = ir.Array(name, place.width, 1, place.signed, region, offset, (name.removeprefix(f"{region.name}_"),))
        return ir.Elem(array, 0), offset + place.width
