"""What a network is: hosts and switches by name, and links between them. Pure data; names imply addresses.

    h3   host    10.0.0.3, 00:00:00:00:00:03, interface h3-eth0
    s1   switch  interfaces s1-eth1, s1-eth2, ... in the order of its links; the number is the switch's port number
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

MAX_HOSTS = 250
FRAME_OVERHEAD = 14  # Ethernet header: a frame is the MTU and this


class TopologyError(ValueError):
    """The network makes no sense; the message names the node or link and what was expected."""


@dataclass(frozen=True)
class Node:
    """``h<number>`` is a host, ``s<number>`` a switch; numbers from 1 on."""

    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[hs][1-9][0-9]{0,2}", self.name):
            raise TopologyError(f"node {self.name!r}: expected h1, h2, ... for a host or s1, s2, ... for a switch")
        if self.is_host and self.number > MAX_HOSTS:
            raise TopologyError(f"host {self.name}: expected h1 to h{MAX_HOSTS}")

    @property
    def is_host(self) -> bool:
        return self.name[0] == "h"

    @property
    def number(self) -> int:
        return int(self.name[1:])

    @property
    def ip(self) -> str:
        """IPv4 address of a host, in 10.0.0.0/16."""
        return f"10.0.0.{self.number}"

    @property
    def mac(self) -> str:
        return f"00:00:00:00:00:{self.number:02x}"


@dataclass(frozen=True)
class Link:
    """A full-duplex link; what is said of it holds for each direction.

    ``rate`` in bit/s including Ethernet's overhead (0: no limit), ``delay`` in seconds, ``queue`` in bytes that wait
    before tail drop (0: no limit), ``loss``: probability that a frame is lost on the way.
    """

    a: str
    b: str
    rate: float = 0.0
    delay: float = 0.0
    queue: int = 512 * 1024
    loss: float = 0.0

    def __post_init__(self) -> None:
        def need(ok: bool, key: str, expected: str) -> None:
            if not ok:
                raise TopologyError(f"link {self.a}-{self.b}: {key} is {getattr(self, key)!r}, expected {expected}")

        need(math.isfinite(self.rate) and 0 <= self.rate <= 1e12, "rate", "bit/s from 0 (no limit) to 1e12")
        need(math.isfinite(self.delay) and 0 <= self.delay <= 10, "delay", "seconds from 0 to 10")
        need(0 <= self.queue <= 1 << 30, "queue", "bytes from 0 (no limit) to 2^30")
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
        return f"{self.node}-eth{self.port}"


@dataclass(frozen=True)
class Topology:
    """Nodes and links, checked: no stray node, every host has one link and it leads to a switch, all is connected."""

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    mtu: int = 1500
    ends: tuple[tuple[End, End], ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        for name in names:
            if names.count(name) > 1:
                raise TopologyError(f"{self.name}: node {name} is there twice")
        if not 576 <= self.mtu <= 9000:
            raise TopologyError(f"{self.name}: mtu is {self.mtu}, expected 576 to 9000")
        if not self.hosts or not self.switches:
            raise TopologyError(f"{self.name}: expected at least one host and one switch")
        used: dict[str, int] = {}
        ends = []
        for link in self.links:
            for end in (link.a, link.b):
                if end not in names:
                    raise TopologyError(f"{self.name}: link {link.a}-{link.b}: there is no node {end!r}")
            if link.a[0] == link.b[0] == "h":
                raise TopologyError(f"{self.name}: link {link.a}-{link.b}: a host's link leads to a switch")
            pair = []
            for end in (link.a, link.b):
                pair.append(End(end, used.get(end, 0 if end[0] == "h" else 1)))
                used[end] = pair[-1].port + 1
            ends.append(tuple(pair))
        for host in self.hosts:
            if used.get(host.name, 0) != 1:
                raise TopologyError(f"{self.name}: host {host.name} has {used.get(host.name, 0)} links, expected one")
        object.__setattr__(self, "ends", tuple(ends))
        reached = self._reached(names[0])
        if stray := sorted(set(names) - reached):
            raise TopologyError(f"{self.name}: no way from {names[0]} to {', '.join(stray)}")

    @property
    def hosts(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.is_host)

    @property
    def switches(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if not node.is_host)

    def host_links(self, switch: str) -> list[tuple[Node, Link, End]]:
        """The hosts at ``switch``: host, its link, and the switch's end of it, by port number."""
        by_name = {node.name: node for node in self.nodes}
        found = []
        for link, (a, b) in zip(self.links, self.ends, strict=True):
            for here, there in ((a, b), (b, a)):
                if here.node == switch and by_name[there.node].is_host:
                    found.append((by_name[there.node], link, here))
        return sorted(found, key=lambda item: item[2].port)

    def _reached(self, start: str) -> set[str]:
        reached, waiting = {start}, [start]
        while waiting:
            node = waiting.pop()
            for link in self.links:
                for here, there in ((link.a, link.b), (link.b, link.a)):
                    if here == node and there not in reached:
                        reached.add(there)
                        waiting.append(there)
        return reached
