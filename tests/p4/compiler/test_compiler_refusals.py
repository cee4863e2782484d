"""Programs that look right but are invalid: refused with the place and the reason."""

from __future__ import annotations

import pytest
from v1_program import source

from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.frontend import check, load, parse_text
from ina.p4.compiler.generate import generate

pytestmark = pytest.mark.fast
CORE = "action NoAction() {} match_kind { exact }\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@note[1] @note[2] const bit<8> x = 1;", "@note stands twice"),
        ("@note[a = { 1, 2 }] const bit<8> x = 1;", "integers, strings and bools"),
        ("@name(4) const bit<8> x = 1;", "@name holds a string"),
        ("extern main { }", "'main' must be the instantiation"),
        ("header_union U<T> { tuple<T, T> t; }", "can only have headers"),
        ("const tuple<_, bit<8>> t = { 1, 2 };", "a tuple cannot have an element"),
        ("bit<8> f(@optional bit<8> a) { return a; }", "'a' cannot be optional"),
        ("extern E { E(bit<8> x); E(bit<8> x); }", "'E' is declared twice"),
        ("extern E { E(); int f(); }", "cannot return int"),
        ("action a(int x) {}", "an action cannot take an int"),
        ("bool f<T>(in T a, in T b) { return true; } extern E { E(); } "
         "control c(E a, E b) { apply { bool z = a == b; } }", "cannot be compared"),
        ("extern packet_in { T lookahead<T>(); } parser p(packet_in b) { state start { b.lookahead<void>(); } }",
         "lookahead needs a type"),
        ("parser p() { state start { transition other; } state other { transition start; } }", "never reaches accept"),
        ("control c(in bit<8> x) { action a() {} table t { actions = { a; } entries = { 1: a(); } key = { x: exact; } } "
         "apply {} }", "must stand before its entries"),
        ("control c() { action a() {} table t { default_action = a; actions = { a; } } apply {} }",
         "must stand before its default_action"),
        ("control c() { bit<8>[4] x; apply { x.push_front(1); } }", "push_front"),
        ("parser p() { bit<8>[4] x; state start { bit<8> y = x.next; } }", "not of arrays"),
        ("struct s { varbit<8>[4] x; }", "no arrays of varbit"),
        ("action a(bit<8> x) { bit<8> y = x / -1; }", "'/' is not defined for negative numbers"),
        ("action a(bit<8> x) { bit<8> y = -5 % x; }", "'%' is not defined for negative numbers"),
        ("enum X { b } const bool a = ({#} == X.b);", "cannot be compared with X"),
        ("header H {} const H h = { # };", "without space"),
        ("extern void f<T>(in T x); control c() { apply { f(5); } }", "no width is known"),
        ("extern void f<T>(in T x); control c() { apply { f(\"hi\"); } }", "a string cannot be the argument"),
        ("T f<T>(T x) { return x; } control c() { apply { bit<8> y = f(255); } }", "cannot return an int"),
        ("type bit<1> t; t f(bit<2> a) { return (t)a; }", "cannot cast bit<2> to t"),
        ("type bit<8> t; bit<8> f(bit<8> a, t n) { return a << n; }", "a shift amount must be"),
        ("bit<1> h(in bit<1> a) { return a; } bit<1> f(in bit<1> a = h(1)) { return a; }", "must be known at compile time"),
        ("control A() { apply {} } control C()(A a) { apply {} }", "control A has a body"),
        ("control e() { apply {} } parser p() { e() x; state start {} }", "cannot be instantiated in a parser"),
        ("extern W<T> { W(); } control c(W w) { apply {} }", "needs 1 type arguments"),
        ("control c() { bit<8> n; apply { for (n in 1 .. 6) {} } }", "needs a type"),
        ("const int x = (1 << 65536) * (1 << 65536);", "a product of more than 131072 bits"),
        ("const int x = " + "9" * 5000 + ";", "write one so long in hexadecimal"),
        ("const bit<8> x = 0x" + "f" * 5000 + ";", "a number of more than 4300 decimal digits"),
        ("const bit<0x" + "f" * 5000 + "> x = 1;", "a number of more than 4300 decimal digits"),
        ("const int x = 1 << 0x" + "f" * 5000 + ";", "shift by a number of more than 64 bits"),
        ("match_kind { ternary } control c(in bit<8> x) { action a() {} table t { key = { x: ternary; } actions = { a; } "
         "entries = { 1: a(); priority = 4: 2: a(); } } apply {} }", "the first entry must have a priority"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message) as error:
        check(parse_text(CORE + text, "program.p4"))
    assert error.value.span.line == 2


@pytest.mark.parametrize("version", ["20000101", "-5", "20300101"])
def test_unknown_version_of_v1model(tmp_path, version: str) -> None:
    path = tmp_path / "program.p4"
    path.write_text(f"#define V1MODEL_VERSION {version}\n#include <v1model.p4>\n")
    with pytest.raises(CompileError, match="none of v1model's"):
        load(path)


def test_no_action_with_parameters_is_no_default(tmp_path) -> None:
    text = "action NoAction(bit<8> x) {} control c() { table t { actions = {} } apply {} }"
    with pytest.raises(CompileError, match="NoAction has parameters"):
        check(parse_text(text, "program.p4"))


def test_translations_take_a_width_or_string(tmp_path) -> None:
    """The refusal is an error message, no traceback from P4Info."""
    path = tmp_path / "program.p4"
    path.write_text(source("t.apply();", types='@p4runtime_translation("uri", bool) type bit<16> port_t;', metadata="port_t p;",
                           ingress_locals="table t { key = { meta.p: exact; } actions = { NoAction; } }"))
    with pytest.raises(CompileError, match="takes a URI and then"):
        generate(load(path))


@pytest.mark.parametrize("before", ["", " " * 40, "\t" * 40, "(" * 1000])
@pytest.mark.parametrize("after", ["", "+ 1" * 1000])
def test_errors_show_a_piece_of_a_long_line(before: str, after: str) -> None:
    text = f"const bit<8> x = {before}oops{after};\n"
    with pytest.raises(CompileError) as error:
        check(parse_text(text, "program.p4", {"program.p4": text}))
    error.value.sources = {"program.p4": text}
    _, line, marks = str(error.value).splitlines()[:3]
    assert len(line) < 320
    if before[:1] != "(":
        assert line[marks.index("^") :].startswith("oops")
