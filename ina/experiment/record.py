"""The results folder of one run: what was asked, on what it ran, what came out. Enough to compare and to repeat."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from ina import paths
from ina.experiment.config import Config


def environment() -> dict[str, object]:
    """Machine, versions and commit: what the figures depend on besides the configuration."""

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
        "command": sys.argv,
    }


def commit() -> str:
    """The checkout's commit, ``-dirty`` if files differ from it; ``unknown`` outside a checkout."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=paths.PACKAGE, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


@dataclass
class Run:
    """What one back end did. Seconds and bytes; one entry a step in the lists."""

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

    def summary(self) -> dict[str, object]:
        """Figures of the table. Goodput is gradient bits of one worker per second of all-reduce."""
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
        }


class Folder:
    """``results/<name>-<time>/``: created at once, so that nothing computed is lost when a later part fails."""

    def __init__(self, root: Path, config: Config) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for attempt in range(100):
            self.path = root / (f"{config.name}-{stamp}" + (f"-{attempt}" if attempt else ""))
            try:
                self.path.mkdir(parents=True)
                break
            except FileExistsError:
                continue
        else:
            raise FileExistsError(f"{self.path}: a hundred runs of this name in one second")
        self.config = config
        self.environment = environment()
        self.write("config.json", config.as_dict())
        self.write("environment.json", self.environment)

    def write(self, name: str, value: object) -> None:
        """JSON, in one rename: a reader never sees half a file."""
        target = self.path / name
        part = target.with_suffix(".part")
        part.write_text(json.dumps(value, indent=1) + "\n")
        part.replace(target)

    def save(self, runs: list[Run], comparison: dict[str, object]) -> None:
        metrics = {
            "schema": 1,
            "summary": [run.summary() for run in runs if run.step_seconds],
            "comparison": comparison,
            "runs": [run.__dict__ for run in runs],
        }
        self.write("metrics.json", metrics)
