"""Trials of the ways that a tensor may travel: the choice itself is ina.codecs.planner's.

For codec = "auto" the first calls of a tensor (a bucket, or a size) are measured, with the values that are to be summed
anyway: TRIES uncompressed, and then in turns, so that other work on the machine meets all alike, uncompressed, through Gloo,
and by the codec that is estimated to be fastest, TRIES each; medians count. All ranks agree twice on the slowest rank's
figures: of costs before a codec is tried, and of times before the decision. Where only the switch and Gloo are to choose
from, these take turns at once, and no rank waits for another in a call that its program did not mean to wait: the first
rank that comes LAG calls later says for all whether everybody's figures are there; if not, it is asked again LAG calls later.
After AGAIN calls links or values may have changed: it begins anew.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist

from ina.aggregation.lane import INT32
from ina.backend.ballot import Ballot
from ina.backend.counters import COUNTERS
from ina.codecs import costs
from ina.codecs.planner import DEFAULT, EITHER, Link, Plan, propose, settle, worth_measuring

TRIES = 3
LAG = 26  # calls from the last that is tried to the decision, or to the next chance of it
AGAIN = 1000  # calls of a tensor after which it is tried anew
IMPOSSIBLE = float("inf")  # seconds of a codec that fails


@dataclass
class Trial:
    """Calls of one tensor so far. ``waiting``: futures of calls whose times are not known yet."""

    calls: int = 0
    times: dict[str, list[float]] = field(default_factory=dict)
    waiting: list[torch.futures.Future] = field(default_factory=list)
    question: str = ""  # of times
    proposal: Plan | None = None
    plan: Plan | None = None


class Planner:
    """The plans of one rank of one group. All ranks ask in the same order.

    ``latency``: seconds of a small round through the switch; ``usable``: whether the group's protocol has what a codec needs;
    ``rate``: bit/s of a link, where it is stated, else 0; ``headers``: bytes of its frames over those of their values.
    """

    def __init__(self, workers: int, ballot: Ballot, latency: Callable[[], float], usable: Callable[[str], bool],
                 rate: float = 0.0, headers: float = 1.0):
        self._workers, self._ballot, self._latency, self._usable = workers, ballot, latency, usable
        self._rate, self._headers = rate, headers
        self._questions: Counter[str] = Counter()  # by title, so far
        self._trials: dict[tuple[str, tuple[str, ...]], Trial] = {}

    def way(self, title: str, allowed: tuple[str, ...], values: torch.Tensor | None) -> str:
        """Returns the way of this call of a tensor. ``title``: its name, the same on all ranks; ``values``: None, where there are
        only SWITCH and GLOO."""
        trial = self._trials.setdefault((title, allowed), Trial())
        if trial.calls == AGAIN:
            trial = self._trials[title, allowed] = Trial()
        trial.calls += 1
        if trial.plan is not None:
            return trial.plan.way
        turn = trial.calls - 1 - (0 if values is None else TRIES)
        if turn < 0:
            return DEFAULT
        if trial.proposal is None:
            trial.proposal = EITHER if values is None else self._propose(trial, title, allowed, values)
            trial.times.clear()
        ways = list(trial.proposal.seconds)
        late = turn - TRIES * len(ways)
        if late < 0:
            return ways[turn % len(ways)]
        if late == 0:
            self._ask(trial, title, allowed)
        if values is None:
            if late == 0 or late % LAG or not self._ballot.complete(trial.question, late):
                return DEFAULT
        else:
            self._times(trial)
        measured = self._ballot.largest(trial.question)
        trial.plan = settle(trial.proposal, dict(zip(ways, measured, strict=True)))
        COUNTERS.planned(title, trial.plan.reason)
        return trial.plan.way

    def note(self, title: str, allowed: tuple[str, ...], way: str, began: float, work: dist.Work) -> None:
        """Notes the time of a call that is tried, when it has ended."""
        trial = self._trials[title, allowed]
        if not trial.question:
            times = trial.times.setdefault(way, [])

            def ended(done: torch.futures.Future) -> None:
                done.value()  # raises what the call failed with
                times.append(time.monotonic() - began)

            trial.waiting.append(work.get_future().then(ended))

    def _question(self, title: str, allowed: tuple[str, ...]) -> str:
        """Returns a new question, the same on all ranks."""
        name = ", ".join([title, *allowed])
        self._questions[name] += 1
        return f"{name}: {self._questions[name]}"

    def _ask(self, trial: Trial, title: str, allowed: tuple[str, ...]) -> None:
        """Gives this rank's times when all calls that were tried have ended."""
        assert trial.proposal is not None
        question, ways = self._question(title, allowed), list(trial.proposal.seconds)

        def ended(_: torch.futures.Future) -> None:
            self._ballot.give(question, [statistics.median(trial.times.get(way) or [IMPOSSIBLE]) for way in ways])

        trial.question = question
        torch.futures.collect_all(trial.waiting).then(ended)

    def _propose(self, trial: Trial, title: str, allowed: tuple[str, ...], values: torch.Tensor) -> Plan:
        elements = values.numel()
        names = [name for name in worth_measuring(allowed, elements, self._workers) if self._usable(name)]
        flat = values.detach().resolve_neg().reshape(-1).to(torch.float32).numpy()
        figures = [statistics.median(self._times(trial)[DEFAULT]), self._latency(), -self._rate]
        for name in names:
            figures += _cost(name, flat, self._workers)
        question = self._question(title, allowed)
        self._ballot.give(question, figures)
        dense, latency, slowest, *rest = self._ballot.largest(question)
        rate = -slowest  # 0: some rank does not state one
        known = {name: costs.Cost(rest[3 * i], int(rest[3 * i + 1]), int(rest[3 * i + 2]), costs.named(name).rounds)
                 for i, name in enumerate(names) if rest[3 * i] < IMPOSSIBLE}
        link = Link(rate, latency, self._headers) if rate > 0 else Link.measured(INT32.bytes(elements), dense, latency)
        return propose(elements, self._workers, known, link)

    def _times(self, trial: Trial) -> dict[str, list[float]]:
        """Waits for the calls so far, and returns their seconds by way. Raises what a call failed with."""
        for future in trial.waiting:
            future.wait()
        trial.waiting.clear()
        return trial.times


def _cost(name: str, values: np.ndarray, workers: int) -> tuple[float, float, float]:
    """Returns seconds and bytes up and down of a codec; IMPOSSIBLE seconds, where it fails here."""
    try:
        cost = costs.cost(name, values, workers)
    except Exception as error:  # of whatever kind, as codecs may be the user's own. No rank uses it then
        warnings.warn(f"ina: codec 'auto' leaves out {name}: {type(error).__name__}: {error}", stacklevel=2)
        return IMPOSSIBLE, 0.0, 0.0
    return cost.seconds, float(cost.up), float(cost.down)


