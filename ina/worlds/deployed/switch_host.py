"""The controller of deployed switches: jobs of the hosts that an experiment's file names, at their ports and addresses.

ina deploy wedge.toml --at switch:50052 --insecure     # ports and forwarding, once
ina tofino controller wedge.toml --at switch:50052 --insecure --name tcp:10.0.0.1:5588 --state jobs.json
INA_SWITCH=tcp:10.0.0.1:5588 INA_HOST=server2 torchrun ... train.py
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from ina.aggregation.controller.job_incarnations import PACKET_LIFETIME
from ina.p4.bfrt.remote_switch import BfRuntimeTarget
from ina.p4.rpc.connections import CONNECTED, Access
from ina.p4.runtime.entity_error import EntityError
from ina.worlds.deployed.deployment_file import Deployment
from ina.worlds.deployed.remote import Reconnecting, SwitchesElsewhere, unreached

# Counters of a port in $PORT_STAT, by direction: packets and bytes.
WAYS = {"received": ("$FramesReceivedOK", "$OctetsReceived"), "sent": ("$FramesTransmittedOK", "$OctetsTransmittedTotal")}
ERRORS = "$FrameswithanyError", "$FramesTransmittedwithError"


class DeployedHost(SwitchesElsewhere):
    """The switches of `d`, at `addresses` by name. Raises NoAnswer; ValueError: a program that no controller knows; and
    what connecting raises."""

    def __init__(self, d: Deployment, addresses: Mapping[str, str], device_id: int = 0, access: Access | None = None,
                 packet_lifetime: float = PACKET_LIFETIME, timeout: float = CONNECTED):
        connections = {s.name: partial(BfRuntimeTarget, addresses[s.name], device_id, s.p4_name, timeout=timeout, access=access)
                       for s in d.switches}
        self.drivers = switches = {name: Reconnecting(addresses[name], connect, timeout)
                                   for name, connect in connections.items()}

        def dev_port(switch: str, port: str) -> int:
            try:
                with switches[switch].connected() as target:
                    return target.dev_port(port)
            except (EntityError, TimeoutError) as error:
                raise unreached(f"switch {switch}: " if d.several else "", error) from error

        try:
            super().__init__(d.topology(dev_port), switches, "BFRuntime", "tofino", packet_lifetime)
        except BaseException:
            for switch in switches.values():
                switch.close()
            raise

    def counters(self) -> dict[str, Any]:
        """Adds `links` to SwitchesElsewhere's counters: by host or by both switches' names, from the ports' own counters (`up`:
        from the host or the first switch); without those of switches that do not answer."""
        statistics: dict[str, dict[int, dict[str, int]]] = {}
        for name, switch in self.drivers.items():
            with suppress(EntityError, TimeoutError), switch.connected() as target:
                statistics[name] = target.statistics()
        links = {}
        for link, name, ends in zip(self.topology.links, self.topology.link_names(), self.topology.ends, strict=True):
            first, second = (statistics.get(end.node, {}).get(end.port) for end in ends)  # hosts have none
            counts, ways = (second, ("received", "sent")) if second is not None else (first, ("sent", "received"))
            if counts is not None:
                links[name] = {"rate": link.rate}
                for side, way in zip(("up", "down"), ways, strict=True):
                    links[name] |= {f"{side}_{unit}": counts.get(key, 0)
                                    for unit, key in zip(("packets", "bytes"), WAYS[way], strict=True)}
                links[name]["drops"] = sum(end.get("$FramesDroppedBufferFull", 0) for end in (first, second) if end)
                links[name]["errors"] = sum(end.get(key, 0) for end in (first, second) if end for key in ERRORS)
        return super().counters() | {"links": links}
