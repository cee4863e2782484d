"""The packet generator of a TNA switch over BFRuntime: its triggers, packets and times."""

from __future__ import annotations

from pathlib import Path

import pytest
from capabilities import need
from waiting import until

need("cc", "p4runtime")

from ina.p4.bfrt.device import Device  # noqa: E402
from ina.p4.bfrt.rows import EVERYWHERE, Row, Where, message_of, row_of  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.runtime import EntityError, Switch  # noqa: E402
from ina.p4.runtime.entities import TableEntry, insert, modify  # noqa: E402

pytestmark = pytest.mark.build
PACKET = bytes(range(1, 81))
LASTS = (6 + len(PACKET) + 24) * 80  # ps of one packet at 100 Gb/s
NS = 1000
TABLE = "SwitchIngress.forward"
APP, PORT, BUFFER = "tf1.pktgen.app_cfg", "tf1.pktgen.port_cfg", "tf1.pktgen.pkt_buffer"


@pytest.fixture(scope="module")
def program():
    return compile_program(Path(__file__).parent.parent.parent / "programs/served" / "bfrt_pipes.p4")


@pytest.fixture
def switch(program):
    """A switch that forwards all frames to port 2."""
    with Switch(program.so_path) as switch:
        for port in (1, 2, 129):
            switch.add_port(port)
        switch.write(modify(TableEntry(TABLE, {}, "SwitchIngress.to_port", {"port": 2}, is_default=True)))
        yield switch


@pytest.fixture
def device(switch):
    device = Device(switch)
    for port in (68, 196):
        device.write("MODIFY", Row(PORT, {"dev_port": port}, {"pktgen_enable": True}))
    device.write("MODIFY", Row(BUFFER, {"pkt_buffer_offset": 32, "pkt_buffer_size": len(PACKET)}, {"buffer": PACKET}))
    return device


def app(device, action="", number=3, where=EVERYWHERE, **data):
    data = {"pkt_len": len(PACKET), "pkt_buffer_offset": 32, "app_enable": True, **data} if action else data
    device.write("MODIFY", Row(APP, {"app_id": number}, data, action), where)


def counters(device, where=EVERYWHERE, number=3):
    (row,) = device.read(Row(APP, {"app_id": number}), where)
    return tuple(row.data[name] for name in ("trigger_counter", "batch_counter", "pkt_counter"))


def run(switch, until):
    """Times and headers of the packets that leave; asserts that all packets are whole."""
    arrivals = []
    while (due := switch.next_due()) is not None and due <= until:
        now = max(due, arrivals[-1][0] if arrivals else 0)
        for port, frame in switch.poll(now):
            assert port == 2 and frame[7:] == PACKET[1:]  # the program writes a colour into the first byte behind the header
            arrivals.append((now, frame[:6].hex()))
    return arrivals


def test_a_one_shot_timer_sends_batches_once(device, switch):
    app(device, "trigger_timer_one_shot", timer_nanosec=1000, batch_count_cfg=1, packets_per_batch_cfg=2, ipg=50, ibg=400,
        where=Where(1))
    sent = run(switch, 10_000_000)
    assert [header for _, header in sent] == [f"0b00{batch:04x}{packet:04x}" for batch in (0, 1) for packet in (0, 1, 2)]
    first = sent[0][0]
    assert [at - first for at, _ in sent] == [at * NS for at in (0, 50, 100, 400, 450, 500)]
    assert first == 1000 * NS and counters(device) == (1, 2, 6) == counters(device, Where(1))
    assert counters(device, Where(0)) == (0, 0, 0)
    assert run(switch, 10**12) == []  # it does not fire again until it is enabled again
    app(device, app_enable=False)
    app(device, app_enable=True, where=Where(1))
    assert len(run(switch, 10**12)) == 6 and counters(device) == (2, 4, 12)


def test_packets_never_come_faster_than_the_wire(device, switch):
    app(device, "trigger_timer_one_shot", packets_per_batch_cfg=9, timer_nanosec=1, where=Where(0))
    times = [at for at, _ in run(switch, 10**9)]
    assert [b - a for a, b in zip(times, times[1:], strict=False)] == [LASTS] * 9


def test_a_periodic_timer_sends_in_every_pipe(device, switch):
    app(device, "trigger_timer_periodic", timer_nanosec=1000)
    sent = run(switch, 3_500 * NS)
    assert sorted(header[:2] for _, header in sent) == ["03"] * 3 + ["0b"] * 3
    assert counters(device) == (6, 6, 6)
    device.write("DELETE", Row(APP))
    assert run(switch, 10**9) == [] and counters(device) == (0, 0, 0)


def test_a_port_that_goes_down_triggers_once_until_that_is_cleared(device, switch):
    app(device, "trigger_port_down", packets_per_batch_cfg=1)
    for port in (1, 129):
        switch.set_port(port, up=False)
        switch.set_port(port, up=True)
    assert run(switch, 10**9) == []  # not triggered yet
    for port in (1, 129):
        device.write("MODIFY", Row(PORT, {"dev_port": port}, {"clear_port_down_enable": True}))
    for _ in range(2):
        for port in (1, 129):
            switch.set_port(port, up=False)
            switch.set_port(port, up=True)
    assert sorted(h for _, h in run(switch, 2 * 10**9)) == ["030000010000", "030000010001", "0b0000810000", "0b0000810001"]
    assert counters(device) == (2, 2, 4)


def test_a_recirculated_packet_of_a_pattern_triggers(device, switch):
    device.write("MODIFY", Row(PORT, {"dev_port": 69}, {"pattern_matching_enable": True}))
    app(device, "trigger_recirc_pattern", pattern_value=0xAABB_0000, pattern_mask=0xFFFF_0000)
    tag = 0xAABB_CCDD_0000
    key = {"hdr.ethernet.dst": tag, "meta.known": 0}
    switch.write(insert(TableEntry(TABLE, key, "SwitchIngress.to_port", {"port": 69})))
    frame = tag.to_bytes(6, "big") + bytes(60)
    assert switch.step(frame, 1) == []  # round until its passes are used up: while the application runs that triggers once
    ((_, header),) = run(switch, 10**9)
    assert header == "03bbccdd0000" and counters(device) == (1, 1, 1)
    other = (tag ^ 1 << 40).to_bytes(6, "big") + bytes(60)
    switch.step(other, 1)
    assert run(switch, 10**9) == []


def test_packets_seem_to_come_from_the_port_that_is_said(device, switch):
    app(device, "trigger_timer_one_shot", timer_nanosec=1, packets_per_batch_cfg=2, pipe_local_source_port=1,
        increment_source_port=True, where=Where(0))
    assert len(run(switch, 10**9)) == 2  # from 1 and 2; there is no port 3
    assert [switch.port_stats(port).rx_packets for port in (1, 2)] == [1, 1]


def test_what_is_set_is_given_back(device):
    app(device, "trigger_timer_periodic", timer_nanosec=5, ipg=7, trigger_counter=11)
    (row,) = device.read(Row(APP, {"app_id": 3}))
    assert (row.action, row.data["timer_nanosec"], row.data["ipg"]) == ("trigger_timer_periodic", 5, 7)
    assert row_of(message_of(row, device.info), device.info) == row
    key = {"pkt_buffer_offset": 32, "pkt_buffer_size": len(PACKET)}
    (packet,) = device.read(Row(BUFFER, key))
    assert packet.data["buffer"] == PACKET and row_of(message_of(packet, device.info), device.info) == packet
    (port,) = device.read(Row(PORT, {"dev_port": 68}))
    assert port.data == {"recirculation_enable": True, "pktgen_enable": True, "pattern_matching_enable": False}


def test_a_port_that_nobody_configured_is_told_as_the_driver_leaves_it(program):
    """Recirculation: always at ports 68 to 71, at the CPU ports of pipes without a CPU, never at front panel ports."""
    with Switch(program.so_path, pipes=4) as switch:
        device = Device(switch)

        def read(port: int) -> dict[str, bool]:
            ((row,),) = (device.read(Row(PORT, {"dev_port": port})),)
            return dict(row.data)

        off = {"pktgen_enable": False, "pattern_matching_enable": False}
        recirculating = {0: False, 64: False, 71: True, 188: False, 192: True, 195: True, 320: False, 448: True, 452: True}
        for port, on in recirculating.items():
            assert read(port) == {"recirculation_enable": on, **off}
        assert device.read(Row(PORT)) == []
        for port, pipe in ((64, 0), (448, 3)):
            for on in (not recirculating[port], recirculating[port], recirculating[port]):
                device.write("INSERT", Row(PORT, {"dev_port": port}, {"recirculation_enable": on}))
                assert all(read(pipe * 128 + 64 + n)["recirculation_enable"] is on for n in range(4))
        device.write("MODIFY", Row(PORT, {"dev_port": 68}, {"recirculation_enable": True}))  # as it is
        device.write("INSERT", Row("$PORT", {"$DEV_PORT": 448}, {"$SPEED": "BF_SPEED_100G", "$PORT_ENABLE": True}))
        for port, on, reason in (
            (68, False, "recirculation is set at port 64"), (193, False, "for its ports 64 to 67"), (0, True, "set at port 64"),
            (72, False, "port 72 is none of this switch's 4 pipes"), (512, False, "port 512 is none"),
            (448, False, "port 448 is in table \\$PORT"),
        ):
            with pytest.raises(EntityError, match=reason):
                device.write("MODIFY", Row(PORT, {"dev_port": port}, {"recirculation_enable": on}))
        for port in (72, 512):
            with pytest.raises(EntityError, match=f"port {port} is none of this switch's 4 pipes"):
                read(port)
        assert switch.recirculates(448)


def test_what_is_refused(device):
    for row, reason in (
        (Row(PORT, {"dev_port": 70}, {"pktgen_enable": True}), "generated at port 68"),
        (Row(PORT, {"dev_port": 300}, {}), "none of this switch's 2 pipes"),
        (Row(BUFFER, {"pkt_buffer_offset": 8, "pkt_buffer_size": 4}, {"buffer": b"abcd"}), "a multiple of 16"),
        (Row(BUFFER, {"pkt_buffer_offset": 16384, "pkt_buffer_size": 4}, {"buffer": b"abcd"}), "within 16384"),
        (Row(APP, {"app_id": 8}, {"app_enable": True}, "trigger_port_down"), "expected 0..7"),
        (Row(APP, {"app_id": 1}, {"pkt_len": 100, "pkt_buffer_offset": 16368}), "Invalid argument"),
        (Row(APP, {}, {"app_enable": True}), "app_id"),
    ):
        with pytest.raises(EntityError, match=reason):
            device.write("MODIFY", row)


def test_a_running_data_plane_generates_by_itself(device, switch):
    app(device, "trigger_timer_one_shot", timer_nanosec=1000, packets_per_batch_cfg=99, where=Where(0))
    device.write("MODIFY", Row(TABLE, {}, {}, "SwitchIngress.drop", is_default=True))
    switch.start()
    until(lambda: counters(device)[2] >= 100, "packets of the batch")
    assert counters(device) == (1, 1, 100)
