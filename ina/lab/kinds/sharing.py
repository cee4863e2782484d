"""Jobs that share one switch in virtual time: the share of each, and the use of aggregators and parameter servers.

All jobs are alike; each has a parameter server at a host of its own if its protocol has one. No clock is read.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.entries import JobProgram, program_named
from ina.aggregation.lane import INT32
from ina.base import paths
from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check, Finding, Measured, Row
from ina.lab.oracle import choose_reduction, expected
from ina.lab.results.why import BUSY
from ina.lab.virtual import bottleneck, simulated, virtual_network
from ina.lab.virtual.simulated import SUMS, Simulated, sums
from ina.lab.virtual.timeline import Timeline
from ina.lab.virtual.virtual_network import WrongSum
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
    busiest_link: str  # the direction that was busy longest
    busiest_bytes: int
    link_use: float | None
    dropped: int  # packets that a full queue refused
    longest_queue: int  # bytes, of the switch's
    stats: dict[str, dict] = field(default_factory=dict)
    checked: bool = True  # the sums

    @property
    def goodputs(self) -> list[float]:
        """Gb/s by job, of its last tensor: windows, and aggregators that do not collide, have settled by then."""
        return [8e-9 * self.bytes / times[-1] for times in self.seconds]

    def summary(self) -> dict[str, object]:
        """Figures of the table, over the jobs; with a straggler, over those that have none."""
        rates = self.goodputs[1:] if self.straggler and len(self.seconds) > 1 else self.goodputs
        return {
            "job": counted(len(self.seconds), "job"),
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


@dataclass(frozen=True)
class Sharing(Simulated):
    """Jobs that share one switch in virtual time, with fewer aggregators than they need, or with a slow worker."""

    meanings = {
        "dropped": "Packets that came to a full queue of the switch; their workers send them again.",
    }
    guide = "Kind sharing: jobs at one switch that has too little for all"
    kind: str = key("sharing", "what is done: sharing", choices=("sharing",))
    name: str = key("sharing", "the results folder's name begins with it")
    world: str = key("virtual", simulated.WORLD, choices=("virtual",))
    protocol: str = key(protocols.DEFAULT, "what switch and workers speak")
    share: float = key(1.0, "slots that the switch has, of those that all jobs need for their windows; at most 1", Range(0, 1))
    jobs: int = key(8, "jobs, each with hosts and wires of its own, one more host for its parameter server", limits.JOBS)
    workers: int = key(8, "of each job", limits.WORKERS)
    window: int = key(128, "packets that a worker has under way at most, a power of two; a job needs as many slots",
                      Range(1, 1024, "packets", "packets"))
    elements: int = key(500_000, "of each job's tensors, int32", limits.ELEMENTS)
    tensors: int = key(1, "of each job, one after the other", Range(1, 10**6, "one after the other"))
    period: float = key(0.0, "s from a tensor's start to that of the next; the jobs' are staggered evenly. 0: all at once",
                        limits.TIME)
    straggler: float = key(1.0, "how many times slower the wire of worker 0 of job 0 is", Range(1, 1000))
    seed: int = key(1, "of the tensors", limits.SEED)
    rate: float = key(100e9, "of each wire, bit/s", limits.RATE)
    delay: float = key(1e-6, "of each wire, one way, s", limits.DELAY)
    queue: int = key(0, "of each wire, bytes; 0: no limit", limits.BYTES)
    buffer: int = key(0, "of the switch, bytes: what may wait for all of its wires together; 0: no limit", limits.BYTES)
    ecn_depth: int = key(64, "packets in an egress queue from which congestion is marked; 0: never",
                         Range(0, 1 << 30, "packets", "packets"))
    program: str = key("", simulated.PROGRAM)
    switch: str = key("embedded", simulated.SWITCH, choices=simulated.EMBEDDED)
    values: int = key(256, "int32 per packet", limits.PACKET)
    rto_min: float = key(100e-6, "least retransmission time-out, s", limits.TIME)
    rto_max: float = key(10e-3, "largest, s", limits.TIME)
    rto: str = simulated.rto()
    check: str = key("", "how check words protect sums: off, sum or keyed; empty: sum, where packets have their values",
                     choices=("", *protocols.CHECKS))
    timeout: float = key(30.0, "virtual seconds after which a tensor has failed", limits.TIME)
    sample: float = simulated.sample()
    payload: bool = key(True, simulated.PAYLOAD)

    rows = (
        Row("goodput_gbps", "goodput of a job, mean, Gb/s", "Gb/s", "{:.2f}"),
        Row("least_gbps", "goodput of the job that gets least, Gb/s", "least", "{:.2f}"),
        Row("fairness", "fairness between jobs (Jain)", "fair", "{:.3f}"),
        Row("straggler_gbps", "goodput of the job with the slow worker, Gb/s", "slow", "{:.2f}"),
        Row("aggregated", "packets added up in the switch", "in switch", "{:.1%}"),
        Row("server_load", "packets to the server, of a worker's", "at server", "{:.1%}"),
        Row("link_use", "use of the busiest link", "use", "{:.1%}"),
        Row("queue_kb", "longest queue of the switch, kB", "queue", "{:.1f}"),
        Row("dropped", "packets that a full queue refused", "dropped", "{:,}"),
        Row("retransmissions", "retransmissions (all workers)", "again", "{:,}"),
        SUMS,
    )

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield self.share > 0, "share", "more than 0 and at most 1"
        yield self.jobs <= 16, "jobs", "1 to 16"
        yield limits.power_of_two(self.window), "window", "a power of two up to 1024"
        yield self.shared or self.slots >= 1, "share", f"a slot for each of {self.jobs} jobs"
        yield 0 < self.rto_min <= self.rto_max, "rto_min", "more than 0, and no more than rto_max"
        own = protocols.checks(self.protocol)
        yield self.check in ("", *own), "check", f"{' or '.join(own)} with {self.protocol}"
        yield self.payload or self.check in ("", "off"), "check", "off with payload = false: packets have no values"

    @property
    def reduction(self) -> int:
        """The reduction to request: one that the protocol declares."""
        return choose_reduction(self.protocol, "int32", self.payload)

    def check_reductions(self) -> None:
        choose_reduction(self.protocol, "int32", self.payload)

    @property
    def shared(self) -> bool:
        """True if jobs hold no slots of their own."""
        return not program_named(self.protocol).reserves

    @property
    def pool(self) -> int:
        """Slots of the switch: the largest power of two that is no more than its share."""
        return 1 << int(max(1, self.share * self.window * self.jobs)).bit_length() - 1

    @property
    def slots(self) -> int:
        """Slots that a job is admitted with: its window, or, where slots are reserved, as many of it as all can have."""
        part = self.pool // self.jobs
        return self.window if self.shared else min(self.window, 1 << part.bit_length() >> 1)

    def measure(self, timeline: Timeline | None = None) -> list[Shares]:
        return share(self, timeline)

    def describe(self, results: Sequence[Measured]) -> str:
        return (
            f"{self.jobs} jobs of {self.workers} workers and windows of {self.window} packets at one switch, which has "
            f"{self.pool} slots; {self.protocol}, {self.tensors} x {self.elements:,} elements, wires of "
            f"{self.rate / 1e9:g} Gb/s and {self.delay * 1e6:g} us, slow worker {self.straggler:g} x, seed {self.seed}."
        )

    def why(self, run: dict, summary: dict) -> Finding:
        """Explains all jobs of the run together: they are alike."""
        name, worker = summary["job"], run["stats"]["workers"]
        rates = summary["goodput_gbps"], summary["straggler_gbps"]
        if rates[1] is not None and rates[1] < 0.9 * rates[0]:
            text = f"the wire of worker 0 of job 0 is {self.straggler:g} times as slow: that job runs at {rates[1]:.1f} Gb/s"
            return Finding(name, "straggler", f"{text}, the others at {rates[0]:.1f}")
        busiest = f"the busiest link, {run['busiest_link']}, sent for {run['link_use']:.0%} of the time"
        if (crowded := bottleneck.crowded_pool(self.protocol, worker)) is not None:
            return Finding(name, "pool", f"{crowded}, of which there are {self.pool}; {busiest}")
        if run["link_use"] >= BUSY:
            return Finding(name, "link", busiest)
        if worker["timeouts"]:
            text = f"{counted(worker['timeouts'], 'time-out')}, {counted(worker['retransmissions'], 'packet')} sent again"
            return Finding(name, "recovery", f"{text}; {busiest}")
        each = worker["tx_packets"] / (self.workers * self.jobs * self.tensors)
        if self.period or each < bottleneck.FEW * self.slots:
            text = f"a worker sends {each:.0f} packets of a tensor, and may have {self.slots} under way"
            return Finding(name, "latency", f"{text}; {busiest}")
        return Finding(name, "pool", f"each job has {self.slots} slots of the switch's {self.pool}; {busiest}")


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
                slow=slow, payload=config.payload) as network:
        jobs = [_admit(network, config, number) for number in range(config.jobs)]
        rng = np.random.default_rng(config.seed)
        arrays = [[rng.integers(-(2**31), 2**31, config.elements, np.int32) for _ in range(config.workers)] for _ in jobs]
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
        while not timeline.run(network):
            pass
        done = network.completions()
        for completion in done:
            _check(completion, results.pop(completion.ticket), rights[started[completion.ticket][0]], started)
        network.check()
        timeline.jobs += _spans(jobs, done, started)
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
        rto_min=config.rto_min, rto_max=config.rto_max, rto_fixed=config.rto == "fixed", timeout=config.timeout,
        check=config.check,
    )


def _check(completion: Completion, result: np.ndarray, right: np.ndarray | None, started: dict) -> None:
    completion.raise_failed()
    if right is not None and not np.array_equal(result, right):
        number, turn, _ = started[completion.ticket]
        raise WrongSum(f"job {number}, tensor {turn}: machine {completion.machine} has a wrong sum")


def _spans(jobs: Sequence[SharedJob], done: Sequence[Completion], started: dict) -> list[tuple[str, list]]:
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
    return Shares(config.protocol, config.workers, INT32.bytes(config.elements), seconds, config.straggler > 1, aggregated, load,
                  dropped=dropped, longest_queue=longest, stats=stats, checked=config.payload, **figures)


KIND = Sharing
