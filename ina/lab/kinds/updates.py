"""Asynchronous updates to a server behind a slow wire, in virtual time: a queue that merges those that wait, beside one that is
first come, first served.

After OLAF (Baganal Krishna et al., arXiv 2507.05876). Workers, in clusters, learn a task. Each computes an update at the
parameters that it has, sends it to the server in one frame, and goes on at once; nothing is sent again. The server adds up all
that comes, and sends the new parameters to the cluster that it came from. On the way, updates wait in the queue of the switch's
port to the server:

    fifo       in the order in which they came; one that finds no room is lost
    merging    one that meets another one of its cluster there is added to it, or replaces it if it is of the same worker

The queue is that of the emulated switch, behind its P4 program. Every update that comes is compared with the sum of those that it
names, to the bit; each is in one at most; and those that are in none are as many as the queue has replaced or dropped.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ina.aggregation.lane import INT32
from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check, Finding, Measured, Row
from ina.lab.results import report
from ina.lab.virtual import virtual_network
from ina.lab.virtual.balancing import ROLLOUT, Balancing
from ina.lab.virtual.computing import Computing
from ina.lab.virtual.learning import Task
from ina.lab.virtual.mailing import Sending
from ina.lab.virtual.merged_updates import Age, UpdateJudge, update_words, values_of
from ina.lab.virtual.timeline import Timeline
from ina.net.ports import PS
from ina.worlds.virtual.network import Completion
from ina.worlds.virtual.updates import HEAD, OVERHEAD, Updates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ina.worlds.virtual.fabric import Fabric

DISCIPLINES = ("fifo", "merging")
LONGEST = 9216  # bytes of a frame
EXPECTED = 48  # updates that may come to a host at one instant
SPANS = 200  # of each worker, in the trace
TASKS: dict[str, tuple[Callable[[UpdateTraining], Task | Balancing], float, float]] = {  # with learning rate and target
    "classes": (lambda config: Task(config.workers, config.width, 0.0, config.seed), 0.5, 0.75),
    "cartpole": (lambda config: Balancing(config.workers, config.width, config.seed), 0.1, 0.975),
}


@dataclass
class Trained:
    """Result of a run. ``scores``: virtual s, updates that the server has, and the score of its parameters. ``staleness``: of
    each update at the server, in updates that came since its parameters; ``ages``, ``peaks``: s, of what the server knows of each
    cluster, the means over time, and just before newer ones came; ``sent`` to ``dropped``: updates, but ``frames``: those that
    they came in."""

    discipline: str
    workers: int
    target: float
    seconds: float
    scores: list[tuple[float, int, float]]
    staleness: list[int]
    ages: list[float]
    peaks: list[float]
    sent: int
    came: int
    frames: int
    replaced: int
    dropped: int
    queue_use: float
    busiest_link: str
    busiest_bytes: int
    link_use: float | None
    stats: dict[str, dict] = field(default_factory=dict)

    def summary(self) -> dict[str, object]:
        """Figures of the table."""
        reached = next(((when, updates) for when, updates, score in self.scores if 0 < self.target <= score), (None, None))
        return {
            "job": self.discipline,
            "target_s": reached[0],
            "target_updates": reached[1],
            "score": statistics.fmean(score for *_, score in self.scores[-3:]),
            "per_second": len(self.staleness) / self.seconds,
            "merged": self.came / self.frames,
            "age_ms": 1e3 * statistics.fmean(self.ages) if self.ages else None,
            "peak_age_ms": 1e3 * statistics.fmean(self.peaks) if self.peaks else None,
            "staleness": statistics.fmean(self.staleness),
            "stalest": max(self.staleness),
            "replaced": self.replaced / self.sent,
            "dropped": self.dropped / self.sent,
            "queue_use": self.queue_use,
        }


@dataclass(frozen=True)
class UpdateTraining(Sending, Computing):
    """Training by updates that wait before a slow wire to their server, in virtual time."""

    meanings = {
        "dropped": "Share of the updates that came to a full queue in which none could take them in.",
        "staleness": "Updates that the server applied between the parameters that an update was computed at and its own turn.",
        "stalest": "The largest staleness of an update.",
    }
    guide = "Kind updates: a queue that merges what waits"
    kind: str = key("updates", "what is done: updates", choices=("updates",))
    name: str = key("updates", "the results folder's name begins with it")
    algorithm: str = key("in-network", "what is measured: in-network", choices=("in-network",))
    workers: int = key(8, "workers, each at a host of its own", Range(1, 32, "each is a bit of a word in an update"))
    clusters: int = key(2, "into which workers are divided, one after the other; updates of one cluster may be merged",
                        Range(1, 32))
    discipline: str = key("merging", f"of the queue before the server: {', '.join(DISCIPLINES)}", choices=DISCIPLINES)
    server_rate: float = key(2e6, "of the wire from the switch to the server, bit/s", limits.RATE)
    queue: int = key(10_000, "of each wire, bytes; 0: no limit; not of a topology's file", limits.LINK_QUEUE)
    computing: float = key(0.01, "s that a worker computes in a step, on average", limits.TIME)
    updates: int = key(4000, "stop when the server has so many workers' updates", limits.STEPS)
    task: str = key("cartpole", "what is learnt: classes (of points) or cartpole (to balance a pole; reinforcement learning)",
                    choices=tuple(TASKS))
    width: int = key(16, "units of the hidden layer of what learns", Range(1, 4096))
    batch: int = key(16, "points of a step, or pushes: eight for each pole", Range(1, 8000))
    lr: float = key(0.0, "learning rate; 0: 0.5, with cartpole 0.1", limits.FACTOR)
    target: float = key(0.0, "score whose time is reported: of classes test accuracy, of cartpole the part of 200 steps that "
                        "the pole stands; 0: 0.75, with cartpole 0.975", limits.PROBABILITY)
    evaluate: int = key(80, "updates between two measurements of the score", Range(1, 10**9))

    rows = (
        Row("target_s", "time to the target, virtual s", "s to target", "{:.2f}"),
        Row("target_updates", "updates to the target", "updates", "{:,}"),
        Row("score", "score, mean of the last three measurements", "score", "{:.1%}"),
        Row("per_second", "updates that came, a virtual second", "a second", "{:.0f}"),
        Row("merged", "of these in one frame, mean", "merged", "{:.2f}"),
        Row("age_ms", "age of what the server knows of a cluster, mean over time, ms", "age, ms", "{:.2f}"),
        Row("peak_age_ms", "the same just before a newer update came, mean, ms", "peak", "{:.2f}"),
        Row("staleness", "staleness of an update, mean, in updates", "stale", "{:.2f}"),
        Row("stalest", "largest", "most", "{:,}"),
        Row("replaced", "updates that a newer one replaced in the queue", "replaced", "{:.1%}"),
        Row("dropped", "updates that found no room in the queue", "dropped", "{:.1%}"),
        Row("queue_use", "use of the wire to the server", "use", "{:.1%}"),
    )

    def derived(self) -> dict[str, object]:
        _, lr, target = TASKS[self.task]
        return super().derived() | {"lr": self.lr or lr, "target": self.target or target}

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        for name in ("loss", "duplicate", "reorder", "corrupt"):
            yield not getattr(self, name), name, "0: updates are sent once, and only the queue may lose any"
        yield self.clusters <= self.workers, "clusters", f"at most {self.workers}, the workers"
        yield self.server_rate > 0, "server_rate", "more than 0"
        yield self.computing > 0, "computing", "more than 0"
        yield self.updates > 0, "updates", "1 or more"
        whole = self.task != "cartpole" or self.batch % ROLLOUT == 0
        yield whole, "batch", f"a multiple of {ROLLOUT}, the pushes of a pole, with cartpole"
        fits = self.frame <= LONGEST
        yield fits, "width", f"less: an update is one frame of {self.frame:,} bytes, expected at most {LONGEST:,}"
        room = not self.queue or self.queue >= self.frame
        yield room, "queue", f"0, or {self.frame:,} or more: room for an update"

    @property
    def words(self) -> int:
        """Words of an update."""
        return HEAD + self.workers + TASKS[self.task][0](self).parameters

    @property
    def frame(self) -> int:
        """Bytes of an update's frame, as queues and wires count them."""
        return INT32.bytes(self.words) + OVERHEAD

    def cluster(self, worker: int) -> int:
        """Returns the cluster of a worker, from 0 on."""
        return worker * self.clusters // self.workers

    @property
    def work(self) -> str:
        return (f"{self.task}: {self.updates:,} updates of {counted(self.clusters, 'cluster')}, by a queue that is "
                f"{self.discipline}")

    def measure(self, timeline: Timeline | None = None) -> list[Trained]:
        return [train(self.resolved(), timeline or Timeline())]

    def title(self, results: Sequence[Measured]) -> str:
        return (f"{self.discipline}: {counted(self.workers, 'worker')} in {counted(self.clusters, 'cluster')}, "
                f"{1e-6 * self.server_rate:g} Mb/s to the server; {self.distribution} compute times of "
                f"{1e3 * self.computing:g} ms")

    def figures(self, results: Sequence[Measured]) -> list[tuple[str, str]]:
        return [("Score", report.svg(partial(_draw_scores, [run for run in results if isinstance(run, Trained)])))]

    def why(self, run: dict, summary: dict) -> Finding:
        """Says whether updates come as they are made, or the wire to the server decides."""
        age = summary["age_ms"]
        known = "nothing for any time" if age is None else f"what is {age:.1f} ms old"
        text = (f"the wire to the server is used for {summary['queue_use']:.0%} of the time; of a cluster the server knows "
                f"{known}; {summary['dropped'] + summary['replaced']:.0%} of the updates never come")
        return Finding(summary["job"], "link" if summary["queue_use"] > 0.9 else "compute", text)


@dataclass
class _Worker:
    """A worker. ``version``: updates that the server had when it sent the parameters."""

    number: int
    host: str
    times: np.random.Generator
    data: np.random.Generator
    parameters: np.ndarray
    version: int = 0
    sent: int = 0
    spans: list[tuple[str, float, float]] = field(default_factory=list)


class _Run:
    """Workers and server, driven by the network's events."""

    def __init__(self, config: UpdateTraining, network: Fabric, hosts: Sequence[str], server: str):
        self.config, self.network, self.server = config, network, server
        self.updates = Updates(network, [*hosts, server], config.words)
        network.set_rate(self.updates.port_before(server), config.server_rate)
        self.queue = self.updates.merge_before(server) if config.discipline == "merging" else None
        self.task = TASKS[config.task][0](config)
        self.parameters = self.task.initial()
        self.workers = [_Worker(number, host, np.random.default_rng((config.seed, 3, number)),
                                np.random.default_rng((config.seed, 4, number)), self.parameters)
                        for number, host in enumerate(hosts)]
        self.judge = UpdateJudge(config.workers)
        self.ages = [Age() for _ in range(config.clusters)]
        self.came = self.frames = 0  # updates that the server has, and frames
        self.staleness: list[int] = []
        self.scores = [(0.0, 0, self.task.score(self.parameters))]
        self.end: int | None = None  # ps, when the server had all
        self._awaited: dict[int, tuple[str, np.ndarray]] = {}  # by ticket: the host, and the words that come
        self._numbers = {host: number for number, host in enumerate(hosts)}
        for host in (*hosts, server):
            for _ in range(EXPECTED):
                self._expect(host)

    def _expect(self, host: str) -> None:
        ticket, words = self.updates.expect(host)
        self._awaited[ticket] = host, words

    def compute(self, worker: _Worker) -> None:
        """Has a worker compute an update, and then the next one, until the server has all."""
        config = self.config
        seconds = config.seconds(worker.number, worker.times)
        values = self.task.update(worker.parameters, worker.number, worker.data, config.batch, config.lr, 1)
        begun = self.network.now
        worker.spans.append((f"compute at version {worker.version}", begun / PS, begun / PS + seconds))
        self.network.plan(begun + round(seconds * PS), partial(self._send, worker, worker.version, values))

    def _send(self, worker: _Worker, version: int, values: np.ndarray) -> None:
        """Has a worker that has computed its update send it, and compute the next one."""
        if self.end is not None:
            return
        worker.sent += 1
        words = update_words(1 + self.config.cluster(worker.number), worker.number, worker.sent, self.config.workers, values)
        self.judge.send(worker.number, worker.sent, words, version, self.network.now)
        self.updates.send(worker.host, self.server, words)
        self.compute(worker)

    def completed(self, completion: Completion) -> None:
        """Takes what has come to a host."""
        completion.raise_failed()
        if (arrival := self._awaited.pop(completion.ticket, None)) is None:
            return  # one that was sent
        host, words = arrival
        self._expect(host)
        if host == self.server:
            self._serve(words, completion.time)
            return
        worker, version = self.workers[self._numbers[host]], int(words[1])
        if version > worker.version:
            worker.version, worker.parameters = version, words[HEAD:HEAD + self.task.parameters].view(np.float32)

    def _serve(self, words: np.ndarray, time: int) -> None:
        """Adds an update that came to the server to its parameters, and sends these to the cluster that it is of."""
        config, parts = self.config, self.judge.receive(words)
        if self.end is not None:
            return
        self.frames += 1
        self.staleness += [self.came - part.version for _, part in parts]
        self.parameters = self.parameters - values_of(words, config.workers) / np.float32(config.workers)
        before, self.came = self.came, self.came + len(parts)
        cluster = int(words[0]) - 1
        self.ages[cluster].know(max(part.time for _, part in parts), time)
        if self.came // config.evaluate > before // config.evaluate or self.came >= config.updates:
            self.scores.append((time / PS, self.came, self.task.score(self.parameters)))
        if self.came >= config.updates:
            self.end = time
            return
        answer = np.zeros(config.words, np.int32)  # of group 0: never merged
        answer[1] = self.came
        answer[HEAD:HEAD + self.task.parameters] = self.parameters.view(np.int32)
        for worker in self.workers:
            if config.cluster(worker.number) == cluster:
                self.updates.send(self.server, worker.host, answer)


def train(config: UpdateTraining, timeline: Timeline) -> Trained:
    """Trains until the server has as many updates as are asked for, and lets all that is under way come. ``timeline`` records the
    events.

    Raises:
        WrongSum: what came is not the sum of the updates that it names, or others are missing than those that the queue has lost.
    """
    place = virtual_network.place(config, more=1)
    hosts = place.hosts(config)[0]
    server = next(host.name for host in place.topology.hosts if host.name not in hosts)
    with virtual_network.fabric(config, place, longest=LONGEST) as network:
        network.stop_at_completions()
        run = _Run(config, network, hosts, server)
        for worker in run.workers:
            run.compute(worker)
        port, end, used = run.updates.port_before(server), 0, 0
        while True:
            idle, completions = timeline.run(network), network.completions()
            for completion in completions:
                run.completed(completion)
            if run.end is not None and not end:
                end, used = run.end, network.wire_stats(port)["link_busy_ps"]
                links = virtual_network.link_figures(network, end / PS)
            if idle and not completions:
                break
        network.check()
        dropped = network.wire_stats(port)["link_tail_drops"]
        replaced = run.queue.replaced if run.queue else 0
        run.judge.check_lost(replaced, dropped)
        timeline.jobs.append(("updates", [worker.spans[:SPANS] for worker in run.workers]))
        return Trained(
            config.discipline, config.workers, config.target, end / PS, run.scores, run.staleness,
            [mean for age in run.ages if (mean := age.mean(end)) is not None], [peak for age in run.ages for peak in age.peaks],
            run.judge.count, run.came, run.frames, replaced, dropped, min(1.0, used / end),  # `used` has all of one under way
            stats={"workers": {"retransmissions": 0}, **virtual_network.whole(network)}, **links)


def _draw_scores(runs: Sequence[Trained], axes: Axes) -> None:
    for run in runs:
        axes.plot([when for when, *_ in run.scores], [100 * score for *_, score in run.scores], label=run.discipline)
    report.targets(axes, [run.target for run in runs])
    axes.set(xlabel="virtual time, s", ylabel="score, %")
    report.legend(axes)


KIND = UpdateTraining
