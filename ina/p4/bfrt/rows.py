"""An entry of any BFRuntime table as a `Row`, to the message that says it and back.

On the wire integers are big-endian bytes of the field's width, strings, booleans and lists have fields of their own; a match
field says its kind by the member of a oneof that it uses. A data field that a pipe has a value of each is there once a
pipe: in a row, its value is then a tuple.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ina.p4.bfrt.info import Action, Field, Info, Table
from ina.p4.bfrt.messages import bfrt
from ina.p4.runtime.entities import as_int, as_match
from ina.p4.runtime.p4info import EntityError, MatchField

PRIORITY = "$MATCH_PRIORITY"


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
        """As `ina deploy --dry-run` prints it."""
        key = ", ".join(f"{k}={shown(v)}" for k, v in self.key.items())
        data = ", ".join(f"{k}={shown(v)}" for k, v in self.data.items())
        what = f"{self.action}({data})" if self.action else data
        return f"{self.table}[{'default' if self.is_default else key}] {what}".rstrip()


@dataclass(frozen=True, slots=True)
class Where:
    """What a TargetDevice says: `pipe`, `direction` (0 ingress, 1 egress), `parser` of a pipe; None: all of them. `fresh`: what
    is read comes from the data plane, where a driver has a copy."""

    pipe: int | None = None
    direction: int | None = None
    parser: int | None = None
    fresh: bool = True


EVERYWHERE = Where()


def shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return "/".join(shown(v) for v in value) if isinstance(value, tuple) else str(value)
    return str(value) if value < 1 << 16 else f"{value:#x}"


# ---- to messages


def message_of(row: Row, info: Info) -> Any:
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
        found = table.field(name, action)
        for one in value if isinstance(value, tuple) else (value,):
            _set_data(message.data.fields.add(field_id=found.id), f"table {table.name}, field {found.name}", found, one)
    return message


def _set_key(to: Any, table: Table, found: Field, value: Any) -> None:
    what = f"table {table.name}, key {found.name}"
    to.field_id = found.id
    if found.type == "string":
        to.exact.value = str(value).encode()
        return
    low, high = as_match(value, MatchField(found.id, found.name, found.width, found.match), what)
    first, second = (n.to_bytes(found.bytes, "big") for n in (low, high))
    if found.match == "exact":
        to.exact.value = first
    elif found.match == "ternary":
        to.ternary.value, to.ternary.mask = first, second
    elif found.match == "lpm":
        to.lpm.value, to.lpm.prefix_len = first, high.bit_count()
    elif found.match == "range":
        to.range.low, to.range.high = first, second
    else:
        to.optional.value, to.optional.is_valid = first, True


def _set_data(to: Any, what: str, found: Field, value: Any) -> None:
    if found.type == "bytes":
        to.int_arr_val.val.extend(value)
        return
    if found.repeated and not isinstance(value, (list, range)):
        raise EntityError(f"{what}: {value!r}: expected a list")
    values = list(value) if found.repeated else [value]
    if found.type == "int":
        values = [as_int(v, found.width, what) for v in values]
        if found.repeated:
            to.int_arr_val.val.extend(values)
            to.int_arr_val.SetInParent()
        else:
            to.stream = values[0].to_bytes(found.bytes, "big")
    elif found.type == "bool":
        if found.repeated:
            to.bool_arr_val.val.extend(map(bool, values))
            to.bool_arr_val.SetInParent()
        else:
            to.bool_val = bool(value)
    elif found.type == "string":
        for v in values:
            if found.choices and v not in found.choices:
                raise EntityError(f"{what}: {v!r}: expected one of {', '.join(found.choices)}")
        if found.repeated:
            to.str_arr_val.val.extend(values)
        else:
            to.str_val = value
    elif found.type == "float":
        to.float_val = float(value)
    elif found.type == "container":
        for one in values:
            container = to.container_arr_val.container.add()
            for name, part in one.items():
                inner = next(item for item in found.items if item.name == name)
                _set_data(container.val.add(field_id=inner.id), f"{what}, {name}", inner, part)
    else:
        raise EntityError(f"{what}: a field of type {found.type} cannot be written from here", "UNIMPLEMENTED")


# ---- from messages


def row_of(message: Any, info: Info) -> Row:
    """Of a bfrt_proto.TableEntry. Raises EntityError: it does not fit the table that it names."""
    table = info.table(message.table_id)
    key = {found.name: _key(table, found, part) for part in message.key.fields for found in (table.key(part.field_id),)}
    if len(key) != len(message.key.fields):
        raise EntityError(f"table {table.name}: a key field is given twice")
    action = table.action(message.data.action_id) if message.data.action_id else None
    return Row(table.name, key, data_of(table, action, message.data.fields), action.name if action else "",
               message.is_default_entry)  # fmt: skip


def data_of(table: Table, action: Action | None, fields: Any) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for part in fields:
        found = table.field(part.field_id, action)
        value = _data(part, f"table {table.name}, field {found.name}", found)
        if found.name in data:
            before = data[found.name]
            value = (*(before if isinstance(before, tuple) else (before,)), value)
        data[found.name] = value
    return data


def _key(table: Table, found: Field, part: Any) -> Any:
    kind, what = part.WhichOneof("match_type"), f"table {table.name}, key {found.name}"
    if kind != found.match:
        raise EntityError(f"{what}: matched as {kind or 'nothing'}: expected {found.match}")
    said = getattr(part, kind)
    if found.type == "string":
        try:
            return said.value.decode()
        except UnicodeDecodeError:
            raise EntityError(f"{what}: {said.value!r} is not UTF-8") from None
    if kind == "exact":
        return as_int(said.value, found.width, what)
    if kind == "optional":
        return as_int(said.value, found.width, what) if said.is_valid else None
    if kind == "range":
        return as_int(said.low, found.width, what), as_int(said.high, found.width, what)
    # Bits of the value that do not count may be anything, and are kept as zero
    value, full = as_int(said.value, found.width, what), (1 << found.width) - 1
    if kind == "lpm":
        length = min(said.prefix_len, found.width)
        return value & ~(full >> length), said.prefix_len
    mask = as_int(said.mask, found.width, what)
    return value & mask, mask


MEMBERS = {"int": ("stream", "int_arr_val"), "bool": ("bool_val", "bool_arr_val"), "string": ("str_val", "str_arr_val"),
           "float": ("float_val", "float_val"), "container": ("container_arr_val", "container_arr_val")}  # fmt: skip


def _data(part: Any, what: str, found: Field) -> Any:
    kind = part.WhichOneof("value")
    expected = MEMBERS.get(found.type, ("",))[-1 if found.repeated else 0]
    if kind is None:  # asked for, without a value
        return [] if found.repeated else None
    if found.type == "bytes" and kind in ("stream", "int_arr_val"):  # clients give one and take the other
        said = part.stream if kind == "stream" else part.int_arr_val.val
        if kind != "stream" and any(byte > 255 for byte in said):
            raise EntityError(f"{what}: expected bytes of 0..255")
        return bytes(said)
    if kind != expected:
        raise EntityError(f"{what}: given as {kind}: expected {expected or 'nothing: it cannot be written from here'}")
    value = getattr(part, kind)
    if kind == "container_arr_val":
        return [_container(one, what, found) for one in value.container]
    if kind.endswith("_arr_val"):
        return list(value.val)
    if kind == "stream":
        return as_int(value, found.width, what)
    if found.choices and value not in found.choices and value.upper() not in found.choices:
        raise EntityError(f"{what}: {value!r}: expected one of {', '.join(found.choices)}")
    return value


def _container(said: Any, what: str, found: Field) -> dict[str, Any]:
    made = {}
    for part in said.val:
        inner = next((item for item in found.items if item.id == part.field_id), None)
        if inner is None:
            raise EntityError(f"{what}: no field {part.field_id} in it; it has: {', '.join(i.name for i in found.items)}")
        made[inner.name] = _data(part, f"{what}, {inner.name}", inner)
    return made
