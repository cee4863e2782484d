"""Counts in messages and tables: "1 switch", "2 switches"."""

from __future__ import annotations


def counted(number: int, one: str, more: str = "") -> str:
    """Returns the number with its noun: ``one``, or ``more`` (empty: with an s) for any number but 1."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"
