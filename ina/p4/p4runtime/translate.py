"""P4Runtime's messages to the switch's entities and back, at both ends: by the codecs of codecs.py, for one program.

`Translator` is the server's end, and checks messages of strangers; `RemoteEntities` the client's, which leaves to the server what
the server checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ina.base.extras import extra

with extra("p4runtime"):
    from google.protobuf.message import Message

from ina.p4.p4runtime import cell_codecs, profile_codecs, replication_codecs, table_codecs  # noqa: F401 (they register codecs)
from ina.p4.p4runtime.codecs import CODECS, REPLICATION, Codec, content, wrapped
from ina.p4.p4runtime.messages import config, p4
from ina.p4.p4runtime.program import ProgramMessages
from ina.p4.runtime import Entity, EntityError, Layout, P4Info, SwitchTarget, Update
from ina.p4.runtime.entities import checked


def unserved(kind: str | None) -> EntityError:
    if kind is None:
        return EntityError("the entity is empty: set one of the kinds of P4Runtime's Entity")
    return EntityError(f"{kind}: this switch has none but v1model's externs", "UNIMPLEMENTED")


def type_name(update: p4.Update) -> str:
    """INSERT, MODIFY or DELETE. Raises EntityError."""
    type_ = p4.Update.Type.Name(update.type)
    if type_ == "UNSPECIFIED":
        raise EntityError("the update has no type: INSERT, MODIFY or DELETE")
    return type_


class Translator:
    """The server's codecs. A DigestEntry is none of the switch's entities (digests.py)."""

    def __init__(self, info: P4Info, message: config.P4Info, layout: Layout):
        self.program = ProgramMessages(info, message, layout)
        self._codecs = {c.field: c(self.program) for c in CODECS.values()}

    def updates(self, update: p4.Update) -> list[Update]:
        """The switch's updates for one of P4Runtime's. Raises EntityError."""
        type_ = type_name(update)
        codec, message = self._content(update.entity)
        return codec.updates(type_, message)

    def read(self, pattern: p4.Entity, switch: SwitchTarget) -> Iterator[p4.Entity]:
        """The messages of the entities that match (§9, §13). Raises EntityError."""
        kind = pattern.WhichOneof("entity")
        if kind == "extern_entry" and not pattern.extern_entry.ListFields():
            return
        if kind == REPLICATION and pattern.packet_replication_engine_entry.WhichOneof("type") is None:
            raise EntityError("packet_replication_engine_entry is empty: set a multicast group or a clone session")
        codec, message = self._content(pattern)
        for answer in codec.answers(message, switch):
            yield wrapped(codec.field, answer)

    def _content(self, entity: p4.Entity) -> tuple[Codec[Any, Any], Message]:
        kind, message = content(entity)
        if kind is None or kind not in self._codecs:
            raise unserved(kind)
        return self._codecs[kind], message

    def begin(self) -> None:
        """Begins another batch of updates."""
        for codec in self._codecs.values():
            codec.begin()

    def record(self, update: p4.Update) -> None:
        """Records an update that was made, so that reads answer as it was written."""
        kind, message = content(update.entity)
        if kind in self._codecs:
            self._codecs[kind].record(p4.Update.Type.Name(update.type), message)

    def inherit(self, other: Translator) -> None:
        """Copies the records of entities that are now in this translator's switch."""
        for kind, codec in self._codecs.items():
            codec.inherit(other._codecs[kind])


class RemoteEntities:
    """The client's codecs. `message`: the program's P4Info as a server returns it, `info` the same in the switch's form."""

    def __init__(self, info: P4Info, message: config.P4Info):
        self.info = info
        registers = [{"name": r.name, "width": r.width} for r in info.registers.values()]
        program = ProgramMessages(info, message, {"registers": registers})
        self._codecs: Mapping[type[Entity], Codec[Entity, Any]] = {entity: c(program) for entity, c in CODECS.items()}
        self._by_field = {codec.field: codec for codec in self._codecs.values()}

    def message(self, entity: Entity) -> p4.Entity:
        """The message for an update, or as a pattern to read. Raises EntityError."""
        if type(entity) not in self._codecs:
            raise EntityError(f"{entity!r} is no entity of a switch")
        codec = self._codecs[type(entity)]
        return wrapped(codec.field, codec.request(checked(entity, is_pattern=True)))

    def entity(self, message: p4.Entity) -> Entity:
        """The entity in a server's answer. Raises EntityError: it is of a kind that is never requested."""
        kind, answer = content(message)
        if kind is None or kind not in self._by_field:
            raise EntityError(f"the switch answers with a {kind}, which was not asked for", "INTERNAL")
        return self._by_field[kind].answered(answer)
