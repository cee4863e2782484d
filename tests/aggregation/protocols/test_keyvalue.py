"""examples/keyvalue: sums by key are exact under faults, hostile packets and restarts; the switch does what a reference does."""

from __future__ import annotations

import copy
import importlib.util
import random
import struct
import sys
import zlib
from collections import Counter
from pathlib import Path

import pytest
from bmv2_switch import Bmv2
from bmv2_target import compile_sample
from capabilities import need
from hypothesis import given, settings
from hypothesis import strategies as st

from ina.base import paths
from ina.p4 import RegisterEntry, Switch, TableEntry
from ina.p4 import compile as compile_p4
from ina.p4.compiler import frontend
from ina.p4.compiler.reference.interpreter import Interpreter
from ina.p4.runtime import embedded
from ina.p4.runtime.entities import insert
from ina.virtual import Faults

EXAMPLE = Path(__file__).parents[3] / "examples" / "keyvalue"
SLOTS, WINDOW = 16, 4  # of the small program
HARSH = {"loss": 0.1, "duplicate": 0.2, "reorder": 0.3, "corrupt": 0.02, "duplicate_delay": 3e-4, "reorder_delay": 3e-4}


def load():
    spec = importlib.util.spec_from_file_location("keyvalue", EXAMPLE / "keyvalue.py")
    module = sys.modules["keyvalue"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


kv = load()


@pytest.fixture(scope="module")
def small():
    """The program with one row of slots and cells for four packets."""
    need("cc")
    return compile_p4(kv.PROGRAM, defines={"SLOTS": SLOTS, "WINDOW": WINDOW})


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setattr(kv, "WINDOW", WINDOW)


def network(program, seed=0, slots=SLOTS, **faults):
    return kv.Network(program, slots, Faults(seed=seed, **faults))


def words(seed, count, vocabulary):
    return [word.encode() for word in kv.zipf(count, vocabulary, seed)]


def streams(texts, senders):
    return [[(word, 1) for word in texts[i::senders]] for i in range(senders)]


def frame(port, kind, number=0, pairs=(), *, stream=1, sender=0, incarnation=1, **fields):
    return kv.Packet(kind, stream, sender, incarnation, number, pairs, **fields).frame(kv.Host(port))


def padded(*keys, value=1):
    return [(key.ljust(16, b"\0"), value) for key in keys]


def colliding(count):
    """Keys of one slot."""
    keys = (b"key%d" % i for i in range(10_000))
    return [key for key in keys if zlib.crc32(key.ljust(16, b"\0")) % SLOTS == 3][:count]


# ---- whole streams


@pytest.mark.build
@pytest.mark.parametrize("seed", range(40))
def test_counts_are_exact_under_faults(small, narrow, seed):
    rng = random.Random(seed)
    texts, senders = words(seed, rng.randrange(800), rng.choice([1, 10, 100])), rng.randrange(1, 5)
    texts += [bytes(rng.choices(b"abc", k=rng.randrange(1, 257))) for _ in range(rng.randrange(40))]  # some are long
    net = network(small, seed, **HARSH)
    receiver = net.add_stream(1, streams(texts, senders))
    net.run()
    assert receiver.counts == Counter(texts)
    assert not net.switch.register("owners").any()  # all slots are free again


@pytest.mark.build
@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(st.binary(min_size=1, max_size=40).map(lambda key: key.rstrip(b"\0") + b"."), max_size=120),
    loss=st.floats(0, 0.5), duplicate=st.floats(0, 0.5), reorder=st.floats(0, 1), seed=st.integers(0, 2**32),
)
def test_counts_are_exact_whatever_the_keys(small, texts, loss, duplicate, reorder, seed):
    net = network(small, seed, loss=loss, duplicate=duplicate, reorder=reorder, duplicate_delay=1e-3, reorder_delay=1e-3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv, "WINDOW", WINDOW)
        receiver = net.add_stream(7, streams(texts, 3))
        net.run()
    assert receiver.counts == Counter(texts)


@pytest.mark.build
def test_streams_share_the_slots_and_free_them(small, narrow):
    net = network(small, 3, **HARSH)
    texts = {number: words(number, 500, 12) for number in (1, 2, 3)}
    receivers = {number: net.add_stream(number, streams(texts[number], 2)) for number in texts}
    net.run()
    for number, receiver in receivers.items():
        assert receiver.counts == Counter(texts[number])
    late = list(net.events)  # frames of the first streams that are still under way
    net.switch.delete(*net.switch.read(TableEntry("stream")), *net.switch.read(TableEntry("sender")))
    net.endpoints.clear()  # streams of the same numbers follow, at the same ports, with the same cells of the switch
    net.timers.clear()
    again = [net.add_stream(number, streams(texts[number], 2)) for number in texts]
    net.run()
    assert late and [receiver.counts for receiver in again] == [Counter(texts[number]) for number in texts]


@pytest.mark.build
def test_large_values_are_not_added_beyond_32_bits(small, narrow):
    net = network(small)
    receiver = net.add_stream(1, [[(b"a", 2**32 - 1), (b"b", 2**31)], [(b"a", 2**32 - 1), (b"b", 2**31 - 1), (b"b", 7)]])
    net.run()
    assert receiver.counts == {b"a": 2**33 - 2, b"b": 2**32 + 6}


@pytest.mark.build
def test_keys_of_one_slot_go_on_to_the_receiver(small, narrow):
    first, *others = colliding(5)
    net = network(small)
    receiver = net.add_stream(1, [[(first, 1), (first, 1)] + [(key, 1) for key in others]])
    net.run()
    assert receiver.pairs == len(others) and receiver.counts == {first: 2} | dict.fromkeys(others, 1)


@pytest.mark.build
def test_the_switch_takes_what_finds_a_slot(narrow):
    need("cc")
    program = compile_p4(kv.PROGRAM, defines={"SLOTS": 16384, "WINDOW": WINDOW})
    net = network(program, slots=16384)
    own_slot = {zlib.crc32(word.ljust(16, b"\0")) % 16384: word for word in set(words(1, 3000, 50))}.values()
    texts = [word for word in words(1, 3000, 50) if word in own_slot]
    receiver = net.add_stream(1, streams(texts, 3))
    net.run()
    assert receiver.counts == Counter(texts) and len(own_slot) > 40
    assert receiver.pairs == 0 and sum(len(numbers) for numbers in receiver.numbers) == 3  # the ENDs


@pytest.mark.build
def test_a_run_is_the_same_again(small, narrow):
    def run():
        net = network(small, 5, **HARSH)
        net.add_stream(1, streams(words(5, 300, 30), 2))
        net.run()
        return net.now, net.bytes, net.drops()

    assert run() == run()


# ---- what cannot go right is told


def interrupted(program, texts, share, new_incarnation):
    """A run whose switch loses registers and tables after a share of its events; the controller admits the stream again."""
    def start():
        net = network(program, 1, loss=0.02)
        net.add_stream(1, streams(texts, 2))
        for port in range(len(net.endpoints)):
            net.wake(port)
        return net

    net, events = start(), 0
    while not all(endpoint.done for endpoint in net.endpoints):
        net.step()
        events += 1
    net = start()
    for _ in range(int(events * share)):
        net.step()
    net.switch, net.incarnation = Switch(program), net.incarnation + new_incarnation
    net.admit(net.endpoints[0], net.endpoints[1:])
    return net


@pytest.mark.build
@pytest.mark.parametrize("share", [0.02, 0.2, 0.5, 0.8, 0.95])
def test_a_restart_is_noticed(small, narrow, share):
    net = interrupted(small, words(1, 800, 30), share, True)
    message = r"^stream 1, (sender|receiver) .*waits for .*: nothing came for 1 s; .*'old_stream': \d+"
    with pytest.raises(TimeoutError, match=message):
        net.run()


@pytest.mark.build
def test_a_restart_as_the_same_incarnation_gives_no_wrong_sum(small, narrow, monkeypatch):
    """No controller may do that. Check words find what is lost then, where packet numbers do not."""
    monkeypatch.setattr(kv, "DEADLINE", kv.SECOND // 50)
    texts, messages = words(2, 200, 20), []
    for share in range(0, 100, 2):
        net = interrupted(small, texts, share / 100, False)
        try:
            net.run()
            assert net.endpoints[0].counts == Counter(texts)  # nothing was in the switch, or all was read
        except (TimeoutError, RuntimeError) as error:
            messages.append(str(error))
    assert len(messages) > 25 and all("do not fit the check words" in message or "'outside'" in message for message in messages)
    assert any("do not fit the check words" in message for message in messages)


@pytest.mark.build
def test_waiting_ends_and_says_for_what(small, narrow):
    net = network(small, loss=1)
    net.add_stream(1, streams(words(1, 100, 10), 1))
    del net.endpoints[0]  # only the sender
    net.endpoints[0].host = kv.Host(0)
    with pytest.raises(TimeoutError, match="stream 1, sender 0 waits for the acknowledgement of packet 0: nothing came for 1 s"):
        net.run()
    net = network(small)
    net.add_stream(4, [[], [(b"a", 1)]])
    net.endpoints[2].to_send = lambda now: []  # a sender that has died, and tells nobody
    net.endpoints[2].progress = 10**15
    with pytest.raises(TimeoutError, match="stream 4, receiver waits for the end of sender 1: nothing came for 60 s"):
        net.run()


@pytest.mark.fast
@pytest.mark.parametrize("pair", [(b"", 1), (b"a\0", 1), (b"a" * 257, 1), (b"a", 0), (b"a", 2**32)])
def test_pairs_that_no_packet_holds_are_refused(pair):
    with pytest.raises(ValueError, match="expected 1 to 256 bytes"):
        list(kv.cut([pair]))


@pytest.mark.fast
def test_a_sender_ends_before_its_packet_numbers_do():
    sender = kv.Sender(kv.Host(0), 1, 1, 0, [(b"a", 1)])
    sender.next = kv.LAST_NUMBER + 1
    with pytest.raises(OverflowError, match="sender 0 has no packet numbers left"):
        sender.to_send(0)


# ---- one packet at a time


@pytest.fixture
def net(small):
    """A stream of two senders: the receiver at port 0, senders at ports 1 and 2."""
    net = network(small)
    net.add_stream(1, [[], []])
    return net


@pytest.mark.build
def test_a_repeated_packet_is_forwarded_with_the_same_marks(net):
    first, second = colliding(2)
    packet = frame(1, kv.DATA, 0, padded(second, b"b", first))
    [(port, sent)] = net.switch.process(1, packet)
    assert port == 0 and kv.Packet.read(sent).pairs == padded(first) and kv.Packet.read(sent).taken == 0b011
    before = net.switch.register("values").copy()
    net.switch.process(0, frame(0, kv.CLEAR))  # the slots are free: were it added again, all pairs but one would be taken
    assert net.switch.process(1, packet) == [(0, sent)]
    assert (net.switch.register("values") == before).all() and not net.switch.register("owners").any()


@pytest.mark.build
def test_a_packet_that_is_taken_whole_is_acknowledged_each_time(net):
    packet = frame(1, kv.DATA, 0, padded(b"a", b"b"))
    for _ in range(3):
        [(port, sent)] = net.switch.process(1, packet)
        answer = kv.Packet.read(sent)
        assert (port, answer.kind, answer.number, answer.count) == (1, kv.ACK, 0, 0)
    assert sum(net.switch.register("values")) == 2


@pytest.mark.build
def test_rows_are_read_again_until_they_are_cleared(net):
    net.switch.process(1, frame(1, kv.DATA, 0, padded(b"a", b"b", value=5)))
    rows = [kv.Packet.read(net.switch.process(0, frame(0, kv.READ))[0][1]).pairs for _ in range(2)]
    assert rows[0] == rows[1] and sorted(rows[0]) == padded(b"a", b"b", value=5)
    for _ in range(2):
        [(port, sent)] = net.switch.process(0, frame(0, kv.CLEAR))
        assert port == 0 and kv.Packet.read(sent).kind == kv.CLEARED
    [(_, sent)] = net.switch.process(0, frame(0, kv.READ))
    assert kv.Packet.read(sent).pairs == [] and kv.Packet.read(sent).taken == 0xFFFF


def checked(content):
    """A frame with `content` behind UDP, whose lengths and checksums fit."""
    content = content[:14] + bytes(2) + content[16:]
    whole = frame(1, kv.DATA, 0, padded(b"a"))
    content = content[:14] + kv.checksum(content + bytes(len(content) % 2)).to_bytes(2) + content[16:]
    ip = whole[14:16] + (28 + len(content)).to_bytes(2) + whole[18:24] + bytes(2) + whole[26:34]
    ip = ip[:10] + kv.checksum(ip).to_bytes(2) + ip[12:]
    return whole[:14] + ip + whole[34:38] + (8 + len(content)).to_bytes(2) + bytes(2) + content


GOOD = frame(1, kv.DATA, 0, padded(b"a", b"b"))
FAR = 2**32 - WINDOW


def forged(place, field):
    """GOOD with another field of IPv4 or UDP, and IPv4's checksum for it."""
    packet = GOOD[:24] + bytes(2) + GOOD[26:]
    packet = packet[:place] + field + packet[place + len(field) :]
    return packet[:24] + kv.checksum(packet[14:34]).to_bytes(2) + packet[26:]


@pytest.mark.build
@pytest.mark.parametrize(("port", "packet", "reason"), [
    (1, GOOD[:45], "malformed"), (1, GOOD[:-1], "malformed"), (1, GOOD[:60], "malformed"),
    (1, checked(GOOD[42:-20]), "malformed"), (1, checked(GOOD[42:] + bytes(20)), "malformed"),
    (1, frame(1, kv.DATA, 0, padded(b"a"), count=3), "malformed"), (1, frame(1, kv.DATA), "malformed"),
    (1, frame(1, kv.DATA, 0, padded(b"a") * 17), "malformed"), (1, frame(1, kv.DATA, 0, padded(b"a") * 64), "malformed"),
    (1, frame(1, kv.DATA, 0, padded(b"a"), taken=1), "malformed"), (0, frame(0, kv.ACK, 0, padded(b"a")), "malformed"),
    (1, frame(1, 0), "malformed"), (1, frame(1, kv.ROW), "malformed"), (1, frame(1, 15, 0, padded(b"a")), "malformed"),
    (1, checked(b"\x21" + GOOD[43:]), "malformed"),
    (1, GOOD[:70] + b"\xff" + GOOD[71:], "corrupt"), (1, GOOD[:20] + b"\xff" + GOOD[21:], "corrupt"),
    (1, frame(1, kv.DATA, 0, padded(b"a"), stream=2), "unknown_stream"),
    (1, frame(1, kv.DATA, 0, padded(b"a"), sender=2), "wrong_source"),
    (1, frame(1, kv.DATA, 0, padded(b"a"), sender=1), "wrong_source"),
    (1, forged(26, kv.Host(2).entry["ip"].to_bytes(4)), "wrong_source"),
    (1, forged(34, kv.Host(2).entry["udp_port"].to_bytes(2)), "wrong_source"),
    (2, GOOD, "wrong_source"), (1, frame(1, kv.ACK), "wrong_source"), (1, frame(1, kv.READ), "wrong_source"),
    (1, frame(0, kv.CLEAR), "wrong_source"), (0, frame(0, kv.DATA, 0, padded(b"a")), "wrong_source"),
    (1, frame(1, kv.DATA, 0, padded(b"a"), incarnation=2), "old_stream"), (0, frame(0, kv.CLEAR, incarnation=0), "old_stream"),
    *[(1, frame(1, kv.DATA, number, padded(b"a")), "outside") for number in (WINDOW, 1000, FAR - 1, FAR, 2**32 - 1)],
    (0, frame(0, kv.READ, 1), "wrong_row"), (0, frame(0, kv.CLEAR, 2**32 - 1), "wrong_row"),
])
def test_a_wrong_packet_is_dropped_and_counted(net, port, packet, reason):
    assert net.switch.process(port, packet) == []
    assert net.drops() == {reason: 1}
    assert not any(net.switch.register(name).any() for name in ("owners", "values", "nexts", "incarnations"))


@pytest.mark.build
def test_a_number_from_before_the_window_is_stale(net):
    for number in (0, WINDOW, 2 * WINDOW):
        net.switch.process(1, frame(1, kv.DATA, number, padded(b"a")))
    assert net.switch.process(1, frame(1, kv.DATA, 0, padded(b"a"))) == []
    assert net.drops() == {"stale": 1} and sum(net.switch.register("values")) == 3


@pytest.mark.build
def test_numbers_do_not_begin_again_at_their_end(net):
    """A sender's packet FAR would make its cell expect packet 0."""
    net.switch.modify(RegisterEntry("nexts", WINDOW, FAR), RegisterEntry("incarnations", WINDOW, 1))  # sender 0 is at port 1
    assert net.switch.process(1, frame(1, kv.DATA, FAR, padded(b"a"))) == []
    assert net.drops() == {"outside": 1} and not net.switch.register("owners").any()


@pytest.mark.build
def test_frames_of_other_protocols_are_forwarded(net):
    net.switch.insert(TableEntry("l2", {"hdr.ethernet.dst_addr": 5}, "forward", {"port": 9}))
    other = bytes(5) + b"\5" + bytes(6) + b"\x08\x00" + bytes(60)
    assert net.switch.process(3, other) == [(9, other)]


@pytest.mark.fast
def test_endpoints_count_what_they_do_not_take():
    receiver = kv.Receiver(kv.Host(0), 1, 1, 1, 1)
    data = frame(1, kv.DATA, 0, padded(b"a"))
    assert len(receiver.receive(data, 0)) == len(receiver.receive(data, 0)) == 1  # acknowledged twice, counted once
    assert receiver.counts == {b"a": 1}
    for wrong in (data[:50], data[:-1] + b"\7", frame(1, kv.DATA, 1, padded(b"a"), incarnation=2), frame(1, kv.CLEARED),
                  frame(1, kv.ACK), frame(1, kv.DATA, 1, padded(b"a"), sender=1)):
        assert receiver.receive(wrong, 0) == []
    assert receiver.drops == {"repeated": 2, "malformed": 1, "corrupt": 1, "old_stream": 1, "unexpected": 2}
    sender = kv.Sender(kv.Host(1), 1, 1, 0, [(b"a", 1)])
    sender.to_send(0)
    for wrong in (frame(0, kv.ACK, 5), frame(0, kv.ACK, 0, sender=3), frame(0, kv.ROW)):
        assert sender.receive(wrong, 0) == []
    assert sender.drops == {"repeated": 1, "unexpected": 2} and not sender.done


# ---- the switch beside a reference in plain Python


class Reference:
    """Behaviour of keyvalue.p4 in plain Python, for frames of its UDP port; answers are (port, content behind UDP)."""

    def __init__(self, streams, senders, width=WINDOW):
        self.width = width
        self.streams, self.senders = streams, senders  # stream -> (incarnation, port); (stream, sender) -> port
        self.slots: dict[int, tuple[int, bytes, int]] = {}
        self.seen: dict[tuple[int, int], tuple[int, dict[int, int]]] = {}  # window -> incarnation, marks of packets by number
        self.drops: Counter[str] = Counter()

    @property
    def state(self):
        """The slots and the cells, in no order of their making."""
        marks = [(host, incarnation, sorted(marks.items())) for host, (incarnation, marks) in sorted(self.seen.items())]
        return repr((sorted(self.slots.items()), marks))

    def process(self, port, sent):
        try:
            return self.answer(port, sent)
        except ValueError as error:
            self.drops[str(error)] += 1
            return []

    def answer(self, port, sent):
        ip, udp, content = sent[14:34], sent[34:42], sent[42:]
        if len(content) < 16:
            raise ValueError("malformed")
        head = struct.unpack("!4B2I2H", content[:16])
        kind, (stream, sender, count, incarnation, number, taken, _) = head[0] & 15, head[1:]
        body = content[16 : 16 + 20 * count]
        shape = count > 0 if kind in (1, 2, 3) else count == 0 and kind in (4, 5, 6)
        lengths = [int.from_bytes(udp[4:6]) - 8, int.from_bytes(ip[2:4]) - 28]
        if head[0] >> 4 != 1 or not shape or count > 16 or taken or len(body) != 20 * count or lengths != [16 + 20 * count] * 2:
            raise ValueError("malformed")
        if self.fold(ip) != 0xFFFF or self.fold(content[:16] + body) != 0xFFFF:
            raise ValueError("corrupt")
        if stream not in self.streams:
            raise ValueError("unknown_stream")
        own, receiver = self.streams[stream]
        if kind < 5 and (stream, sender) not in self.senders:
            raise ValueError("wrong_source")
        host = self.senders[stream, sender] if kind < 4 else receiver
        address = kv.Host(host).entry
        if (port, ip[12:16], udp[:2]) != (host, address["ip"].to_bytes(4), address["udp_port"].to_bytes(2)):
            raise ValueError("wrong_source")
        if incarnation != own:
            raise ValueError("old_stream")
        if kind > 4 and number >= SLOTS // 16:
            raise ValueError("wrong_row")
        pairs = [(body[i : i + 16], int.from_bytes(body[i + 16 : i + 20])) for i in range(0, len(body), 20)]
        if kind == kv.ACK:
            return self.sent(self.senders[stream, sender], content[:14], [])
        if kind in (kv.READ, kv.CLEAR):
            return self.row(receiver, kind, content, own)
        marks = self.window(host, own, number)
        if number not in marks:
            marks[number] = sum(1 << i for i, pair in enumerate(pairs) if kind == kv.DATA and self.add(own, *pair))
        left = [pair for i, pair in enumerate(pairs) if not marks[number] >> i & 1]
        if left:
            return self.sent(receiver, content[:12] + marks[number].to_bytes(2), left)
        return self.sent(host, b"\x14" + content[1:3] + b"\0" + content[4:12] + bytes(2), [])

    def window(self, host, incarnation, number):
        """Marks of the sender's packets. Raises ValueError for a number that its cell does not expect, or has not seen last."""
        if self.seen.get(host, (0,))[0] != incarnation:
            self.seen[host] = incarnation, {}
        marks = self.seen[host][1]
        width = self.width
        cell = [n for n in marks if n % width == number % width]
        following = max(cell, default=number % width - width) + width
        if number > following or number > 0xFFFFFFFF - width:
            raise ValueError("outside")
        if number < following - width:
            raise ValueError("stale")
        return marks

    def add(self, own, key, value):
        slot = zlib.crc32(key) % SLOTS
        owner, there, total = self.slots.get(slot, (own, key, 0))
        if (owner, there) != (own, key) or total + value >= 2**32:
            return False
        self.slots[slot] = own, key, total + value
        return True

    def row(self, receiver, kind, content, own):
        first = 16 * int.from_bytes(content[8:12])
        owned = {slot: self.slots[slot] for slot in range(first, first + 16) if self.slots.get(slot, (None,))[0] == own}
        if kind == kv.CLEAR:
            self.slots = {slot: entry for slot, entry in self.slots.items() if slot not in owned}
            return self.sent(receiver, b"\x18" + content[1:12] + bytes(2), [])
        taken = sum(1 << slot - first for slot in range(first, first + 16) if slot not in owned)
        head = b"\x17" + content[1:3] + b"\x10" + content[4:12] + taken.to_bytes(2)
        return self.sent(receiver, head, [entry[1:] for _, entry in sorted(owned.items())])

    def sent(self, port, head, pairs):
        body = b"".join(key + value.to_bytes(4) for key, value in pairs)
        return [(port, head + (0xFFFF - self.fold(head + bytes(2) + body)).to_bytes(2) + body)]

    @staticmethod
    def fold(content):
        total = 0
        for i in range(0, len(content), 2):
            total += int.from_bytes(content[i : i + 2])
            total = (total & 0xFFFF) + (total >> 16)
        return total


PORTS = {(1, 0): 1, (1, 1): 2, (2, 0): 4, (2, 3): 5}  # senders of two streams; their receivers are at ports 0 and 3
STREAMS = {1: (1, 0), 2: (2, 3)}


def random_packet(rng):
    """A packet into a port: mostly of what the tables know, mostly whole."""
    stream, sender = rng.choice(list(PORTS))
    kind = rng.choice([kv.DATA] * 6 + [kv.LONG, kv.END, kv.ACK, kv.READ, kv.CLEAR, rng.randrange(16)])
    port = PORTS[stream, sender] if kind < 4 else STREAMS[stream][1]
    number = rng.choice([rng.randrange(3 * WINDOW)] * 8 + [FAR, 2**32 - 1]) if kind < 5 else rng.choice([0] * 5 + [1])
    keys = rng.choices([b"key%d" % i for i in range(40)], k=rng.randrange(1, 17)) if kind < 4 else []
    pairs = [(key.ljust(16, b"\0"), rng.choice([1, 1, 2, 2**31, 2**32 - 1])) for key in keys]
    fields = {"stream": stream, "sender": sender, "incarnation": stream}
    if rng.random() < 0.1:
        fields[rng.choice(list(fields))] = rng.randrange(4)
    packet = frame(port, kind, number, pairs, **fields)
    change = rng.random()
    if change < 0.04:
        packet = packet[: rng.randrange(14, len(packet))]
    elif change < 0.08:  # behind the ports of UDP, and not those
        place = rng.choice([*range(18, 34), *range(38, len(packet))])
        packet = packet[:place] + bytes([rng.randrange(256)]) + packet[place + 1 :]
    elif change < 0.12:
        packet = frame(port, kind, number, pairs, count=rng.randrange(1, 256), **fields)
    elif change < 0.14:
        packet += bytes(rng.randrange(1, 40))
    return (rng.randrange(6) if rng.random() < 0.03 else port), packet


def keyvalue_frame(packet):
    """Decides whether the parser of the program comes to its own header."""
    return len(packet) >= 42 and packet[23] == 17 and packet[14] & 15 == 5


def compare(switch, drops, seed, count):
    rng, reference = random.Random(seed), Reference(STREAMS, PORTS)
    answers = 0
    for _ in range(count):
        port, packet = random_packet(rng)
        if not keyvalue_frame(packet):
            continue
        sent, expected = switch(port, packet), reference.process(port, packet)
        whole = 58 + 20 * packet[45] if len(packet) > 45 else 0  # what follows goes on behind the answer
        assert [(out, answer[42:]) for out, answer in sent] == [(out, content + packet[whole:]) for out, content in expected]
        for out, answer in sent:
            answers += 1
            own = kv.Host(out).entry
            assert answer[:6] == own["mac"].to_bytes(6) and answer[30:34] == own["ip"].to_bytes(4)
            assert answer[36:38] == own["udp_port"].to_bytes(2) and answer[40:42] == bytes(2)  # UDP's checksum: none
            assert Reference.fold(answer[14:34]) == 0xFFFF
            assert len(answer) - len(packet[whole:]) == 34 + int.from_bytes(answer[38:40]) == 14 + int.from_bytes(answer[16:18])
    assert drops() == {name: number for name, number in reference.drops.items() if number}
    assert answers > count / 5
    return reference


def admit(insert, streams=STREAMS, senders=PORTS):
    for stream, (incarnation, port) in streams.items():
        insert("stream", {"hdr.keyvalue.stream": stream}, "set_stream", {"incarnation": incarnation, **kv.Host(port).entry})
    for (stream, sender), port in senders.items():
        match = {"hdr.keyvalue.stream": stream, "hdr.keyvalue.sender": sender}
        insert("sender", match, "set_sender", {"index": port, **kv.Host(port).entry})


@pytest.mark.build
@pytest.mark.parametrize("seed", range(20))
def test_the_switch_does_what_the_reference_does(small, seed):
    net = network(small)
    admit(lambda *entry: net.switch.insert(TableEntry(*entry)))
    reference = compare(net.switch.process, net.drops, seed, 1500)
    owners, values = net.switch.register("owners"), net.switch.register("values")
    assert {i: (owners[i], values[i]) for i in range(SLOTS) if owners[i]} == {i: (s[0], s[2]) for i, s in reference.slots.items()}


@pytest.mark.fast
@pytest.mark.parametrize("seed", range(2))
def test_the_interpreter_does_what_the_reference_does(seed):
    program = frontend.load(kv.PROGRAM, defines={"SLOTS": str(SLOTS), "WINDOW": str(WINDOW)}, include_dirs=[paths.p4_dir()])
    interpreter = Interpreter(program)
    admit(lambda table, match, action, args: interpreter.tables[f"admission.{table}"].insert(match, action, args))
    counter = interpreter.counters["drops"]

    def drops():
        return {name: count for name, count in zip(kv.DROPS, counter.packets, strict=True) if count}

    compare(lambda port, packet: interpreter.process(packet, port), drops, seed, 150)


@pytest.mark.hardware
def test_bmv2_does_what_the_reference_does(tmp_path):
    need("p4c", "bmv2", "netns")
    config, _ = compile_sample(kv.PROGRAM, tmp_path, f"-I{paths.p4_dir()}", f"-DSLOTS={SLOTS}", f"-DWINDOW={WINDOW}")
    with Bmv2(config, 6) as switch:
        switch.reset(6)
        admit(lambda *entry: switch.write(insert(TableEntry(*entry))))

        def drops():
            return {name: count for name, count in zip(kv.DROPS, switch.counter("drops", len(kv.DROPS)), strict=True) if count}

        compare(lambda port, packet: switch.send(packet, port), drops, 0, 3000)


@pytest.mark.fast
def test_the_reference_would_notice_a_pair_that_is_added_twice():
    reference, packet = Reference(STREAMS, PORTS), frame(1, kv.DATA, 0, padded(b"a"))
    assert reference.process(1, packet) == reference.process(1, packet)
    assert [entry[2] for entry in reference.slots.values()] == [1]


# ---- every interleaving of a small stream


def walk(switch, packets, expected):
    """Walks every state of a sender, a switch and the receiver, where the network delivers each frame that was ever sent at
    any time and any number of times, or never. Returns (states, final states).

    `switch`: a Reference or a Program, of stream 1 with one sender at port 1 and the receiver at port 0."""
    sender, receiver = kv.Sender(kv.Host(1), 1, 1, 0, []), kv.Receiver(kv.Host(0), 1, 1, 1, 1)
    sums = kv.check_words(expected.items())
    sender.packets = iter([*packets, (kv.END, [(sums[0].to_bytes(16), sums[1])]), None])
    sender.ahead = next(sender.packets)
    start = sender, switch, receiver, frozenset((0, 1, sent) for sent in sender.to_send(0))
    waiting, seen, final = [start], set(), 0
    while waiting:
        *parts, frames = waiting.pop()
        for to, port, content in frames:
            sender, switch, receiver = copy.deepcopy(parts)
            if to == 0:
                answers = [(1, out, framed(answer)) for out, answer in switch.process(port, content)]
            else:
                host = (receiver, sender)[port]
                host.sent = dict.fromkeys(host.sent, -kv.RTO)  # a time-out: what has no answer is sent again
                answers = [(0, port, sent) for sent in [*host.receive(content, 0), *host.to_send(0)]]
            after = frames | set(answers)
            state = repr((sender.next, sorted(sender.frames), sorted(receiver.counts.items()), receiver.numbers, receiver.ends,
                          receiver.steps)), switch.state, after
            if state in seen:
                continue
            seen.add(state)
            waiting.append((sender, switch, receiver, after))
            unread = switch.slots.values() if receiver.step == kv.READ else ()
            assert receiver.counts + Counter({key.rstrip(b"\0"): total for _, key, total in unread}) <= expected
            if receiver.done:
                final += 1
                assert receiver.counts == expected and not switch.slots and sender.ahead is None
    return len(seen), final


def framed(content):
    return bytes(38) + (8 + len(content)).to_bytes(2) + bytes(2) + content


class Program:
    """The compiled program in one of its states; copies share the switch, which each of them puts into its own state.

    `state`: the registers, whole; slots without an owner keep a key and a value."""

    def __init__(self, built):
        self.switch = embedded.Switch(built)
        for port in range(2):
            self.switch.add_port(port)
        admit(lambda *entry: self.switch.write(insert(TableEntry(*entry))), {1: (1, 0)}, {(1, 0): 1})
        self._keep()

    def _keep(self):
        self.saved = self.switch.snapshot()
        self.state = tuple(tuple(self.switch.register(name).tolist()) for name in REGISTERS)

    def __deepcopy__(self, _):
        return copy.copy(self)

    def process(self, port, sent):
        self.switch.restore(self.saved)
        answers = [(out, answer[42:]) for out, answer in self.switch.step(sent, port, 0)]
        self._keep()
        return answers

    @property
    def slots(self):
        entries = zip(*self.state[:3], strict=True)
        return {slot: (owner, key.to_bytes(16), value) for slot, (owner, key, value) in enumerate(entries) if owner}


REGISTERS = "owners", "keys", "values", "incarnations", "nexts", "marks"
FIRST, SECOND = colliding(2)
SMALL = [(kv.DATA, padded(SECOND, FIRST)), (kv.DATA, padded(FIRST, b"b", SECOND)), (kv.DATA, padded(FIRST))]
EXPECTED = Counter({FIRST: 3, SECOND: 2, b"b": 1})


def small_reference(kind, width):
    return kind({1: (1, 0)}, {(1, 0): 1}, width)


@pytest.mark.fast
@pytest.mark.parametrize("width", [1, 2, 4])
def test_every_interleaving_ends_with_the_right_counts(monkeypatch, width):
    monkeypatch.setattr(kv, "WINDOW", width)
    states, final = walk(small_reference(Reference, width), SMALL, EXPECTED)
    assert final and states > 30


@pytest.mark.build
@pytest.mark.parametrize("width", [1, 2, 4])
def test_every_interleaving_with_the_program_is_one_with_the_reference(monkeypatch, width):
    need("cc")
    monkeypatch.setattr(kv, "WINDOW", width)
    states = walk(Program(compile_p4(kv.PROGRAM, defines={"SLOTS": SLOTS, "WINDOW": width})), SMALL, EXPECTED)
    assert states == walk(small_reference(Reference, width), SMALL, EXPECTED)


class Forgetful(Reference):
    """A switch that looks at repeated packets anew."""

    def window(self, host, incarnation, number):
        super().window(host, incarnation, number).pop(number, None)
        return super().window(host, incarnation, number)


@pytest.mark.fast
def test_the_walk_notices_a_switch_that_forgets(monkeypatch):
    monkeypatch.setattr(kv, "WINDOW", 2)
    with pytest.raises(AssertionError, match="<= Counter"):
        walk(small_reference(Forgetful, 2), SMALL, EXPECTED)


@pytest.mark.build
@pytest.mark.parametrize(("line", "wrong", "message"), [
    ("marks.write(cell, meta.taken);", "", "<= Counter"),  # what the switch took goes on to the receiver, too
    ("fresh = hdr.keyvalue.number == next;", "fresh = hdr.keyvalue.number <= next;", "<= Counter"),  # is added once more
    ("owners.write(slot, 0);", "", "not {"),  # slots stay taken
], ids=["forgets marks", "adds twice", "frees nothing"])
def test_the_walk_notices_a_wrong_program(monkeypatch, tmp_path, line, wrong, message):
    need("cc")
    monkeypatch.setattr(kv, "WINDOW", 2)
    text, path = kv.PROGRAM.read_text(), tmp_path / "wrong.p4"
    assert text.count(line) == 1
    path.write_text(text.replace(line, wrong))
    with pytest.raises(AssertionError, match=message):
        walk(Program(compile_p4(path, defines={"SLOTS": SLOTS, "WINDOW": 2})), SMALL, EXPECTED)


# ---- the command line


@pytest.mark.build
def test_words_of_files_are_counted(tmp_path, capsys):
    need("cc")
    (tmp_path / "a.txt").write_text("Der Hund und die Katze\nund der Donaudampfschifffahrtskapitän")
    (tmp_path / "b.txt").write_text("DER HUND")
    assert kv.main([str(tmp_path / "a.txt"), str(tmp_path / "b.txt"), "--senders", "3", "--loss", "0.1", "--seed", "2"]) == 0
    printed = capsys.readouterr().out
    assert "words                10, 6 different\n" in printed
    assert printed.endswith("the counts are those of collections.Counter\n")


@pytest.mark.build
@pytest.mark.parametrize(("arguments", "message"), [
    (["nowhere.txt"], "No such file or directory: 'nowhere.txt'"), (["--loss", "2"], "loss is 2.0, expected a probability"),
    (["--slots", "100"], "SLOTS must be a power of two"), (["--loss", "1", "--words", "9"], "waits for"),
])
def test_wrong_arguments_are_one_message(arguments, message, capsys):
    need("cc")
    assert kv.main(arguments) == 1
    assert message in capsys.readouterr().err


@pytest.mark.fast
@pytest.mark.parametrize(("arguments", "message"), [
    (["--slots", "8"], "--slots: 8: expected a whole number from 16 to 16384"), (["--senders", "0"], "--senders: 0: expected"),
    (["--senders", "256"], "from 1 to 255"), (["--vocabulary", "none"], "--vocabulary: none: expected"),
])
def test_numbers_out_of_range_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit):
        kv.main(arguments)
    assert message in capsys.readouterr().err
