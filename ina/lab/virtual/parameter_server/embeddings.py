"""A table of embeddings at servers, and a worker's cache of it with bounded staleness (HET; Miao et al., VLDB 2022).

Each embedding has a clock of its own, the number of updates in it. A worker applies its updates to its cached copy, which may
lack updates that servers have when it is read, and keeps some of its own back. The rules are those of the authors' code (Hetu,
src/hetu_cache): servers are told the clocks of all that a worker is about to read, and answer with what is missing or lacks too
much; a copy with more than ``push`` own updates, or one that is evicted with some, is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MISSING = -1  # clock of an embedding that a cache does not have
POLICIES = ("lru", "lfu")


class Table:
    """All embeddings, float32, a row each, and their clocks."""

    def __init__(self, values: np.ndarray):
        self.values, self.clocks = values.copy(), np.zeros(len(values), np.int64)

    def outdated(self, keys: np.ndarray, clocks: np.ndarray, bound: int) -> np.ndarray:
        """Returns the places of ``keys`` whose copies are missing, or lack more than ``bound`` updates."""
        return np.flatnonzero((clocks == MISSING) | (self.clocks[keys] - clocks > bound))

    def add(self, keys: np.ndarray, updates: np.ndarray, changes: np.ndarray) -> None:
        """Adds up changes of distinct ``keys``, which are so many updates of each."""
        self.values[keys] += changes
        self.clocks[keys] += updates


@dataclass
class Copy:
    """An embedding in a cache. ``clock``: updates in it, without the ``updates`` that it has and the servers do not, which sum up
    to ``unsent``; ``used``: how often it was read."""

    clock: int
    values: np.ndarray
    unsent: np.ndarray
    updates: int = 0
    used: int = 0


class Cache:
    """Copies of up to ``room`` embeddings; 0: none, which fetches and sends everything. ``policy``: lru evicts what was used
    longest ago, lfu what was used least, and of that the oldest."""

    def __init__(self, room: int, policy: str, push: int):
        self.room, self.policy, self.push = room, policy, push
        self.copies: dict[int, Copy] = {}  # in the order of their latest use
        self._evicted: dict[int, Copy] = {}

    def clocks(self, keys: Sequence[int]) -> np.ndarray:
        """Returns the clocks of copies that are about to be read."""
        return np.array([self.copies[key].clock if key in self.copies else MISSING for key in keys], np.int64)

    def fetched(self, keys: Sequence[int], clocks: Sequence[int], values: np.ndarray) -> None:
        """Takes what the servers have answered: own updates that they do not have stay in the copies."""
        for key, clock, row in zip(keys, clocks, values, strict=True):
            copy = self.copies.get(key)
            if copy is None:
                self.copies[key] = Copy(clock, row.copy(), np.zeros_like(row))
            else:
                copy.clock, copy.values = clock, row + copy.unsent

    def read(self, keys: Sequence[int]) -> np.ndarray:
        """Returns the values of ``keys``, all of which are there, a row each; evicts others for which there is no room."""
        for key in keys:
            copy = self.copies.pop(key)
            copy.used += 1
            self.copies[key] = copy
        fresh = set(keys)
        while len(self.copies) > max(self.room, len(fresh)):
            old = [key for key in self.copies if key not in fresh] if self.policy == "lfu" else self.copies
            key = min(old, key=lambda key: self.copies[key].used) if self.policy == "lfu" else next(iter(old))
            copy = self.copies.pop(key)
            if copy.updates:
                self._evicted[key] = copy
        return np.array([self.copies[key].values for key in keys])

    def update(self, keys: Sequence[int], changes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Adds a change, float32, to each copy, a row each. Returns what is to be sent now: keys, in order, the number of updates
        of each, and their sums, a row each."""
        for key, change in zip(keys, changes, strict=True):
            copy = self.copies[key]
            copy.values = copy.values + change
            copy.unsent = copy.unsent + change
            copy.updates += 1
        full = {key: self.copies[key] for key in keys if self.copies[key].updates > self.push or not self.room}
        sent = {**self._evicted, **full}
        self._evicted = {}
        order = sorted(sent)
        numbers = np.array([sent[key].updates for key in order], np.int64)
        sums = np.array([sent[key].unsent for key in order], np.float32) if order else changes[:0]
        for copy in sent.values():
            copy.clock += copy.updates
            copy.updates, copy.unsent = 0, np.zeros_like(copy.unsent)
        if not self.room:
            self.copies.clear()
        return np.array(order, np.int64), numbers, sums

    def rest(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns all that has not been sent, as ``update`` does, at the end of a training."""
        self._evicted |= {key: copy for key, copy in self.copies.items() if copy.updates}
        return self.update([], np.empty((0, 0), np.float32))
