"""Tensors that tell right results from wrong ones: what comes from another worker, packet or life, or twice, is none of theirs.

The explorer's are exact: float32 sums are right to the bit with the right exponents only, and whether integers overflow does not
depend on the order in which they are added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SMALL = 2**28  # int32: seven of these add up without overflow
LARGE = 2**30 + 2**29  # two of these do not, with whatever small ones between them
SCALES = (24, 0, -24, 48)  # of blocks one after the other: the exponents that agree differ by more than a code has room for


@dataclass(frozen=True)
class Sample:
    """What each worker gives, a row each; what all must get, to the bit; and whether an int32 sum overflows."""

    rows: np.ndarray
    expected: np.ndarray
    overflow: bool = False


def exact(seed: int, turn: int, workers: int, elements: int, dtype: type, values: int, maximum: bool = False) -> Sample:
    """The tensor ``turn`` of ``workers``: int32, of which every third one overflows, or float32. ``values``: elements of a
    packet. ``maximum``: of int32, not a sum but the largest of each element."""
    rng = np.random.default_rng((seed, turn))
    if maximum:
        rows = rng.integers(-(2**31), 2**31, (workers, elements)).astype(np.int32)
        return Sample(rows, np.max(rows, axis=0))
    blocks = [slice(begin, min(begin + values, elements)) for begin in range(0, elements, values)]
    if dtype is np.float32:
        rows = np.concatenate([_floats(rng, number, turn, workers, block.stop - block.start)
                               for number, block in enumerate(blocks)], axis=1)  # fmt: skip
        return Sample(rows, np.sum(rows, axis=0, dtype=np.float32))
    rows = rng.integers(-SMALL // workers, SMALL // workers, (workers, elements))
    overflow = turn % 3 == 0 and workers > 1
    for number, block in enumerate(blocks if overflow else ()):
        place = block.start + number % max(1, block.stop - block.start - 1)  # never in a block's last element, if it has more
        pair = [turn % workers, (turn + 1) % workers]
        rows[pair, place] += LARGE * (-1) ** number
    rows = rows.astype(np.int32)
    return Sample(rows, np.sum(rows, axis=0, dtype=np.int32), overflow)


def _floats(rng: np.random.Generator, block: int, turn: int, workers: int, size: int) -> np.ndarray:
    """One block: the largest exponent is one worker's alone, and needs all digits of the code; each block has another one."""
    spans = np.full((workers, 1), 2**9)
    spans[(block + turn) % workers] = 2**22
    whole = rng.integers(-spans, spans, (workers, size)) | 1
    return np.ldexp(whole.astype(np.float32), SCALES[(block + turn) % len(SCALES)])
