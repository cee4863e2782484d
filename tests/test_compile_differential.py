"""Compiled programs against the reference interpreter on random packets."""

from __future__ import annotations

import random
import struct

import pytest
from both import Both

from ina import paths

WORKERS = 3
SLOTS = 4


def checksum(header: bytes) -> int:
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def aggregation_frame(rng: random.Random, values: int, size_code: int) -> tuple[bytes, int]:
    """A SwitchML frame, now and then wrong somewhere; and the port it comes in on."""
    worker = rng.randrange(WORKERS)
    payload_code = rng.choice([size_code] * 8 + [7])
    words = 0 if payload_code == 7 else values
    total = 20 + 8 + 8 + 2 + 4 * words
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, total, rng.randrange(1 << 16), 0, 64, 17, 0,
                     bytes([10, 0, 0, 1 + worker]), bytes([10, 0, 255, 254]))  # fmt: skip
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    tsi = rng.randrange(12)
    slot, version = tsi % SLOTS, tsi // SLOTS & 1
    values_ = [rng.choice([rng.getrandbits(32), 0x7FFFFFFF, 0x80000000, 1]) for _ in range(words)]
    frame = (
        bytes([2, 0, 0, 0, 0xFF, 0xFE]) + bytes([0, 0, 0, 0, 0, worker + 1]) + b"\x08\0" + ip
        + struct.pack("!HHHH", 4001, 0xBEE0 + rng.randrange(16), total - 20, 0)
        + struct.pack("!BBIH", 0x10 | payload_code, 1, tsi, version << 15 | slot)
        + struct.pack("!bB", rng.randrange(-96, 127), 5)
        + struct.pack(f"!{words}I", *values_) + rng.randbytes(rng.choice([0, 0, 0, 3]))
    )  # fmt: skip
    kind = rng.random()
    if kind < 0.1:
        broken = bytearray(frame)
        broken[rng.randrange(min(54, len(broken)))] ^= 1 << rng.randrange(8)
        frame = bytes(broken)
    elif kind < 0.15:
        frame = frame[: rng.randrange(len(frame))]
    elif kind < 0.2:
        frame = rng.randbytes(12) + b"\x08\x06" + rng.randbytes(28)
    return frame, worker + 1


@pytest.mark.parametrize(("values", "size_code", "strict"), [(32, 0, 1), (32, 0, 0), (64, 1, 1)])
def test_switchml(values, size_code, strict):
    both = Both(paths.p4_dir() / "switchml.p4", {"VALUES": str(values), "SLOTS": "8"})
    job = {"full": 7, "last": WORKERS - 1, "base": 2, "mask": SLOTS - 1, "incarnation": 5, "group": 9, "strict": strict}
    both.insert("SwitchIngress.admission.job", {"hdr.switchml.job": 1}, "SwitchIngress.admission.set_job", job)
    for w in range(WORKERS):
        match = {
            "hdr.switchml.job": 1,
            "hdr.ipv4.src_addr": 0x0A000001 + w,
            "hdr.udp.src_port": 4001,
            "standard.ingress_port": w + 1,
        }
        both.insert("SwitchIngress.admission.worker", match, "SwitchIngress.admission.set_worker", {"worker": 1 << w})
        both.insert("SwitchEgress.replicas.replica", {"hdr.switchml.job": 1, "standard.egress_rid": w},
                    "SwitchEgress.replicas.to_worker", {"mac": w + 1, "ip": 0x0A000001 + w, "port": 4001})  # fmt: skip
    both.insert(
        "SwitchIngress.forwarding.l2",
        {"hdr.ethernet.dst_addr": 0x020000000102},
        "SwitchIngress.forwarding.forward",
        {"port": 3},
    )
    both.default("SwitchIngress.forwarding.l2", "SwitchIngress.forwarding.flood", {"group": 10})
    both.group(9, [(w + 1, w) for w in range(WORKERS)])
    both.group(10, [(p, p) for p in range(1, 6)])
    rng = random.Random(values + strict)
    sent = 0
    for _ in range(300):
        sent += len(both.process(*aggregation_frame(rng, values, size_code)))
    assert sent > 50
    both.same_state()
    both.close()
