"""Networks as data: ``load("star", hosts=4, rate=100e6)`` gives a Topology; ina/worlds/testbed makes it real.

Each file of the folder ``topologies`` makes one, by its function ``topology``: they are found there by their names, as switch
programs are in ``p4``.
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
from ina.topology.topology import Link, Node, Topology, TopologyError

__all__ = ["Link", "Node", "Topology", "TopologyError", "load", "maker", "module", "names", "specified"]


def names() -> list[str]:
    """The topologies that there are: the files of ``topologies``, with - for _."""
    return sorted(path.stem.replace("_", "-") for path in _folder().glob("*.py"))


def _folder() -> Path:
    return paths.root() / "topologies"


@functools.cache
def module(name: str) -> ModuleType:
    """The file of topology ``name`` (``fat-tree`` or ``fat_tree``), executed once. Raises TopologyError: there is none."""
    if name.replace("_", "-") not in names():
        raise TopologyError(f"there is no topology {name!r}; there are: {', '.join(names())}, and files that end with .toml")
    stem = name.replace("-", "_")
    spec = spec_from_file_location(f"topologies.{stem}", _folder() / f"{stem}.py")
    assert spec is not None and spec.loader is not None  # for a name that ends in .py there are
    made = module_from_spec(spec)
    sys.modules[spec.name] = made  # dataclasses look there
    spec.loader.exec_module(made)
    return made


def maker(name: str) -> Callable[..., Topology]:
    """The function that makes topology ``name`` (``fat-tree`` or ``fat_tree``). Raises TopologyError: there is none."""
    make: Callable[..., Topology] = module(name).topology
    return make


def _reader() -> Callable[..., Topology]:
    from ina.topology.file import read

    return read


def load(name: str, **parameters: object) -> Topology:
    """Topology ``name`` with the parameters of its module's ``topology`` function, or of a TOML file (ina/topology/file.py).

    Raises TopologyError.
    """
    if name.endswith(".toml"):
        make, parameters = _reader(), {"path": name, **parameters}
    else:
        make = maker(name)
    known = inspect.signature(make).parameters
    for key in parameters:
        if key not in known:
            raise TopologyError(f"topology {name!r} has no parameter {key!r}; it has: {', '.join(known)}")
    return make(**parameters)


def specified(text: str, **common: object) -> Topology:
    """The topology that ``text`` says: "fat-tree k=4" is a name and parameters, "racks.toml" a file.

    ``common``: parameters that it gets too, where it has them and the text does not say otherwise. Raises TopologyError.
    """
    name, given = parameters(text, **common)
    return load(name, **given)


def parameters(text: str, **common: object) -> tuple[str, dict[str, object]]:
    """The name and the parameters that ``text`` says (see specified). Raises TopologyError."""
    name, *words = text.split() or [""]
    if name.endswith(".toml"):
        return name, dict(word.partition("=")[::2] for word in words)
    known = inspect.signature(maker(name)).parameters
    given: dict[str, object] = {key: value for key, value in common.items() if key in known}
    for word in words:
        key, _, value = word.partition("=")
        default = known[key].default if key in known else ""
        kind = str if default is None else type(default)
        try:
            given[key] = kind(value)
        except ValueError:
            raise TopologyError(f"topology {text!r}: {key} is {value!r}, expected {kind.__name__}") from None
    return name, given
