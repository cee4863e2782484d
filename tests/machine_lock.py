"""Who may use the machine: tests run beside each other, but one marked ``machine`` (it measures, or fills it) alone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(folder: Path, alone: bool) -> Iterator[None]:
    """The machine, beside others or ``alone``; processes agree by two locks in ``folder``.

    Whoever comes takes the turnstile first, and keeps it until the machine is his: nobody overtakes one who waits to be alone.
    """
    with (folder / "turnstile").open("w") as turnstile, (folder / "machine").open("w") as machine:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        fcntl.flock(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(turnstile, fcntl.LOCK_UN)
        yield
