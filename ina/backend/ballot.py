"""Figures of all ranks, of which the largest count."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist

from ina.backend.questions import Questions

PAUSE = 1e-3  # seconds between looks at the store


class Ballot:
    """``store``: of this group and for nothing else; ``timeout``: for the figures of the other ranks."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        self._questions, self._rank, self._size, self._timeout = Questions(store), rank, size, timeout.total_seconds()

    def give(self, question: str, figures: Sequence[float]) -> None:
        """Gives this rank's figures, from any thread; waits for nobody."""
        text = json.dumps(list(figures))
        self._questions.ask(lambda store: store.set(f"{question}/{self._rank}", text), self._timeout)

    def largest(self, question: str) -> list[float]:
        """Returns the largest of each figure. Waits for the ranks that have not given theirs; RuntimeError names those that do
        not in time."""
        missing: Sequence[int] = range(self._size)
        deadline = time.monotonic() + self._timeout

        def late(store: dist.Store) -> list[int]:
            return [rank for rank in missing if not store.check([f"{question}/{rank}"])]

        while missing := self._questions.ask(late, self._timeout):
            # Looks, because a store that waits lets no other thread of this rank give anything.
            if time.monotonic() > deadline:
                raise RuntimeError(f"ina: ranks {missing} did not say what they measured of {question} within "
                                   f"{self._timeout:g} s: did they make the same calls?")
            time.sleep(PAUSE)
        keys = [f"{question}/{rank}" for rank in range(self._size)]
        texts = self._questions.ask(lambda store: [store.get(key) for key in keys], self._timeout)
        return [max(each) for each in zip(*map(json.loads, texts), strict=True)]

    def complete(self, question: str, moment: int) -> bool:
        """Returns whether all ranks' figures were there when the first rank asked so at this ``moment``; the same on all ranks.
        Waits for nobody."""

        def given(store: dist.Store) -> bool:
            answer = store.check([f"{question}/{rank}" for rank in range(self._size)])
            return store.compare_set(f"{question}/at {moment}", "", "yes" if answer else "no") == b"yes"

        return self._questions.ask(given, self._timeout)
