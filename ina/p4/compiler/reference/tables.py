"""Match-action tables, action profiles, selectors and value sets with their control-plane side.

Matches from the control plane, by match kind of the key:
    exact      value
    ternary    (value, mask)
    lpm        (value, prefix length)
    range      (low, high), both inclusive
    optional   value, or None for "any"
Omitted keys match anything, which exact keys do not allow. `selector` keys do not match: they feed the hash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.instances import key_name
from ina.p4.compiler.reference.hashes import ALGORITHMS
from ina.p4.compiler.reference.objects import MeterArray
from ina.p4.compiler.reference.values import Aggregate, Value, number, pack, to_bits, unpack_leaf
from ina.p4.compiler.types import Type, fixed_width

Match: TypeAlias = int | str | tuple[int, int] | None
"""A key's match: see above."""
Arguments: TypeAlias = Mapping[str, int | str] | Sequence[int | str]
"""An action's arguments, by name or in order."""

V = TypeVar("V", int, str, int | str)
EXACT = ("exact", "dleft_hash", "atcam_partition_index")  # all but `exact` select how the hardware stores the table


class TableError(Exception):
    """An error for a control-plane request that the table refuses; the message names the table and what it expected."""


@dataclass
class BoundAction:
    """An action from a table's list (`ref`), with values for its directionless parameters in order."""

    ref: ast.ActionRef
    args: list[Value]


@dataclass(eq=False)
class Entry:
    """A table entry. `match` has one item per key (see the module docstring); higher `priority` wins.

    Exactly one of `action`, `member`, `group` is set; the latter two are handles of the table's action profile.
    """

    match: list[Match]
    action: BoundAction | None
    priority: int = 0
    member: int | None = None
    group: int | None = None
    handle: int = 0
    is_const: bool = False
    packets: int = 0
    octets: int = 0


class ActionProfile:
    """v1model's action_profile and action_selector: members (bound actions) and groups of members."""

    def __init__(self, name: str, size: int, algorithm: str | None, draw: Callable[[], int]) -> None:
        """`draw`: returns numbers for the algorithm "random". A selector's outputWidth is ignored, as in BMv2."""
        self.name, self.size, self.algorithm, self.draw = name, size, algorithm, draw
        self.members: dict[int, BoundAction] = {}
        self.groups: dict[int, list[int]] = {}
        self.tables: list[Table] = []

    def serve(self, table: Table) -> None:
        """Becomes the profile of a table."""
        table.profile = self
        self.tables.append(table)

    def add_member(self, action: str, args: Arguments | None = None) -> int:
        """Adds a member and returns its handle. The action must be one of the tables' that use this profile."""
        if not self.tables:
            raise TableError(f"{self.name}: no table uses this action profile")
        handle = max(self.members, default=-1) + 1
        self.members[handle] = self.tables[0].bind(action, args)
        return handle

    def add_group(self, members: list[int]) -> int:
        for member in members:
            if member not in self.members:
                raise TableError(f"{self.name}: no member {member}")
        handle = max(self.groups, default=-1) + 1
        self.groups[handle] = sorted(members)
        return handle

    def select(self, group: int, width: int, bits: int) -> BoundAction | None:
        """Returns the member at the hash of the selector keys, `width` bits, modulo the group's size."""
        members = self.groups[group]
        if not members:
            return None
        pad = -width % 8
        selector = (bits << pad).to_bytes((width + pad) // 8, "big")
        digest = self.draw() if self.algorithm == "random" else ALGORITHMS[self.algorithm or "crc32"](selector)
        return self.members[members[digest % len(members)]]


class Table:
    """One table of one control instance.

    `lookup` returns the matching one of `entries` with the highest priority; in a table with an lpm key, among equal priorities
    (entries without priority) the one with the longest prefix; and else the one inserted first.
    """

    def __init__(self, name: str, decl: ast.TableDecl, actions: dict[str, ast.ActionRef]) -> None:
        self.name, self.decl, self.actions = name, decl, actions
        self.key_names = [key_name(key) for key in decl.keys]
        self.kinds = ["exact" if key.match_kind in EXACT else key.match_kind for key in decl.keys]
        self.key_types: list[Type] = [key.expr.type for key in decl.keys]
        self.needs_priority = any(kind in ("ternary", "range", "optional") for kind in self.kinds)
        self.entries: list[Entry] = []
        self.default: BoundAction = BoundAction(decl.default_action, [])
        self.profile: ActionProfile | None = None
        self.meter_states: MeterArray | None = None
        self.attached: list[Instance] = []  # direct objects that its actions use
        self._next_handle = 1

    # --- data plane -----------------------------------------------------------------------------------------------

    def lookup(self, values: list[Value]) -> tuple[BoundAction, Entry | None]:
        """Returns the action to run and the entry that matched, if any. A table without keys always misses (§14.2.3)."""
        entry = self.find(values)
        if entry is None:
            return self.default, None
        if entry.action is not None:
            return entry.action, entry
        assert self.profile is not None
        if entry.member is not None:
            return self.profile.members[entry.member], entry
        assert entry.group is not None
        width = bits = 0
        for value, kind, t in zip(values, self.kinds, self.key_types, strict=True):
            if kind == "selector":
                w, b = pack(value, t)
                width, bits = width + w, bits << w | b
        action = self.profile.select(entry.group, width, bits)
        return (self.default, None) if action is None else (action, entry)

    def find(self, values: list[Value]) -> Entry | None:
        if not self.kinds:
            return None
        matching = [e for e in self.entries if self._hits(e, values)]
        return max(matching, key=lambda e: (e.priority, self._prefix(e), -e.handle), default=None)

    def _hits(self, entry: Entry, values: list[Value]) -> bool:
        return all(
            hits(kind, match, value, t)
            for kind, match, value, t in zip(self.kinds, entry.match, values, self.key_types, strict=True)
        )

    def _prefix(self, entry: Entry) -> int:
        lpm = (m for kind, m in zip(self.kinds, entry.match, strict=True) if kind == "lpm" and m is not None)
        return sum(m[1] if isinstance(m, tuple) else 1 for m in lpm)  # an enum or error matches as a whole or not at all

    # --- control plane --------------------------------------------------------------------------------------------

    def insert(
        self,
        match: Mapping[str, Match],
        action: str | None = None,
        args: Arguments | None = None,
        priority: int = 0,
        *,
        member: int | None = None,
        group: int | None = None,
    ) -> int:
        """Adds an entry and returns its handle. `match` maps key names (any suffix that is unique) to matches.

        `priority` only counts in tables with a ternary, range or optional key. Raises TableError for unknown names, values that
        do not fit, an entry that exists already, or a table that is constant.
        """
        if self.decl.const_entries:
            raise TableError(f"{self.name}: its entries are constant")
        if not self.kinds:
            raise TableError(f"{self.name}: it has no keys, so only a default action")
        bound = self._target(action, args, member, group)
        if not self.needs_priority:
            priority = 0
        entry = Entry(self._match(match), bound, priority, member, group)
        if any(e.match == entry.match and e.priority == priority for e in self.entries):
            raise TableError(f"{self.name}: there is already an entry for {match}")
        return self.append(entry)

    def append(self, entry: Entry) -> int:
        entry.handle, self._next_handle = self._next_handle, self._next_handle + 1
        self.entries.append(entry)
        return entry.handle

    def modify(self, handle: int, action: str, args: Arguments | None = None) -> None:
        self.entry(handle).action = self.bind(action, args)

    def delete(self, handle: int) -> None:
        self.entries.remove(self.entry(handle))

    def clear(self) -> None:
        """Removes all entries that are not constant."""
        self.entries = [e for e in self.entries if e.is_const]

    def set_default(self, action: str, args: Arguments | None = None) -> None:
        if self.decl.const_default:
            raise TableError(f"{self.name}: its default action is constant")
        self.default = self.bind(action, args, as_default=True)

    def bind(self, action: str, args: Arguments | None = None, *, as_default: bool = False) -> BoundAction:
        """Returns an action of this table with arguments, by name or in order. Raises TableError.

        `@defaultonly` actions, and the default action if the table does not list it, are for the default entry only,
        `@tableonly` ones for the others (§14.2.1.2).
        """
        ref = self.actions[unique_suffix(action, self.actions, f"{self.name}: action")]
        notes = {a.name for a in ref.annotations} | ({"defaultonly"} if ref not in self.decl.actions else set())
        if ("tableonly" if as_default else "defaultonly") in notes:
            raise TableError(f"{self.name}: action {action} is {'not ' if as_default else 'only '}for the default entry")
        ref_args = ref.args or [None] * len(ref.decl.params)
        params = [p for p, bound in zip(ref.decl.params, ref_args, strict=True) if bound is None]
        if isinstance(args, Mapping):
            unknown = set(args) - {p.cp_name for p in params}
            if unknown:
                raise TableError(f"{self.name}: action {action} has no parameter {', '.join(sorted(unknown))}")
            args = [args[p.cp_name] for p in params if p.cp_name in args]
        args = list(args or [])
        if len(args) != len(params):
            names = ", ".join(p.cp_name for p in params)
            raise TableError(f"{self.name}: action {action} takes ({names}), {len(args)} given")
        values = []
        for p, value in zip(params, args, strict=True):
            checked(value, p.type, f"{self.name}: {action}.{p.cp_name}")
            values.append(value if isinstance(value, str) else unpack_leaf(to_bits(value, p.type)[1], p.type))
        return BoundAction(ref, values)

    def _target(self, action: str | None, args: Arguments | None, member: int | None, group: int | None) -> BoundAction | None:
        if sum(x is not None for x in (action, member, group)) != 1:
            raise TableError(f"{self.name}: an entry has one of action, member, group")
        if action is not None:
            return self.bind(action, args)
        if self.profile is None:
            raise TableError(f"{self.name} has no action profile")
        if (member if member is not None else group) not in (self.profile.members if group is None else self.profile.groups):
            raise TableError(f"{self.profile.name} has no such member or group")
        return None

    def _match(self, match: Mapping[str, Match]) -> list[Match]:
        out: list[Match] = [None] * len(self.kinds)
        for name, value in match.items():
            out[self.key_names.index(unique_suffix(name, self.key_names, f"{self.name}: key"))] = value
        return [
            canonical(kind, m, t, f"{self.name}: {name}")
            for kind, m, t, name in zip(self.kinds, out, self.key_types, self.key_names, strict=True)
        ]

    def entry(self, handle: int) -> Entry:
        for entry in self.entries:
            if entry.handle == handle:
                return entry
        raise TableError(f"{self.name}: no entry with handle {handle}")


def hits(kind: str, match: Match, value: Value, t: Type) -> bool:
    """Returns True if `value` matches. `match` is in canonical form, None matches anything (§14.2.1, v1model)."""
    if match is None or kind == "selector":
        return True
    if isinstance(value, str):
        return match == value
    if not isinstance(match, tuple):
        return to_bits(value, t)[1] == match
    low, high = match
    if kind == "range":
        return low <= number(value) <= high
    width, bits = to_bits(value, t)
    if kind == "lpm":
        return bits >> (width - high) == low >> (width - high)
    return (bits ^ low) & high == 0


def canonical(kind: str, match: Match, t: Type, subject: str) -> Match:
    """Returns a match in the form that `hits` needs. `subject` begins the error messages. Raises TableError."""
    if match is None or kind == "selector":
        if kind == "exact":
            raise TableError(f"{subject}: an exact key needs a value")
        return None
    if isinstance(match, str):
        return match
    if kind in ("exact", "optional"):
        assert isinstance(match, int)
        return to_bits(checked(match, t, subject), t)[1]
    if isinstance(match, int):
        raise TableError(f"{subject}: a {kind} key takes a pair, not {match!r}")
    low, high = match
    if kind == "range":
        return low, high
    low = to_bits(checked(low, t, subject), t)[1]
    if kind == "lpm":
        width = fixed_width(t) or 0
        if not 0 <= high <= width:
            raise TableError(f"{subject}: prefix length {high} is not in 0..{width}")
        return low >> (width - high) << (width - high), high
    high = to_bits(checked(high, t, subject), t)[1]
    return low & high, high


def checked(value: V, t: Type, subject: str) -> V:
    """Returns `value` if it fits type `t`. Raises TableError."""
    width = fixed_width(t)
    if isinstance(value, int) and width is not None and not -(1 << width - 1 if width else 0) <= value < 1 << width:
        raise TableError(f"{subject}: {value} does not fit in {width} bits")
    return value


def unique_suffix(name: str, names: Collection[str], subject: str) -> str:
    """Returns the one of `names` that is `name` or ends in `.name`. Raises TableError if there is none, or more than one."""
    if name in names:
        return name
    matches = [n for n in names if n.endswith("." + name)]
    if len(matches) != 1:
        problem = "is ambiguous" if matches else "is unknown"
        raise TableError(f"{subject} '{name}' {problem}; there are: {', '.join(sorted(names))}")
    return matches[0]


def flat(value: Value) -> list[Value]:
    """Returns the leaves of a value."""
    return [leaf for part in value.parts() for leaf in flat(part)] if isinstance(value, Aggregate) else [value]


@dataclass
class ValueSet:
    """A parser value set (§13.11): members are lists of matches, one per element of its type, kinds from `@match`."""

    name: str
    decl: ast.ValueSetDecl
    types: list[Type]
    kinds: list[str]
    members: list[list[Match]] = field(default_factory=list)

    def insert(self, *match: Match) -> None:
        """Adds a member: one match per element (see the module docstring). Raises TableError."""
        if len(match) != len(self.types):
            raise TableError(f"value set {self.name} takes {len(self.types)} matches, {len(match)} given")
        self.members.append(
            [canonical(k, m, t, f"value set {self.name}") for k, m, t in zip(self.kinds, match, self.types, strict=True)]
        )

    def contains(self, value: Value) -> bool:
        values = flat(value)
        return any(
            all(hits(k, m, v, t) for k, m, v, t in zip(self.kinds, member, values, self.types, strict=True))
            for member in self.members
        )
