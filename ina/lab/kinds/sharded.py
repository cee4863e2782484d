"""Communication of a fully sharded training step: each worker keeps a piece of every layer's parameters.

    forward     an all-gather of each layer, from the first to the last
    backward    from the last layer to the first, an all-gather again, and a reduce-scatter of the layer's gradients

Through the switch a gather fills the links down to the workers and a reduce-scatter those up, so with ``overlap`` the next layer
is gathered in the backward pass while gradients are on their way. Beside the time stands that of rings between the hosts on the
same network, in the same order. S bytes of all parameters at rate B, n workers, L layers:

    one after the other      3 (1 - 1/n) S/B, of rings, too
    overlapping              (1 - 1/n) S/B + (2 (1 - 1/n) + L - 1) / L S/B; rings fill links both ways, and gain nothing

In virtual time computing takes no time; parameters and gradients are int32, and each that comes is compared with the right one.
In the testbed torch's FSDP2 trains by the clock on the wall (ina/lab/training/sharded_rank.py), through the switch and by Gloo.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console

from ina.aggregation.lane import INT32
from ina.aggregation.worker.route import Route
from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check, Finding, Measured, Outcome, Row
from ina.lab.processes import testbed
from ina.lab.processes.real_network import real_network
from ina.lab.training import launch
from ina.lab.virtual import virtual_network
from ina.lab.virtual.routed import Driven, Routed, Words
from ina.lab.virtual.simulated import SUMS, sums
from ina.lab.virtual.timeline import Timeline
from ina.lab.virtual.virtual_network import WrongSum
from ina.worlds.testbed.mininet import Network
from ina.worlds.virtual import collectives
from ina.worlds.virtual.fabric import Fabric

DTYPES = {"virtual": "int32", "testbed": "float32"}  # of parameters and gradients, by world
WAYS = ("ina", "rings", "gloo")  # of the testbed: the switch, rings of Gloo's messages, and Gloo's own collectives
START = 180.0  # s for all ranks to be there
JOB = "switch"  # the same at every point of a sweep, which makes them one line of a plot


@dataclass
class Step:
    """Result of a run. ``unit``: S/B, s; ``up``, ``down``: bytes of the busiest worker's link with all headers, over S;
    ``rings_up``: the same of rings, in either direction; ``formula``, ``rings_formula``: times without headers and latency, in
    S/B."""

    job: str
    unit: float
    seconds: float
    rings_seconds: float
    formula: float
    rings_formula: float
    up: float
    down: float
    rings_up: float
    busiest_link: str
    busiest_bytes: int
    link_use: float | None
    stats: dict[str, dict] = field(default_factory=dict)
    checked: bool = True
    each: list[float] = field(default_factory=list)  # s of each step, of which `seconds` is the median; from here on: testbed
    rings_each: list[float] = field(default_factory=list)
    gloo_each: list[float] = field(default_factory=list)  # by Gloo's own collectives
    gloo_up: float | None = None  # as rings_up
    bound: str | None = None  # by link, host-limited, or neither
    rings_bound: str | None = None

    def summary(self) -> dict[str, object]:
        """Figures of the table."""
        return {
            "job": self.job, "sums": sums(self.checked), "time_ms": 1e3 * self.seconds, "time": self.seconds / self.unit,
            "formula": self.formula, "rings": self.rings_seconds / self.unit, "rings_formula": self.rings_formula,
            "ratio": self.rings_seconds / self.seconds, "up": self.up, "down": self.down, "rings_up": self.rings_up,
            "link_use": self.link_use, "retransmissions": self.stats["workers"]["retransmissions"],
            "least": self._in_units(min, self.each), "most": self._in_units(max, self.each),
            "rings_least": self._in_units(min, self.rings_each), "rings_most": self._in_units(max, self.rings_each),
            "gloo": self._in_units(statistics.median, self.gloo_each), "gloo_up": self.gloo_up,
            "bound": self.bound, "rings_bound": self.rings_bound,
        }

    def _in_units(self, which: Callable[[Iterable[float]], float], each: Sequence[float]) -> float | None:
        """Returns one of the steps' times in S/B; None in virtual time, which has no others."""
        return which(each) / self.unit if each else None


@dataclass(frozen=True)
class Sharded(Routed):
    """A fully sharded training step's communication, in virtual time or in the testbed."""

    meanings = {
        "time": "S is the bytes of all parameters, B the rate of a link: 1 is the time in which a link sends all "
                "parameters once.",
    }
    guide = "A sharded step"
    kind: str = key("sharded", "what is done: sharded", choices=("sharded",))
    name: str = key("sharded", "the results folder's name begins with it")
    world: str = key("virtual", "where: virtual (the event clock; every run of one seed is equal to the bit), or testbed "
                     "(torch's FSDP2 in the hosts of a Mininet network, by the clock on the wall)", choices=tuple(DTYPES))
    layers: int = key(8, "that are gathered by themselves, all of one size", Range(1, 1024))
    elements: int = key(1 << 22, "int32: parameters of all layers", limits.ELEMENTS)
    overlap: bool = key(True, "in the backward pass the next layer is gathered while a layer's gradients are reduced")
    rto_min: float = key(0.0, "virtual time: least retransmission time-out, s; 0: 100 us; the testbed's back end has its own",
                         limits.TIME)
    rto_max: float = key(0.0, "virtual time: largest, s; 0: 10 ms", limits.TIME)
    steps: int = key(5, "testbed: measured steps, after one that is not; the median counts", Range(1, 10**6))
    dtype: str = key("", "int32 in virtual time, float32 in the testbed; empty: the world's", choices=("", *DTYPES.values()))

    rows = (
        Row("time_ms", "a step's communication, ms", "ms", "{:.4f}"),
        Row("time", "a step's communication, S/B", "S/B", "{:.3f}"),
        Row("formula", "without headers and latency (own formula), S/B", "formula", "{:.3f}"),
        Row("rings", "the same by rings between hosts, S/B", "rings", "{:.3f}"),
        Row("rings_formula", "that without headers and latency, S/B", "formula of rings", "{:.3f}"),
        Row("ratio", "rings over ours", "ratio", "{:.2f}"),
        Row("least", "the fastest step, S/B", "fastest", "{:.3f}"),
        Row("most", "the slowest step, S/B", "slowest", "{:.3f}"),
        Row("rings_least", "the fastest step by rings, S/B", "fastest of rings", "{:.3f}"),
        Row("rings_most", "the slowest step by rings, S/B", "slowest of rings", "{:.3f}"),
        Row("up", "up a worker's link with headers, S", "up, S", "{:.3f}"),
        Row("down", "down a worker's link with headers, S", "down, S", "{:.3f}"),
        Row("rings_up", "up, and down, of rings, S", "rings up, S", "{:.3f}"),
        Row("gloo", "by Gloo's own collectives, S/B", "gloo", "{:.3f}"),
        Row("gloo_up", "up, and down, of these, S", "gloo up, S", "{:.3f}"),
        Row("link_use", "use of the busiest link", "use", "{:.1%}"),
        Row("retransmissions", "retransmissions (all workers)", "again", "{:,}"),
        Row("bound", "bound by", "bound", "{}"),
        Row("rings_bound", "rings are bound by", "rings bound", "{}"),
        SUMS,
    )

    def derived(self) -> dict[str, object]:
        return {**super().derived(), "dtype": self.dtype or DTYPES[self.world]}

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        where = f"in world = {self.world!r}"
        yield self.dtype == DTYPES[self.world], "dtype", f"{DTYPES[self.world]} {where}"
        if self.world == "testbed":
            for name in ("nic", "sample", "latency", "ecn", "host_packet", "host_byte", "duplicate", "reorder", "corrupt"):
                yield getattr(self, name) == 0, name, f"0 {where}"
        pieces = self.layers * self.workers
        yield self.elements % pieces == 0, "elements", f"a multiple of {pieces}: layers times workers"
        yield self.rate > 0, "rate", "more than 0: times are in S/B"

    @property
    def work(self) -> str:
        return f"a step of {counted(self.layers, 'layer')} with {self.elements:,} int32 in all"

    def run(self, folder: Path, console: Console) -> Iterator[Outcome]:
        return super().run(folder, console) if self.world == "virtual" else in_testbed(self.resolved(), folder, console)

    def measure(self, timeline: Timeline | None = None) -> list[Step]:
        return [run_step(self.resolved(), timeline or Timeline())]

    def title(self, results: Sequence[Measured]) -> str:
        return f"{counted(self.layers, 'layer')} of {counted(self.workers, 'worker')}"

    def why(self, run: dict, summary: dict) -> Finding:
        if self.world == "virtual":
            return super().why(run, summary)
        text = (f"{summary['time']:.2f} S/B a step, {summary['formula']:.2f} on links alone; the busiest link was used for "
                f"{summary['link_use']:.0%} of the time; processors were busy for {run['stats']['processors']['ina']:.0%}")
        return Finding(str(summary["job"]), str(summary["bound"]), text)


@dataclass(frozen=True)
class Collective:
    """``reduces``: a reduce-scatter, else an all-gather; ``after``: the number of that which must be over at a worker, or -1."""

    reduces: bool
    layer: int
    after: int

    def __str__(self) -> str:
        return f"{'reduce-scatter' if self.reduces else 'all-gather'} of layer {self.layer}"


def collectives_of(config: Sharded) -> list[Collective]:
    """Returns a step's collectives in order."""
    forward = [Collective(False, layer, layer - 1) for layer in range(config.layers)]
    backward: list[Collective] = []
    for layer in reversed(range(config.layers)):
        gather = len(forward) + len(backward)
        ahead = config.overlap and bool(backward)  # it does not wait for the reduce-scatter before it
        backward += [Collective(False, layer, gather - 1 - ahead), Collective(True, layer, gather)]
    return forward + backward


def formulas(config: Sharded) -> tuple[float, float]:
    """Returns the times of a step through the switch and by rings, in S/B."""
    most, layers = 1 - 1 / config.workers, config.layers
    return (most + (2 * most + layers - 1) / layers if config.overlap else 3 * most), 3 * most


class _Values:
    """Values of each worker: a piece of each layer's parameters, and gradients of all of them."""

    def __init__(self, config: Sharded):
        self.workers = config.workers
        rng = np.random.default_rng(config.seed)
        self.parameters = rng.integers(-(2**31), 2**31, (config.layers, config.elements // config.layers), np.int32)
        self.piece = self.parameters.shape[1] // config.workers

    def own(self, worker: int) -> slice:
        return slice(self.piece * worker, self.piece * (worker + 1))

    def gathered(self, layer: int, worker: int) -> Words:
        """Returns a layer with nothing but the worker's piece."""
        memory = np.zeros_like(self.parameters[layer])
        memory[self.own(worker)] = self.parameters[layer, self.own(worker)]
        return memory

    def gradients(self, layer: int, worker: int) -> Words:
        """Returns a worker's gradients; they wrap."""
        return self.parameters[layer] * np.int32(2 * worker + 3) + np.int32(worker)

    def check(self, collective: Collective, worker: int, memory: Words) -> None:
        """Raises WrongSum: that is not what the worker should have."""
        layer, own = collective.layer, self.own(worker)
        if collective.reduces:
            right = np.sum([self.gradients(layer, each)[own] for each in range(self.workers)], axis=0, dtype=np.int32)
            memory = memory[own]
        else:
            right = self.parameters[layer]
        if not np.array_equal(memory, right):
            raise WrongSum(f"{collective}: worker {worker} has other values than it should")


class _Run(Driven[Collective]):
    """One job gathers, and one reduces."""

    def __init__(self, config: Sharded, network: Fabric, place: virtual_network.Place):
        super().__init__(config, network, place, ("gather", "reduce"))
        self.collectives, self.values = collectives_of(config), _Values(config)
        self.left = config.workers * len(self.collectives)

    def start(self, worker: int) -> None:
        self._begin_after(-1, worker)

    def _begin_after(self, number: int, worker: int) -> None:
        """Submits a worker's part of what waits for this collective."""
        pieces = [self.values.piece] * self.values.workers
        for following, collective in enumerate(self.collectives):
            if collective.after == number:
                job, make, values = (("reduce", Route.reduce_scatter, self.values.gradients) if collective.reduces
                                     else ("gather", Route.all_gather, self.values.gathered))
                memory = values(collective.layer, worker)
                self.submit(job, collective, worker, memory, tag=following, route=make(pieces))

    def over(self, part: Collective, worker: int, memory: Words) -> None:
        self.values.check(part, worker, memory)
        self.left -= 1
        self._begin_after(self.collectives.index(part), worker)

    def finished(self) -> bool:
        return not self.left


def rings_schedule(config: Sharded) -> collectives.Schedule:
    """Returns the same by rings: parameters, then room for gradients, are the tensor. What may overlap takes turns."""
    n, slices, layers = config.workers, config.slices, config.layers
    schedule = collectives.Schedule("rings", n, 2 * layers * n * slices)
    steps = collectives_of(config)
    gates = (n - 1) * slices  # of a collective; the last opens when a worker has all of it
    first = 0
    while first < len(steps):
        together = 2 if first + 1 < len(steps) and steps[first + 1].after < first else 1
        for turn, part, number, rank in itertools.product(range(n - 1), range(slices), range(first, first + together), range(n)):
            step = steps[number]
            chunk = (rank - step.reduces - turn) % n
            at = ((step.reduces * layers + step.layer) * n + chunk) * slices + part
            gate = 1 + number * gates + turn * slices + part
            after = gate - slices if turn else (step.after + 1) * gates
            last = (number + 1) * gates if turn == n - 2 else gate
            kind = collectives.ADD if step.reduces else collectives.COPY
            schedule.move(rank, (rank + 1) % n, (at, at + 1), kind, after, (gate, last))
        first += together
    return schedule


def run_rings(config: Sharded, values: _Values, place: virtual_network.Place) -> tuple[float, float]:
    """Returns how long that takes, and the bytes up the busiest worker's link, over S."""
    hosts = place.hosts(config)[0]
    with virtual_network.fabric(config, place) as network:
        job = network.collective(hosts, rings_schedule(config), config.values, window=config.flow,
                                 congestion=virtual_network.CONGESTION[config.transport], rto=config.rto_min,
                                 timeout=config.timeout)
        layers = range(config.layers)
        arrays = [np.concatenate([*(values.gathered(layer, worker) for layer in layers),
                                  *(values.gradients(layer, worker) for layer in layers)]) for worker in range(config.workers)]
        outcome = network.all_reduce(job, arrays)
        outcome.raise_failed()
        for worker, array in enumerate(arrays):
            for reduces, layer in itertools.product((False, True), layers):
                memory = array.reshape(2, config.layers, -1)[int(reduces), layer]
                values.check(Collective(reduces, layer, -1), worker, memory)
        return outcome.seconds, link_bytes(network, hosts)[0] / INT32.bytes(config.elements)


def link_bytes(network: Fabric, hosts: Sequence[str]) -> tuple[int, int]:
    """Returns the bytes up and down of the workers' busiest links, with all headers."""
    links = network.links()
    return max(each.bytes for each in links if each.source in hosts), max(each.bytes for each in links if each.target in hosts)


def run_step(config: Sharded, timeline: Timeline) -> Step:
    """Runs the step. ``timeline`` records the events.

    Raises:
        JobError: a collective failed, at a deadline or otherwise.
        WrongSum: a parameter or a sum is not the right one.
    """
    size = INT32.bytes(config.elements)
    limits.must_fit(f"elements = {config.elements}: parameters and gradients of {counted(config.workers, 'worker')}",
                    2 * config.workers * size)
    place = virtual_network.place(config)
    with virtual_network.fabric(config, place) as network:
        run = _Run(config, network, place)
        run.run(timeline, "step")
        up, down = link_bytes(network, run.hosts)
        rings_seconds, rings_up = run_rings(config, run.values, place)
        formula, rings_formula = formulas(config)
        return Step(
            JOB, 8 * size / config.rate, run.ended, rings_seconds, formula, rings_formula,
            up / size, down / size, rings_up, stats=run.counters(config), checked=config.payload,
            **virtual_network.link_figures(network, run.ended))


# ---- in the testbed


@dataclass(frozen=True)
class Trained:
    """Measurements of a training in one of the WAYS. ``each``: s of each step, from the first rank's begin to the last one's end;
    ``hosts``: of the ranks; ``stats``: of each one's back end."""

    each: list[float]
    use: testbed.Use
    hosts: Sequence[str]
    stats: list[dict]

    @property
    def seconds(self) -> float:
        return statistics.median(self.each)

    def bytes(self, way: str) -> float:
        """Returns the bytes of a step on the busiest worker's link, with all headers. ``way``: up or down."""
        return max(self.use["links"][host][f"{way}_bytes"] for host in self.hosts) / len(self.each)

    def most_bytes(self) -> float:
        """Returns the larger of both."""
        return max(map(self.bytes, ("up", "down")))

    def bound(self, least: float) -> str:
        """Returns the bottleneck. ``least``: s that a step takes on these links alone, without headers."""
        return testbed.bottleneck(least / self.seconds, self.use["processors"])


def in_testbed(config: Sharded, folder: Path, console: Console) -> Iterator[Outcome]:
    """Trains in all WAYS on the same links, one after the other. Raises JobFailed; ConfigError: there is no such network here."""
    place = virtual_network.place(config)
    hosts = place.hosts(config)[0]
    with testbed.opened(real_network(config, place, job_slots=config.window)) as network:
        trained = {}
        for way in WAYS:
            trained[way] = train(config, way, folder, network, hosts)
            each = ", ".join(f"{1e3 * seconds:.0f}" for seconds in trained[way].each)
            console.print(f"{counted(config.workers, 'worker')}, {way}: steps took {each} ms", highlight=False)
    yield Outcome([compared(config, **trained)])


def train(config: Sharded, way: str, folder: Path, network: Network, hosts: Sequence[str]) -> Trained:
    """Trains in one of the WAYS in the hosts of a network that is up. Raises JobFailed."""
    meter, uses = testbed.Meter(network), []

    def on_message(message: dict) -> None:
        if message["kind"] == "start":
            meter.start()
        else:
            uses.append(meter.stop())

    command = ["-m", "ina.lab.training.sharded_rank", str(folder / "config.json"), way, str(folder)]
    launch.run(command, config.workers, folder, way, START + config.timeout * (1 + config.steps), on_message,
               testbed.place(network, hosts))
    reports = [json.loads((folder / f"{way}-rank{rank}.json").read_text()) for rank in range(config.workers)]
    each = [max(ended for _, ended in step) - min(began for began, _ in step)
            for step in zip(*(report["steps"] for report in reports), strict=True)]
    return Trained(each, uses[0], hosts, [report["stats"] for report in reports])


def compared(config: Sharded, ina: Trained, rings: Trained, gloo: Trained) -> Step:
    """Returns the result of the trainings."""
    size = INT32.bytes(config.elements)
    unit = 8 * size / config.rate
    formula, rings_formula = formulas(config)
    links = ina.use["links"]
    busy, busiest, load = max(
        (8 * link[f"{way}_bytes"] / (link["rate"] or testbed.UNLIMITED), f"{name} {way}", int(link[f"{way}_bytes"]))
        for name, link in links.items() for way in ("up", "down"))
    workers = [stats["worker"] for stats in ina.stats]
    return Step(
        JOB, unit, ina.seconds, rings.seconds, formula, rings_formula, ina.bytes("up") / size,
        ina.bytes("down") / size, rings.most_bytes() / size, busiest, load, busy / sum(ina.each),
        stats={"workers": {name: sum(each[name] for each in workers) for name in workers[0] if not name.endswith("_ps")},
               "network": links,
               "processors": {"ina": ina.use["processors"], "rings": rings.use["processors"], "gloo": gloo.use["processors"]}},
        each=ina.each, rings_each=rings.each, gloo_each=gloo.each, gloo_up=gloo.most_bytes() / size,
        bound=ina.bound(formula * unit), rings_bound=rings.bound(rings_formula * unit))


KIND = Sharded
