"""Collectives as sums, which is what the switch can do: buffers of float32 or int32 that it adds up over the ranks in place.

    encode: the rank's tensors -> buffer      the switch: buffer = sum of all ranks' buffers      decode: buffer -> results

Reductions widen the data type until the sum fits; a broadcast is a sum to which all ranks but one give zeros, an all-gather
one to which each rank gives its piece. What is moved and not added up travels as 32-bit integers, so every bit arrives.

=====================  ===========================  =====================================================================
data type              travels as                   the result
=====================  ===========================  =====================================================================
float32, complex64     float32                      within the codec's bound (docs/protocol.md)
float16, bfloat16      float32                      of the float32 sum, rounded once
int32                  int32                        exact, modulo 2^32
int8, uint8, int16     int32                        exact, modulo 2^8 or 2^16
bool                   int32                        whether any rank had True
int64                  three int32 (24, 24, 16 bit) exact, modulo 2^64
=====================  ===========================  =====================================================================

An average of integers is the quotient, rounded towards zero.

Maxima and minima are exact for all of these but complex64 and int64: a value travels as the int32 that is ordered as it
is, and the switch keeps the largest; for a minimum, as the complement. A NaN wins both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

LIMB_BITS = 24  # sums of 32 limbs fit an int32
_LIMB = (1 << LIMB_BITS) - 1
_NAN = 0x7FFFFFFF  # above +infinity; its complement is below -infinity; both are NaNs as float32
_TRAVELS_AS = {
    torch.float32: torch.float32, torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex64: torch.float32,
    torch.int32: torch.int32, torch.int64: torch.int32, torch.int16: torch.int32, torch.int8: torch.int32,
    torch.uint8: torch.int32, torch.bool: torch.int32,
}  # fmt: skip


@dataclass
class Sum:
    """One sum over the ranks: ``buffer`` (contiguous float32 or int32, flat; summed in place; ``average``: divided by the number
    of ranks, float32 only), and ``decode``, which takes the sum to where it belongs."""

    buffer: torch.Tensor
    average: bool = False
    decode: Callable[[], None] | None = None
    maximum: bool = False  # the largest over the ranks instead of the sum; int32 only


def ordered(dtype: torch.dtype) -> bool:
    """Whether the switch can find the largest or smallest of tensors of ``dtype``."""
    return dtype in _TRAVELS_AS and dtype not in (torch.complex64, torch.int64)


def summable(dtype: torch.dtype) -> bool:
    """Whether the switch can add up tensors of ``dtype``."""
    return dtype in _TRAVELS_AS


def reduction(
    source: torch.Tensor, result: torch.Tensor | None, size: int, average: bool, factor: float | torch.Tensor | None = None,
    start: int = 0,
) -> Sum:  # fmt: skip
    """The sum of all ranks' ``source`` (of a summable dtype, times ``factor``); ``result`` gets its elements from ``start``
    on; None: nothing is wanted here. ``average``: over ``size`` ranks. ``source`` changes only if it is ``result``."""
    floating = _TRAVELS_AS[source.dtype] == torch.float32
    in_place = result is source and source.is_contiguous() and source.dtype == _TRAVELS_AS[source.dtype] and factor is None
    buffer = _flat(source) if in_place else _encode((source if factor is None else source * factor).detach())
    if buffer.data_ptr() == source.data_ptr() and not in_place:
        buffer = buffer.clone()
    divides = average and not floating
    if result is None or (in_place and not divides):
        return Sum(buffer, average and floating)

    def decode() -> None:
        total = _decode(buffer, source.dtype)
        if divides:
            total = torch.div(total, size, rounding_mode="trunc")
        if total.data_ptr() != result.data_ptr():
            result.detach().copy_(total[start : start + result.numel()].view(result.shape))

    return Sum(buffer, average and floating, decode)


def extremum(source: torch.Tensor, result: torch.Tensor | None, largest: bool, start: int = 0) -> Sum:
    """The largest, or smallest, over the ranks of each element of ``source`` (ordered dtypes); ``result`` as in reduction."""
    key = _key(source.detach().reshape(-1), largest)

    def decode() -> None:
        found = _unkey(key[start : start + result.numel()], source.dtype, largest)
        result.detach().copy_(found.view(result.shape))

    return Sum(key, decode=None if result is None else decode, maximum=True)


def _key(flat: torch.Tensor, largest: bool) -> torch.Tensor:
    """New int32, ordered as the values are, or the other way round. Floats: their bits, of negative ones all but the sign
    turned round."""
    if _TRAVELS_AS[flat.dtype] == torch.int32:
        key = flat.to(torch.int32, copy=True)
    else:
        floats = flat.to(torch.float32)
        bits = floats.view(torch.int32)
        key = bits ^ (bits >> 31 & 0x7FFFFFFF)
        key[floats.isnan()] = _NAN if largest else ~_NAN
    return key if largest else key.bitwise_not_()


def _unkey(key: torch.Tensor, dtype: torch.dtype, largest: bool) -> torch.Tensor:
    key = key if largest else ~key
    if _TRAVELS_AS[dtype] == torch.int32:
        return key.to(dtype)
    return (key ^ (key >> 31 & 0x7FFFFFFF)).view(torch.float32).to(dtype)


def _encode(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    if tensor.dtype == torch.complex64:
        return torch.view_as_real(flat.resolve_conj()).reshape(-1)
    if tensor.dtype == torch.int64:
        return torch.cat([flat & _LIMB, flat >> LIMB_BITS & _LIMB, flat >> 2 * LIMB_BITS]).to(torch.int32)
    return flat.to(_TRAVELS_AS[tensor.dtype])


def _decode(buffer: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Flat, of ``dtype``."""
    if dtype == torch.complex64:
        return torch.view_as_complex(buffer.view(-1, 2))
    if dtype == torch.int64:
        low, middle, high = buffer.to(torch.int64).view(3, -1)
        return low + (middle << LIMB_BITS) + (high << 2 * LIMB_BITS)
    return buffer.to(dtype)


def placement(mine: Sequence[tuple[torch.Tensor, int]], results: Sequence[tuple[torch.Tensor, int]], words: int) -> Sum:
    """Every rank puts its tensors into a common buffer of ``words`` 32-bit words, and gets what others have put there.

    ``mine``: what this rank gives; ``results``: what it wants; each with the number of its first word. No two ranks may give to
    the same word. Any dtype: the bits are copied. A result that fills the buffer and lies well is the buffer.
    """
    buffer = _words(results[0][0]) if len(results) == 1 else None
    direct = buffer is not None and len(buffer) == words
    if not direct:
        buffer = torch.empty(words, dtype=torch.int32)
    given = [(at, _padded(tensor)) for tensor, at in mine]
    given = [(at, bits.clone() if direct and bits.data_ptr() != buffer.data_ptr() + 4 * at else bits) for at, bits in given]
    done = 0
    for at, bits in sorted(given, key=lambda item: item[0]):  # zeros in between; what lies where it belongs is not touched
        buffer[done:at].zero_()
        if bits.data_ptr() != buffer.data_ptr() + 4 * at:
            buffer[at : at + len(bits)].copy_(bits)
        done = at + len(bits)
    buffer[done:].zero_()
    if direct:
        return Sum(buffer)

    def decode() -> None:
        octets = buffer.view(torch.uint8)
        for tensor, at in results:
            bits = octets[4 * at : 4 * at + tensor.numel() * tensor.element_size()]
            if 4 * at % tensor.element_size():
                bits = bits.clone()
            tensor.detach().copy_(bits.view(tensor.dtype).view(tensor.shape))

    return Sum(buffer, decode=decode)


def words(tensor: torch.Tensor) -> int:
    """32-bit words that the bits of ``tensor`` take."""
    return -(-tensor.numel() * tensor.element_size() // 4)


def _words(tensor: torch.Tensor) -> torch.Tensor | None:
    """The memory of ``tensor`` as int32, if it is a whole number of aligned words."""
    lies_well = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg() and tensor.data_ptr() % 4 == 0
    whole = tensor.numel() > 0 and not any(n * tensor.element_size() % 4 for n in (tensor.numel(), tensor.storage_offset()))
    return _flat(tensor).view(torch.int32) if lies_well and whole else None


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of ``tensor`` as int32, with zeros up to a whole word; its own memory where that will do."""
    tensor = tensor.detach().contiguous().resolve_conj().resolve_neg()
    flat = _words(tensor)
    if flat is None:
        octets = torch.zeros(4 * words(tensor), dtype=torch.uint8)
        octets[: tensor.numel() * tensor.element_size()] = _flat(tensor).view(torch.uint8)
        flat = octets.view(torch.int32)
    return flat


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor's memory (one element may be called contiguous and have any stride)."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))
