"""Action profiles, meters and value sets (P4Runtime §9.2 to §9.4, §9.7): messages to the switch's entities and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ina.p4.p4runtime.action_sets import FIRST
from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.pipes import merge
from ina.p4.runtime import (
    DirectMeterEntry,
    EntityError,
    MeterConfig,
    MeterEntry,
    ProfileGroup,
    ProfileMember,
    TableEntry,
    ValueSetEntry,
)
from ina.p4.runtime.entities import as_match
from ina.p4.runtime.p4info import MatchField, N

KINDS = {
    "action_profile_member": "action_profiles",
    "action_profile_group": "action_profiles",
    "meter_entry": "meters",
    "direct_meter_entry": "direct_meters",
    "value_set_entry": "value_sets",
}


def by_id(kind: str, items: Iterable[N], number: int) -> N:
    """The object with P4Info id `number`. Raises EntityError."""
    items = list(items)
    item = next((i for i in items if i.id == number), None)
    if item is None:
        names = ", ".join(f"{i.name} ({i.id:#x})" for i in items)
        raise EntityError(f"no {kind} with id {number:#x}; there are: {names or 'none'}")
    return item


def meter_config(message: Any, place: str) -> MeterConfig | None:
    """The meter's configuration; None: the message has none, and the meter is green. Raises EntityError."""
    if not message.HasField("config"):
        return None
    c = message.config
    if c.eburst:
        raise EntityError(f"{place}: eburst is for meters of one rate, and v1model's have two", "UNIMPLEMENTED")
    if min(c.cir, c.cburst, c.pir, c.pburst) < 0:
        raise EntityError(f"{place}: rates and bursts must not be negative")
    return MeterConfig(c.cir, c.cburst, c.pir, c.pburst)


def meter_message(config: MeterConfig) -> Any:
    return p4.MeterConfig(
        cir=round(config.committed_rate), cburst=config.committed_burst, pir=round(config.peak_rate),
        pburst=config.peak_burst,
    )  # fmt: skip


class Objects:
    """Profiles, meters and value sets. `translator` translates the parts that all entities share: actions, matches, indices."""

    def __init__(self, translator: Any):
        self._t = translator
        self.info = translator.info
        message = translator.message
        self._direct_meters = {m.direct_table_id: m.preamble.name for m in message.direct_meters}
        direct = set(self._direct_meters.values())
        self.meters = [m for m in self.info.meters.values() if m.name not in direct]
        self._limits: dict[int, int] = {p.preamble.id: p.max_group_size for p in message.action_profiles}
        self._value_sets = {v.preamble.name: v for v in message.value_sets}
        self._max_sizes: dict[tuple[int, int], int] = {}  # of groups, which must not change

    # ---- writing

    def entity(self, kind: str, type_: str, e: Any) -> Any:
        """The switch's entity for a message of one of KINDS."""
        makers: dict[str, Callable[[str, Any], Any]] = {
            "action_profile_member": self._member,
            "action_profile_group": self._group,
            "meter_entry": self._meter,
            "direct_meter_entry": self._direct_meter,
            "value_set_entry": self._value_set,
        }
        if KINDS[kind] != "action_profiles" and type_ != "MODIFY":
            raise EntityError(f"{kind}: only MODIFY is possible")
        return makers[kind](type_, e)

    def group_limit(self, profile: str) -> int:
        """`max_group_size` of a profile; 0: none."""
        return self._limits[self.info.profiles[profile].id]

    def profile(self, number: int) -> Any:
        return by_id("action profile", self.info.profiles.values(), number)

    def _member(self, type_: str, e: Any) -> ProfileMember:
        profile = self.profile(e.action_profile_id)
        place = f"action profile {profile.name}: member {e.member_id}"
        if not 0 < e.member_id < FIRST:
            raise EntityError(f"{place}: expected 1..{FIRST - 1:#x}; those above are for action sets")
        if type_ == "DELETE":
            return ProfileMember(profile.name, e.member_id)
        if not e.HasField("action"):
            raise EntityError(f"{place}: a member needs an action")
        names = {a for t in profile.tables for a in self.info.tables[t].entry_actions}
        action, params = self._t.action(e.action, [a for a in self.info.actions.values() if a.name in names], place)
        return ProfileMember(profile.name, e.member_id, action, params)

    def _group(self, type_: str, e: Any) -> ProfileGroup:
        profile = self.profile(e.action_profile_id)
        place = f"action profile {profile.name}: group {e.group_id}"
        if not 0 < e.group_id < FIRST:
            raise EntityError(f"{place}: expected 1..{FIRST - 1:#x}; those above are for action sets")
        if type_ == "DELETE":
            return ProfileGroup(profile.name, e.group_id)
        limit, max_size = self._limits[profile.id], self._max_sizes.get((profile.id, e.group_id))
        if e.max_size < 0 or (limit and not 0 < e.max_size <= limit):
            raise EntityError(f"{place}: max_size {e.max_size}: expected {f'1..{limit}' if limit else '0 or more'}")
        if type_ == "MODIFY" and max_size is not None and max_size != e.max_size:
            raise EntityError(f"{place}: max_size is {max_size} and cannot be changed to {e.max_size}")
        members = []
        for m in e.members:
            if m.weight < 1:
                raise EntityError(f"{place}: member {m.member_id} has weight {m.weight}: expected at least 1")
            if m.watch or m.watch_port:
                raise EntityError(f"{place}: watching ports is not served", "UNIMPLEMENTED")
            members.append((m.member_id, m.weight))
        if len({m for m, _ in members}) != len(members):
            raise EntityError(f"{place}: a member stands there twice: use its weight")
        if e.max_size and sum(weight for _, weight in members) > e.max_size:
            raise EntityError(f"{place}: its weights exceed its max_size {e.max_size}", "RESOURCE_EXHAUSTED")
        return ProfileGroup(profile.name, e.group_id, tuple(members))

    def inherit(self, other: Objects) -> None:
        self._max_sizes = dict(other._max_sizes)

    def record(self, entity: Any) -> None:
        """Records the maximum size of a group that was written (p4.v1.Entity)."""
        if entity.WhichOneof("entity") == "action_profile_group":
            group = entity.action_profile_group
            self._max_sizes[group.action_profile_id, group.group_id] = group.max_size

    def forget(self, entity: Any) -> None:
        if entity.WhichOneof("entity") == "action_profile_group":
            group = entity.action_profile_group
            self._max_sizes.pop((group.action_profile_id, group.group_id), None)

    def _meter(self, _type: str, e: Any) -> MeterEntry:
        meter = by_id("meter", self.meters, e.meter_id)
        self._no_counts(e)
        return MeterEntry(meter.name, self._t.index(e, meter), meter_config(e, f"meter {meter.name}"))

    def _direct_meter(self, _type: str, e: Any) -> DirectMeterEntry:
        entry = self._t.table_entry(e.table_entry, key_only=True)
        self.check_metered(e.table_entry.table_id, entry)
        self._no_counts(e)
        return DirectMeterEntry(entry, meter_config(e, f"table {entry.table}: meter"))

    def check_metered(self, table_id: int, entry: TableEntry) -> None:
        if table_id not in self._direct_meters:
            raise EntityError(f"table {entry.table} has no direct meter")
        if entry.is_default:
            raise EntityError(f"table {entry.table}: its default entry has no meter of its own", "UNIMPLEMENTED")

    @staticmethod
    def _no_counts(e: Any) -> None:
        if e.HasField("counter_data"):
            raise EntityError("this switch's meters do not count packets by colour", "UNIMPLEMENTED")

    def _fields(self, name: str) -> list[MatchField]:
        names = {1: "EXACT", 2: "EXACT", 3: "LPM", 4: "TERNARY", 5: "RANGE", 6: "OPTIONAL"}
        layout = self._t.value_set_keys(name)
        if len(layout) != len(self._value_sets[name].match):
            raise EntityError(f"value set {name}: structs inside its struct are not served", "UNIMPLEMENTED")
        return [
            MatchField(m.id, key, m.bitwidth, names.get(m.match_type, "EXACT").lower())
            for m, key in zip(self._value_sets[name].match, layout, strict=True)
        ]

    def _value_set(self, _type: str, e: Any) -> ValueSetEntry:
        name = by_id("value set", self.info.value_sets.values(), e.value_set_id).name
        fields = self._fields(name)
        members = []
        for member in e.members:
            values = {}
            for m in member.match:
                field = by_id(f"match field in value set {name}", fields, m.field_id)
                values[field.name] = self._t.match(m, field, f"value set {name}: field {field.name}")
            members.append(values)
        if any(member in members[:i] for i, member in enumerate(members)):
            raise EntityError(f"value set {name}: a member is given twice", "ALREADY_EXISTS")
        return ValueSetEntry(name, tuple(members))

    # ---- reading

    def read(self, kind: str, e: Any, switch: Any) -> list[Any]:
        """The messages of the entities that match the pattern `e`."""
        if kind in ("action_profile_member", "action_profile_group"):
            profiles = [self.profile(e.action_profile_id)] if e.action_profile_id else self.info.profiles.values()
            if kind == "action_profile_member":
                entities = switch.read([ProfileMember(p.name, e.member_id) for p in profiles])
                return [self._member_message(m) for m in entities if m.member_id < FIRST]
            entities = switch.read([ProfileGroup(p.name, e.group_id) for p in profiles])
            return [self._group_message(g) for g in entities if g.group_id < FIRST]
        if kind == "meter_entry":
            return self._meter_messages(e, switch)
        if kind == "direct_meter_entry":
            return self._direct_meter_messages(e, switch)
        sets = self.info.value_sets.values()
        return [
            self._value_set_message(*switch.read([ValueSetEntry(v.name)]))
            for v in ([by_id("value set", sets, e.value_set_id)] if e.value_set_id else sets)
        ]

    def _member_message(self, m: ProfileMember) -> Any:
        message = p4.ActionProfileMember(action_profile_id=self.info.profiles[str(m.profile)].id, member_id=m.member_id)
        self._t.fill_action(message.action, m.action, m.params)
        return message

    def _group_message(self, g: ProfileGroup) -> Any:
        profile = self.info.profiles[str(g.profile)].id
        return p4.ActionProfileGroup(
            action_profile_id=profile, group_id=g.group_id, max_size=self._max_sizes.get((profile, g.group_id), 0),
            members=[p4.ActionProfileGroup.Member(member_id=m, weight=w) for m, w in g.members],
        )  # fmt: skip

    def _meter_messages(self, e: Any, switch: Any) -> list[Any]:
        out = []
        names = {m["name"] for m in switch.program.layout.get("meters", ())}
        meters = [by_id("meter", self.meters, e.meter_id)] if e.meter_id else [m for m in self.meters if m.name in names]
        for meter in meters:
            index = self._t.index(e, meter) if e.meter_id else None
            for cell in merge(switch.read([MeterEntry(meter.name, index)])):
                message = p4.MeterEntry(meter_id=meter.id, index=p4.Index(index=cell.index))
                if cell.config is not None:
                    message.config.CopyFrom(meter_message(cell.config))
                out.append(message)
        return out

    def _direct_meter_messages(self, e: Any, switch: Any) -> list[Any]:
        pattern = e.table_entry
        patterns = [pattern] if pattern.table_id else [p4.TableEntry(table_id=i) for i in sorted(self._direct_meters)]
        out = []
        for p in patterns:
            if p.table_id not in self._direct_meters:
                raise EntityError(f"table {self._t.table(p.table_id).name} has no direct meter")
            rows = self._t.rows(p, switch)
            if p.match and not rows:
                raise EntityError("direct meter: no entry with this match and priority", "NOT_FOUND")
            for row in rows:
                if row.is_default or row.is_const:
                    continue
                message = p4.DirectMeterEntry(table_entry=self._t.entry_message(row))
                message.table_entry.ClearField("action")
                config = self.direct_config(row, switch)
                if config is not None:
                    message.config.CopyFrom(config)
                out.append(message)
        return out

    def is_metered(self, table_id: int) -> bool:
        return table_id in self._direct_meters

    def direct_config(self, row: TableEntry, switch: Any) -> Any | None:
        """The MeterConfig of an entry's direct meter; None: it is green."""
        (meter,) = merge(switch.read([DirectMeterEntry(TableEntry(row.table, row.match, priority=row.priority))]))
        return meter_message(meter.config) if meter.config is not None else None

    def _value_set_message(self, entry: ValueSetEntry) -> Any:
        name = str(entry.value_set)
        message = p4.ValueSetEntry(value_set_id=self._value_sets[name].preamble.id)
        fields = self._fields(name) if entry.members else []
        for member in entry.members:
            values = member if isinstance(member, Mapping) else {fields[0].name: member}
            key = [
                as_match(values[f.name], f, f.name) if f.name in values
                else (0, (1 << f.width) - 1 if f.match == "range" else 0)
                for f in fields
            ]  # fmt: skip
            message.members.add(match=self._t.match_messages(fields, key))
        return message
