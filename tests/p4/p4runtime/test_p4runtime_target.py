"""One control plane, two targets: the same entities written into an embedded switch directly and over P4Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from capabilities import need

need("cc", "p4runtime")

from p4runtime_client import Client  # noqa: E402
from waiting import until  # noqa: E402

from ina.aggregation.controller.admission import Controller  # noqa: E402
from ina.aggregation.worker import Endpoint, WorkerConfig  # noqa: E402
from ina.base import paths  # noqa: E402
from ina.net.ports import memory_pair  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.p4runtime import remote_switch  # noqa: E402
from ina.p4.p4runtime.bmv2 import Bmv2, compile_bmv2  # noqa: E402
from ina.p4.p4runtime.device import Device  # noqa: E402
from ina.p4.p4runtime.messages import p4  # noqa: E402
from ina.p4.p4runtime.remote_switch import RemoteSwitch  # noqa: E402
from ina.p4.p4runtime.service import Server  # noqa: E402
from ina.p4.rpc.errors import CODES  # noqa: E402
from ina.p4.runtime import (  # noqa: E402
    CloneSessionEntry,
    CounterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    EntityError,
    MeterConfig,
    MeterEntry,
    MulticastGroupEntry,
    ProfileGroup,
    ProfileMember,
    Program,
    RegisterEntry,
    Replica,
    Switch,
    TableEntry,
    ValueSetEntry,
    delete,
    insert,
    modify,
)
from ina.worlds.deployed.remote import remote_target  # noqa: E402

P4 = Path(__file__).parent.parent.parent / "programs/served"


OURS = [pytest.param(name, marks=pytest.mark.build) for name in ("embedded", "remote")]
BMV2 = pytest.param("bmv2", marks=pytest.mark.hardware)
ALL = [*OURS, BMV2]


@pytest.fixture(params=ALL)
def target(request, tmp_path):
    yield from a_target(request.param, P4 / "controlled.p4", tmp_path)


@pytest.fixture(params=ALL)
def objects(request, tmp_path):
    yield from a_target(request.param, P4 / "objects.p4", tmp_path)


@pytest.fixture(params=OURS)
def our_target(request, tmp_path):
    yield from a_target(request.param, P4 / "controlled.p4", tmp_path)


@pytest.fixture(params=OURS)
def our_objects(request, tmp_path):
    yield from a_target(request.param, P4 / "objects.p4", tmp_path)


@pytest.fixture
def bmv2(tmp_path):
    yield from a_target("bmv2", P4 / "controlled.p4", tmp_path)


def a_target(kind, source, folder):
    if kind == "bmv2":
        need("root", "netns", "simple_switch_grpc", "p4c")
        with Bmv2([], folder / "bmv2") as bmv2, bmv2.remote(compile_bmv2(source)) as remote:
            yield remote
        return
    compiled = compile_program(source)
    if kind == "embedded":
        with Switch(compiled.so_path) as switch:
            yield switch
        return
    with Device(device_id=3) as device, Server(device, "127.0.0.1:0") as server:
        with RemoteSwitch(server.address, device_id=3) as remote:
            remote.set_pipeline(compiled.p4info, compiled.so_path.read_bytes())
            yield remote


def test_what_is_written_is_there(target):
    assert target.p4info.table("l2").size == 8
    target.write(insert(
        TableEntry("l2", {"dst": "02:00:00:00:00:01"}, "forward", {"port": 2}, metadata=b"m"),
        TableEntry("acl", {"b": (0x10, 0xF0), "c": (5, 9)}, "drop", priority=3),
        TableEntry("route", {"a": ("10.0.0.0", 8)}, "NoAction"),
        MulticastGroupEntry(5, (Replica(1, 1), Replica(2, 2))),
        CloneSessionEntry(9, (Replica(3),)),
    ) + modify(TableEntry("l2", {}, "forward", {"port": 1}, is_default=True), CounterEntry("seen", 1, 7, 70)))
    (entry,) = target.read([TableEntry("l2")])
    assert (entry.table, entry.action, entry.params, entry.metadata) == ("I.l2", "I.forward", {"port": 2}, b"m")
    (default,) = target.read([TableEntry("l2", is_default=True)])
    assert (default.is_default, default.params) == (True, {"port": 1})
    assert len(target.read([TableEntry("acl"), TableEntry("route")])) == 2
    group, session = target.read([MulticastGroupEntry(0), CloneSessionEntry(9)])
    assert (group.group_id, set(group.replicas)) == (5, {Replica(1, 1), Replica(2, 2)})
    assert session == CloneSessionEntry(9, (Replica(3),))
    assert target.read([CounterEntry("seen", 1)]) == [CounterEntry("I.seen", 1, 7, 70)]
    target.write(modify(DirectCounterEntry(entry, 3, 30)))
    (counted,) = target.read([DirectCounterEntry(entry)])
    assert (counted.packets, counted.bytes) == (3, 30)
    target.write(delete(TableEntry("l2", {"dst": "02:00:00:00:00:01"}), MulticastGroupEntry(5)))
    assert target.read([TableEntry("l2")]) == [] and target.read([MulticastGroupEntry(0)]) == []


def test_registers_and_the_length_of_clones(our_target):
    session = CloneSessionEntry(9, (Replica(3),), 64)
    our_target.write(insert(session) + modify(RegisterEntry("last", 2, 99)))
    assert our_target.read([RegisterEntry("last", 2), session]) == [RegisterEntry("I.last", 2, 99), session]


def test_members_groups_and_the_entries_that_name_them(objects):
    members = [ProfileMember("paths", 1, "send", {"port": 3}), ProfileMember("paths", 2, "drop")]
    group = ProfileGroup("paths", 7, ((1, 3), (2, 1)))
    entries = [TableEntry("hop", {"key": 5}, member=2), TableEntry("hop", {"key": 6}, group=7)]
    objects.write(insert(*members, group, *entries))
    assert objects.read([ProfileMember("paths", 1)]) == [ProfileMember("I.paths", 1, "I.send", {"port": 3})]
    assert {m.member_id for m in objects.read([ProfileMember("paths", 0)])} == {1, 2}
    assert objects.read([ProfileGroup("paths", 7)]) == [ProfileGroup("I.paths", 7, ((1, 3), (2, 1)))]
    assert sorted((e.match["key"], e.member, e.group) for e in objects.read([TableEntry("hop")])) == [(5, 2, None), (6, None, 7)]
    with pytest.raises(EntityError):
        objects.write(delete(members[0]))  # the group has it
    objects.write(delete(*entries, group, *members))
    assert objects.read([ProfileMember("paths", 0), ProfileGroup("paths", 0), TableEntry("hop")]) == []


def test_meters_are_configured_and_made_green_again(objects):
    config = MeterConfig(100, 10, 200, 20)
    entry = TableEntry("metered", {"key": 1}, "limited")
    objects.write(insert(entry) + modify(MeterEntry("rate", 1, config), DirectMeterEntry(entry, config)))
    assert objects.read([MeterEntry("rate")]) == [MeterEntry("I.rate", 0), MeterEntry("I.rate", 1, config)]
    (direct,) = objects.read([DirectMeterEntry(entry)])
    assert direct.config == config
    objects.write(modify(MeterEntry("rate", 1), DirectMeterEntry(entry)))
    assert [m.config for m in objects.read([MeterEntry("rate", 1), DirectMeterEntry(entry)])] == [None, None]


def test_value_sets_are_replaced_as_a_whole(our_objects):
    for members in ((1, 2), (3,), ()):
        our_objects.write(modify(ValueSetEntry("kinds", members)))
        (entry,) = our_objects.read([ValueSetEntry("kinds")])
        assert [m if isinstance(m, int) else next(iter(m.values())) for m in entry.members] == list(members)
    with pytest.raises(EntityError) as caught:
        our_objects.write(modify(ValueSetEntry("kinds", (1, 2, 3))))
    assert caught.value.code == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("wrong, words", [
    (insert(TableEntry("hops", {"key": 1}, member=1)), "did you mean 'I.hop'"),
    (insert(TableEntry("metered", {"kez": 1}, "limited")), "'kez'"),
    (insert(ProfileMember("paths", 1, "limited")), "'limited'"),
    (insert(ProfileMember("paths", 1, "send", {"port": 512})), "9 bits"),
    (modify(ValueSetEntry("kinds", ({"nothing": 1},))), "'nothing'"),
    (modify(MeterEntry("rate", 9, None)), "index 9"),
])
def test_what_is_wrong_is_refused_alike_with_its_name(our_objects, wrong, words):
    with pytest.raises(EntityError, match=words):
        our_objects.write(wrong)


def test_a_batch_that_fails_says_which_update_and_why(our_target):
    good = TableEntry("l2", {"dst": 1}, "drop")
    for bad, code in ((good, "ALREADY_EXISTS"), (TableEntry("fixed", {"e": 9}, "NoAction"), "PERMISSION_DENIED"),
                      (TableEntry("l2", {"dst": 1 << 48}, "drop"), "INVALID_ARGUMENT")):
        with pytest.raises(EntityError, match="update 1") as caught:
            our_target.write(insert(good, bad))
        assert (caught.value.code, caught.value.update) == (code, 1)
        assert our_target.read([TableEntry("l2")]) == []


def test_a_batch_that_fails_changes_nothing(target):
    """BMv2 does not support ROLLBACK_ON_ERROR: there the client undoes the earlier updates."""
    first, other = TableEntry("l2", {"dst": 1}, "forward", {"port": 3}), TableEntry("l2", {"dst": 2}, "drop")
    group = MulticastGroupEntry(5, (Replica(1, 1),))
    target.write(insert(first, group))
    changes = [*modify(TableEntry("l2", {"dst": 1}, "drop"), MulticastGroupEntry(5, (Replica(2, 2),))), *insert(other)]
    for last in (insert(other), delete(TableEntry("l2", {"dst": 9})), insert(TableEntry("acl", {"b": 1}, "drop"))):
        with pytest.raises(EntityError, match="update 4"):
            target.write([*changes, *delete(group), *last])
        (entry,) = target.read([TableEntry("l2")])
        assert (entry.match, entry.action, entry.params) == ({"dst": 1}, "I.forward", {"port": 3})
        assert target.read([MulticastGroupEntry(0)]) == [group]


@pytest.mark.hardware
def test_what_bmv2_does_not_serve_it_says(bmv2):
    for update in (modify(RegisterEntry("last", 2, 99)), insert(CloneSessionEntry(9, (Replica(3),), 64))):
        with pytest.raises(EntityError, match="update 0") as caught:
            bmv2.write(update)
        assert caught.value.code in ("UNIMPLEMENTED", "UNKNOWN")


@pytest.mark.parametrize("kind", [OURS[1], BMV2])
def test_a_reader_needs_no_election(kind, tmp_path):
    for primary in a_target(kind, P4 / "controlled.p4", tmp_path):
        primary.write(insert(TableEntry("l2", {"dst": 1}, "drop")))
        with RemoteSwitch(primary.address, primary.device_id, None) as reader:
            assert len(reader.read([TableEntry("l2")])) == 1
            with pytest.raises(EntityError) as caught:
                reader.write(delete(TableEntry("l2", {"dst": 1})))
            assert caught.value.code == "PERMISSION_DENIED"


@pytest.mark.build
def test_switches_that_are_not_there_or_not_ours():
    with pytest.raises(TimeoutError, match="127.0.0.1:1 within"):
        RemoteSwitch("127.0.0.1:1", timeout=0.3)
    with Device(device_id=1) as device, Server(device, "127.0.0.1:0") as server:
        with pytest.raises(EntityError, match="no device 2"):
            RemoteSwitch(server.address, device_id=2)
        with RemoteSwitch(server.address, election_id=5) as primary:
            with pytest.raises(EntityError, match="not the primary") as caught:
                RemoteSwitch(server.address, election_id=4)
            assert caught.value.code == "PERMISSION_DENIED"
            with pytest.raises(EntityError, match="no program is loaded"):
                primary.read([TableEntry("t")])


SHELL = 1 << 64  # the election id of p4runtime-shell, p4net and aiop4; finsy's is 10
ENTRY = TableEntry("l2", {"dst": 1}, "drop")


@pytest.fixture
def served():
    """The address of a switch with a program, and another controller's client."""
    compiled = compile_program(P4 / "controlled.p4")
    with Device(device_id=1) as device, Server(device, "127.0.0.1:0") as server:
        device.load(Program(compiled.so_path))
        client = Client(server.address)
        yield server.address, client
        client.close()


def gone(client):
    """Ends the client's stream, and waits until the switch has seen it."""
    client.streams.pop().close()
    watch = client.stream()
    until(lambda: watch.arbitrate(None).status.code == CODES["NOT_FOUND"], "the other controller to leave")


@pytest.mark.build
def test_a_shell_that_looks_takes_no_switch_away(served):
    address, client = served
    with RemoteSwitch(address) as primary:
        look = client.stream()
        assert look.arbitrate(SHELL).status.code == CODES["ALREADY_EXISTS"]
        primary.write(insert(ENTRY))
        look.close()
        primary.write(delete(ENTRY))


@pytest.mark.build
def test_a_controller_has_the_election_id_that_it_is_given(served):
    address, client = served
    with remote_target(address, 1, election_id=77).connected() as switch:
        highest = client.stream().arbitrate(None).election_id
        assert (highest.high, highest.low) == (0, 77)
        switch.close()


@pytest.mark.build
@pytest.mark.parametrize("highest", [1 << 100, (1 << 128) - 1])
def test_whoever_has_left_keeps_no_switch(served, highest):
    """Before we come, and while we are there: the switch remembers the highest election id (P4Runtime 5.3)."""
    address, client = served
    assert client.stream().arbitrate(highest - 2).status.code == 0
    gone(client)
    with RemoteSwitch(address) as primary:
        primary.write(insert(ENTRY))
        other = client.stream()
        assert other.arbitrate(highest).status.code == 0
        for _ in range(2):
            with pytest.raises(EntityError, match="not the primary") as refused:
                primary.write(delete(ENTRY))
            assert refused.value.code == "PERMISSION_DENIED"
        with pytest.raises(EntityError, match=f"not the primary: the controller with election id {highest} is") as refused:
            RemoteSwitch(address)
        assert refused.value.code == "PERMISSION_DENIED"
        other.close()

        def is_back():
            try:
                primary.write(delete(ENTRY))
            except EntityError as error:  # the switch has not seen yet that the other has left
                assert error.code == "PERMISSION_DENIED"
                return False
            return True

        until(is_back, "the switch")
        primary.write(insert(ENTRY))
        assert primary.alive


@pytest.mark.build
def test_a_switch_that_takes_no_primary_is_an_error(served, monkeypatch):
    asked = []

    def arbitrate(stream, device_id, election):
        asked.append(election)
        nobody = p4.MasterArbitrationUpdate(election_id=p4.Uint128(low=election & (1 << 64) - 1))
        nobody.status.code = CODES["NOT_FOUND"]
        return nobody

    monkeypatch.setattr(remote_switch._Stream, "arbitrate", arbitrate)
    with pytest.raises(EntityError, match="has no primary, but refuses election id"):
        RemoteSwitch(served[0], election_id=5)
    assert asked == [*range(5, 14)]


@pytest.mark.build
def test_a_switch_that_was_started_anew_is_taken_with_the_same_election_id(served, monkeypatch):
    asked = []

    def arbitrate(stream, device_id, election):
        asked.append(election)
        answer = p4.MasterArbitrationUpdate(election_id=p4.Uint128())
        answer.status.code = CODES["NOT_FOUND"] if election is None else 0
        return answer

    with RemoteSwitch(served[0], election_id=7) as primary:
        monkeypatch.setattr(remote_switch._Stream, "arbitrate", arbitrate)
        primary._arbitrate(None)
    assert asked == [None, 7]


@pytest.mark.build
def test_the_controller_runs_a_job_on_a_switch_that_it_reaches_by_p4runtime():
    """The same Controller as in the switch process; sums of two workers through p4/switchml.p4."""
    compiled = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "64"})
    pairs = [memory_pair(256, 2048) for _ in range(2)]
    with Device(device_id=1) as device, Server(device, "127.0.0.1:0") as server, RemoteSwitch(server.address) as remote:
        remote.set_pipeline(compiled.p4info, compiled.so_path.read_bytes())
        controller = Controller(remote, slots=64)
        job = controller.admit("job", workers=2, slots=16)
        for i, (inside, _) in enumerate(pairs):
            device.add_port(i, inside)
            controller.attach(job, i, port=i)
        configs = [
            WorkerConfig(i, 2, values=32, slots=16, job=job.number, life=job.life) for i in range(2)
        ]
        rows = np.arange(2 * 3000, dtype=np.int32).reshape(2, 3000)
        with Endpoint(configs[0], pairs[0][1]) as one, Endpoint(configs[1], pairs[1][1]) as two:
            tickets = [(e, e.submit(row)) for e, row in zip((one, two), rows, strict=True)]
            for endpoint, ticket in tickets:
                endpoint.wait(ticket, 20)
        assert (rows == rows[0]).all() and rows[0, 5] == 5 + 3005
        controller.release("job")
        for table in ("job", "worker", "replica"):
            assert remote.read([TableEntry(table)]) == []
    for inside, _ in pairs:
        inside.close()
