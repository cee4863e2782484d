"""Sums of floats by a codec: rounds through the switch, each with words of its own (ina.codecs).

A collective's sums begin in the order of collectives on every rank, so a round that depends on the one before makes later sums
wait for it: pieces of a long tensor follow each other, the first round of one during the last of another.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch

from ina.backend.counters import COUNTERS
from ina.backend.sums import FLOATS, HALVES, Sum, in_pieces, scaling

if TYPE_CHECKING:
    import numpy as np

    from ina.codecs import Call, Codec, Round

PIECE = 1 << 20  # elements of a sum: few enough that all digits of the widest floats fit into memory
WIDE = (torch.float64, torch.complex128)
Coding = Callable[[torch.Tensor], torch.Tensor]
Result = TypeVar("Result")


class CodecError(RuntimeError):
    """A codec failed, or workers differ in it: the job is over."""


class Coded(Sum):
    """One reduction by a codec. ``begin``: the next round; ``end``: takes its result, and the last one decodes."""

    in_rounds = True

    def __init__(self, elements: int, codec: Codec, call: Call, encode: Callable[[], torch.Tensor],
                 decode: Callable[[torch.Tensor], None]):
        super().__init__(elements, torch.int32, encode, decode, staged=True)
        self.codec, self._call, self._take = codec, call, decode
        self._running: Generator[Round, np.ndarray, np.ndarray] | None = None
        self._next: Round | None = None
        self._rounds = self._words = 0
        self._flushed = codec.flushed

    @property
    def begun(self) -> bool:
        return self._rounds > 0

    @property
    def last(self) -> bool:
        return self._rounds >= self.codec.rounds

    def begin(self) -> torch.Tensor:
        if self._running is None:
            values = self._encode()
            self._running = self.codec.reduce(values.numpy(), self._call)
            self._go_on(None)
        if (coming := self._next) is None:
            raise CodecError(f"ina: codec {self.codec.name}: it ended without a round through the switch, expected one at least")
        self._rounds += 1
        self.meanwhile = None if coming.meanwhile is None else partial(self._compute, coming.meanwhile)
        self.reduction, self.average = int(coming.operation), coming.average
        self.buffer = torch.from_numpy(coming.words)
        if self.buffer.dtype not in (torch.int32, torch.float32) or not self.buffer.is_contiguous():
            raise CodecError(f"ina: codec {self.codec.name}: round {self._rounds} is of {coming.words.dtype} with strides "
                             f"{coming.words.strides}, expected contiguous int32 or float32")
        self.dtype = self.buffer.dtype
        self._words += self.buffer.numel()
        COUNTERS.travelled(self.buffer.numel())
        return self.buffer

    def end(self) -> bool:
        assert self.buffer is not None  # begun
        words, self.buffer = self.buffer.numpy(), None
        result = self._go_on(words)
        if result is None:
            return False
        self._take(torch.from_numpy(result))
        self._running = None
        COUNTERS.coded(self.codec.name, self.elements, self._words, self.codec.flushed - self._flushed)
        if self.codec.reason:
            COUNTERS.planned(f"{self.codec.name} of {self.elements:,} values", self.codec.reason)
        return True

    def _go_on(self, words: np.ndarray | None) -> np.ndarray | None:
        """Runs the codec to its next round; returns its result at the end."""
        assert self._running is not None
        try:
            self._next = self._compute(partial(self._running.send, words))  # type: ignore[arg-type]  # the first is None
        except StopIteration as end:
            self._next = None
            return end.value
        if self.last:
            raise CodecError(f"ina: codec {self.codec.name}: another round after {self._rounds}, expected at most `rounds`")
        return None


    def _compute(self, step: Callable[[], Result]) -> Result:
        """Runs a step of the codec. Raises CodecError: it has failed."""
        try:
            return step()
        except StopIteration:
            raise
        except Exception as error:
            raise CodecError(f"ina: codec {self.codec.name}: {type(error).__name__}: {error}") from error


def travels(dtype: torch.dtype, codec: Codec) -> bool:
    """Returns True if tensors of ``dtype`` can be summed by ``codec``."""
    return dtype in (*FLOATS, *WIDE) and (_reads(dtype, codec) or ("float64" if dtype in WIDE else "float32") in codec.dtypes)


def _reads(dtype: torch.dtype, codec: Codec) -> bool:
    """Returns True if the codec reads tensors of 16-bit floats as they are."""
    return dtype in HALVES and str(dtype).removeprefix("torch.") in codec.dtypes


def as_halves(dtype: torch.dtype, factor: float | torch.Tensor | None) -> tuple[Coding, Coding]:
    """Returns the encoding of a flat tensor of 16-bit floats, times ``factor``, for a codec that reads them as they are, and the
    decoding."""
    scale = None if factor is None else scaling(factor, dtype)

    def encode(piece: torch.Tensor) -> torch.Tensor:
        return (piece if scale is None else scale(piece).to(dtype)).contiguous().view(HALVES[dtype])

    return encode, lambda buffer: buffer.view(dtype)


def as_reals(dtype: torch.dtype, wide: torch.dtype, factor: float | torch.Tensor | None) -> tuple[Coding, Coding]:
    """Returns the encoding of a flat tensor of ``dtype``, times ``factor``, as real numbers of ``wide``, and the decoding."""
    scale = None if factor is None else scaling(factor, dtype)

    def encode(piece: torch.Tensor) -> torch.Tensor:
        piece = piece if scale is None else scale(piece)
        real = torch.view_as_real(piece.resolve_conj()) if piece.is_complex() else piece
        return real.to(wide).contiguous().view(-1)

    def decode(buffer: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(buffer.view(-1, 2)) if dtype.is_complex else buffer.to(dtype)

    return encode, decode


def reduction(
    source: torch.Tensor, result: torch.Tensor | None, codec: Codec, call: Call, factor: float | torch.Tensor | None = None,
    start: int = 0,
) -> list[Sum]:
    """Returns the sums by ``codec`` of all ranks' ``source``, as ``sums.reduction`` does; a codec that remembers gets it in one
    piece."""
    if _reads(source.dtype, codec) and (factor is None or "float32" not in codec.dtypes):  # else a product is not rounded
        encode, decode = as_halves(source.dtype, factor)
    else:
        encode, decode = as_reals(source.dtype, torch.float64 if source.dtype in WIDE else torch.float32, factor)

    def make(elements: int, encoded: Callable[[], torch.Tensor], place: Callable[[torch.Tensor], None] | None) -> Sum:
        return Coded(elements, codec, call, encoded, place or (lambda _: None))

    call = replace(call, in_place=result is source)
    length = max(1, source.numel()) if codec.remembers else PIECE
    return in_pieces(source, result, start, length, encode, decode, make)
