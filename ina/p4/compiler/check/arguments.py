"""Arguments: choice of an overload, binding to parameters, inference of types (P4_16 v1.2.5 §6.8, §7.2.9.2, §8.20)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

from ina.base.plurals import counted
from ina.p4.compiler import ast, types
from ina.p4.compiler.check.context import Cascade, Certain, Context
from ina.p4.compiler.check.conversions import callable_mismatch, coerce, converts
from ina.p4.compiler.check.types import Bindings, substitute, substitute_params
from ina.p4.compiler.check.unify import solved, unify
from ina.p4.compiler.check.values import argument_of, is_static, require_lvalue, why_not_constant
from ina.p4.compiler.errors import Note, Span, fail
from ina.p4.compiler.types import Parameter, Signature, Type, TypeVar, variables_of


def choose(ctx: Context, candidates: list[Signature], arguments: list[ast.Argument], span: Span, name: str) -> Signature:
    """Returns the overload that takes these arguments: by number and names, then by types (§7.2.9.2)."""
    if len(candidates) == 1:
        return candidates[0]
    fitting = [s for s in candidates if not _count_mismatch(s.params, arguments)]
    if len(fitting) > 1:
        for argument in arguments:
            if argument.value is not None:
                argument.value = ctx.expression(argument.value)
        fitting = [s for s in fitting if _types_fit(s, arguments)] or fitting
    if len(fitting) == 1:
        return fitting[0]
    forms = [f"candidate: {s.returns} {s}" for s in candidates]
    problem = "is ambiguous" if fitting else f"has no form with {counted(len(arguments), 'argument')}"
    fail(span, f"call of '{name}' {problem}", forms)


def _types_fit(s: Signature, arguments: list[ast.Argument]) -> bool:
    by_name = {p.name: p for p in s.params}
    bound = ((by_name[a.name] if a.name else s.params[i], a.value) for i, a in enumerate(arguments))
    return all(value is None or converts(value, p.type) for p, value in bound)


def bind(
    ctx: Context,
    e: ast.Call | ast.Instantiation | ast.ActionRef,
    signature: Signature,
    explicit: tuple[Type, ...],
    span: Span,
    *,
    directionless_may_vary: bool,
    infer_all: bool = True,
    free: frozenset[TypeVar] = frozenset(),
) -> Bindings:
    """Binds `e.arguments` to the parameters: fills `e.args` and `e.params`, returns the type arguments. Type parameters in
    `free` may stay open, others only with `infer_all` false."""
    params, name = signature.params, signature.name
    arguments = e.arguments or []
    if mismatch := _count_mismatch(params, arguments):
        where = mismatch[0].span if mismatch[0] else span
        declared = getattr(signature.decl, "span", None)
        notes: list[Note | str] = [Note(f"'{name}' is declared here: {signature}", declared)] if declared else []
        raise Certain(where, f"'{name}' {mismatch[1]}", notes)
    by_param: list[ast.Argument | None] = [None] * len(params)
    index = {p.name: i for i, p in enumerate(params)}
    for i, argument in enumerate(arguments):
        by_param[index[argument.name] if argument.name else i] = argument
        if argument.value is not None:
            argument.value = argument_of(ctx, argument.value)
    bindings = solved(ctx, infer(ctx, signature, by_param, explicit, span))
    for v, t in bindings.items():
        if v in ctx.unknown and isinstance(t, types.InfIntType):
            bindings[v], ctx.unknown[v] = v, ctx.unknown[v]._replace(otherwise=t)
        elif v in ctx.unknown and isinstance(t, types.AnyType):
            bindings[v] = v
        elif v in ctx.unknown and t != v:
            ctx.inferred[v] = t
    bindings = {v: types.ANY if t == v and v in free else t for v, t in bindings.items()}
    if infer_all and (unbound := [v.name for v in signature.type_params if bindings[v] == v]):
        notes = [f"write the type arguments, as in {signature.name}<{', '.join('bit<8>' for _ in bindings)}>(...)"]
        fail(span, f"cannot infer type parameter {', '.join(unbound)} of '{signature.name}'", notes)
    for argument in arguments:
        if argument.value is not None:
            argument.value = close(ctx, argument.value, bindings)
    e.params = substitute_params(ctx, params, bindings) if bindings else params
    for p in e.params:
        ctx.meet(p.type)
    e.args = [_bind_one(ctx, p, a, directionless_may_vary) for p, a in zip(e.params, by_param, strict=True)]
    for i, (p, given) in enumerate(zip(params, by_param, strict=True)):
        if given is None and (default := e.args[i]) is not None:
            e.args[i] = _default(ctx, default, bindings, p, signature, span)
    for p, bound, source in zip(params, e.params, by_param, strict=True):
        if p.direction and isinstance(p.type, TypeVar) and isinstance(bound.type, (types.InfIntType, types.StringType)):
            problem = "a string cannot be" if isinstance(bound.type, types.StringType) else "no width is known for"
            hint = ["write it with its width, as in 8w1"] if isinstance(bound.type, types.InfIntType) else []
            place = source.span if source is not None else span
            fail(place, f"{problem} the argument for '{p.direction}' parameter '{p.name}'", hint)
    return bindings


def _bind_one(ctx: Context, p: Parameter, argument: ast.Argument | None, directionless_may_vary: bool) -> ast.Expr | None:
    subject = f"argument for parameter '{p.name}'"
    if argument is None:
        return p.decl.default if p.decl is not None else None
    value = argument.value
    if value is None:
        if p.direction != "out":
            fail(argument.span, f"'_' only stands for out parameters; '{p.name}' is {p.direction or 'directionless'}")
        return None
    if p.direction in ("out", "inout"):
        require_lvalue(value, f"passed to {p.direction} parameter '{p.name}'")
        if value.type != p.type and not isinstance(p.type, (types.AnyType, TypeVar)):
            fail(
                value.span,
                f"{subject} ({p.direction}) must be {p.type}, not {value.type}",
                ["out arguments are not converted"],
            )
        return value
    value = coerce(ctx, value, p.type, subject)
    if not p.direction and not directionless_may_vary and not is_static(value):
        fail(value.span, f"{subject} must be known at compile time", why_not_constant(value))
    return value


def _count_mismatch(params: list[Parameter], arguments: list[ast.Argument]) -> tuple[ast.Argument | None, str] | None:
    """Returns (the wrong argument or None, the reason), or None if the arguments cover the parameters."""
    required = [p for p in params if not p.optional and not (p.decl is not None and p.decl.default is not None)]
    if len(arguments) > len(params):
        return arguments[len(params)], f"takes {counted(len(params), 'argument')}, {len(arguments)} given"
    named = [a for a in arguments if a.name]
    if named and len(named) != len(arguments):
        return named[0], "has both named and positional arguments: name all or none"
    if named:
        names = {p.name for p in params}
        seen: set[str] = set()
        for a in named:
            assert a.name is not None
            if a.name not in names:
                return a, f"has no parameter '{a.name}'"
            if a.name in seen:
                return a, f"is given parameter '{a.name}' twice"
            seen.add(a.name)
        missing = [p.name for p in required if p.name not in seen]
    else:
        missing = [p.name for p in params[len(arguments) :] if p in required]
    if missing:
        takes = f"takes {counted(len(params), 'argument')}, {len(arguments)} given"
        return None, f"{takes}: no argument for {', '.join(repr(m) for m in missing)}"
    return None


# --- inference of type arguments (§8.20) ------------------------------------------------------------------------------


def infer(
    ctx: Context,
    signature: Signature,
    by_param: Sequence[ast.Argument | None],
    explicit: tuple[Type, ...],
    span: Span,
) -> Bindings:
    variables = signature.type_params
    if not variables and explicit:
        fail(span, f"'{signature.name}' takes no type arguments")
    unknown: Bindings = {}
    if ctx.unknown:
        given = [argument.value.type for argument in by_param if argument is not None and argument.value is not None]
        unknown = _known(ctx, (v for t in (*given, *(p.type for p in signature.params)) for v in variables_of(t)))
    if not variables and not unknown:
        return {}
    bindings: Bindings = {v: v for v in variables}
    if explicit:
        if len(explicit) != len(variables):
            raise Certain(span, f"'{signature.name}' takes {counted(len(variables), 'type argument')}, not {len(explicit)}")
        bindings = {v: t for v, t in zip(variables, explicit, strict=True)}
        bindings = {v: v if isinstance(t, types.AnyType) else t for v, t in bindings.items()}
    bindings |= unknown
    for p, argument in zip(signature.params, by_param, strict=True):
        value = argument.value if argument is not None else p.decl.default if p.decl is not None else None
        if value is None or isinstance(value.type, ast.Unchecked):
            continue
        if not unify(p.type, value.type, bindings):
            _argument_mismatch(value, p, substitute(ctx, p.type, bindings), signature)
    for p, argument in zip(signature.params, by_param, strict=True):
        if argument is not None and isinstance(argument.value, (ast.ListExpr, ast.StructInit)):
            if isinstance(p.type, TypeVar) and bindings.get(p.type) == argument.value.type:
                _require_widths(argument.value)
    return bindings


def close(ctx: Context, e: ast.Expr, b: Bindings) -> ast.Expr:
    """Returns `e` with what is now known of its type, if it is a new parser or control, or the name of one, whose type
    arguments are being inferred."""
    if isinstance(e, ast.Name) and isinstance(e.decl, ast.Instantiation):
        _close_instance(ctx, e.decl, b)
        e.type = e.decl.type
    elif isinstance(e, ast.Call) and e.kind == "constructor" and _variables_within(e) & b.keys():
        e = copy.copy(e)  # a default value is of many calls
        e.type = t = substitute(ctx, e.type, b)
        assert isinstance(t, types.CallableType)
        e.decl = t.decl
        _close_arguments(ctx, e, b)
    return e


def _close_instance(ctx: Context, d: ast.Instantiation, b: Bindings) -> None:
    """Sets what is now known of the type of an instance."""
    if _variables_within(d) & b.keys():
        d.type = d.type_ref.resolved = substitute(ctx, d.type, b)
        _close_arguments(ctx, d, b)


def _close_arguments(ctx: Context, e: ast.Call | ast.Instantiation, b: Bindings) -> None:
    e.params = substitute_params(ctx, e.params, b)
    e.args = [a and coerce(ctx, close(ctx, a, b), p.type) for p, a in zip(e.params, e.args, strict=True)]


def _variables_within(e: ast.Expr | ast.Instantiation) -> set[TypeVar]:
    """Returns the type variables in the type of an object, and in those of the new objects that are its arguments."""
    args = e.args if isinstance(e, ast.Instantiation) or (isinstance(e, ast.Call) and e.kind == "constructor") else []
    return variables_of(e.type).union(*(_variables_within(a) for a in args if a is not None))


def _known(ctx: Context, variables: Iterable[TypeVar]) -> Bindings:
    """Returns what has been inferred of those of `variables` that are being inferred."""
    b: Bindings = {}
    waiting = [*variables]
    while waiting:
        v = waiting.pop()
        if v in ctx.unknown and v not in b:
            b[v] = ctx.inferred.get(v, v)
            waiting += variables_of(b[v])
    return b


def settle(ctx: Context, d: ast.Instantiation) -> None:
    """Ends the inference for an instance. A type argument that nothing determines is an error, unless it is written as `_`."""
    b = solved(ctx, _known(ctx, _variables_within(d)))
    b = {v: ctx.unknown[v].otherwise or v if t == v else t for v, t in b.items()}
    if missing := [v for v, t in b.items() if v == t]:
        block = ctx.unknown[missing[0]].block
        notes = [f"write the type arguments, as in {block.name}<{', '.join('bit<8>' for _ in block.type_params)}>(...)"]
        raise Cascade(d.span, f"cannot infer type parameter {', '.join(v.name for v in missing)} of '{block.name}'", notes)
    _close_instance(ctx, d, solved(ctx, b))


def default_as(ctx: Context, e: ast.Expr, t: Type) -> ast.Expr:
    """Returns the default value `e` of a parameter of type `t` with type arguments inferred from it."""
    b = _known(ctx, variables_of(e.type))
    return close(ctx, e, solved(ctx, b)) if b and unify(t, e.type, b) else e


def _default(ctx: Context, e: ast.Expr, b: Bindings, p: Parameter, signature: Signature, span: Span) -> ast.Expr:
    """Returns the default value of a parameter for these type arguments."""
    e = close(ctx, e, b)
    if missing := [v.name for v in signature.type_params if v in variables_of(e.type)]:
        problem = f"cannot infer type parameter {', '.join(missing)} of '{signature.name}'"
        fail(span, f"{problem}, which the default value of parameter '{p.name}' needs")
    return e


def _require_widths(e: ast.ListExpr | ast.StructInit) -> None:
    """Reports literals without a width in a list that becomes an argument without conversion."""
    for value in e.values:
        if isinstance(value, (ast.ListExpr, ast.StructInit)):
            _require_widths(value)
        elif isinstance(value.type, types.InfIntType):
            fail(value.span, "this integer has no width here: write it as in 8w1")


def _argument_mismatch(value: ast.Expr, p: Parameter, expected: Type, signature: Signature) -> None:
    reason = ""
    if isinstance(expected, types.CallableType):
        reason = callable_mismatch(value.type, expected)
    message = f"argument for parameter '{p.name}' of '{signature.name}' must be {expected}, not {value.type}"
    fail(value.span, message + (f": {reason}" if reason else ""))
