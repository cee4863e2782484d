"""Trainings in virtual time: every worker computes its layers, and each gradient bucket is reduced as soon as it is ready.

    forward ── backward: bucket 0 is ready ── bucket 1 ── ... ── end of the backward pass
                         └─ all-reduce 0 ──┘ └─ all-reduce 1 ──┘        └─ what is left is exposed ─┘ next step

A worker's next step begins when it has computed and has all sums; the optimiser takes no time. Every sum is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ina.lab.experiment_keys import Workload
from ina.lab.kinds import layers, virtual_network
from ina.lab.kinds.timeline import Timeline, busy_time
from ina.lab.kinds.virtual_network import WrongSum
from ina.lab.results.record import Training
from ina.net.ports import PS
from ina.worlds.virtual.fabric import Fabric, FabricJob

EVENTS_AT_ONCE = 100_000


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
    timeline = timeline or Timeline()
    model = [layer.scaled(config.scale) for layer in layers.read(config.layers_path)]
    buckets = layers.buckets(model, layers.MIB * config.first_bucket_mb, layers.MIB * config.bucket_mb)
    place = virtual_network.place(config)
    with virtual_network.fabric(config, place) as fabric:
        jobs = virtual_network.admit(fabric, config, place)
        rng = np.random.default_rng(config.seed)
        arrays = _arrays(config, buckets, 0)  # without payload they are neither read nor written: all share these
        workers = [_worker(config, job, rank, arrays if not config.payload else _arrays(config, buckets, rank), rng)
                   for job in jobs for rank in range(config.workers)]  # fmt: skip
        _run(config, fabric, workers, model, buckets, timeline)
        fabric.check()
        seconds = max(worker.ends[-1] for worker in workers) / PS
        figures, network = virtual_network.link_figures(fabric, seconds), virtual_network.whole(fabric)
        trainings = [
            _training(config, model, buckets, [w for w in workers if w.job is job], figures,
                      virtual_network.counters(fabric, config, [job], job.hosts, network))
            for job in jobs
        ]  # fmt: skip
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
) -> None:  # fmt: skip
    fabric.stop_at_completions()
    owners: dict[int, Worker] = {}
    for worker in workers:
        _begin(fabric, worker, 0, model, buckets, owners)
    while True:
        idle = timeline.run(fabric, EVENTS_AT_ONCE)
        for completion in fabric.completions():
            if (error := completion.event.error()) is not None:
                raise error
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
) -> None:  # fmt: skip
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
) -> Training:  # fmt: skip
    ends = [max(worker.ends[step] for worker in workers) for step in range(config.steps)]
    reductions = [span for span in workers[-1].spans if span[0].startswith("all-reduce")]
    return Training(
        job=workers[0].job.name,
        workers=config.workers,
        bytes=4 * sum(layer.elements for layer in model),
        buckets=len(buckets),
        step_seconds=[(end - begin) / PS for begin, end in zip([0, *ends], ends, strict=False)],
        compute_seconds=[max(worker.busy[step] for worker in workers) / PS for step in range(config.steps)],
        reduce_seconds=busy_time(reductions) / PS / config.steps,
        spans=[[(name, begin / PS, end / PS) for name, begin, end in worker.spans] for worker in workers],
        stats=stats,
        checked=config.payload,
        **figures,
    )
