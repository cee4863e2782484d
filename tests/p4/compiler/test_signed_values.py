"""Signs follow the types through every operation: the compiled program and the interpreter against Python's integers."""

from __future__ import annotations

import random

import pytest
from shadow import Shadowed
from v1_program import data, source

from ina.p4.compiler.build import compile_program
from ina.p4.compiler.errors import CompileError

pytestmark = pytest.mark.build


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def saturated(value: int, width: int) -> int:
    return max(-(1 << width - 1), min(value, (1 << width - 1) - 1))


WIDTHS = [(4, 4), (8, 8), (1, 7), (16, 48), (33, 31), (40, 40), (64, 8), (100, 60)]


@pytest.mark.parametrize(("left", "right"), WIDTHS)
def test_a_concatenation_is_as_signed_as_its_left_side(tmp_path, left, right):
    width = left + right
    pad = -(width + 8) % 8
    joined = "(hdr.x.a ++ hdr.x.b)"
    outputs = {
        "bit<1> less": f"{joined} < {width}s0 ? 1w1 : 1w0",
        "bit<1> nested": f"(({joined} ++ 3w5) < {width + 3}s0) ? 1w1 : 1w0",
        "bit<6> flags": "0",
        f"int<{width}> shifted": f"{joined} >> 3",
        f"int<{width}> bythe": f"{joined} >> hdr.x.n",
        f"int<{width}> most": f"{joined} |+| {joined}",
        f"int<{width}> least": f"{joined} |-| {width}s1",
        f"int<{width + 24}> wide": f"(int<{width + 24}>){joined}",
        f"int<{width}> turned": f"-{joined}",
        f"int<{width}> mixed": f"(hdr.x.n == 0) ? {joined} : ({joined} >> 1)",
        f"bit<{(-5 * width - width - 24) % 8 or 8}> rest": "0",
    }
    fields = " ".join(f"{name};" for name in outputs)
    ingress = " ".join(f"hdr.y.{name.split()[1]} = {value};" for name, value in outputs.items())
    path = tmp_path / "program.p4"
    path.write_text(source(
        f"hdr.y.setValid(); {ingress}", headers="x_t x; y_t y;",
        types=f"header x_t {{ int<{left}> a; bit<{right}> b; bit<{pad + 8}> n; }} header y_t {{ {fields} }}",
        parser="state start { p.extract(hdr.x); transition accept; }",
    ))
    switch = Shadowed(path, cflags=["-O1"])
    rng = random.Random(width)
    for bits in (0, (1 << width) - 1, 1 << width - 1, (1 << width - 1) - 1, *(rng.getrandbits(width) for _ in range(6))):
        for n in (0, 1, width - 1, 250):
            ((_, frame),) = switch.process((bits << pad + 8 | n).to_bytes((width + pad + 8) // 8, "big"))
            value = signed(bits, width)
            expected = [
                (value < 0, 1), (value < 0, 1), (0, 6), (value >> 3, width), (value >> min(n, width), width),
                (saturated(2 * value, width), width), (saturated(value - 1, width), width), (value, width + 24),
                (signed(-value, width), width), (value if n == 0 else value >> 1, width),
            ]
            out = 0
            for number, size in expected:
                out = out << size | number & (1 << size) - 1
            size = sum(s for _, s in expected)
            out <<= (-size) % 8 or 8
            assert frame[(width + pad + 8) // 8 :] == out.to_bytes((size + ((-size) % 8 or 8)) // 8, "big"), (bits, n)


def test_a_constant_on_the_left_has_its_sign_too(tmp_path):
    path = tmp_path / "program.p4"
    path.write_text(source("if ((4s15 ++ hdr.data.d[3:0]) < 8s0) { hdr.data.e = 1; }"
                           " if ((4w15 ++ (int<4>)(bit<4>)hdr.data.d[3:0]) > 8w100) { hdr.data.c = 1; }"))
    assert Shadowed(path, cflags=["-O1"]).process(data(d=3)) == [(1, data(c=1, d=3, e=1))]


PLACES = {
    "slice": "int<8> x = (int<8>)hdr.data.d; if (x[7:4] > 4w7) { hdr.data.e = 1; }",
    "slice assigned": "int<8> x = 0; x[7:0] = hdr.data.d; if (x < 0) { hdr.data.e = 1; }",
    "array": "int<8>[2] x; x[0] = 1; x[1] = (int<8>)hdr.data.d; if (x[hdr.data.d[0:0]] < 0) { hdr.data.e = 1; }",
    "tuple": "tuple<int<8>, bit<8>> x = {(int<8>)hdr.data.d, 1}; if (x[0] < 0) { hdr.data.e = 1; }",
    "struct": "s_t x = {(int<8>)hdr.data.d}; if (x.v < 0) { hdr.data.e = 1; }",
    "function": "if ((int<16>)f(hdr.data.d) == -16s3) { hdr.data.e = 1; }",
    "mux": "int<8> x = hdr.data.c == 0 ? (int<8>)hdr.data.d : 8s1; if ((int<16>)x == -16s3) { hdr.data.e = 1; }",
    "switch": "switch ((int<8>)hdr.data.d) { -8s3: { hdr.data.e = 1; } default: {} }",
    "enum": "e_t x = (e_t)(int<8>)hdr.data.d; if (x == e_t.A && (int<8>)x < 0) { hdr.data.e = 1; }",
    "newtype": "n_t x = (n_t)(int<8>)hdr.data.d; if ((int<8>)x < 0) { hdr.data.e = 1; }",
    "register": "int<8> x; r.write(1, (int<8>)hdr.data.d); r.read(x, 1); if (x < 0) { hdr.data.e = 1; }",
    "exact key": "t.apply();",
    "lpm key": "l.apply();",
    "range key": "g.apply();",
    "compound": "int<8> x = 0; x |+|= (int<8>)hdr.data.d; x >>= 1; if (x == -2) { hdr.data.e = 1; }",
    "for in": "for (int<8> x in (int<8>)hdr.data.d .. 8s0) { hdr.data.e = hdr.data.e + 1; } hdr.data.e = hdr.data.e - 3;",
    "digest order": "bool b = (int<8>)hdr.data.d <= -3 && -8s128 < (int<8>)hdr.data.d; if (b) { hdr.data.e = 1; }",
}
OBJECTS = """
register<int<8>>(2) r;
action set(int<8> v) { hdr.data.e = v < 0 ? 8w1 : 8w9; }
table t { key = { (int<8>)hdr.data.d: exact @name("k"); } actions = { set; NoAction; } entries = { -8s3: set(-8s5); } }
table l { key = { (int<8>)hdr.data.d: lpm @name("k"); } actions = { set; NoAction; }
    const entries = { 8s0 &&& 8s0: set(8s1); -8s3 &&& -8s1: set(-8s1); } }
table g { key = { (int<8>)hdr.data.d: range @name("k"); } actions = { set; NoAction; }
    const entries = { 8s0 .. 8s9: set(8s1); -8s4 .. 8s3: set(-8s1); } }
"""


@pytest.mark.parametrize("place", PLACES)
def test_a_place_keeps_the_sign(tmp_path, place):
    path = tmp_path / "program.p4"
    types = ("struct s_t { int<8> v; } int<8> f(in bit<8> x) { return (int<8>)x; } enum int<8> e_t { A = -3, B = 1 }"
             " type int<8> n_t;")
    path.write_text(source(PLACES[place], types=types, ingress_locals=OBJECTS))
    assert Shadowed(path, cflags=["-O1"]).process(data(d=0xFD)) == [(1, data(d=0xFD, e=1))]


@pytest.mark.parametrize(
    ("ingress", "message"),
    [
        ("hdr.data.d = (bit<8>)(((int<4>)hdr.data.d[3:0] ++ 4w1) / 8s2);", "not defined for signed"),
        ("g.apply();", "a range key of type int<8>"),
    ],
)
def test_what_has_no_meaning_for_signed_values_is_refused(tmp_path, ingress, message):
    path = tmp_path / "program.p4"
    table = "table g { key = { (int<8>)hdr.data.d: range @name(\"k\"); } actions = { NoAction; } }"
    path.write_text(source(ingress, ingress_locals=table))
    with pytest.raises(CompileError, match=message):
        compile_program(path)


def test_the_index_of_a_cell_is_its_bits(tmp_path):
    path = tmp_path / "program.p4"
    path.write_text("#define V1MODEL_VERSION 20200408\n" + source(
        """int<8> i = (int<8>)hdr.data.d; r.write(i, hdr.data.e); r.read(hdr.data.e, i); c.count(i); bit<8> color;
        m.execute_meter<bit<8>>(i, color); hdr.data.c = (bit<16>)color;""",
        ingress_locals="""register<bit<8>, int<8>>(256) r; counter<int<8>>(256, CounterType.packets) c;
        meter<int<8>>(256, MeterType.packets) m;""",
    ))
    switch = Shadowed(path, cflags=["-O1"])
    switch.meters["I.m"].configure(0xFE, 0, 0, 0, 0)
    for d, color in ((0xFF, 0), (0xFE, 2), (0x7F, 0)):
        assert switch.process(data(c=9, d=d, e=7)) == [(1, data(c=color, d=d, e=7))]
        assert switch.registers["I.r"].values[d] == 7 and switch.counters["I.c"].packets[d] == 1
