"""`ina compile`, `ina stf`, `ina explain`, `ina trace`; P4Info's file formats."""

from __future__ import annotations

import json
import math
import os
import re
import struct
import subprocess
import textwrap
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from capabilities import need, tool
from folders import files
from v1_program import check, data, source

from ina import cli
from ina.base import paths
from ina.p4 import UserFunction
from ina.p4.compiler.frontend import load
from ina.p4.compiler.p4info import files as p4info_files
from ina.p4.compiler.p4info import p4info
from ina.p4.tools import explain, parser_graph, trace

need("cc")

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PAGE = (ROOT / "docs" / "guide" / "p4.md").read_text()
FOLDERS = (paths.p4_dir(), ROOT / "examples", ROOT / "examples" / "learn", ROOT / "tests" / "programs")
PROGRAMS = [path for folder in FOLDERS for path in sorted(folder.glob("*.p4"))]
PROGRAM = source(
    "t.apply(); bit<32> x; r.read(x, 3); r.write(3, x + hdr.data.b);"
    " if (hdr.data.d == 9) { mark_to_drop(sm); } if (hdr.data.d == 7) { log_msg(\"seven\"); }",
    headers="tail_t tail; tail_t[2] more;",
    types="header tail_t { bit<4> p; bit<12> q1; bit<12> q2; bit<4> s; }",
    parser="""state start { p.extract(hdr.data); transition select(hdr.data.e, hdr.data.d) {
            (1, _): more; (2, 4 .. 5): reject; default: accept; } }
        state more { p.extract(hdr.more.next); transition select(hdr.more.last.p) { 1: more; _: tail; } }
        state tail { p.extract(hdr.tail); transition accept; }""",
    ingress_locals="""
    register<bit<32>>(16) r;
    action out_to(bit<9> port) { sm.egress_spec = port; }
    action drop() { mark_to_drop(sm); }
    table t { key = { hdr.data.a: exact; } actions = { out_to; drop; NoAction; } default_action = drop(); }""",
)
STF = """
add t hdr.data.a:5 out_to(port:2)
packet 0 00000005 00000001 0000 00 00 ab
expect 2 00000005 00000001 0000 00 00 ab $
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.p4"
    path.write_text(PROGRAM)
    return path


def ina(*args: object) -> int:
    return cli.main([str(a) for a in args])


# --- compile and P4Info ---------------------------------------------------------------------------------------------


@pytest.mark.build
def test_compile_writes_all_that_is_asked_for(program, tmp_path, capsys):
    files = [tmp_path / f"out.{ending}" for ending in ("so", "c", "json", "txtpb", "bin")]
    so, c, *infos = files
    flags = [part for path in infos for part in ("--p4info", path)]
    assert ina("compile", program, "-o", so, "--c", c, *flags) == 0
    out, err = capsys.readouterr()
    assert out.strip() == str(so)
    assert so.read_bytes()[:4] == b"\x7fELF"
    assert "ina_program" in c.read_text()
    info = p4info.build(load(program))
    assert json.loads(infos[0].read_text()) == info
    assert infos[1].read_text() == p4info_files.text(info)
    assert infos[2].read_bytes() == p4info_files.binary(info)
    assert "1 table, 1 register" in err
    assert "register I.r: 16 x bit<32>, 64 bytes" in err


@pytest.mark.build
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--p4info", "x.yaml"], "end in .json, .txtpb, .bin"),
        (["-o", "/nowhere/x.so"], "/nowhere/x.so: No such file"),
        (["-I", ".", "-D", "X=1", "--p4info", "/nowhere/x.json"], "/nowhere/x.json: No such file"),
    ],
)
def test_compile_says_what_is_wrong(program, capsys, args, message):
    assert ina("compile", program, *args) == 1
    assert message in capsys.readouterr().err


@pytest.mark.build
def test_compile_errors_are_located(program, capsys):
    program.write_text(PROGRAM.replace("hdr.data.b);", "hdr.data.bb);"))
    assert ina("compile", program) == 1
    assert re.search(r"program\.p4:\d+:\d+: error: .*'bb'", capsys.readouterr().err)


@pytest.mark.build
def test_wire_format():
    """Compared with bytes encoded by hand by protobuf's rules."""
    info = {
        "pkgInfo": {"arch": "v1model"},
        "tables": [
            {
                "preamble": {"id": 0x02000001, "name": "t"},
                "matchFields": [{"id": 1, "matchType": "LPM"}],
                "directResourceIds": [1, 300],
                "size": "1024",
                "isConstTable": True,
            }
        ],
        "typeInfo": {"structs": {"s": {"members": [{"name": "m"}]}}},
    }
    table = "0a08" "0881808010" "120174" "1204" "08012803" "3a03" "01ac02" "408008" "5001"
    types = "0a0a" "0a0173" "1205" "0a03" "0a016d"
    expected = "0a09" "2a07" + b"v1model".hex() + "12" f"{len(table) // 2:02x}" + table + "c20c" "0c" + types
    assert p4info_files.binary(info).hex() == expected
    assert p4info_files.text(info).splitlines()[3:] == [
        "pkg_info {", '  arch: "v1model"', "}",
        "tables {", "  preamble {", "    id: 33554433", '    name: "t"', "  }",
        "  match_fields {", "    id: 1", "    match_type: LPM", "  }",
        "  direct_resource_ids: 1", "  direct_resource_ids: 300", "  size: 1024", "  is_const_table: true", "}",
        "type_info {", "  structs {", '    key: "s"', "    value {", "      members {", '        name: "m"', "      }",
        "    }", "  }", "}",
    ]


@pytest.mark.build
def test_unknown_fields_are_no_p4info():
    with pytest.raises(KeyError, match="PkgInfo has no field archs"):
        p4info_files.binary({"pkgInfo": {"archs": "v1model"}})


@pytest.mark.build
def test_text_escapes():
    text = p4info_files.text({"pkgInfo": {"name": 'a"\\\n\xe9'}})
    assert text.splitlines()[4] == r'  name: "a\"\\\n\303\251"'


def _by_name(x):
    """Sorts lists of named objects by name, as their order in P4Info has no meaning."""
    if isinstance(x, dict):
        return {k: _by_name(v) for k, v in x.items()}
    if isinstance(x, list):
        items = [_by_name(v) for v in x]
        sortable = items and isinstance(items[0], dict) and "preamble" in items[0]
        return sorted(items, key=lambda m: m["preamble"]["name"]) if sortable else items
    return x


# Programs of which p4c has removed unreachable parts, or cannot describe some: docs/guide/p4.md, "Differences from BMv2".
P4INFO_DIFFERS = {"gauntlet_exit_combination_5-bmv2", "gauntlet_exit_combination_21-bmv2", "issue2735-bmv2",
                  "match-on-exprs2-bmv2"}


def samples() -> list[Path]:
    """p4c's programs for v1model that this compiler knows, where INA_P4C_SAMPLES names their folder."""
    folder = os.environ.get("INA_P4C_SAMPLES", "")
    paths = sorted(Path(folder).glob("*-bmv2.p4")) if folder else []
    return [p for p in paths if "V1Switch" in p.read_text(errors="replace") and p.stem not in P4INFO_DIFFERS]


@pytest.mark.hardware
@pytest.mark.parametrize("path", [p for p in PROGRAMS if "V1Switch" in p.read_text()] + samples(), ids=lambda p: p.stem)
def test_p4info_is_that_of_p4c(path, tmp_path):
    """P4Info as JSON, and the two other formats generated from p4c's JSON, byte for byte. (p4c is slow with 256 values.)"""
    need("p4c")
    files = [tmp_path / f"p4c.{ending}" for ending in ("json", "bin", "txtpb")]
    command = [tool("INA_P4C", "p4c-bm2-ss"), "--Wdisable", "-DVALUES=32", "--p4runtime-files", ",".join(map(str, files)),
               "-o", str(tmp_path / "bmv2.json"), str(path)]
    process = subprocess.run(command, capture_output=True, text=True)
    if not files[0].exists():
        assert path not in PROGRAMS, process.stderr
        pytest.skip(f"p4c: {process.stderr[-200:]}")
    theirs = json.loads(files[0].read_text())
    expected = {"typeInfo": {}, **_by_name(theirs)}  # p4c leaves an empty one out where there is no table and no action
    assert _by_name(p4info.build(load(path, defines={"VALUES": "32"}))) == expected
    binary = files[1].read_bytes()
    assert p4info_files.text(theirs) == files[2].read_text()
    assert len(p4info_files.binary(theirs)) == len(binary)
    if not theirs.get("typeInfo"):  # maps may be in another order
        assert p4info_files.binary(theirs) == binary


# --- stf ------------------------------------------------------------------------------------------------------------


@pytest.mark.build
def test_stf_of_a_folder(program, capsys):
    program.with_suffix(".stf").write_text(STF)
    (program.parent / "wrong.p4").write_text(PROGRAM)
    (program.parent / "wrong.stf").write_text(STF.replace("expect 2", "expect 3"))
    (program.parent / "refused.p4").write_text(PROGRAM.replace("hdr.data.d == 9", "hdr.data.d == true"))
    (program.parent / "refused.stf").write_text(STF)
    (program.parent / "other.p4").write_text("// no v1model or TNA program")
    (program.parent / "other.stf").write_text("")
    assert ina("stf", program.parent) == 1
    out = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[1:] if not line.startswith(" ")}
    assert (rows["program"], rows["wrong"], rows["refused"]) == (["pass"] * 2, ["FAIL"] * 2, ["refused"] * 2)
    assert "other" not in rows
    assert "port 3: expected 1 packet, got 0" in out
    assert re.search(r"refused\.p4:\d+:\d+:", out)
    assert "compiled: 1 pass, 1 refused, 1 FAIL" in out
    assert ina("stf", program, "--target", "interpreter") == 0
    assert ina("stf", program, program.parent / "wrong.stf", "--target", "compiled") == 1
    assert "wrong" in capsys.readouterr().out


@pytest.mark.build
def test_stf_that_cannot_be_run(program, capsys):
    program.with_suffix(".stf").write_text("fly")
    assert ina("stf", program) == 1
    assert f"{program.with_suffix('.stf')}:1: unknown command 'fly'" in capsys.readouterr().out
    (program.parent / "empty").mkdir()
    assert ina("stf", program.parent / "empty") == 1
    assert "no v1model or TNA program" in capsys.readouterr().err


@pytest.mark.build
def test_stf_of_a_test_alone_says_what_is_expected(program, capsys):
    test = program.with_suffix(".stf")
    test.write_text(STF)
    for arguments in ([test], [test, program]):
        assert ina("stf", *arguments) == 1
        assert capsys.readouterr() == ("", f"ina: {test} is a test: expected its program first: ina stf {program} {test}\n")
    other = program.parent / "other.stf"
    assert ina("stf", other) == 1  # it need not exist
    assert capsys.readouterr().err == f"ina: {other} is a test: expected its program first: ina stf PROGRAM.p4 {other}\n"
    assert ina("stf", program, program) == 1
    assert capsys.readouterr().err == f"ina: {program} is a program: expected a test (.stf) after the first\n"


@pytest.mark.build
def test_stf_of_a_folder_tells_what_cannot_be_read_and_runs_the_rest(program, capsys):
    """Dangling links, links to themselves, folders named like programs, and tests that are not text."""
    folder = program.parent
    program.with_suffix(".stf").write_text(STF)
    for name in ("gone", "looping", "folder", "no_text", "no_test", "test_loops", "test_folder"):
        (folder / f"{name}.stf").write_text(STF)
        (folder / f"{name}.p4").write_text(PROGRAM)
    for name, target in (("gone.p4", "nowhere.p4"), ("looping.p4", "looping.p4"), ("no_test.stf", "nowhere.stf"),
                         ("test_loops.stf", "test_loops.stf")):
        (folder / name).unlink()
        (folder / name).symlink_to(target)
    for name in ("folder.p4", "test_folder.stf"):
        (folder / name).unlink()
        (folder / name).mkdir()
    (folder / "no_text.stf").write_bytes(b"packet 1 \xff")
    assert ina("stf", folder, "--target", "interpreter") == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    reasons = {row.split()[0]: text.strip() for row, text in zip(lines[1:], lines[2:], strict=False) if row.endswith("no run")}
    is_folder = "Is a directory: expected a file: name one in this folder, or elsewhere"
    assert reasons == {
        "gone": f"interpreter: {folder / 'gone.p4'}: No such file or directory",
        "looping": f"interpreter: {folder / 'looping.p4'}: Too many levels of symbolic links",
        "folder": f"interpreter: {folder / 'folder.p4'}: {is_folder}",
        "no_text": f"interpreter: {folder / 'no_text.stf'}:1: not UTF-8: invalid start byte",
        "no_test": f"interpreter: {folder / 'no_test.stf'}: No such file or directory",
        "test_loops": f"interpreter: {folder / 'test_loops.stf'}: Too many levels of symbolic links",
        "test_folder": f"interpreter: {folder / 'test_folder.stf'}: {is_folder}",
    }
    assert lines[-1] == "interpreter: 7 no run, 1 pass" and not err


# --- explain --------------------------------------------------------------------------------------------------------


@pytest.mark.build
def test_explain(program, capsys, tmp_path):
    svg = tmp_path / "parser.svg"
    assert ina("explain", program, "--svg", svg) == 0
    out = capsys.readouterr().out
    assert "hdr.data: data_t, 12 bytes" in out
    assert re.search(r"0\.4  bit<12> q1\n +2\.0  bit<12> q2|0\.4  2 x bit<12> q1 \.\. q2\n +3\.4  bit<4> s", out)
    assert "hdr.more: stack of 2 x tail_t" in out
    assert re.search(r"\(1, _\) -> more\n +\(2, 4 \.\. 5\) -> reject\n +default -> accept", out)
    assert "key      hdr.data.a  bit<32>  exact" in out
    assert "action   I.out_to(bit<9> port)" in out
    assert "default  drop()" in out
    assert "register I.r: 16 x bit<32>, 64 bytes" in out
    root = ET.parse(svg).getroot()
    labels = {"".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"start", "more", "tail", "accept", "reject", "extract hdr.more.next"} <= labels
    paths_ = [p.get("class") for p in root.iter("{http://www.w3.org/2000/svg}path")]
    assert paths_.count("back") == 1  # more -> more


@pytest.mark.build
def test_boxes_do_not_overlap_and_edges_point_downwards(program):
    g = parser_graph.graph(explain.parser_of(load(program)))
    parser_graph.svg([g])
    for i, a in enumerate(g.nodes):
        for b in g.nodes[:i]:
            apart_x = abs(a.x - b.x) >= (a.width + b.width) / 2
            apart_y = abs(a.y - b.y) >= (a.height + b.height) / 2
            assert apart_x or apart_y, (a.name, b.name)
    for e in g.edges:
        assert e.back or e.source.y < e.target.y, (e.source.name, e.target.name)


@pytest.mark.build
def test_what_protocols_share_is_found_without_a_flag(capsys):
    assert cli.main(["explain", str(ROOT / "examples" / "lockstep" / "lockstep.p4")]) == 0
    assert "hdr.ethernet" in capsys.readouterr().out


@pytest.mark.build
def test_explain_shows_every_kind_of_object(capsys):
    assert ina("explain", ROOT / "tests/programs/meters.p4") == 0
    out = capsys.readouterr().out
    assert "counter Body.counts of table Body.kinds: 1024 cells of packets and bytes, 16.0 KiB" in out
    assert "meter Body.packets: 4 cells of packets" in out
    assert "meter Body.each of table Body.kinds: 1024 cells of packets" in out
    assert ina("explain", ROOT / "tests/programs/value_sets.p4") == 0
    assert re.search(r"value set Parse\.kinds: .*bit<9> exact; size 4", capsys.readouterr().out)
    assert ina("explain", ROOT / "tests/programs/digests.p4") == 0
    assert "digest learn_t: bit<48> address, bit<9> port, bit<32> what" in capsys.readouterr().out
    assert ina("explain", ROOT / "tests/programs/selector.p4") == 0
    assert "implementation  Body.selector (action_selector)" in capsys.readouterr().out


@pytest.mark.build
def test_explain_shows_rows_and_loops(capsys):
    assert ina("explain", paths.p4_dir() / "switchml.p4", "-D", "VALUES=64", "-D", "SLOTS=8") == 0
    out = capsys.readouterr().out
    assert re.search(r"16 rows of \d+ bytes, \d+ registers", out)
    assert "byte    64  64 x bit<32> SwitchIngress.values.value_00 .. SwitchIngress.values.value_3f" in out
    assert "ingress: 64 rounds, independent" in out
    assert "hdr.values: values_t, 256 bytes, stays in the frame" in out
    assert "64 x bit<32> v_00 .. v_3f" in out


@pytest.mark.build
def test_names_in_runs():
    names = ["a", "v0", "v1", "v2", "w_0f", "w_10", "b"]
    assert [[n for n, _ in g] for g in explain.runs([(n, 1) for n in names])] == [
        ["a"], ["v0", "v1", "v2"], ["w_0f", "w_10"], ["b"],
    ]
    assert len(explain.runs([("v0", 1), ("v1", 2)])) == 2


# --- trace ----------------------------------------------------------------------------------------------------------


def pcap(path: Path, frames: list[bytes], order: str = "<", magic: int = 0xA1B2C3D4, unit: int = 10**6) -> Path:
    head = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, 1)
    records = [struct.pack(f"{order}4I", 7 + i, unit // 2, len(f), len(f)) + f for i, f in enumerate(frames)]
    path.write_bytes(head + b"".join(records))
    return path


@pytest.mark.build
def test_trace(program, tmp_path, capsys):
    frames = [data(5, 3, 0, 0, 0), data(5, 0x20, 0, 7, 1), data(6, 0, 0, 9, 1) + b"\x20\x00\x00\x00\xab\xcd\xef\x01zz"]
    entries = tmp_path / "entries.stf"
    entries.write_text("packet 1 00\nexpect 1\nadd tt hdr.data.a:5 out_to(port:2)")
    assert ina("trace", program, pcap(tmp_path / "in.pcap", frames), "--entries", entries) == 1
    assert f"ina: {entries}:3: table 'tt' is unknown" in capsys.readouterr().err
    entries.write_text("add t hdr.data.a:5 out_to(port:2)")
    assert ina("trace", program, pcap(tmp_path / "in.pcap", frames), "--entries", entries, "--port", 4) == 0
    first, second, third = re.split(r"(?m)^(?=packet)", capsys.readouterr().out)[1:]
    assert "packet 1: 12 bytes into port 4 at 0.000000 s" in first
    assert "parser P: start > accept" in first
    assert "table I.t [hdr.data.a=5]: hit entry 1, out_to(port=2)" in first
    assert "register I.r[3] = 3 (was 0)" in first
    assert f"out of port 2: 12 bytes, unchanged\n    {frames[0].hex()}" in first
    assert "at 1.000000 s" in second
    assert "parser P: start > more > error.PacketTooShort" in second
    assert "register I.r[3] = 0x23 (was 3)" in second
    assert "log: seven" in second
    assert "parser P: start > more > tail > accept" in third
    assert "table I.t [hdr.data.a=6]: miss, default drop()" in third
    assert "register I.r[3] = 0x23 (unchanged)" in third
    assert "dropped: ingress" in third
    assert "out of port" not in third


@pytest.mark.build
def test_trace_shows_a_signed_index_as_the_cell_that_it_names(tmp_path, capsys):
    program = tmp_path / "program.p4"
    program.write_text("#define V1MODEL_VERSION 20200408\n" + source(
        "r.write((int<8>)hdr.data.d, hdr.data.e);", ingress_locals="register<bit<8>, int<8>>(256) r;"))
    assert ina("trace", program, data(d=0xFF, e=5).hex()) == 0
    assert "register I.r[255] = 5 (was 0)" in capsys.readouterr().out


@pytest.mark.build
def test_trace_shows_what_registers_that_are_not_written_say(tmp_path, capsys):
    """A write shows what was there before it, so a read of the same cell has no line of its own; nor has one right after it."""
    program = tmp_path / "program.p4"
    program.write_text(source(
        "bit<8> x; r1.write(2, 5); r1.read(x, 2); r2.read(x, 2); r1.read(x, 2); log_msg(\"here\"); r1.read(x, 2); r2.write(2, x);"
        " log_msg(\"there\"); r1.read(x, 3); r2.read(x, 3); other.read(x, 9); r1.write(2, 6); r2.write(2, 6); other.read(x, 16);",
        ingress_locals="register<bit<8>>(16) r1; register<bit<8>>(16) r2; register<bit<8>>(16) other;"))
    assert ina("trace", program, data().hex()) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if "register" in line or "log_msg" in line]
    assert lines == [
        "register I.r2[2] is 0", "register I.r1[2] = 5 (was 0)", "log_msg(here)",
        "register I.r1[2] is 5", "register I.r2[2] = 5 (was 0)", "log_msg(there)",
        "registers I.r1 .. I.r2, cell 3, are 0 0", "register I.other[9] is 0",
        "registers I.r1 .. I.r2, cell 2 = 6 6 (were 5 5)", "register I.other.read(0x10)",
    ]


@pytest.mark.build
def test_trace_and_stf_say_what_is_no_packet_no_port_and_not_there(program, tmp_path, capsys):
    for arguments, message in (
        (("trace", program, "zz"), "ina: zz: there is no such pcap file, and a frame is hexadecimal digits"),
        (("stf", tmp_path / "no.p4"), f"ina: {tmp_path / 'no.p4'}: No such file or directory"),
        (("stf", program, tmp_path / "no.stf"), f"ina: {tmp_path / 'no.stf'}: No such file or directory"),
    ):
        assert ina(*arguments) == 1
        out, err = capsys.readouterr()
        assert err.startswith(message) and out == ""
    for port in (512, -1):
        with pytest.raises(SystemExit, match="2"):
            ina("trace", program, "00" * 60, "--port", port)
        assert f"argument --port: {port}: expected 0 to 511" in capsys.readouterr().err


@pytest.mark.build
def test_trace_shows_what_changed_in_a_frame(tmp_path, capsys):
    path = tmp_path / "program.p4"
    path.write_text(source("hdr.data.b = 1; hdr.data.e = hdr.data.e + 1;"))
    assert ina("trace", path, data(1, 0x01010102, 3, 4, 5).hex()) == 0
    assert "out of port 1: 12 bytes, changed: 4..7 11" in capsys.readouterr().out


@pytest.mark.build
def test_stf_and_trace_run_a_programs_own_externs(tmp_path, capsys):
    program, test = ROOT / "examples/own_extern/average.p4", tmp_path / "average.stf"
    own = program.with_suffix(".py")
    frame = (1000).to_bytes(4).hex() + "00" * 12
    test.write_text(f"packet 3 {frame}\nexpect 3 {frame[:8]} ******** 0000001f 00000027 $\n")
    assert ina("stf", program, test, "--externs", own) == 0
    assert re.search(r"^average +pass +pass$", capsys.readouterr().out, re.M)
    assert ina("trace", program, frame, "--port", 3, "--externs", own) == 0
    assert "0000001f00000027" in capsys.readouterr().out
    assert ina("stf", program, test) == 1  # without the bodies


@pytest.mark.build
@pytest.mark.parametrize(("order", "magic", "unit"), [("<", 0xA1B2C3D4, 10**6), (">", 0xA1B2C3D4, 10**6),
                                                      ("<", 0xA1B23C4D, 10**9), (">", 0xA1B23C4D, 10**9)])
def test_pcap_files(tmp_path, order, magic, unit):
    path = pcap(tmp_path / "x.pcap", [b"ab", b"cde", b"f"], order, magic, unit)
    records = list(trace.packets(str(path), 2))
    assert [f for _, f in records] == [b"ab", b"cde"]
    assert [t for t, _ in records] == pytest.approx([0, 1])


@pytest.mark.build
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x0a\x0d\x0d\x0a" + bytes(30), "pcapng"),
        (b"hello, this is no capture at all", "is no pcap file"),
        (struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + bytes(9), "cut off in the record at byte 24"),
        (struct.pack("<IHHiIII4I", 0xA1B2C3D4, 2, 4, 0, 0, 9, 1, 0, 0, 5, 5) + b"abc", "cut off in the frame"),
    ],
)
def test_files_that_are_no_captures(program, tmp_path, capsys, content, message):
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    assert ina("trace", program, path) == 1
    assert message in capsys.readouterr().err


@pytest.mark.build
def test_digits_that_are_no_frame(program, capsys):
    assert ina("trace", program, "abc") == 1
    assert "two for each byte" in capsys.readouterr().err
    assert ina("trace", program, "no-such-file") == 1
    assert "no-such-file" in capsys.readouterr().err


@pytest.mark.build
def test_what_the_interpreter_tells_costs_nothing_when_nobody_listens(tmp_path):
    """The default observer accepts every call: each hook exists."""
    from ina.p4.compiler.reference.interpreter import Interpreter

    switch = Interpreter(check(tmp_path, PROGRAM))
    assert switch.process(data(6, 1), 0) == []
    assert switch.registers["r"][3] == 1


# --- the documentation ----------------------------------------------------------------------------------------------

@pytest.mark.build
@pytest.mark.parametrize("block", re.findall(r"^```console\n\$ ina (.*?)^```$", PAGE, flags=re.M | re.S),
                         ids=lambda b: b.split()[0])
def test_output_in_the_documentation_is_real(block, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    command, _, output = block.partition("\n")
    assert ina(*command.split()) == 0
    assert capsys.readouterr().out == output


@pytest.mark.build
def test_the_error_in_the_documentation_is_real(tmp_path, monkeypatch, capsys):
    program = (ROOT / "examples/learn/learn.p4").read_text()
    (tmp_path / "learn.p4").write_text(program.replace("hdr.ethernet.dst: exact", "hdr.ethernet.dts: exact"))
    monkeypatch.chdir(tmp_path)
    assert ina("compile", "learn.p4") == 1
    assert textwrap.indent(capsys.readouterr().err, "    ") in PAGE


@pytest.mark.build
def test_code_in_the_documentation_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    code, extern = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.M | re.S)
    exec(compile(code, "docs/guide/p4.md", "exec"), {})
    frame = bytes.fromhex("000000000002000000000001aabb")
    assert capsys.readouterr().out.splitlines() == [str([(2, frame)]), "1"]
    names = {"UserFunction": UserFunction, "math": math}
    exec(compile(extern, "docs/guide/p4.md", "exec"), names)  # its C is shortened
    assert names["SquareRoot"]().call(11) == (3, 2)


@pytest.mark.build
@pytest.mark.parametrize("path", [path.with_suffix(".p4") for path in files(ROOT / "examples", "**/*.stf")], ids=lambda p: p.stem)
def test_examples_pass_their_tests(path):
    assert ina("stf", path) == 0


@pytest.mark.build
def test_the_pages_c_is_what_comes_out(tmp_path: Path) -> None:
    target = tmp_path / "learn.c"
    assert cli.main(["compile", str(ROOT / "examples/learn/learn.p4"), "--c", str(target), "-o", str(tmp_path / "learn.so")]) == 0
    (listing,) = re.findall(r"^```c\n(.*?)^```$", PAGE, flags=re.M | re.S)
    assert listing in target.read_text()
