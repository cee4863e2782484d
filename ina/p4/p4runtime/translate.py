"""P4Runtime's messages to the switch's entities and back (specification §9). Raises EntityError for messages that are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ina.p4.p4runtime.action_sets import ActionSets
from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.objects import KINDS, Objects, by_id, meter_config
from ina.p4.p4runtime.values import decode, encode, from_data, to_data
from ina.p4.runtime import (
    CloneSessionEntry,
    CounterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    EntityError,
    MulticastGroupEntry,
    P4Info,
    RegisterEntry,
    Replica,
    TableEntry,
    Update,
)
from ina.p4.runtime.entities import as_match
from ina.p4.runtime.p4info import MatchField, TableInfo


def unserved(kind: str | None) -> EntityError:
    if kind is None:
        return EntityError("the entity is empty: set one of the kinds of P4Runtime's Entity")
    return EntityError(f"{kind}: this switch has none but v1model's externs", "UNIMPLEMENTED")


class Translator:
    """Translations for one program: `info` and `message` are its P4Info in the switch's form and as the message."""

    def __init__(self, info: P4Info, message: Any, layout: dict[str, Any]):
        self.info = info
        self.message = message
        self._tables = {t.preamble.id: t for t in message.tables}
        self.counted = {c.direct_table_id for c in message.direct_counters}  # ids of tables with a direct counter
        direct = {c.preamble.name for c in message.direct_counters}
        self.counters = [c for c in info.counters.values() if c.name not in direct]
        self._register_specs = {r.preamble.name: r.type_spec for r in message.registers}
        self._widths: dict[str, int] = {r["name"]: r["width"] for r in layout.get("registers", ())}
        self._value_sets = {v["name"]: [k["name"] for k in v["keys"]] for v in layout.get("value_sets", ())}
        self.objects = Objects(self)
        self.action_sets = ActionSets(self)
        self._numbered: set[tuple[type, int]] = set()  # groups and sessions written with `egress_port`, not `port`

    # ---- updates

    def updates(self, update: Any) -> list[Update]:
        """The switch's updates for one of P4Runtime's (not of a DigestEntry)."""
        type_ = p4.Update.Type.Name(update.type)
        if type_ == "UNSPECIFIED":
            raise EntityError("the update has no type: INSERT, MODIFY or DELETE")
        holder, kind = update.entity, update.entity.WhichOneof("entity")
        if kind == "packet_replication_engine_entry":
            holder = update.entity.packet_replication_engine_entry
            kind = holder.WhichOneof("type")
        if kind is None:
            raise unserved(None)
        entity = getattr(holder, kind)
        if kind == "table_entry":
            return self._table_updates(type_, entity)
        if kind == "multicast_group_entry":
            return [Update(type_, self._group(type_, entity))]
        if kind == "clone_session_entry":
            return [Update(type_, self._session(type_, entity))]
        if kind in KINDS:
            return [Update(type_, self.objects.entity(kind, type_, entity))]
        if kind not in ("counter_entry", "direct_counter_entry", "register_entry"):
            raise unserved(kind)
        if type_ != "MODIFY":
            raise EntityError(f"{kind}: only MODIFY is possible")
        if not entity.HasField("data"):
            return []
        if kind == "counter_entry":
            counter = by_id("counter", self.counters, entity.counter_id)
            index = self.index(entity, counter)
            return [Update(type_, CounterEntry(counter.name, index, *self._counts(entity.data)))]
        if kind == "direct_counter_entry":
            entry = self.table_entry(entity.table_entry, key_only=True)
            return [Update(type_, self._direct(entity.table_entry, entry, entity.data))]
        register = self.register(entity.register_id)
        spec, width = self._register_specs[register.name], self._width(register)
        value = from_data(entity.data, spec, width, f"register {register.name}")
        return [Update(type_, RegisterEntry(register.name, self.index(entity, register), value))]

    def _table_updates(self, type_: str, e: Any) -> list[Update]:
        entry = self.table_entry(e, key_only=type_ == "DELETE")
        place = f"table {entry.table}"
        if entry.is_default and type_ != "MODIFY":
            raise EntityError(f"{place}: default: only MODIFY is possible")
        if type_ == "INSERT" and not entry.is_default and not self.table(e.table_id).fields:
            raise EntityError(f"{place}: it has no key, so it can have no entries but its default")
        before: list[Update] = []
        after: list[Update] = []
        if self.table(e.table_id).profile and not entry.is_default:
            limit = self.objects.group_limit(self.table(e.table_id).profile)
            before, entry, after = self.action_sets.around(type_, e, entry, limit)
        if type_ == "DELETE":
            return [Update(type_, entry), *after]
        if e.is_const:
            raise EntityError(f"{place}: is_const is for reading")
        if e.HasField("meter_counter_data"):
            raise EntityError(f"{place}: meters do not count packets by colour", "UNIMPLEMENTED")
        if e.idle_timeout_ns:
            behavior = self._tables[e.table_id].idle_timeout_behavior
            raise EntityError(f"{place}: idle time-outs are not served", "UNIMPLEMENTED" if behavior else "INVALID_ARGUMENT")
        out = [*before, Update(type_, entry), *after]
        if e.HasField("counter_data"):
            out.append(Update("MODIFY", self._direct(e, entry, e.counter_data)))
        if e.HasField("meter_config"):
            self.objects.check_metered(e.table_id, entry)
            config = meter_config(p4.DirectMeterEntry(config=e.meter_config), f"{place}: meter")
            out.append(Update("MODIFY", DirectMeterEntry(entry, config)))
        elif self.objects.is_metered(e.table_id) and not entry.is_default:  # a MODIFY without a config resets it (§9.1.6)
            out.append(Update("MODIFY", DirectMeterEntry(entry, None)))
        return out

    def _direct(self, e: Any, entry: TableEntry, data: Any) -> DirectCounterEntry:
        if e.table_id not in self.counted:
            raise EntityError(f"table {entry.table} has no direct counter")
        if entry.is_default:
            raise EntityError(f"table {entry.table}: its default entry has no counter of its own", "UNIMPLEMENTED")
        return DirectCounterEntry(entry, *self._counts(data))

    def table(self, number: int) -> TableInfo:
        return by_id("table", self.info.tables.values(), number)

    def register(self, number: int) -> Any:
        return by_id("register", self.info.registers.values(), number)

    def register_spec(self, name: str) -> Any:
        """P4DataTypeSpec of a register's cells."""
        return self._register_specs[name]

    def _width(self, register: Any) -> int:
        width = self._widths.get(register.name)
        if width is None:
            raise EntityError(f"register {register.name}: the program declares it and never uses it", "NOT_FOUND")
        return width

    @staticmethod
    def _counts(data: Any) -> tuple[int, int]:
        if data.packet_count < 0 or data.byte_count < 0:
            raise EntityError("counter data: a count is negative")
        return data.packet_count, data.byte_count

    @staticmethod
    def index(entity: Any, info: Any) -> int | None:
        """The index of a cell of a counter or register; None: it is unset, which means all cells."""
        if not entity.HasField("index"):
            return None
        index: int = entity.index.index
        if index < 0:
            raise EntityError(f"{info.name}: index {index} is negative")
        if index >= info.size:
            raise EntityError(f"{info.name}: index {index}: expected 0..{info.size - 1}", "OUT_OF_RANGE")
        return index

    # ---- table entries

    def table_entry(self, e: Any, key_only: bool = False) -> TableEntry:
        """The entry of a message. `key_only`: ignores everything but table, match and priority (§9.1)."""
        table = self.table(e.table_id)
        place = f"table {table.name}"
        if e.priority < 0:
            raise EntityError(f"{place}: priority {e.priority} is negative")
        match: dict[str, Any] = {}
        for m in e.match:
            field = by_id(f"match field in {place}", table.fields, m.field_id)
            if field.name in match:
                raise EntityError(f"{place}: field {field.name!r} is given twice")
            match[field.name] = self.match(m, field, f"{place}: field {field.name}")
        entry = TableEntry(table.name, match, priority=e.priority, is_default=e.is_default_action)
        if e.is_default_action and (match or e.priority):
            raise EntityError(f"{place}: default: it has no match fields and no priority")
        if key_only:
            return entry
        action, params, member, group = self._action(e, table)
        return TableEntry(
            table.name, match, action, params, e.priority, e.is_default_action, e.metadata, e.controller_metadata,
            member=member, group=group,
        )  # fmt: skip

    @staticmethod
    def match(m: Any, field: MatchField, place: str) -> Any:
        kind = m.WhichOneof("field_match_type")
        if kind != field.match:
            raise EntityError(f"{place}: a match of kind {kind or 'none'}: expected {field.match}")
        value, width = getattr(m, kind), field.width
        if kind in ("exact", "optional"):
            return decode(value.value, width, place)
        if kind == "lpm":
            if not 1 <= value.prefix_len <= width:
                raise EntityError(f"{place}: prefix length {value.prefix_len}: expected 1..{width}; leave out a field "
                                  "that may have any value")
            return decode(value.value, width, place), value.prefix_len
        if kind == "ternary":
            mask = decode(value.mask, width, f"{place} (mask)")
            if not mask:
                raise EntityError(f"{place}: the mask is 0: leave out a field that may have any value")
            return decode(value.value, width, place), mask
        low, high = decode(value.low, width, f"{place} (low)"), decode(value.high, width, f"{place} (high)")
        if (low, high) == (0, (1 << width) - 1):
            raise EntityError(f"{place}: the range is everything: leave out a field that may have any value")
        return low, high

    def _action(self, e: Any, table: TableInfo) -> tuple[str | None, dict[str, Any], int | None, int | None]:
        """Action and parameters, or member, or group, that a TableEntry names."""
        place = f"table {table.name}"
        kind = e.action.WhichOneof("type") if e.HasField("action") else None
        if kind is None:
            return None, {}, None, None
        if (kind == "action") == bool(table.profile) and not e.is_default_action:
            reason = f"has the action profile {table.profile}" if table.profile else "has no action profile"
            raise EntityError(f"{place}: its entries cannot name an {kind}: it {reason}")
        if kind == "action_profile_action_set":
            return None, {}, None, None  # action_sets.py makes a group of it
        if kind == "action_profile_member_id":
            return None, {}, e.action.action_profile_member_id, None
        if kind == "action_profile_group_id":
            return None, {}, None, e.action.action_profile_group_id
        of_table = set(table.entry_actions) | set(table.default_actions)
        action, params = self.action(e.action.action, [a for a in self.info.actions.values() if a.name in of_table], place)
        if action not in (table.default_actions if e.is_default_action else table.entry_actions):
            use = "entries" if e.is_default_action else "the default"
            raise EntityError(f"{place}: action {action} is for {use} only", "PERMISSION_DENIED")
        return action, params, None, None

    @staticmethod
    def action(message: Any, candidates: Iterable[Any], place: str) -> tuple[str, dict[str, Any]]:
        """Name and parameters of a p4.v1.Action, one of `candidates`."""
        action = by_id(f"action of {place}", candidates, message.action_id)
        params: dict[str, Any] = {}
        for p in message.params:
            info = by_id(f"parameter of {action.name}", action.params, p.param_id)
            if info.name in params:
                raise EntityError(f"{place}: parameter {info.name!r} of {action.name} is given twice")
            params[info.name] = decode(p.value, info.width, f"{place}: {action.name}({info.name})")
        return action.name, params

    def fill_action(self, message: Any, name: str | int, params: Mapping[str, Any]) -> None:
        action = self.info.actions[str(name)]
        message.action_id = action.id
        for p in action.params:
            message.params.add(param_id=p.id, value=encode(params[p.name]))

    def value_set_keys(self, name: str) -> list[str]:
        """The switch's names of a value set's fields."""
        if name not in self._value_sets:
            raise EntityError(f"value set {name}: the program declares it and never uses it", "NOT_FOUND")
        return self._value_sets[name]

    def key(self, entry: TableEntry) -> tuple[tuple[int, int], ...]:
        """The key that identifies an entry, beside its priority: (value, mask), or (low, high), of each field."""
        out = []
        for field in self.info.tables[str(entry.table)].fields:
            if field.name in entry.match:
                out.append(as_match(entry.match[field.name], field, field.name))
            elif field.match == "exact":
                raise EntityError(f"table {entry.table}: exact match field {field.name!r} ({field.width} bits) is missing")
            else:
                out.append((0, (1 << field.width) - 1 if field.match == "range" else 0))
        return tuple(out)

    def entry_message(self, entry: TableEntry) -> Any:
        table = self.info.tables[str(entry.table)]
        message = p4.TableEntry(
            table_id=table.id, priority=entry.priority, is_default_action=entry.is_default, metadata=entry.metadata,
            controller_metadata=entry.controller_metadata, is_const=entry.is_const,
        )  # fmt: skip
        if not entry.is_default:
            message.match.extend(self.match_messages(table.fields, self.key(entry)))
        if entry.action is not None:
            self.fill_action(message.action.action, entry.action, entry.params)
        elif entry.member is not None:
            message.action.action_profile_member_id = entry.member
        elif entry.group is not None and (action_set := self.action_sets.message(entry.group)) is not None:
            message.action.action_profile_action_set.CopyFrom(action_set)
        elif entry.group is not None:
            message.action.action_profile_group_id = entry.group
        return message

    @staticmethod
    def match_messages(fields: Sequence[MatchField], key: Sequence[tuple[int, int]]) -> list[Any]:
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

    def rows(self, e: Any, switch: Any) -> list[TableEntry]:
        """Entries of one table that match a TableEntry pattern."""
        table = self.table(e.table_id)
        pattern = self.table_entry(e, key_only=True)
        key = self.key(pattern) if pattern.match else None
        action = None
        kind = e.action.WhichOneof("type") if e.HasField("action") else None
        if kind == "action":
            action = by_id("action", self.info.actions.values(), e.action.action.action_id).name
        elif kind == "action_profile_action_set":
            raise EntityError(f"table {table.name}: entries cannot be read by action set", "UNIMPLEMENTED")
        rows = switch.read([TableEntry(table.name, is_default=e.is_default_action)])
        return [
            r for r in rows
            if (key is None or self.key(r) == key)
            and (action is None or r.action == action)
            and (kind != "action_profile_member_id" or r.member == e.action.action_profile_member_id)
            and (kind != "action_profile_group_id" or r.group == e.action.action_profile_group_id)
            and e.priority in (0, r.priority)
            and e.metadata in (b"", r.metadata)
            and e.controller_metadata in (0, r.controller_metadata)
        ]  # fmt: skip

    # ---- replication

    def _replicas(self, entity: Any, place: str) -> tuple[Replica, ...]:
        out = []
        for r in entity.replicas:
            if r.backup_replicas:
                raise EntityError(f"{place}: backup replicas are not served", "UNIMPLEMENTED")
            port = decode(r.port, 32, f"{place}: port") if r.WhichOneof("port_kind") == "port" else r.egress_port
            out.append(Replica(port, r.instance))
        return tuple(out)

    def inherit(self, other: Translator) -> None:
        """Copies the records of entities that are now in this translator's switch."""
        self._numbered = set(other._numbered)
        self.objects.inherit(other.objects)
        self.action_sets.inherit(other.action_sets)

    def record(self, update: Any) -> None:
        """Records a p4.v1.Update that was made, so that reads return replicas in the form in which they were written."""
        entity = update.entity
        if entity.WhichOneof("entity") == "table_entry":
            e = entity.table_entry
            if self.table(e.table_id).profile and not e.is_default_action:
                self.action_sets.record(p4.Update.Type.Name(update.type), self.table_entry(e, key_only=True))
        if update.type == p4.Update.DELETE:
            self.objects.forget(entity)
        else:
            self.objects.record(entity)
        pre = entity.packet_replication_engine_entry
        for kind, message, number in (
            (MulticastGroupEntry, pre.multicast_group_entry, pre.multicast_group_entry.multicast_group_id),
            (CloneSessionEntry, pre.clone_session_entry, pre.clone_session_entry.session_id),
        ):
            if number:
                numbered = any(r.WhichOneof("port_kind") == "egress_port" for r in message.replicas)
                (self._numbered.add if numbered else self._numbered.discard)((kind, number))

    def _group(self, type_: str, e: Any) -> MulticastGroupEntry:
        if type_ == "DELETE":
            return MulticastGroupEntry(e.multicast_group_id)
        replicas = self._replicas(e, f"multicast group {e.multicast_group_id}")
        return MulticastGroupEntry(e.multicast_group_id, replicas, e.metadata)

    def _session(self, type_: str, e: Any) -> CloneSessionEntry:
        place = f"clone session {e.session_id}"
        if type_ == "DELETE":
            return CloneSessionEntry(e.session_id)
        if e.class_of_service:
            raise EntityError(f"{place}: class of service {e.class_of_service}: v1model has one class, 0")
        if e.packet_length_bytes < 0:
            raise EntityError(f"{place}: packet length {e.packet_length_bytes} is negative")
        return CloneSessionEntry(e.session_id, self._replicas(e, place), e.packet_length_bytes)

    def replication_message(self, entry: MulticastGroupEntry | CloneSessionEntry) -> Any:
        out = p4.Entity()
        if isinstance(entry, MulticastGroupEntry):
            group, number = out.packet_replication_engine_entry.multicast_group_entry, entry.group_id
            group.multicast_group_id, group.metadata, replicas = number, entry.metadata, group.replicas
        else:
            session, number = out.packet_replication_engine_entry.clone_session_entry, entry.session_id
            session.session_id, session.packet_length_bytes, replicas = number, entry.packet_length, session.replicas
        numbered = (type(entry), number) in self._numbered
        for r in entry.replicas:
            port = {"egress_port": r.port} if numbered else {"port": encode(r.port)}
            replicas.add(instance=r.rid, **port)
        return out

    # ---- registers

    def register_message(self, entry: RegisterEntry) -> Any:
        register = self.info.registers[str(entry.register)]
        message = p4.RegisterEntry(register_id=register.id)
        message.index.index = entry.index or 0
        spec = self._register_specs[register.name]
        if spec.WhichOneof("type_spec") not in ("bitstring", "bool", "serializable_enum", "new_type"):
            kind = spec.WhichOneof("type_spec")
            raise EntityError(f"register {register.name}: data of type {kind} are not served", "UNIMPLEMENTED")
        message.data.CopyFrom(to_data(entry.value, spec, self._width(register)))
        return message
