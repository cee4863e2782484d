"""Events of links in a run: they fail, heal, flap, and become slow. One line of text is one event; all worlds read the same.

    at 200us fail s1-s9                     until it is healed
    at 200us fail s1-s9 for 800us           and then it heals
    at 1ms heal s1-s9                       it is up again, at its own rate
    at 1ms flap s1-s9 every 50us for 1ms    down, 50 us later up, then down again, ...; it is up in the end
    at 300us slow s2-h3 10G                 its rate is 10 Gb/s from now on
    at 300us slow s2-h3 10G for 1ms         and then its own again
    at 2s slow s2-h3 10G delay 5ms          and its delay; without a rate only that (in the testbed)

    link   a name of Topology.link_names(), from either end: s1-s9, s9-s1, s1-s9:2; of a host h3, s2-h3 or h3-s2;
           s1>s9: only the direction from s1 to s9
    time   a number and ps, ns, us, ms or s
    rate   bit/s, a number and k, M, G or T, or none
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from ina.topology.topology import MOST_RATE, Topology, TopologyError

FORMS = ("at TIME fail LINK [for TIME]", "at TIME heal LINK", "at TIME flap LINK every TIME for TIME",
         "at TIME slow LINK [RATE] [delay TIME] [for TIME]")
MOST_FLAPS = 100_000  # of one line
EXPONENTS = {"ps": -12, "ns": -9, "us": -6, "ms": -3, "s": 0}
PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
BOTH = (0, 1)


class Action(Enum):
    """A change of a link: ``FAIL``: it carries nothing; ``HEAL``: it is up, at its own rate; ``SLOW``: its rate changes."""

    FAIL = "fail"
    HEAL = "heal"
    SLOW = "slow"


@dataclass(frozen=True)
class Statement:
    """One line, in the words of its text. ``at``, ``every``, ``lasting`` and ``delay`` in s, ``rate`` in bit/s; 0, and None for
    the delay: not given."""

    at: float
    verb: str
    link: str
    rate: float = 0.0
    every: float = 0.0
    lasting: float = 0.0
    delay: float | None = None


@dataclass(frozen=True)
class LinkEvent:
    """One change of ``links[link]`` of a topology, ``at`` s after the run's start. ``directions``: 0 from the link's end ``a``,
    1 from its end ``b``. Of SLOW ``rate``, bit/s, and ``delay``, s (None: its own)."""

    at: float
    action: Action
    link: int
    directions: tuple[int, ...] = BOTH
    rate: float = 0.0
    delay: float | None = None


@dataclass(frozen=True)
class LinkPart:
    """``links[link]`` of a topology, or one direction of it; ``name``: as the topology or, for a direction, Traffic names it."""

    link: int
    directions: tuple[int, ...]
    name: str


def statement(text: str) -> Statement:
    """Parses one line. Raises TopologyError, which quotes it and says what was expected."""
    words = text.split()
    try:
        if len(words) < 4 or words[0] != "at":
            raise TopologyError(f"expected {'; '.join(FORMS)}")
        at, verb, link, rest = seconds(words[1]), words[2], words[3], words[4:]
        form = next((form for form in FORMS if form.split()[2] == verb), "")
        if not form:
            raise TopologyError(f"{verb!r}: expected fail, heal, flap or slow")
        rate, every, lasting, delay = 0.0, 0.0, 0.0, None
        if verb == "slow" and rest[:1] not in ([], ["delay"], ["for"]):
            rate, rest = bits(rest[0]), rest[1:]
        if verb == "slow" and rest[:1] == ["delay"] and len(rest) > 1:
            delay, rest = seconds(rest[1]), rest[2:]
        if verb == "flap" and rest[:1] == ["every"] and len(rest) > 1:
            every, rest = _positive(rest[1]), rest[2:]
        if verb != "heal" and rest[:1] == ["for"] and len(rest) > 1:
            lasting, rest = _positive(rest[1]), rest[2:]
        if rest or (verb == "slow" and not rate and delay is None) or (verb == "flap" and not (every and lasting)):
            raise TopologyError(f"expected {form}")
        if verb == "flap" and lasting / every > MOST_FLAPS:
            raise TopologyError(f"it flaps {lasting / every:,.0f} times, expected at most {MOST_FLAPS:,}")
    except TopologyError as error:
        raise TopologyError(f"link event {text!r}: {error}") from None
    return Statement(at, verb, link, rate, every, lasting, delay)


def events(topology: Topology, lines: Iterable[str]) -> tuple[LinkEvent, ...]:
    """Returns the changes that ``lines`` describe, by time; of one time in the order of the lines. Raises TopologyError."""
    changes: list[LinkEvent] = []
    for text in lines:
        line = statement(text)
        try:
            part = link_part(topology, line.link)
        except TopologyError as error:
            raise TopologyError(f"link event {text!r}: {error}") from None
        changes += _changes(line, part, topology.links[part.link].rate)
    return tuple(sorted(changes, key=lambda change: change.at))


def _changes(line: Statement, part: LinkPart, own_rate: float) -> list[LinkEvent]:
    def change(at: float, action: Action, rate: float = 0.0, delay: float | None = None) -> LinkEvent:
        return LinkEvent(round(at, 12), action, part.link, part.directions, rate, delay)  # to the picosecond

    end = line.at + line.lasting
    if line.verb == "heal":
        return [change(line.at, Action.HEAL)]
    if line.verb == "slow":
        slow = change(line.at, Action.SLOW, line.rate or own_rate, line.delay)
        return [slow, change(end, Action.SLOW, own_rate)] if line.lasting else [slow]
    if line.verb == "fail":
        return [change(line.at, Action.FAIL)] + [change(end, Action.HEAL)] * bool(line.lasting)
    turns = int(line.lasting / line.every * (1 + 1e-9))
    flaps = [change(line.at + i * line.every, (Action.FAIL, Action.HEAL)[i % 2]) for i in range(turns + (turns == 0))]
    return [*flaps, change(end, Action.HEAL)] if flaps[-1].action is Action.FAIL else flaps


def link_part(topology: Topology, name: str) -> LinkPart:
    """Finds a link, or a direction of it, by its name. Raises TopologyError: there is none, with links of its nodes."""
    places = link_parts(topology)
    if name in places:
        return places[name]
    nodes = [node for node in re.split(r"[->:]", name) if node in topology.by_name]
    numbers = sorted({hop.link for node in nodes for hop in topology.hops[node]})
    names = topology.link_names()
    near = [names[number] for number in numbers] or names
    raise TopologyError(f"there is no link {name!r} in {topology.name}; expected {'one of ' * (len(near) > 1)}"
                        f"{', '.join(near[:8])}{', ...' * (len(near) > 8)}")


def link_parts(topology: Topology) -> dict[str, LinkPart]:
    """Returns links and directions by all of their names; a name of Topology.link_names() comes before what another link is
    called from its far end."""
    official = topology.link_names()
    places = {name: LinkPart(number, _directions(topology, number), name) for number, name in enumerate(official)}
    for number, (link, name) in enumerate(zip(topology.links, official, strict=True)):
        suffix = name[name.rindex(":") :] if ":" in name else ""
        for a, b in ((link.a, link.b), (link.b, link.a)):
            places.setdefault(f"{a}-{b}{suffix}", LinkPart(number, _directions(topology, number), name))
        for direction in _directions(topology, number):
            a, b = (link.a, link.b)[:: 1 - 2 * direction]
            places.setdefault(f"{a}>{b}{suffix}", LinkPart(number, (direction,), f"{a}>{b}{suffix}"))
    return places


def _directions(topology: Topology, link: int) -> tuple[int, ...]:
    return (0,) if topology.links[link].simplex else BOTH


def seconds(text: str) -> float:
    """Parses a time such as ``200us``. Raises TopologyError."""
    match = re.fullmatch(_NUMBER + "(ps|ns|us|ms|s)", text)
    if not match:
        raise TopologyError(f"{text!r}: expected a time such as 200us, with ps, ns, us, ms or s")
    return float(Decimal(match[1]).scaleb(EXPONENTS[match[2]]))


def _positive(text: str) -> float:
    if not (value := seconds(text)):
        raise TopologyError(f"{text!r}: expected a time above 0")
    return value


def bits(text: str) -> float:
    """Parses a rate such as ``10G``, bit/s. Raises TopologyError."""
    match = re.fullmatch(_NUMBER + "([kMGT]?)", text)
    rate = float(match[1]) * PREFIXES[match[2]] if match else 0.0
    if not 0 < rate <= MOST_RATE:
        raise TopologyError(f"{text!r}: expected a rate such as 10G, above 0 and up to 1T")
    return rate


def check(lines: Sequence[str]) -> None:
    """Checks lines as far as they can be without a topology. Raises TopologyError."""
    for text in lines:
        statement(text)
