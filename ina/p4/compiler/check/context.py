"""The state of one check: names in scope with "did you mean" suggestions, errors, the piece of the program at work."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from ina.p4.compiler import ast, types
from ina.p4.compiler.errors import NO_SPAN, CompileError, Diagnostic, Note, Span
from ina.p4.compiler.types import Signature, Type


class Scope:
    """Maps names to declarations (ast nodes), to Types (type parameters) and to lists of overloaded functions."""

    __slots__ = ("names", "parent")

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self.names: dict[str, object] = {}

    def lookup(self, name: str) -> object:
        decl = self.names.get(name)
        return self.parent.lookup(name) if decl is None and self.parent is not None else decl

    def declare(self, name: str, decl: object, span: Span) -> None:
        """Declares a name. Raises CompileError if this very scope has it already."""
        existing = self.names.get(name)
        if existing is not None:
            where = span_of(existing)
            notes = [Note("first declared here", where)] if where is not NO_SPAN else []
            raise Certain(span, f"'{name}' is already declared in this scope", notes)
        self.names[name] = decl

    def all_names(self) -> set[str]:
        return {*self.names, *(self.parent.all_names() if self.parent is not None else ())}


def span_of(decl: object) -> Span:
    if isinstance(decl, list):
        decl = decl[0]
    return decl.span if isinstance(decl, ast.Node) else NO_SPAN


def suggest(name: str, candidates: Iterable[str]) -> list[str]:
    """Returns zero or one note with the nearest of `candidates`."""
    close = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return [f"did you mean '{close[0]}'?"] if close else []


MAX_ERRORS = 20
OPAQUE = types.TypeVar("_")
"""Type of an expression that may have any type, as it has to do with opaque ones"""


class Unknown(NamedTuple):
    """A type argument of the parser or control `block` that is being inferred. `otherwise`: the type if nothing determines
    it, which is no error then: `_` if that is written, int if it is that of an integer without width."""

    block: types.CallableType
    otherwise: Type | None


class Cascade(CompileError):
    """An error that follows from a reported one: not reported itself."""


class Certain(CompileError):
    """An error that a generic declaration has whatever its type arguments are."""


class TooManyErrors(Exception):
    """Signal that ends checking early."""


class Context:
    """The state that all functions of the checker share. `expressions`, `statements`: the check of each class of node."""

    def __init__(
        self,
        expressions: Mapping[type, Callable[[Context, Any], ast.Expr]],
        statements: Mapping[type, Callable[[Context, Any], None]],
    ) -> None:
        self._expressions, self._statements = expressions, statements
        self.globals = Scope()
        self.scope = self.globals
        self.diagnostics: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self._reported: set[tuple[str, int, str]] = set()
        self.error_members: list[str] = []
        self.match_kinds: list[str] = []
        self.records: dict[tuple[ast.RecordDecl, tuple[Type, ...]], types.RecordType] = {}
        self.specialised: dict[tuple[types.CallableType, tuple[Type, ...]], types.CallableType] = {}
        self.generic_owners = itertools.count(1)
        self.unknown: dict[types.TypeVar, Unknown] = {}
        self.inferred: dict[types.TypeVar, Type] = {}
        """Types of those of the unknown that have been inferred; they may have others in them"""
        self.signatures: dict[ast.Node, Signature] = {}
        self.specialised_functions: dict[tuple[ast.FunctionDecl, tuple[Type, ...]], ast.FunctionDecl] = {}
        self.templates: dict[ast.Declaration, ast.Declaration] = {}
        """Generic functions, parsers and controls as parsed: a checked tree refers to types and declarations that must not be
        copied."""
        self.open_templates: set[ast.Declaration] = set()
        """Generic parsers and controls of which a copy is being checked."""
        self.opaque: frozenset[types.TypeVar] = frozenset()
        """Type parameters of the generic declaration that is being checked for itself; such types may be any"""
        self._opaque_met = 0
        self.new_declarations: list[ast.Declaration] = []
        self.owner_locals: list[ast.Node] | None = None
        """Declarations that a direct application (`T.apply()`) adds its instance to."""
        self.owner = ""
        """Owner of the code being checked: "parser", "control", "action", "function", "table" or "" at the top level."""
        self.in_parser = False
        self.return_type: Type | None = None
        """Return type of the function being checked; None outside of functions (actions and apply blocks return nothing)."""
        self.loops = 0

    # --- nodes

    def expression(self, e: ast.Expr) -> ast.Expr:
        """Returns the checked expression, which may be another node than `e`: callers store the result."""
        if self.opaque:
            return self._any_expression(e)
        return e if not isinstance(e.type, ast.Unchecked) else self._expressions[type(e)](self, e)

    def _any_expression(self, e: ast.Expr) -> ast.Expr:
        """Works like `expression` where types are opaque: an error that not all types have makes the type of `e` opaque."""
        met = self._opaque_met
        if isinstance(e.type, ast.Unchecked):
            try:
                e = self._expressions[type(e)](self, e)
            except CompileError as error:
                if isinstance(error, (Cascade, Certain)):
                    raise
                if self._opaque_met == met:
                    raise Certain(error.span, error.message, error.diagnostics[0].notes) from None
                e.type, e.const = OPAQUE, None
        self.meet(e.type)
        return e

    def meet(self, t: Type | None) -> None:
        """Notes that what is being checked depends on the type `t`."""
        if self.opaque and types.variables_of(t) & self.opaque:
            self._opaque_met += 1

    def statement(self, s: ast.Node) -> None:
        self._statements[type(s)](self, s)

    def body(self, block: ast.Block) -> None:
        """Checks the statements of a block in a scope of their own."""
        with self.nested():
            for s in block.statements:
                with self.declaring(s):
                    self.statement(s)

    @contextmanager
    def code_of(self, owner: str, owner_locals: list[ast.Node] | None = None, return_type: Type | None = None) -> Iterator[None]:
        """Checks the code of another `owner` than the code around it."""
        outer = self.owner, self.owner_locals, self.return_type, self.loops
        self.owner, self.owner_locals, self.return_type, self.loops = owner, owner_locals, return_type, 0
        try:
            yield
        finally:
            self.owner, self.owner_locals, self.return_type, self.loops = outer

    @contextmanager
    def template(self, d: ast.Declaration, variables: Iterable[types.TypeVar]) -> Iterator[None]:
        """Checks a copy of a generic declaration for itself: reports what is wrong whatever its type arguments are, keeps
        nothing else."""
        outer = self.opaque, self._opaque_met, self.new_declarations, self.warnings, self.specialised, self.specialised_functions
        self.opaque, self.new_declarations, self.warnings = frozenset([*variables, OPAQUE]), [], []
        self.specialised, self.specialised_functions = {**self.specialised}, {**self.specialised_functions}
        self.open_templates.add(d)
        try:
            with self.nested() as scope, self.code_of(""), self.recover():
                scope.names |= {v.name: v for v in variables}
                yield
        finally:
            self.open_templates.remove(d)
            self.opaque, self._opaque_met, self.new_declarations, self.warnings = outer[:4]
            self.specialised, self.specialised_functions = outer[4:]

    # --- reporting

    def warn(self, span: Span, message: str, notes: Sequence[str] = ()) -> None:
        self.warnings.append(Diagnostic(span, message, [Note(n) for n in notes]))

    @contextmanager
    def recover(self) -> Iterator[None]:
        """Notes an error and continues behind the construct that has it."""
        scope, met = self.scope, self._opaque_met
        try:
            yield
        except CompileError as error:
            self.scope = scope
            if isinstance(error, Cascade):
                follows = bool(self.diagnostics or self.opaque)
            else:
                follows = self._opaque_met != met and not isinstance(error, Certain)
            if not follows:
                self._report(error.diagnostics)
            if len(self.diagnostics) >= MAX_ERRORS:
                raise TooManyErrors from None

    def _report(self, diagnostics: list[Diagnostic]) -> None:
        """Reports each error once for a line: one in a macro would repeat at every use."""
        for d in diagnostics:
            place = d.span.file, d.span.line, d.message
            if place not in self._reported:
                self._reported.add(place)
                self.diagnostics.append(d)

    # --- scopes

    @contextmanager
    def declaring(self, d: ast.Node) -> Iterator[None]:
        """Works like `recover`; a declaration that has an error still occupies its name, so that its uses are not errors too."""
        scope = self.scope
        with self.recover():
            yield
        if isinstance(d, ast.Declaration):
            scope.names.setdefault(d.name, d)

    @contextmanager
    def nested(self, scope: Scope | None = None) -> Iterator[Scope]:
        """Opens a scope in the current one, or in `scope`."""
        outer = self.scope
        self.scope = Scope(scope or outer)
        try:
            yield self.scope
        finally:
            self.scope = outer

    def declare(self, d: ast.Declaration) -> None:
        self.scope.declare(d.name, d, d.span)

    def lookup(self, kind: str, name: str, span: Span, absolute: bool) -> object:
        """Returns the meaning of a name; `absolute`: at the top level. Raises CompileError for one that is not declared."""
        decl = (self.globals if absolute else self.scope).lookup(name)
        if decl is None:
            self.undeclared(span, kind, name)
        return decl

    def undeclared(self, span: Span, kind: str, name: str) -> NoReturn:
        notes = suggest(name, self.scope.all_names())
        if name in ("packet_in", "packet_out", "NoAction", "exact") and not notes:
            notes = ["#include <core.p4> declares it"]
        raise Certain(span, f"{kind} '{name}' is not declared", notes)

    def signature_of(self, decl: ast.Declaration) -> Signature:
        signature = self.signatures.get(decl)
        if signature is None:
            raise Cascade(decl.span, f"the declaration of '{decl.name}' has an error")
        return signature
