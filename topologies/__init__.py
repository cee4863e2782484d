"""Networks as data: ``load("star", hosts=4, rate=100e6)`` gives a Topology; mininet.py makes it real."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from topologies.model import Link, Node, Topology, TopologyError

__all__ = ["Link", "Node", "Topology", "TopologyError", "load", "names"]

_TOOLS = {"cli", "mininet", "model", "state"}


def names() -> list[str]:
    """The topologies that there are: modules of this package with a function ``topology``."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in _TOOLS)


def load(name: str, **parameters: object) -> Topology:
    """Topology ``name`` with the parameters of its module's ``topology`` function. Raises TopologyError."""
    if name not in names():
        raise TopologyError(f"there is no topology {name!r}; there are: {', '.join(names())}")
    make = importlib.import_module(f"topologies.{name}").topology
    known = inspect.signature(make).parameters
    for key in parameters:
        if key not in known:
            raise TopologyError(f"topology {name!r} has no parameter {key!r}; it has: {', '.join(known)}")
    return make(**parameters)
