"""BFRuntime's tables of an embedded switch: translates rows into the switch's entities, and back.

A table's type decides which part serves it: the program's tables here, ports in ports.py, replication and mirroring in
replication.py. A part has `write(type, table, row, where)` and `read(table, row, where)`; a row without a key stands for the
whole table. Every refusal is an EntityError.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ina.p4.bfrt import entities
from ina.p4.bfrt.attributes import Attributes, Idle
from ina.p4.bfrt.cells import BYTES, INDEX, PACKETS, DirectCells, FilterTables, counts, meter_config, register_of, total
from ina.p4.bfrt.entities import MEMBER, STATUS
from ina.p4.bfrt.fixed_tables import fixed_tables
from ina.p4.bfrt.hashes import HashTables
from ina.p4.bfrt.info import MATCH_TABLES, Info, Table, own_name
from ina.p4.bfrt.pktgen import PktgenTables
from ina.p4.bfrt.ports import PortTables
from ina.p4.bfrt.replication import Replication
from ina.p4.bfrt.rows import EVERYWHERE, Change, Fields, Part, Row, Where, inverse
from ina.p4.bfrt.schema import bfrt_json
from ina.p4.bfrt.value_sets import ValueSetTables
from ina.p4.runtime import (
    DirectCounterEntry,
    DirectMeterEntry,
    EntityError,
    ProfileGroup,
    ProfileMember,
    RegisterEntry,
    Switch,
    TableEntry,
    Update,
)

SIZE = "$MAX_GROUP_SIZE"
DEFAULT_HANDLE = 1  # of a table's default entry
PIPE_BITS = 28  # bits of a handle below its pipe
TYPES = ("INSERT", "MODIFY", "MODIFY_INC", "MODIFY_DEC", "DELETE", "INSERT_OR_MODIFY", "RESET")  # DEC: MODIFY_INC that removes


class Device:
    """The tables of `switch` (ina.p4.runtime.embedded.Switch), whose program is called `name` (default: its file's). `clock`: s,
    for entries' idle time-outs."""

    def __init__(self, switch: Switch, name: str = "", device_id: int = 0, clock: Callable[[], float] = time.monotonic):
        self.switch, self.device_id, self.clock = switch, device_id, clock
        self.name = name or switch.program.name.removesuffix(".p4")
        self.pipes = switch.pipes or 1
        layout = {**switch.program.layout, "port_metadata": [m for m in switch.program.port_metadata if m["name"]]}
        pipelines = max(1, len(switch.program.pipelines))
        self.program_json = json.dumps(bfrt_json(switch.p4info.message, layout, pipelines)).encode()
        self.fixed_json = json.dumps(fixed_tables()).encode()
        self.info = Info(self.program_json, self.fixed_json)
        self._parts: dict[str, Part] = {}
        self.replication, self.idle = Replication(self), Idle(self)
        self.attributes = Attributes(self, self.idle, self.replication)
        self.ports = PortTables(self)
        kinds: tuple[Callable[[Device], Part], ...] = (ProgramTables, ValueSetTables, HashTables, PktgenTables, FilterTables)
        for part in (*(kind(self) for kind in kinds), self.ports, self.replication):
            self._parts |= dict.fromkeys(part.kinds, part)

    def _part(self, table: Table) -> Part:
        try:
            return self._parts[table.kind]
        except KeyError:
            raise EntityError(f"table {table.name} of type {table.kind} is not served by this switch", "UNIMPLEMENTED") from None

    def write(self, type_: str, row: Row, where: Where = EVERYWHERE) -> None:
        """Makes one update. `where` matters for state and entries that differ between pipes. Raises EntityError."""
        if type_ not in TYPES:
            raise EntityError(f"an update of type {type_}: expected one of {', '.join(TYPES)}")
        table = self.info.table(row.table)
        for name in row.data:
            if table.field(name, table.action(row.action) if row.action else None).read_only:
                raise EntityError(f"table {table.name}: {name} can only be read", "PERMISSION_DENIED")
        where = self._checked(where)
        self.attributes.check(table, where)
        self._part(table).write(type_, table, row, where)

    def write_entities(self, updates: Iterable[Update]) -> None:
        """Writes to the switch; errors leave out the update's number, which is none of the client's."""
        try:
            self.switch.write(list(updates))
        except EntityError as error:
            text = str(error).partition(": ")[2] if error.update is not None else str(error)
            raise EntityError(text, error.code) from None

    def has_port(self, port: int) -> bool:
        """Tells whether a row of $PORT configures the port."""
        return self.ports.configured(port)

    def operate(self, table: Table, operation: str) -> None:
        """Performs a table's operation: most have nothing to do, as reads always look at the data plane."""
        if operation not in table.operations:
            names = ", ".join(table.operations) or "none"
            raise EntityError(f"table {table.name} has no operation {operation!r}; it has: {names}")
        if operation == "UpdateHitState":
            self.idle.update(table)

    def read(self, row: Row, where: Where = EVERYWHERE) -> list[Row]:
        table = self.info.table(row.table)
        return self._part(table).read(table, row, self._checked(where))

    def usage(self, table: Table, where: Where = EVERYWHERE) -> int:
        if table.kind in MATCH_TABLES:
            return self._match_tables(table).usage(table, where.pipe)
        return len(self.read(Row(table.name), where))

    def handle(self, row: Row, where: Where = EVERYWHERE) -> int:
        """A number by which an entry can be read: its own, and in the bits above it its pipe."""
        table = self.info.table(row.table)
        return self._match_tables(table).handle(table, row, self._checked(where))

    def read_handle(self, table: Table, handle: int, where: Where = EVERYWHERE) -> list[Row]:
        return self._match_tables(table).read_handle(table, handle, self._checked(where))

    def _match_tables(self, table: Table) -> ProgramTables:
        if table.kind not in MATCH_TABLES:
            raise EntityError(f"table {table.name} of type {table.kind}: its entries have no handles", "UNIMPLEMENTED")
        part = self._part(table)
        assert isinstance(part, ProgramTables)
        return part

    def inverse(self, type_: str, row: Row, where: Where = EVERYWHERE) -> list[Change]:
        """The updates that undo this one; called before it is made."""
        pattern = Row(row.table, row.key, is_default=row.is_default)
        rows: list[Row | None] = [*self.read(pattern, where)] if type_ != "INSERT" else []
        return [reverse for before in rows or [None] if (reverse := inverse((type_, row), before)) is not None]

    def _checked(self, where: Where) -> Where:
        if where.pipe is None or (not self.switch.pipes and where.pipe == 0):
            return replace(where, pipe=None)
        if where.pipe >= self.pipes:
            raise EntityError(f"pipe {where.pipe}: this switch has pipes 0..{self.pipes - 1}")
        return where


def following(switch: Callable[[], Switch | None]) -> Callable[[], Device | None]:
    """Returns a function that gives the Device of the current `switch()`, which may change or be None."""
    devices: list[Device] = []

    def current() -> Device | None:
        now = switch()
        if now is None:
            return None
        if not devices or devices[0].switch is not now:
            devices[:] = [Device(now)]
        return devices[0]

    return current


class ProgramTables:
    """Tables that the program declares."""

    kinds = (*MATCH_TABLES, "Action", "Selector", "Counter", "Meter", "Register", "RegisterParam")

    def __init__(self, device: Device):
        self.device, self.switch, self.info, self._write = device, device.switch, device.info, device.write_entities
        self.direct = DirectCells(device)
        self._groups: dict[tuple[str, int], Fields] = {}  # data of selectors' groups, as written

    def write(self, type_: str, table: Table, row: Row, where: Where) -> None:
        pipe = where.pipe
        if table.kind in ("Action", "Selector"):
            tables = [t for t in self.info.of_kind(*MATCH_TABLES) if table.id in t.depends_on]
            if table.kind == "Selector" and pipe is not None and not any(self._groups_of(t) for t in tables):
                raise EntityError(f"table {table.name}: pipe {pipe}: all pipes have the same groups (the tables' entry scope)")
            pipe = None  # all pipes share a profile
        if table.kind in ("Register", "RegisterParam"):
            self._registers(type_, table, row, pipe)
        elif table.kind in INDEX:
            self._cells(type_, table, row, pipe)
        elif type_ in ("DELETE", "RESET") and not row.key and not row.is_default:
            self._clear(table, pipe)
        elif row.is_default:
            self._default(type_, table, row, pipe)
        else:
            self._entry(type_, table, row, pipe)

    # ---- match-action tables and profiles

    def _entry(self, type_: str, table: Table, row: Row, pipe: int | None) -> None:
        rows = self._rows(table, row, pipe) if type_ in ("MODIFY", "INSERT_OR_MODIFY") else []
        if type_ == "INSERT_OR_MODIFY":
            type_ = "MODIFY" if rows else "INSERT"
        if type_ in ("MODIFY_INC", "MODIFY_DEC"):
            raise EntityError(f"table {table.name}: MODIFY_INC is for lists; use MODIFY", "UNIMPLEMENTED")
        if type_ == "MODIFY" and rows and table.kind != "Selector":
            keep = row.action in ("", rows[0].action)
            data = (dict(rows[0].data) if keep else {}) | dict(row.data)
            row = Row(row.table, row.key, data, row.action or rows[0].action)
        elif type_ == "MODIFY" and rows:
            row = Row(row.table, row.key, dict(rows[0].data) | dict(row.data))
        if table.kind == "Selector" and type_ != "DELETE":
            row = self._group(table, row, type_ == "INSERT")
        if type_ == "INSERT" and entities.GROUP in row.data:
            self._not_empty(table, row.data[entities.GROUP])
        entity = self._of_pipe(entities.of_row(row, self.info), pipe)
        direct = self._direct(table, row, entity) if type_ != "DELETE" and isinstance(entity, TableEntry) else []
        self._write([Update(type_, entity), *direct])
        if table.kind == "Selector":
            self._groups[table.name, entity.group_id] = dict(row.data) if type_ != "DELETE" else {}
        if self.device.idle.covers(table) and type_ != "DELETE":
            self.device.idle.restart(table, entity, row, type_ == "INSERT")

    def _groups_of(self, table: Table) -> tuple[tuple[int, ...], ...]:
        return self.switch.entry_scope(own_name(table.name)).groups

    def _rows(self, table: Table, row: Row, pipe: int | None) -> list[Row]:
        """Rows with this key, without their direct counters and meters."""
        return [
            entities.to_row(e, self.info) for e in self._matching(table, Row(row.table, self._full_key(table, row.key)), pipe)
        ]

    @staticmethod
    def _full_key(table: Table, key: Mapping[str, Any]) -> Fields:
        """The key with wildcards for the fields that it leaves out, and the first priority."""
        wild = {"exact": 0, "ternary": (0, 0), "lpm": (0, 0), "optional": None}
        return {k.name: key.get(k.name, (0, (1 << k.width) - 1) if k.match == "range" else wild[k.match]) for k in table.keys}

    def _direct(self, table: Table, row: Row, entity: TableEntry) -> list[Update]:
        """Updates of direct counters, meters, registers and filters for which a row has values."""
        updates: list[Update] = []
        if PACKETS in row.data or BYTES in row.data:
            counter = DirectCounterEntry(entity, total(row.data.get(PACKETS)), total(row.data.get(BYTES)))
            updates.append(Update("MODIFY", counter))
        if any(name.startswith("$METER_SPEC") for name in row.data):
            updates.append(Update("MODIFY", DirectMeterEntry(entity, meter_config(table, row.data))))
        return updates + self.direct.write(table, row, entity)

    def _not_empty(self, table: Table, number: int) -> None:
        """Raises EntityError: the group has no members; the published driver refuses an entry with it, too."""
        profile = own_name(self.info.table(self.info.table(table.depends_on[0]).depends_on[0]).name)
        if any(g.group_id == number and not g.members for g in self.switch.read([ProfileGroup(profile, number)])):
            raise EntityError(f"table {table.name}: group {number} has no members", "FAILED_PRECONDITION")

    def _group(self, table: Table, row: Row, new: bool) -> Row:
        """The row with its group's size. Raises EntityError: it has more members, or more room than a group may have."""
        number = row.key.get("$SELECTOR_GROUP_ID", 0)
        profile = self.switch.p4info.profile(own_name(self.info.table(table.depends_on[0]).name))
        data = {} if new else self._groups.get((table.name, number), {})
        limit = row.data.get(SIZE) or data.get(SIZE) or profile.max_group_size
        if profile.max_group_size and limit > profile.max_group_size:
            raise EntityError(f"table {table.name}: {SIZE} {limit}: at most {profile.max_group_size}")
        if limit and len(row.data.get(MEMBER) or ()) > limit:
            raise EntityError(f"table {table.name}: {len(row.data[MEMBER])} members, the group has room for {limit}",
                              "RESOURCE_EXHAUSTED")
        active = row.data.get(STATUS) or [True] * len(row.data.get(MEMBER) or ())
        if not new and not any(active):
            entries = (e for t in profile.tables for e in self.switch.read([TableEntry(t)]))
            if any(e.group == number for e in entries):
                raise EntityError(f"table {table.name}: group {number} is in use: an active member stays", "FAILED_PRECONDITION")
        return Row(row.table, row.key, dict(row.data) | {SIZE: limit}, row.action)

    def _default(self, type_: str, table: Table, row: Row, pipe: int | None) -> None:
        if type_ in ("DELETE", "RESET"):
            if not table.const_default:  # a const default stays: published controllers reset every table
                self._write([Update("MODIFY", TableEntry(own_name(table.name), is_default=True, pipe=pipe))])
        elif type_ in ("MODIFY", "INSERT", "INSERT_OR_MODIFY"):
            self._write([Update("MODIFY", self._of_pipe(entities.of_row(row, self.info), pipe))])
        else:
            raise EntityError(f"table {table.name}: the default entry takes MODIFY and DELETE, not {type_}")

    def _clear(self, table: Table, pipe: int | None) -> None:
        self._write([Update("DELETE", e) for e in self._entities(table, pipe) if not getattr(e, "is_const", False)])

    def _matching(self, table: Table, row: Row, pipe: int | None) -> list[Any]:
        """Entities with the row's key; all of the table for a row without one."""
        if row.key and table.kind in MATCH_TABLES:
            if pipe is None and self._groups_of(table):
                raise EntityError(f"table {table.name}: pipes have entries of their own: name one", "NOT_FOUND")
            pattern = self._of_pipe(entities.of_row(Row(row.table, row.key), self.info), pipe)
            if pattern.match:  # the switch takes an entry that matches everything for a pattern of all
                return self.switch.read([pattern])
        key = self._full_key(table, row.key) if row.key else None
        number = next(iter(row.key.values()), 0) if table.kind in ("Action", "Selector") else 0
        pairs = ((e, entities.to_row(e, self.info)) for e in self._entities(table, pipe, number))
        return [e for e, r in pairs if key in (None, self._full_key(table, r.key))]

    def usage(self, table: Table, pipe: int | None) -> int:
        return len(self._entities(table, pipe if self._groups_of(table) else None))

    def _entities(self, table: Table, pipe: int | None, number: int = 0) -> list[Any]:
        """Entities of the table. `number`: of one member or group; 0: all of them, including one with number 0."""
        name = own_name(table.name)
        if table.kind == "Action":
            return self.switch.read([ProfileMember(name, number)])
        if table.kind == "Selector":
            return self.switch.read([ProfileGroup(own_name(self.info.table(table.depends_on[0]).name), number)])
        return self.switch.read([TableEntry(name, pipe=pipe)])

    # ---- handles

    @staticmethod
    def _has_copy(groups: tuple[tuple[int, ...], ...], pipe: int | None) -> bool:
        """Tells whether a driver has a copy of the entries for `pipe`: it keeps one for the first pipe of a scope, or for all."""
        return pipe is None or any(pipe == group[0] for group in groups)

    def handle(self, table: Table, row: Row, where: Where) -> int:
        entries = self._matching(table, row, where.pipe if self._groups_of(table) else None) if row.key else []
        if not entries:
            raise EntityError(f"table {table.name}: there is no such entry", "NOT_FOUND")
        pipe, number = self.switch.entry_number(entries[0])
        return (pipe or 0) << PIPE_BITS | number + DEFAULT_HANDLE + 1

    def read_handle(self, table: Table, handle: int, where: Where) -> list[Row]:
        if handle == DEFAULT_HANDLE:
            return [replace(row, is_default=False) for row in self.read(table, Row(table.name, is_default=True), where)]
        groups = self._groups_of(table)
        pipe, number = handle >> PIPE_BITS, (handle & (1 << PIPE_BITS) - 1) - DEFAULT_HANDLE - 1
        other = where.pipe is not None and not any(pipe in g and where.pipe in g for g in groups)
        if not where.fresh and (other or not self._has_copy(groups, where.pipe)):
            raise EntityError(f"table {table.name}: handle {handle}: pipe {where.pipe} has no such entry", "NOT_FOUND")
        if groups and other:
            raise EntityError(f"table {table.name}: handle {handle} is not of pipe {where.pipe}")
        for entity in self._entities(table, pipe if groups else None):
            if self.switch.entry_number(entity) == (pipe if groups else None, number):
                return [self._row(table, entity, entities.to_row(entity, self.info), where)]
        raise EntityError(f"table {table.name}: no entry has handle {handle}", "INVALID_ARGUMENT" if where.fresh else "NOT_FOUND")

    # ---- cells

    def _cells(self, type_: str, table: Table, row: Row, pipe: int | None) -> None:
        if type_ in ("DELETE", "RESET"):
            row = Row(table.name, row.key, {} if table.kind == "Meter" else {f.name: 0 for f in table.data})
        entity = entities.of_row(row, self.info)
        if getattr(entity, "index", None) is None and type_ not in ("DELETE", "RESET"):
            raise EntityError(f"table {table.name}: which cell? {INDEX[table.kind]} is missing")
        self._write([Update("MODIFY", self._of_pipe(entity, pipe))])

    def _registers(self, type_: str, table: Table, row: Row, pipe: int | None) -> None:
        """Writes a cell: each of its fields is a register of the switch. DELETE restores its initial value."""
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
            together = [(p, value) for p in self._together(table, pipe)]
            for number, one in enumerate(value) if isinstance(value, tuple) else together:
                cell = RegisterEntry(register_of(f.name, table), index, int(one))
                updates.append(Update("MODIFY", self._of_pipe(cell, number)))
        self._write(updates)

    def _together(self, table: Table, pipe: int | None) -> tuple[int | None, ...]:
        """Pipes that are written with `pipe`, by the table's entry scope."""
        return next((g for g in self.device.attributes.groups(table) if pipe in g), (pipe,))

    def _first_value(self, register: str) -> int:
        initial = next((r.get("initial") for r in self.switch.program.layout["registers"] if r["name"] == register), 0)
        return int(initial or 0)

    @staticmethod
    def _of_pipe(entity: Any, pipe: int | None) -> Any:
        return entity if pipe is None else replace(entity, pipe=pipe)

    # ---- reading

    def read(self, table: Table, row: Row, where: Where) -> list[Row]:
        pipe = where.pipe
        if table.kind in ("Register", "RegisterParam"):
            return self._read_registers(table, row, pipe)
        if table.kind in INDEX:
            return self._read_cells(table, row, pipe)
        scoped = self._groups_of(table) if table.kind in MATCH_TABLES else ()
        entry_pipe = pipe if scoped else None  # pipes that share their entries still have counters and cells of their own
        if row.is_default:
            if scoped and pipe is None:
                raise EntityError(f"table {table.name}: pipes have defaults of their own: name one")
            (default,) = self.switch.read([TableEntry(own_name(table.name), is_default=True, pipe=entry_pipe)])
            return [entities.to_row(default, self.info)] if default.action else []
        if table.kind in MATCH_TABLES and not where.fresh and not self._has_copy(scoped, pipe):
            if row.key:
                raise EntityError(f"table {table.name}: pipe {pipe} is not the first of its scope", "NOT_FOUND")
            return []
        rows = [self._row(table, e, entities.to_row(e, self.info), where) for e in self._matching(table, row, entry_pipe)]
        if row.key and not rows:
            raise EntityError(f"table {table.name}: there is no such entry", "NOT_FOUND")
        return rows

    def _row(self, table: Table, entity: Any, row: Row, where: Where) -> Row:
        data = dict(row.data)
        names = {f.name for f in table.data}
        if isinstance(entity, TableEntry):
            if names & {PACKETS, BYTES}:
                cells = self.switch.read([DirectCounterEntry(entity, pipe=where.pipe)])
                data |= counts(table, sum(c.packets for c in cells), sum(c.bytes for c in cells))
            if any(n.startswith("$METER_SPEC") for n in names):
                meter, *_ = self.switch.read([DirectMeterEntry(entity)])
                data |= entities.to_row(meter, self.info).data
            data |= self.direct.read(table, entity, where.pipe)
            if self.device.idle.covers(table):
                values = self.device.idle.data(table, entity, where.fresh)
                data |= {n: v for n, v in values.items() if n in names}
        elif isinstance(entity, ProfileGroup):
            values = self._groups.get((table.name, entity.group_id), {})
            if values and entities.of_row(Row(row.table, row.key, values), self.info) == entity:
                data |= values  # repeated members, in the order in which they were written
            data.setdefault(MEMBER, [])
            data.setdefault(STATUS, [])
        return Row(row.table, self._full_key(table, row.key), data, row.action)

    def _read_registers(self, table: Table, row: Row, pipe: int | None) -> list[Row]:
        """Rows with a value for each pipe in each field."""
        param = table.kind == "RegisterParam"
        index = 0 if param else row.key.get(INDEX["Register"])
        rows: dict[int, Fields] = {}
        for f in table.data:
            pattern = self._of_pipe(RegisterEntry(register_of(f.name, table), index), pipe)
            for cell in self.switch.read([pattern]):
                value = bool(cell.value) if f.type == "bool" else cell.value
                data = rows.setdefault(cell.index, {})
                data[f.name] = (*data.get(f.name, ()), value)
        return [Row(table.name, {} if param else {INDEX["Register"]: i},
                    {name: v if len(v) > 1 and not param else v[0] for name, v in data.items()}, is_default=param)
                for i, data in rows.items()]

    def _read_cells(self, table: Table, row: Row, pipe: int | None) -> list[Row]:
        pattern = self._of_pipe(entities.of_row(Row(row.table, row.key), self.info), pipe)
        by_index: dict[int, list[Any]] = {}
        for cell in self.switch.read([pattern]):
            by_index.setdefault(cell.index, []).append(cell)
        return [self._cell(table, index, cells) for index, cells in by_index.items()]

    def _cell(self, table: Table, index: int, cells: list[Any]) -> Row:
        """The row of a cell: sums counters over pipes; meters are the same in all."""
        rows = [entities.to_row(c, self.info) for c in cells]
        data = dict(rows[0].data)
        if table.kind == "Counter":
            data = {name: sum(r.data[name] for r in rows) for name in data}
        return Row(table.name, {INDEX[table.kind]: index}, data)
