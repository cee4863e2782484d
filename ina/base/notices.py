"""Notices for people on standard error: what takes long, and what was chosen for them. `INA_QUIET=true` leaves them out.

A process whose standard error is a log may get a descriptor of its starter's for them (`to`).
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ina.base import cache

SOON = 0.5  # seconds without a line: a program that is wrong is known to be by then
EVERY = 5.0  # seconds between lines about what goes on
_descriptors: list[int] = []  # the last one is used; -1: for nobody


def quiet() -> bool:
    """Returns True if the environment asks for no notices."""
    return os.environ.get("INA_QUIET", "").lower() == "true"


def notice(text: str) -> None:
    """Prints a line, unless nobody wants it. A standard error that takes nothing is no error of what the line is about."""
    with suppress(OSError, ValueError):
        if _descriptors:
            if _descriptors[-1] >= 0:
                os.write(_descriptors[-1], f"ina: {text}\n".encode())
        elif not quiet() and sys.stderr is not None:
            print(f"ina: {text}", file=sys.stderr, flush=True)


@contextmanager
def to(descriptor: int) -> Iterator[None]:
    """Sends the notices of the block to a descriptor, which it closes at its end; -1: leaves them out."""
    _descriptors.append(descriptor)
    try:
        yield
    finally:
        _descriptors.pop()
        if descriptor >= 0:
            os.close(descriptor)


@contextmanager
def going_on(what: str, more: str, lock: Path) -> Iterator[None]:
    """Prints ``what`` and ``more`` unless the block ends within SOON seconds, and ``what`` with the seconds so far every EVERY
    seconds until it ends. Of several processes at the same thing one does so: ``lock`` is a file of it, which is there
    meanwhile. OSError: it cannot be made."""
    with cache.problems(lock):
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield
            return
        try:
            with _repeated(what, more):
                yield
        finally:
            lock.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


@contextmanager
def _repeated(what: str, more: str) -> Iterator[None]:
    over, began = threading.Event(), time.monotonic()

    def repeat() -> None:
        if over.wait(SOON):
            return
        notice(f"{what} ({more})")
        while not over.wait(EVERY):
            notice(f"{what}: {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=repeat, name="ina-notices", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
