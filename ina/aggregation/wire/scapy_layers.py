"""Scapy layers for SwitchML, generated from the layouts of the P4 program.

    from ina.aggregation.wire.scapy_layers import SwitchML, Exponents, Values, Pending
    SwitchML(frame[42:]).show()
    Ether() / IP() / UDP(dport=0xBEE0) / SwitchML(job=1) / Exponents(e0=-3) / Values(v=list(range(256)))

Importing this module binds the layers to SwitchML's UDP ports. The payload's length follows the header's size code.
"""

from __future__ import annotations

from collections.abc import Mapping

from ina.base.extras import extra

with extra("dev"):
    from scapy.fields import AnyField, BitField, Field, FieldListField
    from scapy.layers.inet import UDP
    from scapy.packet import Packet, Raw, bind_layers

from ina.aggregation.wire import layout

_WIRE = layout.load()
_CODES = layout.size_codes()
_CONSTANTS = _WIRE.constants
_FORMATS = {(8, False): "B", (16, False): "!H", (32, False): "!I", (64, False): "!Q",
            (8, True): "b", (16, True): "!h", (32, True): "!i", (64, True): "!q"}  # fmt: skip
MOST = max(layout.VALUES)
DEFAULTS = {"msg_type": _CONSTANTS["SWITCHML_DATA"], "size": _CONSTANTS["SIZE_CODE"]}


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
    below = packet.underlayer.underlayer if packet.underlayer is not None else None
    return _CODES.get(below.size, 0) if isinstance(below, SwitchML) else _WIRE["values"].fields[0].count


class SwitchML(Packet):
    """Job, tsi, set and slot, message type and size code."""

    name = "SwitchML"
    fields_desc = described(_WIRE["switchml"])

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return Exponents if len(payload) >= _WIRE["exponents"].size else Raw


class Exponents(Packet):
    """Largest exponents; then the workers missing, values, or nothing, depending on the SwitchML header before."""

    name = "SwitchML exponents"
    fields_desc = described(_WIRE["exponents"])

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        head = self.underlayer
        if isinstance(head, SwitchML):
            if head.msg_type == _CONSTANTS["SWITCHML_PENDING"] and len(payload) >= _WIRE["pending"].size:
                return Pending
            if head.size in _CODES and len(payload) >= 4 * _CODES[head.size]:
                return Values
        return Raw


class Pending(Packet):
    """Bitmap of the workers that the slot has seen."""

    name = "SwitchML pending"
    fields_desc = described(_WIRE["pending"])


class Values(Packet):
    """The integers, modulo 2^32."""

    name = "SwitchML values"
    fields_desc = described(_WIRE["values"])


for _port in range(_CONSTANTS["SWITCHML_PORT"], _CONSTANTS["SWITCHML_PORT"] + 0x10000 - _CONSTANTS["SWITCHML_MASK"]):
    bind_layers(UDP, SwitchML, dport=_port)
    bind_layers(UDP, SwitchML, sport=_port)
