"""Types: from syntax to types, generic declarations and their specialisations (P4_16 v1.2.5 §7)."""

from __future__ import annotations

import copy

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.context import Cascade, Certain, Context
from ina.p4.compiler.check.values import constant_int
from ina.p4.compiler.errors import Note, Span, fail
from ina.p4.compiler.types import BitType, Parameter, Signature, Type, TypeVar, variables_of

Bindings = dict[TypeVar, Type]

MAX_WIDTH = 1 << 16

_PLAIN = {
    "bool": types.BOOL, "error": types.ERROR, "match_kind": types.MATCH_KIND, "string": types.STRING,
    "void": types.VOID, "_": types.ANY,
}


_NO_ELEMENT = (
    types.VoidType, types.InfIntType, types.StringType, types.VarbitType, types.CallableType, types.AnyType,
)


def resolve(ctx: Context, ref: ast.TypeRef) -> Type:
    """Returns the type that `ref` denotes, and stores it in `ref.resolved`."""
    ref.resolved = _resolve(ctx, ref)
    ctx.meet(ref.resolved)
    return ref.resolved


def _resolve(ctx: Context, ref: ast.TypeRef) -> Type:
    match ref:
        case ast.NamedTypeRef():
            decl = ctx.lookup("type", ref.name, ref.span, ref.absolute)
            return named_type(ctx, decl, tuple(resolve(ctx, a) for a in ref.args), ref.span, ref.name)
        case ast.BaseTypeRef():
            return _resolve_base(ctx, ref)
        case ast.StackTypeRef():
            element = resolve(ctx, ref.element)
            if isinstance(element, _NO_ELEMENT):
                fail(ref.span, f"there are no arrays of {element}")
            size = constant_int(ctx, ref.size, "size of a header stack or array")
            if size <= 0:
                fail(ref.size.span, f"a header stack or array needs a positive size, not {size}")
            return types.StackType(element, size)
        case ast.TupleTypeRef():
            elements = tuple(resolve(ctx, e) for e in ref.elements)
            for element, element_ref in zip(elements, ref.elements, strict=True):
                if isinstance(element, (types.VoidType, types.AnyType, types.CallableType)):
                    fail(element_ref.span, f"a tuple cannot have an element of type {element}")
            return types.TupleType(elements)
    assert isinstance(ref, ast.ListTypeRef)
    return types.ListType(resolve(ctx, ref.element))


def _resolve_base(ctx: Context, ref: ast.BaseTypeRef) -> Type:
    if (plain := _PLAIN.get(ref.kind)) is not None:
        return plain
    if ref.width is None:
        return types.INT if ref.kind == "int" else BitType(1)
    width = constant_int(ctx, ref.width, f"width of {ref.kind}<>")
    least = 1 if ref.kind == "int" else 0
    if not least <= width <= MAX_WIDTH:
        fail(ref.width.span, f"width of {ref.kind}<{width}> is not in {least}..{MAX_WIDTH}")
    return types.VarbitType(width) if ref.kind == "varbit" else BitType(width, ref.kind == "int")


def named_type(ctx: Context, decl: object, args: tuple[Type, ...], span: Span, name: str, *, bare: bool = False) -> Type:
    """Returns the type that `decl` declares, specialised to `args`. `bare`: a generic type may lack arguments."""
    match decl:
        case Type():
            generic: Type = decl
        case ast.RecordDecl() if decl.type_params:
            if not args and not bare:
                fail(span, f"{decl.kind} {name} needs {len(decl.type_params)} type arguments: {name}<...>")
            return record_type(ctx, decl, args, span) if args else types.StructType(name, decl=decl)
        case ast.TypeDeclaration() if decl.type is not None:
            generic = decl.type
        case ast.TypeDeclaration():
            raise Cascade(span, f"type '{name}' has an error in its declaration", [Note("declared here", decl.span)])
        case _:
            notes = [Note("declared here", decl.span)] if isinstance(decl, ast.Node) else ()
            raise Certain(span, f"'{name}' is not a type", notes)
    if not args:
        return generic
    if not isinstance(generic, types.CallableType) or not generic.type_params:
        fail(span, f"{name} takes no type arguments")
    return specialise(ctx, generic, args, span)


def type_variables(ctx: Context, params: list[ast.Name]) -> tuple[TypeVar, ...]:
    """Declares type parameters in the current scope."""
    owner = next(ctx.generic_owners)
    variables = tuple(TypeVar(param.name, owner) for param in params)
    for param, variable in zip(params, variables, strict=True):
        ctx.scope.declare(param.name, variable, param.span)
    return variables


def record_type(ctx: Context, decl: ast.RecordDecl, args: tuple[Type, ...], span: Span) -> types.RecordType:
    """Returns the record type of `decl`, for generic ones that with type arguments `args`; one object per argument list."""
    key = (decl, args)
    if (existing := ctx.records.get(key)) is not None:
        return existing
    if len(args) != len(decl.type_params):
        raise Certain(span, f"{decl.kind} {decl.name} takes {len(decl.type_params)} type arguments, not {len(args)}")
    cls = {"struct": types.StructType, "header": types.HeaderType, "header_union": types.UnionType}[decl.kind]
    record = cls(decl.name, {}, args, decl)
    with ctx.nested(ctx.globals):
        for param, arg in zip(decl.type_params, args, strict=True):
            ctx.scope.declare(param.name, arg, param.span)
        for field in decl.fields:
            if field.name in record.fields:
                first = record.fields[field.name].decl
                assert first is not None
                notes = [Note("first declared here", first.span)]
                fail(field.span, f"{decl.kind} {decl.name} has field '{field.name}' twice", notes)
            field_type = resolve(ctx, field.type_ref)
            _check_field(decl, field, field_type)
            record.fields[field.name] = types.Field(field.name, field_type, field)
    ctx.records[key] = record
    return record


def _check_field(decl: ast.RecordDecl, field: ast.StructField, t: Type) -> None:
    plain = types.strip_new(t)
    if decl.kind == "header":
        if not isinstance(plain, types.VarbitType) and not _is_flat(plain):
            allowed = "bit<>, int<>, varbit<>, bool, serialisable enums and structs of those"
            fail(field.type_ref.span, f"a header cannot have a field of type {t}", [f"headers are made of {allowed}"])
    elif decl.kind == "header_union":
        if not isinstance(plain, (types.HeaderType, TypeVar)):
            fail(field.type_ref.span, f"a header_union can only have headers, not {t}")
    elif isinstance(plain, (types.VoidType, types.CallableType, types.CalleeType, types.InfIntType)):
        fail(field.type_ref.span, f"a struct cannot have a field of type {t}")


def specialise(ctx: Context, generic: types.CallableType, args: tuple[Type, ...], span: Span) -> types.CallableType:
    """Returns `generic` (extern, parser, control, package type) with type arguments; one object per argument list."""
    if len(args) != len(generic.type_params):
        raise Certain(span, f"{generic.name} takes {len(generic.type_params)} type arguments, not {len(args)}")
    key = (generic, args)
    if (existing := ctx.specialised.get(key)) is not None:
        return existing
    if generic.decl in ctx.templates:
        if generic.decl in ctx.open_templates:
            raise Certain(span, f"'{generic.name}' cannot contain itself", [Note("declared here", generic.decl.span)])
        if not any(variables_of(argument) for argument in args):
            ctx.specialised[key] = _checked_copy(ctx, generic, args)
            return ctx.specialised[key]
    result = type(generic)(generic.name, (), args, decl=generic.decl)
    ctx.specialised[key] = result
    bindings = dict(zip(generic.type_params, args, strict=True))
    result.params = substitute_params(ctx, generic.params, bindings)
    result.ctor_params = substitute_params(ctx, generic.ctor_params, bindings)
    if isinstance(generic, types.ExternType):
        assert isinstance(result, types.ExternType)
        result.methods = {n: [_substitute_signature(ctx, s, bindings) for s in ss] for n, ss in generic.methods.items()}
        result.ctors = [_substitute_signature(ctx, s, bindings) for s in generic.ctors]
    return result


def _checked_copy(ctx: Context, generic: types.CallableType, args: tuple[Type, ...]) -> types.CallableType:
    """Returns the type of a checked copy of a generic parser or control."""
    block = copy.deepcopy(ctx.templates[generic.decl])
    assert isinstance(block, ast.ParserDecl | ast.ControlDecl)
    ctx.open_templates.add(generic.decl)
    try:
        with ctx.code_of(""), ctx.nested(ctx.globals) as scope:
            for param, arg in zip(block.type_params, args, strict=True):
                scope.declare(param.name, arg, param.span)
            block.type_params = []
            ctx.statement(block)
    finally:
        ctx.open_templates.remove(generic.decl)
    ctx.new_declarations.append(block)
    assert isinstance(block.type, types.CallableType)
    block.type.args = args
    return block.type


def _substitute_signature(ctx: Context, s: Signature, b: Bindings) -> Signature:
    return Signature(
        s.name,
        s.type_params,
        substitute_params(ctx, s.params, b),
        substitute(ctx, s.returns, b),
        s.decl,
        s.abstract,
    )


def substitute_params(ctx: Context, params: list[Parameter], b: Bindings) -> list[Parameter]:
    return [Parameter(p.name, p.direction, substitute(ctx, p.type, b), p.optional, p.decl) for p in params]


def substitute(ctx: Context, t: Type, b: Bindings) -> Type:
    """Returns `t` with type variables replaced; unbound ones stay."""
    match t:
        case TypeVar():
            return b.get(t, t)
        case types.StackType():
            return types.StackType(substitute(ctx, t.element, b), t.size)
        case types.TupleType():
            return types.TupleType(tuple(substitute(ctx, e, b) for e in t.elements))
        case types.ListType() | types.SetType():
            return type(t)(substitute(ctx, t.element, b))
        case types.RecordType() if t.args and t.decl is not None:
            return record_type(ctx, t.decl, tuple(substitute(ctx, a, b) for a in t.args), t.decl.span)
        case types.CallableType() if t.args:
            args = tuple(substitute(ctx, a, b) for a in t.args)
            return t if args == t.args else specialise(ctx, t.decl.type, args, t.decl.span)
    return t


def _is_flat(t: Type) -> bool:
    """Returns True for what a struct or array in a header may be made of (§7.2.2): scalars, and such structs and arrays."""
    match plain := types.strip_new(t):
        case types.StructType():
            return all(_is_flat(f.type) for f in plain.fields.values())
        case types.StackType():
            return _is_flat(plain.element)
    return isinstance(plain, (BitType, types.BoolType, types.SerEnumType, TypeVar))
