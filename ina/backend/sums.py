"""Collectives as sums, for the switch: buffers of floats or int32 that it adds up over the ranks in place.

    encode: the rank's tensors -> buffer      the switch: buffer = sum of all ranks' buffers      decode: buffer -> results

Reductions widen the data type until the sum fits; in a broadcast all ranks but one add zeros, in an all-gather each rank adds its
piece. Data that is moved and not added up travels as 32-bit integers, so every bit arrives.

=====================  ===========================  =====================================================================
data type              travels as                   the result
=====================  ===========================  =====================================================================
float32, complex64     float32                      within the codec's bound (docs/design/protocol.md)
float16, bfloat16      float32, converted in C      the float32 sum, with its error, rounded to the type
int32                  int32                        exact, modulo 2^32
int8, uint8            lanes of int32 (2 or 3)      exact, modulo 2^8
int16                  three in two int32           exact, modulo 2^16
bool                   lanes of int32 (5 to 16)     whether any rank had True
int64                  three int32 (21, 21, 22 bit) exact, modulo 2^64
=====================  ===========================  =====================================================================

float64 and complex128, and floats where another codec than the protocol's own is chosen: coded.py.

An average of integers is exact, rounded towards zero (docs/guide/torch.md#averages-of-integers): the dividend is a sum that never
wraps. An int32 travels as two int32 (21, 11 bit) for that, an int16 as one; the limbs of an int64 have the room.

Tensors that have to be converted are summed in pieces of 64 MiB, so that long ones need no more memory than two of them.

Maxima and minima are exact for all of these but complex64 and int64: a value travels as an int32 of the same order, and the
switch keeps the largest; for a minimum, as the complement. A NaN wins both. Gloo does the same with int64, for float64 and int64
(through_gloo.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import torch

from ina.aggregation import protocols
from ina.aggregation.worker import Route
from ina.backend.arguments import dtypes, is_plain
from ina.base.native import CData, lib
from ina.codecs.lanes import Packing, Shorts
from ina.codecs.pointers import pointer

Number = TypeVar("Number", int, torch.Tensor)
STAGE = 64 << 20  # bytes, at most, of the buffer of one sum that is not a tensor's own memory
WORD = torch.int32.itemsize  # bytes
_KEYS = {torch.float64: torch.int64, torch.int64: torch.int64}  # of these for maxima and minima; else int32
_FLOATS_OF_KEYS = {torch.int32: torch.float32, torch.int64: torch.float64}  # of as many bits
_TRAVELS_AS = {
    torch.float32: torch.float32, torch.float16: torch.float16, torch.bfloat16: torch.bfloat16, torch.complex64: torch.float32,
    torch.int32: torch.int32, torch.int64: torch.int32, torch.int16: torch.int32, torch.int8: torch.int32,
    torch.uint8: torch.int32, torch.bool: torch.int32,
}
_WORDS = {torch.int64: 3, torch.complex64: 2}  # of 32 bits, for an element; else 1
HALVES = {torch.float16: torch.float16, torch.bfloat16: torch.uint16}  # and what NumPy has in their place
FLOATS = (torch.float32, *HALVES, torch.complex64)
_BYTES = {torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool"}  # several of which travel in an int32
_AVERAGE_WORDS = {torch.int64: 3, torch.int32: 2}  # the same for averages of integers, whose sums must not wrap


class Sum:
    """One sum over the ranks: a contiguous flat buffer of floats of 32 or 16 bits or int32, which is a tensor's own memory or
    made when the sum begins, summed in place, and decoded to its result."""

    def __init__(
        self, elements: int, dtype: torch.dtype, encode: Callable[[], torch.Tensor],
        decode: Callable[[torch.Tensor], None] | None = None, *, average: bool = False,
        reduction: int = protocols.SUM, staged: bool = False, route: Route | None = None,
    ):
        """``elements``, ``dtype``: of the buffer. ``average``: divided by the number of ranks, floats only. ``reduction``:
        in place of the sum; a maximum is of int32 only. ``staged``: the buffer is memory of its own. ``route``: not from all to
        all."""
        self.elements, self.dtype, self.average = elements, dtype, average
        self.reduction, self.staged, self.route = reduction, staged, route
        self._encode, self._decode = encode, decode
        self.buffer: torch.Tensor | None = None

    @classmethod
    def of(cls, buffer: torch.Tensor, decode: Callable[[torch.Tensor], None] | None = None, average: bool = False,
           route: Route | None = None) -> Sum:
        """Returns the sum of a buffer that exists already."""
        return cls(buffer.numel(), buffer.dtype, lambda: buffer, decode, average=average, route=route)

    def begin(self) -> torch.Tensor:
        """Encodes the buffer and returns it."""
        self.buffer = self._encode()
        return self.buffer

    meanwhile: Callable[[], object] | None = None  # what there is to compute while the buffer is on its way
    alike = True  # all ranks have as many elements; False: the route says how many each has
    in_rounds = False  # of words whose number is not known before they begin (coded.py)

    @property
    def converts(self) -> bool:
        """True if it computes with tensors when it begins or ends."""
        return self.staged or self._decode is not None

    @property
    def begun(self) -> bool:
        """True between rounds, for sums of several."""
        return False

    @property
    def last(self) -> bool:
        """True if the round that has begun is the last one."""
        return True

    def end(self) -> bool:
        """Decodes the buffer, which has been summed, and releases it. Returns False if another round follows."""
        if self._decode is not None:
            assert self.buffer is not None  # begun, and not ended before
            self._decode(self.buffer)
        self.buffer = None
        return True


def ordered(dtype: torch.dtype) -> bool:
    """Returns True if the switch can compute maxima and minima of tensors of ``dtype``."""
    return dtype in _TRAVELS_AS and dtype not in (torch.complex64, torch.int64)


def summable(dtype: torch.dtype) -> bool:
    """Returns True if the switch can add up tensors of ``dtype``."""
    return dtype in _TRAVELS_AS


def integral(dtype: torch.dtype) -> bool:
    """Returns True if tensors of ``dtype`` are summed as integers; bool is, too."""
    return _TRAVELS_AS.get(dtype) == torch.int32


def reduction(
    source: torch.Tensor, result: torch.Tensor | None, size: int, average: bool, factor: float | torch.Tensor | None = None,
    start: int = 0,
) -> list[Sum]:
    """Returns the sum of all ranks' ``source`` (of a summable dtype, times ``factor``); ``result`` gets its elements from
    ``start`` on; None: this rank needs none. ``average``: over ``size`` ranks. ``source`` changes only if it is ``result``.

    Several sums, if a long tensor has to be converted: as many on all ranks, by dtype and number of elements. ValueError: a
    factor that is not finite, of integers. TypeError: an average of bool.
    """
    dtype = source.dtype
    travels = _TRAVELS_AS[dtype] if factor is None or dtype not in HALVES else torch.float32  # a product is not rounded
    if average and dtype == torch.bool:
        raise TypeError("ina: AVG of bool: expected numbers (SUM tells whether any rank has True, MIN whether all have)")
    floating = travels.is_floating_point
    divides = average and not floating
    words_each = _AVERAGE_WORDS.get(dtype, 1) if divides else _WORDS.get(dtype, 1)
    scale = None if factor is None else scaling(factor, dtype)
    if dtype in _BYTES:
        packing = Packing.of(_BYTES[dtype], size, wraps=not average)
        unpack = partial(packing.place, divisor=size) if average else packing.place
        return _packed(source, result, start, packing, unpack, scale)
    if dtype == torch.int16 and not average and size <= Shorts.WORKERS:
        return _packed(source, result, start, Shorts, Shorts.place, scale)
    if dtype == travels and words_each == 1:  # in one piece
        in_place = result is source and factor is None and is_plain(source)
        buffer = _flat(source) if in_place else source.detach().reshape(-1)
        buffer = buffer if scale is None else scale(buffer)
        if not in_place and (buffer.data_ptr() == source.data_ptr() or buffer.is_neg()):
            buffer = buffer.clone()

        if result is None or in_place:
            return [Sum.of(buffer, None, average)]

        def place(buffer: torch.Tensor) -> None:
            result.detach().copy_(buffer[start : start + result.numel()].view(result.shape))

        return [Sum.of(buffer, place, average)]

    def encode(piece: torch.Tensor) -> torch.Tensor:
        return _encode(piece if scale is None else scale(piece), words_each)

    def decode(buffer: torch.Tensor) -> torch.Tensor:
        return _average(buffer, dtype, words_each, size) if divides else _decode(buffer, dtype)

    return _pieces(source, result, start, travels, words_each, encode, decode, average=average and floating)


def _packed(
    source: torch.Tensor, result: torch.Tensor | None, start: int, packing: Packing | type[Shorts],
    unpack: Callable[[np.ndarray, np.ndarray], None], scale: Callable[[torch.Tensor], torch.Tensor] | None,
) -> list[Sum]:
    """Returns the sums of integers in lanes; ``unpack`` writes them, of words, over values."""

    def encode(piece: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(packing.pack((piece if scale is None else scale(piece)).contiguous().numpy()))

    def write(buffer: torch.Tensor, target: torch.Tensor) -> None:
        unpack(buffer.to(torch.int32).numpy(), target.numpy())  # Gloo has int64

    def decode(buffer: torch.Tensor) -> torch.Tensor:
        whole = torch.empty(packing.holds(buffer.numel()), dtype=source.dtype, device="cpu")
        write(buffer, whole)
        return whole

    def make(elements: int, encoded: Callable[[], torch.Tensor], place: Callable[[torch.Tensor], None] | None) -> Sum:
        return Sum(packing.words(elements), torch.int32, encoded, place, staged=True)

    return in_pieces(source, result, start, STAGE // WORD, encode, decode, make, write)


def direct(parts: list[Sum], source: torch.Tensor, target: int | Sequence[int], average: bool, packet: int) -> None:
    """Gives the parts of ``reduction`` a route, where they can have one: to one rank, or of each piece to its owner, if
    ``target`` is the pieces' numbers of elements. Not for those that fit a packet of ``packet`` words: they go to all, in one
    round trip."""
    if not (source.dtype in FLOATS or (source.dtype == torch.int32 and not average)):
        return  # an element is not one or two words on their own
    words_each, at = _WORDS.get(source.dtype, 1), 0
    for part in parts:
        elements = part.elements // words_each
        if part.elements > packet and not part.in_rounds:
            if isinstance(target, int):
                part.route = Route.reduce(target)
            else:
                ends = list(itertools.accumulate(target))
                shares = [max(0, min(end, at + elements) - max(end - own, at)) for own, end in zip(target, ends, strict=True)]
                part.route = Route.reduce_scatter([words_each * share for share in shares])
        at += elements


def own(source: torch.Tensor) -> Sum:
    """Returns the protocol's own reduction of all ranks' ``source`` (float32 or int32), in place."""
    in_place = is_plain(source)
    flat = _flat(source) if in_place else source.detach().reshape(-1).clone()

    def decode(buffer: torch.Tensor) -> None:
        source.detach().copy_(buffer.view(source.shape))

    return Sum(flat.numel(), flat.dtype, lambda: flat, None if in_place else decode, reduction=protocols.OWN)


def extremum(source: torch.Tensor, result: torch.Tensor | None, largest: bool, start: int = 0) -> list[Sum]:
    """Returns the largest, or smallest, over the ranks of each element of ``source``; ``result`` as in reduction. Of ordered
    dtypes, or, as int64, which the switch cannot compare, of float64 and int64."""

    def encode(piece: torch.Tensor) -> torch.Tensor:
        return _key(piece, largest)

    def decode(buffer: torch.Tensor) -> torch.Tensor:
        return _unkey(buffer, source.dtype, largest)

    keys = _KEYS.get(source.dtype, torch.int32)
    return _pieces(source, result, start, keys, 1, encode, decode, reduction=protocols.MAX)


def _pieces(
    source: torch.Tensor, result: torch.Tensor | None, start: int, travels: torch.dtype, words_each: int,
    encode: Callable[[torch.Tensor], torch.Tensor], decode: Callable[[torch.Tensor], torch.Tensor], *,
    average: bool = False, reduction: int = protocols.SUM,
) -> list[Sum]:
    """Splits ``source`` into pieces whose buffers, ``words_each`` words for an element, take STAGE bytes at most."""

    def make(elements: int, encoded: Callable[[], torch.Tensor], place: Callable[[torch.Tensor], None] | None) -> Sum:
        return Sum(elements * words_each, travels, encoded, place, average=average, reduction=reduction, staged=True)

    return in_pieces(source, result, start, STAGE // (travels.itemsize * words_each), encode, decode, make)


def in_pieces(
    source: torch.Tensor, result: torch.Tensor | None, start: int, length: int,
    encode: Callable[[torch.Tensor], torch.Tensor], decode: Callable[[torch.Tensor], torch.Tensor],
    make: Callable[[int, Callable[[], torch.Tensor], Callable[[torch.Tensor], None] | None], Sum],
    write: Callable[[torch.Tensor, torch.Tensor], None] | None = None,
) -> list[Sum]:
    """Returns a sum for each piece of ``length`` elements of ``source``: ``make`` gets its number of elements, what encodes it,
    and what places its decoded elements in ``result``, as in reduction; None: nowhere. ``write`` decodes into memory of as many
    elements, where all of them are needed."""
    flat = source.detach().reshape(-1)
    count = flat.numel()

    def piece(at: int, place: Callable[[torch.Tensor], None] | None) -> Sum:
        elements = min(length, count - at)
        return make(elements, lambda: encode(_plain(flat[at : at + elements].resolve_neg())), place)

    if result is None:
        return [piece(at, None) for at in range(0, count, length)]
    # Strided results are assembled in a buffer first; so are those that overlap the source without being the source itself.
    buffered = not is_plain(result) or (result is not source and _share_memory(result, source) and count > length)
    needed = result.numel()
    received = torch.empty(needed, dtype=result.dtype, device="cpu") if buffered else result.detach().view(-1)

    def placing(at: int) -> Callable[[torch.Tensor], None]:
        end = min(at + length, count)
        low, high = max(at, start), min(end, start + needed)  # the part that the result needs

        def place(buffer: torch.Tensor) -> None:
            target = received[low - start : high - start]
            if write is not None and (low, high) == (at, end):
                write(buffer, target)
            elif low < high:
                part = decode(buffer)[low - at : high - at]
                if part.data_ptr() != target.data_ptr():  # else it was summed there
                    target.copy_(part)
            if end == count and buffered:
                result.detach().copy_(received.view(result.shape))

        return place

    return [piece(at, placing(at)) for at in range(0, count, length)]


def _plain(flat: torch.Tensor) -> torch.Tensor:
    return flat if is_plain(flat) or flat.is_conj() else flat.clone()


def _share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def scaling(factor: float | torch.Tensor, dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns the multiplication of a tensor of ``dtype`` by ``factor``: of floats as float32, or as float64 if they are; of
    integers exact, rounded towards zero, modulo 2^64; for bool, and-ed with factor != 0."""
    value = factor.item() if isinstance(factor, torch.Tensor) else factor
    if not integral(dtype):
        wide = torch.float32 if dtype in HALVES else dtype
        return lambda flat: flat.to(wide) * value
    if not abs(value) < float("inf"):
        raise ValueError(f"ina: PREMUL_SUM of {str(dtype).removeprefix('torch.')} by {value}: expected a finite factor")
    if dtype == torch.bool:
        return lambda flat: flat & (value != 0)
    if value == int(value):
        whole = (int(value) + 2**63) % 2**64 - 2**63
        return lambda flat: (flat.to(torch.int64) * whole).to(dtype)
    mantissa, power = value.as_integer_ratio()
    shift = power.bit_length() - 1

    def multiply(flat: torch.Tensor) -> torch.Tensor:
        product = flat.to(torch.int64, copy=True).contiguous()
        memory = _pointer(product)
        lib.ina_fraction_multiply(product.numel(), memory, mantissa, shift, memory)
        return product.to(dtype)

    return multiply


def _key(flat: torch.Tensor, largest: bool) -> torch.Tensor:
    """Returns new integers in the order of the values, or in reverse. Floats: their bits, all but the sign inverted for negative
    ones; a NaN above infinity, or below."""
    keys = _KEYS.get(flat.dtype, torch.int32)
    if not flat.is_floating_point():
        key = flat.to(keys, copy=True)
    else:
        floats = flat.to(_FLOATS_OF_KEYS[keys])
        key = _turned(floats.view(keys))
        key[floats.isnan()] = torch.iinfo(keys).max if largest else torch.iinfo(keys).min
    return key if largest else key.bitwise_not_()


def _unkey(key: torch.Tensor, dtype: torch.dtype, largest: bool) -> torch.Tensor:
    key = key if largest else ~key
    return _turned(key).view(_FLOATS_OF_KEYS[key.dtype]).to(dtype) if dtype.is_floating_point else key.to(dtype)


def _turned(bits: torch.Tensor) -> torch.Tensor:
    """Returns floats' bits as integers of their order, and the other way round: all but the sign inverted for negative ones."""
    sign = bits >> 8 * bits.element_size() - 1
    return bits ^ (sign & torch.iinfo(bits.dtype).max)


def _encode(flat: torch.Tensor, words_each: int) -> torch.Tensor:
    """Encodes into new memory. Integers of several words: their limbs, the lowest first; the highest has the sign."""
    if flat.dtype == torch.complex64:
        return torch.view_as_real(flat.resolve_conj()).reshape(-1).clone()
    if words_each > 1:
        limbs = torch.empty(words_each * flat.numel(), dtype=torch.int32, device="cpu")
        lib.ina_integers_split(flat.numel(), _pointer(flat.to(torch.int64)), words_each, _pointer(limbs))
        return limbs
    return flat.to(_TRAVELS_AS[flat.dtype], copy=True)


def _decode(buffer: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Decodes a buffer to a flat tensor of ``dtype``."""
    if dtype == torch.complex64:
        return torch.view_as_complex(buffer.view(-1, 2))
    if dtype == torch.int64:
        return _of_limbs(lib.ina_integers_join, buffer, _WORDS[dtype])
    return buffer.to(dtype)


def _average(buffer: torch.Tensor, dtype: torch.dtype, words_each: int, size: int) -> torch.Tensor:
    """Returns the sums of integers in ``buffer`` divided by ``size`` and rounded towards zero, flat, of ``dtype``."""
    if words_each == 1:
        return buffer.div_(size, rounding_mode="trunc").to(dtype)
    return _of_limbs(lib.ina_integers_average, buffer, words_each, size).to(dtype)


def _of_limbs(function: Callable[..., None], buffer: torch.Tensor, words_each: int, *divisor: int) -> torch.Tensor:
    """Returns int64 that ``function`` computes of limbs, which are int64 already where Gloo has summed them."""
    whole = torch.empty(buffer.numel() // words_each, dtype=torch.int64, device="cpu")
    function(whole.numel(), _pointer(buffer), buffer.dtype == torch.int64, words_each, *divisor, _pointer(whole))
    return whole


def _pointer(tensor: torch.Tensor) -> CData:
    return pointer(tensor.numpy())


def placement(inputs: Sequence[tuple[torch.Tensor, int]], results: Sequence[tuple[torch.Tensor, int]], words: int,
              route: Route | None = None) -> Sum:
    """Returns a sum, along ``route``, in which every rank puts its tensors into a common buffer of ``words`` 32-bit words, and
    gets the others'.

    ``inputs``: tensors of this rank; ``results``: its outputs; each with the number of its first word. No two ranks may write
    the same word. Any dtype: the bits are copied. A plain result that fills the buffer is the buffer.
    """
    if len(results) == 1 and (memory := _words(results[0][0])) is not None and len(memory) == words:
        buffer, direct = memory, True
    else:
        buffer, direct = torch.empty(words, dtype=torch.int32, device="cpu"), False
    encoded = [(at, _padded(tensor)) for tensor, at in inputs]
    begin = buffer.data_ptr()
    encoded = [(at, bits.clone() if direct and bits.data_ptr() != begin + WORD * at else bits) for at, bits in encoded]
    filled = 0
    for at, bits in sorted(encoded, key=lambda item: item[0]):  # zeros in between; bits that are in place already are not copied
        if route is None:
            buffer[filled:at].zero_()
        if bits.data_ptr() != begin + WORD * at:
            buffer[at : at + len(bits)].copy_(bits)
        filled = at + len(bits)
    if route is None:
        buffer[filled:].zero_()
    if direct:
        return Sum.of(buffer, route=route)

    def decode(buffer: torch.Tensor) -> None:
        octets = buffer.view(torch.uint8)
        for tensor, at in results:
            begin = WORD * at
            bits = octets[begin : begin + tensor.numel() * tensor.element_size()]
            if begin % tensor.element_size():
                bits = bits.clone()
            tensor.detach().copy_(bits.view(tensor.dtype).view(tensor.shape))

    return Sum.of(buffer, decode, route=route)


def alike(tensors: Sequence[torch.Tensor], pieces: Sequence[int] = ()) -> str:
    """Returns what all ranks must have in common of ``tensors``, which are as long on all of them, beyond the words that they
    fill: their types, and their numbers of elements where several share a word. ``pieces``: of how many elements each rank has,
    or gets, one."""
    shared = any(tensor.element_size() < WORD for tensor in tensors)
    counts = pieces if len(set(pieces)) > 1 else [tensor.numel() for tensor in tensors] if shared else []
    return dtypes(tensors) + (f" ({'+'.join(map(str, counts))} elements)" if counts else "")


def words(tensor: torch.Tensor) -> int:
    """Returns the number of 32-bit words that the bits of ``tensor`` take."""
    return words_of(tensor.numel(), tensor.element_size())


def words_of(elements: Number, size: int) -> Number:
    """The same of so many elements, or of each number of a tensor, of ``size`` bytes."""
    return -(-elements * size // WORD)


def _words(tensor: torch.Tensor) -> torch.Tensor | None:
    """Returns the memory of ``tensor`` as int32, if it is a whole number of aligned words."""
    aligned = tensor.data_ptr() % WORD == 0
    whole = tensor.numel() > 0 and not any(n * tensor.element_size() % WORD for n in (tensor.numel(), tensor.storage_offset()))
    return _flat(tensor).view(torch.int32) if is_plain(tensor) and aligned and whole else None


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the bits of ``tensor`` as int32, with zeros up to a whole word; its own memory where possible."""
    tensor = tensor.detach().contiguous().resolve_conj().resolve_neg()
    flat = _words(tensor)
    if flat is None:
        octets = torch.zeros(WORD * words(tensor), dtype=torch.uint8, device="cpu")
        octets[: tensor.numel() * tensor.element_size()] = _flat(tensor).view(torch.uint8)
        flat = octets.view(torch.int32)
    return flat


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a contiguous tensor's memory (one element counts as contiguous with any stride)."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))
