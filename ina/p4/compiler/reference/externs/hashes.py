"""Hashes: v1model's `hash`, TNA's Hash."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.arch.tna_machine import MASK32, TnaMachine
from ina.p4.compiler.arch.v1model_machine import V1Machine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.instances import symmetric_places
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.externs.extern import ExternFunction, ExternObject
from ina.p4.compiler.reference.hashes import ALGORITHMS, MASK64, to_bytes
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.values import Aggregate, Record, TupleValue, Value, number, pack, wrap
from ina.p4.compiler.types import fixed_width, underlying

STANDARD_CRCS = {  # width, polynomial, reflected, initial value, final xor
    "CRC8": (8, 0x07, False, 0, 0),
    "CRC16": (16, 0x8005, True, 0, 0),
    "CRC32": (32, 0x04C11DB7, True, MASK32, MASK32),
    "CRC64": (64, 0x42F0E1EBA9EA3693, False, 0, 0),
    "RANDOM": (64, 0xAD93D23594C935A9, True, MASK64, 0),
}


class V1Hash(ExternFunction):
    """Sets base + hash mod max, or base alone if max is 0, cut to the result's width."""

    names = ("hash",)

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        base, limit = args.number(2), args.number(4)
        digest = v1_digest(machine, args.text(1), args, 3)
        args.place(0).set(wrap(digest % max(limit, 1) + base & MASK64, underlying(call.params[0].type)))
        return None


def v1_digest(machine: Machine, algorithm: str, args: Arguments, key: int, payload: bytes = b"") -> int:
    """Returns the digest of an argument, and of the payload behind it, by a member of HashAlgorithm."""
    data = to_bytes(args.value(key), args.type(key)) + payload
    return machine.random.next() if algorithm == "random" else ALGORITHMS[algorithm](data)


class Hash(ExternObject):
    names = ("Hash",)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        data, expression = args.value(0), args.expression(0)
        for i, j in symmetric_places(instance, call.args[0]):
            _exchangeable(data, i, j, expression)
        return wrap(hash_bits(instance, *pack(data, expression.type)), underlying(call.type))


def _exchangeable(data: Value, i: int, j: int, expression: ast.Expr) -> None:
    """Replaces two values of a list by their exclusive or."""
    assert isinstance(expression, ast.ListExpr | ast.StructInit) and isinstance(data, Aggregate)
    mask = (1 << (fixed_width(expression.values[i].type) or 0)) - 1
    parts = data.parts()
    both = (number(parts[i]) ^ number(parts[j])) & mask
    if isinstance(data, Record):
        names = list(data.fields)
        data.set(**{names[i]: both, names[j]: both})
    elif isinstance(data, TupleValue):
        data.items[i] = data.items[j] = both


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
