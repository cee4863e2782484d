"""Communication of a fully sharded training step in virtual time: each worker keeps a piece of every layer's parameters.

    forward     an all-gather of each layer, from the first to the last
    backward    from the last layer to the first, an all-gather again, and a reduce-scatter of the layer's gradients

Through the switch a gather fills the links down to the workers and a reduce-scatter those up, so with ``overlap`` the next layer
is gathered in the backward pass while gradients are on their way. Computing takes no time. Parameters and gradients are int32;
each that comes is compared with the right one. Beside the time stands that of rings between the hosts on the same network, in the
same order. S bytes of all parameters at rate B, n workers, L layers:

    one after the other      3 (1 - 1/n) S/B, of rings, too
    overlapping              (1 - 1/n) S/B + (2 (1 - 1/n) + L - 1) / L S/B; rings fill links both ways, and gain nothing
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ina.aggregation.lane import INT32
from ina.aggregation.worker.route import Route
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
from ina.worlds.virtual import collectives
from ina.worlds.virtual.fabric import Fabric


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

    def summary(self) -> dict[str, object]:
        """Figures of the table."""
        return {
            "job": self.job, "sums": sums(self.checked), "time_ms": 1e3 * self.seconds, "time": self.seconds / self.unit,
            "formula": self.formula, "rings": self.rings_seconds / self.unit, "rings_formula": self.rings_formula,
            "ratio": self.rings_seconds / self.seconds, "up": self.up, "down": self.down, "rings_up": self.rings_up,
            "link_use": self.link_use, "retransmissions": self.stats["workers"]["retransmissions"],
        }


@dataclass(frozen=True)
class Sharded(Routed):
    """A fully sharded training step's communication in virtual time."""

    kind: str = key("sharded", "what is done: sharded", choices=("sharded",))
    name: str = key("sharded", "the results folder's name begins with it")
    layers: int = key(8, "that are gathered by themselves, all of one size", Range(1, 1024))
    elements: int = key(1 << 22, "int32: parameters of all layers", limits.ELEMENTS)
    overlap: bool = key(True, "in the backward pass the next layer is gathered while a layer's gradients are reduced")

    rows = (
        Row("time_ms", "a step's communication, ms", "ms", "{:.4f}"),
        Row("time", "a step's communication, S/B", "S/B", "{:.3f}"),
        Row("formula", "without headers and latency (own formula), S/B", "formula", "{:.3f}"),
        Row("rings", "the same by rings between hosts, S/B", "rings", "{:.3f}"),
        Row("rings_formula", "that without headers and latency, S/B", "formula of rings", "{:.3f}"),
        Row("ratio", "rings over ours", "ratio", "{:.2f}"),
        Row("up", "up a worker's link with headers, S", "up, S", "{:.3f}"),
        Row("down", "down a worker's link with headers, S", "down, S", "{:.3f}"),
        Row("rings_up", "up, and down, of rings, S", "rings up, S", "{:.3f}"),
        Row("link_use", "use of the busiest link", "use", "{:.1%}"),
        Row("retransmissions", "retransmissions (all workers)", "again", "{:,}"),
        SUMS,
    )

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        pieces = self.layers * self.workers
        yield self.elements % pieces == 0, "elements", f"a multiple of {pieces}: layers times workers"
        yield self.rate > 0, "rate", "more than 0: times are in S/B"

    @property
    def work(self) -> str:
        return f"a step of {counted(self.layers, 'layer')} with {self.elements:,} int32 in all"

    def measure(self, timeline: Timeline | None = None) -> list[Step]:
        return [run_step(self.resolved(), timeline or Timeline())]

    def title(self, results: Sequence[Measured]) -> str:
        return f"{counted(self.layers, 'layer')} of {counted(self.workers, 'worker')}"


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
            counted(config.workers, "worker"), 8 * size / config.rate, run.ended, rings_seconds, formula, rings_formula,
            up / size, down / size, rings_up, stats=run.counters(config), checked=config.payload,
            **virtual_network.link_figures(network, run.ended))


KIND = Sharded
