"""Networks as data: ``load("star", hosts=4, rate=100e6)`` gives a Topology; mininet.py makes it real."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable

from topologies.model import Link, Node, Topology, TopologyError

__all__ = ["Link", "Node", "Topology", "TopologyError", "load", "maker", "names"]

_TOOLS = {"cli", "draw", "file", "mininet", "model", "points", "routes", "show", "state", "tree"}


def names() -> list[str]:
    """The topologies that there are: modules of this package with a function ``topology``, with - for _."""
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(__path__) if m.name not in _TOOLS)


def maker(name: str) -> Callable[..., Topology]:
    """The function that makes topology ``name`` (``fat-tree`` or ``fat_tree``). Raises TopologyError: there is none."""
    if name.replace("_", "-") not in names():
        raise TopologyError(f"there is no topology {name!r}; there are: {', '.join(names())}, and files that end with .toml")
    return importlib.import_module(f"topologies.{name.replace('-', '_')}").topology


def load(name: str, **parameters: object) -> Topology:
    """Topology ``name`` with the parameters of its module's ``topology`` function, or of a TOML file (topologies/file.py).

    Raises TopologyError.
    """
    if name.endswith(".toml"):
        from topologies.file import read

        make, parameters = read, {"path": name, **parameters}
    else:
        make = maker(name)
    known = inspect.signature(make).parameters
    for key in parameters:
        if key not in known:
            raise TopologyError(f"topology {name!r} has no parameter {key!r}; it has: {', '.join(known)}")
    return make(**parameters)
