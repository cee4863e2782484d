"""Records that a switch returns: counters of its ports, the packet trace, digests."""

from __future__ import annotations

from dataclasses import dataclass

DROP_REASONS = (
    "ingress", "egress", "no_port", "no_group", "no_session", "tail", "back_pressure", "too_long", "passes",
    "no_buffer", "malformed", "assertion", "loop_limit", "reentries", "no_memory",
)  # fmt: skip
VERDICTS = ("drop", "unicast", "multicast", "resubmit", "recirculate", "failed", "endless")


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


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """A frame as it came in (`direction` "in", `target`: egress port or group) or went out ("out", replication id).

    `time` in ps; `data`: its first bytes.
    """

    time: int
    port: int
    direction: str
    verdict: str
    target: int
    instance_type: int
    length: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest: its fields by name. `data`: all metadata of the packet at the call of `digest`; `time` in ps."""

    time: int
    ingress_port: int
    name: str
    fields: dict[str, int]
    data: bytes
