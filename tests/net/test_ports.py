"""Every kind of port: exactly the frames sent, in order; bad input counted or refused; nothing left behind."""

import errno
import mmap
import os
import select
import socket
import subprocess
import sys
from pathlib import Path

import child
import pytest
from capabilities import need
from folders import files
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import LONG, TookTooLong

from ina.base.native import ffi, lib
from ina.net import ports
from ina.worlds.testbed.forwarder import Cable

ROOT = Path(__file__).resolve().parent.parent.parent
HOST = ports.Address("00:00:00:00:00:01", "10.0.0.1", 4000)
SWITCH = ports.Address("02:00:00:00:ff:fe", "10.0.255.254", 0xBEE0)
LOOPBACK = "127.0.0.1"


def udp_frame(payload: bytes, source=HOST, destination=SWITCH) -> bytes:
    """Ethernet | IPv4 | UDP | payload, as Scapy builds it (UDP checksum 0, identification 0)."""
    need("scapy")
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    ether = Ether(src=source.mac, dst=destination.mac)
    udp = UDP(sport=source.port, dport=destination.port, chksum=0)
    return bytes(ether / IP(src=source.ip, dst=destination.ip, id=0, ttl=64) / udp / payload)


def shared_pair(frames=64, max_frame=1024):
    """Two ports on one segment."""
    memfd, bells = ports.create_segment(frames, max_frame), ports.create_bells()
    pair = ports.open_shared(memfd, 0, *bells.of(0)), ports.open_shared(memfd, 1, *bells.of(1))
    os.close(memfd)
    bells.close()
    return pair


def udp_pair(max_frame=2048, frames=256):
    """A switch's port and a host's that hear each other."""
    fds = ports.udp_pair()
    pair = ports.adopt_udp(fds[0], HOST, SWITCH, max_frame, frames), ports.adopt_udp(fds[1], SWITCH, HOST, max_frame, frames)
    for fd in fds:
        os.close(fd)
    return pair


def receive_all(port, count):
    """Waits for `count` frames."""
    received = []
    while len(received) < count:
        if not (frames := port.receive()) and not port.wait(LONG):
            raise TookTooLong(f"waited {LONG:g} s for frame {len(received)} of {count}")
        received += frames
    return received


# ---- rings -----------------------------------------------------------------------------------------------------


@pytest.mark.fast
@pytest.mark.parametrize("pair", [lambda: ports.memory_pair(32, 512), lambda: shared_pair(32, 512)])
@settings(max_examples=60, deadline=None)
@given(plan=st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(1, 512), max_size=40), st.integers(0, 50))))
def test_rings_deliver_exactly_what_was_sent_in_order(pair, plan):
    both = pair()
    waiting, number = ([], []), 0
    with both[0], both[1]:
        for side, sizes, limit in plan:
            frames = [(b"%d " % (number := number + 1) * 512)[:size] for size in sizes]
            sent = both[side].send(frames)
            assert sent == min(len(frames), 32 - len(waiting[1 - side]))
            waiting[1 - side].extend(frames[:sent])
            received = both[1 - side].receive(limit)
            assert received == waiting[1 - side][:limit]
            del waiting[1 - side][:limit]
        for side in (0, 1):
            assert both[side].receive() == waiting[side]
            stats, peer = both[side].stats, both[1 - side].stats
            assert (stats["rx_packets"], stats["rx_bytes"]) == (peer["tx_packets"], peer["tx_bytes"])
            assert stats["rx_malformed"] == stats["tx_malformed"] == stats["errors"] == 0


@pytest.mark.fast
def test_frames_are_lent_in_place_until_given_back():
    a, b = ports.memory_pair(4, 256)
    with a, b:
        a.send([b"1" * 60, b"2" * 60, b"3" * 60, b"4" * 60])
        pkts = ffi.new("struct ina_packet[8]")
        pkts[0].ingress_port, pkts[0].tag = 7, 9
        assert lib.ina_port_rx(b.handle, pkts, 3, 0) == 3
        assert (pkts[0].ingress_port, pkts[0].tag) == (7, 9)  # the caller's fields stay
        assert pkts[0].headroom == lib.INA_PORT_HEADROOM and pkts[0].tailroom == 256 - 60
        assert a.send([b"5" * 60]) == 0
        lib.ina_port_rx_done(b.handle, 2)
        assert a.send([b"5" * 60] * 3) == 2
        assert bytes(ffi.buffer(pkts[2].data, 60)) == b"3" * 60  # still lent
        lib.ina_port_rx_done(b.handle, 1)
        assert b.receive() == [b"4" * 60, b"5" * 60, b"5" * 60]


@pytest.mark.fast
def test_a_host_cannot_change_what_its_switch_has_been_lent():
    memfd = ports.create_segment(128, 256)
    frames = [b"%03d" % i * 20 for i in range(100)]
    with ports.open_shared(memfd, 0) as switch, ports.open_shared(memfd, 1) as host, mmap.mmap(memfd, 0) as memory:
        os.close(memfd)
        assert host.send(frames) == 100
        pkts, count = ffi.new("struct ina_packet[100]"), 0
        while n := lib.ina_port_rx(switch.handle, pkts + count, 100 - count, 0):
            count += n
        assert count == 64, "as many as a switch takes at once"
        for frame in frames:
            at = memory.find(frame)
            memory[at : at + 60] = bytes(60)
        assert [bytes(ffi.buffer(pkt.data, pkt.len)) for pkt in pkts[0:64]] == frames[:64]
        lib.ina_port_rx_done(switch.handle, 64)
        assert lib.ina_port_rx(switch.handle, pkts, 100, 0) == 36
        lib.ina_port_rx_done(switch.handle, 36)


@pytest.mark.fast
def test_the_bell_rings_only_for_who_sleeps():
    a, b = shared_pair()
    with a, b:
        a.send([b"x" * 60])
        assert a.stats["wakeups"] == 0
        assert b.arm()  # a frame waits
        b.receive()
        assert not b.arm()
        a.send([b"x" * 60])
        a.send([b"x" * 60])
        assert a.stats["wakeups"] == 1
        assert select.select([b], [], [], LONG)[0]
        b.drain()
        assert not select.select([b], [], [], 0)[0]
        assert len(b.receive()) == 2
        assert not b.wait(0.01)


ECHO = """
import sys
from ina.net import ports
with ports.open_shared(*map(int, sys.argv[1:5])) as port:
    left = int(sys.argv[5])
    while left:
        if not port.wait(600): raise SystemExit("no frame for 600 s")
        frames = port.receive()
        left -= len(frames)
        back = [frame[::-1] for frame in frames]
        while back: del back[:port.send(back)]
"""


@pytest.mark.build
def test_two_processes_over_shared_memory():
    memfd, bells = ports.create_segment(32, 1500), ports.create_bells()
    command = [sys.executable, "-c", ECHO, *map(str, (memfd, 1, *bells.of(1), 500))]
    with subprocess.Popen(command, cwd=ROOT, pass_fds=(memfd, *bells.of(1))) as peer:
        with ports.open_shared(memfd, 0, *bells.of(0)) as port:
            frames = [b"%05d" % i * (1 + i % 300) for i in range(500)]
            sent, received = 0, []
            while sent < 500:
                sent += port.send(frames[sent:])
                received += port.receive()
                assert peer.poll() in (None, 0)
            received += receive_all(port, 500 - len(received))
        assert received == [frame[::-1] for frame in frames]
        assert child.status(peer) == 0
    os.close(memfd)
    bells.close()


@pytest.mark.fast
def test_closing_gives_every_descriptor_back(tmp_path):
    def descriptors():
        return sorted(os.listdir("/proc/self/fd"))

    def mappings():
        return Path("/proc/self/maps").read_text().count("ina-port")

    before = descriptors(), mappings()
    for open_pair in (ports.memory_pair, shared_pair, udp_pair):
        a, b = open_pair()
        a.with_faults(tx=ports.Faults(loss=0.5)).with_capture(tmp_path / "x.pcap")
        for port in (a, b):
            port.close()
            port.close()
            with pytest.raises(ValueError, match="is closed"):
                port.send([b"x" * 60])
    assert (descriptors(), mappings()) == before


@pytest.mark.fast
def test_what_cannot_be_opened_says_why(tmp_path):
    with pytest.raises(ValueError, match="frames is 48, expected a power of two"):
        ports.memory_pair(48)
    with pytest.raises(ValueError, match="max_frame is 20000, expected 64 to 9728"):
        ports.create_segment(64, 20000)
    other = os.memfd_create("other", os.MFD_CLOEXEC)
    os.ftruncate(other, 1 << 20)
    with pytest.raises(OSError, match="no sealed segment of this version"):
        ports.open_shared(other, 0)
    os.close(other)
    with pytest.raises(OSError) as closed:
        ports.open_shared(other, 0)
    assert closed.value.errno == errno.EBADF
    memfd = ports.create_segment(16, 256)
    with pytest.raises(ValueError, match="side is 2, expected 0"):
        ports.open_shared(memfd, 2)
    os.close(memfd)
    a, b = ports.memory_pair()
    with a, b:
        with pytest.raises(ValueError, match="frame 1 has 5000 bytes, expected 1 to 2048"):
            a.send([b"x" * 60, b"x" * 5000])
        with pytest.raises(FileNotFoundError, match="cannot capture"):
            a.with_capture(tmp_path / "no" / "such.pcap")
        assert a.send([b"x"]) == 1


# ---- UDP -------------------------------------------------------------------------------------------------------


@pytest.mark.fast
@settings(max_examples=25, deadline=None)
@given(st.lists(st.binary(max_size=1400), min_size=1, max_size=60))
def test_udp_strips_and_adds_the_headers(payloads):
    switch, host = udp_pair()
    with switch, host:
        assert host.send([udp_frame(p, SWITCH, HOST) for p in payloads]) == len(payloads)
        # headers are what the receiving port was told, whatever the sender wrote
        assert receive_all(switch, len(payloads)) == [udp_frame(p) for p in payloads]
        assert switch.send([udp_frame(p) for p in payloads]) == len(payloads)
        assert receive_all(host, len(payloads)) == [udp_frame(p, SWITCH, HOST) for p in payloads]
        for port in (switch, host):
            stats = port.stats
            assert stats["rx_packets"] == stats["tx_packets"] == len(payloads)
            assert stats["tx_full"] == stats["errors"] == stats["rx_malformed"] == stats["rx_foreign"] == 0


@pytest.mark.fast
def test_udp_frames_that_travel_as_one_message_arrive_one_by_one():
    """Frames beyond one message's capacity, shorter ones ending a run, longer ones after it, empty ones, more than 64 KiB."""
    lengths = [100] * 150 + [50, 0, 0, 300, 300, 299, 300, *[8000] * 20, 7000, 8000, 8000, 1]
    frames = [udp_frame(bytes([i % 256]) * length) for i, length in enumerate(lengths)]
    switch, host = udp_pair(9216, frames=256)
    with switch, host:
        assert host.send(frames) == len(frames)
        assert receive_all(switch, len(frames)) == frames
        assert host.stats["tx_packets"] == switch.stats["rx_packets"] == len(frames)
        assert host.stats["tx_bytes"] == switch.stats["rx_bytes"] == sum(map(len, frames))
        assert host.stats["errors"] == host.stats["tx_full"] == host.stats["tx_malformed"] == 0


@pytest.mark.fast
def test_udp_source_ports_follow_the_jobs_numbers():
    """The byte of the payload that names the job; a payload without it keeps the port."""
    switch, host = udp_pair()
    with switch, host:
        frames = [udp_frame(payload) for payload in (b"a\0c", b"a\1c", b"a\xffc", b"a")]
        switch.number_jobs(1)
        host.send(frames)
        received = receive_all(switch, 4)
        ports_of = [int.from_bytes(frame[34:36], "big") - int.from_bytes(frames[0][34:36], "big") for frame in received]
        assert ports_of == [0, 1, 255, 0]
        switch.number_jobs(0)
        host.send(frames)
        assert receive_all(switch, 4) == frames


@pytest.mark.fast
def test_udp_lends_the_same_memory_again_once_nothing_is_lent():
    """It lies in the processor's caches. While a frame is lent, others lie beside it, around the ring and back."""
    switch, host = udp_pair(frames=8)
    pkts = ffi.new("struct ina_packet[]", 8)

    def lent(payloads: list[bytes]) -> list[int]:
        host.send([udp_frame(payload) for payload in payloads])
        count = 0
        while count < len(payloads):
            if not (got := lib.ina_port_rx(switch.handle, pkts + count, 8, 0)) and not switch.wait(LONG):
                raise TookTooLong(f"waited {LONG:g} s for frame {count} of {len(payloads)}")
            count += got
        assert [bytes(ffi.buffer(pkt.data, pkt.len)) for pkt in pkts[0:count]] == [udp_frame(payload) for payload in payloads]
        return [int(ffi.cast("uintptr_t", pkt.data)) for pkt in pkts[0:count]]

    with switch, host:
        first = lent([b"1", b"2", b"3"])
        lib.ina_port_rx_done(switch.handle, 3)
        assert lent([b"4", b"5"]) == first[:2]
        lib.ina_port_rx_done(switch.handle, 1)  # one is still lent
        others = lent([b"6", b"7", b"8", b"9", b"10"])
        assert not set(others) & set(first[:2])
        lib.ina_port_rx_done(switch.handle, 4)
        around = lent([b"11", b"12", b"13"])
        assert len({*around, *others[3:]}) == 5 and first[0] in around
        lib.ina_port_rx_done(switch.handle, 5)
        assert lent([b"14"]) == first[:1]
        lib.ina_port_rx_done(switch.handle, 1)


@pytest.mark.fast
def test_udp_jumbo_frames():
    switch, host = udp_pair(9216)
    with switch, host:
        host.send([udp_frame(b"a" * 8202)])
        assert receive_all(switch, 1) == [udp_frame(b"a" * 8202)]


@pytest.mark.fast
def test_udp_refuses_strangers_and_frames_that_are_not_udp():
    switch, host = udp_pair()
    stranger = ports.open_udp((LOOPBACK, 0), (LOOPBACK, ports.bound_port(switch)), SWITCH, HOST)
    good = udp_frame(b"hello")
    arp = bytearray(good)
    arp[12:14] = b"\x08\x06"
    options = bytearray(good)
    options[14] = 0x46
    longer = bytearray(good)
    longer[38:40] = (1000).to_bytes(2, "big")
    with switch, host, stranger:
        stranger.send([good] * 3)  # it comes first, and is not the peer for all that
        host.send([bytes(arp), bytes(options), bytes(longer), good[:41], good])
        assert host.stats["tx_malformed"] == 4 and host.stats["tx_packets"] == 1
        assert receive_all(switch, 1) == [good]
        switch.send([udp_frame(b"answer", SWITCH, HOST)])
        assert receive_all(host, 1) == [udp_frame(b"answer", SWITCH, HOST)] and stranger.receive() == []
        host.send([good + bytes(18)])  # padded, as Ethernet does
        assert receive_all(switch, 1) == [good]
        assert switch.stats["rx_packets"] == 2


@pytest.mark.fast
def test_udp_refuses_what_came_before_it_knew_its_peer():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for sock in (own, stranger):
            sock.bind((LOOPBACK, 0))
        stranger.sendto(b"early", own.getsockname())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind((LOOPBACK, 0))
            own.connect(peer.getsockname())
            peer.sendto(b"hello", own.getsockname())
            with ports.adopt_udp(own.fileno(), HOST, SWITCH) as port:
                assert receive_all(port, 1) == [udp_frame(b"hello")] and port.stats["rx_foreign"] == 1


@pytest.mark.fast
def test_udp_survives_what_sockets_report():
    switch, host = udp_pair(max_frame=256)
    with switch, host:
        with socket.socket(fileno=os.dup(host.fileno())) as raw:
            raw.send(b"a" * 1000)
        assert switch.wait(LONG) and switch.receive() == [] and switch.stats["rx_malformed"] == 1
        address = ("127.0.0.1", ports.bound_port(host))
        with pytest.raises(OSError, match="cannot bind 127.0.0.1:.*in use"):
            ports.open_udp(address, (LOOPBACK, 9), HOST, SWITCH)
    orphan = ports.open_udp((LOOPBACK, 0), (LOOPBACK, address[1]), SWITCH, HOST)
    with orphan:  # nobody listens there any more
        for _ in range(20):
            orphan.send([udp_frame(b"x")])
            orphan.receive()
        assert orphan.stats["tx_packets"] + orphan.stats["errors"] >= 20


@pytest.mark.fast
def test_udp_full_socket_loses_and_counts():
    switch, host = udp_pair(9216, frames=64)
    with switch, host:
        frame = udp_frame(b"a" * 8192)
        for _ in range(40):
            host.send([frame] * 64)
        sent, lost = host.stats["tx_packets"], host.stats["tx_full"]
        assert sent + lost == 40 * 64
        received = 0
        while switch.wait(0.05):
            received += len(switch.receive())
        assert 0 < received <= sent and switch.stats["rx_malformed"] == 0


@pytest.mark.fast
@pytest.mark.parametrize(("change", "message"), [
    ({"bind": ("localhost", 0)}, "'localhost' is no IPv4 address"),
    ({"bind": (LOOPBACK, 70000)}, "port number is 70000, expected 0 to 65535"),
    ({"source": ports.Address("02:00", "10.0.0.1", 1)}, "'02:00' is no MAC address"),
    ({"max_frame": 10}, "max_frame is 10, expected 64 to"),
    ({"frames": 0}, "frames is 0, expected 1 to 4096"),
])
def test_udp_wrong_settings_name_the_value(change, message):
    settings = {"bind": (LOOPBACK, 0), "peer": (LOOPBACK, 9), "source": HOST, "destination": SWITCH} | change
    with pytest.raises(ValueError, match=message):
        ports.open_udp(**settings)


# ---- capture ---------------------------------------------------------------------------------------------------


@pytest.mark.fast
def test_capture_has_both_directions_with_nanoseconds(tmp_path):
    need("scapy")
    from scapy.utils import RawPcapReader

    a, b = ports.memory_pair()
    with a, b:
        a.with_capture(tmp_path / "a.pcap")
        a.send([b"s" * 60, b"t" * 61], now=1_234_567_890_123_456)
        b.send([b"r" * 1500])
        a.receive(now=1_234_567_890_999_999)
        assert a.capture == ports.CaptureCounts(3, 0, 0)
        assert a.stats["tx_packets"] == 2 and a.stats["rx_packets"] == 1
        assert not a.arm()  # about to sleep: the file is up to date
        reader = RawPcapReader(str(tmp_path / "a.pcap"))
        assert reader.nano and reader.linktype == 1 and reader.snaplen == 2048
        assert [(meta.sec, meta.usec, meta.wirelen, data) for data, meta in reader] == [
            (1234, 567_890_123, 60, b"s" * 60), (1234, 567_890_123, 61, b"t" * 61),
            (1234, 567_890_999, 1500, b"r" * 1500)]


FULL_DISK = """
import errno, resource, sys
from ina.net import ports
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
a, b = ports.memory_pair(256, 2048)
a.with_capture(sys.argv[1])
received = 0
for _ in range(2000):
    assert a.send([b"x" * 1000]) == 1
    received += len(b.receive())
counts = a.capture
assert received == 2000, received
assert counts.error == errno.EFBIG and counts.captured + counts.missed == 2000 and counts.captured > 0, counts
a.close()
print(counts.captured)
"""


@pytest.mark.build
def test_a_full_disk_stops_the_capture_and_not_the_traffic(tmp_path):
    """A file size limit stands for the full disk: the same write fails in the same way."""
    path = tmp_path / "full.pcap"
    run = child.run([sys.executable, "-c", FULL_DISK, path], cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert path.stat().st_size == 24 + int(run.stdout) * 1016  # whole records only


@pytest.mark.fast
def test_a_device_without_space_is_refused_at_once():
    a, b = ports.memory_pair()
    with a, b, pytest.raises(OSError, match="cannot capture: No space left") as full:
        a.with_capture("/dev/full")
    assert full.value.errno == errno.ENOSPC


# ---- sanitizers ------------------------------------------------------------------------------------------------

PORT_SOURCES = files(ROOT / "host/net", "port*.c") + [
    ROOT / "host/net" / name
    for name in ("segment.c", "bell.c", "fault.c", "pcap.c", "internet.c", "link.c", "pool.c", "siphash.c", "tag.c")]


def run_c(tmp_path, test, *flags, arguments=()):
    """Builds tests/c/<test>.c with the ports, warnings being errors, and runs it."""
    program = tmp_path / test
    command = ["cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wshadow", "-Werror", *flags, f"-I{ROOT}/host/net"]
    sources = [ROOT / "tests" / "c" / f"{test}.c", *PORT_SOURCES]
    subprocess.run([*command, *map(str, sources), "-o", str(program), "-lpthread"], check=True)
    run = child.run([program, *arguments], child.TRAINING)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.build
@pytest.mark.gate
@pytest.mark.parametrize(("test", "arguments"), [("ports", ["{tmp}"]), ("ring_threads", ["50000"])])
def test_clean_under_address_and_undefined_sanitizers(tmp_path, test, arguments):
    need("cc", "sanitizers")
    arguments = [argument.format(tmp=tmp_path) for argument in arguments]
    run_c(tmp_path, test, "-fsanitize=address,undefined", "-fno-sanitize-recover=all", arguments=arguments)


@pytest.mark.build
def test_ring_is_clean_under_the_thread_sanitizer(tmp_path):
    need("cc", "thread-sanitizer")
    # -Wno-tsan: it does not model fences. They order who sleeps and who rings; data is ordered by acquire and release.
    run_c(tmp_path, "ring_threads", "-fsanitize=thread", "-Wno-tsan", arguments=["20000"])


@pytest.mark.fast
def test_an_end_of_a_cable_that_is_taken_says_so():
    cable = Cable(512)
    with cable.open(1):
        with pytest.raises(ValueError, match="side 1 was opened before"):
            cable.open(1)
        cable.close()
        cable.close()
        with pytest.raises(ValueError, match="side 0 was opened before, or the cable is closed"):
            cable.open(0)
