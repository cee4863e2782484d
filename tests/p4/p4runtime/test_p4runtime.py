"""The P4Runtime server over gRPC with tests/programs/served/controlled.p4: pipelines and arbitration as specified."""

from __future__ import annotations

import pytest
from capabilities import need

need("cc", "p4runtime")

from controlled import MAC, arrived, fails, frame, group, replication  # noqa: E402
from p4runtime_client import update  # noqa: E402

from ina.p4.p4runtime.messages import p4  # noqa: E402
from ina.p4.rpc.errors import CODES  # noqa: E402

pytestmark = pytest.mark.build
pytest_plugins = ("controlled",)  # its fixtures


@pytest.mark.parametrize("device_id", [0, 1], ids=["server", "device"])
def test_capabilities(world, device_id):
    request = p4.CapabilitiesRequest(device_id=device_id)
    assert world[2].call("Capabilities", request).p4runtime_api_version == "1.5.0"


def test_capabilities_of_another_device(world):
    fails("NOT_FOUND", world[2].call, "Capabilities", p4.CapabilitiesRequest(device_id=2))


def test_everything_needs_a_pipeline(world, names):
    device, _, client = world
    client.stream().arbitrate(1)
    fails("FAILED_PRECONDITION", client.write, update("INSERT", table_entry=names.entry("l2", {"dst": MAC}, "drop")))
    fails("FAILED_PRECONDITION", client.read, p4.Entity(table_entry=p4.TableEntry()))
    assert not client.call("GetForwardingPipelineConfig", p4.GetForwardingPipelineConfigRequest(device_id=1)).HasField("config")


def test_the_config_is_given_back_as_it_came(client, config):
    def get(kind):
        return client.call(
            "GetForwardingPipelineConfig", p4.GetForwardingPipelineConfigRequest(device_id=1, response_type=kind)
        ).config

    assert get("ALL") == config
    assert get("COOKIE_ONLY") == p4.ForwardingPipelineConfig(cookie=config.cookie)
    assert get("P4INFO_AND_COOKIE") == p4.ForwardingPipelineConfig(cookie=config.cookie, p4info=config.p4info)
    assert not get("DEVICE_CONFIG_AND_COOKIE").HasField("p4info")
    request = p4.GetForwardingPipelineConfigRequest(device_id=9)
    fails("NOT_FOUND", client.call, "GetForwardingPipelineConfig", request)


def test_verify_changes_nothing_and_commit_needs_a_saved_config(world, config, names):
    _, _, client = world
    client.stream().arbitrate(1)
    client.set_pipeline("VERIFY", config)
    fails("FAILED_PRECONDITION", client.read, p4.Entity(table_entry=p4.TableEntry()))
    fails("NOT_FOUND", client.set_pipeline, "COMMIT")
    fails("INVALID_ARGUMENT", client.set_pipeline, "COMMIT", config)
    fails("INVALID_ARGUMENT", client.set_pipeline, "VERIFY")
    fails("INVALID_ARGUMENT", client.set_pipeline, "UNSPECIFIED", config)


def test_what_is_written_to_a_saved_config_works_once_it_is_committed(client, config, names, ports):
    client.write(update("INSERT", table_entry=names.entry("l2", {"dst": MAC}, "forward", port=1)))
    client.set_pipeline("VERIFY_AND_SAVE", config)
    wildcard = p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["l2"]))
    assert client.read(wildcard) == []
    client.write(update("INSERT", table_entry=names.entry("l2", {"dst": MAC}, "forward", port=2)))
    ports[3].send([frame()])
    assert len(arrived(ports[1])) == 1  # the previous pipeline still runs
    client.set_pipeline("COMMIT")
    ports[3].send([frame()])
    assert len(arrived(ports[2])) == 1


def test_commit_clears_and_reconcile_keeps_the_forwarding_state(client, config, names, ports):
    entry = names.entry("l2", {"dst": MAC}, "forward", port=2)
    entry.metadata = b"m"
    default = names.entry("l2", None, "forward", port=1)
    default.is_default_action = True
    dropping = names.entry("l2", {"dst": 5}, "drop")
    old_form = group(6, p4.Replica(egress_port=3, instance=1))
    counted = names.entry("l2", {"dst": MAC})
    counts = p4.DirectCounterEntry(table_entry=counted, data=p4.CounterData(packet_count=5, byte_count=50))
    register = p4.RegisterEntry(register_id=names.ids["last"], index=p4.Index(index=3), data={"bitstring": b"\x07"})
    client.write(update("INSERT", table_entry=dropping), update("INSERT", table_entry=entry))
    client.write(update("DELETE", table_entry=dropping), update("MODIFY", table_entry=default),
                 update("INSERT", packet_replication_engine_entry=old_form),
                 update("MODIFY", direct_counter_entry=counts), update("MODIFY", register_entry=register))
    wildcard = p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["l2"]))
    client.set_pipeline("RECONCILE_AND_COMMIT", config)
    assert client.read(wildcard) == [p4.Entity(table_entry=entry)]
    (counted_now,) = client.read(p4.Entity(direct_counter_entry=p4.DirectCounterEntry()))
    assert counted_now.direct_counter_entry.data == counts.data
    assert client.read(p4.Entity(register_entry=register)) == [p4.Entity(register_entry=register)]
    assert client.read(replication(group(6))) == [replication(old_form)]
    assert client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["l2"], is_default_action=True))) == [
        p4.Entity(table_entry=default)
    ]
    ports[3].send([frame()])
    assert len(arrived(ports[2])) == 1
    client.set_pipeline("VERIFY_AND_COMMIT", config)
    assert client.read(wildcard) == []


def test_a_p4info_of_another_program_is_refused(client, config):
    config.p4info.tables[0].match_fields[0].bitwidth = 32
    failure = fails("INVALID_ARGUMENT", client.set_pipeline, "VERIFY", config)
    assert "I.l2" in failure.message and "match_fields" in failure.message
    del config.p4info.tables[0]
    assert "missing" in fails("INVALID_ARGUMENT", client.set_pipeline, "VERIFY", config).message


# ---- arbitration


def test_the_highest_election_id_is_the_primary(world):
    _, _, client = world
    one, two, three = client.stream(), client.stream(), client.stream()
    assert one.arbitrate(5).status.code == CODES["OK"]
    backup = two.arbitrate(3)
    assert (backup.status.code, backup.election_id.low) == (CODES["ALREADY_EXISTS"], 5)
    assert three.arbitrate((1 << 64) + 2).status.code == CODES["OK"]  # 128 bits
    for stream in (one, two):  # of the backup, the others were not notified
        answer = stream.get()
        assert answer.status.code == CODES["ALREADY_EXISTS"] and (answer.election_id.high, answer.election_id.low) == (1, 2)
    three.close()
    for stream in (one, two):
        answer = stream.get()
        assert answer.status.code == CODES["NOT_FOUND"] and answer.election_id.high == 1
    assert one.arbitrate(6).status.code == CODES["NOT_FOUND"]  # lower than the highest ever seen
    assert one.arbitrate((1 << 64) + 2).status.code == CODES["OK"]
    assert two.get().status.code == CODES["ALREADY_EXISTS"]


def test_a_primary_that_steps_down_tells_everyone(world):
    _, _, client = world
    one, two = client.stream(), client.stream()
    one.arbitrate(5)
    two.arbitrate(4)
    assert one.arbitrate(3).status.code == CODES["NOT_FOUND"]
    assert two.get().status.code == CODES["NOT_FOUND"]


def test_without_an_election_id_one_is_never_primary(world, config):
    _, _, client = world
    assert client.stream().arbitrate(None).status.code == CODES["NOT_FOUND"]
    fails("PERMISSION_DENIED", client.set_pipeline, "VERIFY", config)
    zero = client.stream()
    assert zero.arbitrate(0).status.code == CODES["OK"]


@pytest.mark.parametrize("code, election, fields", [
    ("NOT_FOUND", 2, {"device_id": 9}),
    ("INVALID_ARGUMENT", 1, {}),
])
def test_streams_that_are_ended(world, code, election, fields):
    _, _, client = world
    client.stream().arbitrate(1)
    fails(code, client.stream().arbitrate, election, **fields)


def test_a_stream_keeps_its_role_and_device(world):
    _, _, client = world
    for fields in ({"role": "other"}, {"device_id": 9}):
        stream = client.stream()
        stream.arbitrate(10 + len(client.streams))
        fails("FAILED_PRECONDITION", stream.arbitrate, 20, **fields)


def test_roles_have_primaries_of_their_own(client, names):
    other = client.stream()
    answer = other.arbitrate(1, role="monitor")
    assert (answer.status.code, answer.role.name) == (0, "monitor")
    entry = names.entry("l2", {"dst": MAC}, "drop")
    client.write(update("INSERT", table_entry=entry), role="monitor")
    fails("NOT_FOUND", client.write, update("DELETE", table_entry=entry), role="nobody")
    config = p4.Role(name="x")
    config.config.Pack(p4.Uint128(low=1))
    stream = client.stream()
    stream.send(arbitration=p4.MasterArbitrationUpdate(device_id=1, role=config))
    fails("INVALID_ARGUMENT", stream.get)


def test_only_the_primary_writes(client, names, config):
    change = update("INSERT", table_entry=names.entry("l2", {"dst": MAC}, "drop"))
    fails("NOT_FOUND", client.write, change, device_id=9)
    fails("NOT_FOUND", client.read, p4.Entity(table_entry=p4.TableEntry()), device_id=9)
    backup = client.stream()
    backup.arbitrate(0)
    client.election = 0
    fails("PERMISSION_DENIED", client.write, change)
    fails("PERMISSION_DENIED", client.set_pipeline, "VERIFY", config)
    client.election = 1
    client.write(change)
    client.primary.close()
    assert backup.get().status.code == CODES["NOT_FOUND"]
    fails("PERMISSION_DENIED", client.write, change)
