"""Compiled programs on disk, and how they are found in the cache."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ina.base import cache, manifest, paths
from ina.base.cc import toolchain


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A program on disk. `p4info` is P4Info (JSON mapping), `layouts` the result of `layout.describe` for each pipeline: one,
    except for a TNA `Switch` of several. `warnings`: text about legal but doubtful constructs, such as literals that are cut."""

    so_path: Path
    c_path: Path
    p4info: dict[str, Any]
    layouts: list[dict[str, Any]]
    source_hash: str
    name: str
    warnings: str = ""

    @property
    def layout(self) -> dict[str, Any]:
        """Returns the layout of the only pipeline, or the first one."""
        return self.layouts[0]


@functools.cache
def toolchain_digest(command: tuple[str, ...]) -> str:
    """Returns a digest that identifies compiler, processor and our own code generation."""
    return hashlib.sha256((toolchain(command) + manifest.digest("compiler")).encode()).hexdigest()


def key_of(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def from_cache(folder: Path, stem: str, name: str) -> CompiledProgram | None:
    """Returns the cached program, or None if a file is missing or damaged, so that it is compiled again."""
    record = cache.read_record(folder / f"{stem}.json")
    return CompiledProgram(folder / f"{stem}.so", folder / f"{stem}.c", name=name, **record) if record else None


def from_record(path: Path) -> CompiledProgram | None:
    """Returns the program of an earlier call with the same arguments, if all files that it read are unchanged and those that it
    looked for are there or absent as they were: `__has_include` asks for some, and others would hide a file that was found."""
    record = cache.read_record(path)
    if record is None or any(cache.digest(Path(f)) != expected for f, expected in record["sources"].items()):
        return None
    if any(paths.is_file(f) != there for f, there in record["lookups"].items()):
        return None
    return from_cache(path.parent, record["stem"], record["name"])
