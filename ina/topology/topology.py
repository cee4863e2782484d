"""Networks as data: hosts and switches by name, and links between them. Pure data; names imply addresses.

    h3   host    10.0.0.3, 00:00:00:00:00:03, interface h3-eth0; h300 is 10.0.1.44, 00:00:00:00:01:2c
    s3   switch  10.255.0.3, 02:ff:00:00:00:03, where it aggregates for a tree; interfaces s3-eth1, s3-eth2, ... in the order
                 of its links; the number is the switch's port number
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

MOST_NODES = 9999  # hosts, and as many switches: Linux allows 15 characters in an interface's name
MOST_RATE, MOST_QUEUE = 1e12, 1 << 30  # of a link: bit/s, bytes that wait
MOST_LINKS = 1 << 16


class TopologyError(ValueError):
    """An invalid network; the message names the node or link and what was expected."""


def check_size(topology: str, key: str, value: int, low: int, high: int, why: str) -> None:
    """Checks a number before anything of that size is made. Raises TopologyError: ``value`` is not from ``low`` to ``high``."""
    if not low <= value <= high:
        raise TopologyError(f"{topology}: {key} is {value:,}, expected {low:,} to {high:,}: {why}")


def check_sizes(topology: str, hosts: int, switches: int, links: int) -> None:
    """Checks the numbers of a network's parts before it is made. Raises TopologyError."""
    for noun, count in (("hosts", hosts), ("switches", switches)):
        check_size(topology, f"the number of {noun}", count, 1, MOST_NODES, f"names go from {noun[0]}1 to {noun[0]}{MOST_NODES}")
    check_size(topology, "the number of links", links, 1, MOST_LINKS, "each has queues and counters")


@dataclass(frozen=True)
class Node:
    """``h<number>`` is a host, ``s<number>`` a switch; numbers from 1 to 9999 (interfaces' names have 15 characters).

    A node with ``like`` may have any name; it takes kind, number and default addresses from the node that ``like`` names.
    ``own_ip``, ``own_mac``: addresses of a real machine, in place of the default ones.
    """

    name: str
    like: str = ""
    own_ip: str = ""
    own_mac: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[hs][1-9][0-9]{0,3}", self._sample):
            raise TopologyError(f"node {self._sample!r}: expected h1, h2, ... for a host or s1, s2, ... for a switch, up to 9999")

    @property
    def ip(self) -> str:
        """Its own address, or a host's in 10.0.0.0/16, and a switch's, its address in a job's tree, in 10.255.0.0/16."""
        return self.own_ip or f"10.{0 if self.is_host else 255}.{self.number >> 8}.{self.number & 255}"

    @property
    def mac(self) -> str:
        """Its own address, or one that follows from the number; a switch's is locally administered."""
        prefix = "00:00" if self.is_host else "02:ff"
        return self.own_mac or f"{prefix}:00:00:{self.number >> 8:02x}:{self.number & 255:02x}"

    @property
    def _sample(self) -> str:
        return self.like or self.name

    @property
    def is_host(self) -> bool:
        """True: a host; False: a switch."""
        return self._sample[0] == "h"

    @property
    def number(self) -> int:
        """The number in its name, or in that of the node that it is like."""
        return int(self._sample[1:])


@dataclass(frozen=True)
class Link:
    """A full-duplex link; its properties hold for each direction. ``simplex``: it carries frames from a to b only.

    ``rate`` in bit/s including Ethernet's overhead (0: no limit), ``delay`` in seconds, ``queue`` in bytes that wait before tail
    drop (0: no limit), ``loss``: probability that a frame is lost on the link.
    """

    a: str
    b: str
    rate: float = 0.0
    delay: float = 0.0
    queue: int = 512 * 1024
    loss: float = 0.0
    simplex: bool = False

    def __post_init__(self) -> None:
        def need(ok: bool, key: str, expected: str) -> None:
            if not ok:
                raise TopologyError(f"link {self.a}-{self.b}: {key} is {getattr(self, key)!r}, expected {expected}")

        need(math.isfinite(self.rate) and 0 <= self.rate <= MOST_RATE, "rate", f"bit/s from 0 (no limit) to {MOST_RATE:g}")
        need(math.isfinite(self.delay) and 0 <= self.delay <= 10, "delay", "seconds from 0 to 10")
        need(0 <= self.queue <= MOST_QUEUE, "queue", f"bytes from 0 (no limit) to {MOST_QUEUE:,}")
        need(0 <= self.loss <= 1, "loss", "a probability from 0 to 1")
        if self.a == self.b:
            raise TopologyError(f"link {self.a}-{self.b}: a link connects two nodes")


@dataclass(frozen=True)
class End:
    """One end of a link: interface ``name`` of ``node``, which is number ``port`` there (hosts: 0)."""

    node: str
    port: int

    @property
    def name(self) -> str:
        """The interface's name: s1-eth2."""
        return f"{self.node}-eth{self.port}"


@dataclass(frozen=True)
class Hop:
    """A step out of a node: through ``port``, over ``links[link]``, to ``node``."""

    node: str
    port: int
    link: int


@dataclass(frozen=True)
class Topology:
    """Nodes and links, checked: no stray node, every host has one link and it leads to a switch, all reach each other.

    ``numbers``: for each link the port numbers at both ends, where they are not 1, 2, ... in the order of the links. ``buffer``:
    bytes that may wait in all queues of one switch, whose ports share it (0: no limit).
    """

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    mtu: int = 1500
    numbers: tuple[tuple[int, int], ...] = ()
    buffer: int = 0

    def __post_init__(self) -> None:
        if len(self.links) > MOST_LINKS:
            check_sizes(self.name, 1, 1, len(self.links))
        for name, count in Counter(node.name for node in self.nodes).items():
            if count > 1:
                raise TopologyError(f"{self.name}: node {name} is there twice")
        if not 576 <= self.mtu <= 9000:
            raise TopologyError(f"{self.name}: mtu is {self.mtu}, expected 576 to 9000")
        if not 0 <= self.buffer <= 1 << 40:
            raise TopologyError(f"{self.name}: buffer is {self.buffer}, expected bytes from 0 (no limit) to 2^40")
        if not self.hosts or not self.switches:
            raise TopologyError(f"{self.name}: expected at least one host and one switch")
        for link in self.links:
            if problem := self._problem(link):
                raise TopologyError(f"{self.name}: link {link.a}-{link.b}: {problem}")
        uses = Counter(end for link in self.links for end in (link.a, link.b))
        for host in self.hosts:
            if uses[host.name] != 1:
                raise TopologyError(f"{self.name}: host {host.name} has {uses[host.name]} links, expected one")
        start = self.nodes[0].name
        if unreached := sorted(self.by_name.keys() - self.distances(start).keys()):
            raise TopologyError(f"{self.name}: no way from {start} to {', '.join(unreached)}")
        if unreached := sorted(self.by_name.keys() - hop_counts([start], self.sources.__getitem__).keys()):
            raise TopologyError(f"{self.name}: no way from {', '.join(unreached)} to {start}")

    def _problem(self, link: Link) -> str:
        for end in (link.a, link.b):
            if end not in self.by_name:
                return f"there is no node {end!r}"
        hosts = self.is_host(link.a) + self.is_host(link.b)
        if hosts == 2:
            return "a host's link leads to a switch"
        return "a host's link carries both directions" if link.simplex and hosts else ""

    @cached_property
    def by_name(self) -> dict[str, Node]:
        """The nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def ends(self) -> tuple[tuple[End, End], ...]:
        """For each link its ends, at ``a`` and at ``b``."""
        if self.numbers:
            return tuple((End(link.a, a), End(link.b, b)) for link, (a, b) in zip(self.links, self.numbers, strict=True))
        ports = {node.name: itertools.count(0 if node.is_host else 1) for node in self.nodes}
        return tuple((End(link.a, next(ports[link.a])), End(link.b, next(ports[link.b]))) for link in self.links)

    @cached_property
    def hops(self) -> dict[str, tuple[Hop, ...]]:
        """For each node the steps out of it, in the order of the links."""
        hops: dict[str, list[Hop]] = {node.name: [] for node in self.nodes}
        for number, (link, (a, b)) in enumerate(zip(self.links, self.ends, strict=True)):
            hops[a.node].append(Hop(b.node, a.port, number))
            if not link.simplex:
                hops[b.node].append(Hop(a.node, b.port, number))
        return {name: tuple(steps) for name, steps in hops.items()}

    @cached_property
    def sources(self) -> dict[str, list[str]]:
        """For each node the nodes that send to it."""
        sources: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for node, hops in self.hops.items():
            for hop in hops:
                sources[hop.node].append(node)
        return sources

    def is_host(self, name: str) -> bool:
        """Returns True for a host, False for a switch. KeyError: there is no such node."""
        return self.by_name[name].is_host

    @property
    def hosts(self) -> tuple[Node, ...]:
        """The hosts, in the order of the nodes."""
        return tuple(node for node in self.nodes if node.is_host)

    @property
    def switches(self) -> tuple[Node, ...]:
        """The switches, in the order of the nodes."""
        return tuple(node for node in self.nodes if not node.is_host)

    def host_links(self, switch: str) -> list[tuple[Node, Link, End]]:
        """Returns the hosts at ``switch``: host, its link, and the switch's end of it, by port number."""
        at = [hop for hop in self.hops[switch] if self.is_host(hop.node)]
        return [(self.by_name[hop.node], self.links[hop.link], End(switch, hop.port)) for hop in at]

    def link_names(self) -> list[str]:
        """Returns the name of each link: the host's, or both switches', "s1-s9"; of the second between these two, "s1-s9:2"."""
        uses: Counter[str] = Counter()
        names = []
        for link in self.links:
            hosts = [end for end in (link.a, link.b) if self.is_host(end)]
            name = hosts[0] if hosts else f"{link.a}-{link.b}"
            uses[name] += 1
            names.append(name if uses[name] == 1 else f"{name}:{uses[name]}")
        return names

    def switch_of(self, host: str) -> str:
        """Returns the switch to which ``host`` is linked."""
        return self.hops[host][0].node

    def distances(self, start: str) -> dict[str, int]:
        """Returns the links on a shortest path from ``start`` to every node, in the direction of simplex links."""
        return hop_counts([start], self._neighbours)

    def levels(self) -> dict[str, int]:
        """Returns each node's distance from the nearest host: 0 for hosts, 1 at the edge, 2 above it, ..."""
        return hop_counts([host.name for host in self.hosts], self._neighbours)

    def _neighbours(self, node: str) -> Iterable[str]:
        return (hop.node for hop in self.hops[node])


def hop_counts(starts: Iterable[str], neighbours: Callable[[str], Iterable[str]]) -> dict[str, int]:
    """Returns the nodes that ``starts`` lead to, each with the fewest steps from one of them; ``starts`` themselves are 0 away.
    ``neighbours`` of a node are one step from it. Breadth first: O(nodes + links)."""
    counts = dict.fromkeys(starts, 0)
    queue = list(counts)
    for node in queue:
        for neighbour in neighbours(node):
            if neighbour not in counts:
                counts[neighbour] = counts[node] + 1
                queue.append(neighbour)
    return counts
