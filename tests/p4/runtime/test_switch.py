"""The switch runtime with a program that executes commands in each packet (tests/c/probe_program.c)."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import child
import pytest
from c_program import CC, ROOT, compiled
from capabilities import need
from folders import files
from v1_program import data, source
from waiting import until

from ina.net.ports import memory_pair
from ina.p4.compiler.build import compile_program
from ina.p4.runtime import (
    CloneSessionEntry,
    CounterEntry,
    EntityError,
    Link,
    MulticastGroupEntry,
    Program,
    RegisterEntry,
    Replica,
    Switch,
    TableEntry,
    delete,
    insert,
    modify,
)

pytestmark = pytest.mark.build
DROP, UNICAST, MULTICAST, RESUBMIT, CLONE, TABLE, DIGEST = range(7)
PASS, EGRESS_DROP, RECIRCULATE, EGRESS_CLONE, PUSH, TRUNCATE, DEPTH = range(7)


@pytest.fixture(scope="session")
def probe(tmp_path_factory) -> Program:
    return compiled("probe_program", tmp_path_factory.mktemp("probe"))


@pytest.fixture
def switch(probe):
    with Switch(probe) as sw:
        for number in range(4):
            sw.add_port(number)
        yield sw


def frame(*operations: int, length: int = 60) -> bytes:
    head = bytes(range(14)) + bytes(operations).ljust(4, b"\0")
    return head + bytes(i & 0xFF for i in range(length - len(head)))


def as_sent(data: bytes, phases: int = 1) -> bytes:
    return data[:13] + bytes([phases]) + data[14:]


def drops(sw: Switch, port: int) -> dict[str, int]:
    return {k: v for k, v in sw.port_stats(port).drops.items() if v}


def test_unicast_leaves_by_its_port(switch):
    data = frame(UNICAST, 2)
    assert switch.step(data, 0) == [(2, as_sent(data))]
    assert switch.port_stats(0).rx_bytes == switch.port_stats(2).tx_bytes == 60


def test_drops_are_counted_by_reason(switch):
    assert switch.step(frame(DROP), 0) == []
    assert switch.step(frame(UNICAST, 9), 0) == []
    assert switch.step(frame(MULTICAST, 9), 0) == []
    assert switch.step(frame(CLONE, 9), 1) == [(1, as_sent(frame(CLONE, 9)))]
    assert switch.step(frame(UNICAST, 3, EGRESS_DROP, 3), 0) == []
    assert switch.step(b"", 2) == []
    assert switch.step(frame(RESUBMIT, 200), 2) == []
    assert drops(switch, 0) == {"ingress": 1, "no_port": 1, "no_group": 1}
    assert drops(switch, 1) == {"no_session": 1}
    assert drops(switch, 2) == {"malformed": 1, "passes": 1}
    assert drops(switch, 3) == {"egress": 1}


def test_a_replica_has_metadata_and_frame_of_its_own(switch):
    replicas = (Replica(1, 5), Replica(1, 6), Replica(3, 0x1234), Replica(0, 7))
    switch.write(insert(MulticastGroupEntry(7, replicas)))
    data = frame(MULTICAST, 7, PUSH)
    out = switch.step(data, 2)
    assert all(d[4:] == as_sent(data) for _, d in out)
    heads = sorted((int.from_bytes(d[:2], "big"), d[2], d[3]) for _, d in out)
    assert heads == [(5, 5, 1), (6, 5, 1), (7, 5, 0), (0x1234, 5, 3)]
    assert all(port == d[3] for port, d in out)


@pytest.mark.parametrize(
    ("egress", "shared"),
    [
        ("hdr.data.a = hdr.data.a + (bit<32>)sm.egress_rid;", True),
        ("hdr.data.a = hdr.tag.t + (bit<32>)sm.egress_rid + meta.seen;", True),
        ("hdr.tag.t = hdr.tag.t + (bit<32>)sm.egress_rid; hdr.data.a = hdr.tag.t + meta.seen;", False),  # in the metadata
        ("hdr.tag.setInvalid(); hdr.tag.setValid(); hdr.data.a = hdr.tag.t + 99 + (bit<32>)sm.egress_rid;", False),
        ("meta.seen = meta.seen + (bit<32>)sm.egress_rid; hdr.data.a = meta.seen + 0x63;", True),  # a variable: not kept
        ("if (meta.seen == 9) { recirculate_preserving_field_list(1); } hdr.data.a = 99 + (bit<32>)sm.egress_rid;", False),
    ],
)
def test_replicas_share_metadata_that_egress_only_reads(tmp_path, egress, shared):
    path = tmp_path / "program.p4"
    path.write_text(
        source(
            "hdr.tag.setValid(); hdr.tag.t = 98; meta.seen = 1; sm.mcast_grp = 1; hdr.data.a = 99;",
            types=f"header tag_t {{ bit<32> t; {' '.join(f'bit<32> v{i};' for i in range(8))} }}",
            headers="tag_t tag;",
            metadata="@field_list(1) bit<32> seen;",
            egress=egress,
            deparser="p.emit(hdr.data);",
        )
    )
    program = Program(compile_program(path).so_path)
    assert bool(program.pointer.flags & 2) == shared
    with Switch(program) as sw:
        for number in range(4):
            sw.add_port(number)
        sw.write(insert(MulticastGroupEntry(1, tuple(Replica(port, 10 * port) for port in range(4)))))
        sent = sorted((port, int.from_bytes(out[:4], "big")) for port, out in sw.step(data(5, 6, 7, 8, 9), 0))
    base = 100 if "0x63" in egress else 99
    assert sent == [(port, base + 10 * port) for port in range(4)]


def test_a_group_larger_than_all_scratch(switch):
    switch.write(insert(MulticastGroupEntry(1, tuple(Replica(i % 4, i) for i in range(9000)))))
    data = frame(MULTICAST, 1, PUSH)
    out = switch.step(data, 0)
    assert sorted(int.from_bytes(d[:2], "big") for _, d in out) == list(range(9000))
    assert {d[4:] for _, d in out} == {as_sent(data)}


def test_resubmission_keeps_the_listed_metadata_and_the_frame(switch):
    data = frame(RESUBMIT, 5)
    assert switch.step(data, 3) == [(3, as_sent(data, 6))]
    assert switch.port_stats(3).recirculated == 5
    assert switch.register("seen")[3] == 6


def test_recirculation_brings_the_deparsed_frame_back(switch):
    data = frame(UNICAST, 1, RECIRCULATE, 4)
    ((port, out),) = switch.step(data, 0)
    assert port == 1
    assert out == as_sent(frame(UNICAST, 1, RECIRCULATE, 0), 5)
    assert switch.port_stats(1).tx_packets == 1


def test_clone_of_ingress_is_the_frame_as_it_came(switch):
    switch.write(insert(CloneSessionEntry(3, (Replica(2, 9), Replica(3)), packet_length=20)))
    data = frame(CLONE, 3)
    out = switch.step(data, 0)
    clone = as_sent(data, 0)[:20]  # no ingress ran on it
    assert out == [(0, as_sent(data)), (2, clone), (3, clone)]


def test_clone_of_egress_is_the_frame_as_it_left(switch):
    switch.write(insert(CloneSessionEntry(3, (Replica(2),))))
    out = dict(switch.step(frame(UNICAST, 1, EGRESS_CLONE, 3), 0))
    assert out[1][18] == 0xCC
    assert out[2] == as_sent(out[1], 0)


def test_truncation(switch):
    ((_, out),) = switch.step(frame(UNICAST, 1, TRUNCATE, 30), 0)
    assert out == as_sent(frame(UNICAST, 1, TRUNCATE, 30))[:30]


def test_digests_are_kept_until_read(switch):
    for i in range(3):
        switch.step(frame(DIGEST, i), i)
    digests, lost = switch.digests(2)
    assert [(d.ingress_port, d.name, d.fields) for d in digests] == [(0, "seen", {"to": 0}), (1, "seen", {"to": 1})]
    assert lost == 0
    assert [d.ingress_port for d in switch.digests()[0]] == [2]


def test_a_link_queues_serialises_and_delays(probe):
    with Switch(probe) as sw:
        sw.add_port(0)
        sw.add_port(1, link=Link(rate=8e9, delay=1e-6, queue=2 * 84))
        data = frame(UNICAST, 1, DEPTH)
        for _ in range(4):  # 60 bytes and 24 of overhead last 84 ns at 8 Gb/s: one is sent, two wait, one is lost
            assert sw.step(data, 0, now=1000) == []
        assert drops(sw, 1) == {"tail": 1}
        arrivals = []
        while (due := sw.next_due()) is not None:
            arrivals += [(due, d[18], d[19]) for _, d in sw.poll(due)]
        first = 1000 + 84_000 + 10**6
        assert arrivals == [(first, 0, 0), (first + 84_000, 0, 1), (first + 168_000, 1, 0)]


def ip_checksum(header: bytes) -> int:
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, 20, 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def test_a_long_queue_marks_ecn_capable_frames(probe):
    def ip(tos: int) -> bytes:
        header = bytearray.fromhex("4500002e00000000401100000a0000010a000002")
        header[1] = tos
        header[10:12] = ip_checksum(header).to_bytes(2, "big")
        return bytes(12) + b"\x08\x00" + bytes(header) + bytes(26)

    with Switch(probe) as sw:
        sw.add_port(0, link=Link(rate=1e9, ecn=150))
        sw.add_port(1)
        sw.write(modify(TableEntry("l2", {}, "forward", {"port": 0}, is_default=True)))
        for tos in (2, 2, 2, 2, 0x81, 0, 3):  # one is sent, two wait before more than 150 bytes do
            sw.step(ip(tos), 1, now=0)
        out = []
        while (due := sw.next_due()) is not None:
            out += [d[14:34] for _, d in sw.poll(due)]
        assert [h[1] for h in out] == [2, 2, 2, 3, 0x83, 0, 3]
        assert all(ip_checksum(h) == 0 for h in out)
        assert sw.port_stats(0).ecn_marks == 2


def test_removing_a_port_drops_what_waits(probe):
    with Switch(probe, buffer=4 * (len(frame(UNICAST, 1)) + 24), reentries=1) as sw:
        sw.add_port(0)
        sw.add_port(1, link=Link(rate=1e6))
        for round_ in range(3):
            for _ in range(6):  # one is sent, four wait
                sw.step(frame(UNICAST, 1), 0, now=round_)
            assert drops(sw, 1) == {"no_buffer": 1}
            sw.remove_port(1)
            assert sw.next_due() is None
            sw.add_port(1, link=Link(rate=1e6))
        assert sw.step(frame(RESUBMIT, 1), 0) == [(0, as_sent(frame(RESUBMIT, 1), 2))]


def test_ports_share_the_buffer_of_their_switch_whatever_their_queues_would_hold(probe):
    size = len(frame(UNICAST, 1)) + 24
    with Switch(probe, buffer=5 * size) as sw:
        sw.add_port(0)
        for port, queue in ((1, 0), (2, 2 * size)):
            sw.add_port(port, link=Link(rate=1e6, queue=queue))
        for _ in range(4):
            sw.step(frame(UNICAST, 2), 0, now=0)
        assert drops(sw, 2) == {"tail": 1}, "one is sent, its queue holds two"
        for _ in range(6):
            sw.step(frame(UNICAST, 1), 0, now=0)
        assert drops(sw, 1) == {"no_buffer": 2}, "one is sent, three have room beside the two of port 2"
        while (due := sw.next_due()) is not None:
            sw.poll(due)
        assert sw.port_stats(1).tx_packets == 4 and sw.port_stats(2).tx_packets == 3
        for _ in range(6):
            sw.step(frame(UNICAST, 1), 0, now=due or 10**15)
        assert drops(sw, 1) == {"no_buffer": 2}, "all of it is free again"


def test_queues_without_a_limit_hold_whatever_comes(probe):
    """The queues take more frames than any table of fixed size would."""
    with Switch(probe) as sw:
        sw.add_port(0)
        sw.add_port(1, link=Link(rate=1e6))
        for _ in range(20_000):
            sw.step(frame(UNICAST, 1), 0, now=0)
        assert drops(sw, 1) == {}
        sw.poll(10**15)
        assert sw.port_stats(1).tx_packets == 20_000


def test_tables_change_what_happens(switch):
    data = frame(TABLE)
    key = {"dst": bytes(range(6))}
    assert switch.step(data, 0) == []
    switch.write(insert(TableEntry("l2", key, "forward", {"port": 2})))
    assert switch.step(data, 0) == [(2, as_sent(data))]
    switch.write(modify(TableEntry("l2", key, "forward", {"port": 3})))
    assert switch.step(data, 0) == [(3, as_sent(data))]
    switch.write(delete(TableEntry("l2", key)) + modify(TableEntry("l2", {}, "forward", {"port": 1}, is_default=True)))
    assert switch.step(data, 0) == [(1, as_sent(data))]


def test_a_write_is_all_or_nothing(switch):
    good = MulticastGroupEntry(1, (Replica(1),))
    bad = TableEntry("l2", {"dst": 1 << 48}, "forward", {"port": 1})
    with pytest.raises(EntityError, match=r"update 2: table Ingress.l2: field dst: .* does not fit 48 bits"):
        switch.write(insert(good, TableEntry("l2", {"dst": 1}, "drop"), bad))
    assert switch.read([TableEntry("l2"), MulticastGroupEntry(0)]) == []
    assert switch.step(frame(MULTICAST, 1), 0) == []
    switch.write(insert(good))
    with pytest.raises(EntityError, match="multicast group 1 is there already") as caught:
        switch.write(insert(good))
    assert caught.value.code == "ALREADY_EXISTS"
    switch.write(delete(good))
    assert switch.step(frame(MULTICAST, 1), 0) == []


def test_counters_and_registers_are_read_and_written(switch):
    switch.step(frame(UNICAST, 1, length=100), 3)
    assert switch.counter("operations", UNICAST).tolist() == [[1, 100]]
    assert switch.read([RegisterEntry("seen", 3)]) == [RegisterEntry("Ingress.seen", 3, 1)]
    switch.write(modify(RegisterEntry("seen", 3, 2**32 - 1), CounterEntry("operations", None, 5, 6)))
    assert switch.register("seen").tolist() == [0, 0, 0, 2**32 - 1] + [0] * 12
    assert set(map(tuple, switch.counters()["Ingress.operations"].tolist())) == {(5, 6)}
    with pytest.raises(EntityError, match="register Ingress.seen: index 16: expected 0..15"):
        switch.write(modify(RegisterEntry("seen", 16, 0)))
    with pytest.raises(EntityError, match="does not fit 32 bits"):
        switch.write(modify(RegisterEntry("seen", 0, 2**32)))


def test_a_snapshot_is_the_whole_state(switch):
    switch.step(frame(UNICAST, 1), 0)
    before = switch.snapshot()
    switch.step(frame(UNICAST, 1), 0)
    assert switch.snapshot() != before
    switch.restore(before)
    assert switch.snapshot() == before and switch.register("seen")[0] == 1


def test_loading_what_is_no_program(tmp_path):
    text = tmp_path / "text.so"
    text.write_text("no object")
    with pytest.raises(OSError, match="cannot load switch program"):
        Program(text)
    empty, old = tmp_path / "empty.so", tmp_path / "old.so"
    subprocess.run([*CC, "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", empty], check=True)
    with pytest.raises(OSError, match="exports no ina_program"):
        Program(empty)
    source = ROOT / "tests/c/probe_program.c"
    subprocess.run([*CC, "-DPROBE_ABI=99", "-shared", "-fPIC", source, "-o", old], check=True)
    with pytest.raises(OSError, match="program ABI 99"):
        Program(old)


def run_sanitized(
    folder: Path, name: str, sanitizers: str, *runs: tuple[str, ...], probe: str = "probe_program", defines: tuple[str, ...] = ()
) -> None:
    program = folder / name
    sources = files(ROOT / "ina/p4/runtime/c", "*.c")
    sources += [ROOT / "host/net" / f"{n}.c" for n in ("bell", "idle", "link", "pool", "port", "port_mem", "segment")]
    sources += [ROOT / f"tests/c/{probe}.c", ROOT / f"tests/c/{name}.c"]
    options = ["-O1", "-g", *([f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"] if sanitizers else [])]
    if sanitizers == "thread":
        options.append("-Wno-tsan")  # fences are not modelled; the ring's indices are atomic beside them
    subprocess.run([*CC, *options, *defines, *sources, "-o", program, "-lpthread", "-ldl"], check=True)
    for arguments in runs:
        process = child.run([program, *arguments], child.TRAINING)
        if process.returncode == 77:
            pytest.skip(f"{name} {' '.join(arguments)}: no process may be traced here (ptrace)")
        assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.later
def test_the_core_under_sanitizers(tmp_path):
    run_sanitized(tmp_path, "test_switch_core", "address,undefined", ("20000", "1"), ("20000", "2"), ("20000", "3"))


@pytest.mark.later
def test_a_shared_switch_under_sanitizers(tmp_path):
    run_sanitized(tmp_path, "shared_switch", "address,undefined", ())


@pytest.mark.later
def test_seats_of_a_shared_switch_under_the_thread_sanitizer(tmp_path):
    """All seats have one mapping, so that it sees which thread touches what."""
    need("thread-sanitizer")
    run_sanitized(tmp_path, "shared_switch", "thread", ("turns", "2000"),
                  defines=("-DONE_MAPPING", "-Wl,--wrap=mmap", "-Wl,--wrap=munmap"))


@pytest.mark.parametrize("every", [pytest.param(257, marks=pytest.mark.gate), pytest.param(31, marks=pytest.mark.later),
                                   pytest.param(1, marks=pytest.mark.judge)])
def test_who_ends_or_stops_at_any_instruction_leaves_a_switch_that_is_right_or_dead(tmp_path, every):
    run_sanitized(tmp_path, "shared_switch", "", ("steps", str(every)))


@pytest.mark.judge
def test_no_frame_of_a_million_is_left_to_nobody(tmp_path):
    """Each seat sleeps until a bell rings, and fails if it does not within 20 s."""
    run_sanitized(tmp_path, "shared_switch", "", ("turns", "1000000"))


@pytest.mark.parametrize("sanitizers", ["thread", pytest.param("address,undefined", marks=pytest.mark.later)])
def test_the_data_plane_under_sanitizers(tmp_path, sanitizers):
    run_sanitized(tmp_path, "test_dataplane", sanitizers, ("2",))


# ---- with ports and a thread


class Pair:
    """A port of the switch (`handle`) and the host's end of it."""

    def __init__(self, frames: int = 64, max_frame: int = 2048):
        self.port, self.host = memory_pair(frames, max_frame)

    @property
    def handle(self) -> Any:
        return self.port.handle

    def send(self, frames: list[bytes]) -> int:
        return self.host.send(frames)

    def receive(self, count: int) -> list[bytes]:
        frames: list[bytes] = []

        def arrived() -> bool:
            if len(frames) < count:
                self.host.wait(0.01)
            frames.extend(self.host.receive(64))
            return len(frames) >= count

        until(arrived, f"{count} frames")
        return frames

    def close(self) -> None:
        self.host.close()
        self.port.close()


@pytest.fixture
def running(probe):
    pairs = [Pair() for _ in range(4)]
    with Switch(probe) as sw:
        for number, pair in enumerate(pairs):
            sw.add_port(number, pair)
        sw.write(insert(MulticastGroupEntry(1, tuple(Replica(i, i) for i in range(4)))))
        sw.start()
        yield sw, pairs
    for pair in pairs:
        pair.close()


def test_the_data_plane_forwards_and_replicates(running):
    sw, pairs = running
    for round_ in range(50):
        data = [frame(MULTICAST, 1, PUSH, length=64 + i) for i in range(20)]
        assert pairs[round_ % 4].send(data) == 20
        for number, pair in enumerate(pairs):
            assert pair.receive(20) == [bytes([0, number, 5, number]) + as_sent(d) for d in data]
    assert sw.dataplane_stats()["packets"] == 1000
    assert sum(sw.port_stats(i).tx_packets for i in range(4)) == 4000


def test_a_full_port_is_counted_not_waited_for(running):
    sw, pairs = running
    for round_ in range(3):  # port 2 is not read: its ring takes 64
        assert pairs[0].send([frame(UNICAST, 2)] * 40) == 40
        until(lambda count=40 * (round_ + 1): sw.port_stats(0).rx_packets >= count, "the round's frames")
    pairs[0].send([frame(UNICAST, 1)])
    assert len(pairs[1].receive(1)) == 1
    assert sw.port_stats(2).tx_packets == 64
    assert drops(sw, 2) == {"back_pressure": 56}


def test_commands_while_packets_flow(running):
    sw, pairs = running
    received: list[bytes] = []
    stop = threading.Event()

    def traffic() -> None:
        while not stop.is_set():
            if pairs[0].send([frame(TABLE)] * 8) == 8:
                pairs[1].host.wait(0.001)
                received.extend(pairs[1].host.receive(64))

    thread = threading.Thread(target=traffic)
    thread.start()
    try:
        key = {"dst": bytes(range(6))}
        for _ in range(100):
            sw.write(insert(TableEntry("l2", key, "forward", {"port": 1})))
            assert sw.read([TableEntry("l2")]) != []
            sw.register("seen")
            sw.write(delete(TableEntry("l2", key)))
    finally:
        stop.set()
        thread.join()
    assert set(received) <= {as_sent(frame(TABLE))}
    assert sw.dataplane_stats()["commands"] >= 300


def test_ports_come_and_go_while_it_runs(running):
    sw, pairs = running
    assert sw.remove_port(3) is pairs[3]
    pairs[0].send([frame(MULTICAST, 1)])
    assert len(pairs[1].receive(1)) == 1
    assert drops(sw, 0) == {"no_port": 1}
    sw.add_port(3, pairs[3])
    pairs[0].send([frame(MULTICAST, 1)])
    assert len(pairs[3].receive(1)) == 1


def test_a_link_in_real_time(probe):
    pairs = [Pair(), Pair()]
    with Switch(probe) as sw:
        sw.add_port(0, pairs[0])
        sw.add_port(1, pairs[1], link=Link(delay=0.02))
        sw.start()
        start = time.monotonic()
        pairs[0].send([frame(UNICAST, 1)] * 3)
        assert len(pairs[1].receive(3)) == 3
        assert time.monotonic() - start >= 0.02
    for pair in pairs:
        pair.close()


def test_start_and_stop(running):
    sw, pairs = running
    with pytest.raises(RuntimeError, match="stop"):
        sw.step(frame(DROP), 0)
    with pytest.raises(RuntimeError, match="runs"):
        sw.start()
    for _ in range(20):
        sw.stop()
        pairs[0].send([frame(UNICAST, 1)])
        sw.start()
        assert len(pairs[1].receive(1)) == 1
    sw.stop()
    sw.stop()
    assert not any(t.name == "ina-dataplane" for t in threading.enumerate())


def test_an_idle_data_plane_sleeps(running):
    """A second at a time, where all ports have descriptors."""
    sw, _ = running

    def sleeps() -> int:
        return sw.dataplane_stats()["sleeps"]

    until(sleeps, "the first sleep")
    before, start = sleeps(), time.monotonic()
    until(lambda: sleeps() >= before + 2, "two more")
    assert time.monotonic() - start >= 1


def test_a_switch_in_a_cycle_with_its_program(probe):
    """The garbage collector may finalise the program before the switch: memory that the switch uses must still exist."""
    code = f"""
import gc
from ina.p4.runtime import Program, Switch
class Owner: pass
for _ in range(20):
    owner = Owner()
    owner.me, owner.program = owner, Program({probe.path!r})
    owner.switch = Switch(owner.program)
    del owner
    gc.collect()
"""
    process = subprocess.run([sys.executable, "-X", "faulthandler", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


def test_a_batch_reaches_the_data_plane_at_its_end(switch):
    entry = TableEntry("l2", {"dst": 5}, "forward", {"port": 2})
    probe = frame(TABLE)
    with switch.batch():
        before = switch.step(probe, 0)
        switch.write(insert(*(replace(entry, match={"dst": int.from_bytes(probe[:6], "big") + i}) for i in range(2))))
        with pytest.raises(EntityError):
            switch.write(insert(TableEntry("l2", {"dst": 1 << 48}, "forward", {"port": 2})))
        assert switch.step(probe, 0) == before == []
        assert len(switch.read([TableEntry("l2")])) == 2
    assert [port for port, _ in switch.step(probe, 0)] == [2]
