"""P4Info and layout of TNA programs: the message for each kind of object."""

from __future__ import annotations

from pathlib import Path

import pytest
from tna_program import pipe

from ina.p4.compiler.p4info import files as p4info_files
from ina.p4.compiler.p4info.p4info import ACTION, COUNTER, TABLE, Symbols, one_at_a_time

pytestmark = pytest.mark.build
PROGRAM = {
    "types": "struct pair_t { bit<32> first; bit<16> second; } struct seen_t { bit<32> a; bit<9> port; }",
    "parser_locals": "value_set<bit<16>>(4) known;",
    "parser": """state start { pkt.extract(intr); pkt.advance(64); pkt.extract(hdr.data);
        transition select(hdr.data.c) { known: accept; default: accept; } }""",
    "ingress_locals": """
        Register<pair_t, bit<8>>(100, {5, 7}) pairs; RegisterParam<bit<32>>(3) step; DirectRegister<bit<8>>(9) mine;
        Counter<bit<32>, bit<9>>(512, CounterType_t.PACKETS_AND_BYTES) all; DirectCounter<bit<64>>(CounterType_t.BYTES) hits;
        Meter<bit<9>>(512, MeterType_t.BYTES) rate; DirectMeter(MeterType_t.PACKETS) own; Lpf<bit<32>, bit<4>>(16) smooth;
        Wred<bit<32>, bit<4>>(8, 1, 0) early; Hash<bit<16>>(HashAlgorithm_t.CRC16) hash; ActionProfile(64) profile;
        ActionSelector(profile, hash, SelectorMode_t.FAIR, 16, 4) selector;
        RegisterAction<pair_t, bit<8>, bit<32>>(pairs) add = { void apply(inout pair_t v, out bit<32> x) { x = v.first; } };
        DirectRegisterAction<bit<8>, bit<8>>(mine) count = { void apply(inout bit<8> v, out bit<8> x) { v = v + 1; x = v; } };
        action hit(PortId_t port) { hits.count(); hdr.data.d = count.execute(); hdr.data.e = own.execute(); }
        action to(PortId_t port) { tm.ucast_egress_port = port; }
        @name("direct.table") table t { key = { hdr.data.a: exact @name("a"); hdr.data.b: range; } actions = { hit; }
            counters = hits; meters = own; registers = mine; idle_timeout = true; size = 77; }
        table u { key = { hdr.data.a: dleft_hash; hdr.data.b: selector; } actions = { to; } implementation = selector; }""",
    "ingress": """t.apply(); u.apply(); all.count(intr.ingress_port); hdr.data.b = add.execute(1) + smooth.execute(1, 2);
        hdr.data.d = rate.execute(intr.ingress_port); hdr.data.e = early.execute(1, 2);""",
    "deparser_locals": "Digest<seen_t>() seen;",
    "deparser": "if (dprsr.digest_type == 1) { seen.pack({hdr.data.a, 9w0}); } pkt.emit(hdr);",
}


def test_objects(tmp_path: Path) -> None:
    p = pipe(tmp_path, **PROGRAM)
    info = p.program.p4info.message
    assert info["pkgInfo"] == {"arch": "tna"}
    sections = {name: objects for name, objects in info.items() if isinstance(objects, list) and name != "externs"}
    assert {name: {o["preamble"]["name"] for o in objects} for name, objects in sections.items()} == {
        "tables": {"I.direct.table", "I.u"}, "actions": {"I.hit", "I.to", "NoAction"}, "valueSets": {"IP.known"},
        "registers": {"I.pairs", "I.step", "I.mine"}, "counters": {"I.all"}, "directCounters": {"I.hits"},
        "meters": {"I.rate"}, "directMeters": {"I.own"}, "actionProfiles": {"I.profile"}, "digests": {"ID.seen"},
    }
    table = next(t for t in info["tables"] if t["preamble"]["name"] == "I.direct.table")
    assert table["idleTimeoutBehavior"] == "NOTIFY_CONTROL" and table["size"] == "77"
    assert [(f["name"], f["matchType"]) for f in table["matchFields"]] == [("a", "EXACT"), ("hdr.data.b", "RANGE")]
    ids = {o["preamble"]["name"]: o["preamble"]["id"] for o in info["directCounters"] + info["directMeters"]}
    assert sorted(table["directResourceIds"]) == sorted(ids.values())
    assert ids["I.hits"] == 0x13 << 24 | one_at_a_time("pipe.I.hits") & 0xFFFFFF
    profile = info["actionProfiles"][0]
    assert profile["withSelector"] and profile["maxGroupSize"] == 16 and profile["size"] == "64"
    other = next(t for t in info["tables"] if t["preamble"]["name"] == "I.u")
    assert other["implementationId"] == profile["preamble"]["id"] and len(other["matchFields"]) == 1
    sizes = {r["preamble"]["name"]: r["size"] for r in info["registers"]}
    assert sizes == {"I.pairs": 100, "I.step": 1, "I.mine": 77}
    assert info["valueSets"][0]["match"][0]["matchType"] == "TERNARY"
    externs = {e["externTypeName"]: [i["preamble"]["name"] for i in e["instances"]] for e in info["externs"]}
    assert externs == {"Lpf": ["I.smooth"], "Wred": ["I.early"]}
    assert all(0x81 <= e["externTypeId"] <= 0xFE for e in info["externs"])


def test_files(tmp_path: Path) -> None:
    info = pipe(tmp_path, **PROGRAM).program.p4info.message
    text = p4info_files.text(info)
    assert 'extern_type_name: "Lpf"' in text and 'name: "I.smooth"' in text
    assert b"I.smooth" in p4info_files.binary(info) and b"\xa2\x06" in p4info_files.binary(info)  # field 100, sized


def test_layout(tmp_path: Path) -> None:
    layout = pipe(tmp_path, **PROGRAM).layout
    declared = [r for r in layout["registers"] if ".$" not in r["name"]]
    registers = {r["name"]: (r["initial"], r["table"], r["param"], r["size"]) for r in declared}
    assert registers == {
        "I.pairs.first": ("5", None, False, 100), "I.pairs.second": ("7", None, False, 100), "I.step": ("3", None, True, 1),
        "I.mine": ("9", "I.direct.table", False, 77),
    }
    assert layout["selectors"] == {"I.profile": ["I.selector", 4]} and layout["pipeline"] == "pipe"
    assert [(f["name"], f["type"], f["size"]) for f in layout["filters"]] == [("I.smooth", "lpf", 16), ("I.early", "wred", 8)]
    assert [d["fields"][0]["name"] for d in layout["digests"]] == ["a"]


def test_ids_are_those_of_p4c() -> None:
    """Ids of tna_counter in open-p4studio, as in p4c's Tofino back end 9.13.4 (p4c 34b86e9)."""
    symbols = Symbols("pipe")
    for prefix, name in ((TABLE, "forward"), (ACTION, "hit"), (COUNTER, "indirect_counter")):
        symbols.add(prefix, f"SwitchIngress.{name}")
    symbols.assign()
    assert symbols.id(TABLE, "SwitchIngress.forward") == 37882547
    assert symbols.id(ACTION, "SwitchIngress.hit") == 32848556
    assert symbols.id(COUNTER, "SwitchIngress.indirect_counter") == COUNTER << 24 | 2198822006 & 0xFFFFFF


def test_sizes_that_a_program_leaves_out(tmp_path: Path) -> None:
    """p4c's Tofino back end: 512, or min_size; four groups of 120 in a selector that is given a size only."""
    p = pipe(tmp_path, ingress_locals="""
        Hash<bit<16>>(HashAlgorithm_t.CRC16) hash; ActionSelector(64, hash, SelectorMode_t.FAIR) selector;
        action to(PortId_t port) { tm.ucast_egress_port = port; }
        table t { key = { hdr.data.a: exact; } actions = { to; } }
        table u { key = { hdr.data.a: exact; } actions = { to; } min_size = 99; }
        table v { key = { hdr.data.a: selector; } actions = { to; } implementation = selector; size = 7; }""",
        ingress="t.apply(); u.apply(); v.apply();")
    info = p.program.p4info.message
    assert {t["preamble"]["name"]: t["size"] for t in info["tables"]} == {"I.t": "512", "I.u": "99", "I.v": "7"}
    assert {t["name"]: t["size"] for t in p.layout["tables"]} == {"I.t": 512, "I.u": 99, "I.v": 7}
    assert info["actionProfiles"][0]["maxGroupSize"] == 120 and p.layout["selectors"] == {"I.selector": ["I.selector", 4]}
