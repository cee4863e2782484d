"""UDP: over loopback between sockets that the switch process makes; to a worker on another machine, between a socket of its own
and one that the switch process makes for it; or through a network between addresses that the switch process names.

To another machine each worker has a socket of its own at the switch's side, too. So any number of workers share a network card,
on either side, and the kernels' routes and neighbour tables, which learn by ARP, lead the frames, through routers, too. Both
sockets have the addresses of the control connection, which is known to reach the other end: a machine may have several. Each
frame has a tag there, since others may send with such an address.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from ina.aggregation.port_kinds import LOCAL, Control, End, Opened, PortKind
from ina.net.ports import TAG, Port, adopt_udp, open_udp, udp_pair


class Udp(PortKind):
    name = "udp"
    help = "udp (loopback, or the network where INA_SWITCH is HOST:PORT, or ranks are on several machines)"
    places = True
    tags = True
    rto_min = 20e-3

    def offer(self, bind: tuple[str, int], peer: tuple[str, int]) -> dict[str, Any]:
        """Returns the offer of a port through a network: the worker's socket has address ``bind``, the switch's ``peer``."""
        return {"kind": self.name, "bind": [*bind], "peer": [*peer]}

    def bring(self, control: socket.socket) -> tuple[str, list[int]]:
        """Returns, over TCP and IPv4, the place of a new socket at the address with which this machine reaches the switch
        process."""
        if control.family != socket.AF_INET:
            return self.name, []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.setblocking(False)
            own.bind((control.getsockname()[0], 0))
            ip, number = own.getsockname()
            return f"{self.name}@{ip}:{number}", [own.detach()]

    def open_switch(self, end: End, place: str = "", control: Control = LOCAL) -> Opened:
        if place:
            return self._open_across(end, place, control)
        if ":" in control.worker:
            raise ValueError("frames travel over IPv4: name the switch process by an IPv4 address")
        inside, outside = udp_pair()
        try:
            return Opened(self._adopt(inside, end.worker, end.switch, end), {"kind": self.name}, [outside])
        except OSError:
            os.close(outside)
            raise
        finally:
            os.close(inside)

    def _open_across(self, end: End, place: str, control: Control) -> Opened:
        address = _address(place)
        if address[0] != control.worker:
            raise ValueError(f"udp@{place}: asked for from {control.worker or 'this machine'}: expected a socket there, whose "
                             "address no gateway translates (NAT)")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.setblocking(False)
            own.bind((control.switch, 0))
            own.connect(address)
            keys = (end.tags.to_switch, end.tags.to_worker) if end.tags else None
            return Opened(self._adopt(own.fileno(), end.worker, end.switch, end, keys),
                          {"kind": self.name, "to": [*own.getsockname()]}, [])

    def open_offered(self, offer: Mapping[str, Any], fds: Sequence[int], end: End) -> Port:
        if "bind" in offer:
            return open_udp(tuple(offer["bind"]), tuple(offer["peer"]), source=end.switch, destination=end.worker,
                            max_frame=end.max_frame, frames=end.frames)
        if not fds:
            raise ValueError("the switch process offers a UDP port that no descriptor came with")
        if "to" in offer:
            with socket.socket(fileno=os.dup(fds[-1])) as own:
                own.connect(tuple(offer["to"]))
        return self._adopt(fds[-1], end.switch, end.worker, end, (end.tags.to_worker, end.tags.to_switch) if end.tags else None)

    @staticmethod
    def _adopt(fd: int, source: Any, destination: Any, end: End, keys: tuple[bytes, bytes] | None = None) -> Port:
        """Opens a port over a socket; ``keys``: of the tags of frames that it receives, and of those that it sends."""
        port = adopt_udp(fd, source, destination, end.max_frame + (TAG if keys else 0), end.frames)
        try:
            return port.with_tags(*keys) if keys else port
        except OSError:
            port.close()
            raise


def _address(place: str) -> tuple[str, int]:
    """Returns the address and port of a place. Raises ValueError."""
    host, _, number = place.rpartition(":")
    if not (number.isascii() and number.isdigit() and len(number) < 6 and 0 < int(number) < 65536):
        raise ValueError(f"udp@{place}: expected udp@ADDRESS:PORT")
    try:
        ip = ipaddress.IPv4Address(host)
    except ValueError:
        raise ValueError(f"udp@{place}: expected an IPv4 address before the port") from None
    if ip.is_multicast or ip.is_unspecified or int(ip) == 0xFFFFFFFF:
        raise ValueError(f"udp@{place}: expected the address of one machine")
    return str(ip), int(number)


KIND = Udp()
