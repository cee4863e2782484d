"""Codecs of table entries, and of their direct counters and meters (P4Runtime §9.1, §9.3, §9.5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Self

from ina.p4.p4runtime.cell_codecs import (
    answered_config,
    counts_of,
    merge,
    message_of,
    refuse_counts,
    requested_config,
    with_config,
)
from ina.p4.p4runtime.codecs import Codec, codec
from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.profile_codecs import ActionSets
from ina.p4.p4runtime.program import ProgramMessages, by_id
from ina.p4.runtime import (
    DirectCounterEntry,
    DirectMeterEntry,
    EntityError,
    MeterConfig,
    SwitchTarget,
    TableEntry,
    TableInfo,
    Update,
    Value,
    as_params,
)
from ina.p4.runtime.entities import check_names


@codec(TableEntry, "table_entry")
class TableEntries(Codec[TableEntry, p4.TableEntry]):
    """An update of an entry becomes several of the switch: members and group of its action set, its direct counter and meter."""

    def __init__(self, program: ProgramMessages):
        super().__init__(program)
        self._tables = {t.preamble.id: t for t in program.message.tables}
        self._limits = {p.preamble.name: p.max_group_size for p in program.message.action_profiles}
        self._action_sets = ActionSets(program)

    def updates(self, type_: str, request: p4.TableEntry) -> list[Update]:
        entry = self.program.key_entry(request) if type_ == "DELETE" else self.entity(type_, request)
        place, table = f"table {entry.table}", self.program.table(request.table_id)
        if entry.is_default and type_ != "MODIFY":
            raise EntityError(f"{place}: default: only MODIFY is possible")
        if type_ == "INSERT" and not entry.is_default and not table.fields:
            raise EntityError(f"{place}: it has no key, so it can have no entries but its default")
        before: list[Update] = []
        after: list[Update] = []
        if table.profile and not entry.is_default:
            before, entry, after = self._action_sets.around(type_, request, entry, self._limits[table.profile])
        if type_ == "DELETE":
            return [Update(type_, entry), *after]
        self._check_served(request, place)
        return [*before, Update(type_, entry), *after, *self._direct(request, entry)]

    def _check_served(self, request: p4.TableEntry, place: str) -> None:
        if request.is_const:
            raise EntityError(f"{place}: is_const is for reading")
        if request.HasField("meter_counter_data"):
            raise EntityError(f"{place}: meters do not count packets by colour", "UNIMPLEMENTED")
        if request.idle_timeout_ns:
            behavior = self._tables[request.table_id].idle_timeout_behavior
            raise EntityError(f"{place}: idle time-outs are not served", "UNIMPLEMENTED" if behavior else "INVALID_ARGUMENT")

    def _direct(self, request: p4.TableEntry, entry: TableEntry) -> Iterator[Update]:
        """Updates of the entry's counter and meter."""
        if request.HasField("counter_data"):
            yield Update("MODIFY", direct_counter(self.program, request, entry, request.counter_data))
        if request.HasField("meter_config"):
            check_direct("meter", self.program.metered, request.table_id, entry)
            config = requested_config(p4.DirectMeterEntry(config=request.meter_config), f"table {entry.table}: meter")
            yield Update("MODIFY", DirectMeterEntry(entry, config))
        elif request.table_id in self.program.metered and not entry.is_default:  # without a config a MODIFY resets it (§9.1.6)
            yield Update("MODIFY", DirectMeterEntry(entry, None))

    def entity(self, type_: str, request: p4.TableEntry) -> TableEntry:
        return full_entry(self.program, request)

    def answers(self, pattern: p4.TableEntry, switch: SwitchTarget) -> Iterator[p4.TableEntry]:
        for row in rows(self.program, pattern, switch) if pattern.table_id else switch.read([TableEntry("")]):
            answer = key_message(self.program, row)
            self._set_action(answer, row)
            if has_direct(row):
                if pattern.HasField("counter_data") and answer.table_id in self.program.counted:
                    answer.counter_data.CopyFrom(count(row, switch))
                if pattern.HasField("meter_config") and answer.table_id in self.program.metered:
                    if (config := meter(row, switch)) is not None:
                        answer.meter_config.CopyFrom(message_of(config))
            yield answer

    def _set_action(self, answer: p4.TableEntry, entry: TableEntry) -> None:
        if entry.action is not None:
            self.program.fill_action(answer.action.action, entry.action, entry.params)
        elif entry.member is not None:
            answer.action.action_profile_member_id = entry.member
        elif entry.group is not None and (action_set := self._action_sets.message(entry.group)) is not None:
            answer.action.action_profile_action_set.CopyFrom(action_set)
        elif entry.group is not None:
            answer.action.action_profile_group_id = entry.group

    def begin(self) -> None:
        self._action_sets.begin()

    def record(self, type_: str, request: p4.TableEntry) -> None:
        if self.program.table(request.table_id).profile and not request.is_default_action:
            self._action_sets.record(type_, self.program.key_entry(request))

    def inherit(self, other: Self) -> None:
        self._action_sets.inherit(other._action_sets)

    def request(self, entity: TableEntry) -> p4.TableEntry:
        message = client_key(self.program, entity)
        if not entity.table:
            return message
        message.metadata, message.controller_metadata = entity.metadata, entity.controller_metadata
        if entity.action is not None:
            table = self.program.info.table(entity.table)
            action = self.program.info.action(table, entity.action, entity.is_default)
            params = as_params(entity.params, action.params, f"table {table.name}: action {action.name}")
            entity = replace(entity, action=action.name, params=params)
        self._set_action(message, entity)
        return message

    def answered(self, answer: p4.TableEntry) -> TableEntry:
        return full_entry(self.program, answer)


# ---- entries as keys


def key_message(program: ProgramMessages, entry: TableEntry) -> p4.TableEntry:
    """An entry of the switch, without its action."""
    table = program.info.tables[str(entry.table)]
    message = p4.TableEntry(
        table_id=table.id, priority=entry.priority, is_default_action=entry.is_default, metadata=entry.metadata,
        controller_metadata=entry.controller_metadata, is_const=entry.is_const,
    )
    if not entry.is_default:
        message.match.extend(program.match_messages(table.fields, program.key(entry)))
    return message


def rows(program: ProgramMessages, pattern: p4.TableEntry, switch: SwitchTarget) -> list[TableEntry]:
    """Entries of one table that match a pattern."""
    table, e = program.table(pattern.table_id), pattern
    entry = program.key_entry(e)
    key = program.key(entry) if entry.match else None
    action = None
    kind = e.action.WhichOneof("type") if e.HasField("action") else None
    if kind == "action":
        action = by_id("action", program.info.actions.values(), e.action.action.action_id).name
    elif kind == "action_profile_action_set":
        raise EntityError(f"table {table.name}: entries cannot be read by action set", "UNIMPLEMENTED")
    return [
        r for r in switch.read([TableEntry(table.name, is_default=e.is_default_action)])
        if (key is None or program.key(r) == key)
        and (action is None or r.action == action)
        and (kind != "action_profile_member_id" or r.member == e.action.action_profile_member_id)
        and (kind != "action_profile_group_id" or r.group == e.action.action_profile_group_id)
        and e.priority in (0, r.priority)
        and e.metadata in (b"", r.metadata)
        and e.controller_metadata in (0, r.controller_metadata)
    ]


def client_key(program: ProgramMessages, entry: TableEntry) -> p4.TableEntry:
    """Table, match and priority of a controller's entry, which identify its direct counter or meter, too (§9.3, §9.5)."""
    if not entry.table:
        return p4.TableEntry(is_default_action=entry.is_default)
    table = program.info.table(entry.table)
    message = p4.TableEntry(table_id=table.id, priority=entry.priority, is_default_action=entry.is_default)
    if entry.match:  # else all entries, where it is a pattern
        check_names(entry.match, table.fields, f"table {table.name}: no match field")
        message.match.extend(program.match_messages(table.fields, program.key(TableEntry(table.name, entry.match))))
    return message


def full_entry(program: ProgramMessages, e: p4.TableEntry) -> TableEntry:
    """The entry of a message, with its action."""
    key = program.key_entry(e)
    action, params, member, group = _action(program, e, program.table(e.table_id))
    return TableEntry(
        key.table, key.match, action, params, e.priority, e.is_default_action, e.metadata, e.controller_metadata,
        member=member, group=group,
    )


def _action(
    program: ProgramMessages, e: p4.TableEntry, table: TableInfo
) -> tuple[str | None, dict[str, Value], int | None, int | None]:
    """Action and parameters, or member, or group, that a message names."""
    place = f"table {table.name}"
    kind = e.action.WhichOneof("type") if e.HasField("action") else None
    if kind is None:
        return None, {}, None, None
    if (kind == "action") == bool(table.profile) and not e.is_default_action:
        reason = f"has the action profile {table.profile}" if table.profile else "has no action profile"
        raise EntityError(f"{place}: its entries cannot name an {kind}: it {reason}")
    if kind != "action":  # profile_codecs.py makes a group of an action set
        member = e.action.action_profile_member_id if kind == "action_profile_member_id" else None
        return None, {}, member, e.action.action_profile_group_id if kind == "action_profile_group_id" else None
    of_table = set(table.entry_actions) | set(table.default_actions)
    candidates = [a for a in program.info.actions.values() if a.name in of_table]
    action, params = program.action(e.action.action, candidates, place)
    if action not in (table.default_actions if e.is_default_action else table.entry_actions):
        use = "entries" if e.is_default_action else "the default"
        raise EntityError(f"{place}: action {action} is for {use} only", "PERMISSION_DENIED")
    return action, params, None, None


# ---- direct counters and meters


def has_direct(row: TableEntry) -> bool:
    """Tells whether an entry has a counter and a meter of its own, if its table has them."""
    return not row.is_default and not row.is_const


def _key(row: TableEntry) -> TableEntry:
    return TableEntry(row.table, row.match, priority=row.priority)


def count(row: TableEntry, switch: SwitchTarget) -> p4.CounterData:
    (counter,) = merge(switch.read([DirectCounterEntry(_key(row))]))
    return p4.CounterData(packet_count=counter.packets, byte_count=counter.bytes)


def meter(row: TableEntry, switch: SwitchTarget) -> MeterConfig | None:
    (direct,) = merge(switch.read([DirectMeterEntry(_key(row))]))
    return direct.config


def direct_counter(program: ProgramMessages, e: p4.TableEntry, entry: TableEntry, data: p4.CounterData) -> DirectCounterEntry:
    check_direct("counter", program.counted, e.table_id, entry)
    return DirectCounterEntry(entry, *counts_of(data))


def check_direct(kind: str, tables: set[int], table_id: int, entry: TableEntry) -> None:
    """Raises EntityError: an entry has no direct object of this kind. `tables`: ids of those that have one."""
    if table_id not in tables:
        raise EntityError(f"table {entry.table} has no direct {kind}")
    if entry.is_default:
        raise EntityError(f"table {entry.table}: its default entry has no {kind} of its own", "UNIMPLEMENTED")


def direct_rows(
    program: ProgramMessages, kind: str, tables: set[int], pattern: p4.TableEntry, switch: SwitchTarget
) -> Iterator[tuple[TableEntry, p4.TableEntry]]:
    """The entries with a direct object that match a pattern, and their keys as messages. `tables`: ids of those that have it."""
    for one in [pattern] if pattern.table_id else [p4.TableEntry(table_id=number) for number in sorted(tables)]:
        if one.table_id not in tables:
            raise EntityError(f"table {program.table(one.table_id).name} has no direct {kind}")
        entries = rows(program, one, switch)
        if one.match and not entries:
            raise EntityError(f"direct {kind}: no entry with this match and priority", "NOT_FOUND")
        for row in filter(has_direct, entries):
            yield row, key_message(program, row)


@codec(DirectCounterEntry, "direct_counter_entry")
class DirectCounters(Codec[DirectCounterEntry, p4.DirectCounterEntry]):
    always_there = True
    needs_data = True

    def entity(self, type_: str, request: p4.DirectCounterEntry) -> DirectCounterEntry:
        entry = self.program.key_entry(request.table_entry)
        return direct_counter(self.program, request.table_entry, entry, request.data)

    def answers(self, pattern: p4.DirectCounterEntry, switch: SwitchTarget) -> Iterator[p4.DirectCounterEntry]:
        for row, key in direct_rows(self.program, "counter", self.program.counted, pattern.table_entry, switch):
            yield p4.DirectCounterEntry(table_entry=key, data=count(row, switch))

    def request(self, entity: DirectCounterEntry) -> p4.DirectCounterEntry:
        data = p4.CounterData(packet_count=entity.packets, byte_count=entity.bytes)
        return p4.DirectCounterEntry(table_entry=client_key(self.program, entity.entry), data=data)

    def answered(self, answer: p4.DirectCounterEntry) -> DirectCounterEntry:
        entry = full_entry(self.program, answer.table_entry)
        return DirectCounterEntry(entry, answer.data.packet_count, answer.data.byte_count)


@codec(DirectMeterEntry, "direct_meter_entry")
class DirectMeters(Codec[DirectMeterEntry, p4.DirectMeterEntry]):
    always_there = True

    def entity(self, type_: str, request: p4.DirectMeterEntry) -> DirectMeterEntry:
        entry = self.program.key_entry(request.table_entry)
        check_direct("meter", self.program.metered, request.table_entry.table_id, entry)
        refuse_counts(request)
        return DirectMeterEntry(entry, requested_config(request, f"table {entry.table}: meter"))

    def answers(self, pattern: p4.DirectMeterEntry, switch: SwitchTarget) -> Iterator[p4.DirectMeterEntry]:
        for row, key in direct_rows(self.program, "meter", self.program.metered, pattern.table_entry, switch):
            yield with_config(p4.DirectMeterEntry(table_entry=key), meter(row, switch))

    def request(self, entity: DirectMeterEntry) -> p4.DirectMeterEntry:
        return with_config(p4.DirectMeterEntry(table_entry=client_key(self.program, entity.entry)), entity.config)

    def answered(self, answer: p4.DirectMeterEntry) -> DirectMeterEntry:
        return DirectMeterEntry(full_entry(self.program, answer.table_entry), answered_config(answer))
