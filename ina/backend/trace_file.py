"""A JSON array of events in a file that several processes append to; it stays whole when one of them is killed.

    [
    {"ph":"M",...},
    {"ph":"X",...}
    ]

An append writes a copy with its events beside the file and renames it to the file's name, under a lock. The cost grows with
the file: frequent writers wait between two appends for a multiple of the last one's duration (spans.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

BEGIN, BETWEEN, END = b"[\n", b",\n", b"\n]\n"
PATIENCE = 60.0  # seconds for other writers


class NoTrace(OSError):
    """The file is not such an array; it is left unchanged."""


def append(path: Path, events: Sequence[dict]) -> None:
    """Adds events at the end. Raises OSError; NoTrace; TimeoutError: another process holds the lock."""
    path = path.resolve()  # keeps a symbolic link
    with _locked(path) as file:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise NoTrace(f"{path} is no regular file")
        length = max(0, status.st_size - len(END))
        if status.st_size and (os.pread(file, len(BEGIN), 0) != BEGIN or os.pread(file, len(END), length) != END):
            raise NoTrace(f"{path} is there and is no trace of ina's: remove it, or name another file")
        new = path.with_name(f".{path.name}.new")  # left by a killed writer, if it exists: we hold the lock
        new.unlink(missing_ok=True)
        copy = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(status.st_mode))
        try:
            copied = 0
            while copied < length:
                copied += os.sendfile(copy, file, copied, length - copied)
            text = BETWEEN.join(json.dumps(event, separators=(",", ":")).encode() for event in events)
            with os.fdopen(os.dup(copy), "wb") as out:
                out.write((BETWEEN if length else BEGIN) + text + END)
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        finally:
            os.close(copy)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Opens the file that has this name now, makes it if there is none, and locks it. Yields its descriptor."""
    deadline = time.monotonic() + PATIENCE
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path}: another process has had the lock for {PATIENCE:g} s") from None
                time.sleep(0.005)
                continue
            try:
                same = os.path.samestat(os.stat(path), os.fstat(file))
            except FileNotFoundError:
                same = False
            if same:
                yield file
                return
        finally:
            os.close(file)
