"""BFRuntime with a TNA program: entries of single pipes, members of single parsers, handles, idle time-outs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from capabilities import need

need("cc", "p4runtime")

from ina.p4.bfrt.client import Client  # noqa: E402
from ina.p4.bfrt.device import Device  # noqa: E402
from ina.p4.bfrt.messages import bfrt  # noqa: E402
from ina.p4.bfrt.rows import Row, Where, message_of  # noqa: E402
from ina.p4.bfrt.service import Server  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.runtime import EntityError, Switch  # noqa: E402
from ina.p4.runtime.entities import MeterConfig, MeterEntry, RegisterEntry, TableEntry, delete, insert, modify  # noqa: E402
from ina.p4.runtime.tna_entities import KeyMask  # noqa: E402

pytestmark = pytest.mark.build
DST = 0x0200_0000_0001
FRAME = DST.to_bytes(6, "big") + bytes(6) + b"\x88\xb5" + bytes(50)
TABLE, SET = "SwitchIngress.forward", "IngressParser.kinds"
ALL = bfrt.Mode.ALL
SINGLE = bfrt.Mode.SINGLE


@pytest.fixture(scope="module")
def program():
    return compile_program(Path(__file__).parent.parent.parent / "programs/served" / "bfrt_pipes.p4")


@pytest.fixture
def switch(program):
    with Switch(program.so_path, pipes=4) as switch:
        for pipe in range(4):
            for port in (1, 2, 8):
                switch.add_port(128 * pipe + port)
        yield switch


@pytest.fixture
def time():
    return SimpleNamespace(now=0.0)


@pytest.fixture
def device(switch, time):
    return Device(switch, clock=lambda: time.now)


def key(known=0, dst=DST):
    return {"hdr.ethernet.dst": dst, "meta.known": known}


def row(port=2, known=0, **data):
    return Row(TABLE, key(known), {"port": port, **data}, "SwitchIngress.to_port")


def scope(device, table, pipes=ALL, parsers=ALL):
    """Sets and reads a table's entry scope. `pipes`: ALL, SINGLE, or a byte of pipes for each scope."""
    attribute = bfrt.TableAttribute(table_id=device.info.table(table).id)
    if isinstance(pipes, bytes):
        attribute.entry_scope.pipe_scope.user_defined = int.from_bytes(pipes, "little")
    else:
        attribute.entry_scope.pipe_scope.predef = pipes
    attribute.entry_scope.prsr_scope.predef = parsers
    device.attributes.write(attribute, Where())
    request = bfrt.TableAttribute(table_id=attribute.table_id)
    request.entry_scope.SetInParent()
    return device.attributes.read(request, Where()).table_attribute.entry_scope


def out(switch, frame=FRAME, port=1):
    """Ports by which frames leave, one for each pipe that they enter."""
    return [next((n for n, _ in switch.step(frame, 128 * pipe + port)), None) for pipe in range(4)]


# ---- entry scopes


def test_each_pipe_has_its_own_entries(device, switch):
    assert scope(device, TABLE, SINGLE).pipe_scope.predef == SINGLE
    device.write("INSERT", row(2), Where(1))
    device.write("INSERT", row(130), Where(3))
    assert out(switch) == [None, 2, None, 130]
    assert [r.data["port"] for r in device.read(Row(TABLE))] == [2, 130]
    (mine,) = device.read(Row(TABLE, key()), Where(3))
    assert (mine.data["port"], mine.data["$COUNTER_SPEC_PKTS"]) == (130, 1)
    device.write("MODIFY", row(1), Where(1))
    device.write("DELETE", Row(TABLE, key()), Where(3))
    assert out(switch) == [None, 1, None, None]


def test_pipes_of_one_scope_share_their_entries(device, switch):
    answer = scope(device, TABLE, bytes([0b0011, 0b1100]))
    assert answer.pipe_scope.user_defined == 0x0C03
    device.write("INSERT", row(2), Where(0))
    device.write("INSERT", row(130), Where(3))
    assert out(switch) == [2, 2, 130, 130]
    (there,) = device.read(Row(TABLE, key()), Where(1))
    assert (there.data["port"], there.data["$COUNTER_SPEC_PKTS"]) == (2, 1)  # the pipe's own count
    with pytest.raises(EntityError, match="not the first of its scope"):  # a driver keeps its copy there
        device.read(Row(TABLE, key()), Where(1, fresh=False))


def test_a_pipe_that_no_scope_names_has_no_entries(device, switch):
    scope(device, TABLE, bytes([0b0001]))
    device.write("INSERT", row(2), Where(0))
    assert out(switch) == [2, None, None, None]
    with pytest.raises(EntityError, match="pipe 2 is in none of its scopes"):
        device.write("INSERT", row(2), Where(2))


def test_a_default_entry_of_one_pipe(device, switch):
    scope(device, TABLE, SINGLE)
    default = Row(TABLE, {}, {"port": 2}, "SwitchIngress.to_port", is_default=True)
    device.write("MODIFY", default, Where(2))
    assert out(switch) == [None, None, 2, None]
    with pytest.raises(EntityError, match="defaults of their own"):
        device.read(Row(TABLE, is_default=True))
    assert device.read(Row(TABLE, is_default=True), Where(2))[0].data["port"] == 2
    device.write("RESET", Row(TABLE, is_default=True))  # of no pipe: of all
    assert out(switch) == [None] * 4


def test_what_a_scope_refuses(device):
    with pytest.raises(EntityError, match="all pipes have the same entries"):
        device.write("INSERT", row(), Where(1))
    device.write("INSERT", row())
    with pytest.raises(EntityError, match="its entry scope cannot change"):
        scope(device, TABLE, SINGLE)
    device.write("DELETE", Row(TABLE))
    scope(device, TABLE, SINGLE)
    with pytest.raises(EntityError, match="pipes have entries of their own"):
        device.write("INSERT", row())
    with pytest.raises(EntityError, match="each pipe of 0..3 once"):
        scope(device, TABLE, bytes([0b0011, 0b0001]))


def test_counts_of_entries_before_a_scope_do_not_come_back(device, switch):
    device.write("INSERT", row(2))
    assert out(switch) == [2] * 4
    device.write("DELETE", Row(TABLE))
    scope(device, TABLE, SINGLE)
    device.write("INSERT", row(2), Where(1))
    assert device.read(Row(TABLE, key()), Where(1))[0].data["$COUNTER_SPEC_PKTS"] == 0


def test_handles(device):
    scope(device, TABLE, bytes([0b0011, 0b1100]))
    device.write("INSERT", row(2), Where(0))
    device.write("INSERT", row(130), Where(2))
    table = device.info.table(TABLE)
    one, other = (device.handle(Row(TABLE, key()), Where(pipe)) for pipe in (1, 2))
    assert one != other
    assert [device.read_handle(table, h)[0].data["port"] for h in (one, other)] == [2, 130]
    assert device.read_handle(table, one, Where(1))[0].data["port"] == 2
    with pytest.raises(EntityError, match="is not of pipe 2"):
        device.read_handle(table, one, Where(2))
    assert device.read_handle(table, 1, Where(0))[0].action == "SwitchIngress.drop"  # of the default
    with pytest.raises(EntityError, match="no entry has handle 99"):
        device.read_handle(table, 99)


def test_members_of_one_parser(device, switch):
    device.write("INSERT", row(2, known=1))
    scope(device, SET, SINGLE, SINGLE)
    with pytest.raises(EntityError, match="of which parser"):
        device.write("INSERT", Row(SET, {"f1": (0x88B5, 0xFFFF)}), Where(1))
    device.write("INSERT", Row(SET, {"f1": (0x88B5, 0xFFFF)}), Where(1, parser=2))  # ports 8..11 of pipe 1
    assert out(switch, port=1) == [None] * 4
    assert out(switch, port=8) == [None, 2, None, None]
    assert [r.key for r in device.read(Row(SET))] == [{"f1": (0x88B5, 0xFFFF)}]
    assert device.read(Row(SET), Where(1, parser=3)) == []
    device.write("DELETE", Row(SET), Where(1, parser=2))
    scope(device, SET)
    device.write("INSERT", Row(SET, {"f1": (0x88B5, 0xFFFF)}))
    assert out(switch) == [2] * 4


def test_a_client_writes_into_one_pipe(device, switch):
    with Server(device) as server, Client(server.address) as client:
        scope(device, TABLE, SINGLE)
        request = bfrt.WriteRequest(p4_name=device.name)
        request.target.pipe_id, request.target.direction, request.target.prsr_id = 2, 0xFF, 0xFF
        request.updates.add(type=bfrt.Update.INSERT).entity.table_entry.CopyFrom(message_of(row(2), device.info))
        client._call("Write", request)
        assert out(switch) == [None, None, 2, None]


def test_a_batch_ends_when_its_client_waits_no_longer(device, switch):
    """Published clients send their time-out in metadata."""
    with Server(device) as server, Client(server.address) as client:
        request = bfrt.WriteRequest(p4_name=device.name)
        request.target.pipe_id = request.target.direction = request.target.prsr_id = 0xFFFF
        for _ in range(20_000):
            request.updates.add(type=bfrt.Update.INSERT_OR_MODIFY).entity.table_entry.CopyFrom(message_of(row(2), device.info))
        with pytest.raises(grpc.RpcError) as error:
            client._method("Write")(request, timeout=60, metadata=(("deadline_nsec", "1000"),))
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED and "of 20000 updates" in error.value.details()


def test_a_program_is_verified_by_its_tables(device):
    with Server(device) as server, Client(server.address) as client:
        actions = bfrt.SetForwardingPipelineConfigRequest

        def ask(action, info):
            request = actions(action=action)
            request.config.add(p4_name=device.name, bfruntime_info=info)
            client._call("SetForwardingPipelineConfig", request)

        ask(actions.VERIFY, device.program_json)
        with pytest.raises(EntityError, match="SwitchIngress.forward is not as it is in bfrt_pipes"):
            ask(actions.VERIFY, device.program_json.replace(b"pipe.SwitchIngress.forward", b"pipe.SwitchIngress.other"))
        with pytest.raises(EntityError, match="no bfrt.json"):
            ask(actions.VERIFY, b"[]")
        with pytest.raises(EntityError, match="not replaced while it runs") as error:
            ask(actions.VERIFY_AND_WARM_INIT_BEGIN, device.program_json)
        assert error.value.code == "UNIMPLEMENTED"


# ---- idle time-outs


def idle(device, notify, interval=1000, enable=True):
    attribute = bfrt.TableAttribute(table_id=device.info.table(TABLE).id)
    attribute.idle_table.enable, attribute.idle_table.ttl_query_interval = enable, interval
    attribute.idle_table.idle_table_mode = 1 if notify else 0
    device.attributes.write(attribute, Where())


def notifications(device, time, until):
    time.now = until
    return [("active" if n.active else "idle", n.row.key["hdr.ethernet.dst"], n.pipe) for n in device.idle.sweep(time.now)]


def test_poll_mode_says_which_entries_were_hit_since_the_last_look(device, switch):
    idle(device, notify=False)
    table = device.info.table(TABLE)

    def state(fresh=False):
        return device.read(Row(TABLE, key()), Where(fresh=fresh))[0].data["$ENTRY_HIT_STATE"]

    device.write("INSERT", row())
    assert state() == "ENTRY_IDLE"
    switch.step(FRAME, 129)
    assert state() == "ENTRY_IDLE"  # not queried yet
    device.operate(table, "UpdateHitState")
    assert state() == "ENTRY_ACTIVE"
    device.operate(table, "UpdateHitState")
    assert state() == "ENTRY_IDLE"
    switch.step(FRAME, 1)
    assert state(fresh=True) == "ENTRY_ACTIVE"
    assert state(fresh=True) == "ENTRY_IDLE"
    device.write("MODIFY", Row(TABLE, key(), {"$ENTRY_HIT_STATE": "ENTRY_ACTIVE"}))
    assert (state(), state(fresh=True), state(fresh=True)) == ("ENTRY_ACTIVE", "ENTRY_ACTIVE", "ENTRY_IDLE")
    assert switch.step(FRAME, 1) == [(2, FRAME)]  # its action is what it was


def test_notify_mode_tells_of_entries_that_nobody_hit(device, switch, time):
    idle(device, notify=True)
    other = DST + 1
    device.write("INSERT", row(**{"$ENTRY_TTL": 2000}))
    device.write("INSERT", Row(TABLE, key(dst=other), {"port": 2}, "SwitchIngress.to_port"))  # a time to live of 0 never ends
    assert notifications(device, time, 1.0) == []
    assert device.read(Row(TABLE, key()))[0].data["$ENTRY_TTL"] == 1000
    switch.step(FRAME, 1)
    assert notifications(device, time, 2.0) == []
    assert device.read(Row(TABLE, key()))[0].data["$ENTRY_TTL"] == 2000
    assert notifications(device, time, 4.0) == [("idle", DST, None)]
    assert notifications(device, time, 9.0) == []  # once
    switch.step(FRAME, 1)
    assert notifications(device, time, 10.0) == [("active", DST, None)]
    assert notifications(device, time, 12.0) == [("idle", DST, None)]
    device.write("MODIFY", row(**{"$ENTRY_TTL": 1000}))
    idle(device, notify=True, enable=False)
    assert notifications(device, time, 20.0) == []
    assert device.read(Row(TABLE, key()))[0].data["$ENTRY_TTL"] == 1000


def test_an_entry_of_one_pipe_ages_in_that_pipe(device, switch, time):
    scope(device, TABLE, SINGLE)
    idle(device, notify=True)
    for pipe in (0, 1):
        device.write("INSERT", row(**{"$ENTRY_TTL": 1000}), Where(pipe))
    switch.step(FRAME, 1)
    assert notifications(device, time, 1.0) == [("idle", DST, 1)]
    assert notifications(device, time, 2.0) == [("idle", DST, 0)]


def test_idle_attributes_are_given_back(device):
    request = bfrt.TableAttribute(table_id=device.info.table(TABLE).id)
    request.idle_table.SetInParent()
    idle(device, notify=True, interval=333)
    idle_ = device.attributes.read(request, Where()).table_attribute.idle_table
    assert (idle_.ttl_query_interval, idle_.enable, idle_.idle_table_mode) == (333, True, bfrt.IdleTable.IDLE_TABLE_NOTIFY_MODE)
    with pytest.raises(EntityError, match="at least 1 ms"):
        idle(device, notify=True, interval=0)
    request.table_id = device.info.table("SwitchIngress.numbered").id
    with pytest.raises(EntityError, match="no attribute IdleTimeout"):
        device.attributes.read(request, Where())


# ---- key masks


def mask(device, **masks):
    """Sets the given masks; returns the table's mask then, by field."""
    table = device.info.table(TABLE)
    attribute = bfrt.TableAttribute(table_id=table.id)
    attribute.dyn_key_mask.SetInParent()
    if masks:
        for field, value in zip(("hdr.ethernet.dst", "meta.known"), masks.values(), strict=True):
            attribute.dyn_key_mask.fields.add(field_id=table.key(field).id, mask=value.to_bytes(table.key(field).bytes, "big"))
        device.attributes.write(attribute, Where())
    answer = device.attributes.read(attribute, Where()).table_attribute.dyn_key_mask
    return [int.from_bytes(f.mask, "big") for f in answer.fields]


def test_a_key_mask_says_which_bits_of_a_key_count(device, switch):
    assert mask(device) == [(1 << 48) - 1, 1]
    assert mask(device, dst=0xFFFF_FFFF_FF00, known=0) == [0xFFFF_FFFF_FF00, 0]
    device.write("INSERT", row(2, known=1))
    assert device.read(Row(TABLE, key(known=0, dst=DST | 0xFF)))[0].key == key(dst=DST & ~0xFF)  # as it is kept
    with pytest.raises(EntityError, match="is there"):
        device.write("INSERT", row(3, known=0))
    far = (DST ^ 0x100).to_bytes(6, "big") + FRAME[6:]
    near = (DST ^ 0x0FE).to_bytes(6, "big") + FRAME[6:]
    assert out(switch, near) == [2] * 4 and out(switch, far) == [None] * 4
    with pytest.raises(EntityError, match="its key mask cannot change"):
        mask(device, dst=0, known=0)
    device.write("DELETE", Row(TABLE))
    mask(device, dst=(1 << 48) - 1, known=1)
    device.write("INSERT", row(2, known=0))
    assert out(switch, near) == [None] * 4 and out(switch) == [2] * 4


def test_tables_without_key_masks_have_none(device, switch):
    attribute = bfrt.TableAttribute(table_id=device.info.table("SwitchIngress.numbered").id)
    attribute.dyn_key_mask.SetInParent()
    with pytest.raises(EntityError, match="no attribute DynamicKeyMask"):
        device.attributes.read(attribute, Where())
    with pytest.raises(EntityError, match="not annotated"):
        switch.write(modify(KeyMask("SwitchIngress.numbered", {})))


# ---- meters


def test_a_meter_counts_as_many_bytes_more_as_it_is_told(device, switch):
    table = device.info.table("SwitchIngress.paid")
    attribute = bfrt.TableAttribute(table_id=table.id)
    attribute.byte_count_adj.SetInParent()

    def red(adjust):
        """Number of 64 B frames (FCS added) that a bucket of 1000 B lets pass in pipe 0."""
        if adjust is not None:
            attribute.byte_count_adj.byte_count_adjust = adjust
            device.attributes.write(attribute, Where(0))
            assert device.attributes.read(attribute, Where(0)).table_attribute.byte_count_adj.byte_count_adjust == adjust
            assert device.attributes.read(attribute, Where(1)).table_attribute.byte_count_adj.byte_count_adjust == 0
        switch.write(modify(MeterEntry("SwitchIngress.paid", 0, MeterConfig(0, 1000, 0, 1000))))
        colors = [switch.step(FRAME, 1)[0][1][6] for _ in range(40)]
        return colors.index(3)

    switch.write(modify(TableEntry(TABLE, {}, "SwitchIngress.to_port", {"port": 2}, is_default=True)))
    size = len(FRAME) + 4
    assert [red(adjust) for adjust in (None, 30, -40, 0)] == [1000 // (size + more) for more in (0, 30, -40, 0)]
    attribute.table_id = device.info.table(TABLE).id
    with pytest.raises(EntityError, match="no attribute MeterByteCountAdjust"):
        device.attributes.write(attribute, Where())


# ---- direct cells


def test_the_register_of_an_entry_that_goes_is_as_at_first_for_the_next(switch):
    entry = TableEntry("SwitchIngress.numbered", {"hdr.ethernet.dst": DST}, "SwitchIngress.number")
    switch.write(modify(TableEntry(TABLE, {}, "SwitchIngress.to_port", {"port": 2}, is_default=True)) + insert(entry))
    for expected in (8, 9):
        ((_, frame),) = switch.step(FRAME, 1)
        assert int.from_bytes(frame[6:12], "big") == expected
    switch.write(delete(entry) + insert(entry))
    assert switch.read([RegisterEntry("SwitchIngress.last", 0)])[0].value == 7
    ((_, frame),) = switch.step(FRAME, 129)
    assert int.from_bytes(frame[6:12], "big") == 8


def test_direct_registers_are_fields_of_entries(device, switch):
    numbered, field = "SwitchIngress.numbered", "SwitchIngress.last.f1"
    there = {"hdr.ethernet.dst": DST}
    device.write("INSERT", Row(TABLE, key(), {"port": 2}, "SwitchIngress.to_port"))
    device.write("INSERT", Row(numbered, there, {field: 40}, "SwitchIngress.number"))
    switch.step(FRAME, 129)
    (entry,) = device.read(Row(numbered, there))
    assert entry.data == {field: (40, 41, 40, 40)}
    device.write("MODIFY", Row(numbered, there, {field: (1, 2, 3, 4)}))
    assert device.read(Row(numbered, there), Where(3))[0].data == {field: 4}
    ids = {f.name: f.id for f in device.info.table(numbered).data}
    assert ids == {field: 1}  # after the parameters of actions, of which there are none


def test_the_index_of_a_partition_is_a_key_that_matches_exactly(tmp_path):
    source = (Path(__file__).parent.parent.parent / "programs/served" / "bfrt_pipes.p4").read_text()
    exact, other = "hdr.ethernet.dst : exact; meta", "hdr.ethernet.dst : atcam_partition_index; meta"
    assert source.count(exact) == 1
    path = tmp_path / "partitions.p4"
    path.write_text(source.replace(exact, other))
    with Switch(compile_program(path).so_path, pipes=1) as switch:
        device = Device(switch)
        device.write("INSERT", row())
        (entry,) = device.read(Row(TABLE, key()))
        assert entry.key == key() and entry.data["port"] == 2
        assert device.info.table(TABLE).key("hdr.ethernet.dst").match == "exact"
