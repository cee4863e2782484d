"""Conditions of #if and #elif: integers of 64 bits, signed and unsigned, by the rules of GCC's cpp (C11 §6.10.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ina.p4.compiler.front.pp_tokens import Token

_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)(u?(?:l|ll|LL|L)?|(?:l|ll|LL|L)u)", re.IGNORECASE)
_CHARACTER = re.compile(r"\\([0-7]{1,3})|\\x([0-9a-fA-F]+)|\\([^xuUN])|([^\\])", re.DOTALL)
_ESCAPES = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "e": 27, "E": 27}
_LEVELS = ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %")
_LEVEL = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators.split()}


class Value(NamedTuple):
    """A number and whether it is unsigned."""

    number: int
    unsigned: bool = False


def _cut(number: int, unsigned: bool) -> Value:
    number &= (1 << 64) - 1
    return Value(number if unsigned or number < 1 << 63 else number - (1 << 64), unsigned)


def _quotient(a: int, b: int) -> int:
    """Divides towards zero, as C does; Python's // goes down."""
    return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "&": lambda a, b: a & b, "+": lambda a, b: a + b,
    "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": _quotient, "%": lambda a, b: a - b * _quotient(a, b),
}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}


def evaluate(tokens: Sequence[Token]) -> int:
    """Returns the value of a condition in which macros are replaced; other names are 0. Raises ValueError."""
    parser = _Parser(tokens)
    value = parser.comma(True)
    if parser.text:
        raise ValueError(f"expected an operator, not '{parser.text}'")
    return value.number


class _Parser:
    """Parses and computes at once. `live` is False in operands that C does not evaluate: 0 && 1 / 0 is 0."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = -1
        self.text = ""
        self._advance()

    def _advance(self) -> None:
        self._at += 1
        self.text = self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _expect(self, text: str) -> None:
        if self.text != text:
            raise ValueError(f"expected '{text}', not " + (f"'{self.text}'" if self.text else "the end of the line"))
        self._advance()

    def comma(self, live: bool) -> Value:
        """comma: choice {',' choice}"""
        value = self._choice(live)
        while self.text == ",":
            self._advance()
            value = self._choice(live)
        return value

    def _choice(self, live: bool) -> Value:
        """choice: binary ['?' comma ':' choice]"""
        condition = self._binary(0, live)
        if self.text != "?":
            return condition
        self._advance()
        first = self.comma(live and condition.number != 0)
        self._expect(":")
        second = self._choice(live and condition.number == 0)
        return _cut((first if condition.number else second).number, first.unsigned or second.unsigned)

    def _binary(self, level: int, live: bool) -> Value:
        """binary: unary {operator unary}, with operators of `level` and above"""
        left = self._unary(live)
        while (above := _LEVEL.get(self.text, -1)) >= level:
            operator = self.text
            self._advance()
            needed = live and not (operator == "&&" and not left.number) and not (operator == "||" and left.number)
            left = _computed(operator, left, self._binary(above + 1, needed), needed)
        return left

    def _unary(self, live: bool) -> Value:
        """unary: '(' comma ')' | ('+' | '-' | '~' | '!') unary | number | character | name"""
        operator = self.text
        if operator == "(":
            self._advance()
            value = self.comma(live)
            self._expect(")")
            return value
        if operator in ("+", "-", "~", "!"):
            self._advance()
            value = self._unary(live)
            if operator == "!":
                return Value(int(not value.number))
            number = {"+": value.number, "-": -value.number, "~": ~value.number}[operator]
            return _cut(number, value.unsigned)
        if not operator:
            raise ValueError("expected a value at the end of the line")
        kind = self._tokens[self._at].kind
        self._advance()
        if kind == "id":
            return Value(0)
        if kind == "number":
            return _number(operator)
        if kind == "char":
            return _character(operator)
        raise ValueError(f"expected a value, not '{operator}'")


def _computed(operator: str, left: Value, right: Value, live: bool) -> Value:
    a, b = left.number, right.number
    if operator in ("&&", "||"):
        return Value(int(bool(a and b) if operator == "&&" else bool(a or b)))
    if operator in ("<<", ">>"):
        if not live:
            return left
        bits = min(abs(b), 64)  # a negative number shifts the other way
        return _cut(a << bits if (operator == "<<") == (b >= 0) else a >> bits, left.unsigned)
    unsigned = left.unsigned or right.unsigned
    a, b = _cut(a, unsigned).number, _cut(b, unsigned).number
    if operator in _COMPARISONS:
        return Value(int(_COMPARISONS[operator](a, b)))
    if operator in ("/", "%") and not b:
        if live:
            raise ValueError("division by zero")
        return Value(0, unsigned)
    return _cut(_ARITHMETIC[operator](a, b), unsigned)


def _number(text: str) -> Value:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is not an integer of C")
    digits = match[1].lower()
    base = {"0x": 16, "0b": 2}.get(digits[:2], 8 if digits[0] == "0" else 10)
    if len(digits) > 4000:
        raise ValueError("an integer of more than 4000 digits")
    number = int(digits[2:] if base in (16, 2) else digits, base)
    return _cut(number, "u" in match[2].lower() or number & ((1 << 64) - 1) >= 1 << 63)


def _character(text: str) -> Value:
    """Returns the last four bytes of a character constant as an `int`; one byte alone is a signed `char` (GCC's manual of cpp,
    "Implementation-defined behavior")."""
    octets = bytearray()
    at, end = 1, len(text) - 1
    while at < end and (match := _CHARACTER.match(text, at, end)) is not None:
        octal, digits, escape, character = match.groups()
        if octal or digits:
            octets.append((int(octal, 8) if octal else int(digits[-2:], 16)) & 255)
        else:
            octets += bytes([_ESCAPES[escape]]) if escape in _ESCAPES else (escape or character).encode(errors="replace")
        at = match.end()
    if at != end or not octets or text[-1] != "'":
        raise ValueError(f"{text} is not supported: expected characters between quotes, and no \\u")
    return Value(int.from_bytes(octets[-4:], "big", signed=len(octets) not in (2, 3)))
