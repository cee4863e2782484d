"""Ranges of keys on a ring of servers (Li et al., OSDI 2014, sections 4.3 and 4.4).

Each server is at several points of the ring, its virtual servers, which a hash of its number says. Keys are on the ring in their
order, so that a range of keys stays one. From each point on, keys belong to that server, the master, up to the next point; the
servers of the next points against the order of keys have copies: a server has those of the ranges that follow its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple


class Segment(NamedTuple):
    """Keys ``begin`` to ``end`` - 1. ``chain``: the master, and the servers with copies, in the order in which they get them."""

    begin: int
    end: int
    chain: tuple[int, ...]


def segments(keys: int, servers: Collection[int], replicas: int, points: int) -> tuple[Segment, ...]:
    """Returns who has which of ``keys`` keys, in order. ``replicas``: copies of each, fewer where there are not enough other
    servers; ``points``: of each server on the ring. A point that no key is at has no segment."""
    ring = sorted((_point(keys, server, point), server) for server in servers for point in range(points))
    if not ring:
        raise ValueError("a ring without servers")
    parts = []
    for place, (begin, _) in enumerate(ring):
        end = ring[place + 1][0] if place + 1 < len(ring) else keys
        order = dict.fromkeys(ring[(place - back) % len(ring)][1] for back in range(len(ring)))
        if begin < end:  # of points at one key, the last has the segment, and the others are those before it
            parts.append(Segment(begin, end, tuple(order)[: 1 + replicas]))
    if ring[0][0]:  # the ring closes: keys before the first point follow the last one
        parts.insert(0, Segment(0, ring[0][0], parts[-1].chain))
    return _joined(parts)


def _point(keys: int, server: int, point: int) -> int:
    digest = hashlib.sha256(f"{server}/{point}".encode()).digest()
    return int.from_bytes(digest[:8], "big") * keys >> 64


def _joined(parts: Sequence[Segment]) -> tuple[Segment, ...]:
    """Joins neighbours with the same chain."""
    whole: list[Segment] = []
    for part in parts:
        if whole and whole[-1].chain == part.chain:
            whole[-1] = Segment(whole[-1].begin, part.end, part.chain)
        else:
            whole.append(part)
    return tuple(whole)


def refined(old: Sequence[Segment], new: Sequence[Segment]) -> Iterator[tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
    """Yields the ranges that have one old and one new chain, with both."""
    bounds = sorted({part.begin for part in (*old, *new)} | {old[-1].end})
    before, after = iter(old), iter(new)
    a, b = next(before), next(after)
    for begin, end in zip(bounds, bounds[1:], strict=False):
        if begin >= a.end:
            a = next(before)
        if begin >= b.end:
            b = next(after)
        yield begin, end, a.chain, b.chain


def within(parts: Sequence[Segment], begin: int, end: int) -> Iterator[Segment]:
    """Yields the segments of a range of keys, cut off at its ends."""
    for part in parts:
        if part.begin < end and begin < part.end:
            yield Segment(max(begin, part.begin), min(end, part.end), part.chain)
