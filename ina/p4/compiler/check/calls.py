"""Calls of functions, actions, methods, constructors and `apply`; instances (P4_16 v1.2.5 §8.20, §8.21, §11.3)."""

from __future__ import annotations

import copy

from ina.base.plurals import counted
from ina.p4.compiler import ast, types
from ina.p4.compiler.check.arguments import bind, choose, close, settle
from ina.p4.compiler.check.blocks import function_body
from ina.p4.compiler.check.context import Certain, Context, Unknown
from ina.p4.compiler.check.members import SIZE_METHODS, check_member
from ina.p4.compiler.check.types import Bindings, named_type, resolve, specialise, substitute
from ina.p4.compiler.check.values import require_lvalue
from ina.p4.compiler.errors import Note, Span, fail
from ina.p4.compiler.types import Signature, Type, TypeVar, size_in_bits, variables_of


def check_call(ctx: Context, e: ast.Call) -> ast.Expr:
    if isinstance(e.callee, ast.Member) and isinstance(e.callee.type, ast.Unchecked):
        e.callee = callee = check_member(ctx, e.callee, called=True)
    else:
        e.callee = callee = ctx.expression(e.callee)
    t = callee.type
    if isinstance(t, types.MetaType):
        return constructor_call(ctx, e, t.type)
    if not isinstance(t, types.CalleeType):
        applies = isinstance(t, (types.TableType, types.ControlType, types.ParserType))
        hint = [f"apply it: {ast.source_text(callee)}.apply(...)"] if applies else []
        fail(e.span, f"'{ast.source_text(callee)}' of type {t} cannot be called", hint)
    signature = choose(ctx, t.signatures, e.arguments, callee.span, ast.source_text(callee))
    e.decl = signature.decl
    if isinstance(callee, ast.Member):
        signature = _classify_method(ctx, e, callee, signature)
    elif isinstance(signature.decl, ast.ActionDecl):
        e.kind = "action"
        if ctx.owner not in ("control", "action"):
            fail(e.span, f"action '{signature.name}' can only be called in controls and actions")
    else:
        e.kind = "extern_function" if isinstance(signature.decl, ast.ExternFunctionDecl) else "function"
    explicit = tuple(resolve(ctx, a) for a in e.type_args)
    bindings = bind(ctx, e, signature, explicit, e.span, directionless_may_vary=e.kind in ("action", "function"))
    e.type_bindings = {v.name: bindings[v] for v in signature.type_params}
    e.type = substitute(ctx, signature.returns, bindings)
    if isinstance(e.type, types.InfIntType) and e.kind != "size_method":
        fail(e.span, f"'{signature.name}' cannot return an int without width: write the argument as in 8w1")
    if e.kind in ("parser_apply", "control_apply"):
        e.receiver = close(ctx, e.on, bindings)
        assert isinstance(e.receiver.type, types.CallableType)
        e.decl = e.receiver.type.decl
    if isinstance(signature.decl, ast.FunctionDecl) and signature.decl.type_params:
        e.decl = _specialise_function(ctx, signature, bindings, e.span)
    _check_rules(ctx, e)
    return e


def _classify_method(ctx: Context, e: ast.Call, callee: ast.Member, signature: Signature) -> Signature:
    """Sets the kind and the receiver of a call of a method; returns its signature, for a direct application that of the
    instance."""
    base = callee.base
    e.method = callee.member
    t = base.type
    if isinstance(t, types.MetaType):
        if callee.member == "apply":
            base = callee.base = _hoist_instance(ctx, base, t.type)
            t = base.type
            assert isinstance(t, types.CallableType)
            signature = Signature("apply", (), t.params, types.VOID, t.decl)
        else:
            e.kind, e.receiver = "size_method", base
            return signature
    e.receiver = base
    t = types.strip_new(t)
    if isinstance(t, types.ExternType):
        e.kind = t.name if t.name in ("packet_in", "packet_out") else "method"
    elif isinstance(t, types.ParserType):
        e.kind = "parser_apply"
        if ctx.owner != "parser":
            fail(e.span, "parsers can only be applied in parsers")
    elif isinstance(t, types.ControlType):
        e.kind = "control_apply"
        if ctx.owner != "control":
            fail(e.span, "controls can only be applied in the apply block of controls")
    elif isinstance(t, types.TableType):
        e.kind = "table_apply"
        if ctx.owner not in ("control", "table"):
            fail(e.span, "tables can only be applied in the apply block of controls")
    elif callee.member in SIZE_METHODS:
        e.kind = "size_method"
    else:
        e.kind = "stack_method" if isinstance(t, types.StackType) else "header_method"
    return signature


def _hoist_instance(ctx: Context, base: ast.Expr, t: Type) -> ast.Name:
    """Lowers a direct application: an instance named like the type, declared before all uses (§8.21, §13.6)."""
    assert isinstance(t, types.CallableType)
    if ctx.owner_locals is None or ctx.owner not in ("parser", "control"):
        fail(base.span, f"{t} can only be applied in a parser state or in the apply block of a control")
    names = {d.name for d in ctx.owner_locals if isinstance(d, ast.Declaration)}
    name, n = t.name, 0
    while name in names:
        name, n = f"{t.name}_{n}", n + 1
    ref = base.ref if isinstance(base, ast.TypeExpr) else ast.NamedTypeRef(base.span, t.name)
    instance = ast.Instantiation(base.span, name, ref, [])
    instantiate(ctx, instance, None if isinstance(base, ast.TypeExpr) else t)
    ctx.owner_locals.append(instance)
    receiver = ast.Name(base.span, name)
    receiver.decl, receiver.type = instance, instance.type
    return receiver


def _check_rules(ctx: Context, e: ast.Call) -> None:
    """Checks rules for particular callees beyond their signatures."""
    match e.kind:
        case "header_method" if e.method != "isValid":
            require_lvalue(e.on, f"{e.method}()")
        case "stack_method":
            require_lvalue(e.on, "pushed and popped")
            count = e.given(0)
            if count.const is None or count.const < 0:
                fail(count.span, f"{e.method} needs a count that is a positive constant")
        case "size_method":
            t = e.on.type.type if isinstance(e.on.type, types.MetaType) else e.on.type
            bits = size_in_bits(t, largest=e.method.startswith("max"))
            if bits is None:
                fail(e.span, f"type {t} has no size in bits")
            e.const = bits if e.method.endswith("Bits") else (bits + 7) // 8
        case "packet_in":
            _check_packet_in(ctx, e)
        case "packet_out":
            emitted = types.strip_new(e.type_bindings["T"]) if "T" in e.type_bindings else None
            if emitted is not None and not isinstance(emitted, (types.RecordType, types.StackType, types.TupleType, TypeVar)):
                fail(e.span, f"only headers, and stacks, unions and structs of them can be emitted, not {emitted}")
        case "extern_function" if e.decl.name == "static_assert":
            condition = e.given(0)
            if condition.const is False:
                message = e.args[1].const if len(e.args) > 1 and e.args[1] is not None else ""
                fail(e.span, f"static assertion failed{': ' if message else ''}{message}")
            e.const = condition.const
        case "extern_function" if e.decl.name == "verify" and ctx.owner not in ("parser", "function"):
            fail(e.span, "verify() can only be called in parsers")


def _check_packet_in(ctx: Context, e: ast.Call) -> None:
    if ctx.owner == "control":
        fail(e.span, f"{e.method}() can only be called in parsers")
    t = e.type_bindings.get("T")
    if t is None:
        return
    plain = types.strip_new(t)
    match e.method:
        case "extract":
            if not isinstance(plain, (types.HeaderType, types.TypeVar)):
                fail(e.span, f"only a header can be extracted, not {t}", ["extract the headers of a struct one by one"])
            if isinstance(plain, types.HeaderType):
                flexible = [f.name for f in plain.fields.values() if isinstance(types.strip_new(f.type), types.VarbitType)]
                if len(flexible) > 1:
                    fail(e.span, f"header {t} has {len(flexible)} varbit fields: extract can fill one")
                if len(flexible) != len(e.params) - 1:
                    fields = f"has varbit field '{flexible[0]}'" if flexible else "has no varbit field"
                    count = "a second argument: that field's size in bits" if flexible else "only the header as argument"
                    fail(e.span, f"header {t} {fields}: extract needs {count}")
        case "lookahead" if isinstance(plain, types.VoidType):
            fail(e.span, "lookahead needs a type, not void")
        case "lookahead" if size_in_bits(plain, largest=False) != size_in_bits(plain, largest=True):
            fail(e.span, f"lookahead needs a type with a fixed size, not {t}")


def _specialise_function(ctx: Context, signature: Signature, bindings: Bindings, span: Span) -> ast.FunctionDecl:
    """Returns a checked copy of a generic function for these type arguments; one per list of them."""
    decl = signature.decl
    if any(variables_of(t) for t in bindings.values()):
        assert isinstance(decl, ast.FunctionDecl)
        return decl  # within a generic declaration that is checked for itself
    key = (decl, tuple(bindings[v] for v in signature.type_params))
    if (existing := ctx.specialised_functions.get(key)) is not None:
        return existing
    function = copy.deepcopy(ctx.templates[decl])
    assert isinstance(function, ast.FunctionDecl)
    ctx.specialised_functions[key] = function
    with ctx.code_of(""), ctx.nested(ctx.globals) as scope:
        for param, bound in zip(function.type_params, key[1], strict=True):
            scope.declare(param.name, bound, param.span)
        function.type_params = []
        function.name = f"{decl.name}_{len(ctx.specialised_functions)}"
        function_body(ctx, function)
    ctx.new_declarations.append(function)
    return function


# --- instances (§11.3) ------------------------------------------------------------------------------------------------


def constructor_call(ctx: Context, e: ast.Call, t: Type) -> ast.Expr:
    if isinstance(t, types.CallableType) and ctx.owner in ("parser", "control", "action", "function"):
        fail(
            e.span,
            f"'{t.name}(...)' without a name can only be a constructor argument",
            [f"declare it: {t.name}(...) name;"],
        )
    e.type, e.kind = construct(ctx, e, t, tuple(resolve(ctx, a) for a in e.type_args), e.span), "constructor"
    e.decl = e.type.decl
    return e


def instantiate(ctx: Context, instance: ast.Instantiation, t: Type | None = None) -> None:
    """Types an Instantiation and binds its constructor arguments."""
    if t is None:
        ref = instance.type_ref
        explicit: tuple[Type, ...] = ()
        if isinstance(ref, ast.NamedTypeRef):
            decl = ctx.lookup("type", ref.name, ref.span, ref.absolute)
            t = named_type(ctx, decl, (), ref.span, ref.name, bare=True)
            explicit = tuple(resolve(ctx, a) for a in ref.args)
        else:
            t = resolve(ctx, ref)
        instance.type = construct(ctx, instance, t, explicit, instance.span)
        ref.resolved = instance.type
    else:
        instance.type = construct(ctx, instance, t, (), instance.span)
    if isinstance(instance.type, types.PackageType):
        settle(ctx, instance)


def construct(
    ctx: Context, e: ast.Call | ast.Instantiation, t: Type, explicit: tuple[Type, ...], span: Span
) -> types.CallableType:
    """Binds constructor arguments; returns the (specialised) type of the new object."""
    if not isinstance(t, types.CallableType):
        fail(span, f"{t} cannot be instantiated: only parsers, controls, packages and externs can")
    if ctx.in_parser and isinstance(t, types.ControlType):
        fail(span, f"control {t} cannot be instantiated in a parser")
    if isinstance(t.decl, (ast.ParserTypeDecl, ast.ControlTypeDecl)):
        fail(
            span,
            f"{t} cannot be instantiated: it is only a type, without a body",
            [Note("declared here", t.decl.span)],
        )
    if t.decl in ctx.templates:
        t, explicit = _with_unknown(ctx, t, explicit, span), ()
    if isinstance(t, types.ExternType):
        if not t.ctors:
            fail(span, f"extern {t} has no constructor", [Note("declared here", t.decl.span)])
        if explicit and len(explicit) != len(t.type_params):
            takes = f"takes {counted(len(t.type_params), 'type argument')}, not {len(explicit)}"
            hint = ["v1model's register, counter and meter take an index type from V1MODEL_VERSION 20200408 on"]
            indexed = t.name in ("register", "counter", "meter")
            raise Certain(span, f"extern {t.name} {takes}", hint if indexed else [Note("declared here", t.decl.span)])
        constructor = choose(ctx, t.ctors, e.arguments, span, t.name)
        signature = Signature(t.name, t.type_params, constructor.params, types.VOID, constructor.decl)
    else:
        signature = Signature(t.name, t.type_params, t.ctor_params, types.VOID, t.decl)
    infer_all = not isinstance(t, types.PackageType)
    free = _indices(t, explicit) if isinstance(t, types.ExternType) else frozenset()
    bindings = bind(ctx, e, signature, explicit, span, directionless_may_vary=False, infer_all=infer_all, free=free)
    if t.type_params:
        return specialise(ctx, t, tuple(bindings[v] for v in t.type_params), span)
    closed = substitute(ctx, t, bindings)
    assert isinstance(closed, types.CallableType)
    return closed


def _with_unknown(ctx: Context, t: types.CallableType, explicit: tuple[Type, ...], span: Span) -> types.CallableType:
    """Returns a generic parser or control with its type arguments; for those that are not written, or are `_`, with variables
    that what follows may bind: constructor arguments, an application, or the parameter that the object is an argument for."""
    if explicit and len(explicit) != len(t.type_params):
        raise Certain(span, f"'{t.name}' takes {counted(len(t.type_params), 'type argument')}, not {len(explicit)}")
    arguments: list[Type] = []
    owner = next(ctx.generic_owners)
    for parameter, argument in zip(t.type_params, explicit or [None] * len(t.type_params), strict=True):
        if argument is None or isinstance(argument, types.AnyType):
            variable = TypeVar(parameter.name, owner)
            ctx.unknown[variable] = Unknown(t, argument)
            argument = variable
        arguments.append(argument)
    return specialise(ctx, t, tuple(arguments), span)


def _indices(t: types.ExternType, explicit: tuple[Type, ...]) -> frozenset[TypeVar]:
    """Returns the type parameters written as `_` that are only types of `in` parameters: Register<bit<32>, _> takes indices of
    any width."""
    open_ = {v for v, argument in zip(t.type_params, explicit, strict=False) if isinstance(argument, types.AnyType)}
    for signature in (s for signatures in t.methods.values() for s in signatures):
        for p in signature.params:
            if p.direction != "in" or not isinstance(p.type, TypeVar):
                open_ -= variables_of(p.type)
        open_ -= variables_of(signature.returns)
    return frozenset(open_)
