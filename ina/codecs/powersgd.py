"""PowerSGD (Vogels et al., NeurIPS'19): a tensor as a matrix of low rank, with error feedback.

    round 1, sums: P = M Q      round 2, sums: Q = M' P, P made orthonormal      the average: P Q' / n

M is a worker's tensor and what earlier averages missed of its own, as the rows of a matrix, near-square unless its columns are
given: a codec does not see the shapes of a bucket's layers. Q is that of the call before (warm start). Sums of products are
products of sums, so the switch adds up P and Q as float32, in the protocol's own code. torch's own hook (powerSGD_hook) does the
same for each layer's matrix, over the same switch; it is the better one where layers are matrices of low rank.

Tensors that P and Q would not make smaller travel as they are. An infinity or NaN of any worker, or products beyond float32, make
the whole tensor NaN in this call, and what earlier sums missed stays for the next.
"""

from __future__ import annotations

import math

import numpy as np

from ina.base.native import lib
from ina.codecs.block import Block
from ina.codecs.codec import ADD, Call, Feedback, Round, Rounds, Traffic, both_ways
from ina.codecs.pointers import pointer


class PowerSgd(Feedback):
    """``rank``: columns of P and Q. ``columns``: of the matrix, 0: near-square. ``feedback``: what a call misses is
    added to the next values. ``missed``: of this worker's values, so far."""

    name = "powersgd"
    rounds = 2
    accumulator = Block.accumulator

    def __init__(self, rank: int = 4, columns: int = 0, feedback: bool = True) -> None:
        super().__init__()
        if rank < 1 or columns < 0:
            raise ValueError(f"codec {self.name}: rank {rank}, columns {columns}, expected 1 and 0 at least")
        self.rank, self.columns, self.feedback = rank, columns, feedback
        self.missed, self.right = np.empty(0, np.float32), np.empty((0, 0), np.float32)

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        """Yields P, then Q."""
        rows, columns, smaller = self._shape(values.size)
        if not smaller:
            total = yield Round(values.copy(), ADD)
            return total / np.float32(call.divisor)
        if self.missed.size != values.size:
            self.missed, self.right = np.zeros_like(values), np.zeros((self.rank, columns), np.float32)
        right: np.ndarray = self._begun(self.right, call.step)
        wanted = np.zeros(rows * columns, np.float32)
        np.add(values, self.missed, out=wanted[: values.size])
        matrix = wanted.reshape(rows, columns)
        left = yield Round(_product(right, matrix.T), ADD)
        left = left.copy()  # the round's words may be used again
        if not np.isfinite(left).all():
            return np.full_like(values, np.nan)
        lib.ina_orthogonalise(rows, self.rank, pointer(left))
        right = yield Round(_product(left.reshape(self.rank, rows), matrix), ADD)
        if not np.isfinite(right).all():
            return np.full_like(values, np.nan)
        right = right * np.float32(1 / call.workers)
        result = np.empty_like(values)
        lib.ina_outer(values.size, rows, columns, self.rank, pointer(left), pointer(right), 1.0, pointer(result))
        if self.feedback:
            self.missed = wanted[: values.size] - result
        self.right = right.reshape(self.rank, columns)
        return result if call.average else result * np.float32(call.workers)

    def _shape(self, elements: int) -> tuple[int, int, bool]:
        """Returns rows and columns of the matrix, and whether P and Q have less values."""
        columns = self.columns or max(1, math.isqrt(max(0, elements - 1)) + 1)
        rows = -(-elements // columns)
        return rows, columns, self.rank * (rows + columns) < elements

    def _begun(self, right: np.ndarray, step: int) -> np.ndarray:
        """Returns Q with random values, common to all workers, for its columns of zeros."""
        begun = right.copy()
        for number in np.flatnonzero(~right.any(axis=1)):
            whole = [lib.ina_thc_seed(step, int(number), place) for place in range(right.shape[1])]
            begun[number] = np.array(whole, np.uint64) / 2.0**63 - 1
        _, exponents = np.frexp(np.max(np.abs(begun), axis=1, keepdims=True))
        return np.ldexp(begun, -exponents)  # P is made orthonormal: Q's scale is lost, which could only overflow

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns the bytes of P and Q, as many down as up."""
        rows, columns, smaller = self._shape(elements)
        return both_ways(self.rank * (rows + columns) if smaller else elements)


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the product, flat; its infinities and NaN are looked for once all workers' are added up."""
    with np.errstate(invalid="ignore", over="ignore"):
        return (left @ right).ravel()
