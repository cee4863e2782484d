"""Targets of STF commands with what STF has no words for: members and groups of action profiles, value sets."""

from __future__ import annotations

from typing import Any

from ina.compiler.build import CompiledProgram
from ina.compiler.stf import InterpreterTarget
from ina.p4.stf_target import SwitchTarget
from ina.switch.entities import (
    DirectMeterEntry,
    MeterConfig,
    ProfileGroup,
    ProfileMember,
    TableEntry,
    ValueSetEntry,
    insert,
    modify,
)


class Reference(InterpreterTarget):
    """The interpreter."""

    def add_member(self, profile: str, action: str, args: dict[str, int]) -> int:
        return self.interpreter.profiles[profile].add_member(action, args)

    def add_group(self, profile: str, members: list[int]) -> int:
        return self.interpreter.profiles[profile].add_group(members)

    def point(
        self, table: str, match: dict[str, Any], *, member: int | None = None, group: int | None = None, priority: int = 0
    ) -> None:
        self.interpreter.tables[table].insert(match, priority=priority, member=member, group=group)

    def fill_value_set(self, name: str, members: list[int]) -> None:
        for member in members:
            self.interpreter.value_sets[name].insert(member)

    def configure_direct_meter(self, table: str, entry: int, rates: list[tuple[float, int]]) -> None:
        (committed, committed_burst), (peak, peak_burst) = rates
        states = self.interpreter.tables[table].meter_states
        states.configure(entry, committed, committed_burst, peak, peak_burst)


class Compiled(SwitchTarget):
    """The embedded switch; members and groups count from 0, as BMv2 and the interpreter number theirs."""

    def __init__(self, compiled: CompiledProgram) -> None:
        super().__init__(compiled)
        self._members: dict[str, int] = {}
        self._groups: dict[str, int] = {}

    def add_member(self, profile: str, action: str, args: dict[str, int]) -> int:
        number = self._members.setdefault(profile, 0)
        self.switch.write(insert(ProfileMember(profile, number, action, args)))
        self._members[profile] += 1
        return number

    def add_group(self, profile: str, members: list[int]) -> int:
        number = self._groups.setdefault(profile, 0)
        self.switch.write(insert(ProfileGroup(profile, number, tuple((m, 1) for m in members))))
        self._groups[profile] += 1
        return number

    def point(
        self, table: str, match: dict[str, Any], *, member: int | None = None, group: int | None = None, priority: int = 0
    ) -> None:
        self.switch.write(insert(TableEntry(table, match, priority=priority, member=member, group=group)))

    def fill_value_set(self, name: str, members: list[int]) -> None:
        self.switch.write(modify(ValueSetEntry(name, tuple(members))))

    def configure_direct_meter(self, table: str, entry: TableEntry, rates: list[tuple[float, int]]) -> None:
        (committed, committed_burst), (peak, peak_burst) = rates
        config = MeterConfig(committed, committed_burst, peak, peak_burst)
        self.switch.write(modify(DirectMeterEntry(entry, config)))
