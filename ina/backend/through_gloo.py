"""Reductions that Gloo does not make as docs/guide/torch.md promises: by its sums and maxima of buffers that we encode.

=============================  =========================  ===================================================================
reduction                      travels as                 because Gloo's own
=============================  =========================  ===================================================================
MAX, MIN of floats             integers of their order    lets ranks differ in what a NaN on one of them gives
AVG of floats                  float32 or 64, scaled      is infinite where the sum does not fit the type
SUM of float16 and bfloat16    float32                    rounds to the type with each addition
SUM of bool                    the switch's words, int64  counts modulo 256, and leaves counts in the tensor
AVG of integers, SUM of int16  the same                   is an error; so is PREMUL_SUM, and whatever is complex
=============================  =========================  ===================================================================

Sums of sparse tensors, where Gloo's own are errors, or break a promise, are its sums of sparse tensors of a type that it has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from ina.aggregation import protocols
from ina.backend import sums
from ina.backend.arguments import EXTREMA, SUMS, factor_of, is_one_of
from ina.backend.coded import WIDE, as_reals
from ina.backend.sums import FLOATS

INTEGERS = {torch.int8, torch.uint8, torch.int32, torch.int64}  # that Gloo adds up and compares
_SPARSE_AS = {torch.bool: torch.int64, torch.int16: torch.int32, torch.float16: torch.float32, torch.bfloat16: torch.float32}
_COMPARABLE = INTEGERS | {torch.int16, torch.bool, torch.float64, torch.float32, torch.float16, torch.bfloat16}


def encoded(op: dist.ReduceOp, dtype: torch.dtype) -> bool:
    """Returns True if the reduction of tensors of this type travels in a buffer of ours; False: as it is."""
    if is_one_of(op, EXTREMA):
        return dtype in _COMPARABLE - INTEGERS - {torch.bool}  # which are bytes to Gloo
    own = op == SUMS[0] and dtype in INTEGERS | {torch.float32, torch.float64}
    return is_one_of(op, SUMS) and not own and (sums.integral(dtype) or dtype in (*FLOATS, *WIDE))


def parts(op: dist.ReduceOp, source: torch.Tensor, result: torch.Tensor | None, size: int, start: int) -> list[sums.Sum]:
    """Returns the sums of a reduction that travels so; the arguments as in sums.reduction."""
    if is_one_of(op, EXTREMA):
        return sums.extremum(source, result, op == dist.ReduceOp.MAX, start)
    average, factor = op == dist.ReduceOp.AVG, factor_of(op)
    if sums.integral(source.dtype):
        return sums.reduction(source, result, size, average, factor, start)
    return _floats(source, result, size, average, factor, start)


def _floats(source: torch.Tensor, result: torch.Tensor | None, size: int, average: bool, factor: float | torch.Tensor | None,
            start: int) -> list[sums.Sum]:
    """Returns sums of float64 or float32. For an average the values are divided by a power of two that is no less than ``size``
    first, so that no sum overflows; that is exact, but for the smallest, which lose bits as they become subnormal."""
    dtype, travels = source.dtype, torch.float64 if source.dtype in WIDE else torch.float32
    encode, decode = as_reals(dtype, travels, factor)
    power = 2.0 ** (size - 1).bit_length() if average else 1.0

    def shrunk(piece: torch.Tensor) -> torch.Tensor:
        return encode(piece) / power

    def grown(buffer: torch.Tensor) -> torch.Tensor:
        return decode(buffer / (size / power) if average else buffer)

    def make(elements: int, encoded: Callable[[], torch.Tensor], place: Callable[[torch.Tensor], None] | None) -> sums.Sum:
        return sums.Sum(elements * (1 + dtype.is_complex), travels, encoded, place)

    return sums.in_pieces(source, result, start, sums.STAGE // 8, shrunk, grown, make)


def sparse(tensor: torch.Tensor) -> sums.Sum:
    """Returns the sum, in place, of a sparse_coo tensor that travels so. Its buffer, which Gloo sums, is sparse, too."""
    if tensor.dtype.is_complex:
        return sums.Sum.of(torch.view_as_real(tensor.detach()), lambda total: _write(tensor, torch.view_as_complex(total)))
    return sums.Sum.of(tensor.detach().to(_SPARSE_AS[tensor.dtype]), lambda total: _write(tensor, total))


def _write(tensor: torch.Tensor, total: torch.Tensor) -> None:
    tensor.copy_(total)


def buffer_of(parts: Sequence[sums.Sum]) -> tuple[torch.Tensor, dist.ReduceOp]:
    """Begins the parts in one buffer, which has one element at least. Returns it, and what Gloo has to do with it."""
    extremum = any(part.reduction == protocols.MAX for part in parts)
    dtype = functools.reduce(torch.promote_types, (part.dtype for part in parts), torch.int32)
    if dtype == torch.int32 and not extremum:
        dtype = torch.int64  # which has room for the sum over more ranks than the switch has
    whole = torch.zeros(max(1, sum(part.elements for part in parts)), dtype=dtype, device="cpu")
    at = 0
    for part in parts:
        piece = whole[at : at + part.elements]
        piece.copy_(part.begin())
        part.buffer, at = piece, at + part.elements
    return whole, dist.ReduceOp(dist.ReduceOp.MAX if extremum else dist.ReduceOp.SUM)
