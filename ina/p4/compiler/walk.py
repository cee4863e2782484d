"""Walks over the syntax tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from ina.p4.compiler import ast

_child_names: dict[type[ast.Node], tuple[str, ...]] = {}


def walk(node: object) -> Iterator[ast.Node]:
    """Yields a node, or those of a list, and all below it, in order of the text.

    It follows the parser's fields, not the checker's, and leaves out annotations.
    """
    if isinstance(node, ast.Node):
        yield node
        for name in _children(type(node)):
            yield from walk(getattr(node, name))
    elif isinstance(node, list | tuple):
        for item in node:
            yield from walk(item)
    elif isinstance(node, dict):
        yield from walk(list(node.values()))


def _children(kind: type[ast.Node]) -> tuple[str, ...]:
    if kind not in _child_names:
        _child_names[kind] = tuple(f.name for f in fields(kind) if f.init and f.name not in ("span", "annotations"))
    return _child_names[kind]
