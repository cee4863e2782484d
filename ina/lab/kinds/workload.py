"""Trainings in virtual time: every worker computes its layers, and each gradient bucket is reduced as soon as it is ready.

    forward ── backward: bucket 0 is ready ── bucket 1 ── ... ── end of the backward pass
                         └─ all-reduce 0 ──┘ └─ all-reduce 1 ──┘        └─ what is left is exposed ─┘ next step

A worker's next step begins when it has computed and has all sums; the optimiser takes no time. Every sum is checked.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ina.base import paths
from ina.base.bounds import Range
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check, Finding, Row
from ina.lab.results.why import BUSY
from ina.lab.virtual import bottleneck, layers, virtual_network
from ina.lab.virtual.simulated import SUMS, sums
from ina.lab.virtual.timeline import Timeline, busy_time
from ina.lab.virtual.virtual_network import Networked, WrongSum
from ina.net.ports import PS
from ina.worlds.virtual.fabric import Fabric, FabricJob


@dataclass
class Training:
    """Results of one job in virtual time, step by step."""

    job: str
    workers: int
    bytes: int  # of one worker's gradients
    buckets: int
    step_seconds: list[float]  # from the last worker's end of the step before to that of this one
    compute_seconds: list[float]  # of the worker that computes longest
    reduce_seconds: float  # in which the last worker had an all-reduce under way, of a step
    busiest_link: str  # the direction that was busy longest
    busiest_bytes: int
    link_use: float | None
    spans: list[list[tuple[str, float, float]]]  # by worker: name, begin, end
    stats: dict[str, dict] = field(default_factory=dict)
    checked: bool = True  # the sums

    def summary(self) -> dict[str, object]:
        """Returns figures of the table: means over the steps."""
        step, compute = statistics.mean(self.step_seconds), statistics.mean(self.compute_seconds)
        worker = self.stats["workers"]
        return {
            "job": self.job,
            "sums": sums(self.checked),
            "step_ms": 1e3 * step,
            "compute_ms": 1e3 * compute,
            "reduce_ms": 1e3 * self.reduce_seconds,
            "exposed_ms": 1e3 * (step - compute),
            "efficiency": compute / step if compute else None,  # None: nothing could hide communication
            "link_mb": 1e-6 * self.busiest_bytes / len(self.step_seconds),
            "link_use": self.link_use,
            "packets": worker["tx_packets"],
            "retransmissions": worker["retransmissions"],
        }


@dataclass(frozen=True)
class Workload(Networked):
    """Trainings in virtual time: layers compute for the times that a file gives, DDP's buckets are reduced meanwhile."""

    guide = "Kind workload: trainings in virtual time"
    kind: str = key("workload", "what is done: workload", choices=("workload",))
    name: str = key("workload", "the results folder's name begins with it")
    layers: str = key("fashion-mnist", "a CSV file of layers, or one of workloads/ by its name")
    steps: int = key(4, "training steps", limits.STEPS)
    bucket_mb: float = key(25.0, "DDP's gradient bucket, MiB", limits.MIB)
    first_bucket_mb: float = key(1.0, "DDP's first one, MiB", limits.MIB)
    compute: float = key(1.0, "times of the file are multiplied by this", limits.FACTOR)
    scale: float = key(1.0, "elements and times of the file are: a small model of the same shape, where networks are large",
                       Range(0, 1))
    jitter: float = key(0.0, "of a step's compute time: uniform from none to this share more, by worker and step", Range(0, 100))
    slow_worker: float = key(1.0, "compute time of worker 0, times that of the others", limits.FACTOR)

    rows = (
        Row("step_ms", "time per step, virtual ms", "ms/step", "{:.4f}"),
        Row("compute_ms", "compute of the slowest worker, ms", "compute", "{:.4f}"),
        Row("reduce_ms", "an all-reduce under way, ms/step", "reduce", "{:.4f}"),
        Row("exposed_ms", "all-reduce not behind compute, ms/step", "exposed", "{:.4f}"),
        Row("efficiency", "compute's share of the step", "eff", "{:.1%}"),
        Row("link_mb", "on the busiest link, MB/step", "link MB", "{:.3f}"),
        Row("link_use", "use of the busiest link", "use", "{:.1%}"),
        Row("packets", "packets sent (all workers)", "packets", "{:,}"),
        Row("retransmissions", "retransmissions (all workers)", "again", "{:,}"),
        SUMS,
    )

    def checks(self) -> Iterator[Check]:
        names = ", ".join(sorted(path.stem for path in (paths.root() / "workloads").glob("*.csv")))
        yield self.layers_path.is_file(), "layers", f"one of {names}, or the path of a .csv file"
        yield 1 <= self.steps <= 10_000, "steps", "1 to 10000"
        yield 0 < self.bucket_mb < 1e6, "bucket_mb", "more than 0 and less than a million"
        yield 0 < self.first_bucket_mb < 1e6, "first_bucket_mb", "more than 0 and less than a million"
        yield self.scale > 0, "scale", "more than 0, at most 1"
        yield self.slow_worker > 0, "slow_worker", "more than 0, up to a million"
        yield from super().checks()

    @property
    def layers_path(self) -> Path:
        """The file that ``layers`` means."""
        return Path(self.layers) if self.layers.endswith(".csv") else paths.root() / "workloads" / f"{self.layers}.csv"

    @property
    def work(self) -> str:
        return f"{self.steps} steps of {self.layers}"

    def measure(self, timeline: Timeline | None = None) -> list[Training]:
        return train(self, timeline)

    def why(self, run: dict, summary: dict) -> Finding:
        step, exposed = summary["step_ms"], summary["exposed_ms"]
        computing = f"{summary['compute_ms']:.3f} of {step:.3f} ms a step are compute"
        if (slow := bottleneck.straggler(run)) is not None:
            return Finding(run["job"], "straggler", f"{computing}; {slow}")
        if (summary["efficiency"] or 0) >= BUSY:
            return Finding(run["job"], "compute", f"{computing}, {exposed:.3f} ms of all-reduce are not hidden behind it")
        inner = bottleneck.network(self, run, summary["reduce_ms"] / step, summary["reduce_ms"] * self.steps)
        nothing = "no worker computes: " * (summary["efficiency"] is None)
        shown = f"{nothing}{exposed:.3f} of {step:.3f} ms a step are exposed all-reduce; {inner.shown}"
        return Finding(run["job"], inner.bound, shown)


@dataclass
class Worker:
    """Progress of one rank in its training. Times in ps."""

    job: FabricJob
    rank: int
    gradient: np.ndarray  # the same values for every element of every bucket: rank + 1
    results: list[np.ndarray]
    factors: np.ndarray  # of its compute time, by step
    step: int = -1
    began: int = 0
    computed: int = 0  # when the backward pass ends
    waiting: dict[int, int] = field(default_factory=dict)  # ticket -> bucket
    spans: list[tuple[str, int, int]] = field(default_factory=list)  # name, begin, end
    ends: list[int] = field(default_factory=list)  # of its steps
    busy: list[int] = field(default_factory=list)  # compute time of its steps


def train(config: Workload, timeline: Timeline | None = None) -> list[Training]:
    """Runs all jobs, and records their spans in ``timeline``. Raises as allreduce.reduce does."""
    config, timeline = config.resolved(), timeline or Timeline()
    model = [layer.scaled(config.scale) for layer in layers.read(config.layers_path)]
    buckets = layers.buckets(model, layers.MIB * config.first_bucket_mb, layers.MIB * config.bucket_mb)
    place = virtual_network.place(config)
    with virtual_network.fabric(config, place) as fabric:
        jobs = virtual_network.admit(fabric, config, place, virtual_network.servers(fabric, config, place))
        rng = np.random.default_rng(config.seed)
        arrays = _arrays(config, buckets, 0)  # without payload they are neither read nor written: all share these
        workers = [_worker(config, job, rank, arrays if not config.payload else _arrays(config, buckets, rank), rng)
                   for job in jobs for rank in range(config.workers)]
        _run(config, fabric, workers, model, buckets, timeline)
        fabric.check()
        seconds = max(worker.ends[-1] for worker in workers) / PS
        figures, network = virtual_network.link_figures(fabric, seconds), virtual_network.whole(fabric)
        trainings = [
            _training(config, model, buckets, [w for w in workers if w.job is job], figures,
                      virtual_network.counters(fabric, config, [job], job.hosts, network))
            for job in jobs
        ]
        timeline.jobs += [(training.job, training.spans) for training in trainings]
        return trainings


def _arrays(config: Workload, buckets: Sequence[layers.Bucket], rank: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns a worker's gradient, the same values for every bucket, and places for the results."""
    dtype = np.dtype(config.dtype)
    gradient = np.full(max(bucket.elements for bucket in buckets), rank + 1, dtype)
    if not config.payload:
        return gradient, [gradient[: bucket.elements] for bucket in buckets]
    return gradient, [np.zeros(bucket.elements, dtype) for bucket in buckets]


def _worker(
    config: Workload, job: FabricJob, rank: int, arrays: tuple[np.ndarray, list[np.ndarray]], rng: np.random.Generator
) -> Worker:
    factors = config.compute * (1 + config.jitter * rng.random(config.steps))
    if rank == 0:
        factors *= config.slow_worker
    return Worker(job, rank, *arrays, factors)


def _run(
    config: Workload, fabric: Fabric, workers: Sequence[Worker], model: Sequence[layers.Layer],
    buckets: Sequence[layers.Bucket], timeline: Timeline,
) -> None:
    fabric.stop_at_completions()
    owners: dict[int, Worker] = {}
    for worker in workers:
        _begin(fabric, worker, 0, model, buckets, owners)
    while True:
        idle = timeline.run(fabric)
        for completion in fabric.completions():
            completion.raise_failed()
            worker = owners.pop(completion.ticket)
            _reduced(config, fabric, worker, completion.ticket, completion.time)
            if not worker.waiting:
                worker.ends.append(max(completion.time, worker.computed))
                if worker.step + 1 < config.steps:
                    _begin(fabric, worker, worker.ends[-1], model, buckets, owners)
        if idle:
            return


def _begin(
    fabric: Fabric, worker: Worker, at: int, model: Sequence[layers.Layer], buckets: Sequence[layers.Bucket],
    owners: dict[int, Worker],
) -> None:
    worker.step += 1
    factor = worker.factors[worker.step]
    forward = round(sum(layer.forward for layer in model) * factor)
    backward = round(sum(layer.backward for layer in model) * factor)
    worker.began, worker.computed = at, at + forward + backward
    worker.busy.append(forward + backward)
    worker.spans += [("forward", at, at + forward), ("backward", at + forward, worker.computed)]
    for number, bucket in enumerate(buckets):
        ready = at + forward + round(bucket.ready * factor)
        source = worker.gradient[: bucket.elements]
        for ticket in fabric.submit_one(worker.job, worker.rank, source, worker.results[number], after=ready - fabric.now):
            worker.waiting[ticket] = number
            owners[ticket] = worker
        worker.spans.append((f"all-reduce of bucket {number}", ready, -1))


def _reduced(config: Workload, fabric: Fabric, worker: Worker, ticket: int, time: int) -> None:
    number = worker.waiting.pop(ticket)
    if number in worker.waiting.values():
        return  # stripes of it are still under way
    name = f"all-reduce of bucket {number}"
    index = next(i for i in range(len(worker.spans) - 1, -1, -1) if worker.spans[i][0] == name)
    worker.spans[index] = (name, worker.spans[index][1], time)
    result, right = worker.results[number], config.workers * (config.workers + 1) // 2
    if not config.payload:
        return
    if not np.all(result == right):
        raise WrongSum(f"{worker.job.name}: worker {worker.rank}'s bucket {number} of step {worker.step} is not {right}")
    result[:] = 0


def _training(
    config: Workload, model: Sequence[layers.Layer], buckets: Sequence[layers.Bucket], workers: Sequence[Worker],
    figures: virtual_network.LinkFigures, stats: dict,
) -> Training:
    ends = [max(worker.ends[step] for worker in workers) for step in range(config.steps)]
    reductions = [span for span in workers[-1].spans if span[0].startswith("all-reduce")]
    return Training(
        job=workers[0].job.name,
        workers=config.workers,
        bytes=layers.FLOAT * sum(layer.elements for layer in model),
        buckets=len(buckets),
        step_seconds=[(end - begin) / PS for begin, end in zip([0, *ends], ends, strict=False)],
        compute_seconds=[max(worker.busy[step] for worker in workers) / PS for step in range(config.steps)],
        reduce_seconds=busy_time(reductions) / PS / config.steps,
        spans=[[(name, begin / PS, end / PS) for name, begin, end in worker.spans] for worker in workers],
        stats=stats,
        checked=config.payload,
        **figures,
    )


KIND = Workload
