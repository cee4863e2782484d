"""The switch's rules, written plainly: what p4/switchml.p4 must do with each frame.

An oracle: no tables, no registers, a dictionary of rows. Frames are bytes from the Ethernet header on.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv4Address

import numpy as np

HEADER = struct.Struct(">6s6sH BBHHHBBHII HHHH BBIH bb")  # Ethernet, IPv4, UDP, SwitchML, exponents
assert HEADER.size == 52
SIZE_CODES = {32: 0, 64: 1, 128: 2, 256: 3, 1024: 4, 2048: 5}
NO_VALUES = 7
DATA, PENDING = 1, 2


def binary(address) -> tuple[bytes, int, int]:
    """MAC, IPv4 address and UDP port of an ``Address`` as they are on the wire."""
    return bytes.fromhex(address.mac.replace(":", "")), int(IPv4Address(address.ip)), address.port


def ip_checksum(header: bytes) -> int:
    """Of the 20 bytes with whatever checksum field they have: 0 if that is right, what belongs there if it is 0."""
    total = sum(struct.unpack(">10H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass
class Job:
    """``ports[i]`` is the switch port of worker i, by default i. ``strict`` False: unmodified SwitchML clients."""

    number: int
    workers: list[tuple[bytes, int, int]]  # MAC, IPv4 address, UDP port
    slots: int
    values: int
    incarnation: int = 1
    slot_base: int = 0
    strict: bool = True
    ports: list[int] = field(default_factory=list)

    def __post_init__(self):
        self.ports = self.ports or list(range(len(self.workers)))


@dataclass
class Row:
    """One set of one slot. ``missing``: how many workers its phase waits for."""

    tsi: int
    incarnation: int
    size: int
    missing: int
    seen: int = 0
    exponents: tuple[int, int] = (-128, -128)
    overflow: bool = False
    values: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))


class ModelSwitch:
    """``process`` takes one frame and returns the frames that it causes, as (port, frame).

    ``forwarding``, for all that is not aggregation: port, or a list of ports to flood, by destination MAC.
    """

    def __init__(self, jobs: list[Job], values: int | None = None):
        self.jobs = {job.number: job for job in jobs}
        self.values = values or jobs[0].values  # integers per packet that the program is made for
        self.forwarding: dict[bytes, int | list[int]] = {}
        self.rows: dict[int, Row] = {}
        self.drops: Counter[str] = Counter()

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        verdict = self._aggregate(port, frame) if is_aggregation(frame) else self._forward(port, frame)
        if isinstance(verdict, str):
            self.drops[verdict] += 1
            return []
        return verdict

    def _forward(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        out = self.forwarding.get(frame[:6], []) if len(frame) >= 14 else []
        if isinstance(out, int):
            return [(out, frame)]
        return [(p, frame) for p in out if p != port]

    def _aggregate(self, port: int, frame: bytes) -> list[tuple[int, bytes]] | str:
        if len(frame) < 50:
            return "malformed"
        (_, _, _, _, _, total_length, _, _, _, _, checksum, src, _, src_port, _, udp_length, _,
         kind, number, tsi, set_slot, e0, e1) = HEADER.unpack(frame[:52].ljust(52, b"\0"))  # fmt: skip
        size = kind & 7
        known = size in (NO_VALUES, SIZE_CODES[self.values])
        payload = 4 * self.values if size == SIZE_CODES[self.values] else 0
        if known and len(frame) < 52 + payload:
            return "malformed"
        if ip_checksum(frame[14:24] + bytes(2) + frame[26:34]) != checksum:
            return "malformed"
        if kind >> 4 != DATA or set_slot & 0x4000:
            return "malformed"
        if not known:
            return "wrong size"
        if (total_length, udp_length) != (38 + payload, 18 + payload):
            return "malformed"

        job = self.jobs.get(number)
        if job is None:
            return "unknown job"
        sources = [(p, *worker[1:]) for p, worker in zip(job.ports, job.workers, strict=True)]
        if (port, src, src_port) not in sources:
            return "wrong source"
        bit = 1 << sources.index((port, src, src_port))
        if job.strict and e1 & 0xFF != job.incarnation & 0xFF:
            return "old incarnation"
        slot, which = set_slot & 0x3FFF, set_slot >> 15
        if slot >= job.slots:
            return "wrong slot"

        index = 2 * (job.slot_base + slot) + which
        row = self.rows.get(index)
        if row is None or row.incarnation != job.incarnation or not row.seen:
            fresh = True
        elif job.strict and row.tsi != tsi:
            fresh = True
            if row.missing or not 0 < (tsi - row.tsi) % 2**32 < 2**31:
                return "stale"
        else:
            fresh = False
            if row.size != size:
                return "wrong size"
        if fresh:
            row = self.rows[index] = Row(tsi, job.incarnation, size, len(job.workers))
        if not job.strict:  # SwitchML's bitmaps: using one set clears the other
            other = self.rows.get(index ^ 1)
            if other is not None:
                other.seen &= ~bit

        if row.seen & bit:
            if row.missing == 0:
                return [(port, _reply(frame, row, self.values))]
            return [(port, _pending(frame, row, self.values))] if job.strict else "repeated"
        row.seen |= bit
        row.missing = (row.missing - 1) % 256
        row.tsi = tsi
        row.exponents = (max(row.exponents[0], e0), max(row.exponents[1], e1))
        if size != NO_VALUES:
            given = np.frombuffer(frame, ">i4", self.values, 52).astype(np.int64)
            total = given if fresh else row.values + given
            row.values = total.astype(np.int32).astype(np.int64)  # modulo 2**32
            row.overflow |= bool((row.values != total).any())
        if row.missing == 0:
            return [(p, _reply(frame, row, self.values, to)) for p, to in zip(job.ports, job.workers, strict=True)]
        return []


def is_aggregation(frame: bytes) -> bool:
    """IPv4 without options or fragment offset, over UDP, to one of SwitchML's ports."""
    return (
        len(frame) >= 42
        and frame[12:15] == b"\x08\x00\x45"
        and not int.from_bytes(frame[20:22], "big") & 0x1FFF
        and frame[23] == 17
        and int.from_bytes(frame[36:38], "big") & 0xFFF0 == 0xBEE0
    )


def _turned(frame: bytes, to: tuple[bytes, int, int] | None) -> list:
    """Header fields of the answer to `frame`, to its sender or to another worker."""
    fields = list(HEADER.unpack_from(frame))
    mac, ip, port = to or (fields[1], fields[11], fields[13])
    fields[0:2] = mac, fields[0]
    fields[8] = 64
    fields[11:13] = fields[12], ip
    fields[13:15] = fields[14], port
    fields[16] = 0
    return fields


def _sealed(fields: list, payload: bytes, padding: bytes) -> bytes:
    fields[5], fields[15] = 38 + len(payload), 18 + len(payload)
    fields[10] = 0
    fields[10] = ip_checksum(HEADER.pack(*fields)[14:34])
    return HEADER.pack(*fields) + payload + padding


def _padding(frame: bytes, values: int) -> bytes:
    """What came after the IPv4 packet, as when Ethernet pads short frames; it goes back with the answer."""
    return frame[52 if frame[42] & 7 == NO_VALUES else 52 + 4 * values :]


def _reply(frame: bytes, row: Row, values: int, to: tuple[bytes, int, int] | None = None) -> bytes:
    fields = _turned(frame, to)
    fields[17] = DATA << 4 | row.overflow << 3 | row.size
    fields[21:23] = row.exponents
    return _sealed(fields, row.values.astype(">i4").tobytes(), _padding(frame, values))


def _pending(frame: bytes, row: Row, values: int) -> bytes:
    fields = _turned(frame, None)
    fields[17] = PENDING << 4 | NO_VALUES
    return _sealed(fields, row.seen.to_bytes(4, "big"), _padding(frame, values))
