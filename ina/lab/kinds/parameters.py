"""Trainings with a key-value parameter server of the third generation, in virtual time: real learning over the emulator's links.

Li et al., Scaling distributed machine learning with the parameter server, OSDI 2014: workers push updates of a range of keys to
the servers that have it, and pull the values. ina/lab/virtual/parameter_server has the servers; the network, with losses, is that
of other kinds. `consistency` says what a worker waits for, `aggregate` whether servers add up what all push before they apply it
and copy it to others, `filter` what is not worth sending, and `changes` which servers die, leave and join, and which workers die,
meanwhile.

At the end all servers' clocks are compared with what the workers have pushed, and all copies of a range with each other; a worker
that begins with values older than its bound is an error. Beside it, the same iterations with the sum in the switch.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check, Finding, Measured, Row
from ina.lab.oracle import choose_reduction
from ina.lab.results import report
from ina.lab.virtual import virtual_network
from ina.lab.virtual.computing import Computing
from ina.lab.virtual.learning import Task
from ina.lab.virtual.mailing import Mailing
from ina.lab.virtual.parameter_server.cluster import MOVED, Cluster, Shape
from ina.lab.virtual.parameter_server.filters import FILTERS
from ina.lab.virtual.parameter_server.mail import Mail, Stuck
from ina.lab.virtual.parameter_server.manager import Change, read_changes
from ina.lab.virtual.parameter_server.messages import COPIED, COPY, PULL, PUSH, PUSHED, STATE
from ina.lab.virtual.parameter_server.server import Rules
from ina.lab.virtual.parameter_server.worker import Plan
from ina.lab.virtual.timeline import Timeline
from ina.lab.virtual.virtual_network import Place
from ina.net.ports import PS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CONSISTENCIES = ("sequential", "bounded", "eventual")
CARRIED = {"push_mb": (PUSH, PUSHED), "pull_mb": (PULL, STATE), "copy_mb": (COPY, COPIED), "moved_mb": (MOVED,)}  # messages
LAST = 3  # measurements of the score that the table's is the mean of


@dataclass
class Served:
    """Result of a run. ``lived``: s, of all workers together, in which they had not died; ``scores``: virtual s, and the test
    accuracy of the servers' values; ``staleness``: of each iteration's values, in iterations; ``sent``: bytes by what they are
    for, without headers of packets; ``entries``: of pushes, that were sent, and that there were; ``clocks``: ranges with times of
    their own, of all workers; ``switch_seconds``: of the same iterations with sums in the switch; None: they do not wait for each
    other, or workers die."""

    label: str
    lived: float
    target: float
    seconds: float
    iterations: int
    scores: list[tuple[float, float]]
    staleness: list[int]
    waited: float
    sent: dict[str, int]
    entries: tuple[int, int]
    clocks: int
    switches: int
    switch_seconds: float | None
    busiest_link: str
    busiest_bytes: int
    link_use: float | None
    stats: dict[str, dict] = field(default_factory=dict)

    def summary(self) -> dict[str, object]:
        """Figures of the table."""
        megabytes = {name: 1e-6 * sum(self.sent.get(kind, 0) for kind in kinds) for name, kinds in CARRIED.items()}
        return {
            "job": self.label,
            "seconds": self.seconds,
            "switch_s": self.switch_seconds,
            "target_s": next((when for when, score in self.scores if 0 < self.target <= score), None),
            "score": statistics.fmean(score for _, score in self.scores[-LAST:]),
            "staleness": statistics.fmean(self.staleness),
            "stalest": max(self.staleness),
            "waiting": self.waited / self.lived,
            **megabytes,
            "entries": self.entries[0] / self.entries[1],
            "clocks": self.clocks,
            "switches": self.switches,
            "retransmissions": self.stats["workers"]["retransmissions"],
        }


@dataclass(frozen=True)
class Parameters(Mailing, Computing):
    """Training with a key-value parameter server, in virtual time."""

    meanings = {
        "staleness": "How many iterations ago the first one was of which an iteration's values lack a push; 0: they lack none.",
        "stalest": "The largest staleness of an iteration's values.",
    }
    guide = "Kind parameters: a key-value parameter server"
    kind: str = key("parameters", "what is done: parameters", choices=("parameters",))
    name: str = key("parameters", "the results folder's name begins with it")
    algorithm: str = key("parameter-server", "what is measured; the switch stands beside it",
                         choices=("parameter-server",))
    replicas: int = key(1, "other servers that have a copy of each range of keys", Range(0, 16))
    points: int = key(1, "of each server on the ring: its virtual servers", Range(1, 256))
    aggregate: str = key("all", "what a server applies and copies at once: all (the sum of all workers' pushes of "
                         "an iteration) or each (push by itself)", choices=("all", "each"))
    consistency: str = key("sequential", f"which iterations have to be over before one begins: {', '.join(CONSISTENCIES)} (all, "
                           "all but the last `bound`, none)", choices=CONSISTENCIES)
    bound: int = key(3, "bounded: iterations before this one that need not be over", Range(0, 1000))
    blocks: int = key(1, "ranges of keys, of which an iteration pushes and pulls one, drawn at random", Range(1, 4096))
    filter: str = key("none", f"which entries of a push are sent: {', '.join(FILTERS)}", choices=tuple(FILTERS))
    threshold: float = key(0.0, "significant: change that an entry has to exceed; random, skip: part that is not sent; kkt: lr "
                           "times the paper's delta", limits.FACTOR)
    key_cache: bool = key(False, "send, of keys that are those of the push before, their signature only")
    l1: float = key(0.0, "weight of the sum of all parameters' absolute values in what is minimised", limits.FACTOR)
    changes: str = key("", "at what s which server dies, leaves or joins, or which worker dies: '0.5 die 1, 2 join 4, 3 die "
                       "worker 0'; empty: none")
    detect: float = key(0.01, "s until the others notice that one is gone", limits.TIME)
    steps: int = key(300, "iterations of each worker", limits.STEPS)
    width: int = key(16, "units of the hidden layer of what learns", Range(1, 4096))
    batch: int = key(16, "points of a step", Range(1, 8000))
    lr: float = key(0.5, "learning rate", limits.FACTOR)
    own: float = key(0.0, "part of a worker's points that are of classes of its own: 0 (as dealt) to 1 (sorted)",
                     limits.PROBABILITY)
    target: float = key(0.75, "test accuracy whose time is reported; 0: none", limits.PROBABILITY)
    evaluate: int = key(10, "iterations of worker 0 (if it dies, of the next one) between two measurements of the score",
                        Range(1, 10**9))
    computing: float = key(0.01, "s that a worker computes in a step, on average", limits.TIME)
    timeout: float = key(10_000.0, "virtual seconds after which a message, or a sum, has failed", limits.TIME)

    rows = (
        Row("seconds", "all iterations, virtual s", "s", "{:.3f}"),
        Row("switch_s", "the same, sums in the switch, virtual s", "switch s", "{:.3f}"),
        Row("target_s", "time to the target, virtual s", "s to target", "{:.3f}"),
        Row("score", "test accuracy, mean of the last three measurements", "score", "{:.1%}"),
        Row("staleness", "staleness of an iteration's values, mean, in iterations", "stale", "{:.2f}"),
        Row("stalest", "largest", "most", "{:,}"),
        Row("waiting", "part of the time in which a worker waits", "waiting", "{:.1%}"),
        Row("push_mb", "pushes, MB", "push MB", "{:.3f}"),
        Row("pull_mb", "pulls, MB", "pull MB", "{:.3f}"),
        Row("copy_mb", "copies of what was applied, MB", "copy MB", "{:.3f}"),
        Row("moved_mb", "ranges that changed servers, MB", "moved MB", "{:.3f}"),
        Row("entries", "entries that a filter lets through", "sent", "{:.1%}"),
        Row("clocks", "ranges with times of their own, of all workers", "ranges", "{:,}"),
        Row("switches", "changes of the servers", "changes", "{:,}"),
        Row("retransmissions", "retransmissions (all hosts)", "again", "{:,}"),
    )

    def check_reductions(self) -> None:
        choose_reduction(self.protocol, self.dtype)

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield self.replicas < self.servers, "replicas", f"less than {self.servers}, the servers"
        yield self.aggregate == "all" or self.consistency != "sequential", "aggregate", "all with consistency = 'sequential'"
        yield self.blocks <= self.task.parameters, "blocks", f"at most {self.task.parameters}, the keys"
        yield (self.filter not in ("random", "skip") or self.threshold < 1, "threshold",
               f"less than 1 with filter = '{self.filter}'")
        yield self.filter != "kkt" or self.l1 > 0, "l1", "more than 0 with filter = 'kkt'"
        yield (self.filter != "kkt" or self.threshold <= self.lr * self.l1, "threshold",
               f"at most {self.lr * self.l1:g}, lr times l1, with filter = 'kkt'")
        yield not self.key_cache or self.filter != "none", "key_cache", "false without a filter: pushes have no keys"
        yield self.filter != "none" or not self.threshold, "threshold", "0 without a filter"
        yield self.steps >= 1, "steps", "1 or more"
        yield self.computing > 0, "computing", "more than 0"
        read_changes(self.changes, self.servers, self.workers)  # a wrong one is an error before anything runs

    def unused(self) -> Mapping[str, str]:
        return {} if self.consistency == "bounded" else {"bound": "consistency = bounded"}

    @property
    def task(self) -> Task:
        """Task that the workers learn."""
        return Task(self.workers, self.width, self.own, self.seed)

    @property
    def events(self) -> list[Change]:
        """Changes of servers and workers, by time."""
        return read_changes(self.changes, self.servers, self.workers)

    @property
    def delay_bound(self) -> int | None:
        """Iterations that need not be over, None: any number."""
        return {"sequential": 0, "bounded": self.bound, "eventual": None}[self.consistency]

    @property
    def label(self) -> str:
        """Name of the run in the table."""
        consistency = f"bounded by {self.bound}" if self.consistency == "bounded" else self.consistency
        return consistency if self.aggregate == "all" else f"{consistency}, each by itself"

    @property
    def work(self) -> str:
        return (f"{self.steps:,} iterations of {self.label}, {counted(self.servers, 'server')} with "
                f"{self.replicas} copies of each range, filter {self.filter}")

    def measure(self, timeline: Timeline | None = None) -> list[Served]:
        return [serve(self.resolved(), timeline or Timeline())]

    def title(self, results: Sequence[Measured]) -> str:
        return f"{counted(self.workers, 'worker')}, {counted(self.servers, 'server')}, {self.label}"

    def figures(self, results: Sequence[Measured]) -> list[tuple[str, str]]:
        return [("Score", report.svg(partial(_draw_scores, [run for run in results if isinstance(run, Served)])))]

    def why(self, run: dict, summary: dict) -> Finding:
        """Says what workers do with their time."""
        text = (f"a worker waits {summary['waiting']:.0%} of the time; values are {summary['staleness']:.1f} iterations old on "
                f"average, {summary['stalest']} at most")
        return Finding(summary["job"], "straggler" if summary["waiting"] > 0.1 else "compute", text)


class _Learner:
    """Task of the workers, for the servers' cluster: updates, times, and measurements of the score."""

    def __init__(self, config: Parameters):
        self.config, self.task = config, config.task
        self.first = self.task.initial()
        self.busy = 0.0  # s, of all workers together
        self._data = [np.random.default_rng((config.seed, 3, worker)) for worker in range(config.workers)]
        self._times = [np.random.default_rng((config.seed, 4, worker)) for worker in range(config.workers)]

    def update(self, worker: int, iteration: int, values: np.ndarray) -> np.ndarray:
        """Returns by how much the values fall in a step of SGD on a worker's points. Raises Diverged: it is too large."""
        config = self.config
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is looked at
            update = self.task.update(values, worker, self._data[worker], config.batch, config.lr, 1)
        name = f"the update of worker {worker} in iteration {iteration}"
        virtual_network.check_summable(update, config.workers, name, config.lr)
        return update

    def seconds(self, worker: int) -> float:
        """Returns how long a worker computes its next step."""
        seconds = self.config.seconds(worker, self._times[worker])
        self.busy += seconds
        return seconds


def serve(config: Parameters, timeline: Timeline) -> Served:
    """Trains, and measures the same iterations with sums in the switch. ``timeline`` records the events of the first.

    Raises:
        Diverged: an update is too large for any sum, infinite, or no number.
        JobError: a message failed, at a deadline or otherwise.
        LostRange: more servers died than there are copies.
        StaleRead: a worker's values were older than its bound.
        WrongSum: a push is in no server, or copies differ.
    """
    spare = 1 + max([config.servers - 1, *(change.server for change in config.events if not change.is_worker)])
    place = virtual_network.place(config, more=spare)
    names = [host.name for host in place.topology.hosts]
    learner = _Learner(config)
    keys = learner.task.parameters
    with virtual_network.fabric(config, place) as network:
        mail = Mail(config, network)
        edges = [keys * block // config.blocks for block in range(config.blocks + 1)]
        order = np.random.default_rng((config.seed, 6)).integers(config.blocks, size=config.steps).tolist()
        plan = Plan(list(zip(edges, edges[1:], strict=False)), order, config.delay_bound, config.filter, config.threshold,
                    config.lr * config.l1, config.key_cache)
        rules = Rules(config.workers, keys, config.aggregate == "all", config.workers, config.lr * config.l1)
        ends = [0.0] * config.workers  # of each one's latest step of computing, s
        scores = [(0.0, learner.task.score(learner.first))]

        def update(worker: int, iteration: int, values: np.ndarray) -> np.ndarray:
            if worker == cluster.first_living and iteration and iteration % config.evaluate == 0:
                scores.append((mail.now / PS, learner.task.score(cluster.values())))
            return learner.update(worker, iteration, values)

        def compute(worker: int) -> float:
            seconds = learner.seconds(worker)
            ends[worker] = mail.now / PS + seconds
            return seconds

        cluster = Cluster(mail, names[: config.workers], names[config.workers :], learner.first,
                          Shape(config.servers, config.replicas, config.points), plan, rules, update, compute,
                          config.events, config.detect, config.seed)
        cluster.run(timeline)
        seconds = mail.now / PS
        scores.append((seconds, learner.task.score(cluster.values())))
        workers = cluster.workers
        lived = sum(seconds if worker.died is None else worker.died for worker in workers)
        busy = learner.busy - sum(max(0.0, ends[worker.number] - worker.died) for worker in workers if worker.died is not None)
        in_switch = config.consistency == "sequential" and not any(change.is_worker for change in config.events)
        return Served(
            config.label, lived, config.target, seconds, config.steps, scores,
            [stale for worker in workers for stale in worker.staleness], lived - busy,
            dict(mail.bytes),
            (sum(worker.entries for worker in workers), sum(worker.possible for worker in workers)), cluster.clocks(),
            cluster.manager.switches, _in_switch(config, place) if in_switch else None,
            stats=virtual_network.counters(network, config, mail.jobs, names),
            **virtual_network.link_figures(network, seconds))


def _in_switch(config: Parameters, place: Place) -> float:
    """Returns how long the same iterations take with the sum of each in the switch, s: compute times are the same. A worker
    computes from the moment at which it has the sum before.

    Raises:
        JobError: a sum failed, at its deadline or otherwise.
        Stuck: nothing is left to happen, and workers still wait.
    """
    learner, hosts = _Learner(config), place.hosts(config)[0]
    reduction = choose_reduction(config.protocol, config.dtype)
    left, seconds = [config.steps] * len(hosts), 0.0
    with virtual_network.fabric(config, place) as network:
        job = network.admit(hosts, config.window, config.values, name="switch", **virtual_network.waits(config))
        network.stop_at_completions()

        def begin(worker: int, end: int) -> None:
            start = max(end + round(PS * learner.seconds(worker)), network.now)
            network.submit_one(job, worker, learner.first, np.empty_like(learner.first), after=start - network.now,
                               reduction=reduction)

        for worker in range(config.workers):
            begin(worker, 0)
        while any(left):
            idle, completions = network.run(), network.completions()
            for completion in completions:
                completion.raise_failed()
                worker, seconds = job.machines.index(completion.machine), completion.time / PS
                left[worker] -= 1
                if left[worker]:
                    begin(worker, completion.time)
            if idle and not completions:
                raise Stuck("nothing is left to happen, and workers wait for a sum in the switch")
    return seconds


def _draw_scores(runs: Sequence[Served], axes: Axes) -> None:
    for run in runs:
        axes.plot([when for when, _ in run.scores], [100 * score for _, score in run.scores], label=run.label)
    report.targets(axes, [run.target for run in runs])
    axes.set(xlabel="virtual time, s", ylabel="test accuracy, %")
    report.legend(axes)


KIND = Parameters
