"""Switches that run elsewhere, over P4Runtime (or BFRuntime: ina/worlds/deployed/switch_host.py): they outlive the controller,
and it outlives them.

A switch is started with its program (``ina switch run p4/switchml.p4 ...``); the controller brings it none. Workers bind UDP
sockets to their hosts' addresses, and name their host (INA_HOST); the job's token shows that they may join.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from ina.aggregation import protocols
from ina.aggregation.controller.embedded import job_program_of
from ina.aggregation.controller.forwarding import GUARD, guards, has_guard
from ina.aggregation.controller.job_incarnations import PACKET_LIFETIME
from ina.aggregation.controller.job_records import Job
from ina.aggregation.controller.reconcile import agree
from ina.aggregation.controller.switch_host import Summary, plug_in, plug_server_in
from ina.aggregation.controller.worker_ports import Plug
from ina.aggregation.entries import PUBLISHED, JobProgram, Sizes
from ina.aggregation.port_kinds import LOCAL, Control
from ina.base.closing import closing_on_error
from ina.p4.rpc.connections import CONNECTED, ELECTION_ID, Access, places_of
from ina.p4.runtime.entities import CounterEntry, E, SwitchTarget, Update
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.p4info import P4Info
from ina.topology.topology import Topology, TopologyError

NAMED = 32  # hosts in an error
FINAL = ("INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "RESOURCE_EXHAUSTED", "OUT_OF_RANGE", "UNIMPLEMENTED")  # it works


class NoAnswer(ValueError):
    """A switch does not answer; it may do so later."""


def unreached(prefix: str, error: EntityError | TimeoutError) -> ValueError:
    """Returns the error to raise where a switch is needed: NoAnswer, or ValueError for one that answers and refuses."""
    silent = isinstance(error, TimeoutError) or error.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    return (NoAnswer if silent else ValueError)(f"{prefix}{error}")


class Connection(SwitchTarget, Protocol):
    """A switch that was connected to."""

    @property
    def p4info(self) -> P4Info: ...

    @property
    def alive(self) -> bool: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Connection)


class Reconnecting(Generic[C]):
    """A switch at ``address``, which answers within ``timeout`` seconds. Connects when it is needed, and again when the
    connection is lost. ``connect``: makes a connection."""

    def __init__(self, address: str, connect: Callable[[], C], timeout: float = CONNECTED):
        self.address, self.timeout = address, timeout
        self._connect = connect
        self._remote: C | None = None

    @property
    def p4info(self) -> P4Info:
        with self.connected() as remote:
            return remote.p4info

    def write(self, updates: Iterable[Update]) -> None:
        with self.connected() as remote:
            remote.write(updates)

    def read(self, entities: Sequence[E]) -> list[E]:
        """Reads entities; reconnects once if the connection is lost meanwhile."""
        try:
            with self.connected() as remote:
                return remote.read(entities)
        except EntityError as error:
            if error.code != "UNAVAILABLE":
                raise
        with self.connected() as remote:
            return remote.read(entities)

    def close(self) -> None:
        remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()

    @contextmanager
    def connected(self) -> Iterator[C]:
        if self._remote is not None and not self._remote.alive:
            self.close()
        if self._remote is None:
            if is_refused(self.address, self.timeout):
                raise EntityError(f"nobody listens at {self.address}: is the driver or `ina switch run` up?", "UNAVAILABLE")
            try:
                self._remote = self._connect()
            except OSError as error:
                if isinstance(error, TimeoutError):
                    raise
                raise EntityError(str(error), "PERMISSION_DENIED") from None
        try:
            yield self._remote
        except EntityError as error:
            if error.code not in FINAL:
                self.close()
            raise
        except TimeoutError:
            self.close()
            raise


def is_refused(address: str, timeout: float = CONNECTED) -> bool:
    """Returns True if the machine at a gRPC address refuses connections: gRPC itself would try again until a time-out."""
    refused = False
    try:
        for family, place in places_of(address):
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.settimeout(timeout)
                try:
                    sock.connect(place)
                except (ConnectionRefusedError, FileNotFoundError):
                    refused = True
                else:
                    return False
    except (OSError, ValueError):
        return False
    return refused


class SwitchesElsewhere:
    """The switches of ``topology`` behind ``targets``, by name: ports of workers, and the program, which is the same everywhere.
    ``language``: of the targets, for people; ``twin``: the folder beside a protocol's program that has the one for these
    switches; ``packet_lifetime``: of the network, seconds. Raises TopologyError, ValueError, NoAnswer, and what connecting
    raises."""

    outlives = True

    def __init__(self, topology: Topology, targets: Mapping[str, Reconnecting[Any]], language: str, twin: str = "",
                 packet_lifetime: float = PACKET_LIFETIME):
        names = [switch.name for switch in topology.switches]
        for name in targets:
            if name not in names:
                raise TopologyError(f"{topology.name} has no switch {name!r}; it has: {', '.join(names)}")
        self.topology, self.targets, self.language = topology, dict(targets), language
        self.packet_lifetime = packet_lifetime
        self.seats = None
        with closing_on_error(self.close):
            programs = {name: _job_program_of(name, target) for name, target in self.targets.items()}
        first, sizes = programs[min(programs)]
        for name, (program, own) in programs.items():
            if (program.name, own.values) != (first.name, sizes.values):
                raise ValueError(f"switch {name} speaks {program.name} with {own.values} values per packet, but {min(programs)} "
                                 f"{first.name} with {sizes.values}: all switches of a network run one program")
        self.job_program = min((program for program, _ in programs.values()), key=lambda program: program.max_workers)
        self.protocol, self.sizes = first.name, sizes
        self._guards = guards(topology)
        try:
            for name in self.targets:
                self.protect(name)
        except (EntityError, TimeoutError) as error:
            self.close()
            raise unreached(f"switch {name}: ", error) from error
        self.slots = min(sizes.slots for _, sizes in programs.values())
        self._udp_port = self.job_program.udp_port
        self._source = protocols.program(self.protocol, twin)

    def describe(self) -> Summary:
        return {"program": f"{self.protocol} over {self.language}", "source": str(self._source), "source_hash": "",
                "values": self.sizes.values, "slots": self.slots, "protocol": self.protocol}

    def host_of(self, pid: int, name: str) -> str:
        names = [host.name for host in self.topology.hosts]
        if name not in names:
            raise ValueError(f"process {pid} says that it is in host {name!r} of {self.topology.name}, and the controller cannot "
                             f"see it: set INA_HOST to one of {', '.join(names[:NAMED])}{', ...' * (len(names) > NAMED)}")
        return name

    def open_port(self, kind: str, job: Job, index: int, host: str, control: Control = LOCAL) -> Plug:
        """Returns the port of the host; ``kind`` does not matter: workers bind a UDP socket to their host's address."""
        return plug_in(self.topology, host, job.addresses[index], self._udp_port)

    def close_port(self, number: int, job: int) -> None:
        """No-op: ports of hosts stay."""

    def open_server_port(self, kind: str, pid: int, name: str) -> tuple[str, Plug]:
        return plug_server_in(self.topology, self.host_of(pid, name), self._udp_port)

    def close_server_port(self, number: int) -> None:
        """No-op: ports of hosts stay."""

    def protect(self, switch: str) -> None:
        """Writes the guard entries of a switch, unless its program has no guard table (one that forwards nothing)."""
        if has_guard(self.targets[switch].p4info):
            agree(self.targets[switch], GUARD, [update.entity for update in self._guards[switch]])

    @property
    def links(self) -> None:
        """None: P4Runtime says nothing of ports."""
        return None

    def reroute(self, down: Collection[str]) -> None:
        """No-op: these switches' layer 2 is not the controller's."""

    def counters(self) -> dict[str, Any]:
        """Returns ``program``: sums over the switches that answer; ``switches``: by name, ``program`` of each, or the ``error``
        of one that does not answer."""
        program: dict[str, list[list[int]]] = {}
        switches: dict[str, dict[str, Any]] = {}
        for name, target in self.targets.items():
            try:
                switches[name] = {"program": _counter_cells(target)}
            except (EntityError, TimeoutError) as error:
                switches[name] = {"program": {}, "error": str(error)}
            for counter, cells in switches[name]["program"].items():
                sums = program.get(counter, [[0, 0]] * len(cells))
                program[counter] = [[a + c, b + d] for (a, b), (c, d) in zip(sums, cells, strict=True)]
        return {"program": program, "ports": {}, "switches": switches}

    def close(self) -> None:
        for target in self.targets.values():
            target.close()


def _job_program_of(name: str, target: Reconnecting[Any]) -> tuple[JobProgram, Sizes]:
    """Returns JobProgram and sizes of a switch's program. Raises ValueError with its name, and what connecting raises."""
    try:
        p4info = target.p4info
    except (EntityError, TimeoutError) as error:
        raise unreached(f"switch {name}: ", error) from error
    place = Path(f"{target.address} ({name})")
    program, sizes = job_program_of(place, p4info)
    if program is PUBLISHED:
        raise ValueError(f"{place}: {PUBLISHED.only_local}")
    return program, sizes


def _counter_cells(target: Reconnecting[Any]) -> dict[str, list[list[int]]]:
    """Returns cells of the program's counters, direct ones excepted."""
    return {counter.name: [[c.packets, c.bytes] for c in target.read([CounterEntry(counter.name)])]
            for counter in target.p4info.counters.values() if counter.size}


def remote_target(address: str, device_id: int, access: Access | None = None, timeout: float = CONNECTED,
                  election_id: int = ELECTION_ID) -> Reconnecting[Connection]:
    """Returns a switch over P4Runtime."""
    from ina.p4.p4runtime.remote_switch import RemoteSwitch  # an extra's packages

    return Reconnecting(address, partial(RemoteSwitch, address, device_id, election_id, timeout=timeout, access=access), timeout)


def over_p4runtime(topology: Topology, addresses: dict[str, str], access: Access | None = None,
                   packet_lifetime: float = PACKET_LIFETIME, timeout: float = CONNECTED,
                   election_id: int = ELECTION_ID) -> SwitchesElsewhere:
    """Returns the switches at ``addresses``, by name. Device ids are the switches' numbers, or 1 if there is one switch only."""
    numbers = {switch.name: switch.number for switch in topology.switches}
    targets = {name: remote_target(address, numbers.get(name, 1) if len(addresses) > 1 else 1, access, timeout, election_id)
               for name, address in addresses.items()}
    return SwitchesElsewhere(topology, targets, "P4Runtime", packet_lifetime=packet_lifetime)
