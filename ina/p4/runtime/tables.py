"""Tables of a program: entries in, immutable table images out (table.h).

`Tables` is the control plane's copy of a program's tables; it checks every change against the P4Info.
`Tables.image()` lays it out for the compiled program; a table that did not change keeps its bytes.

The program's layout has, for each table of the image by `index`: `key_words`, `keys` (name, width, match, first word),
`actions` (name, params: name, width, first word), `default_action` and `default_params`, `entries`, `const_entries`
(then the entries are in the code, not in the image), `direct_counter` and `direct_meter`. Value sets are among them.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ina.base.native import CData, ffi
from ina.p4.runtime.entities import ProfileGroup, ProfileMember, TableEntry, as_int, check_names, match_of
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.entry_table import EntryTable, Row, words_of
from ina.p4.runtime.p4info import Json, P4Info, TableInfo
from ina.p4.runtime.profiles import Profiles
from ina.p4.runtime.tna_entities import EntryScope, KeyMask
from ina.p4.runtime.value_sets import ValueSets


@dataclass(frozen=True, slots=True)
class TableImage:
    """`pointer`: `const struct ina_tables *`, valid as long as this object exists."""

    pointer: CData
    memory: tuple[Any, ...]


class Tables:
    """The entries, profiles and value sets of a program. Not thread-safe."""

    def __init__(self, p4info: P4Info, layout: Json):
        self.p4info = p4info
        in_image = [t for t in layout.get("tables", ()) if t["index"] >= 0]
        in_image.sort(key=lambda t: t["index"])
        self._tables = {t["name"]: EntryTable(p4info.table(t["name"]), p4info, t) for t in in_image}
        self.profiles = Profiles(p4info)
        self.value_sets = ValueSets(p4info, layout.get("value_sets", ()))
        self._order = {(t.get("pipeline", 0), t["index"]): t["name"] for t in in_image}
        self._direct_objects = [("filter", f) for f in layout.get("filters", ()) if f["table"]]
        self._direct_objects += [("register", r) for r in layout.get("registers", ()) if r.get("table")]
        self.scopes: dict[str, dict[tuple[int, ...], EntryTable]] = {}  # of tables whose pipes differ: the table of each group
        self._const: dict[str, list[TableEntry]] = {}
        self._layouts = {t["name"]: t for t in layout.get("tables", ())}
        for t in self._layouts.values():
            rows = t["entries"]
            priorities = [row["priority"] for row in rows]
            if None in priorities or priorities != sorted(priorities, reverse=True):
                priorities = list(range(len(rows), 0, -1))  # the first one wins (P4_16 §14.2.1.4)
            for row, priority in zip(rows, priorities, strict=True):
                info = p4info.table(t["name"])
                if t.get("chained", t["const_entries"]):
                    self._const.setdefault(info.name, []).append(self._initial(info, t, row, priority, 0).entry)
                    continue
                table = self._tables[t["name"]]
                initial = self._initial(info, t, row, priority, table.next_id)
                table.rows.setdefault((initial.key, initial.priority), initial)  # the first of the same key wins
                table.next_id += 1

    @staticmethod
    def _params(action: Json, all_words: Sequence[str | int]) -> dict[str, int]:
        """Parameters by name of an action of the layout, from 64-bit words."""
        params = {}
        for p in action["params"]:
            words = all_words[p["word"] : p["word"] + len(words_of(0, p["width"]))]
            params[p["name"]] = sum(int(w) << (64 * i) for i, w in enumerate(words))
        return params

    def _initial(self, info: TableInfo, layout: Json, row: Json, priority: int, number: int) -> Row:
        """One of the program's own entries: `keys` as value and mask, or low and high."""
        action = layout["actions"][row["action"]]
        key = tuple((int(k.get("value", k.get("low"))), int(k.get("mask", k.get("high")))) for k in row["keys"])
        fields = {f.name: match_of(pair, f) for f, pair in zip(info.fields, key, strict=True)}
        match = {k: v for k, v in fields.items() if v is not None}
        rank = priority if info.needs_priority else 0
        is_const = layout["const_entries"] or row.get("const", False)
        params = self._params(action, row["params"])
        entry = TableEntry(info.name, match, action["name"], params, rank, is_const=is_const)
        return Row(entry, key, action["name"], params, rank, number)

    def _table(self, name: str | int, pipe: int | None = None) -> EntryTable:
        """The table of `pipe`'s group, if pipes differ. Raises EntityError."""
        info = self.p4info.table(name)
        if info.name not in self._layouts:
            raise EntityError(f"table {info.name}: no packet can get to where the program applies it, so it keeps no entries",
                              "FAILED_PRECONDITION")
        if info.name not in self._tables:
            raise EntityError(f"table {info.name}: its entries are const", "PERMISSION_DENIED")
        scopes = self.scopes.get(info.name)
        if scopes is None:
            if pipe is not None:
                raise EntityError(f"table {info.name}: pipe {pipe}: all pipes have the same entries (its entry scope)")
            return self._tables[info.name]
        if pipe is None:
            raise EntityError(f"table {info.name}: pipes have entries of their own (its entry scope): of which?", "NOT_FOUND")
        return scopes[self._group(info.name, pipe)]

    def _group(self, name: str, pipe: int) -> tuple[int, ...]:
        for group in self.scopes[name]:
            if pipe in group:
                return group
        raise EntityError(f"table {name}: pipe {pipe} is in none of its scopes: {', '.join(map(str, self.scopes[name]))}")

    def _variants(self, name: str | None = None) -> list[tuple[tuple[int, ...] | None, EntryTable]]:
        """All tables, or those of one name, each with its group of pipes (None: all)."""
        names = list(self._tables) if name is None else [name] if name in self._tables else []
        return [part for n in names for part in (self.scopes[n].items() if n in self.scopes else [(None, self._tables[n])])]

    def pipes(self, entry: TableEntry) -> tuple[int, ...] | None:
        """The pipes that an entry is in; None: all."""
        name = self.p4info.table(entry.table).name
        return self._group(name, entry.pipe) if name in self.scopes and entry.pipe is not None else None

    def apply_scope(self, entity: EntryScope, pipes: int) -> None:
        """Sets the scope of a table or a value set, in a switch with `pipes` pipes."""
        members = [pipe for group in entity.groups for pipe in group]
        if len(set(members)) != len(members) or not all(0 <= pipe < pipes for pipe in members) or not all(entity.groups):
            raise EntityError(f"entry scope {entity.groups}: each pipe of 0..{pipes - 1} once at most, and no group without any")
        try:
            name = self.p4info.table(entity.table).name
        except EntityError:
            self.value_sets.set_scope(self.p4info.value_set(entity.table), entity)
            return
        if entity.parsers:
            raise EntityError(f"table {name}: parsers have no entries of their own: only value sets know them")
        self._set_scope(name, entity.groups)

    def apply_key_mask(self, entity: KeyMask) -> tuple[str, list[int]]:
        """Sets a key mask. Returns the register for the words of the mask, and those words."""
        info = self.p4info.table(entity.table)
        layout, label = self._layouts.get(info.name, {}), f"table {info.name}"
        if not layout.get("key_mask"):
            raise EntityError(f"{label}: it is not annotated @dynamic_table_key_masks, or its keys are not exact")
        if any(t.rows for _, t in self._variants(info.name)):
            raise EntityError(f"{label}: it has entries: its key mask cannot change", "FAILED_PRECONDITION")
        widths = {f.name: f.width for f in info.fields}
        check_names(entity.masks, info.fields, f"{label}: no match field")
        masks = {name: as_int(v, widths[name], f"{label}: mask of {name}") for name, v in entity.masks.items()}
        words = [(1 << 64) - 1] * layout["key_words"]
        for k in layout["keys"]:
            mask = masks.get(k["name"], (1 << k["width"]) - 1)
            place = 64 * k["word"] + k.get("shift", 0)
            for i, word in enumerate(words_of(((1 << k["width"]) - 1 & ~mask) << place % 64, k["width"] + place % 64)):
                words[place // 64 + i] &= ~word
        for _, table in self._variants(info.name):
            table.masks = {n: m for n, m in masks.items() if m != (1 << widths[n]) - 1}
        return layout["key_mask"], words

    def key_mask(self, name: str) -> dict[str, int]:
        """The mask of each field."""
        (_, table), *_ = self._variants(name)
        return {f.name: table.masks.get(f.name, (1 << f.width) - 1) for f in table.info.fields}

    def scope(self, name: str) -> EntryScope:
        """The scope of a table or a value set."""
        return self.value_sets.scopes.get(name) or EntryScope(name, tuple(self.scopes.get(name, ())))

    def _set_scope(self, name: str, groups: Sequence[tuple[int, ...]]) -> None:
        if not groups and name not in self.scopes:
            return
        table = self._table(name, None) if name not in self.scopes else self._tables[name]
        if tuple(self.scopes.get(name, ())) == tuple(groups):
            return
        if any(not row.entry.is_const for _, t in self._variants(name) for row in t.rows.values()):
            raise EntityError(f"table {name}: it has entries: its entry scope cannot change", "FAILED_PRECONDITION")
        numbers = max(t.next_id for _, t in self._variants(name))
        _, before = self._variants(name)[0]
        table.default, table.next_id = before.default, numbers
        self._tables[name] = table.without_entries()
        self.scopes.pop(name, None)
        if groups:
            self.scopes[name] = {tuple(group): self._tables[name].without_entries() for group in groups}

    def apply(self, type_: str, entry: TableEntry) -> None:
        """INSERT, MODIFY or DELETE of one entry (P4Runtime §12); EntityError leaves everything as it was. Where pipes have
        entries of their own, a default entry without a pipe is that of all."""
        name = self.p4info.table(entry.table).name
        if entry.is_default and entry.pipe is None and name in self.scopes:
            for group in self.scopes[name]:
                self.apply(type_, replace(entry, pipe=group[0]))
            return
        table = self._table(entry.table, entry.pipe)
        if not entry.is_default and self._layouts.get(name, {}).get("const_entries"):
            raise EntityError(f"table {name}: its entries are const", "PERMISSION_DENIED")
        if entry.pipe is not None:
            entry = replace(entry, pipe=self._group(name, entry.pipe)[0])
        if not entry.is_default:
            if entry.member is not None or entry.group is not None:
                self.profiles.check(table.info, entry.member, entry.group)
            table.apply(type_, entry)
        elif type_ == "MODIFY" or (type_ == "INSERT" and table.default is None):
            table.set_default(entry)
        else:
            raise EntityError(f"table {table.info.name}: default: only MODIFY is possible")

    def apply_profile(self, type_: str, entity: ProfileMember | ProfileGroup) -> None:
        """INSERT, MODIFY or DELETE of a member or group of an action profile."""
        profile = self.profiles.apply(type_, entity, self._is_used)
        for _, table in self._variants():
            if table.info.profile == profile:
                table.bytes = None

    def _is_used(self, profile: str, member: int | None, group: int | None) -> bool:
        return any(t.users[member, group] > 0 for _, t in self._variants() if t.info.profile == profile)

    def direct(self, kind: str, entry: TableEntry) -> tuple[str, int]:
        """Name of the counter or meter of `entry`'s table and the entry's cell in it."""
        table = self._table(entry.table, entry.pipe)
        name = table.layout.get(f"direct_{kind}")
        if name is None:
            raise EntityError(f"table {table.info.name} has no direct {kind}", "NOT_FOUND")
        return name, self.row_id(entry)

    def find(self, entry: TableEntry) -> list[TableEntry] | None:
        """The entry with this match and priority, if there is one, in constant time. None: only a search of all entries can
        tell, as the match is none of the table's, its entries are const, or pipes have their own."""
        try:
            table = self._table(entry.table, entry.pipe)
            key, _, _ = table.check(TableEntry(entry.table, entry.match, None, {}, entry.priority))
        except EntityError:
            return None
        row = table.rows.get((key, entry.priority))
        if row is None:
            return None if table.info.name in self._const else []
        return [row.entry]

    def identities(self, name: str) -> tuple[tuple[str, ...], Container[Any]] | None:
        """Fields and identities of a table's entries, each ((value, all ones) of each field, 0). None: it has const entries, a
        key mask or a field that is not exact, or pipes differ."""
        table = self._tables.get(name)
        if table is None or name in self.scopes or name in self._const or table.masks or table.info.needs_priority:
            return None
        fields = table.info.fields
        return (tuple(f.name for f in fields), table.rows) if fields and all(f.match == "exact" for f in fields) else None

    def row_id(self, entry: TableEntry) -> int:
        """The number of an entry, which is its index in direct objects."""
        table = self._table(entry.table, entry.pipe)
        key, _, _ = table.check(TableEntry(entry.table, entry.match, None, {}, entry.priority))
        row = table.rows.get((key, entry.priority))
        if row is None:
            raise EntityError(f"table {table.info.name}: no entry with match {entry.match}", "NOT_FOUND")
        return row.id

    def forget_reused(self) -> None:
        for _, table in self._variants():
            table.reused = []

    def reused(self) -> list[tuple[str, str, int, tuple[int, ...] | None]]:
        """Direct cells that new entries have taken over since `copy` or `forget_reused`: ("counter", "meter", "filter" or
        "register", name, cell, pipes)."""
        reuses = [(pipes, t, number) for pipes, t in self._variants() for number in t.reused]
        cells = [
            (kind, t.layout[f"direct_{kind}"], number, pipes)
            for kind in ("counter", "meter")
            for pipes, t, number in reuses
            if t.layout.get(f"direct_{kind}")
        ]
        return cells + [
            (kind, o["name"], number, pipes)
            for pipes, t, number in reuses
            for kind, o in self._direct_objects
            if o["table"] == t.info.name
        ]

    def entries(self, table: str | int | None = None, pipe: int | None = None) -> list[TableEntry]:
        """All entries in the order of their insertion, of one table or of all, of one pipe or of all, const ones too; then the
        defaults that were set."""
        names = list(self._layouts) if table is None else [self.p4info.table(table).name]
        entries = [e for name in names for e in self._const.get(name, ())]
        tables = [part for name in names for part in self._variants(name) if pipe is None or part[0] is None or pipe in part[0]]
        entries += [r.entry if p is None else replace(r.entry, pipe=p[0]) for p, t in tables for r in t.rows.values()]
        return entries + [t.default if p is None else replace(t.default, pipe=p[0]) for p, t in tables if t.default is not None]

    def default_entry(self, table: str | int, pipe: int | None = None) -> TableEntry:
        """The table's current default entry."""
        info = self.p4info.table(table)
        current = self._table(info.name, pipe) if info.name in self.scopes else self._tables.get(info.name)
        if current is not None and current.default is not None:
            return current.default
        layout = self._layouts.get(info.name)
        if layout is None:
            raise EntityError(f"table {info.name}: the program declares it and never uses it", "NOT_FOUND")
        action = layout["actions"][layout["default_action"]]
        params = self._params(action, layout["default_params"])
        return TableEntry(info.name, {}, action["name"], params, is_default=True, is_const=info.const_default)

    def copy(self) -> Tables:
        """A copy, for changes that are made all or not at all."""
        twin = copy.copy(self)
        twin._tables = {name: t.copy() for name, t in self._tables.items()}
        twin.scopes = {name: {group: t.copy() for group, t in parts.items()} for name, parts in self.scopes.items()}
        twin.profiles, twin.value_sets = self.profiles.copy(), self.value_sets.copy()
        return twin

    @property
    def by_pipe(self) -> bool:
        """True if pipes of one pipeline may need different images."""
        return bool(self.scopes or self.value_sets.scopes)

    def image(self, pipeline: int = 0, pipe: int | None = None, parser: int | None = None) -> TableImage:
        """The image of one pipeline's tables (TNA; other programs have only the first), for `pipe` and a parser of it."""
        parts: dict[int, Any] = self.value_sets.images(pipeline, pipe, parser)
        for (owner, index), name in self._order.items():
            if owner != pipeline:
                continue
            groups = self.scopes.get(name, {}) if pipe is not None else {}
            table = next((t for group, t in groups.items() if pipe in group), self._tables[name])
            if table.bytes is None:
                table.bytes = table.build(self.profiles)
            parts[index] = table.bytes
        memory = [parts[i] for i in sorted(parts)]
        block = ffi.new("uint64_t[]", 1 + len(memory))
        pointer = ffi.cast("struct ina_tables *", block)
        pointer.count = len(memory)
        for i, part in enumerate(memory):
            pointer.table[i] = ffi.cast("struct ina_table *", part)
        return TableImage(pointer, (block, *memory))
