"""Layer 2 of a switch program (p4/include/forwarding.p4): one entry for each host, and one for broadcasts."""

from __future__ import annotations

from collections.abc import Sequence

from ina.switch.entities import MulticastGroupEntry, Replica, TableEntry, Update, insert

BROADCAST = "ff:ff:ff:ff:ff:ff"
FLOOD_GROUP = 1000  # jobs have the groups 1 to 256


def forwarding(hosts: dict[str, int], flood_ports: Sequence[int] = ()) -> list[Update]:
    """Entries that forward to hosts by MAC address (``hosts``: address -> port), and flood broadcasts (ARP, ...).

    ``flood_ports``: those that lead to other nodes without a circle; none: broadcasts are dropped.
    """
    entries = [TableEntry("l2", {"hdr.ethernet.dst_addr": mac}, "forward", {"port": port}) for mac, port in hosts.items()]
    if not flood_ports:
        return insert(*entries)
    flood = TableEntry("l2", {"hdr.ethernet.dst_addr": BROADCAST}, "flood", {"group": FLOOD_GROUP})
    group = MulticastGroupEntry(FLOOD_GROUP, tuple(Replica(port, 0) for port in flood_ports))
    return insert(group, flood, *entries)
