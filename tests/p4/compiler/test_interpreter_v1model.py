"""v1model's externs and packet paths in the reference interpreter; expected packets are computed by hand."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from v1_program import PAYLOAD, TABLE, data, interpret, result, sends

from ina.p4.compiler.arch.interpret_v1model import MAX_PASSES
from ina.p4.compiler.reference.hashes import crc16
from ina.p4.compiler.reference.interpreter import CloneSession

pytestmark = pytest.mark.fast


def test_registers_counters_meters(tmp_path: Path):
    switch = interpret(
        tmp_path,
        """r.read(hdr.data.a, (bit<32>)hdr.data.d); r.write((bit<32>)hdr.data.d, hdr.data.a + 1);
        c.count((bit<32>)hdr.data.d);
        m.execute_meter((bit<32>)hdr.data.d, hdr.data.e);""",
        ingress_locals="""register<bit<32>>(4) r; counter(4, CounterType.packets_and_bytes) c;
            meter(4, MeterType.packets) m;""",
    )
    assert [result(switch, data(d=2))[:4] for _ in range(3)] == [bytes(4), b"\0\0\0\1", b"\0\0\0\2"]
    assert list(switch.registers["r"].values) == [0, 0, 3, 0]
    assert (switch.counters["c"].packets, switch.counters["c"].octets[2]) == ([0, 0, 3, 0], 3 * 16)
    assert result(switch, data(d=9)) == data(d=9)
    switch.meters["m"].configure(1, committed_rate=1.0, committed_burst=1, peak_rate=1.0, peak_burst=2)
    assert [result(switch, data(d=1))[-1] for _ in range(3)] == [0, 1, 2]
    # Two seconds later the buckets are full again.
    ((_, frame),) = switch.process(data(d=1) + PAYLOAD, 0, now_ps=2 * 10**12)
    assert frame[11] == 0


def test_direct_counter_counts_hits(tmp_path: Path):
    switch = interpret(
        tmp_path,
        "t.apply();",
        ingress_locals="direct_counter(CounterType.packets) dc;" + TABLE % ("hdr.data.d: exact;", "counters = dc;"),
    )
    handle = switch.tables["t"].insert({"d": 1}, "set", [1])
    for d in (1, 2, 1):
        result(switch, data(d=d))
    entry = switch.tables["t"].entry(handle)
    assert (entry.packets, entry.octets) == (2, 32)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("crc32", zlib.crc32(bytes([0x12, 0x34, 0x56]))),
        ("crc16", 0xFB36),
        ("csum16", 0xFFFF - (0x1234 + 0x5600)),
        ("xor16", 0x1234 ^ 0x5600),
        ("identity", 0x123456),
    ],
)
def test_hash(tmp_path: Path, algorithm: str, expected: int):
    switch = interpret(
        tmp_path, f"hash(hdr.data.a, HashAlgorithm.{algorithm}, 32w0, {{ hdr.data.c, hdr.data.d }}, 64w0x100000000);"
    )
    assert result(switch, data(c=0x1234, d=0x56)) == data(a=expected, c=0x1234, d=0x56)


def test_crc16_check_value():
    """The catalogue's check value of CRC-16/ARC."""
    assert crc16(b"123456789") == 0xBB3D


def test_hash_base_and_max(tmp_path: Path):
    switch = interpret(
        tmp_path,
        """hash(hdr.data.a, HashAlgorithm.identity, 32w100, { hdr.data.d }, 32w7);
        hash(hdr.data.b, HashAlgorithm.identity, 32w100, { hdr.data.d }, 32w0);""",
    )
    assert result(switch, data(d=10)) == data(a=103, b=100, d=10)


def test_random_is_seeded_and_in_range(tmp_path: Path):
    statements = "random(hdr.data.d, 8w3, 8w6);"
    runs = []
    for seed in (1, 1, 2):
        switch = interpret(tmp_path, statements, seed=seed)
        runs.append([result(switch, data())[10] for _ in range(30)])
    assert runs[0] == runs[1] != runs[2]
    assert set(runs[0]) == {3, 4, 5, 6}


def test_checksums(tmp_path: Path):
    """RFC 1071: the sum of the words of (a, b) with the checksum in c is 0xFFFF."""
    switch = interpret(
        tmp_path,
        "hdr.data.e = (bit<8>)sm.checksum_error;",
        verify="verify_checksum(true, { hdr.data.a, hdr.data.b }, hdr.data.c, HashAlgorithm.csum16);",
        compute="update_checksum(hdr.data.d == 1, { hdr.data.a, hdr.data.b }, hdr.data.c, HashAlgorithm.csum16);",
    )
    good = 0xFFFF - (0x0001 + 0x0002 + 0x0003 + 0x0004)
    assert result(switch, data(a=0x10002, b=0x30004, c=good)) == data(a=0x10002, b=0x30004, c=good)
    assert result(switch, data(a=0x10002, b=0x30004, c=1)) == data(a=0x10002, b=0x30004, c=1, e=1)
    assert result(switch, data(a=0x10002, b=0x30004, c=1, d=1)) == data(a=0x10002, b=0x30004, c=good, d=1, e=1)


def test_checksum_with_payload(tmp_path: Path):
    compute = "update_checksum_with_payload(true, { hdr.data.a }, hdr.data.c, HashAlgorithm.csum16);"
    total = 0x0001 + 0xDEAD + 0xBEEF
    total = (total & 0xFFFF) + (total >> 16)
    assert result(interpret(tmp_path, compute=compute), data(a=1)) == data(a=1, c=0xFFFF - total)


def test_multicast(tmp_path: Path):
    switch = interpret(
        tmp_path,
        "sm.mcast_grp = (bit<16>)hdr.data.d;",
        egress="""hdr.data.e = (bit<8>)sm.egress_rid; hdr.data.c = (bit<16>)sm.egress_port;
            if (sm.egress_rid == 3) { mark_to_drop(sm); }""",
    )
    switch.multicast_groups[5] = [(2, 1), (4, 2), (4, 3), (6, 2)]
    expected = [(p, data(c=p, d=5, e=r) + PAYLOAD) for p, r in [(2, 1), (4, 2), (6, 2)]]
    assert sends(switch, data(d=5)) == expected
    assert switch.drops == {"egress": 1}
    assert sends(switch, data(d=6)) == []
    assert switch.drops["multicast_group"] == 1


def test_ingress_clone_keeps_the_original_and_the_field_list(tmp_path: Path):
    switch = interpret(
        tmp_path,
        "meta.kept = 5; meta.lost = 6; hdr.data.d = 0xAA; clone_preserving_field_list(CloneType.I2E, 7, 1);",
        metadata="@field_list(1, 2) bit<8> kept; bit<8> lost;",
        egress="if (sm.instance_type == 1) { hdr.data.e = meta.kept; hdr.data.c = (bit<16>)meta.lost; }",
    )
    assert sends(switch, data()) == [(1, data(d=0xAA) + PAYLOAD)]
    assert switch.drops["clone_session"] == 1
    switch.clone_sessions[7] = CloneSession(port=9)
    assert sends(switch, data()) == [(9, data(e=5) + PAYLOAD), (1, data(d=0xAA) + PAYLOAD)]


def test_egress_clone(tmp_path: Path):
    switch = interpret(
        tmp_path,
        egress="if (sm.instance_type == 2) { hdr.data.e = 2; } else { hdr.data.d = 1; clone(CloneType.E2E, 3); }",
    )
    switch.clone_sessions[3] = CloneSession(port=8)
    assert sorted(sends(switch, data())) == [(1, data(d=1) + PAYLOAD), (8, data(d=1, e=2) + PAYLOAD)]


def test_resubmit_starts_over_with_the_original(tmp_path: Path):
    switch = interpret(
        tmp_path,
        """hdr.data.a = hdr.data.a + 1; meta.rounds = meta.rounds + 1; hdr.data.e = meta.rounds;
        if (meta.rounds < 3) { resubmit_preserving_field_list(1); }""",
        metadata="@field_list(1) bit<8> rounds;",
    )
    assert sends(switch, data()) == [(1, data(a=1, e=3) + PAYLOAD)]


def test_recirculate_parses_the_deparsed_packet(tmp_path: Path):
    switch = interpret(
        tmp_path,
        egress="hdr.data.a = hdr.data.a + 1; if (hdr.data.a < 3) { recirculate_preserving_field_list(1); }",
    )
    assert sends(switch, data()) == [(1, data(a=3) + PAYLOAD)]


def test_endless_recirculation_is_dropped_and_counted(tmp_path: Path):
    switch = interpret(tmp_path, egress="hdr.data.a = hdr.data.a + 1; recirculate_preserving_field_list(1);")
    assert sends(switch, data()) == []
    assert switch.drops == {"pass_limit": 1}
    assert MAX_PASSES > 10


def test_truncate_digest_log(tmp_path: Path):
    switch = interpret(
        tmp_path,
        """digest<learn_t>(1, { hdr.data.a, hdr.data.d }); hdr.data.a = 0; truncate(10);
        log_msg("a={} d={}", { hdr.data.b, hdr.data.d });""",
        types="struct learn_t { bit<32> a; bit<8> d; }",
    )
    assert switch.process(data(a=4, b=5, d=6) + PAYLOAD, 0) == [(1, data(b=5)[:10])]
    assert [(d.name, d.values) for d in switch.digests] == [("learn_t", (4, 6))]
    assert switch.log == ["a=5 d=6"]


def test_assert(tmp_path: Path):
    switch = interpret(tmp_path, "assert(hdr.data.d == 1);")
    assert result(switch, data(d=1)) == data(d=1)
    assert sends(switch, data()) == []
    assert switch.drops == {"assertion": 1}


def test_standard_metadata(tmp_path: Path):
    switch = interpret(
        tmp_path,
        """hdr.data.a = sm.packet_length; hdr.data.b = (bit<32>)sm.ingress_global_timestamp;
        hdr.data.d = (bit<8>)sm.ingress_port;""",
    )
    assert switch.process(data() + PAYLOAD, 33, now_ps=7_999_999) == [(1, data(a=16, b=7, d=33) + PAYLOAD)]


def test_aggregation(tmp_path: Path):
    """Aggregation as in this project's switches: adds two workers' values in registers, multicasts the sum."""
    switch = interpret(
        tmp_path,
        """bit<32> seen; bit<32> value;
        @atomic { bitmap.read(seen, (bit<32>)hdr.data.c); pool.read(value, (bit<32>)hdr.data.c);
            bit<32> mine = 32w1 << hdr.data.d;
            if (seen & mine != 0) { mark_to_drop(sm); exit; }
            if (seen == 0) { value = hdr.data.a; } else { value = value + hdr.data.a; }
            seen = seen | mine;
            if (seen == 3) { seen = 0; hdr.data.a = value; sm.mcast_grp = 1; } else { mark_to_drop(sm); }
            bitmap.write((bit<32>)hdr.data.c, seen); pool.write((bit<32>)hdr.data.c, value); }""",
        ingress_locals="register<bit<32>>(8) bitmap; register<bit<32>>(8) pool;",
    )
    switch.multicast_groups[1] = [(1, 0), (2, 1)]
    assert sends(switch, data(a=0xFFFFFFFE, c=4, d=0)) == []
    assert sends(switch, data(a=0xFFFFFFFE, c=4, d=0)) == []
    result_frame = data(a=1, c=4, d=1) + PAYLOAD
    assert sends(switch, data(a=3, c=4, d=1)) == [(1, result_frame), (2, result_frame)]
    assert sends(switch, data(a=9, c=4, d=1)) == []
    assert switch.registers["pool"][4] == 9


def test_a_checksum_in_an_invalid_header_is_not_verified(tmp_path: Path):
    switch = interpret(
        tmp_path,
        "hdr.data.e = (bit<8>)sm.checksum_error;",
        headers="data_t inner;",
        parser="""state start { p.extract(hdr.data); transition select(hdr.data.d) { 1: inner; default: accept; } }
            state inner { p.extract(hdr.inner); transition accept; }""",
        verify="verify_checksum(true, { hdr.data.a }, hdr.inner.c, HashAlgorithm.csum16);",
    )
    assert result(switch, data(a=1)) == data(a=1)
    assert result(switch, data(a=1, d=1) + data()) == data(a=1, d=1, e=1) + data()
