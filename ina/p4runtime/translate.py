"""P4Runtime's messages to the switch's entities and back (specification §9). What is wrong raises EntityError."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ina.p4runtime.messages import p4
from ina.p4runtime.values import decode, encode, from_data, to_data
from ina.switch import (
    CloneSessionEntry,
    CounterEntry,
    DirectCounterEntry,
    EntityError,
    MulticastGroupEntry,
    P4Info,
    RegisterEntry,
    Replica,
    TableEntry,
    Update,
)
from ina.switch.entities import as_match
from ina.switch.p4info import MatchField, TableInfo

# Kinds of entities that the embedded switch does not have.
UNSERVED = {
    "extern_entry": "externs other than v1model's",
    "action_profile_member": "action profiles",
    "action_profile_group": "action profiles",
    "meter_entry": "meters",
    "direct_meter_entry": "meters",
    "value_set_entry": "parser value sets",
}


def unserved(kind: str | None) -> EntityError:
    if kind is None:
        return EntityError("the entity is empty: set one of the kinds of P4Runtime's Entity")
    return EntityError(f"{kind}: this switch has no {UNSERVED.get(kind, kind)}", "UNIMPLEMENTED")


def by_id(kind: str, items: Iterable[Any], number: int) -> Any:
    """The object with P4Info id `number`."""
    items = list(items)
    found = next((i for i in items if i.id == number), None)
    if found is None:
        there = ", ".join(f"{i.name} ({i.id:#x})" for i in items)
        raise EntityError(f"no {kind} with id {number:#x}; there are: {there or 'none'}")
    return found


class Translator:
    """For one program: `info` and `message` are its P4Info in the switch's form and as the message."""

    def __init__(self, info: P4Info, message: Any, layout: dict[str, Any]):
        self.info = info
        self.message = message
        self._tables = {t.preamble.id: t for t in message.tables}
        self.counted = {c.direct_table_id for c in message.direct_counters}  # ids of tables with a direct counter
        direct = {c.preamble.name for c in message.direct_counters}
        self.counters = [c for c in info.counters.values() if c.name not in direct]
        self._register_specs = {r.preamble.name: r.type_spec for r in message.registers}
        self._widths = {r["name"]: r["width"] for r in layout.get("registers", ())}
        self._numbered: set[tuple[type, int]] = set()  # groups and sessions written with `egress_port`, not `port`

    # ---- updates

    def updates(self, update: Any) -> list[Update]:
        """The switch's updates for one of P4Runtime's (not of a DigestEntry)."""
        type_ = p4.Update.Type.Name(update.type)
        if type_ == "UNSPECIFIED":
            raise EntityError("the update has no type: INSERT, MODIFY or DELETE")
        kind = update.entity.WhichOneof("entity")
        if kind == "packet_replication_engine_entry":
            kind = update.entity.packet_replication_engine_entry.WhichOneof("type")
            entity = getattr(update.entity.packet_replication_engine_entry, kind) if kind else None
        else:
            entity = getattr(update.entity, kind) if kind else None
        if kind == "table_entry":
            return self._table_updates(type_, entity)
        if kind == "multicast_group_entry":
            return [Update(type_, self._group(type_, entity))]
        if kind == "clone_session_entry":
            return [Update(type_, self._session(type_, entity))]
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
        where = f"table {entry.table}"
        if entry.is_default and type_ != "MODIFY":
            raise EntityError(f"{where}: default: only MODIFY is possible")
        if type_ == "INSERT" and not entry.is_default and not self.table(e.table_id).fields:
            raise EntityError(f"{where}: it has no key, so it can have no entries but its default")
        if type_ == "DELETE":
            return [Update(type_, entry)]
        if e.is_const:
            raise EntityError(f"{where}: is_const is for reading")
        if e.HasField("meter_config") or e.HasField("meter_counter_data"):
            raise unserved("direct_meter_entry")
        if e.idle_timeout_ns:
            known = self._tables[e.table_id].idle_timeout_behavior
            raise EntityError(f"{where}: idle time-outs are not served", "UNIMPLEMENTED" if known else "INVALID_ARGUMENT")
        if not e.HasField("counter_data"):
            return [Update(type_, entry)]
        return [Update(type_, entry), Update("MODIFY", self._direct(e, entry, e.counter_data))]

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
        """The index of a cell of a counter or register; None: it is unset, which means all of them."""
        if not entity.HasField("index"):
            return None
        index = entity.index.index
        if index < 0:
            raise EntityError(f"{info.name}: index {index} is negative")
        if index >= info.size:
            raise EntityError(f"{info.name}: index {index}: expected 0..{info.size - 1}", "OUT_OF_RANGE")
        return index

    # ---- table entries

    def table_entry(self, e: Any, key_only: bool = False) -> TableEntry:
        """`key_only`: the action and everything else but table, match and priority is ignored (§9.1)."""
        table = self.table(e.table_id)
        where = f"table {table.name}"
        if e.priority < 0:
            raise EntityError(f"{where}: priority {e.priority} is negative")
        match: dict[str, Any] = {}
        for m in e.match:
            field = by_id(f"match field in {where}", table.fields, m.field_id)
            if field.name in match:
                raise EntityError(f"{where}: field {field.name!r} is given twice")
            match[field.name] = self._match(m, field, f"{where}: field {field.name}")
        entry = TableEntry(table.name, match, priority=e.priority, is_default=e.is_default_action)
        if e.is_default_action and (match or e.priority):
            raise EntityError(f"{where}: default: it has no match fields and no priority")
        if key_only:
            return entry
        action, params = self._action(e, table)
        return TableEntry(
            table.name, match, action, params, e.priority, e.is_default_action, e.metadata, e.controller_metadata
        )

    @staticmethod
    def _match(m: Any, field: MatchField, where: str) -> Any:
        kind = m.WhichOneof("field_match_type")
        if kind != field.match:
            raise EntityError(f"{where}: a match of kind {kind or 'none'}: expected {field.match}")
        given, width = getattr(m, kind), field.width
        if kind in ("exact", "optional"):
            return decode(given.value, width, where)
        if kind == "lpm":
            if not 1 <= given.prefix_len <= width:
                raise EntityError(f"{where}: prefix length {given.prefix_len}: expected 1..{width}; leave out a field "
                                  "that may have any value")
            return decode(given.value, width, where), given.prefix_len
        if kind == "ternary":
            mask = decode(given.mask, width, f"{where} (mask)")
            if not mask:
                raise EntityError(f"{where}: the mask is 0: leave out a field that may have any value")
            return decode(given.value, width, where), mask
        low, high = decode(given.low, width, f"{where} (low)"), decode(given.high, width, f"{where} (high)")
        if (low, high) == (0, (1 << width) - 1):
            raise EntityError(f"{where}: the range is everything: leave out a field that may have any value")
        return low, high

    def _action(self, e: Any, table: TableInfo) -> tuple[str | None, dict[str, Any]]:
        where = f"table {table.name}"
        kind = e.action.WhichOneof("type") if e.HasField("action") else None
        if kind is None:
            return None, {}
        if self._tables[e.table_id].implementation_id:
            raise unserved("action_profile_member")
        if kind != "action":
            raise EntityError(f"{where}: {kind} is for tables with an action profile, and this one has none")
        number, given = e.action.action.action_id, e.action.action.params
        of_table = set(table.entry_actions) | set(table.default_actions)
        action = by_id(f"action of {where}", (a for a in self.info.actions.values() if a.name in of_table), number)
        allowed = table.default_actions if e.is_default_action else table.entry_actions
        if action.name not in allowed:
            use = "entries" if e.is_default_action else "the default"
            raise EntityError(f"{where}: action {action.name} is for {use} only", "PERMISSION_DENIED")
        params: dict[str, Any] = {}
        for p in given:
            info = by_id(f"parameter of {action.name}", action.params, p.param_id)
            if info.name in params:
                raise EntityError(f"{where}: parameter {info.name!r} of {action.name} is given twice")
            params[info.name] = decode(p.value, info.width, f"{where}: {action.name}({info.name})")
        return action.name, params

    def key(self, entry: TableEntry) -> tuple[tuple[int, int], ...]:
        """What identifies an entry beside its priority: (value, mask), or (low, high), of each field."""
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
        for field, (value, mask) in zip(table.fields, () if entry.is_default else self.key(entry), strict=False):
            full = (1 << field.width) - 1
            if (value, mask) == (0, full) if field.match == "range" else not mask:
                continue
            m = message.match.add(field_id=field.id)
            if field.match in ("exact", "optional"):
                getattr(m, field.match).value = encode(value)
            elif field.match == "lpm":
                m.lpm.value, m.lpm.prefix_len = encode(value), mask.bit_count()
            elif field.match == "ternary":
                m.ternary.value, m.ternary.mask = encode(value), encode(mask)
            else:
                m.range.low, m.range.high = encode(value), encode(mask)
        if entry.action is not None:
            action = self.info.actions[str(entry.action)]
            message.action.action.action_id = action.id
            for p in action.params:
                message.action.action.params.add(param_id=p.id, value=encode(entry.params[p.name]))  # type: ignore[arg-type]
        return message

    # ---- replication

    def _replicas(self, entity: Any, what: str) -> tuple[Replica, ...]:
        out = []
        for r in entity.replicas:
            if r.backup_replicas:
                raise EntityError(f"{what}: backup replicas are not served", "UNIMPLEMENTED")
            port = decode(r.port, 32, f"{what}: port") if r.WhichOneof("port_kind") == "port" else r.egress_port
            out.append(Replica(port, r.instance))
        return tuple(out)

    def written(self, entity: Any) -> None:
        """A p4.v1.Entity has been written: its replicas are read in the form that they were written in."""
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
        what = f"clone session {e.session_id}"
        if type_ == "DELETE":
            return CloneSessionEntry(e.session_id)
        if e.class_of_service:
            raise EntityError(f"{what}: class of service {e.class_of_service}: v1model has one class, 0")
        if e.packet_length_bytes < 0:
            raise EntityError(f"{what}: packet length {e.packet_length_bytes} is negative")
        return CloneSessionEntry(e.session_id, self._replicas(e, what), e.packet_length_bytes)

    def replication_message(self, entry: MulticastGroupEntry | CloneSessionEntry) -> Any:
        out = p4.Entity()
        if isinstance(entry, MulticastGroupEntry):
            message, number = out.packet_replication_engine_entry.multicast_group_entry, entry.group_id
            message.multicast_group_id, message.metadata = number, entry.metadata
        else:
            message, number = out.packet_replication_engine_entry.clone_session_entry, entry.session_id
            message.session_id, message.packet_length_bytes = number, entry.packet_length
        numbered = (type(entry), number) in self._numbered
        for r in entry.replicas:
            port = {"egress_port": r.port} if numbered else {"port": encode(r.port)}
            message.replicas.add(instance=r.rid, **port)
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
