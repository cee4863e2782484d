"""Codecs of multicast groups and clone sessions (P4Runtime §9.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Self, TypeVar

from ina.p4.p4runtime.codecs import Codec, K, codec
from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.program import ProgramMessages, decode, encode
from ina.p4.runtime import CloneSessionEntry, EntityError, MulticastGroupEntry, Replica, SwitchTarget

R = TypeVar("R", p4.MulticastGroupEntry, p4.CloneSessionEntry)


def _replicas(request: p4.MulticastGroupEntry | p4.CloneSessionEntry, place: str) -> tuple[Replica, ...]:
    replicas = []
    for r in request.replicas:
        if r.backup_replicas:
            raise EntityError(f"{place}: backup replicas are not served", "UNIMPLEMENTED")
        port = decode(r.port, 32, f"{place}: port") if r.WhichOneof("port_kind") == "port" else r.egress_port
        replicas.append(Replica(port, r.instance))
    return tuple(replicas)


class Replicated(Codec[K, R], Generic[K, R]):
    """Replicas name their ports in one of two ways: answers do as the request did, which is recorded."""

    def __init__(self, program: ProgramMessages):
        super().__init__(program)
        self._numbered: set[int] = set()  # those written with `egress_port`, not `port`

    def _fill(self, message: R, number: int, replicas: tuple[Replica, ...]) -> R:
        for r in replicas:
            port = {"egress_port": r.port} if number in self._numbered else {"port": encode(r.port)}
            message.replicas.add(instance=r.rid, **port)
        return message

    def _record(self, number: int, request: R) -> None:
        if any(r.WhichOneof("port_kind") == "egress_port" for r in request.replicas):
            self._numbered.add(number)
        else:
            self._numbered.discard(number)

    def inherit(self, other: Self) -> None:
        self._numbered = set(other._numbered)

    def answered(self, answer: R) -> K:
        return self.entity("INSERT", answer)


@codec(MulticastGroupEntry, "multicast_group_entry")
class MulticastGroups(Replicated[MulticastGroupEntry, p4.MulticastGroupEntry]):
    def entity(self, type_: str, request: p4.MulticastGroupEntry) -> MulticastGroupEntry:
        number = request.multicast_group_id
        if type_ == "DELETE":
            return MulticastGroupEntry(number)
        return MulticastGroupEntry(number, _replicas(request, f"multicast group {number}"), request.metadata)

    def answers(self, pattern: p4.MulticastGroupEntry, switch: SwitchTarget) -> Iterator[p4.MulticastGroupEntry]:
        yield from map(self.request, switch.read([MulticastGroupEntry(pattern.multicast_group_id)]))

    def record(self, type_: str, request: p4.MulticastGroupEntry) -> None:
        self._record(request.multicast_group_id, request)

    def request(self, entity: MulticastGroupEntry) -> p4.MulticastGroupEntry:
        message = p4.MulticastGroupEntry(multicast_group_id=entity.group_id, metadata=entity.metadata)
        return self._fill(message, entity.group_id, entity.replicas)


@codec(CloneSessionEntry, "clone_session_entry")
class CloneSessions(Replicated[CloneSessionEntry, p4.CloneSessionEntry]):
    def entity(self, type_: str, request: p4.CloneSessionEntry) -> CloneSessionEntry:
        place = f"clone session {request.session_id}"
        if type_ == "DELETE":
            return CloneSessionEntry(request.session_id)
        if request.class_of_service:
            raise EntityError(f"{place}: class of service {request.class_of_service}: v1model has one class, 0")
        if request.packet_length_bytes < 0:
            raise EntityError(f"{place}: packet length {request.packet_length_bytes} is negative")
        return CloneSessionEntry(request.session_id, _replicas(request, place), request.packet_length_bytes)

    def answers(self, pattern: p4.CloneSessionEntry, switch: SwitchTarget) -> Iterator[p4.CloneSessionEntry]:
        yield from map(self.request, switch.read([CloneSessionEntry(pattern.session_id)]))

    def record(self, type_: str, request: p4.CloneSessionEntry) -> None:
        self._record(request.session_id, request)

    def request(self, entity: CloneSessionEntry) -> p4.CloneSessionEntry:
        message = p4.CloneSessionEntry(session_id=entity.session_id, packet_length_bytes=entity.packet_length)
        return self._fill(message, entity.session_id, entity.replicas)
