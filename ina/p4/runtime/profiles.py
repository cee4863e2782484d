"""Action profiles and selectors: members (bound actions) and groups of them, which table entries name (P4Runtime §9.2).

The data plane knows none of this: a member that an entry names is copied into the entry's image, a group into the
table's, so a change makes new images of the tables that use the profile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from ina.p4.runtime.entities import Entity, ProfileGroup, ProfileMember, as_params
from ina.p4.runtime.p4info import EntityError, P4Info, TableInfo


class Profiles:
    """`members`, `groups`: by profile and number. No change takes longer because a profile has many of them."""

    def __init__(self, p4info: P4Info) -> None:
        self.p4info = p4info
        self.members: dict[str, dict[int, ProfileMember]] = {name: {} for name in p4info.profiles}
        self.groups: dict[str, dict[int, ProfileGroup]] = {name: {} for name in p4info.profiles}
        self._grouped: dict[str, Counter[int]] = {name: Counter() for name in p4info.profiles}  # in how many groups a member is

    def copy(self) -> Profiles:
        twin = object.__new__(Profiles)
        twin.p4info = self.p4info
        twin.members = {name: dict(known) for name, known in self.members.items()}
        twin.groups = {name: dict(known) for name, known in self.groups.items()}
        twin._grouped = {name: Counter(known) for name, known in self._grouped.items()}
        return twin

    def apply(self, type_: str, entity: ProfileMember | ProfileGroup, used: Callable[[str, int | None, int | None], bool]) -> str:
        """The profile's full name. `used`: whether an entry of a table with this profile names a member or a group."""
        info = self.p4info.profile(entity.profile)
        entity = replace(entity, profile=info.name)
        if isinstance(entity, ProfileGroup):
            self._apply_group(type_, entity, info.name, used)
        else:
            self._apply_member(type_, entity, used)
        return info.name

    def _apply_member(self, type_: str, entity: ProfileMember, used: Callable[[str, int | None, int | None], bool]) -> None:
        info, number = self.p4info.profile(entity.profile), entity.member_id
        what, known = f"action profile {info.name}: member {number}", self.members[info.name]
        self._there(type_, number in known, what)
        if type_ == "DELETE":
            self._unused(used(info.name, number, None) or self._grouped[info.name][number] > 0, what)
            del known[number]
            return
        if type_ == "INSERT" and info.size and len(known) >= info.size:
            raise EntityError(f"{what}: the profile is full with {info.size} members", "RESOURCE_EXHAUSTED")
        known[number] = self._member(entity, info.tables, what)

    def _apply_group(self, type_: str, entity: ProfileGroup, name: str,
                     used: Callable[[str, int | None, int | None], bool]) -> None:
        number = entity.group_id
        what, known, grouped = f"action profile {name}: group {number}", self.groups[name], self._grouped[name]
        self._there(type_, number in known, what)
        if type_ == "DELETE":
            self._unused(used(name, None, number), what)
        else:
            self._group(entity, name, what)
        if number in known:
            grouped.subtract({member for member, _ in known[number].members})
        if type_ == "DELETE":
            del known[number]
            return
        known[number] = entity
        grouped.update({member for member, _ in entity.members})

    @staticmethod
    def _there(type_: str, there: bool, what: str) -> None:
        if type_ == "INSERT" and there:
            raise EntityError(f"{what} is there already", "ALREADY_EXISTS")
        if type_ != "INSERT" and not there:
            raise EntityError(f"{what} is not there", "NOT_FOUND")

    @staticmethod
    def _unused(used: bool, what: str) -> None:
        if used:
            raise EntityError(f"{what} is in use: change what names it first", "FAILED_PRECONDITION")

    def read(self, entity: ProfileMember | ProfileGroup) -> Sequence[Entity]:
        """Of the entity's profile: the one with its number; 0: all."""
        name = self.p4info.profile(entity.profile).name
        known: Mapping[int, Entity] = self.groups[name] if isinstance(entity, ProfileGroup) else self.members[name]
        number = entity.group_id if isinstance(entity, ProfileGroup) else entity.member_id
        if number == 0:
            return list(known.values())
        return [known[number]] if number in known else []

    def _member(self, entity: ProfileMember, tables: tuple[str, ...], what: str) -> ProfileMember:
        action = None
        for table in tables:  # all of them can run it
            action = self.p4info.action(self.p4info.table(table), entity.action)
        if action is None:
            raise EntityError(f"{what}: no table uses this action profile")
        return replace(entity, action=action.name, params=as_params(entity.params, action.params, what))

    def _group(self, entity: ProfileGroup, name: str, what: str) -> None:
        if not self.p4info.profile(name).with_selector:
            raise EntityError(f"{what}: only action selectors have groups")
        for member, weight in entity.members:
            if member not in self.members[name]:
                raise EntityError(f"{what}: no member {member}", "NOT_FOUND")
            if weight < 0:
                raise EntityError(f"{what}: member {member} has weight {weight}: expected at least 1, or 0: not active")

    def check(self, table: TableInfo, member: int | None, group: int | None) -> None:
        """Whether an entry of `table` may name these."""
        if not table.profile:
            raise EntityError(f"table {table.name} has no action profile: its entries name an action")
        known: Collection[int | None] = (self.members if member is not None else self.groups)[table.profile]
        number = member if member is not None else group
        if number not in known:
            what = "member" if member is not None else "group"
            raise EntityError(f"table {table.name}: action profile {table.profile} has no {what} {number}", "NOT_FOUND")

    def member(self, profile: str, number: int) -> tuple[str, dict[str, int]]:
        found = self.members[profile][number]
        return found.action, found.params  # type: ignore[return-value]

    def group_members(self, profile: str, number: int) -> list[tuple[str, dict[str, int]]]:
        """By member number, as BMv2 orders them; one of weight w stands there w times."""
        members = sorted(self.groups[profile][number].members)
        return [self.member(profile, m) for m, weight in members for _ in range(weight)]
