"""NURD: stragglers are predicted from tasks that have finished, of which none straggles, and from counters of those that run.

After Ding et al., MLSys 2022 (arXiv 2203.08339), and their published code. A regressor of finished tasks' times says of a running
one how long it takes; it has never seen a straggler, so its word is too small for one. It is divided by a weight: how much the
task's counters are like those of finished tasks (`propensity`), corrected by how far apart both are on the whole:

    weight = max(LEAST, min(z + delta, 1))      z: probability that a task with these counters has finished
    delta = 1 / (1 + rho) - gamma               rho = |c|^2 / |c - c'|^2: of the finished and the running tasks' centroids c, c'

A task straggles if what comes out is at or above a threshold, a high quantile of all times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEAST = 0.05  # of the weight, as published
ROUNDS, RATE, CUTS = 40, 0.2, 8  # of the regressor: stumps, their part, and places where each counter may be cut
NEWTON, RIDGE = 8, 1.0  # steps, and strength of the penalty, of the logistic regression


@dataclass(frozen=True)
class Stumps:
    """Sum of trees with one cut each, fitted by gradient boosting (Friedman, Annals of Statistics 2001) of squares."""

    mean: float
    cuts: list[tuple[int, float, float, float]]  # counter, where it is cut, and what is added below and above

    def predict(self, counters: np.ndarray) -> np.ndarray:
        """Returns float64 (n,) for ``counters``, float64 (n, k)."""
        total = np.full(len(counters), self.mean)
        for column, place, below, above in self.cuts:
            total += np.where(counters[:, column] < place, below, above)
        return total


def fit(counters: np.ndarray, times: np.ndarray) -> Stumps:
    """Returns a regressor of ``times``, float64 (n,), by ``counters``, float64 (n, k)."""
    places = np.quantile(counters, np.linspace(0, 1, CUTS + 2)[1:-1], axis=0)
    sides = counters[:, :, None] < places.T[None]  # (n, k, CUTS)
    lower = sides.sum(axis=0)
    upper = len(times) - lower
    rest, cuts = times - times.mean(), list[tuple[int, float, float, float]]()
    for _ in range(ROUNDS):
        under = np.einsum("nkc,n->kc", sides, rest)
        below, above = under / np.maximum(lower, 1), (rest.sum() - under) / np.maximum(upper, 1)
        gain = lower * below**2 + upper * above**2
        column, cut = (int(each) for each in np.unravel_index(int(np.argmax(gain)), gain.shape))
        step = RATE * np.where(sides[:, column, cut], below[column, cut], above[column, cut])
        rest = rest - step
        cuts.append((column, float(places[cut, column]), RATE * float(below[column, cut]), RATE * float(above[column, cut])))
    return Stumps(float(times.mean()), cuts)


def propensity(finished: np.ndarray, running: np.ndarray) -> np.ndarray:
    """Returns float64 (m,): the probability that a task with the counters of each of ``running``, float64 (m, k), has finished,
    by logistic regression on these and ``finished``, float64 (n, k), with a penalty on the squares of all but the constant."""
    points = np.vstack([finished, running])
    rows = np.column_stack([np.ones(len(points)), points])
    done = np.repeat([1.0, 0.0], [len(finished), len(running)])
    weights, penalty = np.zeros(rows.shape[1]), RIDGE * np.diag([1e-9] + [1.0] * points.shape[1])
    for _ in range(NEWTON):
        odds = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (done - odds) - penalty @ weights
        weights = weights + np.linalg.solve((rows * (odds * (1 - odds))[:, None]).T @ rows + penalty, slope)
    chances: np.ndarray = 1 / (1 + np.exp(-rows[len(finished):] @ weights))
    return chances


class Nurd:
    """Predictor of one job. ``threshold``: time from which on a task straggles; ``gamma``: of delta."""

    def __init__(self, threshold: float, gamma: float = 0.0):
        self.threshold, self.gamma = threshold, gamma
        self.delta: float | None = None  # of the first prediction, as published

    def times(self, finished: np.ndarray, times: np.ndarray, running: np.ndarray) -> np.ndarray:
        """Returns float64 (m,): times of ``running`` tasks by counters, float64 (m, k), from those of ``finished`` ones, float64
        (n, k) and (n,), after weighing."""
        least, most = np.vstack([finished, running]).min(axis=0), np.vstack([finished, running]).max(axis=0)
        finished, running = ((each - least) / np.where(most > least, most - least, 1) for each in (finished, running))
        if self.delta is None:
            middle = finished.mean(axis=0)
            apart = float(np.sum((middle - running.mean(axis=0)) ** 2))
            rho = float(middle @ middle) / apart if apart else np.inf
            self.delta = 1 / (1 + rho) - self.gamma
        weight = np.clip(propensity(finished, running) + self.delta, LEAST, 1.0)
        predicted: np.ndarray = fit(finished, times).predict(running) / weight
        return predicted

    def straggling(self, finished: np.ndarray, times: np.ndarray, running: np.ndarray) -> np.ndarray:
        """Returns bool (m,): which of the ``running`` tasks straggle, by ``times``."""
        return self.times(finished, times, running) >= self.threshold
