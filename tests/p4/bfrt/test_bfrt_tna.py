"""BFRuntime with a TNA program: state of every pipe, replication, mirrors, loopback, and their effect on packets."""

from __future__ import annotations

from pathlib import Path

import pytest
from capabilities import need

need("cc", "p4runtime")

from ina.p4.bfrt.device import Device  # noqa: E402
from ina.p4.bfrt.ports import PortConfig  # noqa: E402
from ina.p4.bfrt.remote_switch import BfRuntimeTarget, node_id  # noqa: E402
from ina.p4.bfrt.rows import Row  # noqa: E402
from ina.p4.bfrt.service import Server  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.runtime import EntityError, Switch  # noqa: E402
from ina.p4.runtime.entities import (  # noqa: E402
    CloneSessionEntry,
    CounterEntry,
    DirectCounterEntry,
    MulticastGroupEntry,
    RegisterEntry,
    Replica,
    TableEntry,
    delete,
    insert,
    modify,
)

pytestmark = pytest.mark.build
FRAME = bytes.fromhex("020000000001" "020000000009" "88b5") + bytes(50)
MAC = 0x0200_0000_0001
TABLE, ZONE = "SwitchIngress.forward", "meta.port.zone"


@pytest.fixture
def switch():
    with Switch(compile_program(Path(__file__).parent.parent.parent / "programs/served" / "bfrt.p4").so_path) as switch:
        for port in (1, 2, 3, 129):
            switch.add_port(port)
        yield switch


@pytest.fixture
def target(switch):
    with Server(Device(switch)) as server, BfRuntimeTarget(server.address) as target:
        yield target


def entry(action="to_port", priority=1, **params):
    return TableEntry(TABLE, {"hdr.ethernet.dst": (MAC, (1 << 48) - 1), ZONE: 0}, f"SwitchIngress.{action}", params, priority)


def test_the_program_and_its_tables_are_named_as_the_driver_names_them(target):
    assert target.client.program == "bfrt"
    names = set(target.client.info.tables)
    assert {"pipe.SwitchIngress.forward", "pipe.SwitchIngress.pairs", "pipe.IngressParser.$PORT_METADATA"} <= names
    table = target.client.info.table("SwitchIngress.pairs")
    assert [f.name for f in table.data] == ["SwitchIngress.pairs.first", "SwitchIngress.pairs.second"]


def test_entries_steer_packets_and_their_counters_count(target, switch):
    target.write(insert(entry(port=2)))
    assert switch.step(FRAME, port=1) == [(2, FRAME)]
    received, sent = map(target.statistics().get, (1, 2))
    assert (received["$FramesReceivedOK"], sent["$OctetsTransmittedTotal"]) == (1, len(FRAME))
    target.write(insert(entry(port=3, priority=5)))
    assert switch.step(FRAME, port=1) == [(3, FRAME)]  # the higher priority, $MATCH_PRIORITY the lower number
    (low, high) = (target.read([DirectCounterEntry(entry(port=p, priority=n))])[0].packets for p, n in ((2, 1), (3, 5)))
    assert (low, high) == (1, 1)
    assert sorted(target.read([TableEntry(TABLE)]), key=lambda e: e.priority) == [entry(port=2), entry(port=3, priority=5)]


def test_an_entry_that_matches_everything_has_a_key_of_its_own(target):
    """A don't-care key is left out in P4Runtime; in BFRuntime it is a mask of 0."""
    everything = TableEntry(TABLE, {ZONE: 0}, "SwitchIngress.to_port", {"port": 3}, 9)
    target.write(insert(entry(port=2), everything))
    assert target.read([everything]) == [everything]
    target.write(modify(TableEntry(TABLE, {ZONE: 0}, "SwitchIngress.to_port", {"port": 1}, 9)))
    assert {e.priority: e.params["port"] for e in target.read([TableEntry(TABLE)])} == {1: 2, 9: 1}
    target.write(delete(everything))
    assert [e.priority for e in target.read([TableEntry(TABLE)])] == [1]


def test_registers_have_a_value_in_every_pipe(target, switch):
    switch.step(FRAME, port=1)
    switch.step(FRAME, port=129)
    (row,) = target.client.read([Row("SwitchIngress.pairs", {"$REGISTER_INDEX": 1})])
    assert row.data == {"SwitchIngress.pairs.first": (6, 5), "SwitchIngress.pairs.second": (7, 7)}
    target.write(modify(RegisterEntry("SwitchIngress.pairs", 1, (3 << 32) | 4)))
    (row,) = target.client.read([Row("SwitchIngress.pairs", {"$REGISTER_INDEX": 1})])
    assert row.data == {"SwitchIngress.pairs.first": (3, 3), "SwitchIngress.pairs.second": (4, 4)}
    target.client.write([("DELETE", Row("SwitchIngress.pairs", {"$REGISTER_INDEX": 1}))])  # its first value again
    assert target.read([RegisterEntry("SwitchIngress.pairs", 1)])[0].value == (5 << 32) | 7


def test_counters_of_all_pipes_are_one(target, switch):
    for port in (1, 1, 129):
        switch.step(FRAME, port)
    counts = target.read([CounterEntry("SwitchIngress.seen", 1), CounterEntry("SwitchIngress.seen", 129)])
    assert [c.packets for c in counts] == [2, 1]


def test_multicast_groups_become_trees_and_copy(target, switch):
    group = MulticastGroupEntry(7, (Replica(2, 1), Replica(3, 1), Replica(129, 4)))
    target.write(insert(group, entry("to_group", group=7)))
    assert sorted(port for port, _ in switch.step(FRAME, port=1)) == [2, 3, 129]
    nodes = target.client.read([Row("$pre.node")])
    assert {n.key["$MULTICAST_NODE_ID"]: n.data["$MULTICAST_RID"] for n in nodes} == {node_id(7, 1): 1, node_id(7, 4): 4}
    assert target.read([MulticastGroupEntry(0)]) == [group]
    smaller = MulticastGroupEntry(7, (Replica(3, 1), Replica(2, 9)))
    target.write(modify(smaller))
    assert sorted(port for port, _ in switch.step(FRAME, port=1)) == [2, 3]
    assert target.read([MulticastGroupEntry(7)]) == [smaller]
    target.write(delete(MulticastGroupEntry(7)))
    assert target.read([MulticastGroupEntry(0)]) == [] == target.client.read([Row("$pre.node")])
    assert switch.step(FRAME, port=1) == []


def test_a_group_that_cannot_be_leaves_no_nodes(target):
    with pytest.raises(EntityError, match="MGID=7.*there"):
        target.write(insert(MulticastGroupEntry(7, (Replica(2, 1),)), MulticastGroupEntry(8, (Replica(2, 1),)),
                            MulticastGroupEntry(7, (Replica(3, 2),))))
    assert target.client.read([Row("$pre.node")]) == [] == target.read([MulticastGroupEntry(0)])


def test_mirror_sessions(target):
    session = CloneSessionEntry(5, (Replica(129, 0),), 128)
    target.write(insert(session))
    assert target.read([CloneSessionEntry(0)]) == [session]
    (row,) = target.client.read([Row("$mirror.cfg", {"$sid": 5})])
    assert (row.data["$ucast_egress_port"], row.data["$ucast_egress_port_valid"], row.data["$direction"]) == (129, True, "BOTH")
    with pytest.raises(EntityError, match="clone session 6: 2 replicas"):
        target.write(insert(CloneSessionEntry(6, (Replica(1, 0), Replica(2, 0)))))
    target.write(delete(session))
    assert target.read([CloneSessionEntry(0)]) == []


def test_a_mirror_session_keeps_the_number_of_a_port_that_is_not_valid(target):
    port, valid = "$ucast_egress_port", "$ucast_egress_port_valid"
    target.client.write([("INSERT", Row("$mirror.cfg", {"$sid": 9}, {port: 129, valid: True}, "$normal"))])
    target.client.write([("MODIFY", Row("$mirror.cfg", {"$sid": 9}, {valid: False}, "$normal"))])
    (row,) = target.client.read([Row("$mirror.cfg", {"$sid": 9})])
    assert (row.data[port], row.data[valid]) == (129, False)
    target.client.write([("MODIFY", Row("$mirror.cfg", {"$sid": 9}, {valid: True}, "$normal"))])
    assert target.read([CloneSessionEntry(9)])[0].replicas == (Replica(129, 0),)


def test_how_a_driver_works_is_kept(target):
    setting = Row("tf1.dev.device_configuration", {}, {"selector_member_order": True}, is_default=True)
    target.client.write([("MODIFY", setting)])
    (row,) = target.client.read([Row("tf1.dev.device_configuration", is_default=True)])
    assert row.data["selector_member_order"] is True and row.data["num_stages"] == 12


def test_port_metadata_reaches_the_parser(target, switch):
    target.write(insert(entry(port=2)))
    metadata = Row("IngressParser.$PORT_METADATA", {"standard.ingress_port": 1}, {"zone": 9, "label": 1})
    target.client.write([("INSERT", metadata)])
    assert switch.step(FRAME, port=1) == []  # zone 9 matches no entry
    (row,) = target.client.read([Row("IngressParser.$PORT_METADATA", {"standard.ingress_port": 1})])
    assert row.data["zone"] == 9
    target.client.write([("DELETE", Row("IngressParser.$PORT_METADATA", {"standard.ingress_port": 1}))])
    assert switch.step(FRAME, port=1) == [(2, FRAME)]


def test_a_loopback_port_comes_in_again(target, switch):
    target.add_port(PortConfig("5/0", loopback="mac-near"))  # device port 16
    target.write(insert(entry(port=16)))
    before = target.read([CounterEntry("SwitchIngress.seen", 16)])[0].packets
    assert switch.step(FRAME, port=1) == []  # round and round, until the passes are used up
    assert target.read([CounterEntry("SwitchIngress.seen", 16)])[0].packets > before
    target.remove_port("5/0")
    assert 16 not in switch.ports


def test_what_the_device_says_of_itself(target):
    (device,) = [r for r in target.client.read([Row("tf1.dev.device_configuration", is_default=True)])]
    assert (device.data["num_pipes"], device.data["num_stages"], device.data["recirc_port_list"][:2]) == (2, 12, [68, 69])
