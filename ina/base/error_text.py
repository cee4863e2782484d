"""Text of an exception of any kind, for places that catch all kinds."""

from __future__ import annotations

WORDED = (OSError, RuntimeError, ValueError)  # by convention their texts describe the error


def reason(error: BaseException) -> str:
    """Returns a text for ``error`` that fits into another error's message; never empty. The text of an assertion is empty and
    that of a KeyError only the key, so the type comes first, except for ``WORDED`` and this package's own exceptions."""
    text = str(error)
    if text and (isinstance(error, WORDED) or type(error).__module__.partition(".")[0] == "ina"):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
