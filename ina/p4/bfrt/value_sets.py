"""Tables of an embedded switch's parser value sets: a row is a member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ina.p4.bfrt.entities import value_set_rows
from ina.p4.bfrt.info import Table, own_name
from ina.p4.bfrt.rows import PRIORITY, Fields, Owner, Row, Where
from ina.p4.runtime import EntityError, Update, ValueSetEntry


@dataclass
class ValueSetTables:
    """The value sets of the device's switch."""

    device: Owner
    kinds = ("ParserValueSet",)

    def _current(self, table: Table, where: Where) -> list[ValueSetEntry]:
        pattern = ValueSetEntry(own_name(table.name), pipe=where.pipe, parser=where.parser)
        scope = self.device.switch.entry_scope(own_name(table.name))
        if not scope.groups:  # all pipes share their members
            pattern = ValueSetEntry(own_name(table.name), parser=where.parser)
        if not scope.parsers:
            pattern = ValueSetEntry(own_name(table.name), pipe=pattern.pipe)
        return self.device.switch.read([pattern])

    @staticmethod
    def _members(entry: ValueSetEntry, table: Table) -> list[Fields]:
        return [m if isinstance(m, dict) else {table.keys[0].name: m} for m in entry.members]

    def write(self, type_: str, table: Table, row: Row, where: Where) -> None:
        name = own_name(table.name)
        if type_ in ("DELETE", "RESET") and not row.key:
            self._write([ValueSetEntry(name, (), e.pipe, e.parser) for e in self._current(table, where) if e.members])
            return
        scope = self.device.switch.entry_scope(name)
        parser = where.parser if scope.parsers else None  # the parser does not matter where all have the same
        place = ValueSetEntry(name, (), where.pipe, parser)
        member = {k: v for k, v in row.key.items() if k != PRIORITY}
        entries = self._current(table, Where(where.pipe, None, parser))
        members = self._members(entries[0], table) if len(entries) == 1 else []
        if type_ == "INSERT":
            if member in members:
                raise EntityError(f"table {table.name}: this member is there already", "ALREADY_EXISTS")
            members.append(member)
        elif type_ == "DELETE":
            if member not in members:
                raise EntityError(f"table {table.name}: there is no such member", "NOT_FOUND")
            members.remove(member)
        else:
            raise EntityError(f"table {table.name}: a value set takes INSERT and DELETE, not {type_}")
        fields = [k.name for k in table.keys if k.name != PRIORITY]
        if len(fields) == 1:  # whatever its name: that of a plain type is f1
            members = [m.get(fields[0], (0, 0)) for m in members]
        self._write([ValueSetEntry(name, tuple(members), place.pipe, place.parser)])

    def _write(self, entries: list[ValueSetEntry]) -> None:
        self.device.write_entities([Update("MODIFY", e) for e in entries])

    def read(self, table: Table, row: Row, where: Where) -> list[Row]:
        rows = [r for e in self._current(table, where) for r in value_set_rows(e, self.device.info)]
        if row.key:
            key = self._full_key(table, row.key)
            rows = [r for r in rows if self._full_key(table, r.key) == key]
            if not rows:
                raise EntityError(f"table {table.name}: there is no such member", "NOT_FOUND")
        return rows

    @staticmethod
    def _full_key(table: Table, key: Mapping[str, Any]) -> Fields:
        return {k.name: key.get(k.name, (0, 0)) for k in table.keys if k.name != PRIORITY}
