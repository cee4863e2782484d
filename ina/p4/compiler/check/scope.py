"""Names in scope, and "did you mean" suggestions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ina.p4.compiler import ast
from ina.p4.compiler.errors import NO_SPAN, CompileError, Note, Span


class Scope:
    """Maps names to declarations (ast nodes), to Types (type parameters) and to lists of overloaded functions."""

    __slots__ = ("names", "parent")

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self.names: dict[str, object] = {}

    def lookup(self, name: str) -> object:
        scope: Scope | None = self
        while scope is not None:
            decl = scope.names.get(name)
            if decl is not None:
                return decl
            scope = scope.parent
        return None

    def declare(self, name: str, decl: object, span: Span) -> None:
        """Declares a name. Raises CompileError if this very scope has it already; functions may be overloaded."""
        existing = self.names.get(name)
        if existing is None:
            self.names[name] = decl
            return
        if isinstance(existing, list) and isinstance(decl, (ast.ExternFunctionDecl, ast.FunctionDecl)):
            existing.append(decl)
            return
        notes: list[Note | str] = []
        where = span_of(existing)
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
    """Returns zero or one note with the nearest of `candidates`."""
    close = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return [f"did you mean '{close[0]}'?"] if close else []
