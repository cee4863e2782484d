"""A small task to learn, in NumPy: which of ten classes a point is of, by a network with one hidden layer.

A random network of the same shape as the learner says the classes, so that the task can be learnt, but not at once. Everything is
of one seed. Parameters and updates are flat float32 vectors, as they travel.
"""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

CLASSES = 10
FEATURES = 20
TRAINED, TESTED = 8000, 2000  # points


@dataclass(frozen=True)
class Task:
    """The points of ``workers`` workers. ``skew``: the part of a worker's points that are of classes of its own, 0 (points are
    dealt at random) to 1 (sorted by class, each worker has a piece). ``concentration``: of a symmetric Dirichlet distribution,
    from which a worker's shares of the classes are drawn (after Hsu et al., arXiv 1909.06335); 0: as ``skew`` says."""

    workers: int
    hidden: int
    skew: float
    seed: int
    concentration: float = 0.0
    _shapes: tuple[tuple[int, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        shapes = (FEATURES, self.hidden), (self.hidden,), (self.hidden, CLASSES), (CLASSES,)
        object.__setattr__(self, "_shapes", shapes)

    @cached_property
    def parameters(self) -> int:
        return self._ends[-1]

    @cached_property
    def deep(self) -> int:
        """Number of the first parameter of deep layers: those behind the hidden one."""
        return self._ends[1]

    def initial(self) -> np.ndarray:
        """Returns the parameters that all workers begin with."""
        return self._drawn(np.random.default_rng((self.seed, 1)))

    def update(self, parameters: np.ndarray, worker: int, rng: np.random.Generator, batch: int, lr: float,
               steps: int) -> np.ndarray:
        """Returns by how much ``parameters`` fall in so many steps of SGD on a worker's points: `lr` times the gradient, if it is
        one."""
        mine, now = self._pieces[worker], parameters
        for _ in range(steps):
            now = now - np.float32(lr) * self._gradient(now, mine[rng.integers(len(mine), size=batch)])
        return parameters - now

    def loss(self, parameters: np.ndarray, worker: int, rng: np.random.Generator, batch: int) -> float:
        """Returns the mean cross-entropy on the points whose gradient ``update`` returns next with this ``rng``, which stays as
        it is."""
        chosen = self._pieces[worker][copy.deepcopy(rng).integers(len(self._pieces[worker]), size=batch)]
        points, classes = self._points[0][chosen], self._points[1][chosen]
        scores = self._forward(parameters, points)[1]
        scores -= scores.max(axis=1, keepdims=True)
        return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(batch), classes]))

    def score(self, parameters: np.ndarray) -> float:
        """Returns the part of the test points whose class is told."""
        points, classes = self._points[0][TRAINED:], self._points[1][TRAINED:]
        return float(np.mean(np.argmax(self._forward(parameters, points)[1], axis=1) == classes))

    def _drawn(self, rng: np.random.Generator) -> np.ndarray:
        parts = [rng.standard_normal(shape) / np.sqrt(shape[0]) if len(shape) == 2 else np.zeros(shape) for shape in self._shapes]
        return np.concatenate([part.ravel() for part in parts]).astype(np.float32)

    @cached_property
    def _ends(self) -> list[int]:
        """Numbers of the parameters behind each layer's weights and biases."""
        return list(itertools.accumulate(math.prod(shape) for shape in self._shapes))

    def _split(self, parameters: np.ndarray) -> list[np.ndarray]:
        return [parameters[end - math.prod(shape) : end].reshape(shape)
                for end, shape in zip(self._ends, self._shapes, strict=True)]

    def _forward(self, parameters: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        into, bias, out, last = self._split(parameters)
        hidden = np.maximum(points @ into + bias, 0)
        return hidden, hidden @ out + last

    def _gradient(self, parameters: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Returns that of the mean cross-entropy of some points."""
        points, classes = self._points[0][chosen], self._points[1][chosen]
        hidden, scores = self._forward(parameters, points)
        error = np.exp(scores - scores.max(axis=1, keepdims=True))
        error /= error.sum(axis=1, keepdims=True)
        error[np.arange(len(classes)), classes] -= 1
        error /= len(classes)
        back = (error @ self._split(parameters)[2].T) * (hidden > 0)
        return np.concatenate([(points.T @ back).ravel(), back.sum(axis=0), (hidden.T @ error).ravel(), error.sum(axis=0)])

    @cached_property
    def _points(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng((self.seed, 0))
        points = rng.standard_normal((TRAINED + TESTED, FEATURES)).astype(np.float32)
        scores = self._forward(self._drawn(rng), points)[1]
        return points, np.argmax(scores - scores.mean(axis=0), axis=1)  # no class has nearly all points

    @cached_property
    def _pieces(self) -> list[np.ndarray]:
        """Numbers of each worker's points."""
        rng = np.random.default_rng((self.seed, 2))
        if self.concentration:
            return self._drawn_pieces(rng)
        dealt = rng.permutation(TRAINED)
        own = round(self.skew * TRAINED)
        by_class = dealt[:own][np.argsort(self._points[1][dealt[:own]], kind="stable")]
        return [np.concatenate(pieces) for pieces in zip(np.array_split(by_class, self.workers),
                                                         np.array_split(dealt[own:], self.workers), strict=True)]

    def _drawn_pieces(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Returns the same, as many for each worker as for others, of shares that are drawn for each; the share of a class that
        has no points left goes to others."""
        dealt = rng.permutation(TRAINED)
        left = [list(dealt[self._points[1][dealt] == each]) for each in range(CLASSES)]
        pieces = []
        for size in (len(piece) for piece in np.array_split(dealt, self.workers)):
            shares, mine = rng.dirichlet(np.full(CLASSES, self.concentration)), list[int]()
            while len(mine) < size:
                there = np.array([bool(points) for points in left])
                odds = shares * there if np.any(shares * there) else there.astype(float)
                for each, count in enumerate(rng.multinomial(size - len(mine), odds / odds.sum())):
                    mine += left[each][:count]
                    del left[each][:count]
            pieces.append(np.array(mine))
        return pieces
