"""The packet replication engine of v1model's programs, and the kind of all entities that some engine takes.

traffic_manager.py is TNA's engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ina.base.native import ffi, lib
from ina.p4.runtime.command import Command, Memory
from ina.p4.runtime.entities import CloneSessionEntry, Entity, MulticastGroupEntry, as_int
from ina.p4.runtime.kinds import Batch, Kind, View, kind_of, no_entity
from ina.p4.runtime.p4info import EntityError
from ina.p4.runtime.traffic_manager import TrafficManager

MOST = 65535  # the highest number of a group or session, and the most replicas of one
Replicated = MulticastGroupEntry | CloneSessionEntry


@dataclass(frozen=True, slots=True)
class _Form:
    """One class of entities: its name in errors, the command that sets one, and what differs between the classes."""

    label: str
    op: int
    number: Callable[[Any], int]
    packet_length: Callable[[Any], int]


_FORMS: dict[type[Entity], _Form] = {
    MulticastGroupEntry: _Form("multicast group", lib.INA_SET_GROUP, lambda e: e.group_id, lambda e: 0),
    CloneSessionEntry: _Form("clone session", lib.INA_SET_SESSION, lambda e: e.session_id, lambda e: e.packet_length),
}


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
        form, entities = _FORMS[type(entity)], self._entities[type(entity)]
        number = form.number(entity)
        label = f"{form.label} {number}"
        if not 1 <= number <= MOST:
            raise EntityError(f"{label}: expected 1..{MOST}")
        if type_ == "INSERT" and number in entities:
            raise EntityError(f"{label} is there already", "ALREADY_EXISTS")
        if type_ != "INSERT" and number not in entities:
            raise EntityError(f"{label} is not there", "NOT_FOUND")
        if type_ == "DELETE":
            del entities[number]
            return [{"op": form.op, "id": number}]
        pairs = [(as_int(r.port, 9, f"{label}: port"), as_int(r.rid, 16, f"{label}: replication id")) for r in entity.replicas]
        if len(set(pairs)) != len(pairs):
            raise EntityError(f"{label}: two replicas have the same port and replication id")
        if len(pairs) > MOST:
            raise EntityError(f"{label}: {len(pairs)} replicas, at most {MOST} are possible", "RESOURCE_EXHAUSTED")
        length = as_int(form.packet_length(entity), 16, f"{label}: packet_length")
        entities[number] = entity
        if not pairs:  # to the data plane an empty group is one whose only replica is dropped
            pairs = [(lib.INA_DROP_PORT, 0)]
        data = ffi.new("struct ina_replica[]", pairs)
        memory.append(data)
        return [{"op": form.op, "id": number, "count": len(pairs), "data": data, "size": length}]

    def read(self, pattern: Replicated) -> list[Replicated]:
        """The one with the pattern's number; 0: all."""
        number = _FORMS[type(pattern)].number(pattern)
        return [entity for n, entity in self._entities[type(pattern)].items() if number in (0, n)]


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
