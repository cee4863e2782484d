"""Layer 2 of a switch program (p4/include/forwarding.p4).

    l2      (destination MAC)              -> forward(port) for each host, flood(group) for broadcasts
    guard   (ingress port)                 -> trust() for ports of other switches; by default check()
    host    (ingress port, MAC, source)    -> is_here(), twice for each host: with its IPv4 address and with none
"""

from __future__ import annotations

from collections.abc import Sequence

from ina.p4.runtime.entities import Entity, MulticastGroupEntry, Replica, TableEntry, Update, delete, insert, modify
from ina.p4.runtime.p4info import P4Info
from ina.topology.topology import Topology

BROADCAST = "ff:ff:ff:ff:ff:ff"
FLOOD_GROUP = 1000  # jobs have the groups 1 to 256
GUARD = ("guard", "host")  # tables


def forwarding(hosts: dict[str, int], flood_ports: Sequence[int] = ()) -> list[Update]:
    """Returns entries that forward to hosts by MAC address (``hosts``: address -> port), and flood broadcasts (ARP, ...).

    ``flood_ports``: those that lead to other nodes without a loop; none: broadcasts are dropped.
    """
    entries = [TableEntry("l2", {"hdr.ethernet.dst_addr": mac}, "forward", {"port": port}) for mac, port in hosts.items()]
    if not flood_ports:
        return insert(*entries)
    flood = TableEntry("l2", {"hdr.ethernet.dst_addr": BROADCAST}, "flood", {"group": FLOOD_GROUP})
    group = MulticastGroupEntry(FLOOD_GROUP, tuple(Replica(port, 0) for port in flood_ports))
    return insert(group, flood, *entries)


def changed(before: Sequence[Update], after: Sequence[Update]) -> list[Update]:
    """Returns what makes a switch with the entries of ``before`` have those of ``after``, both from ``forwarding``."""
    old, new = ({_key(update.entity): update.entity for update in updates} for updates in (before, after))
    other = [entity for key, entity in new.items() if key in old and old[key] != entity]
    return [*insert(*(entity for key, entity in new.items() if key not in old)), *modify(*other),
            *delete(*reversed([entity for key, entity in old.items() if key not in new]))]


def _key(entity: Entity) -> object:
    if isinstance(entity, MulticastGroupEntry):
        return entity.group_id
    assert isinstance(entity, TableEntry)
    return tuple(entity.match.values())


def guards(topology: Topology) -> dict[str, list[Update]]:
    """Returns by switch the entries that make it forward from its hosts only frames with their own source addresses, from other
    switches all frames, and none from ports that are not in the topology."""
    trusted: dict[str, list[TableEntry]] = {switch.name: [] for switch in topology.switches}
    hosts: dict[str, list[TableEntry]] = {switch.name: [] for switch in topology.switches}
    for ends in topology.ends:
        for near, far in (ends, ends[::-1]):
            if topology.is_host(near.node):
                continue
            port, node = {"standard.ingress_port": near.port}, topology.by_name[far.node]
            if not node.is_host:
                trusted[near.node].append(TableEntry("guard", port, "trust"))
                continue
            hosts[near.node] += [TableEntry("host", {**port, "hdr.ethernet.src_addr": node.mac, "source": source}, "is_here")
                                 for source in (node.ip, 0)]
    check = TableEntry("guard", {}, "check", is_default=True)
    return {name: [*insert(*trusted[name], *hosts[name]), *modify(check)] for name in trusted}


def has_guard(p4info: P4Info) -> bool:
    """True if the program includes forwarding.p4."""
    return any(table.name.endswith("forwarding.guard") for table in p4info.tables.values())
