"""All-reduces as BytePS places them, in virtual time: gradients are split among servers at GPU machines and CPU machines.

Jiang et al., A unified architecture for accelerating distributed DNN training in heterogeneous GPU/CPU clusters, OSDI 2020. Each
machine is a host of a star with one NIC. A GPU machine has gradients, sends each server its part of them, adds up a part of its
own for all, and gets the sums; a CPU machine only adds up. Beside the time stand those of the same tensors through the switch
program and round a ring, between the same GPU machines on the same links.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.entries import BITMAP, program_named
from ina.aggregation.lane import INT32
from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check, Finding, Measured, Row
from ina.lab.oracle import choose_reduction, expected
from ina.lab.virtual import bottleneck, virtual_network
from ina.lab.virtual.timeline import Timeline
from ina.lab.virtual.virtual_network import Networked, WrongSum
from ina.net.ports import PS
from ina.worlds.virtual import collectives
from ina.worlds.virtual.fabric import Fabric, FabricJob

BEST = -1.0  # cpu_share: that of the paper


@dataclass
class Placement:
    """Result of a run. ``model_seconds``: of the busiest link's payload; ``switch_seconds``, ``ring_seconds``: of the same
    tensors; ``gpu_bytes``, ``cpu_bytes``: on the busiest link of such a machine, with all headers."""

    job: str
    bytes: int  # of a GPU machine's tensor
    cpu_share: float
    seconds: float
    model_seconds: float
    switch_seconds: float
    ring_seconds: float
    gpu_bytes: int
    cpu_bytes: int
    busiest_link: str
    busiest_bytes: int
    link_use: float | None
    stats: dict[str, dict] = field(default_factory=dict)

    def summary(self) -> dict[str, object]:
        """Figures of the table."""
        return {
            "job": self.job, "time_ms": 1e3 * self.seconds, "model_ms": 1e3 * self.model_seconds,
            "ratio": self.seconds / self.model_seconds, "switch_ms": 1e3 * self.switch_seconds,
            "ring_ms": 1e3 * self.ring_seconds, "gpu_mb": 1e-6 * self.gpu_bytes, "cpu_mb": 1e-6 * self.cpu_bytes,
            "link_use": self.link_use, "retransmissions": self.stats["workers"]["retransmissions"],
        }


@dataclass(frozen=True)
class BytePs(Networked):
    """Gradients that servers at GPU and CPU machines add up, in virtual time."""

    guide = "Kind byteps: parameter servers at GPU machines and CPU machines"
    kind: str = key("byteps", "what is done: byteps", choices=("byteps",))
    name: str = key("byteps", "the results folder's name begins with it")
    algorithm: str = key("parameter-server", "what is measured; the switch and a ring stand beside it",
                         choices=("parameter-server",))
    workers: int = key(8, "GPU machines, each with a tensor", Range(2, BITMAP, "what a switch's bitmap has room for"))
    cpus: int = key(4, "CPU machines, at most as many", Range(0, BITMAP))
    cpu_share: float = key(BEST, "of the tensor, that all CPU machines add up, each as much; the GPU machines add up the rest; "
                           "-1: the share that takes least time", Range(BEST, 1, "a share, or -1", "share"))
    elements: int = key(1_000_000, "int32 of each tensor", limits.ELEMENTS)
    nic: int = key(32768, "bytes that wait at a host's NIC before it is given more; 0: no limit, so that all windows of a "
                   "host wait there at once", limits.BYTES)
    slices: int = key(128, "of what a server adds up, and of a ring's step: what has come is passed on before the rest",
                      Range(1, 256))

    rows = (
        Row("time_ms", "BytePS, ms", "ms", "{:.4f}"),
        Row("model_ms", "the busiest link's payload (model), ms", "model ms", "{:.4f}"),
        Row("ratio", "time as a multiple of the model", "of model", "{:.3f}"),
        Row("switch_ms", "the same through the switch, ms", "switch ms", "{:.4f}"),
        Row("ring_ms", "the same round a ring, ms", "ring ms", "{:.4f}"),
        Row("gpu_mb", "on a GPU machine's busiest link, MB", "GPU MB", "{:.3f}"),
        Row("cpu_mb", "on a CPU machine's busiest link, MB", "CPU MB", "{:.3f}"),
        Row("link_use", "use of the busiest link", "use", "{:.1%}"),
        Row("retransmissions", "retransmissions (all machines)", "again", "{:,}"),
    )

    def derived(self) -> dict[str, object]:
        share = min(1.0, best_share(self.workers, self.cpus)) if self.cpu_share == BEST else self.cpu_share
        return {**super().derived(), "cpu_share": share}

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield self.cpus <= self.workers, "cpus", f"at most {self.workers}, the GPU machines: from there on their own links decide"
        yield 0 <= self.cpu_share <= 1, "cpu_share", "0 to 1, or -1"
        yield self.cpu_share == 0 or self.cpus > 0, "cpu_share", "0 without CPU machines"
        yield self.rate > 0, "rate", "more than 0"
        yield self.topology == "star", "topology", "star"
        yield not program_named(self.protocol).needs_server, "protocol", "one without a parameter server of its own"
        yield self.window <= self.pool, "slots", f"at most {self.pool}, the pool"
        yield self.stripes == 1, "stripes", "1"
        yield self.jobs == 1, "jobs", "1"
        yield self.dtype == "int32", "dtype", "int32"
        yield self.payload, "payload", "true"

    def check_reductions(self) -> None:
        choose_reduction(self.protocol, self.dtype)

    @property
    def work(self) -> str:
        return f"{self.elements:,} int32 each, of which {counted(self.cpus, 'CPU machine')} added up {self.cpu_share:.1%}"

    def measure(self, timeline: Timeline | None = None) -> list[Placement]:
        return [run_placement(self.resolved(), timeline or Timeline())]

    def title(self, results: Sequence[Measured]) -> str:
        share = self.resolved().cpu_share
        return f"{counted(self.workers, 'GPU machine')}, {counted(self.cpus, 'CPU machine')} with {share:.1%} of the sum"

    def why(self, run: dict, summary: dict) -> Finding:
        return bottleneck.network(self, run, 1.0, summary["time_ms"])


def best_share(gpus: int, cpus: int) -> float:
    """Returns the share of the tensor that all CPU machines add up for the least time: k M_SSCPU of Theorem 1 (OSDI 2020)."""
    return 2 * cpus * (gpus - 1) / (gpus**2 + cpus * gpus - 2 * cpus)


def model_seconds(config: BytePs) -> float:
    """Returns how long the payload of the busiest link lasts. A GPU machine sends and gets all but its own part, and its sum once
    for each other; a CPU machine gets its part from each, and sends its sum to each."""
    n, share = config.workers, config.cpu_share
    gpu = 1 + (n - 2) * (1 - share) / n
    cpu = n * share / config.cpus if config.cpus else 0.0
    return 8 * INT32.bytes(config.elements) / config.rate * max(gpu, cpu)


def loads(config: BytePs) -> list[int]:
    """Returns the packets of a tensor that each machine adds up: GPU machines first, each kind with equal loads to one packet."""
    packets = -(-config.elements // config.values)
    cpu = round(config.cpu_share * packets)
    return [*_even(packets - cpu, config.workers), *_even(cpu, config.cpus)]


def _even(packets: int, machines: int) -> list[int]:
    return [packets * (i + 1) // machines - packets * i // machines for i in range(machines)]


def _tensors(config: BytePs) -> list[np.ndarray]:
    rng = np.random.default_rng(config.seed)
    return [rng.integers(-(2**31), 2**31, config.elements, np.int32) for _ in range(config.workers)]


def _reduce(config: BytePs, network: Fabric, job: FabricJob, timeline: Timeline, reduction: int) -> list[float]:
    """All-reduces the tensors, and checks every sum. Returns the seconds at which each GPU machine had its own."""
    arrays = _tensors(config)
    right, _ = expected(arrays, config.workers, config.protocol, reduction)
    others = [np.zeros(config.elements, np.int32) for _ in job.hosts[config.workers:]]
    network.submit_all(job, [*arrays, *others], reduction=reduction)
    while not timeline.run(network):
        pass
    done = {completion.machine: completion for completion in network.completions()}
    for machine in job.machines:
        done[machine].raise_failed()
    for number, array in enumerate(arrays):
        if not np.array_equal(array, right):
            raise WrongSum(f"{job.name}: GPU machine {number} has a wrong sum")
    network.check()
    return [done[machine].time / PS for machine in job.machines[: config.workers]]


def run_placement(config: BytePs, timeline: Timeline) -> Placement:
    """Runs the placement, and the same tensors through the switch and round a ring. ``timeline`` records the events of the first.

    Raises:
        JobError: a tensor failed, at a deadline or otherwise.
        WrongSum: a machine's result is not the sum.
    """
    machines = config.workers + config.cpus
    limits.must_fit(f"elements = {config.elements}: {machines} tensors", machines * INT32.bytes(config.elements))
    place = virtual_network.place(config, more=config.cpus)
    gpus = place.hosts(config)[0]
    cpus = [host.name for host in place.topology.hosts if host.name not in gpus]
    switch, ring = _others(config, place, gpus)
    with virtual_network.fabric(config, place) as network:
        job = _between(config, network, [*gpus, *cpus], collectives.byteps(config.workers, loads(config), config.slices))
        ends = _reduce(config, network, job, timeline, protocols.SUM)
        timeline.jobs.append((job.name, [[("all-reduce", 0.0, end)] for end in ends]))
        carried = {name: max(traffic.bytes for traffic in network.links() if name in (traffic.source, traffic.target))
                   for name in (*gpus, *cpus)}
        return Placement(
            job.name, INT32.bytes(config.elements), config.cpu_share, max(ends), model_seconds(config), switch, ring,
            max(carried[name] for name in gpus), max((carried[name] for name in cpus), default=0),
            stats=virtual_network.counters(network, config, [job], job.hosts),
            **virtual_network.link_figures(network, max(ends)))


def _others(config: BytePs, place: virtual_network.Place, gpus: Sequence[str]) -> tuple[float, float]:
    """Returns how long the same takes through the switch, and round a ring."""
    with virtual_network.fabric(config, place) as network:
        job = network.admit(gpus, config.window, config.values, name="switch", **virtual_network.waits(config))
        reduction = choose_reduction(config.protocol, config.dtype)
        switch = max(_reduce(config, network, job, Timeline(), reduction))
    with virtual_network.fabric(config, place) as network:
        job = _between(config, network, gpus, collectives.ring([range(config.workers)], config.slices))
        return switch, max(_reduce(config, network, job, Timeline(), protocols.SUM))


def _between(config: BytePs, network: Fabric, hosts: Sequence[str], schedule: collectives.Schedule) -> FabricJob:
    return network.collective(hosts, schedule, config.values, window=config.flow, rto=config.rto_min, timeout=config.timeout,
                              congestion=virtual_network.CONGESTION[config.transport])


KIND = BytePs
