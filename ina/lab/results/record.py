"""The results folder of one run: configuration, environment and figures. Enough to compare and to repeat.

    config.json        every key of the configuration, with its kind and seed
    environment.json   machine, versions, commit, and hashes of the switch program and of the worker
    metrics.json       schema, whether the run is finished, the table's figures (summary), everything measured (runs); null
                       where a figure is no finite number, such as the loss of a training that diverged
    error.txt          the reason, if it failed
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from numbers import Integral, Real
from pathlib import Path

from ina.base import documents, manifest, paths
from ina.base.error_text import line, reason
from ina.base.settings import ConfigError
from ina.lab.kind import Experiment, Measured, from_dict
from ina.lab.results import shapes
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


def sources(config: Experiment) -> dict[str, str]:
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
        "command": command(),
    }


def command() -> str:
    """Returns the command line of this process, to be pasted into a shell in the same folder."""
    program, spec = Path(sys.argv[0]), getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None:  # python -m
        return shlex.join([_python(), "-m", spec.name.removesuffix(".__main__"), *sys.argv[1:]])
    on_path = shutil.which(program.name)
    if on_path is not None and program.exists() and Path(on_path).samefile(program):
        return shlex.join([program.name, *sys.argv[1:]])
    return shlex.join([_python(), *sys.orig_argv[1:]])  # a script, or -c, with the interpreter's options


def _python() -> str:
    """Returns the shell's word for this interpreter: its path, where `python` is none or another one."""
    return "python" if shutil.which("python") == sys.executable else sys.executable


def switch_versions(config: Experiment) -> dict[str, dict[str, str]]:
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
    """Writes a file in one rename: a reader never sees half of it. Raises ValueError: a number is not finite, which no reader
    takes."""
    part = target.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")
    part.replace(target)


def finite(value: object) -> object:
    """Returns a value for JSON, with None for each number in it that is not finite, and Python's numbers for numpy's."""
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return value


def read_json(path: Path) -> dict:
    """Reads a JSON object. Raises ResultsError: not there, or no JSON object."""
    try:
        content = documents.stored_json_of(path)
    except (OSError, documents.Unreadable) as error:
        raise ResultsError(line(error)) from None
    if not isinstance(content, dict):
        raise ResultsError(f"{path}: a {type(content).__name__}, expected an object with keys")
    return content


class Folder:
    """A run's folder. Results are written at once, so that none is lost when a later part fails."""

    def __init__(self, path: Path, config: Experiment) -> None:
        config = config.resolved()
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
        write_json(self.path / "metrics.json", finite(metrics))


@dataclass(frozen=True)
class Result:
    """A results folder, read back."""

    path: Path
    config: Experiment
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
    _check(path / "metrics.json", shapes.of_metrics(metrics, type(config)))
    _check(path / "environment.json", shapes.of_environment(environment))
    if curve := config.curve:
        for run in metrics["runs"]:
            run[curve.key] = gaps(run[curve.key])
    return Result(path, config, environment, metrics["summary"], metrics["comparison"], metrics["runs"], metrics["finished"])


def read_plan(path: Path) -> dict:
    """Reads the plan of a sweep, experiment.json. Raises ResultsError: it is none."""
    document = read_json(path)
    _check(path, shapes.of_plan(document))
    return document


def _check(path: Path, wrong: Iterator[str]) -> None:
    """Raises ResultsError: something is wrong with a file; it names the first thing."""
    if text := next(wrong, ""):
        raise ResultsError(f"{path}: {text}; run it again")


def gaps(values: list[float | None]) -> list[float]:
    """Returns a curve's values, NaN for what was no finite number: plots leave that out."""
    return [math.nan if value is None else value for value in values]
