"""The STF runner: its syntax, tests that pass, and tests that must fail."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterator

import pytest
from v1_program import check, source

from ina.p4.compiler.build import compile_program
from ina.p4.compiler.p4info import p4info
from ina.p4.compiler.reference.interpreter import Interpreter
from ina.p4.tools import stf_file as stf
from ina.p4.tools.stf import Options
from ina.p4.tools.stf import ports as ports_of
from ina.p4.tools.stf import run as run_test
from ina.p4.tools.stf_target import CompiledTarget, InterpreterTarget

SWITCH = source(
    "t.apply(); u.apply(); c.count((bit<32>)hdr.data.d); r.read(hdr.data.b, 0); sm.mcast_grp = hdr.data.c;"
    "if (hdr.data.d == 9) { clone(CloneType.I2E, 4); }",
    headers="data_t[2] more;",
    ingress_locals="""
    register<bit<32>>(2) r; counter(16, CounterType.packets) c; direct_counter(CounterType.packets) dc;
    action out_to(bit<9> port) { sm.egress_spec = port; }
    action set(bit<8> v) { hdr.data.e = v; }
    table t { key = { hdr.data.a: ternary; hdr.data.isValid(): exact; hdr.more[1].d: exact @name("more[1].d"); }
        actions = { out_to; NoAction; } }
    table u { key = { hdr.data.a: lpm; } actions = { set; NoAction; } counters = dc; }""",
)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory):
    return check(tmp_path_factory.mktemp("stf"), SWITCH)


def run(checked, text: str) -> stf.Result:
    return stf.run(text, InterpreterTarget(Interpreter(checked), p4info.build(checked)))


FILE = """
# the higher priority wins; masks by `*`, names by suffix
add t 10 data.a:0x0a****** data.$valid$:1 out_to(port:2)
add I.t 20 hdr.data.a:0x0a0b**** data.$valid$:1 more$1.d:0 I.out_to(port:3) = $X
add u data.a:0x0a0b0000/16 set(v:0x55) = $U
setdefault u set(v:1)
register_write r 0 0x01020304
packet 0 0a000000 00000000 0000 01 00 ff00
expect 2 0a000000 01020304 0000 01 01 ff00 $
packet 0 0a0b0000 00000000 0000 02 00 0000
expect 3 0a0b**** 01020304 000002 5*
check_counter c(2) packets == 1
check_counter dc($U) packets == 1
check_counter dc($U) bytes == 18
mc_mgrp_create 7
mc_node_create 1 5 6
mc_node_associate 7 0
packet 0 00000000 00000000 0007 03 00 0000
expect 5
expect 6 00000000 01020304 0007
mirroring_add 4 8
packet 1 00000000 00000000 0000 09 00 aabb
expect 8 00000000 00000000 0000 09 00 aabb $
expect 1 00000000 01020304 0000 09 01 aa
register_read r 0
wait
"""


KINDS = [pytest.param("interpreter", marks=pytest.mark.fast), pytest.param("compiled", marks=pytest.mark.build)]


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, checked, tmp_path_factory: pytest.TempPathFactory):
    """The same file judges the reference interpreter and the compiled switch."""
    if request.param == "interpreter":
        yield InterpreterTarget(Interpreter(checked), p4info.build(checked))
        return
    path = tmp_path_factory.mktemp("compiled") / "program.p4"
    path.write_text(SWITCH)
    compiled = CompiledTarget(compile_program(path))
    yield compiled
    compiled.switch.close()


def test_a_file_that_passes(target):
    result = stf.run(FILE, target)
    assert result.failures == []
    assert result.log == ["r[0] = 16909060"]


DIALECT = """setdefault u set(v:1);
packet 0 0a000000 00000000 \\  # the frame goes on
         0000 03 \\
         00 ff00

expect 1 0a000000 00000000 0000 03 01 ff00 $
add t 20 hdr.data.a:0x0a0b**** more$1.d:0 data.$valid$:1 NoAction
add u data.a:0x0a0b0000/16 I.set(v:0x55);
add u data.a:0x0c000000/8 NoAction = $N
register_write r 1 26
check_register r(1) lo = 032
check_register r(1) lo[4:3] == 3
check_register r(1) lo[999999999999:1] = 13
check_register r(1) != 0x1b
check_counter c(3) packets = 1
"""


def test_the_dialect_of_tests_for_tofino(target):
    assert stf.run(DIALECT, target).failures == []
    failures = stf.run("check_register r(1) = 25\ncheck_counter c(3) packets = 2", target).failures
    assert failures == ["register r(1): expected = 25, got 0x1a", "counter c(3): expected packets = 2, got 1"]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("packet 0 000000000000000000000000\nexpect 1 01", "expected 01, got 000000"),
        ("packet 0 000000000000000000000000\nexpect 2", "expected some packet"),
        ("expect 1 00", "expected 1 packet, got 0"),
        ("packet 1 000000000000000000000000", "expected 0 packets, got 1"),
        ("packet 0 000000000000000000000000ff\nexpect 1 000000000000000000000001 $", "expected"),
        ("packet 0 000000000000000000000000ff\nexpect 1 000000000000000000000000 $", "expected"),
        ("packet 0 000000000000000000000000\nexpect 1 00000000000000000000000000", "expected"),
        ("packet 0 000000000000000000000000\ncheck_counter c(0) packets == 2", "got 1"),
    ],
)
def test_what_must_fail(checked, text: str, failure: str):
    result = run(checked, text)
    assert not result.passed
    assert any(failure in f for f in result.failures)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wait\nfly me", "line 2: unknown command 'fly'"),
        ("add nowhere a:1 set(v:1)", "table 'nowhere' is unknown; there are: .*I.u.*; what stands in a control or parser that "
                                     "the program does not use is left out$"),
        ("add u z:1 set(v:1)", "key 'z' is unknown"),
        ("add u data.a:1 fly(v:1)", "action 'fly' is unknown"),
        ("add u data.a:1 set(w:1)", "no parameter 'w'"),
        ("add t data.a:77 out_to(port:1)", "0x, 0o or 0b"),
        ("add u data.a:1", "expected an action"),
        ("remove 3", "only 'remove all'"),
        ("value_set numbers 1", "value set 'numbers' is unknown"),
        ("member shared set(v:1) = m", "action profile 'shared' is unknown"),
        ("packet 0 0a0", "pairs of hexadecimal digits, not '0a0'"),
        ("packet 0 0g", "pairs of hexadecimal digits, not '0g'"),
        ("packet x 00", "'x' is no number"),
        ("packet 0x" + "f" * 5000 + " 00", "is no number of up to 4300 digits"),
        ("expect " + "1" * 5000 + " 00", "is no number of up to 4300 digits"),
        ("wait\nadd u data.a:x/9 set(v:1)", "line 2: 'x' is no number"),
        ("mirroring_add 4", "line 1: cannot do 'mirroring_add 4'"),
        ("wait\nadd set(v:1)", "line 2: cannot do 'add set"),
        ("direct_meter_set_rates u five 1:1 1:1", "entry 'five' is unknown"),
        ("mc_node_create 1 2\nmc_node_associate 7 0", "line 2: multicast group 7 is unknown; there are: none"),
        ("mc_mgrp_create 6\nmirroring_add_mc 4 7", "line 2: multicast group 7 is unknown; there are: 6 "),
        ("mc_mgrp_create 6\nmc_node_associate 6 0", "line 2: node 0 is unknown: mc_node_create has made 0"),
        ("mc_mgrp_create 6\nmc_node_create 1 2\nmc_node_associate 6 -1", "line 3: node -1 is unknown"),
        ("check_counter c(2) packets =< 1", "line 1: '=<' is no comparison; there are: ==,"),
        ("register_read r -1", "line 1: '-1' is no index"),
        ("register_write r -1 1", "line 1: '-1' is no index"),
        ("counter_read c -1", "line 1: '-1' is no index"),
        ("register_read r 99", "line 1: "),
        ("wait\nadd u data.a:0x1/99 set(v:1)", "line 2: "),
        ("add u data.a:0x1/9 set(v:999)", "line 1: "),
        ("setdefault u set()", "line 1: "),
        ("wait \\\n\\\nwait\nfly me", "line 4: unknown command 'fly'"),
        ("check_register r(1) lo", r"cannot read 'check_register r\(1\) lo'"),
        ("check_register r(1) =< 1", "line 1: '=<' is no comparison; there are: ==,"),
        ("check_register q(1) = 1", "register 'q' is unknown"),
        ("check_counter c(16) packets == 0", "counter I.c has the cells 0 to 15, not 16"),
        ("add u data.a:0x0a0b0c0d/16 set(v:1)", "line 1: table I.u: field hdr.data.a: value 0xa0b0c0d has bits outside its mask"),
        ("add t 1 data.a:0x0a&&&0xf0 out_to(port:1)", "line 1: table I.t: field hdr.data.a: value 0xa has bits outside"),
        ("add t 1 more$1.d:-1 data.a:0x** out_to(port:1)", r"field more\[1\].d: -1 does not fit 8 bits: expected 0..255"),
        ("add u data.a:1/32 set(v:-1)", r"table I.u: action I.set\(v\): -1 does not fit 8 bits"),
        ("add u data.a:1/32 set()", "table I.u: action I.set: parameter 'v' is missing"),
        ("setdefault u set(v:256)", r"table I.u: action I.set\(v\): 256 does not fit 8 bits"),
        ("add u data.a:0/0 NoAction\nadd u data.a:0/0 set(v:1)", "line 2: table I.u: there is already an entry with this match$"),
        ("mirroring_add 0 1", "clone session 0: expected 1..65535"),
        ("mirroring_add 1 512", "clone session 1: port: 512 does not fit 9 bits"),
        ("mc_mgrp_create 65536", "multicast group 65536: expected 1..65535"),
        ("packet 511 00", "port 511: expected 0 to 510"),
        ("packet 1 " + 9217 * "00", "a packet of 9217 bytes: expected up to 9216"),
        ("check_register r(1) = x", "'x' is no number"),
        ("check_register r(1) lo[1:2] = 0", r"\[1:2\] has no bits"),
        ("add u data.a:1 fly", "action 'fly' is unknown"),
    ],
)
def test_files_that_cannot_be_run(target, text: str, message: str):
    with pytest.raises(stf.StfError, match=message):
        stf.run(text, target)


RICH = source(
    "t.apply(); u.apply(); g.apply(); v.apply(); k.count(0); c.read(cell, 1); hdr.data.b = cell.a;"
    "m.execute_meter((bit<32>)hdr.data.d, hdr.data.e);"
    "if (hdr.data.d == 1) { digest<pair_t>(1, {hdr.data.a, {1, (int<8>)(hdr.data.e - 4)}}); }"
    "if (hdr.data.d == 9) { clone(CloneType.I2E, 4); }",
    headers="data_t[2] more;",
    types="struct in_t { bit<8> x; int<8> y; } struct pair_t { bit<32> a; in_t b; } struct cell_t { bit<32> a; bool b; }",
    ingress_locals="""
    register<cell_t>(4) c; register<bit<32>>(2) r; meter(4, MeterType.bytes) m; direct_meter<bit<8>>(MeterType.packets) dm;
    direct_counter(CounterType.bytes) dc; counter(4, CounterType.packets) k; register<int<8>>(2) n; cell_t cell;
    action_selector(HashAlgorithm.crc16, 8, 8) s;
    action coloured(bit<8> v) { dm.read(hdr.data.e); } action set(bit<8> v) { hdr.data.e = v; }
    table t { key = { hdr.data.a: exact; } actions = { coloured; NoAction; } meters = dm; counters = dc; }
    action signed(int<8> v) { hdr.data.e = v < 0 ? 8w7 : 8w9; }
    table v { key = { (int<8>)hdr.data.d: exact @name("d"); hdr.data.b: lpm; } actions = { signed; NoAction; } size = 3; }
    table u { key = { hdr.data.a: range; hdr.data.b: optional; } actions = { set; NoAction; } }
    table g { key = { hdr.data.a: exact; hdr.data.b: selector; } actions = { set; NoAction; } implementation = s; }""",
)
RICH_FILE = """add t data.a:1 coloured(v:1) = T
add u 3 data.a:1..4 data.b:2 set(v:0x55) = U
direct_meter_set_rates t T 1:1 2:2
meter_set_rates m 1 0.5:100 1:200
meter_array_set_rates m 1:1 1:1
member s set(v:1) = one
group s one = all
add g data.a:1 group(all) = G
add g data.a:2 member(one)
setdefault u set(v:9)
register_write r 0 7
register_read r 0
register_reset r
counter_read k 0
check_counter k(1) packets == 0
add v d:0xff data.b:0x10000000/4 signed(v:0xfe) = V
add v d:1 data.b:0/0 signed(v:0xfd)
register_write n 1 -2
check_register n(1) == 0xfe
check_counter dc(T) packets >= 0
mc_mgrp_create 7
mc_node_create 1 5 6
mc_node_associate 7 0
mirroring_add 4 8
mirroring_add_mc 4 7
expect_digest pair_t 1 1 -2
packet 0 00000001 00000000 0000 01 00 ff00
expect 1 00000001 0******* 0000 01 02 ff00 $
no_packet 2
remove all
"""
WORDS = ("-1", "0", "x", "0x", str(1 << 40), "9" * 20, "1:2", "$", "a(b)", "a(b:c)", "", "=", "nan:1", "1e400:5", "\t", "1&&&1",
         "/", "..", "511", "c", "U", "one", "data.a:5..1", "\u0663")


def mutated(text: str, seed: int) -> str:
    """A file with one to three words replaced, added, taken away or moved, or a character changed."""
    chosen = random.Random(seed)
    lines = text.split("\n")
    commands = sorted({line.partition(" ")[0] for line in lines})
    for _ in range(chosen.randint(1, 3)):
        i = chosen.randrange(len(lines))
        words = lines[i].split(" ")
        at = chosen.randrange(len(words))
        match chosen.randrange(6):
            case 0:
                del words[at]
            case 1:
                words.insert(at, chosen.choice(WORDS))
            case 2:
                words[at] = chosen.choice(WORDS)
            case 3:
                words[at] = chosen.choice(text.split())
            case 4:
                words[0] = chosen.choice(commands)
            case 5:
                where = chosen.randrange(len(lines[i]) + 1)
                words = [lines[i][:where] + chosen.choice("0123456789abcdefxX$*:()=.-# \t\0é/") + lines[i][where + 1 :]]
        lines[i] = " ".join(words)
    return "\n".join(lines)


def _rich_targets(folder, kind):
    """Returns a function that makes a new switch with the program RICH."""
    checked = check(folder, RICH)
    info = p4info.build(checked)
    if kind == "interpreter":
        return lambda: InterpreterTarget(Interpreter(checked), info)
    (folder / "program.p4").write_text(RICH)
    compiled = compile_program(folder / "program.p4")
    return lambda: CompiledTarget(compiled)


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_names_file_and_line(kind, tmp_path):
    make = _rich_targets(tmp_path, kind)
    bad = [
        "add u data.a:1..2 set(v:1) = X\ndirect_meter_set_rates u X 1:1 1:1", "register_read c 1", "register_write c 1 5",
        "add t data.a:1 coloured(v:1) = X\ndirect_meter_set_rates u X 1:1 1:1",
    ]
    refused = 0
    for text in [*bad, *(mutated(RICH_FILE, seed) for seed in range(300))]:
        target = make()
        with target.switch if kind == "compiled" else contextlib.nullcontext():
            try:
                stf.run(text, target, "folder/bad.stf")
            except stf.StfError as error:
                assert re.match(r"folder/bad\.stf:[0-9]+: .", str(error)), text
                assert "\n" not in str(error), text
                refused += 1
            else:
                assert text not in bad
    assert refused > 100


NUMBERS = ("-1", "0", "0xfe", "-129", "65536", "0x200", "1" + 30 * "0", "nan", "0x1/1", "5..1", "1&&&2")


def replaced(text: str) -> Iterator[str]:
    """Yields files with one number of the text replaced."""
    for number in re.finditer(r"(?<![\w*])-?(0x)?[0-9a-f*.]+(?![\w*])", text):
        for other in NUMBERS:
            yield text[: number.start()] + other + text[number.end() :]


@pytest.mark.build
def test_both_switches_take_and_refuse_the_same(tmp_path):
    """Digests, registers, cells, keys, arguments, groups, sessions and ports: with the same result, or the same error."""
    checked = check(tmp_path, RICH)
    (tmp_path / "program.p4").write_text(RICH)
    compiled = compile_program(tmp_path / "program.p4")

    def result(target, text: str) -> stf.Result | str:
        try:
            return stf.run(text, target, "a.stf")
        except stf.StfError as error:
            return str(error)

    more = "add v d:2 data.b:0/0 signed(v:1)\nadd v d:3 data.b:0/0 signed(v:1)"
    files = [RICH_FILE, f"{more}\n{RICH_FILE}", f"{more}\n{more}", *replaced(RICH_FILE)]
    for text in [*files, *(mutated(RICH_FILE, seed) for seed in range(60))]:
        expected = result(InterpreterTarget(Interpreter(checked), p4info.build(checked)), text)
        target = CompiledTarget(compiled, ports_of(text))
        with target.switch:
            assert result(target, text) == expected, text
        assert text != RICH_FILE or isinstance(expected, stf.Result) and expected.passed


@pytest.mark.parametrize("kind", ["interpreter", "compiled"])
@pytest.mark.build
def test_a_value_set_is_replaced_and_takes_what_fits(tmp_path, kind):
    program, test = tmp_path / "program.p4", tmp_path / "a.stf"
    program.write_text(source(
        parser_locals="value_set<bit<8>>(2) v;",
        parser="""state start { p.extract(hdr.data); transition select(hdr.data.d) { v: member; default: accept; } }
            state member { hdr.data.e = 1; transition accept; }""",
    ))
    for text, outcome in (
        ("value_set v 1 2\nvalue_set v 3" + "".join(f"\npacket 0 00000000 00000000 0000 {d:02x} 00"
                                                   f"\nexpect 1 00000000 00000000 0000 {d:02x} {d == 3:02x}" for d in (1, 2, 3)),
         ("pass", "")),
        ("value_set v 1 2 3", ("no run", f"{test}:1: value set P.v: 3 members, it has room for 2")),
        ("value_set v 256", ("no run", f"{test}:1: value set P.v: 256 does not fit 8 bits: expected 0..255")),
    ):
        test.write_text(text)
        assert run_test(program, test, kind, Options({}, [])) == outcome


@pytest.mark.fast
def test_what_the_program_cannot_do_with_a_packet_names_the_line(tmp_path):
    checked = check(tmp_path, source("unknown(hdr.data.a);", types="extern void unknown(in bit<32> x);"))
    with pytest.raises(stf.StfError, match=r"^a.stf:2: .*p4:[0-9]+:[0-9]+: .*unknown"):
        target = InterpreterTarget(Interpreter(checked), p4info.build(checked))
        stf.run("wait\npacket 0 000000000000000000000000", target, "a.stf")


@pytest.mark.fast
def test_a_file_that_is_not_utf_8_names_the_line(tmp_path):
    check(tmp_path, SWITCH)
    program, test = tmp_path / "program.p4", tmp_path / "a.stf"
    program.write_text(SWITCH)
    test.write_bytes(b"wait\nwait\n# \xff\n")
    assert run_test(program, test, "interpreter", Options({}, [])) == ("no run", f"{test}:3: not UTF-8: invalid start byte")


def test_a_port_that_only_no_packet_names(target):
    """The port is watched although no other command names it."""
    sent = "packet 0 000000000000000000000000"
    assert stf.run(f"{sent}\nno_packet", target).passed
    assert stf.run(f"{sent}\nexpect 1\nno_packet 1\nno_packet 2", target).passed
    (failure,) = stf.run(f"{sent}\nno_packet 1", target).failures
    assert failure.startswith("port 1: expected 0 packets, got 1")
    with pytest.raises(stf.StfError, match="line 1: 'one' is no number"):
        stf.run("no_packet one", target)


@pytest.mark.build
def test_packets_come_a_millisecond_apart_on_both(tmp_path):
    """A counter-example that depends on time can be repeated on either."""
    program = check(tmp_path, source("hdr.data.a = (bit<32>)sm.ingress_global_timestamp;"))
    text = "".join(f"packet 0 00000000 00000000 0000 00 00\nexpect 1 {1000 * n:08x}\n" for n in (1, 2, 3))
    assert stf.run(text, InterpreterTarget(Interpreter(program), p4info.build(program))).failures == []
    compiled = CompiledTarget(compile_program(tmp_path / "program.p4"))
    assert stf.run(text, compiled).failures == []
    compiled.switch.close()


@pytest.mark.fast
def test_match_values():
    assert stf.match_value("LPM", "0x0a0b/12") == (0x0A0B, 12)
    assert stf.match_value("LPM", "0x0a**") == (0x0A00, 8)
    assert stf.match_value("TERNARY", "0b1*0") == (0b100, 0b101)
    assert stf.match_value("TERNARY", "0x1&&&0xF") == (1, 15)
    assert stf.match_value("EXACT", "12") == 12
    assert stf.match_value("RANGE", "3..5") == (3, 5)


@pytest.mark.fast
def test_a_port_that_no_switch_has_is_not_made():
    assert max(ports_of("packet 40 00\npacket " + "1" * 5000 + " 00")) == 40
