"""BFRuntime's tables before an embedded switch: rows in, entities of the switch out, and back.

Which part serves a table its type says: the program's tables here, ports in ports_table.py, replication and mirroring in
replication.py. A part has `write(type, table, row)` and `read(table, row)`; without a key a row means all of the table. Every
refusal is an EntityError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ina.bfrt import entities
from ina.bfrt.entities import BYTES, INDEX, MEMBER, PACKETS, STATUS
from ina.bfrt.filters import FilterTables
from ina.bfrt.fixed import fixed_tables
from ina.bfrt.info import Info, Table
from ina.bfrt.ports_table import PortTables
from ina.bfrt.program_info import MATCH_TABLES, own_name
from ina.bfrt.replication import Replication
from ina.bfrt.rows import PRIORITY, Row
from ina.bfrt.schema import bfrt_json
from ina.switch.entities import (
    DirectCounterEntry,
    DirectMeterEntry,
    ProfileGroup,
    ProfileMember,
    RegisterEntry,
    TableEntry,
    Update,
    ValueSetEntry,
)
from ina.switch.p4info import EntityError

ALL_PIPES = 0xFFFF
TYPES = ("INSERT", "MODIFY", "MODIFY_INC", "MODIFY_DEC", "DELETE", "INSERT_OR_MODIFY", "RESET")  # DEC: MODIFY_INC that takes away


class Device:
    """The tables of `switch` (ina.switch.embedded.Switch), whose program is called `name` (default: its file's)."""

    def __init__(self, switch: Any, name: str = "", device_id: int = 0):
        self.switch, self.device_id = switch, device_id
        self.name = name or switch.program.name.removesuffix(".p4")
        self.pipes = switch.pipes or 1
        layout = {**switch.program.layout, "port_metadata": [m for m in switch.program.port_metadata if m["name"]]}
        pipelines = max(1, len(switch.program.pipelines))
        self.program_json = json.dumps(bfrt_json(switch.p4info.message, layout, pipelines)).encode()
        self.fixed_json = json.dumps(fixed_tables()).encode()
        self.info = Info(self.program_json, self.fixed_json)
        self._parts: dict[str, Any] = {}
        self.replication = Replication(self)
        for part in (ProgramTables(self), PortTables(self), FilterTables(self), self.replication):
            self._parts |= dict.fromkeys(part.kinds, part)

    def _part(self, table: Table) -> Any:
        try:
            return self._parts[table.kind]
        except KeyError:
            raise EntityError(f"table {table.name} of type {table.kind} is not served by this switch", "UNIMPLEMENTED") from None

    def write(self, type_: str, row: Row, pipe: int = ALL_PIPES) -> None:
        """One update. `pipe`: of state that each has its own of. Raises EntityError."""
        if type_ not in TYPES:
            raise EntityError(f"an update of type {type_}: expected one of {', '.join(TYPES)}")
        table = self.info.table(row.table)
        for name in row.data:
            field = table.field(name, table.action(row.action) if row.action else None)
            if field.read_only:
                raise EntityError(f"table {table.name}: {name} can only be read", "PERMISSION_DENIED")
        self._part(table).write(type_, table, row, self._pipe(pipe))

    def read(self, row: Row, pipe: int = ALL_PIPES) -> list[Row]:
        table = self.info.table(row.table)
        return self._part(table).read(table, row, self._pipe(pipe))

    def usage(self, table: Table) -> int:
        return len(self.read(Row(table.name)))

    def inverse(self, type_: str, row: Row) -> list[tuple[str, Row]]:
        """What would take the update back, seen before it is made."""
        found = [r for r in self.read(Row(row.table, row.key, is_default=row.is_default))] if type_ != "INSERT" else []
        if type_ == "INSERT" or (type_ == "INSERT_OR_MODIFY" and not found):
            return [("DELETE", Row(row.table, row.key))]
        return [("INSERT" if type_ == "DELETE" and not r.is_default else "MODIFY", r) for r in found]

    def _pipe(self, pipe: int) -> int | None:
        if pipe == ALL_PIPES or not self.switch.pipes and pipe == 0:
            return None
        if pipe >= self.pipes:
            raise EntityError(f"pipe {pipe}: this switch has pipes 0..{self.pipes - 1}")
        return pipe


def following(switch: Callable[[], Any]) -> Callable[[], Device | None]:
    """The Device of the switch that `switch` gives, which may be another one each time, or None."""
    made: list[Device] = []

    def current() -> Device | None:
        now = switch()
        if now is None:
            return None
        if not made or made[0].switch is not now:
            made[:] = [Device(now)]
        return made[0]

    return current


class ProgramTables:
    """Tables that the program declares."""

    kinds = (*MATCH_TABLES, "Action", "Selector", "Counter", "Meter", "Register", "RegisterParam", "ParserValueSet")

    def __init__(self, device: Device):
        self.device, self.switch = device, device.switch

    @property
    def info(self) -> Info:
        return self.device.info

    def write(self, type_: str, table: Table, row: Row, pipe: int | None) -> None:
        if table.kind in ("Register", "RegisterParam"):
            self._registers(type_, table, row, pipe)
        elif table.kind in INDEX:
            self._cells(type_, table, row, pipe)
        elif table.kind == "ParserValueSet":
            self._value_set(type_, table, row)
        elif type_ in ("DELETE", "RESET") and not row.key and not row.is_default:
            self._clear(table)
        elif row.is_default:
            self._default(type_, table, row)
        else:
            self._entry(type_, table, row)

    def _write(self, updates: Iterable[Update]) -> None:
        try:
            self.switch.write(list(updates))
        except EntityError as error:
            text = str(error).partition(": ")[2] if error.update is not None else str(error)
            raise EntityError(text, error.code) from None

    # ---- match-action tables and profiles

    def _entry(self, type_: str, table: Table, row: Row) -> None:
        found = self._found(table, row) if type_ in ("MODIFY", "INSERT_OR_MODIFY") else []
        if type_ == "INSERT_OR_MODIFY":
            type_ = "MODIFY" if found else "INSERT"
        if type_ in ("MODIFY_INC", "MODIFY_DEC"):
            raise EntityError(f"table {table.name}: MODIFY_INC is for lists; use MODIFY", "UNIMPLEMENTED")
        if type_ == "MODIFY" and found and table.kind != "Selector":
            keep = row.action in ("", found[0].action)
            data = (dict(found[0].data) if keep else {}) | dict(row.data)
            row = Row(row.table, row.key, data, row.action or found[0].action)
        elif type_ == "MODIFY" and found:
            row = Row(row.table, row.key, dict(found[0].data) | dict(row.data))
        entity = entities.of_row(row, self.info)
        direct = self._direct(table, row, entity) if type_ != "DELETE" and isinstance(entity, TableEntry) else []
        self._write([Update(type_, entity), *direct])

    def _found(self, table: Table, row: Row) -> list[Row]:
        """What is there with this key, without what is counted beside it."""
        return [entities.to_row(e, self.info) for e in self._matching(table, Row(row.table, self._whole(table, row.key)))]

    @staticmethod
    def _whole(table: Table, key: Any) -> dict[str, Any]:
        """The key with what it leaves out: fields that match anything, the first priority."""
        full = {}
        for k in table.keys:
            mask = (1 << k.width) - 1
            wild = {"exact": 0, "ternary": (0, 0), "lpm": (0, 0), "range": (0, mask), "optional": None}[k.match]
            full[k.name] = key.get(k.name, wild)
        return full

    def _direct(self, table: Table, row: Row, entity: TableEntry) -> list[Update]:
        """Direct counters and meters that a row gives values of."""
        made: list[Update] = []
        if PACKETS in row.data or BYTES in row.data:
            made.append(
                Update(
                    "MODIFY",
                    DirectCounterEntry(entity, entities.total(row.data.get(PACKETS)), entities.total(row.data.get(BYTES))),
                )
            )
        if any(name.startswith("$METER_SPEC") for name in row.data):
            made.append(Update("MODIFY", DirectMeterEntry(entity, entities.meter_config(table, row.data))))
        return made

    def _default(self, type_: str, table: Table, row: Row) -> None:
        if type_ in ("DELETE", "RESET"):
            if not table.const_default:  # one that the program fixes is what it was: published controllers reset every table
                self._write([Update("MODIFY", TableEntry(own_name(table.name), is_default=True))])
        elif type_ in ("MODIFY", "INSERT", "INSERT_OR_MODIFY"):
            self._write([Update("MODIFY", entities.of_row(row, self.info))])
        else:
            raise EntityError(f"table {table.name}: the default entry takes MODIFY and DELETE, not {type_}")

    def _clear(self, table: Table) -> None:
        self._write([Update("DELETE", e) for e in self._entities(table) if not getattr(e, "is_const", False)])

    def _matching(self, table: Table, row: Row) -> list[Any]:
        """Entities with the row's key; without one all of the table."""
        if row.key and table.kind in MATCH_TABLES:
            pattern = entities.of_row(Row(row.table, row.key), self.info)
            if pattern.match:  # the switch finds it; an entry that matches everything it takes for a pattern of all
                return self.switch.read([pattern])
        wanted = self._whole(table, row.key) if row.key else None
        said = ((e, entities.to_row(e, self.info)) for e in self._entities(table))
        return [e for e, r in said if wanted in (None, self._whole(table, r.key))]

    def _entities(self, table: Table) -> list[Any]:
        name = own_name(table.name)
        if table.kind == "Action":
            return self.switch.read([ProfileMember(name, 0)])
        if table.kind == "Selector":
            return self.switch.read([ProfileGroup(own_name(self.info.table(table.depends_on[0]).name), 0)])
        return self.switch.read([TableEntry(name)])

    # ---- cells

    def _cells(self, type_: str, table: Table, row: Row, pipe: int | None) -> None:
        if type_ in ("DELETE", "RESET"):
            row = Row(table.name, row.key, {} if table.kind == "Meter" else {f.name: 0 for f in table.data})
        entity = entities.of_row(row, self.info)
        if getattr(entity, "index", None) is None and type_ not in ("DELETE", "RESET"):
            raise EntityError(f"table {table.name}: which cell? {INDEX[table.kind]} is missing")
        self._write([Update("MODIFY", self._of_pipe(entity, pipe))])

    def _registers(self, type_: str, table: Table, row: Row, pipe: int | None) -> None:
        """Each field of a cell is a register of the switch. Deleted, a cell has its first value again."""
        index = 0 if table.kind == "RegisterParam" else row.key.get(INDEX["Register"])
        if index is None and type_ not in ("DELETE", "RESET"):
            raise EntityError(f"table {table.name}: which cell? {INDEX['Register']} is missing")
        updates = []
        for f in table.data:
            if type_ in ("DELETE", "RESET"):
                value = self._first_value(register_of(f.name, table)) & ((1 << max(1, f.width)) - 1)
            elif f.name in row.data:
                value = row.data[f.name]
            else:
                continue
            for number, one in enumerate(value) if isinstance(value, tuple) else [(pipe, value)]:
                cell = RegisterEntry(register_of(f.name, table), index, int(one))
                updates.append(Update("MODIFY", self._of_pipe(cell, number)))
        self._write(updates)

    def _first_value(self, register: str) -> int:
        said = next((r for r in self.switch.program.layout["registers"] if r["name"] == register), {})
        return int(said.get("initial") or 0)

    @staticmethod
    def _of_pipe(entity: Any, pipe: int | None) -> Any:
        if pipe is None:
            return entity
        return replace(entity, pipe=pipe)

    # ---- value sets

    def _value_set(self, type_: str, table: Table, row: Row) -> None:
        (current,) = self.switch.read([ValueSetEntry(own_name(table.name))])
        member = {k: v for k, v in row.key.items() if k != PRIORITY}
        members = [m if isinstance(m, dict) else {table.keys[0].name: m} for m in current.members]
        if type_ in ("DELETE", "RESET") and not row.key:
            members = []
        elif type_ == "INSERT":
            if member in members:
                raise EntityError(f"table {table.name}: this member is there already", "ALREADY_EXISTS")
            members.append(member)
        elif type_ == "DELETE":
            if member not in members:
                raise EntityError(f"table {table.name}: there is no such member", "NOT_FOUND")
            members.remove(member)
        else:
            raise EntityError(f"table {table.name}: a value set takes INSERT and DELETE, not {type_}")
        self._write([Update("MODIFY", ValueSetEntry(own_name(table.name), tuple(members)))])

    # ---- reading

    def read(self, table: Table, row: Row, pipe: int | None) -> list[Row]:
        if table.kind in ("Register", "RegisterParam"):
            return self._read_registers(table, row, pipe)
        if table.kind in INDEX:
            return self._read_cells(table, row, pipe)
        if table.kind == "ParserValueSet":
            (current,) = self.switch.read([ValueSetEntry(own_name(table.name))])
            rows = entities.value_set_rows(current, self.info)
        elif row.is_default:
            (default,) = self.switch.read([TableEntry(own_name(table.name), is_default=True)])
            return [entities.to_row(default, self.info)] if default.action else []
        else:
            rows = [self._row(table, e, entities.to_row(e, self.info)) for e in self._matching(table, row)]
        if row.key and table.kind == "ParserValueSet":
            rows = [r for r in rows if r.key == row.key]
        if row.key and not rows:
            raise EntityError(f"table {table.name}: there is no such entry", "NOT_FOUND")
        return rows

    def _row(self, table: Table, entity: Any, row: Row) -> Row:
        data = dict(row.data)
        names = {f.name for f in table.data}
        if isinstance(entity, TableEntry):
            if names & {PACKETS, BYTES}:
                counts = self.switch.read([DirectCounterEntry(entity)])
                octets, packets = sum(c.bytes for c in counts), sum(c.packets for c in counts)
                data |= {n: v for n, v in ((BYTES, octets), (PACKETS, packets)) if n in names}
            if any(n.startswith("$METER_SPEC") for n in names):
                meter, *_ = self.switch.read([DirectMeterEntry(entity)])
                data |= entities.to_row(meter, self.info).data
        elif isinstance(entity, ProfileGroup):
            data.setdefault(MEMBER, [])
            data.setdefault(STATUS, [])
        return Row(row.table, self._whole(table, row.key), data, row.action)

    def _read_registers(self, table: Table, row: Row, pipe: int | None) -> list[Row]:
        """A value for each pipe of each field."""
        param = table.kind == "RegisterParam"
        index = 0 if param else row.key.get(INDEX["Register"])
        found: dict[int, dict[str, Any]] = {}
        for f in table.data:
            pattern = self._of_pipe(RegisterEntry(register_of(f.name, table), index), pipe)
            for cell in self.switch.read([pattern]):
                value = bool(cell.value) if f.type == "bool" else cell.value
                data = found.setdefault(cell.index, {})
                data[f.name] = (*data.get(f.name, ()), value)
        return [Row(table.name, {} if param else {INDEX["Register"]: i},
                    {name: v if len(v) > 1 and not param else v[0] for name, v in data.items()}, is_default=param)
                for i, data in found.items()]  # fmt: skip

    def _read_cells(self, table: Table, row: Row, pipe: int | None) -> list[Row]:
        pattern = self._of_pipe(entities.of_row(Row(row.table, row.key), self.info), pipe)
        by_index: dict[int, list[Any]] = {}
        for cell in self.switch.read([pattern]):
            by_index.setdefault(cell.index, []).append(cell)
        return [self._cell(table, index, cells) for index, cells in by_index.items()]

    def _cell(self, table: Table, index: int, cells: list[Any]) -> Row:
        """Counters are summed up, meters are the same in all pipes."""
        rows = [entities.to_row(c, self.info) for c in cells]
        data = dict(rows[0].data)
        if table.kind == "Counter":
            data = {name: sum(r.data[name] for r in rows) for name in data}
        return Row(table.name, {INDEX[table.kind]: index}, data)


def register_of(field: str, table: Table | None = None) -> str:
    """The switch's register that is a field of a cell: "reg.f1" is all of "reg", "reg.first" a word of a pair."""
    if field == "value" and table is not None:
        return own_name(table.name)
    return field.removesuffix(".f1")
