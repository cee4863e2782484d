"""A compiled TNA program (tests/programs/tna_forward.p4) in the embedded switch: stepped, on ports, and as a process."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from capabilities import need

from ina.net.ports import memory_pair
from ina.p4.compiler.build import compile_program
from ina.p4.runtime import (
    CounterEntry,
    EntityError,
    FilterEntry,
    LpfConfig,
    MulticastGroupEntry,
    MulticastPort,
    Program,
    Replica,
    Switch,
    TableEntry,
    WredConfig,
    delete,
    insert,
    modify,
)

pytestmark = pytest.mark.build
need("cc")

ROOT = Path(__file__).resolve().parent.parent.parent.parent
SOURCE = ROOT / "tests/programs/tna_forward.p4"
PIPE1 = 128


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(compile_program(SOURCE).so_path)


def to(address: int, length: int = 60) -> bytes:
    return address.to_bytes(6, "big") + bytes(6) + b"\x08\x00" + bytes(length - 14)


def entries(switch: Switch) -> None:
    switch.write(insert(
        TableEntry("addresses", {"hdr.ethernet.dst": 1}, "send", {"port": 1}),
        TableEntry("addresses", {"hdr.ethernet.dst": 2}, "send", {"port": PIPE1 + 2}),
        TableEntry("addresses", {"hdr.ethernet.dst": 3}, "flood", {"group": 7}),
        TableEntry("addresses", {"hdr.ethernet.dst": 4}, "to_cpu"),
        TableEntry("addresses", {"hdr.ethernet.dst": 5}, "send", {"port": 68}),
        MulticastGroupEntry(7, (Replica(1, 11), Replica(PIPE1 + 2, 12))),
    ))


def test_packets_go_where_the_entries_say(program):
    with Switch(program, max_passes=5) as switch:
        for port in (0, 1, PIPE1, PIPE1 + 2, 192):
            switch.add_port(port)
        entries(switch)
        switch.write(modify(MulticastPort(192, copy_to_cpu=True)))
        assert switch.step(to(1), 0) == [(1, to(1))]
        assert switch.step(to(2), PIPE1) == [(PIPE1 + 2, to(2))]
        flooded = to(3)
        copies = [(port, flooded[:6] + rid.to_bytes(6, "big") + flooded[12:]) for port, rid in ((1, 11), (PIPE1 + 2, 12))]
        assert switch.step(flooded, 0) == copies
        assert switch.step(to(4), 0) == [(192, to(4))]
        assert switch.step(to(9), 0) == []
        assert switch.step(to(5), 0) == []  # round and round, through recirculation
        received = switch.counter("received")
        assert received[0].tolist() == [5, 5 * 64] and received[PIPE1].tolist() == [1, 64]  # with the check sequence
        assert received[68].tolist() == [4, 4 * 64]
        assert switch.register("sent", 0).tolist() == [[1 + 1 + 5], [1 + 1 + 1]]
        assert switch.read([CounterEntry("received", PIPE1, pipe=0)]) == [CounterEntry("Ingress.received", PIPE1, 0, 0, 0)]


def test_pipes_on_a_running_data_plane(program):
    pairs = {port: memory_pair() for port in (0, PIPE1 + 2)}
    with Switch(program) as switch:
        for port, (inside, _) in pairs.items():
            switch.add_port(port, inside)
        switch.start()
        entries(switch)
        for count in range(300):
            assert pairs[0][1].send([to(2, 60 + count)]) == 1
            assert pairs[PIPE1 + 2][1].wait(120)
            (frame,) = pairs[PIPE1 + 2][1].receive()
            assert bytes(frame) == to(2, 60 + count)
        switch.stop()
        assert switch.register("sent", 0).tolist() == [[0], [300]]
    for inside, outside in pairs.values():
        outside.close()
        inside.close()


@pytest.fixture(scope="module")
def filters() -> Program:
    return Program(compile_program(ROOT / "tests/programs/tna_filters.p4").so_path)


def filtered(switch: Switch, sample: int, now: int = 0, port: int = 0) -> tuple[int, int, int]:
    """Outputs of Lpf, DirectLpf and Wred of cell 3 for a sample at `now` ns."""
    ((_, frame),) = switch.step((5).to_bytes(6, "big") + bytes(2) + sample.to_bytes(4, "big") + bytes(2 + 46), port, now * 1000)
    return int.from_bytes(frame[6:10], "big"), int.from_bytes(frame[:4], "big"), int.from_bytes(frame[12:14], "big")


def test_filters_are_configured_cell_by_cell(filters):
    entry = TableEntry("addresses", {"hdr.ethernet.dst": 5}, "filter")
    with Switch(filters) as switch:
        for port in (0, 1, PIPE1):
            switch.add_port(port)
        switch.write(insert(entry))
        assert filtered(switch, 1000) == (1000, 1000, 0)
        switch.write(modify(
            FilterEntry("average", 3, LpfConfig(100.0, 1000.0)), FilterEntry("red", 3, WredConfig(0.0, 400, 800, 0.0)),
            FilterEntry("mine", config=LpfConfig(0, 0, scale_down=2), entry=entry),
        ))
        assert filtered(switch, 1000, 0)[0] == 0  # no time has passed
        assert filtered(switch, 1000, 100) == (632, 250, 1)  # 1 - 1/e of the step; a quarter; above 800
        assert filtered(switch, 0, 1100)[0] == 232  # down by e, with the other time constant
        assert filtered(switch, 700, 1200)[2] == 0  # between the thresholds, with a probability of 0
        assert filtered(switch, 300, 0, PIPE1)[0] == 0  # the other pipe's averages
        assert switch.read([FilterEntry("average", 3, pipe=0)]) == [
            FilterEntry("Ingress.average", 3, LpfConfig(100.0, 1000.0), 0)
        ]
        assert switch.read([FilterEntry("red", 3, pipe=1)])[0].config == WredConfig(0.0, 400, 800, 0.0)
        assert len(switch.read([FilterEntry("red")])) == 2 * 16
        (direct, _) = switch.read([FilterEntry("mine", entry=entry)])
        assert direct.config == LpfConfig(0, 0, scale_down=2) and direct.entry == entry
        switch.write(delete(entry))
        switch.write(insert(entry))  # an entry that reuses a cell starts without its old state
        assert switch.read([FilterEntry("mine", entry=entry, pipe=0)])[0].config is None
        switch.write(modify(FilterEntry("average")))
        assert filtered(switch, 7, 1300)[0] == 7


@pytest.mark.parametrize(("entity", "message"), [
    (FilterEntry("averag", 0), "no filter 'averag'; there are: Ingress.average"),
    (FilterEntry("average", 16), r"filter Ingress.average: index 16: expected 0\.\.15"),
    (FilterEntry("average", 0, WredConfig(1, 2, 3, 0.5)), "it is a lpf"),
    (FilterEntry("red", 0, WredConfig(1, 3, 2, 0.5)), "low not above high"),
    (FilterEntry("average", 0, LpfConfig(-1, 0)), "finite and not negative"),
    (FilterEntry("mine", 0), "a direct one: name an entry of table Ingress.addresses"),
    (FilterEntry("average", entry=TableEntry("addresses", {"hdr.ethernet.dst": 1})), "not a direct one"),
])
def test_bad_filters_are_refused(filters, entity, message):
    with Switch(filters) as switch, pytest.raises(EntityError, match=message):
        switch.write(modify(entity))


def test_a_switch_process_runs_it():
    need("p4runtime")
    from p4runtime_client import Client, Names, update
    from test_switch_run import DEADLINE
    from test_switch_run import Switch as Process

    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
        s.settimeout(DEADLINE)
    ports = [f"-i{n}@udp:127.0.0.1:0,127.0.0.1:{s.getsockname()[1]}" for n, s in zip((1, PIPE1 + 2), sockets, strict=True)]
    with Process(str(SOURCE), "--arch", "tna", "--pipes", "2", *ports) as process:
        client = Client(process.address)
        assert client.stream().arbitrate(1).status.code == 0
        from ina.p4.p4runtime.messages import p4

        request = p4.GetForwardingPipelineConfigRequest(device_id=1)
        names = Names(client.call("GetForwardingPipelineConfig", request).config.p4info)
        forward = names.entry("addresses", None, "send", port=PIPE1 + 2)
        forward.is_default_action = True
        client.write(update("MODIFY", table_entry=forward))
        at = int(re.search(r"1@udp:127\.0\.0\.1:(\d+)", process.banner)[1])
        sockets[0].sendto(b"over two pipes", ("127.0.0.1", at))
        assert sockets[1].recv(100) == b"over two pipes"
        client.close()
    for s in sockets:
        s.close()


def test_the_process_refuses_a_program_of_another_architecture():
    need("p4runtime")
    command = [sys.executable, "-m", "ina.cli", "switch", "run", str(SOURCE), "--arch", "v1model", "--grpc", "127.0.0.1:0"]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1] == "ina: tna_forward.p4 is a program for tna, and this switch takes v1model"
    process = subprocess.run([*command, "--pipes", "7"], capture_output=True, text=True, cwd=ROOT)
    assert process.returncode == 2 and "--pipes: 7: expected 0 to 4" in process.stderr


def test_the_explorer_takes_all_pipes_back(program):
    from ina.worlds.virtual.explorable import SwitchMachine

    with Switch(program) as switch:
        for port in (0, 1, PIPE1, PIPE1 + 2):
            switch.add_port(port)
        entries(switch)
        machine = SwitchMachine("s1", switch)
        behaviour, saved = machine.save()
        assert machine.receive(0, to(1)) and machine.receive(PIPE1, to(2))
        assert switch.register("sent", 0).tolist() == [[1], [1]] and machine.save()[0] != behaviour
        machine.restore(saved)
        assert switch.register("sent", 0).tolist() == [[0], [0]] and machine.save() == (behaviour, saved)


def test_filters_have_tables_in_bfruntime(filters):
    need("p4runtime")
    from ina.p4.bfrt.device import Device
    from ina.p4.bfrt.rows import Row, Where

    with Switch(filters) as switch:
        device = Device(switch)
        average, red = "pipe.Ingress.average", "pipe.Ingress.red"
        data = {"$LPF_SPEC_TYPE": "RATE", "$LPF_SPEC_GAIN_TIME_CONSTANT_NS": 10.0, "$LPF_SPEC_OUT_SCALE_DOWN_FACTOR": 3}
        device.write("INSERT", Row(average, {"$LPF_INDEX": 3}, data))
        (row,) = device.read(Row(average, {"$LPF_INDEX": 3}))
        assert row.data == data | {"$LPF_SPEC_DECAY_TIME_CONSTANT_NS": 0.0}
        device.write("MODIFY", Row(average, {"$LPF_INDEX": 3}, {"$LPF_SPEC_TYPE": "SAMPLE"}), Where(1))  # the rest stays
        cells = [e.config for e in switch.read([FilterEntry("average", 3)])]
        assert cells == [LpfConfig(10.0, 0.0, True, 3), LpfConfig(10.0, 0.0, False, 3)]
        assert [r.data["$WRED_SPEC_MIN_THRESH_CELLS"] for r in device.read(Row(red))] == [0xFF000000] * 16
        with pytest.raises(EntityError, match=r"\$LPF_INDEX is missing"):
            device.write("MODIFY", Row(average, {}, data))
        device.write("DELETE", Row(average))
        assert {e.config for e in switch.read([FilterEntry("average")])} == {None}
