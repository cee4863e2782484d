"""Methods of asynchronous training, one entry each: when a sum is complete, who waits, and how old an update may be.

A new method is an entry here, and a row of the table in docs/guide/experiments.md. `synchronous` is the base: a sum is of all
workers, each waits for the sum that has its update, and a sum is divided by those that are in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ina.lab.virtual.staleness import StalenessBound


class Terms(NamedTuple):
    """Keys of a run that say what its method allows (asynchronous/keys.py). ``least`` is 0: as the method has it."""

    workers: int
    least: int
    splits: int
    bound: int
    upper: int
    copies: int
    chosen: int
    patience: int


@dataclass(frozen=True)
class Method:
    """A method.

    Attributes:
        about: in one line, for people.
        enough: number of workers whose updates complete a sum.
        waits: a worker computes nothing until a sum has its update.
        shares: a sum is divided by all workers, so that each update counts the same; else by those that are in it.
        stalest: largest staleness of an update, in sums; None: any. Who does not wait drops what would be staler.
        widens: the bound of a worker follows what it refuses, up to ``stalest``, if `patience` says so (staleness.py).
        ahead: most updates by which a worker is ahead of the slowest one where it begins; None: any.
        predicts: a worker that reaches the `bound` goes on, up to ``ahead``, if it then waits less (``further``).
        keeps: a worker computes on a copy of its own, which it replaces by the shared one after `fetch` updates.
        backups: `copies` workers compute the same update, of which the first counts.
        stops: who is late stops to compute, and begins anew; what it offers late is lost.
        balances: batches are as large as workers are fast (``batches``); speeds travel in the sum, behind the update.
        leaves_out: a sum is complete without those that still compute when all of these are predicted to straggle
            (straggling.py).
        adapts: sums are of as many as pay, and rates as large as workers take part seldom (semi_asynchronous.py); speeds travel
            in the sum, behind the update.
        layered: deep layers travel in the last `deep` sums of each `loop` only; until then a worker goes on with its own.
        foresees: an update weighs less the more the loss is to fall until it is applied (ina/lab/virtual/loss_prediction.py);
            losses travel in the sum, behind the update.
        selects: `chosen` workers compute in a round, by the rounds before (ina/lab/virtual/client_tiers.py); what is late counts
            less, and is not sent if it would be too stale; compute times travel in the sum, behind the update.
        local: steps of a worker that make an update, where nothing is said.
        takes: keys that only some methods use, this one among them (``users``).
    """

    about: str
    enough: Callable[[Terms], int] = lambda terms: terms.workers
    waits: bool = True
    shares: bool = False
    stalest: Callable[[Terms], int | None] = lambda terms: None
    widens: bool = False
    ahead: Callable[[Terms], int | None] = lambda terms: None
    predicts: bool = False
    keeps: bool = False
    backups: bool = False
    stops: bool = False
    leaves_out: bool = False
    balances: bool = False
    adapts: bool = False
    layered: bool = False
    foresees: bool = False
    selects: bool = False
    local: int = 1
    takes: tuple[str, ...] = ()

    def bounds(self, terms: Terms) -> list[StalenessBound]:
        """Returns the bound of each worker's updates at the beginning; none where they may have any staleness."""
        if (highest := self.stalest(terms)) is None:
            return []
        lowest = terms.bound if terms.patience else highest
        return [StalenessBound(lowest, highest, terms.patience) for _ in range(terms.workers)]


METHODS = {
    "synchronous": Method("the sum of all; all wait", stalest=lambda terms: 0),
    "first": Method("of the first `least`; who is late gives to a later sum (after Chen et al., arXiv 1604.00981)",
                    enough=lambda terms: terms.least or terms.workers - terms.workers // 4, takes=("least",)),
    "backup": Method("of the first of each `copies` workers, which compute the same (after Sandblaster's backups of a portion; "
                     "Dean et al., NIPS 2012)",
                     enough=lambda terms: terms.workers // terms.copies, stalest=lambda terms: 0, backups=True,
                     stops=True, takes=("copies",)),
    "nurd": Method("of all but those that are predicted to straggle, which stop to compute (after NURD; Ding et al., MLSys 2022)",
                   stalest=lambda terms: 0, stops=True, leaves_out=True, takes=("gamma", "counter_noise")),
    "balanced": Method("the sum of all, whose batches are as large as they are fast (LB-BSP; Chen et al., arXiv 1806.02508)",
                       stalest=lambda terms: 0, balances=True),
    "iswitch": Method("of the first `least`; nobody waits; what is staler than `bound` is not sent (Li et al., ISCA 2019)",
                      enough=lambda terms: terms.least or -(-terms.workers // 2), waits=False, widens=True,
                      stalest=lambda terms: terms.upper if terms.patience else terms.bound,
                      takes=("least", "bound", "upper", "patience")),
    "softsync": Method("of the first workers/`splits`; nobody waits (n-softsync; Zhang et al., arXiv 1511.05950)",
                       enough=lambda terms: terms.workers // terms.splits, waits=False, shares=True, takes=("splits",)),
    "foresight": Method("of each by itself, less of it the more the loss is to fall until then; nobody waits (after LC-ASGD; Li "
                        "et al., ICPP 2020)", enough=lambda terms: 1, waits=False, shares=True, foresees=True),
    "ssp": Method("of each by itself; a worker is at most `bound` updates ahead of the slowest (Ho et al., NIPS 2013)",
                  enough=lambda terms: 1, shares=True, ahead=lambda terms: terms.bound, takes=("bound",)),
    "dssp": Method("the same with a bound of `bound` to `upper`, chosen at each stop by predicted times (Zhao et al., ICDCS'19)",
                   enough=lambda terms: 1, shares=True, ahead=lambda terms: terms.upper, predicts=True,
                   takes=("bound", "upper")),
    "downpour": Method("of each by itself, of `local` steps on a copy of its own, which it replaces by the shared one after "
                       "`fetch` updates; nobody waits (Dean et al., NIPS 2012)",
                       enough=lambda terms: 1, waits=False, shares=True, keeps=True, local=2, takes=("fetch",)),
    "local": Method("the average of what `local` steps of each have changed; with `outer_momentum` DiLoCo (arXiv 2311.08105)",
                    enough=lambda terms: terms.least or terms.workers, local=8, takes=("least",)),
    "fedsa": Method("of as many of the first as pay by speeds and `budget`; who takes part seldom learns at a larger rate (after "
                    "FedSA; Ma et al., IEEE JSAC 2021)",
                    enough=lambda terms: terms.least or -(-terms.workers // 2), adapts=True, local=8,
                    takes=("least", "noise", "budget")),
    "fedlesscan": Method("of the first `least` of `chosen` workers, by tiers and by clusters of their times; late ones count "
                         "less, up to `bound` rounds (after FedLesScan; Elzohairy et al., IEEE Big Data 2022)",
                         enough=lambda terms: terms.least or terms.chosen - terms.chosen // 4,
                         stalest=lambda terms: terms.bound, selects=True, local=8, takes=("least", "chosen", "bound")),
    "layerwise": Method("of shallow layers in each sum, of deep ones in the last `deep` of `loop`; with `damping` stale updates "
                        "count less (Chen et al., arXiv 1903.07424)",
                        enough=lambda terms: terms.least or terms.workers, layered=True, local=8,
                        takes=("least", "loop", "deep")),
}


def users(key: str) -> list[str]:
    """Returns the methods that use a key, of those that not all use; else none."""
    return [name for name, method in METHODS.items() if key in method.takes]


def further(own: list[float], slowest: list[float], most: int) -> int:
    """Returns how many updates beyond the bound, 0 to ``most``, a worker makes before it waits: as many as have it wait least for
    the slowest worker's next update, if both take as long as for their latest (Zhao et al., ICDCS 2019). ``own``, ``slowest``:
    when the last two updates of each came, s; fewer are known at the beginning."""
    if len(own) < 2 or len(slowest) < 2 or slowest[1] <= slowest[0]:
        return 0
    every, wait = slowest[1] - slowest[0], dict[int, float]()
    for more in range(most + 1):
        end = own[1] + more * (own[1] - own[0])
        wait[more] = max(slowest[1] + every - end, (slowest[1] - end) % every)
    return min(wait, key=lambda more: (wait[more], more))


def batches(speeds: np.ndarray, points: int) -> list[int]:
    """Returns how many of ``points`` points each worker computes: one, and of the others in proportion to its speed (after
    LB-BSP), whole numbers by largest remainders. ``speeds``: float (workers,), in any unit; ``points`` are at least so many.
    Where no speed is a positive number, as beside updates so large that it is rounded to 0, all are taken for equally fast."""
    if not 0 < speeds.sum() < np.inf:
        speeds = np.ones(len(speeds))
    exact = 1 + (points - len(speeds)) * speeds / speeds.sum()
    whole = np.floor(exact).astype(int)
    whole[np.argsort(whole - exact, kind="stable")[: points - whole.sum()]] += 1
    return [int(each) for each in whole]
