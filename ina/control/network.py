"""The switches of a network of real interfaces: AF_PACKET ports, each with a link of its own in both directions.

    host's interface ──veth── s1-eth1 ──[ link up: rate, delay, queue, loss ]──> ingress
                                       <─[ link down: likewise ]──────────────── egress

Workers are where their process's network namespace says; they bind UDP sockets to their host's address. What the program
does not aggregate is forwarded by MAC address, so everything else (TCP, ICMP, ...) crosses the same switches and links.

All switches of a network are in one process, each with a data plane of its own; between them frames go through shared memory.
A job's workers must be at one switch, which aggregates for them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ina.control.embedded import EmbeddedSwitch
from ina.control.forwarding import forwarding
from ina.switch.embedded import Link, Switch
from ina.switch.entities import Update
from ina.transport import SWITCH, Address, worker_address
from ina.transport.config import ETHERNET_OVERHEAD
from ina.transport.ports import Faults, Port, create_bell, create_segment, open_packet, open_shared

NAP = 50e-6  # s: frames gather for so long; a wake-up for each would cost more than the frame
PRIORITY = -15  # nice
ETHERNET = 14


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
    """A link between two switches: name and port number of each."""

    a: str
    a_port: int
    b: str
    b_port: int
    wire: Wire


@dataclass(frozen=True)
class Description:
    """What the switch process is told of its network (a JSON file)."""

    mtu: int
    ports: tuple[HostPort, ...]
    trunks: tuple[Trunk, ...]
    routes: dict[str, dict[str, int]]  # switch -> MAC address of a host -> port
    flood: dict[str, list[int]]  # switch -> ports that broadcasts leave by
    capture: str = ""  # folder for a pcap file of each host's port; empty: none

    @classmethod
    def read(cls, path: Path) -> Description:
        fields = json.loads(path.read_text())
        for kind, made in (("ports", HostPort), ("trunks", Trunk)):
            fields[kind] = tuple(made(**{**item, "wire": Wire(**item["wire"])}) for item in fields[kind])
        return cls(**fields)


class NetworkSwitch(EmbeddedSwitch):
    """The running switches of ``description``. Raises what compiling, loading and opening raise."""

    def __init__(self, program: Path, defines: dict[str, str], description: Description):
        self._description = description
        self._places: dict[int, tuple[str, set[int]]] = {}  # by job number: its switch, and its workers' ports there
        self._switches: dict[str, Switch] = {}
        self._opened: dict[tuple[str, int], Port] = {}
        options = {"buffers": 8192, "max_frame": description.mtu + ETHERNET}
        super().__init__(program, defines, **options)
        try:
            for name in description.routes:
                self._switches[name] = Switch(self.switch.program, **options) if self._switches else self.switch
            for port in description.ports:
                self._add(port.switch, port.number, self._open(port, description.mtu + ETHERNET), port.wire)
            for trunk in description.trunks:
                self._connect(trunk, description.mtu + ETHERNET)
            for name, switch in self._switches.items():
                switch.write(forwarding(description.routes[name], description.flood[name]))
                if switch is not self.switch:
                    switch.start(yields=0, nap=NAP)
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        # Links must not get slower because hosts compute: this process is the network, and first in line for a processor.
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)  # of this thread, and of those that it starts
        self.switch.start(yields=0, nap=NAP)

    def _add(self, switch: str, number: int, port: Port, wire: Wire) -> None:
        self._opened[switch, number] = port
        self._switches[switch].add_port(number, port.handle, wire.egress)

    def _open(self, port: HostPort, max_frame: int) -> Port:
        held, wire = 1024 if max_frame < 2048 else 256, port.wire
        opened = open_packet(port.interface, max_frame, held)
        try:
            opened.with_link(wire.rate, wire.delay, wire.queue, held)
            if wire.loss:
                opened.with_faults(rx=wire.faults(0), tx=wire.faults(1))
            if self._description.capture:
                opened.with_capture(Path(self._description.capture) / f"{port.interface}.pcap")
        except BaseException:
            opened.close()
            raise
        return opened

    def _connect(self, trunk: Trunk, max_frame: int) -> None:
        """Two ends in shared memory; each switch's egress is the link of its direction."""
        memory, bells = create_segment(1024, max_frame), (create_bell(), create_bell())
        ends = (trunk.a, trunk.a_port), (trunk.b, trunk.b_port)
        try:
            for side, (switch, number) in enumerate(ends):
                port = open_shared(memory, side, bells[side], bells[1 - side])
                if trunk.wire.loss:
                    port.with_faults(rx=trunk.wire.faults(side))
                self._add(switch, number, port, trunk.wire)
        finally:
            for fd in (memory, *bells):
                os.close(fd)

    def write(self, updates: Iterable[Update]) -> None:
        """To every switch alike: a job's entries match at that of its workers only, for there alone are their ports."""
        updates = list(updates)
        for switch in self._switches.values():
            switch.write(updates)

    def open_port(self, kind: str, job: int, index: int, slots: int, pid: int) -> tuple[int, Address, dict, list[int]]:
        """The port of the host in whose network namespace process ``pid`` runs; ``kind`` is of no matter here."""
        inode = os.stat(f"/proc/{pid}/ns/net").st_ino
        port = next((p for p in self._description.ports if p.namespace == inode), None)
        if port is None:
            hosts = ", ".join(p.host for p in self._description.ports)
            raise ValueError(f"process {pid} is in no host of this network ({hosts})")
        switch, taken = self._places.setdefault(job, (port.switch, set()))
        if switch != port.switch:
            raise ValueError(f"{port.host} is at switch {port.switch}, but this job has workers at {switch}: the workers of a "
                             "job must be at one switch")
        if port.number in taken:
            raise ValueError(f"{port.host} has a worker of this job already: each worker of a job needs a host of its own")
        taken.add(port.number)
        address = Address(port.mac, port.ip, worker_address(job, index).port)
        offer = {"kind": "udp", "bind": [port.ip, address.port], "peer": [SWITCH.ip, SWITCH.port]}
        return port.number, address, offer, []

    def close_port(self, number: int, job: int) -> None:
        _, taken = self._places[job]
        taken.discard(number)
        if not taken:
            del self._places[job]

    def counters(self) -> dict:
        """``program``: sums over the switches; ``links``: by host, bytes on the wire (with Ethernet's overhead) and drops,
        both ways."""
        program: dict[str, list] = {}
        for switch in self._switches.values():
            for name, cells in switch.counters().items():
                program[name] = (cells + program[name] if name in program else cells).tolist()
        return {"program": program, "ports": {}, "links": {port.host: self._link(port) for port in self._description.ports}}

    def _link(self, port: HostPort) -> dict:
        opened, down = self._opened[port.switch, port.number], self._switches[port.switch].port_stats(port.number)
        up, stats = opened.link, opened.stats
        return {
            "rate": port.wire.rate,
            "up_packets": up.packets, "up_bytes": up.bytes, "up_tail_drops": up.tail_drops,
            "down_packets": down.tx_packets, "down_bytes": down.tx_bytes + ETHERNET_OVERHEAD * down.tx_packets,
            "down_tail_drops": down.drops["tail"],
            "lost": sum(side.lost for side in opened.faults.values()) if port.wire.loss else 0,
            "errors": {key: stats[key] for key in ("errors", "tx_full", "rx_malformed", "tx_malformed")},
        }  # fmt: skip

    def close(self) -> None:
        for switch in self._switches.values():
            if switch is not self.switch:
                switch.close()
        super().close()
        for port in self._opened.values():
            port.close()
        self._opened.clear()
