"""C code around the switch's core for tests: sources of host/, and programs of tests/c/ compiled for a switch."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ina.base import paths
from ina.p4.runtime import Program

ROOT = Path(__file__).resolve().parent.parent
INCLUDES = [f"-I{folder}" for folder in paths.native_dirs()]
CC = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Wshadow", "-Werror", *INCLUDES]


def host_source(name: str) -> Path:
    """A C file of an end host, found anywhere below host/."""
    [source] = [path for folder in paths.host_dirs() for path in folder.glob(name)]
    return source


def compiled(name: str, folder: Path) -> Program:
    """tests/c/<name>.c, compiled in that folder."""
    path = folder / f"{name}.so"
    subprocess.run([*CC, "-O2", "-shared", "-fPIC", ROOT / f"tests/c/{name}.c", "-o", path], check=True)
    return Program(path)
