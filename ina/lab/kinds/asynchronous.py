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
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ina.aggregation.worker.offer import Offer
from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check, Finding, Measured, Row
from ina.lab.results import report
from ina.lab.virtual import virtual_network
from ina.lab.virtual.balancing import ROLLOUT, Balancing
from ina.lab.virtual.client_tiers import Rounds
from ina.lab.virtual.client_tiers import weight as weight_of_late
from ina.lab.virtual.images import Images
from ina.lab.virtual.judge import Judge
from ina.lab.virtual.learning import Task
from ina.lab.virtual.loss_prediction import LossTrend
from ina.lab.virtual.masks import Masks, parts, whole
from ina.lab.virtual.methods import METHODS, Method, Terms, batches, further
from ina.lab.virtual.offering import Offering
from ina.lab.virtual.semi_asynchronous import factor, participants
from ina.lab.virtual.shared_masks import SharedMasks
from ina.lab.virtual.timeline import Timeline
from ina.net.ports import PS
from ina.worlds.virtual.fabric import Fabric, FabricJob
from ina.worlds.virtual.network import Completion

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMOOTHING = 0.1  # weight of the latest compute time in a worker's mean, from which its speed follows
FASTEST = 1e-3  # least mean, in means of all: nobody is taken for more than a thousand times faster
LARGEST = 2.0**126  # of a float that a sum can have: docs/design/protocol.md, "Not finite"
SPANS = 200  # of each worker, in the trace


class Kind(NamedTuple):
    """A task: what makes it, and its learning rate and target where nothing is said."""

    make: Callable[[Asynchronous], Task | Balancing]
    lr: float
    target: float


TASKS = {
    "classes": Kind(lambda config: Task(config.workers // config.together, config.width, config.own, config.seed,
                                        config.concentration), 0.5, 0.75),
    "images": Kind(lambda config: Images(config.workers // config.together, config.width, config.own, config.seed,
                                         config.concentration), 0.2, 0.8),
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
    enough: list[int] = field(default_factory=list)  # fewest and most workers that were enough for a sum

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
class Asynchronous(Offering):
    """Training with sums of some workers' updates, in virtual time, of a small task that is really learnt."""

    meanings = {
        "dropped": "Share of the updates that were computed and then not sent, because they were too stale for any sum.",
        "staleness": "Sums that were complete between the parameters that an update was computed at and the sum that it is in.",
        "stalest": "The largest staleness of an update.",
        "retransmissions": "Packets that workers sent again because a result was late. A worker that waits for a sum asks "
                           "again, too, where nothing was lost.",
    }
    guide = "Kind asynchronous: trainings that do not wait for everybody"
    kind: str = key("asynchronous", "what is done: asynchronous", choices=("asynchronous",))
    name: str = key("asynchronous", "the results folder's name begins with it")
    method: str = key("synchronous", f"when a sum is complete, and who waits: {', '.join(METHODS)}", choices=tuple(METHODS))
    least: int = key(0, "workers that are enough for a sum; 0: with first three quarters, with iswitch half, with fedsa half at "
                     "the beginning, with fedlesscan three quarters of `chosen`, with local all",
                     Range(0, 32, "workers", "workers"))
    splits: int = key(4, "softsync: into how many sums the workers' updates go", Range(1, 32))
    bound: int = key(3, "iswitch, fedlesscan: staleness, in sums; ssp, dssp: updates that a worker is ahead of the slowest, at "
                     "most", Range(0, 1000))
    upper: int = key(0, "dssp: the same at most, where waiting does not pay; 0: bound + 12", Range(0, 2000))
    noise: float = key(4.0, "fedsa: workers' updates that teach half as much as if each were of all data", Range(0, 1000))
    budget: float = key(0.0, "fedsa: updates in sums a second, at most, if there is a choice; 0: any", Range(0, 1e9))
    chosen: int = key(0, "fedlesscan: workers that compute in a round; 0: three quarters", Range(0, 32, "workers", "workers"))
    loop: int = key(15, "layerwise: sums of a loop", Range(1, 10**6))
    deep: int = key(5, "layerwise: of these the last ones, in which deep layers travel, too", Range(1, 10**6))
    masked: bool = key(False, "updates travel as whole numbers under masks of each two workers, which cancel in a sum of all: "
                       "who sees a worker's packets learns nothing of it")
    shares: int = key(0, "masked: workers whose shares take off the masks of those that are missing; 0: nobody may be",
                      Range(0, 32))
    copies: int = key(2, "backup: workers that compute the same update, of which the first counts", Range(1, 32))
    damping: str = key("none", "a stale update's weight: none (1), inverse (1/staleness, from 1 on), exponential (2/e to that)",
                       choices=("none", "inverse", "exponential"))
    local: int = key(0, "steps of a worker that make an update; 0: 8 with local, fedsa, fedlesscan and layerwise, 2 with "
                      "downpour, else 1", Range(0, 10**6))
    fetch: int = key(2, "downpour: updates of a worker until it takes the shared parameters again", Range(1, 10**6))
    outer: str = key("sgd", "how all apply averages of updates: sgd or adagrad", choices=("sgd", "adagrad"))
    outer_lr: float = key(1.0, "what averages of updates are multiplied by", limits.FACTOR)
    outer_momentum: float = key(0.0, "Nesterov momentum of these averages", Range(0, 1))
    updates: int = key(4000, "stop when sums have so many workers' updates, of one step each; with local fewer", limits.STEPS)
    task: str = key("classes", "what is learnt: classes (of points), images (their classes, by a convolutional network) or "
                    "cartpole (to balance a pole; reinforcement learning)", choices=tuple(TASKS))
    width: int = key(16, "units of the last hidden layer of what learns", Range(1, 4096))
    batch: int = key(16, "points of a step, or pushes: eight for each pole", Range(1, 8000))
    lr: float = key(0.0, "learning rate; 0: 0.5, with images 0.2, with cartpole 0.1", limits.FACTOR)
    lr_points: int = key(0, "points of a sum that the learning rate is for: with more of them it is as many times larger (linear "
                         "scaling; Goyal et al.); 0: it stays as it is", Range(0, 10**9))
    warmup: int = key(0, "updates, of one step each, during which the learning rate rises to the scaled one", limits.STEPS)
    own: float = key(0.0, "part of a worker's points that are of classes of its own: 0 (as dealt) to 1 (sorted)",
                     limits.PROBABILITY)
    concentration: float = key(0.0, "of the Dirichlet distribution of a worker's classes: the smaller, the fewer it has; 0: as "
                               "`own` says", limits.FACTOR)
    target: float = key(0.0, "score whose time is reported: of classes and images test accuracy, of cartpole the part of 200 "
                        "steps that the pole stands; 0: 0.75, with images 0.8, with cartpole 0.975", limits.PROBABILITY)
    evaluate: int = key(80, "updates, of one step each, between two measurements of the score", Range(1, 10**9))
    computing: float = key(0.01, "s that a worker computes for a step, on average", limits.TIME)
    ahead: int = key(4, "sums beyond the latest that a worker knows of, in which it takes part",
                     Range(1, 64, "sums", "under way"))

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
        return super().derived() | {
            "least": self.least or self.enough, "upper": self.upper or self.bound + 12,
            "local": self.local or self.way.local, "chosen": self.terms.chosen,
            "lr": self.lr or TASKS[self.task].lr, "target": self.target or TASKS[self.task].target}

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield self.method != "softsync" or self.splits <= self.workers, "splits", f"at most {self.workers}, the workers"
        yield self.workers % self.together == 0, "copies", f"a divisor of {self.workers}, the workers"
        single = not (self.way.backups or self.way.balances) or self.task != "cartpole"
        yield single, "task", f"classes or images with {self.method}: a worker keeps its poles"
        yield self.chosen <= self.workers, "chosen", f"at most {self.workers}, the workers"
        enough = not self.way.selects or self.least <= self.terms.chosen
        yield enough, "least", f"at most {self.terms.chosen}, the workers chosen for a round"
        plain = not self.way.selects or self.damping == "none"
        yield plain, "damping", f"none with {self.method}: it weighs late updates itself"
        yield self.deep <= self.loop, "deep", f"at most {self.loop}, the sums of a loop"
        yield not self.way.layered or self.outer == "sgd", "outer", f"sgd with {self.method}: no sum has all layers"
        yield not self.way.layered or not self.outer_momentum, "outer_momentum", f"0 with {self.method}: no sum has all layers"
        yield not self.way.adapts or self.computing > 0, "computing", f"more than 0 with {self.method}: speeds follow from it"
        falls = not self.way.foresees or self.task != "cartpole"
        yield falls, "task", f"classes or images with {self.method}: cartpole has no loss that falls"
        yield not self.way.foresees or self.local in (0, 1), "local", f"0 or 1 with {self.method}: a loss is of one step"
        yield not self.way.balances or self.computing > 0, "computing", f"more than 0 with {self.method}: speeds follow from it"
        unmasked = self.way.adapts or self.way.selects
        alone = not self.masked or (self.enough == self.workers and not unmasked) or self.shares > 0
        yield alone, "masked", f"false with sums of {self.enough} of {self.workers}, or shares: masks of those that are " \
                               "missing would stay"
        yield not self.shares or (self.masked and not unmasked), "shares", f"0 with {self.method}, or without masked"
        half = not self.shares or self.workers // 2 < self.shares <= self.enough
        yield half, "shares", (f"more than half of {self.workers}, so that no two groups reveal shares for two sets of "
                                  f"workers, and at most {self.enough}, which are enough for a sum")
        yield self.upper >= self.bound, "upper", f"{self.bound} or more, the bound"
        yield self.payload, "payload", "true: updates are real"
        yield self.outer_momentum < 1, "outer_momentum", "0 up to, not including, 1"
        yield self.outer == "sgd" or not self.outer_momentum, "outer_momentum", "0 with adagrad"
        yield self.own == 0 or self.task != "cartpole", "own", "0 with cartpole"
        drawn = not self.concentration or (self.task != "cartpole" and not self.own)
        yield drawn, "concentration", "0 with cartpole, and with own"
        yield not 0 < self.concentration < 1e-3, "concentration", "0, or 0.001 or more"
        yield not self.warmup or self.lr_points > 0, "warmup", "0 without lr_points: there is nothing to rise to"
        yield not self.lr_points or self.local == 1, "lr_points", "0 with more than one local step: a sum has no step of its own"
        whole = self.task != "cartpole" or self.batch % ROLLOUT == 0
        yield whole, "batch", f"a multiple of {ROLLOUT}, the pushes of a pole, with cartpole"
        yield self.outer_lr > 0, "outer_lr", "more than 0"
        yield self.updates >= self.workers * self.local, "updates", f"{self.workers * self.local} or more, one of each worker"

    @property
    def way(self) -> Method:
        """Entry of the method."""
        return METHODS[self.method]

    @property
    def terms(self) -> Terms:
        """Keys that say what the method allows."""
        return Terms(self.workers, self.least, self.splits, self.bound, self.upper, self.copies,
                     self.chosen or self.workers - self.workers // 4)

    @property
    def together(self) -> int:
        """Workers, one after the other, that compute the same update."""
        return self.copies if self.way.backups else 1

    @property
    def enough(self) -> int:
        """Workers whose updates complete a sum."""
        return self.way.enough(self.terms)

    @property
    def at_first(self) -> str:
        """Words behind ``enough`` where it changes; "": it does not."""
        return " at the beginning" if self.way.adapts else ""

    @property
    def reported(self) -> int:
        """Numbers behind an update in a sum, where methods need them: the workers' speeds; or losses, or compute times, and how
        stale the updates are."""
        return self.workers * (2 if self.way.foresees or self.way.selects else self.way.balances or self.way.adapts)

    def rate_at(self, done: int) -> float:
        """Returns the learning rate after so many updates in sums, of one step each: `lr`, times the points of a sum over
        `lr_points` (the linear scaling rule of Goyal et al., arXiv 1706.02677, section 2.1), to which it rises by the same amount
        with each update of the `warmup` (section 2.2)."""
        if not self.lr_points:
            return self.lr
        times = (self.workers if self.way.shares else self.enough) * self.batch / self.lr_points
        return self.lr * (1 + (times - 1) * min(1.0, done / self.warmup if self.warmup else 1.0))

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


@dataclass
class _Update:
    """A result of a worker. ``version``: of the parameters that it began with; ``note``: foresight, the loss at that version;
    fedlesscan, s for which it computed."""

    values: np.ndarray
    version: int
    note: float = 0.0


@dataclass
class _Worker:
    """A worker. ``version``: sums that it has applied; ``clocks``: updates of each worker in these; ``pushes``: when the last two
    of each came, s; ``memory``: momentum, or Adagrad's sums of squares; ``sizes``: of all batches, points."""

    number: int
    times: np.random.Generator
    data: np.random.Generator
    parameters: np.ndarray
    memory: np.ndarray
    clocks: np.ndarray
    pushes: list[list[float]]
    sizes: list[int]
    pace: float = 0.0  # of its compute times for a mean batch, the mean, where it reports it; 0: it has none
    speeds: np.ndarray | None = None  # of all workers, as the sums that it has applied have them; 0: not known
    leasts: dict[int, int] = field(default_factory=dict)  # fedsa: workers that are enough, by sum
    drift: np.ndarray | None = None  # layerwise: what its own deep layers have fallen below the shared ones by; None: nothing
    version: int = 0
    announced: int = 0
    allowed: int | None = None  # dssp: updates that it may still make before it waits; None: it is not ahead
    own: tuple[int, np.ndarray] | None = None  # downpour: version, and the copy that it has made of that and works on
    computed: int = 0  # updates
    computing: bool = False
    token: int = 0  # of what it computes; another one: that was stopped
    ready: deque[_Update] = field(default_factory=deque)  # not sent: what it has computed, behind what came too late for a sum
    offered: tuple[int, _Update] | None = None  # to which sum
    tickets: dict[int, int] = field(default_factory=dict)  # sum, by ticket
    outs: dict[int, np.ndarray] = field(default_factory=dict)
    arrived: dict[int, tuple[int, ...]] = field(default_factory=dict)  # contributors of sums that are not applied yet
    idle: int | None = 0  # ps, since when
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    trend: LossTrend = field(default_factory=LossTrend)  # foresight: of the losses in the sums that it has applied
    rounds: Rounds | None = None  # fedlesscan: by the sums that it has applied


class _Run:
    """All workers, driven by the network's events."""

    def __init__(self, config: Asynchronous, network: Fabric, job: FabricJob):
        self.config, self.network, self.job = config, network, job
        self.stalest, self.ahead = config.way.stalest(config.terms), config.way.ahead(config.terms)
        self.task = TASKS[config.task].make(config)
        first = self.task.initial()
        self.workers = [
            _Worker(number, np.random.default_rng((config.seed, 3, number)), np.random.default_rng((config.seed, 4, number)),
                    first, np.zeros_like(first), np.zeros(config.workers, int), [[0.0] for _ in range(config.workers)],
                    config.workers * [config.batch])
            for number in range(config.workers)]
        self.judge = Judge(config.method, config.workers, config.enough, config.protocol, config.together)
        self.scores = [(0.0, 0, self.task.score(first))]
        self.updates = self.dropped = self.waited = 0
        self.length = self.task.parameters + config.reported  # of a sum
        self.masks: Masks | SharedMasks = Masks(config.seed, config.workers)
        if config.shares:
            self.masks = SharedMasks(config.seed, config.workers, config.shares)
        self._numbers = {machine: number for number, machine in enumerate(job.machines)}
        if config.way.selects:
            for worker in self.workers:
                worker.rounds = Rounds(config.workers, config.terms.chosen, config.updates / config.local, config.seed)
                self._select(worker, worker.rounds)

    @property
    def over(self) -> bool:
        return self.updates * self.config.local >= self.config.updates

    def go_on(self, worker: _Worker) -> None:
        """Does what the worker can do now: takes part in sums, offers its update, computes."""
        config = self.config
        while worker.announced <= worker.version + config.ahead:
            out = np.empty(self._length(worker.announced), np.int32 if config.masked else np.float32)
            worker.outs[worker.announced] = out
            least = worker.leasts.pop(worker.announced, config.enough)
            self.judge.expect(worker.announced, worker.number, least)
            ticket = self.network.submit(self.job.machines[worker.number], None, out, tag=worker.announced,
                                         offer=Offer(least, self._rivals(worker.number)))
            worker.tickets[ticket] = worker.announced
            worker.announced += 1
        while worker.ready and not worker.offered:
            self._offer(worker, worker.ready.popleft())
        if not (worker.computing or worker.ready or config.way.waits and worker.offered) and self._may_begin(worker):
            self._compute(worker)
        elif not worker.computing and worker.idle is None:
            worker.idle = self.network.now

    def _length(self, number: int) -> int:
        """Returns how many values a sum has."""
        config = self.config
        if config.way.layered and number % config.loop < config.loop - config.deep:
            return self.task.deep
        return self.length

    def _rivals(self, worker: int) -> list[int]:
        """Returns those that compute the same as a worker."""
        first = worker - worker % self.config.together
        return [each for each in range(first, first + self.config.together) if each != worker]

    def _offer(self, worker: _Worker, update: _Update) -> None:
        """Offers an update to the first sum that the worker does not know to be over; or drops it: it would be too stale."""
        number = next(each for each in range(worker.version, worker.announced) if each not in worker.arrived)
        stale = number - update.version
        drops = self.config.way.selects or not self.config.way.waits  # others wait, and are never too late
        if drops and self.stalest is not None and stale > self.stalest:
            self.dropped += 1
            return
        weight = {"none": 1.0, "inverse": 1 / max(1, stale), "exponential": (np.e / 2) ** -stale}[self.config.damping]
        if self.config.way.foresees:
            weight *= worker.trend.weight(stale)
        if self.config.way.selects:
            weight *= weight_of_late(update.version, number)
        values, plain = np.ascontiguousarray(self._layers(worker, number, update) * np.float32(weight)), None
        if self.config.way.foresees or self.config.way.selects:
            values = self._with_note(worker, values, update.note, stale)
        if self.config.masked:
            plain = whole(values, self.config.workers)
            values = self.masks.cover(worker.number, number, plain)
        self.judge.offer(number, worker.number, update.version, values, plain)
        worker.offered = number, update
        ticket = next(ticket for ticket, each in worker.tickets.items() if each == number)
        self.network.amend(ticket, values)

    def _layers(self, worker: _Worker, number: int, update: _Update) -> np.ndarray:
        """Returns those values of an update that a sum has: with deep layers, if it has any, all that they have changed since
        they were shared."""
        if worker.drift is None:
            return update.values
        return np.concatenate([update.values[: self.task.deep], worker.drift])[: self._length(number)]

    def _may_begin(self, worker: _Worker) -> bool:
        """Tells whether the worker is not too far ahead of the slowest, and chosen where not all are."""
        config, ahead = self.config, int(worker.clocks[worker.number] - worker.clocks.min())
        if worker.rounds is not None:
            return worker.number in worker.rounds.chosen
        if self.ahead is None or ahead <= config.bound:
            worker.allowed = None
            return True
        if worker.allowed is None:
            own, slowest = worker.pushes[worker.number], worker.pushes[int(np.argmin(worker.clocks))]
            worker.allowed = further(own, slowest, self.ahead - config.bound) if config.way.predicts else 0
        worker.allowed -= 1
        return worker.allowed >= 0

    def _compute(self, worker: _Worker) -> None:
        config = self.config
        self.waited += self.network.now - (self.network.now if worker.idle is None else worker.idle)
        worker.idle, worker.computing = None, True
        self.judge.begin(worker.version, worker.number)
        size = worker.sizes[worker.number]
        seconds = size / config.batch * config.seconds(worker.number, worker.times, config.local)
        version, begin = worker.version, worker.parameters
        if worker.own is not None and worker.computed % config.fetch:
            version, begin = worker.own
        if worker.drift is not None:
            begin = np.concatenate([begin[: self.task.deep], begin[self.task.deep :] - worker.drift])
        rate = config.rate_at(int(worker.clocks.sum()) * config.local)
        if config.way.adapts:
            rate *= factor(worker.clocks, worker.number)
        piece, data = worker.number // config.together, worker.data
        if config.way.backups:
            data = np.random.default_rng((config.seed, 4, piece, version))
        note = seconds
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is looked at
            if config.way.foresees and isinstance(self.task, Task):
                note = self.task.loss(begin, piece, data, size)
            values = self.task.update(begin, piece, data, size, rate, config.local)
        virtual_network.check_bounded(values, LARGEST, f"update {worker.computed + 1} of worker {worker.number}", rate)
        if config.way.keeps:
            worker.own = version, begin - values
        if config.way.layered:
            deep = values[self.task.deep :]
            worker.drift = deep if worker.drift is None else worker.drift + deep
        if config.way.balances or config.way.adapts:
            values = self._weighted(worker, values, seconds)
        worker.computed += 1
        worker.spans.append((f"compute at version {version}", self.network.now / PS, self.network.now / PS + seconds))
        update, token = _Update(values, version, note), worker.token
        self.network.plan(self.network.now + round(seconds * PS), lambda: self._computed(worker, update, token))

    def _weighted(self, worker: _Worker, values: np.ndarray, seconds: float) -> np.ndarray:
        """Returns an update weighed by its batch, and behind it the worker's speed among zeros, so that a sum has all of them: it
        follows from the worker's latest compute times, the last one of which took so many seconds."""
        part = worker.sizes[worker.number] / self.config.batch
        latest = seconds / (part * self.config.computing * self.config.local)
        worker.pace = worker.pace + SMOOTHING * (latest - worker.pace) if worker.pace else latest
        speeds = np.zeros(self.config.workers, np.float32)
        speeds[worker.number] = 1 / max(worker.pace, FASTEST)
        return np.concatenate([np.float32(part) * values, speeds])

    def _with_note(self, worker: _Worker, values: np.ndarray, note: float, stale: int) -> np.ndarray:
        """Returns an update, and behind it the worker's loss or compute time, and the update's staleness, each among zeros, so
        that a sum has those of all that are in it."""
        behind = np.zeros((2, self.config.workers), np.float32)
        behind[:, worker.number] = note, stale
        return np.concatenate([values, *behind])

    def _computed(self, worker: _Worker, update: _Update, token: int) -> None:
        if token != worker.token:
            return
        worker.computing = False
        worker.ready.append(update)
        self.go_on(worker)

    def _stop(self, worker: _Worker) -> None:
        """Has the worker stop to compute what another one has given."""
        name, began, _ = worker.spans[-1]
        worker.spans[-1] = name, began, self.network.now / PS
        worker.computing = False
        worker.token += 1

    def completed(self, completion: Completion) -> None:
        """Takes a worker's sum, applies those whose turn it is, and has the worker go on."""
        completion.raise_failed()
        worker = self.workers[self._numbers[completion.machine]]
        number = worker.tickets.pop(completion.ticket)
        worker.arrived[number] = completion.event.contributors
        if self.config.masked:
            clear = self._clear(number, worker.outs[number], completion.event.contributors)
            self.judge.check_clear(number, clear, completion.event.contributors)
        self.judge.check_sum(worker.number, number, worker.outs[number], completion.event.contributors)
        if self.config.masked:
            worker.outs[number] = clear
        if worker.offered and worker.offered[0] == number:
            update, worker.offered = worker.offered[1], None
            if worker.number not in completion.event.contributors and not self.config.way.backups:
                worker.ready.appendleft(update)
            elif self._length(number) == self.length:
                worker.drift = None
        if self.config.way.backups and worker.computing:
            self._stop(worker)
        while worker.version in worker.arrived:
            self._apply(worker, completion.time)
        self.go_on(worker)

    def _clear(self, number: int, total: np.ndarray, contributors: tuple[int, ...]) -> np.ndarray:
        """Returns a sum without masks: those that are in it reveal their shares."""
        return self.masks.uncover(number, total, contributors) if isinstance(self.masks, SharedMasks) else total

    def _apply(self, worker: _Worker, time: int) -> None:
        config, number = self.config, worker.version
        contributors = worker.arrived.pop(number)
        out = worker.outs.pop(number)
        total, speeds = np.split(parts(out) if config.masked else out, [self.task.parameters])
        if config.way.balances:
            worker.sizes = batches(np.maximum(speeds.astype(np.float64), 0), config.workers * config.batch)
        if config.way.foresees:
            losses, stale = speeds.reshape(2, config.workers)
            for each in contributors:
                worker.trend.know(number - round(float(stale[each])), float(losses[each]))
        if worker.rounds is not None:
            times, stale = speeds.reshape(2, config.workers)
            worker.rounds.end(number, {each: (float(times[each]), number - round(float(stale[each]))) for each in contributors})
        average = total / np.float32(config.workers if config.way.shares else len(contributors))
        if average.size < self.task.parameters:
            average = np.concatenate([average, np.zeros(self.task.parameters - average.size, np.float32)])
        worker.parameters = worker.parameters - np.float32(config.outer_lr) * self._step(worker, average)
        worker.version += 1
        for each in contributors:
            worker.clocks[each] += 1
            worker.pushes[each] = [*worker.pushes[each][-1:], time / PS]
        if config.way.adapts:
            self._choose(worker, contributors, speeds)
        if worker.rounds is not None:
            self._select(worker, worker.rounds)
        self.judge.check_copy(worker.number, worker.version, worker.parameters)
        if worker.number == 0:
            before = self.updates * config.local // config.evaluate
            self.updates += len(contributors)
            if self.updates * config.local // config.evaluate > before or self.over:
                self.scores.append((time / PS, self.updates, self.task.score(worker.parameters)))

    def _select(self, worker: _Worker, rounds: Rounds) -> None:
        """Chooses who computes at the worker's version."""
        rounds.choose(worker.version, int(worker.clocks.sum()))
        self.judge.choose(worker.version, worker.number, rounds.chosen)

    def _choose(self, worker: _Worker, contributors: tuple[int, ...], speeds: np.ndarray) -> None:
        """Chooses how many workers are enough for the next sum that the worker takes part in, by their latest speeds: as all do
        when they have applied the same sums."""
        config = self.config
        known = np.zeros(config.workers) if worker.speeds is None else worker.speeds.copy()
        known[list(contributors)] = np.maximum(speeds[list(contributors)], FASTEST)
        worker.speeds = known
        if np.all(known > 0):
            mean = config.computing * config.local
            worker.leasts[worker.version + config.ahead] = participants(tuple(mean / known), config.noise, config.budget)

    def _step(self, worker: _Worker, average: np.ndarray) -> np.ndarray:
        """Returns what an average of updates comes to with the worker's memory of those before."""
        if self.config.outer == "adagrad":
            worker.memory = worker.memory + average * average
            return average / np.sqrt(worker.memory + np.float32(1e-12))
        momentum = np.float32(self.config.outer_momentum)
        worker.memory = momentum * worker.memory + average
        return average + momentum * worker.memory if momentum else average


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
        run = _Run(config, network, job)
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
            run.judge.check_bounds(sums, run.stalest, run.ahead), run.dropped, waited,
            stats=virtual_network.counters(network, config, [job], job.hosts), enough=run.judge.range_of_enough(),
            **virtual_network.link_figures(network, seconds))


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
