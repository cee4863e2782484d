"""Texts of exceptions: of any kind, for places that catch all kinds, and for a line of a command's output."""

from __future__ import annotations

import errno

WORDED = (OSError, RuntimeError, ValueError)  # by convention their texts describe the error

REMEDIES = {  # of the system's errors whose own words leave it open
    errno.EISDIR: "expected a file: name one in this folder, or elsewhere",
    errno.ENOTDIR: "expected a folder: a part of this path is a file",
    errno.EEXIST: "expected a folder, or a name that nothing has yet",
    errno.EACCES: "expected one that this user may use: change its owner or its mode, or name another",
}


def reason(error: BaseException) -> str:
    """Returns a text for ``error`` that fits into another error's message; never empty. The text of an assertion is empty and
    that of a KeyError only the key, so the type comes first, except for ``WORDED`` and this package's own exceptions."""
    text = str(error)
    if text and (isinstance(error, WORDED) or type(error).__module__.partition(".")[0] == "ina"):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def line(error: BaseException) -> str:
    """Returns a text for the end of a command: the system's errors as "FILE: No such file or directory", with a remedy where
    there is one; others as they are."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    if error.filename is None:
        return error.strerror
    remedy = REMEDIES.get(error.errno or 0)
    return f"{error.filename}: {error.strerror}" + (f": {remedy}" if remedy else "")
