"""Description of a network for its switch process: the topology, its hosts' namespaces, and kinds of switches and links.

It is a JSON file that ina/worlds/testbed/mininet.py writes. All else (ports, routes) follows from the topology.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from ina.aggregation.controller.forwarding import forwarding, guards
from ina.base import documents
from ina.net.ports import Faults, longest_frame
from ina.p4.runtime.embedded import Link as Egress
from ina.p4.runtime.entities import Update
from ina.p4.runtime.p4info import P4Info
from ina.p4.tools import stf_file
from ina.p4.tools.stf_numbers import StfError
from ina.p4.tools.stf_target import RunningTarget
from ina.topology import routes
from ina.topology.topology import Link, Node, Topology

SEEDS = 10_000  # more than a network has links
LINK_PROBE = 50e-3  # s
LINK_MISSES = 3


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
    """A port of ``switch``: its number, the switch's interface, the number of its link, the switch's side of that (0: the link's
    end a), and the host at its far end."""

    switch: str
    number: int
    link: int
    side: int
    interface: str
    host: Node
    wire: Wire


@dataclass(frozen=True)
class Trunk:
    """A link between two switches: its number and name; name, port number and interface of each. ``simplex``: from a to b
    only."""

    number: int
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
    after them; the writer of the description removes it. ``link_probe``: s between two probes of each link between switches, 0:
    no probes; ``link_misses``: probes in a row that have not come when it is down. ``entries``: None for a protocol's program;
    those of a program alone by switch, as an STF file's name and text."""

    topology: Topology
    namespaces: dict[str, int]
    kind: str = "embedded"
    cables: str = "memory"
    seed: int = 1
    captures: dict[str, str] = field(default_factory=dict)
    folder: str = ""
    link_probe: float = LINK_PROBE
    link_misses: int = LINK_MISSES
    entries: dict[str, list[list[str]]] | None = None

    def write(self, path: Path) -> None:
        topology = self.topology
        plain = {"name": topology.name, "mtu": topology.mtu, "buffer": topology.buffer,
                 "nodes": [node.name for node in topology.nodes], "links": [asdict(link) for link in topology.links]}
        fields = {key: getattr(self, key) for key in ("namespaces", "kind", "cables", "seed", "captures", "folder", "link_probe",
                                                       "link_misses", "entries")}
        path.write_text(json.dumps({"topology": plain, **fields}))

    @classmethod
    def read(cls, path: Path) -> Description:
        """Reads a file of `write`. Raises documents.Unreadable, OSError."""
        fields = documents.json_of(path)
        try:
            plain = fields.pop("topology")
            topology = Topology(plain["name"], tuple(map(Node, plain["nodes"])), tuple(Link(**link) for link in plain["links"]),
                                plain["mtu"], buffer=plain["buffer"])
            return cls(topology, **fields)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise documents.Unreadable(f"{path}: expected a network as `Description.write` writes it: {error!r}") from None

    @property
    def switches(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.topology.switches)

    @property
    def max_frame(self) -> int:
        return longest_frame(self.topology.mtu)

    @cached_property
    def ports(self) -> tuple[HostPort, ...]:
        """Ports that hosts are at, in the order of the links."""
        ports = []
        for number, (link, ends) in enumerate(zip(self.topology.links, self.topology.ends, strict=True)):
            for side, (host, here) in ((1, ends), (0, ends[::-1])):
                if host.node[0] == "h":
                    wire = self._wire(number, link)
                    ports.append(HostPort(here.node, here.port, number, side, here.name, Node(host.node), wire))
        return tuple(ports)

    @cached_property
    def trunks(self) -> tuple[Trunk, ...]:
        names = self.topology.link_names()
        return tuple(
            Trunk(number, names[number], a.node, a.port, a.name, b.node, b.port, b.name, link.simplex, self._wire(number, link))
            for number, (link, (a, b)) in enumerate(zip(self.topology.links, self.topology.ends, strict=True))
            if a.node[0] == b.node[0] == "s"
        )

    def _wire(self, number: int, link: Link) -> Wire:
        return Wire(link.rate, link.delay, link.queue, link.loss, self.seed * SEEDS + number)

    def forwarding(self, down: Collection[str] = ()) -> dict[str, list[Update]]:
        """Returns by switch the entries of its layer 2: routes to hosts, and broadcasts; around links that are ``down``."""
        ways, flood = routes.tables(self.topology, down), routes.flood_ports(self.topology, down)
        return {switch: forwarding({Node(host).mac: hop.port for host, hop in way.items()}, flood[switch])
                for switch, way in ways.items()}

    @cached_property
    def layer2(self) -> dict[str, list[Update]]:
        """``forwarding`` of the whole network."""
        return self.forwarding()

    def fill(self, switch: str, p4info: P4Info, write: Callable[[list[Update]], None]) -> None:
        """Writes a switch's first entries, with ``write``. Raises documents.Unreadable: a file of entries does not fit
        the program; what writing raises."""
        if self.entries is None:
            write([*self.layer2[switch], *self.guards[switch]])
            return
        target = RunningTarget(p4info, write)
        for file, text in self.entries.get(switch, ()):
            try:
                stf_file.run(stf_file.control(text), target, file)
            except StfError as error:
                raise documents.Unreadable(f"{error} (for switch {switch})") from error

    @cached_property
    def guards(self) -> dict[str, list[Update]]:
        """Switch -> entries that make it check senders."""
        return guards(self.topology)
