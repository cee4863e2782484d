"""Programs that once crashed the compiler: each compiles, or is refused with its place; the compiler's own defects are reported
as such."""

from __future__ import annotations

import pytest
from shadow import Shadowed
from v1_program import data, source

from ina.p4.compiler.build import compile_program
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.frontend import load, parse_text
from ina.p4.compiler.generate import generate
from ina.p4.compiler.lower.statements import Statements
from ina.p4.compiler.p4info import files as p4info_files
from ina.p4.compiler.reference.interpreter import Interpreter

BLOCKS = source().partition("V1Switch(")[0]
MAIN = "V1Switch(P(), V(), I(), E(), C(), D()) main;"
TABLE = "table t { key = { hdr.data.d: exact; } actions = { NoAction; } }"


def program(tmp_path, text: str):
    path = tmp_path / "program.p4"
    path.write_text(text)
    return path


OWN_PACKAGES = {
    "a Switch of its own": (
        "#include <core.p4>\ncontrol c(inout bit<8> x); package Switch(c a); control C(inout bit<8> x) { apply {} }"
        " Switch(C()) main;", "this package 'Switch' is not TNA's"),
    "a Switch with parsers": (
        "#include <core.p4>\nparser p<H>(packet_in b, out H h); control c<H>(inout H h); package Pipeline<H>(p<H> a, c<H> b);"
        " package Switch<H>(Pipeline<H> p); header h_t { bit<8> x; } parser P(packet_in b, out h_t h) { state start {"
        " transition accept; } } control C(inout h_t h) { apply {} } Pipeline(P(), C()) pipe; Switch(pipe) main;",
        "this package 'Switch' is not TNA's"),
    "a V1Switch of its own": (
        "control c(inout bit<8> x); package V1Switch(c a); control C(inout bit<8> x) { apply {} } V1Switch(C()) main;",
        "this package 'V1Switch' is not v1model's"),
    "PSA": (
        "control c(inout bit<8> x); package PSA_Switch(c a); control C(inout bit<8> x) { apply {} } PSA_Switch(C()) main;",
        "is for the Portable Switch Architecture"),
    "no package's name": ("", "the program has no 'main'"),
}


@pytest.mark.fast
@pytest.mark.parametrize("case", OWN_PACKAGES)
def test_packages_that_only_have_a_known_name(tmp_path, case):
    text, message = OWN_PACKAGES[case]
    checked = load(program(tmp_path, text))
    for use in (generate, Interpreter):
        with pytest.raises(CompileError, match=message):
            use(checked)


@pytest.mark.fast
def test_packages_beside_main_take_no_part(tmp_path):
    text = source(ingress="t.apply();", ingress_locals=TABLE).replace(MAIN, MAIN.replace("main", "other") + MAIN)
    checked = load(program(tmp_path, text))
    generate(checked)
    assert list(Interpreter(checked).tables) == ["I.t"]


@pytest.mark.fast
def test_properties_of_the_platform(tmp_path):
    """Equal to p4c's output for its pkginfo_annotation.p4."""
    notes = ('@pkginfo(name = "n", version = "v")\n@platform_property(multicast_group_table_size = 10,'
             " multicast_group_table_total_replicas = 20, multicast_group_table_max_replicas_per_entry = 30)\n")
    info = generate(load(program(tmp_path, BLOCKS + notes + MAIN)))[1]
    expected = """pkg_info {
  name: "n"
  version: "v"
  arch: "v1model"
  platform_properties {
    multicast_group_table_size: 10
    multicast_group_table_total_replicas: 20
    multicast_group_table_max_replicas_per_entry: 30
  }
}
"""
    assert expected in p4info_files.text(info)
    assert b"\x5a\x06\x08\x0a\x10\x14\x18\x1e" in p4info_files.binary(info)  # field 11: 6 bytes


@pytest.mark.fast
@pytest.mark.parametrize(
    ("note", "message"),
    [
        ("@pkginfo(version=IDENT)", "@pkginfo: 'version' takes a string, as in version = \"1.0\""),
        ("@pkginfo(name=5)", "@pkginfo: 'name' takes a string"),
        ('@pkginfo(nmae="x")', "@pkginfo has no 'nmae': expected name, version, arch"),
        ("@platform_property(multicast_group_table_size=X)", "takes an integer, as in multicast_group_table_size = 64"),
    ],
)
def test_properties_of_another_type(tmp_path, note, message):
    with pytest.raises(CompileError) as error:
        generate(load(program(tmp_path, BLOCKS + note + MAIN)))
    assert message in error.value.message and error.value.span.line


@pytest.mark.build
def test_a_key_without_bits(tmp_path):
    text = source(types="header z_t { bit<8> p; bit<0> q; }", headers="z_t z;", ingress="t.apply();",
                  ingress_locals="table t { key = { hdr.data.d: exact; hdr.z.q: exact; } actions = { NoAction; } }")
    with pytest.raises(CompileError, match="a key of type bit<0> tells nothing apart") as error:
        compile_program(program(tmp_path, text))
    assert error.value.span.line


PUT = """action put(out bit<8> r, bit<8> v) { r = v; }
table t { key = { hdr.data.d: exact; } actions = { put(hdr.data.e); NoAction; }
    %sentries = { 0: put(hdr.data.e, 7); 1: put(hdr.data.e, 9); } default_action = NoAction; }"""


@pytest.mark.build
@pytest.mark.parametrize("const", ["const ", ""])
def test_entries_of_an_action_with_an_out_parameter(tmp_path, const):
    switch = Shadowed(program(tmp_path, source("t.apply();", ingress_locals=PUT % const)), cflags=["-O1"])
    for d, e in ((0, 7), (1, 9), (2, 3)):
        assert switch.process(data(d=d, e=3)) == [(1, data(d=d, e=e))]


UNREAD = """random(_, 8w0, 8w7); hash<bit<8>, bit<8>, tuple<bit<8>>, bit<8>>(_, HashAlgorithm.crc32, 0, { hdr.data.d }, 7);
m.execute_meter<bit<2>>(0, _); r.read(_, 0); t.apply();"""
UNREAD_LOCALS = """meter(4, MeterType.packets) m; register<bit<8>>(4) r; direct_meter<bit<2>>(MeterType.packets) dm;
action read() { dm.read(_); hdr.data.e = 5; }
table t { key = { hdr.data.d: exact; } actions = { read; } default_action = read; meters = dm; }"""


@pytest.mark.build
def test_results_that_nobody_reads(tmp_path):
    switch = Shadowed(program(tmp_path, source(UNREAD, ingress_locals=UNREAD_LOCALS)), cflags=["-O1"])
    assert switch.process(data(d=1)) == [(1, data(d=1, e=5))]


@pytest.mark.fast
@pytest.mark.parametrize("call", [
    "hash<s_t, bit<8>, tuple<bit<8>>, bit<8>>(meta.s, HashAlgorithm.crc32, 0, { hdr.data.d }, 7);",
    "random<s_t>(meta.s, { 1 }, { 2 });", "m.execute_meter<s_t>(0, meta.s);",
])
def test_results_that_are_no_numbers(tmp_path, call):
    text = source(call, types="struct s_t { bit<8> x; }", metadata="s_t s;", ingress_locals="meter(4, MeterType.packets) m;")
    with pytest.raises(CompileError, match="a value of type s_t here is not supported") as error:
        generate(load(program(tmp_path, text)))
    assert error.value.span.line == text.splitlines().index(next(x for x in text.splitlines() if call in x)) + 1


@pytest.mark.build
@pytest.mark.parametrize("kind", ["exact", "ternary", "range", "optional", "lpm"])
def test_entries_for_errors_and_enumerations(tmp_path, kind):
    table = """action put(bit<8> v) { hdr.data.e = v; }
        table t { key = { meta.c: KIND; sm.parser_error: KIND; } actions = { put; NoAction; }
            const entries = { (color_t.RED, error.NoError): put(7); (color_t.BLUE, error.NoError): put(9); } }"""
    first, second = ("exact", kind) if kind == "lpm" else (kind, kind)
    table = table.replace("KIND", first, 1).replace("KIND", second)
    text = source("meta.c = hdr.data.d == 1 ? color_t.BLUE : hdr.data.d == 2 ? color_t.GREEN : color_t.RED; t.apply();",
                  types="enum color_t { RED, GREEN, BLUE }", metadata="color_t c;", ingress_locals=table)
    switch = Shadowed(program(tmp_path, text), cflags=["-O1"])
    for d, e in ((0, 7), (1, 9), (2, 3)):
        assert switch.process(data(d=d, e=3)) == [(1, data(d=d, e=e))]


@pytest.mark.build
def test_a_whole_value_is_longer_than_any(tmp_path):
    table = """action put(bit<8> v) { hdr.data.e = v; }
        table t { key = { sm.parser_error: lpm; } actions = { put; NoAction; }
            const entries = { _: put(7); error.NoError: put(9); } }"""
    switch = Shadowed(program(tmp_path, source("t.apply();", ingress_locals=table)), cflags=["-O1"])
    assert switch.process(data()) == [(1, data(e=9))]


@pytest.mark.fast
def test_a_priority_that_is_no_number(tmp_path):
    table = """table t { key = { hdr.data.d: ternary; } actions = { NoAction; }
        const entries = { 1: NoAction() @priority(FIRST); 2: NoAction() @priority(1); } }"""
    text = source("t.apply();", types="const bit<8> FIRST = 2;", ingress_locals=table)
    for use in (generate, Interpreter):
        with pytest.raises(CompileError, match="expected the number of a place, as in @priority") as error:
            use(load(program(tmp_path, text)))
        assert error.value.span.line


@pytest.mark.fast
@pytest.mark.parametrize(("size", "cells"), [("n", 16), ("2 * n", 32), ("4", 4)])
def test_objects_of_properties_take_constructor_parameters(tmp_path, size, cells):
    control = """control sub(inout data_t d)(bit<32> n) { action put(bit<8> v) { d.e = v; }
        table t { key = { d.d: exact; } actions = { put; NoAction; } implementation = action_profile(%s); }
        apply { t.apply(); } }"""
    checked = load(program(tmp_path, source("s.apply(hdr.data);", types=control % size, ingress_locals="sub(16) s;")))
    (profile,) = generate(checked)[1]["actionProfiles"]
    assert profile["size"] == str(cells)
    assert [p.size for p in Interpreter(checked).profiles.values()] == [cells]


@pytest.mark.fast
def test_internal_errors_say_that_they_are(tmp_path, monkeypatch):
    def wrong(self, node):
        raise ValueError("not enough values to unpack")

    monkeypatch.setattr(Statements, "_assignment", wrong)
    path = program(tmp_path, source())
    with pytest.raises(CompileError) as error:
        generate(load(path))
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.message.startswith("internal error of the compiler: ValueError: not enough values to unpack (")
    assert "test_compiler_crashes.py:" in diagnostic.message
    assert "please report it" in diagnostic.notes[0].message
    assert path.read_text().splitlines()[diagnostic.span.line - 1].strip().startswith("apply { sm.egress_spec = 1;")


@pytest.mark.fast
def test_internal_errors_of_the_front_end(monkeypatch):
    def wrong(*args):
        raise KeyError("x")

    monkeypatch.setattr("ina.p4.compiler.frontend.parse_program", wrong)
    with pytest.raises(CompileError, match="internal error of the compiler: KeyError"):
        parse_text("", "program.p4")
