"""Expressions: names, literals, indices, slices, initialisers without context; the check of each kind (P4_16 v1.2.5 §8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.calls import check_call
from ina.p4.compiler.check.const import fold_slice, wrap
from ina.p4.compiler.check.context import Cascade, Context, span_of
from ina.p4.compiler.check.conversions import coerce, explicit_cast
from ina.p4.compiler.check.members import check_member
from ina.p4.compiler.check.operators import check_binary, check_ternary, check_unary
from ina.p4.compiler.check.types import named_type, resolve
from ina.p4.compiler.check.values import constant_int, value_of
from ina.p4.compiler.errors import Note, fail
from ina.p4.compiler.types import BitType


def list_expression(ctx: Context, e: ast.ListExpr) -> ast.Expr:
    e.items = e.values = [value_of(ctx, item) for item in e.items]
    e.type = types.TupleType(tuple(item.type for item in e.items))
    consts = [item.const for item in e.items]
    e.const = None if None in consts else consts
    return e


def _literal(ctx: Context, e: ast.BoolLiteral | ast.StringLiteral) -> ast.Expr:
    e.type, e.const = types.BOOL if isinstance(e, ast.BoolLiteral) else types.STRING, e.value
    return e


def _default(ctx: Context, e: ast.Dots | ast.InvalidHeader) -> ast.Expr:
    e.type = types.ANY
    return e


def _misplaced(ctx: Context, e: ast.Mask | ast.Range | ast.DontCare) -> NoReturn:
    places = {
        ast.Mask: "'&&&' only stands in keysets",
        ast.Range: "'..' only stands in keysets and loops",
        ast.DontCare: "'_' and 'default' only stand in keysets and as arguments for out parameters",
    }
    fail(e.span, places[type(e)])


def struct_initialiser(ctx: Context, e: ast.StructInit) -> ast.Expr:
    anonymous = types.StructType("")
    fields = []
    for name, value in e.fields:
        checked = value_of(ctx, value)
        if name in anonymous.fields:
            fail(value.span, f"field '{name}' appears twice in this initialiser")
        anonymous.fields[name] = types.Field(name, checked.type)
        fields.append((name, checked))
    e.fields, e.type = fields, anonymous
    e.values = [value for _, value in fields]
    consts = {name: value.const for name, value in fields}
    e.const = None if None in consts.values() else consts
    return e


def _int(ctx: Context, e: ast.IntLiteral) -> ast.Expr:
    if e.width is None:
        e.type, e.const = types.INT, e.value
        return e
    e.type = BitType(e.width, e.signed)
    if e.signed and not e.width:
        fail(e.span, "int<0> does not exist")
    e.const = wrap(e.value, e.type)
    if not 0 <= e.value < 1 << e.width:
        ctx.warn(e.span, f"{e.value} does not fit into {e.type}: it is cut to {e.const}")
    e.value = e.const
    return e


def _name(ctx: Context, e: ast.Name) -> ast.Expr:
    scope = ctx.globals if e.absolute else ctx.scope
    decl = scope.lookup(e.name)
    if decl is None:
        if e.name in ctx.match_kinds:
            e.type, e.const = types.MATCH_KIND, e.name
            return e
        ctx.undeclared(e.span, "name", e.name)
    e.decl = decl
    match decl:
        case ast.ConstDecl():
            e.type, e.const = decl.type, decl.value.const
        case ast.Param() | ast.VarDecl() | ast.Instantiation() | ast.TableDecl() | ast.ValueSetDecl():
            e.type = decl.type
        case ast.ActionDecl():
            e.type = types.ActionType([ctx.signature_of(decl)])
        case list():
            e.type = types.CalleeType([ctx.signature_of(d) for d in decl])
        case ast.FunctionDecl():  # a method of the same instance
            e.type = types.CalleeType([ctx.signature_of(decl)])
        case types.ExternType() if e.name == "this":
            e.type = decl
        case _:
            e.type = types.MetaType(named_type(ctx, decl, (), e.span, e.name, bare=True))
    if isinstance(e.type, ast.Unchecked):
        raise Cascade(e.span, f"the declaration of '{e.name}' has an error", [Note("declared here", span_of(decl))])
    return e


def _type(ctx: Context, e: ast.TypeExpr) -> ast.Expr:
    ref = e.ref
    if isinstance(ref, ast.NamedTypeRef) and any(isinstance(a, ast.BaseTypeRef) and a.kind == "_" for a in ref.args):
        decl = ctx.lookup("type", ref.name, ref.span, ref.absolute)
        e.type = types.MetaType(named_type(ctx, decl, (), ref.span, ref.name, bare=True))
    else:
        e.type = types.MetaType(resolve(ctx, ref))
    return e


def _index(ctx: Context, e: ast.Index) -> ast.Expr:
    e.base, e.index = value_of(ctx, e.base), value_of(ctx, e.index, "an index")
    t = types.strip_new(e.base.type)
    index_type = types.underlying(e.index.type)
    if not isinstance(index_type, (BitType, types.InfIntType)):
        fail(e.index.span, f"an index must be an integer, not {e.index.type}")
    size: int | None = None
    match t:
        case types.StackType():
            size, e.type = t.size, t.element
        case types.TupleType():
            size = len(t.elements)
            if e.index.const is None:
                fail(e.index.span, "the index of a tuple must be known at compile time")
        case types.ListType():
            e.type = t.element
        case _:
            hint = ["bits are selected by [high:low], as in x[3:3]"] if isinstance(t, BitType) else []
            fail(e.base.span, f"'{ast.source_text(e.base)}' of type {t} cannot be indexed", hint)
    index = e.index.const
    if index is not None and (index < 0 or (size is not None and index >= size)):
        fail(e.index.span, f"index {index} is outside of {t}" + (f": 0..{size - 1}" if size else ""))
    if isinstance(t, types.TupleType):
        e.type = t.elements[index]
    if isinstance(e.base.const, list) and index is not None and index < len(e.base.const):
        e.const = e.base.const[index]
    if isinstance(index_type, types.InfIntType):
        e.index = coerce(ctx, e.index, BitType(32))
    return e


def _slice(ctx: Context, e: ast.Slice) -> ast.Expr:
    e.base = value_of(ctx, e.base)
    t = types.underlying(e.base.type)
    first, second = constant_int(ctx, e.hi, "bound of a slice"), constant_int(ctx, e.lo, "bound of a slice")
    e.hi_bit, e.lo_bit = (first + second - 1, first) if e.plus else (first, second)
    if not isinstance(t, (BitType, types.InfIntType)):
        fail(e.base.span, f"only bits can be sliced, not {e.base.type}")
    if isinstance(t, types.InfIntType) and e.base.const is None:
        fail(e.base.span, "cannot slice an integer whose value is not known")
    if e.lo_bit < 0 or e.hi_bit < e.lo_bit:
        fail(e.span, f"a slice is [high:low] with high >= low >= 0, not [{e.hi_bit}:{e.lo_bit}]")
    if isinstance(t, BitType) and e.hi_bit >= t.width:
        fail(
            e.span,
            f"slice [{e.hi_bit}:{e.lo_bit}] reaches outside of {e.base.type}: its highest bit is {t.width - 1}",
        )
    e.type = BitType(e.hi_bit - e.lo_bit + 1)
    if e.base.const is not None:
        e.const = fold_slice(e.base.const, e.hi_bit, e.lo_bit)
    return e


EXPRESSIONS: dict[type, Callable[[Context, Any], ast.Expr]] = {
    ast.IntLiteral: _int,
    ast.BoolLiteral: _literal,
    ast.StringLiteral: _literal,
    ast.Name: _name,
    ast.TypeExpr: _type,
    ast.Member: check_member,
    ast.Index: _index,
    ast.Slice: _slice,
    ast.Unary: check_unary,
    ast.Binary: check_binary,
    ast.Ternary: check_ternary,
    ast.Cast: explicit_cast,
    ast.Mask: _misplaced,
    ast.Range: _misplaced,
    ast.DontCare: _misplaced,
    ast.Dots: _default,
    ast.InvalidHeader: _default,
    ast.ListExpr: list_expression,
    ast.StructInit: struct_initialiser,
    ast.Call: check_call,
}
