"""The protocol's own code for float32: block floating point with one exponent for each packet, and the exact code for tensors
that fit into one (host/protocol/codec.h)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ina.aggregation.lane import INT32
from ina.base.native import lib
from ina.codecs.codec import ADD, Call, Codec, Round, Rounds, Traffic, both_ways, rounding


class Block(Codec):
    name = "block"
    accumulator = "32-bit integers below a packet's largest"

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        return (yield Round(values.copy(), ADD, call.average))

    def bound(self, tensors: Sequence[np.ndarray], average: bool = False) -> np.ndarray:
        """Returns the bound for one block of the whole tensor: packets' sizes are the protocol's affair."""
        n = len(tensors)
        largest = float(np.max(np.abs(tensors), initial=0.0))
        exponent = np.clip(np.ceil(np.log2(largest)) if largest else -np.inf, lib.INA_EXP_MIN, lib.INA_EXP_MAX)
        exact = np.sum(np.asarray(tensors, np.float64), axis=0)
        return (INT32.error(float(exponent), n) + 2 * rounding(exact)) / (n if average else 1)

    def traffic(self, elements: int, workers: int) -> Traffic:
        return both_ways(elements)
