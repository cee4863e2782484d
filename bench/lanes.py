"""Lanes: bytes of a tensor per second to and from words, against memcpy of the same bytes at the same place (L2 or memory)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.common import Measurement, median_seconds
from ina import codecs
from ina.base.native import ffi, lib
from ina.codecs.lanes import Packing, ScaledLanes, Shorts
from ina.codecs.pointers import pointer

WORKERS = 8
PLACES = {"L2": 256 << 10, "memory": 128 << 20}  # bytes
FLOATS = ("lanes-16", "mx-e2m1", "mx-e2m3", "mx-e4m3", "nvfp4", "fp8-e4m3")


def call(function: Callable[..., object], *arguments: object) -> Callable[[], object]:
    """Returns a call with arrays as pointers, which keeps the arrays."""
    given = [pointer(each) if isinstance(each, np.ndarray) else each for each in arguments]

    def action(keep: object = arguments) -> object:
        return function(*given)

    return action


def floats(name: str, x: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], object]]:
    """The steps of a codec: a block's largest value, its unit, words (with a count of what becomes zero), and back."""
    codec = codecs.named(name)
    assert isinstance(codec, ScaledLanes)
    lanes, element = codec._native(x, WORKERS)
    largest = np.empty(-(-x.size // codec.block), np.int32)
    words = np.empty(lib.ina_lanes_float_words(lanes), np.int32)
    lib.ina_lanes_scales(lanes, pointer(x), pointer(largest))
    units = codec.units(largest, WORKERS)
    up: dict[str, Callable[[], object]] = {
        f"{name}: largest": call(lib.ina_lanes_scales, lanes, x, largest),
        f"{name}: units": partial(codec.units, largest, WORKERS),
        f"{name}: encode": call(lib.ina_lanes_encode, lanes, element, units, x, words),
    }

    def together() -> None:
        for step in up.values():
            step()

    back = call(lib.ina_lanes_decode, lanes, element, units, words, 1, y)
    return {**up, f"{name}: these three": together, f"{name}: decode": back}


def integers(dtype: str, size: int) -> dict[str, Callable[[], object]]:
    """The same for so many bytes of int8, bool or int16, which have words and back only."""
    lowest, highest = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = np.random.default_rng(0).integers(lowest, highest, size // np.dtype(dtype).itemsize, endpoint=True).astype(dtype)
    if dtype == "int16":
        words, sums = Shorts.pack(x), np.empty_like(x)
        return {
            "int16: encode": call(lib.ina_lanes_pack_shorts, x.size, x, words),
            "int16: decode": call(lib.ina_lanes_sum_shorts, x.size, words, sums),
        }
    packing = Packing.of(dtype, WORKERS, wraps=True)
    lanes, words, sums = packing._lanes(x.size), packing.pack(x), np.empty(x.size, np.uint8)
    decode = (lib.ina_lanes_any_bytes, lanes, words, sums) if dtype == "bool" else (
        lib.ina_lanes_wrap_bytes, lanes, words, packing.bias, sums)
    return {
        f"{dtype}: encode": call(lib.ina_lanes_pack_bytes, lanes, x.view(np.uint8), packing.bias, words),
        f"{dtype}: decode": call(*decode),
    }


def measure() -> list[Measurement]:
    result = Measurement(
        "lanes: narrow values to and from words",
        ["operation", "data in", "GB/s", "memcpy GB/s", "ratio"],
        "of memcpy's rate",
        "encode at half of memcpy at least in memory",
        keys=2,
    )
    for place, size in PLACES.items():
        x = np.random.default_rng(0).standard_normal(size // 4).astype(np.float32)
        y = np.empty_like(x)
        copy = median_seconds(call(ffi.memmove, y, x, size))
        actions: dict[str, Callable[[], object]] = {}
        for name in FLOATS:
            actions |= floats(name, x, y)
        for name, action in {**actions, **integers("int8", size), **integers("bool", size), **integers("int16", size)}.items():
            seconds = median_seconds(action)
            result.add(name, place, 1e-9 * size / seconds, 1e-9 * size / copy, copy / seconds)
    return [result]
