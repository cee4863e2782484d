"""The folder of compiled programs, and the checks before a file of it is used.

Its files are loaded and run, so the folder must belong to its user, and a file is used only if it is byte for byte what was
written: a record, which is written last, has the SHA-256 of each of its files and of itself. Incomplete files are built again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HASHES = "files"  # key of a record: SHA-256 by file name


def folder() -> Path:
    """``$INA_CACHE``, else ``$XDG_CACHE_HOME/ina``, else ``~/.cache/ina``; made where it is missing.

    An empty variable counts as unset, and so does a relative XDG_CACHE_HOME (XDG Base Directory Specification 0.8). Raises
    OSError that names INA_CACHE: the folder cannot be made, INA_CACHE or HOME is a relative path, or others can write there.
    """
    if setting := os.environ.get("INA_CACHE"):
        path = Path(setting)
    elif (base := Path(os.environ.get("XDG_CACHE_HOME", ""))).is_absolute():
        path = base / "ina"
    else:
        path = Path.home() / ".cache" / "ina"
    if not path.is_absolute():
        name = f"INA_CACHE={setting}" if setting else f"HOME={os.environ.get('HOME')}"
        raise OSError(errno.EINVAL, f"{name}: expected an absolute path (compiled programs are kept there: set INA_CACHE)")
    with problems(path):
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        _check(path)
    return path


def _check(path: Path) -> None:
    """Raises PermissionError where another user could put files there that we would run."""
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise PermissionError(errno.EPERM, f"belongs to user {status.st_uid}, not to user {os.geteuid()} who would run what is "
                              "in it", str(path))
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, f"others can write there (mode {stat.S_IMODE(status.st_mode):o}), and what is in it "
                              "is run: remove it, or chmod go-w if you trust all who could", str(path))


@contextmanager
def problems(path: Path) -> Iterator[None]:
    """Context manager for writes into the cache: errors say what the folder is for and how to choose another."""
    try:
        yield
    except OSError as error:
        why = f"{error.strerror or error}; compiled programs are kept there: set INA_CACHE to a folder that can be written"
        raise OSError(error.errno, why, str(error.filename or path)) from error


def write(path: Path, data: bytes) -> None:
    """Writes a file atomically, also while others write it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def digest(path: Path) -> str | None:
    """SHA-256 of a file, in hex; None: it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def write_record(path: Path, record: Mapping[str, Any], files: Iterable[Path] = ()) -> None:
    """Writes to `path` the `record` (JSON) with the SHA-256 of `files`, which lie beside it."""
    data = json.dumps({**record, HASHES: {file.name: digest(file) for file in files}}).encode()
    write(path, hashlib.sha256(data).hexdigest().encode() + b"\n" + data)


def read_record(path: Path) -> dict[str, Any] | None:
    """Reads a record; None if it, or one of its files, is not as it was written (SHA-256)."""
    try:
        checksum, _, data = path.read_bytes().partition(b"\n")
        if hashlib.sha256(data).hexdigest().encode() != checksum:
            return None
        record = json.loads(data)
        hashes = record.pop(HASHES)
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return record if all(expected and digest(path.parent / name) == expected for name, expected in hashes.items()) else None


def find(sha256: str, kind: str) -> Path | None:
    """Returns the file with the SHA-256 `sha256` (hex) that belongs to a record with the key `kind`, or None."""
    for path in folder().glob("*.json"):
        if sha256.encode() in path.read_bytes() and kind in (read_record(path) or {}):
            hashes = json.loads(path.read_bytes().partition(b"\n")[2])[HASHES]
            return next((path.parent / name for name, value in hashes.items() if value == sha256), None)
    return None
