"""Bounds of numbers from outside: a value that a machine cannot hold, or a field cannot carry, is an error.

    parser.add_argument("--count", type=whole(1, 1_000_000, "each is a probe on the wire"))
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SECONDS = 1e6  # eleven days: no wait, and no experiment, is longer


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, in ``unit``. ``why``: the reason, or what is counted, for messages."""

    low: float
    high: float
    why: str = ""
    unit: str = ""

    def outside(self, value: float) -> str:
        """Returns text with the range, or "" if `value` is in it."""
        return outside(value, self.low, self.high, self.why)


def outside(value: float, low: float, high: float, why: str = "") -> str:
    """Returns text with the expected range, or "" if `value` is in `low` to `high`. NaN is outside of every range."""
    if low <= value <= high:
        return ""
    return f"expected {_text(low)} to {_text(high)}" + (f" ({why})" if why else "")


def _text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


EXAMPLES = {"b/s": "10e9", "bit/s": "10e9", "s": "0.001", "B": "1500", "MiB": "25", "FLOP/s": "1e12", "B/s": "1e12"}


def noun(kind: type, unit: str = "") -> str:
    """Returns text for a number of ``kind``, int or float, with a measured ``unit`` and an example; other units are not said."""
    number = "a whole number" if kind is int else "a number"
    return f"{number}, in {unit}, such as {EXAMPLES[unit]}" if unit in EXAMPLES else number


def number(kind: type, unit: str = "") -> Callable[[str], Any]:
    """Returns an argparse type: a number of ``kind``, int or float, whose range somebody else checks."""

    def parse(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text[:40]!r}: expected {noun(kind, unit)}") from None

    return parse


def whole(low: int, high: int, why: str = "") -> Callable[[str], int]:
    """Returns an argparse type: a whole number from `low` to `high`."""
    return _parser(int, low, high, why)


def real(low: float, high: float, why: str = "") -> Callable[[str], float]:
    """Returns an argparse type: a number from `low` to `high`."""
    return _parser(float, low, high, why)


def _parser(kind: type, low: float, high: float, why: str) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text[:40]!r}: expected {noun(kind)} from {_text(low)} to {_text(high)}") from None
        if wrong := outside(value, low, high, why):
            raise argparse.ArgumentTypeError(f"{text[:40]}: {wrong}")
        return value

    return parse
