"""Compiled programs in this process."""

from __future__ import annotations

import json
import os
from typing import Any

from ina._native import ffi, lib
from ina.switch.p4info import P4Info


class Program:
    """A compiled program in this process, until the process ends. `path`: its shared object."""

    def __init__(self, path: str | os.PathLike[str]):
        handle, error = ffi.new("void **"), ffi.new("char[]", 512)
        self.path = os.fspath(path)
        self.pointer = lib.ina_program_open(os.fsencode(os.path.abspath(path)), handle, error, 512)
        if self.pointer == ffi.NULL:
            raise OSError(f"cannot load switch program: {ffi.string(error).decode(errors='replace')}")
        # Never unloaded: a switch that the garbage collector ends after its program still runs the program's code.
        self._handle = handle[0]
        self.name = _text(self.pointer.name)
        self.source_hash = _text(self.pointer.source_hash)
        self.p4info = P4Info(json.loads(_text(self.pointer.p4info) or "{}"))
        self.layout: dict[str, Any] = json.loads(_text(self.pointer.layout) or "{}")


def _text(pointer: Any) -> str:
    return ffi.string(pointer).decode() if pointer != ffi.NULL else ""
