"""Steps of training whose compute times differ, in virtual time: the sum of the first k of n workers, and what becomes of the
others.

Each worker computes, gives its gradient to the step's sum, and goes on when it has that. With p4/quorum.p4 the sum does not wait
for more than ``least`` workers. What a worker does that is late:

    abort   it stops to compute when the step's sum is there, and begins the next step
    drop    it computes to the end for nothing, and then begins the step that the others are in
    carry   it computes to the end, and gives what it has to the step that the others are in

With ``predict`` a step's sum is complete with those that have given as soon as all others are predicted to straggle, from
counters of their work (ina/lab/virtual/straggling.py).

Compute times are drawn, gradients are of whole numbers, and every sum is compared with that of the workers that it names.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ina.aggregation.lane import INT32
from ina.aggregation.worker.arrivals import Arrivals
from ina.aggregation.worker.offer import Offer
from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check, Finding, Measured, Row
from ina.lab.virtual import virtual_network
from ina.lab.virtual.offering import Offering
from ina.lab.virtual.simulated import SUMS, sums
from ina.lab.virtual.straggling import Computation, Lookout, rates
from ina.lab.virtual.timeline import Timeline
from ina.lab.virtual.virtual_network import WrongSum
from ina.net.ports import PS
from ina.worlds.virtual.fabric import Fabric, FabricJob
from ina.worlds.virtual.network import Completion

LATE = ("abort", "drop", "carry")
PREDICTORS = ("none", "nurd")
WARM = 0.1  # of the steps, which are not measured: workers begin together


@dataclass
class Steps:
    """Result of a run. ``seconds``: from each step's sum to the next one's; ``contributors``: of each step; ``computed``:
    gradients that workers have computed to the end, ``lost``: those that no sum has."""

    workers: int
    bytes: int
    seconds: list[float]
    contributors: list[int]
    computed: int
    lost: int
    busiest_link: str
    busiest_bytes: int
    link_use: float | None
    spans: list[list[tuple[str, float, float]]]
    stats: dict[str, dict] = field(default_factory=dict)
    checked: bool = True
    predictions: list[tuple[bool, bool]] = field(default_factory=list)  # of computations: predicted to straggle; did it

    def summary(self) -> dict[str, object]:
        """Figures of the table."""
        return {
            "job": counted(self.workers, "worker"),
            "sums": sums(self.checked),
            "step_ms": 1e3 * statistics.mean(self.seconds),
            "slow_step_ms": 1e3 * float(np.quantile(self.seconds, 0.99)),
            "contributors": statistics.mean(self.contributors),
            "per_second": sum(self.contributors) / sum(self.seconds),
            "partial": sum(count < self.workers for count in self.contributors) / len(self.contributors),
            "lost": self.lost / max(1, self.computed),
            **rates(self.predictions),
            "retransmissions": self.stats["workers"]["retransmissions"],
        }


@dataclass(frozen=True)
class Stragglers(Offering):
    """Steps of training whose sums are of the first workers that are ready, in virtual time."""

    guide = "Stragglers that are predicted"
    kind: str = key("stragglers", "what is done: stragglers", choices=("stragglers",))
    name: str = key("stragglers", "the results folder's name begins with it")
    dynamic: bool = key(False, "how many are enough each worker chooses for each sum, from `least` on, by earlier sums' times")
    late: str = key("abort", "what a late worker does: abort, drop or carry", choices=LATE)
    deadline: float = key(0.0, "s after a worker has given, from which on the sum of those that have is enough for it; 0: none",
                          limits.TIME)
    predict: str = key("none", "whether a step goes on without those that are predicted to straggle: none, or nurd (NURD)",
                       choices=PREDICTORS)
    ahead: int = key(4, "steps that a worker takes part in before it comes to them", Range(0, 16, "sums", "under way"))
    steps: int = key(1000, "stop after this many, at least 10", limits.STEPS)
    elements: int = key(10_000, "of the gradient, float32", limits.ELEMENTS)

    rows = (
        Row("step_ms", "step, mean, ms", "step", "{:.2f}"),
        Row("slow_step_ms", "step, 99th percentile, ms", "99 %", "{:.2f}"),
        Row("contributors", "workers of a sum, mean", "workers", "{:.2f}"),
        Row("per_second", "contributions to sums in a second", "in a second", "{:.1f}"),
        Row("partial", "sums without some worker", "partial", "{:.1%}"),
        Row("lost", "gradients that no sum has", "lost", "{:.1%}"),
        Row("true_positive", "stragglers that were predicted, of those that prediction was asked of", "found", "{:.1%}"),
        Row("false_positive", "others of these that were taken for stragglers", "wrong", "{:.1%}"),
        Row("f1", "F1 of the predictions", "F1", "{:.2f}"),
        Row("retransmissions", "retransmissions (all workers)", "again", "{:,}"),
        SUMS,
    )

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield not self.dynamic or self.least > 0, "least", "1 or more, with dynamic"
        yield self.steps >= 10, "steps", "10 or more"
        alone = self.predict == "none" or not (self.dynamic or self.deadline or self.least)
        yield alone, "predict", "none with dynamic, least and deadline: one of them says when a sum is complete"
        differ = self.predict == "none" or (self.computing > 0 and self.distribution != "constant")
        yield differ, "predict", "none where compute times do not differ"

    def unused(self) -> Mapping[str, str]:
        return {} if self.predict == "nurd" else dict.fromkeys(("gamma", "counter_noise"), "predict = nurd")

    @property
    def enough(self) -> str:
        """Workers that are enough, for people."""
        return f"{self.least} or more" if self.dynamic else str(self.least or self.workers)

    @property
    def work(self) -> str:
        return f"{self.steps:,} steps of {self.elements:,} float32, {self.enough} of {self.workers} are enough, late: {self.late}"

    def measure(self, timeline: Timeline | None = None) -> list[Steps]:
        return [run_steps(self.resolved(), timeline or Timeline())]

    def title(self, results: Sequence[Measured]) -> str:
        return (f"{self.enough} of {counted(self.workers, 'worker')}, late: {self.late}; {self.distribution} compute times of "
                f"{1e3 * self.computing:g} ms")

    def why(self, run: dict, summary: dict) -> Finding:
        """Says what a step consists of."""
        compute, step = 1e3 * self.computing, summary["step_ms"]
        text = (f"{self.enough} of {self.workers} are enough, late: {self.late}; a step takes {step:.1f} ms, compute times have "
                f"a mean of {compute:.1f} ms; {summary['partial']:.0%} of the sums are without some worker")
        return Finding(summary["job"], "straggler" if step > 1.1 * compute else "compute", text)


@dataclass
class _Worker:
    """A worker: the step that it is in, and its sums that are under way, by step."""

    number: int
    rng: np.random.Generator
    arrivals: Arrivals | None = None
    step: int = -1
    token: int = 0  # of what it computes; another one: that was aborted
    given: bool = False
    owes: bool = False
    announced: int = 0
    tickets: dict[int, int] = field(default_factory=dict)
    outs: dict[int, np.ndarray] = field(default_factory=dict)
    results: dict[int, tuple[int, ...]] = field(default_factory=dict)  # contributors of steps that are over
    unobserved: dict[int, tuple[int, float]] = field(default_factory=dict)  # of such steps: contributors, and when, s
    observed: int = 0  # steps
    running: Computation | None = None  # that it does, or has done last, where stragglers are predicted
    spans: list[tuple[str, float, float]] = field(default_factory=list)


class _Run:
    """All workers, driven by the network's events."""

    def __init__(self, config: Stragglers, network: Fabric, job: FabricJob):
        self.config, self.network, self.job = config, network, job
        self.workers = [_Worker(number, np.random.default_rng((config.seed, number)),
                                Arrivals(config.workers, config.least) if config.dynamic else None)
                        for number in range(config.workers)]
        self.ends: dict[int, int] = {}  # ps, of each step's sum at the last worker
        self.sets: dict[int, tuple[int, ...]] = {}
        self.given: dict[tuple[int, int], int] = {}  # ps, when a worker gave to a step
        self.least_ps = round(PS * (4 * config.delay + (8 * INT32.bytes(config.elements) / config.rate if config.rate else 0)))
        self.computed = self.used = 0
        self.lookout = Lookout(config) if config.predict == "nurd" else None
        self.released = -1  # latest step whose sum does not wait for the others
        self._numbers = {machine: number for number, machine in enumerate(job.machines)}

    def begin(self, worker: _Worker) -> None:
        """Begins the worker's next step; those that are over it passes."""
        while True:
            worker.step += 1
            if worker.step >= self.config.steps:
                return
            self._announce(worker)
            worker.given = False
            if worker.step not in worker.results:
                break
        if worker.owes:
            self._give(worker)
            return
        seconds = self.config.seconds(worker.number, worker.rng)
        if self.lookout:
            worker.running = self.lookout.begin(seconds)
        worker.token += 1
        token, began = worker.token, self.network.now
        self.network.plan(began + round(seconds * PS), lambda: self._computed(worker, token, began))

    def _announce(self, worker: _Worker) -> None:
        config, machine = self.config, self.job.machines[worker.number]
        while worker.announced < min(config.steps, worker.step + config.ahead + 1):
            step = worker.announced
            worker.outs[step] = np.empty(config.elements, np.float32)
            worker.tickets[step] = self.network.submit(machine, None, worker.outs[step], tag=step,
                                                         offer=Offer(self._enough(worker, step)))
            worker.announced += 1

    def _enough(self, worker: _Worker, step: int) -> int:
        """Returns how many are enough for a step: by those steps that are over at each worker that announces this one."""
        if worker.arrivals is None:
            return self.config.least or self.config.workers
        while worker.observed < step - self.config.ahead and worker.observed in worker.unobserved:
            worker.arrivals.observe(*worker.unobserved.pop(worker.observed))
            worker.observed += 1
        return worker.arrivals.enough(step)

    def _computed(self, worker: _Worker, token: int, began: int) -> None:
        if token != worker.token:
            return
        self.computed += 1
        if self.lookout and worker.running:
            self.lookout.finish(worker.running)
        worker.spans.append((f"compute of step {worker.step}", began / PS, self.network.now / PS))
        if worker.step in worker.results:  # late
            worker.owes = self.config.late == "carry"
            self.begin(worker)
        else:
            self._give(worker)

    def _give(self, worker: _Worker) -> None:
        worker.given, worker.owes = True, False
        self.given[worker.step, worker.number] = self.network.now
        ticket = worker.tickets[worker.step]
        self.network.amend(ticket, gradient(worker.number, worker.step, self.config.elements))
        if self.lookout:
            self._predict(self.lookout, worker.step)
        if self.config.deadline:
            self.network.plan(self.network.now + round(self.config.deadline * PS), lambda: self._release(ticket))

    def _predict(self, lookout: Lookout, step: int) -> None:
        """Has a step's sum be complete with those that have given, if all others are predicted to straggle; from half of them
        on."""
        given = [each for each in self.workers if each.step == step and each.given]
        rest = [each for each in self.workers if each.step == step and not each.given]
        early = 2 * len(given) < self.config.workers
        if step in self.ends or step <= self.released or early:
            return
        straggle = lookout.all_straggle(step, {each.number: each.running for each in rest if each.running})
        if straggle and len(given) + len(rest) == self.config.workers:
            self.released = step
            for each in given:
                if step in each.tickets:
                    self.network.amend(each.tickets[step], least=len(given))

    def _release(self, ticket: int) -> None:
        self.network.amend(ticket, least=1)

    def completed(self, completion: Completion) -> None:
        """Notes a worker's sum, which is checked; the worker goes on if it was waiting, or stops to compute."""
        completion.raise_failed()
        worker = self.workers[self._numbers[completion.machine]]
        step = next(step for step, ticket in worker.tickets.items() if ticket == completion.ticket)
        del worker.tickets[step]
        contributors = completion.event.contributors
        self._check(worker.number, step, worker.outs.pop(step), contributors)
        self._check_time(step, contributors, completion.time)
        worker.results[step] = contributors
        if worker.arrivals is not None:
            worker.unobserved[step] = len(contributors), completion.time / PS
        worker.results.pop(worker.step - 1, None)
        self.ends[step] = completion.time
        if step != worker.step:
            return
        if worker.given:
            if worker.number in contributors:
                self.used += 1
            else:
                worker.owes = self.config.late == "carry"
            self.begin(worker)
        elif self.config.late == "abort":
            worker.token += 1
            self.begin(worker)

    def _check(self, worker: int, step: int, out: np.ndarray, contributors: tuple[int, ...]) -> None:
        if self.sets.setdefault(step, contributors) != contributors:
            raise WrongSum(f"step {step}: worker {worker} is told the contributors {contributors}, others {self.sets[step]}")
        if not self.config.payload:
            return
        right = sum((gradient(each, step, self.config.elements) for each in contributors), np.zeros(1, np.float32))
        if not np.array_equal(out, np.broadcast_to(right, out.shape)):
            raise WrongSum(f"step {step}: worker {worker} has another sum than that of the workers {contributors}")

    def _check_time(self, step: int, contributors: tuple[int, ...], time: int) -> None:
        """Compares with a physical bound: the last contributor's offer and its answer, then its values and the sum, cross two
        wires each, and the values take their time on one."""
        began = max((self.given[step, worker] for worker in contributors), default=0)
        if contributors and time < began + self.least_ps:
            raise EarlySum(f"step {step}: a sum {(time - began) / PS:g} s after its last contributor has given, expected at "
                           f"least {self.least_ps / PS:g} s")


class EarlySum(WrongSum):
    """A worker has a sum before its values can have come: the virtual network is broken."""


def gradient(worker: int, step: int, elements: int) -> np.ndarray:
    """Returns what stands for a worker's gradient: whole numbers, of which float32 sums are exact."""
    return (np.arange(elements, dtype=np.float32) % 97 + 1) * ((worker + 3) * (step % 11 + 1))


def run_steps(config: Stragglers, timeline: Timeline) -> Steps:
    """Runs all steps. ``timeline`` records the events.

    Raises:
        JobError: a sum failed, at a deadline or otherwise.
        EarlySum: a sum came before its values can have come.
        WrongSum: a sum is not that of the workers that it names.
    """
    place = virtual_network.place(config)
    with virtual_network.fabric(config, place) as network:
        above = virtual_network.servers(network, config, place)
        job = virtual_network.admit(network, config, place, above)[0]
        network.stop_at_completions()
        run = _Run(config, network, job)
        for worker in run.workers:
            run.begin(worker)
        while len(run.ends) < config.steps or any(worker.tickets for worker in run.workers):
            timeline.run(network)
            for completion in network.completions():
                run.completed(completion)
        ends = [run.ends[step] / PS for step in range(config.steps)]
        first = max(1, round(WARM * config.steps))
        links = virtual_network.link_figures(network, ends[-1])
        timeline.jobs.append((job.name, [worker.spans for worker in run.workers]))
        stats = virtual_network.counters(network, config, [job], job.hosts)
        return Steps(
            config.workers, INT32.bytes(config.elements),
            [b - a for a, b in zip(ends[first - 1:], ends[first:], strict=False)],
            [len(run.sets[step]) for step in range(first, config.steps)], run.computed, run.computed - run.used,
            spans=[[span for span in worker.spans[:200]] for worker in run.workers], stats=stats, checked=config.payload,
            predictions=list(run.lookout.predicted.values()) if run.lookout else [], **links)


KIND = Stragglers
