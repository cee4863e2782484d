"""A switch behind BFRuntime, with the same interface as the embedded one.

    with BfRuntimeTarget("switch:50052") as target:
        target.write(insert(TableEntry(...), MulticastGroupEntry(1, (Replica(132, 1), Replica(140, 2)))))

Some entities are several rows, or rows of Tofino's own tables. A multicast group of P4Runtime is a tree of the replication
engine: one node for each replication id, with all ports that have it. The number of node r of group g is g << 16 | r, so no map
is needed. A clone session with one replica is a mirror session; a row of a value set is a member.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ina.p4.bfrt.client import Client, WriteFailed
from ina.p4.bfrt.entities import K, Kind, Reader, kind, kind_of, no_table, table_of, value_set_rows
from ina.p4.bfrt.info import Info, own_name, p4info_of
from ina.p4.bfrt.ports import PortConfig
from ina.p4.bfrt.rows import Change, Row
from ina.p4.rpc.connections import Access
from ina.p4.runtime import (
    CloneSessionEntry,
    Closing,
    E,
    EntityError,
    MulticastGroupEntry,
    Replica,
    SwitchTarget,
    Update,
    ValueSetEntry,
)
from ina.p4.runtime.entities import checked

NODE, MGID, MIRROR = "$pre.node", "$pre.mgid", "$mirror.cfg"
WHOLE = 16384  # bytes: longer than any frame


class Several(Kind[K]):
    """Entities that are not one row."""

    def row(self, entity: K, info: Info) -> Row:
        raise no_table(entity)


@kind_of(ValueSetEntry)
class ValueSets(Several[ValueSetEntry]):
    def changes(self, client: Reader, type_: str, entity: ValueSetEntry) -> list[Change]:
        table = table_of(client.info, entity.value_set, "ParserValueSet").name
        members, current = value_set_rows(entity, client.info), client.read([Row(table)])
        keys = [dict(r.key) for r in current]
        return [*(("DELETE", Row(table, r.key)) for r in current if dict(r.key) not in [dict(w.key) for w in members]),
                *(("INSERT", w) for w in members if dict(w.key) not in keys)]

    def read(self, client: Reader, pattern: ValueSetEntry) -> list[ValueSetEntry]:
        table = table_of(client.info, pattern.value_set, "ParserValueSet")
        return [ValueSetEntry(own_name(table.name), tuple(dict(r.key) for r in client.read([Row(table.name)])))]


@kind_of(MulticastGroupEntry)
class MulticastGroups(Several[MulticastGroupEntry]):
    def changes(self, client: Reader, type_: str, entity: MulticastGroupEntry) -> list[Change]:
        number = entity.group_id
        if not 1 <= number <= 0xFFFF:
            raise EntityError(f"multicast group {number}: expected 1..65535")
        nodes = {node_id(number, rid): (rid, [r.port for r in entity.replicas if r.rid == rid])
                 for rid in dict.fromkeys(r.rid for r in entity.replicas)}
        key = {"$MGID": number}
        links = {"$MULTICAST_NODE_ID": list(nodes), "$MULTICAST_NODE_L1_XID_VALID": [False] * len(nodes),
                  "$MULTICAST_NODE_L1_XID": [0] * len(nodes)}
        rows = {
            n: Row(NODE, {"$MULTICAST_NODE_ID": n}, {"$MULTICAST_RID": rid, "$DEV_PORT": ports})
            for n, (rid, ports) in nodes.items()
        }
        if type_ == "INSERT":
            return [*(("INSERT", row) for row in rows.values()), ("INSERT", Row(MGID, key, links))]
        (tree,) = client.read([Row(MGID, key)])
        before = tree.data.get("$MULTICAST_NODE_ID") or []
        foreign = [n for n in before if n >> 16 != number]
        if foreign:
            raise EntityError(
                f"multicast group {number} has node {foreign[0]}, which another controller made: it is left alone",
                "PERMISSION_DENIED",
            )
        if type_ == "DELETE":
            return [("DELETE", Row(MGID, key)), *(("DELETE", Row(NODE, {"$MULTICAST_NODE_ID": n})) for n in before)]
        return [*(("MODIFY" if n in before else "INSERT", row) for n, row in rows.items()), ("MODIFY", Row(MGID, key, links)),
                *(("DELETE", Row(NODE, {"$MULTICAST_NODE_ID": n})) for n in before if n not in nodes)]

    def read(self, client: Reader, pattern: MulticastGroupEntry) -> list[MulticastGroupEntry]:
        trees = client.matching(Row(MGID, {"$MGID": pattern.group_id} if pattern.group_id else {}))
        nodes = {r.key["$MULTICAST_NODE_ID"]: r.data for r in client.read([Row(NODE)])} if trees else {}
        return [
            MulticastGroupEntry(tree.key["$MGID"], tuple(
                Replica(port, nodes[n]["$MULTICAST_RID"])
                for n in tree.data.get("$MULTICAST_NODE_ID") or () for port in nodes[n].get("$DEV_PORT") or ()
            )) for tree in trees
        ]


def node_id(group: int, rid: int) -> int:
    return group << 16 | rid


@kind_of(CloneSessionEntry)
class CloneSessions(Several[CloneSessionEntry]):
    def changes(self, client: Reader, type_: str, entity: CloneSessionEntry) -> list[Change]:
        return [(type_, Row(MIRROR, {"$sid": entity.session_id}) if type_ == "DELETE" else _mirror(entity))]

    def read(self, client: Reader, pattern: CloneSessionEntry) -> list[CloneSessionEntry]:
        return [_session(r) for r in client.matching(Row(MIRROR, {"$sid": pattern.session_id} if pattern.session_id else {}))]


def _mirror(e: CloneSessionEntry) -> Row:
    if len(e.replicas) != 1:
        raise EntityError(f"clone session {e.session_id}: {len(e.replicas)} replicas: a mirror session has one port; "
                          "for several, mirror to a multicast group")
    (replica,) = e.replicas
    data = {"$direction": "BOTH", "$ucast_egress_port": replica.port, "$ucast_egress_port_valid": True, "$session_enable": True,
            "$mcast_rid": replica.rid, "$max_pkt_len": e.packet_length or WHOLE}
    return Row(MIRROR, {"$sid": e.session_id}, data, "$normal")


def _session(row: Row) -> CloneSessionEntry:
    d = row.data
    replicas = (Replica(d["$ucast_egress_port"], d.get("$mcast_rid", 0)),) if d.get("$ucast_egress_port_valid") else ()
    length = d.get("$max_pkt_len", 0)
    return CloneSessionEntry(row.key["$sid"], replicas, 0 if length >= WHOLE else length)


PORT, PANEL, STATISTICS = "$PORT", "$PORT_HDL_INFO", "$PORT_STAT"


class BfRuntimeTarget(SwitchTarget, Closing):
    """The program `program` (default: the first) of device `device_id` at `address`. Raises as Client does."""

    def __init__(self, address: str, device_id: int = 0, program: str = "", *, client_id: int | None = None,
                 timeout: float = 30.0, access: Access | None = None):
        self.client = Client(address, client_id, device_id, program, timeout=timeout, access=access)
        self.address = address
        self.p4info = p4info_of(self.client.info)  # implied by the switch's bfrt.json, with the program's names

    def close(self) -> None:
        self.client.close()

    @property
    def alive(self) -> bool:
        return self.client.alive

    # ---- entities

    def write(self, updates: Iterable[Update], timeout: float = 60.0) -> None:
        changes: list[Change] = []
        owners: list[int] = []  # of each change, the index of its update
        updates = list(updates)
        for i, update in enumerate(updates):
            try:
                rows = self.changes(update)
            except EntityError as error:
                raise EntityError(f"update {i}: {error}", error.code, i) from None
            changes += rows
            owners += [i] * len(rows)
        try:
            self.client.write(changes)
        except WriteFailed as failed:
            i = owners[min(failed.failed)]
            raise EntityError(f"update {i}: {failed}", failed.code, i) from None

    def changes(self, update: Update) -> list[Change]:
        """The rows of an update, in the order in which to write them. May read current entries. Raises EntityError."""
        if update.type not in ("INSERT", "MODIFY", "DELETE"):
            raise EntityError(f"{update.type!r}: expected INSERT, MODIFY or DELETE")
        return kind(update.entity).changes(self.client, update.type, checked(update.entity))

    def read(self, entities: Sequence[E], timeout: float = 60.0) -> list[E]:
        return [entity for pattern in entities for entity in kind(pattern).read(self.client, pattern)]

    # ---- ports

    def dev_port(self, name: str) -> int:
        """The device port of "1/0" on the front panel, by the switch's own map. Raises EntityError."""
        connection, slash, channel = name.partition("/")
        if not slash:
            return int(connection)
        try:
            (row,) = self.client.read([Row(PANEL, {"$CONN_ID": int(connection), "$CHNL_ID": int(channel)})], hardware=False)
        except EntityError as error:
            raise EntityError(f"port {name}: this switch has no such port on its front panel ({error})", error.code) from None
        return int(row.data["$DEV_PORT"])

    def ports(self) -> dict[int, dict[str, Any]]:
        """Configured ports, by device port: the fields of $PORT."""
        return {r.key["$DEV_PORT"]: dict(r.data) for r in self.client.matching(Row(PORT))}

    def add_port(self, port: PortConfig) -> int:
        """Adds a port, or changes its configuration; returns its device port. Raises EntityError with the port's name."""
        number = self.dev_port(port.name)
        try:
            self.client.write([("MODIFY" if number in self.ports() else "INSERT", port.row(number))])
        except EntityError as error:
            raise EntityError(f"port {port.name}: {error}", error.code) from None
        return number

    def remove_port(self, name: str) -> None:
        self.client.write([("DELETE", Row(PORT, {"$DEV_PORT": self.dev_port(name)}))])

    def statistics(self) -> dict[int, dict[str, int]]:
        """Counters of all ports, by device port: the fields of $PORT_STAT, as the MACs count them."""
        return {r.key["$DEV_PORT"]: dict(r.data) for r in self.client.matching(Row(STATISTICS))}
