"""Names in scope, and "did you mean"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from ina.p4.compiler import ast
from ina.p4.compiler.errors import NO_SPAN, CompileError, Note, Span


class Scope:
    """Maps names to declarations (ast nodes), to Types (type parameters) and to lists of overloaded functions."""

    __slots__ = ("names", "parent")

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self.names: dict[str, Any] = {}

    def lookup(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def declare(self, name: str, decl: Any, span: Span) -> None:
        """Raises CompileError if this very scope has the name already; functions may be overloaded."""
        known = self.names.get(name)
        if known is None:
            self.names[name] = decl
            return
        if isinstance(known, list) and isinstance(decl, (ast.ExternFunctionDecl, ast.FunctionDecl)):
            known.append(decl)
            return
        notes: list[Note | str] = []
        where = span_of(known)
        if where is not NO_SPAN:
            notes.append(Note("first declared here", where))
        raise CompileError(span, f"'{name}' is already declared in this scope", notes)

    def all_names(self) -> set[str]:
        names: set[str] = set()
        scope: Scope | None = self
        while scope is not None:
            names.update(scope.names)
            scope = scope.parent
        return names


def span_of(decl: object) -> Span:
    if isinstance(decl, list):
        decl = decl[0]
    return decl.span if isinstance(decl, ast.Node) else NO_SPAN


def suggest(name: str, candidates: Iterable[str]) -> list[str]:
    """Zero or one note with the nearest of `candidates`."""
    close = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return [f"did you mean '{close[0]}'?"] if close else []
