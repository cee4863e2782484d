"""ABI check: the SHA-256 of the headers of ``host/`` that the compiled part was built with; extensions need the same."""

from __future__ import annotations

from ina.base import paths
from ina.base.native import ffi, lib


def made_with() -> str:
    """Returns that SHA-256. ValueError: the headers in ``host/`` have changed since, so structures would differ."""
    digest = ffi.string(lib.INA_HEADERS).decode()
    if digest != paths.host_headers():
        raise ValueError(f"the package's compiled part was made with other headers than those in {paths.root() / 'host'}: "
                         "build it again (make build, or pip install), and start again what runs")
    return digest
