"""How an exception of any kind is put into words, where all kinds are caught."""

from __future__ import annotations

WORDED = (OSError, RuntimeError, ValueError)  # by custom their texts say what happened


def reason(error: BaseException) -> str:
    """Describe ``error`` within another error's text; never empty. An assertion's text is empty, and a missing key's is the key
    alone: what is not of ``WORDED`` or this package's own has its type before its text."""
    text = str(error)
    if text and (isinstance(error, WORDED) or type(error).__module__.partition(".")[0] == "ina"):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
