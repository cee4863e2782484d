"""The results folder of one run: configuration, environment and figures. Enough to compare and to repeat.

    config.json        every key of the configuration, with its kind and seed
    environment.json   machine, versions, commit, and hashes of the switch program and of the worker
    metrics.json       schema, whether the run is finished, the table's figures (summary), everything measured (runs)
    error.txt          the reason, if it failed
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Protocol, TypedDict

from ina.base import documents, manifest, paths
from ina.base.error_text import reason
from ina.base.settings import ConfigError
from ina.lab.experiment_keys import Keys, from_dict
from ina.p4.compiler.build import source_hash
from ina.p4.compiler.front.preprocess import preprocess

SCHEMA = 2
ERROR = "error.txt"


class ResultsError(ValueError):
    """A folder without results, or with those of another schema; the message names the file."""


@functools.cache
def worker_hash() -> str:
    """SHA-256 of the host's side, ``host/net`` and ``host/protocol``: names and bytes."""
    digest = hashlib.sha256()
    for path in sorted(manifest.files("worker")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@functools.cache
def program_hash(path: Path, values: int) -> str:
    """SHA-256 of the preprocessed switch program; a comment or a file's name does not change it."""
    return source_hash(preprocess(path, defines={"VALUES": str(values)}, include_dirs=[paths.p4_dir()])[0])


def sources(config: Keys) -> dict[str, str]:
    """Returns hashes of the code that handles a packet: the switch program and the worker."""
    return {"program": program_hash(config.program_path, config.values), "worker": worker_hash()}


def environment() -> dict[str, object]:
    """Returns machine, versions and commit: the figures depend on them besides the configuration."""

    def version(package: str) -> str:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return "not installed"

    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "torch": version("torch"),
        "numpy": version("numpy"),
        "ina": version("ina"),
        "commit": commit(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def switch_versions(config: Keys) -> dict[str, dict[str, str]]:
    """Returns versions of switches that are not this project's."""
    if getattr(config, "switch", "") != "bmv2":
        return {}
    from ina.p4.p4runtime import bmv2

    return {} if bmv2.missing() else {"bmv2": bmv2.versions()}  # without it, the network raises an error


def commit() -> str:
    """Returns the checkout's commit, ``-dirty`` if files differ from it; ``unknown`` outside a checkout."""
    if not (paths.root() / ".git").exists():  # an installed package may lie in somebody else's repository
        return "unknown"
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=paths.PACKAGE, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


class Use(TypedDict, total=False):
    """Use of links and processors between two moments (testbed.Meter)."""

    links: dict[str, dict[str, float]]  # by name: rate, and differences of counters
    processors: float  # share of the time that they were busy
    seconds: float
    switch: str  # of which kind it is


class Measured(Protocol):
    """Results of one back end or job."""

    stats: dict[str, dict]

    def summary(self) -> dict[str, object]:
        """Returns figures of the table."""


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
    network: Use = field(default_factory=Use)

    def _link_figures(self) -> dict[str, object]:
        """Returns figures of the busiest link and direction: MB, with all headers, and its use while an all-reduce was under way.

        ``bound`` is the bottleneck: the link if it was used for 80 % and more; else BMv2 where that is the switch, which is
        slower than links; else this machine, if its processors were busy for 90 % and more (then the row is no result); else
        neither.
        """
        if not self.network:
            return {"link_mb": None, "link_use": None, "bound": None}
        limited = self.network["processors"] >= 0.9
        if not self.network["links"]:  # links of the local world are memory
            return {"link_mb": None, "link_use": None, "bound": "host-limited" if limited else "neither"}
        carried = [(max(link["up_bytes"], link["down_bytes"]), link["rate"]) for link in self.network["links"].values()]
        busiest, rate = max(carried, key=lambda link: link[0] / (link[1] or 1e15))  # the one that is busy longest
        reduce_total = sum(self.allreduce_seconds)
        use = 8 * busiest / (rate * reduce_total) if rate and reduce_total else None
        other = "BMv2" if self.network.get("switch") == "bmv2" else "host-limited" if limited else "neither"
        bound = "link" if use is not None and use >= 0.8 else other
        return {"link_mb": 1e-6 * busiest, "link_use": use, "bound": bound}

    def summary(self) -> dict[str, object]:
        """Returns figures of the table. Goodput is gradient bits of one worker per second of all-reduce."""
        warm = slice(min(3, len(self.step_seconds) - 1), None)
        reduce_total = sum(self.allreduce_seconds)
        worker = self.stats.get("worker", {})
        return {
            "backend": self.backend,
            "accuracy": self.accuracy,
            "step_ms": 1e3 * statistics.median(self.step_seconds[warm]),
            "allreduce_ms": 1e3 * statistics.median(self.allreduce_seconds[warm]),
            "goodput_gbps": 8e-9 * sum(self.allreduce_bytes) / reduce_total if reduce_total else None,
            "training_s": self.seconds,
            "start_s": self.start_seconds,
            "steps": len(self.losses),
            "packets": worker.get("tx_packets"),
            "retransmissions": worker.get("retransmissions"),
            **self._link_figures(),
        }


def sums(checked: bool) -> str | None:
    """Returns the table's note on sums; None if they were checked."""
    return None if checked else "not checked"


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
        }


@dataclass
class Training:
    """Results of one job in virtual time, step by step."""

    job: str
    workers: int
    bytes: int  # of one worker's gradients
    buckets: int
    step_seconds: list[float]  # from the last worker's end of the step before to that of this one
    compute_seconds: list[float]  # of the worker that computes longest
    reduce_seconds: float  # in which the last worker had an all-reduce under way, of a step
    busiest_link: str  # as of Reduction
    busiest_bytes: int
    link_use: float | None
    spans: list[list[tuple[str, float, float]]]  # by worker: name, begin, end
    stats: dict[str, dict] = field(default_factory=dict)
    checked: bool = True  # as of Reduction

    def summary(self) -> dict[str, object]:
        """Returns figures of the table: means over the steps."""
        step, compute = statistics.mean(self.step_seconds), statistics.mean(self.compute_seconds)
        worker = self.stats["workers"]
        return {
            "job": self.job,
            "sums": sums(self.checked),
            "step_ms": 1e3 * step,
            "compute_ms": 1e3 * compute,
            "reduce_ms": 1e3 * self.reduce_seconds,
            "exposed_ms": 1e3 * (step - compute),
            "efficiency": compute / step,
            "link_mb": 1e-6 * self.busiest_bytes / len(self.step_seconds),
            "link_use": self.link_use,
            "packets": worker["tx_packets"],
            "retransmissions": worker["retransmissions"],
        }


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
    checked: bool  # as of Reduction
    busiest_link: str  # as of Reduction
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
            "efficiency": compute / self.seconds if self.seconds else 1.0,
            "rank_mb": 1e-6 * self.bytes,
            "link_mb": 1e-6 * self.busiest_bytes,
            "link_use": self.link_use,
            "packets": worker["tx_packets"],
            "retransmissions": worker["retransmissions"],
            "sums": sums(self.checked),
        }


def new_folder(root: Path, name: str) -> Path:
    """Makes ``root/<name>-<time>``."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for attempt in range(100):
        path = root / (f"{name}-{stamp}" + (f"-{attempt}" if attempt else ""))
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            continue
    raise FileExistsError(17, "a hundred runs of this name in one second", str(path))


@contextmanager
def reasoned(folder: Path) -> Iterator[None]:
    """Writes the reason of an error meanwhile into the folder, and removes it after a success: an empty folder explains
    itself."""
    path = folder / ERROR
    try:
        yield
    except Exception as error:
        with suppress(OSError):  # no room left, perhaps
            path.write_text(f"{reason(error)}\n")
        raise
    path.unlink(missing_ok=True)


def write_json(target: Path, value: object) -> None:
    """Writes a file in one rename: a reader never sees half of it."""
    part = target.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    part.replace(target)


def read_json(path: Path) -> dict:
    """Reads a JSON object. Raises ResultsError: not there, or no JSON object."""
    try:
        content = documents.json_of(path)
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None
    except documents.Unreadable as error:
        raise ResultsError(str(error)) from None
    if not isinstance(content, dict):
        raise ResultsError(f"{path}: a {type(content).__name__}, expected an object with keys")
    return content


class Folder:
    """A run's folder. Results are written at once, so that none is lost when a later part fails."""

    def __init__(self, path: Path, config: Keys) -> None:
        self.path, self.config = path, config
        path.mkdir(parents=True, exist_ok=True)
        (path / "metrics.json").unlink(missing_ok=True)
        self.environment = {**environment(), **switch_versions(config), "sources": sources(config)}
        write_json(path / "config.json", config.as_dict())
        write_json(path / "environment.json", self.environment)

    def save(self, runs: Sequence[Measured], comparison: Mapping[str, object], finished: bool) -> None:
        metrics = {
            "schema": SCHEMA,
            "kind": self.config.kind,
            "finished": finished,
            "seed": self.config.seed,
            "summary": [run.summary() for run in runs],
            "comparison": comparison,
            "runs": [run.__dict__ for run in runs],
        }
        write_json(self.path / "metrics.json", metrics)


@dataclass(frozen=True)
class Result:
    """A results folder, read back."""

    path: Path
    config: Keys
    environment: dict
    summary: list[dict]
    comparison: dict
    runs: list[dict]
    finished: bool


def finished(path: Path) -> bool:
    """Returns True if a run's folder holds all results of the run."""
    try:
        return read_json(path / "metrics.json").get("finished") is True
    except ResultsError:
        return False


def load(path: Path) -> Result:
    """Reads a run's folder. Raises ResultsError, which names the file: not a run's folder, or one of another schema."""
    metrics = read_json(path / "metrics.json")
    if metrics.get("schema") != SCHEMA:
        raise ResultsError(f"{path / 'metrics.json'}: schema {metrics.get('schema')!r}, expected {SCHEMA}: run it again")
    try:
        config = from_dict(read_json(path / "config.json"))
    except ConfigError as error:  # the error names config.json
        raise ResultsError(f"{path}/{error}") from None
    environment = read_json(path / "environment.json")
    for key, kind in (("summary", list), ("comparison", dict), ("runs", list)):
        if not isinstance(metrics.get(key, kind()), kind):
            raise ResultsError(f"{path / 'metrics.json'}: {key}: expected {'an object' if kind is dict else 'a list'}")
    try:
        return Result(path, config, environment, metrics["summary"], metrics["comparison"], metrics["runs"],
                      metrics["finished"])  # fmt: skip
    except KeyError as error:
        raise ResultsError(f"{path / 'metrics.json'}: has no key {error}") from None
