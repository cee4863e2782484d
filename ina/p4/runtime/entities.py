"""Entities that a control plane writes into a switch and reads from it, with P4Runtime's meanings and names.

Values of match fields and parameters are non-negative integers; `bytes` (big endian), MAC addresses
("00:00:00:00:00:01") and IPv4 addresses ("10.0.0.1") work too. The form of a match depends on its kind:

    exact       value
    ternary     value, or (value, mask)
    lpm         value, or (value, prefix length)
    range       value, or (low, high), both included
    optional    value

A field that is left out matches anything, except an exact one, which must be there.

Counters, meters and registers of a TNA program exist once for each pipe: `pipe` selects one, None all of them (a read returns one
entity for each; a write goes to each, but a counter's value to one of them, so that their sum is right). Other programs have no
pipes.
"""

from __future__ import annotations

import copy
import functools
import ipaddress
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from types import UnionType
from typing import Any, Protocol, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.p4info import MatchField, Named, Param

Value = int | bytes | str
Match = Value | tuple[Value, Value]


class Entity:
    """Base of what can be written into a switch and read from it: classes below, and in tna_entities.py."""

    __slots__ = ()


E = TypeVar("E", bound=Entity)


@dataclass(frozen=True, slots=True)
class TableEntry(Entity):
    """An entry of `table`, or (`is_default`) its default entry. Higher `priority` wins.

    `action` None with `is_default` restores the program's own default; in a MODIFY of another entry it keeps the action.
    In a table with an action profile an entry names a `member` or a `group` of it instead of an action. `metadata` and
    `controller_metadata` are the controller's own: stored and returned. `is_const`, of entries that were read: the
    program does not let them be changed. `pipe`, in a table whose pipes do not all have the same entries (EntryScope): the
    entry's pipe, or the first of those that share it; any of them is accepted.
    """

    table: str | int
    match: Mapping[str, Match] = field(default_factory=dict)
    action: str | int | None = None
    params: Mapping[str, Value] = field(default_factory=dict)
    priority: int = 0
    is_default: bool = False
    metadata: bytes = b""
    controller_metadata: int = 0
    is_const: bool = False
    member: int | None = None
    group: int | None = None
    pipe: int | None = None


@dataclass(frozen=True, slots=True)
class ProfileMember(Entity):
    """An action with its parameters that entries of the profile's tables can name by `member_id`."""

    profile: str | int
    member_id: int
    action: str | int = ""
    params: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProfileGroup(Entity):
    """A group of an action selector: (member, weight) pairs. The selector's hash chooses a member for each packet; one of weight
    0 belongs to the group and is not active. Weights add up to the selector's `max_group_size` at most, or where it has none to
    its size, and never to more than 65,535.
    """

    profile: str | int
    group_id: int
    members: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ValueSetEntry(Entity):
    """All members of a parser's value set: each a match by field, or the match itself where there is one field. `pipe`: as
    in a TableEntry; `parser`: likewise one of its parsers 0..17, if each has members of its own."""

    value_set: str | int
    members: tuple[Mapping[str, Match] | Match, ...] = ()
    pipe: int | None = None
    parser: int | None = None


@dataclass(frozen=True, slots=True)
class MeterConfig:
    """Two rates and three colours (RFC 2698): rates in packets or bytes per second, bursts in packets or bytes."""

    committed_rate: float
    committed_burst: int
    peak_rate: float
    peak_burst: int


@dataclass(frozen=True, slots=True)
class MeterEntry(Entity):
    """Cell `index` of a meter; None: all of them. Without `config` everything is green."""

    meter: str | int
    index: int | None = None
    config: MeterConfig | None = None
    pipe: int | None = None


@dataclass(frozen=True, slots=True)
class DirectMeterEntry(Entity):
    """The direct meter of one entry of a table."""

    entry: TableEntry
    config: MeterConfig | None = None
    pipe: int | None = None


@dataclass(frozen=True, slots=True)
class Replica:
    """A copy to `port`; the program sees `rid` as the copy's replication id."""

    port: int
    rid: int = 0


@dataclass(frozen=True, slots=True)
class MulticastGroupEntry(Entity):
    """Group 1..65535. `metadata` is the controller's own."""

    group_id: int
    replicas: tuple[Replica, ...] = ()
    metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class CloneSessionEntry(Entity):
    """Session 1..65535; `packet_length` cuts clones to so many bytes, at most 65535; 0: whole."""

    session_id: int
    replicas: tuple[Replica, ...] = ()
    packet_length: int = 0


@dataclass(frozen=True, slots=True)
class CounterEntry(Entity):
    """Cell `index` of an indirect counter; None: all of them (reading only)."""

    counter: str | int
    index: int | None = None
    packets: int = 0
    bytes: int = 0
    pipe: int | None = None


@dataclass(frozen=True, slots=True)
class DirectCounterEntry(Entity):
    """The direct counter of one entry of a table."""

    entry: TableEntry
    packets: int = 0
    bytes: int = 0
    pipe: int | None = None


@dataclass(frozen=True, slots=True)
class RegisterEntry(Entity):
    """Cell `index` of a register, or the cell of `entry` in a direct one; None: all of them."""

    register: str | int
    index: int | None = None
    value: int = 0
    pipe: int | None = None
    entry: TableEntry | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """`type`: INSERT, MODIFY or DELETE (P4Runtime §12)."""

    type: str
    entity: Entity


def insert(*entities: Entity) -> list[Update]:
    return [Update("INSERT", e) for e in entities]


def modify(*entities: Entity) -> list[Update]:
    return [Update("MODIFY", e) for e in entities]


def delete(*entities: Entity) -> list[Update]:
    return [Update("DELETE", e) for e in entities]


def check_existence(type_: str, exists: bool, label: str) -> None:
    """Raises EntityError: an INSERT of what is there, or a change of what is not."""
    if type_ == "INSERT" and exists:
        raise EntityError(f"{label} is there already", "ALREADY_EXISTS")
    if type_ != "INSERT" and not exists:
        raise EntityError(f"{label} is not there", "NOT_FOUND")


def as_int(value: Match, width: int, place: str) -> int:
    """`value` as an integer of `width` bits. Raises EntityError, which names `place`: it is none, but a pair, say."""
    try:
        if isinstance(value, str):
            parts = value.split(":")
            is_mac = len(parts) == 6
            number = int("".join(p.zfill(2) for p in parts), 16) if is_mac else int(ipaddress.IPv4Address(value))
        elif isinstance(value, (bytes, bytearray)):
            number = int.from_bytes(value, "big")
        elif isinstance(value, tuple):
            raise ValueError
        else:
            number = value.__index__()
    except (ValueError, AttributeError):
        raise EntityError(
            f"{place}: {value!r} is not a value: expected an integer, bytes, a MAC or an IPv4 address"
        ) from None
    if number < 0 or number >> width:
        raise EntityError(f"{place}: {value!r} does not fit {width} bits: expected 0..{(1 << width) - 1}")
    return number


def _pair(value: Match, second: int | None, place: str, form: str) -> tuple[Value, Value]:
    """The two parts of a pair; `second`: the other part for a single value (None: the value itself). Raises EntityError."""
    if not isinstance(value, (tuple, list)):
        return value, value if second is None else second
    if len(value) != 2:
        raise EntityError(f"{place}: {value!r}: expected a value or {form}")
    return value[0], value[1]


def as_match(value: Match, info: MatchField, place: str) -> tuple[int, int]:
    """A match as (value, mask), for range as (low, high); masked-out bits of the value must be 0 (P4Runtime §9.1.1)."""
    width = info.width
    full_mask = (1 << width) - 1
    if info.match in ("exact", "optional"):
        return as_int(value, width, place), full_mask
    if info.match == "range":
        low, high = (as_int(v, width, place) for v in _pair(value, None, place, "(low, high)"))
        if low > high:
            raise EntityError(f"{place}: empty range {low}..{high}: low must not exceed high")
        return low, high
    if info.match == "lpm":
        base, length = _pair(value, width, place, "(value, prefix length)")
        if not isinstance(length, int) or not 0 <= length <= width:
            raise EntityError(f"{place}: prefix length {length!r}: expected 0..{width}")
        mask = full_mask & ~((1 << (width - length)) - 1)
    elif info.match == "ternary":
        base, bits = _pair(value, full_mask, place, "(value, mask)")
        mask = as_int(bits, width, f"{place} (mask)")
    else:
        raise EntityError(f"{place}: match kind {info.match!r} is not supported")
    number = as_int(base, width, place)
    if number & ~mask:
        raise EntityError(f"{place}: value {number:#x} has bits outside its mask {mask:#x}: clear them")
    return number, mask


def as_key(match: Mapping[str, Match], fields: Iterable[MatchField], place: str) -> tuple[tuple[int, int], ...]:
    """The key of a match: a pair as `as_match` returns for each field. Raises EntityError, which names `place` and field."""
    key = []
    for f in fields:
        if f.name in match:
            key.append(as_match(match[f.name], f, f"{place}: field {f.name}"))
        elif f.match == "exact":
            raise EntityError(f"{place}: exact match field {f.name!r} ({f.width} bits) is missing")
        else:
            key.append((0, (1 << f.width) - 1 if f.match == "range" else 0))
    return tuple(key)


def match_of(pair: tuple[int, int], info: MatchField) -> Match | None:
    """The reverse of `as_match`; None for a field that matches anything."""
    value, mask = pair
    full_mask = (1 << info.width) - 1
    if info.match == "exact":
        return value
    if info.match == "range":
        return None if pair == (0, full_mask) else pair
    if not mask:
        return None
    return (value, mask.bit_count()) if info.match == "lpm" else value if info.match == "optional" else pair


def check_names(names: Iterable[str], infos: Iterable[Named], label: str) -> None:
    """Raises EntityError, which begins with `label`: one of the names is none of these objects'."""
    known = [info.name for info in infos]
    for name in sorted(set(names).difference(known)):
        raise EntityError(f"{label} {name!r}; it has: {', '.join(known) or 'none'}")


def as_params(params: Mapping[str, Value], infos: tuple[Param, ...], place: str) -> dict[str, int]:
    """All parameters of an action, by name."""
    check_names(params, infos, f"{place}: no parameter")
    missing = [p.name for p in infos if p.name not in params]
    if missing:
        raise EntityError(f"{place}: parameter {missing[0]!r} is missing")
    return {p.name: as_int(params[p.name], p.width, f"{place}({p.name})") for p in infos}


class SwitchTarget(Protocol):
    """A loaded program's tables, groups, sessions, counters and registers, in P4Runtime's terms.

    The embedded switch is one, on one processor (`Switch`) or several (`ShardedSwitch`); so is a switch behind P4Runtime, BMv2
    or another (`RemoteSwitch`), and a Tofino behind BFRuntime (`BfRuntimeTarget`); and what worlds put in front of these.
    """

    @abstractmethod
    def write(self, updates: Iterable[Update]) -> None:
        """Makes all updates, in order, or none.

        Raises EntityError (its message begins with the number of the update) or TimeoutError.
        """

    @abstractmethod
    def read(self, entities: Sequence[E]) -> list[E]:
        """Returns the entities that match each of `entities`, which serve as patterns: see `Switch.read`."""


# ---- entities as a switch takes them: it keeps no object of a caller, and gives none of its own away


Test = Callable[[Any], bool]
PLAIN = {int, bool, str, bytes, float, type(None)}
ACCEPTED: dict[Any, tuple[type, ...]] = {int: (int, np.integer), bool: (int, np.bool_), float: (int, float, np.number)}


def own(entity: E) -> E:
    """A copy with mappings of its own, and tuples instead of lists; an entity without either is returned as it is."""
    names: tuple[str, ...] = entity.__slots__
    values = {name: getattr(entity, name) for name in names}
    changed = {name: new for name, value in values.items() if (new := _own_value(value)) is not value}
    if not changed:
        return entity
    twin = copy.copy(entity)
    for name, value in changed.items():
        object.__setattr__(twin, name, value)
    return twin


def _own_value(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _own_value(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        items = tuple(_own_value(item) for item in value)
        is_same = isinstance(value, tuple) and all(new is old for new, old in zip(items, value, strict=True))
        return value if is_same else items
    if isinstance(value, bytearray):
        return bytes(value)
    return own(value) if isinstance(value, Entity) else value


def checked(entity: E, is_pattern: bool = False) -> E:
    """An own copy of an entity whose fields have values of their types; None is a value of any field of a pattern to read. Raises
    EntityError, which names entity, field and what was expected. `as_int` judges values of matches and parameters."""
    entity = own(entity)
    _check(entity, is_pattern, "")
    return entity


def _check(thing: Any, is_pattern: bool, path: str) -> None:
    kind: type = type(thing)
    for name, expected, plain, test in _fields(kind):
        value = getattr(thing, name)
        if type(value) in plain or (value is None and is_pattern):
            continue
        if not test(value):
            first = getattr(thing, thing.__slots__[0])
            label = f"{type(thing).__name__} {first!r:.80}" if isinstance(first, (int, str)) else type(thing).__name__
            raise EntityError(f"{label}: {path}{name}: {value!r:.80}: expected {expected.replace(' | ', ' or ')}")
        if is_dataclass(value):
            _check(value, is_pattern, f"{path}{name}.")


@functools.cache
def _fields(kind: type[object]) -> tuple[tuple[str, str, set[type], Test], ...]:
    """Names of a class's fields, their types as they stand in the source, those whose values need no test, and a test.

    Counts in configurations, which are no entities, may be fractions."""
    fields = []
    for name, hint in get_type_hints(kind).items():
        test = _test(float if hint is int and not issubclass(kind, Entity) else hint)
        plain = PLAIN & set(get_args(hint) if isinstance(hint, UnionType) else [hint])
        fields.append((name, kind.__annotations__[name], plain, test))
    return tuple(fields)


def _test(hint: Any) -> Test:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Mapping:
        return lambda value: isinstance(value, Mapping) and set(map(type, value)) <= {str}
    if origin is tuple:
        items = [_test(part) for part in parts if part is not ...]
        if ... in parts:
            return lambda value: isinstance(value, tuple) and all(map(items[0], value))
        return lambda value: isinstance(value, tuple) and len(value) == len(items) and all(
            test(part) for test, part in zip(items, value, strict=True))
    if {bytes, str} <= set(parts):  # a value of a match
        return lambda value: True
    types = tuple(accepted for part in parts or (hint,) for accepted in ACCEPTED.get(part, (part,)))
    return lambda value: isinstance(value, types)
