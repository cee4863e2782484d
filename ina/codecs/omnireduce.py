"""OmniReduce (Fei et al., SIGCOMM'21) by counting first: only blocks of 256 values travel in which a worker has one.

    round 1, sums: for each block, the number of workers with a value in it, in lanes      then: these blocks, by another codec

A count other than zero is the OR of the workers' bits, so every worker knows the union of their blocks, and the switch only adds
up. The blocks travel as in a dense tensor by `block-256`, one exponent for each, or by another codec of values below a block's
largest: the sums are the same to the bit as that codec's of the whole tensor, as a block of zeros is zeros in it. (The protocol's
own code would round other values together, with an exponent for each packet.)

Sparsity is that of blocks: a tensor with one value in each block is dense. The published design learns the next block from the
packets of the one before, which needs a program of its own, and no round before; bytes are the same but for the counts:
ceil(log2(n + 1)) bits a block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ina.aggregation.lane import INT32
from ina.base.native import lib
from ina.codecs.codec import ADD, MAXIMUM, Call, Codec, Round, Rounds, Traffic
from ina.codecs.lanes import Packing
from ina.codecs.limbs import Block32, Block64, Block256, Exact, Limbs, TwoLimb
from ina.codecs.pointers import pointer

BLOCK = 256
CODES = {code.name: code for code in (Block256, Block64, Block32, TwoLimb, Exact)}  # whose blocks fit into one of these


class OmniReduce(Codec):
    """``code``: of the blocks: block-256, -64 or -32, two-limb or exact. ``share``: of the last call's values, those that were in
    the union of the workers' blocks."""

    name = "omnireduce"
    rounds = 1 + Limbs.rounds
    dtypes = Limbs.dtypes
    operations = frozenset({ADD, MAXIMUM})

    def __init__(self, code: str = Block256.name) -> None:
        super().__init__()
        if code not in CODES:
            raise ValueError(f"codec {self.name}: code {code!r}: expected one of {', '.join(CODES)}")
        self._code, self.share = CODES[code], 0.0

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        """Yields the counts, then the rounds of the blocks' code."""
        index = Packing(call.workers, 1)
        counts = yield Round(index.pack(used_blocks(values)), ADD)
        used = index.sums(counts, blocks_of(values.size)) != 0
        union = gathered(values, used)
        self.share = union.size / max(1, values.size)
        result = np.zeros_like(values)
        if union.size:
            code = self._code()
            scatter(result, used, (yield from code.reduce(union, call)))
            self.flushed += code.flushed
        return result

    def bound(self, tensors: Sequence[np.ndarray], average: bool = False) -> np.ndarray:
        """Returns that of the blocks' code."""
        return self._code().bound(tensors, average)

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns those of a tensor whose blocks all have values."""
        index, dense = INT32.bytes(Packing(workers, 1).words(blocks_of(elements))), self._code().traffic(elements, workers)
        return Traffic(index + dense.up, index + dense.down, exact=False)


def blocks_of(elements: int) -> int:
    """Returns the number of blocks of a tensor; the last one may be shorter."""
    return -(-elements // BLOCK)


def used_blocks(values: np.ndarray) -> np.ndarray:
    """Returns a byte for each block: 1 if it has a value other than zero."""
    used = np.empty(blocks_of(values.size), np.uint8)
    lib.ina_sparse_used(values.size, values.itemsize, BLOCK, pointer(values), pointer(used))
    return used


def gathered(values: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Returns the values of the blocks that are ``used`` (bool), one after the other."""
    whole = values.size // BLOCK
    chosen = values[: whole * BLOCK].reshape(whole, BLOCK)[used[:whole]].reshape(-1)
    return np.concatenate([chosen, values[whole * BLOCK :]]) if used.size > whole and used[whole] else chosen


def scatter(values: np.ndarray, used: np.ndarray, union: np.ndarray) -> None:
    """Writes to ``values`` the blocks that ``gathered`` gave."""
    whole = values.size // BLOCK
    chosen = BLOCK * int(np.count_nonzero(used[:whole]))
    values[: whole * BLOCK].reshape(whole, BLOCK)[used[:whole]] = union[:chosen].reshape(-1, BLOCK)
    if union.size > chosen:
        values[whole * BLOCK :] = union[chosen:]
