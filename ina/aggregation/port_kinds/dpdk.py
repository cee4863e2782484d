"""A device of DPDK's that each worker brings; it leads to a port of an ``ina-dpdk-switch``.

ina/net/dpdk.py is imported when a device is used: most processes have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ina.aggregation.port_kinds import LOCAL, Control, End, Opened, PortKind
from ina.net.ports import Port


class Dpdk(PortKind):
    name = "dpdk"
    help = ("dpdk:DEVICE, dpdk@PORT:DEVICE: a device of DPDK's that leads to port PORT of an ina-dpdk-switch; without "
            "PORT, to the port whose number is the rank, which {rank} in DEVICE stands for, too")
    own_device = places = True
    needs = "this needs a switch on DPDK: start ina-dpdk-switch with --control SOCKET, and set INA_SWITCH to that socket"
    rto_min = rto_min_network = 20e-3
    spin = 50e-6  # beside threads that compute

    def check(self, setting: str) -> None:
        from ina.net import dpdk

        dpdk.plug(setting, 0)

    def request(self, setting: str, number: int) -> str:
        from ina.net import dpdk

        return f"{self.name}@{dpdk.plug(setting, number).at}"

    def offer(self, options: Mapping[str, int]) -> dict[str, Any]:
        """Returns the offer of a port that the switch has already. ``options``: of the worker's protocol."""
        return {"kind": self.name, "options": dict(options)}

    def open_switch(self, end: End, place: str = "", control: Control = LOCAL) -> Opened:
        raise ValueError("this switch process has no devices of DPDK: start ina-dpdk-switch with --control, and name that with "
                         "INA_SWITCH")

    def open_offered(self, offer: Mapping[str, Any], fds: Sequence[int], end: End) -> Port:
        raise ValueError("the switch process offers a port for the worker's own device of DPDK, but this worker has none")

    def open_own(self, setting: str, number: int, udp_port: int, max_frame: int, arguments: Sequence[str],
                 timeout: float) -> Port:
        from ina.net import dpdk

        return dpdk.job_port(dpdk.plug(setting, number), udp_port, max_frame, arguments, timeout)


KIND = Dpdk()
