"""The packet replication engines (v1model's `Groups`, TNA's `TrafficManager`), and the kind of all entities that they take.

`TrafficManager` is the control plane's copy of TNA's traffic manager: replication trees, mirror sessions, ports. Its commands
(tna_switch.h) bring the switch up to date: a group is written again when a node or an ECMP group that it refers to has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ina.base.native import CData, ffi, lib
from ina.p4.runtime.cells import Command, Memory
from ina.p4.runtime.entities import CloneSessionEntry, Entity, MulticastGroupEntry, Replica, as_int, check_existence
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.kinds import Batch, Kind, View, kind_of, no_entity
from ina.p4.runtime.tna_entities import (
    MirrorSession,
    MulticastEcmp,
    MulticastLag,
    MulticastNode,
    MulticastPort,
    MulticastPrune,
    MulticastTree,
    PortMetadata,
    ReplicationConfig,
)

SLOTS = 32  # of an ECMP group
_VALID, _BY_HASH = 1 << 16, 1 << 17
_DIRECTIONS = {"INGRESS": lib.INA_TNA_INGRESS, "EGRESS": lib.INA_TNA_EGRESS, "BOTH": lib.INA_TNA_INGRESS | lib.INA_TNA_EGRESS}

# field of the entity: (of struct ina_tna, width)
_SESSION = {
    "queue": ("qid", 5), "cos": ("ingress_cos", 3), "color": ("packet_color", 2), "level1_hash": ("level1_mcast_hash", 13),
    "level2_hash": ("level2_mcast_hash", 13), "l1_xid": ("level1_exclusion_id", 16), "l2_xid": ("level2_exclusion_id", 9),
    "rid": ("rid", 16), "copy_to_cpu": ("copy_to_cpu", 1), "cpu_cos": ("icos_for_copy_to_cpu", 3),
}

Branch = tuple[tuple[MulticastNode | None, ...], int | None]  # choices, level-1 exclusion id


Setter = Callable[[Any, Any, str, bool], None]  # of the entity, its label, and whether it exists


class TrafficManager:
    """The traffic manager of a switch. `port_metadata`: layouts of the parsers' (name, fields: name, width, bit)."""

    def __init__(self, pipes: int, port_metadata: Iterable[dict[str, Any]] = ()) -> None:
        self.pipes = pipes
        self.port_metadata = list(port_metadata)
        self.entities: dict[type[Entity], dict[int, Any]] = {kind: {} for kind in self.KINDS}
        self._slots: dict[int, tuple[int | None, ...]] = {}  # of ECMP groups
        self._installed: set[int] = set()  # groups that the switch has
        self._dirty: set[int] = set()  # groups to write again
        self._commands: list[Command] = []
        self._memory: Memory = []  # what commands point to

    def copy(self) -> TrafficManager:
        """A copy, for changes that are made all or not at all."""
        twin = TrafficManager(self.pipes, self.port_metadata)
        twin.entities = {kind: dict(items) for kind, items in self.entities.items()}
        twin._slots, twin._installed = dict(self._slots), set(self._installed)
        return twin

    # ---- changes

    @property
    def classes(self) -> Container[type[Entity]]:
        return self.KINDS.keys()

    def apply(self, type_: str, entity: Any, memory: Memory) -> list[Command]:
        """Makes an INSERT, MODIFY or DELETE; returns the commands that bring the switch up to date, in order. Raises EntityError.
        `memory` gets what they point to."""
        kind = type(entity)
        self._commands, self._memory = [], memory
        label, key, always, setter = self.KINDS[kind]
        number = getattr(entity, key) if key else 0
        label = f"{label} {number}" if key else label
        entities = self.entities[kind]
        if not always:
            check_existence(type_, number in entities, label)
        if type_ == "DELETE":
            self._forget(entity)
            entities.pop(number, None)
            entity = kind(number) if key else kind()
        else:
            entities[number] = entity
        setter(self, entity, label, type_ != "DELETE")
        trees = self.entities[MulticastTree] | self.entities[MulticastGroupEntry]
        for group in sorted(self._dirty):
            if group in trees:
                image = group_image(self._branches(trees[group]))
                self._command(lib.INA_TNA_SET_GROUP, ffi.new("uint32_t[]", image), id=group, count=len(image))
                self._installed.add(group)
            elif group in self._installed:
                self._commands.append({"op": lib.INA_TNA_SET_GROUP, "id": group})
                self._installed.discard(group)
        self._dirty = set()
        return self._commands

    def _command(self, op: int, data: CData, **fields: int) -> None:
        self._memory.append(data)
        self._commands.append({"op": op, "data": data, **fields})

    def _forget(self, entity: Any) -> None:
        """Removes references to a node or an ECMP group that is deleted."""
        trees = self.entities[MulticastTree]
        if isinstance(entity, MulticastNode):
            for number, ecmp in list(self.entities[MulticastEcmp].items()):
                if entity.node_id in ecmp.nodes:
                    ecmp = replace(ecmp, nodes=tuple(n for n in ecmp.nodes if n != entity.node_id))
                    self.entities[MulticastEcmp][number] = ecmp
                    self._set_ecmp(ecmp, "", True)
            for number, tree in list(trees.items()):
                if entity.node_id in dict(tree.nodes):
                    trees[number] = replace(tree, nodes=tuple(n for n in tree.nodes if n[0] != entity.node_id))
                    self._dirty.add(number)
        elif isinstance(entity, MulticastEcmp):
            for number, tree in list(trees.items()):
                if entity.ecmp_id in dict(tree.ecmps):
                    trees[number] = replace(tree, ecmps=tuple(e for e in tree.ecmps if e[0] != entity.ecmp_id))
                    self._dirty.add(number)

    def _port(self, port: Any, label: str) -> int:
        number = as_int(port, 9, f"{label}: port")
        if number >= self.pipes * lib.INA_TNA_PIPE_PORTS:
            raise EntityError(f"{label}: port {number} is none of this switch's {self.pipes} pipes")
        return number

    def _ports(self, ports: Iterable[Any], label: str) -> list[int]:
        numbers = [self._port(p, label) for p in ports]
        if len(set(numbers)) != len(numbers):
            raise EntityError(f"{label}: a port is given twice: {numbers}")
        return numbers

    # ---- replication

    def _set_node(self, node: MulticastNode, label: str, exists: bool) -> None:
        as_int(node.node_id, 32, "multicast node")
        as_int(node.rid, 16, f"{label}: rid")
        self._ports(node.ports, label)
        if len(set(node.lags)) != len(node.lags):
            raise EntityError(f"{label}: a LAG is given twice: {node.lags}")
        for lag in node.lags:
            as_int(lag, 8, f"{label}: LAG")
        ecmps = {e for e, slots in self._slots.items() if node.node_id in slots}
        for tree in self.entities[MulticastTree].values():
            if node.node_id in dict(tree.nodes) or ecmps & set(dict(tree.ecmps)):
                self._dirty.add(tree.group_id)

    def _set_ecmp(self, ecmp: MulticastEcmp, label: str, exists: bool) -> None:
        as_int(ecmp.ecmp_id, 32, "multicast ECMP group")
        if len(set(ecmp.nodes)) != len(ecmp.nodes):
            raise EntityError(f"{label}: a node is given twice: {ecmp.nodes}")
        if len(ecmp.nodes) > SLOTS:
            raise EntityError(f"{label}: {len(ecmp.nodes)} nodes, at most {SLOTS} are possible", "RESOURCE_EXHAUSTED")
        self._need(MulticastNode, ecmp.nodes, label)
        slots = [n if n in ecmp.nodes else None for n in self._slots.get(ecmp.ecmp_id, (None,) * SLOTS)]
        for node in ecmp.nodes:
            if node not in slots:
                slots[slots.index(None)] = node
        self._slots[ecmp.ecmp_id] = tuple(slots)
        if not exists:
            del self._slots[ecmp.ecmp_id]
        self._dirty |= {t.group_id for t in self.entities[MulticastTree].values() if ecmp.ecmp_id in dict(t.ecmps)}

    def _need(self, kind: type[Entity], numbers: Iterable[int], label: str) -> None:
        for number in numbers:
            if number not in self.entities[kind]:
                raise EntityError(f"{label}: {self.KINDS[kind][0]} {number} is not there", "NOT_FOUND")

    def _set_tree(self, tree: MulticastTree, label: str, exists: bool) -> None:
        as_int(tree.group_id, 16, "multicast group")
        if exists and tree.group_id in self.entities[MulticastGroupEntry]:
            raise EntityError(f"{label} is there already, written as P4Runtime does", "ALREADY_EXISTS")
        self._need(MulticastNode, dict(tree.nodes), label)
        self._need(MulticastEcmp, dict(tree.ecmps), label)
        for number, xid in (*tree.nodes, *tree.ecmps):
            if xid is not None:
                as_int(xid, 16, f"{label}: exclusion id of {number}")
        self._dirty.add(tree.group_id)

    def _set_group(self, group: MulticastGroupEntry, label: str, exists: bool) -> None:
        if not 1 <= group.group_id <= 65535:
            raise EntityError(f"{label}: expected 1..65535")
        if exists and group.group_id in self.entities[MulticastTree]:
            raise EntityError(f"{label} is there already, written as nodes", "ALREADY_EXISTS")
        for r in group.replicas:
            self._port(r.port, label)
        _pairs(group.replicas, label)
        self._dirty.add(group.group_id)

    def _branches(self, group: MulticastTree | MulticastGroupEntry) -> list[tuple[Branch, bool]]:
        """The branches of a group: (choices, exclusion id), and True if a hash chooses."""
        if isinstance(group, MulticastGroupEntry):
            by_rid: dict[int, list[int]] = {}
            for r in group.replicas:
                by_rid.setdefault(as_int(r.rid, 16, "rid"), []).append(as_int(r.port, 9, "port"))
            return [(((MulticastNode(0, rid, tuple(ports)),), None), False) for rid, ports in by_rid.items()]
        nodes = self.entities[MulticastNode]
        branches: list[tuple[Branch, bool]] = [(((nodes[n],), xid), False) for n, xid in group.nodes]
        for ecmp, xid in group.ecmps:
            choices = tuple(None if n is None else nodes[n] for n in self._slots[ecmp])
            branches.append(((choices, xid), True))
        return branches

    def _set_lag(self, lag: MulticastLag, label: str, exists: bool) -> None:
        number = as_int(lag.lag_id, 8, "LAG")
        ports = sorted(self._ports(lag.ports, label))
        before = as_int(lag.remote_lsb, 13, f"{label}: remote_lsb")
        after = as_int(lag.remote_msb, 13, f"{label}: remote_msb")
        data = ffi.new("uint16_t[]", ports)
        self._command(lib.INA_TNA_SET_LAG, data, id=number, count=len(ports), offset=before, stride=after)

    def _set_prune(self, prune: MulticastPrune, label: str, exists: bool) -> None:
        if not 0 <= prune.l2_xid < lib.INA_TNA_PRUNES:
            raise EntityError(f"{label}: expected 0..{lib.INA_TNA_PRUNES - 1}")
        ports = self._ports(prune.ports, label)
        self._command(lib.INA_TNA_SET_PRUNE, ffi.new("uint16_t[]", ports), id=prune.l2_xid, count=len(ports))

    def _set_port(self, port: MulticastPort, label: str, exists: bool) -> None:
        number = self._port(port.port, label)
        if port.backup is not None:
            self._port(port.backup, f"{label}: backup")
        if port.copy_to_cpu:
            for other, entity in self.entities[MulticastPort].items():
                if other != number and entity.copy_to_cpu:
                    self.entities[MulticastPort][other] = replace(entity, copy_to_cpu=False)
        self._write_port(number)
        self._set_replication(self.config, "", True)

    @property
    def config(self) -> ReplicationConfig:
        config: ReplicationConfig = self.entities[ReplicationConfig].get(0, ReplicationConfig())
        return config

    def _set_replication(self, config: ReplicationConfig, label: str, exists: bool) -> None:
        cpu = [p.port for p in self.entities[MulticastPort].values() if p.copy_to_cpu]
        rid = as_int(config.global_rid, 16, "replication config: global_rid")
        values = {"global_rid": rid, "cpu_port": cpu[0] if cpu else lib.INA_TNA_NO_PORT, "protect": config.port_protection}
        self._command(lib.INA_TNA_SET_REPLICATION, ffi.new("struct ina_tna_replication *", values))

    # ---- ports

    def _write_port(self, number: int) -> None:
        port = self.entities[MulticastPort].get(number, MulticastPort(number))
        metadata = self.entities[PortMetadata].get(number, PortMetadata(number))
        backup = number if port.backup is None else port.backup
        values = {"metadata": self._metadata(metadata), "backup": backup, "down": not port.up}
        self._command(lib.INA_TNA_SET_PORT, ffi.new("struct ina_tna_port *", values), id=number)

    def _set_metadata(self, metadata: PortMetadata, label: str, exists: bool) -> None:
        self._write_port(self._port(metadata.port, "port metadata"))

    def _metadata(self, metadata: PortMetadata) -> bytes:
        if not metadata.fields:
            return bytes(8)
        label = f"port metadata of port {metadata.port}"
        layouts = [m for m in self.port_metadata if metadata.parser in ("", m["name"], m["name"].removesuffix(".$PORT_METADATA"))]
        if len(layouts) != 1:
            names = ", ".join(m["name"] for m in self.port_metadata) or "none"
            raise EntityError(f"{label}: {'name one of' if layouts else f'no parser {metadata.parser!r} with any;'} {names}")
        fields, value = {f["name"]: f for f in layouts[0]["fields"]}, 0
        for name, field_value in metadata.fields.items():
            if name not in fields:
                raise EntityError(f"{label}: no field {name!r}; it has: {', '.join(fields) or 'none'}")
            f = fields[name]
            value |= as_int(field_value, f["width"], f"{label}: {name}") << (64 - f["bit"] - f["width"])
        return value.to_bytes(8, "big")

    # ---- mirror sessions

    def _set_clone(self, clone: CloneSessionEntry, label: str, exists: bool) -> None:
        if exists and clone.session_id in self.entities[MirrorSession]:
            raise EntityError(f"{label} is there already, as a mirror session", "ALREADY_EXISTS")
        if len(clone.replicas) > 1 or any(r.rid for r in clone.replicas):
            raise EntityError(f"{label}: one port without a replication id is possible on TNA; "
                              "copies to more go through a multicast group of a MirrorSession")
        port = clone.replicas[0].port if clone.replicas else None
        self._write_session(MirrorSession(clone.session_id, port=port, max_length=clone.packet_length), label, exists)

    def _set_session(self, session: MirrorSession, label: str, exists: bool) -> None:
        if exists and session.session_id in self.entities[CloneSessionEntry]:
            raise EntityError(f"{label} is there already, as a clone session", "ALREADY_EXISTS")
        self._write_session(session, label, exists)

    def _write_session(self, session: MirrorSession, label: str, exists: bool) -> None:
        number = session.session_id
        if not 1 <= number < lib.INA_TNA_SESSIONS:
            raise EntityError(f"{label}: expected 1..{lib.INA_TNA_SESSIONS - 1}")
        if not exists:
            self._commands.append({"op": lib.INA_TNA_SET_SESSION, "id": number})
            return
        if session.direction not in _DIRECTIONS:
            raise EntityError(f"{label}: direction {session.direction!r}: expected {', '.join(_DIRECTIONS)}")
        data = ffi.new(
            "struct ina_tna_session *",
            {
                "max_len": as_int(session.max_length, 16, f"{label}: max_length"),
                "directions": _DIRECTIONS[session.direction],
                "enabled": session.enabled,
            },
        )
        for name, (member, width) in _SESSION.items():
            setattr(data.to, member, as_int(getattr(session, name), width, f"{label}: {name}"))
        if session.port is not None:  # a number that is no port's goes nowhere, as the hardware's
            data.to.ucast_egress_port, data.to.has_ucast = as_int(session.port, 9, f"{label}: port"), 1
        if session.mcast_a is not None:
            data.to.mcast_grp_a, data.to.has_mcast_a = as_int(session.mcast_a, 16, f"{label}: mcast_a"), 1
        if session.mcast_b is not None:
            data.to.mcast_grp_b, data.to.has_mcast_b = as_int(session.mcast_b, 16, f"{label}: mcast_b"), 1
        self._command(lib.INA_TNA_SET_SESSION, data, id=number)

    # ---- reading

    def read(self, pattern: Any) -> list[Any]:
        """The entities of the pattern's kind with its number; number 0 (of a port or LAG: None): all."""
        kind = type(pattern)
        _, key, always, _ = self.KINDS[kind]
        if kind is ReplicationConfig:
            return [self.config]
        number = getattr(pattern, key)
        if kind is MulticastPrune and number is None:
            return [self.entities[kind].get(n, kind(n)) for n in range(lib.INA_TNA_PRUNES)]
        if always and number is not None:
            return [self.entities[kind].get(number, kind(number))]
        if kind is PortMetadata and pattern.parser:
            return [e for _, e in sorted(self.entities[kind].items()) if e.parser in ("", pattern.parser)]
        return [e for n, e in sorted(self.entities[kind].items()) if number in (0, None, n)]

    # name in errors, field with its number, True if it exists without INSERT, the method that sets it
    KINDS: ClassVar[dict[type[Entity], tuple[str, str, bool, Setter]]] = {
        MulticastNode: ("multicast node", "node_id", False, _set_node),
        MulticastEcmp: ("multicast ECMP group", "ecmp_id", False, _set_ecmp),
        MulticastTree: ("multicast group", "group_id", False, _set_tree),
        MulticastGroupEntry: ("multicast group", "group_id", False, _set_group),
        MulticastLag: ("LAG", "lag_id", True, _set_lag),
        MulticastPrune: ("level-2 exclusion id", "l2_xid", True, _set_prune),
        MulticastPort: ("port", "port", True, _set_port),
        MirrorSession: ("mirror session", "session_id", False, _set_session),
        CloneSessionEntry: ("clone session", "session_id", False, _set_clone),
        PortMetadata: ("port metadata of port", "port", True, _set_metadata),
        ReplicationConfig: ("replication config", "", True, _set_replication),
    }


def group_image(branches: Iterable[tuple[Branch, bool]]) -> list[int]:
    """The words of a group's image (tna_switch.h)."""
    branch_list = list(branches)
    words = [len(branch_list), *([0] * len(branch_list))]
    nodes: dict[MulticastNode, int] = {}
    slots: list[tuple[int, MulticastNode]] = []  # offsets of nodes to fill in
    for b, ((choices, xid), by_hash) in enumerate(branch_list):
        words[1 + b] = len(words)
        words += [(0 if xid is None else xid | _VALID) | (_BY_HASH if by_hash else 0), len(choices)]
        for node in choices:
            if node is not None:
                slots.append((len(words), node))
            words.append(0)
    for at, node in slots:
        if node not in nodes:
            nodes[node] = len(words)
            words += [as_int(node.rid, 16, "rid"), len(node.ports), len(node.lags), *node.ports, *node.lags]
        words[at] = nodes[node]
    return words


def _pairs(replicas: Iterable[Replica], label: str) -> list[tuple[int, int]]:
    """Ports and replication ids. Raises EntityError."""
    pairs = [(as_int(r.port, 9, f"{label}: port"), as_int(r.rid, 16, f"{label}: replication id")) for r in replicas]
    if len(set(pairs)) != len(pairs):
        raise EntityError(f"{label}: two replicas have the same port and replication id")
    return pairs


MOST = 65535  # the highest number of a group or session, and the most replicas of one
Replicated = MulticastGroupEntry | CloneSessionEntry


# name in errors, and the command that sets one
_FORMS: dict[type[Entity], tuple[str, int]] = {
    MulticastGroupEntry: ("multicast group", lib.INA_SET_GROUP), CloneSessionEntry: ("clone session", lib.INA_SET_SESSION),
}


def _number(entity: Replicated) -> int:
    return entity.group_id if isinstance(entity, MulticastGroupEntry) else entity.session_id


class Groups:
    """Multicast groups and clone sessions of a v1model program."""

    classes = _FORMS.keys()

    def __init__(self) -> None:
        self._entities: dict[type[Entity], dict[int, Replicated]] = {form: {} for form in _FORMS}

    def copy(self) -> Groups:
        twin = Groups()
        twin._entities = {form: dict(entities) for form, entities in self._entities.items()}
        return twin

    def apply(self, type_: str, entity: Replicated, memory: Memory) -> list[Command]:
        (name, op), entities, number = _FORMS[type(entity)], self._entities[type(entity)], _number(entity)
        label = f"{name} {number}"
        if not 1 <= number <= MOST:
            raise EntityError(f"{label}: expected 1..{MOST}")
        check_existence(type_, number in entities, label)
        if type_ == "DELETE":
            del entities[number]
            return [{"op": op, "id": number}]
        pairs = _pairs(entity.replicas, label)
        if len(pairs) > MOST:
            raise EntityError(f"{label}: {len(pairs)} replicas, at most {MOST} are possible", "RESOURCE_EXHAUSTED")
        length = as_int(getattr(entity, "packet_length", 0), 16, f"{label}: packet_length")
        entities[number] = entity
        if not pairs:  # to the data plane an empty group is one whose only replica is dropped
            pairs = [(lib.INA_DROP_PORT, 0)]
        data = ffi.new("struct ina_replica[]", pairs)
        memory.append(data)
        return [{"op": op, "id": number, "count": len(pairs), "data": data, "size": length}]

    def read(self, pattern: Replicated) -> list[Replicated]:
        """The one with the pattern's number; 0: all."""
        return [entity for n, entity in self._entities[type(pattern)].items() if _number(pattern) in (0, n)]


@kind_of(*_FORMS, *TrafficManager.KINDS)
class ReplicationKind(Kind[Entity]):
    """Everything that the program's engine takes."""

    def write(self, batch: Batch, type_: str, entity: Entity) -> None:
        if type(entity) not in batch.engine.classes:
            raise EntityError(f"{type(entity).__name__}: {batch.program} is no TNA program", "UNIMPLEMENTED")
        batch.commands += batch.engine.apply(type_, entity, batch.memory)

    def read(self, view: View, pattern: Entity) -> Sequence[Entity]:
        if type(pattern) not in view.engine.classes:
            raise no_entity(pattern)
        return view.engine.read(pattern)
