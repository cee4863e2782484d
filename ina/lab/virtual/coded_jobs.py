"""Sums by a codec in virtual time: a worker's next round begins when it has the result of the one before.

Computing of a codec takes no time: what is measured is the network. A tensor is one piece, where the torch back end has pieces of
2^20 values, the first round of one during the last of another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ina import codecs
from ina.base.settings import ConfigError
from ina.worlds.virtual.fabric import Fabric, FabricJob
from ina.worlds.virtual.network import Completion


class CodedJobs:
    """Jobs of ``fabric``, each worker with a codec of its own by the name ``codec``. ``done``: by machine, its last completion;
    ``words``: by job, those of 32 bits that a worker has sent."""

    def __init__(self, fabric: Fabric, codec: str):
        self._fabric, self._codec = fabric, codec
        self._running: dict[tuple[int, int], codecs.codec.Rounds] = {}  # by job and worker
        self._results: dict[tuple[int, int], np.ndarray] = {}
        self._jobs: list[FabricJob] = []
        self._tickets: dict[int, tuple[int, int]] = {}
        self._words: dict[tuple[int, int], np.ndarray] = {}  # of rounds under way
        self._waiting: dict[tuple[int, int], int] = {}  # tickets of these
        self.done: dict[int, Completion] = {}
        self.words: list[int] = []
        fabric.stop_at_completions()

    def submit(self, job: FabricJob, tensors: Sequence[np.ndarray]) -> None:
        """Begins the sum of ``tensors``, one a worker, which stay unchanged."""
        number, workers = len(self._jobs), len(job.hosts)
        self._jobs.append(job)
        self.words.append(0)
        for worker, tensor in enumerate(tensors):
            self._running[number, worker] = codecs.named(self._codec).reduce(tensor, codecs.Call(workers, worker))
            self._go_on((number, worker), None)

    def results(self, number: int) -> list[np.ndarray]:
        """Returns the workers' results of the job that was submitted as this one."""
        return [self._results[number, worker] for worker in range(len(self._jobs[number].hosts))]

    def read(self) -> bool:
        """Begins rounds whose worker has the result of the one before. Returns True if any has ended. JobError: one failed."""
        completions = self._fabric.completions()
        for completion in completions:
            self.done[completion.machine] = completion
            completion.raise_failed()
            place = self._tickets.pop(completion.ticket)
            self._waiting[place] -= 1
            if not self._waiting[place]:
                self._go_on(place, self._words.pop(place))
        return bool(completions)

    def _go_on(self, place: tuple[int, int], words: np.ndarray | None) -> None:
        """Begins the next round of a worker, with the result of the one before."""
        number, worker = place
        while True:
            try:
                coming = self._running[place].send(words)  # type: ignore[arg-type]  # the first is None
            except StopIteration as end:
                self._results[place] = end.value
                return
            words = coming.words
            if words.dtype != np.int32:
                raise ConfigError(f"codec = {self._codec!r}: a round of {words.dtype}, expected int32: in virtual time only "
                                  "codec = 'block' sums float32")
            if words.size:
                break
        self.words[number] += words.size if worker == 0 else 0
        tickets = self._fabric.submit_one(self._jobs[number], worker, words, reduction=int(coming.operation))
        self._words[place], self._waiting[place] = words, len(tickets)
        self._tickets |= dict.fromkeys(tickets, place)
