"""Narrow floating-point formats in lanes: fp8, the OCP's microscaling (MX) formats, NVFP4.

Workers agree on a block's scale by a round of maxima, each rounds its own values to the format under that scale, and the switch
adds up whole numbers of the format's smallest step, in lanes. Formats as in the OCP Microscaling Formats (MX) Specification v1.0
and the OCP 8-bit Floating Point Specification (OFP8); values round to the nearest, ties to even, and saturate:

============  ========================================  =============================================================
codec         elements                                  scale
============  ========================================  =============================================================
mx-int8       INT8: multiples of 1/64 to 127/64         32 values: E8M0, 2^(floor(log2 of the largest) - emax of the
mx-e5m2 ...   E5M2, E4M3, E3M2, E2M3, E2M1              format), 2^-127 at least
nvfp4         E2M1                                      16 values: E4M3, the largest / 6; float32 for the tensor, its
                                                        largest / (6 * 448), as in torchao's nvfp4_quantize
fp8-e5m2      E5M2                                      the tensor: float32, its largest becomes the format's
fp8-e4m3      E4M3                                      the same
============  ========================================  =============================================================

The width of a lane follows from a format's *range*: n workers' sums have 1 + log2(n * largest / smallest) bits. INT8 takes
8 + log2 n, E2M1 5.6 + log2 n, E2M3 6.9 + log2 n, E3M2 9.8 + log2 n, but E4M3 18.8 + log2 n and E5M2 32.8 + log2 n. A lane of more
than 16 bits saves nothing, so a block of E4M3 or E5M2, and others with very many workers, is cut off below: its values are on the
format's grid, but are multiples of a larger step than its smallest: 2^-12 of the largest value with 8 workers. What becomes
zero is counted (``flushed``).

A tensor's scale is 2^-110 at least, so tensors of smaller values than largest * 2^-110 have fewer bits. A block with an infinity
or NaN is NaN, as E8M0's NaN makes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ina.codecs.lanes import FLOAT_BITS, Element, ScaledLanes

SMALLEST_SCALE = np.float32(2.0**-110)  # of tensors: the products with all of a format's steps are exact


@dataclass(frozen=True)
class Format:
    """A format of elements: ``fraction`` bits of a mantissa after its first, multiples of 2^``lowest``, up to ``largest``."""

    name: str
    fraction: int
    lowest: int
    largest: float

    @property
    def emax(self) -> int:
        """The exponent of the largest power of two."""
        return int(np.frexp(self.largest)[1]) - 1

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """Returns the elements nearest to ``values``, of their dtype."""
        saturated = np.clip(values, -self.largest, self.largest).astype(values.dtype)
        _, exponent = np.frexp(saturated)
        step = np.maximum(exponent - 1 - self.fraction, self.lowest)
        return np.ldexp(np.rint(np.ldexp(saturated, -step)), step)

    def step(self, workers: int) -> tuple[int, int]:
        """Returns the width of lanes for sums of ``workers`` elements, and the exponent of the smallest step that has room.

        ValueError: not even the largest values have all of their bits.
        """
        whole = int(workers * 2 * self.largest * 2.0**-self.lowest)
        bits = 32 // (32 // min(FLOAT_BITS, whole.bit_length()))
        room = (2**bits - 1) // (2 * workers)
        step = self.lowest
        while self.largest * 2.0**-step > room:
            step += 1
        if step > self.emax - self.fraction:
            limit = (2**FLOAT_BITS - 1) // int(2 * self.largest * 2.0 ** (self.fraction - self.emax))
            raise ValueError(f"{workers} workers, expected at most {limit}: sums of {self.name} have {FLOAT_BITS} bits")
        return bits, step


E5M2 = Format("E5M2", 2, -16, 57344.0)
E4M3 = Format("E4M3", 3, -9, 448.0)
E3M2 = Format("E3M2", 2, -4, 28.0)
E2M3 = Format("E2M3", 3, -3, 7.5)
E2M1 = Format("E2M1", 1, -1, 6.0)
INT8 = Format("INT8", 6, -6, 127 / 64)


class Narrow(ScaledLanes):
    """Elements of a format, under scales of blocks."""

    format: ClassVar[Format]

    def element(self, workers: int) -> Element:
        bits, step = self._step(workers)
        return Element(bits, int(self.format.largest * 2.0**-step), self.format.fraction)

    def units(self, bits: np.ndarray, workers: int) -> np.ndarray:
        largest = np.maximum(bits, 0).view(np.float32)
        finite = np.isfinite(largest)
        if finite.all():
            return self.finite_units(largest, workers)
        return np.where(finite, self.finite_units(np.where(finite, largest, np.float32(0)), workers), np.nan)

    def finite_units(self, largest: np.ndarray, workers: int) -> np.ndarray:
        """Returns the units of blocks from their largest values, as float32, which are finite: scale times smallest step."""
        return self.scales(largest).astype(np.float64) * (largest > 0) * 2.0 ** self._step(workers)[1]

    def scales(self, largest: np.ndarray) -> np.ndarray:
        """Returns the scales of blocks, as float32, from their largest values."""
        raise NotImplementedError

    def _step(self, workers: int) -> tuple[int, int]:
        try:
            return self.format.step(workers)
        except ValueError as error:
            raise ValueError(f"codec {self.name}: {error}") from None


class Mx(Narrow):
    """The OCP's MX: 32 elements and a power of two."""

    block = 32

    def scales(self, largest: np.ndarray) -> np.ndarray:
        return np.maximum(_power_below(largest) * np.float32(2.0**-self.format.emax), np.float32(2.0**-127))


class NvFp4(Narrow):
    """NVIDIA's: 16 elements of E2M1 and an E4M3, with one float32 for the tensor."""

    name, block, format = "nvfp4", 16, E2M1

    def scales(self, largest: np.ndarray) -> np.ndarray:
        whole = _tensor_scale(largest, E2M1.largest * E4M3.largest)
        steps = np.clip(largest / np.float32(E2M1.largest) / whole, np.float32(2.0**-6), np.float32(E4M3.largest))
        return whole * _mantissa(steps, E4M3.fraction)


class Fp8(Narrow):
    """fp8 with a scale for the tensor; each 64 values have a step of their own below which they are cut off."""

    block = 64

    def element(self, workers: int) -> Element:
        bits, _ = self._step(workers)
        return Element(bits, (2**bits - 1) // (2 * workers), self.format.fraction)

    def finite_units(self, largest: np.ndarray, workers: int) -> np.ndarray:
        scale, room = _tensor_scale(largest, self.format.largest), self.element(workers).largest
        steps = _power_above(_mantissa(largest / scale, self.format.fraction) / np.float32(room))
        return np.maximum(steps, np.float32(2.0**self.format.lowest)) * np.float64(scale) * (largest > 0)


def _codec(name: str, kind: type[Narrow], format: Format) -> type[Narrow]:
    """Returns the class of a codec of this format."""
    return type(name, (kind,), {"name": name, "format": format})


CODECS = (
    _codec("mx-int8", Mx, INT8),
    _codec("mx-e5m2", Mx, E5M2),
    _codec("mx-e4m3", Mx, E4M3),
    _codec("mx-e3m2", Mx, E3M2),
    _codec("mx-e2m3", Mx, E2M3),
    _codec("mx-e2m1", Mx, E2M1),
    NvFp4,
    _codec("fp8-e5m2", Fp8, E5M2),
    _codec("fp8-e4m3", Fp8, E4M3),
)


def _tensor_scale(largest: np.ndarray, becomes: float) -> np.float32:
    """Returns the scale under which the largest value of all blocks is ``becomes``."""
    return max(np.max(largest, initial=np.float32(0)) / np.float32(becomes), SMALLEST_SCALE)


def _power_below(values: np.ndarray) -> np.ndarray:
    """Returns the largest powers of two that are no larger than float32 values; 0 for subnormal ones."""
    return (values.view(np.int32) & 0x7F800000).view(np.float32)


def _power_above(values: np.ndarray) -> np.ndarray:
    """Returns the smallest powers of two that are no smaller than float32 values, which are normal."""
    return _power_below((values.view(np.int32) + 0x7FFFFF).view(np.float32))


def _mantissa(values: np.ndarray, bits: int) -> np.ndarray:
    """Rounds float32 values to so many bits after the first, the nearest, ties to even."""
    drop, whole = 23 - bits, values.view(np.int32)
    whole = whole + ((1 << drop - 1) - 1) + (whole >> drop & 1)
    return (whole & -(1 << drop)).view(np.float32)
