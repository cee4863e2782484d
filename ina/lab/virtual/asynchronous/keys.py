"""Keys of asynchronous training, and what follows from them: its method, task and rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ina.aggregation.entries import BITMAP
from ina.base.bounds import Range
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check
from ina.lab.virtual.balancing import ROLLOUT, Balancing
from ina.lab.virtual.images import Images
from ina.lab.virtual.learning import Task
from ina.lab.virtual.methods import METHODS, Method, Terms, users
from ina.lab.virtual.offering import Offering


class TaskKind(NamedTuple):
    """A task: what makes it, and its learning rate and target where nothing is said."""

    make: Callable[[AsynchronousKeys], Task | Balancing]
    lr: float
    target: float


TASKS = {
    "classes": TaskKind(lambda config: Task(config.workers // config.together, config.width, config.own, config.seed,
                                        config.concentration), 0.5, 0.75),
    "images": TaskKind(lambda config: Images(config.workers // config.together, config.width, config.own, config.seed,
                                         config.concentration), 0.2, 0.8),
    "cartpole": TaskKind(lambda config: Balancing(config.workers, config.width, config.seed), 0.1, 0.975),
}


@dataclass(frozen=True)
class AsynchronousKeys(Offering):
    """Keys of a training with sums of some workers' updates."""

    method: str = key("synchronous", f"when a sum is complete, and who waits: {', '.join(METHODS)}", choices=tuple(METHODS))
    least: int = key(0, "workers that are enough for a sum; 0: with first three quarters, with iswitch half, with fedsa half at "
                     "the beginning, with fedlesscan three quarters of `chosen`, with local all",
                     Range(0, BITMAP, "workers", "workers"))
    splits: int = key(4, "softsync: into how many sums the workers' updates go", Range(1, BITMAP))
    bound: int = key(3, "iswitch, fedlesscan: staleness, in sums; ssp, dssp: updates that a worker is ahead of the slowest, at "
                     "most", Range(0, 1000))
    upper: int = key(0, "dssp: the same at most, where waiting does not pay; iswitch with `patience`: the widest bound; 0: "
                     "bound + 12", Range(0, 2000))
    patience: int = key(0, "iswitch: each update that a worker refuses as stale widens its bound by one, up to `upper`, and so "
                        "many that went to sums narrow it by one, down to `bound`; 0: it stays", Range(0, 10**6))
    noise: float = key(4.0, "fedsa: workers' updates that teach half as much as if each were of all data", Range(0, 1000))
    budget: float = key(0.0, "fedsa: updates in sums a second, at most, if there is a choice; 0: any", Range(0, 1e9))
    chosen: int = key(0, "fedlesscan: workers that compute in a round; 0: three quarters", Range(0, BITMAP, "workers", "workers"))
    loop: int = key(15, "layerwise: sums of a loop", Range(1, 10**6))
    deep: int = key(5, "layerwise: of these the last ones, in which deep layers travel, too", Range(1, 10**6))
    masked: bool = key(False, "updates travel as whole numbers under masks of each two workers, which cancel in a sum of all: "
                       "who sees a worker's packets learns nothing of it")
    shares: int = key(0, "masked: workers whose shares take off the masks of those that are missing; 0: nobody may be",
                      Range(0, BITMAP))
    copies: int = key(2, "backup: workers that compute the same update, of which the first counts", Range(1, BITMAP))
    damping: str = key("none", "a stale update's weight: none (1), inverse (1/staleness, from 1 on), exponential "
                       "((2/e)^staleness)", choices=("none", "inverse", "exponential"))
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
        yield not self.way.selects or self.chosen <= self.workers, "chosen", f"at most {self.workers}, the workers"
        enough = not self.way.selects or self.least <= self.terms.chosen
        yield enough, "least", f"at most {self.terms.chosen}, the workers chosen for a round"
        plain = not self.way.selects or self.damping == "none"
        yield plain, "damping", f"none with {self.method}: it weighs late updates itself"
        yield not self.way.layered or self.deep <= self.loop, "deep", f"at most {self.loop}, the sums of a loop"
        yield not self.way.layered or self.outer == "sgd", "outer", f"sgd with {self.method}: no sum has all layers"
        yield not self.way.layered or not self.outer_momentum, "outer_momentum", f"0 with {self.method}: no sum has all layers"
        yield not self.way.adapts or self.computing > 0, "computing", f"more than 0 with {self.method}: speeds follow from it"
        falls = not self.way.foresees or self.task != "cartpole"
        yield falls, "task", f"classes or images with {self.method}: cartpole has no loss that falls"
        yield not self.way.foresees or self.local in (0, 1), "local", f"0 or 1 with {self.method}: a loss is of one step"
        yield not self.way.balances or self.computing > 0, "computing", f"more than 0 with {self.method}: speeds follow from it"
        apart = not self.way.leaves_out or (self.computing > 0 and self.distribution != "constant")
        yield apart, "method", "another one where compute times do not differ: nobody straggles"
        yield not self.way.leaves_out or self.local in (0, 1), "local", f"0 or 1 with {self.method}: a time is of one step"
        unmasked = self.way.adapts or self.way.selects or self.way.leaves_out
        alone = not self.masked or (self.enough == self.workers and not unmasked) or self.shares > 0
        most = 2 * self.enough > self.workers
        yield alone, "masked", f"false with sums of {self.enough} of {self.workers}{', or shares' * (most and not unmasked)}: " \
                               "masks of those that are missing would stay"
        yield not self.shares or (self.masked and not unmasked), "shares", f"0 with {self.method}, or without masked"
        yield not self.shares or unmasked or most, "shares", f"0 with sums of {self.enough} of {self.workers}, not more than half"
        half = not (self.shares and most) or self.workers // 2 < self.shares <= self.enough
        yield half, "shares", (f"more than half of {self.workers}, so that no two groups reveal shares for two sets of "
                                  f"workers, and at most {self.enough}, which are enough for a sum")
        yield self.upper >= self.bound, "upper", f"{self.bound} or more, the bound"
        yield not self.patience or self.way.widens, "patience", f"0 with {self.method}: its bound stays"
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

    def unused(self) -> Mapping[str, str]:
        own = {key for method in METHODS.values() for key in method.takes} - set(self.way.takes)
        texts = {key: f"method = {' or '.join(users(key))}" for key in own}
        if self.way.widens and not self.patience:
            texts["upper"] = "patience, or method = dssp"
        return {**super().unused(), **texts}

    @property
    def way(self) -> Method:
        """Entry of the method."""
        return METHODS[self.method]

    @property
    def terms(self) -> Terms:
        """Keys that say what the method allows."""
        return Terms(self.workers, self.least, self.splits, self.bound, self.upper, self.copies,
                     self.chosen or self.workers - self.workers // 4, self.patience)

    @property
    def together(self) -> int:
        """Workers, one after the other, that compute the same update."""
        return self.copies if self.way.backups else 1

    @property
    def enough(self) -> int:
        """Workers whose updates complete a sum."""
        return self.way.enough(self.terms)

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
