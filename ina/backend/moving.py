"""When a switch fails, a job moves: the ranks tell each other through the group's store what they have, and go on elsewhere.

A thread of each rank listens for the news, for a rank that waits for nothing has results that others may lack. The store's
blocking calls would keep other threads from it, so it is only ever asked for what is there.
"""

from __future__ import annotations

import json
import select
import threading
import time
import warnings
from collections.abc import Callable

from ina.control.client import Client
from ina.transport import Endpoint
from ina.transport.failover import Movable, MoveFailed

PATIENCE = 60.0  # seconds for all ranks to say what they have, and for parts to come
LOOK = 0.2  # seconds between two looks at the connection
PAUSE = 0.005  # seconds between two looks at the store


class Superseded(Exception):
    """The job has been moved once more, before this move was through."""


class Mover:
    """Moves one rank's job. ``reopen``: attaches anew and gives the new endpoint; ``failed``: is told why the job is over."""

    def __init__(self, client: Client, lock: threading.Lock, movable: Movable, store, rank: int, size: int,
                 reopen: Callable[[], Endpoint], failed: Callable[[str], None]):
        self._client, self._lock, self._movable, self._store = client, lock, movable, store
        self._rank, self._size, self._reopen, self._failed = rank, size, reopen, failed
        self._moves = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ina-mover", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for a move that is under way."""
        self._stop.set()
        self._thread.join(PATIENCE)

    def _watch(self) -> None:
        poller = select.poll()
        poller.register(self._client.fileno(), select.POLLIN)
        while not self._stop.is_set():
            if not poller.poll(LOOK * 1000) and len(self._client.moved) == self._moves:
                continue
            with self._lock:
                over = self._client.poll()
            if len(self._client.moved) > self._moves:
                self._move()
            elif over:
                return
            else:
                time.sleep(PAUSE)  # what came was for somebody else, who is taking it

    def _move(self) -> None:
        self._moves = len(self._client.moved)
        reason = self._client.moved[-1]
        try:
            began = time.monotonic()
            again, copied = self._exchange()
        except Superseded:
            return
        except Exception as error:  # whatever it is, nobody may wait for the rest of it
            self._failed(f"ina: {reason}; but it could not: {error}")
            self._movable.give_up()
            return
        warnings.warn(f"ina: {reason}: {again} parts of tensors begin again, {copied} come from other ranks, after "
                      f"{time.monotonic() - began:.2f} s", RuntimeWarning, stacklevel=2)  # fmt: skip

    def _exchange(self) -> tuple[int, int]:
        movable, place = self._movable, f"move/{self._moves}"
        self._store.set(f"{place}/rank/{self._rank}", json.dumps(movable.halt()))
        reports = [json.loads(self._get(f"{place}/rank/{rank}", f"rank {rank} to say what it has")) for rank in range(self._size)]
        for (tensor, part), data in movable.give(self._rank, reports).items():
            self._store.set(f"{place}/part/{tensor}/{part}", data)
        given = {(tensor, part): self._get(f"{place}/part/{tensor}/{part}", f"part {part} of tensor {tensor}")
                 for tensor, part in movable.wanted(reports)}  # fmt: skip
        return movable.resume(self._reopen(), reports, given), len(given)

    def _get(self, key: str, what: str) -> bytes:
        deadline = time.monotonic() + PATIENCE
        while not self._store.check([key]):
            if time.monotonic() > deadline:
                raise MoveFailed(f"waited {PATIENCE:g} s for {what}")
            with self._lock:
                if over := self._client.poll():
                    raise MoveFailed(f"meanwhile {over}")
            if len(self._client.moved) > self._moves:
                raise Superseded
            time.sleep(PAUSE)
        return self._store.get(key)
