"""Digests and packets for the primary, and packets from it.

Digests are collected into lists, and not repeated until acknowledged (P4Runtime §9.7): a state machine without a clock, whose
`now` is in nanoseconds, of any origin. Metadata of packets is in the controller header in front of the frame (§16.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from ina.p4.p4runtime.messages import config as p4config
from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.program import decode, encode, structure
from ina.p4.runtime import Digest, EntityError, Layout

Values = tuple[int, ...]  # of a digest's fields

MAX_LIST = 1000  # where the controller sets no limit


@dataclass
class Kind:
    """An enabled digest."""

    config: p4.DigestEntry.Config
    waiting: dict[Values, p4.P4Data] = field(default_factory=dict)  # oldest first
    since: int = 0
    full: list[dict[Values, p4.P4Data]] = field(default_factory=list)  # of as many as were to be in a list, to be sent
    unacknowledged: dict[int, tuple[int, set[Values]]] = field(default_factory=dict)  # list id -> (sent, values)

    @property
    def most(self) -> int:
        """The most digests of a list."""
        return int(self.config.max_list_size) or MAX_LIST

    def forget(self, now: int) -> None:
        for number, (sent, _) in list(self.unacknowledged.items()):
            if now - sent >= self.config.ack_timeout_ns:
                del self.unacknowledged[number]

    def knows(self, values: Values) -> bool:
        full = self.full if self.config.ack_timeout_ns else []
        return any(values in known for known in (self.waiting, *full, *(sent for _, sent in self.unacknowledged.values())))


class DigestQueue:
    """Queues of the enabled digests. `message`: P4Info; `layout`: the program's, with the names and fields of digests."""

    def __init__(self, message: p4config.P4Info, layout: Layout):
        self._types = message.type_info
        self._infos = {d.preamble.id: d for d in message.digests}
        self._ids = {d.preamble.name: d.preamble.id for d in message.digests}
        self._widths = {
            d["name"]: [(f["name"], f["width"]) for f in d["fields"]] for d in layout.get("digests", ())
        }
        self._kinds: dict[int, Kind] = {}
        self._next_list = 1

    @property
    def enabled(self) -> bool:
        return bool(self._kinds)

    def kinds(self) -> dict[int, Kind]:
        """The enabled digests by id."""
        return dict(self._kinds)

    def updated(self, kinds: dict[int, Kind], type_: str, entry: p4.DigestEntry) -> dict[int, Kind]:
        """`kinds` after INSERT, MODIFY or DELETE of a DigestEntry. Raises EntityError."""
        number, config = entry.digest_id, entry.config
        if number not in self._infos:
            raise EntityError(f"no digest {number:#x}; there are: {', '.join(self._ids) or 'none'}")
        name = self._infos[number].preamble.name
        if type_ == "INSERT" and number in kinds:
            raise EntityError(f"digest {name} is enabled already", "ALREADY_EXISTS")
        if type_ != "INSERT" and number not in kinds:
            raise EntityError(f"digest {name} is not enabled", "NOT_FOUND")
        if type_ == "DELETE":
            return {i: kind for i, kind in kinds.items() if i != number}
        if min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
            raise EntityError(f"digest {name}: times and sizes must not be negative")
        config = deepcopy(config)
        return kinds | {number: Kind(config) if type_ == "INSERT" else replace(kinds[number], config=config)}

    def configure(self, kinds: dict[int, Kind]) -> None:
        """Sets what `updated` returned, before the next `add`."""
        self._kinds = kinds

    def inherit(self, old: DigestQueue) -> None:
        """Enables the digests that another program's queue has enabled, whose ids are all known here; nothing waits yet."""
        self._kinds = {i: Kind(kind.config) for i, kind in old._kinds.items()}

    def acknowledge(self, digest_id: int, list_id: int) -> None:
        if digest_id not in self._infos:
            raise EntityError(f"no digest {digest_id:#x}; there are: {', '.join(self._ids) or 'none'}")
        if digest_id in self._kinds:
            self._kinds[digest_id].unacknowledged.pop(list_id, None)

    def clear(self) -> None:
        """Forgets lists without acknowledgement, for a new primary: their digests may be sent again."""
        for kind in self._kinds.values():
            kind.unacknowledged.clear()

    def add(self, digests: Sequence[Digest], now: int) -> None:
        """Queues digests of the data plane; those that are not enabled are dropped."""
        for digest in digests:
            number = self._ids.get(digest.name, 0)
            kind = self._kinds.get(number)
            if kind is None:
                continue
            kind.forget(now)
            values = tuple(digest.fields.values())
            if kind.knows(values):
                continue
            if not kind.waiting:
                kind.since = now
            leaves = [(digest.fields[name], width) for name, width in self._widths[digest.name]]
            kind.waiting[values] = structure(self._infos[number].type_spec, iter(leaves), self._types)
            if len(kind.waiting) >= kind.most:
                kind.full.append(kind.waiting)
                kind.waiting = {}

    def due(self, now: int) -> list[p4.DigestList]:
        """The lists that are full, and those whose first digest has waited for `max_timeout_ns`."""
        lists = []
        for number, kind in self._kinds.items():
            # A MODIFY may have made lists shorter since digests began to wait.
            if kind.waiting and (len(kind.waiting) >= kind.most or now - kind.since >= kind.config.max_timeout_ns):
                kind.full.append(kind.waiting)
                kind.waiting = {}
            for digests in kind.full:
                items = list(digests.items())
                lists += [self._list(number, kind, dict(items[at : at + kind.most]), now)
                          for at in range(0, len(items), kind.most)]
            kind.full.clear()
        return lists

    def _list(self, number: int, kind: Kind, digests: dict[Values, p4.P4Data], now: int) -> p4.DigestList:
        message = p4.DigestList(digest_id=number, list_id=self._next_list, data=digests.values(), timestamp=now)
        self._next_list += 1
        if kind.config.ack_timeout_ns:
            kind.unacknowledged[message.list_id] = (now, set(digests))
        return message


# ---- packet-in and packet-out


class ControllerHeader:
    """The header called `name` ("packet_in", "packet_out") in a P4Info; without one, frames have no header."""

    def __init__(self, message: p4config.P4Info, name: str):
        headers = [h for h in message.controller_packet_metadata if h.preamble.name == name]
        self.name = name
        self.fields = [(m.id, m.name, m.bitwidth) for h in headers for m in h.metadata]
        bits = sum(width for _, _, width in self.fields)
        self.size = (bits + 7) // 8
        self._padding = self.size * 8 - bits  # at the end, should the program's header not fill its last byte

    def pack(self, packet: p4.PacketOut) -> bytes:
        """The frame of a PacketOut, header first. Raises EntityError."""
        values = {m.metadata_id: m.value for m in packet.metadata}
        if len(values) != len(packet.metadata):
            raise EntityError(f"{self.name}: a metadata id is given twice")
        unknown = sorted(set(values) - {number for number, _, _ in self.fields})
        if unknown:
            raise EntityError(f"{self.name}: no metadata with id {unknown[0]}; it has: {self._field_names()}")
        value = 0
        for number, name, width in self.fields:
            if number not in values:
                raise EntityError(f"{self.name}: metadata {name!r} (id {number}) is missing; it has: {self._field_names()}")
            value = value << width | decode(values[number], width, f"{self.name}: {name}")
        return bytes((value << self._padding).to_bytes(self.size, "big") + packet.payload)

    def unpack(self, frame: bytes) -> p4.PacketIn | None:
        """The PacketIn of a frame; None: it is too short to have the header."""
        if len(frame) < self.size:
            return None
        value = int.from_bytes(frame[: self.size], "big") >> self._padding
        metadata = []
        for number, _, width in reversed(self.fields):
            metadata.append(p4.PacketMetadata(metadata_id=number, value=encode(value & ((1 << width) - 1))))
            value >>= width
        return p4.PacketIn(payload=frame[self.size :], metadata=metadata[::-1])

    def _field_names(self) -> str:
        return ", ".join(f"{number} {name!r}" for number, name, _ in self.fields) or "none"
