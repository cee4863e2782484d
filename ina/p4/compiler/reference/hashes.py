"""v1model's HashAlgorithm members, computed as BMv2 computes them, and the interpreter's random numbers."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from ina.p4.compiler.reference.values import Value, pack
from ina.p4.compiler.types import Type

MASK64 = (1 << 64) - 1


def to_bytes(value: Value, t: Type) -> bytes:
    """Packs the fields of `value` most significant bit first; the last byte is filled with zero bits."""
    width, bits = pack(value, t)
    pad = -width % 8
    return (bits << pad).to_bytes((width + pad) // 8, "big")


def crc16(data: bytes) -> int:
    """Computes CRC-16/ARC: polynomial 0x8005 reflected, initial value and final xor 0."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xA001 if crc & 1 else 0)
    return crc


def csum16(data: bytes) -> int:
    """Computes the Internet checksum (RFC 1071); an odd last byte is the high half of its word."""
    data += bytes(len(data) % 2)
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def xor16(data: bytes) -> int:
    """Computes the exclusive or of the 16-bit words, an odd last byte as the high half."""
    data += bytes(len(data) % 2)
    result = 0
    for i in range(0, len(data), 2):
        result ^= int.from_bytes(data[i : i + 2], "big")
    return result


def identity(data: bytes) -> int:
    """Returns the first eight bytes as a number."""
    return int.from_bytes(data[:8], "big")


# No control plane changes the polynomials of *_custom here: BMv2's initial ones are the plain CRCs.
ALGORITHMS: dict[str, Callable[[bytes], int]] = {
    "crc16": crc16,
    "crc16_custom": crc16,
    "crc32": zlib.crc32,
    "crc32_custom": zlib.crc32,
    "csum16": csum16,
    "xor16": xor16,
    "identity": identity,
}


class SplitMix64:
    """Random numbers, the same as in a compiled program (Steele, Lea, Flood: Fast splittable generators, 2014)."""

    def __init__(self, seed: int) -> None:
        self.state = seed & MASK64

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK64
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
        return z ^ z >> 31

    def between(self, low: int, high: int) -> int:
        """Returns `low` + the high half of next() times the number of values; `low` if there are none (undefined in v1model)."""
        z = self.next()
        return low if low > high else low + (z * (high - low + 1) >> 64)
