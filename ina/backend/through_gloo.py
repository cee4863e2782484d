"""Reductions that Gloo does not make as docs/guide/torch.md promises: by its sums and maxima of buffers that we encode.

====================  =========================  ============================================================================
reduction             travels as                 because Gloo's own
====================  =========================  ============================================================================
MAX, MIN of floats    integers of their order    lets ranks differ in what a NaN on one of them gives
AVG of integers       the switch's words, int64  is an error
====================  =========================  ============================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from ina.aggregation import protocols
from ina.backend import sums
from ina.backend.arguments import EXTREMA, SUMS, is_one_of

INTEGERS = {torch.int8, torch.uint8, torch.int32, torch.int64}  # that Gloo adds up and compares
_COMPARABLE = INTEGERS | {torch.int16, torch.bool, torch.float64, torch.float32, torch.float16, torch.bfloat16}


def encoded(op: dist.ReduceOp, tensors: Sequence[torch.Tensor]) -> bool:
    """Returns True if the reduction of these tensors travels in a buffer of ours; False: as it is."""
    dtypes = {tensor.dtype for tensor in tensors}
    if is_one_of(op, EXTREMA):
        return len(dtypes) == 1 and dtypes <= _COMPARABLE - INTEGERS - {torch.bool}  # which are bytes to Gloo
    return op == SUMS[1] and all(map(sums.integral, dtypes))


def parts(op: dist.ReduceOp, source: torch.Tensor, result: torch.Tensor | None, size: int, start: int) -> list[sums.Sum]:
    """Returns the sums of a reduction that travels so; the arguments as in sums.reduction."""
    if is_one_of(op, EXTREMA):
        return sums.extremum(source, result, op == dist.ReduceOp.MAX, start)
    return sums.reduction(source, result, size, True, None, start)


def buffer_of(parts: Sequence[sums.Sum]) -> tuple[torch.Tensor, dist.ReduceOp]:
    """Begins the parts in one buffer, which has one element at least. Returns it, and what Gloo has to do with it."""
    extremum = any(part.reduction == protocols.MAX for part in parts)
    dtype = parts[0].dtype if extremum else torch.int64  # which has room for the sum over more ranks than the switch has
    whole = torch.zeros(max(1, sum(part.elements for part in parts)), dtype=dtype)
    at = 0
    for part in parts:
        piece = whole[at : at + part.elements]
        piece.copy_(part.begin())
        part.buffer, at = piece, at + part.elements
    return whole, dist.ReduceOp(dist.ReduceOp.MAX if extremum else dist.ReduceOp.SUM)
