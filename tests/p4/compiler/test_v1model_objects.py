"""v1model's objects in compiled programs, and their control plane: action profiles and selectors, value sets, meters,
registers of structs, log messages. The reference interpreter runs in parallel where it has the same object."""

from __future__ import annotations

import random

import pytest
from shadow import Shadowed
from v1_program import data, source

from ina.p4.compiler.build import compile_program
from ina.p4.compiler.reference.interpreter import CloneSession
from ina.p4.runtime import EntityError, MeterConfig, MeterEntry, Switch, TableEntry, Update, ValueSetEntry
from ina.p4.runtime.entities import DirectMeterEntry, ProfileGroup, ProfileMember

pytestmark = pytest.mark.build
O1 = ["-O1"]


def shadowed(tmp_path, *args, **kwargs) -> Shadowed:
    path = tmp_path / "program.p4"
    path.write_text(source(*args, **kwargs))
    return Shadowed(path, cflags=O1)


def switched(tmp_path, *args, **kwargs) -> Switch:
    path = tmp_path / "program.p4"
    path.write_text(source(*args, **kwargs))
    switch = Switch(compile_program(path, cflags=O1))
    for port in range(4):
        switch.add_port(port)
    return switch


def sent(switch: Switch, now: int = 0, **fields: int) -> bytes:
    ((_, frame),) = switch.step(data(**fields), 0, now)
    return frame


SELECTOR = """
    action_selector(HashAlgorithm.{algorithm}, 16, 7) sel;
    action set(bit<8> v) {{ hdr.data.e = v; }} action wide(bit<128> w) {{ hdr.data.a = w[95:64]; }}
    table t {{ key = {{ hdr.data.d: {match}; hdr.data.b: selector; hdr.data.c: selector; }}
        actions = {{ set; wide; NoAction; }} default_action = set(99); implementation = sel; }}
    table u {{ key = {{ hdr.data.e: exact; hdr.data.a: selector; }} actions = {{ set; wide; NoAction; }}
        implementation = sel; }}"""


@pytest.mark.parametrize("algorithm", ["crc16", "crc32", "csum16", "xor16"])
@pytest.mark.parametrize("match", ["exact", "ternary"])
def test_selectors(tmp_path, algorithm, match):
    switch = shadowed(tmp_path, "t.apply(); u.apply();", ingress_locals=SELECTOR.format(algorithm=algorithm, match=match))
    profile = switch.profiles["sel"]
    members = [profile.add_member("set", [v]) for v in range(5)] + [profile.add_member("wide", [7 << 64])]
    groups = [profile.add_group(m) for m in (members, members[1:4], members[5:], [])]
    for d, group in enumerate(groups):
        key = {"d": d} if match == "exact" else {"d": (d, 0xFF)}
        switch.tables["t"].insert(key, group=group, priority=1)
    switch.tables["t"].insert({"d": 9} if match == "exact" else {"d": (9, 0xFF)}, member=members[2], priority=1)
    switch.tables["u"].insert({"e": 3}, group=groups[0])
    rng, pairs = random.Random(1), set()
    for _ in range(400):
        frame = data(rng.getrandbits(32), rng.getrandbits(32), rng.getrandbits(16), rng.choice([0, 1, 2, 3, 4, 9]))
        ((_, out),) = switch.process(frame)
        pairs.add((frame[10], out[11]))
    assert {(0, v) for v in (0, 1, 2, 4)} <= pairs and {(1, 1), (1, 2), (3, 99), (4, 99), (9, 2)} <= pairs


def test_random_selector(tmp_path):
    switch = switched(tmp_path, "t.apply();", ingress_locals=SELECTOR.format(algorithm="random", match="exact"))
    members = [ProfileMember("sel", i, "set", {"v": i}) for i in range(4)]
    group = ProfileGroup("sel", 1, tuple((i, 1) for i in range(4)))
    switch.write([Update("INSERT", e) for e in (*members, group, TableEntry("t", {"hdr.data.d": 1}, group=1))])
    values = [sent(switch, d=1)[-1] for _ in range(400)]
    assert all(60 < values.count(i) < 140 for i in range(4))


def test_profile_changes_reach_the_tables(tmp_path):
    switch = switched(tmp_path, "t.apply();", ingress_locals=SELECTOR.format(algorithm="identity", match="exact"))

    def write(*updates):
        switch.write([Update(kind, entity) for kind, entity in updates])

    write(
        ("INSERT", ProfileMember("sel", 1, "set", {"v": 10})),
        ("INSERT", ProfileMember("sel", 2, "set", {"v": 20})),
        ("INSERT", ProfileGroup("sel", 7, ((1, 1), (2, 3)))),
        ("INSERT", TableEntry("t", {"hdr.data.d": 1}, group=7)),
        ("INSERT", TableEntry("t", {"hdr.data.d": 2}, member=2)),
        ("INSERT", TableEntry("t", {"hdr.data.d": 3}, "set", {"v": 30})),
    )
    # Six bytes of selector fields: the identity of b and c, modulo a weight of four.
    assert [sent(switch, d=1, c=c)[-1] for c in range(4)] == [10, 20, 20, 20]
    assert [sent(switch, d=d)[-1] for d in (2, 3)] == [20, 30]
    write(("MODIFY", ProfileMember("sel", 2, "set", {"v": 21})), ("MODIFY", ProfileGroup("sel", 7, ((2, 1),))))
    assert [sent(switch, d=d)[-1] for d in (1, 2)] == [21, 21]
    assert switch.read([ProfileMember("sel", 2)]) == [ProfileMember("I.sel", 2, "I.set", {"v": 21})]
    assert switch.read([ProfileGroup("sel", 0)]) == [ProfileGroup("I.sel", 7, ((2, 1),))]
    for kind, entity, message in [
        ("DELETE", ProfileMember("sel", 2), "in use"),
        ("DELETE", ProfileGroup("sel", 7), "in use"),
        ("INSERT", ProfileMember("sel", 2, "set", {"v": 1}), "there already"),
        ("INSERT", ProfileMember("sel", 3, "set", {"v": 256}), "does not fit 8 bits"),
        ("MODIFY", ProfileGroup("sel", 8), "not there"),
        ("INSERT", ProfileGroup("sel", 8, ((5, 1),)), "no member 5"),
        ("INSERT", ProfileGroup("sel", 8, ((2, -1),)), "at least 1"),
        ("INSERT", TableEntry("t", {"hdr.data.d": 4}, group=9), "no group 9"),
        ("INSERT", TableEntry("t", {"hdr.data.d": 4}), "member or group"),
        ("INSERT", TableEntry("t", {"hdr.data.d": 4}, "set", {"v": 1}, member=2), "member or group"),
    ]:
        with pytest.raises(EntityError, match=message):
            write((kind, entity))
    write(("DELETE", TableEntry("t", {"hdr.data.d": 1})), ("DELETE", ProfileGroup("sel", 7)))
    assert sent(switch, d=1)[-1] == 99


@pytest.mark.parametrize("algorithm", ["csum16", "crc32", "crc16", "xor16", "identity"])
def test_lists_of_many_headers_that_may_be_invalid(tmp_path, algorithm):
    """Invalid headers contribute nothing; the program grows with the number of headers, not with that of their combinations."""
    count = 18
    types = """header h0_t { bit<3> a; bit<13> b; } header h1_t { bit<8> a; }
        header h2_t { int<72> a; bit<7> b; bool c; bit<136> d; } header h3_t { bit<8> a; varbit<32> b; }"""
    headers = " ".join(f"h{i % 4}_t h{i};" for i in range(count))
    states = "".join(
        f"state s{i} {{ transition select(hdr.data.b[{i}:{i}]) {{ 1: x{i}; default: s{i + 1}; }} }}\n"
        f"state x{i} {{ p.extract(hdr.h{i}{', 16' * (i % 4 == 3)}); transition s{i + 1}; }}\n" for i in range(count)
    )
    fields = ", ".join(["hdr.data.d[2:0]", *(f"hdr.h{i}" for i in range(count)), "hdr.data.d[7:3]"])
    switch = shadowed(
        tmp_path, f"hash(hdr.data.a, HashAlgorithm.{algorithm}, 32w0, {{ {fields} }}, 64w0x100000000);",
        parser=f"state start {{ p.extract(hdr.data); transition s0; }}\n{states}state s{count} {{ transition accept; }}",
        types=types, headers=headers,
        compute=f"update_checksum(true, {{ {fields} }}, hdr.data.c, HashAlgorithm.csum16);",
    )
    rng = random.Random(algorithm)
    for present in [0, (1 << count) - 1, *(rng.getrandbits(count) for _ in range(40))]:
        switch.process(data(0, present, 0, rng.getrandbits(8)) + rng.randbytes(250))


def test_value_sets(tmp_path):
    """Value sets of a struct with all match kinds over four keys at once, and of a scalar for one key."""
    switch = shadowed(
        tmp_path,
        "hdr.data.e = meta.path;",
        types="""struct set_t { @match(ternary) bit<16> a; @match(lpm) bit<8> b; bit<32> c; @match(range) bit<8> d; }
            struct pair_t { bit<8> x; } struct nest_t { bit<16> y; pair_t p; }""",
        metadata="bit<8> path;",
        parser_locals="value_set<set_t>(4) all; value_set<bit<32>>(2) one; value_set<nest_t>(4) nested;",
        parser="""state start { p.extract(hdr.data);
                transition select(hdr.data.c, hdr.data.d, hdr.data.b, hdr.data.e) {
                    all: yes; (0x77, _, one, _): alone; default: more; } }
            state more { transition select(hdr.data.c, hdr.data.d) { nested: inside; default: accept; } }
            state yes { meta.path = 1; transition accept; } state alone { meta.path = 2; transition accept; }
            state inside { meta.path = 3; transition accept; }""",
    )
    switch.value_sets["all"].insert((0x1200, 0xFF00), (0x40, 2), 5, (3, 9))
    switch.value_sets["all"].insert(None, None, 6, None)
    switch.value_sets["one"].insert(9)
    switch.value_sets["nested"].insert(0x77, 0x41)
    rng, results = random.Random(2), set()
    for _ in range(200):
        fields = (rng.choice([5, 6, 9]), rng.choice([0x1234, 0x77, 0x1300]), rng.choice([0x41, 0x81]), rng.choice([2, 3, 9]))
        ((_, out),) = switch.process(data(0, *fields))
        results.add(out[11])
    assert results == {0, 1, 2, 3}
    switch.value_sets["all"].members.clear()
    switch.process(data(b=6))
    with pytest.raises(EntityError, match="room for 2"):
        switch.switch.write([Update("MODIFY", ValueSetEntry("one", (1, 2, 3)))])
    with pytest.raises(EntityError, match="no field 'z'"):
        switch.switch.write([Update("MODIFY", ValueSetEntry("all", ({"z": 1},)))])
    with pytest.raises(EntityError, match="only MODIFY"):
        switch.switch.write([Update("INSERT", ValueSetEntry("one", (1,)))])


@pytest.mark.parametrize("unit", ["packets", "bytes"])
def test_meters_in_time(tmp_path, unit):
    """Colours of random traffic: the same arithmetic in both, to the last bit."""
    switch = shadowed(
        tmp_path,
        "m.execute_meter((bit<32>)hdr.data.d, hdr.data.e); m.execute_meter(9, hdr.data.c);",
        ingress_locals=f"meter(4, MeterType.{unit}) m;",
    )
    scale = 1 if unit == "packets" else 20
    switch.meters["m"].configure(1, 3.3 * scale, 2 * scale, 7.7 * scale, 5 * scale)
    switch.meters["m"].configure(2, 0.1 * scale, scale, 1e6, 10 * scale)
    rng, now, colours = random.Random(3), 0, set()
    for _ in range(400):
        now += int(rng.expovariate(30) * 1e12)
        frame = data(d=rng.choice([0, 1, 2, 7]), c=5) + bytes(rng.randrange(20))
        ((_, out),) = switch.process(frame, 0, now)
        colours.add((frame[10], out[11]))
        assert out[8:10] == b"\0\0"
    assert {(0, 0), (1, 0), (1, 1), (1, 2), (2, 1), (7, 0)} <= colours


def test_direct_meters(tmp_path):
    switch = switched(
        tmp_path,
        "t.apply(); m.read(hdr.data.c);",
        ingress_locals="""direct_meter<bit<16>>(MeterType.packets) m;
        action go() { } table t { key = { hdr.data.d: exact; } actions = { go; NoAction; }
            meters = m; }""",
    )
    entry = TableEntry("t", {"hdr.data.d": 1}, "go")
    config = MeterConfig(1.0, 1, 1.0, 2)
    switch.write([Update("INSERT", entry), Update("MODIFY", DirectMeterEntry(entry, config))])
    assert [sent(switch, d=1)[9] for _ in range(3)] == [0, 1, 2]
    assert switch.read([DirectMeterEntry(entry)]) == [DirectMeterEntry(entry, config)]
    assert sent(switch, d=2, c=4)[8:10] == b"\0\0"  # a miss
    # A new entry in the old one's place starts without a configuration.
    switch.write([Update("DELETE", entry), Update("INSERT", TableEntry("t", {"hdr.data.d": 3}, "go"))])
    assert [sent(switch, d=3)[9] for _ in range(4)] == [0] * 4
    with pytest.raises(EntityError, match="finite"):
        switch.write([Update("MODIFY", DirectMeterEntry(TableEntry("t", {"hdr.data.d": 3}), MeterConfig(-1, 1, 1, 1)))])


def test_meter_entries(tmp_path):
    switch = switched(
        tmp_path, "m.execute_meter(0, hdr.data.e);", ingress_locals="meter(4, MeterType.bytes) m; meter(2, MeterType.bytes) n;"
    )
    config = MeterConfig(100.0, 12, 1000.0, 24)
    switch.write([Update("MODIFY", MeterEntry("m", 0, config))])
    assert [sent(switch)[-1] for _ in range(3)] == [0, 1, 2]
    assert switch.read([MeterEntry("m")]) == [MeterEntry("I.m", 0, config), *(MeterEntry("I.m", i) for i in (1, 2, 3))]
    switch.write([Update("MODIFY", MeterEntry("m", 0))])
    assert sent(switch)[-1] == 0
    assert switch.read([MeterEntry("n", 1)]) == [MeterEntry("I.n", 1)]  # no statement uses it


def test_registers_of_structs_and_unused_ones(tmp_path):
    switch = shadowed(
        tmp_path,
        """cell_t c; r.read(c, (bit<32>)hdr.data.d); c.x = c.x + 1; c.y.z = (bit<8>)c.x ^ hdr.data.e;
        r.write((bit<32>)hdr.data.d, c); hdr.data.a = c.x; hdr.data.e = c.y.z;""",
        types="struct in_t { bit<8> z; bool w; } struct cell_t { bit<32> x; in_t y; }",
        ingress_locals="register<cell_t>(3) r; register<bit<9>>(5) unused; counter(2, CounterType.packets) idle;",
    )
    for d in (0, 1, 1, 2, 7, 1):
        switch.process(data(d=d, e=3 * d))
    assert switch.switch.register("I.unused").tolist() == [0] * 5
    assert switch.switch.counter("I.idle").tolist() == [[0, 0]] * 2
    layout = {r["name"] for r in switch.compiled.layout["registers"]}
    assert {"I.r.x", "I.r.y.z", "I.r.y.w"} <= layout


def test_messages_and_failed_assertions_are_counted(tmp_path):
    switch = switched(
        tmp_path,
        'log_msg("at {}", { hdr.data.d }); if (hdr.data.d == 1) { log_msg("one"); } assert(hdr.data.d != 2);',
        egress="assume(hdr.data.d != 3);",
        parser="state start { p.extract(hdr.data); assert(hdr.data.d != 4); transition accept; }",
    )
    for d in (0, 1, 2, 3, 4):
        assert len(switch.step(data(d=d), 0)) == (d < 2)
    counts = {text.split(": ")[-1]: n for text, n in switch.messages().items()}
    assert counts == {"at {}": 4, "one": 1}
    assert all("program.p4:" in text for text in switch.messages())
    assert switch.port_stats(0).drops["assertion"] == 2 and switch.port_stats(1).drops["assertion"] == 1


def test_hashes_with_the_payload(tmp_path):
    """Hashes with any algorithm over any fields, including a varbit, and the bytes behind the cursor."""
    names = ["crc32", "crc16", "csum16", "xor16", "identity"]
    updates = " ".join(
        f"update_checksum_with_payload(hdr.v.k != {i}, {{ hdr.v.k, hdr.v.n, hdr.v.o, hdr.w }}, hdr.r.f{i},"
        f" HashAlgorithm.{name});"
        for i, name in enumerate(names)
    )
    switch = shadowed(
        tmp_path,
        "hdr.r.setValid();",
        types=f"""header v_t {{ bit<4> k; bit<4> n; varbit<56> o; }} header w_t {{ bit<8> x; }}
            header r_t {{ {" ".join(f"bit<64> f{i};" for i in range(len(names)))} }}""",
        headers="v_t v; w_t w; r_t r;",
        parser="""state start { p.extract(hdr.data); p.extract(hdr.v, (bit<32>)hdr.data.d);
            transition select(hdr.data.e) { 1: more; default: accept; } }
            state more { p.extract(hdr.w); transition accept; }""",
        compute=updates,
        deparser="p.emit(hdr.r); p.emit(hdr.data); p.emit(hdr.v); p.emit(hdr.w);",
    )
    rng = random.Random(4)
    for _ in range(100):
        switch.process(data(d=8 * rng.randrange(9), e=rng.randrange(2)) + rng.randbytes(rng.randrange(24)))


def test_arrays_that_are_no_header_stacks(tmp_path):
    """Arrays of scalars and structs, in headers and in metadata, with constant and variable indices."""
    switch = shadowed(
        tmp_path,
        """hdr.w.x[hdr.data.d] = hdr.data.b[15:0]; meta.m[1].k = hdr.w.x[2]; meta.m[hdr.data.e & 1].n = 7;
        pair_t[2] local = meta.m; local[0].n = local[1].n + 1; hdr.data.c = local[0].k ^ meta.m[1].k;
        hdr.w.p[1] = local[hdr.data.d & 1]; bit<16>[4] copy = hdr.w.x; copy[3] = 9; hdr.w.x = copy;
        for (bit<16> v in copy) { hdr.data.a = hdr.data.a + (bit<32>)v; }""",
        types="""struct pair_t { bit<16> k; bit<8> n; }
            header w_t { bit<4> lead; bit<16>[4] x; pair_t[2] p; bit<4> tail; }""",
        headers="w_t w;",
        metadata="pair_t[2] m;",
        parser="state start { p.extract(hdr.data); p.extract(hdr.w); transition accept; }",
    )
    rng = random.Random(5)
    for _ in range(60):
        frame = data(rng.getrandbits(32), rng.getrandbits(32), 0, rng.randrange(6), rng.randrange(4)) + rng.randbytes(15)
        switch.process(frame)


def test_a_packet_clones_and_goes_round_with_other_lists(tmp_path):
    """The clone preserves one field list, and the resubmitted or recirculated packet of the same pass another."""
    switch = shadowed(
        tmp_path,
        """if (sm.instance_type == 0) { meta.x = 1; meta.y = 2; meta.z = 3;
            clone_preserving_field_list(CloneType.I2E, 5, 1); resubmit_preserving_field_list(2); }""",
        metadata="@field_list(1) bit<8> x; @field_list(2) bit<8> y; @field_list(1, 2, 3) bit<8> z; bit<8> w;",
        egress="""hdr.data.b = hdr.data.a; hdr.data.a = meta.x ++ meta.y ++ meta.z ++ (bit<8>)sm.instance_type;
            if (meta.y == 2) { meta.w = 4; clone_preserving_field_list(CloneType.E2E, 6, 3);
                recirculate_preserving_field_list(1); }""",
    )
    for session, port in ((5, 2), (6, 3)):
        switch.clone_sessions[session] = CloneSession(port, None)
    sent = switch.process(data(d=1))
    heads = sorted((port, frame[:8]) for port, frame in sent)
    # A clone of ingress, then (resubmitted, with y) a clone of egress, then recirculated.
    first, last = bytes([0, 2, 3, 0]), bytes([0, 0, 3, 0])
    assert heads == [(1, last + first), (2, bytes([1, 0, 3, 1]) + bytes(4)), (3, bytes([0, 0, 3, 2]) + first)]


def test_a_clone_of_egress_has_the_headers_that_egress_left(tmp_path):
    """The clone is neither deparsed nor parsed (simple_switch.md): headers that the parser would not extract stay headers, those
    that egress removed do not return as payload, and checksums are not yet computed."""
    switch = shadowed(
        tmp_path, "", metadata="@field_list(1) bit<8> kept;", types="header more_t { bit<8> x; varbit<32> rest; }",
        headers="more_t[2] more; more_t last;",
        parser="""state start { p.extract(hdr.data); transition select(hdr.data.d) { 0: last; default: more; } }
            state more { p.extract(hdr.more.next, 16); transition last; }
            state last { p.extract(hdr.last, 8); transition accept; }""",
        egress="""if (sm.instance_type == 2) {
                hdr.data.e = meta.kept; hdr.data.b = sm.packet_length;
                hdr.data.c = (bit<16>)((bit<8>)(bit<1>)hdr.more[0].isValid() << 4 | (bit<8>)(bit<1>)hdr.more[1].isValid());
                hdr.more[1].setInvalid();
            } else {
                meta.kept = 7; clone_preserving_field_list(CloneType.E2E, 6, 1); hdr.data.d = 0;
                hdr.more.push_front(1); if (hdr.data.e == 1) { hdr.last.setInvalid(); }
            }""",
        compute="update_checksum(true, { hdr.data.a, hdr.data.d }, hdr.data.c, HashAlgorithm.csum16);",
    )
    switch.clone_sessions[6] = CloneSession(3, None)
    for d, e in ((0, 0), (0, 1), (1, 0), (1, 1)):
        sent = dict(switch.process(data(a=9, d=d, e=e) + bytes(range(60, 80))))
        assert set(sent) == {1, 3}
        assert len(sent[1]) - len(sent[3]) == (3 if d else 0)


def test_a_packet_is_dropped_by_the_older_form_of_mark_to_drop(tmp_path):
    """Without an argument it means the pipeline's own metadata, also below controls and actions that were given them."""
    switch = shadowed(
        tmp_path,
        """if (hdr.data.d == 1) { mark_to_drop(); } if (hdr.data.d == 2) { everywhere(); } if (hdr.data.d == 3) { given(sm); }
            if (hdr.data.d > 3) { outer.apply(hdr.data, sm); } if (hdr.data.e == 1) { sm.egress_spec = 2; }""",
        types="""action everywhere() { mark_to_drop(); }
            control Inner(inout data_t data) { apply { if (data.d == 4) { mark_to_drop(); } } }
            control Outer(inout data_t data, inout standard_metadata_t other) {
                action drop() { mark_to_drop(); } Inner() inner;
                apply { other.egress_spec = 3; inner.apply(data); if (data.d == 5) { drop(); } } }""",
        ingress_locals="action given(inout standard_metadata_t other) { mark_to_drop(); } Outer() outer;",
        egress="if (hdr.data.d == 7) { mark_to_drop(); }",
    )
    for e in (0, 1):
        ports = [[port for port, _ in switch.process(data(d=d, e=e))] for d in range(8)]
        assert ports == ([[2]] * 7 + [[]] if e else [[1], [], [], [], [], [], [3], []])


def test_of_two_digests_for_one_packet_the_last_is_sent(tmp_path):
    """The last digest counts, as with clones and resubmissions; simple_switch.md: after ingress, "if digest to generate"."""
    switch = shadowed(
        tmp_path,
        """digest<one_t>(1, { hdr.data.a }); hdr.data.a = 2;
        if (hdr.data.d == 1) { digest<two_t>(1, { hdr.data.a, 9w5 }); }""",
        types="struct one_t { bit<32> a; } struct two_t { bit<32> a; bit<9> b; }",
    )
    for d in (0, 1):
        switch.process(data(a=7, d=d))
    digests = [(d.name, tuple(d.fields.values())) for d in switch.switch.digests()[0]]
    assert digests == [(d.name, d.values) for d in switch.digests] == [("one_t", (7,)), ("two_t", (2, 5))]


def test_a_clone_is_parsed_before_it_gets_what_its_list_keeps(tmp_path):
    """Same order as in BMv2: a parser that reads the metadata sees zeros."""
    switch = shadowed(
        tmp_path, "meta.kept = 1; clone_preserving_field_list(CloneType.I2E, 1, 1);", metadata="@field_list(1) bit<8> kept;",
        types="header more_t { bit<8> x; }", headers="more_t more;", egress="hdr.more.setInvalid();",
        parser="""state start { p.extract(hdr.data); transition select(meta.kept) { 0: more; default: accept; } }
                  state more { p.extract(hdr.more); transition accept; }""",
    )
    switch.clone_sessions[1] = CloneSession(3, None)
    frame = data(a=1)
    assert sorted(switch.process(frame + b"\xaa\xbb", 0)) == [(1, frame + b"\xbb"), (3, frame + b"\xbb")]


MAXIMA = {
    "hdr.data.c": lambda c: c,
    "(int<16>)hdr.data.c": lambda c: c - (c >> 15 << 16) & (1 << 64) - 1,  # in 64 bits, as BMv2 converts it
    "(bit<80>)hdr.data.c << 64": lambda c: c << 64,
    "16w16": lambda c: 16,
}


@pytest.mark.parametrize("width", ["bit<16>", "int<7>", "bit<80>"])
@pytest.mark.parametrize(("base", "first", "second"), [
    ("(int<8>)hdr.data.e", -1, 0x7F), ("(bit<80>)hdr.data.e << 64", 0xFF << 64, 0x7F << 64),
    ("hdr.data.a ++ hdr.data.b", (1 << 64) - 1, (1 << 64) - 1), ("-8s3", -3, -3),
])
def test_a_hash_is_base_and_hash_mod_max_as_whole_numbers(tmp_path, width, base, first, second):
    bits = int(width.strip("bint<>"))
    switch = shadowed(
        tmp_path,
        f"{width} x; hdr.r.setValid();" + " ".join(
            f"hash(x, HashAlgorithm.identity, {base}, {{ 16w300 }}, {limit}); hdr.r.f{i} = (bit<80>)(bit<{bits}>)x;"
            for i, limit in enumerate(MAXIMA)
        ),
        types=f"header r_t {{ {' '.join(f'bit<80> f{i};' for i in range(len(MAXIMA)))} }}", headers="r_t r;",
    )
    for e, start in ((0xFF, first), (0x7F, second)):
        for c in (7, 0, 0xFFFF):
            ((_, frame),) = switch.process(data(0xFFFFFFFF, 0xFFFFFFFF, c, e=e))
            got = [int.from_bytes(frame[at : at + 10], "big") for at in range(12, len(frame), 10)]
            sizes = [size(c) for size in MAXIMA.values()]
            assert got == [start + (300 % size if size else 0) & (1 << bits) - 1 for size in sizes], (c, e)
