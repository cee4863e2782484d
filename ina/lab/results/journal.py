"""Progress of a run or a sweep that is under way: `progress.jsonl` in its folder, one JSON object a line. It is gone after a
success, when the results hold all of it.

    {"schema": 1, "kind": "training", "name": "fashion-mnist", "began": 1796004000.2, "host": "node3", "pid": 4711}
    {"at": 2.3, "of": "ina", "done": 7, "total": 40, "loss": 1.93, "step_ms": 12.5, "allreduce_ms": 4.1}

The first line says what began, and when (s since 1970). Each other one says how much of it was `done` of a `total` (null: nobody
knows) `at` s after that, for which back end or job, with `words`, and the means of figures since the line before of the same
back end; null is no finite number. There are FULL lines of each, and then as many steps share a line as keep HALF of it for each
doubling of the steps. The writer holds a lock on the file (flock(2)) that the kernel releases however the process ends: a file
without a lock is of a run that ended without a result. On other machines locks are seen as far as the file system has them.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from ina.base import documents, plain_files
from ina.lab.results.record import ResultsError

SCHEMA = 1
FILE = "progress.jsonl"
EVERY = 1.0  # seconds between two writes at least
FULL = 1000  # lines of a back end or job with a step each
HALF = FULL // 2  # lines from then on whenever the steps have doubled
MOST_BITS = 1023  # of a whole number: a larger one is no float
MOST = 64 << 20  # bytes that are read: those of fifty back ends with a billion steps each


@dataclass
class _Mean:
    """Figures of the steps that share the next line."""

    lines: int = 0
    steps: int = 0
    ended: bool = False
    sums: dict[str, float] = field(default_factory=dict)

    @property
    def share(self) -> int:
        """Steps of the next line."""
        return 1 if self.lines < FULL else 2 << (self.lines - FULL) // HALF


class Journal:
    """Context manager, and writer, of the progress of what runs in ``folder``, a line each EVERY seconds at most. A journal that
    cannot be written, as on a full disk, ends no run: lines wait until they can be.

    ``head``: further keys of the first line, such as kind and name. Raises OSError: there is no such folder, or its file system
    has no locks.
    """

    def __init__(self, folder: Path, **head: object) -> None:
        self._path, self._means, self._began = folder.resolve() / FILE, dict[str, _Mean](), time.monotonic()
        first = {"schema": SCHEMA, **head, "began": round(time.time(), 3), "host": socket.gethostname(), "pid": os.getpid()}
        self._pending, self._next = _line(first), 0.0
        part = self._path.with_suffix(".part")
        part.unlink(missing_ok=True)
        self._file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody else knows this name
            self.flush()
            part.replace(self._path)  # with its lock and its first line
        except OSError:
            os.close(self._file)
            part.unlink(missing_ok=True)
            raise
        _OPEN[self._path.parent] = self

    def note(self, of: str, done: float, total: float | None, words: str = "", **figures: float) -> None:
        """Takes note that ``done`` of ``total`` is over for a back end or job, with the figures of the last step."""
        mean = self._means.setdefault(of, _Mean())
        if mean.ended and done == total:
            return  # has been said
        mean.steps += 1
        for name, value in figures.items():
            mean.sums[name] = mean.sums.get(name, 0.0) + value
        if mean.steps >= mean.share or done == total:
            means = {name: _rounded(value / mean.steps) for name, value in mean.sums.items()}
            text = {"words": words} if words else {}
            at = round(time.monotonic() - self._began, 3)
            self._pending += _line({"at": at, "of": of, "done": done, "total": total, **text, **means})
            mean.lines, mean.steps, mean.sums, mean.ended = mean.lines + 1, 0, {}, done == total
        self.due()

    def due(self) -> None:
        """Writes what waits if the last write was EVERY seconds ago; also called while nothing happens."""
        if self._pending and (now := time.monotonic()) >= self._next:
            self._next = now + EVERY
            self.flush()

    def flush(self) -> None:
        with suppress(OSError):  # tried again with the next line
            self._pending = self._pending[os.write(self._file, self._pending):]

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        del _OPEN[self._path.parent]
        if kind is None:
            self._path.unlink(missing_ok=True)
        else:
            self.flush()
        fcntl.flock(self._file, fcntl.LOCK_UN)  # also for processes that have inherited it
        os.close(self._file)


_OPEN: dict[Path, Journal] = {}  # by folder: what runs in this process


def of(folder: Path) -> Journal | None:
    """Returns the journal of what this process runs in a folder; None: nobody keeps one."""
    return _OPEN.get(folder.resolve())


def _line(values: Mapping[str, object]) -> bytes:
    return json.dumps(values, allow_nan=False).encode() + b"\n"


def _rounded(value: float) -> float | None:
    """Returns a figure with six digits; None: it is no finite number."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


# ---- reading


@dataclass(frozen=True)
class Progress:
    """Contents of a journal. ``head``: its first line; ``lines``: the others; ``running``: somebody writes it."""

    head: dict[str, Any]
    lines: list[dict[str, Any]]
    running: bool

    def last(self) -> list[dict[str, Any]]:
        """Returns the newest line of each back end or job, in the order in which they began."""
        return list({line["of"]: line for line in self.lines}.values())


def read(folder: Path) -> Progress | None:
    """Reads the journal of a folder; None: there is none, as after a success. A last line that is not whole is left out.

    Raises ResultsError, which names the file and the line: it is no journal, or one of another schema.
    """
    path = folder / FILE
    try:
        stream = plain_files.opened(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None
    with stream:
        running = _is_locked(stream.fileno())  # before it is read: what has ended is whole
        data = stream.read(MOST + 1)
    if len(data) > MOST:
        raise ResultsError(f"{path}: more than {MOST >> 20} MiB: no run writes so much")
    if b"\n" not in data:
        return None  # no room for its first line
    head, *values = (_parsed(path, number, text) for number, text in enumerate(data.split(b"\n")[:-1], start=1))
    if head.get("schema") != SCHEMA:
        raise ResultsError(f"{path}:1: schema {head.get('schema')!r}, expected {SCHEMA}: a run of another version writes it")
    if not _is_number(head.get("began")):
        raise ResultsError(f"{path}:1: began = {head.get('began')!r}: expected seconds since 1970")
    return Progress(head, [_checked(path, number, value) for number, value in enumerate(values, start=2)], running)


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # until it is closed; writers lock only files that have no name yet
    except BlockingIOError:
        return True
    except OSError:  # no locks here: nor had the writer any
        return False
    return False


def _parsed(path: Path, number: int, text: bytes) -> dict[str, Any]:
    try:
        value = documents.json_text(text)
    except documents.Unreadable as error:
        raise ResultsError(f"{path}:{number}: {error}") from None
    if not isinstance(value, dict):
        raise ResultsError(f"{path}:{number}: a {type(value).__name__}, expected an object with keys")
    return value


def _checked(path: Path, number: int, line: dict[str, Any]) -> dict[str, Any]:
    """Returns a line with values of the right types. Raises ResultsError."""
    expected = {"at": (_is_number, "seconds"), "of": (lambda value: isinstance(value, str), "the name of a back end or job"),
                "done": (_is_number, "a number"), "total": (lambda value: value is None or _is_number(value), "a number or null")}
    for key, (fits, what) in expected.items():
        if key not in line or not fits(line[key]):
            raise ResultsError(f"{path}:{number}: {key} = {line.get(key)!r}: expected {what}")
    for key, value in line.items():
        if key not in (*expected, "words") and not (value is None or _is_number(value)):
            raise ResultsError(f"{path}:{number}: {key} = {value!r}: expected a figure or null")
    return line


def _is_number(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and value.bit_length() <= MOST_BITS
    return isinstance(value, float)
