"""C around the switch's core: how tests compile it, and programs in C (tests/c/) for a switch to run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ina.switch import Program

ROOT = Path(__file__).resolve().parent.parent
CC = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Wshadow", "-Werror", f"-I{ROOT}/host", f"-I{ROOT}/ina/switch"]


def compiled(name: str, folder: Path) -> Program:
    """tests/c/<name>.c, compiled in that folder."""
    path = folder / f"{name}.so"
    subprocess.run([*CC, "-O2", "-shared", "-fPIC", ROOT / f"tests/c/{name}.c", "-o", path], check=True)
    return Program(path)
