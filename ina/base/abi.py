"""The headers of ``host/`` that the compiled part was made with: what is compiled later, and called by it, needs the same."""

from __future__ import annotations

from ina.base import paths
from ina.base.native import ffi, lib


def made_with() -> str:
    """Their SHA-256. ValueError: those that lie in ``host/`` now are others, so structures would differ."""
    digest = ffi.string(lib.INA_HEADERS).decode()
    if digest != paths.host_headers():
        raise ValueError(f"the package's compiled part was made with other headers than those in {paths.root() / 'host'}: "
                         "build it again (make, or pip install), and start again what runs")
    return digest
