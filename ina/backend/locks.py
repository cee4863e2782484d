"""A lock with a time-out, which a signal handler may take again."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Lock:
    """Lock for ``with``. RuntimeError: another thread has held it for ``seconds()``. The holding thread may take it again, as a
    signal handler does that runs in the middle of a guarded section."""

    def __init__(self, resource: str, seconds: Callable[[], float]):
        """``resource``: that it guards, for messages."""
        self._resource, self._seconds, self._lock = resource, seconds, threading.RLock()

    def __enter__(self) -> None:
        if self._lock.acquire(blocking=False):  # mostly free
            return
        seconds = min(self._seconds(), threading.TIMEOUT_MAX)
        if not self._lock.acquire(timeout=seconds):
            raise RuntimeError(f"ina: {self._resource} has been in use by another thread for {seconds:g} s")

    def __exit__(self, *error: object) -> None:
        self._lock.release()
