"""Tiers and clusters of clients: who takes part in a federated round.

After FedLesScan (Elzohairy et al., IEEE Big Data 2022, arXiv 2211.05739), by the rules and constants of its authors' program
(github.com/Serverless-Federated-Learning/FedLesScan, DBScanClientSelection). Rookies, who have not taken part yet, come first;
then participants, from clusters by their training times and the rounds that they have missed; stragglers, who have missed a round
lately, only where others are too few. Who misses a round cools down for 1 round, then 2, 4, ...; who finishes one does no more. A
model that comes late takes the miss of its round back, but not the cooldown, and counts less (`weight`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

RECENT_TIME, RECENT_MISS = 0.5, 0.8  # weight of the latest in a running mean
MISS = 1.5  # cost of a round that is missed at the end, in the longest training time
RADII = np.arange(0.01, 2, 0.1)  # that are tried, in standard deviations
NEAR = 2  # points within the radius, itself too, that make a point the core of a cluster


@dataclass
class Client:
    """History of a client. ``times``: s, of rounds that it finished; ``missed``: numbers of rounds, from 0 on."""

    times: list[float] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    cooldown: int = 0

    def finish(self, seconds: float) -> None:
        """Notes that it has finished a round in so many seconds."""
        self.times.append(seconds)
        self.cooldown = 0

    def finish_late(self, seconds: float, number: int) -> None:
        """Notes that the round of this number, which it had missed, took it so many seconds."""
        self.times.append(seconds)
        self.missed = [each for each in self.missed if each != number]

    def miss(self, number: int) -> None:
        """Notes that it has not finished the round of this number."""
        self.missed.append(number)
        self.cooldown = 2 * self.cooldown or 1

    def tier(self, number: int) -> str:
        """Returns that for a round: rookie, participant or straggler."""
        if not self.times and not self.missed:
            return "rookie"
        cools = bool(self.missed) and self.missed[-1] + self.cooldown >= number
        return "straggler" if cools else "participant"


def running_mean(values: list[float], recent: float) -> float:
    """Returns an exponentially weighted mean, of which the latest value has the weight ``recent``; of none 0."""
    mean = values[0] if values else 0.0
    for value in values[1:]:
        mean = (1 - recent) * mean + recent * value
    return mean


def features(clients: list[Client], number: int) -> np.ndarray:
    """Returns float64 (clients, 2), s: the mean training time, and the cost of rounds that were missed, before round ``number``,
    1 or more."""
    longest = max((max(client.times, default=0.0) for client in clients), default=0.0)
    return np.array([[running_mean(client.times, RECENT_TIME),
                      MISS * longest * running_mean([(miss + 1) / number for miss in client.missed], RECENT_MISS)]
                     for client in clients])


def dbscan(points: np.ndarray, radius: float) -> np.ndarray:
    """Returns the cluster of each point, 0, 1, ..., or -1: noise (DBSCAN; Ester et al., KDD 1996). ``points``: (n, d)."""
    near = np.linalg.norm(points[:, None] - points[None], axis=2) <= radius
    core, labels, count = near.sum(axis=1) >= NEAR, np.full(len(points), -1), 0
    for first in range(len(points)):
        if core[first] and labels[first] < 0:
            edge = [first]
            while edge:
                each = edge.pop()
                labels[each] = count
                edge += [int(other) for other in np.flatnonzero(near[each] & (labels < 0))] if core[each] else []
            count += 1
    return labels


def separation(points: np.ndarray, labels: np.ndarray) -> float:
    """Returns the variance between clusters over that within them (Calinski and Harabasz, 1974); noise counts as a cluster."""
    names, centre = np.unique(labels), points.mean(axis=0)
    between = sum(np.sum(labels == each) * np.sum((points[labels == each].mean(axis=0) - centre) ** 2) for each in names)
    within = sum(np.sum((points[labels == each] - points[labels == each].mean(axis=0)) ** 2) for each in names)
    return 1.0 if within == 0 else float(between * (len(points) - len(names)) / (within * (len(names) - 1)))


def clusters(points: np.ndarray) -> np.ndarray:
    """Returns the cluster of each point, of the radius of RADII that separates clusters best; of points of equal scale."""
    return np.array(_clusters(np.ascontiguousarray(points, np.float64).tobytes(), len(points)))


@lru_cache(maxsize=64)  # all workers ask for those of the same points
def _clusters(values: bytes, count: int) -> tuple[int, ...]:
    """Returns the same for float64 ``values`` of ``count`` points."""
    points = np.frombuffer(values).reshape(count, -1)
    deviation = points.std(axis=0)
    scaled = (points - points.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    every = [dbscan(scaled, radius) for radius in RADII]
    best, most = every[0], 0.0
    for labels in every:
        if 1 < len(np.unique(labels)) < len(points) and (reached := separation(scaled, labels)) > most:
            best, most = labels, reached
    return tuple(best.tolist())


def tiers(clients: list[Client], number: int) -> tuple[list[int], list[int], list[int]]:
    """Returns the numbers of rookies, participants and stragglers in round ``number``."""
    names = [client.tier(number) for client in clients]
    rookies, others, stragglers = ([each for each, name in enumerate(names) if name == tier]
                                   for tier in ("rookie", "participant", "straggler"))
    return rookies, others, stragglers


def selected(clients: list[Client], count: int, number: int, progress: float, rng: np.random.Generator) -> list[int]:
    """Returns the numbers of ``count`` clients that take part in round ``number``, in order. ``progress``: 0 to 1, of the
    training since the first clustering: with it the first cluster that is taken moves from the fastest one to the slowest."""
    rookies, others, stragglers = tiers(clients, number)
    if len(rookies) >= count:
        return sorted(rng.choice(rookies, count, replace=False).tolist())
    wanted = min(count - len(rookies), len(others))
    chosen = rookies + sorted(rng.choice(stragglers, count - len(rookies) - wanted, replace=False).tolist() if stragglers else [])
    if wanted:
        points = features([clients[each] for each in others], max(number, 1))
        labels, costs = clusters(points), points.sum(axis=1)
        order = sorted(np.unique(labels), key=lambda each: costs[labels == each].mean())
        first = int(progress * (len(order) - 1))
        for label in order[first:] + order[:first]:
            members = [others[each] for each in np.flatnonzero(labels == label)]
            least = sorted(members, key=lambda each: len(clients[each].times) + len(clients[each].missed))
            chosen += least[: wanted]
            wanted -= len(least[: wanted])
    return sorted(chosen)


class Rounds:
    """Rounds of ``count`` of ``clients`` clients each, as one who knows all their results follows them; who has the same results
    and the same ``seed`` chooses the same clients. ``updates``: results that the training has, about.

    Attributes:
        chosen: clients of the latest round, by their numbers, in order.
    """

    def __init__(self, clients: int, count: int, updates: float, seed: int):
        self.clients, self.count, self.updates, self.seed = [Client() for _ in range(clients)], count, updates, seed
        self.chosen: list[int] = []
        self.first: int | None = None  # results before the first clustering

    def choose(self, number: int, done: int) -> None:
        """Chooses the clients of round ``number``, before which there have been ``done`` results."""
        rookies, others, _ = tiers(self.clients, number)
        if self.first is None and others and len(rookies) < self.count:
            self.first = done
        first = done if self.first is None else self.first
        progress = min(1.0, (done - first) / max(self.updates - first, 1))
        self.chosen = selected(self.clients, self.count, number, progress, np.random.default_rng((self.seed, 7, number)))

    def end(self, number: int, results: dict[int, tuple[float, int]]) -> None:
        """Notes the results of round ``number``: the time of each, s, and of which round it is, by client. Who was chosen, and
        has none of this round, has missed it."""
        for each, (seconds, computed) in results.items():
            if computed == number:
                self.clients[each].finish(seconds)
            else:
                self.clients[each].finish_late(seconds, computed)
        for each in self.chosen:
            if each not in results or results[each][1] != number:
                self.clients[each].miss(number)


def weight(computed: int, number: int) -> float:
    """Returns that of a model of round ``computed`` in round ``number``, both from 0 on."""
    return (computed + 1) / (number + 1)
