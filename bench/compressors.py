"""Compressors' parts: bytes of float32 per second, beside what NumPy and torch do for the same, and memcpy of the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.common import Measurement, median_seconds
from ina.base.native import ffi, lib
from ina.codecs.pointers import pointer

PLACES = {"L2": 1 << 16, "memory": 1 << 23}  # values
BLOCK, MOST, OCTAVES, RANK = 512, 7, 11, 4


def numpy_levels(x: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """Stochastic rounding as QSGD's formula has it, with NumPy's random numbers."""
    scaled = x.reshape(-1, BLOCK)
    scaled = scaled * (MOST / np.abs(scaled).max(axis=1, keepdims=True))
    low = np.floor(scaled)
    return (low + (scaled - low > chance.random(scaled.shape, np.float32)) + MOST).astype(np.uint8)


def numpy_largest(x: np.ndarray, count: int) -> np.ndarray:
    return np.argpartition(-np.abs(x), count)


def torch_actions(x: np.ndarray, count: int) -> dict[str, Callable[[], object]]:
    import torch

    values = torch.from_numpy(x)
    matrix = values.view(1 << (x.size.bit_length() // 2), -1)
    right = torch.ones(matrix.shape[1], RANK)

    def levels() -> torch.Tensor:
        blocks = values.view(-1, BLOCK)
        scaled = blocks * (MOST / blocks.abs().amax(dim=1, keepdim=True))
        return (torch.floor(scaled + torch.rand_like(scaled)) + MOST).to(torch.uint8)

    return {
        "torch's levels": levels,
        "torch's top 1 %": lambda: torch.topk(values.abs(), count),
        "torch's P = M Q": lambda: matrix @ right,
    }


def measure() -> list[Measurement]:
    result = Measurement(
        "compressors: rounding by chance, signs, the largest, low rank",
        ["operation", "data in", "GB/s", "memcpy GB/s", "ratio"],
        "of memcpy's rate",
        "each above NumPy's and torch's of the same; signs and products near memcpy",
        keys=2,
    )
    for place, size in PLACES.items():
        x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
        count = size // 100
        y, levels, wide, places = x.copy(), np.zeros(size, np.uint8), np.zeros(size, np.uint16), np.zeros(count, np.uint32)
        scales, means = np.zeros(size // BLOCK, np.int32), np.zeros(size // BLOCK, np.int32)
        px, py, ps, pm = pointer(x), pointer(y), pointer(scales), pointer(means)
        native = ffi.new("struct ina_levels *", {"count": size, "block": BLOCK, "most": MOST, "octaves": OCTAVES})
        blocks = ffi.new("struct ina_lanes *", {"count": size, "block": BLOCK})
        signs = ffi.new("struct ina_signs *", {"count": size, "block": BLOCK, "workers": 2})
        lib.ina_lanes_scales(blocks, px, ps)
        lib.ina_signs_means(signs, px, pm)
        rows = 1 << (size.bit_length() // 2)
        left, right = np.ones((RANK, rows), np.float32), np.ones((RANK, size // rows), np.float32)
        copy = median_seconds(partial(ffi.memmove, py, px, 4 * size))
        actions: dict[str, Callable[[], object]] = {
            "scales": partial(lib.ina_lanes_scales, blocks, px, ps),
            "levels": partial(lib.ina_levels_uniform, native, px, ps, 1, pointer(levels)),
            "NumPy's levels": partial(numpy_levels, x, np.random.default_rng(1)),
            "powers of two": partial(lib.ina_levels_powers, native, px, ps, 1, pointer(wide)),
            "means of signs": partial(lib.ina_signs_means, signs, px, pm),
            "what signs miss": partial(lib.ina_signs_missed, signs, pm, px, py),
            "top 1 %": partial(lib.ina_topk, size, px, count, pointer(places)),
            "NumPy's top 1 %": partial(numpy_largest, x, count),
            "P Q'": partial(lib.ina_outer, size, rows, size // rows, RANK, pointer(left), pointer(right), 1.0, py),
            "NumPy's P Q'": partial(np.matmul, left.T, right),
            **torch_actions(x, count),
        }
        for name, action in actions.items():
            seconds = median_seconds(action)
            result.add(name, place, 1e-9 * 4 * size / seconds, 1e-9 * 4 * size / copy, copy / seconds)
    return [result]
