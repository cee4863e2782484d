"""The compiled part: its functions (``lib``), cffi's means to call them (``ffi``), its values (``CData``), and the path of its
shared object (``PATH``).

Raises Missing where it is not built, or was built from other sources than those that lie here: without this check a missing
function would show only when it is called, and a changed one not at all.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ina.base import paths
from ina.base.extras import Missing

BUILD = "run make build (or pip install -e .)"

try:
    from ina import _native
except ImportError as error:
    raise Missing(f"ina's compiled part cannot be loaded: {BUILD} ({error})") from error

ffi, lib, PATH = _native.ffi, _native.lib, _native.__file__

if TYPE_CHECKING:
    from ina._native import CData as CData
else:
    CData = ffi.CData

_built_from = ffi.string(lib.INA_SOURCES).decode() if hasattr(lib, "INA_SOURCES") else "those of an earlier version"
if (_current := paths.native_sources()) and _current != _built_from:
    raise Missing(f"ina's compiled part {PATH} was built from other sources than those in {paths.root()}: {BUILD}")


def rows(at: Callable[[int], CData]) -> Iterator[CData]:
    """Returns the rows of a C table, which ``at`` gives by their numbers, up to NULL."""
    return itertools.takewhile(lambda row: row != ffi.NULL, map(at, itertools.count()))


def checked(result: int, title: str) -> int:
    """Returns the result of a function of ``lib`` that is negative where it has failed: an errno. Raises OSError."""
    if result < 0:
        raise OSError(-result, f"{title}: {os.strerror(-result)}")
    return result
