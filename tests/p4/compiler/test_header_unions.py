"""Header unions: at most one header is valid (P4_16 v1.2.5 §8.20), in the compiled program and in the interpreter."""

from __future__ import annotations

import pytest
from shadow import Shadowed
from v1_program import data, source

pytestmark = pytest.mark.build
TYPES = """
header one_t { bit<8> x; } header two_t { bit<16> y; }
header_union union_t { one_t a; two_t b; one_t c; }
void leave(inout one_t h) { }
void make_none(out one_t h) { }
void make(out one_t h) { h.setValid(); h.x = 4; }
void make_first(inout one_t h, inout one_t other) { h.setValid(); }
bit<8> make_and_look(inout one_t h, in two_t other) { h.setValid(); h.x = (bit<8>)(bit<1>)other.isValid(); return h.x; }
"""
# Statements of ingress on `u`, whose b has been extracted as 0x1122; bytes of `u`, header `o` and union `w` that leave.
# `o` and `w` are invalid at first.
STATEMENTS = {
    "a header becomes valid": ("hdr.u.a.setValid(); hdr.u.a.x = 7;", "07"),
    "it becomes invalid": ("hdr.u.b.setInvalid();", ""),
    "another becomes invalid": ("hdr.u.a.setInvalid();", ""),
    "a valid header is assigned": ("hdr.o.setValid(); hdr.o.x = 8; hdr.u.a = hdr.o;", "0808"),
    "an invalid header is assigned": ("hdr.u.a = hdr.o;", ""),
    "a header of another union is assigned": ("hdr.w.c.setValid(); hdr.w.c.x = 9; hdr.u.a = hdr.w.c;", "0909"),
    "a header of the same union is assigned": ("hdr.u.c.setValid(); hdr.u.c.x = 6; hdr.u.a = hdr.u.c;", "06"),
    "a header is assigned to itself": ("hdr.u.b = hdr.u.b;", "1122"),
    "a union is assigned": ("hdr.w = hdr.u;", "11221122"),
    "an invalid union is assigned": ("hdr.u = hdr.w;", ""),
    "an element is assigned": ("hdr.o.setValid(); hdr.o.x = 5; hdr.s[hdr.data.d].c = hdr.o; hdr.u = hdr.s[1];", "050505"),
    "a parameter brings back an invalid header": ("leave(hdr.u.a);", ""),
    "an out parameter brings none": ("make_none(hdr.u.a);", ""),
    "an out parameter brings one": ("make(hdr.u.a);", "04"),
    "the last of two parameters is invalid": ("make_first(hdr.u.a, hdr.u.c);", ""),
    "both are there until the call ends": ("hdr.u.c.x = make_and_look(hdr.u.a, hdr.u.b);", "01"),
}


@pytest.mark.parametrize("case", STATEMENTS)
def test_statements(tmp_path, case):
    statement, digits = STATEMENTS[case]
    path = tmp_path / "program.p4"
    path.write_text(source(statement, types=TYPES, headers="union_t u; one_t o; union_t w; union_t[2] s;",
                           parser="state start { p.extract(hdr.data); p.extract(hdr.u.b); transition accept; }",
                           deparser="p.emit(hdr);"))
    assert Shadowed(path, cflags=["-O1"]).process(data(d=1) + b"\x11\x22\xff") == [(1, data(d=1) + bytes.fromhex(digits + "ff"))]
