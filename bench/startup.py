"""Start-up: seconds until commands that need nothing have ended, against an empty Python program in the same run."""

from __future__ import annotations

import subprocess
import sys
import time

from bench.common import Figure, Measurement

COMMANDS = ("--version", "--help", "run --help", "jobs --help", "doctor --help", "controller --help", "tofino --help",
            "topo list", "experiment list")
TURNS = 9


def measure() -> list[Measurement]:
    result = Measurement(
        "start-up: commands that need nothing",
        ["command", "ms", "python ms", "ratio"],
        "times the empty program",
        "near 1 for --version and --help, which import no command's module; below 10 for the others",
    )
    for command in COMMANDS:
        turns = [(_seconds("-c", "pass"), _seconds("-m", "ina.cli", *command.split())) for _ in range(TURNS)]
        python, seconds = (Figure.of(times) for times in zip(*turns, strict=True))
        result.add(f"ina {command}", 1e3 * seconds, 1e3 * python, Figure.of(ours / empty for empty, ours in turns))
    return [result]


def _seconds(*arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began
