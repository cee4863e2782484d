"""Word count in the switch: senders stream (word, 1) pairs, keyvalue.p4 adds up what finds a slot, the receiver does the rest.

Hosts, links with faults and switch run in this process, in virtual time (integers of picoseconds); README.md has the protocol.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import re
import struct
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ina.p4 import BuildError, CompiledProgram, CompileError, Switch, TableEntry, compile
from ina.virtual import Faults

PROGRAM = Path(__file__).with_suffix(".p4")
UDP_PORT, VERSION, PAIRS, KEY_BYTES = 0xBEC1, 1, 16, 16
WINDOW = 64  # as the program's
LAST_NUMBER = 0xFFFFFFFF - WINDOW
DATA, LONG, END, ACK, READ, CLEAR, ROW, CLEARED = range(1, 9)
DROPS = ("none", "malformed", "corrupt", "unknown_stream", "wrong_source", "old_stream", "stale", "outside", "wrong_row")
HEADER, PAIR = struct.Struct("!4B2I2H"), struct.Struct(f"!{KEY_BYTES}sI")
PRIME = 2**127 - 1
SECOND, MICROSECOND = 10**12, 10**6
DELAY, RTO, DEADLINE = MICROSECOND, 100 * MICROSECOND, SECOND


@dataclass(frozen=True)
class Host:
    """Addresses of the host at a port of the switch."""

    port: int

    @property
    def entry(self) -> dict[str, int]:
        return {"mac": self.port + 1, "ip": 0x0A000001 + self.port, "udp_port": 0x8000 + self.port, "port": self.port}


@dataclass
class Packet:
    """Content of a frame; `pairs` has those that it still carries, of `count` without the marks in `taken`."""

    kind: int
    stream: int
    sender: int
    incarnation: int
    number: int
    pairs: Sequence[tuple[bytes, int]] = ()
    count: int = 0
    taken: int = 0

    def frame(self, source: Host) -> bytes:
        head = self.stream, self.sender, self.count or len(self.pairs), self.incarnation, self.number, self.taken
        pairs = b"".join(itertools.starmap(PAIR.pack, self.pairs))
        content = HEADER.pack(VERSION << 4 | self.kind, *head, 0) + pairs
        content = content[:14] + checksum(content).to_bytes(2) + content[16:]
        at = source.entry
        udp = struct.pack("!4H", at["udp_port"], UDP_PORT, 8 + len(content), 0)
        ip = struct.pack("!2B3H2BH2I", 0x45, 0, 28 + len(content), 0, 0, 64, 17, 0, at["ip"], 0x0A0000FE)
        ip = ip[:10] + checksum(ip).to_bytes(2) + ip[12:]
        return bytes(6) + at["mac"].to_bytes(6) + b"\x08\x00" + ip + udp + content

    @classmethod
    def read(cls, frame: bytes) -> Packet:
        """Checks a frame from the switch. Raises ValueError with the reason: malformed or corrupt."""
        content = frame[42:]
        if len(content) < HEADER.size or len(content) != int.from_bytes(frame[38:40]) - 8 or content[0] >> 4 != VERSION:
            raise ValueError("malformed")
        first, stream, sender, count, incarnation, number, taken, _ = HEADER.unpack_from(content)
        present = count - taken.bit_count()
        if count > PAIRS or taken >> count or len(content) != HEADER.size + PAIR.size * present:
            raise ValueError("malformed")
        if checksum(content) != 0:
            raise ValueError("corrupt")
        return cls(first & 15, stream, sender, incarnation, number, list(PAIR.iter_unpack(content[HEADER.size :])), count, taken)


def checksum(content: bytes) -> int:
    """Checksum of RFC 1071 over an even number of bytes; 0 over bytes that have their own in them."""
    total: int = sum(struct.unpack(f"!{len(content) // 2}H", content))
    return ~((total - 1) % 0xFFFF + 1) & 0xFFFF


def check_words(counts: Iterable[tuple[bytes, int]]) -> tuple[int, int]:
    """Sums that stay the same however pairs are added up by key: sum of key * value modulo a prime, sum of values."""
    products = total = 0
    for key, value in counts:
        products, total = products + int.from_bytes(key.ljust(KEY_BYTES, b"\0")) * value, total + value
    return products % PRIME, total & 0xFFFFFFFF


def cut(pairs: Iterable[tuple[bytes, int]]) -> Iterator[tuple[int, list[tuple[bytes, int]]]]:
    """Cuts pairs into packets: (kind, pairs), the last an END. A long key becomes several pairs, all but the last of value 0."""
    waiting: dict[int, list[tuple[bytes, int]]] = {DATA: [], LONG: []}
    sums = (0, 0)
    for key, value in pairs:
        parts = [key[i : i + KEY_BYTES].ljust(KEY_BYTES, b"\0") for i in range(0, len(key), KEY_BYTES)]
        if not 1 <= len(parts) <= PAIRS or key.endswith(b"\0") or not 1 <= value < 2**32:
            raise ValueError(f"{key[:20]!r}: {value}: expected 1 to {PAIRS * KEY_BYTES} bytes, the last not 0, and 1 to 2^32 - 1")
        kind = DATA if len(parts) == 1 else LONG
        if len(waiting[kind]) + len(parts) > PAIRS:
            yield kind, waiting[kind]
            waiting[kind] = []
        waiting[kind] += [(part, 0) for part in parts[:-1]] + [(parts[-1], value)]
        product, total = check_words([(key, value)])
        sums = (sums[0] + product) % PRIME, sums[1] + total & 0xFFFFFFFF
    yield from ((kind, rest) for kind, rest in waiting.items() if rest)
    yield END, [(sums[0].to_bytes(KEY_BYTES), sums[1])]


class Endpoint(ABC):
    """State machine at a port: takes frames, says what to send and when to ask again; has no clock and no socket."""

    def __init__(self, host: Host, stream: int, incarnation: int) -> None:
        self.host, self.stream, self.incarnation = host, stream, incarnation
        self.drops: Counter[str] = Counter()
        self.progress = 0  # when there was an answer last
        self.sent: dict[int, int] = {}  # what waits for an answer: when it was sent
        self.repeated = 0

    def receive(self, frame: bytes, now: int) -> list[bytes]:
        """Takes a frame; returns answers to it."""
        try:
            packet = Packet.read(frame)
            if (packet.stream, packet.incarnation) != (self.stream, self.incarnation):
                raise ValueError("old_stream")
            return self.take(packet, now)
        except ValueError as error:
            self.drops[str(error)] += 1
            return []

    def due(self, number: int, now: int) -> bool:
        """Decides whether packet or row `number` is to be sent, and notes that it is."""
        if number in self.sent and now < self.sent[number] + RTO:
            return False
        self.repeated += number in self.sent
        self.sent[number] = now
        return True

    def timer(self) -> int:
        return min([sent + RTO for sent in self.sent.values()] + [self.progress + self.patience])

    def check_deadline(self, now: int) -> None:
        if not self.done and now >= self.progress + self.patience:
            raise TimeoutError(f"stream {self.stream}, {self.waits_for}: nothing came for {self.patience / SECOND:g} s")

    @property
    def patience(self) -> int:
        return DEADLINE

    def packet(self, kind: int, sender: int, number: int, pairs: Sequence[tuple[bytes, int]] = ()) -> bytes:
        return Packet(kind, self.stream, sender, self.incarnation, number, pairs).frame(self.host)

    @property
    @abstractmethod
    def done(self) -> bool: ...

    @property
    @abstractmethod
    def waits_for(self) -> str: ...

    @abstractmethod
    def take(self, packet: Packet, now: int) -> list[bytes]: ...

    @abstractmethod
    def to_send(self, now: int) -> list[bytes]: ...


class Sender(Endpoint):
    """Sends numbered packets, less than WINDOW beyond the oldest without an acknowledgement, and repeats those without one."""

    def __init__(self, host: Host, stream: int, incarnation: int, number: int, pairs: Iterable[tuple[bytes, int]]) -> None:
        super().__init__(host, stream, incarnation)
        self.number, self.packets = number, itertools.chain(cut(pairs), [None])
        self.ahead = next(self.packets)  # the next packet; None: that was the END
        self.next, self.frames = 0, dict[int, bytes]()
        self.pairs = self.bytes = 0  # in packets of data; in all packets, once each

    @property
    def done(self) -> bool:
        return self.ahead is None and not self.frames

    @property
    def waits_for(self) -> str:
        return f"sender {self.number} waits for the acknowledgement of packet {min(self.frames, default=self.next)}"

    def take(self, packet: Packet, now: int) -> list[bytes]:
        if packet.kind != ACK or packet.sender != self.number:
            raise ValueError("unexpected")
        if self.frames.pop(packet.number, None) is None:
            raise ValueError("repeated")
        del self.sent[packet.number]
        self.progress = now
        return []

    def to_send(self, now: int) -> list[bytes]:
        while self.ahead and self.next < min(self.frames, default=self.next) + WINDOW:
            kind, pairs = self.ahead
            if kind == END and self.frames:
                break  # it says that all is counted
            if self.next > LAST_NUMBER:
                raise OverflowError(f"stream {self.stream}: sender {self.number} has no packet numbers left")
            self.frames[self.next] = self.packet(kind, self.number, self.next, pairs)
            self.pairs += len(pairs) * (kind == DATA)
            self.bytes += len(self.frames[self.next])
            self.next, self.ahead = self.next + 1, next(self.packets)
        return [frame for number, frame in self.frames.items() if self.due(number, now)]


class Receiver(Endpoint):
    """Adds up what the switch left, then, when all senders have ended, reads the switch's rows and clears them."""

    def __init__(self, host: Host, stream: int, incarnation: int, senders: int, rows: int) -> None:
        super().__init__(host, stream, incarnation)
        self.counts: Counter[bytes] = Counter()
        self.numbers: list[set[int]] = [set() for _ in range(senders)]  # packets that are counted
        self.ends: dict[int, tuple[int, int]] = {}
        self.steps = {READ: set(range(rows)), CLEAR: set(range(rows))}  # rows without an answer
        self.pairs = 0  # that came in packets of data

    @property
    def done(self) -> bool:
        return not self.steps[CLEAR]

    @property
    def patience(self) -> int:  # the switch may take all packets of a long stream
        return DEADLINE if len(self.ends) == len(self.numbers) else 60 * DEADLINE

    @property
    def step(self) -> int:
        return READ if self.steps[READ] else CLEAR

    @property
    def waits_for(self) -> str:
        missing = [str(number) for number in range(len(self.numbers)) if number not in self.ends]
        return "receiver waits for " + (f"the end of sender {', '.join(missing)}" if missing else
                                        f"{'ROW' if self.step == READ else 'CLEARED'} {min(self.steps[self.step])}")

    def take(self, packet: Packet, now: int) -> list[bytes]:
        if packet.kind in (ROW, CLEARED):
            kind = READ if packet.kind == ROW else CLEAR
            if kind != self.step or packet.number not in self.steps[kind]:
                raise ValueError("repeated")
            self.steps[kind].discard(packet.number)
            self.sent.pop(packet.number, None)
            self.add(packet.pairs)
        elif packet.kind not in (DATA, LONG, END) or packet.sender >= len(self.numbers):
            raise ValueError("unexpected")
        elif packet.number in self.numbers[packet.sender]:
            self.drops["repeated"] += 1
            return [self.packet(ACK, packet.sender, packet.number)]
        elif packet.kind == END:
            self.ends[packet.sender] = int.from_bytes(packet.pairs[0][0]), packet.pairs[0][1]
        else:
            self.add(packet.pairs)
            self.pairs += len(packet.pairs) * (packet.kind == DATA)
        self.progress = now
        if packet.kind == ROW and not self.steps[READ]:
            self.check()
        if packet.kind in (ROW, CLEARED):
            return []
        self.numbers[packet.sender].add(packet.number)
        return [self.packet(ACK, packet.sender, packet.number)]

    def add(self, pairs: Iterable[tuple[bytes, int]]) -> None:
        before = b""
        for key, value in pairs:
            if value == 0:
                before += key
            else:
                self.counts[(before + key).rstrip(b"\0")] += value
                before = b""

    def check(self) -> None:
        """Compares the sums with the senders' check words. Raises RuntimeError: a switch lost or doubled something."""
        expected = (sum(end[0] for end in self.ends.values()) % PRIME, sum(end[1] for end in self.ends.values()) & 0xFFFFFFFF)
        if check_words(self.counts.items()) != expected:
            raise RuntimeError(f"stream {self.stream}: the sums do not fit the check words of the senders")

    def to_send(self, now: int) -> list[bytes]:
        if len(self.ends) < len(self.numbers):
            return []
        rows = sorted(self.steps[self.step])[:16]
        return [self.packet(self.step, 0, row) for row in rows if self.due(row, now)]


class Network:
    """A switch, hosts at its ports, and links between them with faults; and the controller, which writes the table entries."""

    def __init__(self, program: CompiledProgram, slots: int, faults: Faults | None = None) -> None:
        self.program, self.slots, self.faults = program, slots, faults or Faults()
        self.random = random.Random(self.faults.seed)
        self.switch = Switch(program)
        self.now = self.incarnation = 0
        self.endpoints: list[Endpoint] = []  # by port
        self.bytes: Counter[int] = Counter()  # to each port
        self.events: list[tuple[int, int, int, bytes | None, bool]] = []  # time, order, port, frame or timer, to the switch
        self.timers: dict[int, int] = {}
        self.order = itertools.count()

    def add_stream(self, stream: int, pairs: Sequence[Iterable[tuple[bytes, int]]]) -> Receiver:
        """Admits a stream, with a sender for each element of `pairs` and a receiver, at the next ports."""
        self.incarnation += 1
        host = Host(len(self.endpoints))
        receiver = Receiver(host, stream, self.incarnation, len(pairs), self.slots // PAIRS)
        senders = [Sender(Host(host.port + 1 + i), stream, self.incarnation, i, own) for i, own in enumerate(pairs)]
        for endpoint in (receiver, *senders):
            endpoint.progress = self.now
            self.endpoints.append(endpoint)
        self.admit(receiver, senders)
        return receiver

    def admit(self, receiver: Receiver, senders: Sequence[Sender]) -> None:
        entry = {"incarnation": self.incarnation, **receiver.host.entry}
        self.switch.insert(TableEntry("stream", {"hdr.keyvalue.stream": receiver.stream}, "set_stream", entry))
        for sender in senders:
            match = {"hdr.keyvalue.stream": sender.stream, "hdr.keyvalue.sender": sender.number}
            self.switch.insert(TableEntry("sender", match, "set_sender", {"index": sender.host.port, **sender.host.entry}))

    def link(self, port: int, frame: bytes, to_switch: bool) -> None:
        """Sends a frame over a link, which may lose, delay, double or corrupt it."""
        draw, faults = self.random.random, self.faults
        if draw() < faults.corrupt:
            place = self.random.randrange(8 * len(frame))
            frame = (int.from_bytes(frame) ^ 1 << place).to_bytes(len(frame))
        late = int(draw() * faults.reorder_delay * SECOND) if draw() < faults.reorder else 0
        if draw() >= faults.loss:
            self.post(DELAY + late, port, frame, to_switch)
        if draw() < faults.duplicate:
            self.post(DELAY + int(draw() * faults.duplicate_delay * SECOND), port, frame, to_switch)

    def post(self, delay: int, port: int, frame: bytes | None, to_switch: bool = False) -> None:
        heapq.heappush(self.events, (self.now + delay, next(self.order), port, frame, to_switch))

    def wake(self, port: int, frames: Iterable[bytes] = ()) -> None:
        """Sends `frames` and what an endpoint has to send, and sets its timer."""
        endpoint = self.endpoints[port]
        endpoint.check_deadline(self.now)
        for frame in [*frames, *endpoint.to_send(self.now)]:
            self.link(port, frame, True)
        if not endpoint.done and endpoint.timer() < self.timers.get(port, sys.maxsize):
            self.timers[port] = endpoint.timer()
            self.post(self.timers[port] - self.now, port, None)

    def step(self) -> None:
        """Lets the next event happen: a frame arrives, or a timer ends."""
        self.now, _, port, frame, to_switch = heapq.heappop(self.events)
        if frame is None:
            if self.timers.get(port) == self.now:  # else an earlier one has taken its place
                del self.timers[port]
                self.wake(port)
        elif to_switch:
            for out, sent in self.switch.process(port, frame, now=self.now):
                self.bytes[out] += len(sent)
                self.link(out, sent, False)
        else:
            self.wake(port, self.endpoints[port].receive(frame, self.now))

    def run(self) -> None:
        """Runs until all streams are read and cleared. Raises TimeoutError: who waits for what, and what the switch dropped."""
        try:
            for port in range(len(self.endpoints)):
                self.wake(port)
            while not all(endpoint.done for endpoint in self.endpoints):
                self.step()
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the switch dropped {self.drops()}") from None

    def drops(self) -> dict[str, int]:
        packets = self.switch.counter("drops")[:, 0]
        return {name: int(count) for name, count in zip(DROPS, packets, strict=True) if count}


def zipf(words: int, vocabulary: int, seed: int) -> list[str]:
    """Draws words of which the r-th most frequent is drawn with a probability like 1/r."""
    weights = [1 / rank for rank in range(1, vocabulary + 1)]
    return random.Random(seed).choices([f"word{rank}" for rank in range(1, vocabulary + 1)], weights, k=words)


def within(least: int, most: int) -> Callable[[str], int]:
    """Returns the type of an option that is a whole number from ``least`` to ``most``."""

    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text}: expected a whole number from {least} to {most}")
        return int(text)

    return number


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Counts words in a switch.")
    parser.add_argument("files", nargs="*", type=Path, help="texts in UTF-8; none: words drawn from a Zipf distribution")
    for name, value, least, most, text in (
        ("senders", 4, 1, 255, "words are dealt out to them"),
        ("slots", 512, PAIRS, 16384, "of the switch: a power of two from 16"),
        ("words", 20_000, 0, 10**8, "to draw"), ("vocabulary", 2_000, 1, 10**6, "different words to draw from"),
        ("seed", 1, 0, 2**63, "of words and faults"),
    ):
        parser.add_argument(f"--{name}", type=within(least, most), default=value, help=f"{text} (default {value})")
    for name in ("loss", "duplicate", "reorder", "corrupt"):
        parser.add_argument(f"--{name}", type=float, default=0.0, help="probability, of each packet on each link (default 0)")
    options = parser.parse_args(arguments)
    try:
        words = [word for path in options.files for word in re.findall(r"\w+", path.read_text().lower())]
        words = words if options.files else zipf(options.words, options.vocabulary, options.seed)
        faults = Faults(options.loss, options.duplicate, options.reorder, options.corrupt, 1e-3, 1e-3, options.seed)
        network = Network(compile(PROGRAM, defines={"SLOTS": options.slots, "WINDOW": WINDOW}), options.slots, faults)
        receiver = network.add_stream(1, [[(w.encode(), 1) for w in words[i :: options.senders]] for i in range(options.senders)])
        network.run()
    except (OSError, ValueError, RuntimeError, CompileError, BuildError) as error:
        print(f"keyvalue: {error}", file=sys.stderr)
        return 1
    senders = [endpoint for endpoint in network.endpoints if isinstance(endpoint, Sender)]
    pairs, plain, sent = sum(s.pairs for s in senders), sum(s.bytes for s in senders), network.bytes[receiver.host.port]
    taken, right = pairs - receiver.pairs, receiver.counts == Counter(word.encode() for word in words)
    print(f"words                {len(words)}, {len(receiver.counts)} different")
    print(f"pairs sent           {pairs}")
    print(f"added in the switch  {taken}, {taken / max(pairs, 1):.1%}")
    print(f"bytes to receiver    {sent}; without the switch {plain}")
    print(f"packets repeated     {sum(endpoint.repeated for endpoint in network.endpoints)}")
    print(f"dropped by switch    {', '.join(f'{name} {count}' for name, count in network.drops().items()) or 'none'}")
    print("the counts are " + ("those of collections.Counter" if right else "WRONG"))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
