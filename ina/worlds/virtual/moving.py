"""Jobs of a fabric that go on over other trees: their workers stop, compare what each has, and the rest begins again.

The counterpart in virtual time of ina/aggregation/controller/keeper.py, with the same state
(ina/aggregation/worker/failover.py). Halting, comparing and beginning again take no virtual time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ina.aggregation.worker.failover import Movable
from ina.worlds.virtual.fabric import Fabric, FabricJob, WorkerOptions
from ina.worlds.virtual.network import Completion
from ina.worlds.virtual.parameter_servers import Servers


class Finished:
    """Tensors of a fabric that have finished, by ticket."""

    def __init__(self, fabric: Fabric):
        self._fabric, self._completions = fabric, dict[int, Completion]()
        self.latest: dict[int, Completion] = {}  # by machine

    def of(self, ticket: int) -> Completion | None:
        self.read()
        return self._completions.get(ticket)

    def read(self) -> None:
        for completion in self._fabric.completions():
            self._completions[completion.ticket] = self.latest[completion.machine] = completion


class VirtualMachine:
    """A worker in the fabric, with the interface for Movable."""

    def __init__(self, fabric: Fabric, number: int, finished: Finished):
        self.fabric, self.number, self._finished = fabric, number, finished

    def submit(self, source: np.ndarray, out: np.ndarray, *, average: bool, tag: int, reduction: int) -> int:
        return self.fabric.submit(self.number, source, out, average=average, tag=tag, reduction=reduction)

    def wait(self, ticket: int, timeout: float | None) -> None:
        """Raises TimeoutError: it has not finished; JobError: it failed. Virtual time does not pass."""
        completion = self._finished.of(ticket)
        if completion is None:
            raise TimeoutError(f"machine {self.number} has not finished ticket {ticket}")
        completion.raise_failed()

    def abort(self) -> None:
        """Does nothing: no thread drives the machine, and `close` ends it."""

    def close(self) -> None:
        self.fabric.stop_machine(self.number)

    @property
    def stats(self) -> dict[str, int]:
        return self.fabric.worker_stats(self.number)


class MovingJob:
    """A job of ``fabric.admit``, with the same ``slots``, ``values`` and ``options``, that can be moved. ``servers``: that serve
    it, if the protocol needs any."""

    def __init__(self, fabric: Fabric, job: FabricJob, slots: int, values: int, finished: Finished,
                 servers: Servers | None = None, **options: object):
        self.fabric, self.job, self._finished, self._servers = fabric, job, finished, servers
        self.slots, self._values = slots, values
        self._options: WorkerOptions = options  # type: ignore[assignment]  # those of `admit`
        self._workers = [[Movable(VirtualMachine(fabric, machine, finished), slots, values) for machine in stripe]
                         for stripe in job.stripes]
        self._places = [[[machine] for machine in stripe] for stripe in job.stripes]  # all machines of a worker

    def submit(self, arrays: Sequence[np.ndarray], reduction: int) -> None:
        """Submits the all-reduce of ``arrays``, one a worker, in place."""
        for worker, array in enumerate(arrays):
            for number, part in enumerate(self.job.parts(array)):
                if part.size or len(self.job.stripes) == 1:
                    self._workers[number][worker].submit(part, part, reduction=reduction)

    def stripes_over(self, link: int) -> list[int]:
        """Returns the stripes whose tree, with its way to the parameter server, has a link."""
        return [number for number, job in enumerate(self.job.jobs) if link in self.fabric.controller.links_of(job)]

    def move(self, stripe: int) -> int:
        """Moves one stripe to another tree. Returns the parts that begin again. Raises AdmissionError: there is none; the job
        stays where it is."""
        controller, old = self.fabric.controller, self.job.jobs[stripe]
        controller.alternative(old.name)
        workers = self._workers[stripe]
        reports = [worker.halt() for worker in workers]
        moved = controller.move(old.name)
        machines = [self.fabric.join(moved, index, host, self._values, self._options)
                    for index, host in enumerate(self.job.hosts)]
        if self._servers:
            self._servers.replace(old, moved, self._values)
        parts = {key: data for index, worker in enumerate(workers) for key, data in worker.give(index, reports).items()}
        again = 0
        for worker, machine in zip(workers, machines, strict=True):
            missing = {key: parts[key] for key in worker.missing(reports)}
            again = worker.resume(VirtualMachine(self.fabric, machine, self._finished), reports, missing)
        for places, machine in zip(self._places[stripe], machines, strict=True):
            places.append(machine)
        job, stripes = self.job, list(self.job.stripes)
        former, stripes[stripe] = stripes[stripe], tuple(machines)
        jobs = (*job.jobs[:stripe], moved, *job.jobs[stripe + 1 :])
        self.job = replace(job, stripes=tuple(stripes), jobs=jobs, former=(*job.former, *former))
        return again

    def results(self, stripe: int) -> list[int]:
        """Returns the results that each worker of a stripe has where it is now, in packets."""
        return [self.fabric.worker_stats(machine)["results"] for machine in self.job.stripes[stripe]]

    def completions(self) -> dict[int, Completion]:
        """Returns by present machine the last completion of its worker, wherever it was."""
        self._finished.read()
        latest = self._finished.latest
        found = {places[-1]: [latest[machine] for machine in places if machine in latest]
                 for stripe in self._places for places in stripe}
        return {machine: max(own, key=lambda completion: completion.time) for machine, own in found.items() if own}
