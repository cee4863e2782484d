"""Types: resolution of type references; generic declarations, substitution, inference (P4_16 v1.2.5 §7)."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.scope import Scope, suggest
from ina.p4.compiler.errors import CompileError, Diagnostic, Note, Span
from ina.p4.compiler.types import BitType, Parameter, Signature, Type, TypeVar

MAX_WIDTH = 1 << 16
MAX_ERRORS = 20

Bindings = dict[TypeVar, Type]

_PLAIN = {
    "bool": types.BOOL, "error": types.ERROR, "match_kind": types.MATCH_KIND, "string": types.STRING,
    "void": types.VOID, "_": types.ANY,
}  # fmt: skip
_CALLABLES = (types.ParserType, types.ControlType, types.PackageType)


class Cascade(CompileError):
    """An error that follows from a reported one: not reported itself."""


class TooManyErrors(Exception):
    """Signal that ends checking early."""


class TypeChecker(ABC):
    """State of one check, and everything about types. The other files of check/ build on it."""

    def __init__(self) -> None:
        self.globals = Scope()
        self.scope = self.globals
        self.diagnostics: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.reported: set[tuple[str, int, str]] = set()
        self.error_members: list[str] = []
        self.match_kinds: list[str] = []
        self.records: dict[tuple[ast.RecordDecl, tuple[Type, ...]], types.RecordType] = {}
        self.specialised: dict[tuple[types.CallableType, tuple[Type, ...]], types.CallableType] = {}
        self._owners = itertools.count(1)

    # --- reporting

    def fail(self, span: Span, message: str, notes: Sequence[Note | str] = ()) -> NoReturn:
        raise CompileError(span, message, notes)

    def warn(self, span: Span, message: str, notes: Sequence[Note | str] = ()) -> None:
        self.warnings.append(Diagnostic(span, message, [n if isinstance(n, Note) else Note(n) for n in notes]))

    @contextmanager
    def recover(self) -> Iterator[None]:
        """Notes an error and continues behind the construct that has it."""
        scope = self.scope
        try:
            yield
        except CompileError as error:
            self.scope = scope
            if not (isinstance(error, Cascade) and self.diagnostics):
                self._report(error.diagnostics)
            if len(self.diagnostics) >= MAX_ERRORS:
                raise TooManyErrors from None

    def _report(self, diagnostics: list[Diagnostic]) -> None:
        """Reports each error once for a line: one in a macro would repeat at every use."""
        for d in diagnostics:
            place = d.span.file, d.span.line, d.message
            if place not in self.reported:
                self.reported.add(place)
                self.diagnostics.append(d)

    @contextmanager
    def declaring(self, d: ast.Node) -> Iterator[None]:
        """Works like `recover`; a declaration that has an error still occupies its name, so that its uses are not errors too."""
        scope = self.scope
        with self.recover():
            yield
        if isinstance(d, ast.Declaration):
            scope.names.setdefault(d.name, d)

    @contextmanager
    def nested(self) -> Iterator[Scope]:
        outer = self.scope
        self.scope = Scope(outer)
        try:
            yield self.scope
        finally:
            self.scope = outer

    def undeclared(self, span: Span, kind: str, name: str) -> NoReturn:
        notes = suggest(name, self.scope.all_names())
        if name in ("packet_in", "packet_out", "NoAction", "exact") and not notes:
            notes = ["#include <core.p4> declares it"]
        self.fail(span, f"{kind} '{name}' is not declared", notes)

    # --- from syntax to types

    def resolve(self, ref: ast.TypeRef) -> Type:
        """Returns the type that `ref` denotes, and stores it in `ref.resolved`."""
        ref.resolved = resolved = self._resolve(ref)
        return resolved

    def _resolve(self, ref: ast.TypeRef) -> Type:
        if isinstance(ref, ast.NamedTypeRef):
            return self._resolve_named(ref)
        if isinstance(ref, ast.BaseTypeRef):
            return self._resolve_base(ref)
        if isinstance(ref, ast.StackTypeRef):
            element = self.resolve(ref.element)
            if isinstance(element, (types.VoidType, types.InfIntType, types.StringType, types.VarbitType)) or isinstance(
                element, (types.CallableType, types.AnyType)
            ):
                self.fail(ref.span, f"there are no arrays of {element}")
            size = self.constant_int(ref.size, "size of a header stack or array")
            if size <= 0:
                self.fail(ref.size.span, f"a header stack or array needs a positive size, not {size}")
            return types.StackType(element, size)
        if isinstance(ref, ast.TupleTypeRef):
            elements = tuple(self.resolve(e) for e in ref.elements)
            for element, element_ref in zip(elements, ref.elements, strict=True):
                if isinstance(element, (types.VoidType, types.AnyType, types.CallableType)):
                    self.fail(element_ref.span, f"a tuple cannot have an element of type {element}")
            return types.TupleType(elements)
        assert isinstance(ref, ast.ListTypeRef)
        return types.ListType(self.resolve(ref.element))

    def _resolve_base(self, ref: ast.BaseTypeRef) -> Type:
        plain = _PLAIN.get(ref.kind)
        if plain is not None:
            return plain
        if ref.width is None:
            return types.INT if ref.kind == "int" else BitType(1)
        width = self.constant_int(ref.width, f"width of {ref.kind}<>")
        least = 1 if ref.kind == "int" else 0
        if not least <= width <= MAX_WIDTH:
            self.fail(ref.width.span, f"width of {ref.kind}<{width}> is not in {least}..{MAX_WIDTH}")
        return types.VarbitType(width) if ref.kind == "varbit" else BitType(width, ref.kind == "int")

    def _resolve_named(self, ref: ast.NamedTypeRef) -> Type:
        scope = self.globals if ref.absolute else self.scope
        decl = scope.lookup(ref.name)
        if decl is None:
            self.undeclared(ref.span, "type", ref.name)
        args = tuple(self.resolve(a) for a in ref.args)
        return self.named_type(decl, args, ref.span, ref.name)

    def named_type(self, decl: object, args: tuple[Type, ...], span: Span, name: str, *, bare: bool = False) -> Type:
        """Returns the type that `decl` declares, specialised to `args`. `bare`: a generic type may lack arguments."""
        if isinstance(decl, Type):
            generic: Type = decl
        elif isinstance(decl, ast.RecordDecl) and decl.type_params:
            if not args and not bare:
                self.fail(span, f"{decl.kind} {name} needs {len(decl.type_params)} type arguments: {name}<...>")
            return self.record(decl, args, span) if args else types.StructType(name, decl=decl)
        elif isinstance(decl, ast.TypeDeclaration) and decl.type is not None:
            generic = decl.type
        elif isinstance(decl, ast.TypeDeclaration):
            raise Cascade(span, f"type '{name}' has an error in its declaration", [Note("declared here", decl.span)])
        else:
            self.fail(
                span,
                f"'{name}' is not a type",
                [Note("declared here", decl.span)] if isinstance(decl, ast.Node) else (),
            )
        if not args:
            return generic
        if not isinstance(generic, types.CallableType) or not generic.type_params:
            self.fail(span, f"{name} takes no type arguments")
        return self.specialise(generic, args, span)

    # --- generic declarations

    def type_variables(self, params: list[ast.Name]) -> tuple[TypeVar, ...]:
        """Declares type parameters in the current scope."""
        owner = next(self._owners)
        variables = []
        for param in params:
            variable = TypeVar(param.name, owner)
            self.scope.declare(param.name, variable, param.span)
            variables.append(variable)
        return tuple(variables)

    def record(self, decl: ast.RecordDecl, args: tuple[Type, ...], span: Span) -> types.RecordType:
        """Returns the record type of `decl`, for generic ones that with type arguments `args`; one object per argument list."""
        key = (decl, args)
        existing = self.records.get(key)
        if existing is not None:
            return existing
        if len(args) != len(decl.type_params):
            self.fail(span, f"{decl.kind} {decl.name} takes {len(decl.type_params)} type arguments, not {len(args)}")
        cls = {"struct": types.StructType, "header": types.HeaderType, "header_union": types.UnionType}[decl.kind]
        record = cls(decl.name, {}, args, decl)
        outer, self.scope = self.scope, Scope(self.globals)
        try:
            for param, arg in zip(decl.type_params, args, strict=True):
                self.scope.declare(param.name, arg, param.span)
            for field in decl.fields:
                if field.name in record.fields:
                    first = record.fields[field.name].decl
                    assert first is not None
                    notes = [Note("first declared here", first.span)]
                    self.fail(field.span, f"{decl.kind} {decl.name} has field '{field.name}' twice", notes)
                field_type = self.resolve(field.type_ref)
                self._check_field(decl, field, field_type)
                record.fields[field.name] = types.Field(field.name, field_type, field)
        finally:
            self.scope = outer
        self.records[key] = record
        return record

    def _check_field(self, decl: ast.RecordDecl, field: ast.StructField, t: Type) -> None:
        plain = types.strip_new(t)
        if decl.kind == "header":
            scalar = (BitType, types.BoolType, types.VarbitType, types.SerEnumType, TypeVar)
            if not isinstance(plain, scalar) and not _is_flat_struct(plain) and not _is_flat_array(plain):
                allowed = "bit<>, int<>, varbit<>, bool, serialisable enums and structs of those"
                self.fail(
                    field.type_ref.span, f"a header cannot have a field of type {t}", [f"headers are made of {allowed}"]
                )
        elif decl.kind == "header_union":
            if not isinstance(plain, (types.HeaderType, TypeVar)):
                self.fail(field.type_ref.span, f"a header_union can only have headers, not {t}")
        elif isinstance(plain, (types.VoidType, types.CallableType, types.CalleeType, types.InfIntType)):
            self.fail(field.type_ref.span, f"a struct cannot have a field of type {t}")

    def specialise(self, generic: types.CallableType, args: tuple[Type, ...], span: Span) -> types.CallableType:
        """Returns `generic` (extern, parser, control, package type) with type arguments; one object per argument list."""
        if len(args) != len(generic.type_params):
            self.fail(span, f"{generic.name} takes {len(generic.type_params)} type arguments, not {len(args)}")
        key = (generic, args)
        existing = self.specialised.get(key)
        if existing is not None:
            return existing
        result = type(generic)(generic.name, (), args, decl=generic.decl)
        self.specialised[key] = result
        bindings = dict(zip(generic.type_params, args, strict=True))
        result.params = self.substitute_params(generic.params, bindings)
        result.ctor_params = self.substitute_params(generic.ctor_params, bindings)
        if isinstance(generic, types.ExternType):
            assert isinstance(result, types.ExternType)
            result.methods = {
                n: [self._substitute_signature(s, bindings) for s in ss] for n, ss in generic.methods.items()
            }
            result.ctors = [self._substitute_signature(s, bindings) for s in generic.ctors]
        return result

    def _substitute_signature(self, s: Signature, b: Bindings) -> Signature:
        return Signature(
            s.name,
            s.type_params,
            self.substitute_params(s.params, b),
            self.substitute(s.returns, b),
            s.decl,
            s.abstract,
        )

    def substitute_params(self, params: list[Parameter], b: Bindings) -> list[Parameter]:
        return [Parameter(p.name, p.direction, self.substitute(p.type, b), p.optional, p.decl) for p in params]

    def substitute(self, t: Type, b: Bindings) -> Type:
        """Returns `t` with type variables replaced; unbound ones stay."""
        if isinstance(t, TypeVar):
            return b.get(t, t)
        if isinstance(t, types.StackType):
            return types.StackType(self.substitute(t.element, b), t.size)
        if isinstance(t, types.TupleType):
            return types.TupleType(tuple(self.substitute(e, b) for e in t.elements))
        if isinstance(t, (types.ListType, types.SetType)):
            return type(t)(self.substitute(t.element, b))
        if isinstance(t, types.RecordType) and t.args and t.decl is not None:
            return self.record(t.decl, tuple(self.substitute(a, b) for a in t.args), t.decl.span)
        if isinstance(t, types.CallableType) and t.args:
            generic = t.decl.type
            return self.specialise(generic, tuple(self.substitute(a, b) for a in t.args), t.decl.span)
        return t

    def unify(self, pattern: Type, actual: Type, b: Bindings) -> bool:
        """Binds the type variables of `pattern` (those that are keys of `b`) so that it equals `actual`. Returns False if
        impossible.

        `b` maps a variable to itself while it is unbound. Untyped integers bind only variables that nothing else binds.
        """
        if isinstance(pattern, TypeVar) and pattern in b:
            bound = b[pattern]
            if (
                bound == pattern
                or isinstance(bound, types.AnyType)
                or (isinstance(bound, types.InfIntType) and actual != bound)
            ):
                b[pattern] = actual
                return True
            return self.same_shape(bound, actual)
        if isinstance(actual, types.AnyType) or isinstance(pattern, types.AnyType):
            return True
        if isinstance(pattern, types.StackType) and isinstance(actual, types.StackType):
            return pattern.size == actual.size and self.unify(pattern.element, actual.element, b)
        if isinstance(pattern, types.TupleType) and isinstance(actual, types.TupleType):
            pairs = zip(pattern.elements, actual.elements, strict=False)
            return len(pattern.elements) == len(actual.elements) and all(self.unify(w, f, b) for w, f in pairs)
        if isinstance(pattern, (types.ListType, types.SetType)) and type(pattern) is type(actual):
            return self.unify(pattern.element, actual.element, b)
        if isinstance(pattern, types.ListType) and isinstance(actual, types.TupleType):
            return all(self.unify(pattern.element, f, b) for f in actual.elements)
        if isinstance(pattern, types.RecordType) and pattern.args and isinstance(actual, types.RecordType):
            if actual.decl is None and pattern.fields.keys() == actual.fields.keys():
                return all(self.unify(f.type, actual.fields[n].type, b) for n, f in pattern.fields.items())
            return pattern.decl is actual.decl and all(map(lambda w, f: self.unify(w, f, b), pattern.args, actual.args))
        if isinstance(pattern, types.RecordType) and pattern.args and isinstance(actual, types.TupleType):
            fields = [f.type for f in pattern.fields.values()]
            return len(fields) == len(actual.elements) and all(
                map(lambda w, f: self.unify(w, f, b), fields, actual.elements)
            )
        if isinstance(pattern, types.CallableType) and isinstance(actual, types.CallableType):
            return self._unify_callable(pattern, actual, b)
        return True  # the caller checks whether one converts to the other

    def _unify_callable(self, pattern: types.CallableType, actual: types.CallableType, b: Bindings) -> bool:
        if pattern.decl is actual.decl and pattern.args:
            return len(pattern.args) == len(actual.args) and all(
                map(lambda w, f: self.unify(w, f, b), pattern.args, actual.args)
            )
        if isinstance(pattern, _CALLABLES) and type(pattern) is type(actual):
            if len(pattern.params) < len(actual.params):
                return False
            return all(self.unify(w.type, f.type, b) for w, f in zip(pattern.params, actual.params, strict=False))
        return pattern is actual

    def same_shape(self, a: Type, b: Type) -> bool:
        """Returns True if the types are equal, or one is a literal's type that will be converted to the other."""
        literal = (types.InfIntType, types.AnyType)
        if a == b or isinstance(a, literal) or isinstance(b, literal):
            return True
        if isinstance(a, types.SerEnumType) or isinstance(b, types.SerEnumType):
            return types.underlying(a) == types.underlying(b)
        if isinstance(b, types.TupleType) or (isinstance(b, types.RecordType) and b.decl is None):
            return isinstance(a, (types.RecordType, types.TupleType, types.StackType, types.ListType))
        return False

    # --- parameters

    def parameters(self, params: list[ast.Param], *, declare: bool = True) -> list[Parameter]:
        """Resolves the types of parameters and declares them in the current scope."""
        resolved: list[Parameter] = []
        seen: dict[str, Span] = {}
        for p in params:
            if p.name in seen:
                self.fail(p.span, f"parameter '{p.name}' appears twice", [Note("first here", seen[p.name])])
            seen[p.name] = p.span
            p.type = self.resolve(p.type_ref)
            if isinstance(p.type, types.VoidType):
                self.fail(p.type_ref.span, f"parameter '{p.name}' cannot be void")
            if p.direction and isinstance(p.type, (types.InfIntType, types.StringType)):
                self.fail(
                    p.type_ref.span,
                    f"a parameter of type {p.type} is known at compile time: it cannot be '{p.direction}'",
                )
            if (
                p.direction in ("out", "inout")
                and (p.default is not None or p.annotation("optional"))
                and p.default is not None
            ):
                self.fail(p.span, f"'{p.direction}' parameter '{p.name}' cannot have a default value")
            if isinstance(p.type, (types.ParserType, types.ControlType, types.PackageType)) and not p.is_ctor:
                self.fail(
                    p.type_ref.span,
                    f"parameter '{p.name}' cannot be {p.type}: parsers and controls are constructor parameters",
                )
            if p.is_ctor and isinstance(p.type, (types.ParserType, types.ControlType)) and hasattr(p.type.decl, "ctor_params"):
                kind = "parser" if isinstance(p.type, types.ParserType) else "control"
                notes = [Note("declared here", p.type.decl.span)]
                self.fail(p.type_ref.span, f"{kind} {p.type} has a body: the parameter needs a {kind} type without", notes)
            if isinstance(p.type, types.ExternType) and p.type.type_params and not p.type.args:
                count = len(p.type.type_params)
                self.fail(p.type_ref.span, f"extern {p.type.name} needs {count} type arguments: {p.type.name}<...>")
            if (
                p.direction
                and isinstance(p.type, types.ExternType)
                and not p.type.args
                and p.type.name not in ("packet_in",)
            ):
                self.fail(p.span, f"parameter '{p.name}' of extern type {p.type} must be directionless")
            resolved.append(Parameter(p.name, p.direction, p.type, p.annotation("optional") is not None, p))
            if declare:
                self.scope.names[p.name] = p
        for p in params:
            if p.default is not None:
                p.default = self.coerce(self.expression(p.default), p.type)
                if p.default.const is None and isinstance(p.default, ast.Call) and p.default.kind != "constructor":
                    self.fail(p.default.span, f"the default value of parameter '{p.name}' must be known at compile time")
        return resolved

    # --- provided by the expression checker

    @abstractmethod
    def constant_int(self, expr: ast.Expr, subject: str) -> int: ...

    @abstractmethod
    def expression(self, expr: ast.Expr) -> ast.Expr: ...

    @abstractmethod
    def coerce(self, expr: ast.Expr, target: Type, subject: str = "") -> ast.Expr: ...




def _is_flat_struct(t: Type) -> bool:
    """Returns True for a struct that may be a header's field (§7.2.2): scalars and such structs only."""
    scalar = (BitType, types.BoolType, types.SerEnumType, TypeVar)
    return isinstance(t, types.StructType) and all(
        isinstance(types.strip_new(f.type), scalar)
        or _is_flat_struct(types.strip_new(f.type))
        or _is_flat_array(types.strip_new(f.type))
        for f in t.fields.values()
    )


def _is_flat_array(t: Type) -> bool:
    """Returns True for an array that may be a header's field: its elements may be one themselves."""
    scalar = (BitType, types.BoolType, types.SerEnumType, TypeVar)
    return isinstance(t, types.StackType) and (
        isinstance(types.strip_new(t.element), scalar)
        or _is_flat_struct(types.strip_new(t.element))
        or _is_flat_array(types.strip_new(t.element))
    )
