"""State that the collectives of one group share: their order, the thread that completes their Futures, the threads in one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from ina.backend.completer import Completer
from ina.backend.locks import Lock
from ina.backend.roll_call import RollCall

STAGED = 2  # sums with memory of their own that are on their way at a time


class Sender(Protocol):
    """A collective made of sums."""

    def send(self, room: int) -> tuple[int, bool]:
        """Begin sums, ``room`` of them with memory of their own. How many of these it began, and whether all have begun."""


class GroupState:
    """The collectives of one rank of one group. Methods may be called from any thread."""

    def __init__(self, patience: Callable[[], float], roll_call: RollCall | None):
        """``patience``: the group's time-out, seconds. ``roll_call``: None: nobody else could be in something else."""
        self.patience, self.roll_call = patience, roll_call
        self.completer = Completer(patience)
        self._inside: dict[int, str] = {}  # by thread
        self._lock = Lock("the order of the group's collectives", patience)
        self._senders: deque[Sender] = deque()
        self._staged = 0

    # ---- one collective at a time in each thread

    @contextmanager
    def inside(self, what: str, alone: bool = True) -> Iterator[None]:
        """This thread is in ``what``. RuntimeError with ``alone``: it is in a collective already, so a signal handler has
        interrupted it, and nobody else knows of a collective in between."""
        thread = threading.get_ident()
        before = self._inside.get(thread)
        if alone and before is not None:
            raise RuntimeError(f"ina: {what} was begun by a signal handler while this thread is in {before}: a collective cannot "
                               "begin within another. Let the handler set a flag, and look at it between collectives")
        self._inside[thread] = what
        try:
            yield
        finally:
            if before is None:
                del self._inside[thread]
            else:
                self._inside[thread] = before

    def interrupted(self) -> bool:
        """True if this thread is in a collective already: then a signal handler asks."""
        return threading.get_ident() in self._inside

    # ---- sums begin in the order of collectives, however long they wait for memory

    def add(self, sender: Sender) -> None:
        """The next collective; ``go_on`` begins its sums."""
        with self._lock:
            self._senders.append(sender)

    def go_on(self, done: int = 0) -> None:
        """Begin what there is room for; ``done``: so many sums with memory of their own have ended."""
        with self._lock:
            self._staged -= done
            while self._senders:
                began, all_have = self._senders[0].send(STAGED - self._staged)
                self._staged += began
                if not all_have:
                    return
                self._senders.popleft()
