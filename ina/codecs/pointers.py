"""Arrays as arguments of the compiled part."""

import numpy as np

from ina.base.native import CData, ffi

TYPES = {np.dtype(name): kind + "[]" for name, kind in {
    "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "float16": "uint16_t", "float32": "float", "float64": "double",
    "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t"}.items()}


def pointer(array: np.ndarray) -> CData:
    """Returns a contiguous array's memory, of its dtype (of float16 the bits), which keeps the array."""
    if not array.flags.c_contiguous:
        raise ValueError(f"array with strides {array.strides}: expected a contiguous one")
    return ffi.from_buffer(TYPES[array.dtype], array.data)
