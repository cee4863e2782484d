"""Iterations of unbounded loops are counted for each packet, equally in the compiled program and in the interpreter; beyond the
limit the packet is dropped with its own reason."""

from __future__ import annotations

import pytest
from shadow import Shadowed
from v1_program import data, source

from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.frontend import load
from ina.p4.compiler.generate import generate

pytestmark = pytest.mark.build
MAIN = "V1Switch("
COUNT = "bit<16> count(inout bit<16> n) { n = n + 1; return n; }"


def switch(tmp_path, limit: int | None = None, **parts: str) -> Shadowed:
    path = tmp_path / "program.p4"
    note = "" if limit is None else f"@loop_limit({limit}) "
    path.write_text(source(**parts).replace(MAIN, note + MAIN))
    return Shadowed(path, cflags=["-O1"])


def ends(pair: Shadowed, frame: bytes) -> str:
    """Returns "sent", or the reason of the drop; asserts that both agree."""
    interpreted_before = dict(pair.drops)
    compiled_before = pair.switch.port_stats(3).drops
    sent = pair.process(frame, port=3)
    reasons = [reason for reason, n in pair.drops.items() if n > interpreted_before.get(reason, 0)]
    compiled = [r for r, n in pair.switch.port_stats(3).drops.items() if n > compiled_before[r]]
    assert reasons == compiled == ([] if sent else reasons)
    return "sent" if sent else reasons[0]


UNBOUNDED = "for (bit<32> i = 0; true; i = i + 1) { hdr.data.c = hdr.data.c + 1; if (hdr.data.c == 0) { break; } }"


def test_a_loop_without_end_drops_its_packet_and_no_other(tmp_path):
    pair = switch(tmp_path, ingress=f"if (hdr.data.d == 1) {{ {UNBOUNDED} }}")
    assert ends(pair, data(d=1)) == "loop_limit"
    assert ends(pair, data(d=2)) == "sent"
    assert ends(pair, data(c=0xFFFF - 9000, d=1)) == "sent"  # 9001 rounds


@pytest.mark.parametrize("limit", [1, 7, 300])
def test_the_limit_is_exact(tmp_path, limit):
    pair = switch(tmp_path, limit, ingress="for (bit<16> i = 0; i < hdr.data.c; i += 1) { hdr.data.e = hdr.data.e + 1; }")
    assert ends(pair, data(c=limit)) == "sent"
    assert ends(pair, data(c=limit + 1)) == "loop_limit"


def test_loops_share_the_limit_and_passes_do_not(tmp_path):
    loop = "for (bit<16> i in 1 .. hdr.data.c) { hdr.data.e = hdr.data.e + 1; }"
    pair = switch(tmp_path, 10, ingress=loop + loop, egress=loop + loop)
    assert ends(pair, data(c=5)) == "sent"  # 10 rounds in ingress, 10 in egress
    assert ends(pair, data(c=6)) == "loop_limit"


def test_rounds_in_egress_end_a_copy(tmp_path):
    pair = switch(tmp_path, 5, egress="if (sm.egress_port == 1) { for (bit<16> i in 1 .. hdr.data.c) { hdr.data.e = 1; } }")
    pair.multicast_groups[1] = [(1, 0), (2, 0)]
    assert pair.process(data(c=6)) == [] and pair.switch.port_stats(1).drops["loop_limit"] == 1


BOUNDED = {
    "a constant range": "for (bit<16> i in 1 .. 50) { hdr.data.c = hdr.data.c + 1; }",
    "a counter": "for (bit<16> i = 0; i < 50; i = i + 1) { hdr.data.c = hdr.data.c + 1; }",
    "a counter downwards": "for (bit<16> i = 50; i > 0; i -= 1) { hdr.data.c = hdr.data.c + 1; }",
    "a signed one": "for (int<16> i = -25; i != 25; i = i + 1) { hdr.data.c = hdr.data.c + 1; }",
    "one in another": "for (bit<8> i in 1 .. 10) { for (bit<8> k = 0; k < 5; k += 1) { hdr.data.c = hdr.data.c + 1; } }",
}
COUNTED = {
    "a range of the packet's": "for (bit<16> i in 1 .. hdr.data.b[15:0]) { hdr.data.c = hdr.data.c + 1; }",
    "a counter that the body changes": (
        "for (bit<16> i = 0; i < 51; i = i + 1) { hdr.data.c = hdr.data.c + 1; i[15:8] = hdr.data.b[31:24]; }"),
    "a counter that a call changes": "for (bit<16> i = 0; i < 102; i = i + 1) { hdr.data.c = hdr.data.c + 1; count(i); }",
    "a counter that wraps": (
        "for (bit<4> i = 0; i <= 15; i = i + 1) { hdr.data.c = hdr.data.c + 1; if (hdr.data.c == 51) { break; } }"),
    "too many in all": (
        "for (bit<8> i in 1 .. 3) { for (bit<8> k = 0; k < 17; k += 1) { hdr.data.c = hdr.data.c + 1; } }"),
    "one in a counted one": (
        "for (bit<16> i in 1 .. hdr.data.b[15:0]) { for (bit<8> k in 1 .. 2) { hdr.data.c = hdr.data.c + 1; } }"),
}


@pytest.mark.parametrize("case", BOUNDED)
def test_bounded_loops_cost_nothing(tmp_path, case):
    pair = switch(tmp_path, 50, ingress=BOUNDED[case] * 3)
    assert pair.process(data()) == [(1, data(c=150))]
    assert "rounds" not in pair.compiled.c_path.read_text()


@pytest.mark.parametrize("case", COUNTED)
def test_other_loops_are_counted(tmp_path, case):
    pair = switch(tmp_path, 50, types=COUNT, ingress=COUNTED[case])
    assert ends(pair, data(b=51)) == "loop_limit"


PARSERS = {
    "a state alone": ("state start { p.extract(hdr.data); transition select(hdr.data.d) { 1: wait; default: accept; } }"
                      " state wait { transition wait; }", "loop_limit"),
    "states that look": ("state start { p.extract(hdr.data); transition look; }"
                         " state look { transition select(p.lookahead<bit<8>>()) { 1: again; default: accept; } }"
                         " state again { hdr.data.e = hdr.data.e + 1; transition look; }", "loop_limit"),
    "states that take": ("state start { p.extract(hdr.data); transition look; }"
                         " state look { transition select(p.lookahead<bit<8>>()) { 1: again; default: accept; } }"
                         " state again { p.advance(8); hdr.data.e = hdr.data.e + 1; transition look; }", "sent"),
}


@pytest.mark.parametrize("case", PARSERS)
def test_parsers(tmp_path, case):
    parser, outcome = PARSERS[case]
    pair = switch(tmp_path, 40, parser=parser)
    assert ends(pair, data(d=1) + b"\x01" * 60 + b"\0") == outcome
    assert ends(pair, data(d=2) + b"\0") == "sent"


@pytest.mark.parametrize("note", ["@loop_limit", "@loop_limit(0)", '@loop_limit("x")', "@loop_limit(4294967295)"])
def test_limits_that_are_none(tmp_path, note):
    path = tmp_path / "program.p4"
    path.write_text(source().replace(MAIN, f"{note} {MAIN}"))
    with pytest.raises(CompileError, match="@loop_limit takes a number of rounds, 1 to 4294967294"):
        generate(load(path))
