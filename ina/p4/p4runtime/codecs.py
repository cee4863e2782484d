"""Codecs of P4Runtime's entities: for each class of entities one class that knows its message, at both ends of a connection.

A server checks requests of strangers and answers with what the switch has; a client makes requests of its controller's entities
and trusts the answers. `@codec(EntityClass, "field")` registers a codec, where `field` is the message's in p4.v1.Entity (or in
its PacketReplicationEngineEntry): table_codecs.py, profile_codecs.py, cell_codecs.py and replication_codecs.py have them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, Self, TypeVar

from ina.base.extras import extra

with extra("p4runtime"):
    from google.protobuf.message import Message

from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.program import ProgramMessages
from ina.p4.runtime import Entity, EntityError, SwitchTarget, Update

K = TypeVar("K", bound=Entity)
M = TypeVar("M", bound=Message)
REPLICATION = "packet_replication_engine_entry"


class Codec(ABC, Generic[K, M]):
    """The entities of one class in one program; a codec keeps what the server must remember of them."""

    field: ClassVar[str]
    always_there: ClassVar[bool] = False  # only MODIFY is possible
    needs_data: ClassVar[bool] = False  # a request whose `data` is unset changes nothing

    def __init__(self, program: ProgramMessages):
        self.program = program

    # ---- at the server

    def updates(self, type_: str, request: M) -> list[Update]:
        """The switch's updates for a request: INSERT, MODIFY or DELETE. Raises EntityError."""
        if self.always_there and type_ != "MODIFY":
            raise EntityError(f"{self.field}: only MODIFY is possible")
        if self.needs_data and not request.HasField("data"):
            return []
        return [Update(type_, self.entity(type_, request))]

    @abstractmethod
    def entity(self, type_: str, request: M) -> K:
        """The switch's entity for a request. Raises EntityError."""

    @abstractmethod
    def answers(self, pattern: M, switch: SwitchTarget) -> Iterable[M]:
        """The messages of the entities that match; fields that are 0 or unset are wildcards (§13). Raises EntityError."""

    def begin(self) -> None:
        """Begins another batch of updates."""

    def record(self, type_: str, request: M) -> None:
        """Records an update that was made, so that answers are as it was written."""

    def inherit(self, other: Self) -> None:
        """Copies the records of entities that are now in this codec's switch."""

    # ---- at the client

    @abstractmethod
    def request(self, entity: K) -> M:
        """The message for an update, or as a pattern to read. Checks only what no message can express. Raises EntityError."""

    @abstractmethod
    def answered(self, answer: M) -> K:
        """The entity in a server's answer."""


CODECS: dict[type[Entity], type[Codec[Any, Any]]] = {}
C = TypeVar("C", bound=type[Codec[Any, Any]])


def codec(entity: type[Entity], field: str) -> Callable[[C], C]:
    """Registers a class as the codec of these entities, whose message is this field."""

    def register(codec_class: C) -> C:
        codec_class.field = field
        CODECS[entity] = codec_class
        return codec_class

    return register


def content(entity: p4.Entity) -> tuple[str | None, Message]:
    """The field that is set in a p4.v1.Entity (None: none), or in the replication entry in it, and the message there."""
    kind = entity.WhichOneof("entity")
    holder: Message = entity
    if kind == REPLICATION:
        holder = entity.packet_replication_engine_entry
        kind = entity.packet_replication_engine_entry.WhichOneof("type")
    return kind, getattr(holder, kind) if kind else holder


def wrapped(field: str, message: Message) -> p4.Entity:
    """The reverse of `content`."""
    entity = p4.Entity()
    holder = entity if field in p4.Entity.DESCRIPTOR.fields_by_name else entity.packet_replication_engine_entry
    getattr(holder, field).CopyFrom(message)
    return entity
