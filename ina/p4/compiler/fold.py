"""Constructors of IR expressions that fold constants and drop operations without effect."""

from __future__ import annotations

from ina.p4.compiler.ir import Const, Expr, Op

TRUE, FALSE = Const(1, 1), Const(0, 1)


def const(value: int, width: int, signed: bool = False) -> Const:
    return Const(value & ((1 << width) - 1), width, signed)


def number(c: Const) -> int:
    """Returns the value of a constant with its sign."""
    return c.value - (1 << c.width) if c.signed and c.value >> (c.width - 1) else c.value


def cast(e: Expr, width: int, signed: bool = False) -> Expr:
    if isinstance(e, Const):
        return const(number(e), width, signed)
    if e.width == width and e.signed == signed:
        return e
    return Op("cast", (e,), width, signed)


def lnot(e: Expr) -> Expr:
    if isinstance(e, Const):
        return FALSE if e.value else TRUE
    return Op("lnot", (e,), 1)


def land(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const):
        return b if a.value else FALSE
    if isinstance(b, Const) and b.value:
        return a
    return Op("land", (a, b), 1)


def lor(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const):
        return TRUE if a.value else b
    if isinstance(b, Const) and not b.value:
        return a
    return Op("lor", (a, b), 1)


def eq(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return TRUE if a.value == b.value else FALSE
    return Op("eq", (a, b), 1)


def cond(c: Expr, a: Expr, b: Expr) -> Expr:
    if isinstance(c, Const):
        return a if c.value else b
    return Op("cond", (c, a, b), a.width, a.signed)


def bit_and(a: Expr, b: Expr) -> Expr:
    if isinstance(b, Const) and b.value == (1 << b.width) - 1:
        return a
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(a.value & b.value, a.width, a.signed)
    return Op("and", (a, b), a.width, a.signed)


def add(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return const(a.value + b.value, a.width, a.signed)
    if isinstance(b, Const) and not b.value:
        return a
    return Op("add", (a, b), a.width, a.signed)


def slice_bits(e: Expr, hi: int, lo: int) -> Expr:
    """Returns e[hi:lo], unsigned."""
    width = hi - lo + 1
    if isinstance(e, Const):
        return const(e.value >> lo, width)
    unsigned = cast(e, e.width)
    if lo:
        unsigned = Op("shr", (unsigned, Const(lo, 32)), e.width)
    return cast(unsigned, width)


def concat(parts: list[Expr]) -> Expr:
    """Concatenates parts, the first in the most significant bits; unsigned."""
    result = parts[0]
    for part in parts[1:]:
        result = Op("concat", (result, part), result.width + part.width)
    return result
