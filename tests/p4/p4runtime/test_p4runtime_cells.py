"""Counters, registers, replication, packets and digests over P4Runtime, against tests/programs/served/controlled.p4."""

from __future__ import annotations

import subprocess

import pytest
from capabilities import need, tool

need("cc", "p4runtime")

from controlled import MAC, SOURCE, arrived, fails, frame, group, refused, replication  # noqa: E402
from google.protobuf import text_format  # noqa: E402
from p4runtime_client import update  # noqa: E402
from waiting import until  # noqa: E402

from ina.base import paths  # noqa: E402
from ina.p4.p4runtime import pipeline  # noqa: E402
from ina.p4.p4runtime.messages import p4  # noqa: E402
from ina.p4.rpc.errors import CODES  # noqa: E402

pytest_plugins = ("controlled",)  # its fixtures


# ---- counters, registers


@pytest.mark.build
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


@pytest.mark.build
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


def session(number, *replicas, **fields):
    return p4.PacketReplicationEngineEntry(
        clone_session_entry=p4.CloneSessionEntry(session_id=number, replicas=replicas, **fields))


@pytest.mark.build
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


@pytest.mark.build
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


@pytest.mark.build
def test_entities_of_other_switches(client):
    assert client.read(p4.Entity(meter_entry=p4.MeterEntry()), p4.Entity(action_profile_group=p4.ActionProfileGroup())) == []
    refused(client, "UNIMPLEMENTED", update("INSERT", extern_entry=p4.ExternEntry(extern_id=1)))


# ---- packets and digests


@pytest.mark.build
def test_packet_in_and_out(client, names, ports):
    client.write(update("INSERT", table_entry=names.entry("l2", {"dst": MAC}, "punt", reason=9)))
    ports[2].send([frame(a=77)])
    packet = client.primary.get("packet")
    assert packet.payload == frame(a=77)
    assert [(m.metadata_id, m.value) for m in packet.metadata] == [(1, b"\x02"), (2, b"\x09")]
    metadata = [p4.PacketMetadata(metadata_id=2, value=b"\0"), p4.PacketMetadata(metadata_id=1, value=b"\x03")]
    client.primary.send(packet=p4.PacketOut(payload=frame(a=1), metadata=metadata))
    assert arrived(ports[3]) == [frame(a=1)]


@pytest.mark.build
def test_packets_out_that_are_wrong(client, ports):
    def error(**fields):
        client.primary.send(**fields)
        return client.primary.get("error")

    good = [p4.PacketMetadata(metadata_id=1, value=b"\x03"), p4.PacketMetadata(metadata_id=2, value=b"\0")]
    packet = p4.PacketOut(payload=frame(), metadata=[*good, p4.PacketMetadata(metadata_id=7, value=b"\0")])
    answer = error(packet=packet)
    assert answer.canonical_code == CODES["INVALID_ARGUMENT"] and answer.packet_out.packet_out == packet and "7" in answer.message
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


@pytest.mark.build
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

    def learnt_again() -> bool:  # the acknowledgement travels separately
        ports[1].send([frame(src=0xB)])
        return not client.primary.quiet()

    until(learnt_again, "a digest of what was acknowledged")
    (read,) = client.read(p4.Entity(digest_entry=p4.DigestEntry()))
    assert read.digest_entry.config.max_list_size == 1
    client.write(update("DELETE", digest_entry=p4.DigestEntry(digest_id=number)))
    assert client.read(p4.Entity(digest_entry=p4.DigestEntry())) == []
    refused(client, "NOT_FOUND", update("DELETE", digest_entry=p4.DigestEntry(digest_id=number)))
    refused(client, "INVALID_ARGUMENT", update("INSERT", digest_entry=p4.DigestEntry(digest_id=5)))


@pytest.mark.build
def test_digests_of_packets_from_before_an_insert_are_not_sent(client, names, ports):
    """INSERT enables digests (P4Runtime 9.7); MODIFY keeps those that wait."""

    def entry(type_, size):
        config = p4.DigestEntry.Config(max_list_size=size, max_timeout_ns=10**13)
        return update(type_, digest_entry=p4.DigestEntry(digest_id=names.ids["learn_t"], config=config))

    def pass_through(source):
        ports[1].send([frame(src=source)])
        assert arrived(ports[2]) == [frame(src=source)]

    def learnt():
        return [int.from_bytes(d.struct.members[0].bitstring, "big") for d in client.primary.get("digest").data]

    client.write(update("INSERT", table_entry=names.entry("l2", {"dst": MAC}, "forward", port=2)))
    pass_through(1)
    client.write(entry("INSERT", 1))
    pass_through(2)
    assert learnt() == [2]
    client.write(entry("MODIFY", 2))
    pass_through(3)
    client.write(entry("MODIFY", 2))
    pass_through(4)
    assert learnt() == [3, 4]
    pass_through(5)
    client.write(entry("DELETE", 0), entry("INSERT", 1))
    pass_through(6)
    assert learnt() == [6]
    client.write(entry("DELETE", 0))
    pass_through(7)
    client.write(entry("INSERT", 1), atomicity=p4.WriteRequest.DATAPLANE_ATOMIC)
    pass_through(8)
    assert learnt() == [8]


@pytest.mark.hardware
@pytest.mark.parametrize("source", [SOURCE, SOURCE.with_name("objects.p4"), paths.p4_dir() / "switchml.p4"], ids=lambda p: p.stem)
def test_p4info_of_p4c_describes_the_same_program(source, tmp_path):
    need("p4c")
    text_file = tmp_path / "p4info.txtpb"
    command = [tool("INA_P4C", "p4c-bm2-ss"), "--Wdisable", "--p4runtime-files", text_file, "-o", tmp_path / "bmv2.json", source]
    subprocess.run(command, check=True, capture_output=True)
    message = p4.ForwardingPipelineConfig(p4_device_config=source.read_bytes())
    text_format.Parse(text_file.read_text(), message.p4info)
    pipeline.from_config(message, pipeline.Wanted()).switch.close()
