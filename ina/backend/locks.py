"""A lock that nobody waits for without end, and that a signal handler cannot lock itself out with."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Lock:
    """``with lock:``. RuntimeError: another thread has had it for ``seconds()``. The thread that has it may take it again, as a
    signal handler does that runs in the middle of what it guards."""

    def __init__(self, what: str, seconds: Callable[[], float]):
        """``what``: it guards, for messages."""
        self._what, self._seconds, self._lock = what, seconds, threading.RLock()

    def __enter__(self) -> None:
        seconds = min(self._seconds(), threading.TIMEOUT_MAX)
        if not self._lock.acquire(timeout=seconds):
            raise RuntimeError(f"ina: {self._what} has been in use by another thread for {seconds:g} s")

    def __exit__(self, *error: object) -> None:
        self._lock.release()
