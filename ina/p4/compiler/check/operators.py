"""Operators: their operands, result types and constants (P4_16 v1.2.5 §8.5 to §8.7)."""

from __future__ import annotations

from typing import NoReturn

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.const import fold_binary, fold_concat, fold_unary
from ina.p4.compiler.check.conversions import ConversionChecker
from ina.p4.compiler.types import BitType, Type

_ARITHMETIC = frozenset(["+", "-", "*", "&", "|", "^", "|+|", "|-|"])
_COMPARISONS = frozenset(["<", ">", "<=", ">="])


class OperatorChecker(ConversionChecker):
    def unary(self, e: ast.Unary) -> ast.Expr:
        e.operand = self.value(e.operand)
        e.type = e.operand.type
        t = types.underlying(e.type)
        if isinstance(e.type, types.SerEnumType):
            e.operand = self.coerce(e.operand, t)
            e.type = t
        if e.op == "!":
            if not isinstance(t, types.BoolType):
                self.fail(
                    e.span,
                    f"'!' needs a bool, not {e.operand.type}",
                    ["'~' inverts bits"] if isinstance(t, BitType) else (),
                )
        elif not isinstance(t, (BitType, types.InfIntType)) or (e.op == "~" and isinstance(t, types.InfIntType)):
            hint = ["give the literal a width, as in ~8w1"] if isinstance(t, types.InfIntType) else []
            self.fail(e.span, f"'{e.op}' is not defined for {e.operand.type}", hint)
        if e.operand.const is not None:
            e.const = fold_unary(e.op, e.operand.const, t)
        return e

    def binary(self, e: ast.Binary) -> ast.Expr:
        e.left, e.right = self.value(e.left), self.value(e.right)
        op = e.op
        if op in _ARITHMETIC:
            self._balance_integers(e)
            e.type = e.left.type
            if op in ("|+|", "|-|") and isinstance(e.type, types.InfIntType):
                self._operands(e, "need operands with a width")
        elif op in ("==", "!="):
            self._balance_equality(e)
            e.type = types.BOOL
        elif op in _COMPARISONS:
            self._balance_integers(e)
            e.type = types.BOOL
        elif op in ("&&", "||"):
            for side in (e.left, e.right):
                if not isinstance(types.strip_new(side.type), types.BoolType):
                    hint = [f"'{op[0]}' works on bits"] if isinstance(types.underlying(side.type), BitType) else []
                    self.fail(side.span, f"'{op}' needs bools, not {side.type}", hint)
            e.type = types.BOOL
        elif op in ("<<", ">>"):
            self._check_shift(e)
        elif op in ("/", "%"):
            for side in (e.left, e.right):
                if isinstance(side.type, types.InfIntType) and side.const is not None and side.const < 0:
                    self.fail(side.span, f"'{op}' is not defined for negative numbers")
            self._balance_integers(e)
            e.type = e.left.type
            if isinstance(e.type, BitType) and e.type.signed:
                self._operands(e, "are not defined for signed operands")
            divisor = e.right.const
            if isinstance(e.type, BitType) and e.left.const is None and (divisor is None or divisor & (divisor - 1)):
                self.warn(e.span, f"'{op}' by anything but a constant power of two does not compile for BMv2")
        else:
            return self._concat(e)
        left, right = e.left.const, e.right.const
        if op in ("&&", "||") and isinstance(left, bool) and left == (op == "||"):
            e.const = left  # the right side is not evaluated (§8.5.1)
        elif left is not None and right is not None:
            try:
                e.const = fold_binary(op, left, right, e.left.type)
            except ValueError as error:
                self.fail(e.span, str(error))
        elif op in ("/", "%") and right == 0:
            self.fail(e.right.span, "division by zero")
        return e

    def _operands(self, e: ast.Binary, why: str) -> NoReturn:
        self.fail(e.span, f"operands of '{e.op}' {why}: {e.left.type} and {e.right.type}")

    def _balance_integers(self, e: ast.Binary) -> None:
        """Converts both operands to one integer type: untyped integers take the width of the other side (§8.9)."""
        left, right = e.left.type, e.right.type
        if isinstance(left, types.SerEnumType):
            e.left, left = self.coerce(e.left, left.underlying), left.underlying
        if isinstance(right, types.SerEnumType):
            e.right, right = self.coerce(e.right, right.underlying), right.underlying
        if isinstance(left, types.InfIntType) and isinstance(right, BitType):
            e.left = self.coerce(e.left, right)
        elif isinstance(right, types.InfIntType) and isinstance(left, BitType):
            e.right = self.coerce(e.right, left)
        elif left != right or not isinstance(left, (BitType, types.InfIntType)):
            notes = []
            if isinstance(left, BitType) and isinstance(right, BitType):
                notes = [f"cast one side, as in ({left}){_paren(e.right)}"]
            elif isinstance(left, types.NewType) or isinstance(right, types.NewType):
                notes = ["types declared with 'type' only compare for equality: cast to the type they are made of"]
            problem = (
                "need integers of one type"
                if not (isinstance(left, BitType) and isinstance(right, BitType))
                else "differ in type"
            )
            self.fail(e.span, f"operands of '{e.op}' {problem}: {left} and {right}", notes)

    def _balance_equality(self, e: ast.Binary) -> None:
        left, right = e.left.type, e.right.type
        for side, other in ((e.left, right), (e.right, left)):
            if isinstance(side, ast.InvalidHeader) and not isinstance(
                types.strip_new(other), (types.HeaderType, types.UnionType)
            ):
                self.fail(e.span, f"an invalid header cannot be compared with {other}")
        if left == right and not _is_anonymous(left):
            if isinstance(left, (types.CallableType, types.ApplyResultType, types.TypeVar)):
                self._operands(e, "cannot be compared")
            return
        if self.converts(e.right, left):
            e.right = self.coerce(e.right, left)
        elif self.converts(e.left, right):
            e.left = self.coerce(e.left, right)
        elif isinstance(left, types.SerEnumType) and isinstance(right, (BitType, types.InfIntType, types.SerEnumType)):
            self._balance_integers(e)
        elif isinstance(right, types.SerEnumType) and isinstance(left, (BitType, types.InfIntType)):
            self._balance_integers(e)
        elif not (isinstance(left, types.TupleType) and isinstance(right, types.TupleType) and left == right):
            notes = []
            if isinstance(left, BitType) and isinstance(right, BitType):
                notes = [f"cast one side, as in ({left}){_paren(e.right)}"]
            elif isinstance(right, types.InfIntType) and isinstance(left, types.BoolType):
                notes = ["compare with true or false"]
            self.fail(e.span, f"operands of '{e.op}' differ in type: {left} and {right}", notes)

    def _check_shift(self, e: ast.Binary) -> None:
        e.type = e.left.type
        left, right = types.underlying(e.left.type), types.underlying(e.right.type)
        if isinstance(e.type, types.SerEnumType):
            e.left, e.type = self.coerce(e.left, left), left
        if not isinstance(left, (BitType, types.InfIntType)) or not isinstance(right, (BitType, types.InfIntType)):
            self._operands(e, "must be integers")
        if isinstance(right, BitType) and (right.signed or isinstance(e.right.type, types.NewType)):
            self.fail(e.right.span, f"a shift amount must be of a type bit<W>, not {e.right.type}")
        if isinstance(left, types.InfIntType) and e.right.const is None:
            self.fail(
                e.left.span, "give the shifted literal a width, as in 8w1 << n: the amount is only known at run time"
            )
        if e.right.const is not None and e.right.const < 0:
            self.fail(e.right.span, "shift by a negative amount")
        if isinstance(e.right.type, types.SerEnumType):
            e.right = self.coerce(e.right, right)

    def _concat(self, e: ast.Binary) -> ast.Expr:
        for attr in ("left", "right"):
            side = getattr(e, attr)
            if isinstance(side.type, types.SerEnumType):
                setattr(e, attr, self.coerce(side, side.type.underlying))
        left, right = e.left.type, e.right.type
        if isinstance(left, types.StringType) and isinstance(right, types.StringType):
            e.type = types.STRING
            if e.left.const is not None and e.right.const is not None:
                e.const = e.left.const + e.right.const
            return e
        for side in (e.left, e.right):
            if isinstance(side.type, types.InfIntType):
                self.fail(side.span, "'++' needs operands with a width: write the literal as in 8w1")
        if not isinstance(left, BitType) or not isinstance(right, BitType):
            self._operands(e, "must be bits or strings")
        e.type = t = BitType(left.width + right.width, left.signed)
        if e.left.const is not None and e.right.const is not None:
            e.const = fold_concat(e.left.const, left.width, e.right.const, right.width, t)
        return e

    def ternary(self, e: ast.Ternary) -> ast.Expr:
        e.condition = self.condition(e.condition)
        e.then, e.otherwise = self.value(e.then), self.value(e.otherwise)
        then, otherwise = e.then.type, e.otherwise.type
        if then != otherwise or _is_anonymous(then):
            if self.converts(e.otherwise, then) and not isinstance(then, types.InfIntType):
                e.otherwise = self.coerce(e.otherwise, then)
            elif self.converts(e.then, otherwise):
                e.then = self.coerce(e.then, otherwise)
            else:
                self.fail(e.span, f"the two sides of '?:' differ in type: {then} and {otherwise}")
        e.type = e.then.type
        if e.condition.const is not None:
            e.const = (e.then if e.condition.const else e.otherwise).const
        return e

    def condition(self, e: ast.Expr) -> ast.Expr:
        e = self.value(e, "a condition")
        if not isinstance(types.strip_new(e.type), types.BoolType):
            hint = ["compare it with 0, as in x != 0"] if isinstance(types.underlying(e.type), BitType) else []
            self.fail(e.span, f"a condition must be bool, not {e.type}", hint)
        return e


def _is_anonymous(t: Type) -> bool:
    return isinstance(t, types.StructType) and t.decl is None


def _paren(e: ast.Expr) -> str:
    text = ast.source_text(e)
    return f"({text})" if isinstance(e, ast.Binary) else text
