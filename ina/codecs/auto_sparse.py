"""The choice between a dense tensor and OmniReduce by sparsity, for each bucket, as Parallax (Kim et al., EuroSys'19) makes one
for each variable.

A bucket begins as `omnireduce`, whose counts tell all workers which share of the blocks any of them has. From a share on at which
the blocks take as many bytes as the whole tensor less a tenth, the bucket goes dense, without counts and their round trip, and is
counted again in every 32nd call. All workers have the same counts, so they decide alike; and as both ways have the same
code for a block, the choice changes no sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ina.codecs.codec import Call, Codec, Rounds, Traffic
from ina.codecs.omnireduce import CODES, OmniReduce

MOST = 0.9  # of the values, in blocks that travel
AGAIN = 32  # calls from one count of a dense bucket to the next


class AutoSparse(Codec):
    """``code``: of the blocks, as OmniReduce has it."""

    name = "auto-sparse"
    rounds = OmniReduce.rounds
    dtypes = OmniReduce.dtypes
    operations = OmniReduce.operations
    remembers = True

    def __init__(self, code: str = "block-256") -> None:
        super().__init__()
        self._sparse = OmniReduce(code)
        self._dense = CODES[code]()
        self._uncounted = 0  # dense calls since the last count

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        """Yields the rounds of the way that is chosen. It decides as it begins, by shares that all workers have by then."""
        share = self._sparse.share
        sparse = share <= MOST or self._uncounted == AGAIN - 1
        self._uncounted = 0 if sparse else self._uncounted + 1
        way: Codec = self._sparse if sparse else self._dense
        self.reason = (f"{way.name}: blocks with values were {share:.0%} of the tensor when last counted, "
                       f"{'at most' if share <= MOST else 'more than'} {MOST:.0%}")
        before = way.flushed
        result = yield from way.reduce(values, call)
        self.flushed += way.flushed - before
        return result

    def bound(self, tensors: Sequence[np.ndarray], average: bool = False) -> np.ndarray:
        return self._dense.bound(tensors, average)

    def traffic(self, elements: int, workers: int) -> Traffic:
        return self._sparse.traffic(elements, workers)
