"""The objects of TNA programs, compiled: registers, counters, meters, filters, hashes, checksums, action selectors."""

from __future__ import annotations

import random
import re
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_tna_compile import refused
from tna_program import data, pipe

from ina.p4.runtime.entities import ProfileGroup, ProfileMember, TableEntry, ValueSetEntry

pytestmark = pytest.mark.build
MS = 10**9  # ps
ROOT = Path(__file__).parent.parent.parent.parent


def test_the_page_names_every_object_of_the_architecture() -> None:
    page = (ROOT / "docs" / "reference" / "p4-features.md").read_text()
    base = (ROOT / "ina/p4/compiler/p4include" / "tofino1_base.p4").read_text()
    names = re.findall(r"^extern (?:.* )?(\w+)(?:<[^>]*>)?\s*[({]", base, re.MULTILINE)
    assert len(names) > 30 and [n for n in names if f"`{n}" not in page] == []


# --- registers ----------------------------------------------------------------------------------------------------------

PAIR = "struct pair_t { bit<32> first; bit<32> second; }"


def test_a_register_action_reads_changes_and_returns(tmp_path: Path) -> None:
    p = pipe(tmp_path, "hdr.data.b = add.execute((bit<8>)hdr.data.e);", types=PAIR, ingress_locals="""
        Register<pair_t, bit<8>>(16, {5, 7}) r;
        RegisterAction<pair_t, bit<8>, bit<32>>(r) add = {
            void apply(inout pair_t v, out bit<32> old) {
                old = v.second;
                v.first = v.first + hdr.data.a;
                if (v.second < 100) { v.second = v.second + 50; }
            }
        };""")
    assert p.ingress(data(10, e=3)).frame == data(10, 7, e=3)
    assert p.ingress(data(1, e=3)).frame == data(1, 57, e=3)
    assert p.ingress(data(1, e=3)).frame == data(1, 107, e=3)
    assert p.register("r.first")[2:5] == [5, 17, 5] and p.register("r.second")[3] == 107
    assert p.ingress(data(e=200)).frame == data(0, 0, e=200)  # outside: nothing is kept


def test_cells_that_a_body_only_reads_are_not_written(tmp_path: Path) -> None:
    p = pipe(tmp_path, "hdr.data.b = get.execute(0);", types=PAIR, ingress_locals="""Register<pair_t, bit<8>>(16) r;
        RegisterAction<pair_t, bit<8>, bit<32>>(r) get = { void apply(inout pair_t v, out bit<32> x) { x = v.second; } };
        """)
    p.poke("registers", "r.second", 0, (9).to_bytes(4, "little"))
    assert p.ingress(data()).frame == data(0, 9)
    assert "reg_r_second(0) =" not in Path(p.program.path).with_suffix(".c").read_text()


def test_saturating_arithmetic_and_signed_cells(tmp_path: Path) -> None:
    p = pipe(tmp_path, "hdr.data.b = (bit<32>)step.execute(0);", ingress_locals="""Register<int<32>, bit<1>>(1, 2147483640) r;
        RegisterAction<int<32>, bit<1>, int<32>>(r) step = {
            void apply(inout int<32> v, out int<32> x) { v = v |+| (int<32>)hdr.data.a; x = v; }
        };""")
    assert p.ingress(data(100)).frame == data(100, 2**31 - 1)
    assert p.ingress(data(2**32 - 1)).frame == data(2**32 - 1, 2**31 - 2)


def test_one_bit_register_and_params(tmp_path: Path) -> None:
    p = pipe(tmp_path, "tm.bypass_egress = flip.execute(hdr.data.a); hdr.data.b = add.execute(0);", ingress_locals="""
        Register<bit<1>, bit<32>>(64, 1) bits; Register<bit<32>, bit<32>>(1) sum; RegisterParam<bit<32>>(3) step;
        RegisterAction<bit<1>, bit<32>, bit<1>>(bits) flip = { void apply(inout bit<1> v, out bit<1> x) { x = v; v = ~v; } };
        RegisterAction<bit<32>, bit<32>, bit<32>>(sum) add = {
            void apply(inout bit<32> v, out bit<32> x) { v = v + step.read(); x = v; } };""")
    assert [p.ingress(data(5)).requests.get("bypass_egress", 0) for _ in range(3)] == [1, 0, 1]
    assert p.register("I.step") == [3] and p.register("I.sum") == [9]
    p.poke("registers", "I.step", 0, (100).to_bytes(4, "little"))
    assert p.ingress(data(6)).frame == data(6, 109)


def test_execute_log_goes_round(tmp_path: Path) -> None:
    p = pipe(tmp_path, "log.execute_log();", ingress_locals="""Register<bit<32>, bit<2>>(3) r;
        RegisterAction<bit<32>, bit<2>, bit<32>>(r) log = { void apply(inout bit<32> v) { v = hdr.data.a; } };""")
    for a in (7, 8, 9, 10):
        p.ingress(data(a))
    assert p.register("I.r") == [10, 8, 9]


def test_predicate(tmp_path: Path) -> None:
    p = pipe(tmp_path, "hdr.data.d = (bit<8>)which.execute(0);", ingress_locals="""Register<bit<32>, bit<1>>(1, 10) r;
        RegisterAction<bit<32>, bit<1>, bit<4>>(r) which = {
            void apply(inout bit<32> v, out bit<4> x) { x = this.predicate(v == hdr.data.a, v < hdr.data.b); } };""")
    assert [p.ingress(data(a, b)).frame[10] for a, b in ((0, 0), (10, 0), (0, 11), (10, 11))] == [1, 2, 4, 8]


def test_direct_register(tmp_path: Path) -> None:
    p = pipe(tmp_path, "t.apply();", ingress_locals="""DirectRegister<bit<32>>(4) r;
        DirectRegisterAction<bit<32>, bit<32>>(r) add = { void apply(inout bit<32> v, out bit<32> x) { v = v + 1; x = v; } };
        action hit() { hdr.data.b = add.execute(); }
        table t { key = { hdr.data.a: exact; } actions = { hit; NoAction; } size = 8; registers = r; }""")
    p.add(TableEntry("I.t", {"hdr.data.a": 1}, "I.hit"), TableEntry("I.t", {"hdr.data.a": 2}, "I.hit"))
    assert [p.ingress(data(a)).frame for a in (1, 2, 1, 3)] == [data(1, 5), data(2, 5), data(1, 6), data(3, 0)]
    layout = next(r for r in p.layout["registers"])
    assert layout["table"] == "I.t" and layout["size"] == 8 and layout["initial"] == "4"


TWICE = """Register<bit<32>, bit<8>>(4) r;
    RegisterAction<bit<32>, bit<8>, bit<32>>(r) one = { void apply(inout bit<32> v, out bit<32> x) { x = v; } };
    RegisterAction<bit<32>, bit<8>, bit<32>>(r) two = { void apply(inout bit<32> v) { v = 1; } };
    action a() { one.execute(0); } action b() { two.execute(1); } action c() { }
    table t { key = { hdr.data.a: exact; } actions = { a; b; c; } }
    table u { key = { hdr.data.a: exact; } actions = { b; c; } }
"""


@pytest.mark.parametrize(
    "ingress",
    [
        "one.execute(0); two.execute(1);",
        "if (hdr.data.a == 0) one.execute(0); two.execute(1);",
        "t.apply(); if (hdr.data.a == 0) { two.execute(1); }",
        "t.apply(); u.apply();",
        "switch (t.apply().action_run) { c: { } default: { u.apply(); } }",
    ],
)
def test_a_second_access_in_one_pass_is_an_error(tmp_path: Path, ingress: str) -> None:
    error = refused(tmp_path, ingress, ingress_locals=TWICE)
    assert "register 'I.r' is accessed twice in one pass of a packet" in error
    assert "the other access on this way through the program" in error and error.count("program.p4:") == 2


@pytest.mark.parametrize(
    "ingress",
    [
        "if (hdr.data.a == 0) one.execute(0); else two.execute(1);",
        "if (t.apply().hit) { } else { if (hdr.data.b == 0) exit; }",
        "if (hdr.data.a == 0) { one.execute(0); exit; } t.apply();",
        "if (hdr.data.a == 0) { one.execute(0); return; } two.execute(0);",
    ],
)
def test_accesses_on_ways_that_exclude_each_other_are_fine(tmp_path: Path, ingress: str) -> None:
    pipe(tmp_path, ingress, ingress_locals=TWICE)


# --- counters, meters, filters --------------------------------------------------------------------------------------------


def test_counters_count_the_fcs(tmp_path: Path) -> None:
    p = pipe(tmp_path, "c.count((bit<8>)hdr.data.e); if (hdr.data.a == 1) c.count(9, 20); t.apply();", ingress_locals="""
        Counter<bit<32>, bit<8>>(10, CounterType_t.PACKETS_AND_BYTES) c;
        DirectCounter<bit<32>>(CounterType_t.BYTES) d;
        action counted() { d.count(); } action silent() { }
        table t { key = { hdr.data.a: exact; } actions = { counted; silent; } size = 4; counters = d; }""")
    p.add(TableEntry("I.t", {"hdr.data.a": 1}, "I.counted"), TableEntry("I.t", {"hdr.data.a": 2}, "I.silent"))
    for a, e, size in ((1, 3, 100), (2, 3, 60), (1, 200, 60)):
        p.ingress(data(a, e=e).ljust(size, b"\0"))
    assert p.counter("I.c")[3] == (2, 168) and p.counter("I.c")[9] == (2, 164 - 36)
    assert sorted(p.counter("I.d")) == [(0, 0), (0, 0), (0, 0), (2, 168)]


METER = struct.Struct("<Q6dQ")


def test_meter_colors(tmp_path: Path) -> None:
    p = pipe(tmp_path, """hdr.data.d = m.execute(0); hdr.data.e = own.execute(0);
        if (hdr.data.c == 1) hdr.data.d = aware.execute(0, MeterColor_t.YELLOW);""", ingress_locals="""
        Meter<bit<1>>(1, MeterType_t.PACKETS) m; Meter<bit<1>>(1, MeterType_t.PACKETS) aware;
        Meter<bit<1>>(1, MeterType_t.PACKETS, 7, 8, 9) own;""")
    assert p.ingress(data()).frame == data(d=0, e=9)  # not configured: green
    for name in ("I.m", "I.own", "I.aware"):
        p.poke("meters", name, 0, METER.pack(1, 0, 3, 0, 1, 3, 1, 0))  # bursts: 3 packets, 1 of them green
    assert [p.ingress(data()).frame[10:] for _ in range(4)] == [b"\0\x09", b"\1\x08", b"\1\x08", b"\3\x07"]
    assert [p.ingress(data(c=1)).frame[10] for _ in range(4)] == [1, 1, 1, 3]


def test_direct_meter_runs_where_the_action_says(tmp_path: Path) -> None:
    p = pipe(tmp_path, "t.apply();", ingress_locals="""DirectMeter(MeterType_t.BYTES) m;
        action metered() { hdr.data.d = m.execute(); } action free() { }
        table t { key = { hdr.data.a: exact; } actions = { metered; free; } size = 4; meters = m; }""")
    p.add(TableEntry("I.t", {"hdr.data.a": 1}, "I.metered"), TableEntry("I.t", {"hdr.data.a": 2}, "I.free"))
    for cell in range(4):
        p.poke("meters", "I.m", cell, METER.pack(1, 0, 32, 0, 16, 32, 16, 0))
    assert [p.ingress(data(a)).frame[10] for a in (2, 1, 2, 1, 1)] == [0, 0, 0, 1, 3]


FILTER = struct.Struct("<Q6dQ")


def test_low_pass_filter(tmp_path: Path) -> None:
    p = pipe(tmp_path, "hdr.data.b = l.execute(hdr.data.a, 0);", ingress_locals="Lpf<bit<32>, bit<1>>(1) l;")
    assert p.ingress(data(1000)).frame == data(1000, 1000)  # not configured
    p.poke("filters", "I.l", 0, FILTER.pack(1, 1e6, 1e6, 1, 0, 0, 0, 0))  # 1 ms both ways
    samples = [int.from_bytes(p.ingress(data(1000), now=(i + 1) * MS).frame[4:8], "big") for i in range(3)]
    assert samples == [632, 864, 950]  # 1000 (1 - e^-n)
    p.poke("filters", "I.l", 0, FILTER.pack(2, 1e6, 1e6, 0.5, 0, 0, 0, 0))  # rate
    samples = [int.from_bytes(p.ingress(data(1000), now=(i + 1) * MS).frame[4:8], "big") for i in range(2)]
    assert samples == [500, 683]


def test_wred(tmp_path: Path) -> None:
    p = pipe(tmp_path, "hdr.data.d = w.execute(hdr.data.a, 0);", ingress_locals="Wred<bit<32>, bit<1>>(1, 1, 0) w;")
    assert p.ingress(data(10**6)).frame[10] == 0
    p.poke("filters", "I.w", 0, FILTER.pack(1, 0, 0, 0.5, 100, 200, 0, 0))  # no averaging
    assert {p.ingress(data(99)).frame[10] for _ in range(50)} == {0}
    assert {p.ingress(data(200)).frame[10] for _ in range(50)} == {1}
    dropped = sum(p.ingress(data(150)).frame[10] for _ in range(2000))
    assert 400 < dropped < 600  # a quarter


def test_random_numbers(tmp_path: Path) -> None:
    p = pipe(tmp_path, "hdr.data.d = (bit<8>)r.get();", ingress_locals="Random<bit<3>>() r;")
    assert {p.ingress(data()).frame[10] for _ in range(200)} == set(range(8))


# --- hashes ---------------------------------------------------------------------------------------------------------------


def crc(width: int, poly: int, reversed_: bool, init: int, xor: int, text: bytes) -> int:
    """CRC bit by bit (Williams' parametrised model, the register as in hardware)."""
    register, mask = init, (1 << width) - 1
    for byte in text:
        for bit in range(8):
            one = byte >> (bit if reversed_ else 7 - bit) & 1
            top = register >> (0 if reversed_ else width - 1) & 1
            register = register >> 1 if reversed_ else register << 1 & mask
            if one ^ top:
                register ^= int(f"{poly:0{width}b}"[::-1], 2) if reversed_ else poly
    return register ^ xor


def hashed(p, *fields: int) -> int:
    return int.from_bytes(p.ingress(data(*fields)).frame[:8], "big")


def hash_pipe(tmp_path: Path, algorithm: str, width: int = 32, fields: str = "hdr.data.c", more: str = ""):
    return pipe(tmp_path, f"bit<64> x = (bit<64>)h.get({{{fields}}}); hdr.data.a = x[63:32]; hdr.data.b = x[31:0];",
                ingress_locals=f"{more} Hash<bit<{width}>>({algorithm}) h;")


def test_published_values(tmp_path: Path) -> None:
    # p4c's own test of constant hashes (bf-p4c/test/gtest/fold_constant_hashes.cpp).
    p = hash_pipe(tmp_path, "HashAlgorithm_t.CRC32", fields="hdr.data.a")
    assert hashed(p, 0xABCDEF01) == 2360908734 == zlib.crc32(bytes.fromhex("abcdef01"))
    p = hash_pipe(tmp_path, "HashAlgorithm_t.IDENTITY", 16, "8w1, 8w2, {8w3, {8w4}}")
    assert hashed(p) == 772


@pytest.mark.parametrize(
    ("algorithm", "width", "parameters"),
    [
        ("CRC8", 8, (8, 0x07, False, 0, 0)),
        ("CRC16", 16, (16, 0x8005, True, 0, 0)),
        ("CRC32", 32, (32, 0x04C11DB7, True, 0xFFFFFFFF, 0xFFFFFFFF)),
        ("CRC64", 64, (64, 0x42F0E1EBA9EA3693, False, 0, 0)),
    ],
)
def test_crcs(tmp_path: Path, algorithm: str, width: int, parameters: tuple) -> None:
    assert crc(32, 0x04C11DB7, True, 0xFFFFFFFF, 0xFFFFFFFF, b"123456789") == 0xCBF43926
    p = hash_pipe(tmp_path, f"HashAlgorithm_t.{algorithm}", width, "hdr.data.a, hdr.data.c, hdr.data.e[2:0]")
    text = (0xDEADBEEF << 19 | 0x1234 << 3 | 5).to_bytes(7, "big")  # zeros in front fill the first byte
    assert hashed(p, 0xDEADBEEF, 0, 0x1234, 0, 0xFD) == crc(*parameters, text)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(("extended", "msb"), [("false", "false"), ("true", "false"), ("false", "true")])
def test_custom_crc(tmp_path: Path, narrow: bool, extended: str, msb: str) -> None:
    polynomial = f"CRCPolynomial<bit<16>>(0x1021, false, {msb}, {extended}, 0xFFFF, 0x00FF) p;"
    p = hash_pipe(tmp_path, "HashAlgorithm_t.CUSTOM, p", 10 if narrow else 40, "hdr.data.a", polynomial)
    value = crc(16, 0x1021, False, 0xFFFF, 0x00FF, (77).to_bytes(4, "big"))
    if narrow:
        assert hashed(p, 77) == (value >> 6 if msb == "true" else value & 1023)
    else:
        assert hashed(p, 77) == (value | value << 16 | (value & 255) << 32 if extended == "true" else value)


@pytest.mark.parametrize(("algorithm", "size"), [("XOR8", 8), ("XOR16", 16), ("XOR32", 32)])
def test_xor(tmp_path: Path, algorithm: str, size: int) -> None:
    p = hash_pipe(tmp_path, f"HashAlgorithm_t.{algorithm}", size, "hdr.data.a, hdr.data.b, hdr.data.c[11:0]")
    a, b, c = 0x12345678, 0x9ABCDEF0, 0xFED
    bits = 76 + -76 % size
    whole = (a << 44 | b << 12 | c) << -76 % size
    expected = 0
    for low in range(0, bits, size):
        expected ^= whole >> low & (1 << size) - 1
    assert hashed(p, a, b, c) == expected


def test_symmetric_hash(tmp_path: Path) -> None:
    notes = '@symmetric("hdr.data.a", "hdr.data.b") @symmetric("hdr.data.d", "hdr.data.e")'
    p = pipe(tmp_path, "hdr.data.c = h.get({hdr.data.a, hdr.data.b, hdr.data.d, hdr.data.e});",
             ingress_locals=f"{notes} Hash<bit<16>>(HashAlgorithm_t.CRC16) h;")
    one = p.ingress(data(1, 2, 0, 3, 4)).frame[8:10]
    assert one == p.ingress(data(2, 1, 0, 3, 4)).frame[8:10] == p.ingress(data(1, 2, 0, 4, 3)).frame[8:10]
    assert one != p.ingress(data(1, 3, 0, 2, 4)).frame[8:10]


def test_the_random_hash_is_a_function(tmp_path: Path) -> None:
    p = hash_pipe(tmp_path, "HashAlgorithm_t.RANDOM", 16)
    hashes = [hashed(p, 0, 0, c) for c in range(64)]
    assert len(set(hashes)) > 60 and hashes == [hashed(p, 0, 0, c) for c in range(64)]


# --- checksums ------------------------------------------------------------------------------------------------------------


def ones_sum(text: bytes) -> int:
    total = sum(struct.unpack(f">{len(text) // 2}H", text))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def test_checksum_verification(tmp_path: Path) -> None:
    p = pipe(tmp_path, "hdr.data.e = md.wrong ? 8w1 : 0;", metadata="bool wrong;", parser_locals="Checksum() sum;",
             parser="""state start { pkt.extract(intr); pkt.advance(64); pkt.extract(hdr.data);
             sum.add({hdr.data.a, hdr.data.b}); sum.add({hdr.data.c}); md.wrong = sum.verify();
             transition accept; }""")
    good = ~ones_sum(data(0x12345678, 0xFEDCBA98)) & 0xFFFF
    assert p.ingress(data(0x12345678, 0xFEDCBA98, good)).frame[11] == 0
    assert p.ingress(data(0x12345678, 0xFEDCBA98, good ^ 1)).frame[11] == 1


UPDATE = """state start { pkt.extract(intr); pkt.advance(64); pkt.extract(hdr.data);
    sum.subtract({hdr.data.c}); sum.subtract({hdr.data.a}); %s transition accept; }"""


@pytest.fixture(scope="module")
def incremental(tmp_path_factory: pytest.TempPathFactory):
    """Program that changes a; c, a checksum over the rest of the packet, is updated by subtraction and addition only."""
    return pipe(tmp_path_factory.mktemp("incremental"), "hdr.data.a = hdr.data.b;", metadata="bit<16> rest;",
                parser_locals="Checksum() sum;", parser=UPDATE % "md.rest = sum.get();", deparser_locals="Checksum() sum;",
                deparser="hdr.data.c = sum.update({hdr.data.a, md.rest}); pkt.emit(hdr);")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(a=st.integers(0, 2**32 - 1), b=st.integers(0, 2**32 - 1), d=st.integers(0, 255), rest=st.binary(max_size=40))
def test_incremental_update_is_a_whole_one(incremental, a: int, b: int, d: int, rest: bytes) -> None:
    rest += bytes(len(rest) % 2)
    sent = data(a, b, 0, d) + rest
    before = ~ones_sum(sent) & 0xFFFF
    result = incremental.ingress(data(a, b, before, d) + rest).frame
    assert ones_sum(result) in (0xFFFF, 0) and result[:8] == data(b, b)[:8]


def test_zeros_as_ones(tmp_path: Path) -> None:
    p = pipe(tmp_path, deparser_locals="Checksum() sum;", deparser="""hdr.data.c = sum.update({hdr.data.a});
        hdr.data.b[15:0] = sum.update(data = {hdr.data.a}, zeros_as_ones = true); pkt.emit(hdr);""")
    assert p.ingress(data(0xFFFF0000)).frame == data(0xFFFF0000, 0xFFFF, 0)
    assert p.ingress(data(0x00010000)).frame == data(0x00010000, 0xFFFE, 0xFFFE)


# --- functions ------------------------------------------------------------------------------------------------------------


def test_functions(tmp_path: Path) -> None:
    p = pipe(tmp_path, """bit<32> low = min(hdr.data.a, hdr.data.b); bit<32> high = max(hdr.data.a, hdr.data.b);
        hdr.data.a = low; hdr.data.b = high; hdr.data.c = (bit<16>)sizeInBytes(hdr.data);
        funnel_shift_right(hdr.data.d, 8w0x12, hdr.data.e, 4);""")
    assert p.ingress(data(9, 3, e=0x34)).frame == data(3, 9, 12, 0x23, 0x34)


@pytest.mark.parametrize(
    ("operation", "function"),
    [
        ("MathOp_t.MUL, 3", lambda x: 3 * x),
        ("MathOp_t.MUL, 1, 3", lambda x: x / 3),
        ("MathOp_t.SQR, 1", lambda x: x * x),
        ("MathOp_t.SQRT, 4", lambda x: 4 * x**0.5),
        ("MathOp_t.DIV, 1000000", lambda x: 10**6 / x),
    ],
)
def test_math_unit_is_near(tmp_path: Path, operation: str, function) -> None:
    p = pipe(tmp_path, "hdr.data.b = f.execute(0);", ingress_locals=f"""MathUnit<bit<32>>({operation}) unit;
        Register<bit<32>, bit<1>>(1) r; RegisterAction<bit<32>, bit<1>, bit<32>>(r) f = {{
        void apply(inout bit<32> v, out bit<32> x) {{ v = unit.execute(hdr.data.a); x = v; }} }};""")
    for x in (1, 2, 3, 7, 12, 100, 1000, 12345, 60000):
        result = int.from_bytes(p.ingress(data(x)).frame[4:8], "big")
        assert abs(result - function(x)) <= max(1, 0.27 * function(x)), x


# --- tables ---------------------------------------------------------------------------------------------------------------


def test_action_profile_and_selector(tmp_path: Path) -> None:
    p = pipe(tmp_path, "t.apply(); u.apply();", ingress_locals="""ActionProfile(16) profile; ActionProfile(16) plain;
        Hash<bit<16>>(HashAlgorithm_t.CRC16) hash;
        ActionSelector(profile, hash, SelectorMode_t.FAIR, 8, 4) selector;
        action to(PortId_t port) { tm.ucast_egress_port = port; } action mark(bit<8> d) { hdr.data.d = d; }
        table t { key = { hdr.data.a: exact; hdr.data.b: selector; } actions = { to; NoAction; } size = 8;
            implementation = selector; }
        table u { key = { hdr.data.a: exact; } actions = { mark; NoAction; } implementation = plain; }""")
    profile = next(x for x in p.program.p4info.message["actionProfiles"] if x["preamble"]["name"] == "I.profile")
    assert profile["withSelector"] and profile["maxGroupSize"] == 8
    for member, port in ((1, 11), (2, 22), (3, 33)):
        p.tables.apply_profile("INSERT", ProfileMember("I.profile", member, "I.to", {"port": port}))
    p.tables.apply_profile("INSERT", ProfileGroup("I.profile", 1, ((1, 1), (2, 1), (3, 1))))
    p.tables.apply_profile("INSERT", ProfileMember("I.plain", 1, "I.mark", {"d": 99}))
    p.add(TableEntry("I.t", {"hdr.data.a": 1}, group=1), TableEntry("I.u", {"hdr.data.a": 1}, member=1))
    ports = [p.ingress(data(1, b)).requests["ucast_egress_port"] for b in range(64)]
    for b, port in enumerate(ports):
        assert port == (11, 22, 33)[crc(16, 0x8005, True, 0, 0, b.to_bytes(4, "big")) % 3]
    assert p.ingress(data(1)).frame[10] == 99


def test_value_sets_and_other_match_kinds(tmp_path: Path) -> None:
    p = pipe(tmp_path, "hdr.data.e = md.found; t.apply();", metadata="bit<8> found;",
             parser_locals="value_set<bit<16>>(4) known;",
             parser="""state start { pkt.extract(intr); pkt.advance(64); pkt.extract(hdr.data);
             transition select(hdr.data.c) { known: yes; default: accept; } } state yes { md.found = 1; transition accept; }""",
             ingress_locals="""action hit() { hdr.data.d = 7; } Atcam(number_partitions = 16) atcam;
             table t { key = { hdr.data.a: atcam_partition_index; hdr.data.b: lpm; } actions = { hit; NoAction; }
             implementation = atcam; size = 16; }""")
    assert p.ingress(data(c=5)).frame[11] == 0
    p.tables.value_sets.apply("MODIFY", ValueSetEntry("IP.known", ((5, 0xFFFF), (0x100, 0xFF00))))
    assert [p.ingress(data(c=c)).frame[11] for c in (5, 4, 0x1FF, 0x200)] == [1, 0, 1, 0]
    p.add(TableEntry("I.t", {"hdr.data.a": 1, "hdr.data.b": (0x10000000, 8)}, "I.hit"))
    assert p.ingress(data(1, 0x10FFFFFF)).frame[10] == 7 and p.ingress(data(1, 0x11000000)).frame[10] == 0


def test_rows_of_registers(tmp_path: Path) -> None:
    """Register pairs that one index reaches share a row, and the sums are a loop."""
    n = 16
    fields = " ".join(f"bit<32> v{i};" for i in range(2 * n))
    registers = "".join(f"""Register<pair_t, bit<8>>(16) r{i};
        RegisterAction<pair_t, bit<8>, bit<32>>(r{i}) add{i} = {{ void apply(inout pair_t v, out bit<32> x) {{
            v.first = v.first + hdr.values.v{2 * i}; v.second = v.second + hdr.values.v{2 * i + 1}; x = v.second; }} }};
        """ for i in range(n))
    calls = "".join(f"hdr.values.v{2 * i + 1} = add{i}.execute(hdr.data.e);" for i in range(n))
    parser = """state start { pkt.extract(intr); pkt.advance(64); pkt.extract(hdr.data); pkt.extract(hdr.values);
        transition accept; }"""
    p = pipe(tmp_path, calls, types=f"{PAIR} header values_h {{ {fields} }}", headers="values_h values;", parser=parser,
             ingress_locals=registers, deparser="pkt.emit(hdr.data); pkt.emit(hdr.values);")
    rng = random.Random(1)
    sums = [0] * (2 * n)
    for _ in range(3):
        values = [rng.randrange(2**32) for _ in range(2 * n)]
        sums = [(s + v) % 2**32 for s, v in zip(sums, values, strict=True)]
        expected = [sums[i] if i % 2 else values[i] for i in range(2 * n)]
        assert p.ingress(data(e=5) + struct.pack(f">{2 * n}I", *values)).frame[12:] == struct.pack(f">{2 * n}I", *expected)
    strides = {r["stride"] for r in p.layout["registers"]}
    assert strides == {2 * n * 4}
    assert "for (uint32_t i = 0; i <" in Path(p.program.path).with_suffix(".c").read_text()
