"""Arrays as arguments of the compiled part."""

import numpy as np

from ina.base.native import CData, ffi

TYPES = {np.dtype(name): kind + "[]" for name, kind in {
    "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "float16": "uint16_t", "float32": "float", "float64": "double",
    "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t"}.items()}


def pointer(array: np.ndarray) -> CData:
    """Returns a contiguous array's memory, of its dtype (of float16 the bits), which keeps the array."""
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        where = "" if flags.aligned else f" at address {array.ctypes.data:#x}"
        raise ValueError(f"array of {array.dtype} with strides {array.strides}{where}: expected a contiguous and aligned one")
    return ffi.from_buffer(TYPES[array.dtype], array.data)
