"""State that the collectives of one group share: their order, the completion thread, and the threads inside a collective.

Sums begin in the order of collectives, on every rank alike. At most ``STAGED`` of them have memory of their own at a time; the
next one begins when one of these has ended. That takes a thread that looks, since Python decodes a sum's result:

    a collective's sums have begun      who waits for it looks at it
    they wait for memory                who waits for it looks at the oldest collective that has memory; so does a thread of the
                                        group, because the caller may wait for something else first, or for nothing

So whatever is waited for, from whichever thread, the oldest collective goes on, and fails with the group's time-out if other
ranks do not take part in it. What has begun needs nothing that has not.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from ina.backend.completer import Completer
from ina.backend.locks import Lock
from ina.backend.roll_call import RollCall

STAGED = 2  # sums with memory of their own that are on their way at a time
SLICE = 0.1  # seconds of native waiting between checks for signals and messages of the switch process


class Sender(Protocol):
    """A collective made of sums."""

    def look(self, seconds: float) -> bool:
        """Waits up to ``seconds`` for its end, and decodes what has ended. Returns True if all has."""

    def interrupted(self) -> bool:
        """Returns True if the caller is a signal handler that has interrupted its thread in `look`."""

    def send(self, room: int) -> tuple[int, bool]:
        """Begins sums, at most ``room`` of them with memory of their own. Returns how many of these, and whether all have
        begun."""


class Inside:
    """Context of a thread inside a collective. Every collective has one: a generator would take twice as long."""

    __slots__ = ("_before", "_inside", "_name")

    def __init__(self, inside: dict[int, str], name: str, before: str | None):
        """``inside``: by thread; ``before``: what this thread is inside of already."""
        self._inside, self._name, self._before = inside, name, before

    def __enter__(self) -> None:
        self._inside[threading.get_ident()] = self._name

    def __exit__(self, *error: object) -> None:
        if self._before is None:
            del self._inside[threading.get_ident()]
        else:
            self._inside[threading.get_ident()] = self._before


class GroupState:
    """The collectives of one rank of one group. Methods may be called from any thread."""

    def __init__(self, patience: Callable[[], float], roll_call: RollCall | None):
        """``patience``: the group's time-out, seconds. ``roll_call``: None: other ranks cannot be in another collective."""
        self.patience, self.roll_call = patience, roll_call
        self.completer = Completer(patience)
        self._inside: dict[int, str] = {}  # by thread
        self._lock = Lock("the order of the group's collectives", patience)
        self._senders: deque[Sender] = deque()  # whose sums have not all begun
        self._holders: dict[Sender, int] = {}  # sums with memory of their own that are on their way; the oldest collective first
        self._sending = False
        self.driver = Completer(patience, "ina-driver")
        self._collectives, self._messages = itertools.count(1), itertools.count(1)

    def beside(self) -> GroupState:
        """Returns the state of a group of the same ranks whose collectives have places in the order of this one's, and wait for
        none of them."""
        state = GroupState(self.patience, self.roll_call)
        state._inside = self._inside
        return state

    def number(self, by_all: bool) -> int:
        """Returns the number of the next call: of the group's collectives (``by_all``), or of this rank's messages in it;
        whichever way they go."""
        return next(self._collectives if by_all else self._messages)

    # ---- one collective at a time in each thread

    def inside(self, name: str, alone: bool = True) -> Inside:
        """Marks this thread as inside collective ``name``. RuntimeError with ``alone``: it is in another one, so a signal handler
        has interrupted it; the other ranks do not expect a collective in between."""
        before = self._inside.get(threading.get_ident())
        if alone and before is not None:
            raise RuntimeError(f"ina: {name} was begun by a signal handler while this thread is in {before}: a collective cannot "
                               "begin within another. Let the handler set a flag, and look at it between collectives")
        return Inside(self._inside, name, before)

    def interrupted(self) -> bool:
        """Returns True if this thread is in a collective already: then the caller is a signal handler."""
        return threading.get_ident() in self._inside

    # ---- sums begin in the order of collectives, however long they wait for memory

    @property
    def sums_wait(self) -> bool:
        """True if sums of earlier collectives have not begun."""
        return bool(self._senders)

    def add(self, sender: Sender) -> None:
        """Adds the next collective; ``go_on`` begins its sums."""
        with self._lock:
            self._senders.append(sender)

    def adopt(self, sender: Sender, held: int, more: bool) -> None:
        """Adds a collective that has begun by itself: ``held`` sums with memory of their own, and ``more`` of it is to begin."""
        with self._lock:
            self._hold(sender, held)
            if more:
                self._senders.appendleft(sender)

    def go_on(self, sender: Sender | None = None, ended: int = 0) -> None:
        """Begins as many sums as there is room for, when ``ended`` sums of ``sender`` with memory of their own have ended."""
        with self._lock:
            if sender is not None:
                self._hold(sender, -ended)
            if self._sending:  # a signal handler has interrupted this thread here, where it goes on after the handler
                return
            self._sending = True
            try:
                while self._senders:
                    first = self._senders[0]
                    began, all_have = first.send(STAGED - sum(self._holders.values()))
                    self._hold(first, began)
                    if not all_have:
                        return
                    self._senders.popleft()
            finally:
                self._sending = False

    def _hold(self, sender: Sender, more: int) -> None:
        count = self._holders.get(sender, 0) + more
        if count:
            self._holders[sender] = count  # at its place
        else:
            self._holders.pop(sender, None)

    def let_go(self, sender: Sender) -> None:
        """Takes the memory of a collective that has ended, or failed, off the account."""
        self.go_on(sender, self._holders.get(sender, 0))

    def drive(self, seconds: float) -> None:
        """Looks at the oldest collective that has memory, up to ``seconds``, for one that waits for memory; 0: at all of them,
        without waiting. RuntimeError: no thread can go on with it."""
        holders = list(self._holders)
        for holder in holders[:1] if seconds > 0 else [each for each in holders if not each.interrupted()]:
            if holder.look(seconds):
                self.let_go(holder)
        if not holders and seconds > 0:  # another thread is about to begin one, unless this does
            with self._lock:
                if self._sending:
                    raise RuntimeError("ina: a signal handler waits for a collective that the thread begins which it interrupted")
                self.go_on()

    def drive_on(self) -> None:
        """Lets the driver's thread look after the collectives that have begun, until all others have."""
        self.driver.run(self._drive)

    def _drive(self) -> None:
        while self._senders:
            with suppress(RuntimeError):  # of a thread that hangs; who waits for the collective is told
                self.drive(SLICE)

    def close(self) -> None:
        self.completer.close()
        self.driver.close()
