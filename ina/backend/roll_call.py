"""Detects ranks in different collectives: each rank that waits for long publishes its collectives in the group's store.

Nothing of this happens while collectives take less than ``PATIENCE``. A rank that waits longer publishes the collectives that it
has begun and not ended, by number: the n-th of the group is the same one on all ranks, whether it goes through the switch or
through Gloo. Two ranks whose n-th collectives differ would wait for each other until the time-out.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from typing import NamedTuple

import torch.distributed as dist

from ina.backend.questions import Questions

PATIENCE = 1.0  # seconds in a collective before a rank publishes it, and between two reads of the others' collectives
TELLING = 2.0  # seconds for the others to see it, too, before the first rank ends the job
ANSWER = 1.0  # seconds for the store's answer
MOST = 64  # collectives, the oldest, that a rank publishes


class Disagreement(RuntimeError):
    """The switch's result says that the ranks are in different collectives."""


class Call(NamedTuple):
    """A collective of this rank. Two of one number agree if ``way`` and ``agreed`` are equal."""

    number: int  # in the life of the group
    way: str  # "the switch" or "Gloo"
    agreed: str  # text that must be equal on all ranks
    began: float


class RollCall:
    """The roll call of one rank of one group. Methods may be called from any thread."""

    def __init__(self, store: dist.Store, rank: int, size: int):
        self._questions, self._rank, self._size = Questions(store), rank, size
        self._next = 0
        self._open: dict[int, Call] = {}
        self._looked = 0.0
        self.agree = False  # all ranks were in the same collective in spite of what the switch had found
        self._lock = threading.Lock()  # never held while waiting

    def begin(self, way: str, agreed: str) -> Call:
        """Begins the next collective of the group."""
        call = Call(self._next, way, agreed, time.monotonic())
        self._next += 1
        self._open[call.number] = call
        return call

    def end(self, call: Call) -> None:
        self._open.pop(call.number, None)

    def look(self, call: Call) -> str:
        """Compares the ranks' collectives; a thread that waits for ``call`` calls it again and again. Returns "", or how the
        ranks disagree on some collective; by then all ranks concerned know it, or have had ``TELLING`` for it."""
        now = time.monotonic()
        if now - max(call.began, self._looked) < PATIENCE or not self._lock.acquire(blocking=False):
            return ""
        try:
            self._looked = now
            number, calls = self._compare(self._exchange())
            if calls:
                self._wait_for(f"seen/{number}", calls)
                return self._text(number, calls)
            return ""
        finally:
            self._lock.release()

    def differing(self, call: Call) -> str:
        """Compares like ``look``, once the switch has found that the ranks disagree on ``call`` or one before it; "" if no rank
        publishes the difference, or all publish the same (``agree``)."""
        deadline = time.monotonic() + TELLING
        self._open.setdefault(call.number, call)
        while True:
            reports = self._exchange()
            number, calls = self._compare(reports)
            if calls and (len(calls) == self._size or time.monotonic() > deadline):
                return self._text(number, calls)
            self.agree = not calls and all(call.number in reports.get(rank, {}) for rank in range(self._size))
            if self.agree or time.monotonic() > deadline:
                return ""
            time.sleep(0.02)

    def _exchange(self) -> dict[int, dict[int, list[str]]]:
        """Publishes this rank's open collectives, and returns every rank's: by rank and number, [way, agreed]."""
        oldest = sorted(self._open.copy().values(), key=lambda call: call.number)[:MOST]
        calls = {call.number: [call.way, call.agreed] for call in oldest}
        reports = {self._rank: calls}

        def exchange(store: dist.Store) -> dict[int, dict[int, list[str]]]:
            store.set(f"rank/{self._rank}", json.dumps(calls))
            return {rank: {int(n): call for n, call in json.loads(store.get(f"rank/{rank}")).items()}
                    for rank in range(self._size) if rank != self._rank and store.check([f"rank/{rank}"])}

        with suppress(RuntimeError):  # the store's rank has ended, or stands still, which is detected elsewhere
            reports |= self._questions.ask(exchange, ANSWER)
        return reports

    def _compare(self, reports: dict[int, dict[int, list[str]]]) -> tuple[int, dict[int, list[str]]]:
        """Returns the first collective on which ranks disagree, with each rank's; (0, {}): there is none."""
        for number in sorted(reports[self._rank]):
            calls = {rank: open_calls[number] for rank, open_calls in sorted(reports.items()) if number in open_calls}
            if len({(way, agreed) for way, agreed in calls.values()}) > 1:
                return number, calls
        return 0, {}

    def _wait_for(self, place: str, ranks: dict[int, list[str]]) -> None:
        deadline = time.monotonic() + TELLING
        with suppress(RuntimeError):
            self._questions.ask(lambda store: store.set(f"{place}/{self._rank}", ""), ANSWER)
            self._questions.missing([f"{place}/{rank}" for rank in ranks], deadline, ANSWER)

    def _text(self, number: int, calls: dict[int, list[str]]) -> str:
        each = "; ".join(f"rank {rank} is in {agreed} (through {way})" for rank, (way, agreed) in calls.items())
        return f"the ranks do not agree on the group's collective #{number}: {each}"
