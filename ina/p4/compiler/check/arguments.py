"""Arguments: choice of an overload, binding to parameters, inference of types (P4_16 v1.2.5 §6.8, §7.2.9.2, §8.20)."""

from __future__ import annotations

from collections.abc import Sequence

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.context import Context, counted
from ina.p4.compiler.check.conversions import callable_mismatch, coerce, converts
from ina.p4.compiler.check.types import Bindings, substitute, substitute_params
from ina.p4.compiler.check.values import argument_of, is_static, require_lvalue, why_not_constant
from ina.p4.compiler.errors import Note, Span, fail
from ina.p4.compiler.types import Parameter, Signature, Type, TypeVar


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
        fail(where, f"'{name}' {mismatch[1]}", notes)
    by_param: list[ast.Argument | None] = [None] * len(params)
    index = {p.name: i for i, p in enumerate(params)}
    for i, argument in enumerate(arguments):
        by_param[index[argument.name] if argument.name else i] = argument
        if argument.value is not None:
            argument.value = argument_of(ctx, argument.value)
    bindings = infer(ctx, signature, by_param, explicit, span)
    bindings = {v: types.ANY if t == v and v in free else t for v, t in bindings.items()}
    if infer_all and (unbound := [v.name for v, t in bindings.items() if t == v]):
        notes = [f"write the type arguments, as in {signature.name}<{', '.join('bit<8>' for _ in bindings)}>(...)"]
        fail(span, f"cannot infer type parameter {', '.join(unbound)} of '{signature.name}'", notes)
    e.params = substitute_params(ctx, params, bindings) if bindings else params
    e.args = [_bind_one(ctx, p, a, directionless_may_vary) for p, a in zip(e.params, by_param, strict=True)]
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

_CALLABLES = (types.ParserType, types.ControlType, types.PackageType)


def unify(pattern: Type, actual: Type, b: Bindings) -> bool:
    """Binds the type variables of `pattern` (those that are keys of `b`) so that it equals `actual`. Returns False if
    impossible.

    `b` maps a variable to itself while it is unbound. Untyped integers bind only variables that nothing else binds.
    """
    if isinstance(pattern, TypeVar) and pattern in b:
        bound = b[pattern]
        if bound == pattern or isinstance(bound, types.AnyType) or (isinstance(bound, types.InfIntType) and actual != bound):
            b[pattern] = actual
            return True
        return same_shape(bound, actual)
    if isinstance(actual, types.AnyType) or isinstance(pattern, types.AnyType):
        return True
    match pattern:
        case types.StackType() if isinstance(actual, types.StackType):
            return pattern.size == actual.size and unify(pattern.element, actual.element, b)
        case types.TupleType() if isinstance(actual, types.TupleType):
            pairs = zip(pattern.elements, actual.elements, strict=False)
            return len(pattern.elements) == len(actual.elements) and all(unify(w, f, b) for w, f in pairs)
        case types.ListType() | types.SetType() if type(pattern) is type(actual):
            return unify(pattern.element, actual.element, b)
        case types.ListType() if isinstance(actual, types.TupleType):
            return all(unify(pattern.element, f, b) for f in actual.elements)
        case types.RecordType() if pattern.args and isinstance(actual, types.RecordType):
            if actual.decl is None and pattern.fields.keys() == actual.fields.keys():
                return all(unify(f.type, actual.fields[n].type, b) for n, f in pattern.fields.items())
            return pattern.decl is actual.decl and all(map(lambda w, f: unify(w, f, b), pattern.args, actual.args))
        case types.RecordType() if pattern.args and isinstance(actual, types.TupleType):
            fields = [f.type for f in pattern.fields.values()]
            return len(fields) == len(actual.elements) and all(map(lambda w, f: unify(w, f, b), fields, actual.elements))
        case types.CallableType() if isinstance(actual, types.CallableType):
            return _unify_callable(pattern, actual, b)
    return True  # the caller checks whether one converts to the other


def _unify_callable(pattern: types.CallableType, actual: types.CallableType, b: Bindings) -> bool:
    if pattern.decl is actual.decl and pattern.args:
        return len(pattern.args) == len(actual.args) and all(map(lambda w, f: unify(w, f, b), pattern.args, actual.args))
    if isinstance(pattern, _CALLABLES) and type(pattern) is type(actual):
        if len(pattern.params) < len(actual.params):
            return False
        return all(unify(w.type, f.type, b) for w, f in zip(pattern.params, actual.params, strict=False))
    return pattern is actual


def same_shape(a: Type, b: Type) -> bool:
    """Returns True if the types are equal, or one is a literal's type that will be converted to the other."""
    literal = (types.InfIntType, types.AnyType)
    if a == b or isinstance(a, literal) or isinstance(b, literal):
        return True
    if isinstance(a, types.SerEnumType) or isinstance(b, types.SerEnumType):
        return types.underlying(a) == types.underlying(b)
    if isinstance(b, types.TupleType) or (isinstance(b, types.RecordType) and b.decl is None):
        return isinstance(a, (types.RecordType, types.TupleType, types.StackType, types.ListType))
    return False


def infer(
    ctx: Context,
    signature: Signature,
    by_param: Sequence[ast.Argument | None],
    explicit: tuple[Type, ...],
    span: Span,
) -> Bindings:
    variables = signature.type_params
    if not variables:
        if explicit:
            fail(span, f"'{signature.name}' takes no type arguments")
        return {}
    bindings: Bindings = {v: v for v in variables}
    if explicit:
        if len(explicit) != len(variables):
            fail(span, f"'{signature.name}' takes {counted(len(variables), 'type argument')}, not {len(explicit)}")
        bindings = {v: t for v, t in zip(variables, explicit, strict=True)}
        bindings = {v: v if isinstance(t, types.AnyType) else t for v, t in bindings.items()}
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


def mentions(t: Type, v: TypeVar) -> bool:
    """Returns True if the type variable `v` occurs in `t`."""
    if t == v:
        return True
    inner = [*getattr(t, "args", ()), *getattr(t, "elements", ()), getattr(t, "element", None)]
    return any(isinstance(part, Type) and mentions(part, v) for part in inner)
