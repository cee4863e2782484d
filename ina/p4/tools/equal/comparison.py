"""Both programs side by side: the same packets into each, and the comparison of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ina.p4.tools.equal.packets import Packet
from ina.p4.tools.equal.shapes import Header, Shapes
from ina.p4.tools.equal.sides import Answer, Side


@dataclass(frozen=True)
class Difference:
    """`packet`: its index in the sequence, from 0. `kind`: "frames", "digests", "counter NAME" or "register NAME"."""

    packet: int
    kind: str
    text: str


@dataclass
class Rules:
    """Permitted differences, and state that is compared beside frames. `ports`: the second program's, by the first one's.
    `counters`, `registers`: (name in the first, in the second)."""

    ports: dict[int, int] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()  # fields of frames that leave
    any_order: bool = False  # of frames that leave by one port
    digests: bool = True
    digest_names: bool = False  # digests have the same names in both programs; else names are not compared
    counters: tuple[tuple[str, str], ...] = ()
    registers: tuple[tuple[str, str], ...] = ()


class Twins:
    """Both programs. `shapes`: of the first program; its fields are those that rules ignore."""

    def __init__(self, a: Side, b: Side, shapes: Shapes, rules: Rules) -> None:
        self.a, self.b, self.shapes, self.rules = a, b, shapes, rules
        self._back = {theirs: ours for ours, theirs in rules.ports.items()}
        self.steps = self.answered = 0  # packets, and those of them that made a frame leave

    def reset(self) -> None:
        self.a.reset()
        self.b.reset()

    def send(self, packet: Packet) -> tuple[Answer, Answer]:
        """Sends a packet into both; returns both answers, with the first program's port numbers."""
        self.steps += 1
        a = self.a.send(packet.port, packet.frame)
        b = self.b.send(self.rules.ports.get(packet.port, packet.port), packet.frame)
        self.answered += bool(a.sent or b.sent)
        if self._back:
            b = Answer(tuple(sorted((self._back.get(port, port), frames) for port, frames in b.sent)), b.digests)
        return a, b

    def differ(self, packet: Packet, a: Answer, b: Answer) -> tuple[str, str] | None:
        """Returns the first difference of two answers as (kind, text), or None."""
        if a.sent != b.sent and (text := self._frames(packet, a, b)):
            return "frames", text
        if self.rules.digests and a.digests != b.digests:
            left, right = ([(self.rules.digest_names and name, values) for name, values in x.digests] for x in (a, b))
            if left != right:
                return "digests", f"A: {_digests(a)}; B: {_digests(b)}"
        return None

    def _frames(self, packet: Packet, a: Answer, b: Answer) -> str:
        ours, theirs = dict(a.sent), dict(b.sent)
        for port in sorted({*ours, *theirs}):
            left, right = ([self._masked(f, packet) for f in frames.get(port, ())] for frames in (ours, theirs))
            if self.rules.any_order:
                left, right = sorted(left), sorted(right)
            if left == right:
                continue
            if len(left) != len(right):
                return f"port {port}: A sends {_count(len(left))}, B {_count(len(right))}"
            number = next(i for i, (x, y) in enumerate(zip(left, right, strict=True)) if x != y)
            place = "" if len(left) == 1 else f", frame {number + 1}"
            return f"port {port}{place}: {self._bytes(left[number], right[number], packet)}"
        return ""

    def headers(self, frame: bytes, packet: Packet) -> tuple[Header, ...]:
        """Returns the headers of a frame that left because of a packet. Where the parser would stop early (an answer goes to a
        worker's port, say), those of the packet."""
        headers, origin = self.shapes.walk(frame), self.shapes.walk(packet.frame)
        if origin[: len(headers)] == headers:
            return tuple(h for h in origin if h.offset + h.width <= 8 * len(frame))
        return headers

    def _masked(self, frame: bytes, packet: Packet) -> bytes:
        if not self.rules.ignored:
            return frame
        clear = bytearray(frame)
        for header in self.headers(frame, packet):
            for f in header.fields:
                if f.key in self.rules.ignored or f.key.partition(".")[0] in self.rules.ignored:
                    f.put(clear, 0)
        return bytes(clear)

    def _bytes(self, x: bytes, y: bytes, packet: Packet) -> str:
        if len(x) != len(y):
            return f"A sends {len(x)} bytes, B {len(y)}"
        at = next(i for i in range(len(x)) if x[i] != y[i])
        for header in self.headers(x, packet):
            for f in header.fields:
                if f.offset <= 8 * at + 7 and f.offset + f.width > 8 * at and f.get(x) != f.get(y):
                    return f"{f.key}: A {f.get(x):#x}, B {f.get(y):#x} (byte {at})"
        return f"byte {at}: A {x[at]:02x}, B {y[at]:02x}"

    def state(self) -> tuple[str, str] | None:
        """Compares the counters and registers that the rules name, as they are now."""
        pairs = [("counter", *pair) for pair in self.rules.counters] + [("register", *pair) for pair in self.rules.registers]
        for kind, ours, theirs in pairs:
            left, right = (self.a.counter(ours), self.b.counter(theirs)) if kind == "counter" else \
                (self.a.register(ours), self.b.register(theirs))
            if left != right:
                at = next((i for i, (x, y) in enumerate(zip(left, right, strict=False)) if x != y), min(len(left), len(right)))
                cells = [str(cells[at]) if at < len(cells) else "no such cell" for cells in (left, right)]
                name = ours.rpartition(".")[2]
                return f"{kind} {name}", f"{kind} {name}[{at}]: A {cells[0]}, B {cells[1]}"
        return None

    def run(self, packets: Sequence[Packet], close: bool = False) -> Difference | None:
        """Sends packets from the start. `close`: compares counters and registers after each packet, else after the last."""
        self.reset()
        for number, packet in enumerate(packets):
            difference = self.differ(packet, *self.send(packet))
            if difference is None and (close or number == len(packets) - 1):
                difference = self.state()
            if difference is not None:
                return Difference(number, *difference)
        return None


def _count(frames: int) -> str:
    return "nothing" if frames == 0 else "a frame" if frames == 1 else f"{frames} frames"


def _digests(answer: Answer) -> str:
    return ", ".join(f"{name}{values}" for name, values in answer.digests) or "none"
