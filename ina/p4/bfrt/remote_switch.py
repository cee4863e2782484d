"""A switch behind BFRuntime, with the same interface as the embedded one.

    with BfRuntimeTarget("switch:50052") as target:
        target.write(insert(TableEntry(...), MulticastGroupEntry(1, (Replica(132, 1), Replica(140, 2)))))

A multicast group of P4Runtime is a tree of the replication engine: one node for each replication id, with all ports that have
it. The number of node r of group g is g << 16 | r, so no map is needed. A clone session with one replica is a mirror
session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ina.p4.bfrt import entities
from ina.p4.bfrt.client import Change, Client, WriteFailed
from ina.p4.bfrt.entities import STATUS, table_of
from ina.p4.bfrt.ports import PortConfig
from ina.p4.bfrt.program_info import p4info_of
from ina.p4.bfrt.rows import Row
from ina.p4.rpc.connections import Access
from ina.p4.runtime.entities import (
    CloneSessionEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    E,
    Entity,
    MulticastGroupEntry,
    ProfileGroup,
    RegisterEntry,
    Replica,
    TableEntry,
    Update,
    ValueSetEntry,
)
from ina.p4.runtime.p4info import EntityError, P4Info
from ina.p4.runtime.target import SwitchTarget

NODE, MGID, MIRROR, PORT, PANEL, STATISTICS = "$pre.node", "$pre.mgid", "$mirror.cfg", "$PORT", "$PORT_HDL_INFO", "$PORT_STAT"
WHOLE = 16384  # bytes: longer than any frame


class BfRuntimeTarget(SwitchTarget):
    """The program `program` (default: the first) of device `device_id` at `address`. Raises as Client does."""

    def __init__(self, address: str, device_id: int = 0, program: str = "", *, client_id: int | None = None,
                 timeout: float = 10.0, access: Access | None = None):  # fmt: skip
        self.client = Client(address, client_id, device_id, program, timeout=timeout, access=access)
        self.address = address
        self._p4info = p4info_of(self.client.info)

    def close(self) -> None:
        self.client.close()

    @property
    def alive(self) -> bool:
        return self.client.alive

    def __enter__(self) -> BfRuntimeTarget:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def p4info(self) -> P4Info:
        """The P4Info that the switch's bfrt.json implies, with the program's names."""
        return self._p4info

    # ---- entities

    def write(self, updates: Iterable[Update], timeout: float = 5.0) -> None:
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
        e, info = update.entity, self.client.info
        if update.type not in ("INSERT", "MODIFY", "DELETE"):
            raise EntityError(f"{update.type!r}: expected INSERT, MODIFY or DELETE")
        if isinstance(e, MulticastGroupEntry):
            return self._group(update.type, e)
        if isinstance(e, CloneSessionEntry):
            return [(update.type, Row(MIRROR, {"$sid": e.session_id}) if update.type == "DELETE" else _mirror(e))]
        if isinstance(e, ValueSetEntry):
            table = table_of(info, e.value_set, "ParserValueSet").name
            members, current = entities.value_set_rows(e, info), self.client.read([Row(table)])
            keys = [dict(r.key) for r in current]
            return [*(("DELETE", Row(table, r.key)) for r in current if dict(r.key) not in [dict(w.key) for w in members]),
                    *(("INSERT", w) for w in members if dict(w.key) not in keys)]  # fmt: skip
        row = entities.to_row(e, info)
        if isinstance(e, TableEntry) and e.is_default:
            return [("MODIFY" if e.action else "DELETE", row)]
        if update.type == "DELETE":
            return [("DELETE", Row(row.table, row.key))]
        if isinstance(e, ProfileGroup):
            row = replace(row, data=row.data or {entities.MEMBER: [], STATUS: []})
        return [(update.type, row)]

    def _group(self, type_: str, group: MulticastGroupEntry) -> list[Change]:
        number = group.group_id
        if not 1 <= number <= 0xFFFF:
            raise EntityError(f"multicast group {number}: expected 1..65535")
        nodes = {node_id(number, rid): (rid, [r.port for r in group.replicas if r.rid == rid])
                 for rid in dict.fromkeys(r.rid for r in group.replicas)}  # fmt: skip
        key = {"$MGID": number}
        links = {"$MULTICAST_NODE_ID": list(nodes), "$MULTICAST_NODE_L1_XID_VALID": [False] * len(nodes),
                  "$MULTICAST_NODE_L1_XID": [0] * len(nodes)}  # fmt: skip
        rows = {
            n: Row(NODE, {"$MULTICAST_NODE_ID": n}, {"$MULTICAST_RID": rid, "$DEV_PORT": ports})
            for n, (rid, ports) in nodes.items()
        }
        if type_ == "INSERT":
            return [*(("INSERT", row) for row in rows.values()), ("INSERT", Row(MGID, key, links))]
        (tree,) = self.client.read([Row(MGID, key)])
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

    def read(self, entities_: Sequence[E], timeout: float = 5.0) -> list[E]:
        entries: list[Any] = []
        for e in entities_:
            entries += self._read(e)
        return entries

    def _read(self, e: Entity) -> list[Entity]:
        info = self.client.info
        if isinstance(e, MulticastGroupEntry):
            return self._groups(e)
        if isinstance(e, CloneSessionEntry):
            return [_session(r) for r in self._rows(Row(MIRROR, {"$sid": e.session_id} if e.session_id else {}))]
        if isinstance(e, ValueSetEntry):
            table = table_of(info, e.value_set, "ParserValueSet")
            rows = self.client.read([Row(table.name)])
            return [ValueSetEntry(self.p4info.value_set(e.value_set), tuple(dict(r.key) for r in rows))]
        if isinstance(e, (DirectCounterEntry, DirectMeterEntry)):
            (row,) = self.client.read([replace(entities.to_row(e.entry, info), data={}, action="")])
            if isinstance(e, DirectCounterEntry):
                return [
                    replace(
                        e,
                        packets=entities.total(row.data.get(entities.PACKETS)),
                        bytes=entities.total(row.data.get(entities.BYTES)),
                    )
                ]
            return [replace(e, config=entities.meter_config(info.table(row.table), row.data))]
        if isinstance(e, TableEntry) and not e.table:
            return [f for t in self.p4info.tables for f in self._read(replace(e, table=t))]
        pattern = entities.to_row(e, info)
        rows = self._rows(Row(pattern.table, pattern.key, is_default=pattern.is_default))
        if isinstance(e, RegisterEntry):
            table = info.table(pattern.table)
            return [
                RegisterEntry(e.register, row.key[entities.INDEX["Register"]], entities.register_value(table, row.data))
                for row in rows
            ]
        entries = [entities.of_row(row, info) for row in rows if row.is_default == pattern.is_default]
        return [f for f in entries if not isinstance(f, TableEntry) or f.action or f.member is not None or f.group is not None]

    def _rows(self, pattern: Row) -> list[Row]:
        """The rows that match; none where the server answers NOT_FOUND."""
        try:
            return self.client.read([pattern])
        except EntityError as error:
            if error.code == "NOT_FOUND":
                return []
            raise

    def _groups(self, e: MulticastGroupEntry) -> list[Entity]:
        trees = self._rows(Row(MGID, {"$MGID": e.group_id} if e.group_id else {}))
        nodes = {r.key["$MULTICAST_NODE_ID"]: r.data for r in self.client.read([Row(NODE)])} if trees else {}
        groups: list[Entity] = []
        for tree in trees:
            replicas = tuple(Replica(port, nodes[n]["$MULTICAST_RID"]) for n in tree.data.get("$MULTICAST_NODE_ID") or ()
                             for port in nodes[n].get("$DEV_PORT") or ())  # fmt: skip
            groups.append(MulticastGroupEntry(tree.key["$MGID"], replicas))
        return groups

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
        number: int = row.data["$DEV_PORT"]
        return number

    def ports(self) -> dict[int, dict[str, Any]]:
        """Configured ports, by device port: the fields of $PORT."""
        return {r.key["$DEV_PORT"]: dict(r.data) for r in self._rows(Row(PORT))}

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
        return {r.key["$DEV_PORT"]: dict(r.data) for r in self._rows(Row(STATISTICS))}

    def port_statistics(self, name: str) -> dict[str, int]:
        """Counters of $PORT_STAT, such as $FramesReceivedOK, as the MAC counts them."""
        (row,) = self.client.read([Row(STATISTICS, {"$DEV_PORT": self.dev_port(name)})])
        return dict(row.data)


def node_id(group: int, rid: int) -> int:
    return group << 16 | rid


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
