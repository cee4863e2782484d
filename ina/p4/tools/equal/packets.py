"""Random packets: from the parser's paths, from seeds, and by changing earlier packets of the sequence, so that the next packet
reaches registers that an earlier one has filled."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ina.p4.tools.equal.control import Call
from ina.p4.tools.equal.shapes import Field, Header, Shapes
from ina.p4.tools.equal.values import PORT, Row, Values

LONGEST = 2000  # bytes
FIELDS = 20  # a header with more has a list of values, of one kind
KEPT = 4  # packets of the corpus with the same way through the program


@dataclass(frozen=True, slots=True)
class Packet:
    port: int
    frame: bytes


@dataclass
class Limits:
    """Limits of packets. `largest`: values of fields, by key; `whole`: frames are as long as their IPv4 header's length."""

    largest: dict[str, int] = field(default_factory=dict)
    whole: bool = False

    def keep(self, packet: Packet, shapes: Shapes) -> Packet:
        """Returns the packet, or the nearest one within the limits."""
        if not self.largest and not self.whole:
            return packet
        frame = bytearray(packet.frame)
        headers = shapes.walk(packet.frame)
        for header in headers:
            for f in header.fields:
                if f.key in self.largest and f.get(frame) > self.largest[f.key]:
                    f.put(frame, f.get(frame) % (self.largest[f.key] + 1))
        if self.whole:
            self._fill(frame, headers)
        return Packet(packet.port, bytes(frame))

    @staticmethod
    def _fill(frame: bytearray, headers: Sequence[Header]) -> None:
        ipv4 = next((h for h in headers if h.is_ipv4), None)
        if ipv4 is None:
            return
        start = ipv4.offset // 8
        end = start + int.from_bytes(frame[start + 2 : start + 4], "big")
        if end > LONGEST:
            Maker.repair(frame, headers, lengths=True)
        elif end > len(frame):
            frame += bytes(end - len(frame))


@dataclass
class Maker:
    """Maker of packets. `seeds`: packets from files and scenarios."""

    shapes: Shapes
    values: Values
    ports: Sequence[int]
    seeds: Sequence[Packet]
    rng: random.Random
    limits: Limits = field(default_factory=Limits)
    corpus: dict[object, list[Packet]] = field(default_factory=dict)
    _ways: list[object] = field(default_factory=list)  # keys of the corpus, to choose from

    def learn(self, packet: Packet, way: object) -> None:
        """Keeps a packet if few others went the same `way` through the programs."""
        if way not in self.corpus:
            self.corpus[way] = []
            self._ways.append(way)
        examples = self.corpus[way]
        if len(examples) < KEPT:
            examples.append(packet)

    def sequence(self, length: int) -> list[Packet]:
        packets: list[Packet] = []
        common = self._example()  # the packet that this sequence returns to
        while len(packets) < length:
            packets.append(self.limits.keep(self._next(packets, common), self.shapes))
        return packets

    def _example(self) -> Packet:
        rng = self.rng
        if self.seeds and rng.random() < 0.6:
            return rng.choice(self.seeds)
        if self.corpus and rng.random() < 0.9:
            return rng.choice(self.corpus[rng.choice(self._ways)])
        return self.fresh()

    def _next(self, packets: Sequence[Packet], common: Packet) -> Packet:
        rng, chance = self.rng, self.rng.random()
        if packets and chance < 0.15:
            return rng.choice(packets[-6:])
        if packets and chance < 0.65:
            return self.changed(rng.choice(packets[-6:]))
        if chance < 0.75:
            return self.changed(common)
        if chance < 0.92:
            return self._example()
        return self.changed(self._example()) if chance < 0.97 else self.fresh()

    def fresh(self) -> Packet:
        """Makes a packet along a path of the parser, with the keys of some entries."""
        rng = self.rng
        shape = rng.choice(self.shapes.paths)
        frame = bytearray(shape.size + rng.choice((0, 0, 1, 4, 40)))
        for header in shape.headers:
            for f in header.fields:
                if rng.random() < 0.5:
                    f.put(frame, self.values.choose(f.key, f.width, rng))
        port = rng.choice(self.ports)
        for _ in range(rng.choice((0, 1, 2, 3))):
            if self.values.rows:
                port = self._enter(frame, port, rng.choice(self.values.rows), shape.headers)
        for f, value, mask in shape.wants:
            f.put(frame, f.get(frame) & ~mask | value & mask)
        if rng.random() < 0.9:
            self.repair(frame, shape.headers, lengths=True)
        return Packet(port, bytes(frame))

    def changed(self, packet: Packet) -> Packet:
        rng, frame, port = self.rng, bytearray(packet.frame), packet.port
        headers = self.shapes.walk(packet.frame)
        resized = False
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
            chance = rng.random()
            if chance < 0.35 and self.values.rows:
                port = self._enter(frame, port, self._row(frame, port, headers), headers)
            elif chance < 0.85 and headers:
                self._field(frame, headers)
            elif chance < 0.9:
                port = rng.choice(self.ports)
            elif chance < 0.97:
                self._resize(frame, headers)
                resized = True
            elif len(frame):
                frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.95:
            self.repair(frame, headers, lengths=resized and rng.random() < 0.5)
        return Packet(port, bytes(frame))

    def siblings(self, packet: Packet) -> Iterator[Packet]:
        """Yields the packet with the keys of other entries that match on its port."""
        headers = self.shapes.walk(packet.frame)
        for row in self.values.rows:
            if PORT in row.keys:
                frame = bytearray(packet.frame)
                port = self._enter(frame, packet.port, row, headers)
                self.repair(frame, headers, lengths=False)
                if port != packet.port or frame != packet.frame:
                    yield Packet(port, bytes(frame))

    def successors(self, packet: Packet) -> Iterator[tuple[Packet, Packet]]:
        """Yields pairs: one field increased by one, and by two; fields of the last header that has few."""
        headers = self.shapes.walk(packet.frame)
        few = [h for h in headers if len(h.fields) < FIELDS]
        for f in few[-1].fields if few else ():
            yield self._more(packet, headers, f, 1), self._more(packet, headers, f, 2)

    def _more(self, packet: Packet, headers: Sequence[Header], f: Field, step: int) -> Packet:
        frame = bytearray(packet.frame)
        f.put(frame, f.get(frame) + step)
        self.repair(frame, headers, lengths=False)
        return Packet(packet.port, bytes(frame))

    def _row(self, frame: bytearray, port: int, headers: Sequence[Header]) -> Row:
        """Chooses an entry, mostly of a table of which another entry matches already: another worker in place of this one,
        say."""
        rng, rows = self.rng, self.values.rows
        row = rng.choice(rows)
        if rng.random() < 0.7:
            for candidate in rng.sample(rows, min(6, len(rows))):
                if PORT in candidate.keys and candidate.keys[PORT][0] == port:
                    return rng.choice([r for r in rows if r.table == candidate.table])
        return row

    def _enter(self, frame: bytearray, port: int, row: Row, headers: Sequence[Header]) -> int:
        """Gives a frame the keys of an entry; returns the entry's port, else `port`."""
        places = {f.key: f for h in headers for f in h.fields}
        for key, (value, mask) in row.keys.items():
            if key == PORT:
                port = value
            elif key in places:
                f = places[key]
                f.put(frame, f.get(frame) & ~mask | value & mask)
        return port

    def _field(self, frame: bytearray, headers: Sequence[Header]) -> None:
        rng = self.rng
        header = rng.choice(headers[-3:] if rng.random() < 0.6 else headers)
        if not header.fields:
            return
        f: Field = rng.choice(header.fields)
        value, chance = f.get(frame), rng.random()
        if chance < 0.25:
            value += rng.choice((-1, 1, 1, 2, -2))
        elif chance < 0.4:
            value ^= 1 << rng.randrange(f.width)
        else:
            value = self.values.choose(f.key, f.width, rng)
        f.put(frame, value)

    def _resize(self, frame: bytearray, headers: Sequence[Header]) -> None:
        rng = self.rng
        edges = [(h.offset + h.width) // 8 for h in headers]
        cut = rng.choice([*edges, rng.randrange(len(frame) + 1)])
        if rng.random() < 0.6:
            del frame[cut:]
        if self.values.lengths and rng.random() < 0.4:
            length = min(LONGEST, max(0, rng.choice(sorted(self.values.lengths)) + rng.choice((-1, 0, 0, 1))))
            del frame[length:]
            frame += bytes(length - len(frame))
        elif rng.random() < 0.6 and len(frame) < LONGEST:
            frame += rng.randbytes(rng.choice((1, 2, 4, 8, 60)))

    @staticmethod
    def repair(frame: bytearray, headers: Sequence[Header], lengths: bool) -> None:
        """Corrects the checksums of IPv4 and of a check header; and, with `lengths`, the lengths in IPv4 and UDP."""
        before: Header | None = None
        behind_udp = 0
        for header in headers:
            start, end = header.offset // 8, (header.offset + header.width) // 8
            if end > len(frame):
                return
            if header.is_ipv4:
                if lengths:
                    frame[start + 2 : start + 4] = (len(frame) - start & 0xFFFF).to_bytes(2, "big")
                frame[start + 10 : start + 12] = bytes(2)
                frame[start + 10 : start + 12] = checksum(frame[start:end]).to_bytes(2, "big")
            elif header.is_udp and before is not None and before.is_ipv4:
                behind_udp = end
                if lengths:
                    frame[start + 4 : start + 6] = (len(frame) - start & 0xFFFF).to_bytes(2, "big")
            elif header.is_check and behind_udp:
                frame[start + 2 : start + 4] = bytes(2)
                frame[start + 2 : start + 4] = checksum(frame[behind_udp:end]).to_bytes(2, "big")
            before = header


def checksum(header: bytes | bytearray) -> int:
    """Returns the Internet checksum of a header (RFC 1071)."""
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass(frozen=True)
class Scenario:
    """`letters`: packets for the systematic part. `counters` are compared."""

    calls: tuple[Call, ...]
    packets: tuple[Packet, ...] = ()
    letters: tuple[Packet, ...] = ()
    ports: tuple[int, ...] = ()
    counters: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)


NOTHING = Scenario(calls=())


class KnownPrograms(Protocol):
    """Scenarios of known programs. `DEFINES`: their default macros."""

    DEFINES: dict[str, str]

    def scenario_of(self, p4info: dict[str, Any], path: Path) -> Callable[[dict[str, Any]], Scenario] | None:
        """Returns the maker of a program's scenario, from its P4Info with those macros; None: the program is not known."""
