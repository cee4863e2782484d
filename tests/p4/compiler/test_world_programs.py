"""Small programs with spellings that public programs use but no book explains."""

from __future__ import annotations

from pathlib import Path

import pytest
import tna_program
from shadow import Shadowed
from v1_program import data, source

from ina.p4.compiler.check import elaborate
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.front import macros
from ina.p4.compiler.frontend import load
from ina.p4.compiler.generate import generate
from ina.p4.compiler.lower import context as lower_context
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.p4info import files as p4info_files
from ina.p4.runtime.entities import TableEntry, insert
from ina.p4.runtime.entity_error import EntityError


def sent(tmp_path: Path, text: str, **packet: int) -> bytes:
    """The frame that the compiled program and the interpreter both send."""
    path = tmp_path / "program.p4"
    path.write_text(text)
    ((_, frame),) = Shadowed(path, cflags=["-O1"]).process(data(**packet))
    return frame


@pytest.mark.build
def test_lines_of_comment_that_begin_with_a_number_sign(tmp_path):
    comments = "########\n# a comment line, as p4c skips it\n  ## title ##\n#Planter's\n"
    text = source("hdr.data.e = 1;", types=comments)
    assert sent(tmp_path, text) == data(e=1)
    path = tmp_path / "wrong.p4"
    path.write_text(text + "\nbit<8> wrong = ;\n")
    with pytest.raises(CompileError, match=f"wrong.p4:{len(text.splitlines()) + 2}:"):  # lines still count
        load(path)


@pytest.mark.build
def test_a_name_that_a_backslash_splits(tmp_path):
    split = "#define LONG_NA\\\nME 5\n#define SUM(a, b) a + \\\n  b\nconst bit<8> five = LONG_N\\\nAME;\n"
    assert sent(tmp_path, source("hdr.data.e = SUM(five, 2);", types=split)) == data(e=7)


@pytest.mark.build
def test_a_shift_in_a_macro(tmp_path):
    macros = "#define HALF(x) (x >> 1)\n#define LESS x >>= 1\ntypedef bit<8> byte_t;\n"
    ingress = "bit<8> x = hdr.data.d; LESS; hdr.data.e = HALF(x) + (bit<8>)(byte_t)HALF(hdr.data.d);"
    assert sent(tmp_path, source(ingress, types=macros), d=200) == data(d=200, e=150)


@pytest.mark.fast
def test_annotations_keep_their_lines(tmp_path):
    """Annotations keep line breaks as in p4c's output for its pins_fabric.p4; escapes in the program stay escapes."""
    path = tmp_path / "program.p4"
    notes = '@entry_restriction("\n  // comment\n  d != 0;\n") @note("a\\n") '
    path.write_text(source("t.apply();", ingress_locals=notes + TABLE))
    info = generate(load(path))[1]
    (table,) = info["tables"]
    assert table["preamble"]["annotations"] == ['@entry_restriction("\n  // comment\n  d != 0;\n")', '@note("a\\n")']
    assert '"@entry_restriction(\\"\\n  // comment\\n  d != 0;\\n\\")"' in p4info_files.text(info)


TABLE = "table t { key = { hdr.data.d: exact @name(\"d\"); } actions = { NoAction; } }"
SET = "action set(bit<8> v) { hdr.data.e = v; }"


@pytest.mark.build
@pytest.mark.parametrize("kind", ["exact", "ternary", "lpm", "range"])
def test_many_constant_entries_are_looked_up(tmp_path, kind):
    """The first of two entries with the same key wins, as in a linear search; the control plane cannot add any."""
    key = {"exact": "{}", "ternary": "{} &&& 0xFFFF", "lpm": "{} &&& 0xFFFF", "range": "{0} .. {0}"}[kind]
    rows = [f"{key.format(i)}: set({i % 250});" for i in range(300)] + [f"{key.format(7)}: set(251);"]
    table = f"table t {{ key = {{ hdr.data.c: {kind}; }} actions = {{ set; NoAction; }} const entries = {{ {' '.join(rows)} }} }}"
    path = tmp_path / "program.p4"
    path.write_text(source("hdr.data.e = 255; t.apply();", ingress_locals=SET + table))
    switch = Shadowed(path, cflags=["-O1"])
    for c, e in ((0, 0), (7, 7), (299, 49), (300, 255)):
        assert switch.process(data(c=c)) == [(1, data(c=c, e=e))]
    with pytest.raises(EntityError, match="its entries are const"):
        priority = 1 if kind in ("ternary", "range") else 0
        switch.switch.write(insert(TableEntry("t", {"hdr.data.c": 400}, "set", {"v": 1}, priority)))


@pytest.mark.build
@pytest.mark.parametrize("applied", ["", "if (false) { t.apply(); }"])
def test_tables_that_no_packet_gets_to_say_so(tmp_path, applied):
    path = tmp_path / "program.p4"
    path.write_text(source(applied, ingress_locals=SET + "table t { key = { hdr.data.c: exact; } actions = { set; NoAction; } }"))
    with pytest.raises(EntityError, match="I.t: no packet can get to where the program applies it"):
        Shadowed(path, cflags=["-O1"]).switch.write(insert(TableEntry("t", {"hdr.data.c": 4}, "set", {"v": 1})))


@pytest.mark.build
def test_keys_of_many_words(tmp_path):
    """Keys of 80 words with the ranges last, where the switch has 64 bits to mark them."""
    fields = " ".join(f"bit<64> w{i};" for i in range(80))
    keys = " ".join(f"hdr.big.w{i}: {'range' if i > 76 else 'ternary'};" for i in range(80))
    row = ", ".join("5 .. 9" if i > 76 else f"{i} &&& 0xFF" if i % 2 else "_" for i in range(80))
    path = tmp_path / "program.p4"
    path.write_text(source(
        "t.apply();", types=f"header big_t {{ {fields} }}", headers="big_t big;",
        ingress_locals=f"{SET} table t {{ key = {{ {keys} }} actions = {{ set; NoAction; }} entries = {{ ({row}): set(9); }} }}",
        parser="state start { p.extract(hdr.data); p.extract(hdr.big); transition accept; }",
    ))
    switch = Shadowed(path, cflags=["-O1"])
    for last, e in ((5, 9), (9, 9), (4, 0), (10, 0)):
        words = b"".join((i if i < 77 else 7 if i < 79 else last).to_bytes(8, "big") for i in range(80))
        assert switch.process(data() + words) == [(1, data(e=e) + words)]


@pytest.mark.build
def test_long_chains_and_deep_expressions(tmp_path):
    chain = " else ".join(f"if (hdr.data.c == {i}) {{ hdr.data.d = {i % 256}; }}" for i in range(500))
    total = " + ".join(["hdr.data.b"] * 500)
    depth = "(1 + " * 300 + "0" + ")" * 300
    frame = sent(tmp_path, source(f"{chain} hdr.data.a = {total}; hdr.data.c = {depth};"), b=3, c=499)
    assert frame == data(a=1500, b=3, c=300, d=499 % 256)


BOMBS = {
    "macros": ("\n".join(["#define A0 x", *(f"#define A{i} A{i - 1} A{i - 1}" for i in range(1, 60)), "A59"]), "",
               "macros make more than 5,000 tokens"),
    "arguments of macros": (
        "\n".join(["#define A0(x) x", *(f"#define A{i}(x) A{i - 1}(x x)" for i in range(1, 60)), "A59(y)"]), "",
        "macros make more than 5,000 tokens"),
    "functions": ("void f0(inout bit<32> x) { x = x + 1; }\n" + "\n".join(
        f"void f{i}(inout bit<32> x) {{ f{i - 1}(x); f{i - 1}(x); }}" for i in range(1, 60)), "f59(hdr.data.a);",
        "more than 5,000 statements once its calls"),
    "objects": ("control C0(inout bit<32> x) { apply { x = x + 1; } }\n" + "\n".join(
        f"control C{i}(inout bit<32> x) {{ C{i - 1}() a; C{i - 1}() b; apply {{ a.apply(x); b.apply(x); }} }}"
        for i in range(1, 60)), "", "more than 5,000 objects"),
    "structs": ("struct S0 { bit<8> x; }\n" + "\n".join(
        f"struct S{i} {{ S{i - 1} a; S{i - 1} b; }}" for i in range(1, 60)), "S59 s;", "more than 5,000 parts"),
    "tuples": ("typedef tuple<bit<8>, bit<8>> T0;\n" + "\n".join(
        f"typedef tuple<T{i - 1}, T{i - 1}> T{i};" for i in range(1, 60)), "T59 t;", "more than 5,000 parts"),
    "a stack": ("header H { bit<8> x; }", "H[1000000000] h;", "more than 5,000 parts"),
}


@pytest.mark.fast
@pytest.mark.parametrize("case", BOMBS)
def test_programs_that_explode_are_refused_in_time(tmp_path, monkeypatch, case):
    monkeypatch.setattr(macros, "MAX_EXPANDED", 5_000)
    monkeypatch.setattr(lower_context, "MAX_STATEMENTS", 5_000)
    monkeypatch.setattr(elaborate, "MOST_OBJECTS", 5_000)
    monkeypatch.setattr(value_trees, "MOST_PLACES", 5_000)
    types, ingress, message = BOMBS[case]
    text = source(ingress, types=types)
    if case == "objects":
        text = text.replace("apply { sm.", "C59() deep; apply { deep.apply(hdr.data.a); sm.")
    path = tmp_path / "program.p4"
    path.write_text(text)
    with pytest.raises(CompileError, match=message) as error:
        generate(load(path))
    assert error.value.span.line


# --- programs for Tofino


def pipes_send(tmp_path, **parts: str) -> list[bytes]:
    path = tmp_path / "program.p4"
    path.write_text(tna_program.source(**parts))
    switch = Shadowed(path, cflags=["-O1"])
    return [frame for _, frame in switch.process(tna_program.data(a=5, b=6), 2)]


@pytest.mark.build
def test_indices_of_any_width(tmp_path):
    """Index type `_`, which Intel's compiler accepts."""
    locals_ = """
        Register<bit<32>, _>(32w8, 3) cells;
        RegisterAction<bit<32>, _, bit<32>>(cells) next = { void apply(inout bit<32> v, out bit<32> o) { v = v + 1; o = v; } };
        RegisterAction<bit<32>, _, bit<32>>(cells) far = { void apply(inout bit<32> v, out bit<32> o) { o = v; } };
        Counter<bit<32>, _>(8, CounterType_t.PACKETS) packets;"""
    ingress = """
        packets.count(3w1); packets.count(hdr.data.a); packets.count((int<3>)(bit<3>)hdr.data.a);
        if (hdr.data.b == 6) { hdr.data.a = next.execute(hdr.data.a); } else { hdr.data.a = far.execute(4w5); }"""
    (frame,) = pipes_send(tmp_path, ingress_locals=locals_, ingress=ingress)
    assert frame == tna_program.data(a=4, b=6)


@pytest.mark.fast
def test_an_element_needs_its_type(tmp_path):
    path = tmp_path / "program.p4"
    path.write_text(tna_program.source(ingress_locals="Register<_, bit<32>>(32w8) cells;"))
    with pytest.raises(CompileError, match="cannot infer type parameter T of 'Register'"):
        load(path)


@pytest.mark.build
@pytest.mark.parametrize("inner", [
    "@flexible struct inner_t { bit<9> p; bit<3> q; }", "struct inner_t { @flexible bit<9> p; @flexible bit<3> q; }",
    "struct inner_t { bit<9> p; @flexible bit<3> q; }",
])
def test_a_flexible_struct_in_a_header(tmp_path, inner):
    """The struct is padded to whole bytes, as a flexible field is; so is one that has such fields."""
    (frame,) = pipes_send(
        tmp_path, types=inner + " header bridge_t { bit<8> t; inner_t inner; }",
        headers="bridge_t bridge;", ingress="hdr.bridge.setValid(); hdr.bridge = {1, {3, 1}};",
        egress_parser="state start { pkt.extract(intr); pkt.extract(hdr.bridge); pkt.extract(hdr.data); transition accept; }",
        egress="hdr.data.a = (bit<32>)(hdr.bridge.inner.p ++ hdr.bridge.inner.q);",
    )
    assert frame == b"\x01" + (3 << 7 | 1 << 4).to_bytes(2, "big") + tna_program.data(a=3 << 3 | 1, b=6)


@pytest.mark.build
def test_flexible_fields_deep_in_a_header(tmp_path):
    (frame,) = pipes_send(
        tmp_path, types="""struct deep_t { bit<2> x; @flexible bit<1> y; } struct inner_t { bool z; deep_t deep; }
            header bridge_t { inner_t[3] inner; bit<8> t; }""",
        headers="bridge_t bridge;", ingress="""hdr.bridge.setValid(); hdr.bridge.t = 7;
            hdr.bridge.inner[0].deep.x = 2; hdr.bridge.inner[1].z = true; hdr.bridge.inner[2].deep.y = 1;""",
        egress_parser="state start { pkt.extract(intr); pkt.extract(hdr.bridge); pkt.extract(hdr.data); transition accept; }",
        egress="hdr.data.a = (bit<32>)hdr.bridge.inner[0].deep.x; hdr.data.e = hdr.bridge.t;",
    )
    assert frame == bytes([0b01001000, 0b00010000, 7]) + tna_program.data(a=2, b=6, e=7)


@pytest.mark.build
def test_a_resubmit_header_of_one_bit(tmp_path):
    """The header travels in the first of the hardware's 64 bits for resubmit data."""
    (frame,) = pipes_send(
        tmp_path, types="header again_t { bit<1> t; } header seen_t { bit<8> bits; bit<56> rest; }", headers="seen_t seen;",
        parser="""state start { pkt.extract(intr);
                transition select(intr.resubmit_flag) { 1: again; default: first; } }
            state again { pkt.extract(hdr.seen); transition rest; }
            state first { pkt.advance(PORT_METADATA_SIZE); transition rest; }
            state rest { pkt.extract(hdr.data); transition accept; }""",
        ingress="if (hdr.seen.isValid()) { hdr.data.a = (bit<32>)hdr.seen.bits; hdr.seen.setInvalid(); }"
                " else { dprsr.resubmit_type = 1; }",
        deparser_locals="Resubmit() again;",
        deparser="if (dprsr.resubmit_type == 1) { again.emit<again_t>({ 1w1 }); } pkt.emit(hdr);",
    )
    assert frame == tna_program.data(a=0x80, b=6)


NAMED = """
control Inner(inout data_h d)(bit<8> by) {
    @name(".hits") DirectCounter<bit<32>>(CounterType_t.PACKETS) hits;
    @name(".choice") Hash<bit<8>>(HashAlgorithm_t.CRC8) choice;
    action set() { hits.count(); d.e = d.e + by; }
    table t { key = { d.a: exact; } actions = { set; } counters = hits; }
    apply { t.apply(); d.d = choice.get({ d.a, by }); }
}"""


@pytest.mark.build
def test_a_name_that_direct_objects_share(tmp_path):
    """Translations from P4_14 give one name to the direct objects of several tables, which reach them."""
    tested = tna_program.pipe(tmp_path, "first.apply(hdr.data); second.apply(hdr.data);", types=NAMED,
                              ingress_locals="Inner(1) first; Inner(16) second;")
    tested.add(TableEntry("I.first.t", {"d.a": 5}, "I.first.set"), TableEntry("I.second.t", {"d.a": 5}, "I.second.set"),
               TableEntry("I.second.t", {"d.a": 6}, "I.second.set"))
    assert [tested.ingress(tna_program.data(a=a)).frame[-1] for a in (5, 6, 7)] == [17, 16, 0]
    assert {c["name"]: c["table"] for c in tested.layout["counters"]} == {"hits": "I.first.t", "I.second.hits": "I.second.t"}
    assert sum(packets for packets, _ in tested.counter("I.second.hits")) == 2
    checked = load(tmp_path / "program.p4")
    assert [w.message for w in checked.warnings] == [
        "control-plane name 'hits' is used twice: this DirectCounter is called 'I.second.hits'",
        "control-plane name 'choice' is used twice: this Hash is called 'I.second.choice'",
    ]


@pytest.mark.fast
def test_a_name_that_tables_or_registers_share_is_refused(tmp_path):
    path = tmp_path / "program.p4"
    for name, text in (("t", '@name(".t") table t { key = { d.a: exact; } actions = { NoAction; } }'),
                       ("r", '@name(".r") Register<bit<8>, bit<8>>(4) r;')):
        inner = f"control Inner(inout data_h d) {{ {text} apply {{ {'t.apply();' if name == 't' else ''} }} }}"
        locals_ = "Inner() a; Inner() b;"
        path.write_text(tna_program.source("a.apply(hdr.data); b.apply(hdr.data);", types=inner, ingress_locals=locals_))
        with pytest.raises(CompileError, match=f"control-plane name '{name}' is used twice"):
            load(path)


@pytest.mark.build
def test_direct_objects_that_no_table_names(tmp_path):
    """They have one cell: Intel's compiler makes a table without a key of the statement that uses them."""
    path = tmp_path / "program.p4"
    path.write_text(tna_program.source(
        """if (hdr.data.d == 1) { c.count(); act(); } hdr.data.e = m.execute(); hdr.data.b = add.execute();
        if (w.execute(hdr.data.a) == 1 || l.execute(hdr.data.a) > 9) { hdr.data.c = 1; }""",
        ingress_locals="""DirectCounter<bit<32>>(CounterType_t.PACKETS) c; DirectCounter<bit<32>>(CounterType_t.BYTES) in_action;
            DirectMeter(MeterType_t.PACKETS) m; DirectWred<bit<32>>(1, 0) w; DirectLpf<bit<32>>() l;
            DirectRegister<bit<32>>(3) r; action act() { in_action.count(); }
            DirectRegisterAction<bit<32>, bit<32>>(r) add = {
                void apply(inout bit<32> v, out bit<32> o) { v = v + 2; o = v; } };""",
    ))
    switch = Shadowed(path, cflags=["-O1"])
    for d in (0, 1, 1):
        ((_, frame),) = switch.process(tna_program.data(a=5, d=d), 2)
    assert frame[4:8] == (3 + 3 * 2).to_bytes(4, "big")
    counters = switch.switch.counters()
    assert counters["I.c"].tolist() == counters["I.in_action"].tolist() == [[2, 2 * (12 + 4)]]


# --- programs of another kind


@pytest.mark.fast
@pytest.mark.parametrize(("file", "owner"), [("psa.p4", "the Portable Switch Architecture"), ("ebpf_model.p4", "eBPF"),
                                             ("pna.p4", "the Portable NIC Architecture")])
def test_other_architectures_are_named(tmp_path, file, owner):
    path = tmp_path / "program.p4"
    path.write_text(f"#include <core.p4>\n#include <{file}>\n")
    with pytest.raises(CompileError, match=f"'{file}' is of {owner}, which is not supported") as error:
        load(path)
    assert error.value.span.line == 2


@pytest.mark.fast
@pytest.mark.parametrize("include", ["<tofino/intrinsic_metadata.p4>", '"tofino/constants.p4"'])
def test_p4_14_for_tofino_is_named_by_what_it_includes(tmp_path, include):
    path = tmp_path / "program.p4"
    path.write_text(f"#include {include}\nheader_type h_t {{ fields {{ a : 8; }} }}\n")
    with pytest.raises(CompileError, match=r"'tofino/\w+.p4' is of P4_14 for Tofino: the compiler takes P4_16") as error:
        load(path)
    assert "#include <tna.p4>" in error.value.diagnostics[0].notes[0].message
    path.write_text('#include "tofino/own.p4"\n')
    with pytest.raises(CompileError, match="include file 'tofino/own.p4' not found"):
        load(path)


@pytest.mark.fast
@pytest.mark.parametrize(
    "text", ["header_type h_t { fields { a : 8; } }\n", "parser start { return ingress; }\n", "control ingress {}\n"]
)
def test_p4_14_is_named(tmp_path, text):
    path = tmp_path / "program.p4"
    path.write_text(text)
    with pytest.raises(CompileError, match="this is a P4_14 program: the compiler takes P4_16") as error:
        load(path)
    assert "p4test --std p4-14 --pp" in error.value.diagnostics[0].notes[0].message
