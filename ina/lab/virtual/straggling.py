"""Stragglers of a step: counters of computations that run, and who is predicted to straggle (NURD; nurd.py)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ina.lab.virtual.computing import DRAWN
from ina.lab.virtual.nurd import Nurd
from ina.lab.virtual.offering import Offering

STRAGGLING = 0.9  # quantile of compute times from which on one straggles, as in NURD's evaluation
HISTORY = 200  # finished computations that a prediction is of, at most
FEWEST = 40  # with fewer there is none


class Computation(NamedTuple):
    """Computation of a worker: its counters, float64 (3,), and the s that it takes."""

    counters: np.ndarray
    seconds: float


class Lookout:
    """Lookout for the stragglers of a run.

    Attributes:
        predicted: by step and worker, of computations that were asked about: predicted to straggle; does it.
    """

    def __init__(self, config: Offering):
        self.config = config
        self.predicted: dict[tuple[int, int], tuple[bool, bool]] = {}
        self._chance = np.random.default_rng((config.seed, 7))
        self._nurd = Nurd(straggling(config), config.gamma)
        self._finished: deque[Computation] = deque(maxlen=HISTORY)

    def begin(self, seconds: float) -> Computation:
        """Returns a computation that begins and takes so many seconds, with its counters."""
        return Computation(counters(self._chance, seconds / self.config.computing, self.config.counter_noise), seconds)

    def finish(self, computation: Computation) -> None:
        """Notes that one has ended; one that was stopped has not."""
        self._finished.append(computation)

    def all_straggle(self, step: int, running: Mapping[int, Computation]) -> bool:
        """Tells whether each of a step's ``running`` computations, by worker, was predicted to straggle, now or before. While
        too few computations have ended there is no prediction, and none straggles."""
        if not running or len(self._finished) < FEWEST:
            return False
        known, times = zip(*self._finished, strict=True)
        flags = self._nurd.straggling(np.array(known), np.array(times), np.array([each.counters for each in running.values()]))
        for (worker, computation), flag in zip(running.items(), flags, strict=True):
            before = self.predicted.get((step, worker), (False, False))[0]
            self.predicted[step, worker] = before or bool(flag), computation.seconds >= self._nurd.threshold
        return all(self.predicted[step, worker][0] for worker in running)


def straggling(config: Offering) -> float:
    """Returns the time from which on a computation straggles, s: the quantile STRAGGLING of its distribution, of many draws."""
    rng = np.random.default_rng(0)
    return config.computing * float(np.quantile([DRAWN[config.distribution](rng) for _ in range(20_000)], STRAGGLING))


def counters(rng: np.random.Generator, time: float, noise: float) -> np.ndarray:
    """Returns what counters say of a computation of ``time`` means while it runs, float64 (3,): logarithms of the work done in a
    second, and of the time lost to others of the machine, each with noise; and one that has nothing to do with it."""
    speed, lost = np.exp(noise * rng.standard_normal(2)) * (1 / max(time, 1e-3), time)
    return np.array([np.log(speed), np.log(lost), rng.random()])


def rates(predictions: Sequence[tuple[bool, bool]]) -> dict[str, float | None]:
    """Returns true and false positive rate and F1 of ``predictions``: whether each was to straggle, and whether it did; None: not
    defined, there are none of the kind."""
    both = Counter(predictions)
    found, wrong, missed, right = (both[pair] for pair in ((True, True), (True, False), (False, True), (False, False)))
    return {"true_positive": found / (found + missed) if found + missed else None,
            "false_positive": wrong / (wrong + right) if wrong + right else None,
            "f1": 2 * found / (2 * found + wrong + missed) if found + wrong + missed else None}
