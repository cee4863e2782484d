"""The switch of a network of real interfaces: AF_PACKET ports, each with a link of its own in both directions.

    host's interface ──veth── s1-eth1 ──[ link up: rate, delay, queue, loss ]──> ingress
                                       <─[ link down: likewise ]──────────────── egress

Workers are where their process's network namespace says; they bind UDP sockets to their host's address. What the program
does not aggregate is forwarded by MAC address, so everything else (TCP, ICMP, ...) crosses the same switch and links.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from ina.control.embedded import EmbeddedSwitch
from ina.control.forwarding import forwarding
from ina.switch.embedded import Link
from ina.transport import SWITCH, Address, worker_address
from ina.transport.ports import Faults, Port, open_packet

NAP = 50e-6  # s: frames gather for so long; a wake-up for each would cost more than the frame
PRIORITY = -15  # nice
ETHERNET = 14


@dataclass(frozen=True)
class NetworkPort:
    """One port: its number, the switch's interface, the host at its far end, and the link between (each direction)."""

    number: int
    interface: str
    host: str
    mac: str
    ip: str
    namespace: int  # inode of the host's network namespace
    rate: float  # bit/s, 0: no limit
    delay: float  # s
    queue: int  # bytes, 0: no limit
    loss: float  # probability
    seed: int  # of the losses


@dataclass(frozen=True)
class Description:
    """What the switch process is told of its network (a JSON file)."""

    mtu: int
    ports: tuple[NetworkPort, ...]
    capture: str = ""  # folder for a pcap file of each port; empty: none

    @classmethod
    def read(cls, path: Path) -> Description:
        fields = json.loads(path.read_text())
        return cls(fields["mtu"], tuple(NetworkPort(**port) for port in fields["ports"]), fields["capture"])


class NetworkSwitch(EmbeddedSwitch):
    """A running switch on the interfaces of ``description``. Raises what compiling, loading and opening raise."""

    def __init__(self, program: Path, defines: dict[str, str], description: Description):
        self._description = description
        self._jobs: dict[int, set[int]] = {}  # job numbers by port
        max_frame = description.mtu + ETHERNET
        super().__init__(program, defines, buffers=8192, max_frame=max_frame)
        try:
            for port in description.ports:
                self._ports[port.number] = self._open(port, max_frame)
                self.switch.add_port(port.number, self._ports[port.number].handle, Link(port.rate, port.delay, port.queue))
            self.switch.write(forwarding({port.mac: port.number for port in description.ports}))
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        # Links must not get slower because hosts compute: this process is the network, and first in line for a processor.
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)  # of this thread, and of those that it starts
        self.switch.start(yields=0, nap=NAP)

    def _open(self, port: NetworkPort, max_frame: int) -> Port:
        held = 1024 if max_frame < 2048 else 256
        opened = open_packet(port.interface, max_frame, held)
        try:
            opened.with_link(port.rate, port.delay, port.queue, held)
            if port.loss:
                up, down = (Faults(loss=port.loss, seed=2 * port.seed + side) for side in (0, 1))
                opened.with_faults(rx=up, tx=down)
            if self._description.capture:
                opened.with_capture(Path(self._description.capture) / f"{port.interface}.pcap")
        except BaseException:
            opened.close()
            raise
        return opened

    def open_port(self, kind: str, job: int, index: int, slots: int, pid: int) -> tuple[int, Address, dict, list[int]]:
        """The port of the host in whose network namespace process ``pid`` runs; ``kind`` is of no matter here."""
        inode = os.stat(f"/proc/{pid}/ns/net").st_ino
        port = next((p for p in self._description.ports if p.namespace == inode), None)
        if port is None:
            hosts = ", ".join(p.host for p in self._description.ports)
            raise ValueError(f"process {pid} is in no host of this network ({hosts})")
        jobs = self._jobs.setdefault(port.number, set())
        if job in jobs:
            raise ValueError(f"{port.host} has a worker of this job already: each worker of a job needs a host of its own")
        jobs.add(job)
        address = Address(port.mac, port.ip, worker_address(job, index).port)
        offer = {"kind": "udp", "bind": [port.ip, address.port], "peer": [SWITCH.ip, SWITCH.port]}
        return port.number, address, offer, []

    def close_port(self, number: int, job: int) -> None:
        self._jobs[number].discard(job)

    def counters(self) -> dict:
        """As every switch's, and ``links``: by host, bytes on the wire (with Ethernet's overhead) and drops, both ways."""
        found = super().counters()
        links = {}
        for port in self._description.ports:
            opened, down = self._ports[port.number], self.switch.port_stats(port.number)
            up, stats = opened.link, opened.stats
            links[port.host] = {
                "rate": port.rate,
                "up_packets": up.packets, "up_bytes": up.bytes, "up_tail_drops": up.tail_drops,
                "down_packets": down.tx_packets, "down_bytes": down.tx_bytes + 24 * down.tx_packets,
                "down_tail_drops": down.drops["tail"],
                "lost": self._lost(port),
                "errors": {key: stats[key] for key in ("errors", "tx_full", "rx_malformed", "tx_malformed")},
            }  # fmt: skip
        return {**found, "links": links}

    def _lost(self, port: NetworkPort) -> int:
        return sum(side.lost for side in self._ports[port.number].faults.values()) if port.loss else 0
