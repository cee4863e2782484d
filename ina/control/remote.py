"""Switches that run elsewhere, over P4Runtime: they outlive the controller, and it outlives them.

A switch is started with its program (``ina switch run p4/switchml.p4 ...``); the controller brings it none. Workers bind UDP
sockets to their hosts' addresses, and say which host they are in (INA_HOST): who may join, the job's token says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ina.control.embedded import protocol_of
from ina.control.host import plug_in
from ina.control.ports import Plug
from ina.control.programs import program_named
from ina.switch.entities import CounterEntry, Entity, Update
from ina.switch.p4info import EntityError, P4Info
from ina.transport import worker_address
from topologies.model import Topology, TopologyError

CONNECTED = 2.0  # seconds to become a switch's primary controller
FINAL = ("INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "RESOURCE_EXHAUSTED", "OUT_OF_RANGE", "UNIMPLEMENTED")  # it works


class Reconnecting(ABC):
    """A switch at ``address``. Connects when it is needed, and again when the connection is lost."""

    def __init__(self, address: str):
        self.address = address
        self._remote: Any = None

    @abstractmethod
    def _connect(self) -> Any:
        """A new connection: a SwitchTarget with close(). Raises what connecting raises."""

    @property
    def p4info(self) -> P4Info:
        with self.connected() as remote:
            return remote.p4info

    def write(self, updates: Iterable[Update]) -> None:
        with self.connected() as remote:
            remote.write(updates)

    def read(self, entities: Sequence[Entity]) -> list[Entity]:
        with self.connected() as remote:
            return remote.read(entities)

    def close(self) -> None:
        remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()

    @contextmanager
    def connected(self) -> Iterator[Any]:
        if self._remote is None:
            self._remote = self._connect()
        try:
            yield self._remote
        except EntityError as error:
            if error.code not in FINAL:
                self.close()
            raise
        except TimeoutError:
            self.close()
            raise


class RemoteTarget(Reconnecting):
    """Over P4Runtime."""

    def __init__(self, name: str, address: str, device_id: int):
        super().__init__(address)
        self.name, self.device_id = name, device_id

    def _connect(self) -> Any:
        from ina.p4runtime.target import RemoteSwitch  # an extra's packages

        return RemoteSwitch(self.address, self.device_id, timeout=CONNECTED)


class RemoteHost:
    """The switches of ``topology`` at P4Runtime's ``addresses`` (by name). Device ids are the switches' numbers, or 1 if there
    is one switch only. Raises TopologyError, ValueError, and what connecting raises."""

    def __init__(self, topology: Topology, addresses: dict[str, str]):
        names = [switch.name for switch in topology.switches]
        for name in addresses:
            if name not in names:
                raise TopologyError(f"{topology.name} has no switch {name!r}; it has: {', '.join(names)}")
        self.topology = topology
        self.outlives = True
        self.targets = {name: RemoteTarget(name, address, int(name[1:]) if len(addresses) > 1 else 1)
                        for name, address in addresses.items()}  # fmt: skip
        found = {}
        for name, target in self.targets.items():
            found[name] = protocol_of(Path(f"{target.address} ({name})"), target.p4info)
        self.protocol, self.sizes = found[min(found)]
        for name, (protocol, sizes) in found.items():
            if (protocol, sizes.values) != (self.protocol, self.sizes.values):
                raise ValueError(f"switch {name} speaks {protocol} with {sizes.values} values per packet, but {min(found)} "
                                 f"{self.protocol} with {self.sizes.values}: all switches of a network run one program")
        self.slots = min(sizes.slots for _, sizes in found.values())
        self._udp_port = program_named(self.protocol).udp_port

    def describe(self) -> dict:
        return {"program": f"{self.protocol} over P4Runtime", "source_hash": "", "values": self.sizes.values, "slots": self.slots,
                "protocol": self.protocol}

    def host_of(self, pid: int, said: str) -> str:
        if said not in {host.name for host in self.topology.hosts}:
            raise ValueError(f"process {pid} says that it is in host {said!r} of {self.topology.name}, and the controller cannot "
                             "see it: set INA_HOST to one of the hosts there")
        return said

    def open_port(self, kind: str, job: int, index: int, slots: int, host: str) -> Plug:
        """``kind`` is of no matter here."""
        return plug_in(self.topology, host, worker_address(job, 0).port, self._udp_port)

    def close_port(self, number: int, job: int) -> None:
        """Ports of hosts stay."""

    def open_server_port(self, kind: str, pid: int) -> tuple[str, Plug]:
        raise ValueError("a parameter server beyond the controller's own machine is not served")

    def close_server_port(self, number: int) -> None:
        """There is none."""

    def counters(self) -> dict:
        """``program``: sums over the switches that answer."""
        program: dict[str, list] = {}
        for target in self.targets.values():
            with suppress(EntityError, TimeoutError):
                for counter in target.p4info.counters.values():
                    if not counter.size:  # a direct one
                        continue
                    cells = [[c.packets, c.bytes] for c in target.read([CounterEntry(counter.name)])]
                    known = program.get(counter.name, [[0, 0]] * len(cells))
                    program[counter.name] = [[a + c, b + d] for (a, b), (c, d) in zip(known, cells, strict=True)]
        return {"program": program, "ports": {}}

    def close(self) -> None:
        for target in self.targets.values():
            target.close()
