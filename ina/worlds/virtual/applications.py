"""Applications of the simulation: each all-reduces tensors one after the other, without an end, and checks the results.

An application that loses its job goes on in another one. Every life has data of its own, so that a contribution from elsewhere
makes a wrong sum.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.completion import named as rule_named
from ina.aggregation.controller.job_records import Job
from ina.aggregation.entries import JobProgram
from ina.aggregation.worker.errors import Event, JobError, JobTimeout
from ina.worlds.virtual.fabric import Fabric
from ina.worlds.virtual.network import Completion
from ina.worlds.virtual.samples import drawn, wrong

VALUES = 32  # elements of a packet
RTO_MIN, RTO_MAX = 30e-6, 300e-6  # s
TIMEOUT = 100e-3  # s after which a worker gives up: longer than anything is down, however many packets are lost
AHEAD = 3  # tensors that a worker has under way


class Violation(Exception):
    """An invariant does not hold."""


def applied_reductions(program: JobProgram) -> tuple[int, ...]:
    """Returns the reductions of a protocol that applications ask for: sums and maxima, or its own where it has neither.
    ValueError: nothing tells its results."""
    declared = protocols.reductions(program.name)
    if reductions := tuple(reduction for reduction in (protocols.SUM, protocols.MAX) if reduction in declared):
        return reductions
    if program.reduced(np.zeros((2, VALUES), np.int32)) is None:
        raise ValueError(f"the protocol {program.title} has neither sums nor maxima, and its PROGRAM.reduced tells no other "
                         "results (docs/guide/new-protocol.md)")
    return (protocols.OWN,)


@dataclass
class Application:
    """One application. ``key``: seed of its data; ``exponent``: of float32 in fixed point, as ATP's option."""

    name: str
    fabric: Fabric
    key: tuple[int, ...]
    hosts: tuple[str, ...]
    slots: int
    elements: int
    dtype: type
    exponent: int | None
    reductions: Sequence[int] = (protocols.SUM, protocols.MAX)
    wraps: Sequence[int] = ()  # of packets' numbers: most lives begin shortly before one of them
    job: Job | None = None
    lives: int = 0
    first_packet: int = 0  # number of this life's
    machines: dict[int, int] = field(default_factory=dict)  # by worker, those that run
    done: int = 0  # tensors that all workers have
    results: int = 0  # right ones
    due: int = 0  # ps at which it tries to begin
    latest: int = 0  # ps of the last result, or of this life's start
    hindered: bool = False  # since it began, something failed that it needs, or that may have deleted its entries
    spared: bool = False  # nothing fails until all of its workers have a sum
    _finished: Counter[int] = field(default_factory=Counter)  # by tensor of this life, workers that have it
    _next: dict[int, int] = field(default_factory=dict)  # by worker, the tensor that it submits next
    _tickets: dict[int, tuple[Job, int, int, np.ndarray]] = field(default_factory=dict)

    def begin(self, job: Job, spared: bool, starts: Sequence[int]) -> None:
        """Begins another life. ``starts``: ps at which each worker submits its first tensors."""
        self.job, self.lives, self.latest, self._finished = job, self.lives + 1, max(starts), Counter()
        self.hindered, self.spared = False, spared
        self.first_packet = self._first_packet()
        options = {} if self.exponent is None else {"exponent": self.exponent}
        for worker, host in enumerate(self.hosts):
            config = self.fabric.worker_config(job, worker, host, VALUES, rto_min=RTO_MIN, rto_max=RTO_MAX,
                                               timeout=TIMEOUT, options=options, first_packet=self.first_packet)
            self.machines[worker] = self.fabric.add_worker(self.fabric.host(host), config)
            self._next[worker] = self.done
            for _ in range(AHEAD):
                self._submit(worker, starts[worker])

    def _first_packet(self) -> int:
        """Draws the number of this life's first packet: 0, or so shortly before a wrap that it soon comes to it."""
        chance = random.Random(repr((self.key, self.lives)))  # of its own: other events of a seed do not depend on it
        wrap = chance.choice((0, *self.wraps))
        return wrap and max(0, wrap - chance.randint(1, 4 * self.slots))

    def stop(self, worker: int) -> None:
        """Ends a worker."""
        self.fabric.stop_machine(self.machines.pop(worker))

    def end(self, due: int) -> None:
        """Ends this life; it tries to begin another one at ``due``."""
        for worker in list(self.machines):
            self.stop(worker)
        self.job, self.spared, self.due = None, False, due

    def collided(self) -> tuple[int, int]:
        """Returns packets of this life that found their row taken, and all answered ones; of workers that still run."""
        stats = [self.fabric.worker_stats(machine) for machine in self.machines.values()]
        return sum(each["collided"] for each in stats), sum(each["results"] for each in stats)

    def _data(self, tensor: int) -> tuple[np.ndarray, ...]:
        return drawn((*self.key, self.lives, tensor), len(self.hosts), self.elements, self.dtype, VALUES)

    def _reduction(self, tensor: int) -> int:
        """Returns the reduction of a tensor: of int32, every fourth is a maximum, of those that the protocol has."""
        maximum = self.dtype is np.int32 and tensor % 4 == 3
        return self.reductions[-1 if maximum else 0]

    def _submit(self, worker: int, now: int) -> None:
        assert self.job is not None  # it has begun, and not ended
        tensor = self._next[worker]
        self._next[worker] += 1
        ticket, out = self._start(worker, tensor, now)
        self._tickets[ticket] = self.job, tensor, worker, out

    def _start(self, worker: int, tensor: int, now: int) -> tuple[int, np.ndarray]:
        """Submits a worker's part of a tensor; returns its ticket, and where the result will be."""
        out: np.ndarray = np.empty(self.elements, self.dtype)
        return self.fabric.submit(self.machines[worker], self._data(tensor)[worker], out, at=now,
                                  reduction=self._reduction(tensor)), out

    def _is_no_fault(self, error: JobError) -> bool:
        """Returns whether a job may end with this error when something that it needs has failed."""
        return isinstance(error, JobTimeout)

    def _wrong(self, tensor: int, worker: int, out: np.ndarray, event: Event, job: Job, program: JobProgram) -> str:
        """Returns what is wrong with a result; empty: nothing."""
        differences = [self._difference(out, event.overflow, rows, self._reduction(tensor), program)
                       for rows in rule_named(job.rule).contributions(self._data(tensor))]
        return differences[0] if all(differences) else ""

    def _difference(self, out: np.ndarray, overflow: bool, rows: Sequence[np.ndarray], reduction: int,
                    program: JobProgram, over: int = 0) -> str:
        """Returns what is wrong with a result, if it is to have just these rows; empty: nothing. ``over``: it is to be their
        average over so many."""
        if reduction == protocols.OWN:
            expected = program.reduced(np.stack(rows))
            return "" if expected is not None and np.array_equal(out, expected) else "a wrong result"
        return wrong(out, overflow, rows, VALUES, maximum=reduction == protocols.MAX, floats=program.floats,
                     exponent=self.exponent, flags=program.overflows, over=over)

    def complete(self, completion: Completion, program: JobProgram, now: int) -> str:
        """Handles a finished tensor, if it is its own. Returns why this life is over; empty: it goes on. ``program``: the
        protocol's. Raises Violation."""
        submitted = self._tickets.pop(completion.ticket, None)
        if submitted is None or self.job is not submitted[0]:
            return ""
        job, tensor, worker, out = submitted
        about = f"tensor {tensor} of {self.name} (job {job.number}, life {job.life}) at worker {worker}"
        if (error := completion.event.error()) is not None:
            if not self._is_no_fault(error):
                raise Violation(f"a wrong sum: {about}: {error}")
            if not self.hindered:
                raise Violation(f"stuck: nothing that {self.name}, job {job.number}, needs has failed since it began: {error}")
            return f"worker {worker} failed: {error}"
        if wrong_result := self._wrong(tensor, worker, out, completion.event, job, program):
            raise Violation(f"{wrong_result}: {about}")
        self.results, self.latest = self.results + 1, now
        self._finished[tensor] += 1
        if self._finished[tensor] == len(self.hosts):
            self.done, self.spared = tensor + 1, False
        if worker in self.machines:
            self._submit(worker, now)
        return ""
