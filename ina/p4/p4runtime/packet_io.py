"""Packet-in and packet-out (P4Runtime §16.1): metadata to and from the controller header in front of the frame."""

from __future__ import annotations

from ina.p4.p4runtime.messages import config, p4
from ina.p4.p4runtime.values import decode, encode
from ina.p4.runtime import EntityError


class ControllerHeader:
    """The header called `name` ("packet_in", "packet_out") in a P4Info; without one, frames have no header."""

    def __init__(self, message: config.P4Info, name: str):
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
        frame: bytes = (value << self._padding).to_bytes(self.size, "big") + packet.payload
        return frame

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
