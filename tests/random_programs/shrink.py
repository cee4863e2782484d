"""Shrinks a failing program: removes parts or replaces them by simpler ones as long as the verdict stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import get_args

from . import tree

STATEMENTS = get_args(tree.Statement)
EXPRESSIONS = get_args(tree.Expr)


def shrink(program: tree.Program, fails: Callable[[tree.Program], bool], tries: int = 400) -> tree.Program:
    """The smallest failing program after at most `tries` calls of `fails`, which tells whether a program still shows the defect
    (one that does not compile does not)."""
    budget = tries
    simpler = True
    while simpler and budget > 0:
        simpler = False
        for candidate in _smaller(program):
            budget -= 1
            if budget < 0:
                break
            if fails(candidate):
                program, simpler = candidate, True
                break
    return program


def _smaller(program: tree.Program) -> Iterator[tree.Program]:
    """Yields smaller programs: first large cuts, then small ones."""
    if len(program.packets) > 1:
        half = len(program.packets) // 2
        yield replace(program, packets=program.packets[:half])
        yield replace(program, packets=program.packets[half:])
        for i in range(len(program.packets)):
            yield replace(program, packets=program.packets[:i] + program.packets[i + 1 :])
    if program.checksum is not None:
        yield replace(program, checksum=None)
    for name in ("ingress", "egress", "tables", "functions", "actions", "registers", "counters", "meters", "metadata"):
        part = getattr(program, name)
        for size in sorted({len(part) // 2, len(part) // 4, 1} - {0}, reverse=True):
            for at in range(0, len(part), size):
                yield replace(program, **{name: part[:at] + part[at + size :]})
    for name in ("ingress", "egress", "actions", "functions", "tables", "states"):
        for simpler in _in(getattr(program, name)):
            yield replace(program, **{name: simpler})


def _in(node: object) -> Iterator:
    """Yields `node` with one part of it simplified."""
    if isinstance(node, tuple):
        for i, item in enumerate(node):
            if isinstance(item, (*STATEMENTS, tree.Entry)):
                yield node[:i] + node[i + 1 :]
                yield from (node[:i] + body + node[i + 1 :] for body in _bodies(item))
            for simpler in _in(item):
                yield (*node[:i], simpler, *node[i + 1 :])
    elif isinstance(node, EXPRESSIONS):
        yield from _expression(node)
    elif is_dataclass(node) and not isinstance(node, tree.Type):
        for f in fields(node):
            value = getattr(node, f.name)
            if f.name == "target":
                continue
            if isinstance(value, tuple) or is_dataclass(value):
                for simpler in _in(value):
                    yield replace(node, **{f.name: simpler})


def _bodies(statement: object) -> Iterator[tuple]:
    """Yields the bodies of a statement, each of which may replace it."""
    if isinstance(statement, tree.If):
        yield statement.then
        yield statement.otherwise


def _expression(e: tree.Expr) -> Iterator[tree.Expr]:
    if isinstance(e, tree.Lit):
        if e.value not in (0, 1):
            yield replace(e, value=0)
            yield replace(e, value=1)
        return
    if isinstance(e, tree.IsValid):
        return
    if not isinstance(e, tree.Var):
        for f in fields(e):
            inner = getattr(e, f.name)
            if isinstance(inner, EXPRESSIONS) and inner.type == e.type:
                yield inner
    yield tree.Lit(e.type, 0)
    yield tree.Lit(e.type, 1)
    if isinstance(e, (tree.Var, tree.Item)):
        return
    for f in fields(e):
        inner = getattr(e, f.name)
        if isinstance(inner, EXPRESSIONS) and not (isinstance(e, tree.Binary) and e.op in "/%" and f.name == "right"):
            yield from (replace(e, **{f.name: simpler}) for simpler in _expression(inner))
        elif isinstance(inner, tuple):
            for i, arg in enumerate(inner):
                if not isinstance(arg, tree.Var):
                    yield from (replace(e, **{f.name: (*inner[:i], s, *inner[i + 1 :])}) for s in _expression(arg))
