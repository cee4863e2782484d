"""Semantic types: the values of `Expr.type` after checking.

Typedefs have been followed, widths are integers, generic types are specialised, so back ends compare types with `==`.
Structural types (bit, tuple, stack, ...) compare by value. Nominal types (header, struct, enum, extern, ...) compare by
identity: the checker creates each of them, and each specialisation of a generic one, exactly once.

A type declared with `type bit<9> Port;` is a `NewType`; `underlying(t)` strips it where only the bits matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ina.p4.compiler import ast
from ina.p4.compiler.ast import Parameter as Parameter
from ina.p4.compiler.ast import Type as Type


@dataclass(frozen=True, slots=True)
class PlainType(Type):
    """A type of one word."""

    text: ClassVar[str]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class VoidType(PlainType):
    text = "void"


@dataclass(frozen=True, slots=True)
class BoolType(PlainType):
    text = "bool"


@dataclass(frozen=True, slots=True)
class InfIntType(PlainType):
    """The type `int`: arbitrary precision, compile time only (P4_16 v1.2.5 §7.1.6.5)."""

    text = "int"


@dataclass(frozen=True, slots=True)
class StringType(PlainType):
    text = "string"


@dataclass(frozen=True, slots=True)
class ErrorType(PlainType):
    """The one `error` type; `CheckedProgram.errors` lists its members in order of declaration."""

    text = "error"


@dataclass(frozen=True, slots=True)
class MatchKindType(PlainType):
    text = "match_kind"


@dataclass(frozen=True, slots=True)
class AnyType(PlainType):
    """The type argument `_`: inferred or irrelevant."""

    text = "_"


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
class ElementsType(Type):
    """A type of any number of elements."""

    element: Type
    text: ClassVar[str]

    def __str__(self) -> str:
        return f"{self.text}<{self.element}>"


@dataclass(frozen=True, slots=True)
class ListType(ElementsType):
    """The type `list<T>`: compile time only."""

    text = "list"


@dataclass(frozen=True, slots=True)
class SetType(ElementsType):
    """Type of masks, ranges, `_` and value sets: a set of `element` values."""

    text = "set"


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
class NamedType(Type):
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(eq=False, slots=True)
class EnumType(NamedType):
    """The type of `enum E { A, B }`: no representation is defined; back ends may use the index in `members`."""

    members: list[str]
    decl: ast.EnumDecl | None = field(default=None, repr=False)


@dataclass(eq=False, slots=True)
class SerEnumType(NamedType):
    """The type of `enum bit<16> E { A = 1 }`: `members` maps names to values of `underlying`, a BitType. Several names may
    share a value."""

    underlying: BitType
    members: dict[str, int]
    decl: ast.EnumDecl | None = field(default=None, repr=False)


@dataclass(eq=False, slots=True)
class NewType(NamedType):
    """The type of `type base name;`: same values as `base`, converted only by explicit casts."""

    base: Type
    decl: ast.TypedefDecl | None = field(default=None, repr=False)


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
        """Returns the bits behind a field, by its name, that fill a run of `@flexible` fields up to whole bytes; a struct or an
        array counts as one if anything in it is flexible. (TNA section 8.2.2: the compiler may choose their places; here they
        keep their order.)"""
        whole = _is_flexible(self.decl)
        padding: dict[str, int] = {}
        at = 0
        last: Field | None = None  # the last field of the run
        for f in [*self.fields.values(), None]:
            flexible = f is not None and (whole or _is_flexible(f.decl) or _has_flexible(f.type))
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


def _has_flexible(t: Type) -> bool:
    """Returns True for a struct, or an array of them, that is `@flexible` or has such a field."""
    t = strip_new(t)
    if isinstance(t, StackType):
        return _has_flexible(t.element)
    if not isinstance(t, RecordType):
        return False
    return _is_flexible(t.decl) or any(_is_flexible(f.decl) or _has_flexible(f.type) for f in t.fields.values())


class UnionType(RecordType):
    """A `header_union`: at most one of its header fields is valid."""

    __slots__ = ()


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


VOID, BOOL, INT, STRING, ERROR, MATCH_KIND, ANY = (
    VoidType(), BoolType(), InfIntType(), StringType(), ErrorType(), MatchKindType(), AnyType(),
)


def variables_of(t: Type | None) -> set[TypeVar]:
    """Returns the type variables that occur in `t`."""
    if isinstance(t, TypeVar):
        return {t}
    parts = [*getattr(t, "args", ()), *getattr(t, "elements", ())]
    if isinstance(t, (StackType, ElementsType)):
        parts = [t.element]
    elif isinstance(t, MetaType):
        parts = [t.type]
    return {v for part in parts for v in variables_of(part)}


def zero(t: Type) -> int | str | None:
    """Returns the default value of a scalar type (§7.3); None for others."""
    match strip_new(t):
        case BitType() | InfIntType() | SerEnumType():
            return 0
        case BoolType():
            return False
        case ErrorType():
            return "NoError"
        case EnumType(members=members):
            return members[0]
        case StringType():
            return ""
    return None


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


def size_in_bits(t: Type, *, largest: bool | None) -> int | None:
    """Returns the least or largest number of bits that a `t` has on the wire; None for types that never are on a wire.

    A varbit has 0 bits to its maximum, a header union as many as its smallest to its largest header. `largest` None: the one
    size of a type, which neither of them has.
    """
    t = underlying(t)
    match t:
        case BitType():
            return t.width
        case BoolType():
            return 1
        case VarbitType():
            return None if largest is None else t.max_width if largest else 0
        case StackType():
            element = size_in_bits(t.element, largest=largest)
            return None if element is None else element * t.size
        case TupleType():
            parts = [size_in_bits(p, largest=largest) for p in t.elements]
        case RecordType():
            parts = [size_in_bits(f.type, largest=largest) for f in t.fields.values()]
        case _:
            return None
    sizes = [p for p in parts if p is not None]
    if len(sizes) != len(parts):
        return None
    if isinstance(t, UnionType):
        return None if largest is None else (max if largest else min)(sizes, default=0)
    return sum(sizes) + (sum(t.padding().values()) if isinstance(t, HeaderType) else 0)


def fixed_width(t: Type) -> int | None:
    """Returns the width in bits of a type that has one fixed width (bool counts as 1), else None. Structs, headers (with the
    padding of `@flexible` fields) and stacks: the sum."""
    return size_in_bits(t, largest=None)
