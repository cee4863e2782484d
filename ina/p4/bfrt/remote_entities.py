"""Kinds of entities that a client of BFRuntime writes as several rows, or as rows of Tofino's own tables.

A multicast group of P4Runtime is a tree of the replication engine: one node for each replication id, with all ports that have
it. The number of node r of group g is g << 16 | r, so no map is needed. A clone session with one replica is a mirror session; a
row of a value set is a member.
"""

from __future__ import annotations

from ina.p4.bfrt.entities import Client, K, Kind, kind_of, no_table, table_of
from ina.p4.bfrt.info import Info
from ina.p4.bfrt.program_info import own_name
from ina.p4.bfrt.rows import PRIORITY, Change, Row
from ina.p4.runtime.entities import CloneSessionEntry, MulticastGroupEntry, Replica, ValueSetEntry
from ina.p4.runtime.p4info import EntityError

NODE, MGID, MIRROR = "$pre.node", "$pre.mgid", "$mirror.cfg"
WHOLE = 16384  # bytes: longer than any frame


class Several(Kind[K]):
    """Entities that are not one row."""

    def row(self, entity: K, info: Info) -> Row:
        raise no_table(entity)


@kind_of(ValueSetEntry)
class ValueSets(Several[ValueSetEntry]):
    def changes(self, client: Client, type_: str, entity: ValueSetEntry) -> list[Change]:
        table = table_of(client.info, entity.value_set, "ParserValueSet").name
        members, current = value_set_rows(entity, client.info), client.read([Row(table)])
        keys = [dict(r.key) for r in current]
        return [*(("DELETE", Row(table, r.key)) for r in current if dict(r.key) not in [dict(w.key) for w in members]),
                *(("INSERT", w) for w in members if dict(w.key) not in keys)]  # fmt: skip

    def read(self, client: Client, pattern: ValueSetEntry) -> list[ValueSetEntry]:
        table = table_of(client.info, pattern.value_set, "ParserValueSet")
        return [ValueSetEntry(own_name(table.name), tuple(dict(r.key) for r in client.read([Row(table.name)])))]


def value_set_rows(e: ValueSetEntry, info: Info) -> list[Row]:
    table = table_of(info, e.value_set, "ParserValueSet")
    keys = [k for k in table.keys if k.name != PRIORITY]
    return [Row(table.name, dict(m) if isinstance(m, dict) else {keys[0].name: m}) for m in e.members]


@kind_of(MulticastGroupEntry)
class MulticastGroups(Several[MulticastGroupEntry]):
    def changes(self, client: Client, type_: str, entity: MulticastGroupEntry) -> list[Change]:
        number = entity.group_id
        if not 1 <= number <= 0xFFFF:
            raise EntityError(f"multicast group {number}: expected 1..65535")
        nodes = {node_id(number, rid): (rid, [r.port for r in entity.replicas if r.rid == rid])
                 for rid in dict.fromkeys(r.rid for r in entity.replicas)}  # fmt: skip
        key = {"$MGID": number}
        links = {"$MULTICAST_NODE_ID": list(nodes), "$MULTICAST_NODE_L1_XID_VALID": [False] * len(nodes),
                  "$MULTICAST_NODE_L1_XID": [0] * len(nodes)}  # fmt: skip
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
                *(("DELETE", Row(NODE, {"$MULTICAST_NODE_ID": n})) for n in before if n not in nodes)]  # fmt: skip

    def read(self, client: Client, pattern: MulticastGroupEntry) -> list[MulticastGroupEntry]:
        trees = client.matching(Row(MGID, {"$MGID": pattern.group_id} if pattern.group_id else {}))
        nodes = {r.key["$MULTICAST_NODE_ID"]: r.data for r in client.read([Row(NODE)])} if trees else {}
        groups = []
        for tree in trees:
            replicas = tuple(Replica(port, nodes[n]["$MULTICAST_RID"]) for n in tree.data.get("$MULTICAST_NODE_ID") or ()
                             for port in nodes[n].get("$DEV_PORT") or ())  # fmt: skip
            groups.append(MulticastGroupEntry(tree.key["$MGID"], replicas))
        return groups


def node_id(group: int, rid: int) -> int:
    return group << 16 | rid


@kind_of(CloneSessionEntry)
class CloneSessions(Several[CloneSessionEntry]):
    def changes(self, client: Client, type_: str, entity: CloneSessionEntry) -> list[Change]:
        return [(type_, Row(MIRROR, {"$sid": entity.session_id}) if type_ == "DELETE" else _mirror(entity))]

    def read(self, client: Client, pattern: CloneSessionEntry) -> list[CloneSessionEntry]:
        return [_session(r) for r in client.matching(Row(MIRROR, {"$sid": pattern.session_id} if pattern.session_id else {}))]


def _mirror(e: CloneSessionEntry) -> Row:
    if len(e.replicas) != 1:
        raise EntityError(f"clone session {e.session_id}: {len(e.replicas)} replicas: a mirror session has one port; "
                          "for several, mirror to a multicast group")  # fmt: skip
    (replica,) = e.replicas
    data = {"$direction": "BOTH", "$ucast_egress_port": replica.port, "$ucast_egress_port_valid": True, "$session_enable": True,
            "$mcast_rid": replica.rid, "$max_pkt_len": e.packet_length or WHOLE}  # fmt: skip
    return Row(MIRROR, {"$sid": e.session_id}, data, "$normal")


def _session(row: Row) -> CloneSessionEntry:
    d = row.data
    replicas = (Replica(d["$ucast_egress_port"], d.get("$mcast_rid", 0)),) if d.get("$ucast_egress_port_valid") else ()
    length = d.get("$max_pkt_len", 0)
    return CloneSessionEntry(row.key["$sid"], replicas, 0 if length >= WHOLE else length)
