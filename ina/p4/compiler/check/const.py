"""Arithmetic on compile-time values (P4_16 v1.2.5 §8)."""

from __future__ import annotations

from typing import Any

from ina.p4.compiler.types import BitType, BoolType, InfIntType, Type, underlying

MAX_BITS = 1 << 16
"""Larger shifts and products of arbitrary-precision integers are errors, since they could exhaust the machine."""


def wrap(value: int, t: Type) -> int:
    """Returns `value` cut to the width of `t` (a BitType, possibly wrapped; unchanged for others)."""
    t = underlying(t)
    if not isinstance(t, BitType):
        return value
    value &= (1 << t.width) - 1
    if t.signed and t.width and value >> (t.width - 1):
        value -= 1 << t.width
    return value


def fits(value: int, t: BitType) -> bool:
    return wrap(value, t) == value


def bounds(t: BitType) -> tuple[int, int]:
    """Returns the least and greatest value of `t`."""
    if t.signed:
        return -(1 << (t.width - 1)) if t.width else 0, (1 << (t.width - 1)) - 1 if t.width else 0
    return 0, (1 << t.width) - 1


def fold_binary(op: str, left: Any, right: Any, t: Type) -> Any:
    """Returns the value of `left op right`, both of type `t` (shifts: `t` is the left one's type).

    Raises ValueError with the reason (division by zero, negative operands of a division, absurd shifts).
    """
    match op:
        case "==" | "!=":
            return (left == right) == (op == "==")
        case "&&":
            return left and right
        case "||":
            return left or right
        case "<" | "<=" | ">" | ">=":
            return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op]
        case "<<" | ">>":
            return _shift(op, left, right, t)
        case "/" | "%":
            if right == 0:
                raise ValueError("division by zero")
            if left < 0 or right < 0:
                raise ValueError(f"'{op}' is not defined for negative numbers")
            return left // right if op == "/" else left % right
        case "|+|" | "|-|":
            value = left + right if op == "|+|" else left - right
            width_type = underlying(t)
            if not isinstance(width_type, BitType):
                raise ValueError("saturating arithmetic needs operands with a width")
            low, high = bounds(width_type)
            return max(low, min(high, value))
        case "*" if left.bit_length() + right.bit_length() > 2 * MAX_BITS:
            raise ValueError(f"a product of more than {2 * MAX_BITS} bits")
    value = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "&": lambda: left & right,
        "|": lambda: left | right,
        "^": lambda: left ^ right,
    }[op]()
    return wrap(value, t)


def _shift(op: str, left: int, right: int, t: Type) -> int:
    if right < 0:
        raise ValueError("shift by a negative amount")
    if op == ">>":
        return left >> min(right, left.bit_length() + 1)
    width_type = underlying(t)
    if isinstance(width_type, BitType):
        return wrap(left << right, t) if right < width_type.width else 0
    if right > MAX_BITS:
        amount = right if right.bit_length() <= 64 else "a number of more than 64 bits"
        raise ValueError(f"shift by {amount}: more than {MAX_BITS} bits")
    return left << right


def fold_unary(op: str, value: Any, t: Type) -> Any:
    if op == "!":
        return not value
    return wrap({"-": -value, "+": value, "~": ~value}[op], t)


def fold_concat(left: int, left_width: int, right: int, right_width: int, t: BitType) -> int:
    mask = (1 << right_width) - 1
    return wrap(((left & ((1 << left_width) - 1)) << right_width) | (right & mask), t)


def fold_slice(value: int, hi: int, lo: int) -> int:
    return (value >> lo) & ((1 << (hi - lo + 1)) - 1)


def fold_cast(value: Any, target: Type) -> Any:
    """Returns `value` converted to `target`; both must be compatible."""
    t = underlying(target)
    if isinstance(t, BoolType):
        return bool(value)
    if isinstance(t, (BitType, InfIntType)):
        return wrap(int(value), t)
    return value
