"""Tokens: what proves to a socket that other machines reach that one may use it.

``INA_TOKEN`` is the token; else it is in a file, which the first server that needs one makes: ``INA_TOKEN_FILE``, or
``ina.token`` in ``$XDG_CONFIG_HOME`` or ``~/.config``. So clients of the same user on the same machine need nothing; others copy
the file, or are given INA_TOKEN.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from ina.base import paths

LEAST = 16  # characters
MOST = 255


class TokenError(ValueError):
    """There is no token, or none that is secret; says what to do."""


def path() -> Path:
    """The path of the token's file, which need not exist."""
    if named := os.environ.get("INA_TOKEN_FILE"):
        return Path(named)
    return paths.config_home() / "ina.token"


def find() -> str:
    """A client's token. Raises TokenError."""
    if said := os.environ.get("INA_TOKEN"):
        return _checked(said, "INA_TOKEN")
    file = path()
    try:
        return _read(file)
    except FileNotFoundError:
        raise TokenError(f"no token: there is no file {file}; copy that of the user who started the server, or set INA_TOKEN or "
                         "INA_TOKEN_FILE") from None  # fmt: skip


def make() -> str:
    """A server's token: the one that clients would find here, or a new one in the file. Raises TokenError."""
    if os.environ.get("INA_TOKEN"):
        return find()
    file = path()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read(file)
    except OSError as error:
        raise TokenError(f"{file}: a token cannot be kept there: {error.strerror}; set INA_TOKEN or INA_TOKEN_FILE") from error
    token = secrets.token_hex(32)
    with os.fdopen(new, "w") as writing:
        writing.write(token + "\n")
    return token


def where() -> str:
    """For people: where the token of ``find`` is."""
    return "INA_TOKEN" if os.environ.get("INA_TOKEN") else str(path())


def is_same(one: str | bytes, other: str | bytes) -> bool:
    """In a time that tells nothing of how much of them is equal."""
    return hmac.compare_digest(*(each.encode() if isinstance(each, str) else each for each in (one, other)))


def _read(file: Path) -> str:
    """Raises FileNotFoundError."""
    try:
        with file.open() as reading:
            about = os.fstat(reading.fileno())
            text = reading.read(MOST + 2).strip()
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise TokenError(f"{file}: {getattr(error, 'strerror', None) or error}; expected a file with a token") from error
    if about.st_uid not in (os.geteuid(), 0):
        raise TokenError(f"{file} belongs to user {about.st_uid}: expected a file of one's own (or root's)")
    if about.st_mode & 0o077:
        raise TokenError(f"{file} can be read by others: chmod 600 {file}")
    return _checked(text, str(file))


def _checked(token: str, where: str) -> str:
    if not (LEAST <= len(token) <= MOST and token.isascii() and token.isprintable() and " " not in token):
        raise TokenError(f"{where}: expected a token of {LEAST} to {MOST} printable characters without spaces")
    return token
