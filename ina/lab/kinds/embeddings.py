"""Embeddings at servers that workers cache with bounded staleness, in virtual time: a skewed table that is really learnt.

HET (Miao et al., Scaling out huge embedding model training via cache-enabled distributed framework, VLDB 2022), by the rules of
the authors' code; ina/lab/virtual/parameter_server/embeddings.py has the cache. Each sample of a worker is of one embedding, by
Zipf's law, which a step of SGD moves towards what is to be learnt, with noise. A worker asks servers for what it lacks,
computes, sends what it may no longer keep back, and begins again. Beside it, the bytes of the same samples without a cache.

In every run, what a worker reads is compared with all updates that any worker has made. The bounds hold for the moment at which
an embedding's server checks the copy's clock, as in the authors' code, which compares clocks at the server: what others make
while the answer is on its way, or while those of other servers are, is beyond them, however much it is. So at each read the copy
may lack no more than the bounds allow of what there was at that check, and what it lacks of all that there is by then is counted.
At the end the servers have every update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check, Finding, Measured, Row
from ina.lab.virtual import virtual_network
from ina.lab.virtual.mailing import Mailing
from ina.lab.virtual.parameter_server.embeddings import MISSING, POLICIES, Cache, Table
from ina.lab.virtual.parameter_server.mail import Mail
from ina.lab.virtual.timeline import Timeline
from ina.lab.virtual.virtual_network import WrongSum
from ina.net.ports import PS

LARGEST = 1e15  # of an error: beyond it squares are no float32
NOISE = 0.5  # standard deviation of a sample around what is to be learnt, which has 1
ASK, ANSWER, SEND, TAKEN = ("ask", "answer", "send", "taken")


class StaleEmbedding(WrongSum):
    """A worker reads an embedding that lacked more updates than the bounds allow when its server checked it."""


@dataclass
class Cached:
    """Result of a run. ``reads``: of distinct embeddings by an iteration: of copies that were new enough, that were too old, and
    that were missing; ``lacking``: updates of others that reads lacked of all that there were, mean and most; ``checked``: the
    most that one lacked when its server checked it, of which so many are ``allowed``; ``error``: mean squared distance of what a
    sample reads to what is to be learnt, over that at the beginning; ``plain_bytes``: of the same samples without a cache."""

    label: str
    workers: int
    seconds: float
    reads: tuple[int, int, int]
    lacking: tuple[float, int]
    checked: int
    allowed: int
    error: float
    sent: dict[str, int]
    plain_bytes: int
    busiest_link: str
    busiest_bytes: int
    link_use: float | None
    stats: dict[str, dict] = field(default_factory=dict)

    def summary(self) -> dict[str, object]:
        """Figures of the table."""
        carried, reads = sum(self.sent.values()), sum(self.reads)
        return {
            "job": self.label, "seconds": self.seconds, "hits": self.reads[0] / reads, "too_old": self.reads[1] / reads,
            "lacking": self.lacking[0], "most_lacking": self.lacking[1], "most_checked": self.checked, "allowed": self.allowed,
            "error": self.error,
            "ask_mb": 1e-6 * self.sent[ASK], "answer_mb": 1e-6 * self.sent[ANSWER],
            "send_mb": 1e-6 * (self.sent[SEND] + self.sent[TAKEN]), "saved": 1 - carried / self.plain_bytes,
            "retransmissions": self.stats["workers"]["retransmissions"],
        }


@dataclass(frozen=True)
class Embeddings(Mailing):
    """Embeddings that workers cache with bounded staleness, in virtual time."""

    guide = "Kind embeddings: a table that workers cache"
    kind: str = key("embeddings", "what is done: embeddings", choices=("embeddings",))
    name: str = key("embeddings", "the results folder's name begins with it")
    servers: int = key(4, "hosts that are parameter servers, each with a range of the embeddings", Range(1, 1024))
    table: int = key(10_000, "embeddings that there are", Range(1, 10**7))
    row_width: int = key(64, "float32 of each", Range(1, 4096))
    skew: float = key(1.0, "exponent of Zipf's law, by which embeddings are drawn; 0: all alike", Range(0, 4))
    room: int = key(1000, "embeddings that a worker's cache has room for; 0: no cache", Range(0, 10**7))
    policy: str = key("lru", "what a full cache evicts: lru (used longest ago) or lfu (used least)", choices=POLICIES)
    pull_bound: int = key(5, "updates of others that servers have and a copy may lack when its clock is checked", Range(0, 10**6))
    push_bound: int = key(5, "updates of its own that a worker may keep back, of each embedding", Range(0, 10**6))
    steps: int = key(100, "iterations of each worker", limits.STEPS)
    batch: int = key(128, "samples of an iteration", Range(1, 10**6))
    lr: float = key(0.02, "learning rate", limits.FACTOR)
    computing: float = key(1e-3, "s that a worker computes in a step, on average", limits.TIME)

    rows = (
        Row("seconds", "all iterations, virtual s", "s", "{:.4f}"),
        Row("hits", "reads of copies that are new enough", "hits", "{:.1%}"),
        Row("too_old", "reads of copies that are too old", "too old", "{:.1%}"),
        Row("lacking", "updates of others that a read lacks, mean", "lacks", "{:.3f}"),
        Row("most_lacking", "most", "most", "{:,}"),
        Row("most_checked", "most when the server checked the copy", "at check", "{:,}"),
        Row("allowed", "as many as are allowed then", "allowed", "{:,}"),
        Row("error", "error of what samples read, over that at the beginning", "error", "{:.3f}"),
        Row("ask_mb", "keys and clocks that workers ask with, MB", "ask MB", "{:.3f}"),
        Row("answer_mb", "embeddings fetched, MB", "fetch MB", "{:.3f}"),
        Row("send_mb", "updates sent, MB", "send MB", "{:.3f}"),
        Row("saved", "bytes less than without a cache", "saved", "{:.1%}"),
        Row("retransmissions", "retransmissions (all hosts)", "again", "{:,}"),
    )

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield self.steps >= 1, "steps", "1 or more"
        yield self.lr < 1, "lr", "less than 1"
        yield self.servers <= self.table, "servers", f"at most {self.table}, the embeddings"

    @property
    def label(self) -> str:
        """Name of the run in the table."""
        bounds = f"pull {self.pull_bound}, push {self.push_bound}"
        return f"{self.policy} of {self.room:,}, {bounds}" if self.room else "no cache"

    @property
    def allowed(self) -> int:
        """Updates of others that a copy may lack when its server checks it: that servers have, and that each other worker keeps
        back or is sending."""
        pull, push = (self.pull_bound, self.push_bound) if self.room else (0, 0)
        return pull + (self.workers - 1) * (push + 1)

    @property
    def work(self) -> str:
        return (f"{self.steps:,} iterations of {self.batch:,} samples of {self.table:,} embeddings of {self.row_width} float32, "
                f"{self.label}")

    def measure(self, timeline: Timeline | None = None) -> list[Cached]:
        limits.must_fit(f"table = {self.table}: targets, servers and their beginning", 12 * self.table * self.row_width)
        return [train(self.resolved(), timeline or Timeline())]

    def title(self, results: Sequence[Measured]) -> str:
        return f"{counted(self.workers, 'worker')}, {self.label}"

    def why(self, run: dict, summary: dict) -> Finding:
        """Says whether workers compute or wait for the servers."""
        share = self.steps * self.computing / summary["seconds"]
        text = f"a worker computes {share:.0%} of the time; {summary['hits']:.0%} of its reads are in its cache and new enough"
        return Finding(summary["job"], "compute" if share > 0.5 else "link", text)


class _Updates:
    """All updates of all workers, by worker and embedding: what a read lacks, told without the cache's clocks. ``made``: there
    are; ``arrived``: the servers have; ``held``: of others, that are in a worker's copy. Of the latest check of each by its
    server: ``were_made`` and ``had``, the updates of others that there were, and that the server had."""

    def __init__(self, workers: int, table: int):
        self.made, self.arrived, self.held, self.were_made, self.had = (
            np.zeros((workers, table), np.int64) for _ in range(5))
        self.most = self.lacking = self.reads = self.checked = 0

    def check(self, worker: int, keys: np.ndarray) -> None:
        """Notes that a server checks the clocks of a worker's copies."""
        self.were_made[worker, keys] = self._others(self.made, worker, keys)
        self.had[worker, keys] = self._others(self.arrived, worker, keys)

    def fetch(self, worker: int, keys: np.ndarray) -> None:
        """Notes that embeddings, as the server had them at its check, have come to a worker."""
        self.held[worker, keys] = self.had[worker, keys]

    def read(self, worker: int, keys: np.ndarray, pull_bound: int, allowed: int) -> None:
        """Notes that a worker reads its copies. Raises StaleEmbedding: one lacks more than ``pull_bound`` updates of those that
        its server had at the check, or more than are ``allowed`` of those that there were."""
        held = self.held[worker, keys]
        lacking = self._others(self.made, worker, keys) - held
        self.most, self.lacking = max(self.most, int(lacking.max())), self.lacking + int(lacking.sum())
        self.reads += len(keys)
        for name, there, bound in (("servers had", self.had, pull_bound), ("there were", self.were_made, allowed)):
            lacked = there[worker, keys] - held
            if lacked.max() > bound:
                raise StaleEmbedding(f"worker {worker} reads embedding {keys[lacked.argmax()]} without {lacked.max()} updates of "
                                     f"others that {name} when it was checked, expected at most {bound}")
        self.checked = max(self.checked, int(lacked.max()))

    def _others(self, updates: np.ndarray, worker: int, keys: np.ndarray) -> np.ndarray:
        return updates[:, keys].sum(axis=0) - updates[worker, keys]


class _Worker:
    """A worker, its cache, and the distinct embeddings of its iteration, with the samples of each."""

    def __init__(self, number: int, config: Embeddings):
        self.number, self.cache = number, Cache(config.room, config.policy, config.push_bound)
        self.rng = np.random.default_rng((config.seed, 3, number))
        self.steps = self.waits = 0  # waits: for so many answers
        self.keys, self.samples = np.empty(0, np.int64), np.empty(0, np.int64)
        self.ended = False


class _Training:
    """All workers and servers, driven by messages. Each server has the embeddings of its range, a table each."""

    def __init__(self, config: Embeddings, mail: Mail, names: Sequence[str]):
        self.config, self.mail, self.names = config, mail, names
        rng = np.random.default_rng((config.seed, 0))
        self.goal = rng.standard_normal((config.table, config.row_width), np.float32)
        self.edges = [config.table * server // config.servers for server in range(config.servers + 1)]
        self.tables = [Table(np.zeros((end - begin, config.row_width), np.float32))
                       for begin, end in zip(self.edges, self.edges[1:], strict=False)]
        self.chance = rng.permutation(np.arange(1.0, config.table + 1) ** -config.skew)  # frequent ones are at all servers
        self.chance /= self.chance.sum()
        self.workers = [_Worker(number, config) for number in range(config.workers)]
        self.updates = _Updates(config.workers, config.table)
        self.reads = [0, 0, 0]
        self.plain_bytes = 0

    # ---- workers

    def begin(self, worker: _Worker) -> None:
        """Draws the samples of an iteration, and asks the servers for what the cache lacks."""
        drawn = worker.rng.choice(len(self.chance), self.config.batch, p=self.chance)
        worker.keys, worker.samples = np.unique(drawn, return_counts=True)
        parts = self._split(worker.keys)
        worker.waits = len(parts)
        clocks = worker.cache.clocks(worker.keys.tolist())
        for server, first, last in parts:
            keys = worker.keys[first:last]
            self.plain_bytes += 4 * (6 + len(keys) * (6 + 2 * self.config.row_width))
            self._to_server(worker, server, ASK, _words([worker.number, len(keys)], keys, clocks[first:last]))

    def _split(self, keys: np.ndarray) -> list[tuple[int, int, int]]:
        """Returns, of sorted keys, each server that has some, and the first and the last of these, the latter not included."""
        bounds = np.searchsorted(keys, self.edges).tolist()
        parts = zip(range(self.config.servers), bounds, bounds[1:], strict=False)
        return [(server, first, last) for server, first, last in parts if last > first]

    def _answered(self, worker: _Worker, keys: np.ndarray, words: np.ndarray) -> None:
        count = int(words[0])
        places, clocks = words[1 : 1 + count], words[1 + count : 1 + 2 * count]
        values = words[1 + 2 * count :].view(np.float32).reshape(count, self.config.row_width)
        worker.cache.fetched(keys[places].tolist(), clocks.tolist(), values)
        self.updates.fetch(worker.number, keys[places])
        worker.waits -= 1
        if not worker.waits:
            self.updates.read(worker.number, worker.keys, self.config.pull_bound if self.config.room else 0, self.config.allowed)
            values = worker.cache.read(worker.keys.tolist())
            self.mail.plan(self.config.computing, partial(self._computed, worker, values))

    def _computed(self, worker: _Worker, values: np.ndarray) -> None:
        """Takes a step towards the mean of each embedding's samples, and sends what may not be kept back."""
        noise = worker.rng.standard_normal(values.shape, np.float32) / np.sqrt(worker.samples[:, None])
        error = values - self.goal[worker.keys] - np.float32(NOISE) * noise
        virtual_network.check_bounded(error, LARGEST, f"an embedding of worker {worker.number} in step {worker.steps + 1}",
                                      self.config.lr)
        self.updates.made[worker.number, worker.keys] += 1
        worker.steps += 1
        sent = worker.cache.update(worker.keys.tolist(), (-np.float32(self.config.lr) * error).astype(np.float32))
        self._send(worker, sent, partial(self._end if worker.steps == self.config.steps else self.begin, worker))

    def _end(self, worker: _Worker) -> None:
        """Sends all that was kept back."""

        def end() -> None:
            worker.ended = True

        self._send(worker, worker.cache.rest(), end)

    def _send(self, worker: _Worker, sent: tuple[np.ndarray, np.ndarray, np.ndarray], then: Callable[[], None]) -> None:
        """Sends updates to the servers, and goes on when they have them."""
        keys, numbers, sums = sent
        parts = self._split(keys)
        worker.waits = len(parts)

        def taken(words: np.ndarray) -> None:
            worker.waits -= 1
            if not worker.waits:
                then()

        for server, first, last in parts:
            words = _words([worker.number, last - first], keys[first:last], numbers[first:last], sums[first:last])
            self._to_server(worker, server, SEND, words, taken)
        if not parts:
            then()

    # ---- servers

    def _to_server(self, worker: _Worker, server: int, kind: str, words: np.ndarray,
                   then: Callable[[np.ndarray], None] | None = None) -> None:
        host, own = self.names[self.config.workers + server], self.names[worker.number]

        def arrived(words: np.ndarray) -> None:
            number, count = words[:2].tolist()
            keys, second, rest = words[2 : 2 + count], words[2 + count : 2 + 2 * count], words[2 + 2 * count :]
            if kind == ASK:
                answer = self._ask(server, number, keys, second)
                self.mail.send(host, own, answer, ANSWER, partial(self._answered, worker, keys.astype(np.int64)))
            elif then is not None:
                self._take(server, number, keys, second, rest.view(np.float32).reshape(count, -1))
                self.mail.send(host, own, np.zeros(1, np.int32), TAKEN, then)

        self.mail.send(own, host, words, kind, arrived)

    def _ask(self, server: int, worker: int, keys: np.ndarray, clocks: np.ndarray) -> np.ndarray:
        """Returns a server's answer: places among the keys, clocks and values of what is missing or too old."""
        table, local = self.tables[server], keys - self.edges[server]
        places = table.outdated(local, clocks, self.config.pull_bound)
        missing = int(np.count_nonzero(clocks == MISSING))
        self.reads = [a + b for a, b in zip(self.reads, (len(keys) - len(places), len(places) - missing, missing), strict=True)]
        self.updates.check(worker, keys)
        rows = local[places]
        return _words([len(places)], places, table.clocks[rows], table.values[rows])

    def _take(self, server: int, worker: int, keys: np.ndarray, numbers: np.ndarray, changes: np.ndarray) -> None:
        self.updates.arrived[worker, keys] += numbers
        self.tables[server].add(keys - self.edges[server], numbers, changes)

    # ---- figures

    def error(self) -> float:
        """Returns the mean squared distance of what a sample reads from the servers to what is to be learnt, over the first."""
        values = np.concatenate([table.values for table in self.tables])
        return float(self.chance @ ((values - self.goal) ** 2).sum(axis=1) / (self.chance @ (self.goal**2).sum(axis=1)))

    def check(self) -> None:
        """Compares the servers' clocks with all updates that workers have made. Raises WrongSum."""
        clocks, made = np.concatenate([table.clocks for table in self.tables]), self.updates.made.sum(axis=0)
        if np.any(clocks != made):
            wrong = int(np.flatnonzero(clocks != made)[0])
            raise WrongSum(f"embedding {wrong}: servers have {clocks[wrong]} updates, workers have made {made[wrong]}")


def _words(numbers: Sequence[int], *parts: np.ndarray) -> np.ndarray:
    """Returns 32-bit words: numbers, then integers, or float32 values."""
    words = [part.ravel().view(np.int32) if part.dtype == np.float32 else part.astype(np.int32) for part in parts]
    return np.concatenate([np.array(numbers, np.int32), *words])


def train(config: Embeddings, timeline: Timeline) -> Cached:
    """Trains until all workers have ended. ``timeline`` records the network's events.

    Raises:
        JobError: a message failed, at a deadline or otherwise.
        StaleEmbedding: a worker's copy lacked more updates than the bounds allow when its server checked it.
        WrongSum: an update is at no server, or twice.
    """
    place = virtual_network.place(config, more=config.servers)
    names = [host.name for host in place.topology.hosts]
    with virtual_network.fabric(config, place) as network:
        mail = Mail(config, network)
        training = _Training(config, mail, names)
        for worker in training.workers:
            training.begin(worker)
        mail.run(timeline, lambda: all(worker.ended for worker in training.workers))
        training.check()
        seconds, updates = mail.now / PS, training.updates
        return Cached(
            config.label, config.workers, seconds, (training.reads[0], training.reads[1], training.reads[2]),
            (updates.lacking / updates.reads, updates.most), updates.checked, config.allowed, training.error(),
            {kind: mail.bytes[kind] for kind in (ASK, ANSWER, SEND, TAKEN)}, training.plain_bytes,
            stats=virtual_network.counters(network, config, mail.jobs, names),
            **virtual_network.link_figures(network, seconds))


KIND = Embeddings
