"""Tensors that tell right results from wrong ones: a contribution from another worker, packet or life, or a second one, shows.

The explorer's (``exact``) are right to the bit: float32 sums with the right exponents only, and whether integers overflow does
not depend on the order in which they are added. The simulation's (``drawn``) are of any kind, and ``wrong`` compares them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ina.aggregation.lane import DEFAULT, lane_for

# Shares of an integer's range from zero on: what the small values of all workers add up to, at most; two of the large ones
# overflow, with whatever small ones between them.
SMALL, LARGE = 1 / 8, 3 / 4
SCALES = (24, 0, -24, 48)  # of consecutive blocks: their exponents differ by more than a code has room for


@dataclass(frozen=True)
class Sample:
    """Tensors of the workers, a row each."""

    rows: np.ndarray
    maximum: bool = False

    def result(self, rows: Sequence[np.ndarray]) -> tuple[np.ndarray, bool]:
        """Returns what all must get for some of the rows, to the bit, and whether a sum of integers overflows."""
        if self.maximum:
            return np.max(rows, axis=0), False
        if lane := lane_for(self.rows.dtype):
            return lane.sums(rows), lane.overflows(rows)[0]
        return np.sum(rows, axis=0, dtype=self.rows.dtype), False


def exact(seed: int, turn: int, workers: int, elements: int, dtype: type, values: int, maximum: bool = False) -> Sample:
    """Returns the tensor ``turn`` of ``workers``: integers, of which every third one overflows, or float32. ``values``: elements
    of a packet. ``maximum``: the maximum of each element, instead of the sum."""
    rng = np.random.default_rng((seed, turn))
    rows: np.ndarray
    lane = lane_for(dtype) or DEFAULT
    if maximum:
        rows = rng.integers(-lane.limit, lane.limit, (workers, elements)).astype(lane.dtype)
        return Sample(rows, maximum)
    blocks = [slice(begin, min(begin + values, elements)) for begin in range(0, elements, values)]
    if dtype is np.float32:
        rows = np.concatenate([_floats(rng, number, turn, workers, block.stop - block.start)
                               for number, block in enumerate(blocks)], axis=1)
        return Sample(rows)
    small, large = (int(share * lane.limit) for share in (SMALL, LARGE))
    rows = rng.integers(-small // workers, small // workers, (workers, elements))
    overflow = turn % 3 == 0 and workers > 1
    for number, block in enumerate(blocks if overflow else ()):
        place = block.start + number % max(1, block.stop - block.start - 1)  # never in a block's last element, if it has more
        pair = [turn % workers, (turn + 1) % workers]
        rows[pair, place] += large * (-1) ** number
    return Sample(rows.astype(lane.dtype))


def _floats(rng: np.random.Generator, block: int, turn: int, workers: int, size: int) -> np.ndarray:
    """Returns one block: the largest exponent is one worker's alone, and needs all digits of the code; each block has another
    one."""
    spans = np.full((workers, 1), 2**9)
    spans[(block + turn) % workers] = 2**22
    whole = rng.integers(-spans, spans, (workers, size)) | 1
    return np.ldexp(whole.astype(np.float32), SCALES[(block + turn) % len(SCALES)])


# ---- of any kind


@functools.lru_cache(64)  # each worker asks, when it begins and when it has the result
def drawn(key: tuple[int, ...], workers: int, elements: int, dtype: type, values: int) -> tuple[np.ndarray, ...]:
    """Returns each worker's tensor, different for each ``key``. Magnitudes differ from block to block and worker to worker, and
    so do exponents and which sums overflow; a block of some float32 tensors has a NaN, an infinity, or a value beyond 2^126."""
    rng = np.random.default_rng(key)
    shape = workers, elements // values
    if lane := lane_for(dtype):
        bounds = np.repeat(2 ** rng.integers(4, lane.bits, shape), values, axis=1)
        return tuple(rng.integers(-bounds, bounds).clip(-lane.limit, lane.limit - 1).astype(lane.dtype))
    spans = np.repeat(2.0 ** rng.integers(-20, 20, shape), values, axis=1)
    rows = (rng.uniform(-1, 1, spans.shape) * spans).astype(np.float32)
    if rng.random() < 0.3:
        for _ in range(rng.integers(1, 3)):
            rows[rng.integers(workers), rng.integers(elements)] = rng.choice(np.array((np.nan, np.inf, -np.inf, 2.0**127)))
    return tuple(rows)


def wrong(out: np.ndarray, overflow: bool, rows: Sequence[np.ndarray], values: int, *, maximum: bool = False,
          floats: bool = False, exponent: int | None = None, flags: bool = True, over: int = 0) -> str:
    """Returns what is wrong with a result; empty: nothing. ``floats``: blocks that integers cannot carry go as float32, and do
    not become NaN. ``exponent``: of fixed point, instead of agreed ones. ``flags``: the protocol tells overflows. ``over``: it
    is to be an average over so many; 0: a sum."""
    if lane := lane_for(out.dtype):
        if flags and (flag := _wrong_flag(overflow, *((False, False) if maximum else lane.overflows(rows)))):
            return f"a wrong overflow flag: {flag}"
        right = np.max(rows, axis=0) if maximum else lane.sums(rows)
        if np.array_equal(out, right):
            return ""
        twice = [worker for worker, row in enumerate(rows) if row.any() and np.array_equal(out, right + row)]
        return f"the contribution of worker {twice[0]} is in it twice" if twice else "a wrong sum"
    if _close(out, rows, None, values, floats, exponent, over):
        return ""
    twice = [worker for worker in range(len(rows)) if _close(out, rows, worker, values, floats, exponent, over)]
    return f"the contribution of worker {twice[0]} is in it twice" if twice else "a wrong sum"


def _wrong_flag(flag: bool, must: bool, may: bool) -> str:
    """Checks an overflow flag, which must or may be set. Returns what is wrong; empty: nothing."""
    return "none, where a sum does not fit" if must and not flag else "one, where all sums fit" if flag and not may else ""


@np.errstate(all="ignore")
def _close(out: np.ndarray, rows: Sequence[np.ndarray], twice: int | None, values: int, floats: bool,
           exponent: int | None, over: int) -> bool:
    """Compares with the float32 sum, as closely as its block's largest magnitude allows (README), or as float64 sums of floats
    are. ``twice``: a worker that is in it once more."""
    wide, count = np.stack(rows).astype(float), len(rows)
    right = wide.sum(axis=0) + (0 if twice is None else wide[twice])
    total = np.abs(wide).sum(axis=0)
    largest = np.abs(wide).reshape(count, -1, values).max(axis=(0, 2))  # by block; NaN if one is
    beyond = np.repeat(~(largest <= min(2.0**126, 2.0 ** (126 if exponent is None else exponent))), values)
    powers = np.ceil(np.log2(largest)) if exponent is None else np.full(largest.shape, float(exponent))
    coded = np.repeat(DEFAULT.error(powers, count), values)
    bound = np.where(beyond, count * total * 2.0**-50, coded) + total * 2.0**-24
    expected = np.where(beyond, right.astype(np.float32) if floats else np.nan, right)
    finite = np.isfinite(expected)
    whole = out.astype(float) * max(1, over)
    near = np.abs(whole - right) <= bound + (total * 2.0**-24 if over else 0)  # an average is rounded once more
    return bool(np.all(np.where(finite, near, (whole == expected) | np.isnan(whole) & np.isnan(expected))))
