"""Applications of the simulation whose switches decide which workers a sum is of (p4/quorum.p4).

Of most sums each worker gives at once, or asks, and later gives or says that it never will, or only asks if others are enough;
some lower meanwhile how many are, and some have rivals. To what is checked of every result is added: it has the values of just
the contributors that the event names, all workers that have it name the same ones, each of them had given, no two are rivals,
and there are as many as were enough, or nobody was left who might.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.controller.job_records import Job
from ina.aggregation.entries import JobProgram
from ina.aggregation.worker.errors import Event, JobError, JobMismatch
from ina.aggregation.worker.offer import Offer
from ina.net.ports import PS
from ina.worlds.virtual.applications import Application

PLAIN = 0.2  # of sums: of all workers, without an offer
LATER = 300e-6  # s after which a worker that asks gives or passes, at most
HOW = ("gives", "gives", "gives later", "gives later", "passes", "passes later")


@dataclass(frozen=True)
class Part:
    """A worker's part in one sum: ``how`` of HOW, or it "asks" only; ``lower``: how many are enough, if it says so later;
    ps after which it says more."""

    how: str
    least: int
    lower: int | None
    rivals: tuple[int, ...]
    after: int
    lower_after: int
    in_place: bool


@dataclass
class Said:
    """Record of what the workers of a job have said of one sum so far, and who contributes."""

    parts: list[Part]
    average: bool
    gave: set[int] = field(default_factory=set)
    passed: set[int] = field(default_factory=set)
    least: int = 2**31  # the lowest that any worker has said is enough
    contributors: tuple[int, ...] | None = None  # as the first worker that had the sum was told


@dataclass
class Offering(Application):
    """An application that makes such sums. ``counts``: of them, by what happened."""

    counts: Counter[str] = field(default_factory=Counter)
    _said: dict[int, Said] = field(default_factory=dict)  # by tensor of this life

    def begin(self, job: Job, spared: bool, starts: Sequence[int]) -> None:
        self._said = {}
        super().begin(job, spared, starts)

    def _chance(self, tensor: int) -> random.Random:
        return random.Random(repr((self.key, self.lives, tensor, "offers")))

    def _about(self, tensor: int) -> Said | None:
        """Returns what is said of a tensor; None: it is of all workers."""
        if tensor not in self._said:
            chance, workers = self._chance(tensor), range(len(self.hosts))
            if self._reduction(tensor) != protocols.SUM or chance.random() < PLAIN:
                return None
            rivals = set(chance.sample(workers, 2)) if len(workers) > 1 and chance.random() < 0.2 else set()
            hows = ("gives",) if chance.random() < 0.1 else HOW
            same = chance.randint(1, len(workers)) if chance.random() < 0.5 else 0  # most jobs would agree on it
            parts = []
            for worker in workers:
                least = same or chance.randint(1, len(workers))
                lower = chance.randint(1, least) if chance.random() < 0.3 else None
                parts.append(Part(
                    chance.choice(hows), least, lower, tuple(rivals - {worker}) if worker in rivals else (),
                    round(chance.uniform(0, LATER) * PS), round(chance.uniform(0, LATER) * PS), chance.random() < 0.3))
            sure = [part for part in parts if part.how in ("gives", "gives later") and not part.rivals]
            others = [worker for worker in workers if parts[worker].how in ("passes", "passes later")]
            if others and max(part.least for part in parts) <= len(sure):  # those are enough: nobody waits for another
                worker = chance.choice(others)
                parts[worker] = replace(parts[worker], how="asks")
            self._said[tensor] = Said(parts, self.dtype is np.float32 and chance.random() < 0.4)
        return self._said[tensor]

    def _start(self, worker: int, tensor: int, now: int) -> tuple[int, np.ndarray]:
        about = self._about(tensor)
        if about is None:
            return super()._start(worker, tensor, now)
        part, source = about.parts[worker], self._data(tensor)[worker]
        out: np.ndarray = np.empty(self.elements, self.dtype)
        gives = part.how == "gives"
        if gives and part.in_place:
            out[:] = source
            source = out
        about.least = min(about.least, part.least)
        if gives:
            about.gave.add(worker)
        elif part.how == "passes":
            about.passed.add(worker)
        offer = Offer(part.least, part.rivals, never=part.how == "passes")
        ticket = self.fabric.submit(self.machines[worker], source if gives else None, out, at=now, average=about.average,
                                    offer=offer)
        if part.how == "gives later":
            self._plan(now + part.after, ticket, lambda: self._give(about, worker, ticket, source))
        elif part.how == "passes later":
            self._plan(now + part.after, ticket, lambda: self._pass(about, worker, ticket))
        if part.lower is not None:
            self._plan(now + part.lower_after, ticket, lambda: self._lower(about, worker, ticket))
        return ticket, out

    def _plan(self, at: int, ticket: int, action: Callable[[], None]) -> None:
        """Plans what is said of a tensor, unless its worker has ended, or has its sum, by then."""
        life = self.lives

        def say() -> None:
            entry = self._tickets.get(ticket)
            if entry is not None and self.lives == life and self.job is entry[0] and entry[2] in self.machines:
                action()

        self.fabric.plan(at, say)

    def _give(self, about: Said, worker: int, ticket: int, source: np.ndarray) -> None:
        about.gave.add(worker)
        self.fabric.amend(ticket, source)

    def _pass(self, about: Said, worker: int, ticket: int) -> None:
        about.passed.add(worker)
        self.fabric.amend(ticket, never=True)

    def _lower(self, about: Said, worker: int, ticket: int) -> None:
        lower = about.parts[worker].lower
        assert lower is not None  # it is planned only then
        about.least = min(about.least, lower)
        self.fabric.amend(ticket, least=lower)

    def _is_no_fault(self, error: JobError) -> bool:
        """A switch that has lost its state may tell some workers others than it has told some before: they see that."""
        if isinstance(error, JobMismatch) and self.hindered:
            self.counts["told others than before"] += 1
            return True
        return super()._is_no_fault(error)

    def _wrong(self, tensor: int, worker: int, out: np.ndarray, event: Event, job: Job, program: JobProgram) -> str:
        about = self._about(tensor)
        if about is None:
            return f"a sum of all workers that names {event.contributors}" if event.contributors else \
                super()._wrong(tensor, worker, out, event, job, program)
        named = event.contributors
        if about.contributors is None:
            about.contributors = named
            self._count(about)
        rows = [row if rank in named else np.zeros_like(row) for rank, row in enumerate(self._data(tensor))]
        return self._wrong_set(about, named) or self._difference(
            out, event.overflow, rows, protocols.SUM, program, over=max(1, len(named)) if about.average else 0)

    def _count(self, about: Said) -> None:
        named = len(about.contributors or ())
        self.counts["chosen sums"] += 1
        self.counts["of nobody" if not named else "of all" if named == len(self.hosts) else "of some"] += 1

    def _wrong_set(self, about: Said, named: tuple[int, ...]) -> str:
        """Returns why these cannot be the contributors; empty: they can."""
        if named != about.contributors:
            return f"contributors {named}, and another worker was told {about.contributors}"
        if not about.gave.issuperset(named):
            return f"contributors {named}, of whom only {sorted(about.gave)} have given"
        rivals = {rank: {*about.parts[rank].rivals} for rank in range(len(self.hosts))}
        if any(rivals[rank] & {*named} for rank in named):
            return f"contributors {named} that are rivals"
        left = {*range(len(self.hosts))} - {*named} - about.passed - {
            rank for rank in about.gave if rivals[rank] & {*named}}
        if len(named) < about.least and left:
            return f"contributors {named}, {about.least} are enough, and worker {min(left)} might"
        return ""
