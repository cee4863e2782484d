"""Traces of membership: who of a training's workers is taken away when, and who comes back when.

    time_s,worker,event                    lines that begin with # are comments; times do not decrease
    12.5,3,leave                           event: leave or join
    40,3,join

Workers are there at time 0, but those whose first event is a join. Traces are read from such a file, or drawn: the times that a
worker is there, and those that it is away, are exponential and independent of each other and of all other workers. That is a
generator of our own, with a closed form to compare with; machines of a cloud are taken away in groups and by the hour of the day.
"""

from __future__ import annotations

import csv
import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ina.base import error_text
from ina.base.bounds import SECONDS
from ina.base.settings import ConfigError
from ina.net.ports import PS

COLUMNS = ("time_s", "worker", "event")
EVENTS = ("leave", "join")


@dataclass(frozen=True, order=True)
class Change:
    """A worker that leaves, or joins; ``time`` in ps."""

    time: int
    worker: int
    joins: bool


@dataclass
class Membership:
    """Workers that are there at time 0, and what changes then, in order; ``changes`` may have no end."""

    first: tuple[int, ...]
    changes: Iterable[Change]


def read(path: Path, workers: int) -> Membership:
    """Reads a file of changes of the workers 0 to ``workers`` - 1. Raises ConfigError with file, line and field."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets write a mark in front, which nobody sees
    except OSError as error:
        raise ConfigError(error_text.line(error)) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file: expected lines of {','.join(COLUMNS)}") from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip() and line[0] != "#"]
    if not lines or tuple(name.strip() for name in lines[0][1].split(",")) != COLUMNS:
        raise ConfigError(f"{path}: expected the columns {','.join(COLUMNS)} in the first line")
    changes: list[Change] = []
    there: dict[int, bool] = {}  # by worker, after its latest change
    for number, line in lines[1:]:
        change = _change(f"{path}:{number}", line, workers, changes[-1].time if changes else 0)
        if there.get(change.worker, not change.joins) == change.joins:
            state = "there already" if change.joins else "away already"
            other = EVENTS[not change.joins]
            raise ConfigError(f"{path}:{number}: event: worker {change.worker} is {state}, expected {other}")
        there[change.worker] = change.joins
        changes.append(change)
    late = _first_joins(changes)
    return Membership(tuple(worker for worker in range(workers) if worker not in late), changes)


def _first_joins(changes: Iterable[Change]) -> set[int]:
    """Returns the workers whose first change is a join."""
    first: dict[int, bool] = {}
    for change in changes:
        first.setdefault(change.worker, change.joins)
    return {worker for worker, joins in first.items() if joins}


def _change(where: str, line: str, workers: int, least: int) -> Change:
    try:
        (row,) = csv.reader([line])  # quotes end in their line
        time, worker, event = (field.strip() for field in row)
    except (ValueError, csv.Error):
        raise ConfigError(f"{where}: {line!r}: expected the {len(COLUMNS)} fields {','.join(COLUMNS)}") from None
    try:
        seconds = float(time)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= SECONDS:
        raise ConfigError(f"{where}: time_s: {time!r}: expected seconds, 0 to {SECONDS:g}")
    if round(seconds * PS) < least:
        raise ConfigError(f"{where}: time_s: {time!r}: expected at least {least / PS:g}, the time of the line before")
    if not (worker.isascii() and worker.isdigit() and len(worker) < 10 and int(worker) < workers):
        raise ConfigError(f"{where}: worker: {worker!r}: expected 0 to {workers - 1}")
    if event not in EVENTS:
        raise ConfigError(f"{where}: event: {event!r}: expected {' or '.join(EVENTS)}")
    return Change(round(seconds * PS), int(worker), event == "join")


def drawn(seed: int, workers: int, between: float, away: float) -> Membership:
    """Returns a trace without an end: each worker is there for ``between`` s on average (0: for ever), then away for ``away`` s,
    both exponential."""
    each = (_drawn(np.random.default_rng((seed, worker)), worker, between, away) for worker in range(workers))
    return Membership(tuple(range(workers)), heapq.merge(*each) if between else ())


def _drawn(rng: np.random.Generator, worker: int, between: float, away: float) -> Iterator[Change]:
    time = 0
    while True:
        for mean, joins in ((between, False), (away, True)):
            time += round(PS * rng.exponential(mean))
            yield Change(time, worker, joins)
