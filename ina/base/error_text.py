"""Texts of exceptions: of any kind, for places that catch all kinds, and for a line of a command's output."""

from __future__ import annotations

WORDED = (OSError, RuntimeError, ValueError)  # by convention their texts describe the error


def reason(error: BaseException) -> str:
    """Returns a text for ``error`` that fits into another error's message; never empty. The text of an assertion is empty and
    that of a KeyError only the key, so the type comes first, except for ``WORDED`` and this package's own exceptions."""
    text = str(error)
    if text and (isinstance(error, WORDED) or type(error).__module__.partition(".")[0] == "ina"):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def line(error: BaseException) -> str:
    """Returns a text for the end of a command: the system's errors as "FILE: No such file or directory", others as they are."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
