"""Parsers and controls with a body and type parameters: each list of type arguments gets a copy of its own."""

from __future__ import annotations

import re

import pytest
from random_programs.generate import Generator
from random_programs.render import text
from shadow import Shadowed
from v1_program import check, data, result, source

from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.generate import generate
from ina.p4.compiler.reference.interpreter import Interpreter

# `Take` is a parser, `Change` a control with an action, a table and a constructor parameter, `Twice` has two of those.
BLOCKS = """
header more_t { bit<16> x; bit<8> y; }
parser Take<H>(packet_in p, out H h) { state start { p.extract(h); transition accept; } }
control Change<T, K>(inout T v, in K key)(int by) {
    action add(K n) { v = v + (T)n + by; }
    table t { key = { key: exact; } actions = { add; NoAction; } const entries = { 1: add(3); } default_action = add(0); }
    apply { t.apply(); }
}
control Twice<T>(inout T v, in bit<8> key) {
    Change<T, bit<8>>(100) first; Change<T, bit<4>>(7) second;
    apply { first.apply(v, key); second.apply(v, key[3:0]); }
}
control Nothing<H, M>(inout H hdr, inout M meta) { apply { } }
"""
PROGRAM = source(
    """twice.apply(hdr.data.b, hdr.data.e); Change_of_c.apply(hdr.data.c, hdr.data.e);
    Nothing<data_t, metadata_t>.apply(hdr.data, meta);""",
    types=BLOCKS, headers="more_t more;",
    parser_locals="Take<data_t>() first; Take<more_t>() second;",
    parser="state start { first.apply(p, hdr.data); second.apply(p, hdr.more); transition accept; }",
    ingress_locals="Twice<bit<32>>() twice; Change<bit<16>, bit<8>>(1) Change_of_c;",
).replace("V1Switch(P(), V(), I(), E(), C(), D())", "V1Switch(P(), Nothing<headers_t, metadata_t>(), I(), E(), C(), D())")
INFERRED = (
    ("Twice<bit<32>>() twice; Change<bit<16>, bit<8>>(1) Change_of_c;", "Twice() twice; Change<_, bit<8>>(1) Change_of_c;"),
    ("Take<data_t>() first; Take<more_t>() second;", "Take() first; Take() second;"),
    ("Nothing<data_t, metadata_t>.apply", "Nothing<_, _>.apply"),
    ("Nothing<headers_t, metadata_t>()", "Nothing()"),
    ("Change<T, bit<8>>(100) first; Change<T, bit<4>>(7) second;", "Change(100) first; Change(7) second;"),
)
FRAMES = [data(b=b, c=0xFFFF, e=e) + b"\1\2\3" for e in (0, 1, 17) for b in (0, 0xFFFFFFFF)]


@pytest.mark.build
def test_copies_compile_and_do_what_the_interpreter_does(tmp_path):
    (tmp_path / "program.p4").write_text(PROGRAM)
    switch = Shadowed(tmp_path / "program.p4", cflags=["-O1"])
    for frame in FRAMES:
        switch.process(frame)
    assert sorted(switch.tables.keys()) == ["I.Change_of_c.t", "I.twice.first.t", "I.twice.second.t"]


@pytest.mark.fast
def test_inferred_arguments_are_those_that_could_be_written(tmp_path):
    """Each by itself and all at once: the C text is that of the program with the arguments."""
    written = generate(check(tmp_path, PROGRAM))
    shorter = PROGRAM
    for arguments, none in INFERRED:
        assert generate(check(tmp_path, PROGRAM.replace(arguments, none))) == written, none
        shorter = shorter.replace(arguments, none)
    assert generate(check(tmp_path, shorter)) == written
    assert result(Interpreter(check(tmp_path, shorter)), FRAMES[0]) == result(Interpreter(check(tmp_path, PROGRAM)), FRAMES[0])


@pytest.mark.fast
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["control", "parser"])
def test_random_programs_with_generic_blocks_are_those_without(tmp_path, kind, seed):
    """All controls, or the parser, take any headers and metadata, and the package says which."""
    program = text(Generator(seed).program())

    def any_types(block: re.Match) -> str:
        params = re.sub(r"\bheaders_t\b", "H", re.sub(r"\bmetadata_t\b", "M", block[2]))
        return f"{kind} {block[1]}<{'H, M' if 'M ' in params else 'H'}>({params}) {{"

    generic, count = re.subn(rf"^{kind} (\w)\((.*?)\) {{", any_types, program, flags=re.MULTILINE)
    assert count == {"control": 5, "parser": 1}[kind]
    (c_text, *rest), (twin, *twin_rest) = (generate(check(tmp_path, p)) for p in (generic, program))
    assert re.sub(r"/\*.*?\*/", "", c_text, flags=re.DOTALL) == re.sub(r"/\*.*?\*/", "", twin, flags=re.DOTALL)
    assert rest == twin_rest


OBJECTS = BLOCKS + """
control one<A>(inout A a); control octet(inout bit<8> a); control none();
control Add<T>(inout T v)(T by) { apply { v = v + by; } }
control Empty<T>() { apply { } }
control Around<T>(inout T v)(one<T> inner) { apply { inner.apply(v); } }
control Octet(inout bit<8> v)(octet inner, none other) { apply { inner.apply(v); other.apply(); } }
"""


@pytest.mark.fast
@pytest.mark.parametrize(("locals_", "ingress", "twin"), [
    ("Around(Add(1)) o;", "o.apply(hdr.data.e);", "Around<bit<8>>(Add<bit<8>>(1)) o;"),
    ("Around(Add(8w1)) o;", "o.apply(hdr.data.e);", "Around<bit<8>>(Add<bit<8>>(1)) o;"),
    ("Around(Around<_>(Add<_>(1))) o;", "o.apply(hdr.data.e);", "Around<bit<8>>(Around<bit<8>>(Add<bit<8>>(1))) o;"),
    ("Octet(Add(1), Empty<_>()) o;", "o.apply(hdr.data.e);", "Octet(Add<bit<8>>(1), Empty<bool>()) o;"),
    ("Octet(inner = Add(1), other = Empty<_>()) o;", "o.apply(hdr.data.e);", "Octet(Add<bit<8>>(1), Empty<bool>()) o;"),
    ("Add(1) i; Around(i) o;", "i.apply(hdr.data.e); o.apply(hdr.data.e);", "Add<bit<8>>(1) i; Around<bit<8>>(i) o;"),
    ("Add(1) i; Around(i) o;", "o.apply(hdr.data.e); i.apply(hdr.data.e);", "Add<bit<8>>(1) i; Around<bit<8>>(i) o;"),
])
def test_what_one_object_determines_holds_for_its_arguments(tmp_path, locals_, ingress, twin):
    inferred, written = (check(tmp_path, source(ingress, types=OBJECTS, ingress_locals=objects)) for objects in (locals_, twin))
    assert generate(inferred)[0].replace(locals_, twin) == generate(written)[0]
    assert result(Interpreter(inferred), data(e=7)) == result(Interpreter(written), data(e=7))


@pytest.mark.fast
@pytest.mark.parametrize("package", [
    "package S<H>(V<H> a, V<H> b = Skip<H>()); S(Given()) main;",
    "package S<H>(V<H> a, V<H> b = Skip()); S(Given()) main;",
    "package S<H>(V<H> b = Skip<H>(), V<H> a); S(a = Given()) main;",
    "package S<H>(V<H> b = Skip<H>()); S<E>() main;",
    "package S<H, G>(V<G> a, V<H> b = Skip<G>()); S(Given()) main;",
    "package S(V<E> b = Skip()); S() main;", "package S<H>(V<H> b); S<E>(Skip()) main;",
    "package S(concrete b); S(Skip()) main;",
    "package I(concrete b); package S(I i); S(I(Skip())) main;",
])
def test_packages_determine_the_types_of_their_blocks(tmp_path, package):
    program = check(tmp_path, f"""
        control V<H>(inout H h); struct E {{ bit<8> x; }} control concrete(inout E h);
        control Skip<H>(inout H h) {{ H kept; apply {{ kept = h; }} }}
        control Given(inout E h) {{ apply {{ }} }} {package}""")
    main = program.main.args.get("i", program.main)
    assert [str(p.type) for p in main.args["b"].type.params] == ["E"]
    assert main.args["b"].decl in program.declarations and not main.args["b"].decl.type_params


@pytest.mark.fast
@pytest.mark.parametrize(("program", "message"), [
    ("package S<H>(V<H> b = Skip<H>()); S() main;", "cannot infer type parameter H of 'S', which the default value"),
    ("package S<H>(V<H> b); S(Skip()) main;", "cannot infer type parameter H of 'Skip'"),
    ("package I(none n); package S(I i); S(I(Empty())) main;", "cannot infer type parameter H of 'Empty'"),
    ("package S(V<_> b); S(Skip()) main;", "cannot infer type parameter H of 'Skip'"),
    ("package S(concrete b); S(Empty<_>()) main;", "Empty<H> has 0 parameters, concrete has 1"),
    ("package S<H>(V<H> b, V<H> c); S(Given(), Other()) main;", "must be V<E>, not Other"),
    ("control C(inout E h) { Skip() s; E g; bit<8> x; apply { s.apply(h); s.apply(x); } }", "must be E, not bit<8>"),
    ("control C(inout E h) { apply { Skip.apply(h, h); } }", "'apply' takes 1 argument, 2 given"),
    ("control Pair<T>(inout T a, inout tuple<T> b) { apply { } }\n"
     "control C(inout E h) { tuple<tuple<bit<8>>> t; apply { Pair.apply(t, t); } }", "must be tuple"),
])
def test_errors_of_inference(tmp_path, program, message):
    with pytest.raises(CompileError, match=message):
        check(tmp_path, f"""
            control V<H>(inout H h); struct E {{ bit<8> x; }} control concrete(inout E h); control none();
            control Skip<H>(inout H h) {{ apply {{ }} }} control Empty<H>() {{ apply {{ }} }}
            control Given(inout E h) {{ apply {{ }} }} control Other(inout bit<8> h) {{ apply {{ }} }} {program}""")


@pytest.mark.fast
def test_each_copy_has_its_own_types_and_objects(tmp_path):
    """Keys 1 and 17 are the same four bits."""
    program = check(tmp_path, PROGRAM)
    assert not any(getattr(d, "type_params", ()) for d in program.declarations if getattr(d, "name", "") in ("Change", "Twice"))
    interpreter = Interpreter(program)
    changes = {0: (107, 1), 1: (113, 4), 17: (110, 1)}
    for frame in FRAMES:
        b, e = int.from_bytes(frame[4:8], "big"), frame[11]
        to_b, to_c = changes[e]
        assert result(interpreter, frame) == data(b=(b + to_b) % 2**32, c=(0xFFFF + to_c) % 2**16, e=e) + b"\1\2\3"


@pytest.mark.fast
@pytest.mark.parametrize(("locals_", "message"), [
    ("Twice() twice;", "cannot infer type parameter T of 'Twice'"),
    ("Twice<_>() twice; Local<_>() local;", "variable 'x' cannot have type _"),
    ("Two() two; Outer(two) outer;", "cannot infer type parameter T of 'Two'"),
    ("Twice<bit<8>, bit<8>>() twice;", "takes 1 type argument, not 2"),
    ("Wrong<bit<8>>() wrong;", "operands of .* bit<8> and bool"),
])
def test_errors(tmp_path, locals_, message):
    types = BLOCKS + """
        control Wrong<T>(inout T v) { apply { v = v + true; } }
        control Local<T>() { T x; apply { } }
        control one<A>(inout A a); control Two<T>(inout T v) { apply { } } control Outer<T>(inout T v)(one<T> a) { apply { } }"""
    with pytest.raises(CompileError, match=message):
        check(tmp_path, source(types=types, ingress_locals=locals_))
    with pytest.raises(CompileError, match="parameter 'T' is a type parameter, too"):
        check(tmp_path, source(types="control Same<T>(inout bit<8> T) { apply { } }"))
    check(tmp_path, source(types=types))  # some types might add true, and what is never used is not checked for any


UNUSED = """
#include <core.p4>
extern Store<T> {{ Store(bit<32> size); T get(in bit<32> at); void set<U>(in bit<32> at, in T value, in U other); }}
extern void call<T>(in T a, in bit<8> b);
struct pair<T> {{ T first; bit<8> second; }}
header head {{ bit<8> x; }}
control other<T>(inout T v) {{ apply {{ }} }}
action act(bit<8> x) {{ }}
{}
"""


@pytest.mark.fast
@pytest.mark.parametrize(("program", "message"), [
    ("control C<T>(inout T v) { apply { v = w; } }", "name 'w' is not declared"),
    ("control C<T>(inout T v) { apply { v = v + (T)w; } }", "name 'w' is not declared"),
    ("control C<T>(inout T v) { apply { v.x = v.y + w; } }", "name 'w' is not declared"),
    ("control C<T>(inout T v) { apply { if (v == 1) { w = 1; } } }", "name 'w' is not declared"),
    ("control C<T>(inout T v) { apply { if (v.x && v.y) { v.f(w); } } }", None),  # of methods that may be
    ("control C<T>(inout T v) { X x; apply { } }", "type 'X' is not declared"),
    ("control C<T>(inout pair<X> v) { apply { } }", "type 'X' is not declared"),
    ("control C<T>(inout T v) { Store<T>() s; apply { } }", "'Store' takes 1 argument, 0 given"),
    ("control C<T>(inout T v) { Store<T, T>(1) s; apply { } }", "takes 1 type argument, not 2"),
    ("control C<T>(inout T v) { Store<T>(1) s; apply { v = s.get(); } }", "'s.get' takes 1 argument, 0 given|'get' takes 1"),
    ("control C<T>(inout T v) { Store<T>(1) s; apply { v = s.fetch(1); } }", "has no member 'fetch'"),
    ("control C<T>(inout T v) { apply { call(v); } }", "'call' takes 2 arguments, 1 given"),
    ("control C<T>(inout T v) { apply { bit<8> x = true; } }", "must be bit<8>, not bool"),
    ("control C<T>(inout T v) { apply { bit<8> x = v; x = 16w1; } }", "must be bit<8>, not bit<16>"),
    ("control C<T>(inout T v) { apply { call(v, 1 + true); } }", "operands of .* int and bool"),
    ("control C<T>(inout T v) { bit<8> x; bool x; apply { } }", "'x' is already declared"),
    ("control C<T>(inout pair<T> v) { apply { v.third = 1; } }", "has no field 'third'"),
    ("control C<T>(inout pair<T> v) { apply { v.second = true; } }", None),  # it has to do with T
    ("control C<T>(inout T v) { table t { actions = { act; none; } } apply { t.apply(); } }", "action 'none' is not declared"),
    ("control C<T>(inout T v) { table t { key = { v: wrong; } actions = { act; } } apply { } }", "match kind 'wrong'"),
    ("control C<T>(inout T v) { table t { key = { v: exact; } actions = { act; } const entries = { 1: act(1, 2); } } apply { } }",
     "'act' takes 1 argument, 2 given"),
    ("control C<T>(in T v) { apply { v = 1; } }", "'v' is an 'in' parameter: it cannot be assigned to"),
    ("control C<T>(inout T v) { apply { v = v + T; } }", "expected a value, found type T"),
    ("control C<T>(inout T v) { apply { break; } }", "'break' outside of a loop"),
    ("control C<T>(inout T v) { C<T>() c; apply { } }", "'C' cannot contain itself"),
    ("control C<T>(inout T v) { C<tuple<T>>() c; apply { } }", "'C' cannot contain itself"),
    ("control C<T>(inout T v) { apply { C.apply(v); } }", "'C' cannot contain itself"),
    ("control C<T>(inout T v) { later<T>() c; apply { } } control later<T>(inout T v) { apply { } }", "'later' is not declared"),
    ("control C<T>(inout T v) { other<T>() c; apply { c.apply(v, v); } }", "'apply' takes 1 argument, 2 given"),
    ("parser C<T>(packet_in p, out T v) { state begin { transition accept; } }", "no state 'start'"),
    ("parser C<T>(packet_in p, out T v) { state start { p.extract(v); transition next; } }", "no state 'next'"),
    ("parser C<T>(packet_in p, out T v) { state start { p.extract(v); transition select(v) { 1: next; } } }", "no state 'next'"),
    ("parser C<T>(packet_in p, out T v) { state start { transition start; } }", "never reaches accept"),
    ("parser C<T>(packet_in p, out T v) { state start { p.pull(v); transition accept; } }", "has no member 'pull'"),
    ("T f<T>(in T v) { }", "can end without returning"), ("T f<T>(in T v) { return w; }", "name 'w' is not declared"),
    ("T f<T>(in T v) { return f(v); }", "name 'f' is not declared"),
    ("void f<T>(in T v) { return 1; }", "nothing can be returned"),
])
def test_errors_of_what_is_never_used(tmp_path, program, message):
    """Errors that all type arguments have are told where they stand; what some might make right is none."""
    if message is None:
        check(tmp_path, UNUSED.format(program))
        return
    with pytest.raises(CompileError, match=message) as caught:
        check(tmp_path, UNUSED.format(program))
    assert len(caught.value.diagnostics) == 1


@pytest.mark.fast
@pytest.mark.parametrize("program", [
    "control C<T>(inout T v) { apply { v = v + 1; v = (T)(bit<8>)v; v[3:0] = 1; if (v > 3 || v.isValid()) { v.x = v[2].z; } } }",
    """control C<T>(inout T v) { T w; bit<8> x = w; bit<(T.minSizeInBits())> y = 0;
     apply { w = v; y = y + 1; switch (v) { 1: { } } } }""",
    """control C<T, K>(inout T v, in K k) {
        action set(T t, K n) { v = t; }
        table t { key = { v: exact; k: lpm; k.x: ternary; } actions = { set; NoAction; }
                  const entries = { (1, 2 &&& 3, 1 &&& 2): set(1, 2); } default_action = set(0, 0); }
        apply { if (t.apply().hit) { v = k; } switch (t.apply().action_run) { set: { k.f(1); } default: { } } } }""",
    """parser C<T>(packet_in p, out T v, inout pair<T> q) {
        value_set<T>(4) set; T[3] s; head h;
        state start { p.extract(v); p.extract(s.next); h = p.lookahead<head>(); p.advance(v.length); bit<32> n = 2 * v.length;
                      transition select(v, n, h.x) { (1, 2..3, 4 &&& 5): more; (set, _, _): more; default: accept; } }
        state more { q = { v, 1 }; q.first = v; verify(v.x == 1, error.NoMatch); transition start; } }""",
    "T f<T>(in T v, in pair<T> p) { for (T i in v .. p.first) { if (i == p.second) { return i + 1; } } return -v; }",
    "bit<8> f<T>(in T v) { return v; } control C<T>(in T v) { apply { bit<8> x = f(v) + f(8w1); } }",
    """control C<T>(inout T v)(Store<T> s) { Store<pair<T>>(4) t;
     apply { v = s.get(t.get(0).second ++ 24w0); t.set(0, {v, 1}, v); } }""",
    """control C<T>(inout T v) { other<pair<T>>() a; other<bit<8>>() b; other() c;
     apply { a.apply({v, 1}); c.apply(v); other.apply(v); } }""",
])
def test_what_some_type_arguments_make_right_is_no_error(tmp_path, program):
    assert len(check(tmp_path, UNUSED.format(program)).declarations) == len(check(tmp_path, UNUSED.format("")).declarations)
