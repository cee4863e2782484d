"""Reduction of counter-examples: fewer packets, then plainer fields."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ina.p4.tools.equal.comparison import Difference, Twins
from ina.p4.tools.equal.packets import FIELDS, Maker, Packet
from ina.p4.tools.equal.shapes import Field, Shapes


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
