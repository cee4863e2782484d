"""Paths of the project's own data, in a checkout and in an installed package alike."""

from __future__ import annotations

import os
from pathlib import Path

from ina.base import manifest

PACKAGE = manifest.PACKAGE


def root() -> Path:
    """Returns the checkout (or, installed, the folder that carries ``p4/`` and ``host/`` as package data)."""
    return manifest.root(PACKAGE)


def p4_dir() -> Path:
    """Folder of the switch programs."""
    return root() / "p4"


def is_file(path: str) -> bool:
    """Returns True if something is there that can be read like a file, a device or a pipe, too."""
    return "\0" not in path and os.path.exists(path) and not os.path.isdir(path)


def config_home() -> Path:
    """``$XDG_CONFIG_HOME``, else ``~/.config``; a relative one counts as unset (XDG Base Directory Specification 0.8)."""
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return base if base.is_absolute() else Path.home() / ".config"


def include_dirs() -> list[Path]:
    """C include folders of a compiled program."""
    return [manifest.folder(name, PACKAGE) for name in manifest.INCLUDES]


def native_dirs() -> list[Path]:
    """C include folders of all that is compiled into the package."""
    return [manifest.folder(name, PACKAGE) for name in manifest.FOLDERS]


def host_dirs() -> list[Path]:
    """C include folders that a worker or a port, compiled later, needs."""
    return [manifest.folder(name, PACKAGE) for name in manifest.HOST]


def host_headers() -> str:
    """SHA-256 of the headers of ``host/``; ``lib.INA_HEADERS`` is that of those the compiled part was built with."""
    return manifest.digest("headers", PACKAGE)


def native_sources() -> str:
    """SHA-256 of the compiled part's sources (``lib.INA_SOURCES``); empty in an installed package, which has not all of them."""
    return manifest.digest("native", PACKAGE) if (PACKAGE.parent / "host" / "binding.py").is_file() else ""


def program_files() -> dict[str, Path]:
    """Returns the files of the package's switch programs by their names: ``switchml``, ``tofino/switchml``."""
    root = p4_dir()
    return {str(path.relative_to(root).with_suffix("")): path for path in sorted([*root.glob("*.p4"), *root.glob("tofino/*.p4")])}
