"""Tags of frames: format, window of numbers, and what a port takes of frames that are forged, changed, repeated and late."""

from __future__ import annotations

import random
import threading

import pytest
from siphash_model import siphash
from test_ports import HOST, SWITCH, receive_all, udp_frame, udp_pair
from waiting import LONG

from ina.base.native import ffi, lib
from ina.net import ports

pytestmark = pytest.mark.fast

UP, DOWN = bytes(range(16)), bytes(range(100, 116))
SIZE = 16  # bytes of number and tag
READS = 200_000
WINDOW = 64 * (lib.INA_TAG_WORDS - 1)


def tagged(payload: bytes, number: int, key: bytes = UP) -> bytes:
    covered = payload + number.to_bytes(8, "big")
    return covered + siphash(key, covered).to_bytes(8, "big")


def in_memory(payloads: list[bytes], room: int = 0):
    """Each payload in memory of its own, with so many bytes behind it; and the batch, as the core takes it."""
    memory = [ffi.new("uint8_t[]", len(payload) + room) for payload in payloads]
    for own, payload in zip(memory, payloads, strict=True):
        ffi.memmove(own, payload, len(payload))
    batch = [(own, len(payload)) for own, payload in zip(memory, payloads, strict=True)]
    return memory, ffi.new("struct ina_tag_payload[]", batch)


class Receiver:
    """The core: a key and a window."""

    def __init__(self, key: bytes = UP):
        self.key, self.window = ffi.new("uint64_t[2]"), ffi.new("struct ina_tag_window *")
        lib.ina_tag_key(self.key, key)

    def check(self, payload: bytes) -> int:
        return self.check_all([payload])[0]

    def check_all(self, payloads: list[bytes]) -> list[int]:
        memory, batch = in_memory(payloads)
        verdicts = ffi.new("uint8_t[]", len(payloads))
        lib.ina_tag_check(self.key, self.window, batch, len(payloads), verdicts)
        assert [bytes(ffi.buffer(own)) for own in memory] == payloads
        return list(verdicts)


def pair(max_frame=1024, frames=64):
    """A switch's and a host's port with tags, over sockets; and the host's socket, of which the switch hears all else."""
    switch, host = udp_pair(max_frame, frames)
    return switch.with_tags(rx=UP, tx=DOWN), host.with_tags(rx=DOWN, tx=UP)


def one_sided(frames=64):
    """A port with tags, and one without that is connected to it: someone who sends with the right addresses."""
    switch, other = udp_pair(1024, frames)
    return switch.with_tags(rx=UP, tx=DOWN), other


def forged(port):
    stats = port.stats
    return stats["rx_forged"], stats["rx_replayed"]


# ---- the core


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 255, 1000, 8192])
def test_a_tag_is_the_models(length):
    payload = random.Random(length).randbytes(length)
    for number in (1, 2**32, 2**64 - 1):
        [memory], batch = in_memory([payload], SIZE)
        receiver = Receiver()
        lib.ina_tag_write(receiver.key, number, batch, 1)
        assert bytes(ffi.buffer(memory)) == tagged(payload, number)
        assert receiver.check(tagged(payload, number)) == lib.INA_TAG_RIGHT
        assert receiver.check(tagged(payload, number)) == lib.INA_TAG_REPLAYED


@pytest.mark.parametrize("lengths", [[200], [0, 8, 200, 200], [1, 2, 3]])
def test_tags_of_a_batch_are_those_of_each_by_itself(lengths):
    """More payloads than are taken at once, of one length and of several; some are forged, and some are sent again."""
    rng = random.Random(len(lengths))
    payloads = [rng.randbytes(rng.choice(lengths)) for _ in range(150)]
    memory, batch = in_memory(payloads, SIZE)
    lib.ina_tag_write(Receiver().key, 7, batch, len(payloads))
    frames = [bytes(ffi.buffer(own)) for own in memory]
    assert frames == [tagged(payload, number) for number, payload in enumerate(payloads, 7)]
    wanted = [lib.INA_TAG_RIGHT] * len(frames)
    for at in rng.sample(range(len(frames)), 20):
        frames[at] = bytes([frames[at][0] ^ 1]) + frames[at][1:]
        wanted[at] = lib.INA_TAG_FORGED
    again = [at for at in range(len(frames)) if wanted[at] == lib.INA_TAG_RIGHT][::9]
    receiver = Receiver()
    assert receiver.check_all([*frames, *(frames[at] for at in again), b"short"]) == [
        *wanted, *(lib.INA_TAG_REPLAYED for _ in again), lib.INA_TAG_FORGED]


def test_every_flipped_bit_is_noticed_and_moves_nothing():
    right = tagged(random.Random(1).randbytes(40), 5)
    receiver = Receiver()
    for bit in range(8 * len(right)):
        changed = bytearray(right)
        changed[bit // 8] ^= 1 << bit % 8
        assert receiver.check(bytes(changed)) == lib.INA_TAG_FORGED
    assert receiver.check(right[:-1]) == receiver.check(right + b"\0") == receiver.check(right[1:]) == lib.INA_TAG_FORGED
    assert all(receiver.check(bytes(length)) == lib.INA_TAG_FORGED for length in range(40))
    assert receiver.window.last == 0 and receiver.check(right) == lib.INA_TAG_RIGHT


def test_the_other_directions_key_and_other_attachments_make_none():
    assert Receiver(DOWN).check(tagged(b"x", 1)) == Receiver(bytes(16)).check(tagged(b"x", 1)) == lib.INA_TAG_FORGED


def test_number_0_is_never_taken():
    assert Receiver().check(tagged(b"x", 0)) == lib.INA_TAG_REPLAYED


class Numbers:
    """Verdicts of a receiver that forgets nothing: each number once, of those in the window all."""

    def __init__(self):
        self.taken, self.last = set(), 0

    def check(self, number):
        fresh = number > 0 and number not in self.taken
        if number > self.last - WINDOW and fresh:
            self.take(number)
            return {lib.INA_TAG_RIGHT}
        return {lib.INA_TAG_RIGHT, lib.INA_TAG_REPLAYED} if fresh and number > self.last - WINDOW - 64 else {lib.INA_TAG_REPLAYED}

    def take(self, number):
        self.taken.add(number)
        self.last = max(self.last, number)


@pytest.mark.parametrize("spread", [2, 64, 300, WINDOW, 3 * WINDOW])
def test_numbers_are_taken_once_in_any_order_within_the_window(spread):
    """Number by number against a set. In a window that ends within a word, some older numbers of that word may be taken, once."""
    rng, receiver, numbers = random.Random(spread), Receiver(), Numbers()
    at = 1
    for _ in range(4000):
        at += rng.choice([0, 0, 1, 1, 2, 64, spread])
        number = max(0, at - rng.randrange(spread + 1)) if rng.random() < 0.7 else at
        verdict = receiver.check(tagged(b"", number))
        assert verdict in numbers.check(number), number
        if verdict == lib.INA_TAG_RIGHT:
            numbers.take(number)


def test_a_shuffled_window_is_taken_whole_and_once():
    rng, receiver = random.Random(3), Receiver()
    frames = [tagged(b"", number) for number in range(1, WINDOW + 1)]
    rng.shuffle(frames)
    assert all(receiver.check(frame) == lib.INA_TAG_RIGHT for frame in frames)
    assert all(receiver.check(frame) == lib.INA_TAG_REPLAYED for frame in frames)
    assert WINDOW >= 4096


def test_after_a_leap_nothing_old_is_taken():
    receiver = Receiver()
    for number in (1, 2**40, 2**64 - 1):
        assert receiver.check(tagged(b"", number)) == lib.INA_TAG_RIGHT
    for number in (1, 2, 2**40, 2**40 + 1, 2**64 - 1, 2**64 - 1 - 64 * lib.INA_TAG_WORDS):
        assert receiver.check(tagged(b"", number)) == lib.INA_TAG_REPLAYED
    assert receiver.check(tagged(b"", 2**64 - WINDOW)) == lib.INA_TAG_RIGHT


def guesses(count: int, seed: int = 1) -> int:
    """Checks ``count`` forged payloads; returns how many were taken."""
    rng, receiver, right = random.Random(seed), Receiver(), tagged(bytes(16), 1)
    taken = 0
    for _ in range(count):
        taken += receiver.check(right[:-8] + rng.randbytes(8)) != lib.INA_TAG_FORGED
    return taken


def test_guessed_tags_are_not_taken():
    assert guesses(20_000) == 0


# ---- the port


def test_frames_pass_with_their_headers_as_without_tags():
    switch, host = pair()
    payloads = [random.Random(n).randbytes(n) for n in (0, 1, 15, 16, 200, 200, 200, 100, 966)]
    with switch, host:
        assert switch.max_frame == host.max_frame == 1024 - SIZE == 42 + 966
        for _ in range(20):
            assert host.send([udp_frame(p, SWITCH, HOST) for p in payloads]) == len(payloads)
            assert receive_all(switch, len(payloads)) == [udp_frame(p) for p in payloads]
            assert switch.send([udp_frame(p) for p in payloads]) == len(payloads)
            assert receive_all(host, len(payloads)) == [udp_frame(p, SWITCH, HOST) for p in payloads]
        total = 20 * sum(42 + len(p) for p in payloads)
        for port in (switch, host):
            stats = port.stats
            assert stats["rx_packets"] == stats["tx_packets"] == 180 and stats["rx_bytes"] == stats["tx_bytes"] == total
            assert forged(port) == (0, 0) and stats["rx_malformed"] == stats["tx_malformed"] == stats["errors"] == 0


def test_what_is_on_the_wire_is_the_models():
    switch, other = one_sided()
    with switch, other:
        switch.send([udp_frame(b"one"), udp_frame(b"two") + bytes(5)])  # padded, as Ethernet does
        assert [frame[42:] for frame in receive_all(other, 2)] == [tagged(b"one", 1, DOWN), tagged(b"two", 2, DOWN)]
        other.send([udp_frame(tagged(b"up", 7), SWITCH, HOST)])
        assert receive_all(switch, 1) == [udp_frame(b"up")]


def test_forged_changed_repeated_and_reflected_frames_are_dropped_and_counted():
    rng = random.Random(4)
    switch, other = one_sided()
    taken, wanted, wrong, again = [], [], 0, 0
    with switch, other:
        for number in range(1, 400):
            payload = rng.randbytes(rng.randrange(1, 100))
            right = tagged(payload, number)
            flipped = bytearray(right)
            flipped[rng.randrange(len(right))] ^= 1 << rng.randrange(8)
            batch = [right, bytes(flipped), payload, tagged(payload, number + 500, DOWN), right]
            rng.shuffle(batch)
            wrong, again = wrong + 3, again + 1
            other.send([udp_frame(each, SWITCH, HOST) for each in batch])
            taken += receive_all(switch, 1)
            wanted.append(udp_frame(payload))
            while sum(forged(switch)) < wrong + again:
                assert switch.wait(LONG) and switch.receive() == []
        assert taken == wanted and forged(switch) == (wrong, again)
        assert switch.stats["rx_packets"] == len(wanted) and switch.stats["rx_malformed"] == 0


def test_reordered_frames_are_all_taken_once_also_with_duplicates():
    rng, count = random.Random(5), 600
    switch, other = one_sided()
    frames = [udp_frame(tagged(number.to_bytes(4, "big"), number), SWITCH, HOST) for number in range(1, count + 1)]
    late = sorted(frames + frames, key=lambda frame: int.from_bytes(frame[42:46], "big") + rng.randrange(400))
    taken = []
    with switch, other:
        for at in range(0, len(late), 50):
            other.send(late[at : at + 50])
            while switch.stats["rx_packets"] + sum(forged(switch)) < min(at + 50, len(late)):
                assert switch.wait(LONG)
                taken += switch.receive()
        assert sorted(taken) == sorted({udp_frame(number.to_bytes(4, "big")) for number in range(1, count + 1)})
        assert forged(switch) == (0, count)


def test_frames_are_lent_while_others_between_them_are_dropped():
    """The user keeps a batch; buffers of dropped frames come back with those around them."""
    switch, other = one_sided(frames=8)
    with switch, other:
        pkts = ffi.new("struct ina_packet[]", 8)
        for turn in range(50):
            numbers = [3 * turn + i for i in (1, 2, 3)]
            good = [tagged(bytes([number % 256]) * 5, number) for number in numbers]
            other.send([udp_frame(p, SWITCH, HOST) for p in (b"x", good[0], b"y", b"z", good[1], good[2], b"w")])
            got = []
            while len(got) < 3 or forged(switch)[0] < 4 * (turn + 1):
                assert switch.wait(LONG)
                count = lib.ina_port_rx(switch.handle, pkts, 8, 0)
                got += [bytes(ffi.buffer(pkt.data, pkt.len))[42:] for pkt in pkts[0:count]]
                for _ in range(count):
                    lib.ina_port_rx_done(switch.handle, 1)
            assert got == [bytes([number % 256]) * 5 for number in numbers]


def test_frames_that_cannot_have_a_tag_are_not_sent():
    switch, other = one_sided()
    with switch, other:
        arp, short, longest = b"\xff" * 12 + b"\x08\x06" + bytes(46), udp_frame(b"")[:41], udp_frame(bytes(966))
        switch.send([arp, short, longest, udp_frame(b"good")])
        assert [frame[42:] for frame in receive_all(other, 2)] == [tagged(bytes(966), 1, DOWN), tagged(b"good", 2, DOWN)]
        assert switch.stats["tx_malformed"] == 2 and switch.stats["tx_packets"] == 2
        with pytest.raises(ValueError, match="frame 0 has 1009 bytes, expected 1 to 1008"):
            switch.send([udp_frame(bytes(967))])


def test_room_for_a_tag_is_not_lent():
    switch, other = one_sided()
    with switch, other:
        pkts = ffi.new("struct ina_packet[]", 2)
        assert lib.ina_port_tx_get(switch.handle, pkts, 2) == 2
        assert pkts[0].tailroom == 1024 - SIZE
        frame = udp_frame(bytes(10))
        for pkt, move in zip(pkts, (1024 - SIZE - len(frame), 1024 - SIZE - len(frame) + 1), strict=True):
            pkt.data += move
            ffi.memmove(pkt.data, frame, len(frame))
            pkt.len = len(frame)
        lib.ina_port_tx_put(switch.handle, pkts, 2, 0)
        assert [each[42:] for each in receive_all(other, 1)] == [tagged(bytes(10), 1, DOWN)]
        assert switch.stats["tx_malformed"] == 1, "it would have lain beside the frame"


def test_tags_lie_below_faults_and_captures(tmp_path):
    switch, host = pair()
    with switch, host:
        switch.with_capture(tmp_path / "switch.pcap")
        host.with_faults(tx=ports.Faults(duplicate=1.0, seed=1))
        host.send([udp_frame(b"twice", SWITCH, HOST)])
        assert receive_all(switch, 2) == 2 * [udp_frame(b"twice")], "a duplicate of a fault is a frame of its own"
        assert forged(switch) == (0, 0)
    assert b"twice" in (tmp_path / "switch.pcap").read_bytes()


def test_counters_go_on_from_those_without_tags():
    switch, other = udp_pair(1024, 64)
    with switch, other:
        for port, (source, destination) in ((switch, (HOST, SWITCH)), (other, (SWITCH, HOST))):
            port.send([udp_frame(bytes(n), source, destination) for n in (10, 20)])
        receive_all(switch, 2), receive_all(other, 2)
        plain = switch.stats
        switch.with_tags(rx=UP, tx=DOWN)
        assert switch.stats == plain
        switch.send([udp_frame(bytes(30))])
        other.send([udp_frame(tagged(bytes(40), 1), SWITCH, HOST)])
        receive_all(switch, 1)
        sent, received = plain["tx_bytes"] + 42 + 30, plain["rx_bytes"] + 42 + 40
        assert switch.stats == plain | {"tx_packets": 3, "tx_bytes": sent, "rx_packets": 3, "rx_bytes": received}


def test_counters_never_go_back_for_a_reader_in_another_thread():
    """The switch's thread drives the port; another one reads what it has dropped."""
    switch, other = one_sided()
    with switch, other:
        other.send(5 * [udp_frame(b"x", SWITCH, HOST)])
        while switch.tags["forged"] < 5:
            assert switch.wait(LONG) and switch.receive() == []
        ended = threading.Event()

        def drive():
            pkts = ffi.new("struct ina_packet[]", 1)
            while not ended.is_set():
                for _ in range(50):
                    lib.ina_port_tx_get(switch.handle, pkts, 1)

        driver = threading.Thread(target=drive)
        driver.start()
        try:
            stats = switch.handle.stats
            seen = {stats.rx_forged for _ in range(READS)}
        finally:
            ended.set()
            driver.join()
        assert seen == {5}


def test_a_port_that_is_closed_or_handed_on_has_no_counters_of_tags(tmp_path):
    switch, other = one_sided()
    with switch, other:
        switch.with_capture(tmp_path / "switch.pcap")
        other.send([udp_frame(each, SWITCH, HOST) for each in (b"x", tagged(b"y", 1), tagged(b"y", 1))])
        receive_all(switch, 1)
        while sum(forged(switch)) < 2:
            assert switch.wait(LONG) and switch.receive() == []
        assert switch.tags == {"forged": 1, "replayed": 1} and other.tags == {}
    handed, other = one_sided()
    with other:
        lib.ina_port_close(handed.release())
    for port in (switch, handed, other):
        with pytest.raises(ValueError, match="is closed"):
            _ = port.tags


def test_keys_and_frames_that_do_not_do():
    switch, host = udp_pair(79, 8)
    with switch, host:
        with pytest.raises(ValueError, match="a key of 15 bytes, expected 16"):
            switch.with_tags(UP, bytes(15))
        with pytest.raises(OSError, match="tags need frames of 80 bytes or more"):
            switch.with_tags(UP, DOWN)
        assert switch.send([udp_frame(b"x")]) == 1, "it is as it was"
