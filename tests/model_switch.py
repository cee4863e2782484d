"""The switch's rules, written plainly: what p4/switchml.p4 must do with each frame, one job at a time.

An oracle: no tables, no registers, a dictionary of rows. Frames are bytes from the Ethernet header on.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv4Address

import numpy as np

HEADER = struct.Struct(">6s6sH BBHHHBBHII HHHH BBIH bB")  # Ethernet, IPv4, UDP, SwitchML, exponents
assert HEADER.size == 52
SIZE_CODES = {32: 0, 64: 1, 128: 2, 256: 3, 1024: 4, 2048: 5}
NO_VALUES = 7
DATA, PENDING = 1, 2


def binary(address) -> tuple[bytes, int, int]:
    """MAC, IPv4 address and UDP port of an ``Address`` as they are on the wire."""
    return bytes.fromhex(address.mac.replace(":", "")), int(IPv4Address(address.ip)), address.port


def ip_checksum(header: bytes) -> int:
    total = sum(struct.unpack(">10H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass
class Job:
    number: int
    workers: list[tuple[bytes, int, int]]  # MAC, IPv4 address, UDP port; worker i is on switch port i
    slots: int
    values: int
    incarnation: int = 1
    slot_base: int = 0


@dataclass
class Row:
    """One set of one slot."""

    tsi: int
    incarnation: int
    size: int
    seen: int = 0
    exponent: int = -128
    overflow: bool = False
    values: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))


class ModelSwitch:
    """``process`` takes one frame and returns the frames that it causes, as (port, frame)."""

    def __init__(self, jobs: list[Job]):
        self.jobs = {job.number: job for job in jobs}
        self.rows: dict[int, Row] = {}
        self.drops: Counter[str] = Counter()

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        verdict = self._process(port, frame)
        if isinstance(verdict, str):
            self.drops[verdict] += 1
            return []
        return verdict

    def _process(self, port: int, frame: bytes) -> list[tuple[int, bytes]] | str:
        if len(frame) < HEADER.size:
            return "malformed"
        (_, _, ethertype, version, _, _, _, fragment, _, protocol, _, src, _, src_port, dst_port, _, _,
         kind, number, tsi, set_slot, e0, e1) = HEADER.unpack_from(frame)  # fmt: skip
        if (ethertype, version, protocol, dst_port & 0xFFF0) != (0x0800, 0x45, 17, 0xBEE0) or fragment & 0x1FFF:
            return "malformed"
        if ip_checksum(frame[14:34]) or kind >> 4 != DATA or set_slot & 0x4000:
            return "malformed"

        job = self.jobs.get(number)
        if job is None:
            return "unknown job"
        size = kind & 7
        if size not in (NO_VALUES, SIZE_CODES[job.values]):
            return "wrong size"
        if size != NO_VALUES and len(frame) < HEADER.size + 4 * job.values:
            return "malformed"
        if port >= len(job.workers) or job.workers[port][1:] != (src, src_port):
            return "wrong source"
        if e1 != job.incarnation & 0xFF:
            return "old incarnation"
        slot, which = set_slot & 0x3FFF, set_slot >> 15
        if slot >= job.slots:
            return "wrong slot"

        full, bit = (1 << len(job.workers)) - 1, 1 << port
        index = 2 * (job.slot_base + slot) + which
        row = self.rows.get(index)
        if row is None or row.incarnation != job.incarnation:
            row = self.rows[index] = Row(tsi, job.incarnation, size)
        elif row.tsi != tsi:
            newer = 0 < (tsi - row.tsi) % 2**32 < 2**31
            if row.seen != full or not newer:
                return "stale"
            row = self.rows[index] = Row(tsi, job.incarnation, size)

        if row.seen & bit:
            if row.seen == full:
                return [(port, self._reply(job, port, frame, row))]
            return [(port, self._reply(job, port, frame, row, pending=True))]
        row.seen |= bit
        row.exponent = max(row.exponent, e0)
        if size != NO_VALUES:
            values = np.frombuffer(frame, ">i4", job.values, HEADER.size).astype(np.int64)
            if not row.values.size:
                row.values = np.zeros(job.values, np.int64)
            total = row.values + values
            row.values = total.astype(np.int32).astype(np.int64)  # modulo 2**32
            row.overflow |= bool((row.values != total).any())
        if row.seen == full:
            return [(p, self._reply(job, p, frame, row)) for p in range(len(job.workers))]
        return []

    def _reply(self, job: Job, port: int, frame: bytes, row: Row, pending: bool = False) -> bytes:
        fields = list(HEADER.unpack_from(frame))
        switch_mac, switch_ip, switch_port = fields[0], fields[12], fields[14]
        mac, ip, udp = job.workers[port]
        if pending:
            payload = row.seen.to_bytes(4, "big")
            fields[17] = PENDING << 4 | NO_VALUES
        else:
            payload = row.values.astype(">i4").tobytes()
            fields[17] = DATA << 4 | row.overflow << 3 | fields[17] & 7
            fields[21] = row.exponent
        fields[0:2] = mac, switch_mac
        fields[5] = 38 + len(payload)  # IPv4 20, UDP 8, SwitchML 8, exponents 2
        fields[8] = 64
        fields[10:15] = 0, switch_ip, ip, switch_port, udp
        fields[15:17] = 18 + len(payload), 0
        head = HEADER.pack(*fields)
        fields[10] = ip_checksum(head[14:34])
        return HEADER.pack(*fields) + payload
