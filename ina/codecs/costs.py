"""Cost of a codec on this machine: seconds of encoding and decoding, and bytes that travel.

Seconds are measured once for each machine, codec, size (the next power of two) and number of workers, and kept in the cache's
folder (INA_CACHE). Bytes are those that the codec states, or, where they depend on the values (sparse ones), those that it sends
for a worker's own values, when the other workers have as many non-zero ones at other places.
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ina.aggregation.lane import INT32
from ina.base import cache, cc
from ina.base.native import ffi, lib
from ina.codecs.codec import Call, Codec, Rounds, Traffic
from ina.codecs.memory import reduced
from ina.codecs.registry import named

LEAST, MOST = 1 << 10, 1 << 18  # elements that are measured; times of more are in proportion
WORKERS = 8  # at most, of a measurement
REPEATS = 3


@dataclass(frozen=True)
class Cost:
    """``seconds``: of encoding and decoding by one worker; ``up``, ``down``: bytes of values."""

    seconds: float
    up: int
    down: int
    rounds: int


class Watched(Codec):
    """A codec, with the seconds that it takes and the words that it sends."""

    name = "watched"

    def __init__(self, inner: Codec) -> None:
        super().__init__()
        self.inner, self.seconds, self.words = inner, 0.0, 0

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        running, result = self.inner.reduce(values, call), None
        while True:
            began = time.perf_counter()
            try:
                coming = running.send(result)  # type: ignore[arg-type]  # the first is None
            except StopIteration as end:
                return end.value
            finally:
                self.seconds += time.perf_counter() - began
            self.words += coming.words.size
            result = yield coming

    def bound(self, tensors: Sequence[np.ndarray], average: bool = False) -> np.ndarray:
        return self.inner.bound(tensors, average)

    def traffic(self, elements: int, workers: int) -> Traffic:
        return self.inner.traffic(elements, workers)

    def own(self, words: Sequence[np.ndarray]) -> np.ndarray:
        return self.inner.own(words)


def cost(name: str, values: np.ndarray, workers: int) -> Cost:
    """Returns the cost of a codec for a tensor like ``values``: float32, flat. Raises what the codec does, such as ValueError
    where it has no room for so many workers."""
    codec = named(name)
    traffic = codec.traffic(values.size, workers)
    if not traffic.exact:
        size = INT32.bytes(_sent(name, values, workers))
        traffic = Traffic(round(size * min(1.0, traffic.up / max(1, traffic.down))), size)
    return Cost(seconds(name, values.size, workers), traffic.up, traffic.down, codec.rounds)


def seconds(name: str, elements: int, workers: int) -> float:
    """Returns seconds of encoding and decoding ``elements`` float32 on this machine."""
    size = min(MOST, max(LEAST, 1 << (elements - 1).bit_length())) if elements else LEAST
    several = min(workers, WORKERS)
    key, known = f"{name}, {size}, {several}", _load()
    if key not in known:
        known = {**_load(), key: _measured(name, size, several)}
        _save(known)
    return known[key] * elements / size


def _measured(name: str, size: int, workers: int) -> float:
    """Returns the least seconds of some calls; the first makes the codec's memory, and does not count."""
    rng = np.random.default_rng(1)
    tensors = [rng.standard_normal(size, np.float32) for _ in range(workers)]
    watched, *others = [Watched(named(name)) for _ in range(workers)]
    times = []
    for step in range(REPEATS + 1):
        before = watched.seconds
        reduced([watched, *others], tensors, step=step)
        times.append(watched.seconds - before)
    return min(times[1:])


def _sent(name: str, values: np.ndarray, workers: int) -> int:
    """Returns the words that a worker sends for ``values``."""
    several = min(workers, WORKERS)
    codecs = [Watched(named(name)) for _ in range(several)]
    reduced(codecs, [np.roll(values, rank * values.size // several) for rank in range(several)])
    return codecs[0].words


def _path() -> Path:
    """The file of this processor, and of this compiled part."""
    processor = cc.processors("model name", "CPU part")
    parts = [platform.machine(), str(len(processor)), *sorted(set(processor)), ffi.string(lib.INA_SOURCES).decode()]
    return cache.folder() / f"codecs-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}.json"


def _load() -> dict[str, float]:
    """Returns seconds by codec, size and number of workers; none, if the file is not there or not whole."""
    return (cache.read_record(_path()) or {}).get("seconds", {})


def _save(known: dict[str, float]) -> None:
    """Writes the file; of processes that write at the same time the last one's figures stay."""
    with cache.problems(_path()):
        cache.write_record(_path(), {"seconds": known})
