"""The search for packets that the twins answer differently: every short sequence of a few packets, then long random ones; and the
reduction of what it finds: fewer packets, then plainer fields."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ina.p4.tools.equal.comparison import Difference, Twins
from ina.p4.tools.equal.packets import FIELDS, Maker, Packet
from ina.p4.tools.equal.shapes import Field, Shapes

SENDERS = 3  # of an alphabet that the search chooses
CHUNK = 100  # random sequences before the search chooses an alphabet


@dataclass
class Bounds:
    """Bounds of a search. `states`: expanded by the systematic part. `seconds`: of all parts together."""

    sequences: int = 2000
    length: int = 30
    depth: int = 4
    states: int = 3000
    seconds: float = 600.0
    letters: int = 16  # of an alphabet that the search chooses


@dataclass
class Outcome:
    """Result of a search. `depth`: all sequences of so many letters were sent (through each known state only once)."""

    packets: list[Packet] = field(default_factory=list)
    difference: Difference | None = None
    sequences: int = 0
    states: int = 0
    letters: int = 0
    depth: int = 0
    sent: int = 0
    answered: int = 0  # of these, packets that made a frame leave
    over: bool = False  # the time limit ended the search
    seconds: float = 0.0
    ways: int = 0  # different ways of packets through the programs
    notes: list[str] = field(default_factory=list)  # parts that a bound left out


class Search:
    """A search. `say`: called with lines about progress."""

    def __init__(self, twins: Twins, maker: Maker, bounds: Bounds, say: Callable[[str], None] = lambda _: None) -> None:
        self.twins, self.maker, self.bounds, self._say = twins, maker, bounds, say
        self.outcome = Outcome()
        self._begin = self._last = time.monotonic()

    def run(self, letters: Sequence[Packet]) -> Outcome:
        out, bounds = self.outcome, self.bounds
        if letters and bounds.depth:
            out.difference = self._systematic(letters)
        elif bounds.depth:
            out.difference = self._both()
        if out.difference is None:
            out.difference = self._random(bounds.sequences)
        out.sent, out.answered = self.twins.steps, self.twins.answered
        out.seconds, out.ways = time.monotonic() - self._begin, len(self.maker.corpus)
        return out

    def _over(self) -> bool:
        now = time.monotonic()
        if now - self._last > 5:
            self._last = now
            out = self.outcome
            self._say(f"{now - self._begin:.0f} s: {out.states} states, {out.sequences} sequences, {self.twins.steps:,} packets")
        self.outcome.over = now - self._begin > self.bounds.seconds
        return self.outcome.over

    def _both(self) -> Difference | None:
        """Sends random sequences until a packet changes more objects than those before, then systematic ones of it and similar
        ones."""
        most = 0
        while self.outcome.sequences < self.bounds.sequences and not self._over():
            difference = self._random(min(self.outcome.sequences + CHUNK, self.bounds.sequences))
            if difference is not None:
                return difference
            pool = [packet for packets in self.maker.corpus.values() for packet in packets]
            size, number = max(((self._changes(packet), -i) for i, packet in enumerate(pool) if not self._over()), default=(0, 0))
            if size > most:
                most, letters = size, self._alphabet(pool[-number])
                self.maker.seeds = [*self.maker.seeds, *letters]
                difference = self._systematic(letters)
                if difference is not None:
                    return difference
        return None

    def _alphabet(self, first: Packet) -> list[Packet]:
        """Returns a packet that changes state at the start; the same from other senders; and those with the next number in some
        field, if that makes a difference after it."""
        twins, maker = self.twins, self.maker
        senders = [first, *(packet for packet in maker.siblings(first) if self._changes(packet))]
        if len(senders) > SENDERS:
            self._note(f"of {len(senders)} senders whose packets change registers, systematic sequences have {SENDERS}")
        senders = senders[:SENDERS]
        letters = dict.fromkeys(senders)
        for pair in (item for many in zip(*map(maker.successors, senders), strict=False) for item in many):
            twins.reset()
            twins.send(first)
            before = self._key(0)
            a, _ = twins.send(pair[0])
            if a.sent or self._key(0) != before:
                letters |= dict.fromkeys(pair)
        if len(letters) > (most := self.bounds.letters):
            self._note(f"of {len(letters)} packets that change registers, systematic sequences have {most} (--letters)")
        return [*letters][:most]

    def _note(self, text: str) -> None:
        if text not in self.outcome.notes:
            self.outcome.notes.append(text)

    def _changes(self, packet: Packet) -> int:
        """Returns how many objects of the first program a packet changes at the start, if its registers are among them, else
        0."""
        self.twins.reset()
        before = self._key(0)
        self.twins.send(packet)
        return 1 + len(self.twins.a.changed()) if self._key(0) != before else 0

    def _random(self, sequences: int) -> Difference | None:
        twins, maker = self.twins, self.maker
        while self.outcome.sequences < sequences and not self._over():
            packets = maker.sequence(self.bounds.length)
            twins.reset()
            difference, number = None, -1
            for number, packet in enumerate(packets):  # noqa: B007
                a, b = twins.send(packet)
                difference = twins.differ(packet, a, b)
                if difference is not None:
                    break
                way = twins.a.changed(), twins.b.changed(), tuple((port, *map(len, frames)) for port, frames in a.sent)
                if any(way):
                    maker.learn(packet, way)
                if self._over():
                    break
            self.outcome.sequences += 1
            difference = difference or twins.state()
            if difference is not None:
                self.outcome.packets = packets[: number + 1]
                return Difference(number, *difference)
        return None

    def _systematic(self, letters: Sequence[Packet]) -> Difference | None:
        """Searches breadth first over states: of sequences that lead to the same registers on both sides, one is extended."""
        out, twins = self.outcome, self.twins
        out.letters = len(letters)
        timed = twins.a.reads_clock or twins.b.reads_clock
        twins.reset()
        states = {self._key(0)}
        level: list[tuple[int, ...]] = [()]
        for depth in range(1, self.bounds.depth + 1):
            following: list[tuple[int, ...]] = []
            for path in level:
                if out.states >= self.bounds.states:
                    self._note(f"the systematic part ended after {out.states} states (--states)")
                    return None
                if self._over():
                    return None
                out.states += 1
                twins.reset()
                for letter in path:
                    twins.send(letters[letter])
                (_, a), (_, b) = twins.a.save(), twins.b.save()
                for number, packet in enumerate(letters):
                    if self._over():
                        return None
                    twins.a.restore(a)
                    twins.b.restore(b)
                    difference = twins.differ(packet, *twins.send(packet)) or twins.state()
                    if difference is not None:
                        out.packets = [letters[i] for i in (*path, number)]
                        return Difference(depth - 1, *difference)
                    key = self._key(depth if timed else 0)
                    if key not in states:
                        states.add(key)
                        following.append((*path, number))
            out.depth, level = depth, following
            if not level:
                out.depth = self.bounds.depth  # there are no more states
                break
        return None

    def _key(self, time_: int) -> bytes:
        digest = hashlib.blake2b(self.twins.a.save()[0], digest_size=16, key=b"%d" % time_)
        digest.update(self.twins.b.save()[0])
        return digest.digest()


# ---- reduction of a counter-example


def shrink(twins: Twins, packets: Sequence[Packet], kind: str, seconds: float = 30.0) -> tuple[list[Packet], Difference, bool]:
    """Returns packets that lead to a difference of the same kind, of which none can be left out; the first difference; and
    whether `seconds` ended the reduction before."""
    end = time.monotonic() + seconds
    fast = kind in ("frames", "digests")

    def differs(candidate: Sequence[Packet]) -> int | None:
        """Returns how many packets it takes, or None without such a difference."""
        difference = twins.run(candidate, close=not fast)
        return difference.packet + 1 if difference is not None and difference.kind == kind else None

    best = list(packets[: differs(packets) or len(packets)])
    best = _fewer(best, differs, end)
    again = True
    while again and time.monotonic() < end:
        again, number = False, 0
        while number < len(best):
            for change in _plainer(twins.shapes, best, number):
                if number >= len(best) or time.monotonic() > end:
                    break
                simpler = change(best[number])
                if simpler == best[number]:
                    continue
                trial = [*best[:number], simpler, *best[number + 1 :]]
                if (needed := differs(trial)) is not None:
                    best, again = trial[:needed], True
            number += 1
        shorter = _fewer(best, differs, end)
        again |= len(shorter) < len(best)
        best = shorter
    difference = twins.run(best, close=True)
    assert difference is not None
    return best, difference, time.monotonic() > end


def _fewer(packets: list[Packet], differs: Callable[[Sequence[Packet]], int | None], end: float) -> list[Packet]:
    """Leaves out runs of packets, half of them first, then single ones."""
    best, run = packets, max(1, len(packets) // 2)
    while True:
        at = 0
        while at < len(best) and time.monotonic() < end:
            trial = best[:at] + best[at + run :]
            if trial and (needed := differs(trial)) is not None:
                best = trial[:needed]
            else:
                at += run
        if run == 1 or time.monotonic() > end:
            return best
        run = max(1, run // 2)


Change = Callable[[Packet], Packet]


def _plainer(shapes: Shapes, packets: Sequence[Packet], number: int) -> Iterator[Change]:
    """Yields changes of a packet: into another one of the sequence; without its end; with a field of another one, or 0."""
    packet = packets[number]
    for other in packets:
        if _weight(other) < _weight(packet):
            yield partial(_replaced, other)
    headers = shapes.walk(packet.frame)
    size = sum(h.width for h in headers) // 8
    if len(packet.frame) > size:
        yield lambda p: Packet(p.port, p.frame[:size])
        yield lambda p: _repaired(shapes, Packet(p.port, p.frame[:size]), lengths=True)
    for header in headers:
        nonzero = {f: 0 for f in header.fields if f.get(packet.frame)}
        if len(nonzero) > 1:
            yield partial(_put, shapes, nonzero)
    values: dict[str, set[int]] = {}
    for other in packets:
        for header in shapes.walk(other.frame):
            for f in header.fields if len(header.fields) < FIELDS else ():
                values.setdefault(f.key, set()).add(f.get(other.frame))
    for f in (f for header in headers for f in header.fields):
        for value in sorted({0, 1, *values.get(f.key, ())}):
            if value < f.get(packet.frame):
                yield partial(_lower, shapes, f, value)


def _replaced(other: Packet, _: Packet) -> Packet:
    return other


def _lower(shapes: Shapes, f: Field, value: int, packet: Packet) -> Packet:
    return _put(shapes, {f: value}, packet) if value < f.get(packet.frame) else packet


def _put(shapes: Shapes, values: dict[Field, int], packet: Packet) -> Packet:
    frame = bytearray(packet.frame)
    for f, value in values.items():
        f.put(frame, value)
    return _repaired(shapes, Packet(packet.port, bytes(frame)))


def _repaired(shapes: Shapes, packet: Packet, lengths: bool = False) -> Packet:
    frame = bytearray(packet.frame)
    Maker.repair(frame, shapes.walk(packet.frame), lengths)
    return Packet(packet.port, bytes(frame))


def _weight(packet: Packet) -> tuple[int, int]:
    return len(packet.frame), sum(b != 0 for b in packet.frame)
