"""Figures of all ranks, of which the largest count."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

import torch.distributed as dist

from ina.backend.questions import Questions


class Ballot:
    """``store``: of this group and for nothing else; ``patience``: seconds for the figures of the other ranks."""

    def __init__(self, store: dist.Store, rank: int, size: int, patience: Callable[[], float]) -> None:
        self._questions, self._rank, self._size, self._patience = Questions(store), rank, size, patience

    def give(self, question: str, figures: Sequence[float]) -> None:
        """Gives this rank's figures, from any thread; waits for nobody."""
        text = json.dumps(list(figures))
        self._questions.ask(lambda store: store.set(f"{question}/{self._rank}", text), self._patience())

    def largest(self, question: str) -> list[float]:
        """Returns the largest of each figure. Waits for the ranks that have not given theirs; RuntimeError names those that do
        not in time."""
        keys, seconds = [f"{question}/{rank}" for rank in range(self._size)], self._patience()
        if missing := self._questions.missing(keys, time.monotonic() + seconds, seconds):
            raise RuntimeError(f"ina: ranks {[keys.index(key) for key in missing]} did not say what they measured of {question} "
                               f"within {seconds:g} s: did they make the same calls?")
        texts = self._questions.ask(lambda store: [store.get(key) for key in keys], seconds)
        return [max(each) for each in zip(*map(json.loads, texts), strict=True)]

    def complete(self, question: str, moment: int) -> bool:
        """Returns whether all ranks' figures were there when the first rank asked so at this ``moment``; the same on all ranks.
        Waits for nobody."""

        def given(store: dist.Store) -> bool:
            answer = store.check([f"{question}/{rank}" for rank in range(self._size)])
            return store.compare_set(f"{question}/at {moment}", "", "yes" if answer else "no") == b"yes"

        return self._questions.ask(given, self._patience())
