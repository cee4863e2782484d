"""The P4Runtime server over gRPC, against tests/p4/controlled.p4: what the specification says, message by message."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from capabilities import need, tool

need("cc", "p4runtime")

from google.protobuf import text_format  # noqa: E402
from p4runtime_client import Client, Failure, Names, update  # noqa: E402

from ina import paths  # noqa: E402
from ina.compiler.build import compile_program  # noqa: E402
from ina.p4runtime import pipeline  # noqa: E402
from ina.p4runtime.device import CODES, Device  # noqa: E402
from ina.p4runtime.messages import p4  # noqa: E402
from ina.p4runtime.service import Server  # noqa: E402
from ina.switch import Program  # noqa: E402
from ina.transport.ports import memory_pair  # noqa: E402

SOURCE = Path(__file__).parent / "p4" / "controlled.p4"
MAC = 0x0200_0000_0001
ATOMIC = ("ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC")


@pytest.fixture(scope="module")
def compiled():
    return compile_program(SOURCE)


@pytest.fixture(scope="module")
def names(compiled) -> Names:
    return Names(pipeline.message_of(Program(compiled.so_path)))


@pytest.fixture
def config(compiled, names):
    given = p4.ForwardingPipelineConfig(p4info=names.message, p4_device_config=str(SOURCE).encode())
    given.cookie.cookie = 7
    return given


@pytest.fixture
def world():
    """A device without a pipeline, the far ends of its ports 1 to 3, a client."""
    pairs = {number: memory_pair() for number in (1, 2, 3)}
    with Device(device_id=1) as device:
        for number, (inside, _) in pairs.items():
            device.add_port(number, inside)
        with Server(device, "127.0.0.1:0") as server:
            client = Client(server.address)
            yield device, {number: far for number, (_, far) in pairs.items()}, client
            client.close()
    for pair in pairs.values():
        for port in pair:
            port.close()


@pytest.fixture
def ports(world):
    return world[1]


@pytest.fixture
def client(world, config) -> Client:
    """The primary, of a device with a pipeline."""
    _, _, client = world
    client.primary = client.stream()
    assert client.primary.arbitrate(1).status.code == 0
    client.set_pipeline("VERIFY_AND_COMMIT", config)
    return client


def frame(dst: int = MAC, src: int = 0x0A, a: int = 0, b: int = 0, c: int = 0, d: int = 0, e: int = 0) -> bytes:
    head = dst.to_bytes(6, "big") + src.to_bytes(6, "big") + b"\x88\xb5"
    return head + a.to_bytes(4, "big") + b.to_bytes(4, "big") + c.to_bytes(2, "big") + bytes([d, e]) + bytes(34)


def arrived(port, count: int = 1) -> list[bytes]:
    frames: list[bytes] = []
    deadline = time.monotonic() + 10
    while len(frames) < count and time.monotonic() < deadline:
        port.wait(0.1)
        frames += port.receive()
    return frames


def fails(code: str, call, *args, **kwargs) -> Failure:
    with pytest.raises(Failure) as caught:
        call(*args, **kwargs)
    assert caught.value.code == code, caught.value
    return caught.value


def refused(client: Client, code: str, *updates, **fields) -> list[tuple[int, str]]:
    """A Write of which every update fails with `code`."""
    details = fails("UNKNOWN", client.write, *updates, **fields).details
    assert [c for c, _ in details] == [CODES[code]] * len(updates), details
    assert all(message for _, message in details)
    return details


# ---- pipelines


def test_capabilities(world):
    assert world[2].call("Capabilities", p4.CapabilitiesRequest()).p4runtime_api_version == "1.4.0"


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
    assert len(arrived(ports[1])) == 1  # the former pipeline still runs
    client.set_pipeline("COMMIT")
    ports[3].send([frame()])
    assert len(arrived(ports[2])) == 1


def test_commit_clears_and_reconcile_keeps_the_forwarding_state(client, config, names, ports):
    entry = names.entry("l2", {"dst": MAC}, "forward", port=2)
    entry.metadata = b"m"
    default = names.entry("l2", None, "forward", port=1)
    default.is_default_action = True
    gone = names.entry("l2", {"dst": 5}, "drop")
    old_form = group(6, p4.Replica(egress_port=3, instance=1))
    counted = names.entry("l2", {"dst": MAC})
    counts = p4.DirectCounterEntry(table_entry=counted, data=p4.CounterData(packet_count=5, byte_count=50))
    register = p4.RegisterEntry(register_id=names.ids["last"], index=p4.Index(index=3), data={"bitstring": b"\x07"})
    client.write(update("INSERT", table_entry=gone), update("INSERT", table_entry=entry))
    client.write(update("DELETE", table_entry=gone), update("MODIFY", table_entry=default),
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


def test_a_config_may_be_compiled_code_or_json_or_a_path(client, compiled, config):
    for data in (compiled.so_path.read_bytes(), str(compiled.so_path).encode(), b'{"program": "%s"}' % str(SOURCE).encode()):
        config.p4_device_config = data
        client.set_pipeline("VERIFY", config)


@pytest.mark.parametrize("data, says", [
    (b"", "empty"),
    (b"/no/such/program.p4", "/no/such/program.p4"),
    (b'{"program": "x.p4", "extra": 1}', "p4c-bm2-ss"),
    (b"\xff\xfe", "neither"),
    (b"{", "not JSON"),
    (b"\x7fELF nothing", "load"),
])  # fmt: skip
def test_configs_that_cannot_be_realised(client, config, data, says):
    config.p4_device_config = data
    assert says in fails("INVALID_ARGUMENT", client.set_pipeline, "VERIFY_AND_COMMIT", config).message
    still = client.call("GetForwardingPipelineConfig", p4.GetForwardingPipelineConfigRequest(device_id=1))
    assert still.config.cookie.cookie == 7


def test_a_p4info_of_another_program_is_refused(client, config):
    config.p4info.tables[0].match_fields[0].bitwidth = 32
    failure = fails("INVALID_ARGUMENT", client.set_pipeline, "VERIFY", config)
    assert "I.l2" in failure.message and "match_fields" in failure.message
    del config.p4info.tables[0]
    assert "missing" in fails("INVALID_ARGUMENT", client.set_pipeline, "VERIFY", config).message


def test_a_remote_server_takes_no_code(compiled, config):
    config.p4_device_config = compiled.so_path.read_bytes()
    with pytest.raises(pipeline.EntityError, match="takes none"):
        pipeline.from_config(config, pipeline.Wanted(native=False))


# ---- arbitration


def test_the_highest_election_id_is_the_primary(world):
    _, _, client = world
    one, two, three = client.stream(), client.stream(), client.stream()
    assert one.arbitrate(5).status.code == CODES["OK"]
    backup = two.arbitrate(3)
    assert (backup.status.code, backup.election_id.low) == (CODES["ALREADY_EXISTS"], 5)
    assert one.quiet()  # a backup is no news to the others
    assert three.arbitrate((1 << 64) + 2).status.code == CODES["OK"]  # 128 bits
    for stream in (one, two):
        told = stream.get()
        assert told.status.code == CODES["ALREADY_EXISTS"] and (told.election_id.high, told.election_id.low) == (1, 2)
    three.close()
    for stream in (one, two):
        told = stream.get()
        assert told.status.code == CODES["NOT_FOUND"] and told.election_id.high == 1
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
])  # fmt: skip
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
    told = other.arbitrate(1, role="monitor")
    assert (told.status.code, told.role.name) == (0, "monitor")
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


# ---- tables


@pytest.fixture
def entries(names):
    return [
        names.entry("l2", {"dst": MAC}, "forward", port=1),
        names.entry("route", {"a": (0x0A000000, 8)}, "forward", port=3),
        names.entry("route", {}, "NoAction"),
        names.entry("acl", {"b": (0x10, 0xF0), "c": (5, 300), "d": 7}, "drop", priority=10),
        names.entry("acl", {"d": 0}, "mirror", priority=2, session=0x10000),
    ]


def test_entries_are_read_as_they_were_written(client, entries, names):
    entries[0].metadata, entries[0].controller_metadata = b"mine", 9
    client.write(*(update("INSERT", table_entry=e) for e in entries))
    for table in ("l2", "route", "acl"):
        mine = [e for e in entries if e.table_id == names.ids[table]]
        found = [e.table_entry for e in client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids[table])))]
        assert sorted(map(str, found)) == sorted(map(str, mine))
    everything = [e.table_entry for e in client.read(p4.Entity(table_entry=p4.TableEntry()))]
    assert len(everything) == len(entries) + 2  # and the const ones
    assert client.read(p4.Entity(table_entry=entries[3])) == [p4.Entity(table_entry=entries[3])]
    for pattern, count in (
        (p4.TableEntry(table_id=names.ids["acl"], priority=2), 1),
        (p4.TableEntry(table_id=names.ids["l2"], metadata=b"mine"), 1),
        (p4.TableEntry(table_id=names.ids["l2"], metadata=b"other"), 0),
        (p4.TableEntry(table_id=names.ids["l2"], controller_metadata=8), 0),
        (names.entry("route", {}, "NoAction"), 1),
    ):
        assert len(client.read(p4.Entity(table_entry=pattern))) == count
    client.write(*(update("DELETE", table_entry=e) for e in entries))
    assert len(client.read(p4.Entity(table_entry=p4.TableEntry()))) == 2


def test_byte_strings_of_any_length_are_taken_and_the_shortest_given_back(client, names):
    client.write(update("INSERT", table_entry=names.entry("l2", {"dst": b"\0\0\0\0\0\0\0\x05"}, "forward", port=b"\0\0\x02")))
    (found,) = client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["l2"])))
    assert found.table_entry == names.entry("l2", {"dst": b"\x05"}, "forward", port=b"\x02")
    for bad in (
        names.entry("l2", {"dst": b""}, "drop"),
        names.entry("l2", {"dst": 1 << 48}, "drop"),
        names.entry("l2", {"dst": 6}, "forward", port=512),
        names.entry("l2", {"dst": 6}, "forward", port=b""),
    ):
        refused(client, "OUT_OF_RANGE", update("INSERT", table_entry=bad))


def test_wrong_entries_are_refused_and_leave_nothing(client, names):
    def wrong(entry, **fields):
        for name, value in fields.items():
            setattr(entry, name, value)
        return update("INSERT", table_entry=entry)

    twice = names.entry("l2", {"dst": 1}, "drop")
    twice.match.add(field_id=1).exact.value = b"\x01"
    other_kind = names.entry("l2", {}, "drop")
    other_kind.match.add(field_id=1).lpm.prefix_len = 8
    member = names.entry("l2", {"dst": 1})
    member.action.action_profile_member_id = 1
    metered = names.entry("l2", {"dst": 1}, "drop")
    metered.meter_config.cir = 1
    refused(
        client, "INVALID_ARGUMENT",
        wrong(names.entry("l2", {"dst": 1}, "drop"), table_id=0x02FFFFFF),
        wrong(names.entry("l2", {"dst": 1}, "drop"), priority=1),
        wrong(names.entry("l2", {"dst": 1}, "drop"), priority=-1),
        wrong(names.entry("l2", {"dst": 1}, "drop"), is_const=True),
        wrong(names.entry("l2", {"dst": 1}, "drop"), idle_timeout_ns=1),
        wrong(names.entry("l2", {"dst": 1})),
        wrong(names.entry("l2", {}, "drop")),
        wrong(names.entry("l2", {"dst": 1}, "mirror", session=1)),  # no action of this table
        wrong(names.entry("l2", {"dst": 1}, "forward")),  # parameter missing
        wrong(twice), wrong(other_kind), wrong(member),
        wrong(names.entry("acl", {"b": (1, 1)}, "drop")),  # no priority
        wrong(names.entry("acl", {"b": (3, 1)}, "drop", priority=1)),  # bits outside the mask
        wrong(names.entry("acl", {"b": (0, 0)}, "drop", priority=1)),  # don't care
        wrong(names.entry("acl", {"c": (9, 8)}, "drop", priority=1)),
        wrong(names.entry("acl", {"c": (0, 0xFFFF)}, "drop", priority=1)),
        wrong(names.entry("route", {"a": (0, 0)}, "NoAction")),
        wrong(names.entry("route", {"a": (1, 8)}, "NoAction")),
        wrong(names.entry("route", {"a": (0, 33)}, "NoAction")),
        update("UNSPECIFIED", table_entry=names.entry("l2", {"dst": 1}, "drop")),
        p4.Update(type="INSERT"), wrong(metered),
    )  # fmt: skip
    assert len(client.read(p4.Entity(table_entry=p4.TableEntry()))) == 2


def test_existing_missing_and_too_many_entries(client, names):
    entry = update("INSERT", table_entry=names.entry("l2", {"dst": 0}, "drop"))
    client.write(entry)
    refused(client, "ALREADY_EXISTS", entry)
    refused(client, "NOT_FOUND", update("MODIFY", table_entry=names.entry("l2", {"dst": 9}, "drop")),
            update("DELETE", table_entry=names.entry("l2", {"dst": 9})))
    client.write(*(update("INSERT", table_entry=names.entry("l2", {"dst": i}, "drop")) for i in range(1, 8)))
    refused(client, "RESOURCE_EXHAUSTED", update("INSERT", table_entry=names.entry("l2", {"dst": 8}, "drop")))


def test_modify_without_an_action_keeps_it(client, names):
    client.write(update("INSERT", table_entry=names.entry("l2", {"dst": MAC}, "forward", port=3)))
    client.write(update("MODIFY", table_entry=names.entry("l2", {"dst": MAC})))
    assert client.read(p4.Entity(table_entry=names.entry("l2", {"dst": MAC}))) == [
        p4.Entity(table_entry=names.entry("l2", {"dst": MAC}, "forward", port=3))
    ]


def test_default_entries(client, names, ports):
    def default(table, action="", **params):
        entry = names.entry(table, None, action, **params)
        entry.is_default_action = True
        return entry

    pattern = p4.Entity(table_entry=default("l2"))
    assert client.read(pattern) == [p4.Entity(table_entry=default("l2", "drop"))]
    client.write(update("MODIFY", table_entry=default("l2", "forward", port=2)))
    assert client.read(pattern) == [p4.Entity(table_entry=default("l2", "forward", port=2))]
    ports[1].send([frame()])
    assert len(arrived(ports[2])) == 1
    client.write(update("MODIFY", table_entry=default("l2")))  # back to the program's
    assert client.read(pattern) == [p4.Entity(table_entry=default("l2", "drop"))]
    client.write(update("MODIFY", table_entry=default("fixed", "forward", port=2)))  # const entries, free default
    client.write(update("MODIFY", table_entry=default("route", "only_default")))
    refused(client, "INVALID_ARGUMENT", update("INSERT", table_entry=default("l2", "drop")),
            update("DELETE", table_entry=default("l2")))
    refused(client, "PERMISSION_DENIED", update("MODIFY", table_entry=default("stubborn", "drop")),
            update("MODIFY", table_entry=default("route", "only_entries")),
            update("INSERT", table_entry=names.entry("route", {"a": (1 << 24, 8)}, "only_default")))


def test_const_tables(client, names):
    found = client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["fixed"])))
    expected = [names.entry("fixed", {"e": i}, "forward", port=i) for i in (1, 2)]
    for entry in expected:
        entry.is_const = True
    assert [e.table_entry for e in found] == expected
    refused(client, "PERMISSION_DENIED", *(
        update(type_, table_entry=names.entry("fixed", {"e": 1}, "forward", port=1)) for type_ in ("INSERT", "MODIFY", "DELETE")
    ))


# ---- batches


def test_a_batch_goes_on_after_errors(client, names):
    def entry(i, action="drop"):
        return update("INSERT", table_entry=names.entry("l2", {"dst": i}, action))

    failure = fails("UNKNOWN", client.write, entry(1), entry(1), entry(2), entry(3, "mirror"), entry(2), entry(4))
    assert [code for code, _ in failure.details] == [0, CODES["ALREADY_EXISTS"], 0, CODES["INVALID_ARGUMENT"],
                                                     CODES["ALREADY_EXISTS"], 0]
    assert failure.details[0][1] == "" and "I.l2" in failure.details[1][1]
    found = client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["l2"])))
    assert {e.table_entry.match[0].exact.value[0] for e in found} == {1, 2, 4}


@pytest.mark.parametrize("atomicity", ATOMIC)
def test_a_batch_may_be_all_or_none(client, names, atomicity):
    good = [update("INSERT", table_entry=names.entry("l2", {"dst": i}, "drop")) for i in range(3)]
    digest = update("INSERT", digest_entry=p4.DigestEntry(digest_id=names.ids["learn_t"], config={}))
    for bad in (good[1], update("INSERT", table_entry=names.entry("l2", {"dst": b""}, "drop"))):
        failure = fails("UNKNOWN", client.write, *good, digest, bad, atomicity=atomicity)
        codes = [code for code, _ in failure.details]
        assert codes[:4] == [CODES["ABORTED"]] * 4 and codes[4] not in (0, CODES["ABORTED"])
        assert client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["l2"]))) == []
        assert client.read(p4.Entity(digest_entry=p4.DigestEntry())) == []
    client.write(*good, digest, atomicity=atomicity)
    assert len(client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["l2"])))) == 3


def test_details_of_a_large_failed_batch_arrive(client, names):
    """Clients take 8 KiB of metadata if they are not told otherwise."""
    batch = [update("DELETE", table_entry=names.entry("l2", {"dst": i})) for i in range(64)]
    assert [c for c, _ in fails("UNKNOWN", client.write, *batch).details] == [CODES["NOT_FOUND"]] * 64


def test_reads_answer_what_they_can(client, names):
    failure = fails("UNKNOWN", client.read, p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["fixed"])),
                    p4.Entity(table_entry=p4.TableEntry(table_id=1)), p4.Entity(),
                    p4.Entity(extern_entry=p4.ExternEntry(extern_id=1)))
    assert len(failure.found) == 2
    assert [c for c, _ in failure.details] == [CODES[c] for c in ("OK", "INVALID_ARGUMENT", "INVALID_ARGUMENT", "UNIMPLEMENTED")]


# ---- counters, registers


def test_counters(client, names, ports):
    entry = names.entry("l2", {"dst": MAC}, "forward", port=2)
    entry.counter_data.packet_count, entry.counter_data.byte_count = 100, 1000
    client.write(update("INSERT", table_entry=entry))
    ports[1].send([frame()] * 3)
    assert len(arrived(ports[2], 3)) == 3
    size = 3 * len(frame())
    cells = client.read(p4.Entity(counter_entry=p4.CounterEntry()))
    assert [c.counter_entry.data.packet_count for c in cells] == [0, 3, 0, 0]
    key = names.entry("l2", {"dst": MAC})
    (direct,) = client.read(p4.Entity(direct_counter_entry=p4.DirectCounterEntry(table_entry=key)))
    assert direct.direct_counter_entry == p4.DirectCounterEntry(
        table_entry=key, data=p4.CounterData(packet_count=103, byte_count=1000 + size))
    assert client.read(p4.Entity(direct_counter_entry=p4.DirectCounterEntry())) == [direct]
    asking = p4.TableEntry(table_id=names.ids["l2"])
    asking.counter_data.SetInParent()
    (with_counts,) = client.read(p4.Entity(table_entry=asking))
    assert with_counts.table_entry.counter_data == direct.direct_counter_entry.data
    (without,) = client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["l2"])))
    assert not without.table_entry.HasField("counter_data")

    zero = p4.CounterData(packet_count=0)
    at_one = p4.CounterEntry(counter_id=names.ids["seen"], index=p4.Index(index=1))
    (cell,) = client.read(p4.Entity(counter_entry=at_one))
    assert cell.counter_entry.data == p4.CounterData(packet_count=3, byte_count=size)
    client.write(update("MODIFY", counter_entry=at_one))  # without data: nothing
    assert client.read(p4.Entity(counter_entry=at_one)) == [cell]
    client.write(update("MODIFY", counter_entry=p4.CounterEntry(counter_id=names.ids["seen"], data=zero)),
                 update("MODIFY", direct_counter_entry=p4.DirectCounterEntry(table_entry=key, data=zero)))
    assert client.read(p4.Entity(counter_entry=at_one))[0].counter_entry.data == zero
    assert client.read(p4.Entity(direct_counter_entry=p4.DirectCounterEntry()))[0].direct_counter_entry.data == zero

    beyond = p4.CounterEntry(counter_id=names.ids["seen"], index=p4.Index(index=4), data=zero)
    refused(client, "OUT_OF_RANGE", update("MODIFY", counter_entry=beyond))
    beyond.index.index = -1
    refused(client, "INVALID_ARGUMENT", update("MODIFY", counter_entry=beyond), update("INSERT", counter_entry=at_one),
            update("DELETE", direct_counter_entry=p4.DirectCounterEntry(table_entry=key)),
            update("MODIFY", counter_entry=p4.CounterEntry(counter_id=5, data=zero)),
            update("MODIFY", direct_counter_entry=p4.DirectCounterEntry(table_entry=names.entry("route"), data=zero)))
    absent = p4.DirectCounterEntry(table_entry=names.entry("l2", {"dst": 5}), data=zero)
    refused(client, "NOT_FOUND", update("MODIFY", direct_counter_entry=absent))
    failure = fails("UNKNOWN", client.read, p4.Entity(direct_counter_entry=absent))
    assert failure.details[0][0] == CODES["NOT_FOUND"]


def test_registers(client, names, ports):
    def entry(name, index=None, data=None):
        e = p4.RegisterEntry(register_id=names.ids[name], data={"bitstring": data} if data is not None else None)
        if index is not None:
            e.index.index = index
        return e

    client.write(update("INSERT", table_entry=names.entry("l2", {"dst": MAC}, "forward", port=2)))
    ports[1].send([frame(a=0x1234, c=0xFFFE)])
    assert arrived(ports[2])
    assert client.read(p4.Entity(register_entry=entry("last", 1))) == [p4.Entity(register_entry=entry("last", 1, b"\x12\x34"))]
    (signed,) = client.read(p4.Entity(register_entry=entry("signed_values", 0)))
    assert signed.register_entry.data.bitstring == b"\xfe"
    client.write(update("MODIFY", register_entry=entry("last", None, b"\x07")),
                 update("MODIFY", register_entry=entry("signed_values", 1, b"\xff\x80")))
    values = [e.register_entry for e in client.read(p4.Entity(register_entry=entry("last")))]
    assert values == [entry("last", i, b"\x07") for i in range(8)]
    assert len(client.read(p4.Entity(register_entry=p4.RegisterEntry()))) == 10
    assert client.read(p4.Entity(register_entry=entry("signed_values", 1)))[0].register_entry.data.bitstring == b"\x80"
    refused(client, "OUT_OF_RANGE", update("MODIFY", register_entry=entry("last", 8, b"\0")),
            update("MODIFY", register_entry=entry("last", 0, b"\1\0\0\0\0")),
            update("MODIFY", register_entry=entry("signed_values", 0, b"\0\x80\0")))
    wrong = entry("last", 0)
    wrong.data.bool = True
    refused(client, "INVALID_ARGUMENT", update("MODIFY", register_entry=wrong),
            update("MODIFY", register_entry=entry("last", -1, b"\0")), update("INSERT", register_entry=entry("last", 0, b"\0")))


# ---- replication


def replication(entry):
    return p4.Entity(packet_replication_engine_entry=entry)


def group(number, *replicas, **fields):
    return p4.PacketReplicationEngineEntry(
        multicast_group_entry=p4.MulticastGroupEntry(multicast_group_id=number, replicas=replicas, **fields))


def session(number, *replicas, **fields):
    return p4.PacketReplicationEngineEntry(
        clone_session_entry=p4.CloneSessionEntry(session_id=number, replicas=replicas, **fields))


def test_multicast_groups(client, names, ports):
    both = group(5, p4.Replica(port=b"\x01", instance=1), p4.Replica(port=b"\x02", instance=2), metadata=b"m")
    old_form = group(6, p4.Replica(egress_port=3, instance=1))
    client.write(update("INSERT", packet_replication_engine_entry=both),
                 update("INSERT", packet_replication_engine_entry=old_form),
                 update("INSERT", table_entry=names.entry("l2", {"dst": MAC}, "flood", group=5)))
    ports[3].send([frame()])
    assert arrived(ports[1]) == arrived(ports[2]) == [frame()]
    assert client.read(replication(group(5))) == [replication(both)]
    everything = client.read(replication(group(0)))
    assert [e.packet_replication_engine_entry for e in everything] == [both, old_form]
    client.write(update("MODIFY", packet_replication_engine_entry=group(5, p4.Replica(port=b"\x02"))))
    ports[3].send([frame()])
    assert arrived(ports[2]) == [frame()] and not ports[1].receive()
    client.write(update("DELETE", packet_replication_engine_entry=group(5)))
    refused(client, "NOT_FOUND", update("DELETE", packet_replication_engine_entry=group(5)))
    refused(client, "ALREADY_EXISTS", update("INSERT", packet_replication_engine_entry=old_form))
    refused(
        client, "INVALID_ARGUMENT", update("INSERT", packet_replication_engine_entry=group(0)),
        update("INSERT", packet_replication_engine_entry=group(7, p4.Replica(port=b"\x01"), p4.Replica(port=b"\x01"))),
        update("INSERT", packet_replication_engine_entry=group(7, p4.Replica(port=b"\x01", instance=1 << 16))),
        update("INSERT", packet_replication_engine_entry=p4.PacketReplicationEngineEntry()),
    )
    backup = p4.Replica(port=b"\x01", backup_replicas=[{"port": b"\x02"}])
    refused(client, "UNIMPLEMENTED", update("INSERT", packet_replication_engine_entry=group(7, backup)))


def test_clone_sessions(client, names, ports):
    mirror = session(9, p4.Replica(port=b"\x03", instance=1), packet_length_bytes=20)
    client.write(update("INSERT", packet_replication_engine_entry=mirror),
                 update("INSERT", table_entry=names.entry("l2", {"dst": MAC}, "forward", port=2)),
                 update("INSERT", table_entry=names.entry("acl", {"d": 4}, "mirror", priority=1, session=9)))
    ports[1].send([frame(d=4), frame(d=5)])
    assert arrived(ports[2], 2) == [frame(d=4), frame(d=5)]
    assert arrived(ports[3]) == [frame(d=4)[:20]]
    assert client.read(replication(session(0))) == [replication(mirror)]
    refused(client, "INVALID_ARGUMENT", update("INSERT", packet_replication_engine_entry=session(0)),
            update("INSERT", packet_replication_engine_entry=session(8, class_of_service=1)),
            update("INSERT", packet_replication_engine_entry=session(8, packet_length_bytes=-1)))


def test_entities_of_other_switches(client):
    assert client.read(p4.Entity(meter_entry=p4.MeterEntry()), p4.Entity(action_profile_group=p4.ActionProfileGroup())) == []
    refused(client, "UNIMPLEMENTED", update("INSERT", extern_entry=p4.ExternEntry(extern_id=1)))


# ---- packets and digests


def test_packet_in_and_out(client, names, ports):
    client.write(update("INSERT", table_entry=names.entry("l2", {"dst": MAC}, "punt", reason=9)))
    ports[2].send([frame(a=77)])
    packet = client.primary.get("packet")
    assert packet.payload == frame(a=77)
    assert [(m.metadata_id, m.value) for m in packet.metadata] == [(1, b"\x02"), (2, b"\x09")]
    metadata = [p4.PacketMetadata(metadata_id=2, value=b"\0"), p4.PacketMetadata(metadata_id=1, value=b"\x03")]
    client.primary.send(packet=p4.PacketOut(payload=frame(a=1), metadata=metadata))
    assert arrived(ports[3]) == [frame(a=1)]


def test_packets_out_that_are_wrong(client, ports):
    def error(**fields):
        client.primary.send(**fields)
        return client.primary.get("error")

    good = [p4.PacketMetadata(metadata_id=1, value=b"\x03"), p4.PacketMetadata(metadata_id=2, value=b"\0")]
    packet = p4.PacketOut(payload=frame(), metadata=[*good, p4.PacketMetadata(metadata_id=7, value=b"\0")])
    told = error(packet=packet)
    assert told.canonical_code == CODES["INVALID_ARGUMENT"] and told.packet_out.packet_out == packet and "7" in told.message
    assert error(packet=p4.PacketOut(payload=frame())).canonical_code == CODES["INVALID_ARGUMENT"]
    wide = [p4.PacketMetadata(metadata_id=1, value=b"\x02\0"), good[1]]
    assert error(packet=p4.PacketOut(payload=frame(), metadata=wide)).canonical_code == CODES["OUT_OF_RANGE"]
    long = error(packet=p4.PacketOut(payload=bytes(1 << 16), metadata=good))
    assert long.canonical_code == CODES["INVALID_ARGUMENT"] and long.HasField("packet_out")
    assert error(digest_ack=p4.DigestListAck(digest_id=1)).HasField("digest_list_ack")
    backup = client.stream()
    backup.arbitrate(0)
    backup.send(packet=p4.PacketOut(payload=frame(), metadata=good))
    assert backup.get("error").canonical_code == CODES["PERMISSION_DENIED"]


def test_digests(client, names, ports):
    number = names.ids["learn_t"]

    def configure(type_, **fields):
        client.write(update(type_, digest_entry=p4.DigestEntry(digest_id=number, config=p4.DigestEntry.Config(**fields))))

    def learnt(message):
        return [tuple(int.from_bytes(m.bitstring, "big") for m in d.struct.members) for d in message.data]

    configure("INSERT", max_list_size=2, max_timeout_ns=10**13, ack_timeout_ns=10**13)
    ports[1].send([frame(src=0xA), frame(src=0xA), frame(src=0xB)])
    first = client.primary.get("digest")
    assert first.digest_id == number and learnt(first) == [(0xA, 1), (0xB, 1)]
    ports[2].send([frame(src=0xA), frame(src=0xC)])
    ports[1].send([frame(src=0xB)])  # sent, not yet acknowledged
    second = client.primary.get("digest")
    assert learnt(second) == [(0xA, 2), (0xC, 2)] and second.list_id != first.list_id
    client.primary.send(digest_ack=p4.DigestListAck(digest_id=number, list_id=first.list_id))
    configure("MODIFY", max_list_size=1, ack_timeout_ns=10**13)
    deadline = time.monotonic() + 10
    while client.primary.quiet(0) and time.monotonic() < deadline:  # the acknowledgement travels by another way
        ports[1].send([frame(src=0xB)])
        time.sleep(0.05)
    (read,) = client.read(p4.Entity(digest_entry=p4.DigestEntry()))
    assert read.digest_entry.config.max_list_size == 1
    client.write(update("DELETE", digest_entry=p4.DigestEntry(digest_id=number)))
    assert client.read(p4.Entity(digest_entry=p4.DigestEntry())) == []
    refused(client, "NOT_FOUND", update("DELETE", digest_entry=p4.DigestEntry(digest_id=number)))
    refused(client, "INVALID_ARGUMENT", update("INSERT", digest_entry=p4.DigestEntry(digest_id=5)))


@pytest.mark.parametrize("source", [SOURCE, SOURCE.with_name("objects.p4"), paths.p4_dir() / "switchml.p4"], ids=lambda p: p.stem)
def test_p4info_of_p4c_describes_the_same_program(source, tmp_path):
    need("p4c")
    made = tmp_path / "p4info.txtpb"
    command = [tool("INA_P4C", "p4c-bm2-ss"), "--Wdisable", "--p4runtime-files", made, "-o", tmp_path / "bmv2.json", source]
    subprocess.run(command, check=True, capture_output=True)
    given = p4.ForwardingPipelineConfig(p4_device_config=str(source).encode())
    text_format.Parse(made.read_text(), given.p4info)
    pipeline.from_config(given, pipeline.Wanted()).switch.close()
