"""Evaluation order (P4_16 v1.2.5 §6.7, §8.1, §12.2): arguments, operands, indices, elements of loops and emitted headers have
their values at that moment, in the compiled program and in the interpreter, against results computed by hand."""

from __future__ import annotations

import pytest
from shadow import Shadowed
from v1_program import data, source

from ina.p4.compiler.build import compile_program
from ina.p4.compiler.errors import CompileError
from ina.p4.runtime import Switch

pytestmark = pytest.mark.build
FUNCTIONS = """
bit<8> next(inout bit<8> x) { x = x + 1; return x; }
bit<8> seven(inout bit<8> x) { x = 7; return 0; }
bit<8> half(out bit<16> x) { x = 0xFF00; return 0; }
bit<8> fresh(out bit<8> y, in bit<8> x) { y = 5; return x; }
void pair(out bit<16> o, in bit<8> a, in bit<8> b) { o = a ++ b; }
bit<8> add(inout bit<8> a, in bit<8> b) { a = a + b; return a; }
void both(inout bit<8> a, inout bit<8> b) { a = a + 1; b = b + 2; }
void grow(inout bit<8> a, in bit<8> b) { a = a + b + 1; }
struct two_t { bit<8> x; bit<8> y; }
two_t turned(in two_t s) { return {s.y, s.x}; }
"""
ACTION = """
action keep(in bit<8> x) { hdr.data.d = 1; hdr.data.e = x; }
action change(inout bit<8> x) { x = 1; hdr.data.e = hdr.data.d; }
action leave(inout bit<8> x) { x = 2; exit; }
action drop(inout standard_metadata_t s) { mark_to_drop(s); }
table keeps { actions = { keep(hdr.data.d); } const default_action = keep(hdr.data.d); }
table changes { actions = { change(hdr.data.d); } const default_action = change(hdr.data.d); }
action grown(inout bit<8> a, in bit<8> b) { a = a + b + 1; }
action sum(in bit<8> a, in bit<8> b) { hdr.data.e = a + b; }
table grows { actions = { grown(hdr.data.d, seven(hdr.data.d)); } const default_action = grown(hdr.data.d, seven(hdr.data.d)); }
table sums { actions = { sum(hdr.data.d, seven(hdr.data.d)); } const default_action = sum(hdr.data.d, seven(hdr.data.d)); }
action set(bit<8> x) { hdr.data.e = x; }
table keyed { key = { hdr.data.d: exact; seven(hdr.data.d): exact @name("k"); } actions = { set; NoAction; }
    const entries = { (1, 0): set(6); } const default_action = NoAction; }
register<bit<32>>(9) cells;
"""
# Statements of ingress; d and e of the packet; c, d and e of the packet that leaves (None: dropped).
STATEMENTS = {
    "an out place that an in argument reads": ("hdr.data.e = fresh(hdr.data.d, hdr.data.d);", (9, 0), (0, 5, 9)),
    "arguments one after the other": ("pair(hdr.data.c, hdr.data.d, next(hdr.data.d));", (1, 0), (0x0102, 2, 0)),
    "an inout place that a later argument changes": ("hdr.data.e = add(hdr.data.d, next(hdr.data.d));", (1, 0), (0, 3, 3)),
    "the same in the later argument": ("hdr.data.e = add(hdr.data.d, add(hdr.data.d, next(hdr.data.d)));", (1, 0), (0, 4, 4)),
    "bits that a later argument changes": ("grow(hdr.data.c[11:4], half(hdr.data.c));", (3, 0), (0xF010, 3, 0)),
    "an element that a later argument changes": (
        "bit<8>[2] s = {hdr.data.d, hdr.data.d}; grow(s[hdr.data.e], seven(s[hdr.data.e])); hdr.data.d = s[1];",
        (3, 1), (0, 4, 1),
    ),
    "an inout place of an action of a table, likewise": ("grows.apply();", (3, 0), (0, 4, 0)),
    "a value of an action of a table, likewise": ("sums.apply();", (3, 0), (0, 7, 3)),
    "one place twice": ("both(hdr.data.d, hdr.data.d);", (1, 0), (0, 3, 0)),
    "compound assignment": ("hdr.data.d += next(hdr.data.d);", (9, 0), (0, 19, 0)),
    "comparison of tuples": (
        "if ((tuple<bit<8>, bit<8>>){hdr.data.d, 0} == (tuple<bit<8>, bit<8>>){9, seven(hdr.data.d)}) { hdr.data.e = 1; }",
        (9, 0), (0, 7, 1),
    ),
    "index of a register": (
        "bit<32> v; cells.write((bit<32>)hdr.data.d, (bit<32>)seven(hdr.data.d) + 0xAB); cells.read(v, 1);"
        " hdr.data.c = (bit<16>)v;", (1, 0), (0xAB, 7, 0),
    ),
    "arguments of a hash": (
        "hash(hdr.data.c, HashAlgorithm.identity, hdr.data.d, { hdr.data.d }, (bit<32>)seven(hdr.data.d) + 256);",
        (3, 0), (6, 7, 0),
    ),
    "a value for an action": ("keeps.apply();", (3, 3), (0, 1, 3)),
    "a place for an action": ("changes.apply();", (3, 4), (0, 1, 3)),
    "out of an action by exit": ("leave(hdr.data.d);", (1, 0), (0, 2, 0)),
    "a drop through a parameter": ("drop(sm);", (1, 0), None),
    "keys of a table": ("keyed.apply();", (1, 0), (0, 7, 6)),
    "a struct of itself": (
        "two_t s = {hdr.data.d, hdr.data.e}; s = {s.y, s.x}; hdr.data.d = s.x; hdr.data.e = s.y;", (1, 2), (0, 2, 1)),
    "a struct through a function": (
        "two_t s = {hdr.data.d, hdr.data.e}; s = turned(s); hdr.data.d = s.x; hdr.data.e = s.y;", (1, 2), (0, 2, 1)),
    "an array of itself": (
        "bit<8>[2] s; s[0] = hdr.data.d; s[1] = hdr.data.e; s = {s[1], s[0]}; hdr.data.d = s[0]; hdr.data.e = s[1];",
        (1, 2), (0, 2, 1)),
    "an index with effects": (
        "bit<8>[3] s = {0, 0, 0}; s[next(hdr.data.d)] = 5; hdr.data.c = s[0] ++ s[1];", (0, 0), (5, 1, 0)),
    "an index before its value": (
        "bit<8>[3] s = {0, 0, 0}; s[hdr.data.d] = seven(hdr.data.d) + 5; hdr.data.c = s[0] ++ s[1];", (0, 0), (0x500, 7, 0)),
    "a list": (
        "tuple<bit<8>, bit<8>> x = {hdr.data.d, next(hdr.data.d)}; hdr.data.c = x[0] ++ x[1];", (1, 0), (0x0102, 2, 0)),
    "the way not taken": (
        "hdr.data.e = hdr.data.d == 2 ? next(hdr.data.d) : hdr.data.e; if (hdr.data.e == 9 && next(hdr.data.d) == 2) { exit; }",
        (1, 8), (0, 1, 8)),
    "for over a list": (
        "for (bit<8> i in (list<bit<8>>){ hdr.data.d, hdr.data.e }) { hdr.data.c = hdr.data.c + (bit<16>)i; hdr.data.e = 100; }",
        (1, 2), (3, 1, 100)),
    "for over an array": (
        "bit<8>[2] s = {hdr.data.d, hdr.data.e}; for (bit<8> i in s) { hdr.data.c = hdr.data.c + (bit<16>)i; s[1] = 100; }"
        " hdr.data.e = s[1];", (1, 2), (3, 1, 100)),
    "for over a list with effects": (
        "for (bit<8> i in (list<bit<8>>){ hdr.data.d, next(hdr.data.d), next(hdr.data.d) }) {"
        " hdr.data.c = hdr.data.c * 10 + (bit<16>)i; }", (1, 0), (123, 3, 0)),
    "for over a range with effects": (
        "for (bit<8> i in hdr.data.d .. (seven(hdr.data.d) + 7)) { hdr.data.e = hdr.data.e + 1; hdr.data.d = 0; }",
        (3, 0), (0, 0, 5)),
}


@pytest.mark.parametrize("case", STATEMENTS)
def test_statements(tmp_path, case):
    ingress, (d, e), fields = STATEMENTS[case]
    path = tmp_path / "program.p4"
    path.write_text(source(ingress, types=FUNCTIONS, ingress_locals=ACTION))
    switch = Shadowed(path, cflags=["-O1"])
    got = switch.process(data(0, 0, 0, d, e))
    assert got == ([] if fields is None else [(1, data(0, 0, *fields))])


def test_select_keys_keep_their_values(tmp_path):
    path = tmp_path / "program.p4"
    path.write_text(source("hdr.data.e = meta.m;", types=FUNCTIONS, metadata="bit<8> m;", parser="""
        state start { p.extract(hdr.data); transition select(hdr.data.d, seven(hdr.data.d)) { (1, 0): a; default: accept; } }
        state a { meta.m = 4; transition accept; }"""))
    assert Shadowed(path, cflags=["-O1"]).process(data(d=1)) == [(1, data(d=7, e=4))]


HEADERS_LEAVE = {
    "twice": ("p.emit(h); h.a = 2; p.emit(h);", [1, 2]),
    "changed behind": ("p.emit(h); h.a = 2;", [1]),
    "invalid behind": ("p.emit(h); h.setInvalid();", [1]),
    "in one branch": ("if (hdr.data.d == 1) { p.emit(h); h.a = 2; } else { h.a = 3; } p.emit(h);", [1, 2]),
    "another in its place": ("p.emit(h); h = hdr.data; p.emit(h);", [1, 0]),
}


@pytest.mark.parametrize("case", HEADERS_LEAVE)
def test_headers_leave_as_they_were_when_emitted(tmp_path, case):
    statements, values = HEADERS_LEAVE[case]
    path = tmp_path / "program.p4"
    path.write_text(source(deparser=f"data_t h = hdr.data; h.a = 1; {statements}"))
    frame = b"".join(data(a=a, d=1) for a in values)
    assert Shadowed(path, cflags=["-O1"]).process(data(d=1)) == [(1, frame)]


def test_bulk_headers_leave_as_they_were(tmp_path):
    """A bulk header stays in the frame in wire order."""
    fields = " ".join(f"bit<32> v{i};" for i in range(10))
    path = tmp_path / "program.p4"
    path.write_text(source(
        types=f"header bulk_t {{ {fields} }}", headers="bulk_t bulk;",
        parser="state start { p.extract(hdr.data); p.extract(hdr.bulk); transition accept; }",
        deparser="bulk_t h = hdr.bulk; p.emit(h); h.v3 = 99; p.emit(hdr.data); p.emit(h);",
    ))
    words = [i.to_bytes(4, "big") for i in range(10)]
    after = [*words[:3], (99).to_bytes(4, "big"), *words[4:]]
    sent = Shadowed(path, cflags=["-O1"]).process(data(d=1) + b"".join(words) + b"rest")
    assert sent == [(1, b"".join(words) + data(d=1) + b"".join(after) + b"rest")]


def test_an_emit_within_a_loop_is_refused(tmp_path):
    path = tmp_path / "program.p4"
    path.write_text(source(deparser="for (bit<8> i in 1 .. 2) { p.emit(hdr.data); }"))
    with pytest.raises(CompileError, match="emit within a loop"):
        compile_program(path)


def test_the_drop_of_an_older_v1model_has_no_argument(tmp_path):
    """The interpreter requires an argument, and reports its absence."""
    path = tmp_path / "program.p4"
    path.write_text(source("if (hdr.data.d == 1) { mark_to_drop(); }"))
    with Switch(compile_program(path, cflags=["-O1"]).so_path) as switch:
        switch.add_port(1)
        assert [switch.step(data(d=d), port=1) for d in (1, 2)] == [[], [(1, data(d=2))]]
