"""UDP: over loopback between sockets that the switch process makes, or through a network between addresses that it names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ina.aggregation.port_kinds import End, Opened, PortKind
from ina.net.ports import Port, adopt_udp, open_udp, udp_pair


class Udp(PortKind):
    name = "udp"
    help = "udp (loopback)"
    rto_min = 20e-3

    def offer(self, bind: tuple[str, int], peer: tuple[str, int]) -> dict[str, Any]:
        """Returns the offer of a port through a network: the worker's socket has address ``bind``, the switch's ``peer``."""
        return {"kind": self.name, "bind": [*bind], "peer": [*peer]}

    def open_switch(self, end: End) -> Opened:
        inside, outside = udp_pair()
        try:
            return Opened(adopt_udp(inside, end.worker, end.switch, end.max_frame, end.frames), {"kind": self.name}, [outside])
        except OSError:
            os.close(outside)
            raise
        finally:
            os.close(inside)

    def open_offered(self, offer: Mapping[str, Any], fds: Sequence[int], end: End) -> Port:
        if fds:
            return adopt_udp(fds[0], end.switch, end.worker, end.max_frame, end.frames)
        return open_udp(tuple(offer["bind"]), tuple(offer["peer"]), source=end.switch, destination=end.worker,
                        max_frame=end.max_frame, frames=end.frames)


KIND = Udp()
