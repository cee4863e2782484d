"""Entries in, immutable table images out (table.h).

`Tables` is the control plane's copy of what is in a program's tables; it checks every change against the P4Info.
`Tables.image()` lays it out for the compiled program; a table that did not change keeps its bytes.

The program's layout says, for each table of the image by `index`: `key_words`, `keys` (name, width, match, first word),
`actions` (name, params: name, width, first word), `default_action` and `default_params`, `entries`, `const_entries`
(then the entries are in the code, not in the image), `direct_counter` and `direct_meter`. Value sets stand among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ina._native import ffi
from ina.switch.entities import ProfileGroup, ProfileMember, TableEntry, ValueSetEntry, as_given, as_match, as_params
from ina.switch.image import DEFAULT_PARAM_WORDS, EXACT, KINDS, Bound, ImageRow, build, words_of
from ina.switch.p4info import EntityError, P4Info, TableInfo
from ina.switch.profiles import Profiles
from ina.switch.value_sets import ValueSets


@dataclass(frozen=True, slots=True)
class Row:
    """A checked entry: key fields as (value, mask or high) in the program's order, parameters by name; `member` or
    `group` of the table's action profile instead of an action.
    """

    entry: TableEntry
    key: tuple[tuple[int, int], ...]
    action: str
    params: dict[str, int]
    priority: int
    id: int
    member: int | None = None
    group: int | None = None


class _Table:
    """One table of the image: its layout, its rows by identity (key and priority), its default."""

    def __init__(self, info: TableInfo, p4info: P4Info, layout: dict[str, Any]):
        self.info = info
        self.p4info = p4info
        self.layout = layout
        self.kind = max((KINDS[k["match"]] for k in layout["keys"]), default=EXACT)
        self.key_words: int = layout["key_words"]
        self.actions = {a["name"]: (i, a) for i, a in enumerate(layout["actions"])}
        self.param_words = max(
            (p["word"] + len(words_of(0, p["width"])) for a in layout["actions"] for p in a["params"]), default=0
        )
        if info.profile:
            self.param_words = max(1, self.param_words)  # room for the place of a group
        self.rows: dict[tuple, Row] = {}
        self.default: TableEntry | None = None
        self.free_ids: list[int] = []
        self.next_id = 0
        self.reused: list[int] = []  # ids whose direct counter must start from zero again
        self.bytes: Any = None
        for k in layout["keys"]:
            if k["match"] == "range" and k["width"] > 64:
                raise EntityError(f"table {info.name}: field {k['name']}: ranges wider than 64 bits are not supported")

    # ---- changes

    def check(self, entry: TableEntry) -> tuple[tuple[tuple[int, int], ...], str | None, dict[str, int]]:
        info, where = self.info, f"table {self.info.name}"
        names = {f.name for f in info.fields}
        for given in entry.match:
            if given not in names:
                raise EntityError(f"{where}: no match field {given!r}; it has: {', '.join(sorted(names)) or 'none'}")
        key = []
        for f in info.fields:
            if f.name in entry.match:
                key.append(as_match(entry.match[f.name], f, f"{where}: field {f.name}"))
            elif f.match == "exact":
                raise EntityError(f"{where}: exact match field {f.name!r} ({f.width} bits) is missing")
            else:
                key.append((0, (1 << f.width) - 1 if f.match == "range" else 0))
        if info.needs_priority and entry.priority <= 0:
            raise EntityError(f"{where}: priority {entry.priority}: expected a positive one, entries may overlap")
        if not info.needs_priority and entry.priority:
            raise EntityError(f"{where}: priority {entry.priority}: expected none, its entries cannot tie")
        if entry.action is None:
            return tuple(key), None, {}
        action = self.p4info.action(info, entry.action)
        return tuple(key), action.name, as_params(entry.params, action.params, f"{where}: action {action.name}")

    def set_default(self, entry: TableEntry | None) -> None:
        where = f"table {self.info.name}: default"
        if self.info.const_default:
            raise EntityError(f"{where}: the program declares it const", "PERMISSION_DENIED")
        if entry is not None:
            if entry.match or entry.priority:
                raise EntityError(f"{where}: it has no match fields and no priority")
            if entry.action is None:
                entry = None
            else:
                action = self.p4info.action(self.info, entry.action, default=True)
                params = as_params(entry.params, action.params, f"{where}: action {action.name}")
                entry = replace(entry, table=self.info.name, action=action.name, params=params)  # type: ignore[arg-type]
        self.default = entry
        self.bytes = None

    def apply(self, type_: str, entry: TableEntry) -> None:
        where = f"table {self.info.name}"
        if self.info.is_const:
            raise EntityError(f"{where}: its entries are const", "PERMISSION_DENIED")
        key, action, params = self.check(entry)
        identity = (key, entry.priority)
        old = self.rows.get(identity)
        if type_ == "INSERT" and old:
            raise EntityError(f"{where}: an entry with this match and priority is there: {old.entry}", "ALREADY_EXISTS")
        if type_ != "INSERT" and not old:
            raise EntityError(f"{where}: no entry with match {entry.match} and priority {entry.priority}", "NOT_FOUND")
        if old and old.entry.is_const:
            raise EntityError(f"{where}: the program declares this entry const", "PERMISSION_DENIED")
        self.bytes = None
        if type_ == "DELETE":
            self.free_ids.append(old.id)  # type: ignore[union-attr]
            del self.rows[identity]
            return
        if old and all(x is None for x in (action, entry.member, entry.group)):
            action, params = old.action or None, old.params
            entry = replace(entry, member=old.member, group=old.group)
        given = sum(x is not None for x in (action, entry.member, entry.group))
        if given != 1:
            wanted = "an action, or a member or group of its action profile" if self.info.profile else "an action"
            actions = ", ".join(self.info.entry_actions)
            raise EntityError(f"{where}: an entry needs {wanted}: {actions}")
        if old:
            number = old.id
        elif self.info.size and len(self.rows) >= self.info.size:
            raise EntityError(f"{where}: full with {self.info.size} entries", "RESOURCE_EXHAUSTED")
        elif self.free_ids:
            number = self.free_ids.pop()
            self.reused.append(number)
        else:
            number, self.next_id = self.next_id, self.next_id + 1
        entry = replace(entry, table=self.info.name, match=dict(entry.match), action=action, params=dict(params))
        self.rows[identity] = Row(entry, key, action or "", params, entry.priority, number, entry.member, entry.group)

    def copy(self) -> _Table:
        twin = object.__new__(_Table)
        twin.__dict__.update(self.__dict__)
        twin.rows, twin.free_ids, twin.reused = dict(self.rows), list(self.free_ids), []
        return twin

    # ---- image

    def _params(self, action: str, params: dict[str, int]) -> list[int]:
        words = [0] * self.param_words
        for p in self.actions[action][1]["params"]:
            value = words_of(params[p["name"]], p["width"])
            words[p["word"] : p["word"] + len(value)] = value
        return words

    def _ordered(self) -> list[Row]:
        """Highest priority first; among equals the longest prefixes, then the oldest."""
        rows = list(self.rows.values())
        if self.kind != EXACT:
            rows.sort(key=lambda r: (-r.priority, -sum(m.bit_count() for _, m in r.key)))
        return rows

    def _bound(self, action: str, params: dict[str, int]) -> Bound:
        return self.actions[action][0], self._params(action, params)

    def build(self, profiles: Profiles) -> Any:
        """The image's bytes as cffi-owned 64-bit words."""
        order = {f.name: i for i, f in enumerate(self.info.fields)}
        groups: dict[int, list[Bound]] = {}
        rows = []
        for row in self._ordered():
            key = tuple(row.key[order[k["name"]]] for k in self.layout["keys"])
            group = None
            if row.group is not None:
                if row.group not in groups:
                    members = profiles.group_members(self.info.profile, row.group)
                    groups[row.group] = [self._bound(*member) for member in members]
                group = groups[row.group]
            action = profiles.member(self.info.profile, row.member) if row.member is not None else (row.action, row.params)
            rows.append(ImageRow(key, row.id, self._bound(*action) if group is None else None, group))
        default_action, default_words = self.layout["default_action"], [int(w) for w in self.layout["default_params"]]
        if self.default is not None:
            default_action, default_words = self._bound(self.default.action, self.default.params)  # type: ignore[arg-type]
        if len(default_words) > DEFAULT_PARAM_WORDS:
            limit = DEFAULT_PARAM_WORDS
            raise EntityError(f"table {self.info.name}: default action with more than {limit} parameter words")
        default = (default_action, default_words)
        return build(self.layout["keys"], self.key_words, self.param_words, rows, default)


@dataclass(frozen=True, slots=True)
class TableImage:
    """`pointer`: `const struct ina_tables *`, good as long as this object is kept."""

    pointer: Any
    memory: tuple[Any, ...]


class Tables:
    """What is in a program's tables. Not thread-safe."""

    def __init__(self, p4info: P4Info, layout: dict[str, Any]):
        self.p4info = p4info
        in_image = [t for t in layout.get("tables", ()) if t["index"] >= 0]
        in_image.sort(key=lambda t: t["index"])
        self._tables = {t["name"]: _Table(p4info.table(t["name"]), p4info, t) for t in in_image}
        self.profiles = Profiles(p4info)
        self.value_sets = ValueSets(p4info, layout.get("value_sets", ()))
        self._order = {(t.get("pipeline", 0), t["index"]): t["name"] for t in in_image}
        self._filters = layout.get("filters", ())
        self._const: dict[str, list[TableEntry]] = {}
        self._layouts = {t["name"]: t for t in layout.get("tables", ())}
        for t in self._layouts.values():
            rows = t["entries"]
            given = [row["priority"] for row in rows]
            if None in given or given != sorted(given, reverse=True):
                given = list(range(len(rows), 0, -1))  # the first one wins (P4_16 §14.2.1.4)
            for row, priority in zip(rows, given, strict=True):
                info = p4info.table(t["name"])
                key, entry = self._initial(info, t, row, priority)
                if t["const_entries"]:
                    self._const.setdefault(info.name, []).append(entry)
                    continue
                table = self._tables[t["name"]]
                table.rows[(key, entry.priority)] = Row(
                    entry, key, entry.action, entry.params, entry.priority, table.next_id  # type: ignore[arg-type]
                )
                table.next_id += 1

    @staticmethod
    def _params(action: dict[str, Any], given: Sequence[str | int]) -> dict[str, int]:
        """Parameters by name of an action of the layout, from 64-bit words."""
        params = {}
        for p in action["params"]:
            words = given[p["word"] : p["word"] + len(words_of(0, p["width"]))]
            params[p["name"]] = sum(int(w) << (64 * i) for i, w in enumerate(words))
        return params

    def _initial(self, info: TableInfo, layout: dict[str, Any], row: dict[str, Any], priority: int) -> tuple[Any, TableEntry]:
        """Key and entry of one of the program's own: `keys` as value and mask, or low and high."""
        action = layout["actions"][row["action"]]
        key = tuple((int(k.get("value", k.get("low"))), int(k.get("mask", k.get("high")))) for k in row["keys"])
        match = {f.name: as_given(pair, f) for f, pair in zip(info.fields, key, strict=True)}
        match = {k: v for k, v in match.items() if v is not None}
        rank = priority if info.needs_priority else 0
        is_const = layout["const_entries"] or row.get("const", False)
        params = self._params(action, row["params"])
        return key, TableEntry(info.name, match, action["name"], params, rank, is_const=is_const)  # type: ignore[arg-type]

    def _table(self, name: str | int) -> _Table:
        info = self.p4info.table(name)
        if info.name not in self._tables:
            raise EntityError(f"table {info.name}: its entries are const", "PERMISSION_DENIED")
        return self._tables[info.name]

    def apply(self, type_: str, entry: TableEntry) -> None:
        """INSERT, MODIFY or DELETE one entry (P4Runtime §12); EntityError leaves everything as it was."""
        table = self._table(entry.table)
        if not entry.is_default:
            if entry.member is not None or entry.group is not None:
                self.profiles.check(table.info, entry.member, entry.group)
            table.apply(type_, entry)
        elif type_ == "MODIFY" or (type_ == "INSERT" and table.default is None):
            table.set_default(entry)
        else:
            raise EntityError(f"table {table.info.name}: default: only MODIFY is possible")

    def apply_profile(self, type_: str, entity: ProfileMember | ProfileGroup) -> None:
        """INSERT, MODIFY or DELETE a member or group of an action profile."""
        used = {
            (row.member, row.group)
            for t in self._tables.values()
            if t.info.profile and self.p4info.profile(entity.profile).name == t.info.profile
            for row in t.rows.values()
        }
        profile = self.profiles.apply(type_, entity, used)
        for table in self._tables.values():
            if table.info.profile == profile:
                table.bytes = None

    def apply_value_set(self, type_: str, entity: ValueSetEntry) -> None:
        """MODIFY: these are its members now (P4Runtime §9.7)."""
        self.value_sets.apply(type_, entity)

    def direct_counter(self, entry: TableEntry) -> tuple[str, int]:
        """Name of the counter of `entry`'s table and the entry's cell in it."""
        return self._direct("counter", entry)

    def direct_meter(self, entry: TableEntry) -> tuple[str, int]:
        """Name of the meter of `entry`'s table and the entry's cell in it."""
        return self._direct("meter", entry)

    def _direct(self, kind: str, entry: TableEntry) -> tuple[str, int]:
        table = self._table(entry.table)
        name = table.layout.get(f"direct_{kind}")
        if name is None:
            raise EntityError(f"table {table.info.name} has no direct {kind}", "NOT_FOUND")
        return name, self.row_id(entry)

    def find(self, entry: TableEntry) -> TableEntry | None:
        """The entry with this match and priority, at once however many there are; None also if the match is none of the
        table's, or its entries are const."""
        try:
            table = self._table(entry.table)
            key, _, _ = table.check(TableEntry(entry.table, entry.match, None, {}, entry.priority))
        except EntityError:
            return None
        row = table.rows.get((key, entry.priority))
        return row.entry if row else None

    def row_id(self, entry: TableEntry) -> int:
        """The number of an entry, by which direct objects know it."""
        table = self._table(entry.table)
        key, _, _ = table.check(TableEntry(entry.table, entry.match, None, {}, entry.priority))
        row = table.rows.get((key, entry.priority))
        if row is None:
            raise EntityError(f"table {table.info.name}: no entry with match {entry.match}", "NOT_FOUND")
        return row.id

    def reused(self) -> list[tuple[str, str, int]]:
        """("counter", "meter" or "filter", name, cell) of direct ones that new entries have taken over since `copy`."""
        taken = [(t, number) for t in self._tables.values() for number in t.reused]
        found = [
            (kind, t.layout[f"direct_{kind}"], number)
            for kind in ("counter", "meter")
            for t, number in taken
            if t.layout.get(f"direct_{kind}")
        ]
        return found + [
            ("filter", f["name"], number) for t, number in taken for f in self._filters if f["table"] == t.info.name
        ]

    def entries(self, table: str | int | None = None) -> list[TableEntry]:
        """All entries, of one table or of all, const ones too; then the defaults that were set."""
        names = list(self._layouts) if table is None else [self.p4info.table(table).name]
        found = [e for name in names for e in self._const.get(name, ())]
        tables = [self._tables[name] for name in names if name in self._tables]
        found += [r.entry for t in tables for r in t._ordered()]
        return found + [t.default for t in tables if t.default is not None]

    def default_entry(self, table: str | int) -> TableEntry:
        """What the table does now when nothing matches."""
        info = self.p4info.table(table)
        known = self._tables.get(info.name)
        if known is not None and known.default is not None:
            return known.default
        layout = self._layouts.get(info.name)
        if layout is None:
            raise EntityError(f"table {info.name}: the program declares it and never uses it", "NOT_FOUND")
        action = layout["actions"][layout["default_action"]]
        params = self._params(action, layout["default_params"])
        return TableEntry(
            info.name, {}, action["name"], params, is_default=True, is_const=info.const_default  # type: ignore[arg-type]
        )

    def copy(self) -> Tables:
        """For changes that are to be made all or not at all."""
        twin = object.__new__(Tables)
        twin.p4info, twin._order, twin._const, twin._layouts = self.p4info, self._order, self._const, self._layouts
        twin._filters = self._filters
        twin._tables = {name: t.copy() for name, t in self._tables.items()}
        twin.profiles, twin.value_sets = self.profiles.copy(), self.value_sets.copy()
        return twin

    def image(self, pipeline: int = 0) -> TableImage:
        """Of the tables of one pipeline (TNA; other programs have only the first)."""
        parts: dict[int, Any] = self.value_sets.images(pipeline)
        for (owner, index), name in self._order.items():
            if owner != pipeline:
                continue
            table = self._tables[name]
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
