"""The address at which the Gloo inside a group listens.

torch has Gloo listen where the machine's own name leads, or at 127.0.0.1 if that is nowhere. On many machines (Debian's installer
writes such an /etc/hosts) the own name stands for 127.0.1.1, where no other machine reaches it. So where ranks are on several
machines, a rank whose own name leads to the loopback takes the address from which it sends to the group's store or, beside the
store, to ranks of other machines. GLOO_SOCKET_IFNAME goes before all of that.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ina.backend.places import Place, host_of
from ina.net.interfaces import source_towards

if TYPE_CHECKING:
    import torch.distributed as dist


@dataclass(frozen=True)
class Report:
    """Report of a rank. ``named``: GLOO_SOCKET_IFNAME is set there; ``own``: IP address that the machine's name stands for, ""
    if others do not reach that; ``towards``: the one from which it sends to the store, where it needs one, ""."""

    host: str
    kernel: str
    network: int
    named: bool
    own: str
    towards: str

    @property
    def place(self) -> Place:
        return Place(self.host, self.kernel, self.network)

    @property
    def address(self) -> str:
        """An address at which other machines reach this rank; "": none is known."""
        return self.own or self.towards

    @classmethod
    def here(cls, store: dist.Store) -> Report:
        place, named = Place.here(), bool(os.environ.get("GLOO_SOCKET_IFNAME"))
        own = "" if named else own_name_address()
        towards = "" if named or own else _towards(filter(None, (host_of(store), os.environ.get("MASTER_ADDR"))))
        return cls(place.host, place.kernel, place.network, named, own, towards)


def choose(store: dist.Store, rank: int, size: int, timeout: timedelta) -> str:
    """Returns the IP address at which this rank's Gloo is to listen; "": torch chooses. To be called by all ranks of a group,
    with a store of its own. Raises RuntimeError on all of them: a rank has no address at which others reach it, or does not come
    within ``timeout``."""
    if size == 1:
        return ""
    own = Report.here(store)
    store.set(f"address/{rank}", json.dumps(asdict(own)))
    keys = [f"address/{each}" for each in range(size)]
    try:
        store.wait(keys, timeout)
    except RuntimeError:  # DistStoreError
        missing = [each for each in range(size) if not store.check([keys[each]])]
        raise RuntimeError(f"ina: ranks {missing} of {size} did not say within {timeout.total_seconds():g} s where their Gloo "
                           "listens") from None
    return address_of(rank, [Report(**json.loads(text)) for text in store.multi_get(keys)])


def address_of(rank: int, reports: Sequence[Report]) -> str:
    """Returns the IP address for a rank, on its machine, by the reports of all ranks; "": torch chooses. Raises RuntimeError, the
    same on all ranks where one knows no address of its own, nor of a rank elsewhere."""
    own = reports[rank]
    if all(each.place.is_with(own.place) for each in reports):
        return ""
    if lost := [each for each, report in enumerate(reports) if not _is_reached(report, reports)]:
        raise RuntimeError(_advice(lost, reports))
    if own.named or own.own:
        return ""
    address = own.towards or _towards(_elsewhere(own, reports))
    if not address:
        raise RuntimeError(_advice([rank], reports))
    return address


def own_name_address() -> str:
    """Returns the IP address at which torch has Gloo listen, the first one of the machine's own name that sockets can have; "":
    that is a loopback address, or there is none."""
    try:
        entries = socket.getaddrinfo(socket.gethostname(), 0, type=socket.SOCK_STREAM)
    except OSError:
        return ""
    for family, _, _, _, address in entries:
        with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
            return "" if _is_local(str(address[0])) else str(address[0])
    return ""


def _is_local(ip: str) -> bool:
    """Returns True if other machines cannot send to an address, or not without a name of their own interface."""
    address = ipaddress.ip_address(ip.partition("%")[0])
    return address.is_loopback or address.is_link_local and address.version == 6


def _towards(hosts: Iterable[str]) -> str:
    """Returns the IP address from which this machine sends to the first of ``hosts`` that is elsewhere; ""."""
    for host in hosts:
        with suppress(OSError):
            if not _is_local(ip := source_towards(host)):
                return ip
    return ""


def _elsewhere(report: Report, reports: Sequence[Report]) -> list[str]:
    """Returns addresses of ranks that are not at the place of ``report``."""
    return [each.address for each in reports if each.address and not each.place.is_with(report.place)]


def _is_reached(report: Report, reports: Sequence[Report]) -> bool:
    return report.named or bool(report.address or _elsewhere(report, reports))


def _advice(ranks: Sequence[int], reports: Sequence[Report]) -> str:
    hosts = ", ".join(sorted({reports[rank].host for rank in ranks}))
    return (f"ina: the ranks are on several machines, and ranks {[*ranks]} ({hosts}) do not know by which of their addresses "
            "others reach their Gloo: the own name of the machine stands for a loopback address or nothing, and no other address "
            "leads to the store (MASTER_ADDR): set GLOO_SOCKET_IFNAME to the network interface there, such as eth0")
