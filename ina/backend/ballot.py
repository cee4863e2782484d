"""Figures of all ranks, of which the largest count."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist

PAUSE = 1e-3  # seconds between looks at the store


class Ballot:
    """``store``: of this group and for nothing else; ``timeout``: for the figures of the other ranks."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        self._store, self._rank, self._size, self._timeout = store, rank, size, timeout.total_seconds()

    def give(self, question: str, figures: Sequence[float]) -> None:
        """Gives this rank's figures, from any thread; waits for nobody."""
        self._store.set(f"{question}/{self._rank}", json.dumps(list(figures)))

    def largest(self, question: str) -> list[float]:
        """Returns the largest of each figure. Waits for the ranks that have not given theirs; RuntimeError names those that do
        not in time."""
        missing: Sequence[int] = range(self._size)
        deadline = time.monotonic() + self._timeout
        while missing := [rank for rank in missing if not self._store.check([f"{question}/{rank}"])]:
            # Looks, because a store that waits lets no other thread of this rank give anything.
            if time.monotonic() > deadline:
                raise RuntimeError(f"ina: ranks {missing} did not say what they measured of {question} within "
                                   f"{self._timeout:g} s: did they make the same calls?")
            time.sleep(PAUSE)
        given = [json.loads(self._store.get(f"{question}/{rank}")) for rank in range(self._size)]
        return [max(each) for each in zip(*given, strict=True)]

    def complete(self, question: str, moment: int) -> bool:
        """Returns whether all ranks' figures were there when the first rank asked so at this ``moment``; the same on all ranks.
        Waits for nobody."""
        given = self._store.check([f"{question}/{rank}" for rank in range(self._size)])
        return self._store.compare_set(f"{question}/at {moment}", "", "yes" if given else "no") == b"yes"
