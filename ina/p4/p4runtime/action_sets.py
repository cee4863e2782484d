"""Action sets in table entries, "one shot" (P4Runtime §9.2.3): members and a group that the server numbers and hides."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.program import ProgramMessages
from ina.p4.runtime import EntityError, ProfileGroup, ProfileMember, TableEntry, Update

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
        if {f.name for f, _ in message.ListFields()} - {"action_profile_actions"}:
            raise EntityError(f"{place}: modes and sizes of its own are not served", "UNIMPLEMENTED")
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
        copy = p4.ActionProfileActionSet()
        copy.CopyFrom(message)
        action_set = ActionSet(ProfileGroup(profile.name, self._next, tuple(weights)), tuple(members), copy)
        self._next += max(1, len(members))
        return action_set
