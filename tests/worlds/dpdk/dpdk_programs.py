"""ina-dpdk-switch and ina-dpdk-worker as processes, for tests: started with deadlines, ended in any case."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import tiers
from waiting import LONG, TookTooLong

ROOT = Path(__file__).resolve().parent.parent.parent.parent


class Process:
    """``python -m MODULE ARGUMENTS``; ``before``: a command that runs it, such as ip netns exec NAME."""

    def __init__(self, module: str, *arguments: object, before: Sequence[str] = ()):
        tiers.several_processes("runs processes over DPDK")
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", module, *map(str, arguments)], cwd=ROOT, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=str(ROOT)))

    def line(self, stream: str = "stdout") -> str:
        return getattr(self.process, stream).readline()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = 2 * LONG) -> tuple[int, str, str]:
        """Returns its exit status and the output of both streams. Raises TookTooLong if it does not end; then it is killed."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise TookTooLong(f"{self.process.args} did not end within {seconds:g} s: {self.process.communicate()}") from None
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
    result = []
    try:
        for process in workers:
            status, out, err = process.end()
            assert status == 0, (status, out, err)
            result.append(json.loads(out.splitlines()[-1])["summary"])
    finally:
        for process in workers:
            process.kill()
    return result
