"""Where the project's own data lie, in a checkout and in an installed package alike."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
MARK = Path("p4", "switchml.p4")  # a folder p4/ alone says nothing: site-packages has one, too, where the package p4runtime is
NATIVE = ("host", "ina/switch", "ina/emulator")  # folders of a checkout whose C files are the compiled part


def root() -> Path:
    """The checkout (or, installed, the folder that carries ``p4/`` and ``host/`` as package data)."""
    for candidate in (PACKAGE.parent, PACKAGE / "data"):
        if (candidate / MARK).is_file():
            return candidate
    raise FileNotFoundError(f"no {MARK} beside {PACKAGE} nor in {PACKAGE / 'data'}: reinstall ina")


def p4_dir() -> Path:
    """Folder of the switch programs."""
    return root() / "p4"


def config_home() -> Path:
    """``$XDG_CONFIG_HOME``, else ``~/.config``; a relative one counts as unset (XDG Base Directory Specification 0.8)."""
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return base if base.is_absolute() else Path.home() / ".config"


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
