"""Action profiles, meters and value sets over P4Runtime, against tests/programs/served/objects.p4."""

from __future__ import annotations

from pathlib import Path

import pytest
from capabilities import need

need("cc", "p4runtime")

from p4runtime_client import Client, Failure, Names, update  # noqa: E402
from waiting import until  # noqa: E402

from ina.net.ports import memory_pair  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.p4runtime.device import Device  # noqa: E402
from ina.p4.p4runtime.messages import p4  # noqa: E402
from ina.p4.p4runtime.pipeline import message_of  # noqa: E402
from ina.p4.p4runtime.service import Server  # noqa: E402
from ina.p4.rpc.errors import CODES  # noqa: E402
from ina.p4.runtime import Program  # noqa: E402

pytestmark = pytest.mark.build
SOURCE = Path(__file__).parent.parent.parent / "programs/served" / "objects.p4"


@pytest.fixture(scope="module")
def program():
    return Program(compile_program(SOURCE).so_path)


@pytest.fixture
def names(program):
    return Names(message_of(program))


@pytest.fixture
def world(program):
    pairs = {number: memory_pair() for number in (1, 2, 3)}
    with Device(device_id=1) as device:
        for number, (inside, _) in pairs.items():
            device.add_port(number, inside)
        device.load(program)
        with Server(device, "127.0.0.1:0") as server:
            client = Client(server.address)
            client.stream().arbitrate(1)
            yield client, {number: far for number, (_, far) in pairs.items()}
            client.close()
    for pair in pairs.values():
        for port in pair:
            port.close()


@pytest.fixture
def client(world):
    return world[0]


def through(ports, kind=0, key=0, flow=0) -> tuple[int, int, int]:
    """Port, meters' colours and the value set's verdict of a frame that port 3 sends."""
    ports[3].send([bytes([kind, key]) + flow.to_bytes(2, "big") + bytes(60)])

    def out() -> tuple[int, int, int] | None:
        for number in (1, 2):
            for frame in ports[number].receive():
                return number, frame[4], frame[5]
        return None

    return until(out, "the frame")


def refused(client, code, *updates):
    with pytest.raises(Failure) as caught:
        client.write(*updates)
    assert [c for c, _ in caught.value.details] == [CODES[code]] * len(updates), caught.value.details


def member(names, number, port=None, action="send"):
    e = p4.ActionProfileMember(action_profile_id=names.ids["paths"], member_id=number)
    if port is not None:
        e.action.CopyFrom(names.entry("hop", None, action, port=port).action.action)
    return e


def group(names, number, *members, max_size=0):
    return p4.ActionProfileGroup(
        action_profile_id=names.ids["paths"], group_id=number, max_size=max_size,
        members=[p4.ActionProfileGroup.Member(member_id=m, weight=w) for m, w in members],
    )


def by_member(names, key, number):
    e = names.entry("hop", {"key": key})
    e.action.action_profile_member_id = number
    return e


def by_group(names, key, number):
    e = names.entry("hop", {"key": key})
    e.action.action_profile_group_id = number
    return e


def test_members_and_groups(world, names):
    client, ports = world
    members = [member(names, 1, 1), member(names, 2, 2)]
    both = group(names, 1, (1, 1), (2, 3), max_size=4)
    client.write(*(update("INSERT", action_profile_member=m) for m in members))
    client.write(update("INSERT", action_profile_group=both))
    client.write(update("INSERT", table_entry=by_member(names, 5, 2)), update("INSERT", table_entry=by_group(names, 6, 1)))
    assert through(ports, key=5)[0] == 2
    assert {through(ports, key=6, flow=i)[0] for i in range(40)} == {1, 2}
    client.write(update("MODIFY", action_profile_member=member(names, 2, 1)))
    assert through(ports, key=5)[0] == 1

    assert [e.action_profile_member for e in client.read(p4.Entity(action_profile_member=p4.ActionProfileMember()))] == [
        members[0], member(names, 2, 1)]
    assert client.read(p4.Entity(action_profile_member=member(names, 1))) == [p4.Entity(action_profile_member=members[0])]
    assert client.read(p4.Entity(action_profile_group=p4.ActionProfileGroup())) == [p4.Entity(action_profile_group=both)]
    entries = [e.table_entry for e in client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["hop"])))]
    assert entries == [by_member(names, 5, 2), by_group(names, 6, 1)]
    for action, expected in (({"action_profile_member_id": 2}, entries[:1]), ({"action_profile_group_id": 1}, entries[1:]),
                             ({"action_profile_member_id": 1}, [])):
        pattern = p4.TableEntry(table_id=names.ids["hop"], action=p4.TableAction(**action))
        assert [e.table_entry for e in client.read(p4.Entity(table_entry=pattern))] == expected

    client.set_pipeline("RECONCILE_AND_COMMIT", client.call(
        "GetForwardingPipelineConfig", p4.GetForwardingPipelineConfigRequest(device_id=1)).config)
    assert through(ports, key=5)[0] == 1
    assert client.read(p4.Entity(action_profile_group=p4.ActionProfileGroup())) == [p4.Entity(action_profile_group=both)]

    refused(client, "FAILED_PRECONDITION", update("DELETE", action_profile_member=member(names, 1)),
            update("DELETE", action_profile_group=group(names, 1)))
    refused(client, "ALREADY_EXISTS", update("INSERT", action_profile_member=members[0]),
            update("INSERT", action_profile_group=group(names, 1, max_size=4)))
    refused(client, "NOT_FOUND", update("INSERT", table_entry=by_member(names, 9, 77)),
            update("INSERT", action_profile_group=group(names, 2, (77, 1), max_size=4)),
            update("MODIFY", action_profile_member=member(names, 77, 1)))
    direct = names.entry("hop", {"key": 9}, "send", port=1)
    twice = group(names, 2, (1, 1), (1, 1), max_size=4)
    refused(
        client, "INVALID_ARGUMENT", update("INSERT", table_entry=direct),
        update("INSERT", action_profile_group=group(names, 2, (1, 0), max_size=4)),
        update("INSERT", action_profile_group=twice), update("INSERT", action_profile_member=member(names, 0, 1)),
        update("INSERT", action_profile_member=member(names, 3)),
        update("MODIFY", action_profile_group=group(names, 1, (1, 1), max_size=5)),
        update("INSERT", action_profile_group=p4.ActionProfileGroup(action_profile_id=1, group_id=1)),
    )
    watched = group(names, 2, (1, 1), max_size=4)
    watched.members[0].watch_port = b"\x01"
    refused(client, "UNIMPLEMENTED", update("INSERT", action_profile_group=watched))
    refused(client, "RESOURCE_EXHAUSTED", update("INSERT", action_profile_group=group(names, 2, (1, 3), (2, 3), max_size=5)))
    client.write(*(update("DELETE", table_entry=e) for e in entries))
    client.write(update("DELETE", action_profile_group=group(names, 1)))
    client.write(*(update("DELETE", action_profile_member=m) for m in members))
    assert client.read(p4.Entity(action_profile_member=p4.ActionProfileMember())) == []


def at_once(names, key, *ports, weight=1):
    """An entry with a one-shot action set."""
    e = names.entry("hop", {"key": key})
    for port in ports:
        action = names.entry("hop", None, "send", port=port).action.action
        e.action.action_profile_action_set.action_profile_actions.add(action=action, weight=weight)
    return e


def test_action_sets(world, names):
    client, ports = world
    wildcard = p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["hop"]))
    hidden = p4.Entity(action_profile_member=p4.ActionProfileMember()), p4.Entity(action_profile_group=p4.ActionProfileGroup())

    def used():
        return {through(ports, key=6, flow=i)[0] for i in range(40)}

    both = at_once(names, 6, 1, 2)
    client.write(update("INSERT", table_entry=both))
    assert used() == {1, 2}
    assert client.read(wildcard) == [p4.Entity(table_entry=both)] and client.read(*hidden) == []
    refused(client, "ALREADY_EXISTS", update("INSERT", table_entry=both))
    client.write(update("MODIFY", table_entry=at_once(names, 6, 2)))
    assert used() == {2}
    client.set_pipeline("RECONCILE_AND_COMMIT", client.call(
        "GetForwardingPipelineConfig", p4.GetForwardingPipelineConfigRequest(device_id=1)).config)
    assert used() == {2} and client.read(wildcard) == [p4.Entity(table_entry=at_once(names, 6, 2))]
    client.write(update("MODIFY", table_entry=names.entry("hop", {"key": 6})))  # without an action: it stays
    assert used() == {2}
    client.write(update("INSERT", action_profile_member=member(names, 1, 1)))
    client.write(update("MODIFY", table_entry=by_member(names, 6, 1)))
    assert used() == {1} and client.read(wildcard) == [p4.Entity(table_entry=by_member(names, 6, 1))]
    client.write(update("MODIFY", table_entry=both))
    client.write(update("DELETE", table_entry=names.entry("hop", {"key": 6})))
    client.write(update("DELETE", action_profile_member=member(names, 1)))
    for _ in range(4):  # nothing is left behind: the selector has room for eight members
        client.write(update("INSERT", table_entry=at_once(names, 6, 1, 2, 1, 2)))
        client.write(update("DELETE", table_entry=at_once(names, 6)))
    twice = [update("INSERT", table_entry=both), update("MODIFY", table_entry=at_once(names, 6, 1))]
    with pytest.raises(Failure) as caught:
        client.write(*twice)
    assert [c for c, _ in caught.value.details] == [0, CODES["UNIMPLEMENTED"]]
    refused(client, "INVALID_ARGUMENT", update("INSERT", table_entry=at_once(names, 7, 1, weight=0)),
            update("INSERT", table_entry=at_once(names, 7, 2, weight=-1)),
            update("INSERT", action_profile_member=member(names, 0xF0000000, 1)))
    watched = at_once(names, 7, 1)
    watched.action.action_profile_action_set.action_profile_actions[0].watch_port = b"\x01"
    refused(client, "UNIMPLEMENTED", update("INSERT", table_entry=watched))
    assert client.read(wildcard) == [p4.Entity(table_entry=both)] and client.read(*hidden) == []
    client.write(update("DELETE", table_entry=both))

    # The last is what P4Runtime 1.6 adds: with it, Capabilities would say so.
    assert client.call("Capabilities", p4.CapabilitiesRequest()).p4runtime_api_version == "1.5.0"

    def of_its_own(**fields):
        return at_once(names, 6, 1), p4.ActionProfileActionSet(**fields)

    for entry, own in (of_its_own(action_selection_mode="RANDOM"), of_its_own(size_semantics="SUM_OF_MEMBERS"),
                       of_its_own(group_action=p4.Action(action_id=names.ids["send"]))):
        entry.action.action_profile_action_set.MergeFrom(own)
        refused(client, "UNIMPLEMENTED", update("INSERT", table_entry=entry))
    entry, same = of_its_own(action_selection_mode="HASH", size_semantics="SUM_OF_WEIGHTS")  # the selector's (P4Runtime 9.2.3)
    entry.action.action_profile_action_set.MergeFrom(same)
    client.write(update("INSERT", table_entry=entry))
    assert used() == {1} and client.read(wildcard) == [p4.Entity(table_entry=entry)]


def test_meters(world, names):
    client, ports = world
    number = names.ids["rate"]
    green, red = 0, 2
    assert through(ports)[1] >> 4 == green
    # A bucket of one packet that does not refill during the test: red.
    config = p4.MeterConfig(cir=0, cburst=1, pir=0, pburst=1)
    cell = p4.MeterEntry(meter_id=number, index=p4.Index(index=0), config=config)
    client.write(update("MODIFY", meter_entry=cell))
    assert [through(ports)[1] >> 4 for _ in range(3)] == [green, red, red]
    empty = p4.MeterEntry(meter_id=number, index=p4.Index(index=1))
    assert client.read(p4.Entity(meter_entry=p4.MeterEntry())) == [p4.Entity(meter_entry=cell), p4.Entity(meter_entry=empty)]
    assert client.read(p4.Entity(meter_entry=p4.MeterEntry(meter_id=number, index=p4.Index(index=0)))) == [
        p4.Entity(meter_entry=cell)]
    client.write(update("MODIFY", meter_entry=p4.MeterEntry(meter_id=number)))  # all, back to green
    assert through(ports)[1] >> 4 == green
    refused(client, "OUT_OF_RANGE", update("MODIFY", meter_entry=p4.MeterEntry(meter_id=number, index=p4.Index(index=2))))
    negative = p4.MeterEntry(meter_id=number, config=p4.MeterConfig(cir=-1))
    refused(client, "INVALID_ARGUMENT", update("INSERT", meter_entry=cell), update("MODIFY", meter_entry=negative),
            update("MODIFY", meter_entry=p4.MeterEntry(meter_id=3)))
    coloured = p4.MeterEntry(meter_id=number, counter_data=p4.MeterCounterData())
    refused(client, "UNIMPLEMENTED", update("MODIFY", meter_entry=coloured))


def test_direct_meters(world, names):
    client, ports = world
    key = names.entry("metered", {"key": 7})
    entry = names.entry("metered", {"key": 7}, "limited")
    entry.meter_config.CopyFrom(p4.MeterConfig(cir=0, cburst=1, pir=0, pburst=1))
    client.write(update("INSERT", table_entry=entry))
    assert [through(ports, key=7)[1] & 15 for _ in range(2)] == [0, 2]
    direct = p4.DirectMeterEntry(table_entry=key, config=entry.meter_config)
    assert client.read(p4.Entity(direct_meter_entry=p4.DirectMeterEntry())) == [p4.Entity(direct_meter_entry=direct)]
    asking = p4.TableEntry(table_id=key.table_id, meter_config=p4.MeterConfig())
    assert client.read(p4.Entity(table_entry=asking)) == [p4.Entity(table_entry=entry)]
    client.write(update("MODIFY", direct_meter_entry=p4.DirectMeterEntry(table_entry=key)))
    assert through(ports, key=7)[1] & 15 == 0
    client.write(update("MODIFY", direct_meter_entry=direct))
    client.write(update("MODIFY", table_entry=key))  # without a config: green again
    assert [through(ports, key=7)[1] & 15 for _ in range(2)] == [0, 0]
    absent = p4.DirectMeterEntry(table_entry=names.entry("metered", {"key": 8}))
    refused(client, "NOT_FOUND", update("MODIFY", direct_meter_entry=absent))
    unmetered = p4.DirectMeterEntry(table_entry=names.entry("hop", {"key": 8}))
    refused(client, "INVALID_ARGUMENT", update("MODIFY", direct_meter_entry=unmetered),
            update("INSERT", direct_meter_entry=direct))


def test_value_sets(world, names):
    client, ports = world

    def kinds(*values):
        members = [p4.ValueSetMember(match=[p4.FieldMatch(field_id=1, exact={"value": v})]) for v in values]
        return p4.ValueSetEntry(value_set_id=names.ids["kinds"], members=members)

    assert client.read(p4.Entity(value_set_entry=p4.ValueSetEntry())) == [p4.Entity(value_set_entry=kinds())]
    client.write(update("MODIFY", value_set_entry=kinds(b"\x05", b"\x09")))
    assert [through(ports, kind=k)[2] for k in (4, 5, 9)] == [0, 1, 1]
    assert client.read(p4.Entity(value_set_entry=kinds())) == [p4.Entity(value_set_entry=kinds(b"\x05", b"\x09"))]
    refused(client, "RESOURCE_EXHAUSTED", update("MODIFY", value_set_entry=kinds(b"\1", b"\2", b"\3")))
    refused(client, "ALREADY_EXISTS", update("MODIFY", value_set_entry=kinds(b"\1", b"\0\1")))
    refused(client, "INVALID_ARGUMENT", update("INSERT", value_set_entry=kinds()), update("DELETE", value_set_entry=kinds()))
    client.write(update("MODIFY", value_set_entry=kinds()))
    assert through(ports, kind=5)[2] == 0
