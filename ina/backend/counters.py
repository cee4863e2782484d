"""Counters of the back end: collectives through the switch and through Gloo, with the reasons."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Protocol
from weakref import WeakSet

from ina.aggregation.lane import INT32
from ina.backend.locks import Lock
from ina.backend.sums import Sum
from ina.base.native import ffi
from ina.p4.runtime.shared import Turns

PATIENCE = 60.0  # seconds for another thread that counts


# Fields of struct ina_worker_stats that add up over jobs: all but times, and whom a worker waits for.
RUNS = Turns._fields
WORKER = tuple(name for name, _ in ffi.typeof("struct ina_worker_stats").fields
               if not name.endswith("_ps") and name != "waits_for")


class Reporting(Protocol):
    """A job (job.py)."""

    def worker_stats(self) -> dict[str, int]:
        """Returns the native worker's statistics that add up over jobs."""

    @property
    def path(self) -> str:
        """Ids of the switch processes above this rank, with slashes; "": there is one, and none above it."""

    def turns(self) -> Turns | None:
        """Returns how often this rank ran the job's switch; None: the switch process runs it."""


class Counters:
    """Counters of a process. ``snapshot()`` gives

    switch     calls, sums, elements and bytes of collectives through the switch, as they travelled, and seconds during which
               at least one was in flight; trees: by the ids of this rank's switch process and of those above it, with slashes,
               how many jobs this rank has had there
    calls      by collective: how many went through the switch, how many through Gloo
    codecs     by codec: sums, their elements, the 32-bit words that they travelled in, and values that were flushed to zero
    reasons    by collective and reason: why a call went to Gloo
    plans      by tensor: how it travels, where it was measured or auto-sparse chose, and why
    late       by rank: how many collectives have waited for it for half a second or longer, and for how many seconds
    ready      sums of those ranks that were ready: rounds, partial ones, those without any rank, and by rank how many it was
               not in
    run_by     who runs the jobs' switches: jobs of each, and of those that ranks run how often this rank did, on how many
               packets
    worker     the sum of the native worker statistics over all jobs: packets, retransmissions, time-outs, drops ...
    """

    def __init__(self) -> None:
        self._lock = Lock("the counters", lambda: PATIENCE)
        self._jobs: WeakSet[Reporting] = WeakSet()
        self.reset()

    def reset(self) -> None:
        with self._lock:
            self._switch: Counter[str] = Counter()
            self._trees: Counter[str] = Counter()
            self._calls: defaultdict[str, Counter[str]] = defaultdict(Counter)
            self._reasons: Counter[str] = Counter()
            self._plans: dict[str, str] = {}
            self._codecs: dict[str, Counter[str]] = {}
            self._late: dict[int, Counter[str]] = {}
            self._rounds: Counter[str] = Counter()
            self._left_out: Counter[int] = Counter()
            self._worker: Counter[str] = Counter()
            self._base: Counter[str] = Counter()
            self._runs: Counter[str] = Counter()
            self._runs_base: Counter[str] = Counter()
            self._in_flight = 0
            self._busy_since = 0.0
            self._busy = 0.0
            for job in self._jobs:
                self._base.update(job.worker_stats())
                self._runs_base.update({key: count for key, count in _runs(job).items() if key in RUNS})

    def job_opened(self, job: Reporting) -> None:
        """Adds a job: each snapshot calls ``job.worker_stats()`` until ``job_closed``."""
        with self._lock:
            self._jobs.add(job)
            if job.path:
                self._trees[job.path] += 1

    def job_closed(self, job: Reporting) -> None:
        with self._lock:
            if job in self._jobs:
                self._jobs.discard(job)
                self._worker.update(job.worker_stats())
                self._runs.update(_runs(job))

    def through_switch(self, collective: str, parts: list[Sum]) -> None:
        """Counts a collective through the switch; ``finished`` must follow."""
        elements = sum(0 if part.in_rounds else part.elements for part in parts)
        with self._lock:
            self._count(collective, len(parts), elements)
            if self._in_flight == 0:
                self._busy_since = time.monotonic()
            self._in_flight += 1

    def ended(self, collective: str, part: Sum, began: float) -> None:
        """Counts a collective through the switch that has begun and ended in its call, one sum. ``began``: seconds of the
        monotonic clock."""
        with self._lock:
            self._count(collective, 1, 0 if part.in_rounds else part.elements)
            if self._in_flight == 0:
                self._busy += time.monotonic() - began

    def _count(self, collective: str, sums: int, elements: int) -> None:
        totals = self._switch  # one by one: Counter.update takes longer than all the rest
        totals["calls"] += 1
        totals["sums"] += sums
        totals["elements"] += elements
        totals["bytes"] += INT32.bytes(elements)
        self._calls[collective]["switch"] += 1

    def travelled(self, words: int) -> None:
        """Counts a codec's round, whose size is not known before it begins."""
        with self._lock:
            self._switch.update(elements=words, bytes=INT32.bytes(words))

    def coded(self, codec: str, elements: int, words: int, flushed: int) -> None:
        """Counts a reduction by a codec that has ended."""
        with self._lock:
            self._codecs.setdefault(codec, Counter()).update(sums=1, elements=elements, words=words, flushed=flushed)

    def waited(self, seconds: dict[int, float]) -> None:
        """Counts a collective that has waited for these ranks."""
        with self._lock:
            for rank, each in seconds.items():
                self._late.setdefault(rank, Counter()).update({"waits": 1, "seconds": each})

    def chosen(self, elements: int, ranks: Iterable[int], left_out: Iterable[int]) -> None:
        """Counts a sum of some of the ``ranks``, all but those ``left_out``."""
        others = set(left_out)
        with self._lock:
            self._switch.update(calls=1, sums=1, elements=elements, bytes=INT32.bytes(elements))
            self._rounds.update(rounds=1, partial=bool(others), empty=others >= {*ranks})
            self._left_out.update(others)

    def planned(self, tensor: str, reason: str) -> None:
        """Notes how a tensor travels from now on, and why."""
        with self._lock:
            self._plans[tensor] = reason

    def finished(self) -> None:
        with self._lock:
            if self._in_flight:  # 0: begun before reset
                self._in_flight -= 1
                if self._in_flight == 0:
                    self._busy += time.monotonic() - self._busy_since

    def delegated(self, collective: str, reason: str) -> None:
        with self._lock:
            self._calls[collective]["gloo"] += 1
            self._reasons[f"{collective}: {reason}"] += 1

    def snapshot(self) -> dict:
        with self._lock:
            worker = Counter(dict.fromkeys(WORKER, 0))
            worker.update(self._worker)
            runs = self._runs.copy()
            for job in self._jobs:
                worker.update(job.worker_stats())
                runs.update(_runs(job))
            worker.subtract(self._base)
            runs.subtract(self._runs_base)
            run_by = {"ranks": {"jobs": runs["ranks"], **{key: runs[key] for key in RUNS}}, "process": {"jobs": runs["process"]}}
            busy = self._busy + (time.monotonic() - self._busy_since if self._in_flight else 0.0)
            switch = {key: self._switch[key] for key in ("calls", "sums", "elements", "bytes")}
            calls = {name: {way: ways[way] for way in ("switch", "gloo")} for name, ways in sorted(self._calls.items())}
            codecs = {name: dict(counts) for name, counts in sorted(self._codecs.items())}
            late = {rank: dict(counts) for rank, counts in sorted(self._late.items())}
            ready = {**{key: self._rounds[key] for key in ("rounds", "partial", "empty")},
                      "left_out": dict(sorted(self._left_out.items()))}
            return {"switch": {**switch, "seconds": busy, "trees": dict(self._trees)}, "calls": calls, "codecs": codecs,
                    "reasons": dict(self._reasons), "plans": dict(self._plans), "late": late, "ready": ready, "run_by": run_by,
                    "worker": dict(worker)}


def _runs(job: Reporting) -> dict[str, int]:
    """Returns a job's part in ``run_by``."""
    turns = job.turns()
    return {"process": 1} if turns is None else {"ranks": 1, **turns._asdict()}


COUNTERS = Counters()
