"""Recovery of a worker's job when a switch or the controller fails, in a thread of its own: it moves, or it reconnects.

When a switch fails, the job moves: the ranks exchange through the group's store which parts they have, and go on elsewhere. A
rank that waits for nothing has results that others may lack; hence the thread. The store's blocking calls would keep other
threads from it, so only keys that exist are read.

When a controller ends that the switches outlive, packets go on; the rank connects again when there is a new one.
"""

from __future__ import annotations

import json
import select
import threading
import time
import warnings
from contextlib import AbstractContextManager
from typing import Protocol

from ina.aggregation.controller.client import Client, ControlError
from ina.aggregation.worker import Endpoint
from ina.aggregation.worker.failover import Movable, MoveFailed
from ina.base.error_text import reason

PATIENCE = 60.0  # seconds for all ranks to report their parts, and for parts to arrive
COMING_BACK = 25.0  # seconds for a new controller; it waits for its workers a little longer
LOOK = 0.2  # seconds between two checks of the connection
PAUSE = 0.005  # seconds between two checks of the store


class Superseded(Exception):
    """The job has been moved again before this move was complete."""


class Store(Protocol):
    """Place in which all workers of a job see what each has put there: torch's Store has these."""

    def set(self, key: str, value: str) -> None: ...

    def check(self, keys: list[str]) -> bool: ...

    def get(self, key: str) -> bytes: ...


class Member(Protocol):
    """One worker's part in a job (ina/backend/job.py)."""

    rank: int
    size: int
    client: Client

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The client's."""

    def reopen(self) -> Endpoint:
        """Attaches again, where the job is now. Raises ControlError, RuntimeError."""

    def reconnect(self) -> None:
        """Connects a new client, as the same member. Raises ControlError."""

    def tell(self) -> None:
        """Warns of new notices about the job."""

    def abort(self, reason: str) -> None:
        """Ends the job."""


class Keeper:
    """Recovery thread of a job. ``movable`` and ``store``: of a job that moves. ``comes_back``: it connects to a new
    controller."""

    def __init__(self, member: Member, movable: Movable | None, store: Store | None, comes_back: bool):
        self._member, self._movable, self._store, self._comes_back = member, movable, store, comes_back
        self._moves = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ina-keeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; waits for a recovery that is under way."""
        self._stop.set()
        self._thread.join(PATIENCE)

    def _watch(self) -> None:
        while not self._stop.is_set():
            client = self._member.client
            poller = select.poll()
            poller.register(client.fileno(), select.POLLIN)
            if not poller.poll(LOOK * 1000) and len(client.moved) == self._moves and not client.failure:
                continue
            with self._member.lock:
                message = client.poll()
            self._member.tell()
            if self._movable is not None and len(client.moved) > self._moves:
                self._move(self._movable)
            elif client.gone and self._comes_back:
                if not self._come_back(message):
                    return
            elif message:
                if self._comes_back:  # the endpoint does not watch the connection
                    self._member.abort(f"ina: {message}")
                return
            else:
                time.sleep(PAUSE)  # the message was for another thread, which reads it

    # ---- to a new controller

    def _come_back(self, why: str) -> bool:
        deadline = time.monotonic() + COMING_BACK
        while not self._stop.is_set():
            try:
                self._member.reconnect()
                self._moves = 0
                return True
            except ControlError as error:
                if error.code not in ("gone", "timeout") or time.monotonic() > deadline:
                    self._member.abort(f"ina: {why}; the job could not come back: {error}")
                    return False
                time.sleep(LOOK)
        return False

    # ---- to other switches

    def _move(self, movable: Movable) -> None:
        client = self._member.client
        self._moves = len(client.moved)
        incarnation, why = client.moved[-1]
        try:
            began = time.monotonic()
            resent, copied = self._exchange(movable, f"move/{incarnation}")
        except Superseded:
            return
        except Exception as error:  # no rank may wait for the rest of a failed move
            self._member.abort(f"ina: {why}; but it could not: {reason(error)}")
            movable.give_up()
            return
        warnings.warn(f"ina: {why}: {resent} parts of tensors begin again, {copied} come from other ranks, after "
                      f"{time.monotonic() - began:.2f} s", RuntimeWarning, stacklevel=2)

    def _exchange(self, movable: Movable, place: str) -> tuple[int, int]:
        rank = self._member.rank
        self._shared.set(f"{place}/rank/{rank}", json.dumps(movable.halt()))
        reports = [json.loads(self._get(f"{place}/rank/{other}", f"rank {other} to say what it has"))
                   for other in range(self._member.size)]
        for (tensor, part), data in movable.give(rank, reports).items():
            self._shared.set(f"{place}/part/{tensor}/{part}", data)  # type: ignore[arg-type]  # torch takes bytes, too
        parts = {(tensor, part): self._get(f"{place}/part/{tensor}/{part}", f"part {part} of tensor {tensor}")
                 for tensor, part in movable.missing(reports)}
        return movable.resume(self._member.reopen(), reports, parts), len(parts)

    @property
    def _shared(self) -> Store:
        """The store of a job that moves."""
        assert self._store is not None
        return self._store

    def _get(self, key: str, expected: str) -> bytes:
        client, deadline = self._member.client, time.monotonic() + PATIENCE
        while not self._shared.check([key]):
            if time.monotonic() > deadline:
                raise MoveFailed(f"waited {PATIENCE:g} s for {expected}")
            with self._member.lock:
                if message := client.poll():
                    raise MoveFailed(f"meanwhile {message}")
            if len(client.moved) > self._moves:
                raise Superseded
            time.sleep(PAUSE)
        return self._shared.get(key)
