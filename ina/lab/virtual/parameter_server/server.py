"""A server: adds up what workers push, applies it, has it copied along a chain, answers pulls (Li et al., OSDI 2014, section 4).

A push is acknowledged when all servers of the range's chain have what it has changed: those that die take nothing with them that
was acknowledged, and what was not is sent again. A vector clock travels with the values, and says what is in them already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ina.lab.virtual.parameter_server import ring
from ina.lab.virtual.parameter_server.clocks import Piece, VectorClock
from ina.lab.virtual.parameter_server.messages import (
    COPIED,
    COPY,
    PULL,
    PUSH,
    PUSHED,
    STATE,
    Header,
    header,
    pushed,
    read_state,
    spread,
    state,
)
from ina.lab.virtual.parameter_server.ring import Segment


def overlaps(ranges: Sequence[tuple[int, int]], begin: int, end: int) -> bool:
    """True: some of the ranges have keys of ``begin`` to ``end`` - 1."""
    return any(first < end and begin < last for first, last in ranges)


@dataclass
class Layout:
    """Servers of each range, as all nodes know them. ``since``: the epoch from which on each segment is as it is; ``frozen``:
    ranges whose messages are dropped, because they are about to change; ``gone``: workers that are known to be dead."""

    segments: tuple[Segment, ...]
    epoch: int = 0
    since: dict[Segment, int] = field(default_factory=dict)
    frozen: list[tuple[int, int]] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)

    def of(self, head: Header) -> Segment | None:
        """Returns the segment of a message's range; None: it has changed since the message was sent, or is about to."""
        if overlaps(self.frozen, head.begin, head.end):
            return None
        segment = next(part for part in self.segments if part.begin <= head.begin < part.end)
        return segment if head.end <= segment.end and head.epoch >= self.since.get(segment, 0) else None

    def parts(self, begin: int, end: int) -> list[Segment]:
        """Returns the segments of a range, cut off at its ends."""
        return list(ring.within(self.segments, begin, end))


@dataclass(frozen=True)
class Rules:
    """Rules of all servers. ``together``: the pushes of all workers for an iteration are added up, in their order, applied and
    copied at once; else each by itself. ``divisor``: of what is subtracted from values. ``shrink``: by how much values then move
    towards 0, where pushes of all workers are added up; of fewer, by their part of it (the proximal step of an L1 norm)."""

    workers: int
    keys: int
    together: bool
    divisor: float
    shrink: float = 0.0


@dataclass
class _Push:
    """A push that is not acknowledged. ``left``: what is not in all copies, in keys, and in copies under way that have the
    rest."""

    head: Header
    left: int = 0


@dataclass
class _Part:
    """Values of a range of a push, which wait for those of other workers."""

    push: _Push
    begin: int
    end: int
    values: np.ndarray


Post = Callable[[int, bool, np.ndarray, str], None]  # to which server, or worker if True; words; kind


class Server:
    """One server. ``post`` sends its messages. ``values``: of all keys, of which those of its segments count. ``born``: the epoch
    of the layout from which on it serves; of one that joins later the next, whatever the layout says of its number till then."""

    def __init__(self, number: int, rules: Rules, layout: Layout, first: np.ndarray, post: Post, born: int):
        self.number, self.rules, self.layout, self._post = number, rules, layout, post
        self.values = first.copy()
        self.clock = VectorClock(rules.workers, rules.keys)
        self._parts: dict[int, list[list[_Part]]] = {}  # by time, of each worker
        self._copying: dict[int, tuple[int, int, list[tuple[_Push, int]]]] = {}  # range, and what is left less after it
        self._pulls: list[Header] = []
        self._lists: dict[tuple[int, int, int], np.ndarray] = {}  # keys of the latest push, by worker and range
        self._copies, self._born = 0, born

    @property
    def idle(self) -> bool:
        """True: all that it has copied along a chain has come to the end of it."""
        return not self._copying

    @property
    def serves(self) -> bool:
        """True: it has what the layout says of its number."""
        return self._born <= self.layout.epoch

    def receive(self, words: np.ndarray) -> None:
        """Takes a message. One whose range it does not serve, or not yet, is dropped, and one to a server of its number that has
        died or left before it came."""
        head = header(words)
        if head.epoch < self._born:
            return
        if head.kind == COPIED:
            if head.number in self._copying:
                self._copied(self._copying.pop(head.number)[2])
            return
        segment = self.layout.of(head)
        if segment is None or self.number not in segment.chain:
            return
        if head.kind == COPY:
            self._copy(head, words, segment)
        elif self.number == segment.chain[0]:
            {PUSH: self._push, PULL: self._pull}[head.kind](head, words, segment)

    # ---- pushes

    def _push(self, head: Header, words: np.ndarray, segment: Segment) -> None:
        """Takes what is not in the values yet: clocks tell, and so reject what is sent again."""
        keys, entries = pushed(head, words, self._lists.get((head.sender, head.begin, head.end)))
        if keys is not None:
            self._lists[head.sender, head.begin, head.end] = keys
        values, push, fresh = spread(head, keys, entries), _Push(head), []
        for begin, end, time in self.clock.ranges(head.sender, head.begin, head.end):
            if time < head.time:
                fresh.append(_Part(push, begin, end, values[begin - head.begin : end - head.begin]))
                push.left += end - begin
        under_way = [waiting for begin, end, waiting in self._copying.values() if begin < head.end and head.begin < end]
        if under_way:
            under_way[-1].append((push, 1))  # what is in the values may not be in all copies
            push.left += 1
        self._copied([(push, 0)])
        for part in fresh:
            self._take(part, segment)

    def _take(self, part: _Part, segment: Segment) -> None:
        if not self.rules.together:
            self._apply(part.begin, part.end, [part], segment)
            return
        given = self._parts.setdefault(part.push.head.time, [[] for _ in range(self.rules.workers)])
        given[part.push.head.sender].append(part)
        self._settle(part.push.head.time, part.begin, part.end, segment)

    def _settle(self, time: int, first: int, last: int, segment: Segment) -> None:
        """Applies, within a range, the pushes of a time that all workers have given that are not gone; with those of workers that
        have given theirs before they were gone."""
        given = self._parts[time]
        cuts = {bound for worker, parts in enumerate(given) for each in parts
                for begin, end, _ in self.clock.ranges(worker, each.begin, each.end) for bound in (begin, end)}
        bounds = sorted({first, last, *(bound for bound in cuts if first < bound < last)})
        for begin, end in zip(bounds, bounds[1:], strict=False):
            whole = [each for worker, parts in enumerate(given) for each in parts
                     if each.begin <= begin and end <= each.end and self.clock.at(worker, begin) < time]
            if {each.push.head.sender for each in whole} | self.layout.gone >= set(range(self.rules.workers)) and whole:
                self._apply(begin, end, whole, segment)
        left = [[each for each in parts if self._lacks(worker, each, time)] for worker, parts in enumerate(given)]
        if any(left):
            self._parts[time] = left
        else:
            del self._parts[time]

    def _lacks(self, worker: int, part: _Part, time: int) -> bool:
        return any(before < time for *_, before in self.clock.ranges(worker, part.begin, part.end))

    def _apply(self, begin: int, end: int, parts: Sequence[_Part], segment: Segment) -> None:
        total = added([part.values[begin - part.begin : end - part.begin] for part in parts])
        values = self.values[begin:end]
        values -= total / np.float32(self.rules.divisor)
        if self.rules.shrink:
            shrink = np.float32(self.rules.shrink * len(parts) / self.rules.workers)
            values[:] = np.sign(values) * np.maximum(np.abs(values) - shrink, 0)
        for part in parts:
            self.clock.set(part.push.head.sender, begin, end, part.push.head.time)
        waiting = [(part.push, end - begin) for part in parts]
        if len(segment.chain) == 1:
            self._copied(waiting)
        else:
            self._copies += 1
            self._copying[self._copies] = begin, end, waiting
            self._post(segment.chain[1], False, self._state(COPY, self._copies, begin, end), COPY)
        pulls = [pull for pull in self._pulls if pull.begin < end and begin < pull.end]
        self._pulls = [pull for pull in self._pulls if pull not in pulls]
        for pull in pulls:
            self._answer(pull)

    def _copied(self, waiting: Sequence[tuple[_Push, int]]) -> None:
        """Acknowledges the pushes of which nothing is left."""
        for push, less in waiting:
            push.left -= less
            if not push.left:
                head = Header(PUSHED, push.head.number, self.number, self.layout.epoch)
                self._post(push.head.sender, True, head.words(), PUSHED)

    # ---- copies

    def _state(self, kind: str, number: int, begin: int, end: int) -> np.ndarray:
        head = Header(kind, number, self.number, self.layout.epoch, begin, end)
        return state(head, self.clock.pieces(begin, end), self.values[begin:end])

    def _copy(self, head: Header, words: np.ndarray, segment: Segment) -> None:
        """Takes over values of the master, and passes them on; the last of the chain tells the master."""
        self.take(head, *read_state(head, words))
        after = segment.chain.index(self.number) + 1
        if after < len(segment.chain):
            self._post(segment.chain[after], False, words, COPY)
        else:
            self._post(segment.chain[0], False, Header(COPIED, head.number, self.number, self.layout.epoch).words(), COPIED)

    def moved(self, begin: int, end: int) -> np.ndarray:
        """Returns a message with a range for another server, which ``take`` reads there."""
        return self._state(COPY, 0, begin, end)

    def take(self, head: Header, pieces: Sequence[Piece], values: np.ndarray) -> None:
        """Takes over the values of a range and their clock."""
        self.values[head.begin : head.end] = values
        self.clock.merge(pieces)

    # ---- pulls

    def _pull(self, head: Header, words: np.ndarray, segment: Segment) -> None:
        self._answer(head)

    def _answer(self, head: Header) -> None:
        """Answers a pull, or has it wait until the values are new enough."""
        if self.clock.least(head.begin, head.end, self.layout.gone) >= head.time:
            self._post(head.sender, True, self._state(STATE, head.number, head.begin, head.end), STATE)
        else:
            self._pulls.append(head)

    # ---- changes

    def go_on(self) -> None:
        """Goes on without the workers that are gone: applies what waits for them only, and answers who waits for them only.
        Ranges that are frozen wait for their next servers, to which workers send again."""
        for time in sorted(self._parts):
            parts = [each for parts in self._parts[time] for each in parts]
            begin, end = min((each.begin for each in parts), default=0), max((each.end for each in parts), default=0)
            for segment in self.layout.parts(begin, end):
                if (time in self._parts and self.number == segment.chain[0]
                        and not overlaps(self.layout.frozen, segment.begin, segment.end)):
                    self._settle(time, segment.begin, segment.end, segment)
        pulls, self._pulls = self._pulls, []
        for pull in pulls:
            self._answer(pull)

    def forget(self, changed: Sequence[tuple[int, int]]) -> None:
        """Forgets pushes, pulls and copies of ranges that have changed: workers send again what was not answered."""

        def kept(begin: int, end: int) -> bool:
            return not overlaps(changed, begin, end)

        self._parts = {time: [[part for part in parts if kept(part.begin, part.end)] for parts in given]
                       for time, given in self._parts.items()}
        self._copying = {number: entry for number, entry in self._copying.items() if kept(*entry[:2])}
        self._pulls = [head for head in self._pulls if kept(head.begin, head.end)]
        self._lists = {place: keys for place, keys in self._lists.items() if kept(*place[1:])}


def added(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the sum of float32 vectors, added up in their order."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total

