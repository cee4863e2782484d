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


def whole(low: int, high: int, why: str = "") -> Callable[[str], int]:
    """Returns an argparse type: a whole number from `low` to `high`."""
    return _parser(int, "a whole number", low, high, why)


def real(low: float, high: float, why: str = "") -> Callable[[str], float]:
    """Returns an argparse type: a number from `low` to `high`."""
    return _parser(float, "a number", low, high, why)


def _parser(kind: type, noun: str, low: float, high: float, why: str) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text[:40]!r}: expected {noun} from {_text(low)} to {_text(high)}") from None
        if wrong := outside(value, low, high, why):
            raise argparse.ArgumentTypeError(f"{text[:40]}: {wrong}")
        return value

    return parse
