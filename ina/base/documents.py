"""TOML and JSON from files and messages. Every error is Unreadable, and names the file where there is one. Python's own parsers
also raise RecursionError (nested brackets), and accept JSON infinities, which no integer can hold."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ina.base import plain_files, toml_lines

T = TypeVar("T")

DEEP = "brackets are nested too deep"
LEVELS = 100  # of tables in tables: Python prints no value of a thousand
BITS = 14_000  # longest integer: fewer than 4300 decimal digits, as Python prints no longer ones
LONG = "a number has more digits than Python takes (4300)"


class Unreadable(ValueError):
    """Text that is not such a document; the message says why."""


@dataclass(frozen=True)
class Document:
    """A TOML file, with the lines of its keys. ``path``: None: there is no file, and all keys have their defaults."""

    path: Path | None
    content: dict[str, Any]
    text: str = field(default="", repr=False)

    @cached_property
    def lines(self) -> dict[tuple[str | int, ...], int]:
        """The line of each key and list's item: only errors need them, and a second scan of the text."""
        return toml_lines.lines(self.text)

    def at(self, *keys: str | int) -> str:
        """Returns ``file:line`` of a key, or of the table that should have it; of the file: ``file``."""
        for end in range(len(keys), 0, -1):
            if keys[:end] in self.lines:
                return f"{self.path}:{self.lines[keys[:end]]}"
        return str(self.path or "defaults")


def document(path: Path | None) -> Document:
    """Parses a TOML file. Raises Unreadable, OSError."""
    return Document(None, {}) if path is None else _parse_file(lambda text: Document(path, toml_text(text), text), path)


def toml_text(text: str) -> dict[str, Any]:
    """Parses TOML; every number in it can be printed. Raises Unreadable."""
    content = _parse_text(tomllib.loads, tomllib.TOMLDecodeError, text)
    pending: list[tuple[Any, int]] = [(content, 0)]
    while pending:
        value, level = pending.pop()
        if level > LEVELS:
            raise Unreadable(f"tables are nested deeper than {LEVELS} levels")
        for inner in value.values() if isinstance(value, dict) else value:
            if isinstance(inner, (dict, list)):
                pending.append((inner, level + 1))
            elif isinstance(inner, int) and inner.bit_length() > BITS:  # tomllib takes any number of hexadecimal digits
                raise Unreadable(LONG)
    return content


def json_of(path: Path) -> Any:
    """Parses a JSON file; numbers are finite. Raises Unreadable, OSError."""
    return _parse_file(json_text, path)


def stored_json_of(path: Path) -> Any:
    """Parses a JSON file of a folder that somebody else may have filled; numbers are finite. Raises Unreadable; OSError: also for
    what is no regular file, and might never end."""
    return _parse_file(json_text, path, _stored_text)


def json_text(text: str | bytes) -> Any:
    """Parses JSON; numbers are finite. Raises Unreadable."""
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError:
            raise Unreadable("not a text: expected UTF-8") from None
    return _parse_text(_JSON.decode, json.JSONDecodeError, text)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig")  # some editors on Windows write a mark of the byte order


def _stored_text(path: Path) -> str:
    with plain_files.opened(path) as stream:
        return stream.read().decode("utf-8-sig")


def _parse_file(parse: Callable[[str], T], path: Path, read: Callable[[Path], str] = _text) -> T:
    try:
        text = read(path)
    except UnicodeDecodeError:
        raise Unreadable(f"{path}: not a text file: expected UTF-8") from None
    except ValueError as error:  # a null character in its name
        raise Unreadable(f"{str(path)!r}: no name of a file: {error}") from None
    try:
        return parse(text)
    except Unreadable as error:
        raise Unreadable(f"{path}: {error}") from None


def _parse_text(parse: Callable[[str], T], error: type[ValueError], text: str) -> T:
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
