"""Tells whom a collective waits for, while it waits.

The switch answers a packet that is sent again with the workers whose values it lacks, so each rank that waits knows the ranks
that are late. After ``AFTER`` seconds without any result, and each time that ten times as much has passed, the lowest rank that
is not late itself warns; `ina.backend.stats()["late"]` counts on all that have waited.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

from ina.backend.counters import COUNTERS
from ina.base.native import lib

AFTER = 0.7  # seconds, from the first look on, which comes up to 0.3 s after the call
FIRST = 5.0  # seconds, as long as the job has had no result: its ranks are being started


@dataclass
class _Wait:
    """A wait of this rank. ``seen``: packets that had come when it began; ``due``: seconds until it tells; ``ranks``: that were
    late when it last looked."""

    began: float
    seen: int
    due: float
    ranks: tuple[int, ...] = ()


class Late:
    """The waits of one rank of a job."""

    def __init__(self, rank: int, workers: int) -> None:
        self._rank, self._workers = rank, workers
        self._waits: dict[int, _Wait] = {}  # by number of the collective

    def look(self, number: int, description: str, stats: dict[str, int]) -> None:
        """Looks at a collective that is not done; called again and again while some thread waits for it. ``stats``: the native
        worker's statistics, now."""
        wait = self._waits.get(number)
        if wait is None:
            self._waits[number] = _Wait(time.monotonic(), stats["rx_packets"], AFTER if stats["results"] else FIRST)
            return
        waited = time.monotonic() - wait.began
        if waited < wait.due:
            return
        wait.due = 10 * waited
        known = self._workers <= lib.INA_BITMAP_WORKERS  # else the bits are children of some switch
        wait.ranks = tuple(rank for rank in range(self._workers) if stats["waits_for"] >> rank & 1) if known else ()
        if text := self._text(wait, stats):
            warnings.warn(f"ina: rank {self._rank} has waited for {waited:.1f} s in collective #{number} ({description}): {text}",
                          RuntimeWarning, stacklevel=2)

    def done(self, number: int) -> None:
        """Counts the wait for a collective that has ended, if it was long."""
        wait = self._waits.pop(number, None)
        if wait is not None and wait.ranks:
            COUNTERS.waited(wait.ranks, time.monotonic() - wait.began)

    def _text(self, wait: _Wait, stats: dict[str, int]) -> str:
        if stats["rx_packets"] == wait.seen:
            return "nothing has come from the switch: it, or the link to it, is down or stands still"
        if wait.ranks and self._rank == min({*range(self._workers)} - {*wait.ranks}, default=0):
            each = ", ".join(map(str, wait.ranks))
            return f"rank{'s' * (len(wait.ranks) > 1)} {each} {'are' if len(wait.ranks) > 1 else 'is'} late, stuck or dead"
        if stats["waits_for"] and not wait.ranks:
            return "children of some switch of the job's tree are late, stuck or dead"
        return ""
