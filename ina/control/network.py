"""The switches of a network of real interfaces, and the hosts at their ports.

Workers are where their process's network namespace says; they bind UDP sockets to their host's address.

Each switch is a Forwarder (forwarder.py) of the kind that the description names. All ``embedded`` ones are in this process,
each with a data plane of its own, and between them frames go through shared memory or through veths; of ``process`` each
has a process, between which there are veths. A job's workers must be at one switch, which aggregates for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ina.compiler.build import compile_program
from ina.control.description import Description
from ina.control.embedded import protocol_of
from ina.control.forwarder import Cable, EmbeddedForwarder, ForkedForwarder, Forwarder, PortCounts
from ina.switch.entities import Update
from ina.switch.program import Program
from ina.transport import SWITCH, Address, worker_address


def embedded(program: Program, description: Description) -> dict[str, Forwarder]:
    """All switches in this process."""
    cables = None
    if description.cables == "memory":
        cables = {trunk: Cable(description.max_frame) for trunk in description.trunks}
    made: dict[str, Forwarder] = {}
    try:
        for name in description.switches:
            made[name] = EmbeddedForwarder(name, program, description, cables)
    except BaseException:
        _close(made)
        raise
    finally:
        for cable in (cables or {}).values():
            cable.close()
    return made


def processes(program: Program, description: Description) -> dict[str, Forwarder]:
    """A process for each switch, forked from this one."""
    made: dict[str, Forwarder] = {}
    try:
        for name in description.switches:
            made[name] = ForkedForwarder(name, lambda name=name: EmbeddedForwarder(name, program, description))  # type: ignore[misc]
        for forwarder in made.values():
            forwarder.wait_ready()  # type: ignore[attr-defined]
    except BaseException:
        _close(made)
        raise
    return made


# What a network's switches can be. Each makes a running Forwarder for every switch of a description, or raises and leaves
# nothing. All but the first have veths between switches.
KINDS: dict[str, Callable[[Program, Description], dict[str, Forwarder]]] = {"embedded": embedded, "process": processes}


def _close(forwarders: dict[str, Forwarder]) -> None:
    """All at once: the kernel takes its time over each packet socket."""
    with ThreadPoolExecutor(max(1, len(forwarders))) as pool:
        for closed in [pool.submit(forwarder.close) for forwarder in forwarders.values()]:
            closed.result()


class NetworkSwitch:
    """The running switches of ``description``. Raises what compiling, loading and opening raise."""

    def __init__(self, program: Path, defines: dict[str, str], description: Description):
        self._description = description
        self._places: dict[int, tuple[str, set[int]]] = {}  # by job number: its switch, and its workers' ports there
        loaded = Program(compile_program(program, defines=defines).so_path)
        protocol, sizes = protocol_of(program, loaded.p4info)
        self._described = {"program": str(program), "source_hash": loaded.source_hash, "values": sizes.values,
                           "slots": sizes.slots, "protocol": protocol}  # fmt: skip
        self._switches = KINDS[description.kind](loaded, description)

    @property
    def targets(self) -> dict[str, Forwarder]:
        """The switches by name."""
        return dict(self._switches)

    def describe(self) -> dict:
        return self._described

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
        """``program``: sums over the switches. ``links``: by host, and by the names of both switches ("s1-s9"), bytes on the
        wire (with Ethernet's overhead) and drops both ways: ``up`` is from the host or the first switch."""
        program: dict[str, list] = {}
        for switch in self._switches.values():
            for name, cells in switch.counters().items():
                known = program.get(name)
                program[name] = [[a + c, b + d] for (a, b), (c, d) in zip(known, cells, strict=True)] if known else cells
        return {"program": program, "ports": {}, "links": self._links()}

    def _links(self) -> dict[str, dict]:
        ports = {name: switch.ports() for name, switch in self._switches.items()}
        links = {}
        for port in self._description.ports:
            here = ports[port.switch][port.number]
            up = {"up_packets": here.rx_packets, "up_bytes": here.rx_bytes, "up_tail_drops": here.rx_tail_drops}
            links[port.host] = {"rate": port.wire.rate, **up, **_sent("down", here), "lost": here.lost, "errors": here.errors}
        for trunk in self._description.trunks:
            a, b = ports[trunk.a][trunk.a_port], ports[trunk.b][trunk.b_port]
            errors = {key: a.errors[key] + b.errors[key] for key in a.errors}
            links[trunk.name] = {"rate": trunk.wire.rate, **_sent("up", a), **_sent("down", b), "lost": a.lost + b.lost,
                                 "errors": errors}  # fmt: skip
        return links

    def close(self) -> None:
        _close(self._switches)


def _sent(way: str, port: PortCounts) -> dict[str, int]:
    return {f"{way}_packets": port.tx_packets, f"{way}_bytes": port.tx_bytes, f"{way}_tail_drops": port.tx_tail_drops}
