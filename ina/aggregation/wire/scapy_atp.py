"""Scapy layers for ATP, generated from the layouts of the P4 program.

    from ina.aggregation.wire.scapy_atp import ATP, ATPCheck, ATPValues
    ATP(frame[42:]).show()
    Ether() / IP() / UDP(dport=0xBEF0) / ATP(job=1, bitmap=1) / ATPCheck() / ATPValues(v=list(range(256)))

Importing this module binds the layers to ATP's UDP ports. UDP gives the payload's length.
"""

from __future__ import annotations

from ina.base.extras import extra

with extra("dev"):
    from scapy.fields import Field, FieldListField
    from scapy.layers.inet import UDP
    from scapy.packet import Packet, Raw, bind_layers

from ina.aggregation.lane import DEFAULT
from ina.aggregation.wire import kinds, layout
from ina.aggregation.wire.scapy_layers import MOST, Check, Receivers, described

_WIRE = layout.load_atp()
KINDS = {kind.number: kind for kind in kinds.atp()}


class ATP(Packet):
    """Type and flags, exponent, aggregator, life, job, sequence and bitmap of workers."""

    name = "ATP"
    fields_desc = described(_WIRE["atp"], {"msg_type": _WIRE.constants["ATP_DATA"]})

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return ATPCheck


class ATPCheck(Check):
    """Version, checksum of the headers and check words."""

    name = "ATP check"
    fields_desc = described(_WIRE["check"])

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        kind = KINDS.get(self.underlayer.msg_type) if self.underlayer is not None else None
        if kind and kind.extra:
            return ATPReceivers if len(payload) >= kind.extra.size else Raw
        return Raw if kind and kind.payload_bytes else ATPValues


class ATPReceivers(Receivers):
    """Bitmaps of the workers that get the values, and of those that take part (p4/include/receivers/sets.p4)."""

    name = "ATP receivers"

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return ATPValues


class ATPValues(Packet):
    """The integers, modulo 2^32, or the bits of float32."""

    name = "ATP values"
    fields_desc = [FieldListField("v", [], Field("", 0, "!I"), length_from=lambda packet: DEFAULT.bytes(MOST), max_count=MOST)]


for _port in range(_WIRE.constants["ATP_PORT"], _WIRE.constants["ATP_PORT"] + 0x10000 - _WIRE.constants["ATP_MASK"]):
    bind_layers(UDP, ATP, dport=_port)
    bind_layers(UDP, ATP, sport=_port)
