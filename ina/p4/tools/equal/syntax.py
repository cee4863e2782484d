"""The syntax tree of a program, for `ina p4 equal`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import CheckedProgram


def nodes(program: CheckedProgram) -> Iterator[ast.Node]:
    """Yields all nodes but the declarations of core.p4 and the architecture."""
    return within(d for d in program.declarations if "p4include" not in Path(d.span.file).parts)


def within(roots: Iterable[Any]) -> Iterator[ast.Node]:
    """Yields some nodes, and all below them."""
    rest = list(roots)
    while rest:
        node = rest.pop()
        if isinstance(node, (list, tuple)):
            rest.extend(node)
        elif isinstance(node, dict):
            rest.extend(node.values())
        elif isinstance(node, ast.Node):
            yield node
            rest.extend(getattr(node, name) for name in _child_names(type(node)))


_names: dict[type[ast.Node], tuple[str, ...]] = {}


def _child_names(kind: type[ast.Node]) -> tuple[str, ...]:
    if kind not in _names:
        _names[kind] = tuple(f.name for f in dataclasses.fields(kind) if f.init and f.name not in ("span", "annotations"))
    return _names[kind]
