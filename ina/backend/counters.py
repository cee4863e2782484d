"""Counters of the back end: collectives through the switch and through Gloo, with the reasons."""

from __future__ import annotations

import time
from collections import Counter
from typing import Protocol
from weakref import WeakSet

from ina.backend.locks import Lock
from ina.backend.sums import Sum
from ina.base.native import ffi

PATIENCE = 60.0  # seconds for another thread that counts


# Fields of struct ina_worker_stats that add up over jobs: all but times.
WORKER = tuple(name for name, _ in ffi.typeof("struct ina_worker_stats").fields if not name.endswith("_ps"))


class Reporting(Protocol):
    """A job (job.py)."""

    def worker_stats(self) -> dict[str, int]:
        """Returns the native worker's statistics that add up over jobs."""


class Counters:
    """Counters of a process. ``snapshot()`` gives

    switch     calls, sums, elements and bytes of collectives through the switch, as they travelled, and seconds during which
               at least one was in flight
    calls      by collective: how many went through the switch, how many through Gloo
    reasons    by collective and reason: why a call went to Gloo
    worker     the sum of the native worker statistics over all jobs: packets, retransmissions, time-outs, drops ...
    """

    def __init__(self) -> None:
        self._lock = Lock("the counters", lambda: PATIENCE)
        self._jobs: WeakSet[Reporting] = WeakSet()
        self.reset()

    def reset(self) -> None:
        with self._lock:
            self._switch: Counter[str] = Counter()
            self._calls: dict[str, Counter[str]] = {}
            self._reasons: Counter[str] = Counter()
            self._worker: Counter[str] = Counter()
            self._base: Counter[str] = Counter()
            self._in_flight = 0
            self._busy_since = 0.0
            self._busy = 0.0
            for job in self._jobs:
                self._base.update(job.worker_stats())

    def job_opened(self, job: Reporting) -> None:
        """Adds a job: each snapshot calls ``job.worker_stats()`` until ``job_closed``."""
        with self._lock:
            self._jobs.add(job)

    def job_closed(self, job: Reporting) -> None:
        with self._lock:
            if job in self._jobs:
                self._jobs.discard(job)
                self._worker.update(job.worker_stats())

    def through_switch(self, collective: str, parts: list[Sum]) -> None:
        """Counts a collective through the switch; ``finished`` must follow."""
        elements = sum(part.elements for part in parts)
        with self._lock:
            self._switch.update(calls=1, sums=len(parts), elements=elements, bytes=4 * elements)
            self._calls.setdefault(collective, Counter())["switch"] += 1
            if self._in_flight == 0:
                self._busy_since = time.monotonic()
            self._in_flight += 1

    def finished(self) -> None:
        with self._lock:
            if self._in_flight:  # 0: begun before reset
                self._in_flight -= 1
                if self._in_flight == 0:
                    self._busy += time.monotonic() - self._busy_since

    def delegated(self, collective: str, reason: str) -> None:
        with self._lock:
            self._calls.setdefault(collective, Counter())["gloo"] += 1
            self._reasons[f"{collective}: {reason}"] += 1

    def snapshot(self) -> dict:
        with self._lock:
            worker = Counter(dict.fromkeys(WORKER, 0))
            worker.update(self._worker)
            for job in self._jobs:
                worker.update(job.worker_stats())
            worker.subtract(self._base)
            busy = self._busy + (time.monotonic() - self._busy_since if self._in_flight else 0.0)
            switch = {key: self._switch[key] for key in ("calls", "sums", "elements", "bytes")}
            calls = {name: {way: ways[way] for way in ("switch", "gloo")} for name, ways in sorted(self._calls.items())}
            return {"switch": {**switch, "seconds": busy}, "calls": calls, "reasons": dict(self._reasons), "worker": dict(worker)}


COUNTERS = Counters()
