"""`ina compile`, `ina explain`, `ina trace` and `ina stf` on TNA programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tna_program import data, source

from ina import cli
from ina.p4.compiler.build import compile_program
from ina.p4.runtime import Switch
from ina.p4.runtime.entities import TableEntry, insert
from ina.p4.tools import stf

pytestmark = pytest.mark.build
PROGRAM = {
    "types": """struct pair_t { bit<32> first; bit<32> second; } header bridge_h { bit<8> kind; @flexible bit<9> port; }
        header mirror_h { bit<8> kind; }""",
    "headers": "bridge_h bridge;",
    "ingress_locals": """Register<pair_t, bit<8>>(16, {5, 7}) r;
        RegisterAction<pair_t, bit<8>, bit<32>>(r) add = { void apply(inout pair_t v, out bit<32> x) {
            v.first = v.first + hdr.data.b; x = v.first; } };
        action to(PortId_t port) { tm.ucast_egress_port = port; }
        table t { key = { hdr.data.a: exact; } actions = { to; NoAction; } size = 16; }""",
    "ingress": """t.apply(); hdr.data.b = add.execute(3); hdr.bridge.setValid(); hdr.bridge.port = intr.ingress_port;
        if (hdr.data.e == 1) { dprsr.mirror_type = 1; } if (hdr.data.e == 2) { dprsr.drop_ctl = 1; }""",
    "deparser_locals": "Mirror() mirror;",
    "deparser": "if (dprsr.mirror_type == 1) { mirror.emit<mirror_h>(5, {9}); } pkt.emit(hdr);",
    "egress_parser": """state start { pkt.extract(intr);
            transition select(pkt.lookahead<bit<8>>()) { 9: mirrored; default: plain; } }
        state mirrored { pkt.advance(8); pkt.extract(hdr.data); transition accept; }
        state plain { pkt.extract(hdr.bridge); pkt.extract(hdr.data); transition accept; }""",
    "egress": "hdr.data.c = (bit<16>)hdr.bridge.port; hdr.bridge.setInvalid();",
}


def ina(*args: object) -> int:
    return cli.main([str(a) for a in args])


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.p4"
    path.write_text(source(**PROGRAM))
    return path


def test_compile(program: Path, tmp_path: Path, capsys) -> None:
    assert ina("compile", program, "--p4info", tmp_path / "p4info.txtpb", "-o", tmp_path / "program.so") == 0
    assert "1 table, 2 registers" in capsys.readouterr().err
    assert 'arch: "tna"' in (tmp_path / "p4info.txtpb").read_text() and (tmp_path / "program.so").exists()


def test_explain(program: Path, capsys) -> None:
    assert ina("explain", program) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{program}: Switch\n") and output.count("hdr.bridge: bridge_h, 3 bytes") == 1
    assert "parser IP\n" in output and "parser EP\n" in output and "    I.t  (" in output
    assert "register I.r.first: 16 x bit<32>" in output


def test_explain_of_several_pipelines(program: Path, capsys) -> None:
    text = program.read_text()
    more = "Pipeline(IP(), I(), ID(), EP(), E(), ED()) other; Switch(pipe, other) main;"
    program.write_text(text.replace("Switch(pipe) main;", more))
    assert ina("explain", program) == 0
    output = capsys.readouterr().out
    assert "--- pipeline pipe\n" in output and "--- pipeline other\n" in output and "    other.I.t  (" in output


def test_trace(program: Path, tmp_path: Path, capsys) -> None:
    entries = tmp_path / "entries.stf"
    entries.write_text("add t hdr.data.a:1 to(port:68)\nadd t hdr.data.a:2 to(port:7)\nmirroring_add 5 9\n")
    assert ina("trace", program, data(2, 10, e=1).hex(), "--entries", entries, "--port", 130) == 0
    output = capsys.readouterr().out
    assert "ingress of pipe 1 (normal)" in output and "table I.t [hdr.data.a=2]: hit entry 2, to(port=7)" in output
    assert "register I.r.first[3] = 0xf (was 5)\n    register I.r.second[3] = 7 (unchanged)" in output
    assert "egress of pipe 0 to port 9, rid 0 (mirrored)\n    parser EP: start > mirrored > accept" in output
    assert f"out of port 7: 12 bytes, changed: 7 9\n    {data(2, 15, 130, 0, 1).hex()}" in output
    assert f"out of port 9: 12 bytes, unchanged\n    {data(2, 10, e=1).hex()}" in output
    assert ina("trace", program, data(9, e=2).hex(), "--entries", entries) == 0
    assert "dropped: ingress" in capsys.readouterr().out
    assert ina("trace", program, data()[:11].hex()) == 0
    output = capsys.readouterr().out
    assert "error.PacketTooShort" in output and "dropped: parser" in output


def test_recirculation_ends(program: Path, tmp_path: Path, capsys) -> None:
    entries = tmp_path / "entries.stf"
    entries.write_text("add t hdr.data.a:1 to(port:68)\n")
    assert ina("trace", program, data(1).hex(), "--entries", entries) == 0
    output = capsys.readouterr().out
    assert "dropped: pass_limit" in output
    passes = output.count("ingress of pipe")
    assert output.count("(recirculated)") == 2 * (passes - 1)  # ingress and egress
    with Switch(compile_program(program).so_path) as switch:  # as often as in the embedded switch
        switch.add_port(0)
        switch.write(insert(TableEntry("I.t", {"hdr.data.a": 1}, "I.to", {"port": 68})))
        assert switch.step(data(1), 0) == [] and switch.port_stats(68).tx_packets == passes


def test_stf(program: Path, capsys) -> None:
    program.with_suffix(".stf").write_text(
        f"add t hdr.data.a:2 to(port:3)\npacket 4 {data(2, 10).hex()}\nexpect 3 {data(2, 15, 4).hex()}\n"
    )
    assert ina("stf", program) == 0 and ina("stf", program.parent) == 0
    assert "compiled: 1 pass" in capsys.readouterr().out


STF = """add I.t hdr.data.e:1 I.hit() = A
packet 0 00000005 00000000 0000 00 01
expect 1 00000005 00000000 0000 00 01 $
packet 0 00000006 00000000 0000 00 01 ffff
expect 1 00000006 00000000 0000 00 01 ffff $
check_register r(2) lo = 11
check_register I.r(2) hi = 0x2
check_counter d($A) packets = 2
check_counter d($A) bytes = 34
check_counter c(1) bytes = 34
"""


@pytest.mark.parametrize("target", ["interpreter", "compiled"])
def test_stf_reads_the_state_of_a_pipe(tmp_path: Path, target: str) -> None:
    """Counters of a Tofino count the frame check sequence, which is there once: 12 + 4 and 14 + 4 bytes."""
    path, test = tmp_path / "program.p4", tmp_path / "program.stf"
    path.write_text(source(types="struct pair_t { bit<32> first; bit<32> second; }", ingress_locals="""
        Register<pair_t, bit<8>>(4) r; DirectCounter<bit<32>>(CounterType_t.PACKETS_AND_BYTES) d;
        Counter<bit<32>, bit<8>>(4, CounterType_t.PACKETS_AND_BYTES) c;
        RegisterAction<pair_t, bit<8>, bit<32>>(r) add = {
            void apply(inout pair_t v) { v.first = v.first + hdr.data.a; v.second = v.second + 1; } };
        action hit() { d.count(); add.execute(2); c.count(1); }
        table t { key = { hdr.data.e: exact; } actions = { hit; NoAction; } counters = d; }""", ingress="t.apply();"))
    test.write_text(STF)
    assert stf.run(path, test, target, stf.Options({}, [])) == ("pass", "")
    test.write_text("packet 255 00\nexpect 256")
    assert stf.run(path, test, target, stf.Options({}, [])) == ("FAIL", "port 256: expected some packet, got none")
    for text, message in (
        ("packet 256 00", "1: port 256: expected 0 to 255"),
        ("mc_mgrp_create 1\nmc_node_create 0 300\nmc_node_associate 1 0",
         "3: multicast group 1: port 300 is none of this switch's 2 pipes"),
        ("mirroring_add 1024 1", "1: clone session 1024: expected 1..1023"),
    ):
        test.write_text(text)
        assert stf.run(path, test, target, stf.Options({}, [])) == ("no run", f"{test}:{message}")


@pytest.fixture(scope="module")
def registers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("registers") / "program.p4"
    path.write_text(source(types="""struct pair_t { int<8> first; bit<8> second; } struct one_t { bit<32> x; } type bit<16> new_t;
        struct three_t { bit<8> x; bit<8> y; bit<8> z; } struct nested_t { pair_t p; bit<8> q; }""", ingress_locals="""
        Register<pair_t, bit<8>>(4) p; Register<int<8>, bit<8>>(4) s; Register<bit<16>, bit<8>>(4) u;
        Register<int<64>, bit<8>>(4) w; Register<new_t, bit<8>>(4) n; Register<one_t, bit<8>>(4) one;
        Register<three_t, bit<8>>(4) three; Register<nested_t, bit<8>>(4) nested;
        RegisterAction<int<8>, bit<8>, bit<8>>(s) less = { void apply(inout int<8> v) { v = v - 5; } };
        RegisterAction<int<64>, bit<8>, bit<8>>(w) wide = { void apply(inout int<64> v) { v = v - 5; } };
        RegisterAction<pair_t, bit<8>, bit<8>>(p) both = {
            void apply(inout pair_t v) { v.first = v.first - 5; v.second = 7; } };""",
        ingress="less.execute(1); wide.execute(1); both.execute(1);"))
    return path


@pytest.mark.parametrize("target", ["interpreter", "compiled"])
@pytest.mark.parametrize(("text", "outcome"), [
    ("check_register s(1) = -5", "pass"), ("check_register s(1) lo = -005", "pass"), ("check_register s(1) = 0xfb;", "pass"),
    ("check_register s(1) < 0", "pass"), ("check_register s(1) > -0x6", "pass"), ("check_register s(1) <= 0xfb", "pass"),
    ("check_register s(1) != 0xfb", "register s(1): expected != 0xfb, got -5 (0xfb)"),
    ("check_register s(1) = 300", "register s(1): expected = 300, got -5 (0xfb)"),
    ("check_register s(1) lo[7:4] = 0xf", "pass"), ("check_register s(1)[99:1] = 0x7d", "pass"),
    ("check_register w(1) = -5", "pass"), ("check_register w(1) = 0xfffffffffffffffb", "pass"),
    ("check_register p(1) lo = -5", "pass"), ("check_register p(1) hi > 6", "pass"), ("check_register n(1) = 0", "pass"),
    ("check_register one(1) lo = 0", "pass"), ("check_register u(1) < 0", "register u(1): expected < 0, got 0x0"),
    ("register_write s 1 -3\ncheck_register s(1) = 0xfd", "pass"),
    ("register_write s 1 0xfd;\ncheck_register s(1) = -3;", "pass"),
    ("register_reset s;\ncheck_register s(1) = 0", "pass"), ("wait; # a comment\n;\nno_packet 3 ;", "pass"),
    ("check_register s(1) hi = 5", "2: the cells of register I.s are no pairs: they have no hi"),
    ("check_register one(1) hi = 5", "2: the cells of register I.one are no pairs: they have no hi"),
    ("check_register p(1) = 5", "2: the cells of register I.p are pairs: name lo or hi"),
    ("check_register three(1) lo = 0", "2: the cells of register I.three are neither numbers nor pairs of numbers"),
    ("check_register nested(1) hi = 0", "2: the cells of register I.nested are neither numbers nor pairs of numbers"),
    ("check_register s(4) = 0", "2: register I.s has the cells 0 to 3, not 4"),
    ("check_register s(-1) = 0", "2: '-1' is no index of a cell"),
    ("register_write s 1 300", "2: 300 does not fit int<8>"), ("register_write s 1 -129", "2: -129 does not fit int<8>"),
    ("register_write u 1 -1", "2: -1 does not fit bit<16>"),
    ("register_write u 4 1", "2: register I.u has the cells 0 to 3, not 4"),
    ("register_write p 1 1", "2: the cells of register I.p are no numbers; check_register reads their halves, lo and hi"),
    ("register_reset three", "2: the cells of register I.three are no numbers"),
    ("register_read one 1", "2: the cells of register I.one are no numbers"),
])
def test_stf_commands_of_registers(registers: Path, tmp_path: Path, text: str, outcome: str, target: str) -> None:
    test = tmp_path / "program.stf"
    test.write_text(f"packet 0 {data().hex()}\n{text}\n")
    verdict, reason = stf.run(registers, test, target, stf.Options({}, []))
    assert (reason.removeprefix(f"{test}:") if reason else verdict) == outcome
