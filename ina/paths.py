"""Where the project's own data lie, in a checkout and in an installed package alike."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
NATIVE = ("host", "ina/switch", "ina/emulator")  # folders of a checkout whose C files are the compiled part


def root() -> Path:
    """The checkout (or, installed, the folder that carries ``p4/`` and ``host/`` as package data)."""
    for candidate in (PACKAGE.parent, PACKAGE / "data"):
        if (candidate / "p4").is_dir():
            return candidate
    raise FileNotFoundError(f"no p4/ folder beside {PACKAGE} nor in {PACKAGE / 'data'}: reinstall ina")


def p4_dir() -> Path:
    """Folder of the switch programs."""
    return root() / "p4"


def include_dirs() -> list[Path]:
    """C include folders that a compiled program needs."""
    return [root() / "host", PACKAGE / "switch"]


def host_headers() -> str:
    """SHA-256 of the headers of ``host/``; the compiled part says which ones it was made with (``lib.INA_HEADERS``)."""
    return _digest((root() / "host").glob("*.h"))


def native_sources() -> str:
    """SHA-256 of the compiled part's sources (``lib.INA_SOURCES``); empty in an installed package, which has not all of them."""
    checkout = PACKAGE.parent
    if not (checkout / "host" / "binding.py").is_file():
        return ""
    return _digest(path for folder in NATIVE for path in (checkout / folder).iterdir() if path.suffix in (".c", ".h"))


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def cache_dir() -> Path:
    """Compiled programs, by content hash: ``$INA_CACHE``, else ``$XDG_CACHE_HOME/ina``, else ``~/.cache/ina``.

    Raises OSError that names the folder and INA_CACHE.
    """
    base = os.environ.get("INA_CACHE")
    path = Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ina"
    with cache_problems(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def cache_problems(cache: Path) -> Iterator[None]:
    """Around what writes into the cache: its errors say what the folder is for and how to choose another."""
    try:
        yield
    except OSError as error:
        why = f"{error.strerror or error}; compiled programs are kept there: set INA_CACHE to a folder that can be written"
        raise OSError(error.errno, why, str(error.filename or cache)) from error
