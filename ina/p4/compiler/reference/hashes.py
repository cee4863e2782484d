"""The interpreter's hashes, computed from their definitions, and its random numbers: v1model's HashAlgorithm members as BMv2
computes them, TNA's with a CRC bit by bit."""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable
from functools import reduce

from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.values import Value, pack
from ina.p4.compiler.types import Type, fixed_width

MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1
STANDARD_CRCS = {  # width, polynomial, reflected, initial value, final xor
    "CRC8": (8, 0x07, False, 0, 0),
    "CRC16": (16, 0x8005, True, 0, 0),
    "CRC32": (32, 0x04C11DB7, True, MASK32, MASK32),
    "CRC64": (64, 0x42F0E1EBA9EA3693, False, 0, 0),
    "RANDOM": (64, 0xAD93D23594C935A9, True, MASK64, 0),
}


def to_bytes(value: Value, t: Type) -> bytes:
    """Packs the fields of `value` most significant bit first; the last byte is filled with zero bits."""
    width, bits = pack(value, t)
    pad = -width % 8
    return (bits << pad).to_bytes((width + pad) // 8, "big")


def crc16(data: bytes) -> int:
    """Computes CRC-16/ARC: polynomial 0x8005 reflected, initial value and final xor 0."""
    return crc(16, 0x8005, True, 0, 0, data)


def folded(total: int) -> int:
    """Returns a sum of 16-bit words in one's complement."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def words(data: bytes) -> list[int]:
    """Returns the 16-bit words; an odd last byte is the high half of its word."""
    data += bytes(len(data) % 2)
    return [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]


def sum_of_words(data: bytes) -> int:
    """Returns the sum of the 16-bit words, without a carry."""
    return sum(words(data))


def csum16(data: bytes) -> int:
    """Computes the Internet checksum (RFC 1071)."""
    return ~folded(sum_of_words(data)) & 0xFFFF


def xor16(data: bytes) -> int:
    """Computes the exclusive or of the 16-bit words."""
    return reduce(operator.xor, words(data), 0)


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


def hash_bits(instance: Instance, width: int, bits: int) -> int:
    """Returns the hash of a number of `width` bits (Tofino Native Architecture, section 7.8)."""
    algorithm, result_width = instance.args["algo"], fixed_width(instance.type.args[0]) or 0
    if algorithm == "IDENTITY":
        return int(bits & (1 << result_width) - 1)
    if algorithm.startswith("XOR"):
        size = int(algorithm[3:])
        bits <<= -width % size
        result = 0
        while bits:
            result, bits = result ^ bits & (1 << size) - 1, bits >> size
        return result & (1 << result_width) - 1
    extended, msb = True, False
    if algorithm == "CUSTOM":
        polynomial = instance.args["poly"].args
        size = fixed_width(instance.args["poly"].type.args[0]) or 0
        size -= size % 8 == 1
        full = (1 << size) - 1
        parameters = (
            size, polynomial["coeff"] & full, polynomial["reversed"], polynomial["init"] & full, polynomial["xor"] & full
        )
        extended, msb = polynomial["extended"], polynomial["msb"]
    else:
        parameters = STANDARD_CRCS[algorithm]
    result, size = crc(*parameters, bits.to_bytes((width + 7) // 8, "big")), parameters[0]
    if msb and result_width < size:
        result >>= size - result_width
    elif extended:
        result = sum(result << at for at in range(0, result_width, size))
    return result & (1 << result_width) - 1


def mirrored(poly: int, width: int) -> int:
    """Returns a polynomial with its bits in the other order."""
    return int(f"{poly:0{width}b}"[::-1], 2)


def crc(width: int, poly: int, reflected: bool, init: int, xor: int, text: bytes) -> int:
    """Computes a CRC bit by bit; `init` is the register's initial value."""
    register, mask = init, (1 << width) - 1
    low_first = mirrored(poly, width)
    for byte in text:
        for bit in range(8):
            if reflected:
                feedback = (register ^ byte >> bit) & 1
                register = register >> 1 ^ (low_first if feedback else 0)
            else:
                feedback = (register >> (width - 1) ^ byte >> (7 - bit)) & 1
                register = (register << 1 ^ (poly if feedback else 0)) & mask
    return register ^ xor


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
