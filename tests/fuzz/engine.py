"""Runs a target under libFuzzer for some seconds and reports its coverage and finding; minimises corpora."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from . import native
from .registry import ROOT, Managed, Native, Target

MEMORY = 2048  # MB resident
PREPARING = 300  # seconds before the first input: the machine may be busy
WRITING = 300  # seconds, to write the input at which a target hangs
MERGING = 3600  # seconds
# Leaks of the fuzzed function are findings; those of the interpreter around it are not.
ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
COVERAGE = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+)")


@dataclass(frozen=True)
class Run:
    """A fuzzing run. `coverage`: edges, as libFuzzer counts them. `artifact`: input of the finding; `text`: its description."""

    target: str
    seconds: float
    inputs: int
    coverage: int
    artifact: bytes | None
    text: str

    def __str__(self) -> str:
        note = f"  FOUND {len(self.artifact)} bytes" if self.artifact is not None else ""
        return f"{self.target:<24} {self.inputs:>9} inputs {self.seconds:>6.1f} s   cov: {self.coverage}{note}"


class Broken(RuntimeError):
    """The target could not be run."""


def command(target: Target, folder: Path, root: Path = ROOT) -> list[str]:
    """Command line of the target. `folder`: for its build, if it needs one. Raises native.BuildFailed."""
    if isinstance(target, Native):
        return [str(native.build(target, folder, root=root))]
    return [sys.executable, "-m", "tests.fuzz.managed", target.name]


def fuzz(
    target: Target,
    seconds: float,
    folder: Path,
    corpora: Sequence[Path] = (),
    *,
    root: Path = ROOT,
    runs: int = -1,
    seed: int = 0,
    nice: int = 0,
    limit: float | None = None,
) -> Run:
    """Fuzzes until a finding, or for `seconds`. New inputs go to the first of `corpora`.

    A target that does not end within `limit` seconds (default: well above `seconds`) is killed, and its current input is a
    finding. Raises Broken, native.BuildFailed.
    """
    call = command(target, folder, root)
    with tempfile.TemporaryDirectory() as findings:
        flags = [
            f"-max_total_time={max(1, round(seconds))}",
            f"-runs={runs}",
            f"-max_len={target.longest}",
            f"-timeout={target.patience}",
            f"-rss_limit_mb={MEMORY}",
            f"-artifact_prefix={findings}/",
            f"-seed={seed}",
            "-len_control=0",
            "-use_value_profile=1",
            "-reload=0",
            "-print_final_stats=0",
        ]
        if isinstance(target, Managed):
            flags.remove("-use_value_profile=1")
        existing = [str(corpus) for corpus in corpora if corpus.is_dir()]
        began = time.monotonic()
        limit = PREPARING + 3 * seconds if limit is None else limit
        result = _run([*(["nice", "-n", str(nice)] if nice else []), *call, *flags, *existing], root, limit)
        took = time.monotonic() - began
        artifacts = sorted(Path(findings).iterdir())
        artifact = artifacts[0].read_bytes() if artifacts else None
    hung = f"{target.name}: did not end within {limit:g} s" if result.hung else ""
    if artifact is None and (result.hung or result.status):
        raise Broken(f"{hung or f'{target.name}: ended with status {result.status}'} and left no input:\n{result.text[-3000:]}")
    counts = COVERAGE.findall(result.text)
    inputs, coverage = (int(counts[-1][0]), max(int(c[1]) for c in counts)) if counts else (0, 0)
    text = "" if artifact is None else "\n".join(filter(None, (hung, essence(result.text))))
    return Run(target.name, took, inputs, coverage, artifact, text)


@dataclass(frozen=True)
class Done:
    """Result of a process. `hung`: it exceeded its time and was killed. `text`: its output."""

    status: int
    hung: bool
    text: str


def _run(call: list[str], root: Path, limit: float) -> Done:
    """Runs a command for at most `limit` seconds. Afterwards none of its child processes runs or holds its output open.

    libFuzzer's own time-out needs SIGALRM, which a target can block. SIGABRT makes it write its current input, too.
    """
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(root)}
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as output:
        environment |= {"INA_CACHE": os.environ.get("INA_CACHE", f"{scratch}/cache"), "INA_TOKEN_FILE": f"{scratch}/token"}
        process = subprocess.Popen(call, cwd=root, env=environment, stdout=output, stderr=subprocess.STDOUT, process_group=0)
        hung = False
        try:
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                hung = True
                process.send_signal(signal.SIGABRT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(WRITING)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return Done(process.returncode, hung, output.read().decode(errors="replace"))


def essence(text: str) -> str:
    """Part of the output that describes the finding."""
    lines = text.splitlines()
    for sign in ("Uncaught Python exception", "broken: ", "runtime error:", "ERROR: "):
        at = next((i for i, line in enumerate(lines) if sign in line), None)
        if at is not None:
            return "\n".join(line for line in lines[at : at + 40] if not re.match(r"#\d+\t|INFO: ", line))
    return "\n".join(lines[-30:])


def merge(target: Target, folder: Path, into: Path, corpora: Sequence[Path], files: int, size: int) -> int:
    """Fills the empty folder `into` with the smallest inputs of `corpora` that together have the coverage of all: a sample over
    all sizes if these are more than `files`, up to `size` bytes in all. Returns their number. Raises Broken."""
    with tempfile.TemporaryDirectory() as merged:
        flags = ["-merge=1", f"-max_len={target.longest}", f"-rss_limit_mb={MEMORY}", "-len_control=0"]
        result = _run([*command(target, folder), *flags, merged, *map(str, corpora)], ROOT, MERGING)
        if result.hung or result.status or not any(Path(merged).iterdir()):
            raise Broken(f"{target.name}: the corpus cannot be minimised (status {result.status}):\n{result.text[-3000:]}")
        paths = sorted(Path(merged).iterdir(), key=lambda p: (p.stat().st_size, p.name))
        if len(paths) > files:
            paths = [paths[i * len(paths) // files] for i in range(files)]
        results = []
        for path in paths:
            size -= path.stat().st_size
            if size < 0:
                break
            results.append(path)
            (into / path.name[:12]).write_bytes(path.read_bytes())
    return len(results)
