"""Members: fields, methods, members of enums and header stacks (P4_16 v1.2.5 §8.3, §8.17 to §8.19)."""

from __future__ import annotations

from typing import NoReturn

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.context import OPAQUE, Certain, Context, suggest
from ina.p4.compiler.errors import Note, Span, fail
from ina.p4.compiler.types import BitType, Parameter, Signature, Type

STACK_MEMBERS = ("next", "last", "lastIndex", "size", "push_front", "pop_front")
HEADER_METHODS = ("isValid", "setValid", "setInvalid")
SIZE_METHODS = ("minSizeInBits", "minSizeInBytes", "maxSizeInBits", "maxSizeInBytes")


def member_span(e: ast.Member) -> Span:
    """Returns the place of the member's own name."""
    s = e.span
    return Span(s.file, s.line, s.col + s.length - len(e.member), len(e.member)) if s.length > len(e.member) else s


def check_member(ctx: Context, e: ast.Member, called: bool = False) -> ast.Expr:
    """Checks a member. `called`: it stands before `(`, so a method takes precedence over a field of its name."""
    e.base = ctx.expression(e.base)
    t = e.base.type
    if isinstance(t, types.MetaType):
        return _type_member(ctx, e, t.type)
    t = types.strip_new(t)
    if isinstance(t, types.TypeVar) and not called:
        e.kind, e.type = "field", OPAQUE
        return e
    field = t.fields.get(e.member) if isinstance(t, types.RecordType) else None
    if field is not None and not (called and method_type(e, t)):
        e.kind, e.type = "field", field.type
        if isinstance(e.base.const, dict):
            e.const = e.base.const.get(e.member)
        return e
    if isinstance(t, types.StackType) and e.member in STACK_MEMBERS[:4]:
        return _stack_member(ctx, e, t)
    if isinstance(t, types.ApplyResultType) and e.member in ("hit", "miss", "action_run"):
        e.kind = e.member
        e.type = types.ActionRunType(t.table) if e.member == "action_run" else types.BOOL
        return e
    callee = method_type(e, t)
    if callee is not None:
        e.kind, e.type = "method", callee
        return e
    _no_member(e, t)


def _no_member(e: ast.Member, t: Type) -> NoReturn:
    if isinstance(t, types.TypeVar):
        fail(member_span(e), f"'{ast.source_text(e.base)}' of type {t} has no member '{e.member}'")
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
        raise Certain(span, f"'{base}' of type {t} has no field '{e.member}'", notes)
    candidates: list[str] = []
    match t:
        case types.ExternType():
            candidates = list(t.methods)
        case types.StackType():
            candidates = list(STACK_MEMBERS)
        case types.ApplyResultType():
            candidates = ["hit", "miss", "action_run"]
        case types.TableType() | types.ControlType() | types.ParserType():
            candidates = ["apply"]
    notes = list(suggest(e.member, candidates))
    if candidates and not notes:
        notes = [f"it has {', '.join(candidates)}"]
    raise Certain(span, f"'{base}' of type {t} has no member '{e.member}'", notes)


def _stack_member(ctx: Context, e: ast.Member, t: types.StackType) -> ast.Expr:
    e.kind = e.member
    if e.member == "size":
        e.type, e.const = BitType(32), t.size
        return e
    if not isinstance(types.strip_new(t.element), (types.HeaderType, types.UnionType)):
        fail(member_span(e), f"'{e.member}' is of header stacks, not of arrays as {t}")
    if not ctx.in_parser:
        fail(member_span(e), f"'{e.member}' of a header stack only exists in parsers")
    e.type = BitType(32) if e.member == "lastIndex" else t.element
    return e


def _type_member(ctx: Context, e: ast.Member, t: Type) -> ast.Expr:
    span, members = member_span(e), _members_of(ctx, t)
    if members is not None and e.member in members:
        e.kind, e.type = "enum", t
        e.const = members[e.member] if isinstance(members, dict) else e.member
    elif (callee := method_type(e, types.MetaType(t))) is not None:
        e.kind, e.type = "method", callee
    elif members is None:
        fail(span, f"type {t} has no member '{e.member}'")
    else:
        fail(span, f"{t} has no member '{e.member}'", suggest(e.member, members))
    return e


def _members_of(ctx: Context, t: Type) -> list[str] | dict[str, int] | None:
    """Returns the members of an enum (by value if it is serialisable), of error or of match_kind; None for other types."""
    match t:
        case types.ErrorType():
            return ctx.error_members
        case types.MatchKindType():
            return ctx.match_kinds
        case types.EnumType() | types.SerEnumType():
            return t.members
    return None


def method_type(e: ast.Member, t: Type) -> Type | None:
    name = e.member
    if isinstance(t, types.ExternType):
        return types.CalleeType(t.methods[name]) if name in t.methods else None
    if name == "apply" and isinstance(t, (types.ParserType, types.ControlType)):
        return types.CalleeType([Signature("apply", (), t.params, types.VOID, t.decl)])
    if name == "apply" and isinstance(t, types.TableType):
        return types.CalleeType([Signature("apply", (), [], types.ApplyResultType(t.decl), t.decl)])
    if isinstance(t, types.MetaType):
        if isinstance(t.type, (types.ParserType, types.ControlType)):
            return method_type(e, t.type)
        t = t.type
    elif name in HEADER_METHODS and isinstance(t, types.HeaderType):
        return types.CalleeType([Signature(name, (), [], types.BOOL if name == "isValid" else types.VOID)])
    elif name == "isValid" and isinstance(t, types.UnionType):
        return types.CalleeType([Signature(name, (), [], types.BOOL)])
    elif (
        name in ("push_front", "pop_front")
        and isinstance(t, types.StackType)
        and isinstance(types.strip_new(t.element), (types.HeaderType, types.UnionType))
    ):
        return types.CalleeType([Signature(name, (), [Parameter("count", "", types.INT)], types.VOID)])
    if name in SIZE_METHODS and not isinstance(t, (types.CallableType, types.TableType, types.CalleeType)):
        return types.CalleeType([Signature(name, (), [], types.INT)])
    return None
