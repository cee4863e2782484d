"""Floats of 16 bits: float16, which NumPy has, and bfloat16, which comes as its bits, uint16 (host/codec/halves.h)."""

from __future__ import annotations

import numpy as np

from ina.base.native import lib
from ina.codecs.codec import rounding
from ina.codecs.pointers import pointer

FLOAT16, BFLOAT16 = np.dtype(np.float16), np.dtype(np.uint16)
FLOATS = {np.dtype(np.float32): lib.INA_FLOATS_32, BFLOAT16: lib.INA_FLOATS_BF16, FLOAT16: lib.INA_FLOATS_FP16}
_LARGEST = {FLOAT16: 65504.0, BFLOAT16: float.fromhex("0x1.fep+127")}


def widened(halves: np.ndarray) -> np.ndarray:
    """Returns values of one of the two types as float32, exactly; others as they are."""
    if halves.dtype not in (FLOAT16, BFLOAT16):
        return halves
    values = np.empty(halves.shape, np.float32)
    lib.ina_halves_widen(FLOATS[halves.dtype], halves.size, pointer(np.ascontiguousarray(halves)), pointer(values))
    return values


def narrowed(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Returns contiguous float32 values as one of the two types, rounded to the nearest, ties to even."""
    halves = np.empty(values.shape, dtype)
    lib.ina_halves_narrow(FLOATS[dtype], values.size, pointer(values), pointer(halves))
    return halves


def narrowing(exact: np.ndarray, off: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Returns how far values that are up to ``off`` from the ``exact`` ones move when they are rounded to ``dtype``: infinitely
    where they may become infinite, and not at all if it is none of the two types."""
    if dtype not in (FLOAT16, BFLOAT16):
        return np.zeros_like(off)
    magnitude = np.abs(exact) + off
    last = rounding(magnitude, "float16") if dtype == FLOAT16 else np.maximum(magnitude * 2.0**-8, 2.0**-134)
    return np.where(magnitude > _LARGEST[dtype], np.inf, last)
