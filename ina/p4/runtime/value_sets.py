"""Parser value sets: values for `select` that the control plane sets (P4Runtime §9.7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ina.p4.runtime.entities import ValueSetEntry, as_key, check_names
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.entry_table import ImageRow, Key, build
from ina.p4.runtime.p4info import MatchField, P4Info
from ina.p4.runtime.tna_entities import EntryScope

Group = tuple[tuple[int, ...] | None, int | None]  # pipes that have the same members, parser in them; None: all
PARSERS = 18  # of a pipe


class ValueSets:
    """A program's value sets. `layouts`: each set's `name`, `index` among the table images, `key_words`, `keys` and `size`."""

    def __init__(self, p4info: P4Info, layouts: Any) -> None:
        self.p4info = p4info
        self.layouts = {v["name"]: v for v in layouts}
        self.scopes: dict[str, EntryScope] = {}  # of sets that differ between pipes or parsers
        self.members: dict[tuple[str, Group], ValueSetEntry] = {}
        self.keys: dict[tuple[str, Group], tuple[Key, ...]] = {}
        self._images: dict[tuple[str, Group], Any] = {}

    def copy(self) -> ValueSets:
        twin = ValueSets(self.p4info, self.layouts.values())
        twin.members, twin.keys, twin._images = dict(self.members), dict(self.keys), dict(self._images)
        twin.scopes = dict(self.scopes)
        return twin

    def set_scope(self, name: str, scope: EntryScope) -> None:
        """Sets the scope of a value set; see Tables.apply_scope."""
        scope = replace(scope, table=name)
        if self.scopes.get(name, EntryScope(name)) == scope:
            return
        if any(entry.members for (member_set, _), entry in self.members.items() if member_set == name):
            raise EntityError(f"value set {name}: it has members: its entry scope cannot change", "FAILED_PRECONDITION")
        self.scopes.pop(name, None)
        if scope != EntryScope(name):
            self.scopes[name] = scope

    def _group(self, name: str, pipe: int | None, parser: int | None) -> Group:
        scope, label = self.scopes.get(name, EntryScope(name)), f"value set {name}"
        for one, several, number in (("pipe", bool(scope.groups), pipe), ("parser", scope.parsers, parser)):
            if not several and number is not None:
                raise EntityError(f"{label}: {one} {number}: every {one} has the same members (its entry scope)")
            if several and number is None:
                raise EntityError(f"{label}: every {one} has members of its own (its entry scope): of which {one}?")
        if parser is not None and not 0 <= parser < PARSERS:
            raise EntityError(f"{label}: parser {parser}: expected 0..{PARSERS - 1}")
        if pipe is None:
            return None, parser
        for group in scope.groups:
            if pipe in group:
                return group, parser
        raise EntityError(f"{label}: pipe {pipe} is in none of its scopes: {', '.join(map(str, scope.groups))}")

    def read(self, entity: ValueSetEntry) -> list[ValueSetEntry]:
        """The value sets that match a pattern; if pipes or parsers differ and it names none, those of all with members."""
        name = self.p4info.value_set(entity.value_set)
        if name not in self.scopes:
            return [self.members.get((name, self._group(name, entity.pipe, entity.parser)), ValueSetEntry(name))]
        return [e for (member_set, (pipes, parser)), e in self.members.items()
                if member_set == name and e.members and (entity.pipe is None or pipes is None or entity.pipe in pipes)
                and (None in (entity.parser, parser) or entity.parser == parser)]

    def apply(self, type_: str, entity: ValueSetEntry) -> None:
        """MODIFY of a value set, which replaces its members (P4Runtime §9.7)."""
        name = self.p4info.value_set(entity.value_set)
        label = f"value set {name}"
        if type_ != "MODIFY":
            raise EntityError(f"{label}: only MODIFY is possible: it replaces all members")
        layout = self.layouts.get(name)
        if layout is None:
            raise EntityError(f"{label}: the program declares it and never uses it", "NOT_FOUND")
        if len(entity.members) > layout["size"]:
            raise EntityError(
                f"{label}: {len(entity.members)} members, it has room for {layout['size']}", "RESOURCE_EXHAUSTED"
            )
        group = self._group(name, entity.pipe, entity.parser)
        place = name, group
        pipe = group[0][0] if group[0] else None
        self.members[place] = replace(entity, value_set=name, members=tuple(entity.members), pipe=pipe)
        self.keys[place] = tuple(self._key(layout["keys"], member, label) for member in entity.members)
        self._images.pop(place, None)

    @staticmethod
    def _key(keys: list[dict[str, Any]], member: Any, label: str) -> Key:
        if not isinstance(member, dict):
            if len(keys) != 1:
                raise EntityError(f"{label}: a member has {len(keys)} fields: {', '.join(k['name'] for k in keys)}")
            member = {keys[0]["name"]: member}
        fields = [MatchField(number, k["name"], k["width"], k["match"]) for number, k in enumerate(keys, 1)]
        check_names(member, fields, f"{label}: no field")
        return as_key(member, fields, label)

    def parsers(self, pipe: int) -> list[int]:
        """The parsers of a pipe that have members of their own."""
        parsers = {parser for (name, (pipes, parser)), e in self.members.items()
                 if parser is not None and e.members and name in self.scopes and (pipes is None or pipe in pipes)}
        return sorted(parsers)

    def images(self, pipeline: int = 0, pipe: int | None = None, parser: int | None = None) -> dict[int, Any]:
        """Images of a pipeline's value sets by index, for a parser of `pipe`."""
        images = {}
        for name, layout in self.layouts.items():
            if layout.get("pipeline", 0) != pipeline:
                continue
            scope = self.scopes.get(name, EntryScope(name))
            group = next((g for g in scope.groups if pipe in g), None)
            place = name, (group, parser if scope.parsers else None)
            if place not in self._images:
                rows = [ImageRow(key, i, None) for i, key in enumerate(dict.fromkeys(self.keys.get(place, ())))]
                self._images[place] = build(layout["keys"], layout["key_words"], 0, rows, (0, []))
            images[layout["index"]] = self._images[place]
        return images
