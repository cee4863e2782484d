"""Jobs that share one switch in virtual time: the share of each, and the use of aggregators and parameter servers.

All jobs are alike; each has a parameter server at a host of its own if its protocol has one. No clock is read.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ina.aggregation.entries import JobProgram, program_named
from ina.base import paths
from ina.lab.experiment_keys import Sharing
from ina.lab.kinds import virtual_network
from ina.lab.kinds.allreduce import EVENTS_AT_ONCE, WrongSum
from ina.lab.kinds.oracle import expected
from ina.lab.kinds.timeline import Timeline
from ina.lab.results.record import sums
from ina.net.ports import PS
from ina.p4.compiler.build import compile_program
from ina.worlds.virtual.network import Completion, Wire
from ina.worlds.virtual.shared_switch import Shared, SharedJob


@dataclass
class Shares:
    """Results of all jobs of one run. ``seconds``: of every tensor of every job, from its start, or the end of the one before
    it if that is later, to its last result."""

    protocol: str
    workers: int
    bytes: int  # of one worker's tensor
    seconds: list[list[float]]
    straggler: bool  # job 0 has a slow worker
    aggregated: float | None  # share of the workers' packets that the switch added up
    server_load: float | None  # packets that reach a job's parameter server, per packet of one of its workers
    busiest_link: str  # as of Reduction
    busiest_bytes: int
    link_use: float | None
    dropped: int  # packets that a full queue refused
    longest_queue: int  # bytes, of the switch's
    stats: dict[str, dict] = field(default_factory=dict)
    checked: bool = True  # as of Reduction

    @property
    def goodputs(self) -> list[float]:
        """Gb/s by job, of its last tensor: windows, and aggregators that do not collide, have settled by then."""
        return [8e-9 * self.bytes / times[-1] for times in self.seconds]

    def summary(self) -> dict[str, object]:
        """Figures of the table, over the jobs; with a straggler, over those that have none."""
        rates = self.goodputs[1:] if self.straggler and len(self.seconds) > 1 else self.goodputs
        return {
            "job": f"{len(self.seconds)} jobs",
            "sums": sums(self.checked),
            "goodput_gbps": statistics.mean(rates),
            "least_gbps": min(rates),
            "fairness": sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates)) if len(rates) > 1 else None,
            "straggler_gbps": self.goodputs[0] if self.straggler else None,
            "aggregated": self.aggregated,
            "server_load": self.server_load,
            "link_use": self.link_use,
            "dropped": self.dropped,
            "queue_kb": 1e-3 * self.longest_queue,
            "retransmissions": self.stats["workers"]["retransmissions"],
        }


def share(config: Sharing, timeline: Timeline | None = None) -> list[Shares]:
    """Runs all jobs at once, and checks every sum. ``timeline`` records the events.

    Raises:
        JobError: a tensor failed, at a deadline or otherwise.
        WrongSum: a sum differs from NumPy's.
    """
    protocol, timeline = _protocol(config), timeline or Timeline()
    program = compile_program(config.program_path, defines={"VALUES": str(config.values), "SLOTS": str(config.pool)},
                              include_dirs=[paths.p4_dir()])
    wire = Wire(config.rate, config.delay, config.queue)
    hosts = config.jobs * (config.workers + protocol.needs_server)
    slow = {0: config.straggler} if config.straggler > 1 else None
    with Shared(program.so_path, protocol, hosts=hosts, wire=wire, buffer=config.buffer, pool=config.pool, seed=config.seed,
                slow=slow, payload=config.payload) as network:  # fmt: skip
        jobs = [_admit(network, config, number) for number in range(config.jobs)]
        rng = np.random.default_rng(config.seed)
        arrays = [[_tensor(rng, config) for _ in range(config.workers)] for _ in jobs]
        reduction = config.reduction
        rights = [expected(each, config.workers, config.protocol, reduction)[0] if config.payload else None for each in arrays]
        started: dict[int, tuple[int, int, int]] = {}  # by ticket: job, tensor, time
        results: dict[int, np.ndarray] = {}
        for number, job in enumerate(jobs):
            for turn in range(config.tensors):
                at = round((turn + number / config.jobs) * config.period * PS)
                for machine, array in zip(job.machines, arrays[number], strict=True):
                    out = np.empty_like(array)
                    ticket = network.submit(machine, array, out, at=at, reduction=reduction)
                    started[ticket], results[ticket] = (number, turn, at), out
        while not timeline.run(network, EVENTS_AT_ONCE):
            pass
        done = network.completions()
        for completion in done:
            _check(completion, results.pop(completion.ticket), rights[started[completion.ticket][0]], started)
        network.check()
        timeline.jobs += _spans(config, jobs, done, started)
        figures = virtual_network.link_figures(network, max(completion.time for completion in done) / PS)
        return [_shares(network, config, jobs, _seconds(config, done, started), figures)]


def _protocol(config: Sharing) -> JobProgram:
    protocol = program_named(config.protocol)
    if protocol.needs_server:  # longer than any packet or retransmission of a live job takes: it keeps its aggregators
        make: Callable[..., JobProgram] = type(protocol)
        return make(ecn_depth=config.ecn_depth, lifetime=10 * config.rto_max)
    return protocol


def _admit(network: Shared, config: Sharing, number: int) -> SharedJob:
    return network.admit(
        f"job {number}", config.workers, config.slots, config.values,
        rto_min=config.rto_min, rto_max=config.rto_max, timeout=config.timeout,
    )  # fmt: skip


def _tensor(rng: np.random.Generator, config: Sharing) -> np.ndarray:
    return rng.integers(-(2**31), 2**31, config.elements, np.int32)


def _check(completion: Completion, result: np.ndarray, right: np.ndarray | None, started: dict) -> None:
    if (error := completion.event.error()) is not None:
        raise error
    if right is not None and not np.array_equal(result, right):
        number, turn, _ = started[completion.ticket]
        raise WrongSum(f"job {number}, tensor {turn}: machine {completion.machine} has a wrong sum")


def _spans(config: Sharing, jobs: Sequence[SharedJob], done: Sequence[Completion], started: dict) -> list[tuple[str, list]]:
    spans: list[tuple[str, list]] = [(job.job.name, [[] for _ in job.machines]) for job in jobs]
    for completion in done:
        number, turn, at = started[completion.ticket]
        worker = jobs[number].machines.index(completion.machine)
        spans[number][1][worker].append((f"all-reduce of tensor {turn}", at / PS, completion.time / PS))
    return spans


def _seconds(config: Sharing, done: Sequence[Completion], started: dict[int, tuple[int, int, int]]) -> list[list[float]]:
    ends, starts = ([[0] * config.tensors for _ in range(config.jobs)] for _ in range(2))
    for completion in done:
        number, turn, at = started[completion.ticket]
        ends[number][turn] = max(ends[number][turn], completion.time)
        starts[number][turn] = at
    return [
        [(end - max(start, before)) / PS for start, before, end in zip(begins, [0, *finishes], finishes, strict=False)]
        for begins, finishes in zip(starts, ends, strict=True)
    ]


def _shares(
    network: Shared, config: Sharing, jobs: Sequence[SharedJob], seconds: list[list[float]],
    figures: virtual_network.LinkFigures,
) -> Shares:
    machines = [network.worker_stats(machine) for job in jobs for machine in job.machines]
    workers = {key: sum(s[key] for s in machines) for key in machines[0] if not key.endswith("_ps")}
    stats, aggregated, load = {"workers": workers, "network": network.stats()}, None, None
    if jobs[0].server:
        servers = [network.server_stats(job) for job in jobs]
        stats["servers"] = {key: sum(s[key] for s in servers) for key in servers[0] if not key.endswith("_ps")}
        load = stats["servers"]["rx_packets"] * config.workers / workers["tx_packets"]
        aggregated = 1 - stats["servers"]["merged_raw"] / workers["tx_packets"]
    links = network.links()
    dropped = sum(link.dropped for link in links)
    longest = max(link.max_queue for link in links if link.source in network.switch_at)
    return Shares(config.protocol, config.workers, 4 * config.elements, seconds, config.straggler > 1, aggregated, load,
                  dropped=dropped, longest_queue=longest, stats=stats, checked=config.payload, **figures)  # fmt: skip
