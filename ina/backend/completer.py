"""The thread that completes the Futures of a group's collectives."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from ina.backend.locks import Lock


class Completer:
    """Completes the Futures of one group, in the order of their requests.

    A callback may itself request Futures and wait for them (PowerSGD does): those get a thread of their own.
    """

    def __init__(self, patience: Callable[[], float], name: str = "ina-completion") -> None:
        """``patience``: longest wait for another thread, seconds. ``name``: of its threads."""
        self._name = name
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = Lock("the group's completion thread", patience)
        self._local = threading.local()
        self._closed = False

    def run(self, task: Callable[[], None]) -> None:
        with self._lock:
            if self._closed or getattr(self._local, "busy", False):
                threading.Thread(target=self._nested, args=(task,), name=self._name, daemon=True).start()
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
                self._thread.start()
            self._queue.put(task)

    def _nested(self, task: Callable[[], None]) -> None:
        self._local.busy = True
        task()

    def _loop(self) -> None:
        self._local.busy = True
        while (task := self._queue.get()) is not None:
            task()

    def close(self, timeout: float = 5.0) -> None:
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._queue.put(None)
            thread.join(timeout)
