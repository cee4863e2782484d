"""Trainings: one model with torch, by each back end in turn: Gloo's, and in-network aggregation by its protocols.

Ranks are processes on this machine, or in the hosts of a Mininet network.
"""

from __future__ import annotations

import dataclasses
import html
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from ina import codecs
from ina.aggregation import protocols
from ina.aggregation.lane import INT32
from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import ConfigError, Problem, key
from ina.codecs import planner
from ina.lab import cost_model, limits
from ina.lab.cost_model import ETHERNET
from ina.lab.kind import Check, Curve, Finding, Measured, Outcome, Row
from ina.lab.processes import testbed
from ina.lab.processes.hosts import BMV2_WINDOW, SWITCH, SWITCHES, Placed, described, hosts_of, server_host
from ina.lab.results import journal, progress, report, why
from ina.lab.training import launch
from ina.net.faults import parse_faults
from ina.topology import TopologyError
from ina.topology.points import points
from ina.worlds.testbed.mininet import Network

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MODELS = {"cnn": 409_034, "small": 39_418, "transformer": 71_370}  # training/models.py; and their numbers of parameters
TNA_VALUES = 256  # a packet recirculates for each 32 of them
BACKENDS = ("ina", *protocols.names(), "gloo")


def from_environment(name: str, default: int) -> int:
    """Returns the default of a key from the environment, or ``default``; results record the value either way."""
    text = os.environ.get(name, "")
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigError(f"{name} = {text[:40]!r}: expected a number up to 999999999")
    return int(text) if text else default


@dataclass
class Run:
    """Results of one back end in a training. Seconds and bytes; one entry for each step in the lists."""

    backend: str
    losses: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    allreduce_seconds: list[float] = field(default_factory=list)
    allreduce_bytes: list[int] = field(default_factory=list)
    accuracy: float | None = None
    seconds: float | None = None
    start_seconds: float | None = None  # from the launch to the first step
    dataset: str = ""
    parameters: int = 0
    stats: dict[str, dict] = field(default_factory=dict)
    network: testbed.Use = field(default_factory=testbed.Use)
    accuracies: list[tuple[int, float]] = field(default_factory=list)  # on the way: steps, test accuracy
    target: float = 0.0
    workers: int = 1

    def _link_figures(self) -> dict[str, object]:
        """Returns figures of the busiest link and direction: MB, with all headers, and its use while an all-reduce was under way.

        ``bound`` is the bottleneck (testbed.bottleneck); a row that is host-limited is no result.
        """
        if not self.network:
            return {"link_mb": None, "link_use": None, "bound": None}
        processors = self.network["processors"]
        if not self.network["links"]:  # links of the local world are memory
            return {"link_mb": None, "link_use": None, "bound": testbed.bottleneck(None, processors)}
        carried = [(max(link["up_bytes"], link["down_bytes"]), link["rate"]) for link in self.network["links"].values()]
        busiest, rate = max(carried, key=lambda link: link[0] / (link[1] or testbed.UNLIMITED))  # the one that is busy longest
        reduce_total = sum(self.allreduce_seconds)
        use = 8 * busiest / (rate * reduce_total) if rate and reduce_total else None
        bound = testbed.bottleneck(use, processors, self.network.get("switch") == "bmv2")
        return {"link_mb": 1e-6 * busiest, "link_use": use, "bound": bound}

    def _values(self) -> tuple[float, float] | None:
        """Returns bytes of values that rank 0 sent and received, without headers; what went through Gloo as its ring has it."""
        ring = 2 * (self.workers - 1) / self.workers
        if self.backend == "gloo":
            return ring * sum(self.allreduce_bytes), ring * sum(self.allreduce_bytes)
        if "switch" not in self.stats:
            return None
        up = down = self.stats["switch"]["bytes"]
        elements = self.stats["switch"]["elements"]
        for name, counts in self.stats.get("codecs", {}).items():
            traffic = codecs.named(name).traffic(counts["elements"] // counts["sums"], self.workers)
            words, most = INT32.bytes(counts["words"]), max(traffic.up, traffic.down)
            up -= words * (1 - traffic.up / most)  # a program's own packets may be narrower than words, one way
            down -= words * (1 - traffic.down / most)
            elements += counts["elements"] - counts["words"]
        rest = ring * max(0, sum(self.allreduce_bytes) - INT32.bytes(elements))
        return up + rest, down + rest

    def _target(self) -> dict[str, object]:
        """Returns the steps and the time, without measurements of the accuracy, to the first one at the target."""
        steps = next((step for step, accuracy in self.accuracies if self.target and accuracy >= self.target), None)
        return {"target_steps": steps, "target_s": None if steps is None else sum(self.step_seconds[:steps])}

    def summary(self) -> dict[str, object]:
        """Returns figures of the table. Goodput is gradient bits of one worker per second of all-reduce; a training that diverged
        has no loss."""
        warm = slice(min(3, len(self.step_seconds) - 1), None)
        reduce_total = sum(self.allreduce_seconds)
        worker, values = self.stats.get("worker", {}), self._values()
        loss = statistics.fmean(self.losses[-20:])
        up, down = (None, None) if values is None else (1e-3 * each / len(self.losses) for each in values)
        return {
            "backend": self.backend,
            "accuracy": self.accuracy,
            "loss": loss if math.isfinite(loss) else None,
            **self._target(),
            "up_kb": up,
            "down_kb": down,
            "step_ms": 1e3 * statistics.median(self.step_seconds[warm]),
            "allreduce_ms": 1e3 * statistics.median(self.allreduce_seconds[warm]),
            "goodput_gbps": 8e-9 * sum(self.allreduce_bytes) / reduce_total if reduce_total else None,
            "training_s": self.seconds,
            "start_s": self.start_seconds,
            "steps": len(self.losses),
            "packets": worker.get("tx_packets"),
            "retransmissions": worker.get("retransmissions"),
            "spurious": worker.get("spurious"),
            "delays": worker.get("delays"),
            **self._link_figures(),
        }


@dataclass(frozen=True)
class Training(Placed):
    """Training: one model, trained by each back end in turn."""

    guide = "Kind training: a model trained by each back end"
    kind: str = key("training", "what is done: training", choices=("training",))
    name: str = key("fashion-mnist", "the results folder's name begins with it")
    world: str = key("local", "where: local (processes on this machine) or testbed (hosts of a Mininet network)",
                     choices=("local", "testbed"))
    backends: tuple[str, ...] = key(
        ("ina", "gloo"), f"of ina (with the protocol below), {', '.join(protocols.names())}, gloo; in this order"
    )
    workers: int = key(4, "ranks", limits.WORKERS)
    model: str = key("", "cnn (409,034 parameters), small (39,418) or transformer (71,370, over an image's rows); empty: cnn, "
                     "with BMv2 small", choices=("", *MODELS))
    epochs: int = key(2, "passes over the training set", Range(1, 10**6))
    steps: int = key(0, "stop after this many; 0: whole epochs, with BMv2 100", limits.STEPS)
    batch: int = key(64, "images per worker and step", Range(1, 65536, "images that are in memory at once"))
    lr: float = key(0.05, "SGD's learning rate", limits.FACTOR)
    momentum: float = key(0.9, "SGD's momentum", Range(0, 1))
    seed: int = key(1, "of initial parameters and order of the images", limits.SEED)
    data: str = key("", "folder of the IDX files; empty: where the distribution's package puts them")
    bucket_mb: float = key(0.5, "DDP's gradient bucket, MiB", limits.MIB)
    protocol: str = key(protocols.DEFAULT, "what switch and workers speak")
    codec: str = key(codecs.DEFAULT, "how gradients travel with ina: any codec (docs/guide/codecs.md); one that remembers "
                     "(error feedback) is made for each bucket; auto:NAME,NAME chooses by measured times")
    complete: str = key("", "k=3: the average of the first 3 ranks that are ready is enough, with back ends whose protocol has "
                        "that (quorum); dynamic: each round's number follows from the times of earlier ones; empty: of all")
    least: int = key(1, "ranks that an average has at least, with complete = 'dynamic' or after a deadline",
                     Range(1, 32, "ranks", "workers"))
    late: str = key("next", "what is late: is added to the rank's next gradient, or dropped (drop)", choices=("next", "drop"))
    deadline: float = key(0.0, "s after a rank has given, from which on the average of those that have is enough for it; 0: none",
                          limits.TIME)
    pause: float = key(0.0, "s that each rank does nothing in each step, on average, of exponential times; as slow ranks do",
                       limits.TIME)
    evaluate: int = key(0, "steps between measurements of the test accuracy, of 2,000 images; no time of the training; 0: only "
                        "at the end", limits.STEPS)
    target: float = key(0.0, "test accuracy whose time is reported, by the first measurement that reaches it; 0: none",
                        limits.PROBABILITY)
    program: str = key("", "P4 program: a name in p4/, or the path of a .p4 file; empty: the protocol's own")
    values: int = key(0, "int32 per packet; 0: INA_VALUES or 2048, in the testbed what fits its MTU", limits.PACKET)
    slots: int = key(0, "window of each worker, packets; a power of two; 0: INA_SLOTS or 64, in the testbed 32, with BMv2 8",
                     limits.SLOTS)
    check: str = key("", "how check words protect sums: off, sum or keyed; empty: sum, where the protocol has them",
                     choices=("", *protocols.CHECKS))
    faults: str = key("", "such as loss=0.01,dup=0.01,reorder=0.01,seed=1: on every worker's port, both directions")
    pcap: str = key("", "folder for a capture of each worker's packets, which Wireshark and scapy read; empty: none")
    timeout: float = key(60.0, "seconds that a rank waits for an all-reduce", limits.TIME)
    record: str = key("", "CSV file: what worker 0 computes with the first back end, as a workload for virtual time; empty: none")
    compare_step: int = key(100, "parameters of the back ends are compared after this many steps", Range(1, 10**9))
    rate: float = key(100e6, "testbed: of each link and direction, bit/s; 0: no limit", limits.LINK_RATE)
    delay: float = key(0.0, "testbed: of each link, one way, s", limits.DELAY)
    queue: int = key(524288, "testbed: of each link and direction, bytes; 0: no limit", limits.LINK_QUEUE)
    buffer: int = key(0, "testbed: of each switch, bytes: what may wait for all of its links together; 0: no limit, or a file's",
                      limits.BYTES)
    loss: float = key(0.0, "testbed: probability that a link loses a frame, each way", limits.PROBABILITY)
    mtu: int = key(1500, "testbed: largest IP packet, bytes", Range(576, 9000, "bytes", "B"))
    topology: str = key("star", "testbed: the network, such as star, fat-tree k=4, or a .toml file (ina topo list)")
    hosts: str = key("", "testbed: where the ranks are, such as h1,h5,h9-h12, in this order; empty: h1, h2, ...")
    switch: str = key("embedded", SWITCH, choices=SWITCHES)
    cables: str = key("", "testbed: of what links between switches are: memory or veth; empty: memory where the switch can")
    points: str = key("", "testbed: captured into pcap as well: ports, links, hosts, switches (s1-eth1,h1-s1,h2,s2), or all")

    rows = (
        Row("accuracy", "test accuracy", "accuracy", "{:.2%}"),
        Row("loss", "training loss, last 20 steps", "loss", "{:.4f}"),
        Row("target_steps", "steps to the target accuracy", "to target", "{:,}"),
        Row("target_s", "time to the target accuracy, s", "s to target", "{:.2f}"),
        Row("step_ms", "median step, ms", "ms/step", "{:.1f}"),
        Row("allreduce_ms", "in all-reduce, median, ms", "reduce ms", "{:.2f}"),
        Row("goodput_gbps", "goodput, mean, Gb/s", "Gb/s", "{:.3g}"),
        Row("up_kb", "values sent a step, kB (rank 0)", "kB up", "{:.1f}"),
        Row("down_kb", "values received a step, kB (rank 0)", "kB down", "{:.1f}"),
        Row("training_s", "training, s", "train s", "{:.1f}"),
        Row("packets", "packets sent (rank 0)", "packets", "{:,}"),
        Row("retransmissions", "retransmissions (rank 0)", "again", "{:,}"),
        Row("spurious", "of them needless (rank 0)", "needless", "{:,}"),
        Row("link_mb", "on the busiest link, MB", "link MB", "{:.1f}"),
        Row("link_use", "its use during all-reduce", "link use", "{:.1%}"),
        Row("bound", "bound by", "bound", "{}"),
    )
    subject = "back end"
    curve = Curve("losses", "training loss by step", "training loss of rank 0\n(mean of 10 steps)")
    packages = {"torch": "torch", "matplotlib": "plot"}  # its report, made when it ends, cannot be drawn later

    def with_backend(self, backend: str) -> Training:
        """Returns the configuration of one of the back ends."""
        if backend in ("ina", "gloo"):
            return self
        return dataclasses.replace(self, protocol=backend, program="")

    @property
    def for_buckets(self) -> bool:
        """True if each bucket needs a codec of its own, which remembers it."""
        return planner.allowed(self.codec) is not None or codecs.named(self.codec).remembers

    @property
    def fitting(self) -> list[int]:
        """Numbers of values that fit into a packet."""
        return [n for n in INT32.values
                if self.world != "testbed" or protocols.frame_bytes(self.protocol, n) - ETHERNET <= self.mtu]

    def derived(self) -> dict[str, object]:
        testbed, bmv2 = self.world == "testbed", self.switch == "bmv2"
        values, slots = self.values, self.slots
        if not values:
            most = TNA_VALUES if self.switch == "tna" else 2048
            values = max(self.fitting) if testbed else from_environment("INA_VALUES", most)
        if not slots:
            slots = (BMV2_WINDOW if bmv2 else 32) if testbed else from_environment("INA_SLOTS", 64)
        model = self.model or ("small" if bmv2 else "cnn")
        return {"model": model, "steps": self.steps or 100 * bmv2, "values": values, "slots": slots}

    def checks(self) -> Iterator[Check]:
        testbed = self.world == "testbed"
        yield not self.points or bool(self.pcap), "points", "a folder for captures in pcap as well"
        yield (testbed or self.switch != "bmv2", "switch",
               "'embedded', or world = 'testbed': BMv2's ports are network interfaces")
        yield from super().checks()
        yield self.values <= max(self.fitting), "values", f"at most {max(self.fitting)}, which fits mtu = {self.mtu}"
        yield from self._wrong_codec()
        yield from self._wrong_rule()
        yield not self.target or self.evaluate > 0, "evaluate", "steps between measurements of the accuracy, for target"
        yield not testbed or self.workers >= 2, "workers", "2 to 32 in the testbed"
        yield self.loss < 1, "loss", "a probability below 1"
        yield len(self.backends) > 0 and set(self.backends) <= set(BACKENDS), "backends", "some of " + ", ".join(BACKENDS)
        yield len(set(self.backends)) == len(self.backends), "backends", "each back end once"
        yield self.lr > 0, "lr", "more than 0"
        yield self.momentum < 1, "momentum", "0 up to, not including, 1"
        yield 0 < self.bucket_mb < 1e6, "bucket_mb", "more than 0 and less than a million"
        yield not self.data or Path(self.data).is_dir(), "data", "a folder with Fashion-MNIST's IDX files"
        yield not self.pcap or not Path(self.pcap).exists() or Path(self.pcap).is_dir(), "pcap", "a folder"
        yield not self.record or self.record.endswith(".csv"), "record", "a path that ends with .csv"
        yield not self.record or Path(self.record).absolute().parent.is_dir(), "record", "a file in a folder that is there"
        yield 1 <= self.slots <= 8192 and limits.power_of_two(self.slots), "slots", "a power of two up to 8192"
        try:
            key = "faults"
            if self.faults:
                parse_faults(self.faults)
            if testbed:
                key = "topology"
                topology = described(self)
                key = "hosts"
                server_host(self, topology)
                hosts_of(self, topology)
                key = "points"
                points(topology, filter(None, self.points.split(",")))
        except ValueError as error:  # and TopologyError
            text = f"{key} = {getattr(self, key)!r}: {error}"
            raise ConfigError(text, [Problem(key, text)]) from None

    def _wrong_codec(self) -> Iterator[Check]:
        chosen = f"one of {', '.join(codecs.names())}, or {planner.AUTO}:NAME,NAME"
        try:
            yield planner.allowed(self.codec) is not None or self.codec in codecs.names(), "codec", chosen
        except ValueError:
            yield False, "codec", chosen

    def chooses(self, backend: str) -> bool:
        """Returns True if the averages of this back end are of the ranks that are ready."""
        protocol = self.protocol if backend == "ina" else backend
        return bool(self.complete) and protocol != "gloo" and protocols.has_offers(protocol, self.check)

    def _wrong_rule(self) -> Iterator[Check]:
        number = self.complete.removeprefix("k=")
        fixed = number != self.complete and number.isdecimal()
        yield (self.complete in ("", "all", "dynamic") or (fixed and 1 <= int(number) <= self.workers),
               "complete", f"'', 'all', 'dynamic', or 'k=1' to 'k={self.workers}'")
        yield not self.deadline or bool(self.complete), "complete", "'all', 'dynamic' or 'k=...', for deadline"
        enough = int(number) if fixed else self.workers
        yield self.least <= enough, "least", f"at most {enough}, the ranks that are enough"
        yield self.least == 1 or self.complete == "dynamic" or bool(self.deadline), "least", "1, without 'dynamic' or a deadline"
        yield not self.complete or self.codec == codecs.DEFAULT, "codec", f"{codecs.DEFAULT} with complete"
        able = not self.complete or any(self.chooses(backend) for backend in self.backends)
        yield able, "complete", "a protocol that has it, as backends = ['quorum', ...] does"

    def run(self, folder: Path, console: Console) -> Iterator[Outcome]:
        runs: list[Run] = []
        for own, backends in worlds(self):
            with world(own, console) as network:
                for backend in backends:
                    runs.append(train(own, backend, folder, console, network, first=not runs))
                    yield Outcome(runs, compared(self, folder, runs), finished=len(runs) == len(self.backends))

    def why(self, run: dict, summary: dict) -> Finding:
        return why.measured(self.world, summary)

    def title(self, results: Sequence[Measured]) -> str:
        first = results[0]
        assert isinstance(first, Run)
        return f"{super().title(results)}, {first.dataset}, {first.parameters:,} parameters, {self._where}"

    @property
    def _where(self) -> str:
        if self.world == "local":
            return "one machine" + (", Tofino's program" if self.switch == "tna" else "")
        rate = f"{self.rate / 1e6:g} Mb/s" if self.rate else "no limit"
        rate += {"bmv2": ", BMv2", "tna": ", Tofino's program"}.get(self.switch, "")
        net = "" if self.topology == "star" else f"{self.topology}, "
        return f"{net}links of {rate}, MTU {self.mtu}" + (f", loss {self.loss:g}" if self.loss else "")

    def describe(self, results: Sequence[Measured]) -> str:
        first = results[0]
        assert isinstance(first, Run)
        return (
            f"{counted(self.workers, 'worker')}, {first.parameters:,} parameters, {html.escape(first.dataset)}, "
            f"{counted(len(first.losses), 'step')} of {counted(self.batch, 'image')} a worker, world <code>{self.world}</code>, "
            f"faults <code>{html.escape(self.faults or 'none')}</code>, seed {self.seed}."
        )

    def figures(self, results: Sequence[Measured]) -> list[tuple[str, str]]:
        return plots([run for run in results if isinstance(run, Run)])


def worlds(config: Training) -> list[tuple[Training, list[str]]]:
    """Returns groups of back ends that share a network: those of one protocol, and Gloo in the current one."""
    groups: list[tuple[Training, list[str]]] = []
    for backend in config.backends:
        own = config.with_backend(backend)
        if groups and (backend == "gloo" or groups[-1][0].program_path == own.program_path):
            groups[-1][1].append(backend)
        else:
            groups.append((own, [backend]))
    return groups


@contextmanager
def world(config: Training, console: Console) -> Iterator[Network | None]:
    """Starts the testbed's network, if ``config`` runs there."""
    if config.world != "testbed":
        yield None
        return
    if config.switch == "bmv2" and not testbed.missing(config.switch):
        console.print(forecast(config), highlight=False)
    with training_network(config) as network:
        switches, hosts = len(network.topology.switches), len(network.topology.hosts)
        many = f" and {switches} switches" if switches > 1 else ""
        console.print(f"Network {network.topology.name} of {hosts} hosts{many} is up after {network.up_seconds:.1f} s",
                      highlight=False)
        yield network
        began = time.monotonic()
        network.stop()
        console.print(f"Network is down after {time.monotonic() - began:.1f} s", highlight=False)


def defines(config: Training) -> dict[str, str]:
    """Returns preprocessor definitions of the switches' program."""
    return {"VALUES": str(config.values), "SLOTS": str(max(1024, config.slots))}


@contextmanager
def training_network(config: Training) -> Iterator[Network]:
    """Starts the network of a training. Raises ConfigError."""
    capture = Path(config.pcap) if config.points else None
    try:
        topology = described(config)
        network = Network(topology, config.program_path, defines(config), seed=config.seed, job_slots=config.slots,
                          kind=config.switch, cables=config.cables or None, capture=capture,
                          points=config.points.split(","))
        host = server_host(config, topology)
    except TopologyError as error:
        raise ConfigError(f"topology, switch, cables: {error}") from error
    with testbed.opened(network, host):
        yield network


def forecast(config: Training) -> str:
    """Returns a line that says how long BMv2 will take, before minutes of waiting."""
    from ina.p4.p4runtime.bmv2 import is_compiled

    parameters, topology = MODELS[config.model], described(config)
    hosts, cores = hosts_of(config, topology), len(os.sched_getaffinity(0))
    seconds = {name: config.steps * cost_model.bmv2_seconds(name, topology, hosts, parameters, config.values, config.mtu, cores)
               for name in config.backends}
    compiled = is_compiled(config.program_path, defines(config))
    shown = " and ".join(f"{max(1, round(seconds[name]))} s for {name}" for name in seconds)
    packet = 1e6 * (cost_model.BMV2_FRAME + cost_model.BMV2_VALUE * config.values)
    return (f"BMv2 takes some {packet:.0f} us for a packet of {config.values} integers: expect about {shown} ({config.steps} "
            f"steps, {parameters:,} parameters)" + ("" if compiled else ", and half a minute for p4c to compile the program"))


def train(config: Training, backend: str, folder: Path, console: Console, network: Network | None, first: bool) -> Run:
    """Trains over one back end. ``first``: of the back ends, for which the dataset is named.

    Raises launch.JobFailed.
    """
    run = Run(backend, target=config.target, workers=config.workers)
    place = testbed.place(network, hosts_of(config, network.topology)) if network else None
    meter = testbed.Meter(network)
    began = time.time()
    names = report.NAMES if network is None else report.TESTBED_NAMES
    with progress.Steps(console, names[backend], journal.of(folder), backend) as bar:
        def on_message(message: dict) -> None:
            kind = message.pop("kind")
            if kind == "start":
                run.dataset, run.parameters = message["data"], message["parameters"]
                run.start_seconds = message["time"] - began
                if first:
                    console.print(f"Training on {message['source']}", highlight=False)
                bar.update(0, message["steps"], "started")
                meter.start()
            elif kind == "step":
                run.losses.append(message["loss"])
                run.step_seconds.append(message["seconds"])
                run.allreduce_seconds.append(message["allreduce"])
                run.allreduce_bytes.append(message["bytes"])
                if message["step"] == message["steps"]:
                    run.network = {**meter.stop(), "switch": config.switch}
                bar.update(message["step"], message["steps"], f"loss {message['loss']:.3f}", loss=message["loss"],
                           step_ms=1e3 * message["seconds"], allreduce_ms=1e3 * message["allreduce"])
            elif kind == "accuracy":
                run.accuracies.append((message["step"], message["accuracy"]))
            elif kind == "end":
                run.accuracy, run.seconds, run.stats = message["accuracy"], message["seconds"], message["stats"]
                bar.update(len(run.losses), len(run.losses), f"accuracy {run.accuracy:.2%}")

        config_file = folder / "config.json"
        command = ["-m", "ina.lab.training.rank", str(config_file), backend, str(folder)]
        launch.run(command, config.workers, folder, backend, config.timeout + 60, on_message, place, bar.waiting)
    return run


def compared(config: Training, folder: Path, runs: Sequence[Run]) -> dict[str, float]:
    """Compares each back end's training with Gloo's; empty unless Gloo ran, too."""
    gloo = next((r for r in runs if r.backend == "gloo"), None)
    if gloo is None:
        return {}
    others = [r for r in runs if r is not gloo]
    figures: dict[str, float] = {}
    for ours in others:
        assert ours.accuracy is not None and gloo.accuracy is not None  # both have ended
        suffix = f", {ours.backend}" if len(others) > 1 else ""
        step = min(config.compare_step, len(ours.losses))
        a, b = (np.load(folder / f"parameters-{r.backend}-step{step}.npy") for r in (ours, gloo))
        apart = float(np.linalg.norm(a - b) / np.linalg.norm(b))
        figures |= {
            f"relative L2 distance of the parameters after {step} steps{suffix}": apart,
            f"test accuracy, {ours.backend} less gloo, points": 100 * (ours.accuracy - gloo.accuracy),
            f"time in all-reduce, whole run, gloo over {ours.backend}": sum(gloo.allreduce_seconds) / sum(ours.allreduce_seconds),
            **{f"{key}{suffix}": value for key, value in gain(config.with_backend(ours.backend), ours, gloo).items()},
        }
    return figures


def gain(config: Training, ours: Run, gloo: Run) -> dict[str, float]:
    """Returns, for the testbed, the cost model's prediction where the link is the bottleneck, and the share of it that was
    measured."""
    if config.world != "testbed":
        return {}
    predicted = cost_model.speed_up(config.workers, config.values, config.mtu, config.protocol)
    measured = sum(gloo.allreduce_seconds) / sum(ours.allreduce_seconds)
    figures = {"the same, predicted by the cost model (ring over in-network)": predicted}
    if not {"host-limited", "BMv2"} & {ours.summary()["bound"], gloo.summary()["bound"]}:
        figures["share of the predicted gain"] = (measured - 1) / (predicted - 1)
    return figures


def plots(runs: list[Run]) -> list[tuple[str, str]]:
    def losses(axes: Axes) -> None:
        for run, line in zip(runs, report.LINES, strict=False):
            steps = range(1, len(run.losses) + 1)
            name = report.row_name(run.summary())
            axes.plot(steps, report.smooth(run.losses), line, color=report.COLOURS[run.backend], label=name)
        axes.set(xlabel="step", ylabel="training loss of rank 0\n(mean of 10 steps)", ylim=(0, None))
        report.whole_numbers(axes.xaxis)
        report.legend(axes)

    def distribution(series: str, label: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for run in runs:
                values = sorted(1e3 * v for v in getattr(run, series))
                share = [(i + 1) / len(values) for i in range(len(values))]
                axes.plot(values, share, color=report.COLOURS[run.backend], label=report.row_name(run.summary()))
            axes.set(xlabel=f"{label}, ms", ylabel="share of steps", ylim=(0, 1))
            every = [value for run in runs for value in getattr(run, series)]
            if max(every) > 10 * min(every) > 0:
                axes.set_xscale("log")
                report.logarithmic(axes.xaxis)
            report.legend(axes)

        return draw

    if max(len(run.losses) for run in runs) < 2:
        return []  # a single point
    beside = len(runs) > 1 and any(run.backend == "gloo" for run in runs)
    meaning = ": lines that lie on each other mean that the switch adds as Gloo does" if beside else ""
    return [
        (f"Training loss{meaning}", report.svg(losses)),
        ("Time per step", report.svg(distribution("step_seconds", "time per step"))),
        (
            "Time in which an all-reduce was under way, per step",
            report.svg(distribution("allreduce_seconds", "in all-reduce")),
        ),
    ]


KIND = Training
