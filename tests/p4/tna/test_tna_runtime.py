"""TNA's pipes and traffic manager with a program that executes commands in each frame (tests/c/tna_probe.c)."""

from __future__ import annotations

import subprocess

import pytest
from c_program import CC, ROOT
from capabilities import need
from test_switch import run_sanitized
from tna_probe import (
    BYPASS,
    CPU,
    DIGEST,
    DROP_CTL,
    EGRESS_DROP,
    EGRESS_MIRROR,
    FAIL,
    FRONT,
    GROUP_A,
    GROUP_B,
    MIRROR,
    PARSER_DROP,
    QID,
    RESUBMIT,
    UCAST,
    Sent,
    drops,
    frame,
    passed,
    ports_of,
    probe,
    step,
    switch,
)

from ina.p4.runtime import (
    CloneSessionEntry,
    CounterEntry,
    EntityError,
    Link,
    MirrorSession,
    MulticastGroupEntry,
    MulticastPort,
    PortMetadata,
    RegisterEntry,
    Replica,
    Switch,
    delete,
    insert,
    modify,
)

pytestmark = pytest.mark.build
__all__ = ["probe", "switch"]  # fixtures


# ---- metadata


def test_ingress_sees_its_port_the_time_and_nothing_else(switch):
    (sent,) = step(switch, frame((UCAST, 1)), 129, now=5_000_000)
    assert sent.ingress_front == (129).to_bytes(2, "big") + (5000).to_bytes(6, "big") + bytes(8)
    assert sent.frame == passed(frame((UCAST, 1)))


def test_egress_sees_where_the_copy_goes(switch):
    data = frame((UCAST, 140), (QID, 17), length=100)
    (sent,) = step(switch, data, now=(1 << 18) * 1000 + 7000)
    assert (sent.port, sent.egress_port, sent.qid, sent.enq_tstamp, sent.deq_timedelta) == (140, 140, 17, 7, 0)
    assert (sent.rid, sent.first, sent.enq_qdepth) == (0, 0, 0)
    assert sent.pkt_length == 1 + 16 + 100 + 4  # as ingress left it, with the check sequence
    padding = [(0, 7), (16, 5), (40, 6), (48, 14), (80, 5), (104, 6), (120, 14), (168, 7), (176, 3), (184, 5), (192, 7)]
    assert all(sent.bits(at, width) == 0 for at, width in padding)


def test_port_metadata_stand_in_front_by_port(switch):
    switch.write(modify(PortMetadata(2, {"vrf": 0x123, "ifid": 0x45678})))
    (sent,) = step(switch, frame((UCAST, 1)), 2)
    assert sent.ingress_front[8:] == bytes.fromhex("1234567800000000")
    assert step(switch, frame((UCAST, 1)), 3)[0].ingress_front[8:] == bytes(8)
    assert switch.read([PortMetadata(2)]) == [PortMetadata(2, {"vrf": 0x123, "ifid": 0x45678})]
    switch.write(delete(PortMetadata(2)))
    assert step(switch, frame((UCAST, 1)), 2)[0].ingress_front[8:] == bytes(8)
    with pytest.raises(EntityError, match="no field 'vlan'; it has: vrf, ifid"):
        switch.write(modify(PortMetadata(2, {"vlan": 1})))
    with pytest.raises(EntityError, match="vrf: 4096 does not fit 12 bits"):
        switch.write(modify(PortMetadata(2, {"vrf": 4096})))
    with pytest.raises(EntityError, match=r"no parser 'Other' with any; Parser\.\$PORT_METADATA"):
        switch.write(modify(PortMetadata(2, {"vrf": 1}, "Other")))


# ---- destinations


def test_without_a_destination_there_is_no_copy(switch):
    assert step(switch, frame()) == []
    assert drops(switch, 0) == {"ingress": 1}


def test_port_511_is_none_and_an_absent_port_is_counted(switch):
    assert step(switch, frame((UCAST, 511)), 1) == []
    assert step(switch, frame((UCAST, 7)), 2) == []
    assert step(switch, frame((UCAST, 300)), 3) == []
    assert [drops(switch, p) for p in (1, 2, 3)] == [{"ingress": 1}, {"no_port": 1}, {"no_port": 1}]


def test_a_packet_goes_to_all_four_places(switch):
    switch.write(insert(MulticastGroupEntry(1, (Replica(1, 11), Replica(2, 11)))))
    switch.write(insert(MulticastGroupEntry(2, (Replica(128, 22),))))
    switch.write(modify(MulticastPort(140, copy_to_cpu=True)))
    sent = step(switch, frame((UCAST, 3), (GROUP_A, 1), (GROUP_B, 2), CPU))
    copies = sorted((s.port, s.rid, s.first) for s in sent)
    assert copies == [(1, 11, 1), (2, 11, 0), (3, 0, 0), (128, 22, 1), (140, 0, 1)]
    assert all(s.egress_port == s.port for s in sent)


def test_drop_control(switch):
    switch.write(modify(MulticastPort(140, copy_to_cpu=True)))
    everything = [(UCAST, 3), CPU]
    assert ports_of(step(switch, frame(*everything, (DROP_CTL, 1)))) == [140]
    assert ports_of(step(switch, frame(*everything, (DROP_CTL, 2)))) == [3]
    assert step(switch, frame(*everything, (DROP_CTL, 3))) == []


def test_what_the_parser_or_an_assertion_stops_goes_nowhere(switch):
    assert step(switch, frame((UCAST, 3), (MIRROR, 1), PARSER_DROP), 1) == []
    assert step(switch, frame((UCAST, 3), (MIRROR, 1), FAIL), 2) == []
    assert [drops(switch, p) for p in (1, 2)] == [{"malformed": 1}, {"assertion": 1}]


def test_bypass_leaves_as_ingress_deparsed_it(switch):
    data = frame((UCAST, 3), BYPASS, EGRESS_DROP)
    assert switch.step(data, 0) == [(3, passed(data))]
    switch.write(insert(MulticastGroupEntry(1, (Replica(1), Replica(128)))))
    data = frame((GROUP_A, 1), BYPASS)
    assert sorted(switch.step(data, 0)) == [(1, passed(data)), (128, passed(data))]


def test_egress_drops(switch):
    assert step(switch, frame((UCAST, 3), EGRESS_DROP)) == []
    assert drops(switch, 3) == {"egress": 1}


# ---- pipes


def test_each_pipe_has_its_own_state(switch):
    for _ in range(3):
        step(switch, frame((UCAST, 1)), 128)  # ingress of pipe 1, egress of pipe 0
    step(switch, frame((UCAST, 129)), 0)
    assert switch.register("seen").tolist() == [[1, 3], [3, 1]]
    assert switch.register("seen", pipe=1).tolist() == [3, 1]
    cells = [RegisterEntry("Ingress.seen", 0, 1, pipe=0), RegisterEntry("Ingress.seen", 0, 3, pipe=1)]
    assert switch.read([RegisterEntry("seen", 0)]) == cells
    switch.write(modify(RegisterEntry("seen", 0, 7, pipe=0)))
    assert switch.register("seen", 0).tolist() == [[7], [3]]
    switch.write(modify(RegisterEntry("seen", None, 9)))
    assert switch.register("seen").tolist() == [[9, 9], [9, 9]]
    with pytest.raises(EntityError, match="pipe 2: it is in 0, 1"):
        switch.read([RegisterEntry("seen", 0, pipe=2)])


def test_a_count_that_is_written_is_what_all_pipes_have_counted(switch):
    switch.write(modify(CounterEntry("spare", 1, 5, 300)))
    assert switch.counter("spare").tolist() == [[0, 0], [5, 300]]
    assert switch.read([CounterEntry("spare", 1)]) == [
        CounterEntry("Ingress.spare", 1, 5, 300, 0), CounterEntry("Ingress.spare", 1, 0, 0, 1)
    ]
    switch.write(modify(CounterEntry("spare", 1, 2, 7, pipe=1)))
    assert switch.counter("spare", 1).tolist() == [[7, 307]] and switch.counter("spare", 1, pipe=1).tolist() == [[2, 7]]
    switch.write(modify(CounterEntry("spare", None)))
    assert switch.counter("spare").tolist() == [[0, 0], [0, 0]]


def test_a_snapshot_has_all_pipes(switch):
    step(switch, frame((UCAST, 1)), 128)
    before = switch.snapshot()
    assert len(before) == 2 * 64
    step(switch, frame((UCAST, 129)), 128)
    switch.restore(before)
    assert switch.snapshot() == before and switch.register("seen").tolist() == [[0, 1], [1, 0]]


def test_four_pipes_and_ports_outside_them(probe):
    with Switch(probe, pipes=4) as sw:
        sw.add_port(3 * 128 + 5)
        assert ports_of(step(sw, frame((UCAST, 389)), 389)) == [389]
        assert sw.register("seen")[3].tolist() == [1, 1]
    with Switch(probe, pipes=1) as sw, pytest.raises(ValueError, match=r"port 128: expected 0\.\.127"):
        sw.add_port(128)
    with pytest.raises(OSError, match="cannot create a switch"):
        Switch(probe, pipes=5)


# ---- resubmission, recirculation


def test_resubmission_brings_the_frame_as_it_came_with_data(switch):
    data = frame((UCAST, 1), RESUBMIT)
    (sent,) = step(switch, data, 5)
    assert sent.ingress_front[:2] == (0x8000 | 5).to_bytes(2, "big") and sent.ingress_front[8:] == b"RESUBMIT"
    assert sent.frame == passed(data)  # once: the first pass's changes are dropped
    assert switch.port_stats(5).recirculated == 1


def test_a_frame_is_resubmitted_once(switch):
    assert step(switch, frame((UCAST, 1), (RESUBMIT, 1)), 5) == []
    assert drops(switch, 5) == {"passes": 1}


def test_resubmission_wins_over_all_copies(switch):
    switch.write(insert(MirrorSession(4, port=2)))
    sent = step(switch, frame((UCAST, 1), (MIRROR, 4), RESUBMIT))
    assert ports_of(sent) == [1, 2]  # of the second pass only


def test_a_recirculation_port_leads_to_ingress(switch):
    data = frame((UCAST, 68), BYPASS, length=40)
    assert switch.step(data, 0) == []
    stats = switch.port_stats(68)
    assert (stats.tx_packets, stats.rx_packets, stats.recirculated, stats.drops["passes"]) == (8, 7, 7, 1)
    assert switch.register("seen", pipe=0)[0] == 8  # max_passes


def test_a_frame_recirculates_in_the_other_pipe_as_a_new_one(switch):
    # Then egress metadata is in front, so the second pass reads no commands
    step(switch, frame((UCAST, 196)), 0)
    assert switch.register("seen").tolist() == [[1, 0], [1, 1]]
    assert drops(switch, 196) == {"ingress": 1}


def test_pipes_without_a_cpu_recirculate_at_its_ports(probe):
    """Recirculation as the published driver sets up a chip of four pipes: ports 64 to 67 of pipes 1 and 3."""
    with Switch(probe, pipes=4) as sw:
        sw.add_port(0)
        for port in (64, 320):
            assert not sw.recirculates(port) and step(sw, frame((UCAST, port))) == []
            assert sw.port_stats(port).rx_packets == 0
        for port in (192, 195, 448, 451):
            assert sw.recirculates(port) and step(sw, frame((UCAST, port))) == []
            assert sw.port_stats(port).rx_packets == 1
        sw.recirculate(1, False)
        assert not sw.recirculates(192) and step(sw, frame((UCAST, 192))) == [] and sw.port_stats(192).rx_packets == 1
        sw.recirculate(1, True)
        assert step(sw, frame((UCAST, 193))) == [] and sw.port_stats(193).rx_packets == 1
        sw.add_port(194)
        assert ports_of(step(sw, frame((UCAST, 194)))) == [194]
        with pytest.raises(ValueError, match="port 194 is there: ports 192 to 195 change together"):
            sw.recirculate(1, False)
    with Switch(probe, pipes=2) as sw:
        assert not sw.recirculates(192) and sw.recirculates(196) and not sw.recirculates(324)


def test_a_port_that_is_removed_recirculates_again(switch):
    for port in (68, 199):
        switch.add_port(port)
        assert ports_of(step(switch, frame((UCAST, port)))) == [port]
        switch.remove_port(port)
        assert step(switch, frame((UCAST, port))) == [] and switch.port_stats(port).rx_packets == 1


def test_a_front_port_in_loopback_mode(switch):
    switch.set_port(129, loopback=True)
    assert step(switch, frame((UCAST, 129))) == []
    assert switch.port_stats(129).rx_packets == 1
    switch.set_port(129, loopback=False)
    assert ports_of(step(switch, frame((UCAST, 129)))) == [129]
    with pytest.raises(ValueError, match="loopback port is TNA's"):
        switch.add_port(6, object(), loopback=True)


def test_a_port_that_is_down_takes_and_sends_nothing(switch):
    switch.set_port(2, up=False)
    assert step(switch, frame((UCAST, 2))) == [] and step(switch, frame((UCAST, 1)), 2) == []
    assert drops(switch, 0) == {"no_port": 1} == drops(switch, 2)
    with pytest.raises(ValueError, match="port 2 is there already"):
        switch.add_port(2)
    switch.set_port(2, up=True)
    assert ports_of(step(switch, frame((UCAST, 2)))) == [2]
    switch.set_port(2, up=False)
    switch.remove_port(2)
    switch.add_port(2)
    assert ports_of(step(switch, frame((UCAST, 2)))) == [2]


def test_a_recirculation_port_with_a_link_takes_its_time(probe):
    with Switch(probe, max_passes=3) as sw:
        sw.add_port(0)
        sw.add_port(68, link=Link(rate=8e9), loopback=True)
        data = frame((UCAST, 68), BYPASS, length=76)  # 100 bytes on the wire: 100 ns
        assert sw.step(data, 0, 0) == []
        assert sw.next_due() == 100_000
        sw.poll(100_000)
        assert sw.register("seen", pipe=0)[0] == 2 and sw.next_due() == 200_000
        sw.poll(200_000)
        assert sw.next_due() is not None
        sw.poll(300_000)
        assert drops(sw, 68) == {"passes": 1} and sw.next_due() is None


# ---- queues


def test_queue_depth_is_in_cells_and_times_in_nanoseconds(probe):
    with Switch(probe) as sw:
        sw.add_port(0)
        sw.add_port(1, link=Link(rate=8e9))
        data = frame((UCAST, 1), length=100)
        for _ in range(4):
            assert sw.step(data, 0, 0) == []
        sent = []
        while (due := sw.next_due()) is not None:
            sent += [Sent(*s) for s in sw.poll(due)]
        waiting = 1 + 16 + 100 + 24  # of each on the wire when it is queued
        assert [s.enq_qdepth for s in sent] == [-(-n * waiting // 80) for n in (0, 0, 1, 2)]  # the first is being sent
        assert [s.deq_qdepth for s in sent] == [-(-n * waiting // 80) for n in (0, 2, 1, 0)]
        leaving = waiting + FRONT  # egress puts its metadata in front
        assert [s.deq_timedelta for s in sent] == [n * leaving for n in range(4)]


# ---- mirrors


def test_ingress_mirrors_the_frame_as_it_came(switch):
    switch.write(insert(MirrorSession(0x102, port=2, queue=9)))
    data = frame((UCAST, 1), (MIRROR, 0x102))
    normal, mirrored = step(switch, data)
    assert (normal.port, normal.frame) == (1, passed(data))
    assert (mirrored.port, mirrored.body, mirrored.qid) == (2, b"M\x01\x02i" + data, 9)
    assert mirrored.pkt_length == 4 + len(data) + 4


def test_a_mirror_goes_to_groups_and_the_cpu_too_and_is_cut(switch):
    switch.write(insert(MulticastGroupEntry(7, (Replica(1, 5), Replica(128, 6)))))
    switch.write(modify(MulticastPort(140, copy_to_cpu=True)))
    switch.write(insert(MirrorSession(1023, mcast_a=7, copy_to_cpu=True, max_length=20)))
    data = frame((MIRROR, 1023))
    sent = step(switch, data)
    assert sorted((s.port, s.rid, s.first) for s in sent) == [(1, 5, 1), (128, 6, 0), (140, 0, 1)]
    assert all(s.body == (b"M\x03\xffi" + data)[:20] for s in sent)
    assert drops(switch, 0) == {"ingress": 1}  # the packet itself


def test_egress_mirrors_the_frame_as_it_leaves_even_if_dropped(switch):
    switch.write(insert(MirrorSession(6, port=2)))
    data = frame((UCAST, 1), (EGRESS_MIRROR, 6))
    normal, mirrored = step(switch, data)
    assert (normal.port, mirrored.port) == (1, 2)
    assert mirrored.body == b"M\x00\x06e" + normal.data
    (mirrored,) = step(switch, frame((UCAST, 1), (EGRESS_MIRROR, 6), EGRESS_DROP))
    assert mirrored.port == 2


def test_sessions_that_are_off_or_of_the_other_direction_take_nothing(switch):
    switch.write(insert(MirrorSession(1, port=2, enabled=False), MirrorSession(2, port=2, direction="EGRESS"),
                        MirrorSession(3, port=2, direction="INGRESS")))
    for session in (1, 2, 9):
        assert step(switch, frame((MIRROR, session)), 3) == []
    assert drops(switch, 3) == {"ingress": 3, "no_session": 3}
    assert ports_of(step(switch, frame((UCAST, 1), (EGRESS_MIRROR, 3)))) == [1]
    assert ports_of(step(switch, frame((UCAST, 1), (EGRESS_MIRROR, 2)))) == [1, 2]
    switch.write(modify(MirrorSession(1, port=2)))
    assert ports_of(step(switch, frame((MIRROR, 1)))) == [2]
    switch.write(delete(MirrorSession(1)))
    assert step(switch, frame((MIRROR, 1))) == []


def test_a_clone_session_is_a_mirror_session_with_one_port(switch):
    switch.write(insert(CloneSessionEntry(3, (Replica(5),), packet_length=30)))
    (sent,) = step(switch, frame((MIRROR, 3)))
    assert sent.port == 5 and len(sent.body) == 30
    with pytest.raises(EntityError, match="one port without a replication id"):
        switch.write(modify(CloneSessionEntry(3, (Replica(5), Replica(6)))))
    with pytest.raises(EntityError, match="there already, as a clone session") as error:
        switch.write(insert(MirrorSession(3, port=1)))
    assert error.value.code == "ALREADY_EXISTS"


# ---- digests


def test_digests_come_with_the_pipes_port(switch):
    step(switch, frame((DIGEST, 0x1234)), 129)
    digests, lost = switch.digests()
    assert [(d.ingress_port, d.name, d.fields) for d in digests] == [(129, "learn", {"what": 0x1234})] and not lost


def test_v1model_has_no_pipes(tmp_path):
    path = tmp_path / "probe.so"
    subprocess.run([*CC, "-shared", "-fPIC", ROOT / "tests/c/probe_program.c", "-o", path], check=True)
    with pytest.raises(ValueError, match="a v1model program has no pipes"):
        Switch(path, pipes=2)
    with Switch(path) as sw:
        assert sw.pipes == 0
        with pytest.raises(EntityError, match="MirrorSession: probe is no TNA program"):
            sw.write(insert(MirrorSession(1, port=1)))


# ---- under sanitizers


@pytest.mark.later
def test_pipes_and_traffic_manager_under_sanitizers(tmp_path):
    need("cc", "sanitizers")
    runs = [("20000", "1"), ("20000", "2"), ("20000", "3")]
    run_sanitized(tmp_path, "test_tna_core", "address,undefined", *runs, probe="tna_probe")
