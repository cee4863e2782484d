"""Model of the switch: what p4/switchml.p4 must do with each frame.

An oracle without tables or registers: a dictionary of rows. Frames are bytes from the Ethernet header on.
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
DATA, PENDING, MAXIMUM, REFUSED = 1, 2, 3, 4
CHECK = struct.Struct(">BBHII")  # check header: version, flags, checksum of the headers, check words
CHECKED = 0x4000  # in set and slot: it is there
VERSION = 2


def binary(address) -> tuple[bytes, int, int]:
    """MAC, IPv4 address and UDP port of an ``Address`` as they are on the wire."""
    return bytes.fromhex(address.mac.replace(":", "")), int(IPv4Address(address.ip)), address.port


def ip_checksum(header: bytes) -> int:
    """Checksum of headers: 0 if the checksum field is right; the field's value if the field is 0."""
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


Address = tuple[bytes, int, int]  # MAC, IPv4 address, UDP port
ABOVE = 0  # in `Job.senders`


@dataclass
class Job:
    """A job at one switch. A child is a worker or a switch below. ``strict`` False: unmodified SwitchML clients."""

    number: int
    children: int
    slots: int
    full: int  # bits of all workers below this switch
    incarnation: int = 1
    life: int = 1
    slot_base: int = 0
    strict: bool = True
    senders: dict[tuple[int, int, int], int] = field(default_factory=dict)  # (port, IPv4, UDP) -> bits; parent: ABOVE
    group: list[tuple[int, Address]] = field(default_factory=list)  # port and address of each child
    has_parent: bool = False
    parent: tuple[int, Address, Address] | None = None  # port, its address, own address

    @classmethod
    def of_workers(cls, number: int, workers: list[Address], slots: int, **rest) -> Job:
        """Worker i on port i of the only switch."""
        senders = {(i, *worker[1:]): 1 << i for i, worker in enumerate(workers)}
        return cls(number, len(workers), slots, (1 << len(workers)) - 1, senders=senders, group=list(enumerate(workers)), **rest)


@dataclass
class Row:
    """One set of one slot. ``missing``: how many children its phase waits for. ``answered``: has the parent's result."""

    tsi: int
    incarnation: int
    type: int
    size: int
    missing: int
    seen: int = 0
    answered: bool = False
    exponents: tuple[int, int] = (-128, -128)
    overflow: bool = False
    check: tuple[int, int] = (0, 0)
    values: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))


def claimed(frame: bytes) -> bytes:
    """The IPv4 source address that a frame claims; 0.0.0.0: none; 255.255.255.255: hidden behind a VLAN tag."""
    kind = frame[12:14]
    if kind == b"\x08\x00" and len(frame) >= 34:
        return frame[26:30]
    if kind == b"\x08\x06" and len(frame) >= 32:
        return frame[28:32]
    return b"\xff" * 4 if kind in (b"\x81\x00", b"\x88\xa8") else bytes(4)


class ModelSwitch:
    """Model switch: ``process`` takes one frame and returns the frames that it causes, as (port, frame).

    ``forwarding``, for other than aggregation frames: port, or ports to flood, by destination MAC. With ``checks``, frames from
    ports that are not ``trusted`` are forwarded only from ``hosts``: (port, MAC, IPv4 address or 0.0.0.0).
    """

    def __init__(self, jobs: list[Job], values: int):
        self.jobs = {job.number: job for job in jobs}
        self.values = values  # integers per packet that the program is made for
        self.forwarding: dict[bytes, int | list[int]] = {}
        self.checks = False
        self.trusted: set[int] = set()
        self.hosts: set[tuple[int, bytes, bytes]] = set()
        self.rows: dict[int, Row] = {}
        self.drops: Counter[str] = Counter()

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        verdict = self._aggregate(port, frame) if is_aggregation(frame) else self._forward(port, frame)
        if isinstance(verdict, str):
            self.drops[verdict] += 1
            return []
        return verdict

    def _forward(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        if self.checks and port not in self.trusted and (port, frame[6:12], claimed(frame)) not in self.hosts:
            return []
        out = self.forwarding.get(frame[:6], []) if len(frame) >= 14 else []
        if isinstance(out, int):
            return [(out, frame)]
        return [(p, frame) for p in out if p != port]

    def _aggregate(self, port: int, frame: bytes) -> list[tuple[int, bytes]] | str:
        if len(frame) < 50:
            return "malformed"
        (_, _, _, _, _, total_length, _, _, _, _, checksum, src, _, src_port, _, udp_length, _,
         kind, number, tsi, set_slot, e0, e1) = HEADER.unpack(frame[:52].ljust(52, b"\0"))
        size = kind & 7
        checked = bool(set_slot & CHECKED)
        begin = 64 if checked else 52
        supported = size in (NO_VALUES, SIZE_CODES[self.values])
        pending = (kind >> 4, size) == (PENDING, NO_VALUES)
        payload = 4 if pending else 4 * self.values if size == SIZE_CODES[self.values] else 0
        data = kind >> 4 in (DATA, MAXIMUM)
        extracted = 4 * self.values if size == SIZE_CODES[self.values] else 0
        if (checked or supported) and len(frame) < begin + extracted:
            return "malformed"
        if ip_checksum(frame[14:24] + bytes(2) + frame[26:34]) != checksum:
            return "corrupt"
        version, flags, headers, *words = CHECK.unpack_from(frame, 52) if checked else (VERSION, 0, 0, 0, 0)
        if checked and ip_checksum(frame[42:54] + frame[56:64]) != headers:
            return "corrupt"
        other = version != VERSION
        if not other and (not (data or pending) or pending and (not checked or len(frame) < begin + payload)):
            return "malformed"
        if not other and not supported:
            return "wrong size"
        if not other and (total_length, udp_length) != (begin - 14 + payload, begin - 34 + payload):
            return "malformed"

        job = self.jobs.get(number)
        if job is None:
            return "unknown job"
        bit = job.senders.get((port, src, src_port))
        if bit is None or (not other and pending and bit != ABOVE):
            return "wrong source"
        if other or (job.strict and not checked):
            if bit == ABOVE or kind >> 4 == REFUSED or not (checked or supported):
                return "version"
            self.drops["version"] += 1
            return [(port, _refused(frame, begin + extracted))]
        if job.strict and e1 & 0xFF != job.life:
            return "old life"
        slot, set_ = set_slot & 0x3FFF, set_slot >> 15
        if slot >= job.slots:
            return "wrong slot"

        index = 2 * (job.slot_base + slot) + set_
        row = self.rows.get(index)
        if row is None or row.incarnation != job.incarnation or not row.seen:
            fresh = True
        elif job.strict and row.tsi != tsi:
            fresh = True
            if not self._final(job, row) or not 0 < (tsi - row.tsi) % 2**32 < 2**31:
                return "stale"
        else:
            fresh = False
            if (row.type, row.size) != (kind >> 4, size) and not pending:
                return "wrong size"
        if bit == ABOVE:
            return "stale" if fresh else self._from_above(job, row, frame, pending)
        if fresh:
            row = self.rows[index] = Row(tsi, job.incarnation, kind >> 4, size, job.children)
        if not job.strict:  # SwitchML's bitmaps: using one set clears the other
            other = self.rows.get(index ^ 1)
            if other is not None:
                other.seen &= ~bit

        if row.seen & bit:
            if self._final(job, row):
                return [(port, _reply(frame, row, self.values))]
            if row.missing == 0 and bit & job.full & -job.full:
                return self._up(job, row, frame)
            return [(port, _pending(frame, row, self.values, job.full))] if job.strict else "repeated"
        row.seen |= bit
        row.missing = (row.missing - 1) % 256
        row.tsi = tsi
        row.exponents = (max(row.exponents[0], e0), max(row.exponents[1], e1))
        if size != NO_VALUES:
            if fresh:
                row.check = words[0], words[1]
            elif kind >> 4 != MAXIMUM:
                row.check = (row.check[0] + words[0]) % 2**32, (row.check[1] + words[1]) % 2**32
            integers = np.frombuffer(frame, ">i4", self.values, begin).astype(np.int64)
            if kind >> 4 == MAXIMUM:
                row.overflow |= fresh and bool(kind & 8)
                row.values = integers if fresh else np.maximum(row.values, integers)
            else:
                total = integers if fresh else row.values + integers
                row.values = total.astype(np.int32).astype(np.int64)  # modulo 2**32
                row.overflow |= bool((row.values != total).any()) or bool(kind & 8)
        if row.missing:
            return []
        return self._up(job, row, frame) if job.has_parent else self._down(job, row, frame)

    @staticmethod
    def _final(job: Job, row: Row) -> bool:
        return row.missing == 0 and (row.answered or not job.has_parent)

    def _from_above(self, job: Job, row: Row, frame: bytes, pending: bool) -> list[tuple[int, bytes]] | str:
        if row.missing or row.answered:
            return "repeated" if row.answered else "stale"
        if pending:
            return [(p, _relayed(frame, to)) for p, to in job.group]
        row.answered = True
        row.exponents = struct.unpack_from("bb", frame, 50)
        if row.size != NO_VALUES:
            row.check = CHECK.unpack_from(frame, 52)[3:]
            row.values = np.frombuffer(frame, ">i4", self.values, 64).astype(np.int64)
            row.overflow = bool(frame[42] & 8)
        return self._down(job, row, frame)

    def _down(self, job: Job, row: Row, frame: bytes) -> list[tuple[int, bytes]]:
        return [(p, _reply(frame, row, self.values, to)) for p, to in job.group]

    def _up(self, job: Job, row: Row, frame: bytes) -> list[tuple[int, bytes]] | str:
        if job.parent is None:
            return "no parent"
        port, to, own = job.parent
        return [(port, _reply(frame, row, self.values, to, own))]


def is_aggregation(frame: bytes) -> bool:
    """True for IPv4 without options or fragment offset, over UDP, to one of SwitchML's ports."""
    return (
        len(frame) >= 42
        and frame[12:15] == b"\x08\x00\x45"
        and not int.from_bytes(frame[20:22], "big") & 0x1FFF
        and frame[23] == 17
        and int.from_bytes(frame[36:38], "big") & 0xFFF0 == 0xBEE0
    )


def _turned(frame: bytes, to: Address | None, own: Address | None = None) -> list:
    """Header fields of an answer to `frame`: to its sender or to `to`, from the address it was sent to or from `own`."""
    fields = list(HEADER.unpack_from(frame))
    mac, ip, port = to or (fields[1], fields[11], fields[13])
    own_mac, own_ip, own_port = own or (fields[0], fields[12], fields[14])
    fields[0:2] = mac, own_mac
    fields[8] = 64
    fields[11:13] = own_ip, ip
    fields[13:15] = own_port, port
    fields[16] = 0
    return fields


def _sealed(fields: list, check: bytes, payload: bytes, padding: bytes) -> bytes:
    """The frame; `check`: the check header with any checksum, or nothing."""
    fields[5], fields[15] = 38 + len(check + payload), 18 + len(check + payload)
    fields[10] = 0
    fields[10] = ip_checksum(HEADER.pack(*fields)[14:34])
    head = HEADER.pack(*fields)
    if check:
        check = check[:2] + ip_checksum(head[42:] + check[:2] + check[4:]).to_bytes(2, "big") + check[4:]
    return head + check + payload + padding


def _padding(frame: bytes, values: int) -> bytes:
    """Bytes after the IPv4 packet, such as the padding of short Ethernet frames; the answer carries them, too."""
    begin = 52 + len(_check(frame))
    return frame[begin if frame[42] & 7 == NO_VALUES else begin + 4 * values :]


def _check(frame: bytes) -> bytes:
    """The frame's check header, or nothing."""
    return frame[52:64] if frame[48] & CHECKED >> 8 else b""


def _reply(frame: bytes, row: Row, values: int, to: Address | None = None, own: Address | None = None) -> bytes:
    fields = _turned(frame, to, own)
    fields[17] = row.type << 4 | row.overflow << 3 | row.size
    fields[21:23] = row.exponents
    check = _check(frame)
    if check and row.size != NO_VALUES:
        check = check[:4] + struct.pack(">II", *row.check)
    return _sealed(fields, check, row.values.astype(">i4").tobytes(), _padding(frame, values))


def _pending(frame: bytes, row: Row, values: int, full: int) -> bytes:
    fields = _turned(frame, None)
    fields[17] = PENDING << 4 | NO_VALUES
    return _sealed(fields, _check(frame), (full & ~row.seen).to_bytes(4, "big"), _padding(frame, values))


def _refused(frame: bytes, end: int) -> bytes:
    """The answer to a frame of another version, whose headers and known values end at `end`."""
    fields = _turned(frame, None)
    fields[17] = REFUSED << 4 | NO_VALUES
    fields[20] |= CHECKED
    return _sealed(fields, CHECK.pack(VERSION, 0, 0, 0, 0), b"", frame[end:])


def _relayed(frame: bytes, to: Address) -> bytes:
    """A pending frame from above, for a child."""
    fields = _turned(frame, to)
    fields[17] &= 0xF7
    return _sealed(fields, frame[52:64], frame[64:68], frame[68:])
