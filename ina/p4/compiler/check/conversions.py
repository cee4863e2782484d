"""Conversions: implicit ones, casts, initialisers typed by their context, default values (P4_16 v1.2.5 §8.9 to
§8.13, §8.26).
"""

from __future__ import annotations

from typing import NoReturn

from ina.base.plurals import counted
from ina.p4.compiler import ast, types
from ina.p4.compiler.check.const import bounds, fits, fold_cast, wrap
from ina.p4.compiler.check.context import Context, suggest
from ina.p4.compiler.check.types import resolve
from ina.p4.compiler.check.values import value_of
from ina.p4.compiler.errors import Note, Span, fail
from ina.p4.compiler.types import BitType, Type, TypeVar


def converts(e: ast.Expr, t: Type) -> bool:
    """Returns True if the checked expression `e` may stand where a `t` is expected, without a cast."""
    s = e.type
    if isinstance(t, (types.AnyType, TypeVar)) or isinstance(e, ast.Dots):
        return True
    plain = types.strip_new(t)
    match e:
        case ast.InvalidHeader():
            return isinstance(plain, (types.HeaderType, types.UnionType))
        case ast.ListExpr():
            return _list_converts(e, plain)
        case ast.StructInit():
            return _struct_converts(e, plain)
    if s == t:
        return True
    if isinstance(e, ast.Ternary) and isinstance(s, (types.InfIntType, types.TupleType, types.StructType)):
        return converts(e.then, t) and converts(e.otherwise, t)
    if isinstance(s, types.InfIntType):
        return isinstance(plain, BitType)
    if isinstance(s, types.SerEnumType):
        return s.underlying == t
    if isinstance(t, types.InfIntType):
        return isinstance(s, BitType) and e.const is not None
    if isinstance(t, types.CallableType):
        return callable_fits(s, t)
    if isinstance(s, types.ListType) and isinstance(t, types.ListType):
        return isinstance(s.element, types.InfIntType) or isinstance(t.element, TypeVar)
    return isinstance(s, types.TupleType) and isinstance(t, types.TupleType) and _tuple_fits(s, t)


def _tuple_fits(s: types.TupleType, t: types.TupleType) -> bool:
    return len(s.elements) == len(t.elements) and all(
        a == b or (isinstance(a, types.InfIntType) and isinstance(b, (BitType, TypeVar))) or isinstance(b, TypeVar)
        for a, b in zip(s.elements, t.elements, strict=True)
    )


def callable_fits(s: Type, t: types.CallableType) -> bool:
    """Returns True if an object of type `s` may stand for a parameter of type `t`: the same type, or a parser or control
    like it."""
    if isinstance(s, types.CallableType) and s.decl is t.decl:
        return all(a == b or isinstance(b, (TypeVar, types.AnyType)) for a, b in zip(s.args, t.args, strict=False))
    return not callable_mismatch(s, t)


def callable_mismatch(s: Type, t: types.CallableType) -> str:
    """Returns the reason why an object of type `s` is no `t`; empty if it is one."""
    if not isinstance(t, (types.ParserType, types.ControlType)) or type(s) is not type(t):
        return f"it is {s}"
    assert isinstance(s, types.CallableType)
    optional = sum(p.optional or (p.decl is not None and p.decl.default is not None) for p in t.params)
    if not len(t.params) - optional <= len(s.params) <= len(t.params):
        return f"{s} has {len(s.params)} parameters, {t} has {len(t.params)}"
    for mine, theirs in zip(s.params, t.params, strict=False):
        if mine.direction != theirs.direction:
            return (
                f"parameter '{mine.name}' of {s} is {mine.direction or 'directionless'}, "
                f"{t} wants {theirs.direction or 'directionless'}"
            )
        if mine.type != theirs.type and not isinstance(theirs.type, (TypeVar, types.AnyType)):
            return f"parameter '{mine.name}' of {s} is {mine.type}, {t} wants {theirs.type}"
    return ""


def _list_converts(e: ast.ListExpr, t: Type) -> bool:
    elements = _parts(t, len(e.items))
    if elements is None or len(e.items) > len(elements) or (len(e.items) < len(elements) and not e.dots):
        return False
    return all(converts(item, w) for item, w in zip(e.items, elements, strict=False))


def _struct_converts(e: ast.StructInit, t: Type) -> bool:
    if not isinstance(t, types.RecordType):
        return False
    values = dict(e.fields)
    if values.keys() - t.fields.keys() or (not e.dots and not isinstance(t, types.UnionType) and t.fields.keys() - values.keys()):
        return False
    return all(converts(value, t.fields[name].type) for name, value in e.fields)


def coerce(ctx: Context, expr: ast.Expr, target: Type, subject: str = "") -> ast.Expr:
    """Returns the checked expression `expr` as a `target`. `subject` names it in the error: "initial value of 'x'"."""
    if expr.type == target and not isinstance(expr, (ast.ListExpr, ast.StructInit)):
        return expr
    if not converts(expr, target):
        _explain(expr, target, subject or f"'{ast.source_text(expr)}'")
    return _convert(ctx, expr, target)


def _convert(ctx: Context, e: ast.Expr, t: Type) -> ast.Expr:
    s = e.type
    if isinstance(t, (types.AnyType, TypeVar)) and not isinstance(e, (ast.Dots, ast.InvalidHeader)):
        return e
    match e:
        case ast.Dots():
            return default_value(ctx, t, e.span)
        case ast.InvalidHeader():
            e.type = t
            return e
        case ast.ListExpr():
            return _type_list(ctx, e, t)
        case ast.StructInit():
            return _type_struct(ctx, e, t)
        case ast.Ternary() if s != t and not isinstance(s, types.SerEnumType):
            e.then, e.otherwise, e.type = _convert(ctx, e.then, t), _convert(ctx, e.otherwise, t), t
            if e.const is not None:
                e.const = (e.then if e.condition.const else e.otherwise).const
            return e
    if s == t or isinstance(t, (types.CallableType, types.ListType)):
        return e
    if isinstance(s, types.InfIntType):
        sized = types.strip_new(t)
        assert isinstance(sized, BitType)
        e = _size_integer(ctx, e, sized)
        return e if sized == t else _implicit(e, t, e.const)
    if isinstance(s, types.TupleType):
        if isinstance(e.const, list):
            assert isinstance(t, types.TupleType)
            e.const = [fold_cast(c, u) for c, u in zip(e.const, t.elements, strict=True)]
        return _implicit(e, t, e.const)
    return _implicit(e, t, None if e.const is None else fold_cast(e.const, t))


def _implicit(e: ast.Expr, t: Type, const: object) -> ast.Cast:
    cast = ast.Cast(e.span, None, e, implicit=True)
    cast.type, cast.const = t, const
    return cast


def _size_integer(ctx: Context, e: ast.Expr, t: BitType) -> ast.Expr:
    if e.const is None:  # a parameter of type int: its value is known once the program is instantiated
        return _implicit(e, t, None)
    const = wrap(e.const, t)
    if not fits(e.const, t):
        low, high = bounds(t)
        ctx.warn(e.span, f"{e.const} does not fit into {t} ({low}..{high}): it is cut to {const}")
    if isinstance(e, ast.IntLiteral) and fits(e.const, t):
        e.type, e.const, e.value, e.width, e.signed = t, const, const, t.width, t.signed
        return e
    return _implicit(e, t, const)


def _type_list(ctx: Context, e: ast.ListExpr, t: Type) -> ast.Expr:
    plain = types.strip_new(t)
    elements = _parts(plain, len(e.items))
    assert elements is not None
    e.values = [_convert(ctx, item, w) for item, w in zip(e.items, elements, strict=False)]
    e.values += [default_value(ctx, w, e.span) for w in elements[len(e.values) :]]
    e.items, e.dots, e.type = e.values, False, t
    consts = [v.const for v in e.values]
    e.const = None
    if None not in consts:
        e.const = dict(zip(plain.fields, consts, strict=True)) if isinstance(plain, types.RecordType) else consts
    return e


def _type_struct(ctx: Context, e: ast.StructInit, t: Type) -> ast.Expr:
    plain = types.strip_new(t)
    assert isinstance(plain, types.RecordType)
    values = dict(e.fields)
    e.values, filled = [], []
    for name, field in plain.fields.items():
        value = values.get(name)
        value = default_value(ctx, field.type, e.span) if value is None else _convert(ctx, value, field.type)
        e.values.append(value)
        filled.append((name, value))
    e.fields, e.dots, e.type = filled, False, t
    consts = {name: v.const for name, v in filled}
    e.const = None if None in consts.values() else consts
    return e


def default_value(ctx: Context, t: Type, span: Span) -> ast.Expr:
    """Returns the expression that `...` stands for (§7.3)."""
    plain = types.strip_new(t)
    e: ast.Expr
    match plain:
        case types.HeaderType() | types.UnionType():
            e = ast.InvalidHeader(span)
        case types.StructType():
            fields = [(name, default_value(ctx, f.type, span)) for name, f in plain.fields.items()]
            e = _type_struct(ctx, ast.StructInit(span, fields), t)
        case types.TupleType() | types.StackType():
            parts = _parts(plain, 0) or ()
            e = _type_list(ctx, ast.ListExpr(span, [default_value(ctx, p, span) for p in parts]), t)
        case _:
            e = ast.Dots(span)
            e.const = types.zero(plain)
            if e.const is None and not isinstance(plain, types.VarbitType):
                fail(span, f"type {t} has no default value")
    e.type = t
    return e


def _explain(e: ast.Expr, t: Type, subject: str) -> NoReturn:
    s, plain = e.type, types.strip_new(t)
    if isinstance(e, ast.ListExpr) and (elements := _parts(plain, len(e.items))) is not None:
        if len(e.items) != len(elements) and not (e.dots and len(e.items) < len(elements)):
            notes = [Note(f"its fields: {', '.join(plain.fields)}")] if isinstance(plain, types.RecordType) else []
            fail(e.span, f"{counted(len(e.items), 'value')} for {t}, which has {len(elements)}", notes)
        names = list(plain.fields) if isinstance(plain, types.RecordType) else [str(i) for i in range(len(elements))]
        for name, item, w in zip(names, e.items, elements, strict=False):
            if not converts(item, w):
                _explain(item, w, f"value for '{name}' of {t}")
    if isinstance(e, ast.StructInit) and isinstance(plain, types.RecordType):
        for name, value in e.fields:
            if name not in plain.fields:
                fail(value.span, f"{t} has no field '{name}'", suggest(name, plain.fields))
            if not converts(value, plain.fields[name].type):
                _explain(value, plain.fields[name].type, f"value for '{name}' of {t}")
        missing = [name for name in plain.fields if name not in dict(e.fields)]
        hint = "end the list with '...' to leave them at their default values"
        fail(e.span, f"no value for {', '.join(missing)} of {t}", [hint])
    hints: list[Note | str] = []
    if isinstance(t, types.CallableType):
        reason = callable_mismatch(s, t)
        fail(e.span, f"{subject} must be {t}: {reason}", [Note(f"{t} is declared here", t.decl.span)])
    if s is not None and _castable(s, t) and isinstance(types.underlying(t), (BitType, types.BoolType)):
        text = ast.source_text(e)
        hints = [f"cast it, as in ({t}){f'({text})' if isinstance(e, (ast.Binary, ast.Ternary)) else text}"]
    elif isinstance(types.underlying(t), types.BoolType) and isinstance(types.underlying(s), BitType):
        hints = ["compare it with 0, as in x != 0"]
    fail(e.span, f"{subject} must be {t}, not {_kind(s)}", hints)


def explicit_cast(ctx: Context, e: ast.Cast) -> ast.Expr:
    assert e.target is not None
    t = resolve(ctx, e.target)
    e.operand = value_of(ctx, e.operand)
    e.type, s = t, e.operand.type
    if converts(e.operand, t):
        e.operand = _convert(ctx, e.operand, t)
        e.const = e.operand.const
        return e
    if not _castable(s, t):
        notes = []
        a, b = types.underlying(s), types.underlying(t)
        if isinstance(a, BitType) and isinstance(b, BitType):
            notes = [f"change the width and the sign one after the other: ({t})({BitType(b.width, a.signed)})..."]
        elif isinstance(b, types.BoolType) and isinstance(a, BitType):
            notes = ["only bit<1> casts to bool: compare it with 0, as in x != 0"]
        fail(e.span, f"cannot cast {_kind(s)} to {t}", notes)
    bits = types.underlying(t)
    if isinstance(s, types.InfIntType) and isinstance(bits, BitType):
        if e.operand.const is None:
            e.operand = _convert(ctx, e.operand, bits)
        else:
            e.operand = _implicit(e.operand, bits, wrap(e.operand.const, bits))
    if e.operand.const is not None:
        if isinstance(bits, types.BoolType) and e.operand.const not in (0, 1):
            fail(e.span, f"cannot cast {e.operand.const} to bool: only 0 and 1 are truth values")
        e.const = fold_cast(e.operand.const, t)
    elif isinstance(t, types.InfIntType):
        fail(e.span, "only a value known at compile time can become an int without width")
    return e


def _castable(s: Type, t: Type) -> bool:
    a, b = types.underlying(s), types.underlying(t)
    if a == b:
        return True
    if any(isinstance(x, types.NewType) for x in (s, t)) and isinstance(a, BitType) and isinstance(b, BitType):
        return False  # only to and from the type that it is made of (§8.11.1)
    if isinstance(a, BitType) and isinstance(b, BitType):
        return a.signed == b.signed or a.width == b.width
    if isinstance(a, types.InfIntType):
        return isinstance(b, (BitType, types.BoolType))
    if isinstance(b, types.InfIntType):
        return isinstance(a, (BitType, types.BoolType))
    bit = BitType(1)
    return (a == bit and isinstance(b, types.BoolType)) or (b == bit and isinstance(a, types.BoolType))


def _parts(t: Type, count: int) -> list[Type] | None:
    """Returns the types of the elements of a `t` written as a list of `count` items; None if `t` is no list or composite."""
    if isinstance(t, types.TupleType):
        return list(t.elements)
    if isinstance(t, types.RecordType):
        return [f.type for f in t.fields.values()]
    if isinstance(t, types.StackType):
        return [t.element] * t.size
    if isinstance(t, types.ListType):
        return [t.element] * count
    return None


def _kind(t: Type | None) -> str:
    match t:
        case types.InfIntType():
            return "an int without width"
        case types.StructType() if t.decl is None:
            return "a list of named values"
        case types.TupleType():
            return f"a list of values ({t})"
    return str(t)
