"""The syntax tree of P4_16 (v1.2.5, grammar of appendix H) and the checker's annotations on it.

The parser fills the fields of the constructors. The checker fills those marked `field(init=False)`; until then they
are UNCHECKED (types), None, empty or not there. Nodes compare by identity. Back ends (interpreter, lowering, P4Info)
read a *checked* tree, which keeps these promises:

**Expressions**
- `e.type`: a `types.Type`, typedefs followed, widths known. InfIntType remains only on sub-expressions whose enclosing
  expression has a `const`, and on compile-time-only values: constructor arguments, list elements of `list<int>`,
  arguments of generic externs whose type parameter nothing else binds, as `0` in v1model's `hash(r, algo, 0, data, 8)`.
- `e.const`: the value if it is constant at compile time, else None: int for bit/int (signed ones in two's complement
  range, so negative ints are possible; wrapped to the width), bool, str for string literals, the member's name (str)
  for enum, error and match_kind, the underlying int for serialisable enums, list of consts for
  tuples/lists, dict name -> const for structs and headers. If it is not None, passes need not visit the tree below `e`.
- Implicit conversions are explicit: the checker wraps the operand in `Cast(implicit=True)`, so both sides of an
  arithmetic operator, an assignment, an argument and its parameter, ... have the same type. Exceptions, as in the
  language: shift amounts keep their own type, `++` operands have their own widths.
- `Name.decl`: the declaration it refers to (Param, VarDecl, ConstDecl, Instantiation, ActionDecl, TableDecl,
  FunctionDecl, ParserState, ValueSetDecl, a type declaration, ...). A ForIn's or ForC's variable is a VarDecl too.
- `Member.kind`, the meaning of the dot:
    'field'         field of a struct, header or union: `base` is an expression of that type
    'enum'          member of an enum, serialisable enum, error or match_kind: `const` is set, `base` is a type name
    'hit' 'miss'    bool, 'action_run': ActionRunType; `base` is the Call of kind 'table_apply' (evaluate it once)
    'next' 'last' 'lastIndex' 'size'    of a header stack
    'method'        only as `Call.callee`; see Call
- `Index`: `base` is a stack (type StackType; index any bit or int type), a tuple (index const), or a list.
- `Slice`: `hi_bit` and `lo_bit` are the evaluated bounds. A slice may be an lvalue; so may a Member or an Index of one.
- `StructInit`/`ListExpr`: typed by their context: `type` is a StructType, HeaderType, UnionType, TupleType, StackType
  or ListType and `values` holds one expression per field/element in the order of declaration, `...` filled in with
  default values. Building a HeaderType makes it valid. `InvalidHeader` (`{#}`) makes an invalid header or union.
- `Dots` (`...`) alone is the default value of its type (`const` is set where the type has a constant value; headers:
  invalid).
- `Cast`: `operand` to `type`. From/to pairs: bit<->bit of other width, bit<->int, bool<->bit<1>, serialisable enum <->
  its bits, NewType <-> its base, ListExpr/StructInit to a record (the checker then types the operand itself as the
  target type).
- `Unary.op`: `- + ~ !`. `Binary.op`: `+ - * / % |+| |-| << >> & | ^ ++ == != < <= > >= && ||`. `/` and `%` only occur
  on constants or unsigned. `== !=` also compare headers, structs, unions, tuples and stacks field by field.
- Set expressions in keysets (`SelectCase.keys`, `TableEntry.keys`): an ordinary expression (exact value), `Mask(value,
  mask)`, `Range(lo, hi)`, `DontCare` (`_` or `default`), `Name` with `decl` a ValueSetDecl. Leaves have the key's type.
- `Call.kind`:
    'action'           direct call of an action; directionless parameters get arguments like the others
    'function'         FunctionDecl with a body (a generic one: `decl` is the specialised copy)
    'extern_function'  ExternFunctionDecl (v1model's `mark_to_drop`, `hash`, `verify`, `static_assert`, ...)
    'method'           method of an extern object: `receiver` names the instance (Name whose decl is an Instantiation
                       or a Param), `method` is the name, `decl` the ExternMethod (or the FunctionDecl of an abstract method's
                       implementation)
    'packet_in'        extract, lookahead, advance, length on a packet_in; `receiver`, `method`
    'packet_out'       emit on a packet_out
    'parser_apply' 'control_apply'  `receiver` names the instance; `decl` is the ParserDecl/ControlDecl
    'table_apply'      `decl` the TableDecl; `type` is ApplyResultType
    'header_method'    isValid, setValid, setInvalid on a header, isValid on a union; `receiver` is an lvalue
    'stack_method'     push_front, pop_front on a stack (`args[0].const` is the count)
    'size_method'      minSizeInBits, minSizeInBytes, maxSizeInBits, maxSizeInBytes: `const` is set unless the size of a
                       value with varbit fields is asked for (there is none: min/max are static)
    'constructor'      nameless instantiation (only in constructor arguments); `type` is the instance's type
  `Call.args` has exactly one entry per entry of `Call.params` (Parameters with type variables substituted): named
  arguments put in order, defaults filled in; None for `_` given to an out parameter and for omitted `@optional`
  parameters. Arguments of out/inout parameters are lvalues. `Call.type_bindings` maps type parameter names to Types.

**Statements**
- `Assign.op` is "=" or a compound operator without its "=" ("+", "|+|", "<<", ...): with "+" it means target = target +
  value, the target evaluated once.
- `T.apply(...)` and `T<..>.apply(...)` on a parser or control type (direct instantiation) has become an
  `Instantiation` in the enclosing declaration's `locals` and an ordinary 'parser_apply'/'control_apply' call.
- `Switch.subject.type` is an ActionRunType (labels are Names: `SwitchCase.action` is the ActionRef) or a value type
  (labels have its type, and `const`). `SwitchCase.label` None is `default`; `body` None falls through to the next case
  (the last one: does nothing).
- `ForIn.collection` is a `Range` (`hi` inclusive; empty when lo > hi), a ListExpr, a stack or a list.
- `VarDecl.type`, `ConstDecl.type`, `Param.type`: resolved type. `ConstDecl.value.const` is set.
- `Return.value` has been cast to the function's return type.

**Declarations**
- `full_name` on instances, tables, actions, value sets, states of instances does not exist: hierarchical control-plane
  names belong to instances (`Instance` in `checked_program.py`); `cp_name` is the *local* control-plane name: the argument of
  `@name`, or the declared name. A leading "." makes it absolute.
- `ParserDecl.type`/`ControlDecl.type` is a ParserType/ControlType; `states` maps names to ParserState. Names in a
  control/parser resolve to `Param`s for both `apply` and constructor parameters (`Param.is_ctor`); constructor
  parameters have no `const`: their values are in the Instance.
- `Transition.target`/`SelectCase.target`: ParserState, or None with `target_name` 'accept' or 'reject'.
- `TableDecl`: `keys`, `actions`, `default_action` (`default_ref`, or NoAction if not given), `const_default`, `entries`
  (`const_entries`), `size` (int, or None if absent or built from
  constructor parameters: then `size_expr`), `properties` (every other one: Property by name, `value` checked).
  `ActionRef.decl` is the ActionDecl, `args` one expression per parameter of the action: in `actions` None for the
  directionless ones (the control plane provides those), in `default_action` and `entries` all parameters have arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ina.p4.compiler.errors import Span

MAX_DEPTH = 2000
"""Deepest nesting of expressions and statements that the parser accepts (operator chains count): a recursive pass over the
tree needs at most that many levels."""


class Type:
    """Base of all semantic types (types.py). `str(t)` is P4 syntax."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Unchecked(Type):
    """The type of a node that the checker has not reached, or in which it found an error; never in a checked tree."""

    def __str__(self) -> str:
        return "?"


UNCHECKED = Unchecked()


@dataclass(eq=False, slots=True)
class Node:
    span: Span


@dataclass(eq=False, slots=True)
class Annotated(Node):
    annotations: list[Annotation] = field(default_factory=list, kw_only=True)

    def annotation(self, name: str) -> Annotation | None:
        return next((a for a in self.annotations if a.name == name), None)


@dataclass(eq=False, slots=True)
class Parameter:
    """A parameter with its type resolved. `direction` is "", "in", "out" or "inout" ("" = directionless).

    `optional` is True for `@optional` parameters; `decl.default` is the default value's expression, if any.
    """

    name: str
    direction: str
    type: Type
    optional: bool = False
    decl: Param | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.direction} {self.type} {self.name}".strip()


# --- annotations ------------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Annotation(Node):
    """An annotation `@name`, `@name(body)` or `@name[body]`.

    Unstructured: `tokens` is the text of the body's tokens. Structured: `exprs` or `pairs` (checked constants). `(...)` bodies
    that parse as a list of expressions have `exprs` as well as `tokens`; those of `@ina_...(...)` have `pairs`.
    """

    name: str
    tokens: list[str] = field(default_factory=list)
    exprs: list[Expr] = field(default_factory=list)
    pairs: dict[str, Expr] = field(default_factory=dict)
    structured: bool = False

    @property
    def string(self) -> str | None:
        """Returns the body if it is one string literal, as in `@name("x")`, else None."""
        if len(self.exprs) == 1 and isinstance(self.exprs[0], StringLiteral):
            return self.exprs[0].value
        return None


# --- types as written -------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class TypeRef(Node):
    """A type as written. `resolved` is the semantic type."""

    resolved: Type = field(default=UNCHECKED, init=False, repr=False)


@dataclass(eq=False, slots=True)
class BaseTypeRef(TypeRef):
    """A base type. `kind`: bool, error, match_kind, string, void, int, bit, varbit, `_`. `width` None for `bit` (= bit<1>) and
    for `int`."""

    kind: str
    width: Expr | None = None


@dataclass(eq=False, slots=True)
class NamedTypeRef(TypeRef):
    name: str
    args: list[TypeRef] = field(default_factory=list)
    absolute: bool = False


@dataclass(eq=False, slots=True)
class StackTypeRef(TypeRef):
    element: TypeRef
    size: Expr


@dataclass(eq=False, slots=True)
class TupleTypeRef(TypeRef):
    elements: list[TypeRef]


@dataclass(eq=False, slots=True)
class ListTypeRef(TypeRef):
    element: TypeRef


# --- expressions ------------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Expr(Node):
    type: Type = field(default=UNCHECKED, init=False, repr=False)
    const: Any = field(default=None, init=False, repr=False)


@dataclass(eq=False, slots=True)
class IntLiteral(Expr):
    """An integer literal. `width` None: one of infinite precision."""

    value: int
    width: int | None = None
    signed: bool = False


@dataclass(eq=False, slots=True)
class BoolLiteral(Expr):
    value: bool


@dataclass(eq=False, slots=True)
class StringLiteral(Expr):
    value: str


@dataclass(eq=False, slots=True)
class Name(Expr):
    """A name. `absolute`: written with a leading dot (top-level scope). `this` is a Name too."""

    name: str
    absolute: bool = False
    decl: Any = field(default=None, init=False, repr=False)


@dataclass(eq=False, slots=True)
class TypeExpr(Expr):
    """A type in the place of an expression: `error.X`, `bit<8>` as the target of `.minSizeInBits()`, `S<bit<8>>`."""

    ref: TypeRef


@dataclass(eq=False, slots=True)
class Member(Expr):
    base: Expr
    member: str
    kind: str | None = field(default=None, init=False)


@dataclass(eq=False, slots=True)
class Index(Expr):
    base: Expr
    index: Expr


@dataclass(eq=False, slots=True)
class Slice(Expr):
    """A slice `base[hi:lo]`; with `plus`, `base[hi +: lo]`: `lo` bits from bit `hi` upwards."""

    base: Expr
    hi: Expr
    lo: Expr
    plus: bool = False
    hi_bit: int = field(default=0, init=False)
    lo_bit: int = field(default=0, init=False)


@dataclass(eq=False, slots=True)
class Unary(Expr):
    op: str
    operand: Expr


@dataclass(eq=False, slots=True)
class Binary(Expr):
    op: str
    left: Expr
    right: Expr


@dataclass(eq=False, slots=True)
class Ternary(Expr):
    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(eq=False, slots=True)
class Cast(Expr):
    """A cast. `target` is None for casts that the checker inserted (`implicit`)."""

    target: TypeRef | None
    operand: Expr
    implicit: bool = False


@dataclass(eq=False, slots=True)
class Mask(Expr):
    """A set `value &&& mask`."""

    value: Expr
    mask: Expr


@dataclass(eq=False, slots=True)
class Range(Expr):
    """A set `lo .. hi`, both inclusive."""

    lo: Expr
    hi: Expr


@dataclass(eq=False, slots=True)
class DontCare(Expr):
    """The set `_`, and `default` in a keyset."""


@dataclass(eq=False, slots=True)
class Dots(Expr):
    """Default values, `...`."""


@dataclass(eq=False, slots=True)
class InvalidHeader(Expr):
    """An invalid header, `{#}`."""


@dataclass(eq=False, slots=True)
class ListExpr(Expr):
    """A list `{a, b}`; `dots`: a trailing `...`. In keysets: a tuple of set expressions."""

    items: list[Expr]
    dots: bool = False
    values: list[Expr] = field(default_factory=list, init=False, repr=False)


@dataclass(eq=False, slots=True)
class StructInit(Expr):
    """An initialiser `{f = a, g = b}`; `dots`: a trailing `...`."""

    fields: list[tuple[str, Expr]]
    dots: bool = False
    values: list[Expr] = field(default_factory=list, init=False, repr=False)


@dataclass(eq=False, slots=True)
class Argument(Node):
    """An argument of a call. `value` is None for `_`."""

    name: str | None
    value: Expr | None


@dataclass(eq=False, slots=True)
class Call(Expr):
    """A function, method, `apply` or constructor call; see the module docstring for the annotations."""

    callee: Expr
    type_args: list[TypeRef]
    arguments: list[Argument]
    kind: str | None = field(default=None, init=False)
    decl: Any = field(default=None, init=False, repr=False)
    receiver: Expr | None = field(default=None, init=False, repr=False)
    method: str = field(default="", init=False)
    params: list[Parameter] = field(default_factory=list, init=False, repr=False)
    args: list[Expr | None] = field(default_factory=list, init=False, repr=False)
    type_bindings: dict[str, Type] = field(default_factory=dict, init=False, repr=False)

    @property
    def on(self) -> Expr:
        """Returns the receiver of a call that has one."""
        assert self.receiver is not None
        return self.receiver

    def given(self, i: int) -> Expr:
        """Returns the argument of parameter `i`, which the callee does not allow to be omitted or `_`."""
        arg = self.args[i]
        assert arg is not None
        return arg

    def named(self) -> dict[str, Expr]:
        """Returns the arguments that are given, by the names of their parameters."""
        return {p.name: a for p, a in zip(self.params, self.args, strict=True) if a is not None}


# --- statements -------------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Statement(Annotated):
    """A statement; blocks and loops may have annotations."""


@dataclass(eq=False, slots=True)
class Assign(Statement):
    target: Expr
    op: str
    value: Expr


@dataclass(eq=False, slots=True)
class CallStatement(Statement):
    call: Call


@dataclass(eq=False, slots=True)
class EmptyStatement(Statement):
    pass


@dataclass(eq=False, slots=True)
class Block(Statement):
    """A block. `statements` may contain declarations: VarDecl, ConstDecl, Instantiation (parser-local)."""

    statements: list[Node]


@dataclass(eq=False, slots=True)
class If(Statement):
    condition: Expr
    then: Statement
    otherwise: Statement | None


@dataclass(eq=False, slots=True)
class SwitchCase(Node):
    label: Expr | None
    body: Block | None
    action: ActionRef | None = field(default=None, init=False, repr=False)


@dataclass(eq=False, slots=True)
class Switch(Statement):
    subject: Expr
    cases: list[SwitchCase]


@dataclass(eq=False, slots=True)
class ForC(Statement):
    """A loop `for (init; condition; update) body`; `init` has VarDecls and statements."""

    init: list[Node]
    condition: Expr
    update: list[Statement]
    body: Statement


@dataclass(eq=False, slots=True)
class ForIn(Statement):
    """A loop `for (type x in collection)`."""

    target: VarDecl
    collection: Expr
    body: Statement


@dataclass(eq=False, slots=True)
class Break(Statement):
    pass


@dataclass(eq=False, slots=True)
class Continue(Statement):
    pass


@dataclass(eq=False, slots=True)
class Return(Statement):
    value: Expr | None


@dataclass(eq=False, slots=True)
class Exit(Statement):
    pass


# --- declarations -----------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Declaration(Annotated):
    """A declaration with a name. `span` is the name's place."""

    name: str

    @property
    def cp_name(self) -> str:
        """Returns the local control-plane name (P4_16 v1.2.5 §18.3.2)."""
        annotation = self.annotation("name")
        return (annotation.string if annotation else None) or self.name


@dataclass(eq=False, slots=True)
class TypeDeclaration(Declaration):
    """A declaration of a type. `type` is None while the declaration is not checked, and of generic records."""

    type: Type | None = field(default=None, init=False, repr=False)


@dataclass(eq=False, slots=True)
class TypedDeclaration(Declaration):
    """A declaration of something that has a type."""

    type: Type = field(default=UNCHECKED, init=False, repr=False)


@dataclass(eq=False, slots=True)
class Param(TypedDeclaration):
    direction: str
    type_ref: TypeRef
    default: Expr | None = None
    is_ctor: bool = False


@dataclass(eq=False, slots=True)
class VarDecl(TypedDeclaration):
    type_ref: TypeRef
    init: Expr | None


@dataclass(eq=False, slots=True)
class ConstDecl(TypedDeclaration):
    type_ref: TypeRef
    value: Expr


@dataclass(eq=False, slots=True)
class Instantiation(TypedDeclaration):
    """An instance `T<..>(args) name;`, with `body` = `{ abstract method implementations, nested instantiations }`.

    `args`: constructor arguments bound to `params` as in Call.
    """

    type_ref: TypeRef
    arguments: list[Argument]
    body: list[Node] | None = None
    params: list[Parameter] = field(default_factory=list, init=False, repr=False)
    args: list[Expr | None] = field(default_factory=list, init=False, repr=False)


@dataclass(eq=False, slots=True)
class ActionDecl(Declaration):
    params: list[Param]
    body: Block


@dataclass(eq=False, slots=True)
class ExternFunctionDecl(Declaration):
    return_ref: TypeRef
    type_params: list[Name]
    params: list[Param]
    return_type: Type = field(default=UNCHECKED, init=False, repr=False)


@dataclass(eq=False, slots=True)
class FunctionDecl(Declaration):
    """A function with a body, or an implementation of an abstract method."""

    return_ref: TypeRef
    type_params: list[Name]
    params: list[Param]
    body: Block
    return_type: Type = field(default=UNCHECKED, init=False, repr=False)


@dataclass(eq=False, slots=True)
class ExternMethod(Declaration):
    """A method; a constructor when `return_ref` is None."""

    return_ref: TypeRef | None
    type_params: list[Name]
    params: list[Param]
    abstract: bool = False


@dataclass(eq=False, slots=True)
class ExternDecl(TypeDeclaration):
    type_params: list[Name]
    methods: list[ExternMethod]


@dataclass(eq=False, slots=True)
class StructField(Declaration):
    type_ref: TypeRef


@dataclass(eq=False, slots=True)
class RecordDecl(TypeDeclaration):
    """A record. `kind`: "struct", "header" or "header_union". `type` is None while the declaration is generic."""

    kind: str
    type_params: list[Name]
    fields: list[StructField]


@dataclass(eq=False, slots=True)
class EnumMember(Declaration):
    value: Expr | None = None


@dataclass(eq=False, slots=True)
class EnumDecl(TypeDeclaration):
    """An enum; serialisable when `underlying` is not None."""

    underlying: TypeRef | None
    members: list[EnumMember]


@dataclass(eq=False, slots=True)
class ErrorDecl(Node):
    members: list[EnumMember]


@dataclass(eq=False, slots=True)
class MatchKindDecl(Node):
    members: list[EnumMember]


@dataclass(eq=False, slots=True)
class TypedefDecl(TypeDeclaration):
    """A `typedef` or, when `is_new`, `type`. The aliased type is a TypeRef or an inline RecordDecl/EnumDecl."""

    target: TypeRef | RecordDecl | EnumDecl
    is_new: bool = False


@dataclass(eq=False, slots=True)
class ValueSetDecl(TypedDeclaration):
    """A value set `value_set<element>(size) name;`."""

    element_ref: TypeRef
    size: Expr


# --- parsers ----------------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class BlockDeclaration(TypeDeclaration):
    """A parser, control or package, or the type of one."""

    type_params: list[Name]
    params: list[Param]


@dataclass(eq=False, slots=True)
class ParserTypeDecl(BlockDeclaration):
    """A parser type without a body: `parser P<H>(packet_in p, out H h);`."""


@dataclass(eq=False, slots=True)
class SelectCase(Node):
    """A case of a select. `keys` has one set expression per select key (a lone `default`/`_` is expanded to one DontCare per
    key)."""

    keys: list[Expr]
    target_name: str
    target: ParserState | None = field(default=None, init=False, repr=False)


@dataclass(eq=False, slots=True)
class Transition(Node):
    """A transition. A direct one has `target_name`; a select has `keys` and `cases`. Leaving all cases unmatched:
    error.NoMatch."""

    target_name: str | None
    keys: list[Expr] = field(default_factory=list)
    cases: list[SelectCase] = field(default_factory=list)
    target: ParserState | None = field(default=None, init=False, repr=False)

    @property
    def branches(self) -> list[SelectCase] | list[Transition]:
        """Returns the nodes that have a target: the cases of a select, or the direct transition."""
        return self.cases or [self]


@dataclass(eq=False, slots=True)
class ParserState(Declaration):
    """A state. `transition` None (written without one) means reject, as the language defines."""

    statements: list[Node]
    transition: Transition | None


@dataclass(eq=False, slots=True)
class ParserDecl(BlockDeclaration):
    ctor_params: list[Param]
    locals: list[Node]
    state_list: list[ParserState]
    states: dict[str, ParserState] = field(default_factory=dict, init=False, repr=False)


# --- controls and tables ----------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class ControlTypeDecl(BlockDeclaration):
    """A control type without a body."""


@dataclass(eq=False, slots=True)
class ControlDecl(BlockDeclaration):
    """A control. `locals`: ConstDecl, VarDecl, Instantiation, ActionDecl, TableDecl in order. `body` is the apply block."""

    ctor_params: list[Param]
    locals: list[Node]
    body: Block


@dataclass(eq=False, slots=True)
class TableKey(Annotated):
    """A key of a table. `match_kind` is checked against the declared ones."""

    expr: Expr
    match_kind: str

@dataclass(eq=False, slots=True)
class ActionRef(Annotated):
    """An action `name` or `name(arguments)` in a table; `absolute`: written with a leading dot."""

    name: str
    arguments: list[Argument] | None
    absolute: bool = False
    decl: ActionDecl = field(init=False, repr=False)
    params: list[Parameter] = field(default_factory=list, init=False, repr=False)
    args: list[Expr | None] = field(default_factory=list, init=False, repr=False)


@dataclass(eq=False, slots=True)
class TableEntry(Annotated):
    """An entry in the program. `is_const`: it is immutable. `priority` is written or computed (`priority_delta`) if the table
    has a key that is not exact or lpm, else None; larger ones win unless the property `largest_priority_wins` is false.

    `keys` has one set expression per table key.
    """

    keys: list[Expr]
    action: ActionRef
    is_const: bool = False
    priority_expr: Expr | None = None
    priority: int | None = field(default=None, init=False)


@dataclass(eq=False, slots=True)
class Property(Annotated):
    """A table property other than those above, `name = value`."""

    name: str
    value: Expr
    is_const: bool = False


@dataclass(eq=False, slots=True)
class TableDecl(TypedDeclaration):
    keys: list[TableKey] = field(default_factory=list)
    actions: list[ActionRef] = field(default_factory=list)
    entries: list[TableEntry] = field(default_factory=list)
    const_entries: bool = False
    default_ref: ActionRef | None = None
    const_default: bool = False
    size_expr: Expr | None = None
    properties: dict[str, Property] = field(default_factory=dict)
    default_action: ActionRef = field(init=False, repr=False)
    size: int | None = field(default=None, init=False)


@dataclass(eq=False, slots=True)
class PackageDecl(BlockDeclaration):
    """A package type."""


# --- programs ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Program:
    """A translation unit as parsed."""

    filename: str
    declarations: list[Node]


def source_text(expr: Expr) -> str:
    """Returns `expr` as P4 text, canonical spacing: control-plane names of table keys without `@name` (§18.3.2)."""
    match expr:
        case IntLiteral():
            prefix = "" if expr.width is None else f"{expr.width}{'s' if expr.signed else 'w'}"
            return f"{prefix}{expr.value}"
        case BoolLiteral():
            return "true" if expr.value else "false"
        case Name():
            return ("." if expr.absolute else "") + expr.name
        case Member():
            return f"{source_text(expr.base)}.{expr.member}"
        case Index():
            index = expr.index.const if isinstance(expr.index.const, int) else source_text(expr.index)
            return f"{source_text(expr.base)}[{index}]"
        case Slice():
            colon = "+:" if expr.plus else ":"
            return f"{source_text(expr.base)}[{source_text(expr.hi)}{colon}{source_text(expr.lo)}]"
        case Unary():
            return f"{expr.op}{source_text(expr.operand)}"
        case Binary():
            return f"{source_text(expr.left)} {expr.op} {source_text(expr.right)}"
        case Mask():
            return f"{source_text(expr.value)} &&& {source_text(expr.mask)}"
        case Cast():
            return source_text(expr.operand)
        case Call(callee=Member(member="isValid", base=header)):  # p4c's name for it, which P4Runtime clients use
            return f"{source_text(header)}.$valid$"
        case Range():
            return f"{source_text(expr.lo)} .. {source_text(expr.hi)}"
        case Ternary():
            return f"{source_text(expr.condition)} ? {source_text(expr.then)} : {source_text(expr.otherwise)}"
        case StringLiteral():
            return f'"{expr.value}"'
        case ListExpr():
            return "{" + ", ".join(map(source_text, expr.items)) + "}"
        case StructInit():
            return "{" + ", ".join(f"{name} = {source_text(value)}" for name, value in expr.fields) + "}"
        case InvalidHeader():
            return "{#}"
        case Dots():
            return "..."
        case DontCare():
            return "_"
        case TypeExpr():
            return str(expr.ref.resolved)
        case Call():
            arguments = ", ".join("_" if a.value is None else source_text(a.value) for a in expr.arguments)
            return f"{source_text(expr.callee)}({arguments})"
        case _:
            raise AssertionError(f"unknown expression {type(expr).__name__}")
