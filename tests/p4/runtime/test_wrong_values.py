"""Values that a switch cannot use: each error names the entity, the field and what was expected, and nothing changes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from capabilities import need

import ina
from ina.p4 import (
    CounterEntry,
    DirectCounterEntry,
    EntityError,
    MeterConfig,
    MeterEntry,
    MulticastGroupEntry,
    ProfileGroup,
    ProfileMember,
    RegisterEntry,
    Replica,
    Switch,
    TableEntry,
    ValueSetEntry,
)
from ina.p4.runtime import profiles
from ina.p4.runtime.tna_entities import MulticastEcmp, MulticastNode

pytestmark = pytest.mark.build
need("cc")

PROGRAMS = Path(__file__).parents[2] / "programs"
CHOSEN = {"hdr.data.kind": 1}
MEMBER = ProfileMember("selector", 1, "send", {"port": 1, "mark": 2})


@pytest.fixture
def switch():
    with Switch(ina.p4.compile(PROGRAMS / "selector.p4", include_dirs=[PROGRAMS])) as switch:
        switch.insert(MEMBER)
        yield switch


ENTRY = TableEntry("chosen", CHOSEN, member=1)
WRONG: list[tuple[Any, str]] = [
    (TableEntry("chosen", CHOSEN, member=1, priority="high"), "TableEntry 'chosen': priority: 'high': expected int"),
    (TableEntry("chosen", None, member=1), "TableEntry 'chosen': match: None: expected Mapping[str, Match]"),
    (TableEntry("chosen", {1: 2}, member=1), "TableEntry 'chosen': match: {1: 2}: expected Mapping[str, Match]"),
    (TableEntry("chosen", [("hdr.data.kind", 1)], member=1), "TableEntry 'chosen': match: "),
    (TableEntry("chosen", CHOSEN, 1.5), "TableEntry 'chosen': action: 1.5: expected str or int or None"),
    (TableEntry(["chosen"], CHOSEN, member=1), "TableEntry: table: ('chosen',): expected str or int"),
    (TableEntry("chosen", CHOSEN, member="1"), "TableEntry 'chosen': member: '1': expected int or None"),
    (TableEntry("chosen", {"hdr.data.kind": None}, member=1), "field hdr.data.kind: None is not a value: expected"),
    (TableEntry("chosen", {"hdr.data.kind": {}}, member=1), "field hdr.data.kind: {} is not a value: expected"),
    (ProfileMember("selector", None, "send"), "ProfileMember 'selector': member_id: None: expected int"),
    (ProfileMember("selector", -1, "send", MEMBER.params), "member number: -1 does not fit 32 bits"),
    (ProfileMember("selector", 2, "send", 7), "ProfileMember 'selector': params: 7: expected Mapping[str, Value]"),
    (ProfileMember("selector", 2, "send", "port"), "ProfileMember 'selector': params: 'port': expected Mapping[str, Value]"),
    (MulticastGroupEntry(1, Replica(1)), "MulticastGroupEntry 1: replicas: Replica(port=1, rid=0): expected tuple[Replica, ...]"),
    (ProfileGroup("selector", -1, ()), "group number: -1 does not fit 32 bits"),
    (ProfileGroup("selector", 1, ((1, "1"),)), "ProfileGroup 'selector': members: ((1, '1'),): expected tuple[tuple[int, int]"),
    (ProfileGroup("selector", 1, (1,)), "ProfileGroup 'selector': members: (1,): expected tuple[tuple[int, int]"),
    (MulticastGroupEntry("1"), "MulticastGroupEntry '1': group_id: '1': expected int"),
    (MulticastGroupEntry(1, (3,)), "MulticastGroupEntry 1: replicas: (3,): expected tuple[Replica, ...]"),
    (MulticastGroupEntry(1, (Replica(None),)), "multicast group 1: port: None is not a value"),
    (RegisterEntry("r", "0"), "RegisterEntry 'r': index: '0': expected int or None"),
    (CounterEntry(None), "CounterEntry: counter: None: expected str or int"),
    (DirectCounterEntry("chosen"), "DirectCounterEntry 'chosen': entry: 'chosen': expected TableEntry"),
    (MeterEntry("m", 0, (1, 2)), "MeterEntry 'm': config: (1, 2): expected MeterConfig or None"),
    (MeterEntry("m", 0, MeterConfig("1", 2, 3, 4)), "config.committed_rate: '1': expected float"),
    (ValueSetEntry("v", 5), "ValueSetEntry 'v': members: 5: expected tuple"),
    ("chosen", "'chosen' is no entity"),
]


@pytest.mark.parametrize(("entity", "message"), WRONG, ids=[message[:50] for _, message in WRONG])
def test_a_value_of_another_type_is_refused_by_name(switch, entity, message):
    before = switch.read(TableEntry("chosen"))
    for call in (switch.insert, switch.modify, switch.delete):
        with pytest.raises(EntityError, match="update 0: "):
            call(entity)
    with pytest.raises(EntityError, match=re.escape(message)):
        switch.insert(entity)
    assert switch.read(TableEntry("chosen")) == before


def test_a_pattern_to_read_may_leave_fields_open_but_not_have_another_type(switch):
    switch.insert(ENTRY)
    assert len(switch.read(TableEntry(None))) == 1
    with pytest.raises(EntityError, match="TableEntry 'chosen': pipe: 'a': expected int or None"):
        switch.read(TableEntry("chosen", pipe="a"))


def test_a_client_of_p4runtime_refuses_them_alike():
    need("p4runtime")
    from ina.p4.p4runtime.pipeline import message_of
    from ina.p4.p4runtime.translate import RemoteEntities
    from ina.p4.runtime import Program

    program = Program(ina.p4.compile(PROGRAMS / "selector.p4", include_dirs=[PROGRAMS]).so_path)
    entities = RemoteEntities(program.p4info, message_of(program))
    with pytest.raises(EntityError, match="TableEntry 'chosen': priority: 'high': expected int"):
        entities.message(TableEntry("chosen", CHOSEN, member=1, priority="high"))
    assert entities.message(ENTRY).table_entry.action.action_profile_member_id == 1


def test_numbers_of_tofinos_replication_have_32_bits():
    with Switch(ina.p4.compile(PROGRAMS / "tna_forward.p4")) as switch:
        for entity in (MulticastNode(-1), MulticastNode(1 << 32), MulticastEcmp(-1)):
            with pytest.raises(EntityError, match="does not fit 32 bits"):
                switch.insert(entity)


def test_the_weights_of_all_groups_together_have_a_limit(switch, monkeypatch):
    monkeypatch.setattr(profiles, "MOST_WEIGHTS", 20)
    switch.insert(ProfileGroup("selector", 1, ((1, 12),)), ProfileGroup("selector", 2, ((1, 8),)))
    with pytest.raises(EntityError, match="weights of all groups add up to 21, at most 20 are possible") as error:
        switch.insert(ProfileGroup("selector", 3, ((1, 1),)))
    assert error.value.code == "RESOURCE_EXHAUSTED"
    switch.modify(ProfileGroup("selector", 1, ((1, 11),)))
    switch.insert(ProfileGroup("selector", 3, ((1, 1),)))
    switch.delete(ProfileGroup("selector", 2))
    switch.modify(ProfileGroup("selector", 3, ((1, 9),)))


def test_a_closed_switch_answers_nothing(switch):
    switch.insert(ENTRY)
    switch.close()
    calls = (
        lambda: switch.read(TableEntry("chosen")), lambda: switch.drops(), lambda: switch.digests(), lambda: switch.insert(),
        lambda: switch.process(1, bytes(64)), lambda: switch.insert(ENTRY),
    )
    for call in calls:
        with pytest.raises(RuntimeError, match="the switch is closed"):
            call()


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_frames_may_be_any_kind_of_bytes(switch, make):
    switch.insert(TableEntry("chosen", CHOSEN, member=1))
    frame = bytes(12) + b"\0\1" + bytes(40)
    assert switch.process(1, make(frame)) == switch.process(1, frame) != []


@pytest.mark.parametrize("frame", [[1, 2, 3], "0102", 64, None])
def test_a_frame_that_is_no_bytes_is_refused(switch, frame):
    with pytest.raises(TypeError, match=f"a frame is a {type(frame).__name__}: expected bytes"):
        switch.process(1, frame)


def test_an_error_about_a_port_names_ranges(switch):
    with pytest.raises(ValueError, match=r"^port 511 is not there; there are: 0\.\.510$"):
        switch.process(511, bytes(64))


@pytest.mark.parametrize("program", ["selector.p4", "tna_forward.p4"])
def test_a_frame_without_bytes_is_dropped_by_both_switches(program):
    from ina.p4.compiler import frontend
    from ina.p4.compiler.reference.interpreter import Interpreter

    with Switch(ina.p4.compile(PROGRAMS / program, include_dirs=[PROGRAMS])) as switch:
        interpreter = Interpreter(frontend.load(PROGRAMS / program, include_dirs=[PROGRAMS]))
        assert switch.process(1, b"") == interpreter.process(b"", 1) == []
        assert switch.drops() == interpreter.drops == {"malformed": 1}
