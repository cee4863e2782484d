"""THC's tables: the integers that coordinates of N(0, 1) are quantised on (Li et al., NSDI'24).

A table of ``bits`` has 2^bits levels from 0 to ``granularity``, symmetric about its middle; level t stands for
-T + 2 T t / granularity, and T is where the share ``outside`` of N(0, 1) lies beyond -T and T. `levels` finds the one of least
error, which is the published one wherever there is one.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

NORMAL = NormalDist()
LOOKED_UP = (4, 30, 1 / 32)  # bits, granularity, share outside, of the table that p4/thc.p4 has


def limit(outside: float) -> float:
    """Returns T: P(|N(0, 1)| > T) = ``outside``."""
    return NORMAL.inv_cdf(1 - outside / 2)


def rounding_error(a: float, b: float) -> float:
    """Returns the integral of (x - a)(b - x) over N(0, 1) from a to b: the variance of rounding to a or b without bias."""
    moment = NORMAL.pdf(a) - NORMAL.pdf(b)
    share = NORMAL.cdf(b) - NORMAL.cdf(a)
    square = share + a * NORMAL.pdf(a) - b * NORMAL.pdf(b)
    return (a + b) * moment - square - a * b * share


@cache
def levels(bits: int, granularity: int, outside: float) -> tuple[int, ...]:
    """Returns the table of least error, by dynamic programming over its lower half. Levels may be equal where the granularity has
    no room for more. ValueError: no such table."""
    half = 2 ** (bits - 1)
    if not (1 <= bits <= 4 and 1 <= granularity <= 255 and 0 < outside < 1):
        raise ValueError(f"THC table of {bits} bits, granularity {granularity}, {outside} outside: expected 1 to 4 bits, a "
                         "granularity from 1 to 255 and a share between 0 and 1")
    t = limit(outside)
    at = [-t + 2 * t * level / granularity for level in range(granularity + 1)]
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, (0,))}  # by the last level: the error below it, and the levels
    for _ in range(half - 1):
        following: dict[int, tuple[float, tuple[int, ...]]] = {}
        for last, (error, chosen) in best.items():
            for level in range(last, granularity // 2 + 1):
                candidate = error + rounding_error(at[last], at[level]), (*chosen, level)
                if level not in following or candidate < following[level]:
                    following[level] = candidate
        best = following
    totals = ((error + rounding_error(at[last], at[granularity - last]) / 2, lower) for last, (error, lower) in best.items())
    _, lower = min(totals)
    return *lower, *(granularity - level for level in reversed(lower))
