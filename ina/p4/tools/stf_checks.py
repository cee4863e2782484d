"""Checks of STF commands against P4Info: what a switch refuses is an error of the file, the same for every target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ina.p4.runtime.entities import as_key, as_match, as_params
from ina.p4.runtime.entry_table import Key
from ina.p4.runtime.p4info import ActionInfo, MatchField, P4Info
from ina.p4.tools.stf_numbers import Json, StfError, Word, cell, leaves_of

Matches = Mapping[str, int | tuple[int, int]]


class Checks:
    """Checks by P4Info. They raise StfError, or EntityError in the words of the control plane."""

    def __init__(self, p4info: Json) -> None:
        self.p4info = p4info
        self.info = P4Info(p4info)
        self.entries: dict[str, set[tuple[Key, int]]] = {}  # of each table, those that the file has added

    def action(self, table: str, action: str, args: Mapping[str, int], default: bool = False) -> None:
        """Checks an action of entries, or of the default entry, and its arguments."""
        info = self.info.table(table)
        if default and info.const_default:
            raise StfError(f"table {table}: its default action is constant")
        self._arguments(f"table {table}", self.info.action(info, action, default), args)

    def member(self, profile: str, action: str, args: Mapping[str, int]) -> None:
        self._arguments(f"action profile {profile}", self.info.actions[action], args)

    @staticmethod
    def _arguments(place: str, action: ActionInfo, args: Mapping[str, int]) -> None:
        as_params(args, action.params, f"{place}: action {action.name}")

    def entry(self, table: str, match: Matches, priority: int) -> None:
        """Checks the match of a new entry, and that the table has none like it; notes it."""
        info = self.info.table(table)
        if info.is_const:
            raise StfError(f"table {table}: its entries are constant")
        if not info.fields:
            raise StfError(f"table {table}: it has no keys, so only a default action")
        row = as_key(match, info.fields, f"table {table}"), priority if info.needs_priority else 0
        entries = self.entries.setdefault(table, set())
        if row in entries:
            raise StfError(f"table {table}: there is already an entry with this match" + " and priority" * info.needs_priority)
        if info.size and len(entries) >= info.size:
            raise StfError(f"table {table}: full with {info.size} entries")
        entries.add(row)

    def value_set(self, name: str, members: Sequence[int]) -> None:
        (value_set,) = (v for v in self.p4info["valueSets"] if v["preamble"]["name"] == name)
        fields = [
            MatchField(int(f["id"]), f.get("name", ""), int(f["bitwidth"]), f.get("matchType", "EXACT").lower())
            for f in value_set["match"]
        ]
        if len(fields) != 1:
            raise StfError(f"value set {name}: its members have {len(fields)} fields: expected one")
        if len(members) > int(value_set["size"]):
            raise StfError(f"value set {name}: {len(members)} members, it has room for {value_set['size']}")
        for member in members:
            as_match(member, fields[0], f"value set {name}")

    def cell(self, section: str, kind: str, name: str, text: str) -> int:
        """Parses the index of a cell of a counter or meter. Raises StfError."""
        index = cell(text)
        size = next((int(o["size"]) for o in self.p4info.get(section, []) if o["preamble"]["name"] == name), 0)
        if index >= size:
            raise StfError(f"{kind} {name} has the cells 0 to {size - 1}, not {index}")
        return index

    def digest(self, name: str) -> list[Word]:
        """Returns the numbers of a digest; none if it is unknown, or not all of its parts are numbers."""
        specs = [d["typeSpec"] for d in self.p4info.get("digests", []) if d["preamble"]["name"] == name]
        return leaves_of(specs[0], self.p4info.get("typeInfo", {})) if specs else []
