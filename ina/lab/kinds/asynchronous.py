"""Asynchronous training in virtual time: real learning by workers whose compute times differ, of which each sum has some.

Each worker has a copy of the parameters, to which it applies the same sums in the same order, so that copies of one version are
equal. It computes an update on its own data and offers it to the next sum that is not over; a sum is complete when enough
workers have offered (p4/quorum.p4). The `staleness` of an update is the number of sums between the version that it was computed
at and the one that it goes to. `method` says how many are enough, whether a worker waits for the sum that has its update before
it computes the next one, and how far apart workers may be: ina/lab/virtual/methods.py.

Every sum is compared with the updates that it names, every copy with the others of its version, and every bound with the numbers
of the sums.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ina.base.plurals import counted
from ina.base.settings import key
from ina.lab.kind import Finding, Measured, Row
from ina.lab.results import report
from ina.lab.virtual import virtual_network
from ina.lab.virtual.asynchronous.keys import AsynchronousKeys
from ina.lab.virtual.asynchronous.run import Run
from ina.lab.virtual.timeline import Timeline
from ina.net.ports import PS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPANS = 200  # of each worker, in the trace


@dataclass
class Learned:
    """Result of a run. ``scores``: virtual s, updates in sums so far, and the score of worker 0's copy: test accuracy, or for
    which part of an episode the pole stands. ``staleness``: of each update that is in a sum; ``waited``: s, of all workers
    together."""

    method: str
    workers: int
    target: float
    seconds: float
    sums: int
    scores: list[tuple[float, int, float]]
    staleness: list[int]
    apart: int  # most updates of the fastest worker beyond the slowest one's, where a worker began
    dropped: int
    waited: float
    busiest_link: str
    busiest_bytes: int
    link_use: float | None
    stats: dict[str, dict] = field(default_factory=dict)
    enough: list[int] = field(default_factory=list)  # fewest and most workers that were enough for a sum
    allowed: list[int] = field(default_factory=list)  # staleness that each such update was allowed, where that changes

    def summary(self) -> dict[str, object]:
        """Figures of the table."""
        reached = next(((when, updates) for when, updates, score in self.scores if 0 < self.target <= score),
                       (None, None))
        return {
            "job": self.method,
            "target_s": reached[0],
            "target_updates": reached[1],
            "score": statistics.fmean(score for *_, score in self.scores[-3:]),
            "per_second": len(self.staleness) / self.seconds,
            "sums_per_second": self.sums / self.seconds,
            "staleness": statistics.fmean(self.staleness),
            "stalest": max(self.staleness),
            "allowed": statistics.fmean(self.allowed) if self.allowed else None,
            "apart": self.apart,
            "dropped": self.dropped / (self.dropped + len(self.staleness)),
            "waiting": self.waited / (self.workers * self.seconds),
            "retransmissions": self.stats["workers"]["retransmissions"],
        }


@dataclass(frozen=True)
class Asynchronous(AsynchronousKeys):
    """Training with sums of some workers' updates, in virtual time, of a small task that is really learnt."""

    kind: str = key("asynchronous", "what is done: asynchronous", choices=("asynchronous",))
    name: str = key("asynchronous", "the results folder's name begins with it")

    rows = (
        Row("target_s", "time to the target, virtual s", "s to target", "{:.2f}"),
        Row("target_updates", "updates to the target", "updates", "{:,}"),
        Row("score", "score, mean of the last three measurements", "score", "{:.1%}"),
        Row("per_second", "updates in sums, a virtual second", "a second", "{:.0f}"),
        Row("sums_per_second", "sums, a virtual second", "sums/s", "{:.0f}"),
        Row("staleness", "staleness of an update, mean, in sums", "stale", "{:.2f}"),
        Row("stalest", "largest", "most", "{:,}"),
        Row("allowed", "staleness that it was allowed, mean, where that changes", "allowed", "{:.2f}"),
        Row("apart", "updates of a worker beyond the slowest one's, at most", "apart", "{:,}"),
        Row("dropped", "updates that were too stale to be sent", "dropped", "{:.1%}"),
        Row("waiting", "part of the time in which a worker waits", "waiting", "{:.1%}"),
        Row("retransmissions", "retransmissions (all workers)", "again", "{:,}"),
    )
    meanings = {
        "dropped": "Share of the updates that were computed and then not sent, because they were too stale for any sum.",
        "staleness": "Sums that were complete between the parameters that an update was computed at and the sum that it is in.",
        "allowed": "Bound of an update's staleness when it was offered to the sum that it is in (`patience`).",
        "stalest": "The largest staleness of an update.",
        "retransmissions": "Packets that workers sent again because an answer was late, or to ask once more: each asks for the "
                           "next sum before it has an update for it, and again until the switch or server has decided it, where "
                           "nothing was lost, too.",
    }
    guide = "Kind asynchronous: trainings that do not wait for everybody"

    @property
    def at_first(self) -> str:
        """Words behind ``enough`` where it changes; "": it does not."""
        return " at the beginning" if self.way.adapts else ""

    @property
    def work(self) -> str:
        return (f"{self.task}: {self.updates:,} updates by {self.method} ({self.way.about}), {self.enough} of {self.workers} are "
                f"enough{self.at_first}")

    def measure(self, timeline: Timeline | None = None) -> list[Learned]:
        return [learn(self.resolved(), timeline or Timeline())]

    def title(self, results: Sequence[Measured]) -> str:
        return (f"{self.method}: {self.enough} of {counted(self.workers, 'worker')}{self.at_first}; {self.distribution} compute "
                f"times of {1e3 * self.computing * self.local:g} ms")

    def figures(self, results: Sequence[Measured]) -> list[tuple[str, str]]:
        runs = [run for run in results if isinstance(run, Learned)]
        return [("Score", report.svg(partial(_draw_scores, runs))),
                ("Staleness", report.svg(partial(_draw_staleness, runs)))]

    def why(self, run: dict, summary: dict) -> Finding:
        """Says what workers do with their time."""
        fewest, most = run.get("enough") or [self.enough] * 2
        enough = f"{fewest} of {self.workers}" if fewest == most else f"{fewest} to {most} of {self.workers}, which changes"
        text = (f"a worker waits {summary['waiting']:.0%} of the time, for {enough}; updates are "
                f"{summary['staleness']:.1f} sums old on average, {summary['stalest']} at most")
        return Finding(summary["job"], "straggler" if summary["waiting"] > 0.1 else "compute", text)


def learn(config: Asynchronous, timeline: Timeline) -> Learned:
    """Trains until sums have as many updates as are asked for. ``timeline`` records the events.

    Raises:
        Diverged: an update is too large for any sum, infinite, or no number.
        JobError: a sum failed, at a deadline or otherwise.
        StaleSum: a bound of the method is not kept.
        WrongSum: a sum is not that of the updates that it names, or copies of the parameters differ.
    """
    place = virtual_network.place(config)
    with virtual_network.fabric(config, place) as network:
        above = virtual_network.servers(network, config, place)
        job = virtual_network.admit(network, config, place, above)[0]
        network.stop_at_completions()
        run = Run(config, network, job)
        for worker in run.workers:
            run.go_on(worker)
        while not run.over:
            timeline.run(network)
            for completion in network.completions():
                run.completed(completion)
        seconds, sums = run.scores[-1][0], run.workers[0].version
        waited = (run.waited + sum(network.now - worker.idle for worker in run.workers if worker.idle is not None)) / PS
        timeline.jobs.append((job.name, [worker.spans[:SPANS] for worker in run.workers]))
        return Learned(
            config.method, config.workers, config.target, seconds, sums, run.scores, run.judge.staleness(sums),
            run.judge.check_bounds(sums, run.ahead), run.dropped, waited,
            stats=virtual_network.counters(network, config, [job], job.hosts), enough=run.judge.range_of_enough(),
            allowed=run.judge.allowances(sums) if config.patience else [],
            **virtual_network.link_figures(network, seconds))


def _draw_scores(runs: Sequence[Learned], axes: Axes) -> None:
    for run in runs:
        axes.plot([when for when, *_ in run.scores], [100 * score for *_, score in run.scores], label=run.method)
    report.targets(axes, [run.target for run in runs])
    axes.set(xlabel="virtual time, s", ylabel="score, %")
    report.legend(axes)


def _draw_staleness(runs: Sequence[Learned], axes: Axes) -> None:
    for run in runs:
        counts = np.bincount(run.staleness)
        axes.bar(np.arange(len(counts)), 100 * counts / counts.sum(), label=run.method)
    axes.set(xlabel="staleness, sums", ylabel="updates in sums, %")
    report.legend(axes)


KIND = Asynchronous
