"""State that the collectives of one group share: their order, the completion thread, and the threads inside a collective."""

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
        """Begins sums, at most ``room`` of them with memory of their own. Returns how many of these, and whether all have
        begun."""


class GroupState:
    """The collectives of one rank of one group. Methods may be called from any thread."""

    def __init__(self, patience: Callable[[], float], roll_call: RollCall | None):
        """``patience``: the group's time-out, seconds. ``roll_call``: None: other ranks cannot be in another collective."""
        self.patience, self.roll_call = patience, roll_call
        self.completer = Completer(patience)
        self._inside: dict[int, str] = {}  # by thread
        self._lock = Lock("the order of the group's collectives", patience)
        self._senders: deque[Sender] = deque()
        self._staged = 0

    # ---- one collective at a time in each thread

    @contextmanager
    def inside(self, name: str, alone: bool = True) -> Iterator[None]:
        """Marks this thread as inside collective ``name``. RuntimeError with ``alone``: it is in another one, so a signal handler
        has interrupted it; the other ranks do not expect a collective in between."""
        thread = threading.get_ident()
        before = self._inside.get(thread)
        if alone and before is not None:
            raise RuntimeError(f"ina: {name} was begun by a signal handler while this thread is in {before}: a collective cannot "
                               "begin within another. Let the handler set a flag, and look at it between collectives")
        self._inside[thread] = name
        try:
            yield
        finally:
            if before is None:
                del self._inside[thread]
            else:
                self._inside[thread] = before

    def interrupted(self) -> bool:
        """Returns True if this thread is in a collective already: then the caller is a signal handler."""
        return threading.get_ident() in self._inside

    # ---- sums begin in the order of collectives, however long they wait for memory

    def add(self, sender: Sender) -> None:
        """Adds the next collective; ``go_on`` begins its sums."""
        with self._lock:
            self._senders.append(sender)

    def go_on(self, done: int = 0) -> None:
        """Begins as many sums as there is room for; ``done``: number of sums with memory of their own that have ended."""
        with self._lock:
            self._staged -= done
            while self._senders:
                began, all_have = self._senders[0].send(STAGED - self._staged)
                self._staged += began
                if not all_have:
                    return
                self._senders.popleft()
