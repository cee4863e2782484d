"""Asynchronous training in virtual time: real learning by workers whose compute times differ, of which each sum has some.

Each worker has a copy of the parameters, to which it applies the same sums in the same order, so that copies of one version are
equal. It computes an update on its own data and offers it to the next sum that is not over; a sum is complete when enough
workers have offered (p4/quorum.p4). The `staleness` of an update is the number of sums between the version that it was computed
at and the one that it goes to. `method` says how many are enough, whether a worker waits for the sum that has its update before
it computes the next one, and how far apart workers may be:

    synchronous  the sum of all; all wait
    first        of the first `least`; who is late gives to a later sum
    iswitch      of the first `least`; nobody waits; what is staler than `bound` is not sent (Li et al., ISCA 2019)
    softsync     of the first workers/`splits`; nobody waits (n-softsync; Zhang et al., arXiv 1511.05950)
    ssp          of each by itself; a worker is at most `bound` updates ahead of the slowest (Ho et al., NIPS 2013)
    dssp         the same with a bound of `bound` to `upper`, chosen at each stop by predicted times (Zhao et al., ICDCS 2019)
    downpour     of each by itself, of `local` steps on a copy of its own, which it replaces by the shared one after `fetch`
                 updates; nobody waits (Dean et al., NIPS 2012)
    local        the average of what `local` steps of each have changed; `outer_momentum`: DiLoCo (arXiv 2311.08105)

Every sum is compared with the updates that it names, every copy with the others of its version, and every bound with the numbers
of the sums.
"""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.worker.offer import Offer
from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import key
from ina.lab import limits, oracle
from ina.lab.kind import Check, Finding, Measured, Row
from ina.lab.kinds.stragglers import DRAWN, OFFERING
from ina.lab.results import report
from ina.lab.virtual import virtual_network
from ina.lab.virtual.balancing import Balancing
from ina.lab.virtual.learning import Task
from ina.lab.virtual.timeline import Timeline
from ina.lab.virtual.virtual_network import Networked, WrongSum
from ina.net.ports import PS
from ina.worlds.virtual.fabric import Fabric, FabricJob
from ina.worlds.virtual.network import Completion

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS = ("synchronous", "first", "iswitch", "softsync", "ssp", "dssp", "downpour", "local")
CLOCKED = ("ssp", "dssp")
SPANS = 200  # of each worker, in the trace


class Kind(NamedTuple):
    """A task: what makes it, and its learning rate and target where nothing is said."""

    make: Callable[[Asynchronous], Task | Balancing]
    lr: float
    target: float


TASKS = {
    "classes": Kind(lambda config: Task(config.workers, config.width, config.own, config.seed), 0.5, 0.75),
    "cartpole": Kind(lambda config: Balancing(config.workers, config.width, config.seed), 0.1, 0.975),
}


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
            "apart": self.apart,
            "dropped": self.dropped / (self.dropped + len(self.staleness)),
            "waiting": self.waited / (self.workers * self.seconds),
            "retransmissions": self.stats["workers"]["retransmissions"],
        }


@dataclass(frozen=True)
class Asynchronous(Networked):
    """Training with sums of some workers' updates, in virtual time, of a small task that is really learnt."""

    kind: str = key("asynchronous", "what is done: asynchronous", choices=("asynchronous",))
    name: str = key("asynchronous", "the results folder's name begins with it")
    protocol: str = key(protocols.offering(), "what switch and workers speak: one that can choose the workers of a sum",
                        choices=OFFERING)
    workers: int = key(8, "workers, each at a host of its own", limits.WORKERS)
    method: str = key("synchronous", f"when a sum is complete, and who waits: {', '.join(METHODS)}", choices=METHODS)
    least: int = key(0, "workers that are enough for a sum; 0: with first three quarters, with iswitch half, with local all",
                     Range(0, 32, "workers", "workers"))
    splits: int = key(4, "softsync: into how many sums the workers' updates go", Range(1, 32))
    bound: int = key(3, "iswitch: staleness, in sums; ssp, dssp: updates that a worker is ahead of the slowest, at most",
                     Range(0, 1000))
    upper: int = key(0, "dssp: the same at most, where waiting does not pay; 0: bound + 12", Range(0, 2000))
    damping: str = key("none", "a stale update's weight: none (1), inverse (1/staleness, from 1 on), exponential (2/e to that)",
                       choices=("none", "inverse", "exponential"))
    local: int = key(0, "steps of a worker that make an update; 0: 1, with local 8, with downpour 2", Range(0, 10**6))
    fetch: int = key(2, "downpour: updates of a worker until it takes the shared parameters again", Range(1, 10**6))
    outer: str = key("sgd", "how all apply averages of updates: sgd or adagrad", choices=("sgd", "adagrad"))
    outer_lr: float = key(1.0, "what averages of updates are multiplied by", limits.FACTOR)
    outer_momentum: float = key(0.0, "Nesterov momentum of these averages", Range(0, 1))
    updates: int = key(4000, "stop when sums have so many workers' updates, of one step each; with local fewer", limits.STEPS)
    task: str = key("classes", "what is learnt: classes (of points) or cartpole (to balance a pole; reinforcement learning)",
                    choices=tuple(TASKS))
    width: int = key(16, "units of the hidden layer of what learns", Range(1, 4096))
    batch: int = key(16, "points of a step, or pushes: eight for each pole", Range(1, 8000))
    lr: float = key(0.0, "learning rate; 0: 0.5, with cartpole 0.1", limits.FACTOR)
    own: float = key(0.0, "part of a worker's points that are of classes of its own: 0 (as dealt) to 1 (sorted)",
                     limits.PROBABILITY)
    target: float = key(0.0, "score whose time is reported: of classes test accuracy, of cartpole the part of 200 steps that "
                        "the pole stands; 0: 0.75, with cartpole 0.975", limits.PROBABILITY)
    evaluate: int = key(80, "updates, of one step each, between two measurements of the score", Range(1, 10**9))
    computing: float = key(0.01, "s that a worker computes for a step, on average", limits.TIME)
    distribution: str = key("exponential", f"of these times: {', '.join(DRAWN)}", choices=tuple(DRAWN))
    straggler: float = key(1.0, "how many times slower worker 0 computes", Range(1, 1000))
    ahead: int = key(4, "sums beyond the latest that a worker knows of, in which it takes part",
                     Range(1, 64, "sums", "under way"))
    dtype: str = key("float32", "float32", choices=("float32",))
    rto_min: float = key(1e-3, "least retransmission time-out, s", limits.TIME)
    rto_max: float = key(1.0, "largest, s; also between two questions of a worker that waits", limits.TIME)
    timeout: float = key(10_000.0, "virtual seconds after which a sum has failed", limits.TIME)

    rows = (
        Row("target_s", "time to the target, virtual s", "s to target", "{:.2f}"),
        Row("target_updates", "updates to the target", "updates", "{:,}"),
        Row("score", "score, mean of the last three measurements", "score", "{:.1%}"),
        Row("per_second", "updates in sums, a virtual second", "a second", "{:.0f}"),
        Row("sums_per_second", "sums, a virtual second", "sums/s", "{:.0f}"),
        Row("staleness", "staleness of an update, mean, in sums", "stale", "{:.2f}"),
        Row("stalest", "largest", "most", "{:,}"),
        Row("apart", "updates of a worker beyond the slowest one's, at most", "apart", "{:,}"),
        Row("dropped", "updates that were too stale to be sent", "dropped", "{:.1%}"),
        Row("waiting", "part of the time in which a worker waits", "waiting", "{:.1%}"),
        Row("retransmissions", "retransmissions (all workers)", "again", "{:,}"),
    )

    def derived(self) -> dict[str, object]:
        least = {"first": self.workers - self.workers // 4, "iswitch": -(-self.workers // 2)}.get(self.method, self.workers)
        return super().derived() | {
            "least": self.least or least, "upper": self.upper or self.bound + 12,
            "local": self.local or {"local": 8, "downpour": 2}.get(self.method, 1),
            "lr": self.lr or TASKS[self.task].lr, "target": self.target or TASKS[self.task].target}

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield self.least <= self.workers, "least", f"at most {self.workers}, the workers"
        yield self.method != "softsync" or self.splits <= self.workers, "splits", f"at most {self.workers}, the workers"
        yield self.upper >= self.bound, "upper", f"{self.bound} or more, the bound"
        yield self.algorithm == "in-network" and self.stripes == 1, "algorithm", "in-network, with one stripe"
        yield self.jobs == 1, "jobs", "1"
        yield self.payload, "payload", "true: updates are real"
        yield self.outer_momentum < 1, "outer_momentum", "0 up to, not including, 1"
        yield self.outer == "sgd" or not self.outer_momentum, "outer_momentum", "0 with adagrad"
        yield self.own == 0 or self.task == "classes", "own", "0 with cartpole"
        yield self.outer_lr > 0, "outer_lr", "more than 0"
        yield self.updates >= self.workers * self.local, "updates", f"{self.workers * self.local} or more, one of each worker"
        yield self.check != "keyed", "check", "off or sum"

    @property
    def enough(self) -> int:
        """Workers whose updates complete a sum."""
        return {"synchronous": self.workers, "softsync": self.workers // self.splits, "ssp": 1, "dssp": 1, "downpour": 1}.get(
            self.method, self.least)

    @property
    def waits(self) -> bool:
        """True: a worker computes nothing until a sum has its update."""
        return self.method not in ("iswitch", "softsync", "downpour")

    @property
    def shares(self) -> bool:
        """True: a sum is divided by all workers, so that each update counts the same; else by those that are in it."""
        return self.method in ("softsync", "downpour", *CLOCKED)

    @property
    def work(self) -> str:
        return f"{self.task}: {self.updates:,} updates by {self.method}, {self.enough} of {self.workers} are enough"

    def measure(self, timeline: Timeline | None = None) -> list[Learned]:
        return [learn(self.resolved(), timeline or Timeline())]

    def title(self, results: Sequence[Measured]) -> str:
        return (f"{self.method}: {self.enough} of {counted(self.workers, 'worker')}; {self.distribution} compute times of "
                f"{1e3 * self.computing * self.local:g} ms")

    def figures(self, results: Sequence[Measured]) -> list[tuple[str, str]]:
        runs = [run for run in results if isinstance(run, Learned)]
        return [("Score", report.svg(partial(_draw_scores, runs))),
                ("Staleness", report.svg(partial(_draw_staleness, runs)))]

    def why(self, run: dict, summary: dict) -> Finding:
        """Says what workers do with their time."""
        text = (f"a worker waits {summary['waiting']:.0%} of the time, for {self.enough} of {self.workers}; updates are "
                f"{summary['staleness']:.1f} sums old on average, {summary['stalest']} at most")
        return Finding(summary["job"], "straggler" if summary["waiting"] > 0.1 else "compute", text)


class StaleSum(WrongSum):
    """A sum has an update that is staler than the method allows, or a worker was too far ahead."""


@dataclass
class _Update:
    """A result of a worker. ``version``: of the parameters that it began with."""

    values: np.ndarray
    version: int


@dataclass
class _Worker:
    """A worker. ``version``: sums that it has applied; ``clocks``: updates of each worker in these; ``pushes``: when the last two
    of each came, s; ``memory``: momentum, or Adagrad's sums of squares."""

    number: int
    times: np.random.Generator
    data: np.random.Generator
    parameters: np.ndarray
    memory: np.ndarray
    clocks: np.ndarray
    pushes: list[list[float]]
    version: int = 0
    announced: int = 0
    allowed: int | None = None  # dssp: updates that it may still make before it waits; None: it is not ahead
    own: tuple[int, np.ndarray] | None = None  # downpour: version, and the copy that it has made of that and works on
    computed: int = 0  # updates
    computing: bool = False
    ready: deque[_Update] = field(default_factory=deque)  # not sent: what it has computed, behind what came too late for a sum
    offered: tuple[int, _Update] | None = None  # to which sum
    tickets: dict[int, int] = field(default_factory=dict)  # sum, by ticket
    outs: dict[int, np.ndarray] = field(default_factory=dict)
    arrived: dict[int, tuple[int, ...]] = field(default_factory=dict)  # contributors of sums that are not applied yet
    idle: int | None = 0  # ps, since when
    spans: list[tuple[str, float, float]] = field(default_factory=list)


class _Run:
    """All workers, driven by the network's events."""

    def __init__(self, config: Asynchronous, network: Fabric, job: FabricJob):
        self.config, self.network, self.job = config, network, job
        self.task = TASKS[config.task].make(config)
        first = self.task.initial()
        self.workers = [
            _Worker(number, np.random.default_rng((config.seed, 3, number)), np.random.default_rng((config.seed, 4, number)),
                    first, np.zeros_like(first), np.zeros(config.workers, int), [[0.0] for _ in range(config.workers)])
            for number in range(config.workers)]
        self.versions: dict[tuple[int, int], int] = {}  # of what was offered, by sum and worker
        self.values: dict[tuple[int, int], np.ndarray] = {}
        self.sets: dict[int, tuple[int, ...]] = {}  # contributors, by sum
        self.checked: Counter[int] = Counter()  # workers, by sum
        self.copies: dict[int, tuple[bytes, int]] = {}  # digest of each version, and how many have it
        self.begun: list[tuple[int, int]] = []  # version and worker, whenever one began
        self.scores = [(0.0, 0, self.task.score(first))]
        self.updates = self.dropped = self.waited = 0
        self._numbers = {machine: number for number, machine in enumerate(job.machines)}

    @property
    def over(self) -> bool:
        return self.updates * self.config.local >= self.config.updates

    def go_on(self, worker: _Worker) -> None:
        """Does what the worker can do now: takes part in sums, offers its update, computes."""
        config = self.config
        while worker.announced <= worker.version + config.ahead:
            out = worker.outs[worker.announced] = np.empty(self.task.parameters, np.float32)
            ticket = self.network.submit(self.job.machines[worker.number], None, out, tag=worker.announced,
                                         offer=Offer(config.enough))
            worker.tickets[ticket] = worker.announced
            worker.announced += 1
        while worker.ready and not worker.offered:
            self._offer(worker, worker.ready.popleft())
        if not (worker.computing or worker.ready or config.waits and worker.offered) and self._may_begin(worker):
            self._compute(worker)
        elif not worker.computing and worker.idle is None:
            worker.idle = self.network.now

    def _offer(self, worker: _Worker, update: _Update) -> None:
        """Offers an update to the first sum that the worker does not know to be over; or drops it: it would be too stale."""
        number = next(each for each in range(worker.version, worker.announced) if each not in worker.arrived)
        stale = number - update.version
        if self.config.method == "iswitch" and stale > self.config.bound:
            self.dropped += 1
            return
        weight = {"none": 1.0, "inverse": 1 / max(1, stale), "exponential": (np.e / 2) ** -stale}[self.config.damping]
        values = np.ascontiguousarray(update.values * np.float32(weight))
        self.versions[number, worker.number], self.values[number, worker.number] = update.version, values
        worker.offered = number, update
        ticket = next(ticket for ticket, each in worker.tickets.items() if each == number)
        self.network.amend(ticket, values)

    def _may_begin(self, worker: _Worker) -> bool:
        """Tells whether the worker is not too far ahead of the slowest."""
        config, ahead = self.config, int(worker.clocks[worker.number] - worker.clocks.min())
        if config.method not in CLOCKED or ahead <= config.bound:
            worker.allowed = None
            return True
        if worker.allowed is None:
            worker.allowed = self._further(worker) if config.method == "dssp" else 0
        worker.allowed -= 1
        return worker.allowed >= 0

    def _further(self, worker: _Worker) -> int:
        """Returns how many updates beyond the bound the worker makes before it waits: as many as have it wait least for the
        slowest worker's next update, if both take as long as for their latest."""
        slowest = int(np.argmin(worker.clocks))
        own, other = worker.pushes[worker.number], worker.pushes[slowest]
        if len(own) < 2 or len(other) < 2 or other[1] <= other[0]:
            return 0
        every, wait = other[1] - other[0], dict[int, float]()
        for more in range(self.config.upper - self.config.bound + 1):
            end = own[1] + more * (own[1] - own[0])
            wait[more] = max(other[1] + every - end, (other[1] - end) % every)
        return min(wait, key=lambda more: (wait[more], more))

    def _compute(self, worker: _Worker) -> None:
        config = self.config
        self.waited += self.network.now - (self.network.now if worker.idle is None else worker.idle)
        worker.idle, worker.computing = None, True
        self.begun.append((worker.version, worker.number))
        slow = config.straggler if worker.number == 0 else 1.0
        seconds = slow * config.computing * sum(DRAWN[config.distribution](worker.times) for _ in range(config.local))
        version, begin = worker.version, worker.parameters
        if worker.own is not None and worker.computed % config.fetch:
            version, begin = worker.own
        values = self.task.update(begin, worker.number, worker.data, config.batch, config.lr, config.local)
        if config.method == "downpour":
            worker.own = version, begin - values
        worker.computed += 1
        worker.spans.append((f"compute at version {version}", self.network.now / PS, self.network.now / PS + seconds))
        update = _Update(values, version)
        self.network.plan(self.network.now + round(seconds * PS), lambda: self._computed(worker, update))

    def _computed(self, worker: _Worker, update: _Update) -> None:
        worker.computing = False
        worker.ready.append(update)
        self.go_on(worker)

    def completed(self, completion: Completion) -> None:
        """Takes a worker's sum, applies those whose turn it is, and has the worker go on."""
        completion.raise_failed()
        worker = self.workers[self._numbers[completion.machine]]
        number = worker.tickets.pop(completion.ticket)
        worker.arrived[number] = completion.event.contributors
        self._check(worker.number, number, worker.outs[number], completion.event.contributors)
        if worker.offered and worker.offered[0] == number:
            update, worker.offered = worker.offered[1], None
            if worker.number not in completion.event.contributors:
                worker.ready.appendleft(update)
        while worker.version in worker.arrived:
            self._apply(worker, completion.time)
        self.go_on(worker)

    def _apply(self, worker: _Worker, time: int) -> None:
        config, number = self.config, worker.version
        contributors = worker.arrived.pop(number)
        average = worker.outs.pop(number) / np.float32(config.workers if config.shares else len(contributors))
        worker.parameters = worker.parameters - np.float32(config.outer_lr) * self._step(worker, average)
        worker.version += 1
        for each in contributors:
            worker.clocks[each] += 1
            worker.pushes[each] = [*worker.pushes[each][-1:], time / PS]
        self._compare(worker)
        if worker.number == 0:
            before = self.updates * config.local // config.evaluate
            self.updates += len(contributors)
            if self.updates * config.local // config.evaluate > before or self.over:
                self.scores.append((time / PS, self.updates, self.task.score(worker.parameters)))

    def _step(self, worker: _Worker, average: np.ndarray) -> np.ndarray:
        """Returns what an average of updates comes to with the worker's memory of those before."""
        if self.config.outer == "adagrad":
            worker.memory = worker.memory + average * average
            return average / np.sqrt(worker.memory + np.float32(1e-12))
        momentum = np.float32(self.config.outer_momentum)
        worker.memory = momentum * worker.memory + average
        return average + momentum * worker.memory if momentum else average

    def _compare(self, worker: _Worker) -> None:
        """Compares the worker's copy with others of its version."""
        digest = hashlib.sha256(worker.parameters.tobytes()).digest()
        known, count = self.copies.get(worker.version, (digest, 0))
        if digest != known:
            raise WrongSum(f"version {worker.version} of worker {worker.number} is another one than that of others")
        self.copies[worker.version] = known, count + 1
        if count + 1 == self.config.workers:
            del self.copies[worker.version]

    def _check(self, worker: int, number: int, out: np.ndarray, contributors: tuple[int, ...]) -> None:
        """Compares a sum with the updates that it names."""
        if self.sets.setdefault(number, contributors) != contributors:
            raise WrongSum(f"sum {number}: worker {worker} is told the contributors {contributors}, others {self.sets[number]}")
        if len(contributors) < self.config.enough:
            raise WrongSum(f"sum {number} is of {len(contributors)} workers, expected {self.config.enough} or more")
        given = [self.values[number, each] for each in contributors]
        right, error = oracle.expected(given, len(given), self.config.protocol, protocols.SUM)
        if not np.all(np.abs(out - right) <= error):
            raise WrongSum(f"sum {number}: worker {worker} has another one than that of the workers {contributors}")
        self.checked[number] += 1
        if self.checked[number] == self.config.workers:
            for each in range(self.config.workers):
                self.values.pop((number, each), None)

    def staleness(self) -> list[int]:
        """Returns that of each update in the sums that worker 0 has applied."""
        return [number - self.versions[number, each] for number in range(self.workers[0].version) for each in self.sets[number]]

    def check_bounds(self) -> int:
        """Walks through all sums again, by their numbers, and raises StaleSum where a bound of the method is not kept. Returns by
        how many updates a worker was ahead of the slowest where it began, at most."""
        config, apart, stalest = self.config, 0, max(self.staleness())
        most = {"synchronous": 0, "iswitch": config.bound}.get(config.method)
        if most is not None and stalest > most:
            raise StaleSum(f"an update of staleness {stalest}, expected at most {most} with {config.method}")
        ahead = {"ssp": config.bound, "dssp": config.upper}.get(config.method)
        clocks, done = np.zeros(config.workers, int), 0
        for version, worker in sorted(self.begun):
            while done < version:
                clocks[list(self.sets[done])] += 1
                done += 1
            apart = max(apart, int(clocks[worker] - clocks.min()))
            if ahead is not None and apart > ahead:
                raise StaleSum(f"worker {worker} began at version {version}, {apart} updates ahead of the slowest; expected at "
                               f"most {ahead} with {config.method}")
        return apart


def learn(config: Asynchronous, timeline: Timeline) -> Learned:
    """Trains until sums have as many updates as are asked for. ``timeline`` records the events.

    Raises:
        JobError: a sum failed, at a deadline or otherwise.
        StaleSum: a bound of the method is not kept.
        WrongSum: a sum is not that of the updates that it names, or copies of the parameters differ.
    """
    place = virtual_network.place(config)
    with virtual_network.fabric(config, place) as network:
        above = virtual_network.servers(network, config, place)
        job = virtual_network.admit(network, config, place, above)[0]
        network.stop_at_completions()
        run = _Run(config, network, job)
        for worker in run.workers:
            run.go_on(worker)
        while not run.over:
            timeline.run(network)
            for completion in network.completions():
                run.completed(completion)
        seconds = run.scores[-1][0]
        waited = (run.waited + sum(network.now - worker.idle for worker in run.workers if worker.idle is not None)) / PS
        timeline.jobs.append((job.name, [worker.spans[:SPANS] for worker in run.workers]))
        return Learned(
            config.method, config.workers, config.target, seconds, run.workers[0].version, run.scores,
            run.staleness(), run.check_bounds(), run.dropped, waited,
            stats=virtual_network.counters(network, config, [job], job.hosts), **virtual_network.link_figures(network, seconds))


def _draw_scores(runs: Sequence[Learned], axes: Axes) -> None:
    for run in runs:
        axes.plot([when for when, *_ in run.scores], [100 * score for *_, score in run.scores], label=run.method)
        if run.target:
            axes.axhline(100 * run.target, linestyle=":", linewidth=1, color="gray")
    axes.set(xlabel="virtual time, s", ylabel="score, %")
    report.legend(axes)


def _draw_staleness(runs: Sequence[Learned], axes: Axes) -> None:
    for run in runs:
        counts = np.bincount(run.staleness)
        axes.bar(np.arange(len(counts)), 100 * counts / counts.sum(), label=run.method)
    axes.set(xlabel="staleness, sums", ylabel="updates in sums, %")
    report.legend(axes)


KIND = Asynchronous
