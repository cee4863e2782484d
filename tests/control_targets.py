"""Targets of STF commands with what STF has no words for: members and groups of action profiles, value sets."""

from __future__ import annotations

from typing import Any

from ina.compiler.stf import InterpreterTarget
from ina.p4.stf_target import SwitchTarget


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


class Compiled(SwitchTarget):
    """The embedded switch."""
