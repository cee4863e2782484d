"""Types, constants, conversions, calls: the checker's annotations of the tree, and its refusals with their messages."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.const import wrap
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.front.lexer import tokenize
from ina.p4.compiler.front.preprocess import preprocess
from ina.p4.compiler.frontend import check, parse_text
from ina.p4.compiler.instances import key_name
from ina.p4.compiler.types import BitType

pytestmark = pytest.mark.fast
PRELUDE = """
header h_t { bit<8> a; bit<16> b; int<8> s; bool f; }
header v_t { bit<8> n; varbit<64> v; }
header_union u_t { h_t x; v_t y; }
struct pair_t { bit<8> x; bit<16> y; }
struct hdr_t { h_t h; h_t[4] st; u_t u; v_t v; pair_t p; }
enum Colour { red, green }
enum bit<8> Code { one = 1, two = Code.one + 1 }
type bit<9> port_t;
typedef bit<8> byte_t;
error { Mine }
extern Box<T> { Box(bit<32> n); T get(in bit<32> i); void put<U>(in T t, out U u); void put(in T t); }
extern bit<8> twist(in bit<8> x, bit<8> fixed);
extern T ident<T>(in T x);
bit<8> plus(in bit<8> x, in bit<8> y = 3) { return x + y; }
T first<T>(in T x, in bit<8> unused) { return x; }
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    path = tmp_path_factory.mktemp("p4") / "core_only.p4"
    path.write_text("#include <core.p4>\n" + PRELUDE)
    text, sources = preprocess(path)
    return text, sources, str(path)


@pytest.fixture
def run(core):
    def compile_text(body: str):
        text, sources, path = core
        return check(parse_text(f'{text}\n#line 1 "body.p4"\n{body}', path, dict(sources, **{"body.p4": body})))

    return compile_text


@pytest.fixture
def statements(run):
    """The checked statements of a control's apply block; `locals_` stand before it."""

    def compile_statements(body: str, locals_: str = ""):
        program = run(f"control c(inout hdr_t hdr, in bit<8> i, out bit<16> o) {{ {locals_} apply {{ {body} }} }}")
        control = next(d for d in program.declarations if isinstance(d, ast.ControlDecl))
        return control.body.statements

    return compile_statements


@pytest.fixture
def value(run):
    """The constant that an expression evaluates to as a `type_`."""
    return lambda text, type_="bit<32>": run(f"const {type_} x = {text};").declarations[-1].value.const


@pytest.mark.parametrize(
    ("type_", "text", "wanted"),
    [
        ("bit<8>", "250 + 10", 4),
        ("bit<8>", "8w250 |+| 10", 255),
        ("bit<8>", "8w3 |-| 10", 0),
        ("int<8>", "8s100 |+| 100", 127),
        ("int<8>", "-8s128 |-| 1", -128),
        ("int<8>", "8s127 + 1", -128),
        ("int<8>", "(int<8>) 8w255", -1),
        ("bit<16>", "8w0xAB ++ 8w0xCD", 0xABCD),
        ("bit<4>", "8w0xAB[7:4]", 0xA),
        ("bit<4>", "8w0xAB[4 +: 4]", 0xA),
        ("bit<8>", "~8w1", 254),
        ("bit<8>", "-8w1", 255),
        ("int", "1 << 70", 1 << 70),
        ("bit<8>", "8w1 << 9", 0),
        ("int<8>", "-8s4 >> 1", -2),
        ("bool", "3 < 5 && !(2 == 3)", True),
        ("bool", "false && (1 / 1 == 1)", False),
        ("bit<8>", "true ? 8w1 : 8w2", 1),
        ("bit<1>", "(bit<1>) true", 1),
        ("bool", "(bool) 1w1", True),
        ("int", "17 % 5 * 2 - 7 / 2", 1),
        ("int", "8w5", 5),
        ("int", "-8s5", -5),
        ("byte_t", "Code.two", 2),
        ("bit<8>", "Code.two + 1", 3),
        ("Code", "(Code) 8w2", 2),
        ("Colour", "Colour.green", "green"),
        ("error", "error.Mine", "Mine"),
        ("port_t", "(port_t) 9w5", 5),
        ("string", '"a" ++ "b"', "ab"),
        ("tuple<bit<8>, bool>", "{1, true}", [1, True]),
        ("pair_t", "{y = 2, x = 1}", {"x": 1, "y": 2}),
        ("pair_t", "{1, ...}", {"x": 1, "y": 0}),
        ("pair_t", "...", {"x": 0, "y": 0}),
        ("bit<32>", "((pair_t) {7, 8}).y ++ 16w0", 8 << 16),
        ("bool", "(pair_t) {1, 2} == (pair_t) {1, 2}", True),
        ("int", "({1, 2, 3})[1]", 2),
        ("bit<32>", "pair_t.minSizeInBits() + v_t.maxSizeInBytes()", 24 + 9),
    ],
)
def test_constants(value, type_, text, wanted):
    assert value(text, type_) == wanted


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1), st.sampled_from(["+", "-", "*", "&", "|", "^"]), st.booleans()
)
def test_folding_agrees_with_python(a, b, op, signed):
    t = BitType(16, signed)
    suffix = "s" if signed else "w"
    program = parse_text(f"const {t} x = 16{suffix}{a} {op} 16{suffix}{b};", "t.p4")
    folded = check(program).declarations[0].value.const
    assert folded == wrap(eval(f"{a} {op} {b}"), t)


def test_implicit_conversions_are_casts(statements):
    shift, compare, member = statements("o = hdr.h.b << i; hdr.h.f = hdr.h.a == 5; hdr.h.a = Code.two;")
    assert shift.value.right.type == BitType(8)
    assert (
        compare.value.type == types.BOOL and compare.value.right.type == BitType(8) and compare.value.right.value == 5
    )
    assert isinstance(member.value, ast.Cast) and member.value.implicit and member.value.const == 2


def test_names_know_their_declarations(statements):
    first, second = statements("bit<8> x = i; x = plus(x);")
    assert second.target.decl is first and second.value.args[0].decl is first
    assert isinstance(first.init.decl, ast.Param) and first.init.decl.direction == "in"


def test_literals_that_do_not_fit_are_warned_about(run):
    program = run("const bit<4> x = 17;\nconst bit<4> y = -1;")
    assert [d.value.const for d in program.declarations[-2:]] == [1, 15]
    assert [w.span.line for w in program.warnings] == [1, 2] and "cut to 1" in program.warnings[0].message


def test_calls_bind_arguments(statements):
    keyworded, default, generic, method, header, extern = statements(
        """i2 = plus(y = 1, x = i2); i2 = plus(i2); o = first<bit<16>>(hdr.h.b, 0); box.put(i2, o);
        hdr.h.setValid(); i2 = twist(i2, 8w1 + 2);""",
        "Box<bit<8>>(4) box; bit<8> i2 = 1;",
    )
    assert [ast.source_text(a) for a in keyworded.value.args] == ["i2", "8w1"] and keyworded.value.kind == "function"
    assert default.value.args[1].const == 3
    assert generic.value.decl.return_type == BitType(16) and generic.value.type_bindings == {"T": BitType(16)}
    assert generic.value.decl.body.statements[0].value.type == BitType(16)
    call = method.call
    assert (call.kind, call.method, call.type_bindings) == ("method", "put", {"U": BitType(16)})
    assert call.receiver.decl.name == "box" and call.receiver.type.args == (BitType(8),)
    assert [p.direction for p in call.params] == ["in", "out"]
    assert header.call.kind == "header_method" and header.call.method == "setValid"
    assert extern.value.kind == "extern_function" and extern.value.args[1].const == 3


def test_generic_functions_are_specialised_once_per_type(run):
    program = run(
        "bit<8> f(in bit<8> a, in bool b) { bool x = first(b, 1); bit<8> y = first(a, 1); return first(y, 2); }"
    )
    copies = [d for d in program.declarations if isinstance(d, ast.FunctionDecl) and d.name.startswith("first_")]
    assert [d.return_type for d in copies] == [types.BOOL, BitType(8)]


def test_tables(statements):
    locals_ = """
        action set(in bit<8> x, bit<16> y) { o = y; }
        action none() {}
        table t {
            key = { hdr.h.a: exact; hdr.h.b: ternary; hdr.h.f: exact @name("flag"); }
            actions = { set(hdr.h.a); none; NoAction; }
            entries = {
                priority = 3: (1, 2 &&& 3, true): set(hdr.h.a, 4);
                (Code.two, _, false): set(5);
                const priority = 1: (3, 7, true): none();
            }
            size = 4 * 16;
        }
        table plain { actions = { none; } default_action = none; }
    """
    check_hit, run_switch = statements(
        """if (t.apply().hit) { plain.apply(); }
        switch (t.apply().action_run) { set: none: { o = 1; } default: { } }""",
        locals_,
    )
    assert check_hit.condition.kind == "hit" and check_hit.condition.base.kind == "table_apply"
    table = check_hit.condition.base.decl
    assert table.size == 64 and table.default_action.decl.name == "NoAction"
    assert [key_name(k) for k in table.keys] == ["hdr.h.a", "hdr.h.b", "flag"]
    listed = table.actions[0]
    assert (
        [p.name for p in listed.params] == ["x", "y"] and listed.args[0].type == BitType(8) and listed.args[1] is None
    )
    assert [e.action.args[-1].const if e.action.args else None for e in table.entries] == [4, 5, None]
    assert ast.source_text(table.entries[1].action.args[0]) == "hdr.h.a"
    assert [e.priority for e in table.entries] == [3, 2, 1] and [e.is_const for e in table.entries] == [
        False,
        False,
        True,
    ]
    assert table.entries[1].keys[0].const == 2 and isinstance(table.entries[1].keys[1], ast.DontCare)
    assert isinstance(run_switch.subject.type, types.ActionRunType)
    assert run_switch.cases[0].action is table.actions[0] and run_switch.cases[0].body is None


def test_direct_application_becomes_an_instance(run):
    program = run(
        "control inner(inout bit<8> x) { apply {} }\n"
        "control c(inout bit<8> x) { apply { inner.apply(x); inner.apply(x); } }"
    )
    control = program.declarations[-1]
    assert [(type(d), d.name) for d in control.locals] == [(ast.Instantiation, "inner"), (ast.Instantiation, "inner_0")]
    calls = [s.call for s in control.body.statements]
    assert [c.kind for c in calls] == ["control_apply"] * 2
    assert [c.receiver.decl for c in calls] == control.locals


def test_parsers(run):
    parser = run("""
        parser p(packet_in b, out hdr_t hdr)(bit<8> limit) {
            value_set<bit<8>>(4) known;
            state start {
                b.extract(hdr.h);
                transition select(hdr.h.a, hdr.h.b) {
                    (known, 1 .. 9): more;
                    (Code.one, 3 &&& 0xF): accept;
                    default: reject;
                }
            }
            state more {
                b.extract(hdr.st.next);
                verify(hdr.st.lastIndex < 3, error.Mine);
                bit<16> ahead = b.lookahead<bit<16>>();
                b.extract(hdr.v, 32);
                hdr.st[0].a = limit;
                transition select(hdr.st.last.a) { 0: more; _: accept; }
            }
        }
    """).declarations[-1]
    cases = parser.states["start"].transition.cases
    assert cases[0].target is parser.states["more"] and cases[1].target is None
    assert isinstance(cases[0].keys[0].decl, ast.ValueSetDecl) and cases[0].keys[1].lo.type == BitType(16)
    assert len(cases[2].keys) == 2
    extract, verify, ahead, flexible, *_ = parser.states["more"].statements
    assert (extract.call.kind, extract.call.method, extract.call.args[0].kind) == ("packet_in", "extract", "next")
    assert verify.call.kind == "extern_function" and ahead.init.type == BitType(16)
    assert flexible.call.args[1].type == BitType(32)


def test_initialisers_take_the_type_of_their_context(statements):
    header, stack, invalid, whole = statements(
        "hdr.h = {1, 2, 3, true}; hdr.st = {hdr.h, ...}; hdr.h = {#}; hdr.p = {y = hdr.h.b, ...};"
    )
    assert [v.const for v in header.value.values] == [1, 2, 3, True] and isinstance(header.value.type, types.HeaderType)
    assert len(stack.value.values) == 4 and isinstance(stack.value.values[3], ast.InvalidHeader)
    assert isinstance(invalid.value.type, types.HeaderType)
    assert whole.value.values[0].const == 0 and ast.source_text(whole.value.values[1]) == "hdr.h.b"


def test_loops(statements):
    counted, ranged, stacked, listed = statements("""
        for (bit<8> n = 0; n < 4; n += 1) { if (n == i) break; else continue; }
        for (bit<8> n in 1 .. i) { o = (bit<16>) n; }
        for (h_t h in hdr.st) { o = h.b; }
        for (bit<16> n in {1, 2, 3}) { o = n; }
    """)
    assert counted.update[0].op == "+" and ranged.collection.lo.type == BitType(8)
    assert isinstance(stacked.target.type, types.HeaderType) and listed.collection.values[2].type == BitType(16)


def test_abstract_methods(run):
    program = run("""
        extern Cell<T> {
            Cell();
            T run();
            abstract void apply(inout T x, @optional out bool flag);
            @optional abstract void overflow(inout T x);
        }
        control c(inout bit<8> v) {
            Cell<bit<8>>() cell = { void apply(inout bit<8> x) { x = x + 1; } };
            apply { v = cell.run(); }
        }
    """)
    body = program.declarations[-1].locals[0].body[0]
    assert body.name == "apply" and body.params[0].type == BitType(8)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("void other() {}", "Cell has no abstract method 'other'"),
        ("void apply(in bit<8> x) {}", "'apply' differs from the abstract method: void apply(inout bit<8> x)"),
        ("", "Cell has abstract methods without a body here: apply"),
    ],
)
def test_wrong_abstract_methods(run, body, message):
    with pytest.raises(CompileError) as caught:
        run(f"extern Cell {{ Cell(); abstract void apply(inout bit<8> x); }} Cell() cell = {{ {body} }};")
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("body", "column", "message"),
    [
        ("o = i;", 5, "value assigned to 'o' must be bit<16>, not bit<8>"),
        ("o = hdr.h.a + hdr.h.b;", 5, "operands of '+' differ in type: bit<8> and bit<16>"),
        ("o = hdr.h.x;", 11, "'hdr.h' of type h_t has no field 'x'"),
        ("o = hrd.h.b;", 5, "name 'hrd' is not declared"),
        ("i = 3;", 1, "'i' is an 'in' parameter: it cannot be assigned to"),
        ("plus(1, 2) = 3;", 1, "'plus(8w1, 8w2)' is no variable: it cannot be assigned to"),
        ("if (i) { }", 5, "a condition must be bool, not bit<8>"),
        ("bit<8> x; bit<8> x;", 18, "'x' is already declared in this scope"),
        ("plus();", 1, "'plus' takes 2 arguments, 0 given: no argument for 'x'"),
        ("plus(1, 2, 3);", 12, "'plus' takes 2 arguments, 3 given"),
        ("plus(z = 1);", 6, "'plus' has no parameter 'z'"),
        ("plus(x = 1, 2);", 6, "'plus' has both named and positional arguments: name all or none"),
        ("plus(hdr.h.b);", 6, "argument for parameter 'x' must be bit<8>, not bit<16>"),
        ("twist(1, i);", 1, None),
        ("o = twist(1, hdr.h.a);", 14, "argument for parameter 'fixed' must be known at compile time"),
        ("box.put(1, 2);", 12, "'2' is no variable: it cannot be passed to out parameter 'u'"),
        ("box.take(1);", 5, "'box' of type Box<bit<8>> has no member 'take'"),
        ("box.get();", 1, "'get' takes 1 argument, 0 given: no argument for 'i'"),
        ("hdr.p.setValid();", 7, "'hdr.p' of type pair_t has no field 'setValid'"),
        ("hdr.st[4].setValid();", 8, "index 4 is outside of h_t[4]: 0..3"),
        ("o = hdr.h.b[16:9];", 5, "slice [16:9] reaches outside of bit<16>: its highest bit is 15"),
        ("o[7:0] = hdr.h.b;", 10, "value assigned to 'o[7:0]' must be bit<8>, not bit<16>"),
        ("o = hdr.h.b / 0;", 15, "division by zero"),
        ("hdr.h.s = hdr.h.s / 2;", 11, "operands of '/' are not defined for signed operands: int<8> and int<8>"),
        ("hdr.h.f = hdr.h.f && i;", 22, "'&&' needs bools, not bit<8>"),
        ("hdr.h.s = (int<8>) hdr.h.b;", 11, "cannot cast bit<16> to int<8>"),
        ("o = (bit<16>) hdr.h;", 5, "cannot cast h_t to bit<16>"),
        ("o = 1 ++ 8w2;", 5, "'++' needs operands with a width: write the literal as in 8w1"),
        ("hdr.p = {1};", 9, "1 value for pair_t, which has 2"),
        ("hdr.p = {x = 1, z = 2};", 21, "pair_t has no field 'z'"),
        ("hdr.p = {x = 1};", 9, "no value for y of pair_t"),
        ("int x = 3;", 1, "variable 'x' cannot have type int"),
        ("bit<0x20000> x;", 5, "width of bit<131072> is not in 0..65536"),
        ("Colour x = Colour.blue;", 19, "Colour has no member 'blue'"),
        ("return 3;", 8, "nothing can be returned here"),
        ("break;", 1, "'break' outside of a loop"),
        ("verify(true, error.Mine);", 1, "verify() can only be called in parsers"),
        ("o = hdr.st.next.b;", 12, "'next' of a header stack only exists in parsers"),
        ("switch (i) { 1: {} 1: {} }", 20, "this case appears twice"),
        ("switch (t.apply().action_run) { nun: {} }", 33, "table 't' has no action 'nun'"),
        ("t();", 1, "'t' of type table t cannot be called"),
        ("o = t;", 5, "expected a value, found table t"),
        ("plus = 3;", 1, "expected a variable, found function 'plus'"),
        ('static_assert(1 == 2, "no");', 1, "static assertion failed: no"),
        (
            "Box<bit<8>>(3) late;",
            16,
            "an instance cannot be made here: declare 'late' before the apply block or the states",
        ),
        ("none(1);", 6, "'none' takes 0 arguments, 1 given"),
        ("ident({i, 3});", 11, "this integer has no width here: write it as in 8w1"),
        ("ident();", 1, "'ident' takes 1 argument, 0 given: no argument for 'x'"),
    ],
)
def test_wrong_statements(statements, body, column, message):
    locals_ = "action none() {} table t { actions = { none; } default_action = none; } Box<bit<8>>(4) box;\n"
    with pytest.raises(CompileError) as caught:
        statements("\n" + body + "\n", locals_)
    if message is not None:
        assert caught.value.message == message
        assert caught.value.span[1:3] == (3, column)
    assert len(caught.value.diagnostics) == 1, str(caught.value)


def entry(keys: str, keyset: str) -> str:
    table = f"table t {{ key = {{ {keys} }} actions = {{ NoAction; }} const entries = {{ {keyset}: NoAction; }} }}"
    return f"control c(in bit<8> x) {{ {table} apply {{}} }}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("struct s { bit<8> a; bit<8> a; }", "struct s has field 'a' twice"),
        ("header h { Colour c; }", "a header cannot have a field of type Colour"),
        ("header_union u { bit<8> a; }", "a header_union can only have headers, not bit<8>"),
        ("struct s { Colr c; }", "type 'Colr' is not declared"),
        ("const bit<8> a = twist(1, 2);", "the value of constant 'a' is not known at compile time"),
        ("enum bit<4> e { a = 16 }", "16 does not fit into bit<4>"),
        ("enum bit<4> e { a }", "'a' needs a value: a = ..."),
        ("enum e { a, a }", "enum e has 'a' twice"),
        ("type pair_t other;", "'type' makes new types of bit<>, int<>, varbit<> and bool, not of pair_t"),
        ("const port_t x = 9w3;", "value of constant 'x' must be port_t, not bit<9>"),
        (
            "action a(bit<8> x, in bit<8> y) {}",
            "parameter 'y' must stand before the directionless ones, which tables fill in",
        ),
        ("bit<8> f() { }", "function 'f' can end without returning a bit<8>"),
        ("bit<8> f() { return; }", "this function must return a bit<8>"),
        ("parser p(packet_in b) { state begin { } }", "parser 'p' has no state 'start'"),
        ("parser p(packet_in b) { state start { transition nxt; } state next { } }", "parser 'p' has no state 'nxt'"),
        ("parser p(packet_in b) { state start { } state start { } }", "state 'start' is already declared"),
        (
            "parser p(packet_in b, out bit<8> x) { state start { b.extract(x); transition accept; } }",
            "only a header can be extracted, not bit<8>",
        ),
        (
            "parser p(packet_in b, out v_t v) { state start { b.extract(v); transition accept; } }",
            "header v_t has varbit field 'v': extract needs a second argument: that field's size in bits",
        ),
        (
            "parser p(packet_in b, in bit<8> x) { state start { transition select(x) { (1, 2): accept; } } }",
            "2 values for a key of type bit<8>",
        ),
        (
            "parser p(packet_in b, in bit<8> x) { state start { transition select(x, x) { 1: accept; } } }",
            "1 value in this case, but select has 2 keys",
        ),
        (
            "parser p(packet_in b, in bit<8> x) { state start { transition select(x) { 16w1: accept; } } }",
            "'16w1' must be bit<8>, not bit<16>",
        ),
        (
            "control c(in bit<8> x) { table t { key = { x: exakt; } actions = {} } apply {} }",
            "match kind 'exakt' is not declared",
        ),
        (
            "control c(in bit<8> x) { table t { key = { x: exact; } actions = { nope; } } apply {} }",
            "action 'nope' is not declared",
        ),
        (
            "control c(in bit<8> x) { action a() {} table t { actions = { a; } default_action = NoAction; } apply {} }",
            "action 'NoAction' is not among the actions of table 't'",
        ),
        (
            "control c() { action a(bit<8> p) {} table t { actions = { a; } default_action = a; } apply {} }",
            "'a' takes 1 argument, 0 given: no argument for 'p'",
        ),
        (
            entry("x: exact;", "1 &&& 3"),
            "a mask does not fit a key matched by exact",
        ),
        (
            entry("x: lpm;", "1 &&& 5"),
            "the mask of an lpm key must be a prefix: ones, then zeros",
        ),
        (
            entry("x: exact; x: lpm;", "1"),
            "1 value in this entry, but table 't' has 2 keys",
        ),
        (
            'control c() { @name("x") action a() {} @name("x") action b(bit<8> p) {} apply { a(); b(1); } } '
            "control ct(); package P(ct a); P(c()) main;",
            "control-plane name 'c.x' is used twice",
        ),
        ("control c(inout bit<8> x) { apply {} } control ct(in bit<8> x); package P(ct a); P(c()) main;", None),
        (
            "control ct(in bit<8> x); package P(ct a); P(ct()) main;",
            "ct cannot be instantiated: it is only a type, without a body",
        ),
        ("control c() { apply {} } c() x;", "c cannot be instantiated at the top level"),
        ("Box(3) b;", "cannot infer type parameter T of 'Box'"),
        ("Box<bit<8>, bool>(3) b;", "extern Box takes 1 type argument, not 2"),
        ("packet_in() p;", "extern packet_in has no constructor"),
        ("bit<8> main() { return 1; } Box<bit<8>>(2) main;", "'main' is already declared in this scope"),
    ],
)
def test_wrong_declarations(run, text, message):
    with pytest.raises(CompileError) as caught:
        run(text)
    if message is None:
        assert "parameter 'x' of c is inout, ct wants in" in caught.value.message
    else:
        assert caught.value.message.startswith(message)
    assert caught.value.span.file == "body.p4"
    assert len(caught.value.diagnostics) == 1, str(caught.value)


MUTATED = """
control c(inout hdr_t hdr, in bit<8> i, out bit<16> o)(bit<32> n) {
    Box<bit<8>>(n + 1) box;
    bit<8> x = (bit<8>) i[3:0] + 3;
    action set(in bit<8> v, bit<16> p) { o = p << v; hdr.st[1] = hdr.h; }
    table t {
        key = { hdr.h.a: exact; hdr.h.b: ternary; x[3:0]: lpm @name("low"); }
        actions = { set(x); NoAction; }
        const entries = { (1, 2 &&& 3, 5): set(x, 4); (Code.two, _, _): NoAction(); }
        size = 16;
    }
    apply {
        if (hdr.h.isValid() && hdr.h.f) { t.apply(); } else { exit; }
        switch (t.apply().action_run) { set: { o = 1; } default: {} }
        for (bit<8> k in 1 .. i) { x = plus(x = x, y = k); box.put(x); hdr.st.push_front(1); }
        hdr.p = { y = first(o, x), x = twist(x, 8w3) };
        hdr.h = { 1, hdr.p.y ++ 0w0, -8s4, o == (o |+| 1) };
        return;
    }
}
"""
TOKENS = tokenize(MUTATED, "m.p4").texts[:-1]
PLACES = st.integers(0, len(TOKENS) - 1)


def test_the_program_to_be_mutated_is_right(run):
    assert run(" ".join(TOKENS)).warnings == []


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(PLACES, st.one_of(PLACES.map(TOKENS.__getitem__), st.just(""))), min_size=1, max_size=3))
def test_no_program_makes_the_checker_crash(run, changes):
    tokens = list(TOKENS)
    for place, token in changes:
        tokens[place] = token
    try:
        run(" ".join(tokens))
    except CompileError as error:
        assert all(d.message and d.span.line for d in error.diagnostics)
        assert str(error).startswith(error.span.file)


def test_no_more_errors_than_can_be_read(run):
    with pytest.raises(CompileError) as caught:
        run("".join(f"const bit<8> a{i} = missing{i};\n" for i in range(100)))
    assert len(caught.value.diagnostics) == 20


def test_what_follows_a_function_with_an_error_is_checked_as_if_it_had_none(run):
    with pytest.raises(CompileError) as refused:
        run("bit<8> f() { } Box<bit<8>>(4) box;")
    assert [d.message for d in refused.value.diagnostics] == ["function 'f' can end without returning a bit<8>"]
