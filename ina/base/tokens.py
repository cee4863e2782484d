"""Tokens: the secret with which a client may use a socket that other machines reach.

``INA_TOKEN`` is the token; else it is in a file, which the first server that needs one makes: ``INA_TOKEN_FILE``, or
``ina.token`` in ``$XDG_CONFIG_HOME`` or ``~/.config``. So clients of the same user on the same machine need nothing; others copy
the file, or set INA_TOKEN.

Processes of one job need less: a pass, made from the socket's token and the job's, with which they can act for that job, and for
jobs whose tokens are made from its: those of groups of some of its processes. It may lie where others can read it, such as
torch's store.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from ina.base import paths, plain_files

PASS = "job:"  # beginning of a pass
FURTHER = "."  # in a job's token, after that of a job which has its workers
LEAST = 16  # characters
MOST = 255


class TokenError(ValueError):
    """No token, or one that others can read; the message says what to do."""


def path() -> Path:
    """Returns the path of the token's file, which need not exist."""
    if setting := os.environ.get("INA_TOKEN_FILE"):
        return Path(setting)
    return paths.config_home() / "ina.token"


def find() -> str:
    """Returns a client's token. Raises TokenError."""
    if token := os.environ.get("INA_TOKEN"):
        return _checked(token, "INA_TOKEN")
    file = path()
    try:
        return _read(file)
    except FileNotFoundError:
        raise TokenError(f"no token: there is no file {file}; copy that of the user who started the server, or set INA_TOKEN or "
                         "INA_TOKEN_FILE") from None


def make() -> str:
    """Returns a server's token: the one that clients would find here, or a new one in the file. Raises TokenError."""
    return find() if os.environ.get("INA_TOKEN") else kept_in(path(), remedy="set INA_TOKEN or INA_TOKEN_FILE")


def kept_in(file: Path, remedy: str = "name another file") -> str:
    """Returns the token in ``file``; where there is no such file, a new token, which is written to one of mode 0600. Raises
    TokenError: others may read the file, it has no token, or it cannot be made; ``remedy`` says what to do then."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        try:
            return _read(file)
        except FileNotFoundError:
            raise TokenError(f"{file} is a link to no file: remove it, or {remedy}") from None
    except OSError as error:
        raise TokenError(f"{file}: a token cannot be kept there: {error.strerror}; {remedy}") from error
    token = secrets.token_hex(32)
    with os.fdopen(new, "w") as writing:
        writing.write(token + "\n")
    return token


def read(file: Path) -> str:
    """Returns the token in a file that others cannot read. Raises TokenError."""
    try:
        return _read(file)
    except FileNotFoundError:
        raise TokenError(f"{file}: there is no such file; expected one with a token") from None


def where() -> str:
    """Returns the place of ``find``'s token, for messages."""
    return "INA_TOKEN" if os.environ.get("INA_TOKEN") else str(path())


def pass_for(token: str, job_token: str) -> str:
    """Returns the pass of the job with ``job_token`` at the socket with ``token``, which cannot be learned from it."""
    return f"{PASS}{job_token}:{hmac.new(token.encode(), b'ina pass ' + job_token.encode(), 'sha256').hexdigest()}"


def named(access: str) -> str:
    """Returns the beginning of a pass, which names its job by the job's token; "": ``access`` is none."""
    return access.rpartition(":")[0] if access.startswith(PASS) else ""


def job_named(name: bytes) -> str:
    """Returns the job's token in the beginning of a pass; "": it names none, as the socket's own token."""
    text = name.decode(errors="replace")
    return text.removeprefix(PASS) if text.startswith(PASS) else ""


def said_in(text: str) -> str:
    """Returns the job's token that a pass names."""
    return text.removeprefix(PASS).rpartition(":")[0]


def further(job_token: str) -> str:
    """Returns the token of a new job that processes of the job with ``job_token`` have among them: its pass covers it."""
    return f"{job_token}{FURTHER}{secrets.token_hex(8)}"


def covers(job_token: str, token: str) -> bool:
    """Returns True if the pass of the job with ``job_token`` is good for the job with ``token``."""
    return is_same(job_token, token) or is_same(f"{job_token}{FURTHER}", token[: len(job_token) + len(FURTHER)])


def is_same(one: str | bytes, other: str | bytes) -> bool:
    """Compares two tokens in constant time."""
    return hmac.compare_digest(*(each.encode() if isinstance(each, str) else each for each in (one, other)))


def _read(file: Path) -> str:
    """Reads the token's file and checks its owner and mode. Raises FileNotFoundError, TokenError."""
    try:
        with plain_files.opened(file) as reading:
            status = os.fstat(reading.fileno())
            text = reading.read(MOST + 2).decode().strip()
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise TokenError(f"{file}: {getattr(error, 'strerror', None) or error}; expected a file with a token") from error
    if status.st_uid not in (os.geteuid(), 0):
        raise TokenError(f"{file} belongs to user {status.st_uid}: expected a file of one's own (or root's)")
    if status.st_mode & 0o077:
        raise TokenError(f"{file} can be read by others: chmod 600 {file}")
    return _checked(text, str(file))


def _checked(token: str, source: str) -> str:
    if not (LEAST <= len(token) <= MOST and token.isascii() and token.isprintable() and " " not in token):
        raise TokenError(f"{source}: expected a token of {LEAST} to {MOST} printable characters without spaces")
    return token
