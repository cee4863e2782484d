"""Compiled programs against the reference interpreter on random packets."""

from __future__ import annotations

import random
import struct

import pytest
from shadow import Shadowed
from v1_program import source

from ina.base import paths

pytestmark = pytest.mark.build
WORKERS = PARENT = 3
SLOTS = 4


def checksum(header: bytes) -> int:
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def aggregation_frame(rng: random.Random, values: int, size_code: int) -> tuple[bytes, int]:
    """A SwitchML frame, sometimes with an error, and its ingress port. Job 2 has a parent, sender PARENT."""
    job = rng.choice([1, 1, 2])
    worker = rng.randrange(WORKERS + (job == 2))
    payload_code = rng.choice([size_code] * 8 + [7])
    kind = 2 if worker == PARENT and payload_code == 7 else rng.choice([1] * 7 + [3])
    words = 1 if kind == 2 else 0 if payload_code == 7 else values
    version = rng.choice([2] * 12 + [1, 3])  # 1: without a check header
    total = 20 + 8 + 8 + 2 + (12 if version > 1 else 0) + 4 * words
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, total, rng.randrange(1 << 16), 0, 64, 17, 0,
                     bytes([10, 0, 0, 1 + worker]), bytes([10, 0, 255, 254]))
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    tsi = rng.randrange(12)
    slot, set_ = tsi % SLOTS, tsi // SLOTS & 1
    values_ = [rng.choice([rng.getrandbits(32), 0x7FFFFFFF, 0x80000000, 1]) for _ in range(words)]
    headers = struct.pack("!BBIH", kind << 4 | payload_code, job, tsi, set_ << 15 | (version > 1) << 14 | slot)
    headers += struct.pack("!bB", rng.randrange(-96, 127), 5)
    if version > 1:
        headers += struct.pack("!BBHII", version, 1, 0, rng.getrandbits(32), rng.getrandbits(32))
        headers = headers[:12] + struct.pack("!H", checksum(headers)) + headers[14:]
    frame = (
        bytes([2, 0, 0, 0, 0xFF, 0xFE]) + bytes([0, 0, 0, 0, 0, worker + 1]) + b"\x08\0" + ip
        + struct.pack("!HHHH", 4001, 0xBEE0 + rng.randrange(16), total - 20, 0)
        + headers + struct.pack(f"!{words}I", *values_) + rng.randbytes(rng.choice([0, 0, 0, 3]))
    )
    fault = rng.random()
    if fault < 0.1:
        broken = bytearray(frame)
        broken[rng.randrange(min(54, len(broken)))] ^= 1 << rng.randrange(8)
        frame = bytes(broken)
    elif fault < 0.15:
        frame = frame[: rng.randrange(len(frame))]
    elif fault < 0.2:
        frame = rng.randbytes(12) + b"\x08\x06" + rng.randbytes(28)
    return frame, worker + 1


@pytest.mark.parametrize(
    ("values", "size_code", "strict"), [(32, 0, 1), (32, 0, 0), pytest.param(64, 1, 1, marks=pytest.mark.later)]
)
def test_switchml(values, size_code, strict):
    switch = Shadowed(paths.p4_dir() / "switchml.p4", {"VALUES": str(values), "SLOTS": "8"})
    tables = switch.tables
    for job, base in ((1, 0), (2, 4)):
        job_entry = [7, WORKERS - 1, base, SLOTS - 1, 77, 5, 9, strict, job - 1]
        tables["admission.job"].insert({"hdr.switchml.job": job}, "set_job", job_entry)
        for w in range(WORKERS + (job == 2)):
            worker = {"hdr.switchml.job": job, "hdr.ipv4.src_addr": 0x0A000001 + w, "hdr.udp.src_port": 4001,
                      "standard.ingress_port": w + 1}
            if w == PARENT:
                tables["admission.worker"].insert(worker, "set_parent", [])
                continue
            tables["admission.worker"].insert(worker, "set_worker", [1 << w])
            replica = {"hdr.switchml.job": job, "standard.egress_rid": w}
            tables["replicas.replica"].insert(replica, "to_worker", [w + 1, 0x0A000001 + w, 4001])
    above = [PARENT + 1, 4, 0x0A000004, 4001, 0x02FF00000001, 0x0AFF0001, 0xBEE0]
    tables["reply.parent"].insert({"hdr.switchml.job": 2}, "to_parent", above)
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
    other_width = rng.choice([1, 7, 8, 16, 31, 32, 33, 64, 65, 100, 128, *([129, 192, 260] if width > 128 else [])])
    other = expression(rng, other_width, rng.random() < 0.5, fields, depth - 1)
    return f"({kind})(bit<{width}>)(bit<{other_width}>){other}"


@pytest.mark.parametrize("seed", range(8))
def test_random_expressions(tmp_path, seed):
    """Operators on many widths, signed and unsigned, through header fields that straddle bytes; the last two seeds use
    widths that C does not have.
    """
    rng = random.Random(seed)
    choices = [1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 97, 127, 128]
    widest, count, depth = (128, 14, 3) if seed < 6 else (400, 12, 2)
    if widest > 128:
        choices = [9, 64, 128, 129, 191, 192, 193, 256, 320, 400]
    widths = [rng.choice(choices) for _ in range(10)]
    widths.append(-sum(widths) % 8 or 8)
    fields = " ".join(f"{rng.choice(['bit', 'int'])}<{w}> f{i};" for i, w in enumerate(widths))
    kinds = [part.split("<")[0].strip() == "int" for part in fields.split(";")[:-1]]
    names = [f"(bit<{widest}>)(bit<{w}>)hdr.odd.f{i}" for i, w in enumerate(widths)]
    statements = []
    for _ in range(count):
        i = rng.randrange(len(widths))
        statements.append(f"hdr.odd.f{i} = {expression(rng, widths[i], kinds[i], [f'({n})' for n in names], depth)};")
    path = tmp_path / "program.p4"
    path.write_text(source(
        " ".join(statements), types=f"header odd_t {{ {fields} }}", headers="odd_t odd;",
        parser="state start { p.extract(hdr.data); p.extract(hdr.odd); transition accept; }",
    ))
    switch = Shadowed(path, cflags=["-O1"] if widest > 128 else None)
    for _ in range(40):
        frame = bytearray(rng.randbytes(12 + sum(widths) // 8 + rng.randrange(4)))
        for _ in range(rng.randrange(12)):
            frame[rng.randrange(len(frame))] = rng.choice([0, 0xFF, 0x80, 1])
        assert len(switch.process(bytes(frame))) == 1


class Statements:
    """Random statements over a header, a stack, metadata, registers, tables, and helpers with all kinds of parameters."""

    FIELDS = {"hdr.data.a": 32, "hdr.data.b": 32, "hdr.data.c": 16, "hdr.data.d": 8, "hdr.data.e": 8, "meta.m": 32,
              "meta.n": 16, "hdr.s[0].x": 16, "hdr.s[1].x": 16, "hdr.s[2].y": 8,
              "hdr.o.p": 4, "hdr.o.q": 12}
    HEADERS = ["hdr.s[0]", "hdr.s[1]", "hdr.s[2]", "hdr.o"]
    TYPES = "header item_t { bit<16> x; bit<8> y; bit<8> last; } header other_t { bit<4> p; bit<12> q; }"
    LOCALS = """
        register<bit<16>>(4) r0; register<bit<16>>(4) r1; register<bit<7>>(3) r2; counter(4, CounterType.bytes) cells;
        action swap(inout bit<32> x, inout bit<32> y) {
            bit<32> t = x; x = y; y = t; if (t == 3) { return; } hdr.data.e = 1; }
        action both(in bit<8> x, out bit<8> y) { hdr.data.d = x + 1; y = x ^ hdr.data.d; }
        action last(inout item_t h) { h.y = h.y + 1; if (h.x == 0) { exit; } h.x = 0; }
        action set(bit<8> v) { hdr.data.e = v; } action mark(bit<16> v, bit<4> w) { meta.n = v; hdr.o.p = w; }
        table lpm { key = { hdr.data.c: lpm; } actions = { set; mark; NoAction; }
            const entries = { 0x1200 &&& 0xFF00: set(1); 0x1230 &&& 0xFFF0: mark(7, 8); 0 &&& 0: set(2); } }
        table tern { key = { hdr.data.d: ternary; hdr.data.e: range; } actions = { set; mark; NoAction; }
            default_action = mark(1, 2); const entries = { (1 &&& 1, _): set(3); (_, 3 .. 100): NoAction(); } }
        table free { key = { hdr.data.e: exact; hdr.s[0].isValid(): exact; }
            actions = { set; mark; } default_action = set(9); }
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.names = rng, 0

    def value(self, width: int, depth: int = 2) -> str:
        rng, kind = self.rng, f"bit<{width}>"
        if depth == 0 or rng.random() < 0.3:
            name, w = rng.choice(list(self.FIELDS.items()))
            return rng.choice([f"({kind}){name}", f"{width}w{rng.choice([0, 1, 2, 3]) % (1 << width)}"])
        a, b = self.value(width, depth - 1), self.value(width, depth - 1)
        if rng.random() < 0.2:
            return f"({self.test(depth - 1)} ? {a} : {b})"
        return f"({a} {rng.choice(['+', '-', '^', '|', '&', '|+|'])} {b})"

    def test(self, depth: int = 1) -> str:
        rng = self.rng
        kind = rng.randrange(5)
        if kind == 0:
            return f"{rng.choice(self.HEADERS)}.isValid()"
        if kind == 1 and depth:
            return f"({self.test(0)} {rng.choice(['&&', '||'])} !{self.test(0)})"
        if kind == 2:
            return f"{rng.choice(['lpm', 'tern', 'free'])}.apply().{rng.choice(['hit', 'miss'])}"
        return f"({self.value(8, 1)} {rng.choice(['<', '==', '>='])} {self.value(8, 1)})"

    def block(self, depth: int) -> str:
        return " ".join(self.statement(depth) for _ in range(self.rng.randrange(1, 4)))

    def statement(self, depth: int = 2) -> str:
        rng = self.rng
        name, width = rng.choice(list(self.FIELDS.items()))
        index = rng.choice(["hdr.data.d & 3", "hdr.data.d", "8w1", "8w2"])
        self.names += 1
        local = f"l{self.names}"
        kind = rng.randrange(19)
        if depth and kind < 3:
            return f"if ({self.test()}) {{ {self.block(depth - 1)} }} else {{ {self.block(depth - 1)} }}"
        if depth and kind == 3:
            skip = f"if ({local} == 2 && {self.test(0)}) {{ continue; }}"
            return f"for (bit<8> {local} in 1 .. 3) {{ {skip} {self.block(0)} }}"
        if depth and kind == 4:
            cases = [f"{label}: {{ {self.block(0)} }}" for label in ("0", "1: 2", "default")]
            return f"switch ({self.value(8)}) {{ {' '.join(cases)} }}"
        if depth and kind == 5:
            return f"switch (lpm.apply().action_run) {{ set: {{ {self.block(0)} }} mark: {{ {self.block(0)} }} }}"
        return {
            6: lambda: f"{rng.choice(self.HEADERS)}.{rng.choice(['setValid', 'setInvalid'])}();",
            7: lambda: f"hdr.s[{rng.randrange(3)}] = hdr.s[{rng.randrange(3)}];",
            8: lambda: f"hdr.s.{rng.choice(['push_front', 'pop_front'])}({rng.choice([1, 2])});",
            9: lambda: f"bit<16> {local}; r0.read({local}, (bit<32>)({index})); hdr.data.c = {local};",
            10: lambda: f"r{rng.randrange(2)}.write((bit<32>)({index}), {self.value(16)});",
            11: lambda: f"r2.write((bit<32>)({index}), {self.value(7)}); r2.read(meta.k, (bit<32>)({index}));",
            12: lambda: f"{name}[{width - 1}:{width // 2}] = {self.value(width - width // 2)};",
            13: lambda: "swap(hdr.data.a, hdr.data.b);",
            14: lambda: f"both({self.value(8)}, hdr.data.{rng.choice('de')});",
            15: lambda: f"hdr.s[hdr.data.d & 1].x = {self.value(16)}; hdr.o.q = (bit<12>)hdr.s[hdr.data.e & 3].x;",
            16: lambda: f"cells.count((bit<32>)({index}));",
            17: lambda: (
                f"last(hdr.s[{rng.randrange(3)}]);"
                if rng.random() < 0.3
                else f"item_t {local} = hdr.s[0]; {local}.y = 3; hdr.s[1] = {local};"
            ),
        }.get(kind, lambda: f"{name} = {self.value(width, 3)};")()


@pytest.mark.parametrize("seed", range(8))
def test_random_statements(tmp_path, seed):
    rng = random.Random(seed)
    make = Statements(rng)
    path = tmp_path / "program.p4"
    path.write_text(source(
        " ".join(make.statement() for _ in range(14)), types=make.TYPES, headers="item_t[3] s; other_t o;",
        metadata="bit<32> m; bit<16> n; bit<7> k;", ingress_locals=make.LOCALS,
        egress="hdr.data.c = hdr.data.c + meta.n + (bit<16>)meta.k;"
               " if (hdr.s[1].isValid()) { hdr.s[1].y = hdr.data.d; }",
        parser="""state start { p.extract(hdr.data);
                transition select(hdr.data.d) { 1: items; 2: other; default: accept; } }
            state items { p.extract(hdr.s.next);
                transition select(hdr.s.last.last) { 0: items; 1: other; default: accept; } }
            state other { p.extract(hdr.o); transition accept; }""",
    ))
    switch = Shadowed(path)
    switch.tables["free"].insert({"e": 1, "hdr.s[0].$valid$": True}, "mark", [5, 6])
    switch.tables["free"].insert({"e": 9, "hdr.s[0].$valid$": False}, "set", [77])
    for _ in range(60):
        frame = bytearray(rng.randbytes(14 + rng.randrange(20)))
        frame[10], frame[11] = rng.randrange(4), rng.choice([0, 1, 9, 50])
        for at in range(15, len(frame), 4):
            frame[at] = rng.randrange(3)
        if rng.random() < 0.5:
            frame[8:10] = rng.choice([b"\x12\x34", b"\x12\x00", b"\0\0"])
        switch.process(bytes(frame))
