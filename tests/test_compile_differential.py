"""Compiled programs against the reference interpreter on random packets."""

from __future__ import annotations

import random
import struct

import pytest
from shadow import Shadowed
from v1_program import source

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
    switch = Shadowed(paths.p4_dir() / "switchml.p4", {"VALUES": str(values), "SLOTS": "8"})
    tables = switch.tables
    tables["admission.job"].insert({"hdr.switchml.job": 1}, "set_job", [7, WORKERS - 1, 2, SLOTS - 1, 5, 9, strict])
    for w in range(WORKERS):
        worker = {"hdr.switchml.job": 1, "hdr.ipv4.src_addr": 0x0A000001 + w, "hdr.udp.src_port": 4001}
        tables["admission.worker"].insert({**worker, "standard.ingress_port": w + 1}, "set_worker", [1 << w])
        replica = {"hdr.switchml.job": 1, "standard.egress_rid": w}
        tables["replicas.replica"].insert(replica, "to_worker", [w + 1, 0x0A000001 + w, 4001])
    tables["forwarding.l2"].insert({"hdr.ethernet.dst_addr": 0x020000000102}, "forward", [3])
    tables["forwarding.l2"].set_default("flood", [10])
    switch.multicast_groups[9] = [(w + 1, w) for w in range(WORKERS)]
    switch.multicast_groups[10] = [(p, p) for p in range(1, 6)]
    rng = random.Random(values + strict)
    sent = 0
    for _ in range(200):
        sent += len(switch.process(*aggregation_frame(rng, values, size_code)))
    assert sent > 30


OPERATORS = ["+", "-", "*", "|+|", "|-|", "&", "|", "^"]


def expression(rng: random.Random, width: int, signed: bool, fields: list[str], depth: int) -> str:
    """A random expression of type bit<width> or int<width> over header fields of all widths."""
    kind = f"{'int' if signed else 'bit'}<{width}>"
    if depth == 0:
        if rng.random() < 0.3:
            return f"({kind}){rng.choice([0, 1, 3, (1 << width - 1) - 1])}"
        return f"({kind})(bit<{width}>){rng.choice(fields)}"
    choice = rng.randrange(10)
    a = expression(rng, width, signed, fields, depth - 1)
    if choice < 5:
        return f"({a} {rng.choice(OPERATORS)} {expression(rng, width, signed, fields, depth - 1)})"
    if choice == 5:
        return f"({a} {rng.choice(['<<', '>>'])} (bit<8>)({rng.choice(fields)} & {rng.choice([3, 127])}))"
    if choice == 6:
        return f"({rng.choice('-~')}{a})"
    if choice == 7:
        other = expression(rng, width, signed, fields, depth - 1)
        left, right = (expression(rng, width, signed, fields, depth - 1) for _ in range(2))
        return f"(({left} {rng.choice(['<', '<=', '==', '!=', '>', '>='])} {right}) ? {a} : {other})"
    if choice == 8 and width > 2:
        cut = rng.randrange(1, width)
        plain = f"((bit<{width}>){a})"
        return f"({kind})({plain}[{cut - 1}:0] ++ {plain}[{width - 1}:{cut}])"
    other_width = rng.choice([1, 7, 8, 16, 31, 32, 33, 64, 65, 100, 128])
    other = expression(rng, other_width, rng.random() < 0.5, fields, depth - 1)
    return f"({kind})(bit<{width}>)(bit<{other_width}>){other}"


@pytest.mark.parametrize("seed", range(6))
def test_random_expressions(tmp_path, seed):
    """Operators on all kinds of widths, signed and unsigned, through header fields that straddle bytes."""
    rng = random.Random(seed)
    widths = [rng.choice([1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 97, 127, 128]) for _ in range(10)]
    widths.append(-sum(widths) % 8 or 8)
    fields = " ".join(f"{rng.choice(['bit', 'int'])}<{w}> f{i};" for i, w in enumerate(widths))
    kinds = [part.split("<")[0].strip() == "int" for part in fields.split(";")[:-1]]
    names = [f"(bit<128>)(bit<{w}>)hdr.odd.f{i}" for i, w in enumerate(widths)]
    statements = []
    for _ in range(14):
        i = rng.randrange(len(widths))
        statements.append(f"hdr.odd.f{i} = {expression(rng, widths[i], kinds[i], [f'({n})' for n in names], 3)};")
    path = tmp_path / "program.p4"
    path.write_text(source(
        " ".join(statements), types=f"header odd_t {{ {fields} }}", headers="odd_t odd;",
        parser="state start { p.extract(hdr.data); p.extract(hdr.odd); transition accept; }",
    ))  # fmt: skip
    switch = Shadowed(path)
    for _ in range(40):
        frame = bytearray(rng.randbytes(12 + sum(widths) // 8 + rng.randrange(4)))
        for _ in range(rng.randrange(12)):
            frame[rng.randrange(len(frame))] = rng.choice([0, 0xFF, 0x80, 1])
        assert len(switch.process(bytes(frame))) == 1
