"""Parsers and controls with a body and type parameters: each list of type arguments gets a copy of its own."""

from __future__ import annotations

import pytest
from shadow import Shadowed
from v1_program import check, data, result, source

from ina.p4.compiler.errors import CompileError
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
FRAMES = [data(b=b, c=0xFFFF, e=e) + b"\1\2\3" for e in (0, 1, 17) for b in (0, 0xFFFFFFFF)]


@pytest.mark.build
def test_copies_compile_and_do_what_the_interpreter_does(tmp_path):
    (tmp_path / "program.p4").write_text(PROGRAM)
    switch = Shadowed(tmp_path / "program.p4", cflags=["-O1"])
    for frame in FRAMES:
        switch.process(frame)
    assert sorted(switch.tables.keys()) == ["I.Change_of_c.t", "I.twice.first.t", "I.twice.second.t"]


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
    ("Twice<bit<8>, bit<8>>() twice;", "takes 1 type argument, not 2"),
    ("Wrong<bit<8>>() wrong;", "operands of .* bit<8> and bool"),
    ("Endless<bit<8>>() endless;", "'Endless' cannot contain itself"),
    ("Growing<bit<8>>() growing;", "'Growing' cannot contain itself"),
])
def test_errors(tmp_path, locals_, message):
    types = BLOCKS + """
        control Wrong<T>(inout T v) { apply { v = v + true; } }
        control Endless<T>(inout T v) { Endless<T>() inner; apply { inner.apply(v); } }
        control Growing<T>(inout T v) { Growing<tuple<T>>() inner; apply { } }"""
    with pytest.raises(CompileError, match=message):
        check(tmp_path, source(types=types, ingress_locals=locals_))
    with pytest.raises(CompileError, match="parameter 'T' is a type parameter, too"):
        check(tmp_path, source(types="control Same<T>(inout bit<8> T) { apply { } }"))
    check(tmp_path, source(types=types))  # what is never used is never checked, as with functions
