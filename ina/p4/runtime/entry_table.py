"""One match-action table of the control plane's copy: its entries, its default entry, and its image: the bytes (table.h) in which
compiled programs look up keys."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ina.base.native import ffi
from ina.p4.runtime.entities import TableEntry, as_key, as_params, check_names
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.p4info import Json, P4Info, TableInfo
from ina.p4.runtime.profiles import Profiles

EXACT, TERNARY, RANGE = 0, 1, 2
KINDS = {"exact": EXACT, "lpm": TERNARY, "ternary": TERNARY, "optional": TERNARY, "range": RANGE}
DEFAULT_PARAM_WORDS = 64
ACTION_GROUP = 0x7FFFFFFF
_EMPTY = 0xFFFFFFFF
_HEADER_WORDS = 5 + DEFAULT_PARAM_WORDS  # struct ina_table, in 64-bit words

Key = tuple[tuple[int, int], ...]
Bound = tuple[int, list[int]]  # an action's index and its parameter words


def words_of(value: int, width: int) -> list[int]:
    """`value` in ceil(width / 64) words, least significant first."""
    return [(value >> (64 * i)) & 0xFFFFFFFFFFFFFFFF for i in range(max(1, (width + 63) // 64))]


def key_hash(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """`ina_key_hash` of table.h for keys of shape (n, words), uint64."""
    h = np.zeros(len(keys), np.uint64)
    nothing = np.zeros(len(keys), np.uint64)
    for w in range(0, keys.shape[1], 2):
        other = keys[:, w + 1] if w + 1 < keys.shape[1] else nothing
        a, b = keys[:, w] ^ np.uint64(0x9E3779B97F4A7C15), other ^ np.uint64(0xFF51AFD7ED558CCD)
        h = (h << np.uint64(23) | h >> np.uint64(41)) ^ a * b ^ _high_half(a, b)
    return h


def _high_half(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Bits 127..64 of the products of 64-bit numbers."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    cross, other = (a & low) * (b >> half), (a >> half) * (b & low)
    carry = ((a & low) * (b & low) >> half) + (cross & low) + (other & low)
    high: npt.NDArray[np.uint64] = (a >> half) * (b >> half) + (cross >> half) + (other >> half) + (carry >> half)
    return high


@dataclass(frozen=True, slots=True)
class ImageRow:
    """An entry: `key` as (value, mask or high bound) in the order of `keys`, and the action or group that it runs."""

    key: Key
    id: int
    action: Bound | None
    group: Sequence[Bound] | None = None


def build(
    keys: list[Json], key_words: int, param_words: int, rows: Sequence[ImageRow], default: Bound
) -> Any:
    """The image as cffi-owned 64-bit words. `keys`: width, match, first word (and bit in it) of each field, as in the
    layout; the first of `rows` wins.
    """
    kind = max((KINDS[k["match"]] for k in keys), default=EXACT)
    exact = kind == EXACT
    n, kw = len(rows), key_words
    param_offset = kw if exact else 2 * kw
    entry_words = 1 + param_offset + param_words
    body = np.zeros((n, entry_words), np.uint64)
    buckets = np.zeros(0, np.uint32)
    bucket_mask = 0
    if exact:
        count = 2
        while count < 2 * n:
            count *= 2
        bucket_mask = count - 1
        buckets = np.full(count, _EMPTY, np.uint32)
    groups: list[int] = []
    groups_at = _HEADER_WORDS + len(buckets) // 2 + body.size
    places: dict[int, int] = {}
    for r, row in enumerate(rows):
        words = [0] * entry_words
        for k, (value, mask) in zip(keys, row.key, strict=True):
            at, length = 1 + k["word"], len(words_of(0, k["width"]))
            if exact and length == 1:
                words[at] |= value << k.get("shift", 0)
                continue
            words[at : at + length] = words_of(value, k["width"])
            if not exact:
                words[at + kw : at + kw + length] = words_of(mask, k["width"])
        if row.group is not None:
            words[0] = ACTION_GROUP | row.id << 32
            if id(row.group) not in places:
                places[id(row.group)] = groups_at + len(groups)
                for action, params in row.group:
                    groups += [action, *params, *[0] * (param_words - len(params))]
            words[1 + param_offset] = places[id(row.group)] | len(row.group) << 32
        else:
            action, params = row.action or (0, [])
            words[0] = action | row.id << 32
            words[1 + param_offset : 1 + param_offset + len(params)] = params
        body[r] = words
    if exact:
        for i, at in enumerate((key_hash(body[:, 1 : 1 + kw]) & np.uint64(bucket_mask)).tolist()):
            while buckets[at] != _EMPTY:
                at = (at + 1) & bucket_mask
            buckets[at] = 4 * len(buckets) + i * entry_words * 8
    header = np.zeros(_HEADER_WORDS, np.uint64)
    header[:4].view(np.uint32)[:] = [kind, kw, param_offset, entry_words * 8, n, bucket_mask, default[0], 0]
    header[4] = sum(1 << k["word"] for k in keys if k["match"] == "range")
    header[5 : 5 + len(default[1])] = default[1]
    blob = header.tobytes() + buckets.tobytes() + body.tobytes() + np.array(groups, np.uint64).tobytes()
    memory = ffi.new("uint64_t[]", (len(blob) + 7) // 8)
    ffi.memmove(memory, blob, len(blob))
    return memory


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


class EntryTable:
    """One table of the image: its layout, its rows by identity (key and priority), its default."""

    def __init__(self, info: TableInfo, p4info: P4Info, layout: Json):
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
        self.rows: dict[tuple[Key, int], Row] = {}  # by key and priority
        self.users: Counter[tuple[int | None, int | None]] = Counter()  # how many rows name a member, or a group
        self.default: TableEntry | None = None
        self.free_ids: list[int] = []
        self.next_id = 0
        self.reused: list[int] = []  # ids whose direct counter must start from zero again
        self.bytes: Any = None
        self.masks: dict[str, int] = {}  # of fields of which only some bits count
        for k in layout["keys"]:
            if k["match"] == "range" and k["width"] > 64:
                raise EntityError(f"table {info.name}: field {k['name']}: ranges wider than 64 bits are not supported")

    # ---- changes

    def check(self, entry: TableEntry) -> tuple[tuple[tuple[int, int], ...], str | None, dict[str, int]]:
        info, place = self.info, f"table {self.info.name}"
        check_names(entry.match, sorted(info.fields, key=lambda f: f.name), f"{place}: no match field")
        key = as_key(entry.match, info.fields, place)
        if info.needs_priority and entry.priority <= 0:
            raise EntityError(f"{place}: priority {entry.priority}: expected a positive one, entries may overlap")
        if not info.needs_priority and entry.priority:
            raise EntityError(f"{place}: priority {entry.priority}: expected none, its entries cannot tie")
        if self.masks:
            key = tuple((v & self.masks.get(f.name, m), m) for f, (v, m) in zip(info.fields, key, strict=True))
        if entry.action is None:
            return key, None, {}
        action = self.p4info.action(info, entry.action)
        return key, action.name, as_params(entry.params, action.params, f"{place}: action {action.name}")

    def without_entries(self) -> EntryTable:
        """A copy with the program's own entries only; counts numbers that it gave out before as reused when given out again."""
        twin = self.copy()
        twin.rows = {key: row for key, row in self.rows.items() if row.entry.is_const}
        twin.users = Counter((row.member, row.group) for row in twin.rows.values())
        const_ids = {row.id for row in twin.rows.values()}
        twin.free_ids = [number for number in reversed(range(self.next_id)) if number not in const_ids]
        twin.bytes = None
        return twin

    def set_default(self, entry: TableEntry | None) -> None:
        place = f"table {self.info.name}: default"
        if self.info.const_default:
            raise EntityError(f"{place}: the program declares it const", "PERMISSION_DENIED")
        if entry is not None:
            if entry.member is not None or entry.group is not None:
                raise EntityError(f"{place}: members and groups of an action profile are not supported there", "UNIMPLEMENTED")
            if entry.match or entry.priority:
                raise EntityError(f"{place}: it has no match fields and no priority")
            if entry.action is None:
                entry = None
            else:
                action = self.p4info.action(self.info, entry.action, default=True)
                params = as_params(entry.params, action.params, f"{place}: action {action.name}")
                entry = replace(entry, table=self.info.name, action=action.name, params=params)
        self.default = entry
        self.bytes = None

    def apply(self, type_: str, entry: TableEntry) -> None:
        place = f"table {self.info.name}"
        if self.info.is_const:
            raise EntityError(f"{place}: its entries are const", "PERMISSION_DENIED")
        key, action, params = self.check(entry)
        identity = (key, entry.priority)
        old = self.rows.get(identity)
        if type_ == "INSERT" and old:
            raise EntityError(f"{place}: an entry with this match and priority is there: {old.entry}", "ALREADY_EXISTS")
        if type_ != "INSERT" and not old:
            raise EntityError(f"{place}: no entry with match {entry.match} and priority {entry.priority}", "NOT_FOUND")
        if old and old.entry.is_const:
            raise EntityError(f"{place}: the program declares this entry const", "PERMISSION_DENIED")
        self.bytes = None
        if type_ == "DELETE":
            self.free_ids.append(old.id)  # type: ignore[union-attr]
            self._count_reference(old, -1)
            del self.rows[identity]
            return
        if old and all(x is None for x in (action, entry.member, entry.group)):
            action, params = old.action or None, old.params
            entry = replace(entry, member=old.member, group=old.group)
        targets = sum(x is not None for x in (action, entry.member, entry.group))
        if targets != 1:
            choices = "an action, or a member or group of its action profile" if self.info.profile else "an action"
            actions = ", ".join(self.info.entry_actions)
            raise EntityError(f"{place}: an entry needs {choices}: {actions}")
        if old:
            number = old.id
        elif self.info.size and len(self.rows) >= self.info.size:
            raise EntityError(f"{place}: full with {self.info.size} entries", "RESOURCE_EXHAUSTED")
        elif self.free_ids:
            number = self.free_ids.pop()
            self.reused.append(number)
        else:
            number, self.next_id = self.next_id, self.next_id + 1
        match = dict(entry.match)
        if self.masks:
            match = {f.name: v for f, (v, _) in zip(self.info.fields, key, strict=True)}
        entry = replace(entry, table=self.info.name, match=match, action=action, params=dict(params))
        self._count_reference(old, -1)
        self.rows[identity] = Row(entry, key, action or "", params, entry.priority, number, entry.member, entry.group)
        self._count_reference(self.rows[identity], 1)

    def _count_reference(self, row: Row | None, count: int) -> None:
        if row is not None and self.info.profile:
            self.users[row.member, row.group] += count

    def copy(self) -> EntryTable:
        twin = copy.copy(self)
        twin.rows, twin.users, twin.free_ids, twin.reused = dict(self.rows), Counter(self.users), list(self.free_ids), []
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
        return build(self.layout["keys"], self.key_words, self.param_words, rows, (default_action, default_words))
