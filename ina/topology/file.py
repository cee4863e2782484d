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

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ina.base import documents
from ina.base.error_text import line
from ina.base.settings import ConfigError, Problems, key
from ina.topology.topology import Link, Node, Topology, TopologyError, check_sizes


@dataclass(frozen=True)
class Keys:
    """Keys of a file, beside its tables."""

    name: str = key("", "the network's name; else the file's")
    mtu: int = key(1500, "largest IP packet, bytes", unit="B")
    buffer: int = key(0, "bytes that wait at a switch, in all of its queues together; 0: no limit", unit="B")


@dataclass(frozen=True)
class Properties:
    """Keys of [every-link]; topology.Link checks their ranges."""

    rate: float = key(Link.rate, "bit/s; 0: no limit", unit="b/s")
    delay: float = key(Link.delay, "s", unit="s")
    queue: int = key(Link.queue, "bytes that wait; 0: no limit", unit="B")
    loss: float = key(Link.loss, "probability that a frame is lost", unit="probability")


@dataclass(frozen=True)
class LinkKeys(Properties):
    """Keys of a [[link]], beside its ends."""

    simplex: bool = key(Link.simplex, "true: it carries frames from the first to the second only")


def parse(path: Path) -> documents.Document:
    """Parses a TOML file. Raises TopologyError with the file, and the line of a syntax error."""
    try:
        return documents.document(path)
    except OSError as error:
        raise TopologyError(line(error)) from None
    except documents.Unreadable as error:
        raise TopologyError(str(error)) from None


def read(path: str | Path) -> Topology:
    """Reads the network that a file describes. Raises TopologyError with all problems, each with file, line and key."""
    path = Path(path)
    try:
        return _Reader(path, parse(path)).read()
    except ConfigError as error:
        raise TopologyError(str(error)) from None


class _Reader:
    """Reader of one file, which collects the problems of its keys."""

    def __init__(self, path: Path, document: documents.Document) -> None:
        self._path, self._document, self._problems = path, document, Problems()

    def read(self) -> Topology:
        table, at = self._document.content, self._document.at
        top = Keys(**self._problems.values(Keys, table, at, ("every-link", "link")))
        if top.name == "" and "name" in table:
            self._problems.add(at("name"), f"name = {table['name']!r}: expected a name")
        common, entries = table.get("every-link", {}), table.get("link", [])
        if not isinstance(common, dict):
            self._problems.add(at("every-link"), "every-link: expected a table [every-link]")
            common = {}
        if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
            self._problems.add(at("link"), "link: expected one or more tables [[link]]")
            entries = []
        common = self._problems.values(Properties, common, lambda key: at("every-link", key))
        links: list[Link] = []
        for number, entry in enumerate(entries):
            links += self._links(number, entry, common, len(links))
        self._problems.check()
        names = dict.fromkeys(end for link in links for end in (link.a, link.b))
        nodes = sorted(map(Node, names), key=lambda node: (not node.is_host, node.number))
        try:
            return Topology(top.name or self._path.stem, tuple(nodes), tuple(links), top.mtu, buffer=top.buffer)
        except TopologyError as error:
            raise TopologyError(f"{self._path}: {error}") from None

    def _links(self, number: int, entry: Mapping[str, object], common: Mapping[str, Any], so_far: int) -> list[Link]:
        """Returns the links of a table."""
        own = self._problems.values(LinkKeys, entry, lambda key: self._document.at("link", number, key), ("ends",))
        ends, properties = entry.get("ends"), {**common, **own}
        if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(end, str) for end in ends):
            self._problems.add(self._document.at("link", number, "ends"),
                               f'ends = {ends!r}: expected two nodes such as ["h1", "s1"] or ["h1-h4", "s1"]')
            return []
        try:
            first, second = _nodes(ends[0]), _nodes(ends[1])
            check_sizes(self._path.name, 1, 1, so_far + len(first) * len(second))
            return [Link(a, b, **properties) for a in first for b in second]
        except TopologyError as error:
            bad_key = next((key for key in properties if f": {key} is" in str(error)), "ends")
            table = ("every-link",) if bad_key in common and bad_key not in entry else ("link", number)
            self._problems.add(self._document.at(*table, bad_key), str(error))
            return []


def _nodes(text: str) -> list[str]:
    """Parses ``h3``, or ``h1-h4`` for h1, h2, h3, h4."""
    first, dash, last = text.partition("-")
    names = [Node(part) for part in ((first, last) if dash else (first,))]
    if not dash:
        return [first]
    if names[0].is_host != names[1].is_host or names[0].number >= names[1].number:
        raise TopologyError(f"nodes {text!r}: expected a range such as h1-h4")
    return [f"{first[0]}{i}" for i in range(names[0].number, names[1].number + 1)]
