"""Terminal messages of a run: progress of a long one in virtual time (a bar, packet-hops a second, memory), its cost, and the
path of its results."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ina.worlds.virtual.fabric import Fabric

LONG = 3.0  # seconds after which progress is shown
EVERY = 5.0  # seconds between its lines where there is no terminal


def say_where(console: Console, label: str, path: Path) -> None:
    """Prints a path in one line, unwrapped, so that it can be copied."""
    console.print(label, path, highlight=False, markup=False, soft_wrap=True)


class Watch:
    """Context manager for ``Timeline.watch``. Wall-clock figures are for people: they are in no result."""

    def __init__(self, console: Console):
        self._console, self._began, self._hops, self._now = console, time.monotonic(), 0, 0.0
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn(),
            console=console, transient=True, refresh_per_second=4,
        )
        self._task = self._bar.add_task("", total=1.0)
        self._shown, self._said = False, LONG - EVERY

    def __call__(self, fabric: Fabric) -> None:
        self._hops, self._now = fabric.stats()["frames"], fabric.now / 1e12
        if self._seconds < LONG:
            return
        done = fabric.progress() or 0.0
        text = f"{1e3 * self._now:.3f} virtual ms, {self._rate / 1e6:.2f} M packet-hops/s"
        if not self._console.is_terminal:
            if self._seconds >= self._said + EVERY:
                self._said = self._seconds
                self._console.print(f"{done:.0%}: {text}", highlight=False)
            return
        if not self._shown:
            self._bar.start()
            self._shown = True
        self._bar.update(self._task, completed=done, description=text)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def _rate(self) -> float:
        return self._hops / max(1e-9, self._seconds)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._shown:
            self._bar.stop()
        if kind is None and self._seconds >= LONG and self._hops:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            work = f"{self._hops / 1e6:.1f} M packet-hops, {1e3 * self._now:.3f} virtual ms, in {self._seconds:.1f} s"
            rate = f"{self._rate / 1e6:.2f} M packet-hops/s; at most {memory:.2f} GiB of memory"
            self._console.print(f"{work}: {rate}", highlight=False)
