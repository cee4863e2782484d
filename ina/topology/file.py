"""Parser of user-defined networks: a TOML file with the links; the nodes are those that the links name.

    name = "two-racks"            # else the file's name
    mtu = 9000                    # else 1500
    buffer = 16_000_000           # bytes that wait at a switch, in all of its queues together; else no limit

    [every-link]                  # defaults of links: rate, delay, queue, loss
    rate = 10e9                   # bit/s

    [[link]]
    ends = ["h1-h4", "s1"]        # four links: h1 to h4 each to s1; of two ranges, each of one to each of the other
    [[link]]
    ends = ["h5-h8", "s2"]
    [[link]]
    ends = ["s1", "s2"]
    rate = 40e9                   # further keys: delay (s), queue (bytes), loss, simplex (true: from the first to the second)

Ports are numbered in the order of the links (ina/topology/topology.py).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ina.base import documents
from ina.topology.topology import Link, Node, Topology, TopologyError, check_sizes

TOP = ("name", "mtu", "buffer", "every-link", "link")
PROPERTIES = {"rate": float, "delay": float, "queue": int, "loss": float}
KEYS = {"ends": list, **PROPERTIES, "simplex": bool}


def parse(path: Path) -> dict[str, object]:
    """Parses a TOML file. Raises TopologyError with the file, and the line of a syntax error."""
    try:
        return documents.toml(path)
    except OSError as error:
        raise TopologyError(f"{path}: {error.strerror}") from None
    except documents.Unreadable as error:
        raise TopologyError(str(error)) from None


def read(path: str | Path) -> Topology:
    """Reads the network that a file describes. Raises TopologyError with file, line and key."""
    path = Path(path)
    raw = parse(path)
    lines = _Lines(path)
    for key in raw:
        if key not in TOP:
            raise TopologyError(f"{lines.at(key)}: unknown key {key!r}{_nearest(key, TOP)}")
    name = raw.get("name", path.stem)
    if not isinstance(name, str) or not name:
        raise TopologyError(f"{lines.at('name')}: name is {name!r}, expected a name")
    mtu, buffer = (_octets(raw, key, default, lines) for key, default in (("mtu", 1500), ("buffer", 0)))
    common, entries = raw.get("every-link", {}), raw.get("link", [])
    if not isinstance(common, dict):
        raise TopologyError(f"{lines.at('every-link')}: every-link: expected a table [every-link]")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise TopologyError(f"{lines.at('link')}: link: expected one or more tables [[link]]")
    _check(common, PROPERTIES, lambda key: lines.at(key, "every-link"))
    links: list[Link] = []
    for number, entry in enumerate(entries):
        _check(entry, KEYS, partial(lines.at, table="link", number=number))
        ends = entry.get("ends")
        place = lines.at("ends", "link", number)
        if ends is None or len(ends) != 2 or not all(isinstance(end, str) for end in ends):
            raise TopologyError(f"{place}: ends is {ends!r}, expected two nodes such as [\"h1\", \"s1\"] or [\"h1-h4\", \"s1\"]")
        properties = {**common, **{key: value for key, value in entry.items() if key != "ends"}}
        try:
            first, second = _nodes(ends[0]), _nodes(ends[1])
            check_sizes(path.name, 1, 1, len(links) + len(first) * len(second))
            links += [Link(a, b, **properties) for a in first for b in second]
        except TopologyError as error:
            bad_key = next((key for key in properties if f": {key} is" in str(error)), "ends")
            table = ("every-link",) if bad_key in common and bad_key not in entry else ("link", number)
            raise TopologyError(f"{lines.at(bad_key, *table)}: {error}") from None
    names = dict.fromkeys(end for link in links for end in (link.a, link.b))
    nodes = sorted(map(Node, names), key=lambda node: (not node.is_host, node.number))
    try:
        return Topology(name, tuple(nodes), tuple(links), mtu, buffer=buffer)
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from None


def _octets(table: dict[str, object], key: str, default: int, lines: _Lines) -> int:
    value = table.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TopologyError(f"{lines.at(key)}: {key} is {value!r}, expected a whole number of bytes")
    return value


def _check(table: dict[str, object], known: dict[str, type], place: Callable[[str], str]) -> None:
    for key, value in table.items():
        if key not in known:
            raise TopologyError(f"{place(key)}: unknown key {key!r}{_nearest(key, tuple(known))}")
        kind = known[key]
        fits = isinstance(value, (int, float) if kind is float else kind) and (kind is bool or not isinstance(value, bool))
        if not fits:
            raise TopologyError(f"{place(key)}: {key} is {value!r}, expected {'a number' if kind is float else kind.__name__}")


def _nodes(text: str) -> list[str]:
    """Parses ``h3``, or ``h1-h4`` for h1, h2, h3, h4."""
    first, dash, last = text.partition("-")
    names = [Node(part) for part in ((first, last) if dash else (first,))]
    if not dash:
        return [first]
    if names[0].is_host != names[1].is_host or names[0].number >= names[1].number:
        raise TopologyError(f"nodes {text!r}: expected a range such as h1-h4")
    return [f"{first[0]}{i}" for i in range(names[0].number, names[1].number + 1)]


def _nearest(word: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; expected one of {', '.join(known)}"


class _Lines:
    """Line numbers of keys, found by searching below their table's header, since tomllib does not report them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = path.read_text().splitlines()

    def at(self, key: str, table: str = "", number: int = 0) -> str:
        """Returns ``file:line`` of ``key`` in the ``number``-th table of that name, of the table if it has no such line."""
        start = 0
        if table:
            header = re.compile(rf"\s*\[\[?\s*\"?{re.escape(table)}\"?\s*\]")
            headers = [i for i, line in enumerate(self._lines) if header.match(line)]
            if number >= len(headers):
                return str(self._path)  # written inline: no line of its own
            start = headers[number]
        for i in range(start + bool(table), len(self._lines)):
            if re.match(rf"\s*(\[\[?\s*)?\"?{re.escape(key)}\"?\s*[=\]]", self._lines[i]):
                return f"{self._path}:{i + 1}"
            if table and self._lines[i].lstrip().startswith("["):
                break
        return f"{self._path}:{start + 1}" if table else str(self._path)
