"""Scapy layers for SwitchML, generated from the layouts of the P4 program.

    from ina.aggregation.wire.scapy_layers import SwitchML, Exponents, Check, Values, Pending
    SwitchML(frame[42:]).show()
    Ether() / IP() / UDP(dport=0xBEE0) / SwitchML(job=1) / Exponents(e0=-3) / Check() / Values(v=list(range(256)))

Importing this module binds the layers to SwitchML's UDP ports. The payload's length follows the header's size code.
"""

from __future__ import annotations

from collections.abc import Mapping

from ina.base.extras import extra

with extra("dev"):
    from scapy.fields import AnyField, BitField, Field, FieldListField
    from scapy.layers.inet import UDP
    from scapy.packet import Packet, Raw, bind_layers

from ina.aggregation.lane import DEFAULT
from ina.aggregation.wire import kinds, layout

_WIRE = layout.load()
_CODES = layout.size_codes()
_CONSTANTS = _WIRE.constants
_KINDS = {kind.number: kind for kind in kinds.switchml()}
_HEADERS = {kind.extra.name: kind.extra for kind in _KINDS.values() if kind.extra}  # between the check header and the payload
_FORMATS = {(8, False): "B", (16, False): "!H", (32, False): "!I", (64, False): "!Q",
            (8, True): "b", (16, True): "!h", (32, True): "!i", (64, True): "!q"}
MOST = max(_CODES.values())
DEFAULTS = {"msg_type": _CONSTANTS["SWITCHML_DATA"], "size": _CONSTANTS["SIZE_CODE"], "checked": 1,
            "version": _CONSTANTS["WIRE_VERSION"]}


def described(header: layout.Header, defaults: Mapping[str, int] = DEFAULTS) -> list[AnyField]:
    """Returns Scapy fields for a header; aligned fields of whole bytes are numbers, others are bits."""
    result: list[AnyField] = []
    for field in header.fields:
        default = defaults.get(field.name, 0)
        format_ = _FORMATS.get((field.width, field.signed))
        if field.count > 1:  # as many as the header before declares, or the default
            one: AnyField = Field("", 0, _FORMATS[field.width, field.signed])
            result.append(FieldListField(field.name, [], one, count_from=_count, max_count=MOST))
        elif field.offset % 8 == 0 and format_:
            result.append(Field(field.name, default, format_))
        else:
            result.append(BitField(field.name, default, field.width))
    return result


def _count(packet: Packet) -> int:
    below = _head(packet)
    return _WIRE["values"].fields[0].count if below is None else _CODES.get(below.size, 0)


def _head(packet: Packet) -> SwitchML | None:
    below = packet.underlayer
    while below is not None and not isinstance(below, SwitchML):
        below = below.underlayer
    return below


class SwitchML(Packet):
    """Job, tsi, set and slot, message type and size code."""

    name = "SwitchML"
    fields_desc = described(_WIRE["switchml"])

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return Exponents if len(payload) >= _WIRE["exponents"].size else Raw


class Exponents(Packet):
    """Largest exponents; then the check header, or what follows it, depending on the SwitchML header before."""

    name = "SwitchML exponents"
    fields_desc = described(_WIRE["exponents"])

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        head = _head(self)
        if head is not None and head.checked and len(payload) >= _WIRE["check"].size:
            return Check
        return _payload(self, payload)


class Check(Packet):
    """Version, checksum of the headers and check words; then the workers missing, values, or nothing."""

    name = "check"
    fields_desc = described(_WIRE["check"])

    def post_build(self, packet: bytes, payload: bytes) -> bytes:
        """Fills in the checksum, if it is 0, from the headers below."""
        head = b""
        below = self.underlayer
        while below is not None and below.name in ("SwitchML exponents", "SwitchML", "ATP"):
            head = below.self_build() + head
            below = below.underlayer
        if not self.headers:
            extra = self.payload.self_build() if isinstance(self.payload, tuple(_EXTRA.values())) else b""
            packet = packet[:2] + layout.checksum(head + packet + extra).to_bytes(2, "big") + packet[4:]
        return packet + payload

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return _payload(self, payload)


def _payload(packet: Packet, payload: bytes) -> type[Packet]:
    head = _head(packet)
    kind = _KINDS.get(head.msg_type) if head is not None else None
    if kind and isinstance(packet, Check) and kind.extra and len(payload) >= kind.extra.size:
        return _EXTRA[kind.extra.name]
    if kind and kind.payload_bytes:
        return Pending if len(payload) >= kind.payload_bytes else Raw
    quarters = kind and kind.quarters or 4
    if head is None or head.size not in _CODES or len(payload) < DEFAULT.bytes(_CODES[head.size]) * quarters // 4:
        return Raw
    return _WORDS.get(kind.words, Values) if kind else Values


class Pending(Packet):
    """Bitmap of the workers that the slot has seen."""

    name = "SwitchML pending"
    fields_desc = described(_WIRE["pending"])


class Receivers(Packet):
    """Bitmaps of the workers that get the values, and of those that take part (p4/include/receivers/sets.p4)."""

    name = "SwitchML receivers"
    fields_desc = described(_HEADERS["receivers"])

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return _payload(self, payload)


class Offer(Packet):
    """A worker's offer to the sum that follows, or who contributes to it (p4/include/quorum/headers.p4)."""

    name = "SwitchML offer"
    fields_desc = described(_HEADERS["offer"])


_EXTRA: dict[str, type[Packet]] = {"receivers": Receivers, "offer": Offer}


class Values(Packet):
    """The integers, modulo 2^32."""

    name = "SwitchML values"
    fields_desc = described(_WIRE["values"])


class Indices(Packet):
    """THC's indices of 4 bits: a value's four in each field, that of its highest byte first (p4/include/thc/headers.p4)."""

    name = "THC indices"
    fields_desc = [FieldListField("v", [], Field("", 0, "!H"), count_from=_count, max_count=MOST)]


class Floats(Packet):
    """FPISA's numbers, of IEEE 754 (p4/include/fpisa/headers.p4)."""

    name = "FPISA floats"
    fields_desc = [FieldListField("v", [], Field("", 0.0, "!f"), count_from=_count, max_count=MOST)]


class Bytes(Packet):
    """Rounded sums of two lanes in each field, the upper lane's first (p4/include/requantised/headers.p4)."""

    name = "rounded sums"
    fields_desc = [FieldListField("v", [], Field("", 0, "!H"), count_from=_count, max_count=MOST)]


_WORDS = {"indices": Indices, "floats": Floats, "bytes": Bytes}

for _port in range(_CONSTANTS["SWITCHML_PORT"], _CONSTANTS["SWITCHML_PORT"] + 0x10000 - _CONSTANTS["SWITCHML_MASK"]):
    bind_layers(UDP, SwitchML, dport=_port)
    bind_layers(UDP, SwitchML, sport=_port)
