"""Hashes of values while they are lowered: algorithms, and the statement that computes one."""

from __future__ import annotations

from ina.p4.compiler import ast, fold, ir, operations
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.value_trees import Header, Varbit
from ina.p4.compiler.operations import Crc

Part = ir.Expr | Header | Varbit
HASHES = {
    "crc32": 32, "crc32_custom": 32, "crc16": 16, "crc16_custom": 16, "csum16": 16, "xor16": 16, "identity": 64, "random": 64,
}  # fmt: skip



def algorithm_of(e: ast.Expr) -> str:
    """Returns the HashAlgorithm that an argument of v1model names."""
    if not isinstance(e.const, str) or e.const not in HASHES:
        raise unsupported(e, f"hash algorithm {e.const if e.const is not None else 'chosen at run time'}")
    return e.const


def hashed(low: Lowering, algorithm: str, data: ast.Expr, payload: bool = False) -> ir.Var:
    """Returns the hash of the data's fields one after the other; invalid headers contribute nothing."""
    return hash_of(low, algorithm, low.values.parts(low.value(data)), payload)


def hash_of(low: Lowering, algorithm: str | Crc, parts: list[Part], payload: bool = False) -> ir.Var:
    result = low.code.temp(HASHES[algorithm] if isinstance(algorithm, str) else algorithm.width, name="hash")
    if algorithm == "random":
        low.context.uses_random = True
        low.emit(operations.Random(targets=[result], args=[fold.const(0, 64), fold.const(0, 64)]))
        return result
    _hash_parts(low, result, algorithm, parts, [], payload)
    return result


def _hash_parts(
    low: Lowering, result: ir.Var, algorithm: str | Crc, parts: list[Part], done: list[ir.Expr | Varbit], payload: bool
) -> None:
    at = next((i for i, part in enumerate(parts) if isinstance(part, Header)), len(parts))
    done = done + [part for part in parts[:at] if not isinstance(part, Header)]
    if at < len(parts):
        header, rest = value_trees.header(parts[at]), parts[at + 1 :]
        fields = [p for member in value_trees.members(header) for p in low.values.parts(member) if not isinstance(p, Header)]
        then = low.code.block(lambda: _hash_parts(low, result, algorithm, rest, done + fields, payload))
        without = low.code.block(lambda: _hash_parts(low, result, algorithm, rest, done, payload))
        low.emit(ir.If(header.valid, then, without))
        return
    args: list[ir.Expr] = []
    for part in done:
        args += [low.values.scalar(part.bits), low.values.scalar(part.size)] if isinstance(part, Varbit) else [part]
    shape = [isinstance(part, Varbit) for part in done]
    if payload:
        args.append(low.context.cursor)
    low.emit(operations.Hash(algorithm, shape, payload, targets=[result], args=args))
