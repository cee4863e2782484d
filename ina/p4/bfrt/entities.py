"""P4Runtime's entities as rows of BFRuntime's tables, and back: entries, profiles, counters, meters, registers, value sets.

Differences in meaning: priorities are reversed (the lowest `$MATCH_PRIORITY` wins, 24 bits); a meter's rates are kbit/s and its
bursts kbit, or packets; an entry without an action profile's member names its action.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ina.p4.bfrt.info import Field, Info, Table
from ina.p4.bfrt.program_info import MATCH_TABLES, own_name
from ina.p4.bfrt.rows import PRIORITY, Row
from ina.p4.bfrt.schema import key_name
from ina.p4.runtime.entities import (
    CounterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    Entity,
    MeterConfig,
    MeterEntry,
    ProfileGroup,
    ProfileMember,
    RegisterEntry,
    TableEntry,
    ValueSetEntry,
)
from ina.p4.runtime.p4info import EntityError, find

HIGHEST = 1 << 24  # priority of $MATCH_PRIORITY 0; its last, 2^24 - 1, is priority 1
MEMBER, GROUP, STATUS = "$ACTION_MEMBER_ID", "$SELECTOR_GROUP_ID", "$ACTION_MEMBER_STATUS"
INDEX = {"Counter": "$COUNTER_INDEX", "Meter": "$METER_INDEX", "Register": "$REGISTER_INDEX"}
PACKETS, BYTES = "$COUNTER_SPEC_PKTS", "$COUNTER_SPEC_BYTES"
UNLIMITED = (1 << 64) - 1  # of a meter's rates in packets: everything is green
MOST = {"KBPS": 5195848221, "KBITS": 4380866642}  # and in bits: the largest that the published driver reports for Tofino


def table_of(info: Info, name: str | int, *kinds: str) -> Table:
    """The table of one of these kinds with this name, the program's or BFRuntime's. Raises EntityError."""
    return find(kinds[0] if len(kinds) == 1 else "table", info.of_kind(*kinds), name)


# ---- to rows


def to_row(e: Entity, info: Info) -> Row:
    """The row for `e`; as a pattern to read, without the fields that `e` leaves open. Raises EntityError."""
    if isinstance(e, (DirectCounterEntry, DirectMeterEntry)):
        row = _entry(e.entry, info)
        table = info.table(row.table)
        if isinstance(e, DirectCounterEntry):
            return replace(row, data=_counts(table, e.packets, e.bytes), action="")
        return replace(row, data=_rates(table, e.config), action="")
    if isinstance(e, TableEntry):
        return _entry(e, info)
    if isinstance(e, ProfileMember):
        table = table_of(info, e.profile, "Action")
        key = {MEMBER: e.member_id} if e.member_id else {}
        return Row(table.name, key, dict(e.params), table.action(e.action).name if e.action else "")
    if isinstance(e, ProfileGroup):
        table = selector_of(info, e.profile)
        members = [(m, weight > 0) for m, weight in e.members for _ in range(max(1, weight))]
        data = {MEMBER: [m for m, _ in members], STATUS: [active for _, active in members]} if members else {}
        return Row(table.name, {GROUP: e.group_id} if e.group_id else {}, data)
    if isinstance(e, CounterEntry):
        table = table_of(info, e.counter, "Counter")
        return Row(table.name, _index(table, e.index), _counts(table, e.packets, e.bytes))
    if isinstance(e, MeterEntry):
        table = table_of(info, e.meter, "Meter")
        return Row(table.name, _index(table, e.index), _rates(table, e.config))
    if isinstance(e, RegisterEntry):
        table = table_of(info, e.register, "Register")
        return Row(table.name, _index(table, e.index), register_data(table, e.value))
    raise EntityError(f"{type(e).__name__} has no table in BFRuntime", "UNIMPLEMENTED")


def _entry(e: TableEntry, info: Info) -> Row:
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


def selector_of(info: Info, profile: str | int) -> Table:
    action_table = table_of(info, profile, "Action")
    for table in info.of_kind("Selector"):
        if action_table.id in table.depends_on:
            return table
    raise EntityError(f"action profile {profile} has no selector, so no groups")


def _index(table: Table, index: int | None) -> dict[str, int]:
    if index is None:
        return {}
    if table.size and not 0 <= index < table.size:
        raise EntityError(f"{own_name(table.name)}[{index}]: expected an index of 0..{table.size - 1}", "OUT_OF_RANGE")
    return {INDEX[table.kind]: index}


def _counts(table: Table, packets: int, octets: int) -> dict[str, int]:
    names = {f.name for f in table.data}
    return {n: v for n, v in ((BYTES, octets), (PACKETS, packets)) if n in names}


def meter_fields(table: Table) -> tuple[list[str], float]:
    """Names of committed rate, peak rate, committed and peak burst, and the bytes in one unit of theirs (0: packets)."""
    if any(f.name == "$METER_SPEC_CIR_KBPS" for f in table.data):
        return [f"$METER_SPEC_{n}" for n in ("CIR_KBPS", "PIR_KBPS", "CBS_KBITS", "PBS_KBITS")], 125.0
    if any(f.name == "$METER_SPEC_CIR_PPS" for f in table.data):
        return [f"$METER_SPEC_{n}" for n in ("CIR_PPS", "PIR_PPS", "CBS_PKTS", "PBS_PKTS")], 0.0
    raise EntityError(f"table {table.name} has no meter")


def _rates(table: Table, config: MeterConfig | None) -> dict[str, int]:
    names, unit = meter_fields(table)
    if config is None:
        return _unconfigured(names)
    values = (config.committed_rate, config.peak_rate, config.committed_burst, config.peak_burst)
    return {n: round(v / (unit or 1)) for n, v in zip(names, values, strict=True)}


def register_data(table: Table, value: Any) -> dict[str, int]:
    """Data of a register's row. `value`: one for each field, or a number whose upper bits are the first of two fields."""
    if isinstance(value, (tuple, list)):
        return {f.name: v for f, v in zip(table.data, value, strict=True)}
    data, width = {}, sum(f.width for f in table.data)
    if value < 0 or value >> width:
        raise EntityError(f"{own_name(table.name)}: {value} does not fit {width} bits")
    for field in reversed(table.data):
        data[field.name] = value & ((1 << field.width) - 1)
        value >>= field.width
    return {f.name: data[f.name] for f in table.data}


# ---- from rows


def of_row(row: Row, info: Info) -> Entity:
    """The entity of a row in a program's table. Raises EntityError."""
    table = info.table(row.table)
    name = own_name(table.name)
    if table.kind in MATCH_TABLES:
        return _table_entry(row, table, name)
    if table.kind == "Action":
        return ProfileMember(name, row.key.get(MEMBER, 0), own_name(row.action), dict(row.data))
    if table.kind == "Selector":
        action_table = info.table(table.depends_on[0])
        members = row.data.get(MEMBER) or []
        states = row.data.get(STATUS) or [True] * len(members)
        if len(states) != len(members):
            raise EntityError(f"table {table.name}: {len(members)} members and {len(states)} states: expected one for each")
        active = [m for m, on in zip(members, states, strict=True) if on]
        return ProfileGroup(
            own_name(action_table.name), row.key.get(GROUP, 0), tuple((m, active.count(m)) for m in dict.fromkeys(members))
        )
    if table.kind == "Counter":
        return CounterEntry(name, row.key.get(INDEX["Counter"]), total(row.data.get(PACKETS)), total(row.data.get(BYTES)))
    if table.kind == "Meter":
        return MeterEntry(name, row.key.get(INDEX["Meter"]), meter_config(table, row.data))
    if table.kind == "Register":
        return RegisterEntry(name, row.key.get(INDEX["Register"]), register_value(table, row.data))
    raise EntityError(f"table {table.name} of type {table.kind} is no entity", "UNIMPLEMENTED")


def _table_entry(row: Row, table: Table, name: str) -> TableEntry:
    match = {own_key(k): v for k, v in row.key.items() if k != PRIORITY and not _wild(v, table.key(k))}
    has_priority = any(k.name == PRIORITY for k in table.keys) and not row.is_default
    if MEMBER in row.data or GROUP in row.data:
        return TableEntry(name, match, member=row.data.get(MEMBER), group=row.data.get(GROUP), is_default=row.is_default,
                          priority=HIGHEST - row.key.get(PRIORITY, 0) if has_priority else 0)  # fmt: skip
    fields = table.action(row.action).fields if row.action else ()
    params = {f.name: row.data.get(f.name, 0) for f in fields}  # missing parameters are zero
    return TableEntry(name, match, own_name(row.action) or None, params, is_default=row.is_default,
                      priority=HIGHEST - row.key.get(PRIORITY, 0) if has_priority else 0)  # fmt: skip


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


def total(value: Any) -> int:
    return sum(v or 0 for v in value) if isinstance(value, tuple) else value or 0


def _unconfigured(names: Iterable[str]) -> dict[str, int]:
    return {n: MOST.get(n.rpartition("_")[2], UNLIMITED) for n in names}


def meter_config(table: Table, data: Any) -> MeterConfig | None:
    names, unit = meter_fields(table)
    values = [data.get(n) for n in names]
    if any(v is None for v in values) or values == list(_unconfigured(names).values()):
        return None
    committed, peak, burst, peak_burst = (v * (unit or 1) for v in values)
    return MeterConfig(committed, round(burst), peak, round(peak_burst))


def register_value(table: Table, data: Any, pipe: int | None = None) -> int:
    """The register's value in one pipe; None: in the first."""
    value = 0
    for field in table.data:
        part = data.get(field.name, 0)
        value = value << field.width | int(part[pipe or 0] if isinstance(part, tuple) else part or 0)
    return value


def value_set_rows(e: ValueSetEntry, info: Info) -> list[Row]:
    table = table_of(info, e.value_set, "ParserValueSet")
    keys = [k for k in table.keys if k.name != PRIORITY]
    return [Row(table.name, dict(m) if isinstance(m, dict) else {keys[0].name: m}) for m in e.members]
