"""All-reduces: one tensor of each job, all at once; in virtual time, or in wall-clock time by processes.

In virtual time these are the compiled switch program and the real worker on an event clock, or baselines between hosts, and no
clock is read: the same configuration gives the same packets at the same picoseconds, and so the same figures. Processes are on
this machine over shared memory, or in the hosts of a real network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from rich.console import Console

from ina import codecs
from ina.aggregation import port_kinds, protocols
from ina.aggregation.controller.client import start_server
from ina.aggregation.entries import program_named
from ina.aggregation.lane import INT32
from ina.aggregation.port_kinds import udp
from ina.base.settings import key
from ina.codecs.omnireduce import BLOCK
from ina.lab import limits
from ina.lab.kind import Check, Finding, Outcome, Row
from ina.lab.oracle import choose_reduction, expected
from ina.lab.processes import crew, testbed
from ina.lab.processes.hosts import BMV2_WINDOW, SWITCH, SWITCHES
from ina.lab.processes.real_network import defines, real_network
from ina.lab.processes.reducer import Specification
from ina.lab.results import why
from ina.lab.training.launch import Place, here
from ina.lab.virtual import bottleneck, failed_links, virtual_network
from ina.lab.virtual.coded_jobs import CodedJobs
from ina.lab.virtual.failed_links import FailingLinks
from ina.lab.virtual.simulated import EMBEDDED, SUMS, sums
from ina.lab.virtual.timeline import Timeline
from ina.lab.virtual.virtual_network import WrongSum
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
            "spurious": worker.get("spurious", 0),
            "delays": worker.get("delays", 0),
        }


@dataclass(frozen=True)
class AllReduce(FailingLinks):
    """All-reduces: one tensor of each job, all at once."""

    guide = "Kind allreduce: one tensor each"
    kind: str = key("allreduce", "what is done: allreduce", choices=("allreduce",))
    name: str = key("allreduce", "the results folder's name begins with it")
    world: str = key("virtual", "where: virtual (the event clock; every run of one seed is equal to the bit), or in processes: "
                     "local (one machine, shared memory), testbed (hosts of a Mininet network)",
                     choices=("virtual", "local", "testbed"))
    elements: int = key(1_000_000, "of each job's tensor", limits.ELEMENTS)
    tensors: str = key("own", "own: each worker has its own; common: all workers of a job share one, and one place for the "
                       "result: for virtual time with more workers than memory has room for",
                       choices=("own", "common"))
    switch: str = key("embedded", SWITCH, choices=SWITCHES)
    codec: str = key(codecs.DEFAULT, "how float32 travels in virtual time: block (the protocol's own), or another one of "
                     "ina.codecs, such as omnireduce; its computing takes no time")
    sparsity: float = key(0.0, f"share of the blocks of {BLOCK} values that are zero, others on each worker", limits.PROBABILITY)

    rows = (
        Row("time_ms", "all-reduce, ms", "ms", "{:.4f}"),
        Row("goodput_gbps", "goodput, Gb/s", "Gb/s", "{:.2f}"),
        Row("link_mb", "on the busiest link, MB", "link MB", "{:.3f}"),
        Row("link_use", "use of the busiest link", "use", "{:.1%}"),
        Row("ring_model_ms", "ring at best (model), ms", "ring ms", "{:.4f}"),
        Row("packets", "packets sent (all workers)", "packets", "{:,}"),
        Row("retransmissions", "retransmissions (all workers)", "again", "{:,}"),
        Row("spurious", "sent again although the earlier result came, too", "needless", "{:,}"),
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
        yield not self.link_events or self.tensors == "own", "tensors", "own with link_events"
        yield self.sparsity == 0 or self.world == "virtual", "sparsity", "0 outside virtual time"
        yield self.sparsity < 1, "sparsity", "less than 1"
        if self.codec != codecs.DEFAULT:
            yield from self._codec_checks()
        if self.world != "virtual":
            where = f"in world = {self.world!r}"
            yield self.algorithm == "in-network", "algorithm", f"in-network {where}"
            yield self.stripes == 1, "stripes", f"1 {where}"
            yield self.payload, "payload", f"true {where}"
            yield self.nic == 0, "nic", f"0 {where}"
            yield self.buffer == 0 or self.world == "testbed", "buffer", f"0 {where}"
            yield not self.link_events or self.world == "testbed", "link_events", f"none {where}"
            yield self.sample == 0, "sample", f"0 {where}"
            yield self.latency == 0, "latency", f"0 {where}"
            yield self.ecn == 0, "ecn", f"0 {where}"
            yield self.world == "testbed" or self.topology == "star", "topology", f"star {where}"
            yield not program_named(self.protocol).needs_server, "protocol", f"one without a parameter server {where}"

    def _codec_checks(self) -> Iterator[Check]:
        yield self.codec in codecs.names(), "codec", f"one of {', '.join(codecs.names())}"
        yield self.world == "virtual", "codec", f"{codecs.DEFAULT} outside virtual time"
        yield self.algorithm == "in-network", "codec", f"{codecs.DEFAULT} with {self.algorithm}"
        yield self.dtype == "float32", "dtype", f"float32 with codec = {self.codec!r}"
        yield self.tensors == "own", "tensors", f"own with codec = {self.codec!r}"
        yield self.payload, "payload", f"true with codec = {self.codec!r}"
        yield not self.link_events, "link_events", f"none with codec = {self.codec!r}"
        if self.codec in codecs.names():
            codec = codecs.named(self.codec)
            operations = codec.operations
            lacking = sorted(operations - protocols.reductions(self.protocol))
            wanted = f"one with {protocols.REDUCTIONS[lacking[0]]}" if lacking else ""
            yield not lacking, "protocol", f"{wanted} with codec = {self.codec!r}"
            other = codec.why_not(program_named(self.protocol).name)
            yield bool(lacking) or not other, "protocol", f"{codec.protocol or 'another'} with codec = {self.codec!r}: {other}"
            plain = self.check != "keyed" or protocols.MAX not in operations
            yield plain, "check", f"off or sum with codec = {self.codec!r}: maxima have no keyed check words"

    @property
    def reduction(self) -> int:
        """The reduction to request: one that the protocol declares; baselines between hosts compute sums."""
        return choose_reduction(self.protocol, self.dtype, self.payload) if self.algorithm == "in-network" else protocols.SUM

    def check_reductions(self) -> None:
        if self.algorithm == "in-network":
            choose_reduction(self.protocol, self.dtype, self.payload)

    @property
    def work(self) -> str:
        sparse = f", of which {self.sparsity:.1%} of the blocks are zero" if self.sparsity else ""
        return f"{self.elements:,} elements of {self.dtype}{sparse}" + f" by {self.codec}" * (self.codec != codecs.DEFAULT)

    def run(self, folder: Path, console: Console) -> Iterator[Outcome]:
        return super().run(folder, console) if self.world == "virtual" else iter([Outcome(in_processes(self))])

    def measure(self, timeline: Timeline | None = None) -> list[Reduction]:
        return reduce(self, timeline)

    def why(self, run: dict, summary: dict) -> Finding:
        if self.world != "virtual":
            return failed_links.explained(why.measured(self.world, summary), run)
        finding = bottleneck.network(self, run, 1.0, summary["time_ms"])
        return failed_links.explained(finding, run)


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
        above = virtual_network.servers(fabric, config, place)
        jobs = virtual_network.admit(fabric, config, place, above)
        rng = np.random.default_rng(config.seed)
        _must_fit(config, len(jobs))
        tensors = [_tensors(rng, config) for _ in jobs]
        reduction = config.reduction
        coded = CodedJobs(fabric, config.codec) if config.codec != codecs.DEFAULT else None
        results = [expected(arrays, config.workers, config.protocol, reduction) if config.payload and not coded else None
                   for arrays in tensors]
        moving = failed_links.Failing(fabric, config, place, jobs, above) if config.link_events else None
        for number, (job, arrays) in enumerate(zip(jobs, tensors, strict=True)):
            if coded:
                coded.submit(job, arrays)
            elif moving:
                moving.submit(number, arrays, reduction)
            else:
                _submit(fabric, job, arrays, reduction)
        timeline.progress = lambda: _progress(fabric, config, moving.jobs() if moving else jobs)
        while not timeline.run(fabric) or (coded and coded.read()):
            if coded:
                coded.read()
        done = coded.done if coded else moving.done() if moving else {each.machine: each for each in fabric.completions()}
        jobs = moving.jobs() if moving else jobs
        for job, arrays, right in zip(jobs, tensors, results, strict=True):
            for machine in job.machines:
                if machine in done:
                    done[machine].raise_failed()
            if right is not None:
                _check(config, job, arrays, *right)
        if coded:
            for number, (job, arrays) in enumerate(zip(jobs, tensors, strict=True)):
                _check_coded(config, job, arrays, coded.results(number))
        fabric.check()
        timeline.jobs += [(job.name, [[("all-reduce", 0.0, _end(job, worker, done))] for worker in range(len(job.hosts))])
                          for job in jobs]
        whole = max(completion.time for completion in done.values()) / PS
        links, network = virtual_network.link_figures(fabric, whole), virtual_network.whole(fabric)
        if moving:
            network |= {"links": moving.figures()}
        timeline.outages += moving.outages() if moving else []
        return [_reduction(fabric, config, job, done, links, network) for job in jobs]


def _progress(fabric: Fabric, config: AllReduce, jobs: Sequence[FabricJob]) -> dict[str, float]:
    """Returns by job the bits of its tensor that a worker has on average; none of collectives."""
    return {job.name: 8 * INT32.bytes(config.values) / len(job.hosts) * sum(fabric.worker_stats(machine)["results"]
                                                                for machine in (*job.machines, *job.former))
            for job in jobs if job.jobs}


def _end(job: FabricJob, worker: int, done: dict[int, Completion]) -> float:
    """Returns the time at which the worker had all of its sums, s."""
    return max(done[stripe[worker]].time for stripe in job.stripes if stripe[worker] in done) / PS


def _bytes(config: AllReduce) -> int:
    """Returns the bytes of a tensor."""
    return config.elements * np.dtype(config.dtype).itemsize


def _must_fit(config: AllReduce, jobs: int) -> None:
    """Checks that the tensors fit into memory. Raises ConfigError."""
    tensors = jobs * (config.workers if config.tensors == "own" else 2)
    limits.must_fit(f"elements = {config.elements}: {tensors} tensors", tensors * _bytes(config),
                    " (tensors = 'common' is one for all workers)")


def _tensors(rng: np.random.Generator, config: AllReduce) -> list[np.ndarray]:
    """Returns a tensor for each worker, or the one that all have in common."""
    different = config.workers if config.tensors == "own" else 1
    if config.dtype == "int32":
        tensors = [rng.integers(-(2**31), 2**31, config.elements, np.int32) for _ in range(different)]
    else:
        tensors = [rng.standard_normal(config.elements, np.float32) for _ in range(different)]
    blocks = -(-config.elements // BLOCK)
    for tensor in tensors if config.sparsity else ():
        zeros = np.zeros(blocks, np.bool_)
        zeros[rng.permutation(blocks)[: round(config.sparsity * blocks)]] = True
        tensor[np.repeat(zeros, BLOCK)[: tensor.size]] = 0
    return tensors


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


def _check_coded(config: AllReduce, job: FabricJob, tensors: list[np.ndarray], results: list[np.ndarray]) -> None:
    """Compares with the codec over arrays alone, to the bit."""
    right = codecs.reduced([codecs.named(config.codec) for _ in tensors], tensors)[0]
    for worker, result in enumerate(results):
        if result.tobytes() != right.tobytes():
            raise WrongSum(f"{job.name}: worker {worker}'s result is not what codec {config.codec} gives over arrays, at "
                           f"{np.count_nonzero(result != right)} of {right.size} places")


def _reduction(
    fabric: Fabric, config: AllReduce, job: FabricJob, done: dict[int, Completion], links: virtual_network.LinkFigures,
    network: dict[str, dict],
) -> Reduction:
    """Returns a job's result. ``links``, ``network``: figures of the whole network, which its jobs have in common."""
    seconds = max(done[machine].time for machine in job.machines if machine in done) / PS
    size = _bytes(config)
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
    faults = {"duplicate": config.duplicate, "reorder": config.reorder, "corrupt": config.corrupt,
              "duplicate_delay": 10e-3, "reorder_delay": 2e-3, "seed": config.seed}
    base = Specification("", port_kinds.DEFAULT, 0, 0, config.workers, config.window, config.elements, config.dtype, config.seed,
                         config.rto_min, config.rto_max, config.timeout, config.rto == "fixed", config.check,
                         moves=bool(config.link_events))
    if config.world == "local":
        faults["loss"] = config.loss  # a worker's port is its wire, both ways
        with closing(start_server(config.program_path, defines(config))) as process:
            return _work(config, replace(base, switch=process.name), faults, here(), None)
    place = virtual_network.place(config)
    hosts = [host for job in place.hosts(config) for host in job]
    made = real_network(config, place, link_probe=config.link_probe, link_misses=config.link_misses)
    with testbed.opened(made) as network:
        ranks = testbed.place(network, hosts)
        return _work(config, replace(base, switch=network.socket, port=udp.KIND.name), faults, ranks, network)


def _work(config: AllReduce, base: Specification, faults: dict, place: Place, network: Network | None) -> list[Reduction]:
    specifications = []
    for index in range(config.jobs * config.workers):
        job, worker = divmod(index, config.workers)
        seeded = {**faults, "seed": faults["seed"] * 1024 + index} if any(
            faults.get(key) for key in ("loss", "duplicate", "reorder", "corrupt")) else None
        specifications.append(replace(base, job=job, worker=worker, faults=seeded))
    measured = crew.work(specifications, place, network, config.timeout + 30, config.link_events)
    stalls = {f"job {job}": [stall for answer in measured.answers[job * config.workers : (job + 1) * config.workers]
                             for stall in answer["stalls"]] for job in range(config.jobs)}
    links = {"links": failed_links.of_testbed(measured.incidents, stalls, measured.began)} if measured.incidents else {}
    busiest, load, use = measured.busiest()
    wires = config.world == "testbed" and config.topology == "star" and config.rate
    reductions = []
    for job in range(config.jobs):
        own = measured.answers[job * config.workers : (job + 1) * config.workers]
        reductions.append(Reduction(
            job=f"job {job}", workers=config.workers, bytes=_bytes(config),
            seconds=max(answer["ended"] for answer in own) - min(answer["began"] for answer in own),
            busiest_link=busiest, busiest_bytes=load, link_use=use,
            ring_model_seconds=ring_model(config, _bytes(config)) if wires else None,
            stats={"workers": {key: sum(answer["stats"][key] for answer in own) for key in own[0]["stats"]},
                   "network": measured.links, "drops": measured.counters, **links},
        ))
    return reductions


KIND = AllReduce
