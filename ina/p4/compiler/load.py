"""Loads a compiled program into this process: a thin view for tests and tools (the switch runtime has its own, in C)."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi

from ina.base import manifest


class LoadError(RuntimeError):
    """An error for a file that is no program of this ABI."""


@functools.cache
def _ffi() -> cffi.FFI:
    """Declares the structures of packet.h, program.h, table.h and tna.h."""
    text = []
    for path in manifest.files("program"):
        source = path.read_text(encoding="utf-8")
        source = re.sub(r"#ifndef INA_CDEF.*?#endif", "", source, flags=re.S)
        text.append(re.sub(r"^#.*$", "", source, flags=re.M))
    ffi = cffi.FFI()
    ffi.cdef("\n".join(text) + "\nextern struct ina_program ina_program;")
    return ffi


@dataclass(slots=True)
class Handle:
    """A loaded program. `program` is the `struct ina_program`; `library` keeps it loaded."""

    ffi: Any
    library: Any
    program: Any

    def close(self) -> None:
        self.ffi.dlclose(self.library)


def load(so_path: str | Path) -> Handle:
    """Loads a program. Raises LoadError when the file cannot be loaded or has another ABI."""
    ffi = _ffi()
    try:
        library = ffi.dlopen(str(so_path))
        program = library.ina_program
    except (OSError, AttributeError) as error:
        raise LoadError(f"{so_path}: {error}") from None
    expected = library.INA_PROGRAM_ABI
    if program.abi != expected:
        raise LoadError(f"{so_path}: program ABI {program.abi}, expected {expected}; compile it again")
    return Handle(ffi, library, program)
