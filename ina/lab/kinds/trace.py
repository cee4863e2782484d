"""Chakra traces in virtual time: every rank does what its trace says, all-reduces by the algorithm of the experiment.

A rank's GPU and its CPU each compute one node at a time, of those that are ready the first in the trace. Collectives of a process
group begin in the order of the trace on every rank, as on a communicator's stream; groups, messages and computation overlap.
Other collectives go between the hosts by the schedules of ina/worlds/virtual/collectives.py, without values; sums are checked.
"""

from __future__ import annotations

import heapq
import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ina.base.bounds import Range
from ina.base.settings import ConfigError, key
from ina.lab import limits
from ina.lab.kind import Check, Finding, Row
from ina.lab.results.why import BUSY
from ina.lab.virtual import bottleneck, chakra, virtual_network
from ina.lab.virtual.chakra import Node
from ina.lab.virtual.simulated import SUMS, sums
from ina.lab.virtual.timeline import Timeline, busy_time, is_compute
from ina.lab.virtual.virtual_network import Networked, WrongSum
from ina.net.ports import PS
from ina.worlds.virtual import collectives
from ina.worlds.virtual.fabric import Fabric, FabricJob
from ina.worlds.virtual.network import NEVER

SCHEDULES: dict[str, Callable[[int], collectives.Schedule]] = {
    "reduce": collectives.reduce, "all-gather": collectives.all_gather, "gather": collectives.gather,
    "scatter": collectives.scatter, "broadcast": collectives.broadcast, "all-to-all": collectives.all_to_all,
    "reduce-scatter": collectives.reduce_scatter, "barrier": lambda n: collectives.tree(n, 1),
}
TIMES = {"all-gather": 1, "gather": 1, "all-to-all": 1}  # the tensor is n times as large as a rank's input


@dataclass
class Replayed:
    """Results of a trace of all ranks in virtual time."""

    job: str
    workers: int
    nodes: int  # of all ranks
    bytes: float  # a rank's input to collectives and messages, mean
    seconds: float  # until the last node ended
    compute_by_rank: list[float]  # s in which it computed
    counts: dict[str, int]  # communication nodes of all ranks, by kind
    checked: bool  # the sums
    busiest_link: str  # the direction that was busy longest
    busiest_bytes: int
    link_use: float | None
    stats: dict[str, dict] = field(default_factory=dict)

    def summary(self) -> dict[str, object]:
        """Returns figures of the table."""
        compute, worker = max(self.compute_by_rank), self.stats["workers"]
        return {
            "job": self.job,
            "time_ms": 1e3 * self.seconds,
            "compute_ms": 1e3 * compute,
            "exposed_ms": 1e3 * (self.seconds - compute),
            "efficiency": compute / self.seconds if compute else None,  # None: nothing could hide communication
            "rank_mb": 1e-6 * self.bytes,
            "link_mb": 1e-6 * self.busiest_bytes,
            "link_use": self.link_use,
            "packets": worker["tx_packets"],
            "retransmissions": worker["retransmissions"],
            "sums": sums(self.checked),
        }


@dataclass(frozen=True)
class Trace(Networked):
    """Chakra's execution traces in virtual time: ranks compute and communicate as recorded, all-reduces by any algorithm."""

    guide = "Kind trace: Chakra's execution traces"
    kind: str = key("trace", "what is done: trace", choices=("trace",))
    name: str = key("trace", "the results folder's name begins with it")
    workers: int = key(0, "ranks; 0: as many as there are files", limits.WORKERS)
    trace: str = key("", "path of the files without their ends, which are .0.et, .1.et, ...: one a rank")
    groups: str = key("", "JSON file of process groups' ranks, as ASTRA-sim has it; empty: all, or what the trace says")
    compute: float = key(1.0, "times of the trace are multiplied by this", limits.FACTOR)
    peak_flops: float = key(0.0, "FLOP/s of a rank's GPU, for nodes with num_ops and no duration; 0: not known",
                            Range(0, 1e24, "operations a second"), unit="FLOP/s")
    memory_bandwidth: float = key(0.0, "byte/s of its memory, for nodes with tensor_size and no duration; 0: not known",
                                  Range(0, 1e18, "bytes a second"), unit="B/s")

    rows = (
        Row("time_ms", "the whole trace, virtual ms", "ms", "{:.4f}"),
        Row("compute_ms", "compute of the slowest rank, ms", "comp", "{:.4f}"),
        Row("exposed_ms", "time without compute there, ms", "rest", "{:.4f}"),
        Row("efficiency", "compute's share", "eff", "{:.1%}"),
        Row("rank_mb", "put into communication by a rank, MB", "rank", "{:.3f}"),
        Row("link_mb", "on the busiest link, MB", "link", "{:.3f}"),
        Row("link_use", "use of the busiest link", "use", "{:.1%}"),
        Row("packets", "packets sent (all ranks)", "pkts", "{:,}"),
        Row("retransmissions", "retransmissions (all ranks)", "again", "{:,}"),
        SUMS,
    )

    def derived(self) -> dict[str, object]:
        return {**super().derived(), "workers": self.workers or len(chakra.files(self.trace))}

    def checks(self) -> Iterator[Check]:
        files = len(chakra.files(self.trace))
        if not files:
            yield False, "trace", f"a path with which {Path(self.trace).name}.0.et begins the files of a trace"
            return
        yield self.workers == files, "workers", f"0, or {files}: there are so many files"
        yield from super().checks()
        yield self.jobs == 1, "jobs", "1: a trace has its own process groups"
        yield self.dtype == "int32", "dtype", "int32: traces have sizes, and no values"

    @property
    def work(self) -> str:
        return self.trace

    def measure(self, timeline: Timeline | None = None) -> list[Replayed]:
        return replay(self, timeline)

    def why(self, run: dict, summary: dict) -> Finding:
        whole, exposed = summary["time_ms"], summary["exposed_ms"]
        computing = f"the rank that computes longest does so for {summary['compute_ms']:.3f} of {whole:.3f} ms"
        if (slow := bottleneck.straggler(run)) is not None:
            return Finding(run["job"], "straggler", f"{computing}; {slow}")
        if (summary["efficiency"] or 0) >= BUSY:
            return Finding(run["job"], "compute", f"{computing}, and {exposed:.3f} ms are not")
        inner = bottleneck.network(self, run, max(exposed / whole, 1e-9), whole)
        nothing = "no rank computes: " * (summary["efficiency"] is None)
        return Finding(run["job"], inner.bound, f"{nothing}{exposed:.3f} of {whole:.3f} ms are not compute; {inner.shown}")


@dataclass
class Rank:
    """Progress of one rank. Times in ps."""

    number: int
    nodes: dict[int, Node]
    waiting: dict[int, int]  # by node: number of its predecessors that have not ended
    children: dict[int, list[int]]
    turns: dict[str, list[int]]  # collectives of each group that have not begun, last one first
    ready: set[int] = field(default_factory=set)  # those of them that are ready
    queues: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {"cpu": [], "gpu": []})  # place in the trace, node
    busy: dict[str, bool] = field(default_factory=lambda: {"cpu": False, "gpu": False})
    began: dict[int, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    spans: list[tuple[str, float, float]] = field(default_factory=list)

    @classmethod
    def of(cls, number: int, nodes: list[Node]) -> Rank:
        children: dict[int, list[int]] = defaultdict(list)
        for node in nodes:
            for predecessor in node.after:
                children[predecessor].append(node.number)
        turns: dict[str, list[int]] = defaultdict(list)
        for node in reversed(nodes):
            if node.kind in chakra.COLLECTIVES:
                turns[node.group].append(node.number)
        return cls(number, {n.number: n for n in nodes}, {n.number: len(n.after) for n in nodes}, children, turns)


def replay(config: Trace, timeline: Timeline | None = None) -> list[Replayed]:
    """Runs the trace and records its events in ``timeline``. Raises as allreduce.reduce does."""
    config = config.resolved()
    traces = chakra.read(config.trace, config.groups, chakra.Roofline(config.peak_flops, config.memory_bandwidth))
    _match(config, traces)
    _check_something_happens(config, traces)
    place, timeline = virtual_network.place(config), timeline or Timeline()
    with virtual_network.fabric(config, place) as fabric:
        return [Replay(config, fabric, place, traces, timeline).run()]


class Replay:
    """One replay of traces."""

    def __init__(self, config: Trace, fabric: Fabric, place: virtual_network.Place, traces: chakra.Traces, timeline: Timeline):
        self.config, self.fabric, self.place, self.traces, self.timeline = config, fabric, place, traces, timeline
        (self.hosts,) = place.hosts(config)
        self.ranks = [Rank.of(number, nodes) for number, nodes in enumerate(traces.ranks)]
        self.order = [{node.number: i for i, node in enumerate(nodes)} for nodes in traces.ranks]
        self.jobs: dict[tuple, FabricJob] = {}
        self.due: list[tuple[int, int, int, int]] = []  # computations that end: time, sequence number, rank, node
        self.under_way: dict[int, tuple[Rank, int, np.ndarray | None]] = {}  # by ticket
        self.pending: Counter[tuple[int, int]] = Counter()  # tickets of a node
        self.nothing, self.count = np.zeros(1, np.int32), itertools.count()
        self._admit()

    # ---- communicators

    def _admit(self) -> None:
        reducing = {n.group for nodes in self.traces.ranks for n in nodes if n.kind == "all-reduce" and self._size(n.group) > 1}
        above = virtual_network.servers(self.fabric, self.config, self.place) if reducing else None
        slots = self.config.window_of(max(1, len(reducing)))
        for rank, nodes in enumerate(self.traces.ranks):
            for node in nodes:
                if (key := self._key(rank, node)) is None or key in self.jobs:
                    continue
                if node.kind == "all-reduce":
                    hosts = self._hosts(node.group)
                    name = f"group {node.group}" if node.group else "all ranks"
                    self.jobs[key] = virtual_network.admit_one(self.fabric, self.config, self.place, hosts, name, slots, above)
                elif node.kind in (chakra.SEND, chakra.RECEIVE):
                    self.jobs[key] = self._bare([self.hosts[key[1]], self.hosts[key[2]]], collectives.message())
                else:
                    hosts = self._hosts(node.group)
                    self.jobs[key] = self._bare(hosts, SCHEDULES[node.kind](len(hosts)))

    def _hosts(self, group: str) -> list[str]:
        return [self.hosts[member] for member in self.traces.groups[group]]

    def _size(self, group: str) -> int:
        return len(self.traces.groups[group])

    def _bare(self, hosts: list[str], schedule: collectives.Schedule) -> FabricJob:
        config = self.config
        return self.fabric.collective(hosts, schedule, config.values, window=config.flow, rto=config.rto_min, bare=True,
                                      timeout=config.timeout, congestion=virtual_network.CONGESTION[config.transport])

    def _key(self, rank: int, node: Node) -> tuple | None:
        """Returns the key of the communicator that a node uses; None: it needs none."""
        if node.kind == chakra.SEND:
            return "message", rank, node.peer, node.tag
        if node.kind == chakra.RECEIVE:
            return "message", node.peer, rank, node.tag
        if node.kind in chakra.COLLECTIVES and self._size(node.group) > 1:
            return node.kind, node.group
        return None

    # ---- running

    def run(self) -> Replayed:
        self.fabric.stop_at_completions()
        for rank in self.ranks:
            for node in list(rank.nodes.values()):
                if not node.after:
                    self._begin(rank, node, 0)
        while True:
            idle = self.timeline.run(self.fabric, self.due[0][0] if self.due else NEVER - 1)
            done = self.fabric.completions()
            for completion in done:
                completion.raise_failed()
                self._complete(completion.ticket, completion.time)
            if done:
                continue  # nodes that they started may end before anything else
            if self.due and (idle or self.due[0][0] <= self.fabric.now):
                when, _, place, number = heapq.heappop(self.due)
                self._end_compute(self.ranks[place], number, when)
            elif idle:
                break
        self._check_ended()
        self.fabric.check()
        self.timeline.jobs.append(("trace", [rank.spans for rank in self.ranks]))
        return self._result()

    def _begin(self, rank: Rank, node: Node, now: int) -> None:
        """Begins a node whose predecessors have ended: at once, or when its processor or turn is free."""
        rank.began[node.number] = now
        if node.kind == chakra.COMPUTE:
            heapq.heappush(rank.queues[node.processor], (self.order[rank.number][node.number], node.number))
            self._compute(rank, node.processor, now)
        elif node.kind == chakra.NOTHING:
            self._end(rank, node, now)
        elif node.kind in (chakra.SEND, chakra.RECEIVE):
            self._submit(rank, node, now)
        else:
            rank.ready.add(node.number)
            turns = rank.turns[node.group]
            while turns and turns[-1] in rank.ready:
                first = rank.nodes[turns.pop()]
                rank.began[first.number] = now
                self._submit(rank, first, now) if self._key(rank.number, first) else self._end(rank, first, now)

    def _compute(self, rank: Rank, processor: str, now: int) -> None:
        if rank.busy[processor] or not rank.queues[processor]:
            return
        rank.busy[processor] = True
        _, number = heapq.heappop(rank.queues[processor])
        rank.began[number] = now
        ends = now + round(rank.nodes[number].duration * self.config.compute)
        heapq.heappush(self.due, (ends, next(self.count), rank.number, number))

    def _end_compute(self, rank: Rank, number: int, now: int) -> None:
        node = rank.nodes[number]
        rank.busy[node.processor] = False
        self._end(rank, node, now)
        self._compute(rank, node.processor, now)

    def _end(self, rank: Rank, node: Node, now: int) -> None:
        rank.ended.add(node.number)
        if node.kind != chakra.NOTHING:
            rank.spans.append((f"{node.kind} {node.name}", rank.began[node.number] / PS, now / PS))
        for child in rank.children[node.number]:
            rank.waiting[child] -= 1
            if not rank.waiting[child]:
                self._begin(rank, rank.nodes[child], now)

    def _submit(self, rank: Rank, node: Node, now: int) -> None:
        key = self._key(rank.number, node)
        assert key is not None  # it communicates
        job, elements, out = self.jobs[key], max(1, -(-node.bytes // self.nothing.itemsize)), None
        after = max(0, now - self.fabric.now)
        if node.kind in (chakra.SEND, chakra.RECEIVE):
            worker, source = int(node.kind == chakra.RECEIVE), self._zeros(elements)
        else:
            members = self.traces.groups[node.group]
            worker, source = members.index(rank.number), self._zeros(elements * len(members) ** TIMES.get(node.kind, 0))
        if node.kind == "all-reduce" and self.config.payload:
            source, out = np.full(elements, worker + 1, np.int32), np.empty(elements, np.int32)
        for ticket in self.fabric.submit_one(job, worker, source, out, after=after):
            self.under_way[ticket] = rank, node.number, out
            self.pending[rank.number, node.number] += 1

    def _zeros(self, elements: int) -> np.ndarray:
        """Returns zeros that are neither read nor written: all operations share one array."""
        if self.nothing.size < elements:
            self.nothing = np.zeros(elements, np.int32)
        return self.nothing[:elements]

    def _complete(self, ticket: int, now: int) -> None:
        rank, number, out = self.under_way.pop(ticket)
        self.pending[rank.number, number] -= 1
        if self.pending[rank.number, number]:
            return  # stripes of it are still under way
        node = rank.nodes[number]
        right = self._size(node.group) * (self._size(node.group) + 1) // 2
        if out is not None and not np.all(out == right):
            raise WrongSum(f"rank {rank.number}: node {number} ({node.name!r}): a sum is not {right}")
        self._end(rank, node, now)

    def _check_ended(self) -> None:
        for rank in self.ranks:
            if len(rank.ended) < len(rank.nodes):
                stuck = next(n for n in rank.nodes.values() if not rank.waiting[n.number] and n.number not in rank.ended)
                raise ConfigError(f"{self.config.trace}.{rank.number}.et: node {stuck.number} ({stuck.name!r}) never ends")

    # ---- figures

    def _result(self) -> Replayed:
        seconds = max((end for rank in self.ranks for _, _, end in rank.spans), default=0.0)
        computing = [busy_time([span for span in rank.spans if is_compute(span[0])]) for rank in self.ranks]
        counts = Counter(n.kind for nodes in self.traces.ranks for n in nodes if n.kind in (*chakra.COLLECTIVES, chakra.SEND))
        return Replayed(
            job="trace", workers=len(self.ranks), nodes=sum(map(len, self.traces.ranks)), seconds=seconds,
            bytes=statistics.mean([sum(n.bytes for n in nodes) for nodes in self.traces.ranks]), compute_by_rank=computing,
            counts=dict(counts), checked=self.config.payload,
            stats={**virtual_network.counters(self.fabric, self.config, list(self.jobs.values()), self.hosts),
                   "ignored attributes": self.traces.ignored},
            **virtual_network.link_figures(self.fabric, max(seconds, 1e-12)),
        )


def _check_something_happens(config: Trace, traces: chakra.Traces) -> None:
    """Checks that some node communicates or takes time. Raises ConfigError: such a trace would end at once, at its best."""
    nodes = [node for nodes in traces.ranks for node in nodes]
    if any(node.kind in (chakra.SEND, chakra.RECEIVE)
           or (node.kind in chakra.COLLECTIVES and len(traces.groups[node.group]) > 1) for node in nodes):
        return
    if not any(round(node.duration * config.compute) for node in nodes):
        if any(node.duration for node in nodes):
            raise ConfigError(f"compute = {config.compute:g}: with it none of the {len(nodes)} nodes of {config.trace}.*.et "
                              "takes time, and none communicates: there is nothing to replay")
        raise ConfigError(f"{config.trace}.*.et: none of the {len(nodes)} nodes communicates or takes time: there is nothing to "
                          "replay. Chakra's converters take times from the profiler's trace, and collectives from its kernels")


def _match(config: Trace, traces: chakra.Traces) -> None:
    """Checks that ranks which communicate have equally many operations, of equal sizes. Raises ConfigError with both nodes."""
    for group, members in traces.groups.items():
        lists = [[n for n in traces.ranks[rank] if n.kind in chakra.COLLECTIVES and n.group == group] for rank in members]
        for rank, own in zip(members, lists, strict=True):
            for place in range(max(len(own), len(lists[0]))):
                _same(config, (members[0], lists[0]), (rank, own), place, f"{place + 1}. collective of process group {group!r}")
    sides: dict[tuple[int, int, int], dict[str, list[Node]]] = defaultdict(lambda: {chakra.SEND: [], chakra.RECEIVE: []})
    for rank, nodes in enumerate(traces.ranks):
        for node in nodes:
            if node.kind in (chakra.SEND, chakra.RECEIVE):
                ends = (rank, node.peer) if node.kind == chakra.SEND else (node.peer, rank)
                sides[(*ends, node.tag)][node.kind].append(node)
    for (source, target, tag), side in sides.items():
        for place in range(max(map(len, side.values()))):
            operation = f"{place + 1}. message from rank {source} to rank {target} with tag {tag}"
            _same(config, (source, side[chakra.SEND]), (target, side[chakra.RECEIVE]), place, operation, kinds=False)


def _same(config: Trace, a: tuple[int, list[Node]], b: tuple[int, list[Node]], place: int, name: str, kinds: bool = True) -> None:
    one, other = (nodes[place] if place < len(nodes) else None for _, nodes in (a, b))
    if one is None or other is None or one.bytes != other.bytes or (kinds and one.kind != other.kind):
        sides = "; ".join(
            f"{config.trace}.{rank}.et: "
            + ("there is none" if n is None else f"node {n.number} ({n.name!r}), {n.kind} of {n.bytes} bytes")
            for rank, n in ((a[0], one), (b[0], other))
        )
        raise ConfigError(f"the {name} is not the same on both sides: {sides}")


KIND = Trace
