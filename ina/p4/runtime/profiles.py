"""Action profiles and selectors: members (bound actions) and groups of them, which table entries name (P4Runtime §9.2).

The data plane has no profiles: a member that an entry names is copied into the entry's image, a group into the
table's, so a change makes new images of the tables that use the profile.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ina.p4.runtime.entities import ProfileGroup, ProfileMember, as_int, as_params, check_existence
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.p4info import P4Info, ProfileInfo, TableInfo

# Limits of weights, each unit of which takes a place in the table's image
MOST_WEIGHT = 65535  # of a group's members together, where its profile says no less
MOST_WEIGHTS = 1 << 20  # of all groups of a profile together

P = TypeVar("P", ProfileMember, ProfileGroup)


class Profiles:
    """All profiles of a program. `members`, `groups`: by profile and number. The cost of a change does not grow with them."""

    def __init__(self, p4info: P4Info) -> None:
        self.p4info = p4info
        self.members: dict[str, dict[int, ProfileMember]] = {name: {} for name in p4info.profiles}
        self.groups: dict[str, dict[int, ProfileGroup]] = {name: {} for name in p4info.profiles}
        self._grouped: dict[str, Counter[int]] = {name: Counter() for name in p4info.profiles}  # number of groups with a member
        self._weights: Counter[str] = Counter()  # of all groups of a profile

    def copy(self) -> Profiles:
        twin = copy.copy(self)
        twin.members = {name: dict(items) for name, items in self.members.items()}
        twin.groups = {name: dict(items) for name, items in self.groups.items()}
        twin._grouped = {name: Counter(items) for name, items in self._grouped.items()}
        twin._weights = Counter(self._weights)
        return twin

    def apply(
        self, type_: str, entity: ProfileMember | ProfileGroup, in_use: Callable[[str, int | None, int | None], bool]
    ) -> str:
        """Makes a change; returns the profile's full name. `in_use` tells if an entry names a member or a group of it."""
        info = self.p4info.profile(entity.profile)
        entity = replace(entity, profile=info.name)
        if isinstance(entity, ProfileGroup):
            self._apply_group(type_, entity, info, in_use)
        else:
            self._apply_member(type_, entity, info, in_use)
        return info.name

    def _apply_member(self, type_: str, entity: ProfileMember, info: ProfileInfo,
                      in_use: Callable[[str, int | None, int | None], bool]) -> None:
        number = as_int(entity.member_id, 32, f"action profile {info.name}: member number")
        label, members = f"action profile {info.name}: member {number}", self.members[info.name]
        check_existence(type_, number in members, label)
        if type_ == "DELETE":
            self._check_unused(in_use(info.name, number, None) or self._grouped[info.name][number] > 0, label)
            del members[number]
            return
        if type_ == "INSERT" and info.size and len(members) >= info.size:
            raise EntityError(f"{label}: the profile is full with {info.size} members", "RESOURCE_EXHAUSTED")
        members[number] = self._member(entity, info.tables, label)

    def _apply_group(self, type_: str, entity: ProfileGroup, info: ProfileInfo,
                     in_use: Callable[[str, int | None, int | None], bool]) -> None:
        name = info.name
        number = as_int(entity.group_id, 32, f"action profile {name}: group number")
        label, groups, grouped = f"action profile {name}: group {number}", self.groups[name], self._grouped[name]
        check_existence(type_, number in groups, label)
        if type_ == "DELETE":
            self._check_unused(in_use(name, None, number), label)
        else:
            self._group(entity, info, label)
        if number in groups:
            grouped.subtract({member for member, _ in groups[number].members})
            self._weights[name] -= _weight(groups[number])
        if type_ == "DELETE":
            del groups[number]
            return
        groups[number] = entity
        grouped.update({member for member, _ in entity.members})
        self._weights[name] += _weight(entity)

    @staticmethod
    def _check_unused(in_use: bool, label: str) -> None:
        if in_use:
            raise EntityError(f"{label} is in use: change what names it first", "FAILED_PRECONDITION")

    def read(self, pattern: P) -> list[P]:
        """The member or group of the pattern's profile with its number; 0: all."""
        name = self.p4info.profile(pattern.profile).name
        items: Mapping[int, Any] = self.members[name] if isinstance(pattern, ProfileMember) else self.groups[name]
        number = pattern.member_id if isinstance(pattern, ProfileMember) else pattern.group_id
        return list(items.values()) if number == 0 else [items[number]] if number in items else []

    def _member(self, entity: ProfileMember, tables: tuple[str, ...], label: str) -> ProfileMember:
        action = None
        for table in tables:  # all of them can run it
            action = self.p4info.action(self.p4info.table(table), entity.action)
        if action is None:
            raise EntityError(f"{label}: no table uses this action profile")
        return replace(entity, action=action.name, params=as_params(entity.params, action.params, label))

    def _group(self, entity: ProfileGroup, info: ProfileInfo, label: str) -> None:
        if not info.with_selector:
            raise EntityError(f"{label}: only action selectors have groups")
        for member, weight in entity.members:
            if member not in self.members[info.name]:
                raise EntityError(f"{label}: no member {member}", "NOT_FOUND")
            if weight < 0:
                raise EntityError(f"{label}: member {member} has weight {weight}: expected at least 1, or 0: not active")
        weight, limit = _weight(entity), min(info.max_group_size or info.size or MOST_WEIGHT, MOST_WEIGHT)
        before = self.groups[info.name].get(entity.group_id)
        total = self._weights[info.name] + weight - (_weight(before) if before is not None else 0)
        for whose, amount, most in (("its weights", weight, limit), ("weights of all groups", total, MOST_WEIGHTS)):
            if amount > most:
                raise EntityError(f"{label}: {whose} add up to {amount}, at most {most} are possible", "RESOURCE_EXHAUSTED")

    def check(self, table: TableInfo, member: int | None, group: int | None) -> None:
        """Raises EntityError: an entry of `table` may not name this member or group."""
        if not table.profile:
            raise EntityError(f"table {table.name} has no action profile: its entries name an action")
        numbers: Collection[int | None] = (self.members if member is not None else self.groups)[table.profile]
        number = member if member is not None else group
        if number not in numbers:
            kind = "member" if member is not None else "group"
            raise EntityError(f"table {table.name}: action profile {table.profile} has no {kind} {number}", "NOT_FOUND")

    def member(self, profile: str, number: int) -> tuple[str, dict[str, int]]:
        entity = self.members[profile][number]
        return entity.action, entity.params  # type: ignore[return-value]

    def group_members(self, profile: str, number: int) -> list[tuple[str, dict[str, int]]]:
        """The actions of a group, by member number, as BMv2 orders them; a member of weight w occurs w times."""
        members = sorted(self.groups[profile][number].members)
        return [self.member(profile, m) for m, weight in members for _ in range(weight)]


def _weight(group: ProfileGroup) -> int:
    return sum(weight for _, weight in group.members)
