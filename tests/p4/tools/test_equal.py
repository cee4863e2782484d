"""`ina p4 equal`: twins are found equal, and every planted defect is shown by a few packets that `ina stf` can repeat."""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import tna_program
import v1_program
from capabilities import need
from twin_plants import PACKETS, PLANTS, copy_with, search

from ina import cli
from ina.base.documents import document
from ina.base.paths import p4_dir
from ina.p4.compiler import frontend
from ina.p4.tools.equal.mapping import SECTIONS, load, permutation
from ina.p4.tools.equal.shapes import Shapes

pytestmark = pytest.mark.build
need("cc")

# A slot records its voters; when both have voted, a multicast announces it and the slot is free.
V1MODEL = v1_program.source(
    """if (hdr.data.isValid() && hdr.data.d == 7 && members.apply().hit) {
        bit<8> now; bit<32> slot = (bit<32>)hdr.data.e[3:0];
        votes.read(now, slot); now = now | mask; votes.write(slot, now); hdr.data.c = 8w0 ++ now; hdr.data.b = 7;
        sm.egress_spec = sm.ingress_port;
        if (now == 3) { votes.write(slot, 0); sm.mcast_grp = 9; digest<told_t>(1, {hdr.data.a, now}); }
        seen.count(0);
    } else { mark_to_drop(sm); }""",
    types="struct told_t { bit<32> who; bit<8> votes; }",
    ingress_locals="""register<bit<8>>(16) votes; counter(4, CounterType.packets) seen; bit<8> mask = 0;
    action admit(bit<8> bits) { mask = bits; } action refuse() { }
    table members { key = { hdr.data.a: exact; sm.ingress_port: exact; } actions = { admit; refuse; }
                    default_action = refuse(); }""",
)
TOFINO = tna_program.source(
    """if (hdr.item.isValid() && hdr.item.d == 7 && voters.apply().hit) {
        hdr.item.c = 8w0 ++ vote.execute(hdr.item.e[3:0]); hdr.item.b = 7;
        tm.ucast_egress_port = intr.ingress_port;
        if (hdr.item.c == 3) { invalidate(tm.ucast_egress_port); tm.mcast_grp_a = 9; dprsr.digest_type = 1; }
        heard.count(0);
    } else { dprsr.drop_ctl = 1; }""",
    types="struct told_t { bit<32> who; bit<16> votes; }",
    ingress_locals="""
    Register<bit<8>, bit<4>>(16, 0) state; Counter<bit<32>, bit<2>>(4, CounterType_t.PACKETS) heard; bit<8> mask = 0;
    RegisterAction<bit<8>, bit<4>, bit<8>>(state) vote = { void apply(inout bit<8> v, out bit<8> x) {
        v = v | mask; x = v; if (v == 3) { v = 0; } } };
    action allow(bit<8> which) { mask = which; } action no() { }
    table voters { key = { hdr.item.a: exact; intr.ingress_port: exact @name("in_port"); }
                   actions = { allow; no; } default_action = no(); size = 64; }""",
    deparser_locals="Digest<told_t>() digest;",
    deparser="if (dprsr.digest_type == 1) { digest.pack({hdr.data.a, hdr.data.c}); } pkt.emit(hdr);",
).replace("hdr.data", "hdr.item").replace("data_h data;", "data_h item;")
MAPPING = """[entries]
both = "votes.stf"
[headers]
"hdr.data" = "hdr.item"
[tables."I.members"]
table = "I.voters"
keys = { "sm.ingress_port" = "in_port" }
actions = { admit = "allow", refuse = "no" }
params = { bits = "which" }
[counters]
"I.seen" = "I.heard"
[registers]
"I.votes" = "I.state"
[ports]
"1" = 33
[packets]
largest = { "hdr.data.c" = 255 }
"""
ENTRIES = """
add members hdr.data.a:100 sm.ingress_port:0 admit(bits:1)
add members hdr.data.a:200 sm.ingress_port:1 admit(bits:2)
mc_mgrp_create 9
mc_node_create 1 0 1
mc_node_associate 9 0
"""
PACKET = "packet 0 00000064 00000000 0000 07 02\n"
LONG = ("--minutes", "100", "--shrink", "6000")  # no time ends what is not about time
QUICK = ("--sequences", "300", "--length", "12", *LONG)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("a.p4", V1MODEL), ("b.p4", TOFINO), ("twins.toml", MAPPING), ("votes.stf", ENTRIES)):
        (tmp_path / name).write_text(text)
    return tmp_path


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def ticking(monkeypatch) -> None:
    """A clock for the search: each look at it takes a millisecond."""
    looks = itertools.count()
    monkeypatch.setattr("ina.p4.tools.equal.search.time", SimpleNamespace(monotonic=lambda: next(looks) / 1000))


def equal(folder: Path, *more: str) -> int:
    return cli.main(["p4", "equal", f"{folder}/a.p4", f"{folder}/b.p4", "--mapping", f"{folder}/twins.toml",
                     "--stf", f"{folder}/differs.stf", *QUICK, *more])


@pytest.mark.parametrize("packets", ["", PACKET], ids=["packets from the parser", "packets of the file"])
def test_twins_with_other_names_are_equal(folder, packets, capsys):
    (folder / "votes.stf").write_text(ENTRIES + packets)
    assert equal(folder) == 0
    out = capsys.readouterr().out
    assert "no difference" in out
    assert int(re.search(r"([\d,]+) ways through", out)[1]) > 3, "some packets did something"


DEFECTS = {
    "the slot is not freed": ("if (v == 3) { v = 0; }", "", 3, r"packet \d: port \d|register votes\[\d+\]"),
    "a voter's bit is not kept": ("v = v | mask; x = v;", "x = v | mask;", 2, r"register votes\[\d+\]|port"),
    "everybody is told by another group": ("tm.mcast_grp_a = 9", "tm.mcast_grp_a = 10", 2, r"port 0: A sends a frame, B nothing"),
    "the digest has another voter": ("digest.pack({hdr.item.a", "digest.pack({hdr.item.a + 1", 2, r"A: .*B: "),
    "nobody is counted": ("heard.count(0);", "", 1, r"counter seen\[0\]: A 1, B 0"),
    "an answer says something else": ("hdr.item.b = 7", "hdr.item.b = 8", 1, r"data.b: A 0x7, B 0x8"),
}


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.parametrize("packets", ["", PACKET], ids=["packets from the parser", "packets of the file"])
def test_defects_of_a_twin_are_found_and_repeated_by_stf(folder, name, packets, capsys):
    old, new, most, text = DEFECTS[name]
    replaced(folder / "b.p4", old, new)
    (folder / "votes.stf").write_text(ENTRIES + packets)
    assert equal(folder) == 1
    out = capsys.readouterr().out
    assert re.search(text, out.partition("first difference")[2]), out
    assert 1 <= len(re.findall(r"^packet \d+ into port", out, re.M)) <= most, out
    commands = re.findall(r"ina stf (\S+) (\S+)", out)
    assert [Path(program).name for program, _ in commands] == ["a.p4", "b.p4"]
    if "register votes" in out.partition("first difference")[2]:
        return  # STF cannot expect what a register holds
    assert cli.main(["stf", *commands[0]]) == 0, "A answers as the test expects"
    assert cli.main(["stf", *commands[1]]) == 1, "B does not"


def test_the_interpreter_finds_the_same(folder, capsys):
    replaced(folder / "b.p4", "if (v == 3) { v = 0; }", "")
    replaced(folder / "twins.toml", '[registers]\n"I.votes" = "I.state"\n', "")
    (folder / "votes.stf").write_text(ENTRIES + PACKET + "packet 1 000000c8 00000000 0000 07 02\n")
    assert equal(folder, "--interpreter", "--depth", "3") == 1
    difference = capsys.readouterr().out.partition("packet 1 into")[2].partition("Again")[0]
    assert equal(folder, "--depth", "3") == 1
    assert capsys.readouterr().out.partition("packet 1 into")[2].partition("Again")[0] == difference


def test_a_seed_says_which_packets(folder, capsys):
    replaced(folder / "b.p4", "if (v == 3) { v = 0; }", "")
    outs = []
    for seed in ("3", "3", "4"):
        assert equal(folder, "--depth", "0", "--seed", seed) == 1
        outs.append(re.sub(r"[\d.]+ s$", "", capsys.readouterr().out, flags=re.M))
    assert outs[0] == outs[1] != outs[2]


def test_they_differ_also_where_no_test_can_be_written(folder, capsys):
    replaced(folder / "b.p4", "hdr.item.b = 7", "hdr.item.b = 8")
    assert equal(folder, "--stf", f"{folder}/nowhere/differs.stf") == 1
    output = capsys.readouterr()
    assert "first difference" in output.out and f"{folder}/nowhere/differs.stf: No such file" in output.err


def test_differences_that_are_meant(folder, capsys):
    replaced(folder / "b.p4", "hdr.item.b = 7", "hdr.item.b = 8")
    replaced(folder / "b.p4", "digest.pack({hdr.item.a", "digest.pack({hdr.item.a + 1")
    (folder / "twins.toml").write_text(MAPPING + '[differences]\nignore = ["hdr.data.b"]\ndigests = false\n')
    assert equal(folder) == 0
    assert "no difference" in capsys.readouterr().out


def test_copies_of_one_port_may_be_in_any_order(tmp_path, capsys):
    """Two copies to port 1 with different replication ids, which the second program swaps."""
    text = v1_program.source("sm.mcast_grp = 9;", egress="if (hdr.data.isValid()) { hdr.data.c = sm.egress_rid; }")
    (tmp_path / "a.p4").write_text(text)
    (tmp_path / "b.p4").write_text(text.replace("= sm.egress_rid", "= 3 - sm.egress_rid"))
    (tmp_path / "votes.stf").write_text("mc_mgrp_create 9\nmc_node_create 1 1\nmc_node_create 2 1\nmc_node_associate 9 0\n"
                                        "mc_node_associate 9 1\n")
    (tmp_path / "twins.toml").write_text('[entries]\nboth = "votes.stf"\n')
    assert equal(tmp_path) == 1
    assert "port 1, frame 1: data.c: A 0x1, B 0x2" in capsys.readouterr().out
    replaced(tmp_path / "twins.toml", "[entries]", '[differences]\norder = "any"\n[entries]')
    assert equal(tmp_path) == 0

SELECTOR = """action go(bit<9> port) { sm.egress_spec = port; } action_selector(HashAlgorithm.crc16, 8, 4) chosen;
table t { key = { hdr.data.a: exact; hdr.data.b: selector; } actions = { go; NoAction; } implementation = chosen; }"""
RANGES = v1_program.TABLE % ("hdr.data.a: ternary; hdr.data.b: range;",
                             "const entries = { (0x12340000 &&& 0xffff0000, 500..LAST): set(9); }")
TOLD = "struct one_t { bit<32> a; } struct two_t { bit<32> a; }"
JUMP = "state start { p.extract(hdr.data); transition select(hdr.data.a) { 0xcafe1234: jump; default: accept; } }"
VALUES = """state start { p.extract(hdr.data); transition select(hdr.data.a) { values: found; default: accept; } }
state found { meta.found = 1; transition accept; }"""
SUBTLE = {  # A; B; lines of the STF file
    "packets of one port": (v1_program.source("if (sm.ingress_port == 100) { hdr.data.e = 1; }"), v1_program.source(), ""),
    "an entry for one port": (
        *(v1_program.source("t.apply();", ingress_locals=v1_program.TABLE % ("sm.ingress_port: exact;", text))
          for text in ("const entries = { 77: set(8); }", "const entries = { 77: set(9); }")), ""),
    "a number that a copy of a field is compared with": (
        v1_program.source("bit<32> x = hdr.data.a; if (x == 0xdeadbe01) { hdr.data.e = 1; }"), v1_program.source(), ""),
    "a case of a switch statement": (
        v1_program.source("switch (hdr.data.a) { 0xdeadbe02: { hdr.data.e = 1; } default: {} }"), v1_program.source(), ""),
    "a case that only the parser of B has": (
        v1_program.source(), v1_program.source(parser=JUMP + "state jump { p.advance(8); transition accept; }"), ""),
    "the end of a range": (
        *(v1_program.source("t.apply();", ingress_locals=RANGES.replace("LAST", last)) for last in ("600", "599")), ""),
    "packets of one length": (v1_program.source("if (sm.packet_length == 777) { hdr.data.e = 1; }"), v1_program.source(), ""),
    "an entry that points to a group": (
        v1_program.source("if (t.apply().hit) { hdr.data.e = 1; }", ingress_locals=SELECTOR),
        v1_program.source("t.apply();", ingress_locals=SELECTOR),
        "member chosen go(port:3) = m0\ngroup chosen m0 = g0\nadd t hdr.data.a:0xfeed0001 group(g0)\n"),
    "a member of a value set": (
        *(v1_program.source(text, metadata="bit<1> found;", parser_locals="value_set<bit<32>>(4) values;", parser=VALUES)
          for text in ("hdr.data.e = (bit<8>)meta.found;", "hdr.data.e = 0;")), "value_set values 0xfeed0002\n"),
    "the kind of a digest": (
        *(v1_program.source(f"if (hdr.data.d {op} 1) {{ digest<one_t>(1, {{hdr.data.a}}); }} else "
                            "{ digest<two_t>(1, {hdr.data.a}); }", types=TOLD) for op in ("==", "!=")), ""),
}


@pytest.mark.parametrize("case", SUBTLE)
def test_what_few_packets_show_is_found(tmp_path, case, capsys):
    a, b, entries = SUBTLE[case]
    for name, text in (("a.p4", a), ("b.p4", b), ("votes.stf", entries), ("twins.toml", '[entries]\nboth = "votes.stf"\n')):
        (tmp_path / name).write_text(text)
    assert equal(tmp_path, "--sequences", "1000") == 1, capsys.readouterr().out


def test_a_parser_of_very_many_paths(tmp_path, capsys):
    """Thirty states with two branches each, which extract nothing; none accepts."""
    states = "".join(
        f"state s{i} {{ transition select(p.lookahead<bit<8>>()[{i % 8}:{i % 8}]) {{ 0: a{i}; default: s{i + 1}; }} }}"
        f"state a{i} {{ meta.x = meta.x + 1; transition s{i + 1}; }}" for i in range(30)
    )
    for last, sizes in (("accept", [12]), ("reject", [0])):
        text = v1_program.source(metadata="bit<8> x;", parser="state start { p.extract(hdr.data); transition s0; }" + states
                                 + f"state s30 {{ transition {last}; }}")
        paths = Shapes(v1_program.check(tmp_path, text)).paths
        assert [shape.size for shape in paths] == sizes


def test_a_parser_that_accepts_nothing(tmp_path, capsys):
    for name, number in (("a.p4", 1), ("b.p4", 2)):
        text = v1_program.source(f"hdr.data.setValid(); hdr.data.e = {number};", parser="state start { transition reject; }")
        (tmp_path / name).write_text(text)
    (tmp_path / "twins.toml").write_text("")
    assert equal(tmp_path) == 1


def test_a_twin_that_keeps_the_number_of_a_port_that_is_mapped_differs(tmp_path, capsys):
    """Port 1 of the twin is another port of A in the mapping."""
    for name in ("a.p4", "b.p4"):
        (tmp_path / name).write_text(v1_program.source("sm.egress_spec = 1;"))
    (tmp_path / "twins.toml").write_text("[ports]\n1 = 33\n")
    assert equal(tmp_path) == 1
    assert "port 1: A sends a frame, B nothing" in capsys.readouterr().out
    replaced(tmp_path / "b.p4", "sm.egress_spec = 1;", "sm.egress_spec = 33;")
    assert equal(tmp_path) == 0


def test_a_search_that_compares_nothing_or_ends_early_says_so(folder, ticking, capsys):
    """Without entries, no packet passes the members' table."""
    replaced(folder / "twins.toml", '[entries]\nboth = "votes.stf"\n', "")
    assert equal(folder) == 0
    output = capsys.readouterr()
    assert "no frame left either program" in output.err and "when the time was over" not in output.out
    assert equal(folder, "--minutes", "0.02", "--sequences", "1000000") == 0
    assert "when the time was over" in capsys.readouterr().out
    assert equal(folder, "--minutes", "0") == 2
    assert "no packet was sent" in capsys.readouterr().err


def test_ports_of_a_mapping_stand_for_one_port_each():
    assert permutation({1: 33}) == {1: 33, 33: 1}
    assert permutation({1: 2, 2: 3, 7: 7}) == {1: 2, 2: 3, 3: 1, 7: 7}


# ---- errors in the arguments and the mapping


WRONG = [
    ("[tabels]\n", 1, "[tabels]: unknown section; did you mean 'tables'?"),
    ("[ports]\n1 = 33\n2 = 33\n", 2, "[ports] 1: two ports of A are one of B"),
    ("[ports]\n\n1 = 511\n", 3, "[ports] 1: 511: expected a port, 0 to 510"),
    ("[ports]\none = 1\n", 2, "[ports] one: 'one': expected a port"),
    ("[tables]\n'I.members' = 'I.woters'\n", 2, "[tables] I.members: B: no table 'I.woters'; did you mean 'I.voters'?"),
    ("[tables]\n'I.member' = 'I.voters'\n", 2, "[tables] I.member: A: no table 'I.member'; did you mean 'I.members'?"),
    ("[tables]\n'I.members' = { table = 'I.voters', key = {} }\n", 2, "I.members: unknown key 'key'; did you mean 'keys'?"),
    ("[tables.'I.members']\ntable = 'I.voters'\nkeys = { 'hdr.data.x' = 'in_port' }\n", 1, "A's table has no key 'hdr.data.x'"),
    ("[tables]\n'I.members' = { table = 'I.voters', actions = { admit = 'allows' } }\n", 2, "B: table I.voters: entries: no"),
    ("[registers]\n'I.votes' = 'I.states'\n", 2, "[registers] I.votes: B: no register 'I.states'; did you mean 'I.state'?"),
    ("[counters]\n'I.seen' = 7\n", 2, "[counters] I.seen: 7: expected a name"),
    ("[headers]\n'hdr.dato' = 'hdr.item'\n", 2, "[headers] hdr.dato: A's parser extracts no such header; did you mean 'data'?"),
    ("[differences]\nignore = ['hdr.data.z']\n", 2, "[differences] ignore: A's parser extracts no 'hdr.data.z'"),
    ("[differences]\norder = 'none'\n", 2, "[differences] order: 'none': expected \"same\" or \"any\""),
    ("[differences]\nordre = 'any'\n", 2, "[differences] ordre: unknown key; did you mean 'order'?"),
    ("[packets]\nlargest = { 'hdr.data.q' = 3 }\n", 2, "[packets] largest: A's parser extracts no 'hdr.data.q'"),
    ("[packets]\nwhole = 1\n", 2, "[packets] whole: 1: expected true or false"),
    ("[ports]\n1 = \n", 2, "Invalid value"),
    ("[ports]\n1 = 2\n[tables", 3, "at end of document"),
]


@pytest.mark.parametrize(("text", "line", "message"), WRONG, ids=[message[:40] for _, _, message in WRONG])
def test_errors_of_a_mapping_name_file_line_and_key(folder, text, line, message, capsys):
    (folder / "twins.toml").write_text(text)
    assert equal(folder) == 2
    err = capsys.readouterr().err
    assert f"{folder}/twins.toml:{line}: " in err and message in err and "Traceback" not in err, err


@pytest.mark.parametrize("value", ["[" * 5000, "9" * 5000], ids=["brackets", "digits"])
def test_a_mapping_that_no_reader_takes_is_refused(folder, value, capsys):
    (folder / "twins.toml").write_text(f"[ports]\n1 = {value}\n")
    assert equal(folder) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"ina: {folder}/twins.toml: ") and "Traceback" not in err


def test_errors_of_entries_name_file_and_line(folder, capsys):
    (folder / "votes.stf").write_text(ENTRIES + "add nowhere a:1 admit(bits:1)\n")
    assert equal(folder) == 2
    assert f"{folder}/votes.stf:7: table 'nowhere' is unknown" in capsys.readouterr().err
    (folder / "votes.stf").write_bytes(b"#\xff")
    assert equal(folder) == 2
    assert f"{folder}/votes.stf: byte 1 is not UTF-8" in capsys.readouterr().err
    replaced(folder / "twins.toml", "votes.stf", "other.stf")
    assert equal(folder) == 2
    assert f"{folder}/other.stf: No such file" in capsys.readouterr().err


def test_a_table_that_the_twin_has_not_must_be_mapped(folder, capsys):
    (folder / "twins.toml").write_text('[entries]\nboth = "votes.stf"\n')
    assert equal(folder) == 2
    assert "no table 'members'; there are: I.voters" in capsys.readouterr().err


def test_tables_of_one_name_are_told_by_what_stands_before_it(tmp_path, capsys):
    """Tables of three instances of one control."""
    program = Path(__file__).parent.parent.parent / "stf" / "subcontrols.p4"
    options = ("--entries", str(program.with_suffix(".stf")), "--stf", f"{tmp_path}/differs.stf", *QUICK)
    assert cli.main(["p4", "equal", str(program), str(program), *options]) == 0, capsys.readouterr().err


def test_a_program_that_does_not_compile(folder, capsys):
    replaced(folder / "b.p4", "hdr.item.b = 7", "hdr.item.q = 7")
    assert equal(folder) == 2
    assert "b.p4" in (err := capsys.readouterr().err) and "has no field 'q'" in err


def test_the_mapping_that_the_page_shows_is_one(tmp_path):
    page = (p4_dir().parent / "docs" / "guide" / "p4.md").read_text()
    (tmp_path / "twins.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    mapping = load(tmp_path / "twins.toml")
    assert set(mapping.document.content) == set(SECTIONS)
    assert mapping.ports() == {1: 33} and mapping.any_order and not mapping.digests


def test_lines_of_keys(tmp_path):
    path = tmp_path / "twins.toml"
    path.write_text("[headers]\nx = 'y'\n\n[tables]\n'x y' = 'z'\n[registers.'z']\nx = 3\n")
    for place, line in ((("headers", "x"), 2), (("tables", "x y"), 5), (("tables",), 4), (("registers", "z"), 6)):
        assert document(path).at(*place) == f"{path}:{line}"


def test_a_long_sequence_ends_when_the_time_is_over(tmp_path, ticking, capsys):
    for name in ("a.p4", "b.p4"):
        (tmp_path / name).write_text(v1_program.source())
    (tmp_path / "twins.toml").write_text("")
    assert equal(tmp_path, "--length", "10000", "--minutes", "0.0001") == 0
    assert int(re.search(r"([\d,]+) packets into each", capsys.readouterr().out)[1].replace(",", "")) < 10000


def test_it_is_said_that_digests_of_one_program_are_not_compared(tmp_path, capsys):
    (tmp_path / "a.p4").write_text(v1_program.source("digest<one_t>(1, {hdr.data.a});", types=TOLD))
    (tmp_path / "b.p4").write_text(v1_program.source())
    (tmp_path / "twins.toml").write_text("")
    assert equal(tmp_path) == 0
    assert "note: only A has digests: they are not compared" in capsys.readouterr().out


def notes(capsys, program: str | Path, *options: str) -> str:
    assert cli.main(["p4", "equal", str(program), str(program), "--sequences", "30", "--depth", "2", *options]) == 0
    return "\n".join(line for line in capsys.readouterr().out.splitlines() if line.startswith("note: "))


STF = Path(__file__).parent.parent.parent / "stf"
LEFT_OUT = {
    "subparsers": "state start of A's parser calls another parser, first: packets are made up to there",
    "varbit": "state start of A's parser extracts hdr.option, which has a varbit field: packets are made up to there",
    "multicast": "A sends to multicast groups, and no file has one: .* is not compared",
}


@pytest.mark.parametrize("program", LEFT_OUT)
def test_it_is_said_what_no_packet_has_and_what_is_not_compared(program, capsys):
    assert re.search(LEFT_OUT[program], notes(capsys, STF / f"{program}.p4"))


def test_nothing_is_said_where_groups_are_given(capsys):
    assert notes(capsys, STF / "multicast.p4", "--entries", str(STF / "multicast.stf")) == ""


LOOP = """parser P(packet_in pk, out headers_t hdr, inout meta_t m, inout standard_metadata_t sm) {
    state start { pk.extract(hdr.one.next); transition select(hdr.one.last.more) { 0: accept; 1: start; default: reject; } } }"""


def test_bounds_are_options_and_said_where_they_cut(tmp_path, capsys):
    (program := tmp_path / "loop.p4").write_text(
        "#include <core.p4>\n#include <v1model.p4>\nheader h_t { bit<8> more; }\n"
        "struct headers_t { h_t[4] one; } struct meta_t { }\n" + LOOP +
        "control N(inout headers_t hdr, inout meta_t m) { apply { } }\n"
        "control I(inout headers_t hdr, inout meta_t m, inout standard_metadata_t sm) { apply { sm.egress_spec = 1; } }\n"
        "control E(inout headers_t hdr, inout meta_t m, inout standard_metadata_t sm) { apply { } }\n"
        "control D(packet_out pk, in headers_t hdr) { apply { pk.emit(hdr.one); } }\n"
        "V1Switch(P(), N(), I(), E(), N(), D()) main;\n")
    assert "more than 3 times (--visits)" in notes(capsys, program)
    two = notes(capsys, program, "--visits", "9", "--paths", "2")
    assert two == "note: 2 paths of A's parser were tried, and it has more (--paths)"
    packets = "packet 0 00\npacket 1 00\npacket 2 0100\n"
    (tmp_path / "three.stf").write_text(packets)
    cut = notes(capsys, program, "--visits", "9", "--entries", f"{tmp_path}/three.stf", "--letters", "2")
    assert "of 3 packets in files the systematic part has the first 2 (--letters)" in cut


def test_it_is_said_that_the_time_for_a_small_counter_example_was_over(folder, capsys):
    replaced(folder / "b.p4", "hdr.item.b = 7", "hdr.item.b = 8")
    assert equal(folder, "--shrink", "0") == 1
    assert "0 s were too few to make it as small as it can be (--shrink)" in capsys.readouterr().out


# ---- our own


@pytest.mark.parametrize("program", ["switchml", "quorum", "receivers", pytest.param("atp", marks=pytest.mark.later)])
def test_our_twins_are_equal(program, capsys):
    files = p4_dir() / f"{program}.p4", p4_dir() / "tofino" / f"{program}.p4"
    assert cli.main(["p4", "equal", *map(str, files), "--sequences", "150", "--depth", "4", *LONG]) == 0
    out = capsys.readouterr().out
    assert "no difference" in out and "sequences of up to 4 of" in out
    assert int(re.search(r"([\d,]+) ways through", out)[1].replace(",", "")) > 100


def test_a_protocol_of_the_users_own_gets_its_controllers_entries(tmp_path, capsys):
    """Without known packets, packets that have an effect are found, and those of other workers and rounds derived from them."""
    own = p4_dir().parent / "examples" / "lockstep"
    shutil.copytree(own, tmp_path / "twin")
    replaced(tmp_path / "twin" / "lockstep.p4", "seen = seen | meta.worker;", "seen = seen | 0;")
    files = own / "lockstep.p4", tmp_path / "twin" / "lockstep.p4"
    assert cli.main(["p4", "equal", *map(str, files), "--stf", f"{tmp_path}/differs.stf", *LONG]) == 1
    out = capsys.readouterr().out
    assert len(re.findall(r"^packet \d+ into port", out, re.M)) <= 3 and "A sends a frame, B nothing" in out


IN_CI = ("a result that is asked for once more is not given", "the twin expects the packet of a worker too many",
         "an aggregator is believed for ever", "the twin's rivals both contribute", "the twin takes packets of other members")


@pytest.mark.judge
@pytest.mark.parametrize("plant", [p for p in PLANTS if p.name in IN_CI], ids=lambda plant: plant.name)
def test_planted_defects_are_found(plant):
    """A selection of the defects; all of them: python -m tests.p4.tools.twin_plants."""
    finding = search(plant)
    assert finding is not None and finding.packets <= PACKETS


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_plants_follow_the_code(plant, tmp_path):
    """Each line to change exists exactly once."""
    tree = copy_with(plant, tmp_path / "p4")
    assert plant.old in (p4_dir() / plant.file).read_text() and (tree / plant.file).is_file()


def test_shapes_are_the_paths_of_the_parser():
    program = frontend.load(p4_dir() / "switchml.p4", defines={"VALUES": "32"}, include_dirs=[p4_dir()])
    shapes = Shapes(program)
    paths = {tuple(h.path.removeprefix("hdr.") for h in shape.headers) for shape in shapes.paths}
    head = ("ethernet", "ipv4", "udp", "switchml", "exponents")
    assert paths == {*(head[:n] for n in range(1, 6)), (*head, "values"), (*head, "check"), (*head, "check", "values")}
    for shape in shapes.paths:
        frame = bytearray(shape.size)
        for field, value, mask in shape.wants:
            field.put(frame, value & mask)
        assert len(shapes.walk(bytes(frame))) >= len(shape.headers)


def test_a_field_behind_a_padded_struct_has_its_place(tmp_path):
    program = v1_program.check(tmp_path, v1_program.source(
        types="struct inner_t { @flexible bit<9> p; } header more_t { inner_t inner; bit<8> t; }", headers="more_t more;",
        parser="state start { p.extract(hdr.data); p.extract(hdr.more); transition accept; }",
    ))
    (shape,) = Shapes(program).paths
    assert [(f.key, f.offset, f.width) for f in shape.headers[-1].fields] == [("more.inner.p", 96, 9), ("more.t", 112, 8)]
