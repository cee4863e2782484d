"""Semi-asynchronous rounds: of the first models, as many as pay, at learning rates by participation.

After FedSA (Ma et al., IEEE Journal on Selected Areas in Communications 39(12), 2021): the first models make a round, as many as
follow from how workers' speeds differ and from a budget of communication, and who takes part less often learns at a larger rate.
The paper's number follows from a bound on convergence with constants of the loss; the rules here are our own, simpler ones.

A round that a worker is late for has its model a round later. With rounds of L seconds, a worker that computes for t takes part
in each ceil(t/L)-th, and a round has sum(1/ceil(t/L)) models: L is the least for which these are enough.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

LARGEST = 4.0  # learning rate of a worker, in that of all; and one over the smallest
HALVINGS = 50  # of an interval that has the length of a round


def length(times: np.ndarray, enough: int) -> float:
    """Returns the least length of a round of ``enough`` models. ``times``: float (workers,), for which each computes a model, in
    any unit, more than 0; the length has it, too."""
    low, high = 0.0, float(times.max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle > 0 and np.sum(1 / np.ceil(times / middle)) >= enough:
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=256)
def participants(times: tuple[float, ...], noise: float, budget: float) -> int:
    """Returns how many models a round has: as many, M, as have training make most progress a second, if M models together teach
    M/(M + ``noise``) of what they would if each were of all data: their number a second times that. Among numbers for which a
    second has no more than ``budget`` models, or else that with fewest; 0: any. ``times``: of a model, in seconds."""
    seconds = np.array(times)
    every = {enough: enough / length(seconds, enough) for enough in range(1, len(times) + 1)}
    allowed = [enough for enough, rate in every.items() if not budget or rate <= budget]
    if not allowed:
        return min(every, key=lambda enough: (every[enough], -enough))
    return max(allowed, key=lambda enough: (every[enough] * enough / (enough + noise), enough))


def factor(clocks: np.ndarray, worker: int) -> float:
    """Returns by what a worker's learning rate is multiplied: the mean number of updates over its own, one more each, so that all
    change the model about equally; LARGEST, or one over it, at most. ``clocks``: int (workers,), updates of each."""
    return float(np.clip((clocks.mean() + 1) / (clocks[worker] + 1), 1 / LARGEST, LARGEST))
