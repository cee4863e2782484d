"""What a network's process is told of its switches, ports and links: a JSON file that topologies/mininet.py writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ina.switch.embedded import Link
from ina.transport.ports import Faults

ETHERNET = 14  # bytes of a frame's header


@dataclass(frozen=True)
class Wire:
    """What one direction of a link does: ``rate`` in bit/s and ``queue`` in bytes (0: no limit), ``delay`` in seconds,
    ``loss``: probability, drawn from ``seed``."""

    rate: float
    delay: float
    queue: int
    loss: float
    seed: int

    @property
    def egress(self) -> Link:
        return Link(self.rate, self.delay, self.queue)

    def faults(self, side: int) -> Faults | None:
        return Faults(loss=self.loss, seed=2 * self.seed + side) if self.loss else None


@dataclass(frozen=True)
class HostPort:
    """A port of ``switch``: its number, the switch's interface, and the host at its far end."""

    switch: str
    number: int
    interface: str
    host: str
    mac: str
    ip: str
    namespace: int  # inode of the host's network namespace
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
    """The network. ``kind`` of its switches: a key of ``ina.control.network.KINDS``. ``cables``: what links between switches
    are made of, ``memory`` (then all switches are in one process) or ``veth``. ``captures``: by interface, the pcap file."""

    mtu: int
    ports: tuple[HostPort, ...]
    trunks: tuple[Trunk, ...]
    routes: dict[str, dict[str, int]]  # switch -> MAC address of a host -> port
    flood: dict[str, list[int]]  # switch -> ports that broadcasts leave by
    kind: str = "embedded"
    cables: str = "memory"
    captures: dict[str, str] | None = None

    @classmethod
    def read(cls, path: Path) -> Description:
        fields = json.loads(path.read_text())
        for kind, made in (("ports", HostPort), ("trunks", Trunk)):
            fields[kind] = tuple(made(**{**item, "wire": Wire(**item["wire"])}) for item in fields[kind])
        return cls(**fields)

    @property
    def switches(self) -> tuple[str, ...]:
        return tuple(self.routes)

    @property
    def max_frame(self) -> int:
        return self.mtu + ETHERNET

    def capture(self, interface: str) -> str | None:
        """The pcap file for what passes ``interface``; None: none."""
        return (self.captures or {}).get(interface)
