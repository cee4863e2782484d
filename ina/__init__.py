"""ina: in-network aggregation emulator and testbed.

Public are `ina.p4`, `ina.topology`, `ina.virtual`, `ina.experiment`, `ina.backend`, `ina.moe`, `ina.codecs` and `ina.protocol`,
each as its `__all__` says (docs/reference/api.md); they are imported when they are first used. All else is private, and changes
without notice.
"""

from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"
__all__ = ["__version__", "backend", "codecs", "experiment", "moe", "p4", "protocol", "topology", "virtual"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return import_module(f"ina.{name}")
    raise AttributeError(f"module 'ina' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
