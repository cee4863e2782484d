"""Loads compiled programs into this process."""

from __future__ import annotations

import json
import os
from typing import Any

from ina.base.native import CData, ffi, lib
from ina.p4.runtime.p4info import P4Info

Layout = dict[str, Any]  # JSON that the compiler writes: what a program has where


class Program:
    """A compiled program in this process, until the process ends. `path`: its shared object.

    `pointer` is its `struct ina_program`, `pipelines` those of all pipelines (a v1model program has one); `layout` and
    `p4info` are of all of them.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        self.pointer = open_program(path)
        self.name = _text(self.pointer.name)
        self.source_hash = _text(self.pointer.source_hash)
        self.p4info = P4Info(json.loads(_text(self.pointer.p4info) or "{}"))
        self.pipelines = [self.pointer]
        while self.pipelines[-1].next != ffi.NULL:
            self.pipelines.append(self.pipelines[-1].next)
        self.layout = _merged([json.loads(_text(p.layout) or "{}") for p in self.pipelines])

    @property
    def architecture(self) -> str:
        """The architecture that the program is written for: "v1model" or "tna"."""
        return "tna" if self.pointer.architecture == lib.INA_TNA else "v1model"

    @property
    def port_metadata(self) -> list[Layout]:
        """Port metadata that each pipeline's ingress parser reads in front of frames (TNA): name, and fields with their bits."""
        layouts = (json.loads(_text(p.layout) or "{}").get("port_metadata") for p in self.pipelines)
        return [metadata for metadata in layouts if metadata]

    @property
    def meta_size(self) -> int:
        """Bytes of metadata that accompany a digest."""
        return int(max(p.meta_size for p in self.pipelines))


def open_program(path: str | os.PathLike[str]) -> CData:
    """Returns the `struct ina_program` of a compiled program. Raises OSError. It is never unloaded: a switch that the garbage
    collector ends after its program still runs the program's code."""
    handle, error = ffi.new("void **"), ffi.new("char[]", 512)
    pointer = lib.ina_program_open(os.fsencode(os.path.abspath(path)), handle, error, 512)
    if pointer == ffi.NULL:
        raise OSError(f"cannot load switch program: {ffi.string(error).decode(errors='replace')}: expected a file that "
                      "ina compile -o FILE.so writes")
    return pointer


def _merged(layouts: list[Layout]) -> Layout:
    """One layout of all pipelines: its lists have the objects of all, each with its `pipeline`; all else is the first's."""
    if len(layouts) == 1:
        return layouts[0]
    merged = dict(layouts[0])
    for section in {key for layout in layouts for key in layout}:
        items = [(number, item) for number, layout in enumerate(layouts) for item in _objects(layout.get(section))]
        if items:
            merged[section] = [{**item, "pipeline": number} for number, item in items]
    merged["selectors"] = {name: selector for layout in layouts for name, selector in layout.get("selectors", {}).items()}
    return merged


def _objects(section: Any) -> list[Layout]:
    return [item for item in section if isinstance(item, dict)] if isinstance(section, list) else []


def _text(pointer: CData) -> str:
    return ffi.string(pointer).decode() if pointer != ffi.NULL else ""
