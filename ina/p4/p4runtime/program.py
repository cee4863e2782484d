"""A program's P4Info, and translations that many kinds of entities share: numbers as byte strings (P4Runtime §8.4) and as P4Data
(§8.5), matches, actions, keys, indices (§9.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ina.p4.p4runtime.messages import config, p4
from ina.p4.runtime import (
    ActionInfo,
    ArrayInfo,
    EntityError,
    Layout,
    Match,
    MatchField,
    N,
    P4Info,
    TableEntry,
    TableInfo,
    Value,
    as_int,
)
from ina.p4.runtime.entities import as_key


def encode(value: int) -> bytes:
    """The shortest big-endian string of a number: the canonical one."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode(data: bytes, width: int, place: str, signed: bool = False) -> int:
    """The unsigned number of `width` bits in a byte string, which may have leading zeros, or copies of the sign (§8.4). Raises
    EntityError (OUT_OF_RANGE)."""
    if not data:
        raise EntityError(f"{place}: empty byte string: 0 is one zero byte", "OUT_OF_RANGE")
    value = int.from_bytes(data, "big", signed=signed)
    if (value if value >= 0 else ~value).bit_length() > width - signed:
        shown = f"{value} does not fit {width} signed" if signed else f"{value:#x} does not fit {width}"
        raise EntityError(f"{place}: {shown} bits", "OUT_OF_RANGE")
    return value & ((1 << width) - 1)


def encode_signed(value: int, width: int) -> bytes:
    """`value` as the unsigned number of `width` bits that the data plane holds, in two's complement."""
    signed = value - (1 << width) if value >> (width - 1) else value
    bits = (signed if signed >= 0 else ~signed).bit_length() + 1
    return signed.to_bytes((bits + 7) // 8, "big", signed=True)


def to_data(value: int, spec: config.P4DataTypeSpec, width: int, place: str) -> p4.P4Data:
    """P4Data of one number. Raises EntityError: the type is none of one number."""
    kind = spec.WhichOneof("type_spec")
    if kind not in ("bitstring", "bool", "serializable_enum", "new_type"):
        raise EntityError(f"{place}: data of type {kind} are not served", "UNIMPLEMENTED")
    return structure(spec, iter([(value, width)]), config.P4TypeInfo())


def from_data(data: p4.P4Data, spec: config.P4DataTypeSpec, width: int, place: str) -> int:
    """The number in a P4Data of type bitstring or bool. Raises EntityError."""
    kind, data_kind = spec.WhichOneof("type_spec"), data.WhichOneof("data")
    if kind == "bool" and data_kind == "bool":
        return int(data.bool)
    if kind == "bitstring" and data_kind == "bitstring":
        signed = spec.bitstring.WhichOneof("type_spec") == "int"
        return decode(data.bitstring, width, place, signed)
    if kind not in ("bool", "bitstring"):
        raise EntityError(f"{place}: data of type {kind} are not served: bit<W>, int<W> and bool are", "UNIMPLEMENTED")
    raise EntityError(f"{place}: data of kind {data_kind or 'none'}: expected {kind}")


def structure(spec: config.P4DataTypeSpec, leaves: Iterator[tuple[int, int]], types: config.P4TypeInfo) -> p4.P4Data:
    """P4Data of leaf values in order, each as (value, width in bits): those of a digest, say. `types`: P4TypeInfo."""
    data = p4.P4Data()
    kind = spec.WhichOneof("type_spec")
    if kind in ("struct", "tuple"):
        members = (
            [m.type_spec for m in types.structs[spec.struct.name].members] if kind == "struct" else spec.tuple.members
        )
        getattr(data, kind).SetInParent()
        getattr(data, kind).members.extend(structure(m, leaves, types) for m in members)
        return data
    if kind == "new_type":
        original = types.new_types[spec.new_type.name]
        if original.WhichOneof("representation") == "original_type":
            return structure(original.original_type, leaves, types)
    value, width = next(leaves)
    if kind == "bool":
        data.bool = bool(value)
    elif kind == "serializable_enum":
        data.enum_value = encode(value)
    elif kind == "enum":
        data.enum = types.enums[spec.enum.name].members[value].name
    elif kind == "error":
        data.error = types.error.members[value]
    elif kind == "bitstring" and spec.bitstring.WhichOneof("type_spec") == "int":
        data.bitstring = encode_signed(value, width)
    else:
        data.bitstring = encode(value)
    return data


def by_id(kind: str, items: Iterable[N], number: int) -> N:
    """The object with P4Info id `number`. Raises EntityError."""
    items = list(items)
    item = next((i for i in items if i.id == number), None)
    if item is None:
        names = ", ".join(f"{i.name} ({i.id:#x})" for i in items)
        raise EntityError(f"no {kind} with id {number:#x}; there are: {names or 'none'}")
    return item


class ProgramMessages:
    """One program: `info` and `message` are its P4Info in the switch's form and as the message, `layout` the compiled one's."""

    def __init__(self, info: P4Info, message: config.P4Info, layout: Layout):
        self.info = info
        self.message = message
        self.layout = layout
        self.counted = {c.direct_table_id for c in message.direct_counters}  # ids of tables with a direct counter
        self.metered = {m.direct_table_id for m in message.direct_meters}

    def table(self, number: int) -> TableInfo:
        return by_id("table", self.info.tables.values(), number)

    def used(self, section: str) -> set[str]:
        """Names of the objects in a section of the layout: those that the program uses."""
        return {item["name"] for item in self.layout.get(section, ())}

    @staticmethod
    def index(entity: p4.CounterEntry | p4.MeterEntry | p4.RegisterEntry, info: ArrayInfo) -> int | None:
        """The index of a cell of a counter or register; None: it is unset, which means all cells."""
        if not entity.HasField("index"):
            return None
        index = entity.index.index
        if index < 0:
            raise EntityError(f"{info.name}: index {index} is negative")
        if index >= info.size:
            raise EntityError(f"{info.name}: index {index}: expected 0..{info.size - 1}", "OUT_OF_RANGE")
        return index

    # ---- keys

    def key_entry(self, e: p4.TableEntry) -> TableEntry:
        """The entry that a message identifies by table, match and priority; all else is ignored (§9.1)."""
        table = self.table(e.table_id)
        place = f"table {table.name}"
        if e.priority < 0:
            raise EntityError(f"{place}: priority {e.priority} is negative")
        match: dict[str, Match] = {}
        for m in e.match:
            field = by_id(f"match field in {place}", table.fields, m.field_id)
            if field.name in match:
                raise EntityError(f"{place}: field {field.name!r} is given twice")
            match[field.name] = self.match(m, field, f"{place}: field {field.name}")
        if e.is_default_action and (match or e.priority):
            raise EntityError(f"{place}: default: it has no match fields and no priority")
        return TableEntry(table.name, match, priority=e.priority, is_default=e.is_default_action)

    @staticmethod
    def match(m: p4.FieldMatch, field: MatchField, place: str) -> Match:
        """A match in the switch's form. Raises EntityError."""
        kind = m.WhichOneof("field_match_type")
        if kind != field.match:
            raise EntityError(f"{place}: a match of kind {kind or 'none'}: expected {field.match}")
        width = field.width
        if kind in ("exact", "optional"):
            return decode(getattr(m, kind).value, width, place)
        if kind == "lpm":
            if not 1 <= m.lpm.prefix_len <= width:
                raise EntityError(f"{place}: prefix length {m.lpm.prefix_len}: expected 1..{width}; leave out a field "
                                  "that may have any value")
            return decode(m.lpm.value, width, place), m.lpm.prefix_len
        if kind == "ternary":
            mask = decode(m.ternary.mask, width, f"{place} (mask)")
            if not mask:
                raise EntityError(f"{place}: the mask is 0: leave out a field that may have any value")
            return decode(m.ternary.value, width, place), mask
        low, high = decode(m.range.low, width, f"{place} (low)"), decode(m.range.high, width, f"{place} (high)")
        if (low, high) == (0, (1 << width) - 1):
            raise EntityError(f"{place}: the range is everything: leave out a field that may have any value")
        return low, high

    def key(self, entry: TableEntry) -> tuple[tuple[int, int], ...]:
        """The key that identifies an entry, beside its priority: (value, mask), or (low, high), of each field."""
        return as_key(entry.match, self.info.tables[str(entry.table)].fields, f"table {entry.table}")

    @staticmethod
    def match_messages(fields: Sequence[MatchField], key: Sequence[tuple[int, int]]) -> list[p4.FieldMatch]:
        """A FieldMatch for every field that is no wildcard."""
        out = []
        for field, (value, mask) in zip(fields, key, strict=True):
            if (value, mask) == (0, (1 << field.width) - 1) if field.match == "range" else not mask:
                continue
            m = p4.FieldMatch(field_id=field.id)
            if field.match in ("exact", "optional"):
                getattr(m, field.match).value = encode(value)
            elif field.match == "lpm":
                m.lpm.value, m.lpm.prefix_len = encode(value), mask.bit_count()
            elif field.match == "ternary":
                m.ternary.value, m.ternary.mask = encode(value), encode(mask)
            else:
                m.range.low, m.range.high = encode(value), encode(mask)
            out.append(m)
        return out

    # ---- actions

    @staticmethod
    def action(message: p4.Action, candidates: Iterable[ActionInfo], place: str) -> tuple[str, dict[str, Value]]:
        """Name and parameters of a p4.v1.Action, one of `candidates`."""
        action = by_id(f"action of {place}", candidates, message.action_id)
        params: dict[str, Value] = {}
        for p in message.params:
            info = by_id(f"parameter of {action.name}", action.params, p.param_id)
            if info.name in params:
                raise EntityError(f"{place}: parameter {info.name!r} of {action.name} is given twice")
            params[info.name] = decode(p.value, info.width, f"{place}: {action.name}({info.name})")
        return action.name, params

    def fill_action(self, message: p4.Action, name: str | int, params: Mapping[str, Value]) -> None:
        action = self.info.actions[str(name)]
        message.action_id = action.id
        for p in action.params:
            message.params.add(param_id=p.id, value=encode(as_int(params[p.name], p.width, p.name)))
