"""Terminal messages of a run: its progress, its cost in virtual time (packet-hops a second, memory), and the path of its results.

On a terminal, progress is a bar that is drawn once a second; in a file or a pipe it is a line every few seconds. The journal of
the run (journal.py) gets the same.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ina.base.error_text import line
from ina.lab.results import journal
from ina.worlds.virtual.fabric import Fabric

LONG = 3.0  # seconds after which progress in virtual time is shown
EVERY = 4.0  # seconds between its lines where there is no terminal
REDRAWS = 1.0  # a second, on a terminal


class Due:
    """Clock of lines: says when the next one is due, EVERY seconds after the last."""

    def __init__(self, first: float = EVERY):
        self._next = time.monotonic() + first

    def __call__(self) -> bool:
        """Returns True if a line is due, which the caller prints."""
        now = time.monotonic()
        due = now >= self._next
        self._next = now + EVERY if due else self._next
        return due


@contextmanager
def kept(folder: Path, console: Console, **head: object) -> Iterator[None]:
    """Keeps a journal in ``folder`` meanwhile, whose first line has ``head``; says so where that is impossible."""
    try:
        keeper = journal.Journal(folder, **head)
    except OSError as error:
        console.print(f"Its progress is not recorded, and no page shows it: {line(error)}", highlight=False, markup=False)
        yield
        return
    with keeper:
        yield


class Steps:
    """Context manager for the progress of a run of known length, in steps, under a ``name``. ``keeper``: a journal that gets it
    too, as that of the back end ``of``."""

    def __init__(self, console: Console, name: str, keeper: journal.Journal | None = None, of: str = ""):
        self._console, self._name, self._due = console, name, Due()
        self._keeper, self._of = keeper, of
        self._last = self._said = ""
        self._heard = time.monotonic()  # of the last step
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(), console=console, refresh_per_second=REDRAWS, disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(f"{name:<17}", total=None, note="starting")

    def update(self, done: int, total: int, note: str, **figures: float) -> None:
        """Takes note of ``done`` of ``total`` steps, with a few words on the last one, and its figures for the journal."""
        if self._keeper:
            self._keeper.note(self._of, done, total, "", **figures)
        self._last, self._heard = f"{self._name}: {done} of {total} steps, {note}", time.monotonic()
        self._bar.update(self._task, completed=done, total=total, note=note)
        if self._due():
            self._say()

    def waiting(self) -> None:
        """Takes note: no step has ended meanwhile. Where there is no terminal, a line every few seconds says for how long."""
        if self._keeper:
            self._keeper.due()
        if not self._console.is_terminal and self._due():
            seconds = time.monotonic() - self._heard
            if self._last and seconds < 1:
                self._say()
                return
            text = f"{self._last}, {seconds:.0f} s ago" if self._last else f"{self._name}: starting, {seconds:.0f} s"
            self._console.print(text, highlight=False)
            self._said = self._last

    def _say(self) -> None:
        if not self._console.is_terminal and self._last != self._said:
            self._console.print(self._last, highlight=False)
            self._said = self._last

    def __enter__(self) -> Steps:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()
        self._say()


def say_where(console: Console, label: str, path: Path) -> None:
    """Prints a path in one line, unwrapped, so that it can be copied."""
    console.print(label, path, highlight=False, markup=False, soft_wrap=True)


class Watch:
    """Context manager for ``Timeline.watch``. Wall-clock figures are for people: they are in no result. ``keeper``: a journal,
    which gets them too."""

    def __init__(self, console: Console, keeper: journal.Journal | None = None):
        self._keeper, self._noted = keeper, time.monotonic()
        self._console, self._began, self._hops, self._now = console, time.monotonic(), 0, 0.0
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn(),
            console=console, transient=True, refresh_per_second=REDRAWS,
        )
        self._task = self._bar.add_task("", total=1.0)
        self._shown, self._due = False, Due(LONG)

    def __call__(self, fabric: Fabric) -> None:
        self._hops, self._now = fabric.stats()["frames"], fabric.now / 1e12
        if self._keeper:
            self._note(self._keeper, fabric)
        if self._seconds < LONG:
            return
        done, text = fabric.progress() or 0.0, self._text
        if not self._console.is_terminal:
            if self._due():
                self._console.print(f"{done:.0%}: {text}", highlight=False)
            return
        if not self._shown:
            self._bar.start()
            self._shown = True
        self._bar.update(self._task, completed=done, description=text)

    def _note(self, keeper: journal.Journal, fabric: Fabric) -> None:
        if (now := time.monotonic()) >= self._noted + journal.EVERY:
            share = fabric.progress()
            keeper.note("", round(share or 0.0, 4), None if share is None else 1, self._text, hops_per_s=self._rate)
            self._noted = now

    @property
    def _text(self) -> str:
        return f"{1e3 * self._now:.3f} virtual ms, {self._rate / 1e6:.2f} M packet-hops/s"

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
