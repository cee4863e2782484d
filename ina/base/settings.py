"""Settings that somebody wrote: what is said where a key or a value is wrong."""

from __future__ import annotations

import difflib


class ConfigError(ValueError):
    """A key that does not exist, or a value that does not fit; the message names file, key and what was expected."""


def nearest(word: str, known: list[str]) -> str:
    """``; did you mean 'workers'?``, or what there is."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
