"""Statements and local declarations (P4_16 v1.2.5 §11, §12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.blocks import control_declaration, function_body, parser_declaration
from ina.p4.compiler.check.calls import instantiate
from ina.p4.compiler.check.context import Context, suggest
from ina.p4.compiler.check.conversions import coerce
from ina.p4.compiler.check.types import resolve
from ina.p4.compiler.check.values import condition_of, is_static, require_lvalue, value_of, why_not_constant
from ina.p4.compiler.errors import Note, fail
from ina.p4.compiler.types import BitType, Signature, Type

_COMPOUND_BITS = frozenset(["+", "-", "*", "&", "|", "^", "|+|", "|-|", "/", "%"])
_NOT_VARIABLE = (types.InfIntType, types.StringType, types.ListType, types.MatchKindType, types.AnyType)
_NO_VALUE = (types.VoidType, types.CallableType, types.CalleeType, types.TableType, types.MetaType)


def _empty(ctx: Context, s: ast.EmptyStatement) -> None:
    pass


def const_declaration(ctx: Context, d: ast.ConstDecl) -> None:
    t = resolve(ctx, d.type_ref)
    if isinstance(t, _NO_VALUE):
        fail(d.type_ref.span, f"constant '{d.name}' cannot have type {t}")
    value = coerce(ctx, value_of(ctx, d.value), t, f"value of constant '{d.name}'")
    if value.const is None and not isinstance(t, types.ListType) and not is_static(value):
        fail(
            d.value.span,
            f"the value of constant '{d.name}' is not known at compile time",
            why_not_constant(value),
        )
    d.value, d.type = value, t
    ctx.declare(d)


def variable_declaration(ctx: Context, d: ast.VarDecl) -> None:
    t = resolve(ctx, d.type_ref)
    if isinstance(t, _NO_VALUE) or isinstance(t, _NOT_VARIABLE):
        hint = ["give it a width, as in bit<32> or int<32>"] if isinstance(t, types.InfIntType) else []
        if isinstance(t, types.CallableType):
            hint = [f"an instance is declared as {t.name}(...) {d.name};"]
        fail(d.type_ref.span, f"variable '{d.name}' cannot have type {t}", hint)
    d.type = t
    if d.init is not None:
        d.init = coerce(ctx, value_of(ctx, d.init), t, f"initial value of '{d.name}'")
    ctx.declare(d)


def instance_declaration(ctx: Context, d: ast.Instantiation) -> None:
    if isinstance(d.type_ref, ast.StackTypeRef):
        fail(d.span, "arrays of instances are not part of P4_16")
    if ctx.owner:
        fail(d.span, f"an instance cannot be made here: declare '{d.name}' before the apply block or the states")
    instantiate(ctx, d)
    if isinstance(d.type, types.PackageType) and ctx.scope is not ctx.globals:
        fail(d.span, "packages can only be instantiated at the top level")
    if isinstance(d.type, (types.ParserType, types.ControlType)) and ctx.scope is ctx.globals:
        fail(
            d.span,
            f"{d.type} cannot be instantiated at the top level",
            ["pass it to a package: Switch(MyParser(), ...)"],
        )
    _abstract_methods(ctx, d)
    ctx.declare(d)


def _abstract_methods(ctx: Context, d: ast.Instantiation) -> None:
    """Checks bodies of abstract methods: `Extern() x = { bit<8> f(in bit<8> a) { ... } };` (§11.3.1)."""
    t = d.type
    required = {}
    if isinstance(t, types.ExternType):
        required = {s.name: s for ss in t.methods.values() for s in ss if s.abstract}
    bodies = [x for x in d.body or [] if isinstance(x, ast.FunctionDecl)]
    with ctx.nested() as scope:
        scope.names["this"] = t
        for inner in d.body or []:
            if isinstance(inner, ast.Instantiation):
                instance_declaration(ctx, inner)
        for body in bodies:
            signature = required.pop(body.name, None)
            if signature is None:
                fail(body.span, f"{t} has no abstract method '{body.name}'", suggest(body.name, required))
            function_body(ctx, body)
            if not _implements(ctx.signatures[body], signature):
                fail(body.span, f"'{body.name}' differs from the abstract method: {signature.returns} {signature}")
    required = {name: s for name, s in required.items() if s.decl.annotation("optional") is None}
    if required:
        fail(d.span, f"{t} has abstract methods without a body here: {', '.join(required)}")


def scoped(ctx: Context, s: ast.Node) -> None:
    with ctx.nested():
        ctx.statement(s)


def _assign(ctx: Context, s: ast.Assign) -> None:
    s.target = value_of(ctx, s.target, "a variable")
    require_lvalue(s.target, "assigned to")
    t = s.target.type
    value = value_of(ctx, s.value)
    if s.op == "=":
        s.value = coerce(ctx, value, t, f"value assigned to '{ast.source_text(s.target)}'")
        return
    bits = types.underlying(t)
    if not isinstance(bits, BitType):
        fail(s.target.span, f"'{s.op}=' needs a target of bits, not {t}")
    if s.op in _COMPOUND_BITS:
        s.value = coerce(ctx, value, t, f"right side of '{s.op}='")
        if s.op in ("/", "%") and s.value.const == 0:
            fail(s.value.span, "division by zero")
    else:
        amount = types.underlying(value.type)
        if not isinstance(amount, (BitType, types.InfIntType)) or (isinstance(amount, BitType) and amount.signed):
            fail(value.span, f"a shift amount must be unsigned, not {value.type}")
        if value.const is not None and value.const < 0:
            fail(value.span, "shift by a negative amount")
        s.value = value


def _call_statement(ctx: Context, s: ast.CallStatement) -> None:
    call = ctx.expression(s.call)
    assert isinstance(call, ast.Call)
    s.call = call


def _if(ctx: Context, s: ast.If) -> None:
    s.condition = condition_of(ctx, s.condition)
    scoped(ctx, s.then)
    if s.otherwise is not None:
        scoped(ctx, s.otherwise)


def _switch(ctx: Context, s: ast.Switch) -> None:
    s.subject = value_of(ctx, s.subject)
    if ctx.owner == "parser":
        fail(s.span, "switch is not for parsers: use 'transition select'")
    plain = types.underlying(s.subject.type)
    if not isinstance(plain, (types.ActionRunType, BitType, types.BoolType, types.EnumType, types.ErrorType, types.TypeVar)):
        fail(s.subject.span, f"cannot switch on {s.subject.type}")
    defaults = [c for c in s.cases if c.label is None]
    if len(defaults) > 1:
        fail(defaults[1].span, "a switch has at most one 'default'")
    if defaults and s.cases[-1].label is not None:
        fail(defaults[0].span, "'default' must be the last case")
    seen: dict[object, ast.SwitchCase] = {}
    for case in s.cases:
        with ctx.recover():
            key = _switch_label(ctx, case, s.subject.type)
            if key is not None:
                if key in seen:
                    fail(case.span, "this case appears twice", [Note("first here", seen[key].span)])
                seen[key] = case
            if case.body is not None:
                ctx.body(case.body)


def _switch_label(ctx: Context, case: ast.SwitchCase, t: Type) -> object:
    ctx.meet(t)
    label = case.label
    if label is None:
        return None
    if isinstance(t, types.ActionRunType):
        if not isinstance(label, ast.Name):
            fail(label.span, "a case of a switch on action_run is the name of an action")
        for ref in t.table.actions:
            if ref.name == label.name:
                case.action, label.decl, label.type = ref, ref.decl, t
                return label.name
        names = [ref.name for ref in t.table.actions]
        notes = suggest(label.name, names) or [f"it has {', '.join(names)}"]
        fail(label.span, f"table '{t.table.name}' has no action '{label.name}'", notes)
    case.label = label = coerce(ctx, value_of(ctx, label), t, "a case of this switch")
    if label.const is None:
        fail(label.span, "a case of a switch must be known at compile time", why_not_constant(label))
    return label.const if not isinstance(label.const, (list, dict)) else None


def _for_c(ctx: Context, s: ast.ForC) -> None:
    with ctx.nested():
        for init in s.init:
            ctx.statement(init)
        s.condition = condition_of(ctx, s.condition)
        for update in s.update:
            ctx.statement(update)
        _loop_body(ctx, s.body)


def _for_in(ctx: Context, s: ast.ForIn) -> None:
    with ctx.nested():
        element = _collection(ctx, s)
        target = s.target.type = resolve(ctx, s.target.type_ref)
        ctx.scope.declare(s.target.name, s.target, s.target.span)
        if isinstance(s.collection, ast.Range):
            if not isinstance(types.underlying(target), BitType):
                fail(s.span, f"a loop over a range needs a variable of bits, not {target}")
            s.collection.lo = coerce(ctx, s.collection.lo, target, "the lower bound")
            s.collection.hi = coerce(ctx, s.collection.hi, target, "the upper bound")
            s.collection.type = types.SetType(target)
        elif isinstance(s.collection, ast.ListExpr):
            s.collection = coerce(ctx, s.collection, types.ListType(target), "elements of the list")
        elif element != target and not isinstance(element, types.InfIntType):
            fail(s.collection.span, f"the loop's variable is {target}, the elements are {element}")
        _loop_body(ctx, s.body)


def _collection(ctx: Context, s: ast.ForIn) -> Type | None:
    if isinstance(s.collection, ast.Range):
        s.collection.lo, s.collection.hi = value_of(ctx, s.collection.lo), value_of(ctx, s.collection.hi)
        return None
    s.collection = value_of(ctx, s.collection, "a collection")
    t = types.strip_new(s.collection.type)
    if isinstance(t, (types.StackType, types.ListType)):
        return t.element
    if not isinstance(s.collection, ast.ListExpr):
        fail(s.collection.span, f"a loop runs over a range, a list or a header stack, not {t}")
    return None


def _loop_body(ctx: Context, body: ast.Statement) -> None:
    ctx.loops += 1
    scoped(ctx, body)
    ctx.loops -= 1


def _leave_loop(ctx: Context, s: ast.Break | ast.Continue) -> None:
    if not ctx.loops:
        fail(s.span, f"'{'break' if isinstance(s, ast.Break) else 'continue'}' outside of a loop")


def _return(ctx: Context, s: ast.Return) -> None:
    expected = ctx.return_type
    ctx.meet(expected)
    if ctx.owner == "parser":
        fail(s.span, "'return' is not for parsers: a state ends with its transition")
    if expected is None or isinstance(expected, types.VoidType):
        if s.value is not None:
            fail(s.value.span, "nothing can be returned here")
    elif s.value is None:
        fail(s.span, f"this function must return a {expected}")
    else:
        s.value = coerce(ctx, value_of(ctx, s.value), expected, "the returned value")


def _exit(ctx: Context, s: ast.Exit) -> None:
    if ctx.owner in ("parser", "function"):
        fail(s.span, f"'exit' cannot be used in {ctx.owner}s")


def _implements(body: Signature, abstract: Signature) -> bool:
    """Returns True if `body` has the types and directions of `abstract`. It may omit `@optional` parameters."""
    if body.returns != abstract.returns:
        return False
    expected = iter(abstract.params)
    for p in body.params:
        w = next(expected, None)
        while w is not None and w.optional and (w.type, w.direction) != (p.type, p.direction):
            w = next(expected, None)
        if w is None or (w.type, w.direction) != (p.type, p.direction):
            return False
    return all(w.optional for w in expected)


STATEMENTS: dict[type, Callable[[Context, Any], None]] = {
    ast.ConstDecl: const_declaration,
    ast.VarDecl: variable_declaration,
    ast.Instantiation: instance_declaration,
    ast.Assign: _assign,
    ast.CallStatement: _call_statement,
    ast.EmptyStatement: _empty,
    ast.Block: Context.body,
    ast.If: _if,
    ast.Switch: _switch,
    ast.ForC: _for_c,
    ast.ForIn: _for_in,
    ast.Break: _leave_loop,
    ast.Continue: _leave_loop,
    ast.Return: _return,
    ast.Exit: _exit,
    ast.ParserDecl: parser_declaration,
    ast.ControlDecl: control_declaration,
}
