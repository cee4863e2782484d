"""Switches that an experiment is deployed on: steps that are planned, written, read back and undone.

Over BFRuntime everything is written; over P4Runtime, which has no ports, only tables, groups and sessions. A `Step` is a list of
`Change`s, which print themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ina.p4.bfrt import ports
from ina.p4.bfrt.ports import PortConfig
from ina.p4.bfrt.remote_switch import BfRuntimeTarget
from ina.p4.bfrt.rows import Row, inverse
from ina.p4.runtime.entities import CloneSessionEntry, Entity, MulticastGroupEntry, Replica, TableEntry, Update, as_int
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.p4info import P4Info
from ina.worlds.deployed.deployment_file import Mirror

FIXED = ("$SPEED", "$FEC")  # fields of a port that no MODIFY changes: the port is deleted and inserted again


@dataclass(frozen=True)
class Change:
    """INSERT, MODIFY or DELETE of one row, or INSERT or MODIFY of one entity. `before`: what it replaces."""

    type: str
    row: Row  # as BFRuntime has it, or for people only
    update: Update | None = None
    before: Any = None

    @property
    def entity(self) -> Entity:
        """The entity that the change writes."""
        assert self.update is not None
        return self.update.entity

    def __str__(self) -> str:
        return f"{self.type.lower():6} {self.row}"

    def as_json(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "table": self.row.table,
            "key": dict(self.row.key),
            "action": self.row.action,
            "data": dict(self.row.data),
        }


@dataclass
class Step:
    """Changes. `what`: their title for people; `changes` that are to be made; `there`: how many things are in place already."""

    what: str
    changes: list[Change]
    there: int = 0


class DeploymentError(RuntimeError):
    """A write failed, or reading back gave something else; the message names step, table and key."""


class Deployable(ABC):
    """A switch behind one control interface, `target`, which is closed with it: its `name` for people, and the switch's
    `address`."""

    name: str

    def __init__(self, target: Any):
        self.target, self.address = target, target.address

    @property
    def p4info(self) -> P4Info:
        p4info: P4Info = self.target.p4info
        return p4info

    @abstractmethod
    def dev_port(self, name: str) -> int:
        """Returns the device port of "1/0" on the front panel. Raises EntityError."""

    @abstractmethod
    def port(self, port: PortConfig) -> Step:
        """Plans the configuration of a port."""

    def entities(self, title: str, entities: Iterable[Entity]) -> Step:
        """Plans to bring the entities in place. Raises EntityError."""
        changes, there = list[Change](), 0
        for entity in entities:
            present = next(iter(self.target.read([entity])), None)
            if present is not None and _same(present, entity):
                there += 1
            else:
                changes += self._changes(entity, present)
        return Step(title, changes, there)

    @abstractmethod
    def _changes(self, entity: Entity, present: Entity | None) -> list[Change]:
        """Returns the changes that bring one entity in the place of the one that is present, if any."""

    @abstractmethod
    def mirror(self, mirror: Mirror) -> Step: ...

    @abstractmethod
    def write(self, step: Step) -> None:
        """Writes all of a step, or nothing. Raises EntityError, TimeoutError."""

    @abstractmethod
    def undo(self, step: Step) -> None:
        """Undoes a step that was written."""

    @abstractmethod
    def differs(self, step: Step) -> list[str]:
        """Reads a step back. Returns the differences from what was written, in words."""

    def close(self) -> None:
        self.target.close()

    def status(self) -> list[str]:
        """Lines for people after the deployment."""
        return []


class Bfrt(Deployable):
    """A switch over BFRuntime."""

    name = "BFRuntime"
    target: BfRuntimeTarget

    def __init__(self, target: BfRuntimeTarget):
        super().__init__(target)
        self._ports: dict[int, str] = {}

    def dev_port(self, name: str) -> int:
        return self.target.dev_port(name)

    def port(self, port: PortConfig) -> Step:
        number = self.dev_port(port.name)
        self._ports[number] = port.name
        row, title = port.row(number), f"port {port.name} (device port {number})"
        present = self._row(row)
        if present is not None and not ports.differs(row, present):
            return Step(title, [], 1)
        if present is not None and any(ports.canonical(present.data.get(f)) != ports.canonical(row.data[f]) for f in FIXED):
            return Step(title, [Change("DELETE", Row(row.table, row.key), before=present), Change("INSERT", row)])
        return Step(title, [_change(row, present)])

    def _changes(self, entity: Entity, present: Entity | None) -> list[Change]:
        update = Update("INSERT" if present is None else "MODIFY", entity)
        return [Change(type_, row, before=None if type_ == "INSERT" else self._row(row))
                for type_, row in self.target.changes(update)]

    def mirror(self, mirror: Mirror) -> Step:
        port = self.dev_port(mirror.port) if mirror.port else 0
        data = {"$direction": mirror.direction.upper(), "$session_enable": True, "$max_pkt_len": mirror.max_length,
                "$ucast_egress_port": port, "$ucast_egress_port_valid": bool(mirror.port), "$mcast_grp_a": mirror.group,
                "$mcast_grp_a_valid": bool(mirror.group)}
        row = Row("$mirror.cfg", {"$sid": mirror.session}, data, "$normal")
        present = self._row(row)
        there = present is not None and all(present.data.get(k) == v for k, v in data.items())
        return Step(f"mirror session {mirror.session}", [] if there else [_change(row, present)], int(there))

    def _row(self, row: Row) -> Row | None:
        try:
            return next(iter(self.target.client.read([Row(row.table, row.key, is_default=row.is_default)])), None)
        except EntityError as error:
            if error.code == "NOT_FOUND":
                return None
            raise

    def write(self, step: Step) -> None:
        self.target.client.write([(c.type, c.row) for c in step.changes])

    def undo(self, step: Step) -> None:
        inverses = []
        for c in reversed(step.changes):
            before = None if c.before is None else _writable(self.target.client.info, c.before)
            if (change := inverse((c.type, c.row), before)) is not None:
                inverses.append(change)
        self.target.client.write(inverses)

    def differs(self, step: Step) -> list[str]:
        wrong = []
        for change in step.changes:
            row = change.row
            present = self._row(row)
            if change.type == "DELETE":
                continue
            if present is None:
                wrong.append(f"{row.table}[{_key(row)}] is not there")
            elif row.table == "$PORT":
                if difference := ports.differs(row, present):
                    wrong.append(f"port {self._ports.get(row.key['$DEV_PORT'])}: {difference}")
            else:
                wrong += [f"{row.table}[{_key(row)}]: {name} is {present.data.get(name)!r}, not {value!r}"
                          for name, value in row.data.items() if _plain(present.data.get(name)) != _plain(value)]
        return wrong

    def status(self) -> list[str]:
        states = {number: "up" if row.get("$PORT_UP") else "DOWN: cable, speed, FEC, autonegotiation?"
                  for number, row in self.target.ports().items()}
        return [f"port {name} (device port {number}): {states[number]}"
                for number, name in sorted(self._ports.items()) if number in states]


class P4Runtime(Deployable):
    """A switch over P4Runtime. Ports are numbers, and are configured by other means."""

    name = "P4Runtime"

    def dev_port(self, name: str) -> int:
        if not name.isdigit():
            raise EntityError(f"port {name}: P4Runtime knows no front panel: give the device port's number, or use --api bfrt")
        return int(name)

    def port(self, port: PortConfig) -> Step:
        self.dev_port(port.name)
        return Step(f"port {port.name}: not P4Runtime's; configure it by the switch's own means", [])

    def _changes(self, entity: Entity, present: Entity | None) -> list[Change]:
        type_ = "INSERT" if present is None else "MODIFY"
        return [Change(type_, _shown(entity), Update(type_, entity), present)]

    def mirror(self, mirror: Mirror) -> Step:
        if not mirror.port:
            raise EntityError(
                f"mirror session {mirror.session}: to a group: P4Runtime's clone sessions name ports; use --api bfrt"
            )
        session = CloneSessionEntry(mirror.session, (Replica(self.dev_port(mirror.port), 0),), mirror.max_length)
        return self.entities(f"mirror session {mirror.session}", [session])

    def write(self, step: Step) -> None:
        self.target.write([c.update for c in step.changes])

    def undo(self, step: Step) -> None:
        self.target.write([Update("DELETE", c.entity) if c.before is None else Update("MODIFY", c.before)
                           for c in reversed(step.changes)])

    def differs(self, step: Step) -> list[str]:
        wrong = []
        for change in step.changes:
            present = next(iter(self.target.read([change.entity])), None)
            if present is None:
                wrong.append(f"{change.row} is not there")
            elif not _same(present, change.entity):
                wrong.append(f"{change.row} is {_shown(present)}")
        return wrong


def _change(row: Row, before: Row | None) -> Change:
    return Change("INSERT" if before is None else "MODIFY", row, before=before)


def _key(row: Row) -> str:
    return ", ".join(f"{k}={v}" for k, v in row.key.items())


def _writable(info: Any, row: Row) -> Row:
    """Returns a row that was read without its read-only fields."""
    table = info.table(row.table)
    action = table.action(row.action) if row.action else None
    return replace(row, data={k: v for k, v in row.data.items() if not table.field(k, action).read_only})


def _plain(value: Any) -> Any:
    """Returns an address as a number and a list sorted, so that values written in different ways compare equal."""
    if isinstance(value, str) and (value.count(":") == 5 or value.count(".") == 3):
        return as_int(value, 48, "value")
    return sorted(value) if isinstance(value, list) else value


def _same(present: Entity, entity: Entity) -> bool:
    """Returns True if the entity that is present does the same as `entity`, however names and values are written."""
    if isinstance(present, TableEntry) and isinstance(entity, TableEntry):
        names = present.action is not None and entity.action is not None and (
            str(present.action) == entity.action or str(present.action).endswith(f".{entity.action}"))
        values = {k: _plain(v) for k, v in entity.params.items()} == {k: _plain(v) for k, v in present.params.items()}
        return bool(names and values)
    if isinstance(present, MulticastGroupEntry) and isinstance(entity, MulticastGroupEntry):
        return set(present.replicas) == set(entity.replicas)
    return present == entity


def _shown(entity: Entity) -> Row:
    """Returns an entity as a line of a plan."""
    if isinstance(entity, TableEntry):
        return Row(str(entity.table), entity.match, entity.params, str(entity.action or ""), entity.is_default)
    if isinstance(entity, MulticastGroupEntry):
        return Row(
            "multicast group", {"group": entity.group_id}, {"replicas": [f"port {r.port} rid {r.rid}" for r in entity.replicas]}
        )
    if isinstance(entity, CloneSessionEntry):
        return Row("clone session", {"session": entity.session_id},
                   {"ports": [r.port for r in entity.replicas], "packet_length": entity.packet_length})
    return Row(type(entity).__name__, {}, {"is": repr(entity)})
