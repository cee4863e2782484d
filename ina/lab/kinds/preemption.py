"""Steps of a training whose workers are taken away and come back, in virtual time: what is lost, and what is left.

All workers of a job compute, then all-reduce their gradients; the next step begins when the last one has the sum. A trace
(ina/lab/virtual/membership.py) says who goes and who comes back when.

    gone    a worker's packets stop at once. The others notice ``detect`` s later, if the step is not over before: the job ends
            at the switches, and what they have done of the step is thrown away. A new job, with packets and rows of its own,
            begins the step again with those that are there.
    back    a worker has the training's state ``join`` s after it has come, and is in the new job that begins with the next step.

Admission takes no virtual time, and the state is kept even where everybody is gone. Gradients are of whole numbers, others in
each job; every sum is compared with that of all members of its job, and none may come before its bytes can have come.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ina.aggregation.entries import program_named
from ina.aggregation.lane import INT32
from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check, Finding, Measured, Row
from ina.lab.results import report
from ina.lab.virtual import membership, virtual_network
from ina.lab.virtual.membership import Change, Membership
from ina.lab.virtual.simulated import SUMS, sums
from ina.lab.virtual.timeline import Span, Timeline
from ina.lab.virtual.virtual_network import Networked, Place, WrongSum
from ina.net.ports import PS
from ina.worlds.virtual.fabric import Fabric, FabricJob
from ina.worlds.virtual.network import NEVER, Completion

if TYPE_CHECKING:
    from matplotlib.axes import Axes

USEFUL, LOST, WAITING = PHASES = ("useful", "lost", "waiting")
PATTERN, FACTORS = 97, 151  # of gradients: their product times 1,024 workers has 24 bits, so float32 sums are exact
BINS = 60  # of a figure over time


@dataclass
class Preempted:
    """Result of a run of ``seconds``. ``alone``: s of a step of all workers that nobody leaves. ``ends``: of each step, s, and
    ``sizes``: workers of its sum. ``phases``: what all together did from the end of the one before to a time, s; the last step,
    which has not ended, is none. ``members``: times, s, and workers that there are in the job from then on. ``thrown_away``:
    s of all workers together that they computed, and communicated, in steps that were begun again."""

    workers: int
    bytes: int
    seconds: float
    alone: float
    ends: list[float]
    sizes: list[int]
    phases: list[tuple[str, float]]
    members: list[tuple[float, int]]
    thrown_away: tuple[float, float]
    again: int
    taken: int
    jobs: int
    busiest_link: str
    busiest_bytes: int
    link_use: float | None
    stats: dict[str, dict] = field(default_factory=dict)
    checked: bool = True

    def share(self, name: str) -> float:
        """Returns the share of the time of a phase."""
        begins = [0.0, *(end for _, end in self.phases)]
        return sum(end - begin for (phase, end), begin in zip(self.phases, begins, strict=False) if phase == name) / self.seconds

    def summary(self) -> dict[str, object]:
        """Figures of the table."""
        rate = sum(self.sizes) / self.seconds
        return {
            "job": "training",  # the same at every point of a sweep, which makes them one line of a plot
            "sums": sums(self.checked),
            "steps": len(self.ends),
            "gradients_per_s": rate,
            "left": rate * self.alone / self.workers,
            **{f"{name}_time": self.share(name) for name in PHASES},
            "members": statistics.mean(self.sizes) if self.sizes else None,
            "taken": self.taken,
            "again": self.again,
            "compute_lost": self.thrown_away[0],
            "communication_lost": self.thrown_away[1],
            "jobs": self.jobs,
            "retransmissions": self.stats["workers"]["retransmissions"],
        }


@dataclass(frozen=True)
class Preemption(Networked):
    """Steps of a training whose workers are taken away and come back, in virtual time."""

    guide = "Kind preemption: workers that are taken away and come back"
    kind: str = key("preemption", "what is done: preemption", choices=("preemption",))
    name: str = key("preemption", "the results folder's name begins with it")
    workers: int = key(8, "workers, each at a host of its own", limits.WORKERS)
    least: int = key(1, "workers without which no step begins", Range(1, 1024, "workers", "workers"))
    trace: str = key("", "CSV file of who goes and who comes when (time_s,worker,event); empty: drawn, by between and away")
    between: float = key(120.0, "s until a worker that is there is taken away, on average; 0: nobody is", limits.TIME)
    away: float = key(30.0, "s until it is there again, on average", limits.TIME)
    detect: float = key(1.0, "s until the others notice that one is gone, and begin the step again without it", limits.TIME)
    join: float = key(2.0, "s that a worker needs, when it has come, to get the training's state", limits.TIME)
    seconds: float = key(300.0, "virtual s that the training lasts", limits.TIME)
    computing: float = key(0.2, "s that a worker computes in a step", limits.TIME)
    elements: int = key(100_000, "of the gradient, float32", limits.ELEMENTS)
    dtype: str = key("float32", "float32", choices=("float32",))
    rate: float = key(200e6, "of each wire, bit/s; not of a topology's file, nor between a topoopt server and its own element",
                      limits.LINK_RATE)
    delay: float = key(0.5e-3, "of each wire, one way, s; not of a topology's file", limits.DELAY)
    pool: int = key(128, "slots of each switch, a power of two", limits.SLOTS)
    rto_min: float = key(20e-3, "least retransmission time-out, s", limits.TIME)
    rto_max: float = key(1.0, "largest, s; also between two questions of a worker that waits", limits.TIME)
    timeout: float = key(10_000.0, "virtual seconds after which a sum has failed", limits.TIME)

    rows = (
        Row("steps", "steps", "steps", "{:,}"),
        Row("gradients_per_s", "gradients in sums, a second", "grad/s", "{:.2f}"),
        Row("left", "throughput, of that without pre-emption", "left", "{:.1%}"),
        Row("useful_time", "time of steps that ended", "useful", "{:.1%}"),
        Row("lost_time", "time of steps that were begun again", "lost", "{:.1%}"),
        Row("waiting_time", "time until a loss is noticed, or workers come", "waiting", "{:.1%}"),
        Row("members", "workers of a sum, mean", "workers", "{:.2f}"),
        Row("taken", "workers taken away", "taken", "{:,}"),
        Row("again", "steps begun again", "again", "{:,}"),
        Row("compute_lost", "compute thrown away, worker seconds", "comp lost", "{:.1f}"),
        Row("communication_lost", "communication thrown away, worker seconds", "comm lost", "{:.1f}"),
        Row("jobs", "jobs, one after the other", "jobs", "{:,}"),
        Row("retransmissions", "retransmissions (all workers)", "sent again", "{:,}"),
        SUMS,
    )

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield self.least <= self.workers, "least", f"at most {self.workers}, the workers"
        yield not self.trace or Path(self.trace).is_file(), "trace", "the path of a CSV file, or nothing"
        if Path(self.trace).is_file():
            membership.read(Path(self.trace), self.workers)  # a wrong one is an error before anything runs
        yield self.seconds > 0, "seconds", "more than 0"
        yield self.computing > 0, "computing", "more than 0"
        yield self.timeout > self.detect + self.computing, "timeout", "more than detect and computing together"
        yield self.algorithm == "in-network" and self.stripes == 1, "algorithm", "in-network, with one stripe"
        yield self.jobs == 1, "jobs", "1"
        yield not program_named(self.protocol).needs_server, "protocol", "one without a parameter server"
        yield self.check != "keyed", "check", "off or sum"

    def unused(self) -> Mapping[str, str]:
        return dict.fromkeys(("between", "away"), "no trace") if self.trace else {}

    @property
    def work(self) -> str:
        trace = self.trace or f"one is taken away after {self.between:g} s on average, for {self.away:g} s"
        return (f"{self.seconds:g} s of steps of {self.computing:g} s and {self.elements:,} float32, {trace}, noticed after "
                f"{self.detect:g} s, back in after {self.join:g} s")

    @property
    def membership(self) -> Membership:
        """Workers that are there first, and who goes and comes when. Raises ConfigError: the file is wrong."""
        if self.trace:
            return membership.read(Path(self.trace), self.workers)
        return membership.drawn(self.seed, self.workers, self.between, self.away)

    def measure(self, timeline: Timeline | None = None) -> list[Preempted]:
        return [run_training(self.resolved(), timeline or Timeline())]

    def title(self, results: Sequence[Measured]) -> str:
        source = self.trace or f"each there for {self.between:g} s and away for {self.away:g} s on average"
        return f"{counted(self.workers, 'worker')}, {source}" if self.trace or self.between else super().title(results)

    def why(self, run: dict, summary: dict) -> Finding:
        """Names pre-emption where it costs a tenth of the throughput, or else the larger part of a step."""
        text = (f"{summary['left']:.0%} of the throughput without pre-emption is left; {summary['members']:.2f} of "
                f"{self.workers} workers were there, {summary['lost_time']:.1%} of the time was thrown away, "
                f"{summary['waiting_time']:.1%} waited, {counted(summary['again'], 'step')} begun again; a step of all takes "
                f"{1e3 * run['alone']:.1f} ms, of which {1e3 * self.computing:g} ms are compute")
        bound = "compute" if self.computing > run["alone"] / 2 else "link"
        return Finding(summary["job"], "preemption" if summary["left"] < 0.9 else bound, text)

    def figures(self, results: Sequence[Measured]) -> list[tuple[str, str]]:
        runs = [run for run in results if isinstance(run, Preempted)]
        return [figure for run in runs for figure in (
            ("Workers in the job", report.svg(partial(_draw_members, run))),
            ("Gradients in sums", report.svg(partial(_draw_throughput, run))),
            ("Where the time goes", report.svg(partial(_draw_phases, run))))]


class EarlySum(WrongSum):
    """A worker has a sum before its values can have come: the virtual network is broken."""


@dataclass
class _Step:
    """The step that is under way: its beginning, ps, its right sum, its tickets, and when each member had its sum, ps."""

    began: int
    right: np.ndarray
    tickets: dict[int, int] = field(default_factory=dict)  # worker's number, by ticket
    ends: dict[int, int] = field(default_factory=dict)


class _Training:
    """Workers, and their jobs one after the other. ``clock``: ps; it is ahead of the network's where nothing happens in that."""

    def __init__(self, config: Preemption, network: Fabric, place: Place, trace: Membership, timeline: Timeline):
        self.config, self.network, self.place, self.timeline = config, network, place, timeline
        self._hosts = place.hosts(config)[0]
        self._wires = [_wire(place, host) for host in self._hosts]
        self._changes = iter(trace.changes)
        self._next = next(self._changes, None)
        self._ready = dict.fromkeys(trace.first, 0)  # ps from which a worker that is there has the state
        self._members: tuple[int, ...] = ()
        self._gone: dict[int, int] = {}  # members that have left, and when, ps; the others have not noticed
        self._job: FabricJob | None = None
        self._step = _Step(0, np.empty(0))
        self._compute, self._detect, self._join = (round(PS * s) for s in (config.computing, config.detect, config.join))
        self._pattern = np.arange(config.elements, dtype=np.float32) % PATTERN + 1
        self._sources, self._outs = ([np.empty(config.elements, np.float32) for _ in range(config.workers)] for _ in range(2))
        self.clock = self._since = 0  # since: the end of the last phase
        self.jobs: list[FabricJob] = []
        self.ends: list[int] = []
        self.sizes: list[int] = []
        self.phases: list[tuple[str, int]] = []
        self.members: list[tuple[int, int]] = []
        self.spans: list[list[Span]] = [[] for _ in range(config.workers)]
        self.computed = self.communicated = self.again = self.taken = 0  # ps that were thrown away; steps; workers

    def run(self, until: int, steps: int = 0) -> None:
        """Runs to ``until`` ps, or until so many ``steps`` have ended (0: any number)."""
        while self.clock < until and (not steps or len(self.ends) < steps):
            due = min(until, self._due())
            if not self._advance(due) or due == until:
                continue
            while self._next is not None and self._next.time <= self.clock:
                change, self._next = self._next, next(self._changes, None)
                self._change(change)
            if self._gone and self.clock >= self._noticed:
                self._lose()
            if self._job is None:
                self._begin()

    @property
    def _noticed(self) -> int:
        return min(self._gone.values()) + self._detect

    def _due(self) -> int:
        """Returns when something happens next that is not in the network, ps."""
        due = [NEVER - 1]
        if self._next is not None:
            due.append(self._next.time)
        if self._gone:
            due.append(self._noticed)
        if self._job is None and len(self._ready) >= self.config.least:
            due.append(sorted(self._ready.values())[self.config.least - 1])
        return max(self.clock, min(due))

    def _advance(self, due: int) -> bool:
        """Runs the network to ``due`` ps, which returns True, or to the next sums."""
        idle = self.timeline.run(self.network, due)
        completions = self.network.completions()
        for completion in completions:
            self._complete(completion)
        arrived = not completions and (idle or self.network.now >= due)
        self.clock = due if arrived else max(self.clock, self.network.now)
        if completions:
            self._end_step()
        return arrived

    # ---- steps

    def _begin(self) -> None:
        """Begins a step: in the same job, if nobody has come; in a new one with all that are there, if they are enough."""
        there = tuple(sorted(worker for worker, since in self._ready.items() if since <= self.clock))
        if self._job is None or {*there} - {worker for worker, _ in self._machines()}:
            self._end_job()
            if len(there) < self.config.least:
                return
            self._admit(there)
        factors = {worker: factor(worker, len(self.ends), len(self.jobs)) for worker in self._members}
        self._step = _Step(self.clock, sum(factors.values()) * self._pattern)
        given = self.clock + self._compute
        for worker, machine in self._machines():
            np.multiply(self._pattern, factors[worker], out=self._sources[worker])
            self._outs[worker].fill(np.nan)
            ticket = self.network.submit(machine, self._sources[worker], self._outs[worker], at=given, tag=len(self.ends))
            self._step.tickets[ticket] = worker

    def _machines(self) -> list[tuple[int, int]]:
        """Returns numbers and machines of the members that have not gone."""
        if self._job is None:
            return []
        return [(worker, machine) for worker, machine in zip(self._members, self._job.machines, strict=True)
                if worker not in self._gone]

    def _complete(self, completion: Completion) -> None:
        completion.raise_failed()
        worker = self._step.tickets.pop(completion.ticket)
        self._step.ends[worker] = completion.time
        given = self._step.began + self._compute
        if completion.time < given + (least := self._least_time()):
            raise EarlySum(f"step {len(self.ends)}: worker {worker} has the sum {(completion.time - given) / PS:g} s after the "
                           f"members have given, expected at least {least / PS:g} s")
        if self.config.payload and not np.array_equal(self._outs[worker], self._step.right):
            raise WrongSum(f"step {len(self.ends)}: worker {worker} has another sum than that of the workers {self._members}, "
                           f"the members of job {len(self.jobs)}")

    def _least_time(self) -> int:
        """Returns a physical bound, ps: all of each member's bytes cross its own wire, and the sum another one."""
        bits = 8 * INT32.bytes(self.config.elements)
        links = [self.place.topology.links[self._wires[worker][0]] for worker in self._members]
        there = max(link.delay + (bits / link.rate if link.rate else 0) for link in links)
        return round(PS * (there + min(link.delay for link in links)))

    def _end_step(self) -> None:
        """Begins the next step, if all that are left have this one's sum."""
        if not self._step.ends or self._step.ends.keys() | self._gone.keys() != {*self._members}:
            return
        self._record(USEFUL, self.clock)
        self._note_spans(self.clock)
        self.ends.append(self.clock)
        self.sizes.append(len(self._members))
        self._begin()

    def _lose(self) -> None:
        """Throws away what the members have done of the step, and ends the job."""
        self._record(LOST, max(self._since, min(self._gone.values())))
        self._record(WAITING, self.clock)
        self.again += 1
        given = self._step.began + self._compute
        for worker in self._members:
            stopped = self._gone.get(worker, self.clock)
            self.computed += max(0, min(stopped, given) - self._step.began)
            self.communicated += max(0, self._step.ends.get(worker, stopped) - given)
        self._note_spans(self.clock)
        self._end_job()

    def _record(self, phase: str, end: int) -> None:
        if end > self._since:
            self.phases.append((phase, end))
            self._since = end

    def _note_spans(self, end: int) -> None:
        step, given = len(self.ends), self._step.began + self._compute
        for worker in self._members:
            stopped = self._gone.get(worker, end)
            if stopped > self._step.began:
                self.spans[worker].append((f"compute of step {step}", self._step.began / PS, min(stopped, given) / PS))
            if stopped > given:
                self.spans[worker].append((f"all-reduce of step {step}", given / PS,
                                           self._step.ends.get(worker, stopped) / PS))

    # ---- jobs

    def _admit(self, members: tuple[int, ...]) -> None:
        config, hosts = self.config, [self._hosts[worker] for worker in members]
        self._record(WAITING, self.clock)
        self._job = virtual_network.admit_one(self.network, config, self.place, hosts, f"training {len(self.jobs) + 1}",
                                              config.window, None)
        self._members = members
        self.jobs.append(self._job)
        self._count()
        for worker in members:
            self._plug(worker, True)

    def _plug(self, worker: int, up: bool) -> None:
        """Takes the wire on which a worker's host sends down, or up: what waits at the host of one that is gone goes nowhere."""
        self.network.set_up(self.network.end(*self._wires[worker]), up)

    def _end_job(self) -> None:
        """Ends the job, if there is one, at its workers and at the switches."""
        if self._job is None:
            return
        for _, machine in self._machines():
            self.network.stop_machine(machine)
        for job in self._job.jobs:
            self.network.controller.release(job.name)
        self._job, self._members, self._gone = None, (), {}
        self._count()

    def _count(self) -> None:
        if self.members and self.members[-1][0] == self.clock:
            self.members.pop()
        self.members.append((self.clock, len(self._machines())))

    def _change(self, change: Change) -> None:
        worker = change.worker
        if change.joins:
            self._ready[worker] = change.time + self._join
            return
        del self._ready[worker]
        self.taken += 1
        machine = dict(self._machines()).get(worker)
        if machine is None:  # it is not in the job yet, or is in it, gone, and has not been missed since
            return
        self.network.stop_machine(machine)
        self._plug(worker, False)
        self._gone[worker] = change.time
        self._step.tickets = {ticket: other for ticket, other in self._step.tickets.items() if other != worker}
        self._count()
        if not self._machines():  # nobody is left to notice
            self._lose()
        else:
            self._end_step()

    def end(self) -> None:
        """Ends the job, and lets what is on the wires arrive."""
        if self._job is None:
            self._record(WAITING, self.clock)
        self._end_job()
        while not self.network.run():
            self.network.completions()
        self.network.check()


def _wire(place: Place, host: str) -> tuple[int, int]:
    """Returns the link of a host to its switch, and the side of it that is the host's."""
    return next((link, side) for link, ends in enumerate(place.topology.ends) for side in (0, 1) if ends[side].node == host)


def factor(worker: int, step: int, job: int) -> np.float32:
    """Returns the factor of a worker's gradient, which is a pattern of whole numbers times it. Those of the same step in the next
    job, and of the next step, are others: packets that are left of them would make another sum."""
    return np.float32((3 * worker + step + 7 * job) % FACTORS + 1)


def run_training(config: Preemption, timeline: Timeline) -> Preempted:
    """Runs the training, and before it a step that nobody leaves. ``timeline`` records the events.

    Raises:
        ConfigError: the trace's file is wrong.
        JobError: a sum failed, at a deadline or otherwise.
        EarlySum: a sum came before its values can have come.
        WrongSum: a sum is not that of the members of its job.
        Unbalanced: packets or bytes were lost or duplicated by no fault, or a link carried more than it can.
    """
    trace, place = config.membership, virtual_network.place(config)
    with virtual_network.fabric(config, place) as network:
        undisturbed = _Training(config, network, place, Membership(tuple(range(config.workers)), ()), Timeline())
        network.stop_at_completions()
        undisturbed.run(NEVER - 1, steps=1)
    with virtual_network.fabric(config, place) as network:
        network.stop_at_completions()
        training = _Training(config, network, place, trace, timeline)
        training.run(round(PS * config.seconds))
        training.end()
        timeline.jobs.append(("training", training.spans))
        hosts = place.hosts(config)[0]
        return Preempted(
            config.workers, INT32.bytes(config.elements), config.seconds, undisturbed.ends[0] / PS,
            [end / PS for end in training.ends], training.sizes, [(name, end / PS) for name, end in training.phases],
            [(time / PS, count) for time, count in training.members],
            (training.computed / PS, training.communicated / PS), training.again, training.taken, len(training.jobs),
            stats=virtual_network.counters(network, config, training.jobs, hosts), checked=config.payload,
            **virtual_network.link_figures(network, config.seconds))


# ---- figures over time


def _draw_members(run: Preempted, axes: Axes) -> None:
    times, counts = zip(*run.members, (run.seconds, run.members[-1][1] if run.members else 0), strict=True)
    axes.step(times, counts, where="post", linewidth=1)
    axes.set(xlabel="virtual time, s", ylabel="workers", xlim=(0, run.seconds), ylim=(0, run.workers + 0.5))
    report.whole_numbers(axes.yaxis)


def _draw_throughput(run: Preempted, axes: Axes) -> None:
    counts, edges = np.histogram(run.ends, BINS, (0, run.seconds), weights=run.sizes)
    axes.stairs(counts * BINS / run.seconds, edges, label="with pre-emption")
    axes.axhline(run.workers / run.alone, linestyle="--", linewidth=1, color="C1", label="all workers, without")
    axes.set(xlabel="virtual time, s", ylabel="gradients a second", xlim=(0, run.seconds), ylim=(0, None))
    report.legend(axes)


def _draw_phases(run: Preempted, axes: Axes) -> None:
    edges = np.linspace(0, run.seconds, BINS + 1)
    begins, ends = np.array([0.0, *(end for _, end in run.phases)])[:-1], np.array([end for _, end in run.phases])
    bottom = np.zeros(BINS)
    for name in PHASES:
        own = np.array([phase == name for phase, _ in run.phases], bool)
        overlap = np.minimum(ends[own, None], edges[1:]) - np.maximum(begins[own, None], edges[:-1])
        top = bottom + 100 * np.maximum(overlap, 0).sum(axis=0) * BINS / run.seconds
        axes.stairs(top, edges, baseline=bottom, fill=True, alpha=0.7, label=name)
        bottom = top
    axes.set(xlabel="virtual time, s", ylabel="of the time, %", xlim=(0, run.seconds), ylim=(0, 100))
    report.legend(axes)


KIND = Preemption
