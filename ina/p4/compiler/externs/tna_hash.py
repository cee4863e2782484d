"""TNA's Hash, and its Random: a hash's function, the bits that it hashes, and how the control plane may change it.

The fields are one number, the first in its most significant bits; a CRC runs over its bytes from the top, zeros filling the
first one. A result of more bits than a CRC has repeats them, as in p4c's back end for Tofino (mau/hash_function.cpp), of a CUSTOM
one only if its polynomial sets `extended`; other results are zero-extended. One of fewer bits takes the low ones, or the high
ones with `msb` (Tofino Native Architecture, section 7.8).
"""

from __future__ import annotations

from typing import Any

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.arch import tna_operations
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.check.const import wrap
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.externs.extern import ExternObject, Objects
from ina.p4.compiler.externs.hashes import Part, hash_of
from ina.p4.compiler.instances import symmetric_places
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import hint, unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.value_trees import Value
from ina.p4.compiler.operations import Crc
from ina.p4.compiler.reference.hashes import hash_bits
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.places import Arguments
from ina.p4.compiler.reference.values import Aggregate, Record, TupleValue, number, pack

STANDARD = {
    "CRC8": Crc(8, 0x07, False, 0, 0),
    "CRC16": Crc(16, 0x8005, True, 0, 0),
    "CRC32": Crc(32, 0x04C11DB7, True, 0xFFFFFFFF, 0xFFFFFFFF),
    "CRC64": Crc(64, 0x42F0E1EBA9EA3693, False, 0, 0),
    # Any fixed function; the compiler may choose it.
    "RANDOM": Crc(64, 0xAD93D23594C935A9, True, 0xFFFFFFFFFFFFFFFF, 0),
}
HEAD = 8  # words of a changed hash before those of its bits
XOR = {"XOR8": 8, "XOR16": 16, "XOR32": 32}


class Hash(ExternObject):
    names = ("Hash",)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        return self._dynamic(low, instance, call, tna_hash(low, instance, self._symmetric(low, instance, call.given(0)), call))

    def _dynamic(self, low: Lowering, instance: Instance, call: ast.Call, static: ir.Expr) -> ir.Expr:
        """Returns the hash as the control plane may have changed it, if it has one call with a list of fields; otherwise
        `static`."""
        hashes = low.state(Objects).hashes
        dynamic = hashes.get(instance)
        if dynamic is not None and dynamic.call is not call:
            dynamic.call = None  # several calls: it has no tables
            return static
        data = call.args[0]
        values = data.values if isinstance(data, ast.ListExpr) else ()
        whole = [low.value(v) for v in values]
        parts = [part for part in whole if isinstance(part, ir.Expr)]
        if not parts or static.width > 64 or len(parts) < len(whole):
            return static
        if dynamic is None:
            fields, constants = [], 0
            for value, part in zip(values, parts, strict=True):
                name, constant = ast.source_text(value), value.const is not None
                if constant:
                    name, constants = f"constant{constants}_{part.width}_{value.const}", constants + 1
                fields.append((name, part.width, constant))
            cells = ir.Register(f"{instance.name}.$configure", 64, HEAD + sum(width for _, width, _ in fields))
            pairs = [list(pair) for pair in symmetric_places(instance, data)]
            initial = _initial_hash(instance, call) | {"symmetric": pairs}
            used = min(static.width, low.context.sliced.get(call, static.width))
            dynamic = hashes[instance] = ir.DynamicHash(instance.name, static.width, used, fields, cells, initial, call)
        result = low.code.temp(static.width, name="hash")
        low.emit(tna_operations.ChangeableHash(dynamic, targets=[result], args=[static, *parts]))
        return result

    def _symmetric(self, low: Lowering, instance: Instance, data: ast.Expr) -> list[Value]:
        """Returns the values to hash. Two symmetric fields enter at the place of the later one, as their exclusive or; at the
        earlier one's place zeros enter (p4c's back end for Tofino, mau/asm_hash_output.cpp)."""
        pairs = symmetric_places(instance, data)
        value = low.value(data)
        if not pairs:
            return [value]
        values = value_trees.members(value)
        for i, j in pairs:
            a, b = low.values.read(values[i]), low.values.read(values[j])
            if not isinstance(a, ir.Expr) or not isinstance(b, ir.Expr) or a.width != b.width:
                raise unsupported(data, "symmetric fields of different widths")
            values[i], values[j] = fold.const(0, a.width), ir.Op("xor", (fold.cast(a, a.width), fold.cast(b, b.width)), a.width)
        return values

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> int:
        data, expression = args.value(0), args.expression(0)
        for i, j in symmetric_places(instance, call.args[0]):
            _join(data, i, j, expression)
        return wrap(hash_bits(instance, *pack(data, expression.type)), types.underlying(call.type))


def _initial_hash(instance: Instance, node: ast.Node) -> dict[str, Any]:
    """Returns the hash that the program specifies: "crc" with the polynomial's parameters, "identity" or "xor"."""
    algorithm = instance.args["algo"]
    if algorithm == "IDENTITY" or algorithm in XOR:
        return {"kind": "identity"} if algorithm == "IDENTITY" else {"kind": "xor", "width": XOR[algorithm]}
    crc, extended, msb = _crc(instance, node)
    numbers = {"poly": str(crc.poly), "init": str(crc.init), "xor": str(crc.xor)}
    return {"kind": "crc", "width": crc.width, "reversed": crc.reversed, "extend": extended, "msb": msb} | numbers


def tna_hash(low: Lowering, instance: Instance, data: list[Value], node: ast.Node) -> ir.Expr:
    """Returns the result of the Hash `instance` for the values `data`."""
    shape = value_trees.scalar_shape(instance.type.args[0])
    if shape is None:
        raise unsupported(node, f"a hash of type {instance.type.args[0]}")
    width = shape[0]
    algorithm = instance.args["algo"]
    parts = [part for value in data for part in low.values.parts(low.values.read(value))]
    if algorithm == "IDENTITY":
        return _low_bits(_flat(parts), width)
    if algorithm in XOR:
        return _folded(_flat(parts), XOR[algorithm], width)
    crc, extended, msb = _crc(instance, node)
    hashed: ir.Expr = hash_of(low, crc, _padded(parts))
    if width > crc.width and extended:
        hashed = fold.concat([hashed] * -(-width // crc.width))
    if width < crc.width and msb:
        return fold.slice_bits(hashed, crc.width - 1, crc.width - width)
    return fold.cast(hashed, width)


def _crc(instance: Instance, node: ast.Node) -> tuple[Crc, bool, bool]:
    """Returns a Hash's CRC, and what of its polynomial sets `extended` and `msb`."""
    if instance.args["algo"] != "CUSTOM":
        return STANDARD[instance.args["algo"]], True, False
    polynomial = instance.args.get("poly")
    if not isinstance(polynomial, Instance):
        raise unsupported(node, "HashAlgorithm_t.CUSTOM without a CRCPolynomial")
    args = polynomial.args
    shape = value_trees.scalar_shape(polynomial.type.args[0])
    if shape is None:
        raise unsupported(node, f"a polynomial of type {polynomial.type.args[0]}")
    width = shape[0] - 1 if shape[0] % 8 == 1 else shape[0]  # bit<33> has room for the top bit of a CRC of 32
    if width > 64 or width < 8:
        raise unsupported(node, f"a CRC of {width} bits")
    mask = (1 << width) - 1
    crc = Crc(width, args["coeff"] & mask, args["reversed"], args["init"] & mask, args["xor"] & mask)
    return crc, args["extended"], args["msb"]


def _flat(parts: list[Part]) -> list[ir.Expr]:
    return [value_trees.expression(leaf) for part in parts for leaf in value_trees.scalars(part)]


def _padded(parts: list[Part]) -> list[Part]:
    leaves = (leaf for part in parts for leaf in value_trees.scalars(part))
    bits = sum(leaf.width for leaf in leaves if isinstance(leaf, ir.Expr))  # without the padding of @flexible fields
    return [fold.const(0, -bits % 8), *parts] if bits % 8 else parts


def _low_bits(parts: list[ir.Expr], width: int) -> ir.Expr:
    slices: list[ir.Expr] = []
    remaining = width
    for part in reversed(parts):
        if remaining <= 0:
            break
        slices.insert(0, fold.slice_bits(part, min(remaining, part.width) - 1, 0))
        remaining -= part.width
    return fold.cast(fold.concat(slices), width) if slices else fold.const(0, width)


def _folded(parts: list[ir.Expr], size: int, width: int) -> ir.Expr:
    """Returns the XOR of all words of `size` bits, counted from the top; zeros fill the last one."""
    words: dict[int, list[ir.Expr]] = {}
    at = -sum(part.width for part in parts) % size
    for part in reversed(parts):
        low = 0
        while low < part.width:
            room = size - (at + low) % size
            high = min(part.width, low + room)
            piece = fold.cast(fold.slice_bits(part, high - 1, low), size)
            shift = (at + low) % size
            if shift:
                piece = ir.Op("shl", (piece, fold.const(shift, 32)), size)
            words.setdefault((at + low) // size, []).append(piece)
            low = high
        at += part.width
    result: ir.Expr = fold.const(0, size)
    for piece in (p for pieces in words.values() for p in pieces):
        result = ir.Op("xor", (result, piece), size)
    return fold.cast(result, width)


def selector_hash(low: Lowering, hash_: Instance, keys: list[ir.Expr]) -> ir.Var:
    """Returns the hash of an action selector's keys."""
    symmetric_places(hash_, None)
    hashed = fold.cast(tna_hash(low, hash_, list(keys), hash_.origin), 64)
    result = low.code.temp(hashed.width, hashed.signed, hint(hashed))
    low.emit(ir.Assign(result, hashed))
    return result


def _join(data: object, i: int, j: int, expression: ast.Expr) -> None:
    """Replaces value `j` of a list by its exclusive or with value `i`, and that by zero."""
    assert isinstance(expression, ast.ListExpr | ast.StructInit) and isinstance(data, Aggregate)
    mask = (1 << (types.fixed_width(expression.values[i].type) or 0)) - 1
    parts = data.parts()
    both = (number(parts[i]) ^ number(parts[j])) & mask
    if isinstance(data, Record):
        names = list(data.fields)
        data.set(**{names[i]: 0, names[j]: both})
    elif isinstance(data, TupleValue):
        data.items[i], data.items[j] = 0, both
