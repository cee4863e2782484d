"""Control planes: entries that are written into a switch before the packets, in STF's terms, for one program or for both.

A control plane is recorded against the first program's P4Info, from STF lines or from a controller's entities; replayed on a
target of either program, with that program's names; and written as STF lines again, to repeat a counter-example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partialmethod
from typing import Any, TypeVar

from ina.base.native import lib
from ina.p4.runtime import Entity, EntityError, MulticastGroupEntry, P4Info, TableEntry, as_int
from ina.p4.tools import stf_file as stf
from ina.p4.tools.stf_numbers import StfError
from ina.p4.tools.stf_target import PORTS

PORT_BITS = 9
TNA_PORTS = 256  # of the two pipes that every Tofino has
DROP_PORT = lib.INA_DROP_PORT
Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Handle:
    """The n-th inserted entry."""

    number: int


@dataclass(frozen=True)
class Call:
    """A call of `ina.p4.tools.stf_file.Target`."""

    method: str
    args: tuple[Any, ...]


@dataclass
class Recorder:
    """An `ina.p4.tools.stf_file.Target` that records calls. `packets`: those that a file sends, (port, frame)."""

    p4info: Json
    calls: list[Call] = field(default_factory=list)
    packets: list[tuple[int, bytes]] = field(default_factory=list)
    entries: int = 0
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)

    def _record(self, method: str, *args: Any) -> None:
        self.calls.append(Call(method, args))

    def _entry(self, method: str, *args: Any) -> Handle:
        self._record(method, *args)
        self.entries += 1
        return Handle(self.entries - 1)

    def insert(self, table: str, match: Json, action: str, args: dict[str, int], priority: int) -> Handle:
        return self._entry("insert", table, match, action, args, priority)

    def point(self, table: str, match: Json, *, member: int | None = None, group: int | None = None, priority: int = 0) -> Handle:
        return self._entry("point", table, match, member, group, priority)

    def clear_tables(self) -> None:
        raise StfError("'remove all': entries are those that the packets meet, and cannot go")

    def send(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        self.packets.append((port, frame))
        return []

    set_default = partialmethod(_record, "set_default")
    set_clone_session = partialmethod(_record, "set_clone_session")
    write_register = partialmethod(_record, "write_register")
    configure_meter = partialmethod(_record, "configure_meter")
    configure_direct_meter = partialmethod(_record, "configure_direct_meter")
    fill_value_set = partialmethod(_record, "fill_value_set")

    def set_multicast_group(self, group: int, replicas: list[tuple[int, int]]) -> None:
        self._record("set_multicast_group", group, list(replicas))

    def _number(self, kind: str, profile: str) -> int:
        number = self.numbers[kind, profile] = self.numbers.get((kind, profile), -1) + 1
        return number

    def add_member(self, profile: str, action: str, args: dict[str, int]) -> int:
        self._record("add_member", profile, action, args)
        return self._number("member", profile)

    def add_group(self, profile: str, members: list[int]) -> int:
        self._record("add_group", profile, list(members))
        return self._number("group", profile)

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        return 0, 0

    def read_direct_counter(self, table: str, entry: Any) -> tuple[int, int]:
        return 0, 0

    def read_register(self, name: str, index: int, half: int | None = None) -> int:
        return 0

    def digests(self) -> None:
        return None


def recorded(text: str, p4info: Json, file: str) -> Recorder:
    """Records the commands of an STF file and the packets that it sends, and ignores its expectations. Raises StfError with the
    file's name."""
    recorder = Recorder(p4info)
    try:
        stf.run(text, recorder, file)
    except (EntityError, ValueError) as error:
        raise StfError(f"{file}: {error}") from None
    return recorder


def entities(updates: Iterable[Entity], p4info: Json) -> list[Call]:
    """Returns calls for a controller's entries (of exact keys) and multicast groups."""
    info, calls = P4Info(p4info), []
    for entity in updates:
        if isinstance(entity, MulticastGroupEntry):
            calls.append(Call("set_multicast_group", (entity.group_id, [(r.port, r.rid) for r in entity.replicas])))
            continue
        assert isinstance(entity, TableEntry) and entity.action is not None
        table = info.table(entity.table)
        action = info.action(table, entity.action, entity.is_default)
        widths = {p.name: p.width for p in action.params}
        args = {name: as_int(value, widths[name], name) for name, value in entity.params.items()}
        if entity.is_default:
            calls.append(Call("set_default", (table.name, action.name, args)))
            continue
        bits = {f.name: f.width for f in table.fields}
        match = {name: as_int(value, bits[name], name) for name, value in entity.match.items()}
        calls.append(Call("insert", (table.name, match, action.name, args, entity.priority)))
    return calls


def replay(calls: Iterable[Call], target: Any) -> None:
    """Makes the calls on a target. Raises what the target raises."""
    handles: list[Any] = []
    for call in calls:
        args = [handles[a.number] if isinstance(a, Handle) else a for a in call.args]
        if call.method == "point":
            table, match, member, group, priority = args
            handles.append(target.point(table, match, member=member, group=group, priority=priority))
        elif call.method == "insert":
            handles.append(target.insert(*args))
        else:
            getattr(target, call.method)(*args)


def ports(calls: Iterable[Call], p4info: Json) -> set[int]:
    """Returns the ports that entries, groups and sessions send to, and the 32 that every switch of `ina stf` has."""
    info, numbers = P4Info(p4info), set(range(PORTS))
    for call in calls:
        if call.method == "set_multicast_group":
            numbers |= {port for port, _ in call.args[1]}
        elif call.method == "set_clone_session" and call.args[1] is not None:
            numbers.add(call.args[1])
        elif call.method in ("insert", "set_default", "add_member"):
            action, args = call.args[2:4] if call.method == "insert" else call.args[1:3]
            numbers |= {args[p.name] for p in info.actions[action].params if p.width == PORT_BITS and p.name in args}
    return {port for port in numbers if port < DROP_PORT}


def takes(port: int, p4info: Json) -> bool:
    """Returns True if packets can enter by this port; the upper half of a Tofino's pipe is internal."""
    if p4info.get("pkgInfo", {}).get("arch") == "tna":
        return port < TNA_PORTS and port % 128 < 64
    return port < DROP_PORT


@dataclass(frozen=True)
class Names:
    """The second program's names, by the full names of the first. `keys`, `actions` and `params`: by table, then by the first
    program's name; `headers`: headers and fields, by the last parts of their names; ports by number. Missing names are the same
    in both, or have the same end."""

    tables: dict[str, str] = field(default_factory=dict)
    keys: dict[str, dict[str, str]] = field(default_factory=dict)
    actions: dict[str, dict[str, str]] = field(default_factory=dict)
    params: dict[str, dict[str, str]] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    ports: dict[int, int] = field(default_factory=dict)

    def key(self, table: str, key: str) -> str:
        if (name := self.keys.get(table, {}).get(key)) is not None:
            return name
        header, _, last = (tail := _tail(key)).partition(".")
        return self.headers.get(tail) or (f"{self.headers[header]}.{last}" if header in self.headers else key)

    def port(self, port: int) -> int:
        return self.ports.get(port, port)


class Translator:
    """Translates calls for the first program. Raises EntityError where the second has no such table, key or action."""

    def __init__(self, names: Names, a: Json, b: Json) -> None:
        self.names, self.a, self.b = names, P4Info(a), P4Info(b)

    def calls(self, calls: Iterable[Call]) -> list[Call]:
        return [Call(call.method, TRANSLATIONS[call.method](self, *call.args)) for call in calls]

    def table(self, name: str) -> str:
        return _named(self.b.table, name, self.names.tables).name

    def match(self, table: str, match: Json) -> Json:
        info, twin = self.a.table(table), self.b.table(self.table(table))
        widths = {f.name: f.width for f in info.fields}
        out: Json = {}
        for key, value in match.items():
            name = self.names.key(table, key)
            names = [f.name for f in twin.fields if f.name == name or _tail(f.name) == _tail(name)]
            exact = [f for f in names if f == name] or names
            if len(exact) != 1:
                raise EntityError(f"table {twin.name} has no key {name!r}; it has: {', '.join(f.name for f in twin.fields)}")
            out[exact[0]] = self.names.port(value) if widths[key] == PORT_BITS and isinstance(value, int) else value
        return out

    def action(self, table: str, name: str, args: dict[str, int], default: bool = False) -> tuple[str, dict[str, int]]:
        twin = self.b.table(self.table(table))
        renamed, params = self.names.actions.get(table, {}), self.names.params.get(table, {})
        new_name = renamed.get(name, renamed.get(_last(name)))
        action = self.b.action(twin, new_name, default) if new_name else _named(
            lambda n: self.b.action(twin, n, default), name, {})
        original = self.a.action(self.a.table(table), name, default)
        widths, names = {p.name: p.width for p in original.params}, {p.name for p in action.params}
        out = {}
        for key, value in args.items():
            new = params.get(key, key)
            if new not in names:
                raise EntityError(f"action {action.name} has no parameter {new!r}; it has: {', '.join(sorted(names)) or 'none'}")
            out[new] = self.names.port(value) if widths[key] == PORT_BITS else value
        return action.name, out


# A call's arguments for the second program, by method
TRANSLATIONS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "insert": lambda t, table, match, action, args, priority: (
        t.table(table), t.match(table, match), *t.action(table, action, args), priority),
    "point": lambda t, table, match, member, group, priority: (t.table(table), t.match(table, match), member, group, priority),
    "set_default": lambda t, table, action, args: (t.table(table), *t.action(table, action, args, True)),
    "set_clone_session": lambda t, session, port, group: (session, None if port is None else t.names.port(port), group),
    "set_multicast_group": lambda t, group, replicas: (group, [(t.names.port(port), rid) for port, rid in replicas]),
    "write_register": lambda t, name, index, value: (_named(t.b.register, name, t.names.registers).name, index, value),
    "configure_meter": lambda t, name, index, rates: (_named(t.b.meter, name, {}).name, index, rates),
    "configure_direct_meter": lambda t, table, entry, rates: (t.table(table), entry, rates),
    "add_member": lambda t, profile, action, args: (
        _named(t.b.profile, profile, {}).name, *t.action(t.a.profile(profile).tables[0], action, args)),
    "add_group": lambda t, profile, members: (_named(t.b.profile, profile, {}).name, members),
    "fill_value_set": lambda t, name, members: (_named(t.b.value_set, name, {}), members),
}


def _named(find: Callable[[str], T], name: str, renamed: dict[str, str]) -> T:
    """Returns the result of `find` for a name of the first program: under its name in `renamed`, else under the longest end of
    the name that exists."""
    if name in renamed:
        return find(renamed[name])
    parts = name.split(".")
    for first in range(len(parts) - 1):
        try:
            return find(".".join(parts[first:]))
        except EntityError:
            continue
    return find(parts[-1])


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _tail(name: str) -> str:
    return ".".join(name.split(".")[-2:])


# --- as STF --------------------------------------------------------------------------------------------------------------


def lines(calls: Iterable[Call], p4info: Json) -> Iterator[str]:
    """Yields STF lines that make the same calls."""
    kinds = {t["preamble"]["name"]: {f["name"]: f.get("matchType", "EXACT") for f in t.get("matchFields", [])}
             for t in p4info.get("tables", [])}
    groups: dict[int, list[tuple[int, int]]] = {}
    calls = list(calls)
    for call in calls:
        if call.method == "set_multicast_group":
            groups[call.args[0]] = call.args[1]
    profiles = {name: t.profile for name, t in P4Info(p4info).tables.items()}
    node = 0
    for group, replicas in groups.items():
        yield f"mc_mgrp_create {group}"
        for port, rid in replicas:
            yield f"mc_node_create {rid} {port}"
            yield f"mc_node_associate {group} {node}"
            node += 1
    entries = 0
    numbers: dict[tuple[str, str], int] = {}
    for call in calls:
        match call.method, call.args:
            case "insert", (table, match, action, args, priority):
                yield f"add {table}{_rank(priority)}{_keys(match, kinds[table])} {_applied(action, args)} = e{entries}"
                entries += 1
            case "point", (table, match, member, group, priority):
                reference = f"member({profiles[table]}/m{member})" if member is not None else f"group({profiles[table]}/g{group})"
                yield f"add {table}{_rank(priority)}{_keys(match, kinds[table])} {reference} = e{entries}"
                entries += 1
            case "set_default", (table, action, args):
                yield f"setdefault {table} {_applied(action, args)}"
            case "set_clone_session", (session, port, group):
                yield f"mirroring_add {session} {port}" if group is None else f"mirroring_add_mc {session} {group}"
            case "write_register", (name, index, value):
                yield f"register_write {name} {index} {value}"
            case "configure_meter", (name, index, rates):
                yield f"meter_set_rates {name} {index} {_rates(rates)}"
            case "configure_direct_meter", (table, entry, rates):
                yield f"direct_meter_set_rates {table} e{entry.number} {_rates(rates)}"
            case "add_member", (profile, action, args):
                number = numbers["m", profile] = numbers.get(("m", profile), -1) + 1
                yield f"member {profile} {_applied(action, args)} = {profile}/m{number}"
            case "add_group", (profile, members):
                number = numbers["g", profile] = numbers.get(("g", profile), -1) + 1
                yield f"group {profile} {' '.join(f'{profile}/m{m}' for m in members)} = {profile}/g{number}"
            case "fill_value_set", (name, members):
                yield f"value_set {name} {' '.join(map(str, members))}"


def _rank(priority: int) -> str:
    return f" {priority}" if priority else ""


def _keys(match: Json, kinds: dict[str, str]) -> str:
    return "".join(f" {name}:{_value(kinds[name], value)}" for name, value in match.items())


def _value(kind: str, value: Any) -> str:
    if isinstance(value, int):
        return hex(value)
    separator = {"LPM": "/", "TERNARY": "&&&", "RANGE": ".."}[kind]
    return f"{hex(value[0])}{separator}{value[1] if kind == 'LPM' else hex(value[1])}"


def _applied(action: str, args: dict[str, int]) -> str:
    return f"{action}({', '.join(f'{name}:{value:#x}' for name, value in args.items())})"


def _rates(rates: Iterable[tuple[float, int]]) -> str:
    return " ".join(f"{rate / 1e6!r}:{burst}" for rate, burst in rates)
