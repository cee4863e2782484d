"""Errors about settings that a user wrote: a wrong key or value."""

from __future__ import annotations

import difflib


class ConfigError(ValueError):
    """A key that does not exist, or a value that does not fit; the message names file, key and what was expected."""


def nearest(word: str, known: list[str]) -> str:
    """Returns ``; did you mean 'workers'?`` for a similar word, else the list of ``known`` words."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
