"""Walks of jobs whose switch decides which workers a sum is of (p4/quorum.p4).

    explorer = offering(program, specified("star hosts=3"), [Part(2), Part(2), Part(2, gives="later")])
    report = explorer.saturate()

To what the explorer checks of every job is added: the sum has each contributor's values once, and nothing else; a contributor has
given; there are as many as were enough, or nobody was left who might. That all workers are told the same contributors follows
from the sum behind the offer, on which workers that were told others do not agree: an error.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.worker.errors import Event, JobMismatch
from ina.aggregation.worker.offer import Offer
from ina.topology import Topology
from ina.worlds.virtual.explorable import Tensor, WorkerMachine, job
from ina.worlds.virtual.explorer import Explorer, Sent
from ina.worlds.virtual.fabric import Source
from ina.worlds.virtual.samples import Sample, exact

NOT_YET = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True)
class Part:
    """A worker's part in each sum of a job.

    Attributes:
        least: contributors that are enough for it.
        gives: when it has its values: "at once", "later" (asks before, and gives at any time), "not" (it only asks), "never" (and
            says so).
        releases: it may say at any time that one contributor is enough.
        rivals: workers that would contribute the same.
    """

    least: int
    gives: str = "at once"
    releases: bool = False
    rivals: tuple[int, ...] = ()


@dataclass(frozen=True)
class Chosen(Tensor):
    """A worker's tensor of which the sum may have some rows of the ``sample``; ``parts``: of all workers."""

    sample: Sample = field(default_factory=lambda: Sample(np.zeros((0, 0))))
    parts: Sequence[Part] = ()

    def sums(self, contributors: Sequence[int]) -> tuple[np.ndarray, bool]:
        """Returns what all get if these contribute, and whether an overflow is reported."""
        rows = [row if worker in contributors else np.zeros_like(row) for worker, row in enumerate(self.sample.rows)]
        return self.sample.result(rows)

    def wrong_set(self, contributors: Sequence[int]) -> str:
        """Returns why these cannot contribute; empty: they can."""
        may = {worker for worker, part in enumerate(self.parts) if part.gives in ("at once", "later")}
        if not may.issuperset(contributors):
            return "a contributor that has not given"
        for worker in contributors:
            if {*self.parts[worker].rivals} & {*contributors}:
                return f"worker {worker} and a rival of it"
        least = min((1 if part.releases else part.least) for part in self.parts)
        met = {rival for worker in contributors for rival in self.parts[worker].rivals}
        left = {worker for worker, part in enumerate(self.parts) if part.gives != "never"} - {*contributors} - met
        return f"{len(contributors)} contributors, {least} are enough, and worker {min(left)} might" \
            if len(contributors) < least and left else ""


@dataclass
class OfferingMachine(WorkerMachine):
    """A worker whose tensors are Chosen. Timers behind those of its slots: of each tensor, that it gives, and that it releases.
    ``amnesia``: switches may lose their state, so that workers may be told different contributors; that they see it is no
    fault."""

    amnesia: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._base = len(self.timers)
        self.timers = range(self._base + 2 * len(self.tensors))
        self._handles: list[int] = []
        self._told = np.full(len(self.tensors), NOT_YET)  # contributors
        self._did = np.zeros(2 * len(self.tensors), np.uint8)  # what each of these timers stands for

    @property
    def _part(self) -> Part:
        return self._chosen(0).parts[self.worker.config.worker]

    def _chosen(self, number: int) -> Chosen:
        tensor = self.tensors[number]
        assert isinstance(tensor, Chosen)
        return tensor

    def start(self) -> Sent:
        part = self._part
        for tensor, out in zip(self.tensors, self.out, strict=True):
            offer = Offer(part.least, part.rivals, never=part.gives == "never")
            self._handles.append(self.worker.submit(tensor.source if part.gives == "at once" else None, out, offer=offer))
        return self._speak()

    def expire(self, timer: int) -> Sent | None:
        if timer < self._base:
            return super().expire(timer)
        self._wrong = None
        number, release = divmod(timer - self._base, 2)
        may = self._part.releases and self._part.least > 1 if release else self._part.gives == "later"
        if not may or self._did[2 * number + release] or self._told[number] != NOT_YET:
            return None
        self._did[2 * number + release] = 1
        if release:
            self.worker.amend(self._handles[number], least=1)
        else:
            self.worker.amend(self._handles[number], self.tensors[number].source)
        return self._speak()

    def _finished(self, event: Event) -> None:
        if event.code:
            if not (self.amnesia and isinstance(event.error(), JobMismatch)):
                self._wrong = f"{self.name} failed: {event.error()}"
            return
        if event.handle not in self._handles:
            return  # the offer: the sum behind it says all
        number = self._handles.index(event.handle)
        tensor = self._chosen(number)
        sums, overflow = tensor.sums(event.contributors)
        if self.out[number].tobytes() != sums.tobytes():
            self._wrong = f"{self.name} finished with a wrong sum"
        elif event.overflow != overflow:
            self._wrong = f"{self.name} finished with a wrong overflow flag"
        elif wrong := tensor.wrong_set(event.contributors):
            self._wrong = f"{self.name} was told wrong contributors {event.contributors}: {wrong}"
        self._told[number] = functools.reduce(operator.or_, (1 << worker for worker in event.contributors), 0)

    def save(self) -> tuple[bytes, bytes]:
        key, saved = super().save()
        own = self._told.tobytes() + self._did.tobytes()
        return key + own, saved + own

    def restore(self, saved: bytes) -> None:
        end = len(saved) - self._did.nbytes
        self._did[:] = np.frombuffer(saved[end:], np.uint8)
        begin = end - self._told.nbytes
        self._told[:] = np.frombuffer(saved[begin:end], np.uint32)
        super().restore(saved[:begin])

    def done(self) -> bool:
        return bool((self._told != NOT_YET).all())


@dataclass
class ForgetfulMachine(OfferingMachine):
    """As OfferingMachine, where switches may lose their state."""

    amnesia: bool = True


def offering(
    compiled: Source, topology: Topology, parts: Sequence[Part], *, elements: int = 64, dtype: type = np.int32, count: int = 1,
    values: int = 32, restarts: bool = False, slots: int = 1, first: int = 0, late: bool = False,
) -> Explorer:
    """Makes a job of a worker at each host, with these ``parts``, as ``explorable.job`` does; the other arguments are its."""
    samples = [exact(1, number, len(parts), elements, dtype, values) for number in range(count)]
    work = [[Chosen(sample.rows[worker], np.zeros(0), sample=sample, parts=parts) for sample in samples]
            for worker in range(len(parts))]
    return job(compiled, topology, slots=slots, values=values, protocol=protocols.offering(), work=work, restarts=restarts,
               first=first, late=late, machine=ForgetfulMachine if restarts else OfferingMachine)
