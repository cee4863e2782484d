"""All-reduces in virtual time: the compiled switch program and the real worker on an event clock, or baselines between hosts.

No clock is read: the same configuration gives the same packets at the same picoseconds, and so the same figures.
"""

from __future__ import annotations

import os

import numpy as np

from ina.base.settings import ConfigError
from ina.lab.experiment_keys import AllReduce
from ina.lab.kinds import virtual_network
from ina.lab.kinds.oracle import expected
from ina.lab.kinds.timeline import Timeline
from ina.lab.kinds.virtual_network import WrongSum
from ina.lab.results.record import Reduction
from ina.net.ports import PS
from ina.worlds.virtual.fabric import Fabric, FabricJob
from ina.worlds.virtual.network import Completion

EVENTS_AT_ONCE = 100_000  # between two checks for Ctrl-C


def reduce(config: AllReduce, timeline: Timeline | None = None) -> list[Reduction]:
    """Runs all jobs at once, each with one tensor, and checks every worker's result (not without payload), and every link's
    counters.

    ``timeline`` records the events.

    Raises:
        JobError: a tensor failed, at a deadline or otherwise.
        WrongSum: a result differs from NumPy's, or from that of the protocol's own entries.
        Unbalanced: packets or bytes were lost or duplicated by no fault, or a link carried more than it can.
        ConfigError: the topology does not exist, or does not have enough hosts.
    """
    place, timeline = virtual_network.place(config), timeline or Timeline()
    with virtual_network.fabric(config, place) as fabric:
        jobs = virtual_network.admit(fabric, config, place)
        rng = np.random.default_rng(config.seed)
        _must_fit(config, len(jobs))
        tensors = [_tensors(rng, config) for _ in jobs]
        reduction = config.reduction
        results = [expected(arrays, config.workers, config.protocol, reduction) if config.payload else None for arrays in tensors]
        for job, arrays in zip(jobs, tensors, strict=True):
            _submit(fabric, job, arrays, reduction)
        while not timeline.run(fabric, EVENTS_AT_ONCE):
            pass
        done = {completion.machine: completion for completion in fabric.completions()}
        for job, arrays, right in zip(jobs, tensors, results, strict=True):
            for machine in job.machines:
                if machine in done and (error := done[machine].event.error()) is not None:
                    raise error
            if right is not None:
                _check(config, job, arrays, *right)
        fabric.check()
        timeline.jobs += [(job.name, [[("all-reduce", 0.0, _end(job, worker, done))] for worker in range(len(job.hosts))])
                          for job in jobs]  # fmt: skip
        whole = max(completion.time for completion in done.values()) / PS
        links, network = virtual_network.link_figures(fabric, whole), virtual_network.whole(fabric)
        return [_reduction(fabric, config, job, done, links, network) for job in jobs]


def _end(job: FabricJob, worker: int, done: dict[int, Completion]) -> float:
    """Returns the time at which the worker had all of its sums, s."""
    return max(done[stripe[worker]].time for stripe in job.stripes if stripe[worker] in done) / PS


def _must_fit(config: AllReduce, jobs: int) -> None:
    """Checks that the tensors fit into memory, before the kernel ends this process, or another. Raises ConfigError."""
    tensors = jobs * (config.workers if config.tensors == "own" else 2)
    needed, available = tensors * 4 * config.elements, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > available:
        raise ConfigError(f"elements = {config.elements}: {tensors} tensors are {needed / 2**30:,.0f} GiB; this machine has "
                          f"{available / 2**30:,.0f} GiB (tensors = 'common' is one for all workers)")  # fmt: skip


def _tensors(rng: np.random.Generator, config: AllReduce) -> list[np.ndarray]:
    """Returns a tensor for each worker, or the one that all have in common."""
    different = config.workers if config.tensors == "own" else 1
    if config.dtype == "int32":
        return [rng.integers(-(2**31), 2**31, config.elements, np.int32) for _ in range(different)]
    return [rng.standard_normal(config.elements, np.float32) for _ in range(different)]


def _submit(fabric: Fabric, job: FabricJob, arrays: list[np.ndarray], reduction: int) -> None:
    """Submits the tensors. A common one is sent until the last worker has sent it, so its sum goes to another array, which then
    replaces it in `arrays`."""
    if len(arrays) == len(job.hosts):
        fabric.submit_all(job, arrays, reduction=reduction)
        return
    out = np.zeros_like(arrays[0])
    for worker in range(len(job.hosts)):
        fabric.submit_one(job, worker, arrays[0], out, reduction=reduction)
    arrays[0] = out


def _check(
    config: AllReduce, job: FabricJob, arrays: list[np.ndarray], right: np.ndarray, allowed: float
) -> None:
    if config.algorithm != "in-network" and config.dtype == "float32":  # n - 1 additions, each rounded
        allowed += config.workers**2 / len(arrays) * 2.0**-23 * float(np.sum(np.abs(arrays), axis=0).max())
    for worker, array in enumerate(arrays):
        deviation = float(np.abs(array - right.astype(np.float64)).max())
        if deviation > allowed:
            raise WrongSum(f"{job.name}: worker {worker}'s result is off by {deviation:g}, expected at most {allowed:g}")
        if not np.array_equal(array, arrays[0]):
            raise WrongSum(f"{job.name}: workers 0 and {worker} have different results")


def _reduction(
    fabric: Fabric, config: AllReduce, job: FabricJob, done: dict[int, Completion], links: virtual_network.LinkFigures,
    network: dict[str, dict],
) -> Reduction:
    """Returns a job's result. ``links``, ``network``: figures of the whole network, which its jobs have in common."""
    seconds = max(done[machine].time for machine in job.machines if machine in done) / PS
    size = 4 * config.elements
    star = config.topology.split()[0] == "star" and config.algorithm == "in-network"
    return Reduction(
        job=job.name,
        workers=config.workers,
        bytes=size,
        seconds=seconds,
        ring_model_seconds=ring_model(config, size) if config.rate and star else None,
        stats=virtual_network.counters(fabric, config, [job], job.hosts, network),
        checked=config.payload,
        **links,
    )


def ring_model(config: AllReduce, size: int) -> float:
    """Returns seconds of 2(n-1) steps of size/n bytes, each over two wires and the switch (Patarasuk and Yuan, 2009, §3)."""
    steps = 2 * (config.workers - 1)
    return steps * (8 * size / config.workers / config.rate + 2 * config.delay + config.latency)
