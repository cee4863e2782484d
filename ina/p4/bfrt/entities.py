"""Kinds of P4Runtime's entities in BFRuntime: for each class what its row is, and how a client writes and reads it.

A kind is one class, which `@kind_of(EntityClass)` registers: here those whose entity is one row of a program's table. Differences
in meaning: priorities are reversed (the lowest `$MATCH_PRIORITY` wins, 24 bits); an entry without a member of an action profile
names its action. remote_switch.py has those that a client writes as several rows; replication.py rows of Tofino's own tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ina.p4.bfrt.cells import (
    BYTES,
    INDEX,
    PACKETS,
    counts,
    index_key,
    meter_config,
    rates,
    register_data,
    register_value,
    total,
)
from ina.p4.bfrt.info import MATCH_TABLES, Field, Info, Table, own_name
from ina.p4.bfrt.rows import PRIORITY, Change, Row
from ina.p4.bfrt.schema import key_name
from ina.p4.runtime import (
    CounterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    Entity,
    EntityError,
    MeterEntry,
    ProfileGroup,
    ProfileMember,
    RegisterEntry,
    TableEntry,
    ValueSetEntry,
    find,
)

HIGHEST = 1 << 24  # priority of $MATCH_PRIORITY 0; its last, 2^24 - 1, is priority 1
MEMBER, GROUP, STATUS = "$ACTION_MEMBER_ID", "$SELECTOR_GROUP_ID", "$ACTION_MEMBER_STATUS"

K = TypeVar("K", bound=Entity)


class Reader(Protocol):
    """The part of a client (client.py) that kinds need."""

    info: Info

    def read(self, patterns: Sequence[Row]) -> list[Row]: ...

    def matching(self, pattern: Row) -> list[Row]:
        """The rows that match; none where the server answers NOT_FOUND."""


class Kind(ABC, Generic[K]):
    """The entities of one class. `tables`: types of the tables whose rows they are."""

    tables: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def row(self, entity: K, info: Info) -> Row:
        """The row of an entity; as a pattern to read, without the fields that it leaves open. Raises EntityError."""

    def entity(self, row: Row, table: Table, info: Info) -> K:
        """The reverse of `row`, for a row of one of `tables`. Raises EntityError."""
        raise EntityError(f"table {table.name} of type {table.kind} is no entity", "UNIMPLEMENTED")

    def changes(self, client: Reader, type_: str, entity: K) -> list[Change]:
        """The rows of an update, in the order in which to write them. May read current entries. Raises EntityError."""
        row = self.row(entity, client.info)
        return [(type_, Row(row.table, row.key) if type_ == "DELETE" else row)]

    def read(self, client: Reader, pattern: K) -> list[K]:
        """The entities that match, as a server has them. Raises EntityError."""
        row = self.row(pattern, client.info)
        table = client.info.table(row.table)
        rows = client.matching(Row(row.table, row.key, is_default=row.is_default))
        return [self.entity(r, table, client.info) for r in rows if r.is_default == row.is_default]


KINDS: dict[type[Entity], Kind[Any]] = {}
BY_TABLE: dict[str, Kind[Entity]] = {}  # by the type of the table
C = TypeVar("C", bound=type[Kind[Any]])


def kind_of(entity: type[Entity]) -> Callable[[C], C]:
    """Registers a class as the kind of these entities."""

    def register(kind_class: C) -> C:
        KINDS[entity] = kind_class()
        BY_TABLE.update(dict.fromkeys(kind_class.tables, KINDS[entity]))
        return kind_class

    return register


def kind(entity: K) -> Kind[K]:
    """The kind of an entity. Raises EntityError: it has none."""
    if type(entity) not in KINDS:
        raise no_table(entity)
    return KINDS[type(entity)]


def no_table(entity: Entity) -> EntityError:
    return EntityError(f"{type(entity).__name__} has no table in BFRuntime", "UNIMPLEMENTED")


def to_row(entity: Entity, info: Info) -> Row:
    """The row of an entity. Raises EntityError: it is not one row of a program's table, for one."""
    return kind(entity).row(entity, info)


def of_row(row: Row, info: Info) -> Entity:
    """The entity of a row in a program's table. Raises EntityError."""
    table = info.table(row.table)
    if table.kind not in BY_TABLE:
        raise EntityError(f"table {table.name} of type {table.kind} is no entity", "UNIMPLEMENTED")
    return BY_TABLE[table.kind].entity(row, table, info)


def table_of(info: Info, name: str | int, *kinds: str) -> Table:
    """The table of one of these kinds with this name, the program's or BFRuntime's. Raises EntityError."""
    return find(kinds[0] if len(kinds) == 1 else "table", info.of_kind(*kinds), name)


# ---- entries


@kind_of(TableEntry)
class TableEntries(Kind[TableEntry]):
    tables = MATCH_TABLES

    def row(self, entity: TableEntry, info: Info) -> Row:
        e = entity
        table = table_of(info, e.table, *MATCH_TABLES)
        key = {table.key(key_name(name)).name: match for name, match in e.match.items()}
        if not e.is_default and e.match and any(k.name == PRIORITY for k in table.keys):
            if not 1 <= e.priority <= HIGHEST:
                raise EntityError(f"table {table.name}: priority {e.priority}: expected 1..{HIGHEST}")
            key[PRIORITY] = HIGHEST - e.priority
        if e.member is not None or e.group is not None:
            data = {MEMBER: e.member} if e.member is not None else {GROUP: e.group}
            return Row(table.name, key, data, is_default=e.is_default)
        if not table.actions:  # the default of a table whose entries name members of a profile
            return Row(table.name, key, is_default=e.is_default)
        action = table.action(e.action).name if e.action is not None else ""
        return Row(table.name, key, dict(e.params), action, e.is_default)

    def entity(self, row: Row, table: Table, info: Info) -> TableEntry:
        name = own_name(table.name)
        match = {own_key(k): v for k, v in row.key.items() if k != PRIORITY and not _wild(v, table.key(k))}
        has_priority = any(k.name == PRIORITY for k in table.keys) and not row.is_default
        priority = HIGHEST - row.key.get(PRIORITY, 0) if has_priority else 0
        if MEMBER in row.data or GROUP in row.data:
            member, group = row.data.get(MEMBER), row.data.get(GROUP)
            return TableEntry(name, match, priority=priority, is_default=row.is_default, member=member, group=group)
        fields = table.action(row.action).fields if row.action else ()
        params = {f.name: row.data.get(f.name, 0) for f in fields}  # missing parameters are zero
        return TableEntry(name, match, own_name(row.action) or None, params, priority, row.is_default)

    def changes(self, client: Reader, type_: str, entity: TableEntry) -> list[Change]:
        if entity.is_default:
            return [("MODIFY" if entity.action else "DELETE", self.row(entity, client.info))]
        return super().changes(client, type_, entity)

    def read(self, client: Reader, pattern: TableEntry) -> list[TableEntry]:
        if not pattern.table:
            tables = [own_name(t.name) for t in client.info.of_kind(*MATCH_TABLES)]
            return [entry for table in tables for entry in self.read(client, replace(pattern, table=table))]
        return [e for e in super().read(client, pattern) if e.action or e.member is not None or e.group is not None]


def own_key(name: str) -> str:
    """The reverse of `key_name`."""
    return f"{name}$" if name.endswith(".$valid") else name


def _wild(value: Any, key: Field) -> bool:
    """Tells whether a field matches everything; an entity leaves such fields out."""
    if value is None:
        return True
    if key.match == "range":
        return bool(value == (0, (1 << key.width) - 1))
    return key.match in ("ternary", "lpm") and isinstance(value, tuple) and value[1] == 0


def _direct(client: Reader, entry: TableEntry) -> Row:
    """The row with the direct objects of an entry."""
    (row,) = client.read([replace(to_row(entry, client.info), data={}, action="")])
    return row


@kind_of(DirectCounterEntry)
class DirectCounters(Kind[DirectCounterEntry]):
    def row(self, entity: DirectCounterEntry, info: Info) -> Row:
        row = to_row(entity.entry, info)
        return replace(row, data=counts(info.table(row.table), entity.packets, entity.bytes), action="")

    def read(self, client: Reader, pattern: DirectCounterEntry) -> list[DirectCounterEntry]:
        data = _direct(client, pattern.entry).data
        return [replace(pattern, packets=total(data.get(PACKETS)), bytes=total(data.get(BYTES)))]


@kind_of(DirectMeterEntry)
class DirectMeters(Kind[DirectMeterEntry]):
    def row(self, entity: DirectMeterEntry, info: Info) -> Row:
        row = to_row(entity.entry, info)
        return replace(row, data=rates(info.table(row.table), entity.config), action="")

    def read(self, client: Reader, pattern: DirectMeterEntry) -> list[DirectMeterEntry]:
        row = _direct(client, pattern.entry)
        return [replace(pattern, config=meter_config(client.info.table(row.table), row.data))]


# ---- action profiles


@kind_of(ProfileMember)
class Members(Kind[ProfileMember]):
    tables = ("Action",)

    def row(self, entity: ProfileMember, info: Info) -> Row:
        table = table_of(info, entity.profile, "Action")
        key = {MEMBER: entity.member_id} if entity.member_id else {}
        return Row(table.name, key, dict(entity.params), table.action(entity.action).name if entity.action else "")

    def entity(self, row: Row, table: Table, info: Info) -> ProfileMember:
        return ProfileMember(own_name(table.name), row.key.get(MEMBER, 0), own_name(row.action), dict(row.data))


@kind_of(ProfileGroup)
class Groups(Kind[ProfileGroup]):
    tables = ("Selector",)

    def row(self, entity: ProfileGroup, info: Info) -> Row:
        table = selector_of(info, entity.profile)
        members = [(m, weight > 0) for m, weight in entity.members for _ in range(max(1, weight))]
        data = {MEMBER: [m for m, _ in members], STATUS: [active for _, active in members]} if members else {}
        return Row(table.name, {GROUP: entity.group_id} if entity.group_id else {}, data)

    def entity(self, row: Row, table: Table, info: Info) -> ProfileGroup:
        action_table = info.table(table.depends_on[0])
        members = row.data.get(MEMBER) or []
        states = row.data.get(STATUS) or [True] * len(members)
        if len(states) != len(members):
            raise EntityError(f"table {table.name}: {len(members)} members and {len(states)} states: expected one for each")
        active = [m for m, on in zip(members, states, strict=True) if on]
        return ProfileGroup(
            own_name(action_table.name), row.key.get(GROUP, 0), tuple((m, active.count(m)) for m in dict.fromkeys(members))
        )

    def changes(self, client: Reader, type_: str, entity: ProfileGroup) -> list[Change]:
        if type_ == "DELETE":
            return super().changes(client, type_, entity)
        row = self.row(entity, client.info)
        return [(type_, replace(row, data=row.data or {MEMBER: [], STATUS: []}))]


def selector_of(info: Info, profile: str | int) -> Table:
    action_table = table_of(info, profile, "Action")
    for table in info.of_kind("Selector"):
        if action_table.id in table.depends_on:
            return table
    raise EntityError(f"action profile {profile} has no selector, so no groups")


# ---- value sets


def value_set_rows(e: ValueSetEntry, info: Info) -> list[Row]:
    table = table_of(info, e.value_set, "ParserValueSet")
    keys = [k for k in table.keys if k.name != PRIORITY]
    return [Row(table.name, dict(m) if isinstance(m, dict) else {keys[0].name: m}) for m in e.members]


# ---- cells


@kind_of(CounterEntry)
class Counters(Kind[CounterEntry]):
    tables = ("Counter",)

    def row(self, entity: CounterEntry, info: Info) -> Row:
        table = table_of(info, entity.counter, "Counter")
        return Row(table.name, index_key(table, entity.index), counts(table, entity.packets, entity.bytes))

    def entity(self, row: Row, table: Table, info: Info) -> CounterEntry:
        packets, octets = total(row.data.get(PACKETS)), total(row.data.get(BYTES))
        return CounterEntry(own_name(table.name), row.key.get(INDEX["Counter"]), packets, octets)


@kind_of(MeterEntry)
class Meters(Kind[MeterEntry]):
    tables = ("Meter",)

    def row(self, entity: MeterEntry, info: Info) -> Row:
        table = table_of(info, entity.meter, "Meter")
        return Row(table.name, index_key(table, entity.index), rates(table, entity.config))

    def entity(self, row: Row, table: Table, info: Info) -> MeterEntry:
        return MeterEntry(own_name(table.name), row.key.get(INDEX["Meter"]), meter_config(table, row.data))


@kind_of(RegisterEntry)
class Registers(Kind[RegisterEntry]):
    tables = ("Register",)

    def row(self, entity: RegisterEntry, info: Info) -> Row:
        table = table_of(info, entity.register, "Register")
        return Row(table.name, index_key(table, entity.index), register_data(table, entity.value))

    def entity(self, row: Row, table: Table, info: Info) -> RegisterEntry:
        return RegisterEntry(own_name(table.name), row.key.get(INDEX["Register"]), register_value(table, row.data))

    def read(self, client: Reader, pattern: RegisterEntry) -> list[RegisterEntry]:
        return [replace(e, register=pattern.register) for e in super().read(client, pattern)]
