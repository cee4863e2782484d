"""Expressions: names, members, keysets, lvalues (P4_16 v1.2.5 §8).

Operators are in `operators.py`, conversions in `conversions.py`, calls in `calls.py`.
`expression(e)` returns the checked expression, which may be another node than `e`: callers store the result.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import NoReturn

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.const import fold_slice, wrap
from ina.p4.compiler.check.conversions import ConversionChecker
from ina.p4.compiler.check.operators import OperatorChecker
from ina.p4.compiler.check.scope import span_of, suggest
from ina.p4.compiler.check.types import Cascade
from ina.p4.compiler.errors import Note, Span
from ina.p4.compiler.types import BitType, Type

STACK_MEMBERS = ("next", "last", "lastIndex", "size", "push_front", "pop_front")
HEADER_METHODS = ("isValid", "setValid", "setInvalid")
SIZE_METHODS = ("minSizeInBits", "minSizeInBytes", "maxSizeInBits", "maxSizeInBytes")


def member_span(e: ast.Member) -> Span:
    """Returns the place of the member's own name."""
    s = e.span
    return Span(s.file, s.line, s.col + s.length - len(e.member), len(e.member)) if s.length > len(e.member) else s


class ExpressionChecker(OperatorChecker):
    def expression(self, e: ast.Expr) -> ast.Expr:
        if not isinstance(e.type, types.Unchecked):
            return e
        return _CHECKS[type(e)](self, e)

    def value(self, e: ast.Expr, expected: str = "a value") -> ast.Expr:
        """Checks an expression that must have a value: not a type, an action, a table, an instance."""
        e = self.expression(e)
        if isinstance(e.type, (types.MetaType, types.CalleeType, types.TableType, types.VoidType, types.SetType)):
            self.fail(e.span, f"expected {expected}, found {_describe(e)}")
        return e

    def constant_int(self, e: ast.Expr, subject: str) -> int:
        checked = self.expression(e)
        t = types.underlying(checked.type)
        if (
            not isinstance(checked.const, int)
            or isinstance(checked.const, bool)
            or not isinstance(t, (BitType, types.InfIntType))
        ):
            self.fail(e.span, f"{subject} must be an integer known at compile time", self._why_not_constant(checked))
        return checked.const

    def _why_not_constant(self, e: ast.Expr) -> list[Note | str]:
        if isinstance(e, ast.Name) and isinstance(e.decl, (ast.VarDecl, ast.Param)):
            kind = "variable" if isinstance(e.decl, ast.VarDecl) else "parameter"
            return [Note(f"'{e.name}' is a {kind}", e.decl.span)]
        return []

    # --- leaves

    def _int(self, e: ast.IntLiteral) -> ast.Expr:
        if e.width is None:
            e.type, e.const = types.INT, e.value
            return e
        e.type = BitType(e.width, e.signed)
        if e.signed and not e.width:
            self.fail(e.span, "int<0> does not exist")
        e.const = wrap(e.value, e.type)
        if not 0 <= e.value < 1 << e.width:
            self.warn(e.span, f"{e.value} does not fit into {e.type}: it is cut to {e.const}")
        e.value = e.const
        return e

    def _bool(self, e: ast.BoolLiteral) -> ast.Expr:
        e.type, e.const = types.BOOL, e.value
        return e

    def _string(self, e: ast.StringLiteral) -> ast.Expr:
        e.type, e.const = types.STRING, e.value
        return e

    def _name(self, e: ast.Name) -> ast.Expr:
        scope = self.globals if e.absolute else self.scope
        decl = scope.lookup(e.name)
        if decl is None:
            if e.name in self.match_kinds:
                e.type, e.const = types.MATCH_KIND, e.name
                return e
            self.undeclared(e.span, "name", e.name)
        e.decl = decl
        if isinstance(decl, ast.ConstDecl):
            e.type, e.const = decl.type, decl.value.const
        elif isinstance(decl, (ast.Param, ast.VarDecl, ast.Instantiation, ast.TableDecl)):
            e.type = decl.type
        elif isinstance(decl, ast.ValueSetDecl):
            e.type = decl.type
        elif isinstance(decl, ast.ActionDecl):
            e.type = types.ActionType([self.signature_of(decl)])
        elif isinstance(decl, list):
            e.type = types.CalleeType([self.signature_of(d) for d in decl])
        elif isinstance(decl, ast.FunctionDecl):  # a method of the same instance
            e.type = types.CalleeType([self.signature_of(decl)])
        elif isinstance(decl, types.ExternType) and e.name == "this":
            e.type = decl
        elif isinstance(decl, types.SetType):
            e.type = decl
        else:
            e.type = types.MetaType(self.named_type(decl, (), e.span, e.name, bare=True))
        if isinstance(e.type, types.Unchecked):
            raise Cascade(e.span, f"the declaration of '{e.name}' has an error", [Note("declared here", span_of(decl))])
        return e

    def _type(self, e: ast.TypeExpr) -> ast.Expr:
        e.type = types.MetaType(self.resolve(e.ref))
        return e

    def _dont_care(self, e: ast.DontCare) -> ast.Expr:
        self.fail(e.span, "'_' and 'default' only stand in keysets and as arguments for out parameters")

    def _dots(self, e: ast.Dots) -> ast.Expr:
        e.type = types.ANY
        return e

    def _invalid_header(self, e: ast.InvalidHeader) -> ast.Expr:
        e.type = types.ANY
        return e

    # --- members

    def member(self, e: ast.Member, called: bool = False) -> ast.Expr:
        """Checks a member. `called`: it stands before `(`, so a method takes precedence over a field of its name."""
        e.base = self.expression(e.base)
        t = e.base.type
        if isinstance(t, types.MetaType):
            return self._type_member(e, t.type)
        t = types.strip_new(t)
        field = t.fields.get(e.member) if isinstance(t, types.RecordType) else None
        if field is not None and not (called and self.method_type(e, t)):
            e.kind, e.type = "field", field.type
            if isinstance(e.base.const, dict):
                e.const = e.base.const.get(e.member)
            return e
        if isinstance(t, types.StackType) and e.member in STACK_MEMBERS[:4]:
            return self._stack_member(e, t)
        if isinstance(t, types.ApplyResultType) and e.member in ("hit", "miss", "action_run"):
            e.kind = e.member
            e.type = types.ActionRunType(t.table) if e.member == "action_run" else types.BOOL
            return e
        callee = self.method_type(e, t)
        if callee is not None:
            e.kind, e.type = "method", callee
            return e
        self._no_member(e, t)

    @abstractmethod
    def method_type(self, e: ast.Member, t: Type) -> Type | None: ...

    def _no_member(self, e: ast.Member, t: Type) -> NoReturn:
        span, base = member_span(e), ast.source_text(e.base)
        if isinstance(t, types.RecordType):
            names = list(t.fields)
            if isinstance(t, types.HeaderType):
                names += HEADER_METHODS
            notes: list[Note | str] = list(suggest(e.member, names))
            if t.decl is not None:
                notes.append(Note(f"{t.decl.kind} {t} is declared here", t.decl.span))
            if isinstance(t, types.StructType) and e.member in HEADER_METHODS:
                notes = [f"{t} is a struct: only headers and header unions are valid or invalid"]
            self.fail(span, f"'{base}' of type {t} has no field '{e.member}'", notes)
        candidates: list[str] = []
        if isinstance(t, types.ExternType):
            candidates = list(t.methods)
        elif isinstance(t, types.StackType):
            candidates = list(STACK_MEMBERS)
        elif isinstance(t, types.ApplyResultType):
            candidates = ["hit", "miss", "action_run"]
        elif isinstance(t, (types.TableType, types.ControlType, types.ParserType)):
            candidates = ["apply"]
        notes = list(suggest(e.member, candidates))
        if candidates and not notes:
            notes = [f"it has {', '.join(candidates)}"]
        self.fail(span, f"'{base}' of type {t} has no member '{e.member}'", notes)

    def _stack_member(self, e: ast.Member, t: types.StackType) -> ast.Expr:
        e.kind = e.member
        if e.member == "size":
            e.type, e.const = BitType(32), t.size
            return e
        if not isinstance(types.strip_new(t.element), (types.HeaderType, types.UnionType)):
            self.fail(member_span(e), f"'{e.member}' is of header stacks, not of arrays as {t}")
        if not self.in_parser:
            self.fail(member_span(e), f"'{e.member}' of a header stack only exists in parsers")
        e.type = BitType(32) if e.member == "lastIndex" else t.element
        return e

    def _type_member(self, e: ast.Member, t: Type) -> ast.Expr:
        span = member_span(e)
        e.kind, e.type = "enum", t
        members: list[str]
        if isinstance(t, types.ErrorType):
            members = self.error_members
        elif isinstance(t, types.MatchKindType):
            members = self.match_kinds
        elif isinstance(t, types.EnumType):
            members = t.members
        elif isinstance(t, types.SerEnumType):
            members = list(t.members)
            if e.member in t.members:
                e.const = t.members[e.member]
                return e
        else:
            callee = self.method_type(e, types.MetaType(t))
            if callee is None:
                self.fail(span, f"type {t} has no member '{e.member}'")
            e.kind, e.type = "method", callee
            return e
        if e.member not in members:
            callee = self.method_type(e, types.MetaType(t))
            if callee is not None:
                e.kind, e.type = "method", callee
                return e
            self.fail(span, f"{t} has no member '{e.member}'", suggest(e.member, members))
        e.const = e.member
        return e

    # --- index and slice

    def _index(self, e: ast.Index) -> ast.Expr:
        e.base, e.index = self.value(e.base), self.value(e.index, "an index")
        t = types.strip_new(e.base.type)
        index_type = types.underlying(e.index.type)
        if not isinstance(index_type, (BitType, types.InfIntType)):
            self.fail(e.index.span, f"an index must be an integer, not {e.index.type}")
        size: int | None = None
        if isinstance(t, types.StackType):
            size, e.type = t.size, t.element
        elif isinstance(t, types.TupleType):
            size = len(t.elements)
            if e.index.const is None:
                self.fail(e.index.span, "the index of a tuple must be known at compile time")
        elif isinstance(t, types.ListType):
            e.type = t.element
        else:
            self.fail(e.base.span, f"'{ast.source_text(e.base)}' of type {t} cannot be indexed", _slice_hint(t))
        index = e.index.const
        if index is not None and (index < 0 or (size is not None and index >= size)):
            self.fail(e.index.span, f"index {index} is outside of {t}" + (f": 0..{size - 1}" if size else ""))
        if isinstance(t, types.TupleType):
            e.type = t.elements[index]
        if isinstance(e.base.const, list) and index is not None and index < len(e.base.const):
            e.const = e.base.const[index]
        if isinstance(index_type, types.InfIntType):
            e.index = self.coerce(e.index, BitType(32))
        return e

    def _slice(self, e: ast.Slice) -> ast.Expr:
        e.base = self.value(e.base)
        t = types.underlying(e.base.type)
        first, second = self.constant_int(e.hi, "bound of a slice"), self.constant_int(e.lo, "bound of a slice")
        e.hi_bit, e.lo_bit = (first + second - 1, first) if e.plus else (first, second)
        if not isinstance(t, (BitType, types.InfIntType)):
            self.fail(e.base.span, f"only bits can be sliced, not {e.base.type}")
        if isinstance(t, types.InfIntType) and e.base.const is None:
            self.fail(e.base.span, "cannot slice an integer whose value is not known")
        if e.lo_bit < 0 or e.hi_bit < e.lo_bit:
            self.fail(e.span, f"a slice is [high:low] with high >= low >= 0, not [{e.hi_bit}:{e.lo_bit}]")
        if isinstance(t, BitType) and e.hi_bit >= t.width:
            self.fail(
                e.span,
                f"slice [{e.hi_bit}:{e.lo_bit}] reaches outside of {e.base.type}: its highest bit is {t.width - 1}",
            )
        e.type = BitType(e.hi_bit - e.lo_bit + 1)
        if e.base.const is not None:
            e.const = fold_slice(e.base.const, e.hi_bit, e.lo_bit)
        return e

    # --- sets

    def _mask(self, e: ast.Mask) -> ast.Expr:
        self.fail(e.span, "'&&&' only stands in keysets")

    def _range(self, e: ast.Range) -> ast.Expr:
        self.fail(e.span, "'..' only stands in keysets and loops")

    def keyset(self, e: ast.Expr, t: Type) -> ast.Expr:
        """Checks a set of values of type `t`."""
        if isinstance(e, ast.DontCare):
            e.type = types.SetType(t)
            return e
        if isinstance(e, ast.Mask):
            e.value, e.mask = self._set_bound(e.value, t), self._set_bound(e.mask, t)
            e.type = types.SetType(t)
            return e
        if isinstance(e, ast.Range):
            e.lo, e.hi = self._set_bound(e.lo, t), self._set_bound(e.hi, t)
            e.type = types.SetType(t)
            if e.lo.const is not None and e.hi.const is not None and e.lo.const > e.hi.const:
                self.warn(e.span, "this range is empty")
            return e
        if isinstance(e, ast.ListExpr):
            plain = types.strip_new(t)
            if isinstance(plain, (types.TupleType, types.RecordType)):
                return self._tuple_keyset(e, plain)
            if len(e.items) == 1:
                return self.keyset(e.items[0], t)
            self.fail(e.span, f"{len(e.items)} values for a key of type {t}")
        e = self.expression(e)
        if isinstance(e.type, types.SetType):
            if not self._set_matches(e.type.element, t):
                self.fail(e.span, f"value set of {e.type.element} does not match a key of type {t}")
            return e
        return self.coerce(self.value(e), t)

    def _set_bound(self, e: ast.Expr, t: Type) -> ast.Expr:
        """Checks a bound or mask, which may be a plain integer if the key is an enum or a `type`."""
        checked = self.value(e)
        bits = types.underlying(t)
        if not isinstance(bits, BitType):
            self.fail(e.span, f"masks and ranges need a key of bits, not {t}")
        return self.coerce(checked, t if checked.type == t else bits)

    def _tuple_keyset(self, e: ast.ListExpr, t: types.TupleType | types.RecordType) -> ast.Expr:
        parts = t.elements if isinstance(t, types.TupleType) else tuple(f.type for f in t.fields.values())
        if len(parts) != len(e.items):
            self.fail(e.span, f"{len(e.items)} values for {t}, which has {len(parts)}")
        e.items = e.values = [self.keyset(item, part) for item, part in zip(e.items, parts, strict=True)]
        e.type = types.SetType(t)
        return e

    def _set_matches(self, element: Type, t: Type) -> bool:
        if types.underlying(element) == types.underlying(t):
            return True
        if isinstance(element, types.RecordType) and len(element.fields) == 1:
            return self._set_matches(next(iter(element.fields.values())).type, t)
        return (
            isinstance(element, types.TupleType)
            and len(element.elements) == 1
            and self._set_matches(element.elements[0], t)
        )

    # --- lvalues

    def require_lvalue(self, e: ast.Expr, why: str) -> None:
        """Checks that `e` can be written. `why` completes the error: "it cannot be assigned to / passed to out parameter x"."""
        while True:
            if isinstance(e, ast.Name):
                decl = e.decl
                if isinstance(decl, ast.VarDecl):
                    return
                if isinstance(decl, ast.Param):
                    if decl.direction in ("out", "inout"):
                        return
                    kind = "an 'in' parameter" if decl.direction == "in" else "a parameter without direction"
                    self.fail(e.span, f"'{e.name}' is {kind}: it cannot be {why}", [Note("declared here", decl.span)])
                notes = [Note("declared here", decl.span)] if isinstance(decl, ast.Node) else []
                kind = "a constant" if isinstance(decl, ast.ConstDecl) else "no variable"
                self.fail(e.span, f"'{e.name}' is {kind}: it cannot be {why}", notes)
            if isinstance(e, ast.Member) and e.kind in ("field", "next", "last"):
                e = e.base
            elif isinstance(e, (ast.Slice, ast.Index)):
                e = e.base
            else:
                self.fail(e.span, f"{_describe(e)} is no variable: it cannot be {why}")

    # --- provided elsewhere

    in_parser = False

    @abstractmethod
    def signature_of(self, decl: ast.Declaration) -> types.Signature: ...

    def _call(self, e: ast.Call) -> ast.Expr:
        return self.call(e)

    @abstractmethod
    def call(self, e: ast.Call) -> ast.Expr: ...


def _describe(e: ast.Expr) -> str:
    if isinstance(e.type, types.MetaType):
        return f"type {e.type.type}"
    if isinstance(e.type, types.ActionType):
        return f"action '{ast.source_text(e)}'"
    if isinstance(e.type, types.CalleeType):
        return f"function '{ast.source_text(e)}'"
    if isinstance(e.type, types.TableType):
        return str(e.type)
    if isinstance(e.type, types.VoidType):
        return "a call that returns nothing"
    return f"'{ast.source_text(e)}'"


def _slice_hint(t: Type) -> list[str]:
    return ["bits are selected by [high:low], as in x[3:3]"] if isinstance(t, BitType) else []


_CHECKS: dict[type, Callable[..., ast.Expr]] = {
    ast.IntLiteral: ExpressionChecker._int,
    ast.BoolLiteral: ExpressionChecker._bool,
    ast.StringLiteral: ExpressionChecker._string,
    ast.Name: ExpressionChecker._name,
    ast.TypeExpr: ExpressionChecker._type,
    ast.Member: ExpressionChecker.member,
    ast.Index: ExpressionChecker._index,
    ast.Slice: ExpressionChecker._slice,
    ast.Unary: OperatorChecker.unary,
    ast.Binary: OperatorChecker.binary,
    ast.Ternary: OperatorChecker.ternary,
    ast.Cast: ConversionChecker.explicit_cast,
    ast.Mask: ExpressionChecker._mask,
    ast.Range: ExpressionChecker._range,
    ast.DontCare: ExpressionChecker._dont_care,
    ast.Dots: ExpressionChecker._dots,
    ast.InvalidHeader: ExpressionChecker._invalid_header,
    ast.ListExpr: ConversionChecker.list_expression,
    ast.StructInit: ConversionChecker.struct_initialiser,
    ast.Call: ExpressionChecker._call,
}
