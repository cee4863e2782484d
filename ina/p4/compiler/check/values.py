"""Expressions by what their context asks for: a value, a constant, a condition, a variable."""

from __future__ import annotations

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.context import Certain, Context
from ina.p4.compiler.errors import Note, fail
from ina.p4.compiler.types import BitType


def condition_of(ctx: Context, e: ast.Expr) -> ast.Expr:
    e = value_of(ctx, e, "a condition")
    if not isinstance(types.strip_new(e.type), (types.BoolType, types.TypeVar)):
        hint = ["compare it with 0, as in x != 0"] if isinstance(types.underlying(e.type), BitType) else []
        fail(e.span, f"a condition must be bool, not {e.type}", hint)
    return e


def value_of(ctx: Context, e: ast.Expr, expected: str = "a value") -> ast.Expr:
    """Checks an expression that must have a value: not a type, an action, a table, an instance."""
    e = ctx.expression(e)
    if isinstance(e.type, (types.MetaType, types.CalleeType, types.TableType, types.VoidType, types.SetType)):
        raise Certain(e.span, f"expected {expected}, found {describe(e)}")
    return e


def constant_int(ctx: Context, e: ast.Expr, subject: str) -> int:
    checked = ctx.expression(e)
    t = types.underlying(checked.type)
    if not isinstance(checked.const, int) or isinstance(checked.const, bool) or not isinstance(t, (BitType, types.InfIntType)):
        fail(e.span, f"{subject} must be an integer known at compile time", why_not_constant(checked))
    return checked.const


def why_not_constant(e: ast.Expr) -> list[Note | str]:
    if isinstance(e, ast.Name) and isinstance(e.decl, (ast.VarDecl, ast.Param)):
        kind = "variable" if isinstance(e.decl, ast.VarDecl) else "parameter"
        return [Note(f"'{e.name}' is a {kind}", e.decl.span)]
    return []


def require_lvalue(e: ast.Expr, why: str) -> None:
    """Checks that `e` can be written. `why` completes the error: "it cannot be assigned to / passed to out parameter x"."""
    while True:
        match e:
            case ast.Name():
                decl = e.decl
                if isinstance(decl, ast.VarDecl):
                    return
                if isinstance(decl, ast.Param):
                    if decl.direction in ("out", "inout"):
                        return
                    kind = "an 'in' parameter" if decl.direction == "in" else "a parameter without direction"
                    raise Certain(e.span, f"'{e.name}' is {kind}: it cannot be {why}", [Note("declared here", decl.span)])
                notes = [Note("declared here", decl.span)] if isinstance(decl, ast.Node) else []
                kind = "a constant" if isinstance(decl, ast.ConstDecl) else "no variable"
                raise Certain(e.span, f"'{e.name}' is {kind}: it cannot be {why}", notes)
            case ast.Member() if e.kind in ("field", "next", "last"):
                e = e.base
            case ast.Slice() | ast.Index():
                e = e.base
            case _:
                fail(e.span, f"{describe(e)} is no variable: it cannot be {why}")


def describe(e: ast.Expr) -> str:
    match e.type:
        case types.MetaType():
            return f"type {e.type.type}"
        case types.ActionType():
            return f"action '{ast.source_text(e)}'"
        case types.CalleeType():
            return f"function '{ast.source_text(e)}'"
        case types.TableType():
            return str(e.type)
        case types.VoidType():
            return "a call that returns nothing"
    return f"'{ast.source_text(e)}'"


def argument_of(ctx: Context, e: ast.Expr) -> ast.Expr:
    """Checks an argument: a value or an instance."""
    e = ctx.expression(e)
    if isinstance(e.type, types.MetaType) and isinstance(e.type.type, types.CallableType):
        fail(e.span, f"'{ast.source_text(e)}' is a type: an instance is wanted, as in {ast.source_text(e)}()")
    return value_of(ctx, e, "an argument")


def is_static(e: ast.Expr) -> bool:
    """Returns True if `e` is known at instantiation: a constant, an instance, or built from constructor parameters."""
    if e.const is not None or isinstance(e.type, types.CallableType):
        return True
    match e:
        case ast.Name():
            return isinstance(e.decl, ast.Param) and not e.decl.direction  # constructor's, or the control plane's
        case ast.Cast() | ast.Unary():
            return is_static(e.operand)
        case ast.Binary():
            return is_static(e.left) and is_static(e.right)
        case ast.Ternary():
            return all(is_static(x) for x in (e.condition, e.then, e.otherwise))
        case ast.Member():
            return e.kind == "field" and is_static(e.base)
        case ast.Index() | ast.Slice():
            return is_static(e.base)
        case ast.ListExpr() | ast.StructInit():
            return all(is_static(x) for x in e.values)
    return isinstance(e, (ast.Dots, ast.InvalidHeader))
