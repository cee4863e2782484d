"""A program's P4Info (P4Runtime 1.4 §6) as Python values: names, ids, widths and sizes of entities."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from ina.p4.runtime.entity_error import EntityError

Json = dict[str, Any]

class Named(Protocol):
    """A thing that `find` looks for; it may have an `alias`, too."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> int | None: ...


N = TypeVar("N", bound=Named)


@dataclass(frozen=True, slots=True)
class MatchField:
    """`match`: exact, lpm, ternary, range or optional."""

    id: int
    name: str
    width: int
    match: str


@dataclass(frozen=True, slots=True)
class Param:
    id: int
    name: str
    width: int


@dataclass(frozen=True, slots=True)
class ActionInfo:
    id: int
    name: str
    alias: str
    params: tuple[Param, ...]


@dataclass(frozen=True, slots=True)
class TableInfo:
    """`entry_actions` and `default_actions`: full names of those that entries, or the default, may use. `profile`: of
    its action profile or selector.
    """

    id: int
    name: str
    alias: str
    fields: tuple[MatchField, ...]
    entry_actions: tuple[str, ...]
    default_actions: tuple[str, ...]
    size: int
    is_const: bool
    const_default: bool
    profile: str = ""

    @property
    def needs_priority(self) -> bool:
        """P4Runtime §9.1.1: a priority is for tables with a ternary, range or optional field, and only for those."""
        return any(f.match in ("ternary", "range", "optional") for f in self.fields)


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """A counter or meter (direct ones have no size) or register. `width`: of a register's cells; `unit`: of the
    others.
    """

    id: int
    name: str
    alias: str
    size: int
    width: int = 0
    unit: str = ""


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """An action profile, or (`with_selector`) an action selector, and the full names of its tables."""

    id: int
    name: str
    alias: str
    size: int
    with_selector: bool
    tables: tuple[str, ...]
    max_group_size: int = 0  # of a selector; 0: no limit is known


def _preamble(message: Json) -> Json:
    preamble = message.get("preamble", {})
    name = preamble["name"]
    return {"id": int(preamble["id"]), "name": name, "alias": preamble.get("alias", name)}


def find(kind: str, items: Iterable[N], name: str | int) -> N:
    """The object called `name`: its full name, alias, id, or a suffix (after a dot) that only one of them has."""
    items = list(items)
    for item in items:
        if name in (item.name, item.id):
            return item
    matches = [i for i in items if getattr(i, "alias", None) == name or i.name.endswith(f".{name}")]
    if len(matches) == 1:
        return matches[0]
    names = sorted(i.name for i in matches or items)
    if matches:
        raise EntityError(f"{kind} {name!r} is ambiguous: {', '.join(names)}")
    close = difflib.get_close_matches(str(name), names, 1) if names else []
    hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(names) or 'none'}"
    raise EntityError(f"no {kind} {name!r}; {hint}", "NOT_FOUND")


def _constant(value: Json) -> int | str:
    return int(value["int64Value"]) if "int64Value" in value else str(value.get("stringValue", ""))


_PAIR = r'\s*(\w+)\s*=\s*("[^"\\]*"|-?\d\w*)\s*'


def _pairs(text: str) -> dict[str, int | str]:
    """Returns the pairs of an annotation's text, `@name(key=literal, ...)`. Raises ValueError: it is no such text."""
    if not re.fullmatch(rf"@\w+\s*\({_PAIR}(,{_PAIR})*\)", text, re.ASCII):
        raise ValueError(f"{text}: expected pairs of a key and a literal, as in @name(text=\"a\", number=1)")
    pairs: dict[str, int | str] = {}
    for key, value in re.findall(_PAIR, text, re.ASCII):
        if key in pairs:
            raise ValueError(f"{text}: '{key}' stands twice")
        try:
            pairs[key] = value[1:-1] if value[0] == '"' else int(value, 0 if value[1:2].isalpha() else 10)
        except ValueError:
            raise ValueError(f"{text}: {key}={value}, expected a literal without a width") from None
    return pairs


@dataclass(slots=True)
class P4Info:
    """Views of the message (its protobuf JSON form, as a dict) that the rest of the switch works with."""

    message: Json = field(repr=False)
    tables: dict[str, TableInfo] = field(init=False)
    actions: dict[str, ActionInfo] = field(init=False)
    counters: dict[str, ArrayInfo] = field(init=False)
    registers: dict[str, ArrayInfo] = field(init=False)
    meters: dict[str, ArrayInfo] = field(init=False)
    profiles: dict[str, ProfileInfo] = field(init=False)
    value_sets: dict[str, ArrayInfo] = field(init=False, repr=False)

    def annotation(self, name: str) -> dict[str, int | str] | None:
        """Returns the pairs of `@name[key=value, ...]` on the program's `main` or a table, or of `@name(key=value, ...)`, with
        literals, which is all that BFRuntime tells of. None: there is none. Raises ValueError: several, or another text."""
        places = [self.message.get("pkgInfo", {}), *(table["preamble"] for table in self.message.get("tables", ()))]
        found = [
            {p["key"]: _constant(p["value"]) for p in note.get("kvPairList", {}).get("kvPairs", ())}
            for place in places
            for note in place.get("structuredAnnotations", ())
            if note["name"] == name
        ]
        texts = (text for place in places for text in place.get("annotations", ()))
        found += [_pairs(text) for text in texts if re.match(rf"@{name}\b", text)]
        if len(found) > 1:
            raise ValueError(f"@{name} stands {len(found)} times in the program, expected once")
        return found[0] if found else None

    def __post_init__(self) -> None:
        message = self.message
        actions = [
            ActionInfo(
                **_preamble(a),
                params=tuple(
                    Param(int(p["id"]), p["name"], int(p.get("bitwidth", 0))) for p in a.get("params", ())
                ),
            )
            for a in message.get("actions", ())
        ]
        by_id = {a.id: a.name for a in actions}
        self.actions = {a.name: a for a in actions}
        profiles = {int(p["preamble"]["id"]): p["preamble"]["name"] for p in message.get("actionProfiles", ())}
        self.tables = {}
        for t in message.get("tables", ()):
            references = t.get("actionRefs", ())
            table = TableInfo(
                **_preamble(t),
                fields=tuple(
                    MatchField(int(f["id"]), f["name"], int(f.get("bitwidth", 0)), f.get("matchType", "EXACT").lower())
                    for f in t.get("matchFields", ())
                ),
                entry_actions=tuple(by_id[int(r["id"])] for r in references if r.get("scope") != "DEFAULT_ONLY"),
                default_actions=tuple(by_id[int(r["id"])] for r in references if r.get("scope") != "TABLE_ONLY"),
                size=int(t.get("size", 0)),
                is_const=bool(t.get("isConstTable", False)),
                const_default=bool(int(t.get("constDefaultActionId", 0))),
                profile=profiles.get(int(t.get("implementationId", 0)), ""),
            )
            self.tables[table.name] = table
        self.counters, self.meters = (
            {
                c["preamble"]["name"]: ArrayInfo(
                    **_preamble(c), size=int(c.get("size", 0)), unit=c.get("spec", {}).get("unit", "BOTH").lower()
                )
                for kind in kinds
                for c in message.get(kind, ())
            }
            for kinds in (("counters", "directCounters"), ("meters", "directMeters"))
        )
        names = {t.id: t.name for t in self.tables.values()}
        self.profiles = {
            p["preamble"]["name"]: ProfileInfo(
                **_preamble(p),
                size=int(p.get("size", 0)),
                with_selector=bool(p.get("withSelector", False)),
                max_group_size=int(p.get("maxGroupSize", 0)),
                tables=tuple(names[int(i)] for i in p.get("tableIds", ())),
            )
            for p in message.get("actionProfiles", ())
        }
        self.value_sets = {
            v["preamble"]["name"]: ArrayInfo(**_preamble(v), size=int(v.get("size", 0)))
            for v in message.get("valueSets", ())
        }
        self.registers = {
            r["preamble"]["name"]: ArrayInfo(
                **_preamble(r),
                size=int(r.get("size", 0)),
                width=int(r.get("typeSpec", {}).get("bitstring", {}).get("bit", {}).get("bitwidth", 0)),
            )
            for r in message.get("registers", ())
        }

    def table(self, name: str | int) -> TableInfo:
        table = self.tables.get(name) if isinstance(name, str) else None
        return table or find("table", self.tables.values(), name)

    def action(self, table: TableInfo, name: str | int, default: bool = False) -> ActionInfo:
        """The action `name` of `table`, if entries (or, with `default`, the default) may use it."""
        allowed = table.default_actions if default else table.entry_actions
        if isinstance(name, str) and name in allowed:
            return self.actions[name]
        try:
            return find("action", [self.actions[a] for a in allowed], name)
        except EntityError as error:
            use = "the default entry" if default else "entries"
            raise EntityError(f"table {table.name}: {use}: {error}") from None

    def counter(self, name: str | int) -> ArrayInfo:
        return find("counter", self.counters.values(), name)

    def register(self, name: str | int) -> ArrayInfo:
        return find("register", self.registers.values(), name)

    def meter(self, name: str | int) -> ArrayInfo:
        return find("meter", self.meters.values(), name)

    def profile(self, name: str | int) -> ProfileInfo:
        return find("action profile", self.profiles.values(), name)

    def value_set(self, name: str | int) -> str:
        return find("value set", self.value_sets.values(), name).name
