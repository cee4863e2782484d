"""Places of ranks: which of them share a machine, and by which address those of other machines reach this one."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ina.aggregation.control_socket.channel import elsewhere
from ina.backend.settings import Settings
from ina.net.interfaces import address_of, address_towards

if TYPE_CHECKING:
    import torch.distributed as dist


@dataclass(frozen=True)
class Place:
    """Place of a rank: abstract sockets reach as far as one network name space of one running kernel."""

    host: str
    kernel: str
    network: int

    def is_with(self, other: Place) -> bool:
        return (self.kernel, self.network) == (other.kernel, other.network)

    @classmethod
    def here(cls) -> Place:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return cls(socket.gethostname(), file.read().strip(), os.stat("/proc/self/ns/net").st_ino)


def reaches(name: str, places: Sequence[Place]) -> bool:
    """Returns True if processes at ``places`` reach the switch ``name``. A path is the same in every network name space of a
    machine."""
    return elsewhere(name) or all(
        place.kernel == places[0].kernel and (place.network == places[0].network or "/" in name) for place in places)


def address_elsewhere(host: str) -> str:
    """Returns the IPv4 address from which this machine sends to ``host``; "": that is here, or nowhere."""
    try:
        ip = address_towards(host) if host else ""
    except OSError:
        return ""
    return ip if ip and not ipaddress.ip_address(ip).is_loopback else ""


def own_address(settings: Settings, host: str, others: Sequence[str] = ()) -> str:
    """Returns the address by which ranks on other machines reach this one: that which leads to the store's ``host``, to what this
    machine is called, or to one of the ``others``, addresses of ranks elsewhere. Raises RuntimeError."""
    if settings.listen:
        try:
            return address_of(settings.listen)
        except (OSError, ValueError) as error:
            raise RuntimeError(f"ina: INA_LISTEN={settings.listen}: {getattr(error, 'strerror', None) or error}") from None
    tried = {}
    for name in filter(None, (host, os.environ.get("MASTER_ADDR"), socket.gethostname(), *others)):
        try:
            ip = address_towards(name)
        except OSError as error:
            tried[name] = error.strerror
            continue
        if not ipaddress.ip_address(ip).is_loopback:
            return ip
        tried[name] = "loopback"
    raise RuntimeError("ina: the ranks are on several machines, and rank 0 does not know by which of its addresses they reach it "
                       f"({', '.join(f'{name}: {reason}' for name, reason in tried.items())}): set INA_LISTEN to its network "
                       "interface or address there, or INA_SWITCH=HOST:PORT to a switch process that runs already "
                       "(docs/guide/servers.md)")


def host_of(store: dist.Store) -> str:
    """Returns the host of a TCPStore; "": it is another kind of store."""
    while (under := getattr(store, "underlying_store", None)) is not None:
        store = under
    return str(getattr(store, "host", ""))
