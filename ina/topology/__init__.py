"""Networks as data: ``load("star", hosts=4, rate=100e6)`` gives a Topology, which Mininet or virtual time makes real.

Each file of the folder ``topologies`` defines one, in its function ``topology``; its name is the file's, as with switch programs
in ``p4``.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from ina.base import paths
from ina.topology.topology import End, Hop, Link, Node, Topology, TopologyError

__all__ = ["End", "Hop", "Link", "Node", "Topology", "TopologyError", "load", "names"]


def names() -> list[str]:
    """Returns the names of all topologies: the files of ``topologies``, with - for _."""
    return sorted(path.stem.replace("_", "-") for path in _folder().glob("*.py"))


def _folder() -> Path:
    return paths.root() / "topologies"


@functools.cache
def module(name: str) -> ModuleType:
    """Executes the file of topology ``name`` (``fat-tree`` or ``fat_tree``) once. Raises TopologyError: there is none."""
    if name.replace("_", "-") not in names():
        raise TopologyError(f"there is no topology {name!r}; there are: {', '.join(names())}, and files that end with .toml")
    stem = name.replace("-", "_")
    spec = spec_from_file_location(f"topologies.{stem}", _folder() / f"{stem}.py")
    assert spec is not None and spec.loader is not None  # never None for a name that ends in .py
    result = module_from_spec(spec)
    sys.modules[spec.name] = result  # dataclasses look there
    spec.loader.exec_module(result)
    return result


def maker(name: str) -> Callable[..., Topology]:
    """Returns the function that makes topology ``name`` (``fat-tree`` or ``fat_tree``), or, where ``name`` ends with .toml, reads
    it. Raises TopologyError: there is none."""
    if name.endswith(".toml"):
        from ina.topology.file import read

        return functools.partial(read, path=name)
    make: Callable[..., Topology] = module(name).topology
    return make


def load(name: str, **parameters: object) -> Topology:
    """Makes topology ``name`` with ``parameters``, or, where ``name`` ends with .toml, that of a file (docs/guide/topologies.md).

    `ina topo list` shows each topology's parameters with their defaults: numbers of hosts or switches, ``rate`` of links in
    bit/s, ``delay`` in seconds, ... Raises TopologyError: there is no such topology or parameter, or a value does not fit.
    """
    make = maker(name)
    signature = inspect.signature(make).parameters
    for key in parameters:
        if key not in signature:
            raise TopologyError(f"topology {name!r} has no parameter {key!r}; it has: {', '.join(signature)}")
    return make(**parameters)


def specified(text: str, **common: object) -> Topology:
    """Makes the topology that ``text`` specifies: "fat-tree k=4" is a name and parameters, "racks.toml" a file.

    ``common``: defaults for parameters that the topology has and the text does not set. Raises TopologyError.
    """
    name, values = parameters(text, **common)
    return load(name, **values)


def parameters(text: str, **common: object) -> tuple[str, dict[str, object]]:
    """Parses the name and the parameters in ``text`` (see specified). Raises TopologyError."""
    name, *words = text.split() or [""]
    signature = inspect.signature(maker(name)).parameters
    values: dict[str, object] = {key: value for key, value in common.items() if key in signature}
    for word in words:
        key, _, value = word.partition("=")
        default = signature[key].default if key in signature else ""
        kind = str if default is None else type(default)
        try:
            values[key] = kind(value)
        except ValueError:
            raise TopologyError(f"topology {text!r}: {key} is {value!r}, expected {kind.__name__}") from None
    return name, values
