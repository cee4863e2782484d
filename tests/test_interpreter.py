"""The reference interpreter on one small program per language feature; expected packets are computed by hand."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from v1_program import data, interpret

from ina.compiler.interpreter import CloneSession
from ina.compiler.reference.hashes import crc16
from ina.compiler.reference.tables import TableError
from ina.compiler.v1model import MAX_PASSES

PAYLOAD = b"\xde\xad\xbe\xef"


def sends(interpreter, frame: bytes, port: int = 0) -> list[tuple[int, bytes]]:
    return interpreter.process(frame + PAYLOAD, port)


def result(interpreter, frame: bytes, port: int = 0) -> bytes:
    """The header part of the only packet sent, which must leave by port 1 with the payload untouched."""
    ((out, got),) = sends(interpreter, frame, port)
    assert out == 1
    assert got.endswith(PAYLOAD)
    return got[: -len(PAYLOAD)]


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ("hdr.data.a = hdr.data.a + 0xFFFFFFFF;", data(a=4, b=3, c=0x8000, d=0xFF, e=1)),
        ("hdr.data.a = hdr.data.b - hdr.data.a;", data(a=0xFFFFFFFE, b=3, c=0x8000, d=0xFF, e=1)),
        ("hdr.data.d = hdr.data.d |+| 2;", data(a=5, b=3, c=0x8000, d=0xFF, e=1)),
        ("hdr.data.e = hdr.data.e |-| 2;", data(a=5, b=3, c=0x8000, d=0xFF, e=0)),
        ("hdr.data.a = hdr.data.a * 0x40000000;", data(a=0x40000000, b=3, c=0x8000, d=0xFF, e=1)),
        ("hdr.data.a = hdr.data.a / 2; hdr.data.b = hdr.data.b % 2;", data(a=2, b=1, c=0x8000, d=0xFF, e=1)),
        ("hdr.data.c = hdr.data.c >> 15; hdr.data.a = hdr.data.a << 31;", data(1 << 31, 3, 1, 0xFF, 1)),
        ("hdr.data.c = (bit<16>)((int<16>)hdr.data.c >> 14);", data(a=5, b=3, c=0xFFFE, d=0xFF, e=1)),
        ("hdr.data.a = hdr.data.a << hdr.data.d;", data(a=0, b=3, c=0x8000, d=0xFF, e=1)),
        ("hdr.data.c = hdr.data.d ++ hdr.data.e;", data(a=5, b=3, c=0xFF01, d=0xFF, e=1)),
        ("hdr.data.c[11:4] = hdr.data.d; hdr.data.d = hdr.data.c[15:8];", data(a=5, b=3, c=0x8FF0, d=0x8F, e=1)),
        ("hdr.data.a = (bit<32>)(bit<8>)(int<8>)(bit<8>)hdr.data.d;", data(a=255, b=3, c=0x8000, d=0xFF, e=1)),
        ("hdr.data.a = (bit<32>)(int<32>)(int<8>)hdr.data.d;", data(a=0xFFFFFFFF, b=3, c=0x8000, d=0xFF, e=1)),
        ("hdr.data.e = ~hdr.data.e ^ 0xF0; hdr.data.d = -hdr.data.d;", data(a=5, b=3, c=0x8000, d=1, e=0x0E)),
        ("hdr.data.e = (bit<8>)(bit<1>)((int<8>)hdr.data.d < 8s0 ? true : false);", data(5, 3, 0x8000, 0xFF, 1)),
        ("if (hdr.data.a > hdr.data.b && !(hdr.data.d == 0)) { hdr.data.e = 9; }", data(5, 3, 0x8000, 0xFF, 9)),
        ("hdr.data.a += 1; hdr.data.b <<= 1; hdr.data.d |-|= 0xF0;", data(6, 6, 0x8000, 0x0F, 1)),
    ],
)
def test_arithmetic(tmp_path: Path, statements: str, expected: bytes):
    assert result(interpret(tmp_path, statements), data(a=5, b=3, c=0x8000, d=0xFF, e=1)) == expected


def test_short_packet_is_a_parser_error_and_keeps_the_bytes(tmp_path: Path):
    switch = interpret(tmp_path, "if (sm.parser_error == error.PacketTooShort) { sm.egress_spec = 7; }")
    assert switch.process(b"\x01\x02\x03", 0) == [(7, b"\x01\x02\x03")]


def test_select_masks_ranges_and_value_sets(tmp_path: Path):
    switch = interpret(
        tmp_path,
        "hdr.data.e = meta.path;",
        metadata="bit<8> path;",
        parser_locals="value_set<bit<8>>(4) special;",
        parser="""
        state start { p.extract(hdr.data); transition select(hdr.data.c, hdr.data.d) {
            (0x1200 &&& 0xFF00, 1 .. 3): one; (_, special): two; (7, _): three; default: accept; } }
        state one { meta.path = 1; transition accept; }
        state two { meta.path = 2; transition accept; }
        state three { meta.path = 3; transition accept; }""",
    )
    switch.value_sets["special"].insert(9)
    seen = [result(switch, data(c=c, d=d))[-1] for c, d in [(0x12AB, 3), (0x12AB, 9), (7, 0), (0x12AB, 4)]]
    assert seen == [1, 2, 3, 0]


def test_no_match_and_verify_set_the_error(tmp_path: Path):
    switch = interpret(
        tmp_path,
        "hdr.data.e = sm.parser_error == error.NoMatch ? 8w1 : sm.parser_error == error.Odd ? 8w2 : 8w0;",
        types="error { Odd }",
        parser="""state start { p.extract(hdr.data); verify(hdr.data.d != 3, error.Odd);
            transition select(hdr.data.d) { 1: accept; 3: accept; } }""",
    )
    assert [result(switch, data(d=d))[-1] for d in (1, 2, 3)] == [0, 1, 2]


def test_header_stack(tmp_path: Path):
    """next, last, lastIndex, push_front, pop_front, StackOutOfBounds (§8.18)."""
    switch = interpret(
        tmp_path,
        """
        if (sm.parser_error == error.StackOutOfBounds) { hdr.data.d = 0xEE; }
        hdr.data.c = (bit<16>)hdr.tags[1].v;
        hdr.tags.push_front(1); hdr.tags[0].setValid(); hdr.tags[0].v = 0x55;
        """,
        types="header tag_t { bit<7> v; bit<1> more; }",
        headers="tag_t[3] tags;",
        parser="""
        state start { p.extract(hdr.data); transition tag; }
        state tag { p.extract(hdr.tags.next); hdr.data.e = (bit<8>)hdr.tags.lastIndex;
            transition select(hdr.tags.last.more) { 1: tag; default: accept; } }""",
    )
    assert result(switch, data() + bytes([3, 4])) == data(c=2, e=1) + bytes([0x55 << 1, 3, 4])
    # Three tags: pushing drops the last one. Four: the parser stops in front of the fourth, which stays payload.
    assert result(switch, data() + bytes([3, 5, 6])) == data(c=2, e=2) + bytes([0xAA, 3, 5])
    assert result(switch, data() + bytes([3, 5, 7, 6])) == data(c=2, d=0xEE, e=2) + bytes([0xAA, 3, 5, 6])


def test_stack_index_at_run_time_and_out_of_range(tmp_path: Path):
    switch = interpret(
        tmp_path,
        "hdr.tags[hdr.data.d].v = 9; hdr.data.e = hdr.tags[hdr.data.d].v;",
        types="header tag_t { bit<8> v; }",
        headers="tag_t[2] tags;",
        parser="""state start { p.extract(hdr.data); p.extract(hdr.tags.next); p.extract(hdr.tags.next);
            transition accept; }""",
    )
    assert result(switch, data(d=1) + b"\x01\x02") == data(d=1, e=9) + b"\x01\x09"
    assert result(switch, data(d=5) + b"\x01\x02") == data(d=5, e=0) + b"\x01\x02"


def test_header_union(tmp_path: Path):
    """At most one member is valid (§8.20)."""
    switch = interpret(
        tmp_path,
        """hdr.data.e = hdr.u.isValid() ? 8w1 : 8w0;
        if (hdr.data.d == 1) { hdr.u.two.setValid(); hdr.u.two.w = 0xBEEF; }
        if (hdr.data.d == 2) { hdr.u.one.setInvalid(); }""",
        types="header one_t { bit<8> v; } header two_t { bit<16> w; } header_union u_t { one_t one; two_t two; }",
        headers="u_t u;",
        parser="state start { p.extract(hdr.data); p.extract(hdr.u.one); transition accept; }",
    )
    assert result(switch, data() + b"\x07") == data(e=1) + b"\x07"
    assert result(switch, data(d=1) + b"\x07") == data(d=1, e=1) + b"\xbe\xef"
    assert result(switch, data(d=2) + b"\x07") == data(d=2, e=1)


def test_varbit(tmp_path: Path):
    """Variable extraction, its errors, and emission (§12.8.2)."""
    switch = interpret(
        tmp_path,
        """hdr.data.e = sm.parser_error == error.HeaderTooShort ? 8w1 :
            sm.parser_error == error.ParserInvalidArgument ? 8w2 : 8w0; if (hdr.data.b == 1) { hdr.o.k = 0x77; }""",
        types="header o_t { bit<8> k; varbit<32> opts; }",
        headers="o_t o;",
        parser="state start { p.extract(hdr.data); p.extract(hdr.o, (bit<32>)hdr.data.d); transition accept; }",
    )
    assert result(switch, data(b=1, d=16) + b"\x01\xaa\xbb") == data(b=1, d=16) + b"\x77\xaa\xbb"
    assert result(switch, data(b=1, d=0) + b"\x01") == data(b=1) + b"\x77"
    assert result(switch, data(d=40) + bytes(6)) == data(d=40, e=1) + bytes(6)
    assert result(switch, data(d=12) + bytes(6)) == data(d=12, e=2) + bytes(6)


def test_lookahead_and_advance(tmp_path: Path):
    switch = interpret(
        tmp_path,
        "hdr.data.setValid(); hdr.data.d = meta.seen; hdr.data.e = (bit<8>)meta.n;",
        metadata="bit<8> seen; bit<32> n;",
        parser="""state start { meta.seen = p.lookahead<bit<8>>(); meta.n = p.length(); p.advance(16);
            transition accept; }""",
    )
    assert switch.process(b"\x42\x01" + PAYLOAD, 0) == [(1, data(d=0x42, e=6) + PAYLOAD)]


def test_headers_validity_copy_and_compare(tmp_path: Path):
    """Copies carry validity; setValid() on an invalid header zeroes it; invalid headers are not emitted (§8.17)."""
    switch = interpret(
        tmp_path,
        """hdr.extra = hdr.data; hdr.data.e = hdr.extra == hdr.data ? 8w1 : 8w0;
        hdr.third.setValid(); hdr.third.d = 5; hdr.third.setValid(); hdr.data.d = hdr.third.d; hdr.third.setInvalid();
        data_t none; hdr.third = none; if (hdr.third == none) { hdr.data.c = 1; }""",
        headers="data_t extra; data_t third;",
    )
    assert result(switch, data(a=1)) == data(a=1, c=1, d=5, e=1) + data(a=1)


def test_structs_tuples_enums_and_initialisers(tmp_path: Path):
    switch = interpret(
        tmp_path,
        """pair_t x = { 1, 2 }; pair_t y = { m = 2, l = 1 }; tuple<bit<8>, bool> t = { 7, true };
        hdr.data.d = x == y ? t[0] : 8w0;
        Color c = Color.Green; Kind k = Kind.B;
        if (c != Color.Red && t[1]) { hdr.data.c = k; }
        x = y; y.l = 9; hdr.data.e = x.l; hdr.data.a = (bit<32>)hdr.data.minSizeInBytes();""",
        types="struct pair_t { bit<8> l; bit<8> m; } enum Color { Red, Green } enum bit<16> Kind { A = 1, B = 0x300 }",
    )
    assert result(switch, data()) == data(a=12, c=0x300, d=7, e=1)


def test_copy_in_copy_out(tmp_path: Path):
    """Arguments are copied in, results are copied back left to right, aliases notwithstanding (§6.8)."""
    switch = interpret(
        tmp_path,
        """swap(hdr.data.a, hdr.data.b); twice(hdr.data.c, hdr.data.c);
        hdr.data.d = add(hdr.data.d, 1); first(hdr.data.e);""",
        types="""void swap(inout bit<32> x, inout bit<32> y) { bit<32> t = x; x = y; y = t; }
        void twice(out bit<16> x, inout bit<16> y) { x = 1; y = y + 1; }
        bit<8> add(in bit<8> x, in bit<8> y) { if (x == 0) { return 100; } return x + y; }
        void first(inout bit<8> v) { v = 1; if (v == 1) { return; } v = 2; }""",
    )
    assert result(switch, data(a=1, b=2, c=7, d=0)) == data(a=2, b=1, c=8, d=100, e=1)
    assert result(switch, data(a=1, b=2, c=7, d=4)) == data(a=2, b=1, c=8, d=5, e=1)


def test_named_arguments_are_evaluated_as_written(tmp_path: Path):
    switch = interpret(
        tmp_path,
        "hdr.data.b = pair(y = next(hdr.data.a), x = next(hdr.data.a));",
        types="""bit<32> next(inout bit<32> n) { n = n + 1; return n; }
        bit<32> pair(in bit<32> x, in bit<32> y) { return x * 16 + y; }""",
    )
    assert result(switch, data(a=3)) == data(a=5, b=0x54)


def test_compile_time_ints_and_deep_expressions(tmp_path: Path):
    depth = 300
    switch = interpret(
        tmp_path,
        f"c.apply(3, hdr.data.d); hdr.data.a = {'(' * depth}hdr.data.a{' + 1)' * depth};",
        types="control Add(int n, inout bit<8> b) { apply { b = (1 + n) + b; } }",
        ingress_locals="Add() c;",
    )
    assert result(switch, data(a=7, d=1)) == data(a=7 + depth, d=5)


def test_exit_copies_out_and_ends_the_control(tmp_path: Path):
    switch = interpret(
        tmp_path,
        "leave(hdr.data.d); hdr.data.e = 1;",
        ingress_locals="action leave(inout bit<8> x) { x = 9; exit; }",
        egress="hdr.data.c = 3;",
    )
    assert result(switch, data()) == data(c=3, d=9, e=0)


def test_loops_and_switch(tmp_path: Path):
    switch = interpret(
        tmp_path,
        """for (bit<8> i = 0; i < 10; i = i + 1) {
            if (i == 2) { continue; } if (i == 5) { break; } hdr.data.a = hdr.data.a + (bit<32>)i; }
        for (bit<8> j in 1 .. 4) { hdr.data.b = hdr.data.b + (bit<32>)j; }
        switch (hdr.data.d) { 1: { hdr.data.e = 11; } 2: 3: { hdr.data.e = 23; } default: { hdr.data.e = 99; } }""",
    )
    assert result(switch, data(d=1)) == data(a=8, b=10, d=1, e=11)
    assert result(switch, data(d=2)) == data(a=8, b=10, d=2, e=23)
    assert result(switch, data(d=4)) == data(a=8, b=10, d=4, e=99)


def test_subparser_and_subcontrol_instances(tmp_path: Path):
    """Constructor parameters belong to instances; locals are fresh at each apply."""
    switch = interpret(
        tmp_path,
        "five.apply(hdr.data.d); seven.apply(hdr.data.e); five.apply(hdr.data.d);",
        types="""
        header more_t { bit<8> v; }
        parser Sub(packet_in p, out more_t h) { state start { p.extract(h); transition accept; } }
        control Add(inout bit<8> x)(bit<8> n) { bit<8> calls = 0; apply { calls = calls + 1; x = x + n + calls; } }""",
        headers="more_t more;",
        parser_locals="Sub() sub;",
        parser="state start { p.extract(hdr.data); sub.apply(p, hdr.more); transition accept; }",
        ingress_locals="Add(5) five; Add(7) seven;",
    )
    assert result(switch, data() + b"\x33") == data(d=12, e=8) + b"\x33"


TABLE = """
action set(bit<8> v) { hdr.data.e = v; }
action drop() { mark_to_drop(sm); }
table t { key = { %s } actions = { set; drop; NoAction; } default_action = set(0xDD); %s }
"""


def test_exact_table_and_control_plane(tmp_path: Path):
    switch = interpret(tmp_path, "t.apply();", ingress_locals=TABLE % ("hdr.data.a: exact; hdr.data.d: exact;", ""))
    table = switch.tables["t"]
    assert table.name == "I.t"
    handle = table.insert({"data.a": 1, "hdr.data.d": 2}, "set", {"v": 7})
    table.insert({"data.a": 1, "data.d": 3}, "I.drop")
    assert result(switch, data(a=1, d=2)) == data(a=1, d=2, e=7)
    assert sends(switch, data(a=1, d=3)) == []
    assert switch.drops["ingress"] == 1
    assert result(switch, data(a=2, d=2)) == data(a=2, d=2, e=0xDD)
    table.modify(handle, "set", [8])
    assert result(switch, data(a=1, d=2)) == data(a=1, d=2, e=8)
    table.delete(handle)
    table.set_default("NoAction")
    assert result(switch, data(a=1, d=2)) == data(a=1, d=2, e=0)


def test_table_refusals(tmp_path: Path):
    switch = interpret(tmp_path, "t.apply();", ingress_locals=TABLE % ("hdr.data.d: exact;", ""))
    table = switch.tables["t"]
    table.insert({"d": 1}, "set", [1])
    for match, action, args, words in [
        ({"d": 1}, "set", [1], "already"),
        ({"d": 256}, "set", [1], "8 bits"),
        ({"z": 1}, "set", [1], "unknown"),
        ({}, "set", [1], "exact"),
        ({"d": 2}, "sett", [1], "unknown"),
        ({"d": 2}, "set", [], "takes"),
        ({"d": 2}, "set", {"w": 1}, "no parameter"),
        ({"d": 2}, "set", [256], "8 bits"),
    ]:
        with pytest.raises(TableError, match=words):
            table.insert(match, action, args)


def test_names_for_the_control_plane(tmp_path: Path):
    """`@name` on a parameter, a key, an action and a table (§18.3)."""
    switch = interpret(
        tmp_path,
        "t.apply(); u.apply();",
        ingress_locals="""@name("put") action set(@name("value") bit<8> v) { hdr.data.e = v; }
        @name(".top.table") table t { key = { hdr.data.d: exact @name("key"); } actions = { set; } }
        table u { actions = { set; NoAction; } }""",
    )
    assert sorted(switch.tables) == ["I.u", "top.table"]
    switch.tables["top.table"].insert({"key": 3}, "I.put", {"value": 9})
    assert result(switch, data(d=3)) == data(d=3, e=9)
    with pytest.raises(TableError, match="no keys"):
        switch.tables["u"].insert({}, "put", {"value": 1})


def test_lpm_takes_the_longest_prefix(tmp_path: Path):
    switch = interpret(tmp_path, "t.apply();", ingress_locals=TABLE % ("hdr.data.a: lpm;", ""))
    for length, value in [(8, 1), (24, 3), (0, 9), (16, 2)]:
        switch.tables["t"].insert({"a": (0x0A0B0C0D, length)}, "set", [value])
    seen = [result(switch, data(a=a))[-1] for a in (0x0A0B0CFF, 0x0A0BFFFF, 0x0AFFFFFF, 0xFF000000)]
    assert seen == [3, 2, 1, 9]


def test_ternary_range_optional_priorities(tmp_path: Path):
    keys = "hdr.data.c: ternary; hdr.data.d: range; hdr.data.a: optional;"
    switch = interpret(tmp_path, "t.apply();", ingress_locals=TABLE % (keys, ""))
    table = switch.tables["t"]
    table.insert({"c": (0x1200, 0xFF00)}, "set", [1], priority=10)
    table.insert({"c": (0x1234, 0xFFFF), "d": (3, 5)}, "set", [2], priority=20)
    table.insert({"a": 77}, "set", [3], priority=30)
    seen = [
        result(switch, data(a=a, c=c, d=d))[-1]
        for a, c, d in [(0, 0x12FF, 0), (0, 0x1234, 5), (0, 0x1234, 6), (77, 1, 1)]
    ]
    assert seen == [1, 2, 1, 3]


def test_const_entries_in_program_order_and_switch_on_action_run(tmp_path: Path):
    switch = interpret(
        tmp_path,
        """switch (t.apply().action_run) {
            set: { hdr.data.c = 1; } drop: { hdr.data.c = 2; sm.egress_spec = 1; } default: { hdr.data.c = 3; } }
        if (u.apply().hit) { hdr.data.a = 1; } else { hdr.data.a = 2; }""",
        ingress_locals=TABLE
        % (
            "hdr.data.d: ternary;",
            "const entries = { 0x10 &&& 0xF0: set(1); 0x11: set(2); 0x20 &&& 0xF0: drop(); _: NoAction(); }",
        )
        + "table u { key = { hdr.data.e: exact; } actions = { NoAction; } const entries = { 1: NoAction(); } }",
    )
    assert result(switch, data(d=0x11)) == data(a=1, c=1, d=0x11, e=1)
    assert result(switch, data(d=0x25)) == data(a=2, c=2, d=0x25)
    assert result(switch, data(d=0x30)) == data(a=2, c=3, d=0x30)
    with pytest.raises(TableError, match="constant"):
        switch.tables["t"].insert({"d": (1, 1)}, "set", [1])


def test_entries_with_priorities(tmp_path: Path):
    switch = interpret(
        tmp_path,
        "t.apply();",
        ingress_locals=TABLE
        % ("hdr.data.d: ternary;", "entries = { priority = 5: 0x10 &&& 0xF0: set(1); priority = 9: 0x11: set(2); }"),
    )
    assert [result(switch, data(d=d))[-1] for d in (0x11, 0x12)] == [2, 1]
    switch.tables["t"].insert({"d": (0x12, 0xFF)}, "set", [3], priority=6)
    assert result(switch, data(d=0x12))[-1] == 3


def test_action_selector(tmp_path: Path):
    """The group's member at index hash(selector keys) mod size (BMv2)."""
    switch = interpret(
        tmp_path,
        "t.apply();",
        ingress_locals="""action_selector(HashAlgorithm.identity, 16, 8) sel;
        action set(bit<8> v) { hdr.data.e = v; }
        table t { key = { hdr.data.d: exact; hdr.data.c: selector; }
            actions = { set; NoAction; } implementation = sel; }""",
    )
    profile = switch.profiles["sel"]
    members = [profile.add_member("set", [v]) for v in (10, 20, 30)]
    switch.tables["t"].insert({"d": 1}, group=profile.add_group(members))
    switch.tables["t"].insert({"d": 2}, member=members[1])
    assert [result(switch, data(c=c, d=1))[-1] for c in (0, 1, 5)] == [10, 20, 30]
    assert result(switch, data(d=2))[-1] == 20


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
    """What a switch of this project does: add two workers' values in registers, multicast the sum."""
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


@settings(max_examples=25, deadline=None)
@given(widths=st.lists(st.integers(1, 70), min_size=1, max_size=8), seed=st.integers(0, 2**64), signed=st.booleans())
def test_extract_and_emit_are_inverse(tmp_path_factory, widths: list[int], seed: int, signed: bool):
    """Whatever a header looks like, parsing it and sending it out again changes nothing."""
    widths.append(-sum(widths) % 8 or 8)
    kind = "int" if signed else "bit"
    fields = " ".join(f"{kind}<{w}> f{i};" for i, w in enumerate(widths))
    switch = interpret(
        tmp_path_factory.mktemp("layout"),
        types=f"header odd_t {{ {fields} }}",
        headers="odd_t odd; odd_t copied;",
        parser="state start { p.extract(hdr.odd); transition accept; }",
        egress="hdr.copied = hdr.odd; hdr.odd.setInvalid();",
    )
    frame = random.Random(seed).randbytes(sum(widths) // 8)
    assert switch.process(frame + PAYLOAD, 0) == [(1, frame + PAYLOAD)]


@pytest.fixture(scope="module")
def calculator(tmp_path_factory):
    """a, b in; per operation one word out, unsigned and signed."""
    operations = "".join(
        f"hdr.res.u{i} = hdr.data.a {op} hdr.data.b; "
        f"hdr.res.s{i} = (bit<32>)((int<32>)hdr.data.a {op} (int<32>)hdr.data.b); "
        for i, op in enumerate(OPERATIONS)
    )
    comparisons = "hdr.data.d = (bit<8>)(bit<1>)(hdr.data.a < hdr.data.b);"
    comparisons += "hdr.data.e = (bit<8>)(bit<1>)((int<32>)hdr.data.a < (int<32>)hdr.data.b);"
    fields = "".join(f"bit<32> u{i}; bit<32> s{i};" for i in range(len(OPERATIONS)))
    return interpret(
        tmp_path_factory.mktemp("calculator"),
        "hdr.res.setValid(); " + operations + comparisons,
        types=f"header out_t {{ {fields} }}",
        headers="out_t res;",
    )


OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "|+|": lambda a, b: a + b,
    "|-|": lambda a, b: a - b,
}
word = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1])


@settings(max_examples=60, deadline=None)
@given(a=word, b=word)
def test_arithmetic_agrees_with_integers(calculator, a: int, b: int):
    """Wrapping is arithmetic modulo 2^32, saturating arithmetic is clamped (§8.7, §8.8)."""
    got = result(calculator, data(a=a, b=b))
    sa, sb = (x - 2**32 if x >= 2**31 else x for x in (a, b))
    assert got[10:12] == bytes([a < b, sa < sb])
    words = [int.from_bytes(got[i : i + 4], "big") for i in range(12, len(got), 4)]
    for i, (op, compute) in enumerate(OPERATIONS.items()):
        unsigned, signed = compute(a, b), compute(sa, sb)
        if op in ("|+|", "|-|"):
            unsigned = min(max(unsigned, 0), 2**32 - 1)
            signed = min(max(signed, -(2**31)), 2**31 - 1)
        assert words[2 * i : 2 * i + 2] == [unsigned % 2**32, signed % 2**32], op
