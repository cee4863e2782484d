"""Running switches that workers can be plugged into, as the controller's process has them: embedded.py, network.py, ..."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ina.aggregation.controller.transaction import WriteTarget
from ina.aggregation.controller.worker_ports import Plug
from ina.net.ports import Address
from ina.topology.topology import Topology


def plug_in(topology: Topology, host: str, port: int, switch_port: int) -> Plug:
    """A process in ``host`` that sends from its UDP ``port`` to its switch's ``switch_port``."""
    node, hop = topology.by_name[host], topology.hops[host][0]
    end, switch = next(end for end in topology.ends[hop.link] if end.node == hop.node), topology.by_name[hop.node]
    offer = {"kind": "udp", "bind": [node.ip, port], "peer": [switch.ip, switch_port]}
    return Plug(end.port, Address(node.mac, node.ip, port), Address(switch.mac, switch.ip, switch_port), offer, [])


class SwitchHost(Protocol):
    """``targets``: the switches by name. ``topology``: of a network whose hosts workers are in; None: one switch, and ports are
    made for workers wherever they are."""

    @property
    def targets(self) -> Mapping[str, WriteTarget]: ...

    @property
    def topology(self) -> Topology | None: ...

    def describe(self) -> dict:
        """``program``, ``source_hash``, ``protocol``, ``values`` (per packet), ``slots`` (of each switch's pool)."""

    @property
    def outlives(self) -> bool:
        """The controller's process: what switches hold is there when that is started anew."""

    @property
    def packet_lifetime(self) -> float:
        """Seconds after which no packet that was there before this process is under way any more."""

    def host_of(self, pid: int, said: str) -> str:
        """The host that process ``pid`` is in; "": there are no hosts. ``said``: by the process, for who cannot see it.

        Raises ValueError: it is in none.
        """

    def open_port(self, kind: str, job: int, index: int, slots: int, host: str) -> Plug:
        """A port for worker ``index`` of job number ``job`` with a window of ``slots``, which is in ``host`` (``host_of``).

        Raises ValueError for an unknown kind or place, OSError.
        """

    def close_port(self, number: int, job: int) -> None:
        """Worker of job number ``job`` at that port is gone."""

    def open_server_port(self, kind: str, pid: int, said: str) -> tuple[str, Plug]:
        """A port for the parameter server, which is process ``pid`` in host ``said`` (``host_of``), and the name of its switch.
        Raises as ``open_port``."""

    def close_server_port(self, number: int) -> None:
        """The parameter server is gone."""

    def protect(self, switch: str) -> None:
        """Write ``switch``'s guard entries (forwarding.py) where they are missing or differ; for hosts with ``outlives``.
        Raises what its target raises."""

    def counters(self) -> dict:
        """``program``: cells (packets, bytes) by counter; ``ports``; further keys are the host's own."""

    def close(self) -> None: ...
