"""Start-up: seconds until commands that need nothing have ended, against an empty Python program in the same run."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from bench.common import Measurement, median_seconds

COMMANDS = ("--version", "--help", "run --help", "topo list", "experiment list")


def measure() -> list[Measurement]:
    result = Measurement(
        "start-up: commands that need nothing",
        ["command", "ms", "python ms", "ratio"],
        "times the empty program",
        "near 1 for --version and --help, which import no command's module",
    )
    python = median_seconds(partial(_run, "-c", "pass"))
    for command in COMMANDS:
        seconds = median_seconds(partial(_run, "-m", "ina.cli", *command.split()))
        result.add(f"ina {command}", 1e3 * seconds, 1e3 * python, seconds / python)
    return [result]


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
