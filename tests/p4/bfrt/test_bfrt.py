"""BFRuntime: our client drives the embedded switch through our server, as it drives a Tofino through its driver."""

from __future__ import annotations

import queue
import threading
from dataclasses import replace

import pytest
from capabilities import need

need("cc", "p4runtime")

import grpc  # noqa: E402
from waiting import until  # noqa: E402

from ina.aggregation.entries import recognise  # noqa: E402
from ina.p4.bfrt.client import SERVICE, Client, WriteFailed  # noqa: E402
from ina.p4.bfrt.device import Device  # noqa: E402
from ina.p4.bfrt.fixed_tables import STATISTICS  # noqa: E402
from ina.p4.bfrt.messages import bfrt  # noqa: E402
from ina.p4.bfrt.ports import PortConfig  # noqa: E402
from ina.p4.bfrt.remote_switch import BfRuntimeTarget  # noqa: E402
from ina.p4.bfrt.rows import Row, message_of, row_of  # noqa: E402
from ina.p4.bfrt.service import Server, Stream  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.runtime import EntityError, Switch  # noqa: E402
from ina.p4.runtime.entities import CounterEntry, RegisterEntry, TableEntry, delete, insert, modify  # noqa: E402

pytestmark = pytest.mark.build
MAC = "hdr.ethernet.dst_addr"


@pytest.fixture(scope="module")
def program():
    return compile_program("p4/switchml.p4", defines={"VALUES": "32"})


@pytest.fixture
def switch(program):
    with Switch(program.so_path) as switch:
        yield switch


@pytest.fixture
def target(switch):
    with Server(Device(switch, "switchml")) as server, BfRuntimeTarget(server.address) as target:
        yield target


def forward(mac: int, port: int = 2) -> TableEntry:
    return TableEntry("SwitchIngress.forwarding.l2", {MAC: mac}, "SwitchIngress.forwarding.forward", {"port": port})


def test_the_published_messages_are_met():
    """Field numbers and types, where an error would go unnoticed."""
    fields = {f.name: f.number for f in bfrt.TableEntry.DESCRIPTOR.fields}
    assert fields == {"table_id": 1, "key": 2, "data": 3, "is_default_entry": 4, "table_read_flag": 5, "table_mod_inc_flag": 6,
                      "handle_id": 7, "entry_tgt": 8, "table_flags": 9}
    assert bfrt.Update.Type.Value("DELETE") == 4 and bfrt.Update.Type.Value("INSERT_OR_MODIFY") == 5
    assert [o.name for o in bfrt.DataField.DESCRIPTOR.oneofs] == ["value"]
    assert len(STATISTICS) == 95 and STATISTICS[32] == "$FramesTransmittedOK" and STATISTICS[94] == "$RX_RATE"


def test_what_is_written_is_in_the_switch_and_is_read_back(target, switch):
    target.write(insert(forward(2)))
    assert switch.read([TableEntry("l2")]) == target.read([TableEntry("l2")]) == [forward(2)]
    target.write(modify(forward(2, port=7)))
    assert target.read([forward(2)]) == [forward(2, port=7)]
    target.write(modify(TableEntry("l2", action="forward", params={"port": 3}, is_default=True)))
    (default,) = switch.read([TableEntry("l2", is_default=True)])
    assert default.params == {"port": 3}
    target.write(modify(TableEntry("l2", is_default=True)))
    assert switch.read([TableEntry("l2", is_default=True)])[0].action.endswith(".drop")
    target.write(delete(forward(2)))
    assert switch.read([TableEntry("l2")]) == target.read([TableEntry("l2")]) == []


def test_cells_of_registers_and_counters(target, switch):
    target.write(modify(RegisterEntry("value_00", 3, 0x1_0001)))
    assert switch.register("value_00", 3)[0] == 0x1_0001
    assert target.read([RegisterEntry("value_00", 3)]) == [RegisterEntry("value_00", 3, 0x1_0001)]
    assert len(target.read([CounterEntry("drops")])) == 13
    with pytest.raises(EntityError, match=r"value_00\[1024\]: expected an index of 0..1023"):
        target.write(modify(RegisterEntry("value_00", 1024, 1)))


def test_a_batch_is_made_whole_or_not_at_all(target, switch):
    target.write(insert(forward(2)))
    before = switch.read([TableEntry("l2"), TableEntry("l2", is_default=True)])
    with pytest.raises(EntityError, match="update 3: insert .*l2.*there") as caught:
        target.write([*modify(forward(2, port=9)), *delete(forward(2)), *insert(forward(3), forward(3), forward(4))])
    assert (caught.value.code, caught.value.update) == ("ALREADY_EXISTS", 3)
    assert switch.read([TableEntry("l2"), TableEntry("l2", is_default=True)]) == before


def test_many_rows_are_read_at_once_before_they_are_changed(target, switch):
    """More than a few rows are read as the whole table; a failed batch is undone all the same."""
    entries = [forward(mac, port=mac % 7) for mac in range(1, 60)]
    target.write(insert(*entries))
    before = switch.read([TableEntry("l2")])
    with pytest.raises(EntityError, match="update 90: insert"):
        target.write([*modify(*(forward(mac, port=8) for mac in range(1, 60))), *delete(*entries[:30]), *insert(forward(1)),
                      *insert(forward(1))])
    after = switch.read([TableEntry("l2")])
    assert sorted(after, key=repr) == sorted(before, key=repr)
    target.write(delete(*entries))
    assert switch.read([TableEntry("l2")]) == []


def test_a_controller_finds_its_program_by_what_the_switch_says(target, switch):
    program, sizes = recognise(target.p4info)
    assert (program.name, sizes.values, sizes.slots) == ("switchml", 32, 512)
    own = switch.p4info
    registers = [{name: replace(r, id=r.id & 0xFFFFFF) for name, r in info.registers.items()} for info in (target.p4info, own)]
    assert target.p4info.tables == own.tables and registers[0] == registers[1]  # BFRuntime has a byte of its own for registers


@pytest.mark.parametrize("entity, message", [
    (forward(1 << 48), "hdr.ethernet.dst_addr: .* does not fit 48 bits"),
    (TableEntry("l3", {}, "forward", {"port": 1}), "no table 'l3'"),
    (TableEntry("l2", {"hdr.ipv4.dst": 1}, "forward", {"port": 1}), "l2: no key field 'hdr.ipv4.dst'"),
    (TableEntry("l2", {MAC: 1}, "forward", {"prt": 1}), "no data field of action .*forward 'prt'; did you mean 'port'"),
    (TableEntry("l2", {MAC: 1}, "set_job", {}), "no action 'set_job'"),
])
def test_an_error_names_table_key_and_field(target, entity, message):
    with pytest.raises(EntityError, match=message):
        target.write(insert(entity))


def test_the_front_panel_and_its_ports(target):
    assert [target.dev_port(name) for name in ("1/0", "1/3", "17/0", "68")] == [0, 3, 128, 68]
    with pytest.raises(EntityError, match="port 33/0: this switch has no such port"):
        target.dev_port("33/0")
    number = target.add_port(PortConfig("3/0", "100G", fec="rs", autoneg="off"))
    (port,) = target.ports().values()
    assert number == 8 and (port["$SPEED"], port["$FEC"], port["$AUTO_NEGOTIATION"], port["$PORT_NAME"]) == (
        "BF_SPEED_100G", "BF_FEC_TYP_REED_SOLOMON", "PM_AN_FORCE_DISABLE", "3/0")
    target.add_port(PortConfig("3/0", "40G"))
    assert target.ports()[8]["$SPEED"] == "BF_SPEED_40G"
    target.remove_port("3/0")
    assert target.ports() == {}


@pytest.mark.parametrize("port, message", [
    ({"name": "1.0"}, "port '1.0': expected CONNECTION/CHANNEL"),
    ({"name": "1/1", "speed": "100G"}, "100G takes 4 of a connection's four lanes"),
    ({"name": "1/0", "speed": "100G", "fec": "fc"}, "fec = 'fc' does not exist at 100G: expected one of none, rs"),
    ({"name": "1/0", "speed": "200G"}, "speed = '200G': expected one of 1G"),
])
def test_a_port_that_cannot_be_is_refused_by_name(port, message):
    with pytest.raises(ValueError, match=message):
        PortConfig(**port)


def test_rows_of_every_kind_of_field_survive_the_wire(target):
    info = target.client.info
    rows = [
        Row("$PORT", {"$DEV_PORT": 4}, {"$SPEED": "BF_SPEED_25G", "$PORT_ENABLE": True}),
        Row("$pre.mgid", {"$MGID": 1}, {"$MULTICAST_NODE_ID": [1 << 16, 2], "$MULTICAST_NODE_L1_XID_VALID": [True, False],
                                        "$MULTICAST_NODE_L1_XID": [5, 0], "$MULTICAST_ECMP_ID": []}),
        Row("$mirror.cfg", {"$sid": 7}, {"$direction": "BOTH", "$max_pkt_len": 128}, "$normal"),
        Row("pipe.SwitchIngress.phase.tsis", {"$REGISTER_INDEX": 1}, {"SwitchIngress.phase.tsis.f1": (1, 2)}),
    ]
    for row in rows:
        assert row_of(message_of(row, info), info) == row


def test_the_server_refuses_what_it_should(target, switch):
    address = target.address
    with pytest.raises(EntityError, match=f"client {target.client.client_id} cannot subscribe"):
        Client(address, client_id=target.client.client_id)
    with pytest.raises(EntityError, match="does not run 'atp'; it runs switchml"):
        Client(address, client_id=1, program="atp")
    with pytest.raises(EntityError, match="no device 3"):
        Client(address, client_id=1, device_id=3)
    with pytest.raises(TimeoutError, match="no BFRuntime server answers"):
        Client("127.0.0.1:1", timeout=0.3)
    with Client(address, client_id=1) as other:
        with pytest.raises(WriteFailed, match=r"\$PORT_UP can only be read"):
            other.write([("INSERT", Row("$PORT", {"$DEV_PORT": 4}, {"$SPEED": "BF_SPEED_10G", "$PORT_UP": True}))])
        with pytest.raises(WriteFailed, match="port 999: this switch has pipes"):
            other.write([("INSERT", Row("$PORT", {"$DEV_PORT": 999}, {"$SPEED": "BF_SPEED_10G"}))])
        with pytest.raises(WriteFailed, match=r"table \$PORT: port 5 is not there"):
            other.write([("DELETE", Row("$PORT", {"$DEV_PORT": 5}))])


def test_clients_come_beside_each_other(target, switch):
    """Intel's driver lets one client bind to a program: our clients do not bind, and name the program in each call."""
    server = Server(Device(switch, "switchml"))
    with server, BfRuntimeTarget(server.address) as first, BfRuntimeTarget(server.address) as second:
        first.write(insert(forward(9)))
        assert len(second.read([forward(9)])) == 1 and server._bound == {}
        assert first.client.client_id != second.client.client_id
        assert first.alive and second.alive
    until(lambda: not first.alive, "the server's end")


def test_atomic_batches_of_the_server(target, switch):
    """Other clients ask for atomic batches: one that stops is rolled back."""
    info = target.client.info
    request = bfrt.WriteRequest(p4_name="switchml", atomicity=bfrt.WriteRequest.ROLLBACK_ON_ERROR)
    row = Row("l2", {MAC: 5}, {"port": 1}, "forward")
    for _ in range(2):
        update = request.updates.add(type=bfrt.Update.INSERT)
        update.entity.table_entry.CopyFrom(message_of(row, info))
    with pytest.raises(Exception, match="number 1 of 2: .*is there"):
        target.client._method("Write")(request, timeout=60)
    assert switch.read([TableEntry("l2")]) == []


def test_streams_of_clients_that_say_nothing_leave_room_for_calls(target):
    """Each such stream holds one of the server's threads."""
    quiet = threading.Event()
    method = target.client._channel.stream_stream(f"{SERVICE}StreamChannel", bfrt.StreamMessageRequest.SerializeToString,
                                                  bfrt.StreamMessageResponse.FromString)

    def says_nothing():
        quiet.wait()
        yield from ()

    streams = [method(says_nothing()) for _ in range(80)]
    try:
        def refused() -> int:
            return sum(s.code() is grpc.StatusCode.RESOURCE_EXHAUSTED for s in streams if s.done())

        until(lambda: refused() >= 80 - (64 - 1), "refusals")  # one of the 64 that are served is the target's own
        target.client._method("GetForwardingPipelineConfig")(bfrt.GetForwardingPipelineConfigRequest(), timeout=60)
    finally:
        quiet.set()
        for stream in streams:
            stream.cancel()


def test_a_client_that_is_refused_a_subscription_may_ask_again(target):
    """Published clients ask five times, and wait a second each time for the answer on the same stream."""
    queued = queue.Queue()
    method = target.client._channel.stream_stream(f"{SERVICE}StreamChannel", bfrt.StreamMessageRequest.SerializeToString,
                                                  bfrt.StreamMessageResponse.FromString)
    answers = method(iter(queued.get, None), timeout=60)

    def subscribe(client_id, device_id=0):
        request = bfrt.StreamMessageRequest(client_id=client_id)
        request.subscribe.device_id = device_id
        queued.put(request)
        return next(answers).subscribe.status

    for _ in range(5):
        assert "is in use" in subscribe(target.client.client_id).message
    assert "no device 3" in subscribe(77, device_id=3).message
    assert subscribe(77).code == 0
    queued.put(None)
    assert list(answers) == []
    with Client(target.address, client_id=77):  # it is free again
        pass
    for requests in ([bfrt.StreamMessageRequest(client_id=5)], []):
        with pytest.raises(grpc.RpcError, match="a stream begins with a subscription"):
            next(method(iter(requests), timeout=60))


def test_a_server_ends_though_a_client_does_not_read(switch):
    server = Server(Device(switch, "switchml"))
    stream = server._streams[7] = Stream(7, bfrt.Subscribe.Notifications())
    while not stream.messages.full():
        stream.offer(bfrt.StreamMessageResponse())
    ending = threading.Thread(target=server.stop, daemon=True)
    ending.start()
    ending.join(120)
    assert not ending.is_alive()
    assert list(iter(stream.messages.get_nowait, None)) and stream.messages.empty()
