"""The codec, host/protocol/codec.c, on NumPy arrays: float32 tensors as int32 on the wire, so that integer sums in a switch are
float sums.

On the wire words are big endian, so encoded arrays have dtype ``>i4``. Rules, error bound and the exact code are described in
``host/protocol/codec.h`` (block floating point: SwitchML NSDI'21 §3.7).
"""

from __future__ import annotations

import numpy as np

from ina.aggregation.lane import INT32
from ina.base.native import CData, ffi, lib

EXP_MIN: int = lib.INA_EXP_MIN
EXP_MAX: int = lib.INA_EXP_MAX
EXP_NONFINITE: int = lib.INA_EXP_NONFINITE
EXACT_WORDS: int = lib.INA_EXACT_WORDS
MAX_WORKERS: int = lib.INA_MAX_WORKERS

WIRE = INT32.dtype.newbyteorder(">")


def shift(workers: int) -> int:
    """Returns the fraction bits for a fan-in of ``workers``: 30 - ceil(log2 n), so that n values cannot overflow int32."""
    _check_workers(workers)
    return INT32.shift(workers)


def exponent(x: np.ndarray) -> int:
    """Returns the exponent of a float32 block: the smallest e with ``|x| <= 2**e``, clamped to [EXP_MIN, EXP_MAX].

    EXP_NONFINITE if any value is NaN or infinite; a block of zeros has EXP_MIN.
    """
    return lib.ina_codec_exponent(_pointer("float *", x, np.float32, "x"), x.size)


def encode(x: np.ndarray, exponent: int, workers: int, out: np.ndarray | None = None) -> np.ndarray:
    """Encodes a float32 block as big-endian int32 of the same shape, with the agreed (largest) exponent of all workers.

    Values beyond ``2**exponent`` saturate. With EXP_NONFINITE the words are zero. ``out``: C-contiguous, ``>i4``.
    """
    _check_exponent(exponent)
    out = _output(out, x.shape, WIRE)
    source = _pointer("float *", x, np.float32, "x")
    lib.ina_codec_encode(INT32.number, _pointer("uint8_t *", out, WIRE, "out"), source, x.size, exponent, shift(workers))
    return out


def decode(
    wire: np.ndarray, exponent: int, workers: int, average: bool = False, out: np.ndarray | None = None
) -> np.ndarray:
    """Decodes big-endian int32 sums to the float32 sum (``average``: mean over ``workers``); NaN for EXP_NONFINITE."""
    _check_exponent(exponent)
    out = _output(out, wire.shape, np.dtype(np.float32))
    source = _pointer("uint8_t *", wire, WIRE, "wire")
    lib.ina_codec_decode(
        INT32.number,
        _pointer("float *", out, np.float32, "out"), source, wire.size, exponent, shift(workers),
        workers if average else 1,
    )
    return out


def encode_int32(x: np.ndarray) -> np.ndarray:
    """Converts an int32 array to wire order."""
    out = np.empty(x.shape, WIRE)
    source = _pointer("int32_t *", x, np.int32, "x")
    lib.ina_codec_swap(INT32.number, _pointer("uint8_t *", out, WIRE, "out"), source, x.size)
    return out


def decode_int32(wire: np.ndarray) -> np.ndarray:
    """Converts an int32 array from wire order."""
    out = np.empty(wire.shape, np.int32)
    source = _pointer("uint8_t *", wire, WIRE, "wire")
    lib.ina_codec_swap(INT32.number, _pointer("int32_t *", out, np.int32, "out"), source, wire.size)
    return out


def encode_exact(x: np.ndarray) -> np.ndarray:
    """Encodes a float32 array exactly, also infinities and NaN: ``>i4`` of shape ``x.shape + (EXACT_WORDS,)``."""
    out = np.empty((*x.shape, EXACT_WORDS), WIRE)
    source = _pointer("float *", x, np.float32, "x")
    lib.ina_codec_encode_exact(_pointer("uint8_t *", out, WIRE, "out"), source, x.size)
    return out


def decode_exact(wire: np.ndarray, workers: int, average: bool = False) -> np.ndarray:
    """Returns the float32 nearest to the exact sum or average, ties to even; ``wire`` is the sum of so many workers' encodings,
    up to 32. Infinities, NaN and the sign of zero follow IEEE 754."""
    _check_workers(workers)
    if wire.ndim == 0 or wire.shape[-1] != EXACT_WORDS:
        raise ValueError(f"wire: shape {wire.shape}, expected a last dimension of {EXACT_WORDS}")
    out = np.empty(wire.shape[:-1], np.float32)
    source = _pointer("uint8_t *", wire, WIRE, "wire")
    lib.ina_codec_decode_exact(_pointer("float *", out, np.float32, "out"), source, out.size, workers, workers if average else 1)
    return out


def error_bound(exponent: int, workers: int, average: bool = False) -> float:
    """Returns the largest distance of a decoded sum (or mean) from the exact one before float32 rounding.

    Half a unit per worker, ``n * 2**(e - shift - 1)``; added to it are one float32 rounding of the sum, or three of the mean (a
    relative error of 2**-24 each). Blocks with a value beyond ``2**126`` have EXP_NONFINITE.
    """
    _check_exponent(exponent)
    if exponent == EXP_NONFINITE:
        return float("nan")
    unit = 2.0 ** (exponent - shift(workers))
    return unit / 2 if average else workers * unit / 2


def _check_workers(workers: int) -> None:
    if not 1 <= workers <= MAX_WORKERS:
        raise ValueError(f"{workers} workers: expected 1..{MAX_WORKERS}")


def _check_exponent(exponent: int) -> None:
    if not EXP_MIN <= exponent <= EXP_NONFINITE:
        raise ValueError(f"exponent {exponent}: expected {EXP_MIN}..{EXP_MAX}, or {EXP_NONFINITE}: non-finite")


def _output(out: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != shape:
        raise ValueError(f"out: shape {out.shape}, expected {shape}")
    if not out.flags.writeable:
        raise ValueError("out: read-only array")
    return out


def _pointer(ctype: str, array: np.ndarray, dtype: np.dtype | type, name: str) -> CData:
    if array.dtype != dtype:
        raise TypeError(f"{name}: dtype {array.dtype}, expected {np.dtype(dtype)}; convert it with .astype() first")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name}: not contiguous; make it so with numpy.ascontiguousarray() first")
    return ffi.cast(ctype, array.ctypes.data)
