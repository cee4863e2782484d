"""Semantic types: the values of `Expr.type` after checking.

Typedefs have been followed, widths are integers, generic types are specialised, so back ends compare types with `==`.
Structural types (bit, tuple, stack, ...) compare by value. Nominal types (header, struct, enum, extern, ...) compare by
identity: the checker creates each of them, and each specialisation of a generic one, exactly once.

A type declared with `type bit<9> Port;` is a `NewType`; `underlying(t)` strips it where only the bits matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ina.p4.compiler import ast


class Type:
    """Base of all semantic types. `str(t)` is P4 syntax."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Unchecked(Type):
    """The type of a node that the checker has not reached, or in which it found an error; never in a checked tree."""

    def __str__(self) -> str:
        return "?"


@dataclass(frozen=True, slots=True)
class VoidType(Type):
    def __str__(self) -> str:
        return "void"


@dataclass(frozen=True, slots=True)
class BoolType(Type):
    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True, slots=True)
class InfIntType(Type):
    """The type `int`: arbitrary precision, compile time only (P4_16 v1.2.5 §7.1.6.5)."""

    def __str__(self) -> str:
        return "int"


@dataclass(frozen=True, slots=True)
class StringType(Type):
    def __str__(self) -> str:
        return "string"


@dataclass(frozen=True, slots=True)
class ErrorType(Type):
    """The one `error` type; `CheckedProgram.errors` lists its members in order of declaration."""

    def __str__(self) -> str:
        return "error"


@dataclass(frozen=True, slots=True)
class MatchKindType(Type):
    def __str__(self) -> str:
        return "match_kind"


@dataclass(frozen=True, slots=True)
class AnyType(Type):
    """The type argument `_`: inferred or irrelevant."""

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True, slots=True)
class BitType(Type):
    """The type `bit<width>` or, when `signed`, `int<width>` in two's complement."""

    width: int
    signed: bool = False

    def __str__(self) -> str:
        return f"{'int' if self.signed else 'bit'}<{self.width}>"


@dataclass(frozen=True, slots=True)
class VarbitType(Type):
    max_width: int

    def __str__(self) -> str:
        return f"varbit<{self.max_width}>"


@dataclass(frozen=True, slots=True)
class TypeVar(Type):
    """A type parameter, only seen inside generic declarations (extern prototypes, parser/control/package types)."""

    name: str
    owner: int = 0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TupleType(Type):
    """The type `tuple<...>`; also that of `{a, b}` where the context names no other."""

    elements: tuple[Type, ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.elements))}>"


@dataclass(frozen=True, slots=True)
class ListType(Type):
    """The type `list<T>`: compile time only."""

    element: Type

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True, slots=True)
class SetType(Type):
    """Type of masks, ranges, `_` and value sets: a set of `element` values."""

    element: Type

    def __str__(self) -> str:
        return f"set<{self.element}>"


@dataclass(frozen=True, slots=True)
class StackType(Type):
    """Header (or header union) stack `element[size]`."""

    element: Type
    size: int

    def __str__(self) -> str:
        return f"{self.element}[{self.size}]"


# --- nominal types: identity is equality
# ---------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class EnumType(Type):
    """The type of `enum E { A, B }`: no representation is defined; back ends may use the index in `members`."""

    name: str
    members: list[str]
    decl: ast.EnumDecl | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(eq=False, slots=True)
class SerEnumType(Type):
    """The type of `enum bit<16> E { A = 1 }`: `members` maps names to values of `underlying`, a BitType. Several names may
    share a value."""

    name: str
    underlying: BitType
    members: dict[str, int]
    decl: ast.EnumDecl | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(eq=False, slots=True)
class NewType(Type):
    """The type of `type base name;`: same values as `base`, converted only by explicit casts."""

    name: str
    base: Type
    decl: ast.TypedefDecl | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(eq=False, slots=True)
class Field:
    name: str
    type: Type
    decl: ast.StructField | None = field(default=None, repr=False)


@dataclass(eq=False, slots=True)
class RecordType(Type):
    """Named fields in order. `args` are the type arguments of a specialised generic declaration."""

    name: str
    fields: dict[str, Field] = field(default_factory=dict, repr=False)
    args: tuple[Type, ...] = ()
    decl: ast.RecordDecl | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.name}<{', '.join(map(str, self.args))}>" if self.args else self.name

    def padding(self) -> dict[str, int]:
        """Returns the bits behind a field, by its name: only headers have some."""
        return {}


class StructType(RecordType):
    """A `struct`; an anonymous one (`name == ""`, `decl is None`) types a struct initialiser that has no context."""

    __slots__ = ()

    def __str__(self) -> str:
        if self.name:
            return RecordType.__str__(self)
        return "struct { " + " ".join(f"{f.type} {f.name};" for f in self.fields.values()) + " }"


class HeaderType(RecordType):
    __slots__ = ()

    def padding(self) -> dict[str, int]:
        """Returns the bits behind a field, by its name, that fill a run of `@flexible` fields, or structs, up to whole bytes.
        (TNA section 8.2.2: the compiler may choose their places; here they keep their order.)"""
        whole = _is_flexible(self.decl)
        padding: dict[str, int] = {}
        at = 0
        last: Field | None = None  # the last field of the run
        for f in [*self.fields.values(), None]:
            flexible = f is not None and (whole or _is_flexible(f.decl) or _is_flexible(getattr(strip_new(f.type), "decl", None)))
            if not flexible and last is not None and at % 8:
                padding[last.name] = -at % 8
                at += -at % 8
            last = f if flexible else None
            if f is not None:
                at += fixed_width(f.type) or 0
        return padding


def _is_flexible(decl: object) -> bool:
    """Returns True if a header, struct or field is `@flexible`."""
    return decl is not None and hasattr(decl, "annotation") and decl.annotation("flexible") is not None


class UnionType(RecordType):
    """A `header_union`: at most one of its header fields is valid."""

    __slots__ = ()


@dataclass(eq=False, slots=True)
class Parameter:
    """A parameter with its type resolved. `direction` is "", "in", "out" or "inout" ("" = directionless).

    `optional` is True for `@optional` parameters; `decl.default` is the default value's expression, if any.
    """

    name: str
    direction: str
    type: Type
    optional: bool = False
    decl: ast.Param | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.direction} {self.type} {self.name}".strip()


@dataclass(eq=False, slots=True)
class Signature:
    """A callable: function, action, method, constructor, or the `apply` of a parser or control."""

    name: str
    type_params: tuple[TypeVar, ...]
    params: list[Parameter]
    returns: Type
    decl: Any = field(default=None, repr=False)
    abstract: bool = False

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.params))})"


@dataclass(eq=False, slots=True)
class CallableType(Type):
    """Base of the types of parsers, controls, packages and externs: `params` of `apply`, `ctor_params` of the
    constructor.

    `type_params` is empty unless the declaration is generic; `args` are the type arguments of a specialisation.
    """

    name: str
    type_params: tuple[TypeVar, ...] = ()
    args: tuple[Type, ...] = ()
    params: list[Parameter] = field(default_factory=list, repr=False)
    ctor_params: list[Parameter] = field(default_factory=list, repr=False)
    decl: Any = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.name}<{', '.join(map(str, self.args))}>" if self.args else self.name


class ParserType(CallableType):
    """The type of a parser. `decl` is a ParserDecl (body) or a ParserTypeDecl (only a type)."""

    __slots__ = ()


class ControlType(CallableType):
    """The type of a control. `decl` is a ControlDecl (body) or a ControlTypeDecl (only a type)."""

    __slots__ = ()


class PackageType(CallableType):
    __slots__ = ()


@dataclass(eq=False, slots=True)
class ExternType(CallableType):
    """An extern object type. `methods` and `ctors` may be overloaded: by number and by names of arguments."""

    methods: dict[str, list[Signature]] = field(default_factory=dict, repr=False)
    ctors: list[Signature] = field(default_factory=list, repr=False)


@dataclass(eq=False, slots=True)
class CalleeType(Type):
    """Type of an expression that can only be called: an action, a function, a method. Never a value."""

    signatures: list[Signature]

    def __str__(self) -> str:
        return str(self.signatures[0])


class ActionType(CalleeType):
    __slots__ = ()


@dataclass(eq=False, slots=True)
class TableType(Type):
    decl: ast.TableDecl

    def __str__(self) -> str:
        return f"table {self.decl.name}"


@dataclass(eq=False, slots=True)
class ApplyResultType(Type):
    """The type of `t.apply()`: has `hit`, `miss` (bool) and `action_run` (ActionRunType)."""

    table: ast.TableDecl

    def __str__(self) -> str:
        return f"apply_result({self.table.name})"


@dataclass(eq=False, slots=True)
class ActionRunType(Type):
    table: ast.TableDecl

    def __str__(self) -> str:
        return f"action_list({self.table.name})"


@dataclass(eq=False, slots=True)
class MetaType(Type):
    """Type of an expression that names a type (`E` in `E.A`)."""

    type: Type

    def __str__(self) -> str:
        return f"type {self.type}"


UNCHECKED, VOID, BOOL, INT, STRING, ERROR, MATCH_KIND, ANY = (
    Unchecked(), VoidType(), BoolType(), InfIntType(), StringType(), ErrorType(), MatchKindType(), AnyType(),
)  # fmt: skip


def underlying(t: Type) -> Type:
    """Returns `t` without NewType and without the name of a serialisable enum: the type of its bits."""
    while True:
        if isinstance(t, NewType):
            t = t.base
        elif isinstance(t, SerEnumType):
            t = t.underlying
        else:
            return t


def strip_new(t: Type) -> Type:
    """Returns `t` without NewType wrappers only."""
    while isinstance(t, NewType):
        t = t.base
    return t


def fixed_width(t: Type) -> int | None:
    """Returns the width in bits of a type that has one fixed width (bool counts as 1), else None. Structs, headers (with the
    padding of `@flexible` fields) and stacks: the sum."""
    t = underlying(t)
    if isinstance(t, BitType):
        return t.width
    if isinstance(t, BoolType):
        return 1
    if isinstance(t, StackType):
        width = fixed_width(t.element)
        return None if width is None else width * t.size
    if isinstance(t, UnionType):
        return None
    parts: Iterator[Type]
    if isinstance(t, RecordType):
        parts = (f.type for f in t.fields.values())
    elif isinstance(t, TupleType):
        parts = iter(t.elements)
    else:
        return None
    total = sum(t.padding().values()) if isinstance(t, HeaderType) else 0
    for part in parts:
        width = fixed_width(part)
        if width is None:
            return None
        total += width
    return total
