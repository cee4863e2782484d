"""Ports over network interfaces, and links in front of ports: real veth pairs in a network namespace of the test's own."""

import subprocess

import pytest
from capabilities import need
from test_ports import receive_all
from waiting import LONG

from ina.base.native import ffi, lib
from ina.net import ports
from ina.net.namespaces import own_namespace

PS = ports.PS


def frame(number: int, size: int = 100) -> bytes:
    """An Ethernet frame of an experimental EtherType (IEEE 802), with its number in the payload."""
    head = bytes.fromhex("000000000002" "000000000001" "88b5") + number.to_bytes(4, "big")
    return head + bytes(size - len(head))


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@pytest.fixture
def veth():
    """Interfaces a0 and a1 of one veth pair, MTU 9000, without IPv6, in a namespace that ends with the test."""
    need("root", "netns")
    with own_namespace():
        ip("link", "add", "a0", "type", "veth", "peer", "name", "a1")
        for name in ("a0", "a1"):
            ip("link", "set", name, "addrgenmode", "none", "mtu", "9000", "up")
        yield "a0", "a1"


@pytest.mark.root
def test_frames_arrive_as_they_were_sent_in_order(veth):
    with ports.open_packet("a0", 9014, 64) as here, ports.open_packet("a1", 9014, 64) as there:
        frames = [frame(i, 60 + 89 * i % 8950) for i in range(300)]
        for start in range(0, len(frames), 50):
            assert here.send(frames[start : start + 50]) == 50
            assert receive_all(there, 50) == frames[start : start + 50]
        assert there.send(frames[:5]) == 5
        assert receive_all(here, 5) == frames[:5]
        assert not here.receive(), "what a port sends is not received by it"
        assert here.stats["tx_packets"] == 300 and there.stats["rx_packets"] == 300
        assert not here.wait(0.02), "an empty port times out"
        here.send(frames[:1])
        assert there.wait(LONG), "the descriptor is readable when frames wait"


@pytest.mark.root
@pytest.mark.parametrize(("tags", "longest"), [("81002005", 9018), ("81000000", 9018), ("88a80007" "8100e006", 9014)],
                         ids=["priority", "zero", "two"])
def test_vlan_tags_arrive(veth, tags, longest):
    """The kernel takes the outer tag out of the frame, and tells it beside (packet(7), PACKET_AUXDATA)."""
    tags = bytes.fromhex(tags)
    tagged = [f[:12] + tags + f[12:] for f in (frame(1, 60), frame(2, 61), frame(3, longest - len(tags)))]
    with ports.open_packet("a0", 9018, 4) as here, ports.open_packet("a1", 9018, 4) as there:
        for _ in range(3):  # also where buffers are used again
            frames = [tagged[0], frame(4), tagged[1], tagged[2]]
            assert here.send(frames) == 4
            assert receive_all(there, 4) == frames
        assert there.stats["rx_bytes"] == 3 * sum(map(len, frames))


@pytest.mark.root
def test_a_frame_that_its_vlan_tag_makes_too_long_is_counted(veth):
    with ports.open_packet("a0", 9018) as here, ports.open_packet("a1", 500) as there:
        tagged = [f[:12] + bytes.fromhex("81000005") + f[12:] for f in (frame(1, 497), frame(2, 496))]
        here.send(tagged)
        assert receive_all(there, 1) == tagged[1:]
        assert there.stats["rx_malformed"] == 1


@pytest.mark.root
def test_frames_that_do_not_fit_are_counted(veth):
    ip("link", "set", "a0", "mtu", "1000")
    with ports.open_packet("a0", 2000) as here, ports.open_packet("a1", 500) as there:
        assert here.send([frame(1, 1500), frame(2, 501), frame(3, 500)]) == 3
        assert receive_all(there, 1) == [frame(3, 500)]
        assert here.stats["tx_malformed"] == 1, "longer than the MTU"
        assert there.stats["rx_malformed"] == 1, "longer than the port's longest"


@pytest.mark.root
def test_an_interface_that_goes_down_is_survived(veth):
    with ports.open_packet("a0") as here, ports.open_packet("a1") as there:
        ip("link", "set", "a0", "down")
        here.send([frame(1)])
        here.receive()
        assert here.stats["errors"] >= 1 and here.stats["tx_packets"] == 0
        ip("link", "set", "a0", "up")
        there.receive()
        here.send([frame(2)])
        assert receive_all(there, 1) == [frame(2)]
        ip("link", "del", "a0")
        here.send([frame(3)])
        there.receive()
        assert here.stats["errors"] >= 2 and not here.receive()


@pytest.mark.root
def test_what_cannot_be_opened_says_why(veth):
    with pytest.raises(OSError, match="port nowhere: cannot open.*No such device"):
        ports.open_packet("nowhere")
    with pytest.raises(ValueError, match="max_frame is 65536"):
        ports.open_packet("a0", 65536)
    with pytest.raises(ValueError, match="frames is 0"):
        ports.open_packet("a0", frames=0)


@pytest.mark.root
def test_capture_and_faults_wrap_it_as_any_port(veth, tmp_path):
    with ports.open_packet("a0") as here, ports.open_packet("a1") as there:
        here.with_faults(tx=ports.Faults(loss=0.2, seed=3)).with_capture(tmp_path / "a0.pcap")
        here.send([frame(i) for i in range(200)])
        lost = here.faults["tx"].lost
        assert 20 <= lost <= 60
        assert len(receive_all(there, 200 - lost)) == 200 - lost
        assert here.capture.captured == 200
    assert (tmp_path / "a0.pcap").stat().st_size == 24 + 200 * 116


# ---- links in front of a port: no interface needed -------------------------------------------------------------------


def linked_pair(frames=64, **link):
    sender, receiver = ports.memory_pair(frames, 2048)
    return sender, receiver.with_link(**link)


@pytest.mark.fast
def test_a_link_serialises_and_delays():
    """1000 B and 24 B of overhead last 81.92 us at 100 Mb/s; the delay comes on top."""
    sender, receiver = linked_pair(rate=100e6, delay=1e-3)
    with sender, receiver:
        sender.send([frame(i, 1000) for i in range(3)], now=0)
        assert receiver.receive(now=0) == []
        one, delay = 81_920_000, PS // 1000
        assert receiver.next_due() == one, "the transmitter is free for the second one"
        for i in range(3):
            assert receiver.receive(now=(i + 1) * one + delay - 1) == []
            assert receiver.receive(now=(i + 1) * one + delay) == [frame(i, 1000)]
        assert receiver.next_due() is None
        assert receiver.link == ports.LinkCounts(3, 3 * 1024, 0, 245.76e-6, 3 * 1024)


@pytest.mark.fast
def test_late_looks_keep_the_rate():
    sender, receiver = linked_pair(rate=1e9)
    with sender, receiver:
        sender.send([frame(i, 976) for i in range(50)], now=0)
        assert receiver.receive(now=0) == []
        assert len(receiver.receive(now=8_000_000 * 30)) == 30
        assert len(receiver.receive(now=8_000_000 * 50)) == 20


@pytest.mark.fast
def test_a_full_queue_drops_the_newest_and_keeps_order():
    """The queue has room for four frames."""
    sender, receiver = linked_pair(frames=16, rate=8e6, queue=4 * 1000)
    with sender, receiver:
        now, sent, accepted, received = 0, 0, 0, []
        for burst in (8, 1, 0, 7, 3, 16, 2, 0, 9):
            accepted += sender.send([frame(sent + i, 976) for i in range(burst)], now=now)  # the ring may be full, too
            sent += burst
            received += receiver.receive(now=now)
            now += 3 * PS // 1000  # three frames' time
        while receiver.next_due() is not None:
            now += PS // 1000
            received += receiver.receive(now=now)
        numbers = [int.from_bytes(f[14:18], "big") for f in received]
        assert numbers == sorted(set(numbers)) and len(numbers) + receiver.link.tail_drops == accepted
        assert receiver.link.tail_drops > 0 and receiver.link.max_queue == 4000
        sender.send([frame(999, 976)] * 4, now=now)
        receiver.receive(now=now)
        assert len(receiver.receive(now=now + PS)) == 4, "every frame of the ring came back"


@pytest.mark.fast
def test_a_link_without_a_limit_takes_whatever_comes_at_once():
    """Every frame waits from the moment it came, none in the port behind it: many more than the port can lend."""
    sender, receiver = linked_pair(frames=16, rate=8e9)
    with sender, receiver:
        for burst in range(500):
            assert sender.send([frame(10 * burst + i, 976) for i in range(10)], now=0) == 10
            assert receiver.receive(now=0) == []
        received = []
        while receiver.next_due() is not None:
            received += receiver.receive(now=6 * PS // 1000)
        assert [int.from_bytes(f[14:18], "big") for f in received] == list(range(5000))
        assert receiver.link.tail_drops == 0 and receiver.link.max_queue == 4999 * 1000, "the first was sent at once"


@pytest.mark.fast
@pytest.mark.parametrize("wrapped", ["link", "faults"])
def test_a_port_with_a_link_or_faults_lends_as_much_headroom_as_without(wrapped):
    """TNA programs need all of it: a switch drops frames with less as malformed."""
    sender, receiver = ports.memory_pair(16, 2048)
    receiver = receiver.with_link(rate=0) if wrapped == "link" else receiver.with_faults(rx=ports.Faults(duplicate=0.5, seed=1))
    with sender, receiver:
        sender.send([frame(1, 2048), frame(2, 60)], now=0)
        pkts = ffi.new("struct ina_packet[16]")
        n = lib.ina_port_rx(receiver.handle, pkts, 16, 0)
        assert n >= 2 and all(p.headroom >= lib.INA_PORT_HEADROOM for p in pkts[0:n])
        lib.ina_port_rx_done(receiver.handle, n)


@pytest.mark.fast
def test_frames_may_be_kept_while_others_arrive():
    """rx_done returns the oldest; the link must not give them back before."""
    sender, receiver = linked_pair(frames=16, rate=0, queue=2 * 1000)
    with sender, receiver:
        pkts = ffi.new("struct ina_packet[16]")
        sender.send([frame(i, 976) for i in range(2)], now=0)
        assert lib.ina_port_rx(receiver.handle, pkts, 1, 0) == 1
        sender.send([frame(i, 976) for i in range(2, 4)], now=1)
        assert lib.ina_port_rx(receiver.handle, ffi.addressof(pkts, 1), 15, 1) == 3
        assert [ffi.buffer(p.data, 18)[17] for p in pkts[0:4]] == [b"\0", b"\1", b"\2", b"\3"]
        lib.ina_port_rx_done(receiver.handle, 4)
        sender.send([frame(i, 976) for i in range(2)], now=2)
        assert len(receiver.receive(now=2)) == 2
