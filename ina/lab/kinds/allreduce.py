"""All-reduces: one tensor of each job, all at once; in virtual time, or in wall-clock time by processes.

In virtual time these are the compiled switch program and the real worker on an event clock, or baselines between hosts, and no
clock is read: the same configuration gives the same packets at the same picoseconds, and so the same figures. Processes are on
this machine over shared memory, or in the hosts of a real network.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from rich.console import Console

from ina.aggregation import port_kinds, protocols
from ina.aggregation.controller.client import start_server
from ina.aggregation.entries import program_named
from ina.aggregation.port_kinds import udp
from ina.base.settings import ConfigError, key
from ina.lab import limits
from ina.lab.cost_model import ETHERNET
from ina.lab.kind import Check, Finding, Outcome, Row
from ina.lab.oracle import choose_reduction, expected
from ina.lab.processes import crew, testbed
from ina.lab.processes.hosts import BMV2_WINDOW, SWITCH, SWITCHES
from ina.lab.processes.reducer import Specification
from ina.lab.results import why
from ina.lab.training.launch import Place, here
from ina.lab.virtual import bottleneck, virtual_network
from ina.lab.virtual.simulated import EMBEDDED, SUMS, sums
from ina.lab.virtual.timeline import Timeline
from ina.lab.virtual.virtual_network import Networked, WrongSum
from ina.net.ports import PS
from ina.worlds.testbed.mininet import Network
from ina.worlds.virtual.fabric import Fabric, FabricJob
from ina.worlds.virtual.network import Completion


@dataclass
class Reduction:
    """Results of one job; ``seconds`` from its submission to its last worker's result."""

    job: str
    workers: int
    bytes: int  # of one worker's tensor
    seconds: float
    busiest_link: str  # the direction of a link that was busy longest, with all jobs' packets; empty: links are memory
    busiest_bytes: int  # on it, headers and Ethernet's own included
    link_use: float | None  # of that link, until the last job was done
    ring_model_seconds: float | None  # a ring all-reduce on these wires at best: no headers, no losses
    stats: dict[str, dict] = field(default_factory=dict)  # workers: sums over them; network: also other jobs' packets
    checked: bool = True  # the sums; they are not where packets carry no values

    def summary(self) -> dict[str, object]:
        """Returns figures of the table; counters are sums over the job's workers."""
        worker = self.stats["workers"]
        return {
            "job": self.job,
            "sums": sums(self.checked),
            "time_ms": 1e3 * self.seconds,
            "goodput_gbps": 8e-9 * self.bytes / self.seconds,
            "link_mb": 1e-6 * self.busiest_bytes if self.busiest_link else None,
            "link_use": self.link_use,
            "ring_model_ms": None if self.ring_model_seconds is None else 1e3 * self.ring_model_seconds,
            "packets": worker["tx_packets"],
            "retransmissions": worker["retransmissions"],
        }


@dataclass(frozen=True)
class AllReduce(Networked):
    """All-reduces: one tensor of each job, all at once."""

    kind: str = key("allreduce", "what is done: allreduce", choices=("allreduce",))
    name: str = key("allreduce", "the results folder's name begins with it")
    world: str = key("virtual", "where: virtual (the event clock; every run of one seed is equal to the bit), or in processes: "
                     "local (one machine, shared memory), testbed (hosts of a Mininet network)",
                     choices=("virtual", "local", "testbed"))  # fmt: skip
    elements: int = key(1_000_000, "of each job's tensor", limits.ELEMENTS)
    tensors: str = key("own", "own: each worker has its own; common: all workers of a job share one, and one place for the "
                       "result: for virtual time with more workers than memory has room for",
                       choices=("own", "common"))  # fmt: skip
    switch: str = key("embedded", SWITCH, choices=SWITCHES)

    rows = (
        Row("time_ms", "all-reduce, ms", "ms", "{:.4f}"),
        Row("goodput_gbps", "goodput, Gb/s", "Gb/s", "{:.2f}"),
        Row("link_mb", "on the busiest link, MB", "link MB", "{:.3f}"),
        Row("link_use", "use of the busiest link", "use", "{:.1%}"),
        Row("ring_model_ms", "ring at best (model), ms", "ring ms", "{:.4f}"),
        Row("packets", "packets sent (all workers)", "packets", "{:,}"),
        Row("retransmissions", "retransmissions (all workers)", "again", "{:,}"),
        SUMS,
    )

    def derived(self) -> dict[str, object]:
        small = self.switch == "bmv2" and self.slots == 0
        return {**super().derived(), "slots": BMV2_WINDOW if small else self.slots}

    def checks(self) -> Iterator[Check]:
        yield self.tensors == "own" or self.world == "virtual", "tensors", "own outside virtual time"
        elsewhere = f"{' or '.join(map(repr, EMBEDDED))} outside world = 'testbed'"
        yield self.switch in EMBEDDED or self.world == "testbed", "switch", elsewhere
        yield from super().checks()
        yield self.tensors == "own" or self.algorithm == "in-network", "tensors", f"own with {self.algorithm}"
        if self.world != "virtual":
            where = f"in world = {self.world!r}"
            yield self.algorithm == "in-network", "algorithm", f"in-network {where}"
            yield self.stripes == 1, "stripes", f"1 {where}"
            yield self.payload, "payload", f"true {where}"
            yield self.nic == 0, "nic", f"0 {where}"
            yield self.buffer == 0 or self.world == "testbed", "buffer", f"0 {where}"
            yield self.sample == 0, "sample", f"0 {where}"
            yield self.latency == 0, "latency", f"0 {where}"
            yield self.ecn == 0, "ecn", f"0 {where}"
            yield self.world == "testbed" or self.topology == "star", "topology", f"star {where}"
            yield not program_named(self.protocol).needs_server, "protocol", f"one without a parameter server {where}"

    @property
    def reduction(self) -> int:
        """The reduction to request: one that the protocol declares; baselines between hosts compute sums."""
        return choose_reduction(self.protocol, self.dtype, self.payload) if self.algorithm == "in-network" else protocols.SUM

    def check_reductions(self) -> None:
        if self.algorithm == "in-network":
            choose_reduction(self.protocol, self.dtype, self.payload)

    @property
    def work(self) -> str:
        return f"{self.elements:,} elements of {self.dtype}"

    def run(self, folder: Path, console: Console) -> Iterator[Outcome]:
        return super().run(folder, console) if self.world == "virtual" else iter([Outcome(in_processes(self))])

    def measure(self, timeline: Timeline | None = None) -> list[Reduction]:
        return reduce(self, timeline)

    def why(self, run: dict, summary: dict) -> Finding:
        if self.world != "virtual":
            return why.measured(self.world, summary)
        return bottleneck.network(self, run, 1.0, summary["time_ms"])


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
    config = config.resolved()
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
        while not timeline.run(fabric):
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


# ---- by processes


def in_processes(config: AllReduce) -> list[Reduction]:
    """Runs all jobs at once, each with one tensor; every worker checks its sum.

    Raises JobFailed: a worker failed, or is silent; ConfigError: there is no such network here.
    """
    config = config.resolved()
    defines = {"VALUES": str(config.values), "SLOTS": str(max(virtual_network.LEAST_SLOTS, config.pool))}
    faults = {"duplicate": config.duplicate, "reorder": config.reorder, "corrupt": config.corrupt,
              "duplicate_delay": 10e-3, "reorder_delay": 2e-3, "seed": config.seed}  # fmt: skip
    base = Specification("", port_kinds.DEFAULT, 0, 0, config.workers, config.window, config.elements, config.dtype, config.seed,
                         config.rto_min, config.rto_max, config.timeout)  # fmt: skip
    if config.world == "local":
        faults["loss"] = config.loss  # a worker's port is its wire, both ways
        process = start_server(config.program_path, defines)
        try:
            return _work(config, replace(base, switch=process.name), faults, here(), None)
        finally:
            process.close()
    place = virtual_network.place(config)
    hosts = [host for job in place.hosts(config) for host in job]
    links = tuple(replace(link, loss=config.loss or link.loss) for link in place.topology.links)
    mtu = max(place.topology.mtu, protocols.frame_bytes(config.protocol, config.values) - ETHERNET)
    topology = replace(place.topology, links=links, mtu=mtu)
    with testbed.opened(Network(topology, config.program_path, defines, seed=config.seed, kind=config.switch)) as network:
        ranks = testbed.place(network, hosts)
        return _work(config, replace(base, switch=network.socket, port=udp.KIND.name), faults, ranks, network)


def _work(config: AllReduce, base: Specification, faults: dict, place: Place, network: Network | None) -> list[Reduction]:
    specifications = []
    for index in range(config.jobs * config.workers):
        job, worker = divmod(index, config.workers)
        seeded = {**faults, "seed": faults["seed"] * 1024 + index} if any(
            faults.get(key) for key in ("loss", "duplicate", "reorder", "corrupt")) else None  # fmt: skip
        specifications.append(replace(base, job=job, worker=worker, faults=seeded))
    measured = crew.work(specifications, place, network, config.timeout + 30)
    busiest, load, use = measured.busiest()
    wires = config.world == "testbed" and config.topology == "star" and config.rate
    reductions = []
    for job in range(config.jobs):
        own = measured.answers[job * config.workers : (job + 1) * config.workers]
        reductions.append(Reduction(
            job=f"job {job}", workers=config.workers, bytes=4 * config.elements,
            seconds=max(answer["ended"] for answer in own) - min(answer["began"] for answer in own),
            busiest_link=busiest, busiest_bytes=load, link_use=use,
            ring_model_seconds=ring_model(config, 4 * config.elements) if wires else None,
            stats={"workers": {key: sum(answer["stats"][key] for answer in own) for key in own[0]["stats"]},
                   "network": measured.links, "drops": measured.counters},
        ))  # fmt: skip
    return reductions


KIND = AllReduce
