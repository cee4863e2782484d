"""`ina tofino check`: small programs with known faults and sizes; third-party programs that compile have no faults."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from capabilities import need

from ina.cli import main
from ina.p4.compiler.frontend import load
from ina.p4.tofino.check import as_json, check, report_totals, text
from ina.p4.tofino.units import NotTna

HEAD = """
#include <core.p4>
#include <tna.p4>
struct pair_t { bit<32> first; bit<32> second; }
struct triple_t { bit<32> a; bit<32> b; bit<32> c; }
header data_t { bit<32> a; bit<32> b; bit<32> c; bit<32> d; bit<16> e; bit<16> f; bit<48> wide; bit<16> index; }
struct headers_t { data_t data; }
struct meta_t { bit<32> x; bit<32> y; bit<32> z; bit<8> flag; }
parser IgParser(packet_in packet, out headers_t hdr, out meta_t meta, out ingress_intrinsic_metadata_t standard) {
    state start { packet.extract(standard); packet.advance(PORT_METADATA_SIZE); packet.extract(hdr.data); transition accept; }
}
parser EgParser(packet_in packet, out headers_t hdr, out meta_t meta, out egress_intrinsic_metadata_t standard) {
    state start { packet.extract(standard); transition accept; }
}
control Ingress(inout headers_t hdr, inout meta_t meta, in ingress_intrinsic_metadata_t standard,
                in ingress_intrinsic_metadata_from_parser_t from_parser,
                inout ingress_intrinsic_metadata_for_deparser_t deparser, inout ingress_intrinsic_metadata_for_tm_t tm) {
"""
TAIL = """
}
control IgDeparser(packet_out packet, inout headers_t hdr, in meta_t meta,
                   in ingress_intrinsic_metadata_for_deparser_t standard) {
    apply { packet.emit(hdr); }
}
control Egress(inout headers_t hdr, inout meta_t meta, in egress_intrinsic_metadata_t standard,
               in egress_intrinsic_metadata_from_parser_t from_parser,
               inout egress_intrinsic_metadata_for_deparser_t deparser,
               inout egress_intrinsic_metadata_for_output_port_t output) {
    apply {}
}
control EgDeparser(packet_out packet, inout headers_t hdr, in meta_t meta,
                   in egress_intrinsic_metadata_for_deparser_t standard) {
    apply { packet.emit(hdr); }
}
Pipeline(IgParser(), Ingress(), IgDeparser(), EgParser(), Egress(), EgDeparser()) pipe;
Switch(pipe) main;
"""


@pytest.fixture
def checked(tmp_path):
    def of(body: str):
        path = tmp_path / "program.p4"
        path.write_text(HEAD + body + TAIL)
        return check(load(path))

    return of


def ingress(report):
    return report.controls[0]


def messages(report, level="error"):
    return [f.text for f in report.findings if f.level == level]


TABLES = """
    action set_x(bit<32> v) { meta.x = v; }
    action set_y() { meta.y = meta.x; }
    action set_z(bit<32> v) { meta.z = v; }
    table one { key = { hdr.data.a : exact; } actions = { set_x; } size = 4096; }
    table two { key = { hdr.data.b : ternary; } actions = { set_y; } size = 1024; }
    table three { key = { meta.y : exact; hdr.data.wide : exact; } actions = { set_z; } size = 1024; }
"""


@pytest.mark.fast
def test_what_must_wait_for_what(checked):
    """Stages: one writes x, which two's action reads; three matches on y, which two writes."""
    report = checked(TABLES + "apply { one.apply(); two.apply(); three.apply(); }")
    assert ingress(report).bound.stages == 3
    chain = [(p.stage, p.unit.name, p.why) for p in ingress(report).bound.chain]
    assert chain == [(0, "Ingress.one", ""), (1, "Ingress.two", "meta.x"), (2, "Ingress.three", "meta.y")]
    assert messages(report) == []


@pytest.mark.fast
@pytest.mark.parametrize("apply, stages", [
    ("three.apply(); two.apply(); one.apply();", 1),  # overwriting a field that another table reads needs no later stage
    ("if (hdr.data.e == 1) { one.apply(); } else { two.apply(); }", 1),  # mutually exclusive
    ("if (one.apply().hit) { three.apply(); }", 1),  # in one stage, though three is applied only then
    ("one.apply(); if (meta.x == 5) { three.apply(); }", 2),  # but a condition on a written field waits
    ("meta.x = 7; two.apply();", 1),  # a constant is no stage
    ("meta.x = hdr.data.c; two.apply();", 1),  # nor is a copy
    ("meta.x = hdr.data.c + 1; two.apply();", 2),
    ("bool small = hdr.data.c == 1; if (small) { meta.x = 1; }", 1),  # a gateway evaluates it at its use
    ("if (hdr.data.a == 1) { bool small = hdr.data.c == 1; if (small) { meta.x = 1; } }", 1),
    ("bool small = false; if (hdr.data.a == 1) { small = hdr.data.c == 1; } if (small) { meta.x = 1; }", 2),  # no gateway can
    ("meta.x[7:0] = hdr.data.c[7:0] + 1; meta.y = (bit<32>)meta.x[15:8];", 1),  # other bits
    ("meta.x[7:0] = hdr.data.c[7:0] + 1; meta.y = (bit<32>)meta.x[7:0] + 1;", 2),
])
def test_a_bound_is_a_bound(checked, apply, stages):
    assert ingress(checked(TABLES + f"apply {{ {apply} }}")).bound.stages == stages


@pytest.mark.fast
def test_a_register_keeps_its_users_in_one_stage(checked):
    """The access in the first branch could be in the first stage; but the other must be later, and they share memory."""
    report = checked("""
    Register<bit<32>, bit<8>>(16) r;
    RegisterAction<bit<32>, bit<8>, bit<32>>(r) add = {
        void apply(inout bit<32> v, out bit<32> o) { v = v + hdr.data.a; o = v; }
    };
    apply {
        if (hdr.data.e == 1) {
            meta.y = add.execute(1);
            meta.z = meta.y + 1;
        } else {
            meta.x = hdr.data.b + 1;
            meta.flag = (bit<8>)meta.x + 1;
            meta.y = add.execute(meta.flag);
        }
    }""")
    assert ingress(report).bound.stages == 4
    assert "register Ingress.r" in [p.why for p in ingress(report).bound.placed]
    assert {r.name: len(a) for r, a in ingress(report).most.items()} == {"Ingress.r": 1} and messages(report) == []


@pytest.mark.fast
def test_registers_crowd_stages(checked):
    """Nine registers that follow another stage: four per stage, three stages more."""
    declared = "".join(f"""
    Register<bit<32>, bit<8>>(16) r{i};
    RegisterAction<bit<32>, bit<8>, bit<32>>(r{i}) add{i} = {{
        void apply(inout bit<32> v) {{ v = v + meta.x; }}
    }};""" for i in range(9))
    report = checked(declared + "apply { meta.x = hdr.data.a + 1; " + "".join(f"add{i}.execute(0);" for i in range(9)) + "}")
    assert ingress(report).bound.stages == 2 and report.crowded[0] == report.stages == 4
    assert "9 registers and meters that come after 1 stage of others, 4 in each stage" in text(report)


@pytest.mark.fast
def test_two_accesses_in_one_pass(checked):
    report = checked("""
    Register<bit<32>, bit<8>>(16) r;
    RegisterAction<bit<32>, bit<8>, bit<32>>(r) add = { void apply(inout bit<32> v) { v = v + 1; } };
    apply {
        add.execute(1);
        if (hdr.data.e == 1) { add.execute(2); }
    }""")
    (finding,) = [f for f in report.findings if f.level == "error"]
    assert "register Ingress.r is accessed 2 times in one pass" in finding.text
    assert [span.line for span, _ in finding.notes] == [finding.span.line - 1, finding.span.line]


@pytest.mark.fast
@pytest.mark.parametrize(("apply", "default", "times"), [
    ("if (t.apply().miss) { add.execute(2); }", "const default_action = none();", 1),
    ("if (!t.apply().hit) { add.execute(2); }", "const default_action = none();", 1),
    ("if (!t.apply().hit) { add.execute(2); }", "", 2),  # NoAction, in whose place the control plane may set `count`
    ("if (t.apply().miss) { add.execute(2); }", "default_action = none();", 2),
    ("if (t.apply().hit) { add.execute(2); }", "const default_action = none();", 2),
    ("switch (t.apply().action_run) { none: { add.execute(2); } }", "default_action = none();", 1),
    ("switch (t.apply().action_run) { count: { add.execute(2); } }", "default_action = none();", 2),
    ("switch (t.apply().action_run) { none: { } default: { add.execute(2); } }", "default_action = none();", 2),
])
def test_actions_that_exclude_each_other_access_once(checked, apply, default, times):
    report = checked(f"""
    Register<bit<32>, bit<8>>(16) r;
    RegisterAction<bit<32>, bit<8>, bit<32>>(r) add = {{ void apply(inout bit<32> v) {{ v = v + 1; }} }};
    action none() {{ }} action count() {{ add.execute(1); }}
    table t {{ key = {{ hdr.data.a: exact; }} actions = {{ none; count; }} {default} }}
    apply {{ {apply} }}""")
    assert [len(accesses) for accesses in ingress(report).most.values()] == [times]


KEY = "key = { hdr.data.a: exact; } "


@pytest.mark.fast
@pytest.mark.parametrize(("table", "apply", "times"), [
    ("const default_action = none();", "t.apply(); add.execute(2);", 1),  # without a key, only the default action can run
    ("default_action = none();", "t.apply(); add.execute(2);", 2),
    ("default_action = count();", "if (t.apply().hit) { add.execute(2); }", 1),
    ("default_action = count();", "if (t.apply().miss) { add.execute(2); }", 2),
    ("const default_action = none();", "switch (t.apply().action_run) { count: { add.execute(2); } default: { } }", 0),
    (KEY + "const default_action = none(); const entries = { 1: none(); }", "t.apply(); add.execute(2);", 1),
    (KEY + "const default_action = none(); const entries = { 1: count(); }", "t.apply(); add.execute(2);", 2),
])
def test_actions_that_a_table_cannot_run_access_nothing(checked, table, apply, times):
    report = checked(f"""
    Register<bit<32>, bit<8>>(16) r;
    RegisterAction<bit<32>, bit<8>, bit<32>>(r) add = {{ void apply(inout bit<32> v) {{ v = v + 1; }} }};
    action none() {{ }} action count() {{ add.execute(1); }}
    table t {{ actions = {{ none; count; }} {table} }}
    apply {{ {apply} }}""")
    assert sum(len(accesses) for accesses in ingress(report).most.values()) == times


@pytest.mark.fast
@pytest.mark.parametrize(("loop", "times"), [
    ("for (bit<32> i = 0; i < 3; i = i + 1) { add.execute(1); }", 2),
    ("for (bit<32> i = 0; i < hdr.data.a; i = i + 1) { if (i == 2) { add.execute(1); } }", 2),
    ("for (bit<8> i in 0 .. 3) { add.execute(1); break; }", 1),
    ("for (bit<8> i in 3 .. 3) { add.execute(1); }", 1),
    ("for (bit<8> i in {8w3}) { add.execute(1); }", 1),
    ("for (bit<8> i in {8w3, 5}) { add.execute(1); }", 2),
])
def test_a_loop_that_goes_round_again_accesses_again(checked, loop, times):
    report = checked(f"""
    Register<bit<32>, bit<8>>(16) r;
    RegisterAction<bit<32>, bit<8>, bit<32>>(r) add = {{ void apply(inout bit<32> v) {{ v = v + 1; }} }};
    apply {{ {loop} }}""")
    assert [len(accesses) for accesses in ingress(report).most.values()] == [times]


BODY = """
    Register<{cell}, bit<8>>(16) r;
    RegisterAction<{cell}, bit<8>, bit<32>>(r) act = {{ void apply(inout {cell} v, out bit<32> o) {{ {body} }} }};
    apply {{ meta.x = act.execute(0); }}"""


@pytest.mark.fast
@pytest.mark.parametrize("cell, body, message", [
    ("triple_t", "o = v.a;", "a cell of 3 words (32 bits + 32 bits + 32 bits): the stateful ALU has two"),
    ("bit<24>", "o = 0;", "a cell of 24 bits: it has 1, 8, 16 or 32 bits, or is a pair"),
    ("bit<32>", "if (v == 1 || v == 2 || v == 3) { v = 0; }", "3 comparisons (v == 1, v == 2, v == 3): the stateful ALU makes 2"),
    ("bit<32>", "v = v + hdr.data.a; if (hdr.data.b == hdr.data.c) { v = 0; }",
     "3 fields of the packet (hdr.data.a, hdr.data.b, hdr.data.c): the stateful ALU takes in 2"),
    ("bit<32>", "v = v + hdr.data.a + 1;", "2 operations: a value is computed by one"),
    ("bit<32>", "v = v * 3;", "the stateful ALU has no '*'"),
    ("bit<32>", "if (v == 1) { v = 100; } else if (v == 2) { v = 200; } else { v = v + 300; }", "v is given one of 3 values"),
    ("bit<1>", "if (v == 1) { v = 0; }", "a condition on a cell of one bit"),
    ("pair_t", "v.first = 100; if (v.second == 200) { v.second = 300; } else { v.second = 400; } if (v.first == 500) { o = 1; }",
     "use 5 constants beyond -8..7 (100, 200, 300, 400, 500): a stateful ALU keeps 4"),
])
def test_shapes_that_the_stateful_alu_has_not(checked, cell, body, message):
    report = checked(BODY.format(cell=cell, body=body))
    assert any(message in text for text in messages(report)), messages(report)
    assert all(f.span.line > HEAD.count("\n") for f in report.findings)


@pytest.mark.fast
@pytest.mark.parametrize("cell, body", [
    ("pair_t", "if (hdr.data.a == v.first) { o = v.second; } v.second = v.second |+| hdr.data.b;"),
    ("bit<32>", "o = v; if (v < hdr.data.a) { v = hdr.data.a; }"),
    ("pair_t", "if (hdr.data.e == 1 && v.first != 0) { v.first = v.first & ~hdr.data.a; } else { v.first = hdr.data.a; } "
               "o = v.first;"),
    ("bit<1>", "o = (bit<32>)v; v = 1;"),
])
def test_shapes_that_it_has(checked, cell, body):
    assert messages(checked(BODY.format(cell=cell, body=body))) == []


@pytest.mark.fast
def test_memory_is_counted(checked):
    report = checked(TABLES + "apply { one.apply(); two.apply(); three.apply(); }")
    one, two, three = ingress(report).tables
    assert (one.kind, one.entries, one.key_bits, one.data_bits, one.sram, one.tcam) == ("exact", 4096, 32, 32, 4, 0)
    assert (two.kind, two.tcam, two.sram) == ("ternary", 2, 0)
    assert (three.key_bits, three.sram, three.hash_bits) == (80, 4, 40)  # one block for each way
    assert ingress(report).containers.headers == 4 * 32 + 2 * 16 + 48 + 16
    totals = report_totals(report)
    assert totals["SRAM blocks"] == (8, 960) and totals["TCAM blocks"] == (2, 288) and totals["stages"] == (3, 12)


@pytest.mark.fast
def test_more_than_there_is(checked):
    """Thirteen additions, each on the result of the one before."""
    report = checked("apply { " + "meta.x = meta.x + hdr.data.a; " * 13 + "}")
    (finding,) = [f for f in report.findings if f.level == "error"]
    assert finding.text == "at least 13 stages: a Tofino 1 has 12" and len(finding.notes) == 13


@pytest.mark.fast
@pytest.mark.parametrize("statement, message", [
    ("if (hdr.data.a < hdr.data.b) { meta.x = 1; }", "'hdr.data.a < hdr.data.b' compares two fields by size"),
    ("meta.x = (hdr.data.a + hdr.data.b) & 15;", "an expression of several operations"),
])
def test_what_a_compiler_may_refuse_is_a_warning(checked, statement, message):
    report = checked(f"apply {{ {statement} }}")
    assert messages(report) == [] and [m.startswith(message) for m in messages(report, "warning")] == [True]


@pytest.mark.fast
def test_an_inverted_operand_is_no_operation_more(checked):
    assert checked("apply { meta.x = hdr.data.a & ~hdr.data.b; }").findings == []


@pytest.mark.build
def test_the_command(tmp_path, capsys):
    path = tmp_path / "program.p4"
    path.write_text(HEAD + TABLES + "apply { one.apply(); two.apply(); }" + TAIL)
    assert main(["tofino", "check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "ingress (Ingress): at least 2 stages" in out and "only a compiler for Tofino says" in out and "fits" not in out
    assert main(["tofino", "check", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["estimates"]["stages"] == {"at_least": 2, "tofino1": 12} and answer["findings"] == []
    path.write_text(HEAD + BODY.format(cell="triple_t", body="o = v.a;") + TAIL)
    assert main(["tofino", "check", str(path)]) == 1
    assert f"{path}:{HEAD.count(chr(10)) + 2}:36: error" in capsys.readouterr().out
    assert main(["tofino", "check", "p4/switchml.p4"]) == 2
    assert "has a V1Switch: expected a program for Tofino (TNA)" in capsys.readouterr().err
    assert main(["tofino", "check", str(tmp_path / "none.p4")]) == 2


@pytest.mark.fast
def test_v1model_programs_are_refused():
    with pytest.raises(NotTna, match="V1Switch"):
        check(load("p4/switchml.p4", defines={"VALUES": "32"}))


# ---- programs that Intel's compiler is known to place


def published() -> list[Path]:
    paths = []
    if folder := os.environ.get("INA_P4STUDIO"):
        programs = Path(folder, "p4-examples/p4_16_programs")
        paths += [p for p in sorted(programs.glob("tna_*/tna_*.p4")) if p.stem == p.parent.name]
    if folder := os.environ.get("INA_P4APP_SWITCHML"):
        paths.append(Path(folder, "dev_root/p4/switchml.p4"))
    return paths


@pytest.mark.hardware
@pytest.mark.parametrize("path", published() or [None], ids=lambda p: p.stem if p else "none")
def test_programs_that_are_known_to_compile_have_no_fault(path):
    need("tna-programs")
    report = check(load(path, include_dirs=[path.parent]))
    assert messages(report) == []
    assert report.stages <= 12 and all(used <= limit for used, limit in report_totals(report).values())
    json.dumps(as_json(report))


@pytest.mark.fast
@pytest.mark.parametrize("name", ["switchml", "atp"])
def test_the_table_of_the_docs_is_true(name):
    lines = Path("docs/guide/tofino.md").read_text().splitlines()
    row = next(line for line in lines if line.startswith(f"| `p4/tofino/{name}.p4` |"))
    report = check(load(f"p4/tofino/{name}.p4", include_dirs=["p4"]))
    totals = report_totals(report)
    kinds = ("stages", "bits of containers for headers", "stateful and meter ALUs", "SRAM blocks", "TCAM blocks")
    assert [int(cell.replace(",", "")) for cell in row.split("|")[2:-1]] == [totals[kind][0] for kind in kinds]
    assert report.findings == []
