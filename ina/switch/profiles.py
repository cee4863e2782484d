"""Action profiles and selectors: members (bound actions) and groups of them, which table entries name (P4Runtime §9.2).

The data plane knows none of this: a member that an entry names is copied into the entry's image, a group into the
table's, so a change makes new images of the tables that use the profile.
"""

from __future__ import annotations

from dataclasses import replace

from ina.switch.entities import ProfileGroup, ProfileMember, as_params
from ina.switch.p4info import EntityError, P4Info, TableInfo


class Profiles:
    def __init__(self, p4info: P4Info) -> None:
        self.p4info = p4info
        self.members: dict[tuple[str, int], ProfileMember] = {}
        self.groups: dict[tuple[str, int], ProfileGroup] = {}

    def copy(self) -> Profiles:
        twin = Profiles(self.p4info)
        twin.members, twin.groups = dict(self.members), dict(self.groups)
        return twin

    def apply(self, type_: str, entity: ProfileMember | ProfileGroup, used: set[tuple[int | None, int | None]]) -> str:
        """The profile's full name. `used`: (member, group) of the entries that name one."""
        info = self.p4info.profile(entity.profile)
        entity = replace(entity, profile=info.name)
        is_group = isinstance(entity, ProfileGroup)
        number = entity.group_id if is_group else entity.member_id
        what = f"action profile {info.name}: {'group' if is_group else 'member'} {number}"
        known = self.groups if is_group else self.members
        if type_ == "INSERT" and (info.name, number) in known:
            raise EntityError(f"{what} is there already", "ALREADY_EXISTS")
        if type_ != "INSERT" and (info.name, number) not in known:
            raise EntityError(f"{what} is not there", "NOT_FOUND")
        if type_ == "DELETE":
            users = {group if is_group else member for member, group in used}
            if not is_group:
                users |= {m for g in self.groups.values() if g.profile == info.name for m, _ in g.members}
            if number in users:
                raise EntityError(f"{what} is in use: change what names it first", "FAILED_PRECONDITION")
            del known[info.name, number]
            return info.name
        if type_ == "INSERT" and not is_group and info.size:
            if sum(name == info.name for name, _ in self.members) >= info.size:
                raise EntityError(f"{what}: the profile is full with {info.size} members", "RESOURCE_EXHAUSTED")
        known[info.name, number] = self._group(entity, what) if is_group else self._member(entity, info.tables, what)
        return info.name

    def _member(self, entity: ProfileMember, tables: tuple[str, ...], what: str) -> ProfileMember:
        action = None
        for table in tables:  # all of them can run it
            action = self.p4info.action(self.p4info.table(table), entity.action)
        if action is None:
            raise EntityError(f"{what}: no table uses this action profile")
        return replace(entity, action=action.name, params=as_params(entity.params, action.params, what))

    def _group(self, entity: ProfileGroup, what: str) -> ProfileGroup:
        if not self.p4info.profile(entity.profile).with_selector:
            raise EntityError(f"{what}: only action selectors have groups")
        for member, weight in entity.members:
            if (entity.profile, member) not in self.members:
                raise EntityError(f"{what}: no member {member}", "NOT_FOUND")
            if weight < 0:
                raise EntityError(f"{what}: member {member} has weight {weight}: expected at least 1, or 0: not active")
        return entity

    def check(self, table: TableInfo, member: int | None, group: int | None) -> None:
        """Whether an entry of `table` may name these."""
        if not table.profile:
            raise EntityError(f"table {table.name} has no action profile: its entries name an action")
        known, number = (self.members, member) if member is not None else (self.groups, group)
        if (table.profile, number) not in known:
            what = "member" if member is not None else "group"
            raise EntityError(f"table {table.name}: action profile {table.profile} has no {what} {number}", "NOT_FOUND")

    def member(self, profile: str, number: int) -> tuple[str, dict[str, int]]:
        found = self.members[profile, number]
        return found.action, found.params  # type: ignore[return-value]

    def group_members(self, profile: str, number: int) -> list[tuple[str, dict[str, int]]]:
        """By member number, as BMv2 orders them; one of weight w stands there w times."""
        members = sorted(self.groups[profile, number].members)
        return [self.member(profile, m) for m, weight in members for _ in range(weight)]
