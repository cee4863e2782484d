"""Codecs of action profiles' members and groups, and of parsers' value sets (P4Runtime §9.2, §9.7).

Action sets in table entries, "one shot" (§9.2.3), are members and a group that the server numbers and hides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Self

from ina.p4.p4runtime.codecs import Codec, codec
from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.program import ProgramMessages, by_id
from ina.p4.runtime import (
    EntityError,
    Match,
    MatchField,
    ProfileGroup,
    ProfileInfo,
    ProfileMember,
    SwitchTarget,
    TableEntry,
    Update,
    ValueSetEntry,
    as_params,
)
from ina.p4.runtime.entities import as_key, check_names

FIRST = 0xF000_0000  # numbers of members and groups from here on are the server's own

Identity = tuple[str | int, tuple[tuple[int, int], ...], int]  # table, key, priority


@dataclass(frozen=True)
class ActionSet:
    group: ProfileGroup
    members: tuple[ProfileMember, ...]
    message: p4.ActionProfileActionSet  # as received: reads return it unchanged

    def updates(self, type_: str) -> list[Update]:
        """INSERT or DELETE of group and members; a group exists only while its members do."""
        members = [Update(type_, m) for m in self.members]
        group = [Update(type_, self.group)]
        return members + group if type_ == "INSERT" else group + members


class ActionSets:
    """Action sets of a switch's entries."""

    def __init__(self, program: ProgramMessages):
        self._program = program
        self._sets: dict[Identity, ActionSet] = {}
        self._by_group: dict[int, p4.ActionProfileActionSet] = {}
        self._next = FIRST
        self._pending: dict[Identity, ActionSet | None] = {}  # changes of this batch, in tables with a selector

    def inherit(self, other: ActionSets) -> None:
        self._sets, self._by_group, self._next = dict(other._sets), dict(other._by_group), other._next

    def begin(self) -> None:
        """Begins another batch."""
        self._pending = {}

    def around(
        self, type_: str, e: p4.TableEntry, entry: TableEntry, limit: int
    ) -> tuple[list[Update], TableEntry, list[Update]]:
        """The updates to write before the entry, the switch's form of the entry, and the updates to write after it."""
        identity = self._identity(entry)
        old = self._sets.get(identity)
        kind = e.action.WhichOneof("type") if e.HasField("action") else None
        new = self._make(e.action.action_profile_action_set, entry, limit) if kind == "action_profile_action_set" else None
        new = None if type_ == "DELETE" else new
        if identity in self._pending and (old or new or self._pending[identity]):
            raise EntityError(f"table {entry.table}: an entry with an action set can be changed once in a batch", "UNIMPLEMENTED")
        replaced = old if old and (type_ == "DELETE" or kind) else None
        self._pending[identity] = new or (old if not replaced else None)
        if new is not None:
            entry = replace(entry, group=new.group.group_id)
        return new.updates("INSERT") if new else [], entry, replaced.updates("DELETE") if replaced else []

    def record(self, type_: str, entry: TableEntry) -> None:
        identity = self._identity(entry)
        old, new = self._sets.pop(identity, None), self._pending.get(identity)
        if old is not None:
            del self._by_group[old.group.group_id]
        if new is not None and type_ != "DELETE":
            self._sets[identity] = new
            self._by_group[new.group.group_id] = new.message

    def message(self, group: int) -> p4.ActionProfileActionSet | None:
        """The action set of an entry that names `group`; None: the group is the controller's own."""
        return self._by_group.get(group)

    def _identity(self, entry: TableEntry) -> Identity:
        return entry.table, self._program.key(entry), entry.priority

    def _make(self, message: p4.ActionProfileActionSet, entry: TableEntry, limit: int) -> ActionSet:
        place = f"table {entry.table}: action set"
        table = self._program.info.tables[str(entry.table)]
        profile = self._program.info.profiles[table.profile]
        if not profile.with_selector:
            raise EntityError(f"{place}: {profile.name} is an action profile without a selector")
        by_members = any(p.preamble.name == profile.name and p.HasField("sum_of_members")
                         for p in self._program.message.action_profiles)
        own_size = message.SUM_OF_MEMBERS if by_members else message.SUM_OF_WEIGHTS
        if (message.action_selection_mode not in (message.DEFAULT_MODE_DETERMINED_BY_ACTION_SELECTOR, message.HASH)
                or message.size_semantics not in (message.DEFAULT_SIZE_DETERMINED_BY_ACTION_SELECTOR, own_size)):
            raise EntityError(f"{place}: modes and sizes of its own are not served: {profile.name} selects by HASH and has "
                              f"{message.SizeSemantics.Name(own_size)}", "UNIMPLEMENTED")
        if message.HasField("group_action"):
            raise EntityError(f"{place}: an action of the group is not served", "UNIMPLEMENTED")
        candidates = [a for a in self._program.info.actions.values() if a.name in table.entry_actions]
        members: list[ProfileMember] = []
        weights: list[tuple[int, int]] = []
        for a in message.action_profile_actions:
            if a.weight < 1:
                raise EntityError(f"{place}: weight {a.weight}: expected at least 1")
            if a.watch or a.watch_port:
                raise EntityError(f"{place}: watching ports is not served", "UNIMPLEMENTED")
            action, params = self._program.action(a.action, candidates, place)
            members.append(ProfileMember(profile.name, self._next + len(members), action, params))
            weights.append((members[-1].member_id, a.weight))
        if limit and sum(weight for _, weight in weights) > limit:
            raise EntityError(f"{place}: its weights exceed the selector's max_group_size {limit}")
        group = ProfileGroup(profile.name, self._next, tuple(weights))
        action_set = ActionSet(group, tuple(members), deepcopy(message))
        self._next += max(1, len(members))
        return action_set


def _profile(program: ProgramMessages, number: int) -> ProfileInfo:
    return by_id("action profile", program.info.profiles.values(), number)


def _profiles(program: ProgramMessages, number: int) -> list[ProfileInfo]:
    """The profile with this id; 0: all."""
    return [_profile(program, number)] if number else list(program.info.profiles.values())


def _check_number(place: str, number: int) -> None:
    if not 0 < number < FIRST:
        raise EntityError(f"{place}: expected 1..{FIRST - 1:#x}; those above are for action sets")


@codec(ProfileMember, "action_profile_member")
class Members(Codec[ProfileMember, p4.ActionProfileMember]):
    def entity(self, type_: str, request: p4.ActionProfileMember) -> ProfileMember:
        profile, info = _profile(self.program, request.action_profile_id), self.program.info
        place = f"action profile {profile.name}: member {request.member_id}"
        _check_number(place, request.member_id)
        if type_ == "DELETE":
            return ProfileMember(profile.name, request.member_id)
        if not request.HasField("action"):
            raise EntityError(f"{place}: a member needs an action")
        names = {a for t in profile.tables for a in info.tables[t].entry_actions}
        action, params = self.program.action(request.action, [a for a in info.actions.values() if a.name in names], place)
        return ProfileMember(profile.name, request.member_id, action, params)

    def answers(self, pattern: p4.ActionProfileMember, switch: SwitchTarget) -> Iterator[p4.ActionProfileMember]:
        profiles = _profiles(self.program, pattern.action_profile_id)
        for member in switch.read([ProfileMember(p.name, pattern.member_id) for p in profiles]):
            if member.member_id < FIRST:
                profile = self.program.info.profiles[str(member.profile)].id
                message = p4.ActionProfileMember(action_profile_id=profile, member_id=member.member_id)
                self.program.fill_action(message.action, member.action, member.params)
                yield message

    def request(self, entity: ProfileMember) -> p4.ActionProfileMember:
        info = self.program.info
        profile = info.profile(entity.profile)
        message = p4.ActionProfileMember(action_profile_id=profile.id, member_id=entity.member_id)
        if entity.action:
            action = info.action(info.tables[profile.tables[0]], entity.action)
            params = as_params(entity.params, action.params, f"action profile {profile.name}: action {action.name}")
            self.program.fill_action(message.action, action.name, params)
        return message

    def answered(self, answer: p4.ActionProfileMember) -> ProfileMember:
        name = _profile(self.program, answer.action_profile_id).name
        action, params = self.program.action(answer.action, self.program.info.actions.values(), f"action profile {name}")
        return ProfileMember(name, answer.member_id, action, params)


@codec(ProfileGroup, "action_profile_group")
class Groups(Codec[ProfileGroup, p4.ActionProfileGroup]):
    """A group's maximum size, which the switch does not know, is recorded: it must not change."""

    def __init__(self, program: ProgramMessages):
        super().__init__(program)
        self._limits = {p.preamble.id: p.max_group_size for p in program.message.action_profiles}
        self._max_sizes: dict[tuple[int, int], int] = {}

    def entity(self, type_: str, request: p4.ActionProfileGroup) -> ProfileGroup:
        profile, number = _profile(self.program, request.action_profile_id), request.group_id
        place = f"action profile {profile.name}: group {number}"
        _check_number(place, number)
        if type_ == "DELETE":
            return ProfileGroup(profile.name, number)
        self._check_size(type_, profile.id, request, place)
        return ProfileGroup(profile.name, number, _weights(request, place))

    def _check_size(self, type_: str, profile: int, request: p4.ActionProfileGroup, place: str) -> None:
        limit, max_size = self._limits[profile], self._max_sizes.get((profile, request.group_id))
        if request.max_size < 0 or (limit and not 0 < request.max_size <= limit):
            raise EntityError(f"{place}: max_size {request.max_size}: expected {f'1..{limit}' if limit else '0 or more'}")
        if type_ == "MODIFY" and max_size is not None and max_size != request.max_size:
            raise EntityError(f"{place}: max_size is {max_size} and cannot be changed to {request.max_size}")

    def answers(self, pattern: p4.ActionProfileGroup, switch: SwitchTarget) -> Iterator[p4.ActionProfileGroup]:
        profiles = _profiles(self.program, pattern.action_profile_id)
        for group in switch.read([ProfileGroup(p.name, pattern.group_id) for p in profiles]):
            if group.group_id < FIRST:
                profile = self.program.info.profiles[str(group.profile)].id
                yield _group(profile, group, self._max_sizes.get((profile, group.group_id), 0))

    def record(self, type_: str, request: p4.ActionProfileGroup) -> None:
        key = request.action_profile_id, request.group_id
        if type_ == "DELETE":
            self._max_sizes.pop(key, None)
        else:
            self._max_sizes[key] = request.max_size

    def inherit(self, other: Self) -> None:
        self._max_sizes = dict(other._max_sizes)

    def request(self, entity: ProfileGroup) -> p4.ActionProfileGroup:
        profile = self.program.info.profile(entity.profile)
        return _group(profile.id, entity, self._limits[profile.id])

    def answered(self, answer: p4.ActionProfileGroup) -> ProfileGroup:
        members = tuple((m.member_id, m.weight) for m in answer.members)
        return ProfileGroup(_profile(self.program, answer.action_profile_id).name, answer.group_id, members)


def _weights(request: p4.ActionProfileGroup, place: str) -> tuple[tuple[int, int], ...]:
    """The members of a group. Raises EntityError."""
    members = []
    for m in request.members:
        if m.weight < 1:
            raise EntityError(f"{place}: member {m.member_id} has weight {m.weight}: expected at least 1")
        if m.watch or m.watch_port:
            raise EntityError(f"{place}: watching ports is not served", "UNIMPLEMENTED")
        members.append((m.member_id, m.weight))
    if len({m for m, _ in members}) != len(members):
        raise EntityError(f"{place}: a member stands there twice: use its weight")
    if request.max_size and sum(weight for _, weight in members) > request.max_size:
        raise EntityError(f"{place}: its weights exceed its max_size {request.max_size}", "RESOURCE_EXHAUSTED")
    return tuple(members)


def _group(profile: int, group: ProfileGroup, max_size: int) -> p4.ActionProfileGroup:
    members = [p4.ActionProfileGroup.Member(member_id=m, weight=w) for m, w in group.members]
    return p4.ActionProfileGroup(action_profile_id=profile, group_id=group.group_id, max_size=max_size, members=members)


# ---- value sets

MATCH_TYPES = {2: "exact", 3: "lpm", 4: "ternary", 5: "range", 6: "optional"}  # p4.config.v1.MatchField.MatchType


@codec(ValueSetEntry, "value_set_entry")
class ValueSets(Codec[ValueSetEntry, p4.ValueSetEntry]):
    always_there = True

    def __init__(self, program: ProgramMessages):
        super().__init__(program)
        self._fields = {
            v.preamble.name: [MatchField(m.id, m.name, m.bitwidth, MATCH_TYPES.get(m.match_type, "exact")) for m in v.match]
            for v in program.message.value_sets
        }
        self._keys = {v["name"]: [k["name"] for k in v["keys"]] for v in program.layout.get("value_sets", ())}

    def _switch_fields(self, name: str) -> list[MatchField]:
        """The fields of a value set, by the switch's own names."""
        if name not in self._keys:
            raise EntityError(f"value set {name}: the program declares it and never uses it", "NOT_FOUND")
        keys, fields = self._keys[name], self._fields[name]
        if len(keys) != len(fields):
            raise EntityError(f"value set {name}: structs inside its struct are not served", "UNIMPLEMENTED")
        return [MatchField(f.id, key, f.width, f.match) for f, key in zip(fields, keys, strict=True)]

    def entity(self, type_: str, request: p4.ValueSetEntry) -> ValueSetEntry:
        name = by_id("value set", self.program.info.value_sets.values(), request.value_set_id).name
        fields = self._switch_fields(name)
        members = []
        for member in request.members:
            values: dict[str, Match] = {}
            for m in member.match:
                field = by_id(f"match field in value set {name}", fields, m.field_id)
                values[field.name] = self.program.match(m, field, f"value set {name}: field {field.name}")
            members.append(values)
        if any(member in members[:i] for i, member in enumerate(members)):
            raise EntityError(f"value set {name}: a member is given twice", "ALREADY_EXISTS")
        return ValueSetEntry(name, tuple(members))

    def answers(self, pattern: p4.ValueSetEntry, switch: SwitchTarget) -> Iterator[p4.ValueSetEntry]:
        sets = self.program.info.value_sets.values()
        for v in [by_id("value set", sets, pattern.value_set_id)] if pattern.value_set_id else sets:
            (entry,) = switch.read([ValueSetEntry(v.name)])
            fields = self._switch_fields(v.name) if entry.members else []
            yield self._message(v.id, entry, fields, f"value set {v.name}")

    def _message(self, number: int, entry: ValueSetEntry, fields: list[MatchField], place: str) -> p4.ValueSetEntry:
        message = p4.ValueSetEntry(value_set_id=number)
        for member in entry.members:
            values: Mapping[str, Match] = member if isinstance(member, Mapping) else {fields[0].name: member}
            check_names(values, fields, f"{place}: no field")
            message.members.add(match=self.program.match_messages(fields, as_key(values, fields, place)))
        return message

    def request(self, entity: ValueSetEntry) -> p4.ValueSetEntry:
        name = self.program.info.value_set(entity.value_set)
        return self._message(self.program.info.value_sets[name].id, entity, self._fields[name], f"value set {name}")

    def answered(self, answer: p4.ValueSetEntry) -> ValueSetEntry:
        name = next(v.name for v in self.program.info.value_sets.values() if v.id == answer.value_set_id)
        fields = {f.id: f for f in self._fields[name]}
        members = [
            {fields[m.field_id].name: self.program.match(m, fields[m.field_id], f"value set {name}") for m in member.match}
            for member in answer.members
        ]
        return ValueSetEntry(name, tuple(members))
