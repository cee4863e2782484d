"""$pre.* (packet replication), $mirror.cfg and $PORT_METADATA of an embedded TNA switch.

A row of these tables is one entity of the switch (ina/p4/runtime/tna_entities.py), which checks references between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ina.p4.bfrt.info import Table, own_name
from ina.p4.bfrt.rows import Fields, Owner, Row, Where
from ina.p4.runtime import (
    EntityError,
    MirrorSession,
    MulticastEcmp,
    MulticastLag,
    MulticastNode,
    MulticastPort,
    MulticastPrune,
    MulticastTree,
    PortMetadata,
    ReplicationConfig,
    Update,
)

COLORS = ("GREEN", "YELLOW", "YELLOW", "RED")  # by Tofino's number


def _links(data: Mapping[str, Any], kind: str) -> tuple[tuple[int, int | None], ...]:
    """Nodes or ECMP groups of a tree with their exclusion ids, from parallel lists."""
    ids = data.get(f"$MULTICAST_{kind}_ID") or []
    valid = data.get(f"$MULTICAST_{kind}_L1_XID_VALID") or [False] * len(ids)
    xids = data.get(f"$MULTICAST_{kind}_L1_XID") or [0] * len(ids)
    if not len(ids) == len(valid) == len(xids):
        raise EntityError(f"table $pre.mgid: {len(ids)} of $MULTICAST_{kind}_ID, {len(valid)} of ..._XID_VALID, {len(xids)} of "
                          "..._XID: expected as many of each")
    return tuple((i, x if v else None) for i, v, x in zip(ids, valid, xids, strict=True))


def _link_lists(kind: str, links: Iterable[tuple[int, int | None]]) -> Fields:
    return {f"$MULTICAST_{kind}_ID": [i for i, _ in links],
            f"$MULTICAST_{kind}_L1_XID_VALID": [x is not None for _, x in links],
            f"$MULTICAST_{kind}_L1_XID": [x or 0 for _, x in links]}


def _valid(data: Mapping[str, Any], name: str) -> int | None:
    return data.get(name) if data.get(f"{name}_valid") else None


def _mirror(number: int, d: Mapping[str, Any]) -> MirrorSession:
    return MirrorSession(
        number, enabled=d.get("$session_enable", False), direction=d.get("$direction", "BOTH"),
        port=_valid(d, "$ucast_egress_port"), queue=d.get("$egress_port_queue", 0),
        cos=d.get("$ingress_cos", 0), color=COLORS.index(d.get("$packet_color", "GREEN")),
        mcast_a=_valid(d, "$mcast_grp_a"), mcast_b=_valid(d, "$mcast_grp_b"), level1_hash=d.get("$level1_mcast_hash", 0),
        level2_hash=d.get("$level2_mcast_hash", 0), l1_xid=d.get("$mcast_l1_xid", 0), l2_xid=d.get("$mcast_l2_xid", 0),
        rid=d.get("$mcast_rid", 0), copy_to_cpu=d.get("$copy_to_cpu", False), cpu_cos=d.get("$icos_for_copy_to_cpu", 0),
        max_length=d.get("$max_pkt_len", 0),
    )


def _mirror_data(s: MirrorSession) -> Fields:
    return {
        "$session_enable": s.enabled, "$direction": s.direction, "$ucast_egress_port": s.port or 0,
        "$ucast_egress_port_valid": s.port is not None, "$egress_port_queue": s.queue, "$ingress_cos": s.cos,
        "$packet_color": COLORS[s.color], "$level1_mcast_hash": s.level1_hash, "$level2_mcast_hash": s.level2_hash,
        "$mcast_grp_a": s.mcast_a or 0, "$mcast_grp_a_valid": s.mcast_a is not None, "$mcast_grp_b": s.mcast_b or 0,
        "$mcast_grp_b_valid": s.mcast_b is not None, "$mcast_l1_xid": s.l1_xid, "$mcast_l2_xid": s.l2_xid, "$mcast_rid": s.rid,
        "$icos_for_copy_to_cpu": s.cpu_cos, "$copy_to_cpu": s.copy_to_cpu, "$max_pkt_len": s.max_length,
    }


# By kind of table: key field, function from number and data to an entity, the entity's class, and the reverse function.
Form = tuple[str, Callable[[int, Any], Any], Any, Callable[[Any], tuple[int, Fields]]]
FORMS: dict[str, Form] = {
    "PreNode": (
        "$MULTICAST_NODE_ID",
        lambda n, d: MulticastNode(n, d.get("$MULTICAST_RID", 0), tuple(d.get("$DEV_PORT") or ()),
                                   tuple(d.get("$MULTICAST_LAG_ID") or ())),
        MulticastNode,
        lambda e: (e.node_id, {"$MULTICAST_RID": e.rid, "$MULTICAST_LAG_ID": list(e.lags), "$DEV_PORT": list(e.ports)}),
    ),
    "PreMgid": (
        "$MGID",
        lambda n, d: MulticastTree(n, _links(d, "NODE"), _links(d, "ECMP")),
        MulticastTree,
        lambda e: (e.group_id, _link_lists("NODE", e.nodes) | _link_lists("ECMP", e.ecmps)),
    ),
    "PreEcmp": (
        "$MULTICAST_ECMP_ID",
        lambda n, d: MulticastEcmp(n, tuple(d.get("$MULTICAST_NODE_ID") or ())),
        MulticastEcmp,
        lambda e: (e.ecmp_id, {"$MULTICAST_NODE_ID": list(e.nodes)}),
    ),
    "PreLag": (
        "$MULTICAST_LAG_ID",
        lambda n, d: MulticastLag(n, tuple(d.get("$DEV_PORT") or ()), d.get("$MULTICAST_LAG_REMOTE_MSB_COUNT", 0),
                                  d.get("$MULTICAST_LAG_REMOTE_LSB_COUNT", 0)),
        MulticastLag,
        lambda e: (e.lag_id, {"$DEV_PORT": list(e.ports), "$MULTICAST_LAG_REMOTE_MSB_COUNT": e.remote_msb,
                              "$MULTICAST_LAG_REMOTE_LSB_COUNT": e.remote_lsb}),
    ),
    "PrePrune": (
        "$MULTICAST_L2_XID",
        lambda n, d: MulticastPrune(n, tuple(d.get("$DEV_PORT") or ())),
        MulticastPrune,
        lambda e: (e.l2_xid, {"$DEV_PORT": list(e.ports)}),
    ),
    "PrePort": (
        "$DEV_PORT",
        lambda n, d: MulticastPort(n, d.get("$MULTICAST_BACKUP_PORT"), d.get("$MULTICAST_FORWARD_STATE", True),
                                   d.get("$COPY_TO_CPU_PORT_ENABLE", False)),
        MulticastPort,
        lambda e: (e.port, {"$MULTICAST_BACKUP_PORT": e.backup if e.backup is not None else e.port,
                            "$MULTICAST_FORWARD_STATE": e.up, "$COPY_TO_CPU_PORT_ENABLE": e.copy_to_cpu}),
    ),
    "MirrorCfg": ("$sid", _mirror, MirrorSession, lambda e: (e.session_id, _mirror_data(e))),
}
ALWAYS_THERE = ("PrePrune", "PrePort")  # the hardware has every one of them: INSERT and MODIFY are the same
INCREMENTAL = {"PreMgid": ("$MULTICAST_NODE_ID", "$MULTICAST_ECMP_ID"), "PreEcmp": ("$MULTICAST_NODE_ID",)}


DEFAULT = "$DEFAULT_FIELD"  # of $PORT_METADATA without names


class Replication:
    kinds = (*FORMS, "PortMetadata")

    def __init__(self, device: Owner):
        self.switch, self._write = device.switch, device.write_entities
        self._sessions: dict[int, Fields] = {}  # data of mirror sessions as written, with fields that are not valid

    def write(self, type_: str, table: Table, row: Row, _where: Where) -> None:
        if table.kind == "PortMetadata":
            self._port_metadata(type_, table, row)
            return
        field, entity_of, _, data_of = FORMS[table.kind]
        if not row.key:
            if type_ != "DELETE":
                raise EntityError(f"table {table.name}: which? {field} is missing")
            self._write([Update("DELETE", e) for e in self._entities(table, None)])
            return
        if row.action == "$coalescing":
            raise EntityError("table $mirror.cfg: coalescing sessions are not supported; use $normal", "UNIMPLEMENTED")
        number = row.key[field]
        entities = self._entities(table, number)
        data = dict(row.data)
        if type_ in ("INSERT_OR_MODIFY",):
            type_ = "MODIFY" if entities else "INSERT"
        if type_ in ("MODIFY_INC", "MODIFY_DEC"):
            if not entities or table.kind not in INCREMENTAL:
                raise EntityError(f"table {table.name}: MODIFY_INC of what is not there, or of no list", "NOT_FOUND")
            change = self._with_members if type_ == "MODIFY_INC" else self._without_members
            type_, data = "MODIFY", change(table, entities, data)
        if type_ == "MODIFY" and entities:  # fields that the row leaves out stay
            data = self._with_invalid(table, data_of(entities[0])) | data
        if table.kind in ALWAYS_THERE and type_ == "INSERT":
            type_ = "MODIFY"
        self._write([Update(type_, entity_of(number, data))])
        if table.kind == "MirrorCfg":
            self._sessions[number] = data

    def _with_invalid(self, table: Table, numbered: tuple[int, Fields]) -> Fields:
        """Data as written: a destination that is not valid keeps its number."""
        number, data = numbered
        written = self._sessions.get(number, {}) if table.kind == "MirrorCfg" else {}
        return data | {n: written[n] for n in written if data.get(f"{n}_valid") is False}

    @staticmethod
    def _with_members(table: Table, entities: list[Any], data: Fields) -> Fields:
        """The entity's data with more members at the end of its lists."""
        before = FORMS[table.kind][3](entities[0])[1]
        more = FORMS[table.kind][3](FORMS[table.kind][1](0, data))[1]
        return {name: before[name] + more[name] for name in before}

    @staticmethod
    def _without_members(table: Table, entities: list[Any], data: Fields) -> Fields:
        """The entity's data without the members that `data` lists."""
        lists = dict(FORMS[table.kind][3](entities[0])[1])
        for field in INCREMENTAL[table.kind]:
            removed = set(data.get(field) or ())
            positions = [i for i, member in enumerate(lists[field]) if member not in removed]
            prefix = field.removesuffix("_ID")  # exclusion ids, in the same order
            for name in lists:
                if name == field or name.startswith(f"{prefix}_L1_XID"):
                    lists[name] = [lists[name][i] for i in positions]
        return lists

    def config(self, change: Fields | None = None) -> ReplicationConfig:
        """The attribute `pre_device_config` of $pre.mgid, after making `change` to it."""
        now: ReplicationConfig
        (now,) = self.switch.read([ReplicationConfig()])
        if change:
            now = replace(now, **change)
            self._write([Update("MODIFY", now)])
        return now

    def _entities(self, table: Table, number: int | None) -> list[Any]:
        field, _, entity, data_of = FORMS[table.kind]
        return [e for e in self.switch.read([entity(None)]) if number in (None, data_of(e)[0])]

    def read(self, table: Table, row: Row, _where: Where) -> list[Row]:
        if table.kind == "PortMetadata":
            return self._read_port_metadata(table, row)
        field, _, _, data_of = FORMS[table.kind]
        number = row.key.get(field)
        entities = self._entities(table, number)
        if number is not None and not entities:
            raise EntityError(f"table {table.name}: there is no {number}", "NOT_FOUND")
        action = "$normal" if table.kind == "MirrorCfg" else ""
        return [Row(table.name, {field: one[0]}, self._with_invalid(table, one), action) for one in map(data_of, entities)]

    # ---- port metadata

    def _port_metadata(self, type_: str, table: Table, row: Row) -> None:
        name = own_name(table.name)
        if not row.key:
            if type_ != "DELETE":
                raise EntityError(f"table {table.name}: which port? {table.keys[0].name} is missing")
            self._write([Update("DELETE", e) for e in self.switch.read([PortMetadata(None, parser=name)])])
            return
        port = row.key[table.keys[0].name]
        if type_ in ("INSERT", "INSERT_OR_MODIFY"):
            type_ = "MODIFY"
        self._write([Update(type_, PortMetadata(port, self._fields(name, dict(row.data)), name))])

    def _layout(self, name: str) -> list[Fields]:
        return next((m["fields"] for m in self.switch.program.port_metadata if m["name"] == name), [])

    def _fields(self, name: str, data: Fields) -> Fields:
        """The fields that the parser reads from 64 bits."""
        if DEFAULT not in data:
            return data
        return {f["name"]: data[DEFAULT] >> (64 - f["bit"] - f["width"]) & ((1 << f["width"]) - 1) for f in self._layout(name)}

    def _data(self, table: Table, name: str, fields: Mapping[str, Any]) -> Fields:
        """The reverse of `_fields`, where the table has the 64 bits."""
        if table.data[0].name != DEFAULT:
            return dict(fields)
        return {DEFAULT: sum(fields.get(f["name"], 0) << (64 - f["bit"] - f["width"]) for f in self._layout(name))}

    def _read_port_metadata(self, table: Table, row: Row) -> list[Row]:
        key = table.keys[0].name
        port = row.key.get(key)
        name = own_name(table.name)
        entities = self.switch.read([PortMetadata(port, parser=name)])
        if port is not None and not entities:
            raise EntityError(f"table {table.name}: nothing is set for port {port}", "NOT_FOUND")
        return [Row(table.name, {key: e.port}, self._data(table, name, e.fields)) for e in entities]
