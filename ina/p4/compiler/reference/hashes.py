"""v1model's HashAlgorithm members, computed as BMv2 computes them, and the interpreter's random numbers."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from ina.p4.compiler.reference.values import pack
from ina.p4.compiler.types import Type

MASK64 = (1 << 64) - 1


def to_bytes(value: Any, t: Type) -> bytes:
    """The fields of `value` packed most significant bit first; the last byte is filled with zero bits."""
    width, bits = pack(value, t)
    pad = -width % 8
    return (bits << pad).to_bytes((width + pad) // 8, "big")


def crc16(data: bytes) -> int:
    """CRC-16/ARC: polynomial 0x8005 reflected, initial value and final xor 0."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xA001 if crc & 1 else 0)
    return crc


def csum16(data: bytes) -> int:
    """The Internet checksum (RFC 1071); an odd last byte is the high half of its word."""
    data += bytes(len(data) % 2)
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def xor16(data: bytes) -> int:
    """Exclusive or of the 16-bit words, an odd last byte as the high half."""
    data += bytes(len(data) % 2)
    result = 0
    for i in range(0, len(data), 2):
        result ^= int.from_bytes(data[i : i + 2], "big")
    return result


def identity(data: bytes) -> int:
    """The first eight bytes as a number."""
    return int.from_bytes(data[:8], "big")


# The *_custom ones have no control plane here to change their polynomials: BMv2's initial ones are the plain CRCs.
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
    """Random numbers as a compiled program draws them (Steele, Lea, Flood: Fast splittable generators, 2014)."""

    def __init__(self, seed: int) -> None:
        self.state = seed & MASK64

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK64
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
        return z ^ z >> 31

    def between(self, low: int, high: int) -> int:
        """`low` + the high half of next() times the number of values; `low` when there are none (v1model: open)."""
        z = self.next()
        return low if low > high else low + (z * (high - low + 1) >> 64)
