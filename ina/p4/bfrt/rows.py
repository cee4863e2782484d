"""An entry of any BFRuntime table as a `Row`, to its message and back.

On the wire integers are big-endian bytes of the field's width, strings, booleans and lists have fields of their own; the member
of a oneof tells a match field's kind. A data field with a value for each pipe occurs once for each: in a row, its value is
then a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ina.p4.bfrt.info import Action, Field, Info, Table
from ina.p4.bfrt.messages import bfrt
from ina.p4.runtime import EntityError, MatchField, Switch, Update, as_int, as_match

PRIORITY = "$MATCH_PRIORITY"
Fields = dict[str, Any]  # values by the names of fields, in the forms that `Row` has


@dataclass(frozen=True, slots=True)
class Row:
    """`key`: by field, as a match of ina/p4/runtime/entities.py (a string for a key of strings). `data`: by field, an int, bool,
    str, float, or a list of them (of a container's fields by name); a tuple: a value for each pipe."""

    table: str
    key: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    action: str = ""
    is_default: bool = False

    def __str__(self) -> str:
        """The form that `ina deploy --dry-run` prints."""
        key = ", ".join(f"{k}={shown(v)}" for k, v in self.key.items())
        data = ", ".join(f"{k}={shown(v)}" for k, v in self.data.items())
        text = f"{self.action}({data})" if self.action else data
        return f"{self.table}[{'default' if self.is_default else key}] {text}".rstrip()


@dataclass(frozen=True, slots=True)
class Where:
    """The target of a request (TargetDevice): `pipe`, `direction` (0 ingress, 1 egress), `parser` of a pipe; None: all of them.
    `fresh`: read the data plane, not a driver's copy."""

    pipe: int | None = None
    direction: int | None = None
    parser: int | None = None
    fresh: bool = True


EVERYWHERE = Where()
Change = tuple[str, Row]  # INSERT, MODIFY, DELETE or INSERT_OR_MODIFY


def inverse(change: Change, before: Row | None) -> Change | None:
    """The change that undoes `change`, which replaced the row `before`; None: no change does."""
    type_, row = change
    if before is None:
        return ("DELETE", Row(row.table, row.key, is_default=row.is_default)) if type_ in ("INSERT", "INSERT_OR_MODIFY") else None
    return ("INSERT" if type_ == "DELETE" and not row.is_default else "MODIFY", before)


def shown(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return "/".join(shown(v) for v in value) if isinstance(value, tuple) else str(value)
    return str(value) if value < 1 << 16 else f"{value:#x}"


# ---- to messages


def message_of(row: Row, info: Info) -> bfrt.TableEntry:
    """A bfrt_proto.TableEntry. Raises EntityError, which names table and field."""
    table = info.table(row.table)
    message = bfrt.TableEntry(table_id=table.id, is_default_entry=row.is_default)
    for name, value in row.key.items():
        _set_key(message.key.fields.add(), table, table.key(name), value)
    if row.key or (not table.keys and row.data and not row.is_default):
        message.key.SetInParent()
    action = table.action(row.action) if row.action else None
    if action:
        message.data.action_id = action.id
    message.data.SetInParent()
    for name, value in row.data.items():
        field = table.field(name, action)
        for one in value if isinstance(value, tuple) else (value,):
            _set_data(message.data.fields.add(field_id=field.id), f"table {table.name}, field {field.name}", field, one)
    return message


def _set_key(to: bfrt.KeyField, table: Table, field: Field, value: Any) -> None:
    place = f"table {table.name}, key {field.name}"
    to.field_id = field.id
    if field.type == "string":
        to.exact.value = str(value).encode()
        return
    low, high = as_match(value, MatchField(field.id, field.name, field.width, field.match), place)
    first, second = (n.to_bytes(field.bytes, "big") for n in (low, high))
    if field.match == "exact":
        to.exact.value = first
    elif field.match == "ternary":
        to.ternary.value, to.ternary.mask = first, second
    elif field.match == "lpm":
        to.lpm.value, to.lpm.prefix_len = first, high.bit_count()
    elif field.match == "range":
        to.range.low, to.range.high = first, second
    else:
        to.optional.value, to.optional.is_valid = first, True


# By type, the member of a DataField with one value, and the one with a list
MEMBERS = {"int": ("stream", "int_arr_val"), "bool": ("bool_val", "bool_arr_val"), "string": ("str_val", "str_arr_val"),
           "float": ("float_val", "float_val"), "container": ("container_arr_val", "container_arr_val")}


def _set_data(to: bfrt.DataField, place: str, field: Field, value: Any) -> None:
    if field.type == "bytes":
        to.int_arr_val.val.extend(value)
        return
    if field.repeated and not isinstance(value, (list, range)):
        raise EntityError(f"{place}: {value!r}: expected a list")
    if field.type not in MEMBERS:
        raise EntityError(f"{place}: a field of type {field.type} cannot be written from here", "UNIMPLEMENTED")
    values = list(value) if field.repeated else [value]
    if field.type == "container":
        for one in values:
            container = to.container_arr_val.container.add()
            for name, part in one.items():
                inner = next(item for item in field.items if item.name == name)
                _set_data(container.val.add(field_id=inner.id), f"{place}, {name}", inner, part)
        return
    values = [_plain(v, place, field) for v in values]
    if field.repeated:
        getattr(to, MEMBERS[field.type][1]).val.extend(values)
        getattr(to, MEMBERS[field.type][1]).SetInParent()
    else:
        setattr(to, MEMBERS[field.type][0], values[0].to_bytes(field.bytes, "big") if field.type == "int" else values[0])


def _plain(value: Any, place: str, field: Field) -> Any:
    """A value in the form that its message has, before the bytes of a number."""
    if field.type == "int":
        return as_int(value, field.width, place)
    if field.choices and value not in field.choices:
        raise EntityError(f"{place}: {value!r}: expected one of {', '.join(field.choices)}")
    return bool(value) if field.type == "bool" else float(value) if field.type == "float" else value


# ---- from messages


def row_of(message: bfrt.TableEntry, info: Info) -> Row:
    """The row of a bfrt_proto.TableEntry. Raises EntityError: it does not fit the table that it names."""
    table = info.table(message.table_id)
    key = {field.name: _key(table, field, part) for part in message.key.fields for field in (table.key(part.field_id),)}
    if len(key) != len(message.key.fields):
        raise EntityError(f"table {table.name}: a key field is given twice")
    action = table.action(message.data.action_id) if message.data.action_id else None
    return Row(table.name, key, data_of(table, action, message.data.fields), action.name if action else "",
               message.is_default_entry)


def data_of(table: Table, action: Action | None, fields: Iterable[bfrt.DataField]) -> Fields:
    data: Fields = {}
    for part in fields:
        field = table.field(part.field_id, action)
        value = _data(part, f"table {table.name}, field {field.name}", field)
        if field.name in data:
            before = data[field.name]
            value = (*(before if isinstance(before, tuple) else (before,)), value)
        data[field.name] = value
    return data


def _key(table: Table, field: Field, part: bfrt.KeyField) -> Any:
    kind, place = part.WhichOneof("match_type"), f"table {table.name}, key {field.name}"
    if kind != field.match:
        raise EntityError(f"{place}: matched as {kind or 'nothing'}: expected {field.match}")
    match = getattr(part, kind)
    if field.type == "string":
        try:
            return match.value.decode()
        except UnicodeDecodeError:
            raise EntityError(f"{place}: {match.value!r} is not UTF-8") from None
    if kind == "exact":
        return as_int(match.value, field.width, place)
    if kind == "optional":
        return as_int(match.value, field.width, place) if match.is_valid else None
    if kind == "range":
        return as_int(match.low, field.width, place), as_int(match.high, field.width, place)
    # Bits of the value outside of the mask may be anything, and become zero
    value, full_mask = as_int(match.value, field.width, place), (1 << field.width) - 1
    if kind == "lpm":
        length = min(match.prefix_len, field.width)
        return value & ~(full_mask >> length), match.prefix_len
    mask = as_int(match.mask, field.width, place)
    return value & mask, mask


def _data(part: bfrt.DataField, place: str, field: Field) -> Any:
    kind = part.WhichOneof("value")
    expected = MEMBERS.get(field.type, ("",))[-1 if field.repeated else 0]
    if kind is None:  # requested, without a value
        return [] if field.repeated else None
    if field.type == "bytes" and kind in ("stream", "int_arr_val"):  # clients write one and read the other
        octets = part.stream if kind == "stream" else part.int_arr_val.val
        if kind != "stream" and any(byte > 255 for byte in octets):
            raise EntityError(f"{place}: expected bytes of 0..255")
        return bytes(octets)
    if kind != expected:
        raise EntityError(f"{place}: given as {kind}: expected {expected or 'nothing: it cannot be written from here'}")
    value = getattr(part, kind)
    if kind == "container_arr_val":
        return [_container(one, place, field) for one in value.container]
    if kind.endswith("_arr_val"):
        return list(value.val)
    if kind == "stream":
        return as_int(value, field.width, place)
    if field.choices and value not in field.choices and value.upper() not in field.choices:
        raise EntityError(f"{place}: {value!r}: expected one of {', '.join(field.choices)}")
    return value


def _container(message: bfrt.DataField.ContainerArray.Container, place: str, field: Field) -> Fields:
    values = {}
    for part in message.val:
        inner = next((item for item in field.items if item.id == part.field_id), None)
        if inner is None:
            raise EntityError(f"{place}: no field {part.field_id} in it; it has: {', '.join(i.name for i in field.items)}")
        values[inner.name] = _data(part, f"{place}, {inner.name}", inner)
    return values


# ---- parts of a Device (device.py), each of which serves the tables of some types


class Owner(Protocol):
    """The Device as its parts know it."""

    switch: Switch
    info: Info
    pipes: int
    clock: Callable[[], float]

    def write_entities(self, updates: Iterable[Update]) -> None: ...

    def has_port(self, port: int) -> bool: ...


class Part(Protocol):
    @property
    def kinds(self) -> Iterable[str]: ...

    def write(self, type_: str, table: Table, row: Row, where: Where) -> None: ...

    def read(self, table: Table, row: Row, where: Where) -> list[Row]: ...
