"""TOML and JSON from files and messages: read whole, or refused, files by their names. Python's own parsers let more than
ValueError out of what others wrote: RecursionError of brackets within brackets, and JSON's infinities, which no integer can hold.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

DEEP = "brackets are nested too deep"
BITS = 14_000  # of an integer: with fewer than 4300 decimal digits, or Python refuses to print it
LONG = "a number has more digits than Python takes (4300)"


class Unreadable(ValueError):
    """Not such a document: says why."""


def toml(path: Path) -> dict[str, Any]:
    """Raises Unreadable, OSError."""
    return _parsed(toml_text, path)


def toml_text(text: str) -> dict[str, Any]:
    """Every number can be printed. Raises Unreadable."""
    content = _understood(tomllib.loads, tomllib.TOMLDecodeError, text)
    left: list[Any] = [content]
    while left:
        value = left.pop()
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if isinstance(value, int) and value.bit_length() > BITS:  # tomllib takes any number of hexadecimal digits
            raise Unreadable(LONG)
    return content


def json_of(path: Path) -> Any:
    """Numbers are finite. Raises Unreadable, OSError."""
    return _parsed(json_text, path)


def json_text(text: str | bytes) -> Any:
    """Numbers are finite. Raises Unreadable."""
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError:
            raise Unreadable("not a text: expected UTF-8") from None
    return _understood(_JSON.decode, json.JSONDecodeError, text)


def _parsed(parse: Callable[[str], T], path: Path) -> T:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Unreadable(f"{path}: not a text file: expected UTF-8") from None
    try:
        return parse(text)
    except Unreadable as error:
        raise Unreadable(f"{path}: {error}") from None


def _understood(parse: Callable[[str], T], error: type[ValueError], text: str) -> T:
    try:
        return parse(text)
    except (error, Unreadable) as reason:
        raise Unreadable(str(reason)) from None
    except RecursionError:
        raise Unreadable(DEEP) from None
    except ValueError:
        raise Unreadable(LONG) from None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Unreadable(f"{text[:32]} is too large a number")
    return value


def _constant(text: str) -> Any:
    raise Unreadable(f"{text} is no JSON number")


_JSON = json.JSONDecoder(parse_float=_finite, parse_constant=_constant)
