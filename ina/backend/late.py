"""Tells whom a collective waits for, while it waits.

The switch answers a packet that is sent again with the workers whose values it lacks, so each rank that waits knows the ranks
that are late, as of an answer that is up to half a second old. So the lowest rank that is not late itself warns at the first
answer that comes ``AFTER`` seconds without any result, and each time that ten times as much has passed;
`ina.backend.stats()["late"]` counts on all that have waited.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ina.backend.counters import COUNTERS
from ina.base.native import lib

AFTER = 0.5  # seconds, from the first look on, which comes up to 0.3 s after the call
FIRST = 5.0  # seconds, as long as the job has had no result: its ranks are being started
SILENT = 1.0  # seconds without any answer
GAP = 1.0  # seconds between two looks: nobody has waited meanwhile
MOST = 64  # waits that nobody has ended


@dataclass
class _Wait:
    """A wait of this rank since the last result. ``looked``: the last time; ``answers``: that had come until then; ``results``,
    ``packets``: when it began; ``due``: seconds until it tells; ``seconds``: by rank, how long it was late."""

    began: float
    looked: float
    results: int
    answers: int
    packets: int
    due: float
    seconds: Counter[int]

    def long(self) -> dict[int, float]:
        """Returns the ranks that were late for long, and how long."""
        return {rank: seconds for rank, seconds in self.seconds.items() if seconds >= AFTER}


class Late:
    """The waits of one rank of a job. ``ranks``: returns the group's ranks in the default group, by which people know them."""

    def __init__(self, rank: int, workers: int, ranks: Callable[[], Sequence[int]]) -> None:
        self._rank, self._workers, self._ranks = rank, workers, ranks
        self._waits: dict[int, _Wait] = {}  # by number of the collective

    def look(self, number: int, description: str, stats: dict[str, int], runner: int | None = None) -> None:
        """Looks at a collective that is not done; called again and again while some thread waits for it. ``stats``: the native
        worker's statistics, now. ``runner``: the rank that kept this one from running the job's switch."""
        now, wait = time.monotonic(), self._waits.get(number)
        if wait is None or now - wait.looked > GAP or stats["results"] != wait.results:  # something moves: nobody is late
            before = {} if wait is None else wait.long()
            while len(self._waits) > MOST:
                self._waits.pop(next(iter(self._waits)), None)
            due = AFTER if stats["results"] else FIRST
            self._waits[number] = _Wait(now, now, stats["results"], stats["pending_replies"], stats["rx_packets"], due,
                                        Counter(before))
            return
        late = self._late(stats)
        wait.seconds.update(dict.fromkeys(late, now - wait.looked))
        waited, answered = now - wait.began, stats["pending_replies"] != wait.answers
        wait.looked, wait.answers = now, stats["pending_replies"]
        silent = stats["rx_packets"] == wait.packets and waited >= max(wait.due, SILENT)
        if not silent and not (answered and waited >= wait.due):
            return
        wait.due = 10 * waited
        if text := self._text(late, silent, stats, runner):
            warnings.warn(f"ina: rank {self._ranks()[self._rank]} has waited for {waited:.1f} s in collective #{number} "
                          f"({description}): {text}", RuntimeWarning, stacklevel=2)

    def done(self, number: int) -> None:
        """Counts the wait for a collective that has ended, and the ranks that were late for long."""
        wait = self._waits.pop(number, None)
        if wait is not None:
            ranks = self._ranks()
            COUNTERS.waited({ranks[rank]: seconds for rank, seconds in wait.long().items()})

    def _late(self, stats: dict[str, int]) -> list[int]:
        """Returns the late ranks of the group, as far as they are known: of larger groups, bits are children of some switch."""
        known = self._workers <= lib.INA_BITMAP_WORKERS
        return [rank for rank in range(self._workers) if stats["waits_for"] >> rank & 1] if known else []

    def stands_still(self, runner: int) -> str:
        """Says that a rank of the group which runs the job's switch keeps the others from it."""
        return (f"rank {self._ranks()[runner]} stands still while it runs the job's switch: it is stopped (by SIGSTOP or a "
                "debugger), or gets no processor")

    def _text(self, late: list[int], silent: bool, stats: dict[str, int], runner: int | None) -> str:
        if silent and runner is not None:
            return self.stands_still(runner)
        if silent:
            return "nothing has come from the switch: it, or the link to it, is down or stands still"
        if late and self._rank == min({*range(self._workers)} - {*late}, default=0):
            ranks = self._ranks()
            each = ", ".join(str(ranks[rank]) for rank in late)
            return f"rank{'s' * (len(late) > 1)} {each} {'are' if len(late) > 1 else 'is'} late, stuck or dead"
        if stats["waits_for"] and not late:
            return "children of some switch of the job's tree are late, stuck or dead"
        return ""
