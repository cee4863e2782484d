"""Records that a switch returns: counters of its ports, digests."""

from __future__ import annotations

from dataclasses import dataclass

from ina.base.native import CData

DROP_REASONS = (
    "ingress", "egress", "no_port", "no_group", "no_session", "tail", "back_pressure", "too_long", "passes",
    "no_buffer", "malformed", "assertion", "loop_limit", "reentries", "no_memory",
)


@dataclass(frozen=True, slots=True)
class PortStats:
    """Packets and bytes through one port. `drops` by reason (DROP_REASONS)."""

    rx_packets: int
    rx_bytes: int
    tx_packets: int
    tx_bytes: int
    ecn_marks: int
    recirculated: int
    drops: dict[str, int]

    @classmethod
    def of(cls, raw: CData) -> PortStats:
        """Returns those of a ``struct ina_switch_port_stats``."""
        return cls(raw.rx_packets, raw.rx_bytes, raw.tx_packets, raw.tx_bytes, raw.ecn_marks, raw.recirculated,
                   dict(zip(DROP_REASONS, raw.drops, strict=True)))


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest: its fields by name. `data`: all metadata of the packet at the call of `digest`; `time` in ps."""

    time: int
    ingress_port: int
    name: str
    fields: dict[str, int]
    data: bytes
