"""Codec: bytes of float32 per second, against memcpy of the same bytes at the same place (L2 or memory)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.common import Measurement, median_seconds
from ina.aggregation.lane import INT32
from ina.base.native import ffi, lib

SHIFT = INT32.shift(4)
PLACES = {"L2": 256 << 10, "memory": 256 << 20}


def measure() -> list[Measurement]:
    result = Measurement(
        "codec: float32 to and from the wire",
        ["operation", "data in", "GB/s", "memcpy GB/s", "ratio"],
        "of memcpy's rate",
        "encode and decode near memcpy, as they read and write every byte once; exponent above it",
        keys=2,
    )
    for place, size in PLACES.items():
        count = size // 4
        x = np.random.default_rng(0).standard_normal(count).astype(np.float32)
        wire = np.zeros(size, np.uint8)
        px, pw = ffi.cast("float *", x.ctypes.data), ffi.cast("uint8_t *", wire.ctypes.data)
        copy = median_seconds(partial(ffi.memmove, pw, px, size))
        actions: dict[str, Callable[[], object]] = {
            "exponent": partial(lib.ina_codec_exponent, px, count),
            "encode": partial(lib.ina_codec_encode, INT32.number, pw, px, count, 3, SHIFT),
            "decode": partial(lib.ina_codec_decode, INT32.number, px, pw, count, 3, SHIFT, 1),
        }
        for name, action in actions.items():
            seconds = median_seconds(action)
            result.add(name, place, 1e-9 * size / seconds, 1e-9 * size / copy, copy / seconds)
    return [result]
