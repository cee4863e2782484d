"""THC's parts: bytes of float32 per second, beside the Hadamard transform in NumPy and torch, and memcpy of the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.common import Measurement, median_seconds
from ina.base.native import ffi, lib
from ina.codecs import Thc
from ina.codecs.pointers import pointer

PLACES = {"L2": 1 << 16, "memory": 1 << 23}  # values


def numpy_hadamard(x: np.ndarray) -> np.ndarray:
    far = 1
    while far < x.size:
        pairs = x.reshape(-1, 2, far)
        x = np.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), axis=1).reshape(-1)
        far *= 2
    return x


def torch_hadamard(x: np.ndarray) -> Callable[[], object]:
    import torch

    def transform() -> torch.Tensor:
        y, far = torch.from_numpy(x), 1
        while far < x.size:
            pairs = y.view(-1, 2, far)
            y = torch.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), dim=1).view(-1)
            far *= 2
        return y

    return transform


def measure() -> list[Measurement]:
    result = Measurement(
        "thc: rotation and quantisation",
        ["operation", "data in", "GB/s", "memcpy GB/s", "ratio"],
        "of memcpy's rate",
        "rotate above NumPy's and torch's, whose log2 n passes go through memory; quantise near rotate",
        keys=2,
    )
    table = Thc().native
    for place, count in PLACES.items():
        x = np.random.default_rng(0).standard_normal(count).astype(np.float32)
        z, levels = x.copy(), np.zeros(count, np.uint8)
        px, pz, pl = pointer(x), pointer(z), pointer(levels)
        copy = median_seconds(partial(ffi.memmove, pz, px, 4 * count))
        actions: dict[str, Callable[[], object]] = {
            "norm": partial(lib.ina_thc_squares, count, px),
            "rotate": partial(lib.ina_thc_rotate, count, count, px, 1.0, 1, pz),
            "quantise": partial(lib.ina_thc_quantise, table, count, pz, 1.0, 1, pl),
            "NumPy's rotation": partial(numpy_hadamard, x),
            "torch's rotation": torch_hadamard(x),
        }
        for name, action in actions.items():
            seconds = median_seconds(action)
            result.add(name, place, 1e-9 * 4 * count / seconds, 1e-9 * 4 * count / copy, copy / seconds)
    return [result]
