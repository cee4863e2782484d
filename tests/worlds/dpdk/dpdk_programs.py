"""ina-dpdk-switch and ina-dpdk-worker as processes, for tests: started with deadlines, ended in any case."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent
STARTED = 60.0  # seconds for a program to be compiled and a switch to serve
ENDED = 60.0


class Process:
    """``python -m MODULE ARGUMENTS``; ``before``: a command that runs it, such as ip netns exec NAME."""

    def __init__(self, module: str, *arguments: object, before: Sequence[str] = ()):
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", module, *map(str, arguments)], cwd=ROOT, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=str(ROOT)))  # fmt: skip

    def line(self, stream: str = "stdout") -> str:
        return getattr(self.process, stream).readline()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, timeout: float = ENDED) -> tuple[int, str, str]:
        """Returns its exit status and the output of both streams. Raises TimeoutExpired if it does not end; then it is killed."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return self.process.returncode, out, err

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Switch(Process):
    """A switch process that serves when the constructor returns. ``about``: its first line."""

    def __init__(self, *arguments: object, before: Sequence[str] = (), module: str = "ina.worlds.dpdk.switch"):
        super().__init__(module, *arguments, "--json", before=before)
        line = self.line()
        if not line:
            raise AssertionError(f"no switch: {self.end()}")
        self.about = json.loads(line)

    def stop(self, number: int = signal.SIGINT) -> dict:
        """Stops it by a signal; returns its summary."""
        self.signal(number)
        status, out, err = self.end()
        assert status == 0, (status, out, err)
        return json.loads(out.splitlines()[-1])["summary"]


@contextmanager
def switch(*arguments: object, before: Sequence[str] = (), module: str = "ina.worlds.dpdk.switch") -> Iterator[Switch]:
    running = Switch(*arguments, before=before, module=module)
    try:
        yield running
    finally:
        running.kill()


def worker(*arguments: object, before: Sequence[str] = ()) -> Process:
    return Process("ina.worlds.dpdk.worker", *arguments, "--json", before=before)


def summaries(workers: Sequence[Process]) -> list[dict]:
    """Summaries of workers, all of which must succeed."""
    result, deadline = [], time.monotonic() + ENDED
    try:
        for process in workers:
            status, out, err = process.end(max(1.0, deadline - time.monotonic()))
            assert status == 0, (status, out, err)
            result.append(json.loads(out.splitlines()[-1])["summary"])
    finally:
        for process in workers:
            process.kill()
    return result
