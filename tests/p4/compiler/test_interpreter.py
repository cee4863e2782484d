"""The language in the reference interpreter on one small program per language feature; expected packets are computed by hand."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from v1_program import PAYLOAD, data, interpret, result

pytestmark = pytest.mark.fast


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
    results = [result(switch, data(c=c, d=d))[-1] for c, d in [(0x12AB, 3), (0x12AB, 9), (7, 0), (0x12AB, 4)]]
    assert results == [1, 2, 3, 0]


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
    """A header union has at most one valid member (§8.20)."""
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
    """Arguments are copied in, results are copied back left to right, even with aliases (§6.8)."""
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


@settings(max_examples=25, deadline=None)
@given(widths=st.lists(st.integers(1, 70), min_size=1, max_size=8), seed=st.integers(0, 2**64), signed=st.booleans())
def test_extract_and_emit_are_inverse(tmp_path_factory, widths: list[int], seed: int, signed: bool):
    """Parsing a header and emitting it changes no bit, for any header layout."""
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
