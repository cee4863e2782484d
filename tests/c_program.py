"""C around the switch's core: how tests compile it, and programs in C (tests/c/) for a switch to run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ina.base import paths
from ina.p4.runtime import Program

ROOT = Path(__file__).resolve().parent.parent
INCLUDES = [f"-I{folder}" for folder in paths.native_dirs()]
CC = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Wshadow", "-Werror", *INCLUDES]


def host_source(name: str) -> Path:
    """A C file of an end host, wherever in host/ it is."""
    [found] = [path for folder in paths.host_dirs() for path in folder.glob(name)]
    return found


def compiled(name: str, folder: Path) -> Program:
    """tests/c/<name>.c, compiled in that folder."""
    path = folder / f"{name}.so"
    subprocess.run([*CC, "-O2", "-shared", "-fPIC", ROOT / f"tests/c/{name}.c", "-o", path], check=True)
    return Program(path)
