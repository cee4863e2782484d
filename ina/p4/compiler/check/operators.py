"""Operators: their operands, result types and constants (P4_16 v1.2.5 §8.5 to §8.7)."""

from __future__ import annotations

from typing import NoReturn

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.const import fold_binary, fold_concat, fold_unary
from ina.p4.compiler.check.context import Context
from ina.p4.compiler.check.conversions import coerce, converts
from ina.p4.compiler.check.values import condition_of, value_of
from ina.p4.compiler.errors import fail
from ina.p4.compiler.types import BitType, Type

_ARITHMETIC = frozenset(["+", "-", "*", "&", "|", "^", "|+|", "|-|"])
_INTEGERS = (BitType, types.InfIntType, types.SerEnumType)
_COMPARISONS = frozenset(["<", ">", "<=", ">="])


def check_unary(ctx: Context, e: ast.Unary) -> ast.Expr:
    e.operand = value_of(ctx, e.operand)
    e.type = e.operand.type
    t = types.underlying(e.type)
    if isinstance(e.type, types.SerEnumType):
        e.operand = coerce(ctx, e.operand, t)
        e.type = t
    if e.op == "!":
        if not isinstance(t, types.BoolType):
            fail(
                e.span,
                f"'!' needs a bool, not {e.operand.type}",
                ["'~' inverts bits"] if isinstance(t, BitType) else (),
            )
    elif not isinstance(t, (BitType, types.InfIntType)) or (e.op == "~" and isinstance(t, types.InfIntType)):
        hint = ["give the literal a width, as in ~8w1"] if isinstance(t, types.InfIntType) else []
        fail(e.span, f"'{e.op}' is not defined for {e.operand.type}", hint)
    if e.operand.const is not None:
        e.const = fold_unary(e.op, e.operand.const, t)
    return e


def check_binary(ctx: Context, e: ast.Binary) -> ast.Expr:
    e.left, e.right = value_of(ctx, e.left), value_of(ctx, e.right)
    op = e.op
    if op in _ARITHMETIC:
        _balance_integers(ctx, e)
        e.type = e.left.type
        if op in ("|+|", "|-|") and isinstance(e.type, types.InfIntType):
            _operands(e, "need operands with a width")
    elif op in ("==", "!="):
        _balance_equality(ctx, e)
        e.type = types.BOOL
    elif op in _COMPARISONS:
        _balance_integers(ctx, e)
        e.type = types.BOOL
    elif op in ("&&", "||"):
        for side in (e.left, e.right):
            if not isinstance(types.strip_new(side.type), types.BoolType):
                hint = [f"'{op[0]}' works on bits"] if isinstance(types.underlying(side.type), BitType) else []
                fail(side.span, f"'{op}' needs bools, not {side.type}", hint)
        e.type = types.BOOL
    elif op in ("<<", ">>"):
        _check_shift(ctx, e)
    elif op in ("/", "%"):
        for side in (e.left, e.right):
            if isinstance(side.type, types.InfIntType) and side.const is not None and side.const < 0:
                fail(side.span, f"'{op}' is not defined for negative numbers")
        _balance_integers(ctx, e)
        e.type = e.left.type
        if isinstance(e.type, BitType) and e.type.signed:
            _operands(e, "are not defined for signed operands")
        divisor = e.right.const
        if isinstance(e.type, BitType) and e.left.const is None and (divisor is None or divisor & (divisor - 1)):
            ctx.warn(e.span, f"'{op}' by anything but a constant power of two does not compile for BMv2")
    else:
        return _concat(ctx, e)
    left, right = e.left.const, e.right.const
    if op in ("&&", "||") and isinstance(left, bool) and left == (op == "||"):
        e.const = left  # the right side is not evaluated (§8.5.1)
    elif left is not None and right is not None:
        try:
            e.const = fold_binary(op, left, right, e.left.type)
        except ValueError as error:
            fail(e.span, str(error))
    elif op in ("/", "%") and right == 0:
        fail(e.right.span, "division by zero")
    return e


def _operands(e: ast.Binary, why: str) -> NoReturn:
    fail(e.span, f"operands of '{e.op}' {why}: {e.left.type} and {e.right.type}")


def _balance_integers(ctx: Context, e: ast.Binary) -> None:
    """Converts both operands to one integer type: untyped integers take the width of the other side (§8.9)."""
    left, right = e.left.type, e.right.type
    if isinstance(left, types.SerEnumType):
        e.left, left = coerce(ctx, e.left, left.underlying), left.underlying
    if isinstance(right, types.SerEnumType):
        e.right, right = coerce(ctx, e.right, right.underlying), right.underlying
    if isinstance(left, types.InfIntType) and isinstance(right, BitType):
        e.left = coerce(ctx, e.left, right)
    elif isinstance(right, types.InfIntType) and isinstance(left, BitType):
        e.right = coerce(ctx, e.right, left)
    elif left != right or not isinstance(left, (BitType, types.InfIntType)):
        notes = []
        if isinstance(left, BitType) and isinstance(right, BitType):
            notes = [f"cast one side, as in ({left}){_paren(e.right)}"]
        elif isinstance(left, types.NewType) or isinstance(right, types.NewType):
            notes = ["types declared with 'type' only compare for equality: cast to the type they are made of"]
        problem = (
            "need integers of one type" if not (isinstance(left, BitType) and isinstance(right, BitType)) else "differ in type"
        )
        fail(e.span, f"operands of '{e.op}' {problem}: {left} and {right}", notes)


def _balance_equality(ctx: Context, e: ast.Binary) -> None:
    left, right = e.left.type, e.right.type
    for side, other in ((e.left, right), (e.right, left)):
        if isinstance(side, ast.InvalidHeader) and not isinstance(types.strip_new(other), (types.HeaderType, types.UnionType)):
            fail(e.span, f"an invalid header cannot be compared with {other}")
    if left == right and not _is_anonymous(left):
        if isinstance(left, (types.CallableType, types.ApplyResultType, types.TypeVar)):
            _operands(e, "cannot be compared")
        return
    if converts(e.right, left):
        e.right = coerce(ctx, e.right, left)
    elif converts(e.left, right):
        e.left = coerce(ctx, e.left, right)
    elif any(isinstance(t, types.SerEnumType) for t in (left, right)) and all(isinstance(t, _INTEGERS) for t in (left, right)):
        _balance_integers(ctx, e)
    elif not (isinstance(left, types.TupleType) and isinstance(right, types.TupleType) and left == right):
        notes = []
        if isinstance(left, BitType) and isinstance(right, BitType):
            notes = [f"cast one side, as in ({left}){_paren(e.right)}"]
        elif isinstance(right, types.InfIntType) and isinstance(left, types.BoolType):
            notes = ["compare with true or false"]
        fail(e.span, f"operands of '{e.op}' differ in type: {left} and {right}", notes)


def _check_shift(ctx: Context, e: ast.Binary) -> None:
    e.type = e.left.type
    left, right = types.underlying(e.left.type), types.underlying(e.right.type)
    if isinstance(e.type, types.SerEnumType):
        e.left, e.type = coerce(ctx, e.left, left), left
    if not isinstance(left, (BitType, types.InfIntType)) or not isinstance(right, (BitType, types.InfIntType)):
        _operands(e, "must be integers")
    if isinstance(right, BitType) and (right.signed or isinstance(e.right.type, types.NewType)):
        fail(e.right.span, f"a shift amount must be of a type bit<W>, not {e.right.type}")
    if isinstance(left, types.InfIntType) and e.right.const is None:
        fail(e.left.span, "give the shifted literal a width, as in 8w1 << n: the amount is only known at run time")
    if e.right.const is not None and e.right.const < 0:
        fail(e.right.span, "shift by a negative amount")
    if isinstance(e.right.type, types.SerEnumType):
        e.right = coerce(ctx, e.right, right)


def _concat(ctx: Context, e: ast.Binary) -> ast.Expr:
    for attr in ("left", "right"):
        side = getattr(e, attr)
        if isinstance(side.type, types.SerEnumType):
            setattr(e, attr, coerce(ctx, side, side.type.underlying))
    left, right = e.left.type, e.right.type
    if isinstance(left, types.StringType) and isinstance(right, types.StringType):
        e.type = types.STRING
        if e.left.const is not None and e.right.const is not None:
            e.const = e.left.const + e.right.const
        return e
    for side in (e.left, e.right):
        if isinstance(side.type, types.InfIntType):
            fail(side.span, "'++' needs operands with a width: write the literal as in 8w1")
    if not isinstance(left, BitType) or not isinstance(right, BitType):
        _operands(e, "must be bits or strings")
    e.type = t = BitType(left.width + right.width, left.signed)
    if e.left.const is not None and e.right.const is not None:
        e.const = fold_concat(e.left.const, left.width, e.right.const, right.width, t)
    return e


def check_ternary(ctx: Context, e: ast.Ternary) -> ast.Expr:
    e.condition = condition_of(ctx, e.condition)
    e.then, e.otherwise = value_of(ctx, e.then), value_of(ctx, e.otherwise)
    then, otherwise = e.then.type, e.otherwise.type
    if then != otherwise or _is_anonymous(then):
        if converts(e.otherwise, then) and not isinstance(then, types.InfIntType):
            e.otherwise = coerce(ctx, e.otherwise, then)
        elif converts(e.then, otherwise):
            e.then = coerce(ctx, e.then, otherwise)
        else:
            fail(e.span, f"the two sides of '?:' differ in type: {then} and {otherwise}")
    e.type = e.then.type
    if e.condition.const is not None:
        e.const = (e.then if e.condition.const else e.otherwise).const
    return e


def _is_anonymous(t: Type) -> bool:
    return isinstance(t, types.StructType) and t.decl is None


def _paren(e: ast.Expr) -> str:
    text = ast.source_text(e)
    return f"({text})" if isinstance(e, ast.Binary) else text
