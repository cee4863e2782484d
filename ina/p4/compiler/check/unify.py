"""Unification of types, for the inference of type arguments (P4_16 v1.2.5 §8.20)."""

from __future__ import annotations

from ina.p4.compiler import types
from ina.p4.compiler.check.context import Context
from ina.p4.compiler.check.types import Bindings, substitute
from ina.p4.compiler.types import Type, TypeVar, variables_of

_CALLABLES = (types.ParserType, types.ControlType, types.PackageType)


def unify(pattern: Type, actual: Type, b: Bindings) -> bool:
    """Binds the type variables of both types (those that are keys of `b`) so that they become equal. Returns False if
    impossible.

    `b` maps a variable to itself while it is unbound. Untyped integers bind only variables that nothing else binds.
    """
    if isinstance(pattern, TypeVar) and pattern in b:
        return _unify_variable(pattern, actual, b)
    if isinstance(actual, TypeVar) and actual in b:
        return _unify_variable(actual, pattern, b)
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


def _unify_variable(v: TypeVar, t: Type, b: Bindings) -> bool:
    v = _last(v, b)
    bound, t = b[v], b[_last(t, b)] if isinstance(t, TypeVar) and t in b else t
    if t == v:
        return True
    if bound == v or isinstance(bound, types.AnyType) or (isinstance(bound, types.InfIntType) and t != bound):
        if _occurs(v, t, b):
            return False
        b[v] = t
        return True
    if variables_of(bound) & b.keys() or variables_of(t) & b.keys():
        return unify(bound, t, b)
    return same_shape(bound, t)


def _last(v: TypeVar, b: Bindings) -> TypeVar:
    """Returns the variable at the end of the chain of variables that are bound to each other."""
    while isinstance(following := b[v], TypeVar) and following in b and following != v:
        v = following
    return v


def _occurs(v: TypeVar, t: Type, b: Bindings) -> bool:
    """Returns True if `t`, with what its variables are bound to, has `v` in it: no type is a part of itself."""
    return any(u == v or (b.get(u, u) != u and _occurs(v, b[u], b)) for u in variables_of(t))


def solved(ctx: Context, b: Bindings) -> Bindings:
    """Returns the bindings with bound variables replaced in what others are bound to."""
    while any(b.get(u, u) != u for t in b.values() for u in variables_of(t)):
        b = {v: substitute(ctx, t, b) for v, t in b.items()}
    return b


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


