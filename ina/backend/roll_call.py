"""Detects ranks in different collectives: each rank that waits for long publishes its collectives in the group's store.

Nothing of this happens while collectives take less than ``PATIENCE``. A rank that waits longer publishes the collectives that it
has begun and not ended, by number: the n-th of the group is the same one on all ranks, whether it goes through the switch or
through Gloo. Two ranks whose n-th collectives differ would wait for each other until the time-out.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass

import torch.distributed as dist

PATIENCE = 1.0  # seconds in a collective before a rank says so, and between two looks at what the others say
TELLING = 2.0  # seconds for the others to see it, too, before the first rank ends the job
MOST = 64  # collectives, the oldest, that a rank tells of


@dataclass(frozen=True)
class Call:
    """A collective of this rank. Two of one number agree if ``way`` and ``agreed`` are equal."""

    number: int  # in the life of the group
    way: str  # "the switch" or "Gloo"
    agreed: str  # what must be equal on all ranks, in words
    began: float


class RollCall:
    """The roll call of one rank of one group. Methods may be called from any thread."""

    def __init__(self, store: dist.Store, rank: int, size: int):
        self._store, self._rank, self._size = store, rank, size
        self._own: dist.Store | None = None
        self._next = 0
        self._open: dict[int, Call] = {}
        self._looked = 0.0
        self._lock = threading.Lock()  # never held while waiting

    def begin(self, way: str, agreed: str) -> Call:
        """The next collective of the group."""
        call = Call(self._next, way, agreed, time.monotonic())
        self._next += 1
        self._open[call.number] = call
        return call

    def end(self, call: Call) -> None:
        self._open.pop(call.number, None)

    def look(self, call: Call) -> str:
        """Called now and then by who waits for ``call``: "", or how the ranks disagree on some collective. That all ranks
        concerned know it, or have had ``TELLING`` for it, when this returns."""
        now = time.monotonic()
        if now - max(call.began, self._looked) < PATIENCE or not self._lock.acquire(blocking=False):
            return ""
        try:
            self._looked = now
            number, found = self._compare(self._ask())
            if found:
                self._wait_for(f"seen/{number}", found)
                return self._text(number, found)
            return ""
        finally:
            self._lock.release()

    def differing(self, call: Call) -> str:
        """As ``look``, once it is known that the ranks do not agree on ``call`` or one before it; "" if nobody says how."""
        deadline = time.monotonic() + TELLING
        self._open.setdefault(call.number, call)
        while True:
            said = self._ask()
            number, found = self._compare(said)
            if found and (len(found) == self._size or time.monotonic() > deadline):
                return self._text(number, found)
            if time.monotonic() > deadline:
                return ""
            time.sleep(0.02)

    def _ask(self) -> dict[int, dict[int, list[str]]]:
        """Publish this rank's open collectives, and return every rank's: by rank and number, [way, what must agree]."""
        oldest = sorted(self._open.copy().values(), key=lambda call: call.number)[:MOST]
        mine = {call.number: [call.way, call.agreed] for call in oldest}
        said = {self._rank: mine}
        try:
            own = self._connection()
            own.set(f"rank/{self._rank}", json.dumps(mine))
            for rank in range(self._size):
                if rank != self._rank and own.check([f"rank/{rank}"]):
                    said[rank] = {int(n): call for n, call in json.loads(own.get(f"rank/{rank}")).items()}
        except RuntimeError:  # the store is gone, and its rank with it: that is found otherwise
            pass
        return said

    def _connection(self) -> dist.Store:
        """A connection that no other thread's blocking call keeps from us."""
        if self._own is None:
            self._own = self._store.clone()  # type: ignore[attr-defined]  # torch has it, its stubs do not
        return self._own

    def _compare(self, said: dict[int, dict[int, list[str]]]) -> tuple[int, dict[int, list[str]]]:
        """The first collective on which ranks disagree, and what each is in; (0, {}): there is none."""
        for number in sorted(said[self._rank]):
            calls = {rank: open_[number] for rank, open_ in sorted(said.items()) if number in open_}
            if len({(way, agreed) for way, agreed in calls.values()}) > 1:
                return number, calls
        return 0, {}

    def _wait_for(self, place: str, ranks: dict[int, list[str]]) -> None:
        deadline = time.monotonic() + TELLING
        try:
            own = self._connection()
            own.set(f"{place}/{self._rank}", "")
            while not own.check([f"{place}/{rank}" for rank in ranks]) and time.monotonic() < deadline:
                time.sleep(0.02)
        except RuntimeError:
            pass

    def _text(self, number: int, calls: dict[int, list[str]]) -> str:
        each = "; ".join(f"rank {rank} is in {agreed} (through {way})" for rank, (way, agreed) in calls.items())
        return f"the ranks do not agree on the group's collective #{number}: {each}"
