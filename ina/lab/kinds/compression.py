"""Compression: one model trained with its gradients summed by a codec, and the time of that on links of several rates.

The training is real, with all workers in one process: their gradients are summed as a switch gives it. What travels in a step
then goes through the compiled switch program and the real workers in virtual time, round by round. Compute and codec are measured
on this machine's processor.

    step = compute of a worker + codec + rounds in virtual time

Not in it: an all-reduce that hides behind the backward pass, several buckets, accelerators, and what hosts take for a packet.
"""

from __future__ import annotations

import html
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from ina import codecs
from ina.aggregation import protocols
from ina.aggregation.lane import INT32
from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import ConfigError, key
from ina.lab import limits
from ina.lab.kind import Check, Curve, Experiment, Finding, Measured, Outcome, Row
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.kinds.training import MODELS
from ina.lab.results import journal
from ina.topology import TopologyError
from ina.topology.link_events import bits


@dataclass
class Exchange:
    """Results on links of one rate. Seconds of a step; the training is the same for all rates."""

    job: str  # the rate
    codec: str
    losses: list[float]
    accuracies: list[tuple[int, float]]
    accuracy: float
    target: float
    compute_seconds: float
    codec_seconds: float
    network_seconds: float
    dense_seconds: float  # of float32 in the network
    up: float  # bytes of values
    down: float
    stats: dict[str, dict] = field(default_factory=dict)

    @property
    def step_seconds(self) -> float:
        return self.compute_seconds + self.codec_seconds + self.network_seconds

    def summary(self) -> dict[str, object]:
        """Returns figures of the table."""
        steps = next((step for step, accuracy in self.accuracies if self.target and accuracy >= self.target), None)
        return {
            "job": self.job,
            "accuracy": self.accuracy,
            "loss": None if self.stats.get("codec", {}).get("diverged") else statistics.fmean(self.losses[-20:]),
            "target_steps": steps,
            "target_s": None if steps is None else steps * self.step_seconds,
            "up_kb": 1e-3 * self.up,
            "down_kb": 1e-3 * self.down,
            "compute_ms": 1e3 * self.compute_seconds,
            "codec_ms": 1e3 * self.codec_seconds,
            "network_ms": 1e3 * self.network_seconds,
            "faster": self.dense_seconds / (self.codec_seconds + self.network_seconds),
            "network_faster": self.dense_seconds / self.network_seconds,
        }


@dataclass(frozen=True)
class Compression(Experiment):
    """Compression: one model trained with its gradients summed by a codec, and the time of that on links of several rates."""

    guide = "Kind compression: a model trained by a codec, on links of several rates"
    kind: str = key("compression", "what is done: compression", choices=("compression",))
    name: str = key("compression", "the results folder's name begins with it")
    world: str = key("local", "where: local (one process; what travels goes through the switch in virtual time)",
                     choices=("local",))
    workers: int = key(4, "workers", Range(1, 32))
    model: str = key("small", "cnn (409,034 parameters), small (39,418) or transformer (71,370)", choices=tuple(MODELS))
    codec: str = key(codecs.DEFAULT, "how gradients travel: any codec (docs/guide/codecs.md)")
    steps: int = key(300, "of the training", Range(1, 10**6))
    batch: int = key(16, "images per worker and step", Range(1, 65536, "images that are in memory at once"))
    lr: float = key(0.05, "learning rate", limits.FACTOR)
    decay: bool = key(False, "the learning rate goes down to 0 in equal steps")
    momentum: float = key(0.9, "SGD's momentum", Range(0, 1))
    optimizer: str = key("sgd", "sgd or adam, of averaged gradients; 1-bit-adam or 0-1-adam: momentum travels, by the codec, "
                         "after a warm-up of float32 gradients", choices=("sgd", "adam", "1-bit-adam", "0-1-adam"))
    warm_up: int = key(100, "steps of the warm-up of 1-bit-adam and 0-1-adam", Range(1, 10**6))
    dtype: str = key("float32", "of gradients: rounded to it before their sum and behind it",
                     choices=("float32", "bfloat16", "float16"))
    evaluate: int = key(20, "steps between measurements of the test accuracy, of 2,000 images; 0: only at the end", limits.STEPS)
    target: float = key(0.0, "test accuracy whose time is reported, by the first measurement that reaches it; 0: none",
                        limits.PROBABILITY)
    seed: int = key(1, "of initial parameters and order of the images", limits.SEED)
    data: str = key("", "folder of the IDX files; empty: where the distribution's package puts them")
    rates: tuple[str, ...] = key(("100M", "10G", "100G"), "of the workers' links in virtual time, bit/s, such as 10G")
    delay: float = key(1e-6, "of each link, one way, s", limits.DELAY)
    values: int = key(256, "int32 per packet", limits.PACKET)
    pool: int = key(512, "slots of the switch, a power of two", limits.SLOTS)
    protocol: str = key(protocols.DEFAULT, "what switch and workers speak in virtual time")
    program: str = key("", "P4 program: a name in p4/, or the path of a .p4 file; empty: the protocol's own")
    switch: str = key("embedded", "embedded, or tna: the protocol's program for Tofino, on the same switch",
                      choices=("embedded", "tna"))
    timeout: float = key(30.0, "seconds of virtual time after which a sum has failed", limits.TIME)

    rows = (
        Row("accuracy", "test accuracy", "accuracy", "{:.2%}"),
        Row("loss", "training loss, last 20 steps", "loss", "{:.4f}"),
        Row("up_kb", "values sent a step, kB", "kB up", "{:.1f}"),
        Row("down_kb", "values received a step, kB", "kB down", "{:.1f}"),
        Row("compute_ms", "compute of a worker, ms a step (lowest tenth)", "compute", "{:.2f}"),
        Row("codec_ms", "of the codec, ms a step (lowest tenth)", "codec", "{:.3f}"),
        Row("network_ms", "in the network, virtual ms a step", "network", "{:.4f}"),
        Row("faster", "exchange, codec included: times as fast as uncompressed", "faster", "{:.2f}"),
        Row("network_faster", "the network alone: times as fast", "network", "{:.2f}"),
        Row("target_steps", "steps to the target accuracy", "to target", "{:,}"),
        Row("target_s", "time to the target accuracy, s", "s to target", "{:.3f}"),
    )
    curve = Curve("losses", "training loss by step", "training loss of worker 0\n(mean of 10 steps)")
    packages = {"torch": "torch", "matplotlib": "plot"}  # its report, made when it ends, cannot be drawn later

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield self.codec in codecs.names(), "codec", f"one of {', '.join(codecs.names())}"
        yield len(self.rates) > 0, "rates", "one rate at least, such as 10G"
        yield not self.target or self.evaluate > 0, "evaluate", "steps between measurements of the accuracy, for target"
        yield self.momentum < 1, "momentum", "0 up to, not including, 1"
        yield self.lr > 0, "lr", "more than 0"
        yield limits.power_of_two(self.pool) and self.pool > 0, "pool", "a power of two up to 16384"
        for rate in self.rates:
            try:
                yield 0 < bits(rate) <= 1e15, "rates", "rates in bit/s such as 10G, up to 1e15"
            except TopologyError:
                yield False, "rates", "rates in bit/s such as 10G, up to 1e15"

    def run(self, folder: Path, console: Console) -> Iterator[Outcome]:
        from ina.lab.training import data, together

        try:
            run, keeper = together.Trajectory(0, ""), journal.of(folder)
            for run in together.train(self.model, self.codec, self.workers, self.steps, self.batch, lr=self.lr, seed=self.seed,
                                      momentum=self.momentum, evaluate=self.evaluate, folder=self.data,
                                      optimizer=self.optimizer, warm_up=self.warm_up, dtype=self.dtype, decay=self.decay):
                if keeper and run.losses:
                    step_ms = 1e3 * (run.compute_seconds[-1] + run.codec_seconds[-1])
                    keeper.note(self.codec, len(run.losses), self.steps, loss=run.losses[-1], step_ms=step_ms)
        except data.DataError as error:
            raise ConfigError(f"data = {self.data!r}: {error}") from None
        except ValueError as error:  # such as no room for so many workers
            raise ConfigError(f"codec = {self.codec!r}: {error}") from error
        if not run.losses:
            raise ConfigError(f"lr = {self.lr:g}: the loss is no finite number in the first step")
        up = down = INT32.bytes(sum(run.rounds))
        if any(run.own):  # a program's own packets may be narrower than words, one way
            traffic = codecs.named(self.codec).traffic(run.parameters, self.workers)
            most = max(traffic.up, traffic.down)
            up, down = up - (most - traffic.up), down - (most - traffic.down)
        stats = {"codec": {"rounds": [round(words) for words in run.rounds], "flushed": run.flushed, "diverged": run.diverged},
                 "model": {"parameters": run.parameters, "data": run.dataset}}
        compute, by_codec = least(run.compute_seconds), [seconds for seconds in run.codec_seconds if seconds]
        coding = least(by_codec) * len(by_codec) / len(run.codec_seconds) if by_codec else 0.0  # warm-ups have none
        coding = 0.0 if self.codec == codecs.DEFAULT else coding  # it is the worker's, and takes the tensor as it is
        results = [
            Exchange(shown(rate), self.codec, run.losses, run.accuracies, run.accuracy, self.target, compute, coding,
                     sum(self.network_seconds(words, bits(rate)) for words in run.rounds),
                     self.network_seconds(run.parameters, bits(rate)), up, down, stats)
            for rate in self.rates
        ]
        yield Outcome(results)

    def network_seconds(self, words: float, rate: float) -> float:
        """Returns virtual seconds of one round of so many words, from its submission to the last worker's result."""
        elements = max(1, round(words))
        reduction = AllReduce(workers=self.workers, elements=elements, rate=rate, delay=self.delay, values=self.values,
                              pool=self.pool, protocol=self.protocol, program=self.program, switch=self.switch, seed=self.seed,
                              rto_min=10e-3, rto_max=1.0, timeout=self.timeout)
        (result,) = reduction.measure()
        return result.seconds

    def why(self, run: dict, summary: dict) -> Finding:
        parts = {"compute": summary["compute_ms"], "processor": summary["codec_ms"], "link": summary["network_ms"]}
        bound = max(parts, key=lambda name: parts[name])
        verdict = "pays" if summary["faster"] > 1.05 else "does not pay"
        return Finding(run["job"], bound, f"a step is {parts['compute']:.2f} ms of compute, {parts['processor']:.3f} ms of the "
                       f"codec and {parts['link']:.4f} ms in the network; {run['codec']} {verdict}: the exchange is "
                       f"{summary['faster']:.2f} times as fast as uncompressed")

    def title(self, results: Sequence[Measured]) -> str:
        return f"{counted(self.workers, 'worker')}, {self.model}, {self.codec}"

    def describe(self, results: Sequence[Measured]) -> str:
        return (
            f"{counted(self.workers, 'worker')} in one process, model {html.escape(self.model)}, "
            f"{counted(self.steps, 'step')} of {counted(self.batch, 'image')} "
            f"a worker, codec <code>{html.escape(self.codec)}</code>; time in the network is virtual, that of the codec and of "
            f"compute this machine's; seed {self.seed}."
        )


def least(seconds: Sequence[float]) -> float:
    """Returns the time that a tenth of the steps are below: other work on the machine makes the rest longer."""
    return sorted(seconds)[len(seconds) // 10]


def shown(rate: str) -> str:
    """Returns ``10 Gb/s`` for ``10G``."""
    return f"{rate[:-1]} {rate[-1]}b/s" if rate[-1].isalpha() else f"{rate} b/s"


KIND = Compression
