"""Machine lock: tests run beside each other, but one marked ``machine`` (it measures, or fills the machine) runs alone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(folder: Path, alone: bool) -> Iterator[None]:
    """Holds the machine, shared or ``alone``, by two file locks in ``folder``.

    A process takes the turnstile lock first and keeps it until it has the machine: none overtakes one that waits to be alone.
    """
    with (folder / "turnstile").open("w") as turnstile, (folder / "machine").open("w") as machine:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        fcntl.flock(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(turnstile, fcntl.LOCK_UN)
        yield
