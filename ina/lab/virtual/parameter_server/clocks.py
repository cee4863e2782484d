"""Vector clocks of ranges of keys (Li et al., OSDI 2014, section 4.1): one time for a range, not for each key."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple


class Piece(NamedTuple):
    """Keys ``begin`` to ``end`` - 1 of a worker, which have one time."""

    worker: int
    begin: int
    end: int
    time: int


class RangeClock:
    """Time of one worker for each of ``keys`` keys, at first 0 for all. Neighbours of the same time are one range."""

    def __init__(self, keys: int):
        self.keys = keys
        self._begins, self._times = [0], [0]

    def set(self, begin: int, end: int, time: int) -> None:
        """Sets the time of keys ``begin`` to ``end`` - 1: Algorithm 2, which splits at most two ranges; and merges what has
        become the same, which the paper leaves open."""
        if not 0 <= begin < end <= self.keys:
            raise ValueError(f"keys {begin} to {end}: expected a range of the {self.keys} keys")
        after = self.at(end) if end < self.keys else None
        first, last = bisect_left(self._begins, begin), bisect_right(self._begins, end)
        self._begins[first:last], self._times[first:last] = [begin], [time]
        if after is not None:
            self._begins.insert(first + 1, end)
            self._times.insert(first + 1, after)
        for place in (first + 1, first):
            if 0 < place < len(self._times) and self._times[place - 1] == self._times[place]:
                del self._begins[place], self._times[place]

    def at(self, key: int) -> int:
        """Returns the time of a key."""
        return self._times[bisect_right(self._begins, key) - 1]

    def ranges(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yields the ranges of ``begin`` to ``end`` - 1, cut off there, with their times."""
        place = bisect_right(self._begins, begin) - 1
        while place < len(self._begins) and self._begins[place] < end:
            last = self._begins[place + 1] if place + 1 < len(self._begins) else self.keys
            yield max(begin, self._begins[place]), min(end, last), self._times[place]
            place += 1

    def least(self, begin: int, end: int) -> int:
        """Returns the least time within a range."""
        return min(self._times[bisect_right(self._begins, begin) - 1 : bisect_left(self._begins, end)])

    def __len__(self) -> int:
        return len(self._begins)


class VectorClock:
    """Times of all workers by range of keys: of each, its last push that is in the values."""

    def __init__(self, workers: int, keys: int):
        self._clocks = [RangeClock(keys) for _ in range(workers)]

    def set(self, worker: int, begin: int, end: int, time: int) -> None:
        """Sets a worker's time of a range."""
        self._clocks[worker].set(begin, end, time)

    def at(self, worker: int, key: int) -> int:
        """Returns a worker's time of a key."""
        return self._clocks[worker].at(key)

    def ranges(self, worker: int, begin: int, end: int) -> list[tuple[int, int, int]]:
        """Returns the ranges of a worker within a range, cut off there, with their times."""
        return list(self._clocks[worker].ranges(begin, end))

    def least(self, begin: int, end: int, gone: Collection[int] = ()) -> int:
        """Returns the least time of all workers within a range, other than of those that are ``gone``."""
        return min(clock.least(begin, end) for worker, clock in enumerate(self._clocks) if worker not in gone)

    def pieces(self, begin: int, end: int) -> list[Piece]:
        """Returns the clock of a range, as a message has it."""
        return [Piece(worker, *piece) for worker, clock in enumerate(self._clocks) for piece in clock.ranges(begin, end)]

    def merge(self, pieces: Sequence[Piece]) -> None:
        """Takes over the times of a message."""
        for piece in pieces:
            self.set(*piece)

    def __len__(self) -> int:
        """Returns how many ranges have a time of their own, of all workers together."""
        return sum(map(len, self._clocks))
