"""Mixtures of experts in virtual time: tokens go to the hosts of their experts, and the experts' outputs come back, added up.

Each worker has as many experts as the others, and as many tokens in each batch, whose experts are drawn. As `ina.moe` does:

    gather     every worker learns the experts of all tokens
    dispatch   a token goes up once, and down once to each other worker that has some of its experts
    agree      a maximum for each token whose outputs several other workers have (there: of its exponents)
    combine    each of them sends one row up, and the switch adds them up: one row comes down

With ``overlap`` a batch is dispatched as soon as a worker has the rows of the one before, and combined meanwhile, so that links
are busy in both directions; experts are gathered a batch ahead. Dispatches, agreements and combines are jobs of their own, so
none waits for another's packets in a NIC that takes turns (key `nic`). Rows are int32; every row that comes, and every sum, is
compared with the right one. Beside the time stands that of an all-to-all between the hosts on the same network: it sends a token
once to each of those workers, too, but from its own host, and brings back a row from each; and, where switches have several
workers each, that of an all-to-all in two levels, for which the workers at a switch are a server
(ina/worlds/virtual/exchanges.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ina.aggregation import protocols
from ina.aggregation.lane import INT32
from ina.aggregation.worker.route import Route
from ina.aggregation.worker.token_routes import Indices, Leg, Tokens, ranks_in
from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check, Measured, Row
from ina.lab.virtual import virtual_network
from ina.lab.virtual.routed import Driven, Routed, Words
from ina.lab.virtual.simulated import SUMS, sums
from ina.lab.virtual.timeline import Timeline
from ina.lab.virtual.virtual_network import WrongSum
from ina.worlds.virtual import collectives, exchanges
from ina.worlds.virtual.fabric import Fabric

AHEAD = 3  # batches that a worker has dispatched and not combined, at most: it has their rows
JOBS = ("dispatch", "agree", "combine")  # each has the phase of its name, the first one the gather, too


@dataclass
class Mixture:
    """Result of a run. ``rows``: that hosts sent up and got down, over all workers and batches, as defined; ``hosts_seconds``:
    of the all-to-all between the hosts; ``levels_seconds``: of that in two levels, None: there is none; ``distinct``: workers of
    a token, its own included, on average."""

    job: str
    bytes: int  # of a row
    seconds: float
    hosts_seconds: float
    levels_seconds: float | None
    distinct: float
    rows: dict[str, int]
    busiest_link: str
    busiest_bytes: int
    link_use: float | None
    stats: dict[str, dict] = field(default_factory=dict)
    checked: bool = True

    def summary(self) -> dict[str, object]:
        """Figures of the table."""
        return {
            "job": self.job, "sums": sums(self.checked), "time_ms": 1e3 * self.seconds,
            "hosts_ms": 1e3 * self.hosts_seconds,
            "levels_ms": None if self.levels_seconds is None else 1e3 * self.levels_seconds,
            "ratio": self.hosts_seconds / self.seconds, "distinct": self.distinct,
            "dispatch_mb": 1e-6 * self.bytes * self.rows["dispatch"], "combine_mb": 1e-6 * self.bytes * self.rows["combine"],
            "hosts_mb": 1e-6 * self.bytes * self.rows["hosts"],
            "levels_mb": 1e-6 * self.bytes * self.rows["levels"] if self.rows["levels"] else None,
            "link_mb": 1e-6 * self.busiest_bytes, "link_use": self.link_use,
            "retransmissions": self.stats["workers"]["retransmissions"],
        }


@dataclass(frozen=True)
class Experts(Routed):
    """Tokens that go to their experts and back, in virtual time."""

    streams = len(JOBS)

    guide = "A mixture of experts"
    kind: str = key("experts", "what is done: experts", choices=("experts",))
    name: str = key("experts", "the results folder's name begins with it")
    experts: int = key(64, "of all workers, each of which has as many", Range(2, 1 << 15, "their numbers have 15 bits"))
    top: int = key(2, "experts of a token, all different", Range(1, 64))
    skew: float = key(0.0, "exponent of Zipf's law, by which experts are drawn; 0: all alike", Range(0, 4))
    tokens: int = key(64, "of each worker in a batch", Range(1, 1 << 16))
    hidden: int = key(1024, "int32 of a token, and of an expert's output", limits.ELEMENTS)
    batches: int = key(4, "one after the other", Range(1, 1000))
    overlap: bool = key(True, "a batch is dispatched while others before it are combined")

    rows = (
        Row("time_ms", "dispatch and combine, all batches, ms", "ms", "{:.4f}"),
        Row("hosts_ms", "the same by all-to-all between hosts, ms", "hosts ms", "{:.4f}"),
        Row("levels_ms", "by all-to-all in two levels, ms", "two levels ms", "{:.4f}"),
        Row("ratio", "all-to-all between hosts over ours", "ratio", "{:.2f}"),
        Row("distinct", "workers of a token, mean", "workers", "{:.2f}"),
        Row("dispatch_mb", "rows up to dispatch, MB", "out MB", "{:.3f}"),
        Row("combine_mb", "rows down from combine, MB", "back MB", "{:.3f}"),
        Row("hosts_mb", "rows up between hosts, one way, MB", "hosts MB", "{:.3f}"),
        Row("levels_mb", "rows up in two levels, one way, MB", "two levels MB", "{:.3f}"),
        Row("link_mb", "on the busiest link, MB", "link MB", "{:.3f}"),
        Row("link_use", "use of the busiest link", "use", "{:.1%}"),
        Row("retransmissions", "retransmissions (all workers)", "again", "{:,}"),
        SUMS,
    )

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield self.experts % self.workers == 0, "experts", f"a multiple of {self.workers}, the workers"
        yield self.top <= self.experts, "top", f"at most {self.experts}, the experts"

    @property
    def work(self) -> str:
        return (f"{counted(self.batches, 'batch', 'batches')} of {self.tokens:,} tokens of {self.hidden:,} int32 from each "
                f"worker, to {self.top} of {self.experts:,} experts")

    def measure(self, timeline: Timeline | None = None) -> list[Mixture]:
        return [run_batches(self.resolved(), timeline or Timeline())]

    def title(self, results: Sequence[Measured]) -> str:
        drawn = f"Zipf {self.skew:g}" if self.skew else "uniform"
        return f"{self.top} of {self.experts} experts ({drawn}) on {counted(self.workers, 'worker')}"


def draw(config: Experts, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Returns the experts of one worker's tokens of a batch, (tokens, top): drawn without replacement, by Zipf's law. The most
    frequent ones are at different workers."""
    popularity = -config.skew * np.log(np.arange(1, config.experts + 1))
    noise = rng.gumbel(size=(config.tokens, config.experts))  # the largest of log p + Gumbel noise: Yellott, 1977
    chosen = np.argpartition(-(popularity + noise), config.top - 1, axis=1)[:, : config.top]
    per_worker = config.experts // config.workers
    return chosen % config.workers * per_worker + chosen // config.workers


class _Batch:
    """A batch's tokens, its values, and what each worker has of it."""

    def __init__(self, config: Experts, number: int):
        self._rng = np.random.default_rng((config.seed, number))
        self.experts = [draw(config, self._rng) for _ in range(config.workers)]
        per_worker = config.experts // config.workers
        self.seen = [Tokens(self.experts, per_worker, worker) for worker in range(config.workers)]
        self.shape = config.workers * config.tokens, config.hidden
        self.done: dict[str, set[int]] = {"gather": set(), "dispatch": set(), "agree": set(), "combine": set()}

    @cached_property
    def values(self) -> Words:
        """The tokens."""
        return self._rng.integers(-(2**31), 2**31, self.shape, np.int32)

    def words(self) -> int:
        """Returns the words of a worker's share of the gather: two bytes for each number."""
        return -(-self.experts[0].size // 2)

    def output(self, worker: int, tokens: Indices) -> Words:
        """Returns what a worker's experts make of tokens, (tokens, hidden); sums wrap."""
        return self.values[tokens] * np.int32(2 * worker + 3) + np.int32(worker)

    def legs(self, phase: str, worker: int) -> tuple[Leg, ...]:
        known = self.seen[worker]
        return (known.out,) if phase == "dispatch" else known.back(np.zeros(known.several.size, np.bool_))


@dataclass(frozen=True)
class _Part:
    """A phase of a batch."""

    phase: str
    number: int

    def __str__(self) -> str:
        return f"{self.phase} of batch {self.number}"


class _Run(Driven[_Part]):
    """One job gathers and dispatches, one agrees, and one combines."""

    def __init__(self, config: Experts, network: Fabric, place: virtual_network.Place):
        super().__init__(config, network, place, JOBS)
        self.config = config
        self.batches = [_Batch(config, number) for number in range(config.batches)]
        self._begun: set[tuple[int, str, int]] = set()  # dispatches, and what comes before a combine: batch, phase, worker

    def start(self, worker: int) -> None:
        self._begin(0, "gather", worker)

    def finished(self) -> bool:
        return all(len(batch.done["combine"]) == self.config.workers for batch in self.batches)

    def _begin(self, number: int, phase: str, worker: int) -> None:
        """Submits a worker's part of a phase of a batch, if there is such a batch."""
        if number >= len(self.batches):
            return
        batch, config = self.batches[number], self.config
        route: Route | None = None
        if phase == "gather":
            own = batch.words()
            memory = np.zeros(own * config.workers, np.int32)
            memory[own * worker : own * (worker + 1)] = self._packed(batch.experts[worker], own)
            if memory.size > config.values:  # else one packet of a sum to which nobody else gives anything there
                route = Route.all_gather([own] * config.workers)
        elif phase == "agree":
            memory = np.full(max(1, batch.seen[worker].several.size), worker, np.int32)
        else:
            memory, route = self._rows(batch, phase, worker)
            if route is None:  # nothing travels
                self._go_on(number, phase, worker)
                return
        self.submit(phase if phase in JOBS else "dispatch", _Part(phase, number), worker, memory,
                    tag=4 * number + list(batch.done).index(phase), route=route,
                    reduction=protocols.MAX if phase == "agree" else protocols.SUM)

    @staticmethod
    def _packed(experts: npt.NDArray[np.int64], words: int) -> Words:
        numbers = np.zeros(2 * words, np.int16)
        numbers[: experts.size] = experts.astype(np.int16).ravel()
        return numbers.view(np.int32)

    def _rows(self, batch: _Batch, phase: str, worker: int) -> tuple[Words, Route | None]:
        """Returns a worker's memory of the rows that travel, and their route; None: there are none."""
        legs, width = batch.legs(phase, worker), batch.shape[1]
        memory = np.zeros((max(1, sum(leg.here for leg in legs)), width), np.int32)
        tables, begin = [], 0
        for leg in legs:
            if not leg.rows:
                continue
            own = memory[begin : begin + leg.here]
            for tokens, place in leg.places(leg.sent):
                own[place] = batch.values[tokens] if phase == "dispatch" else batch.output(worker, tokens)
            tables.append(leg.pieces(width, begin * width, self.config.values))
            begin += leg.here
        return memory.reshape(-1), Route.of(np.concatenate(tables)) if tables else None

    def over(self, part: _Part, worker: int, memory: Words) -> None:
        check = {"gather": self._check_gather, "agree": self._check_agree}.get(part.phase, self._check_rows)
        check(self.batches[part.number], part.phase, worker, memory)
        self._go_on(part.number, part.phase, worker)

    def _go_on(self, number: int, phase: str, worker: int) -> None:
        """Goes on at a worker that has all of a phase."""
        done = self.batches[number].done
        done[phase].add(worker)
        if len(done["combine"]) == self.config.workers:
            vars(self.batches[number]).pop("values", None)  # for the memory
        if phase == "agree":
            self._begin(number, "combine", worker)
        for next_phase, may_begin in (("dispatch", self._may_dispatch), ("agree", self._may_agree)):
            for each in range(number, min(number + AHEAD + 1, len(self.batches))):
                if (each, next_phase, worker) not in self._begun and may_begin(each, worker):
                    self._begun.add((each, next_phase, worker))
                    if next_phase == "dispatch":
                        self._begin(each + 1, "gather", worker)
                    self._begin(each, next_phase, worker)

    def _may_dispatch(self, number: int, worker: int) -> bool:
        """Tells whether a worker knows all experts of a batch, and the batches before are over as far as they must be."""
        before = "dispatch" if self.config.overlap else "combine"
        return (worker in self.batches[number].done["gather"]
                and (number == 0 or worker in self.batches[number - 1].done[before])
                and (number < AHEAD or worker in self.batches[number - AHEAD].done["combine"]))

    def _may_agree(self, number: int, worker: int) -> bool:
        """Tells whether a worker has the batch's rows, and the maxima of the batch before: so that agreements and combines
        have the same order at all workers."""
        return (worker in self.batches[number].done["dispatch"]
                and (number == 0 or worker in self.batches[number - 1].done["agree"]))

    def _check_gather(self, batch: _Batch, phase: str, worker: int, memory: Words) -> None:
        expected = np.concatenate([self._packed(each, batch.words()) for each in batch.experts])
        if not np.array_equal(memory, expected):
            raise WrongSum(f"worker {worker} has other experts of the tokens than they have")

    def _check_agree(self, batch: _Batch, phase: str, worker: int, memory: Words) -> None:
        if (memory != self.config.workers - 1).any():
            raise WrongSum(f"worker {worker} has another maximum than the workers' largest number")

    def _check_rows(self, batch: _Batch, phase: str, worker: int, memory: Words) -> None:
        rows, begin = memory.reshape(-1, batch.shape[1]), 0
        single: dict[int, Words] = {}
        for leg in batch.legs(phase, worker):
            own = rows[begin : begin + leg.here]
            for tokens, place in leg.places(leg.got):
                for token, row in zip(tokens.tolist(), own[place], strict=True):
                    single[token] = single[token] + row if token in single else row
            begin += leg.here
        for token, row in single.items():
            others = batch.seen[worker].others[token]
            if phase == "dispatch":
                right = batch.values[token]
            else:
                ranks = [rank for rank in range(self.config.workers) if others >> np.uint32(rank) & 1]
                right = np.sum([batch.output(rank, np.array([token]))[0] for rank in ranks], axis=0, dtype=np.int32)
            if not np.array_equal(row, right):
                raise WrongSum(f"{phase}: worker {worker} has a wrong row of token {token}")
        got = batch.legs(phase, worker)
        if len(single) != len(np.unique(np.concatenate([leg.got for leg in got]))):
            raise WrongSum(f"{phase}: worker {worker} has {len(single)} rows")


def counts(batches: Sequence[_Batch], workers: int) -> dict[str, npt.NDArray[np.int64]]:
    """Returns rows by batch and worker: its ``own`` tokens that others need, the ``copies`` of these, one for each other worker,
    and those that it ``got`` from others, of which it makes as many outputs."""
    shape = len(batches), workers
    own, copies, got = (np.zeros(shape, np.int64) for _ in range(3))
    for number, batch in enumerate(batches):
        known = batch.seen[0]
        ranks = ranks_in(known.others)
        own[number] = np.bincount(known.source[known.others != 0], minlength=workers)
        copies[number] = np.bincount(known.source, ranks, minlength=workers)
        got[number] = [int((known.others >> np.uint32(worker) & 1).sum()) for worker in range(workers)]
    return {"own": own, "copies": copies, "got": got}


def copies(batch: _Batch) -> exchanges.Rows:
    """Returns how many of each worker's tokens each other worker needs."""
    known, n = batch.seen[0], len(batch.seen)
    to = known.others[:, None] >> np.arange(n, dtype=np.uint32) & 1
    return np.array([to[known.source == worker].sum(axis=0) for worker in range(n)], np.int64)


def hosts_schedule(config: Experts, batches: Sequence[_Batch], servers: exchanges.Servers | None = None) -> collectives.Schedule:
    """Returns the same between hosts: each of a token's other workers gets a copy from its host, and sends a row back; in two
    levels with ``servers``. Phases wait for each other at each worker as they do through the switch. All rows have the same
    place: they have no values. Where NICs have a limit, the earliest phase goes first, as in the queue of one without."""
    levels, rows = 1 if servers is None else 2, [copies(batch) for batch in batches]
    most = max(int(max(each.sum(axis=0).max(), each.sum(axis=1).max())) for each in rows)
    schedule = collectives.Schedule("all-to-all", config.workers, max(1, most), ordered=config.nic > 0)
    same = np.zeros((config.workers, config.workers), np.int64)

    def exchange(rows: exchanges.Rows, after: int, gate: int) -> None:
        if servers is None:
            exchanges.flat(schedule, rows, same, after, gate)
        else:
            exchanges.two_levels(schedule, servers, rows, same, after, gate)

    for number, each in enumerate(rows):
        out = 1 + 2 * levels * number  # the first gate of a phase; its last opens when a worker has all rows
        back = out + levels
        exchange(each, 0 if number == 0 else out - (1 + levels if config.overlap else 1), out)
        exchange(each.T, back - 1, back)
    return schedule


def hosts_seconds(config: Experts, batches: Sequence[_Batch], place: virtual_network.Place,
                  servers: exchanges.Servers | None = None) -> float:
    """Returns how long that takes."""
    schedule = hosts_schedule(config, batches, servers)
    with virtual_network.fabric(config, place) as network:
        job = network.collective(place.hosts(config)[0], schedule, config.values, window=config.flow,
                                 congestion=virtual_network.CONGESTION[config.transport], rto=config.rto_min,
                                 timeout=config.timeout, bare=True)
        arrays = [np.zeros(schedule.parts * config.hidden, np.int32) for _ in range(config.workers)]
        return network.all_reduce(job, arrays).seconds


def run_batches(config: Experts, timeline: Timeline) -> Mixture:
    """Runs all batches. ``timeline`` records the events.

    Raises:
        JobError: a phase failed, at a deadline or otherwise.
        WrongSum: a row or a sum is not the right one.
    """
    limits.must_fit(f"tokens = {config.tokens}, hidden = {config.hidden}: rows that are on their way",
                    AHEAD * (1 + config.top) * config.workers * config.tokens * INT32.bytes(config.hidden))
    place = virtual_network.place(config)
    with virtual_network.fabric(config, place) as network:
        run = _Run(config, network, place)
        run.run(timeline, "batches")
        rows = counts(run.batches, config.workers)
        servers = exchanges.Servers.of([place.topology.switch_of(host) for host in run.hosts])
        return Mixture(
            "switch", INT32.bytes(config.hidden), run.ended, hosts_seconds(config, run.batches, place),
            hosts_seconds(config, run.batches, place, servers) if servers else None,
            float(np.mean([ranks_in(batch.seen[0].targets).mean() for batch in run.batches])),
            {"dispatch": int(rows["own"].sum()), "combine": int(rows["own"].sum()), "hosts": int(rows["copies"].sum()),
             "levels": sum(sum(servers.carried(copies(batch))) for batch in run.batches) if servers else 0},
            stats=run.counters(config), checked=config.payload, **virtual_network.link_figures(network, run.ended))


KIND = Experts
