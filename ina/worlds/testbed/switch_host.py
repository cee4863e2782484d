"""The switches of a network of real interfaces, and the hosts at their ports.

A worker's host is that of its process's network namespace; workers bind UDP sockets to their host's address.

Each switch is a Forwarder (forwarder.py) of the kind that the description names (switch_kinds.py). All ``embedded`` ones are in
this process, each with a data plane of its own, and between them frames go through shared memory or through veths; of ``process``
each has a process, between which there are veths; of ``bmv2`` each is a process of BMv2 (bmv2.py). A job is aggregated along a
tree over the switches.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from ina.aggregation.controller.embedded import job_program_of
from ina.aggregation.controller.forwarding import changed
from ina.aggregation.controller.job_records import Job
from ina.aggregation.controller.switch_host import Summary, plug_in, plug_server_in
from ina.aggregation.controller.transaction import REFUSED
from ina.aggregation.controller.worker_ports import Plug
from ina.aggregation.entries import ALONE, PUBLISHED, Sizes
from ina.aggregation.port_kinds import LOCAL, Control
from ina.worlds.testbed import switch_kinds
from ina.worlds.testbed.description import Description
from ina.worlds.testbed.forwarder import PortCounts
from ina.worlds.testbed.links import Links, probed


class NetworkSwitch:
    """The running switches of ``description``. Raises what compiling, loading and opening raise."""

    outlives = False
    seats = None  # one in each host
    packet_lifetime = 0.0  # no packet is older than the switches

    def __init__(self, program: Path, defines: dict[str, str], description: Description):
        self._description = description
        self.topology = description.topology
        kind = switch_kinds.KINDS[description.kind]
        loaded = kind.load(program, defines)
        if description.entries is None:
            self.job_program, sizes = job_program_of(program, loaded.p4info)
        else:
            self.job_program, sizes = ALONE, Sizes(0, 0)
        if self.job_program is PUBLISHED:
            raise ValueError(f"{program}: {PUBLISHED.only_local}")
        self._summary: Summary = {"program": str(program), "source_hash": loaded.source_hash, "values": sizes.values,
                                  "slots": sizes.slots, "protocol": self.job_program.name}
        self._udp_port = self.job_program.udp_port
        self._board = probed(description)
        self.targets = kind.make(loaded, description, self._board)
        self._layer2 = dict(description.layer2)  # as the switches have it
        self.links = Links(description, self._board, self.targets)

    def describe(self) -> Summary:
        return self._summary

    def host_of(self, pid: int, name: str) -> str:
        """Returns the host whose network namespace the process runs in; ignores ``name``."""
        inode = os.stat(f"/proc/{pid}/ns/net").st_ino
        for host, namespace in self._description.namespaces.items():
            if namespace == inode:
                return host
        raise ValueError(f"process {pid} is in no host of this network ({', '.join(self._description.namespaces)})")

    def open_port(self, kind: str, job: Job, index: int, host: str, control: Control = LOCAL) -> Plug:
        """Returns the port of the host; ``kind`` does not matter."""
        return plug_in(self.topology, host, job.addresses[index], self._udp_port)

    def open_server_port(self, kind: str, pid: int, name: str) -> tuple[str, Plug]:
        """Returns the port of the host; ``kind`` does not matter."""
        return plug_server_in(self.topology, self.host_of(pid, ""), self._udp_port)

    def close_port(self, number: int, job: int) -> None:
        """No-op: ports of hosts stay."""

    def close_server_port(self, number: int) -> None:
        """No-op: ports of hosts stay."""

    def protect(self, switch: str) -> None:
        """No-op: switches get their guard entries when they start, and end with this process."""

    def reroute(self, down: Collection[str]) -> None:
        """Makes layer 2 go around what is down; a program alone keeps its entries, which are its owner's."""
        if self.job_program is ALONE:
            return
        for switch, entries in self._description.forwarding(down).items():
            if switch not in down and (updates := changed(self._layer2[switch], entries)):
                with suppress(*REFUSED):
                    self.targets[switch].write(updates)
                    self._layer2[switch] = entries

    def counters(self) -> dict[str, Any]:
        """Returns ``program``: sums over the switches; ``links``: by host, and by the names of both switches ("s1-s9"), bytes on
        the wire (with Ethernet's overhead) and drops both ways: ``up`` is from the host or the first switch."""
        program: dict[str, list[list[int]]] = {}
        for switch in self.targets.values():
            for name, cells in switch.counters().items():
                sums = program.get(name)
                program[name] = [[a + c, b + d] for (a, b), (c, d) in zip(sums, cells, strict=True)] if sums else cells
        return {"program": program, "ports": {}, "links": self._links()}

    def _links(self) -> dict[str, dict[str, Any]]:
        ports = {name: switch.ports() for name, switch in self.targets.items()}
        links = {}
        for port in self._description.ports:
            counts = ports[port.switch][port.number]
            up = {"up_packets": counts.rx_packets, "up_bytes": counts.rx_bytes, "up_tail_drops": counts.rx_tail_drops}
            links[port.host.name] = {"rate": port.wire.rate, **up, **_sent("down", counts), "lost": counts.lost,
                                     "errors": counts.errors}
        for trunk in self._description.trunks:
            a, b = ports[trunk.a][trunk.a_port], ports[trunk.b][trunk.b_port]
            errors = {key: a.errors[key] + b.errors[key] for key in a.errors}
            links[trunk.name] = {"rate": trunk.wire.rate, **_sent("up", a), **_sent("down", b), "lost": a.lost + b.lost,
                                 "errors": errors}
        return links

    def close(self) -> None:
        self.links.close()
        switch_kinds.close(self.targets)


def _sent(way: str, port: PortCounts) -> dict[str, int]:
    return {f"{way}_packets": port.tx_packets, f"{way}_bytes": port.tx_bytes, f"{way}_tail_drops": port.tx_tail_drops,
            f"{way}_buffer_drops": port.tx_buffer_drops}
