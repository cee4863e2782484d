"""Workers of an all-reduce whose job may be moved to another tree, and times in which nothing came."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np

from ina.aggregation.controller.client import Attachment, Client
from ina.aggregation.controller.keeper import Keeper
from ina.aggregation.worker import Endpoint
from ina.aggregation.worker.failover import Movable

SAMPLE = 5e-3  # s between two looks for results
STALL = 20e-3  # s without a result that count


class FolderStore:
    """Store of a job whose workers are all on this machine: a file for each key."""

    def __init__(self, folder: Path):
        self._folder = folder

    def set(self, key: str, value: str | bytes) -> None:
        path = self._file(key)
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        new.write_bytes(value.encode() if isinstance(value, str) else value)
        new.replace(path)

    def check(self, keys: list[str]) -> bool:
        return all(self._file(key).exists() for key in keys)

    def get(self, key: str) -> bytes:
        return self._file(key).read_bytes()

    def _file(self, key: str) -> Path:
        return self._folder / quote(key, safe="")


class Staying:
    """A worker that stays on its tree."""

    def __init__(self, endpoint: Endpoint):
        self._endpoint = endpoint
        self.stalls: list[tuple[float, float]] = []

    def run(self, array: np.ndarray, reduction: int) -> None:
        """All-reduces an array in place."""
        self._endpoint.run(array, reduction=reduction)

    @property
    def stats(self) -> dict[str, int]:
        return self._endpoint.stats


class Moving:
    """A worker that goes on where its job is moved to. ``stalls``: beginnings and ends of times without a result while a tensor
    was under way, as of time.time()."""

    def __init__(self, rank: int, size: int, client: Client, endpoint: Endpoint, attachment: Attachment,
                 attach: Callable[[], Endpoint]):
        """``attach``: attaches again and opens an endpoint there."""
        self.rank, self.size, self.client, self.lock = rank, size, client, threading.RLock()
        self.stalls: list[tuple[float, float]] = []
        self.movable = Movable(endpoint, attachment.slots, attachment.values)
        self._attach, self._earlier = attach, dict.fromkeys(endpoint.stats, 0)
        self._shown = 0

    def run(self, array: np.ndarray, reduction: int) -> None:
        """All-reduces an array in place."""
        done = threading.Event()
        looker = threading.Thread(target=self._look, args=(done,), daemon=True)
        looker.start()
        try:
            self.movable.wait(self.movable.submit(array, array, reduction=reduction))
        finally:
            done.set()
            looker.join()

    def _look(self, done: threading.Event) -> None:
        results, since = self.movable.stats["results"], time.time()
        while not done.wait(SAMPLE):
            now, latest = time.time(), self.movable.stats["results"]
            if latest == results or not latest:
                continue
            if now - since > STALL:
                self.stalls.append((since, now))
            results, since = latest, now

    @property
    def stats(self) -> dict[str, int]:
        """Counters of all endpoints so far together."""
        return {key: self._earlier[key] + value for key, value in self.movable.stats.items()}

    # ---- as the keeper's member

    def reopen(self) -> Endpoint:
        self._earlier = self.stats
        return self._attach()

    def reconnect(self) -> None:
        raise NotImplementedError("the switches of an experiment end with their controller")

    def tell(self) -> None:
        notices, self._shown = self.client.notices[self._shown :], len(self.client.notices)
        for notice in notices:
            warnings.warn(f"ina: {notice}", RuntimeWarning, stacklevel=2)

    def close(self) -> None:
        self.movable.close()

    def abort(self, reason: str) -> None:
        print(reason, file=sys.stderr)
        self.movable.abort()


@contextmanager
def moving(worker: Moving, folder: str) -> Iterator[Moving]:
    """Keeps a worker where its job is for the body. ``folder``: of the job's store."""
    keeper = Keeper(worker, worker.movable, FolderStore(Path(folder)), comes_back=False)
    try:
        yield worker
    finally:
        keeper.close()
        worker.close()
