"""Reads of keys without an entry: same errors as other reads, in a time that does not grow with the number of entries."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from capabilities import need

need("cc", "p4runtime")

from ina.p4.bfrt import missing_keys  # noqa: E402
from ina.p4.bfrt.device import Device  # noqa: E402
from ina.p4.bfrt.messages import bfrt  # noqa: E402
from ina.p4.bfrt.rows import Row, message_of  # noqa: E402
from ina.p4.bfrt.service import Server  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.runtime import Switch  # noqa: E402
from ina.p4.runtime.entities import ProfileGroup, ProfileMember, TableEntry, Update, delete, insert, modify  # noqa: E402
from ina.p4.runtime.entity_error import EntityError  # noqa: E402
from ina.p4.runtime.entry_table import EntryTable  # noqa: E402
from ina.p4.runtime.profiles import Profiles  # noqa: E402
from ina.p4.runtime.tables import Tables  # noqa: E402
from ina.p4.runtime.tna_entities import EntryScope, KeyMask  # noqa: E402

pytestmark = pytest.mark.build
PROGRAMS = Path(__file__).parent.parent.parent / "programs/served"
DST, KNOWN = "hdr.ethernet.dst", "meta.known"
FORWARD, NUMBERED = "SwitchIngress.forward", "SwitchIngress.numbered"


class Ended(Exception):
    pass


class Context:
    """Context of a call whose client stays for `looks` looks."""

    def __init__(self, looks: int = 1 << 30, **metadata: str):
        self.looks, self.metadata, self.trailers, self.status = looks, metadata, b"", ""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.metadata.items())

    def is_active(self) -> bool:
        self.looks -= 1
        return self.looks >= 0

    def set_trailing_metadata(self, trailers: Any) -> None:
        ((_, self.trailers),) = trailers

    def abort(self, code: Any, message: str) -> None:
        self.status = f"{code}: {message}"
        raise Ended


def answers(server: Server, request: Any, **metadata: str) -> tuple[Any, ...]:
    context, responses = Context(**metadata), []
    try:
        for response in server._read(request, context):
            responses.append(response)
    except Ended:
        pass
    return responses, context.status, context.trailers


def device(switch: Switch, name: str) -> Device:
    return Device(switch, name)


@pytest.fixture(scope="module")
def pipes() -> Any:
    return compile_program(PROGRAMS / "bfrt_pipes.p4")


@pytest.fixture
def switch(pipes) -> Any:
    with Switch(pipes.so_path) as switch:
        yield switch


def entries(count: int) -> list[TableEntry]:
    return [TableEntry(FORWARD, {DST: n, KNOWN: n & 1}, "SwitchIngress.to_port", {"port": n}) for n in range(0, 2 * count, 2)]


def random_entry(rng: random.Random, device: Device) -> Any:
    """A table_entry, mostly as in a plain read of one key; some of the keys exist."""
    table = device.info.table(rng.choice([FORWARD, FORWARD, FORWARD, NUMBERED, "$PORT"]))
    entry = bfrt.TableEntry(table_id=rng.choice([table.id] * 15 + [1]))
    entry.table_flags.from_hw = rng.random() < 0.5
    fields = list(table.keys)
    if rng.random() < 0.1:
        rng.shuffle(fields)
    for field in fields:
        if rng.random() < 0.03:
            continue
        part = entry.key.fields.add(field_id=field.id if rng.random() < 0.97 else 99)
        value = rng.choice([rng.randrange(12), rng.randrange(2), 1 << field.width]).to_bytes(8, "big")
        if rng.random() < 0.03:
            part.ternary.value = part.ternary.mask = value
        else:
            part.exact.value = rng.choice([value, value, value[-field.bytes :], b""])
    odd = rng.random()
    if odd < 0.03:
        entry.is_default_entry = True
    elif odd < 0.06:
        entry.handle_id = rng.randrange(12)
    elif odd < 0.09:
        entry.data.fields.add(field_id=rng.choice([f.id for f in table.data] + [77]))
    elif odd < 0.12 and table.actions:
        entry.data.action_id = rng.choice(table.actions).id
    elif odd < 0.15:
        entry.entry_tgt.pipe_id = rng.choice([0, 1, 0xFFFF])
    elif odd < 0.17:
        entry.table_mod_inc_flag.type = 9
    elif odd < 0.5:
        entry.data.SetInParent()
    return entry


@pytest.mark.parametrize("setting", ["", "mask", "scope"])
def test_answers_are_those_of_reads_one_by_one(switch, monkeypatch, setting):
    rng = random.Random(setting)
    if setting == "mask":
        switch.write(modify(KeyMask(FORWARD, {DST: 0xF})))
    if setting == "scope":
        switch.write(modify(EntryScope(FORWARD, ((0,), (1,)))))
        switch.write([Update("INSERT", TableEntry(e.table, e.match, e.action, e.params, pipe=1)) for e in entries(4)])
    else:
        switch.write(insert(*entries(4)))
    counts: list[int] = []
    with Server(device(switch, "bfrt_pipes")) as server:
        current = server._current()
        for _ in range(200):
            request = bfrt.ReadRequest(p4_name="bfrt_pipes")
            request.entities.extend(bfrt.Entity(table_entry=random_entry(rng, current)) for _ in range(8))
            request.target.pipe_id = rng.choice([0xFFFF, 0xFFFF, 0, 1, 9])
            metadata = rng.choice([{}, {"error_in_resp": "1"}])
            quick = answers(server, request, **metadata)
            with monkeypatch.context() as slow:
                slow.setattr(missing_keys.Absent, "error", lambda *_: None)
                assert answers(server, request, **metadata) == quick
            probe = missing_keys.Absent(current, missing_keys.Where())
            counts.append(sum(probe.error(e.table_entry) is not None for e in request.entities))
    assert sum(counts) > (200 if not setting else 40)


@pytest.mark.parametrize(("program", "key"), [("bfrt_pipes", {DST: 1, KNOWN: 0}), ("bfrt", {DST: (1, 1), "meta.port.zone": 0})])
def test_a_key_that_is_not_there_is_not_looked_for_among_all_entries(program, key, monkeypatch):
    with Switch(compile_program(PROGRAMS / f"{program}.p4").so_path) as switch, Server(device(switch, program)) as server:
        if program == "bfrt":
            key = {"$MATCH_PRIORITY": 5, **key}
        info = server._current().info
        request = bfrt.ReadRequest(p4_name=program)
        request.target.pipe_id = 0xFFFF
        for _ in range(3):
            request.entities.add().table_entry.CopyFrom(message_of(Row(FORWARD, key), info))
        monkeypatch.setattr(Tables, "entries", lambda *_: pytest.fail("all entries are looked at"))
        _, status, trailers = answers(server, request)
        assert "number 0 of 3: table pipe.SwitchIngress.forward: there is no such entry" in status
        assert trailers.count(b"there is no such entry") == 4  # in front, and of each


def test_keys_written_during_a_request_or_before_it_are_there(switch):
    switch.write(insert(*entries(2)))
    current = device(switch, "bfrt_pipes")

    def missing(key: int) -> bool:
        message = message_of(Row(FORWARD, {DST: key, KNOWN: key & 1}), current.info)
        return missing_keys.Absent(current, missing_keys.Where()).error(message) is not None

    assert [missing(n) for n in range(4)] == [False, True, False, True]
    switch.write(delete(*entries(1)) + insert(TableEntry(FORWARD, {DST: 3, KNOWN: 1}, "SwitchIngress.drop")))
    assert [missing(n) for n in range(4)] == [True, True, False, False]


@pytest.mark.parametrize("looks", [0, 1, 3])
def test_a_read_stops_when_its_client_waits_no_longer(switch, looks):
    """The client leaves, or its deadline passes; a server that read on would keep all other calls waiting."""
    with Server(device(switch, "bfrt_pipes")) as server:
        message = message_of(Row(FORWARD, {DST: 1, KNOWN: 1}), server._current().info)
        request = bfrt.ReadRequest(p4_name="bfrt_pipes", entities=[bfrt.Entity(table_entry=message)] * 1000)
        context = Context(looks)
        with pytest.raises(Ended):
            list(server._read(request, context))
        assert f"{looks}00 of 1000 reads were made in time" in context.status or (looks == 0 and " 0 of 1000" in context.status)
        expired = Context(deadline_nsec="1")
        with pytest.raises(Ended):
            list(server._read(request, expired))
        assert "DEADLINE_EXCEEDED" in expired.status


class Unscanned(dict):  # type: ignore[type-arg]
    """A dictionary that must not be iterated."""

    def __iter__(self) -> Any:
        raise AssertionError("all are looked at")

    items = values = keys = __iter__


SELECTOR = """
#include <core.p4>
#include <v1model.p4>
struct headers { } struct metadata { bit<16> kind; }
parser P(packet_in p, out headers h, inout metadata m, inout standard_metadata_t s) { state start { transition accept; } }
control V(inout headers h, inout metadata m) { apply { } }
control I(inout headers h, inout metadata m, inout standard_metadata_t s) {
    action to(bit<9> port) { s.egress_spec = port; }
    action_selector(HashAlgorithm.crc32, 32w64, 32w16) profile;
    table t { key = { s.ingress_port: exact; m.kind: selector; } actions = { to; } implementation = profile; size = 64; }
    apply { t.apply(); }
}
control E(inout headers h, inout metadata m, inout standard_metadata_t s) { apply { } }
control D(packet_out p, in headers h) { apply { } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""


def test_a_members_change_looks_at_no_other_member_entry_or_group(tmp_path):
    source = tmp_path / "selector.p4"
    source.write_text(SELECTOR)
    with Switch(compile_program(source).so_path) as switch:
        profile = "I.profile"
        switch.write(insert(*(ProfileMember(profile, n, "I.to", {"port": n}) for n in range(1, 11))))
        switch.write(insert(ProfileGroup(profile, 1, ((1, 1), (2, 3))), ProfileGroup(profile, 2, ((2, 1),))))
        switch.write(insert(TableEntry("I.t", {"s.ingress_port": 1}, group=1),
                            TableEntry("I.t", {"s.ingress_port": 2}, member=5)))
        tables = switch._tables
        (table,) = tables._tables.values()
        assert isinstance(tables.profiles, Profiles) and isinstance(table, EntryTable)
        for objects in (tables.profiles.members, tables.profiles.groups):
            for name, there in objects.items():
                objects[name] = Unscanned(there)
        table.rows = Unscanned(table.rows)

        def refused(entity: ProfileMember | ProfileGroup) -> bool:
            try:
                tables.apply_profile("DELETE", entity)
            except EntityError as error:
                assert error.code == "FAILED_PRECONDITION"
                return True
            return False

        tables.apply_profile("INSERT", ProfileMember(profile, 11, "I.to", {"port": 11}))
        assert [n for n in range(1, 12) if refused(ProfileMember(profile, n))] == [1, 2, 5]
        assert refused(ProfileGroup(profile, 1)) and not refused(ProfileGroup(profile, 2)) and refused(ProfileMember(profile, 2))
        tables.apply_profile("MODIFY", ProfileGroup(profile, 1, ((1, 2),)))
        assert not refused(ProfileMember(profile, 2)) and refused(ProfileMember(profile, 1))
        tables.apply("DELETE", TableEntry("I.t", {"s.ingress_port": 1}))
        tables.apply("MODIFY", TableEntry("I.t", {"s.ingress_port": 2}, member=1))
        assert not refused(ProfileGroup(profile, 1)) and not refused(ProfileMember(profile, 5))
        assert refused(ProfileMember(profile, 1))
        assert tables.profiles.read(ProfileMember(profile, 1))[0].params == {"port": 1}
        assert tables.profiles.read(ProfileMember(profile, 2)) == []
