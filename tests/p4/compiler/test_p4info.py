"""P4Info of small programs, field by field; ids equal to p4c's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from v1_program import check, source

from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.p4info import p4info
from ina.p4.compiler.p4info.p4info import Symbols, field_ids, one_at_a_time, suffixes

pytestmark = pytest.mark.fast


def info_of(directory: Path, *args: str, **kwargs: str) -> dict:
    return p4info.build(check(directory, source(*args, **kwargs)))


def one_of(messages: list[dict], name: str) -> dict:
    (message,) = [m for m in messages if m["preamble"]["name"] == name]
    return message


def test_ids_are_those_of_p4c():
    symbols = Symbols()
    names = ["NoAction", "IngressI.drop", "ingress.do_thing"]
    for name in names:
        symbols.add(p4info.ACTION, name)
    symbols.add(p4info.TABLE, "IngressI.indirect")
    symbols.add(p4info.ACTION_PROFILE, "ap")
    symbols.assign()
    assert [symbols.id(p4info.ACTION, n) for n in names] == [21257015, 23455883, 26431821]
    assert symbols.id(p4info.TABLE, "IngressI.indirect") == 46872340
    assert symbols.id(p4info.ACTION_PROFILE, "ap") == 294074782


def test_explicit_ids_and_collisions():
    symbols = Symbols()
    used_id = p4info.TABLE << 24 | one_at_a_time("I.t") & 0xFFFFFF
    symbols.add(p4info.TABLE, "I.t")
    symbols.add(p4info.TABLE, "I.first", used_id & 0xFFFFFF)
    symbols.assign()
    assert (symbols.id(p4info.TABLE, "I.first"), symbols.id(p4info.TABLE, "I.t")) == (used_id, used_id + 1)
    with pytest.raises(ValueError, match="twice"):
        symbols.add(p4info.TABLE, "I.second", used_id)
    with pytest.raises(ValueError, match="prefix"):
        symbols.add(p4info.TABLE, "I.third", 0x01000001)


def test_aliases_are_the_shortest_unique_suffixes():
    assert list(suffixes("a.b.c")) == ["c", "b.c", "a.b.c"]
    symbols = Symbols()
    for name in ("I.x.t", "I.y.t", "E.u", "t"):
        symbols.add(p4info.TABLE, name)
    symbols.assign()
    aliases = [symbols.preamble(p4info.TABLE, n, [])["alias"] for n in ("I.x.t", "I.y.t", "E.u", "t")]
    assert aliases == ["x.t", "y.t", "u", "t"]


TABLE = """
action set(@id(7) bit<8> v, bit<9> port, bit<1> flag) { hdr.data.e = v; sm.egress_spec = port; }
action drop() { mark_to_drop(sm); }
direct_counter(CounterType.bytes) dc;
action_selector(HashAlgorithm.crc16, 128, 10) sel;
@brief("forwards")
table t {
    key = { hdr.data.a: lpm; hdr.data.c: ternary @name("see"); hdr.data.isValid(): exact; hdr.data.d: selector; }
    actions = { set; @tableonly drop; @defaultonly NoAction; }
    const default_action = set(1, 2, 1);
    size = 64;
    counters = dc;
    implementation = sel;
}
"""


def test_table_action_counter_profile(tmp_path: Path):
    info = info_of(tmp_path, "t.apply();", ingress_locals=TABLE)
    table = one_of(info["tables"], "I.t")
    table_id = table["preamble"].pop("id")
    assert table_id >> 24 == 2
    assert table["preamble"] == {"name": "I.t", "alias": "t", "doc": {"brief": "forwards"}}
    assert table["matchFields"] == [
        {"id": 1, "name": "hdr.data.a", "bitwidth": 32, "matchType": "LPM"},
        {"id": 2, "name": "see", "bitwidth": 16, "matchType": "TERNARY"},
        {"id": 3, "name": "hdr.data.$valid$", "bitwidth": 1, "matchType": "EXACT"},
    ]
    actions = {a["preamble"]["name"]: a for a in info["actions"]}
    ids = {name: a["preamble"]["id"] for name, a in actions.items()}
    assert table["actionRefs"] == [
        {"id": ids["I.set"]},
        {"id": ids["I.drop"], "annotations": ["@tableonly"], "scope": "TABLE_ONLY"},
        {"id": ids["NoAction"], "annotations": ["@defaultonly"], "scope": "DEFAULT_ONLY"},
    ]
    assert actions["I.set"]["params"] == [
        {"id": 7, "name": "v", "bitwidth": 8},
        {"id": 2, "name": "port", "bitwidth": 9},
        {"id": 3, "name": "flag", "bitwidth": 1},
    ]
    assert table["constDefaultActionId"] == table["initialDefaultAction"]["actionId"] == ids["I.set"]
    assert table["initialDefaultAction"]["arguments"] == [
        {"paramId": 7, "value": "AQ=="},  # 01
        {"paramId": 2, "value": "AAI="},  # 0002
        {"paramId": 3, "value": "AQ=="},
    ]
    assert table["size"] == "64"
    counter = one_of(info["directCounters"], "I.dc")
    assert (counter["spec"], counter["directTableId"]) == ({"unit": "BYTES"}, table_id)
    assert table["directResourceIds"] == [counter["preamble"]["id"]]
    profile = one_of(info["actionProfiles"], "I.sel")
    assert table["implementationId"] == profile["preamble"]["id"]
    assert profile["tableIds"] == [table_id]
    assert (profile["withSelector"], profile["size"]) == (True, "128")


def test_const_entries_and_the_implicit_default(tmp_path: Path):
    info = info_of(
        tmp_path,
        "t.apply();",
        ingress_locals="""action one() { hdr.data.e = 1; }
        table t { key = { hdr.data.d: exact; } actions = { one; } const entries = { 3: one(); } }""",
    )
    (table,) = info["tables"]
    no_action = one_of(info["actions"], "NoAction")["preamble"]["id"]
    assert (table["isConstTable"], table["hasInitialEntries"], table["size"]) == (True, True, "1024")
    assert table["initialDefaultAction"] == {"actionId": no_action}
    assert table["actionRefs"][1] == {"id": no_action, "annotations": ["@defaultonly"], "scope": "DEFAULT_ONLY"}
    assert "constDefaultActionId" not in table


def test_indirect_resources(tmp_path: Path):
    info = info_of(
        tmp_path,
        "r.write(0, hdr.data.a); s.write(1, 1); c.count(1); m.execute_meter(1, hdr.data.e);",
        ingress_locals="""register<bit<32>>(16) r; @name("signed_ones") register<int<8>>(4) s;
        counter(3, CounterType.packets_and_bytes) c; @id(5) meter(2, MeterType.packets) m;""",
    )
    register = one_of(info["registers"], "I.r")
    assert (register["typeSpec"], register["size"]) == ({"bitstring": {"bit": {"bitwidth": 32}}}, 16)
    assert one_of(info["registers"], "I.signed_ones")["typeSpec"] == {"bitstring": {"int": {"bitwidth": 8}}}
    counter = one_of(info["counters"], "I.c")
    assert (counter["spec"], counter["size"]) == ({"unit": "BOTH"}, "3")
    meter = one_of(info["meters"], "I.m")
    assert (meter["spec"], meter["size"], meter["preamble"]["id"]) == ({"unit": "PACKETS"}, "2", 0x14000005)


def test_value_sets_digests_and_controller_headers(tmp_path: Path):
    info = info_of(
        tmp_path,
        "digest<learn_t>(1, { hdr.data.a, Color.Red, true });",
        types="""
        enum bit<8> Color { Red = 3 }
        @p4runtime_translation("ina/port", 32) type bit<9> port_t;
        struct learn_t { bit<32> a; Color color; bool yes; }
        struct pair_t { bit<8> x; @match(ternary) bit<16> y; }
        @controller_header("packet_in") header in_t { port_t port; bit<7> pad; }""",
        headers="in_t i;",
        parser_locals="value_set<pair_t>(4) pairs; value_set<bit<8>>(2) bytes;",
        parser="""state start { p.extract(hdr.data);
            transition select(hdr.data.d, hdr.data.c) { pairs: accept; default: more; } }
            state more { transition select(hdr.data.d) { bytes: accept; default: accept; } }""",
    )
    assert one_of(info["valueSets"], "P.pairs")["match"] == [
        {"id": 1, "name": "x", "bitwidth": 8, "matchType": "EXACT"},
        {"id": 2, "name": "y", "bitwidth": 16, "matchType": "TERNARY"},
    ]
    assert one_of(info["valueSets"], "P.bytes") == {
        "preamble": one_of(info["valueSets"], "P.bytes")["preamble"],
        "match": [{"id": 1, "bitwidth": 8, "matchType": "EXACT"}],
        "size": 2,
    }
    assert one_of(info["digests"], "learn_t")["typeSpec"] == {"struct": {"name": "learn_t"}}
    assert info["typeInfo"]["structs"]["learn_t"]["members"][1:] == [
        {"name": "color", "typeSpec": {"serializableEnum": {"name": "Color"}}},
        {"name": "yes", "typeSpec": {"bool": {}}},
    ]
    assert info["typeInfo"]["serializableEnums"]["Color"] == {
        "underlyingType": {"bitwidth": 8},
        "members": [{"name": "Red", "value": "Aw=="}],
    }
    packet_in = one_of(info["controllerPacketMetadata"], "packet_in")
    assert packet_in["metadata"] == [
        {"id": 1, "name": "port", "bitwidth": 32, "typeName": {"name": "port_t"}},
        {"id": 2, "name": "pad", "bitwidth": 7},
    ]
    translated = {"translatedType": {"uri": "ina/port", "sdnBitwidth": 32}}
    assert info["typeInfo"]["newTypes"]["port_t"] == translated


def test_actions_that_the_program_calls(tmp_path: Path):
    """Actions called in the apply block, without control-plane parameters; not those that only other actions call."""
    info = info_of(
        tmp_path,
        "outer(1);",
        ingress_locals="action inner() { hdr.data.e = 1; } action outer(bit<8> x) { hdr.data.d = x; inner(); }",
    )
    assert [(a["preamble"]["name"], a.get("params")) for a in info["actions"]] == [("I.outer", None)]


def test_keys_take_the_names_of_their_fields(tmp_path: Path):
    info = info_of(
        tmp_path,
        "t.apply();",
        types="header other_t { @name(\"f\") bit<8> g; bit<8> h; }",
        headers="@name(\".top\") other_t other; @name(\"stack\") other_t[2] more;",
        ingress_locals="""table t {
            key = { hdr.other.g: exact; hdr.other.isValid(): exact; hdr.more[1].h: exact; hdr.more[0].isValid(): exact; }
            actions = { NoAction; } }""",
    )
    names = [f["name"] for f in info["tables"][0]["matchFields"]]
    assert names == ["top.f", "top.$valid$", "hdr.stack[1].h", "hdr.stack[0].$valid$"]


def test_annotations(tmp_path: Path):
    info = info_of(
        tmp_path,
        "t.apply();",
        ingress_locals="""action a() { hdr.data.e = 1; }
        @size_hint(big  one, "b c" = 1) @mixed[1, "two", true, 1 == 2, 5 + 6] @pairs[k = 7, s = "v"]
        table t { key = { hdr.data.d: exact; } actions = { a; } }""",
    )
    preamble = info["tables"][0]["preamble"]
    assert preamble["annotations"] == ['@size_hint(big one, "b c"=1)']
    mixed, pairs = preamble["structuredAnnotations"]
    assert mixed == {
        "name": "mixed",
        "expressionList": {
            "expressions": [
                {"int64Value": "1"},
                {"stringValue": "two"},
                {"boolValue": True},
                {"boolValue": False},
                {"int64Value": "11"},
            ]
        },
    }
    assert pairs["kvPairList"]["kvPairs"] == [
        {"key": "k", "value": {"int64Value": "7"}},
        {"key": "s", "value": {"stringValue": "v"}},
    ]


PLAIN = "table t { key = { hdr.data.d: exact; } actions = { NoAction; } }"


def test_values_of_annotations_are_evaluated(tmp_path: Path):
    """Widths count as P4 has them; `@ina_program(...)`, which BFRuntime carries as text, is evaluated, too."""
    info = info_of(
        tmp_path,
        "t.apply();",
        ingress_locals="""@values[a = 8w300, b = 8w255 + 1, c = 1 << 3, d = "x" ++ "y", e = 4s7 + 4s1, f = !true]
        @ina_program(protocol = "a" ++ "b", values = 0x20, slots = (1 << 3)) """ + PLAIN,
    )
    preamble = info["tables"][0]["preamble"]
    values = {p["key"]: p["value"] for p in preamble["structuredAnnotations"][0]["kvPairList"]["kvPairs"]}
    assert values == {
        "a": {"int64Value": "44"},
        "b": {"int64Value": "0"},
        "c": {"int64Value": "8"},
        "d": {"stringValue": "xy"},
        "e": {"int64Value": "-8"},
        "f": {"boolValue": False},
    }
    assert preamble["annotations"] == ['@ina_program(protocol="ab", values=32, slots=8)']


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1 / 0", "division by zero"),
        ('"a" ++ 1', "'\\+\\+' needs operands with a width"),
        ('"a" + "b"', "'\\+' need integers of one type"),
        ("true + 1", "'\\+' need integers of one type"),
        ("-true", "'-' is not defined for bool"),
        ("8w1 + 4w1", "bit<8> and bit<4>"),
        ("1 << -1", "shift by a negative amount"),
        ("1 << 63", "integers of up to 64 bits"),
        ("hdr", "takes literals"),
    ],
)
def test_values_of_annotations_that_are_none(tmp_path: Path, value: str, message: str):
    with pytest.raises(CompileError, match=message) as refused:
        info_of(tmp_path, "t.apply();", ingress_locals=f"@values[a = {value}] {PLAIN}")
    assert refused.value.span is not None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('protocol="a", values=1.5', "expected a name of a member"),
        ('protocol="a" values=1', "at the end of the annotation"),
        ("values=1, values=2", "key 'values' appears twice"),
        ("values=1/0", "division by zero"),
    ],
)
def test_a_statement_of_a_program_is_read_with_care(tmp_path: Path, body: str, message: str):
    with pytest.raises(CompileError, match=message):
        info_of(tmp_path, "t.apply();", ingress_locals=f"@ina_program({body}) {PLAIN}")


def test_the_message_is_json_and_deterministic(tmp_path: Path):
    ingress_locals = "action a() {} table t { key = { hdr.data.d: exact; } actions = { a; } }"
    first, second = (json.dumps(info_of(tmp_path, "t.apply();", ingress_locals=ingress_locals)) for _ in range(2))
    assert first == second
    assert json.loads(first)["pkgInfo"] == {"arch": "v1model"}


def test_field_ids():
    assert field_ids([[], [], []]) == [1, 2, 3]


def test_sizes_of_tables_that_take_constructor_parameters(tmp_path: Path):
    """Each instance of a control has its own size, as with p4c."""
    types = """
    control Sized(inout headers_t hdr)(bit<32> n, bit<32> m) {
        table t { key = { hdr.data.a: exact; } actions = { NoAction; } size = n; }
        table u { key = { hdr.data.a: exact; } actions = { NoAction; } size = n + 2 * m; }
        apply { t.apply(); u.apply(); }
    }"""
    text = source("one.apply(hdr); two.apply(hdr);", ingress_locals="Sized(16, 1) one; Sized(4096, 8) two;")
    text = text.replace("control I(", types + "control I(")
    info = p4info.build(check(tmp_path, text))
    assert {t["preamble"]["name"]: t["size"] for t in info["tables"]} == {
        "I.one.t": "16", "I.one.u": "18", "I.two.t": "4096", "I.two.u": "4112"}
    with pytest.raises(CompileError, match="the size of a table cannot be negative"):
        check(tmp_path, text.replace("bit<32> n,", "int n,").replace("Sized(16, 1)", "Sized(-16, 1)"))


def test_value_sets_that_no_state_asks_are_not_shown(tmp_path: Path):
    info = info_of(tmp_path, parser_locals="value_set<bit<16>>(4) asked; value_set<bit<16>>(4) idle;", parser="""
        state start { p.extract(hdr.data); transition select(hdr.data.c) { asked: accept; default: accept; } }""")
    assert [v["preamble"]["name"] for v in info["valueSets"]] == ["P.asked"]
