"""Description of a network for its switch process: the topology, its hosts' namespaces, and kinds of switches and links.

It is a JSON file that ina/worlds/testbed/mininet.py writes. All else (ports, routes) follows from the topology.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from ina.aggregation.controller.forwarding import guards
from ina.base import documents
from ina.net.ports import Faults
from ina.p4.runtime.embedded import Link as Egress
from ina.p4.runtime.entities import Update
from ina.topology import routes
from ina.topology.topology import Link, Node, Topology

ETHERNET = 14  # bytes of a frame's header
SEEDS = 10_000  # more than a network has links


@dataclass(frozen=True)
class Wire:
    """One direction of a link: ``rate`` in bit/s and ``queue`` in bytes (0: no limit), ``delay`` in seconds,
    ``loss``: probability, drawn from ``seed``."""

    rate: float
    delay: float
    queue: int
    loss: float
    seed: int

    @property
    def egress(self) -> Egress:
        return Egress(self.rate, self.delay, self.queue)

    def faults(self, side: int) -> Faults | None:
        return Faults(loss=self.loss, seed=2 * self.seed + side) if self.loss else None


@dataclass(frozen=True)
class HostPort:
    """A port of ``switch``: its number, the switch's interface, and the host at its far end."""

    switch: str
    number: int
    interface: str
    host: Node
    wire: Wire


@dataclass(frozen=True)
class Trunk:
    """A link between two switches: its name; name, port number and interface of each. ``simplex``: from a to b only."""

    name: str
    a: str
    a_port: int
    a_interface: str
    b: str
    b_port: int
    b_interface: str
    simplex: bool
    wire: Wire

    def ends(self, switch: str) -> list[tuple[int, int, str]]:
        """Its ends at ``switch``: side (0: a, 1: b), port number, interface."""
        both = (self.a, 0, self.a_port, self.a_interface), (self.b, 1, self.b_port, self.b_interface)
        return [end[1:] for end in both if end[0] == switch]


@dataclass(frozen=True)
class Description:
    """The network. ``namespaces``: inode of each host's network namespace. ``kind`` of its switches: a key of
    ``ina.worlds.testbed.switch_kinds.KINDS``. ``cables``: what links between switches are made of, ``memory`` (then all switches
    are in one process) or ``veth``. ``captures``: by interface, the pcap file. ``folder``: where switches may have files, named
    after them; the writer of the description removes it."""

    topology: Topology
    namespaces: dict[str, int]
    kind: str = "embedded"
    cables: str = "memory"
    seed: int = 1
    captures: dict[str, str] = field(default_factory=dict)
    folder: str = ""

    def write(self, path: Path) -> None:
        topology = self.topology
        plain = {"name": topology.name, "mtu": topology.mtu, "buffer": topology.buffer,
                 "nodes": [node.name for node in topology.nodes], "links": [asdict(link) for link in topology.links]}  # fmt: skip
        fields = {key: getattr(self, key) for key in ("namespaces", "kind", "cables", "seed", "captures", "folder")}
        path.write_text(json.dumps({"topology": plain, **fields}))

    @classmethod
    def read(cls, path: Path) -> Description:
        """Reads a file of `write`. Raises documents.Unreadable, OSError."""
        fields = documents.json_of(path)
        try:
            plain = fields.pop("topology")
            topology = Topology(plain["name"], tuple(map(Node, plain["nodes"])), tuple(Link(**link) for link in plain["links"]),
                                plain["mtu"], buffer=plain["buffer"])  # fmt: skip
            return cls(topology, **fields)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise documents.Unreadable(f"{path}: expected a network as `Description.write` writes it: {error!r}") from None

    @property
    def switches(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.topology.switches)

    @property
    def max_frame(self) -> int:
        return self.topology.mtu + ETHERNET

    @cached_property
    def ports(self) -> tuple[HostPort, ...]:
        """Ports that hosts are at, in the order of the links."""
        ports = []
        for number, (link, ends) in enumerate(zip(self.topology.links, self.topology.ends, strict=True)):
            for host, here in (ends, ends[::-1]):
                if host.node[0] == "h":
                    ports.append(HostPort(here.node, here.port, here.name, Node(host.node), self._wire(number, link)))
        return tuple(ports)

    @cached_property
    def trunks(self) -> tuple[Trunk, ...]:
        names = self.topology.link_names()
        return tuple(
            Trunk(names[number], a.node, a.port, a.name, b.node, b.port, b.name, link.simplex, self._wire(number, link))
            for number, (link, (a, b)) in enumerate(zip(self.topology.links, self.topology.ends, strict=True))
            if a.node[0] == b.node[0] == "s"
        )

    def _wire(self, number: int, link: Link) -> Wire:
        return Wire(link.rate, link.delay, link.queue, link.loss, self.seed * SEEDS + number)

    @cached_property
    def routes(self) -> dict[str, dict[str, int]]:
        """Switch -> MAC address of a host -> port."""
        ways = routes.tables(self.topology)
        return {switch: {Node(host).mac: hop.port for host, hop in way.items()} for switch, way in ways.items()}

    @cached_property
    def guards(self) -> dict[str, list[Update]]:
        """Switch -> entries that make it check senders."""
        return guards(self.topology)

    @cached_property
    def flood(self) -> dict[str, list[int]]:
        """Switch -> ports that broadcasts leave by."""
        return routes.flood_ports(self.topology)
