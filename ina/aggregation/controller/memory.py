"""Memory of the controller for jobs that are over, bounded, so that no client makes it forget what belongs to others."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

MOST = 1024  # entries

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memory(Generic[K, V]):
    """A mapping of at most ``most`` entries, each of a holder. Where there are more, the oldest of the holder with the most goes:
    so one that adds without an end forgets its own."""

    def __init__(self, most: int = MOST):
        self._most = most
        self._entries: OrderedDict[K, tuple[Hashable, V]] = OrderedDict()

    def remember(self, key: K, value: V, holder: Hashable) -> None:
        """Adds an entry of ``holder``, or replaces the one with that key."""
        self._entries.pop(key, None)
        self._entries[key] = holder, value
        if len(self._entries) > self._most:
            counts = Counter(each for each, _ in self._entries.values())
            most = max(counts.values())
            del self._entries[next(key for key, (each, _) in self._entries.items() if counts[each] == most)]

    def get(self, key: K) -> V | None:
        """Returns the value; None: there is no such entry."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def forget(self, key: K) -> None:
        """Removes an entry, if there is one."""
        self._entries.pop(key, None)

    def items(self) -> list[tuple[K, V]]:
        """Returns the entries, the oldest first; they may be removed meanwhile."""
        return [(key, value) for key, (_, value) in self._entries.items()]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)
