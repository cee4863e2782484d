"""Questions to a group's store that end in time, whatever has become of the process that serves it.

torch's calls to a TCPStore wait for its answer. Where the serving process stands still (SIGSTOP, a debugger, memory on disk),
they block, and with them the rank that is to notice that: so each question has a thread of its own, and who asks waits for a
while.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch.distributed as dist

T = TypeVar("T")
FIRST_PAUSE, LAST_PAUSE = 1e-3, 0.02  # seconds between looks for keys, which double


class StoreSilent(RuntimeError):
    """The store has not answered in time."""


def connection(store: dist.Store) -> dist.Store:
    """Returns a connection of its own; the store itself where it has no others: torch 2.7's stores, and stores written in
    Python."""
    try:
        return store.clone()  # type: ignore[attr-defined]  # torch has it, its stubs do not
    except (AttributeError, RuntimeError):
        return store


class Questions:
    """Questions over a connection of their own, which no other thread's blocking call occupies, one at a time. Methods may be
    called from any thread."""

    def __init__(self, store: dist.Store):
        """``store``: cloned with the first question."""
        self._store = store
        self._own: dist.Store | None = None
        self._busy = threading.Lock()  # held by the thread that asks the store
        self._late: object = None  # the question whose answer is overdue

    def ask(self, question: Callable[[dist.Store], T], seconds: float) -> T:
        """Returns ``question``'s answer, of a function of the store. Raises what it raises; StoreSilent: there is none within
        ``seconds``, or an earlier one is overdue."""
        deadline = time.monotonic() + seconds
        if self._late is not None or not self._busy.acquire(timeout=seconds):
            raise StoreSilent("ina: the group's store does not answer: its process stands still, or its machine is gone")
        answers: queue.SimpleQueue[tuple[bool, object]] = queue.SimpleQueue()
        turn = iter((True,))  # who takes it lets others ask: the thread, or the asker that a signal handler ends meanwhile

        def ask() -> None:
            if not next(turn, False):
                return
            try:
                if self._own is None:
                    self._own = connection(self._store)
                answers.put((True, question(self._own)))
            except Exception as error:
                answers.put((False, error))
            finally:
                self._late = None  # before the next one may ask
                self._busy.release()

        try:
            threading.Thread(target=ask, name="ina-store", daemon=True).start()
        except BaseException:
            if next(turn, False):
                self._busy.release()
            raise
        try:
            is_answer, value = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            self._late = answers
            if not answers.empty():  # it came just now
                self._late = None
            raise StoreSilent(f"ina: the group's store has not answered for {seconds:g} s: its process stands still, or its "
                              "machine is gone") from None
        if is_answer:
            return value  # type: ignore[return-value]
        assert isinstance(value, Exception)
        raise value

    def agree(self, key: str, value: str, seconds: float) -> str:
        """Sets ``key`` unless it is set. Returns its value: that of the first one who has asked. Raises as `ask`."""
        return self.ask(lambda store: store.compare_set(key, "", value), seconds).decode()

    def missing(self, keys: Sequence[str], deadline: float, answer: float) -> list[str]:
        """Waits for ``keys`` until ``deadline``, of the monotonic clock; returns those that are not there even then.

        It looks again and again, because a store that waits lets no other thread of this rank set anything. ``answer``: seconds
        for each look. Raises what `ask` does."""
        absent, pause = list(keys), FIRST_PAUSE

        def look(store: dist.Store) -> list[str]:
            return [] if store.check(absent) else [key for key in absent if not store.check([key])]

        while (absent := self.ask(look, answer)) and time.monotonic() <= deadline:
            time.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE)
        return absent
