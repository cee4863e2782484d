"""Tables of the reference interpreter and their control plane; expected packets are computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from v1_program import TABLE, data, interpret, result, sends

from ina.p4.compiler.reference.tables import TableError

pytestmark = pytest.mark.fast


def test_exact_table_and_control_plane(tmp_path: Path):
    switch = interpret(tmp_path, "t.apply();", ingress_locals=TABLE % ("hdr.data.a: exact; hdr.data.d: exact;", ""))
    table = switch.tables["t"]
    assert table.name == "I.t"
    handle = table.insert({"data.a": 1, "hdr.data.d": 2}, "set", {"v": 7})
    table.insert({"data.a": 1, "data.d": 3}, "I.drop")
    assert result(switch, data(a=1, d=2)) == data(a=1, d=2, e=7)
    assert sends(switch, data(a=1, d=3)) == []
    assert switch.drops["ingress"] == 1
    assert result(switch, data(a=2, d=2)) == data(a=2, d=2, e=0xDD)
    table.modify(handle, "set", [8])
    assert result(switch, data(a=1, d=2)) == data(a=1, d=2, e=8)
    table.delete(handle)
    table.set_default("NoAction")
    assert result(switch, data(a=1, d=2)) == data(a=1, d=2, e=0)


def test_table_refusals(tmp_path: Path):
    switch = interpret(tmp_path, "t.apply();", ingress_locals=TABLE % ("hdr.data.d: exact;", ""))
    table = switch.tables["t"]
    table.insert({"d": 1}, "set", [1])
    for match, action, args, words in [
        ({"d": 1}, "set", [1], "already"),
        ({"d": 256}, "set", [1], "8 bits"),
        ({"z": 1}, "set", [1], "unknown"),
        ({}, "set", [1], "exact"),
        ({"d": 2}, "sett", [1], "unknown"),
        ({"d": 2}, "set", [], "takes"),
        ({"d": 2}, "set", {"w": 1}, "no parameter"),
        ({"d": 2}, "set", [256], "8 bits"),
    ]:
        with pytest.raises(TableError, match=words):
            table.insert(match, action, args)


def test_names_for_the_control_plane(tmp_path: Path):
    """`@name` on a parameter, a key, an action and a table (§18.3)."""
    switch = interpret(
        tmp_path,
        "t.apply(); u.apply();",
        ingress_locals="""@name("put") action set(@name("value") bit<8> v) { hdr.data.e = v; }
        @name(".top.table") table t { key = { hdr.data.d: exact @name("key"); } actions = { set; } }
        table u { actions = { set; NoAction; } }""",
    )
    assert sorted(switch.tables) == ["I.u", "top.table"]
    switch.tables["top.table"].insert({"key": 3}, "I.put", {"value": 9})
    assert result(switch, data(d=3)) == data(d=3, e=9)
    with pytest.raises(TableError, match="no keys"):
        switch.tables["u"].insert({}, "put", {"value": 1})


def test_lpm_takes_the_longest_prefix(tmp_path: Path):
    switch = interpret(tmp_path, "t.apply();", ingress_locals=TABLE % ("hdr.data.a: lpm;", ""))
    for length, value in [(8, 1), (24, 3), (0, 9), (16, 2)]:
        switch.tables["t"].insert({"a": (0x0A0B0C0D, length)}, "set", [value])
    results = [result(switch, data(a=a))[-1] for a in (0x0A0B0CFF, 0x0A0BFFFF, 0x0AFFFFFF, 0xFF000000)]
    assert results == [3, 2, 1, 9]


def test_ternary_range_optional_priorities(tmp_path: Path):
    keys = "hdr.data.c: ternary; hdr.data.d: range; hdr.data.a: optional;"
    switch = interpret(tmp_path, "t.apply();", ingress_locals=TABLE % (keys, ""))
    table = switch.tables["t"]
    table.insert({"c": (0x1200, 0xFF00)}, "set", [1], priority=10)
    table.insert({"c": (0x1234, 0xFFFF), "d": (3, 5)}, "set", [2], priority=20)
    table.insert({"a": 77}, "set", [3], priority=30)
    results = [
        result(switch, data(a=a, c=c, d=d))[-1]
        for a, c, d in [(0, 0x12FF, 0), (0, 0x1234, 5), (0, 0x1234, 6), (77, 1, 1)]
    ]
    assert results == [1, 2, 1, 3]


def test_const_entries_in_program_order_and_switch_on_action_run(tmp_path: Path):
    switch = interpret(
        tmp_path,
        """switch (t.apply().action_run) {
            set: { hdr.data.c = 1; } drop: { hdr.data.c = 2; sm.egress_spec = 1; } default: { hdr.data.c = 3; } }
        if (u.apply().hit) { hdr.data.a = 1; } else { hdr.data.a = 2; }""",
        ingress_locals=TABLE
        % (
            "hdr.data.d: ternary;",
            "const entries = { 0x10 &&& 0xF0: set(1); 0x11: set(2); 0x20 &&& 0xF0: drop(); _: NoAction(); }",
        )
        + "table u { key = { hdr.data.e: exact; } actions = { NoAction; } const entries = { 1: NoAction(); } }",
    )
    assert result(switch, data(d=0x11)) == data(a=1, c=1, d=0x11, e=1)
    assert result(switch, data(d=0x25)) == data(a=2, c=2, d=0x25)
    assert result(switch, data(d=0x30)) == data(a=2, c=3, d=0x30)
    with pytest.raises(TableError, match="constant"):
        switch.tables["t"].insert({"d": (1, 1)}, "set", [1])


def test_entries_with_priorities(tmp_path: Path):
    switch = interpret(
        tmp_path,
        "t.apply();",
        ingress_locals=TABLE
        % ("hdr.data.d: ternary;", "entries = { priority = 5: 0x10 &&& 0xF0: set(1); priority = 9: 0x11: set(2); }"),
    )
    assert [result(switch, data(d=d))[-1] for d in (0x11, 0x12)] == [2, 1]
    switch.tables["t"].insert({"d": (0x12, 0xFF)}, "set", [3], priority=6)
    assert result(switch, data(d=0x12))[-1] == 3


def test_action_selector(tmp_path: Path):
    """The group's member at index hash(selector keys) mod size (BMv2)."""
    switch = interpret(
        tmp_path,
        "t.apply();",
        ingress_locals="""action_selector(HashAlgorithm.identity, 16, 8) sel;
        action set(bit<8> v) { hdr.data.e = v; }
        table t { key = { hdr.data.d: exact; hdr.data.c: selector; }
            actions = { set; NoAction; } implementation = sel; }""",
    )
    profile = switch.profiles["sel"]
    members = [profile.add_member("set", [v]) for v in (10, 20, 30)]
    switch.tables["t"].insert({"d": 1}, group=profile.add_group(members))
    switch.tables["t"].insert({"d": 2}, member=members[1])
    assert [result(switch, data(c=c, d=1))[-1] for c in (0, 1, 5)] == [10, 20, 30]
    assert result(switch, data(d=2))[-1] == 20
