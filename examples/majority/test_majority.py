"""The protocol majority against its oracle. Run it with pytest, or as a program."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from ina.protocol import program_named

HERE = Path(__file__).resolve().parent
PROGRAM = str(HERE / "majority.p4")
DEADLINE = 300  # seconds of a command


def ina(*words: str) -> None:
    """Runs a command, which must find nothing wrong."""
    done = subprocess.run([sys.executable, "-m", "ina.cli", *words], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_oracle_says_what_it_must():
    """Worked out by hand: a column for each element, with ties, zeros and the largest numbers."""
    tensors = np.array([[5, -1, 7, 0, 9, -2**31], [1, -9, -1, 0, -8, -2**31], [-99, 3, 0, 0, 0, 2**31 - 1]], np.int32)
    assert program_named(PROGRAM).reduced(tensors).tolist() == [1, -1, 0, 0, 0, -1]


def test_every_interleaving_of_a_small_job():
    """Two workers have the oracle's result, whatever is lost, late or repeated, also where packets' numbers wrap."""
    ina("explore", "--protocol", PROGRAM, "--elements", "64", "--tensors", "2")


def test_workers_and_switches_that_restart():
    ina("simulate", "--protocol", PROGRAM, "--events", "6000", "--length", "3000")


def test_the_experiment_with_losses():
    """In virtual time, where each worker's result is compared with the oracle's to the bit."""
    with tempfile.TemporaryDirectory() as results:
        options = ["--set", f"protocol={PROGRAM}", "--results", results, "--processes", "1"]
        ina("experiment", "run", str(HERE / "majority.toml"), *options)


if __name__ == "__main__":
    for name, test in [*globals().items()]:
        if name.startswith("test_"):
            test()
            print("pass", name.removeprefix("test_").replace("_", " "))
