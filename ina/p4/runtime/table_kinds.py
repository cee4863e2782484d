"""Kinds of entities that are in the tables' image: entries, action profiles, value sets, and settings of a table as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from ina.p4.runtime.cell_kinds import REGISTERS
from ina.p4.runtime.entities import ProfileGroup, ProfileMember, RegisterEntry, TableEntry, ValueSetEntry
from ina.p4.runtime.kinds import Batch, Kind, View, kind_of
from ina.p4.runtime.p4info import EntityError
from ina.p4.runtime.tna_entities import EntryScope, KeyMask


@kind_of(TableEntry)
class TableEntries(Kind[TableEntry]):
    def write(self, batch: Batch, type_: str, entity: TableEntry) -> None:
        batch.own_tables().apply(type_, entity)

    def read(self, view: View, pattern: TableEntry) -> list[TableEntry]:
        """Entries of the pattern's table (none: of all), with a match: that entry."""
        if pattern.match and not pattern.is_default and pattern.table:
            matches = view.tables.find(pattern)
            if matches is not None:
                return matches
        rows = view.tables.entries(pattern.table or None, pattern.pipe)
        if pattern.is_default and pattern.table:
            rows = [view.tables.default_entry(pattern.table, pattern.pipe)]
        return [
            row
            for row in rows
            if row.is_default == pattern.is_default
            and (not pattern.match or (row.match == pattern.match and row.priority == pattern.priority))
        ]


@kind_of(ProfileMember)
class Members(Kind[ProfileMember]):
    def write(self, batch: Batch, type_: str, entity: ProfileMember) -> None:
        batch.own_tables().apply_profile(type_, entity)

    def read(self, view: View, pattern: ProfileMember) -> list[ProfileMember]:
        return view.tables.profiles.read_members(pattern)


@kind_of(ProfileGroup)
class Groups(Kind[ProfileGroup]):
    def write(self, batch: Batch, type_: str, entity: ProfileGroup) -> None:
        batch.own_tables().apply_profile(type_, entity)

    def read(self, view: View, pattern: ProfileGroup) -> list[ProfileGroup]:
        return view.tables.profiles.read_groups(pattern)


@kind_of(ValueSetEntry)
class ValueSetEntries(Kind[ValueSetEntry]):
    def write(self, batch: Batch, type_: str, entity: ValueSetEntry) -> None:
        batch.own_tables().apply_value_set(type_, entity)

    def read(self, view: View, pattern: ValueSetEntry) -> Sequence[ValueSetEntry]:
        return view.tables.value_sets.read(pattern)


def _check_pipes(batch: Batch, entity: EntryScope | KeyMask) -> None:
    if not batch.pipes:
        raise EntityError(f"{type(entity).__name__}: {batch.program} is no TNA program", "UNIMPLEMENTED")


@kind_of(EntryScope)
class EntryScopes(Kind[EntryScope]):
    """`Switch.entry_scope` returns one."""

    def write(self, batch: Batch, type_: str, entity: EntryScope) -> None:
        _check_pipes(batch, entity)
        if type_ != "MODIFY":
            raise EntityError("an entry scope: only MODIFY is possible")
        batch.own_tables().apply_scope(entity, batch.pipes)


@kind_of(KeyMask)
class KeyMasks(Kind[KeyMask]):
    """`Switch.key_mask` returns one."""

    def write(self, batch: Batch, type_: str, entity: KeyMask) -> None:
        _check_pipes(batch, entity)
        name, words = batch.own_tables().apply_key_mask(entity)
        for number, word in enumerate(words):
            batch.commands += REGISTERS.commands(batch, RegisterEntry(name, number, word))
