"""The UDP port beside a list of datagrams: every byte, in order, however the kernel has joined them (UDP_SEGMENT, UDP_GRO)."""

import os
import random
import socket
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import LONG, TookTooLong

from ina.base.native import ffi, lib
from ina.net import ports

HOST = ports.Address("00:00:00:00:00:01", "10.0.0.1", 4000)
SWITCH = ports.Address("02:00:00:00:ff:fe", "10.0.255.254", 0xBEE0)
LOOPBACK = "127.0.0.1"
HEADERS = 42
MAX_FRAME = 1042
UDP_SEGMENT, UDP_GRO = 103, 104  # linux/udp.h
MOST = 60000  # bytes of a message


def bound():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((LOOPBACK, 0))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    return sock


def peer_and_port(frames=256, max_frame=MAX_FRAME):
    """A socket, and a port that hears it."""
    own, peer = bound(), bound()
    own.connect(peer.getsockname())
    peer.connect(own.getsockname())
    with own:
        return peer, ports.adopt_udp(own.fileno(), HOST, SWITCH, max_frame, frames)


def burst(lengths):
    """Datagrams of these lengths, each with bytes of its own."""
    return [random.Random(f"{i} of {lengths}").randbytes(length) for i, length in enumerate(lengths)]


def send(sock, datagrams, joined):
    """Sends them, if they may be joined in one message: all but the last, which is no longer, of one length."""
    if joined:
        size = struct.pack("@H", len(datagrams[0]))
        sock.sendmsg([b"".join(datagrams)], [(socket.IPPROTO_UDP, UDP_SEGMENT, size)])
    else:
        for datagram in datagrams:
            sock.send(datagram)


def receive(port, count, at_once=64):
    """The payloads of `count` frames, at most `at_once` of them in one call; sleeps in between as an owner of the port does."""
    payloads = []
    while len(payloads) < count:
        frames = port.receive(min(at_once, count - len(payloads)))
        if not frames and not port.wait(LONG):
            raise TookTooLong(f"waited {LONG:g} s for frame {len(payloads)} of {count}")
        payloads += frames
    for frame in payloads:
        assert int.from_bytes(frame[16:18], "big") == len(frame) - 14 and int.from_bytes(frame[38:40], "big") == len(frame) - 34
    return [frame[HEADERS:] for frame in payloads]


@st.composite
def bursts(draw, most=64, longest=1500):
    """Lengths of datagrams, and whether they travel as one message."""
    if draw(st.booleans()):
        return draw(st.lists(st.integers(0, longest), max_size=8)), False
    size = draw(st.integers(1, longest) | st.just(MAX_FRAME - HEADERS))
    count = draw(st.integers(1, min(most, MOST // size)))
    return [size] * (count - 1) + [draw(st.integers(1, size))], count > 1


@pytest.mark.fast
@settings(max_examples=50, deadline=None)
@given(plan=st.lists(st.tuples(bursts(), st.integers(1, 64), st.integers(0, 80)), max_size=12),
       frames=st.sampled_from((1, 4, 64)))
def test_every_datagram_arrives_as_a_frame_of_its_own(plan, frames):
    """Bursts of equal and unequal lengths, joined or not, some longer than a frame may be; calls take fewer than have come."""
    peer, port = peer_and_port(frames)
    waiting, sent, malformed = [], [], 0
    with peer, port:
        for (lengths, joined), at_once, take in plan:
            datagrams = burst(lengths)
            send(peer, datagrams, joined)
            fitting = [datagram for datagram in datagrams if len(datagram) <= MAX_FRAME - HEADERS]
            malformed += len(datagrams) - len(fitting)
            waiting += fitting
            sent += fitting
            take = min(take, len(waiting))
            assert receive(port, take, at_once) == waiting[:take]
            del waiting[:take]
        assert receive(port, len(waiting)) == waiting
        peer.send(b"end")
        assert receive(port, 1) == [b"end"]  # too long ones before it have been looked at
        assert not port.arm() and not port.receive()
        stats = port.stats
        assert (stats["rx_packets"], stats["rx_malformed"], stats["rx_foreign"]) == (len(sent) + 1, malformed, 0)
        assert stats["rx_bytes"] == sum(map(len, sent)) + len(b"end") + HEADERS * (len(sent) + 1)
        assert stats["errors"] == 0


@pytest.mark.fast
@settings(max_examples=30, deadline=None)
@given(plan=st.lists(st.tuples(st.booleans(), bursts(most=20, longest=300)), max_size=8))
def test_strangers_datagrams_from_before_are_counted_one_by_one(plan):
    """The kernel keeps strangers away from a connected socket; those that came before lie between the peer's."""
    own, peer, stranger = bound(), bound(), bound()
    own.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    expected, foreign = [], 0
    with own, peer, stranger:
        for sock in (peer, stranger):
            sock.connect(own.getsockname())
        for strange, (lengths, joined) in plan:
            datagrams = burst(lengths)
            send(stranger if strange else peer, datagrams, joined)
            foreign += len(datagrams) if strange else 0
            expected += [] if strange else datagrams
        send(peer, [b"end"], joined=False)
        own.connect(peer.getsockname())
        with ports.adopt_udp(own.fileno(), HOST, SWITCH, MAX_FRAME) as port:
            assert receive(port, len(expected) + 1) == [*expected, b"end"]
            assert (port.stats["rx_foreign"], port.stats["rx_malformed"]) == (foreign, 0)


@pytest.mark.fast
def test_frames_stay_while_they_are_lent_and_the_rest_of_a_message_waits():
    peer, port = peer_and_port(frames=8)
    datagrams = burst([700] * 19 + [100])
    pkts = ffi.new("struct ina_packet[64]")

    def payloads(n, first=0):
        return [bytes(ffi.buffer(pkt.data, pkt.len))[HEADERS:] for pkt in pkts[first : first + n]]

    with peer, port:
        send(peer, datagrams, joined=True)
        assert port.wait(LONG)
        assert lib.ina_port_rx(port.handle, pkts, 64, 0) == 8  # as many as there are slots
        assert port.arm() and port.wait(0.0)  # the others are in no socket any more
        assert lib.ina_port_rx(port.handle, pkts + 8, 56, 0) == 0
        lib.ina_port_rx_done(port.handle, 3)
        assert lib.ina_port_rx(port.handle, pkts + 8, 2, 0) == 2
        assert lib.ina_port_rx(port.handle, pkts + 10, 2, 0) == 1
        assert payloads(8, 3) == datagrams[3:11]
        lib.ina_port_rx_done(port.handle, 8)
        assert lib.ina_port_rx(port.handle, pkts, 64, 0) == 8 and payloads(8) == datagrams[11:19]
        lib.ina_port_rx_done(port.handle, 8)
        assert port.arm()
        assert lib.ina_port_rx(port.handle, pkts, 64, 0) == 1 and payloads(1) == datagrams[19:]
        lib.ina_port_rx_done(port.handle, 1)
        assert not port.arm() and not port.wait(0.0)


@pytest.mark.fast
def test_the_kernel_is_asked_to_join_what_comes_together():
    peer, port = peer_and_port()
    with peer, port, socket.socket(fileno=os.dup(port.fileno())) as own:
        assert own.getsockopt(socket.IPPROTO_UDP, UDP_GRO) == 1


@pytest.mark.fast
@pytest.mark.parametrize("size", [1000, 8000])
def test_nothing_is_lost_below_the_size_of_the_buffer(size):
    """Frames that are sent while nobody receives."""
    fds = ports.udp_pair()
    a, b = (ports.adopt_udp(fd, HOST, SWITCH, size + HEADERS, 64) for fd in fds)
    for fd in fds:
        os.close(fd)
    with a, b:
        with socket.socket(fileno=os.dup(b.fileno())) as own:
            room = own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        datagrams = burst([size] * (min(room // 2, 2 << 20) // size))
        headers = bytearray(HEADERS)
        headers[12:15], headers[23], headers[38:40] = b"\x08\x00\x45", 17, (size + 8).to_bytes(2, "big")
        assert a.send(bytes(headers) + datagram for datagram in datagrams) == len(datagrams)
        assert receive(b, len(datagrams), 32) == datagrams
        assert a.stats["tx_full"] == a.stats["errors"] == b.stats["rx_malformed"] == 0
