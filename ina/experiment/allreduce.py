"""All-reduces in virtual time: the compiled switch program and the real worker on an event clock.

No clock is read: the same configuration gives the same packets at the same picoseconds, and so the same figures.
"""

from __future__ import annotations

import numpy as np

from ina import paths
from ina.compiler.build import compile_program
from ina.emulator.fabric import FabricJob, Star
from ina.emulator.network import Completion, Wire
from ina.experiment.config import AllReduce
from ina.experiment.record import Reduction
from ina.transport.config import ETHERNET_OVERHEAD, PS
from ina.transport.ports import Faults

LEAST_SLOTS = 512  # a program with more slots than the controller gives away is the same program, and compiled already
EVENTS_AT_ONCE = 100_000  # between two looks at Ctrl-C


class WrongSum(RuntimeError):
    """A worker got something else than the sum. Never, or the switch or the worker is broken."""


def reduce(config: AllReduce) -> list[Reduction]:
    """Runs all jobs at once, each with one tensor, and checks every worker's sum.

    Raises:
        JobError: a tensor failed, at a deadline or otherwise.
        WrongSum: a sum is not what NumPy says.
    """
    defines = {"VALUES": str(config.values), "SLOTS": str(max(LEAST_SLOTS, config.pool))}
    program = compile_program(config.program_path, defines=defines, include_dirs=[paths.p4_dir()])
    with _star(config, program.so_path) as star:
        jobs = [_admit(star, config, f"job {number}") for number in range(config.jobs)]
        rng = np.random.default_rng(config.seed)
        tensors = [_tensors(rng, config) for _ in jobs]
        expected = [_expected(arrays) for arrays in tensors]
        for job, arrays in zip(jobs, tensors, strict=True):
            for host, array in zip(job.machines, arrays, strict=True):
                star.submit(host, array, at=0)
        while not star.run(max_events=EVENTS_AT_ONCE):
            pass
        done = {completion.machine: completion for completion in star.completions()}
        for job, arrays, right in zip(jobs, tensors, expected, strict=True):
            _check(job, arrays, *right, done)
        return [_reduction(star, config, job, done) for job in jobs]


def _star(config: AllReduce, program) -> Star:
    round_trip = 2 * config.delay + config.latency
    faults = Faults(
        config.loss, config.duplicate, config.reorder, config.corrupt, 10 * round_trip, 2 * round_trip, config.seed
    )
    wire = Wire(config.rate, config.delay, config.queue, faults=faults)
    return Star(
        program, hosts=config.workers * config.jobs, up=wire, down=wire, pool=config.pool, latency=config.latency,
        seed=config.seed,
    )  # fmt: skip


def _admit(star: Star, config: AllReduce, name: str) -> FabricJob:
    return star.admit(
        config.workers, config.window, config.values, name=name,
        rto_min=config.rto_min, rto_max=config.rto_max, timeout=config.timeout,
    )  # fmt: skip


def _tensors(rng: np.random.Generator, config: AllReduce) -> list[np.ndarray]:
    if config.dtype == "int32":
        return [rng.integers(-(2**31), 2**31, config.elements, np.int32) for _ in range(config.workers)]
    return [rng.standard_normal(config.elements, np.float32) for _ in range(config.workers)]


def _expected(arrays: list[np.ndarray]) -> tuple[np.ndarray, float]:
    """The exact sum (int32 wraps) and how far off a result may be: docs/protocol.md, "off by at most"."""
    if arrays[0].dtype == np.int32:
        return np.sum(arrays, axis=0, dtype=np.int32), 0.0
    right, largest = np.sum(arrays, axis=0, dtype=np.float64), max(np.abs(array).max() for array in arrays)
    block_exponent, shift = np.ceil(np.log2(largest)) + 1, np.ceil(np.log2(len(arrays)))
    return right, len(arrays) * 2.0 ** (block_exponent - 31 + shift) + 2.0**-24 * np.abs(right).max()


def _check(
    job: FabricJob, arrays: list[np.ndarray], right: np.ndarray, allowed: float, done: dict[int, Completion]
) -> None:
    for host in job.machines:
        error = done[host].event.error()
        if error is not None:
            raise error
    for worker, array in enumerate(arrays):
        off = float(np.abs(array - right.astype(np.float64)).max())
        if off > allowed:
            raise WrongSum(f"{job.name}: worker {worker}'s result is off by {off:g}, expected at most {allowed:g}")
        if not np.array_equal(array, arrays[0]):
            raise WrongSum(f"{job.name}: workers 0 and {worker} have different results")


def _reduction(star: Star, config: AllReduce, job: FabricJob, done: dict[int, Completion]) -> Reduction:
    seconds = max(done[host].time for host in job.machines) / PS
    stats = [star.worker_stats(host) for host in job.machines]
    sent_bits = 8 * max(s["tx_bytes"] + ETHERNET_OVERHEAD * s["tx_packets"] for s in stats)
    size = 4 * config.elements
    total = {key: sum(s[key] for s in stats) for key in stats[0] if not key.endswith("_ps")}
    return Reduction(
        job=job.name,
        workers=config.workers,
        bytes=size,
        seconds=seconds,
        link_use=sent_bits / (config.rate * seconds) if config.rate else None,
        ring_model_seconds=_ring(config, size) if config.rate else None,
        stats={"workers": total, "network": star.stats()},
    )


def _ring(config: AllReduce, size: int) -> float:
    """2(n-1) steps of size/n bytes, each over two wires and the switch (Patarasuk and Yuan, 2009, §3)."""
    steps = 2 * (config.workers - 1)
    return steps * (8 * size / config.workers / config.rate + 2 * config.delay + config.latency)
