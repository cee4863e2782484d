"""A controller's side of P4Runtime's entities: the switch's entities to messages that a server takes, and back.

The server's side is translate.py, which checks messages of strangers. Only values that a message cannot express are checked
here; the server checks the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.objects import meter_message
from ina.p4.p4runtime.translate import Translator
from ina.p4.p4runtime.values import from_data, to_data
from ina.p4.runtime import (
    CloneSessionEntry,
    CounterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    EntityError,
    MeterConfig,
    MeterEntry,
    MulticastGroupEntry,
    P4Info,
    ProfileGroup,
    ProfileMember,
    RegisterEntry,
    TableEntry,
    ValueSetEntry,
)
from ina.p4.runtime.entities import Entity, Match, as_int, as_match, as_params
from ina.p4.runtime.p4info import MatchField

MATCH_TYPES = {2: "exact", 3: "lpm", 4: "ternary", 5: "range", 6: "optional"}  # p4.config.v1.MatchField.MatchType


class RemoteEntities:
    """Entities of one program: `message` is its P4Info as a server returns it, `info` the same in the switch's form."""

    def __init__(self, info: P4Info, message: Any):
        self.info = info
        registers = [{"name": r.name, "width": r.width} for r in info.registers.values()]
        self._t = Translator(info, message, {"registers": registers})
        self._max_sizes = {p.preamble.name: p.max_group_size for p in message.action_profiles}
        self._value_sets = {
            v.preamble.name: [MatchField(m.id, m.name, m.bitwidth, MATCH_TYPES.get(m.match_type, "exact")) for m in v.match]
            for v in message.value_sets
        }

    # ---- to messages

    def message(self, e: Entity) -> Any:
        """The p4.v1.Entity for `e`, for an update or as a pattern to read. Raises EntityError."""
        if isinstance(e, (MulticastGroupEntry, CloneSessionEntry)):
            return self._t.replication_message(e)
        makers: dict[type, tuple[str, Callable[..., object]]] = {
            TableEntry: ("table_entry", self._table_entry),
            ProfileMember: ("action_profile_member", self._member),
            ProfileGroup: ("action_profile_group", self._group),
            ValueSetEntry: ("value_set_entry", self._value_set),
            CounterEntry: ("counter_entry", self._counter),
            DirectCounterEntry: ("direct_counter_entry", self._direct_counter),
            MeterEntry: ("meter_entry", self._meter),
            DirectMeterEntry: ("direct_meter_entry", self._direct_meter),
            RegisterEntry: ("register_entry", self._register),
        }
        if type(e) not in makers:
            raise EntityError(f"{e!r} is no entity of a switch")
        kind, make = makers[type(e)]
        entity = p4.Entity()
        getattr(entity, kind).CopyFrom(make(e))
        return entity

    def _table_entry(self, e: TableEntry) -> Any:
        if not e.table:
            return p4.TableEntry(is_default_action=e.is_default)
        table = self.info.table(e.table)
        message = p4.TableEntry(
            table_id=table.id, priority=e.priority, is_default_action=e.is_default, metadata=e.metadata,
            controller_metadata=e.controller_metadata,
        )  # fmt: skip
        if e.match:  # else all entries, where it is a pattern
            unknown = sorted(set(e.match) - {f.name for f in table.fields})
            if unknown:
                names = ", ".join(f.name for f in table.fields)
                raise EntityError(f"table {table.name}: no match field {unknown[0]!r}; it has: {names or 'none'}")
            pattern = TableEntry(table.name, e.match)
            message.match.extend(self._t.match_messages(table.fields, self._t.key(pattern)))
        if e.action is not None:
            action = self.info.action(table, e.action, e.is_default)
            params = as_params(e.params, action.params, f"table {table.name}: action {action.name}")
            self._t.fill_action(message.action.action, action.name, params)
        elif e.member is not None:
            message.action.action_profile_member_id = e.member
        elif e.group is not None:
            message.action.action_profile_group_id = e.group
        return message

    def _member(self, e: ProfileMember) -> Any:
        profile = self.info.profile(e.profile)
        message = p4.ActionProfileMember(action_profile_id=profile.id, member_id=e.member_id)
        if e.action:
            action = self.info.action(self.info.tables[profile.tables[0]], e.action)
            params = as_params(e.params, action.params, f"action profile {profile.name}: action {action.name}")
            self._t.fill_action(message.action, action.name, params)
        return message

    def _group(self, e: ProfileGroup) -> Any:
        profile = self.info.profile(e.profile)
        members = [p4.ActionProfileGroup.Member(member_id=m, weight=w) for m, w in e.members]
        return p4.ActionProfileGroup(
            action_profile_id=profile.id, group_id=e.group_id, max_size=self._max_sizes[profile.name], members=members,
        )  # fmt: skip

    def _value_set(self, e: ValueSetEntry) -> Any:
        name = self.info.value_set(e.value_set)
        fields = self._value_sets[name]
        message = p4.ValueSetEntry(value_set_id=self.info.value_sets[name].id)
        for member in e.members:
            match: Mapping[str, Match] = member if isinstance(member, Mapping) else {fields[0].name: member}
            unknown = sorted(set(match) - {f.name for f in fields})
            if unknown:
                raise EntityError(f"value set {name}: no field {unknown[0]!r}; it has: {', '.join(f.name for f in fields)}")
            key = [as_match(match[f.name], f, f"value set {name}: {f.name}") if f.name in match else _anything(f) for f in fields]
            message.members.add(match=self._t.match_messages(fields, key))
        return message

    def _counter(self, e: CounterEntry) -> Any:
        message = p4.CounterEntry(counter_id=self.info.counter(e.counter).id)
        message.data.packet_count, message.data.byte_count = e.packets, e.bytes
        return _with_index(message, e.index)

    def _direct_counter(self, e: DirectCounterEntry) -> Any:
        data = p4.CounterData(packet_count=e.packets, byte_count=e.bytes)
        return p4.DirectCounterEntry(table_entry=self._key_of(e.entry), data=data)

    def _meter(self, e: MeterEntry) -> Any:
        return _with_index(_with_config(p4.MeterEntry(meter_id=self.info.meter(e.meter).id), e.config), e.index)

    def _direct_meter(self, e: DirectMeterEntry) -> Any:
        return _with_config(p4.DirectMeterEntry(table_entry=self._key_of(e.entry)), e.config)

    def _key_of(self, entry: TableEntry) -> Any:
        """Table, match and priority, which identify a direct counter or meter (§9.3, §9.5)."""
        return self._table_entry(TableEntry(entry.table, entry.match, priority=entry.priority, is_default=entry.is_default))

    def _register(self, e: RegisterEntry) -> Any:
        info = self.info.register(e.register)
        message = p4.RegisterEntry(register_id=info.id)
        value = as_int(e.value, info.width, f"register {info.name}")
        message.data.CopyFrom(to_data(value, self._t.register_spec(info.name), info.width))
        return _with_index(message, e.index)

    # ---- from messages

    def entity(self, message: Any) -> Entity:
        """The entity in a server's p4.v1.Entity. Raises EntityError: it is of a kind that is never requested."""
        kind = message.WhichOneof("entity")
        if kind == "packet_replication_engine_entry":
            return self._t.updates(p4.Update(type="INSERT", entity=message))[0].entity
        readers: dict[str, Callable[..., Entity]] = {
            "table_entry": self._read_table_entry,
            "action_profile_member": self._read_member,
            "action_profile_group": self._read_group,
            "value_set_entry": self._read_value_set,
            "counter_entry": self._read_counter,
            "direct_counter_entry": self._read_direct_counter,
            "meter_entry": self._read_meter,
            "direct_meter_entry": self._read_direct_meter,
            "register_entry": self._read_register,
        }
        if kind not in readers:
            raise EntityError(f"the switch answers with a {kind}, which was not asked for", "INTERNAL")
        return readers[kind](getattr(message, kind))

    def _read_table_entry(self, e: Any) -> TableEntry:
        return self._t.table_entry(e)

    def _read_member(self, e: Any) -> ProfileMember:
        name = self._t.objects.profile(e.action_profile_id).name
        action, params = self._t.action(e.action, self.info.actions.values(), f"action profile {name}")
        return ProfileMember(name, e.member_id, action, params)

    def _read_group(self, e: Any) -> ProfileGroup:
        members = tuple((m.member_id, m.weight) for m in e.members)
        return ProfileGroup(self._t.objects.profile(e.action_profile_id).name, e.group_id, members)

    def _read_value_set(self, e: Any) -> ValueSetEntry:
        name = next(v.name for v in self.info.value_sets.values() if v.id == e.value_set_id)
        fields = {f.id: f for f in self._value_sets[name]}
        members = []
        for member in e.members:
            place = f"value set {name}"
            members.append({fields[m.field_id].name: self._t.match(m, fields[m.field_id], place) for m in member.match})
        return ValueSetEntry(name, tuple(members))

    def _read_counter(self, e: Any) -> CounterEntry:
        return CounterEntry(self.info.counter(e.counter_id).name, e.index.index, e.data.packet_count, e.data.byte_count)

    def _read_direct_counter(self, e: Any) -> DirectCounterEntry:
        return DirectCounterEntry(self._t.table_entry(e.table_entry), e.data.packet_count, e.data.byte_count)

    def _read_meter(self, e: Any) -> MeterEntry:
        return MeterEntry(self.info.meter(e.meter_id).name, e.index.index, _config(e))

    def _read_direct_meter(self, e: Any) -> DirectMeterEntry:
        return DirectMeterEntry(self._t.table_entry(e.table_entry), _config(e))

    def _read_register(self, e: Any) -> RegisterEntry:
        info = self._t.register(e.register_id)
        value = from_data(e.data, self._t.register_spec(info.name), info.width, f"register {info.name}")
        return RegisterEntry(info.name, e.index.index, value)


def _with_index(message: Any, index: int | None) -> Any:
    """The message with its index; None: every cell."""
    if index is not None:
        message.index.index = index
    return message


def _with_config(message: Any, config: MeterConfig | None) -> Any:
    """The message with its config; None: none, which means green."""
    if config is not None:
        message.config.CopyFrom(meter_message(config))
    return message


def _config(message: Any) -> MeterConfig | None:
    c = message.config
    return MeterConfig(c.cir, c.cburst, c.pir, c.pburst) if message.HasField("config") else None


def _anything(field: MatchField) -> tuple[int, int]:
    return 0, (1 << field.width) - 1 if field.match == "range" else 0
