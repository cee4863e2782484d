"""TNA's hashes, computed from their definitions: a CRC bit by bit."""

from __future__ import annotations

from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.hashes import MASK64
from ina.p4.compiler.types import fixed_width

MASK32 = (1 << 32) - 1
STANDARD_CRCS = {  # width, polynomial, reflected, initial value, final xor
    "CRC8": (8, 0x07, False, 0, 0),
    "CRC16": (16, 0x8005, True, 0, 0),
    "CRC32": (32, 0x04C11DB7, True, MASK32, MASK32),
    "CRC64": (64, 0x42F0E1EBA9EA3693, False, 0, 0),
    "RANDOM": (64, 0xAD93D23594C935A9, True, MASK64, 0),
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
    extended = msb = False
    if algorithm == "CUSTOM":
        polynomial = instance.args["poly"].args
        size = fixed_width(instance.args["poly"].type.args[0]) or 0
        size -= size % 8 == 1
        full = (1 << size) - 1
        parameters = (
            size, polynomial["coeff"] & full, polynomial["reversed"], polynomial["init"] & full, polynomial["xor"] & full
        )  # fmt: skip
        extended, msb = polynomial["extended"], polynomial["msb"]
    else:
        parameters = STANDARD_CRCS[algorithm]
    result, size = crc(*parameters, bits.to_bytes((width + 7) // 8, "big")), parameters[0]
    if extended:
        result = sum(result << at for at in range(0, result_width, size))
    elif msb and result_width < size:
        result >>= size - result_width
    return result & (1 << result_width) - 1


def crc(width: int, poly: int, reflected: bool, init: int, xor: int, text: bytes) -> int:
    """Computes a CRC bit by bit; `init` is the register's initial value."""
    register, mask = init, (1 << width) - 1
    mirrored = int(f"{poly:0{width}b}"[::-1], 2)
    for byte in text:
        for bit in range(8):
            if reflected:
                feedback = (register ^ byte >> bit) & 1
                register = register >> 1 ^ (mirrored if feedback else 0)
            else:
                feedback = (register >> (width - 1) ^ byte >> (7 - bit)) & 1
                register = (register << 1 ^ (poly if feedback else 0)) & mask
    return register ^ xor
