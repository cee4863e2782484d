"""Optional packages that a kind of experiment needs, checked before it runs."""

from __future__ import annotations

from importlib.util import find_spec

from ina.base.settings import ConfigError


def check(kind: str) -> None:
    """Checks the packages that this kind of experiment and its report need. Raises ConfigError if one is missing."""
    packages = ("torch", "matplotlib") if kind == "training" else ("matplotlib",)
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{kind} needs {' and '.join(missing)}: pip install 'ina[torch,report]'")
