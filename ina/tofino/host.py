"""The controller of a deployed switch: jobs of the hosts that an experiment's file names, at their ports and addresses.

ina deploy wedge.toml --at switch:50052                        # ports and forwarding, once
ina tofino controller wedge.toml --at switch:50052 --name tcp:10.0.0.1:5588 --state jobs.json
INA_SWITCH=tcp:10.0.0.1:5588 INA_HOST=server2 torchrun ... train.py
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ina.bfrt.target import BfRuntimeTarget
from ina.control.controller import switch_address
from ina.control.embedded import protocol_of
from ina.control.ports import Plug
from ina.control.programs import program_named
from ina.control.remote import Reconnecting
from ina.switch.entities import CounterEntry
from ina.switch.p4info import EntityError
from ina.tofino.experiment import Deployment

CLIENT = 7  # BFRuntime's client id: `ina deploy` and others, who are 0, can come beside it


class BfrtSwitch(Reconnecting):
    """Over BFRuntime."""

    def __init__(self, address: str, device_id: int, program: str):
        super().__init__(address)
        self.device_id, self.program = device_id, program

    def _connect(self) -> BfRuntimeTarget:
        return BfRuntimeTarget(self.address, self.device_id, self.program, client_id=CLIENT)


class DeployedHost:
    """One switch, driven over BFRuntime, with the hosts of `d`. Raises what connecting raises, and ValueError: a program that no
    controller knows."""

    topology = None
    outlives = True

    def __init__(self, d: Deployment, address: str, device_id: int = 0):
        self.switch = BfrtSwitch(address, device_id, d.p4_name)
        self.protocol, self.sizes = protocol_of(Path(f"{address} ({d.p4_name})"), self.switch.p4info)
        with self.switch.connected() as target:
            self._ports = {h.name: target.dev_port(h.port) for h in d.hosts}
        self._hosts = {h.name: h for h in d.hosts}
        self._address = switch_address("s1", program_named(self.protocol).udp_port)
        self.targets = {"s1": self.switch}
        self.slots = self.sizes.slots

    def describe(self) -> dict:
        return {
            "program": f"{self.protocol} over BFRuntime",
            "source_hash": "",
            "values": self.sizes.values,
            "slots": self.slots,
            "protocol": self.protocol,
        }

    def host_of(self, pid: int, said: str) -> str:
        if said not in self._hosts:
            raise ValueError(f"a worker says that it is in host {said!r}: set INA_HOST to one of {', '.join(self._hosts)}")
        return said

    def open_port(self, kind: str, job: int, index: int, slots: int, host: str) -> Plug:
        """`kind` is of no matter here: workers bind a UDP socket to their host's address."""
        own = self._hosts[host].address(job)
        offer = {"kind": "udp", "bind": [own.ip, own.port], "peer": [self._address.ip, self._address.port]}
        return Plug(self._ports[host], own, self._address, offer, [])

    def close_port(self, number: int, job: int) -> None:
        """Ports of hosts stay."""

    def open_server_port(self, kind: str, pid: int) -> tuple[str, Plug]:
        raise ValueError("a parameter server beyond the controller's own machine is not served")

    def close_server_port(self, number: int) -> None:
        """There is none."""

    def counters(self) -> dict:
        program: dict[str, list] = {}
        with suppress(EntityError, TimeoutError):
            for counter in self.switch.p4info.counters.values():
                if counter.size:  # a direct one has none
                    program[counter.name] = [[c.packets, c.bytes] for c in self.switch.read([CounterEntry(counter.name)])]
        return {"program": program, "ports": {}}

    def close(self) -> None:
        self.switch.close()
