"""The experiments that come with the package: files of ``experiments``, found by name. Light: it imports no kind."""

from __future__ import annotations

import math
from pathlib import Path

from ina.base import documents, paths
from ina.base.settings import ConfigError, nearest


def find(name: str) -> Path:
    """Returns the file of a named experiment, or the file itself when ``name`` is a path that ends with ``.toml``."""
    if name.endswith(".toml"):
        return Path(name)
    names = [named(path) for path in (*available(), *large())]
    if name not in names:
        raise ConfigError(f"no experiment {name!r} in {paths.root() / 'experiments'}{nearest(name, names)}")
    return paths.root() / "experiments" / f"{name}.toml"


def available() -> list[Path]:
    return sorted((paths.root() / "experiments").glob("*.toml"))


def large() -> list[Path]:
    """Returns experiments that take minutes; they run only by name."""
    return sorted((paths.root() / "experiments").glob("scale/*.toml"))


def named(path: Path) -> str:
    """Returns the name of an experiment that comes with the package: ``loss-sweep``, ``scale/fat-tree``."""
    return str(path.relative_to(paths.root() / "experiments").with_suffix(""))


def summary(path: Path) -> str:
    """Returns a line about an experiment of the package: its points, kind, world and subject."""
    content = documents.document(path).content
    sweeps = content.get("sweep", {})
    tables = sweeps if isinstance(sweeps, list) else [sweeps]
    points = sum(math.prod(map(len, axes.values())) for axes in tables)
    return f"{points:>3} x {content.get('kind')} ({content.get('world')}): {content.get('about', '')}"
