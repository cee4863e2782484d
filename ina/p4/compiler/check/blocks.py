"""Parsers and controls: parameters, locals, states, apply blocks; functions and actions (P4_16 v1.2.5 §10, §13, §14)."""

from __future__ import annotations

import copy

from ina.base.plurals import counted
from ina.p4.compiler import ast, types
from ina.p4.compiler.check.arguments import default_as, settle
from ina.p4.compiler.check.context import Certain, Context, suggest
from ina.p4.compiler.check.conversions import coerce
from ina.p4.compiler.check.tables import keyset_of, table_declaration
from ina.p4.compiler.check.types import resolve, type_variables
from ina.p4.compiler.check.values import constant_int, is_static, value_of
from ina.p4.compiler.errors import Note, Span, fail
from ina.p4.compiler.types import Parameter, Signature


def block_type(ctx: Context, d: ast.ParserTypeDecl | ast.ControlTypeDecl | ast.PackageDecl) -> None:
    """Checks parser, control and package types without a body."""
    cls = {
        ast.ParserTypeDecl: types.ParserType, ast.ControlTypeDecl: types.ControlType, ast.PackageDecl:
        types.PackageType,
    }[type(d)]
    t = cls(d.name, decl=d)
    with ctx.nested():
        t.type_params = type_variables(ctx, d.type_params)
        params = resolved_parameters(ctx, d.params)
    if isinstance(d, ast.PackageDecl):
        t.ctor_params = params
    else:
        t.params = params
    d.type = t
    ctx.declare(d)


def _begin_block(ctx: Context, d: ast.ParserDecl | ast.ControlDecl, t: types.ParserType | types.ControlType) -> None:
    t.type_params = type_variables(ctx, d.type_params)
    t.params = resolved_parameters(ctx, d.params)
    t.ctor_params = resolved_parameters(ctx, d.ctor_params)
    for p in d.ctor_params:
        if p.direction:
            fail(p.span, f"constructor parameter '{p.name}' cannot have a direction")
        if any(p.name == q.name for q in d.params):
            fail(p.span, f"parameter '{p.name}' appears twice")
    d.type = t


def _template(ctx: Context, d: ast.ParserDecl | ast.ControlDecl, t: types.ParserType | types.ControlType) -> None:
    """Declares a generic parser or control, and checks what does not depend on type arguments; each list of those gets a
    checked copy of its own."""
    variables = {v.name for v in d.type_params}
    for p in (*d.params, *d.ctor_params):
        if p.name in variables:
            fail(p.span, f"parameter '{p.name}' is a type parameter, too")
    ctx.templates[d] = copy.deepcopy(d)
    with ctx.nested():
        _begin_block(ctx, d, t)
    block = copy.deepcopy(ctx.templates[d])
    assert isinstance(block, ast.ParserDecl | ast.ControlDecl)
    block.type_params = []
    with ctx.template(d, t.type_params):
        ctx.scope.names.setdefault(d.name, d)  # for the error of a block that contains itself
        with ctx.nested():
            ctx.statement(block)
    ctx.declare(d)


def control_declaration(ctx: Context, d: ast.ControlDecl) -> None:
    if d.type_params:
        _template(ctx, d, types.ControlType(d.name, decl=d))
        return
    with ctx.nested():
        _begin_block(ctx, d, types.ControlType(d.name, decl=d))
        with ctx.nested():
            for local in d.locals:
                with ctx.declaring(local):
                    _control_local(ctx, local)
            with ctx.code_of("control", d.locals):
                ctx.body(d.body)
            _settle_locals(ctx, d)
    ctx.declare(d)


def _settle_locals(ctx: Context, d: ast.ParserDecl | ast.ControlDecl) -> None:
    """Ends the inference of type arguments for the instances of a block, after what applies them."""
    for local in d.locals:
        if isinstance(local, ast.Instantiation) and not isinstance(local.type, ast.Unchecked):
            with ctx.recover():
                settle(ctx, local)


def _control_local(ctx: Context, local: ast.Node) -> None:
    match local:
        case ast.ActionDecl():
            action_declaration(ctx, local)
        case ast.TableDecl():
            table_declaration(ctx, local)
        case _:
            ctx.statement(local)


def parser_declaration(ctx: Context, d: ast.ParserDecl) -> None:
    if d.type_params:
        _template(ctx, d, types.ParserType(d.name, decl=d))
        return
    outer, ctx.in_parser = ctx.in_parser, True
    try:
        with ctx.nested():
            _begin_block(ctx, d, types.ParserType(d.name, decl=d))
            with ctx.nested():
                for local in d.locals:
                    with ctx.declaring(local):
                        _parser_local(ctx, local)
                with ctx.code_of("parser", d.locals):
                    _states(ctx, d)
                _settle_locals(ctx, d)
    finally:
        ctx.in_parser = outer
    ctx.declare(d)


def _parser_local(ctx: Context, local: ast.Node) -> None:
    if isinstance(local, ast.ValueSetDecl):
        value_set_declaration(ctx, local)
    elif isinstance(local, (ast.ActionDecl, ast.TableDecl)):
        kind = "an action" if isinstance(local, ast.ActionDecl) else "a table"
        fail(local.span, f"{kind} cannot be declared in a parser")
    else:
        ctx.statement(local)


def value_set_declaration(ctx: Context, d: ast.ValueSetDecl) -> None:
    element = resolve(ctx, d.element_ref)
    d.size = ctx.expression(d.size)
    if not is_static(d.size):
        constant_int(ctx, d.size, "size of a value set")
    d.type = types.SetType(element)
    ctx.declare(d)


def _states(ctx: Context, d: ast.ParserDecl) -> None:
    for state in d.state_list:
        if state.name in ("accept", "reject"):
            raise Certain(state.span, f"state '{state.name}' is built in: it cannot be declared")
        if state.name in d.states:
            notes = [Note("first declared here", d.states[state.name].span)]
            raise Certain(state.span, f"state '{state.name}' is already declared", notes)
        d.states[state.name] = state
    if "start" not in d.states:
        raise Certain(d.span, f"parser '{d.name}' has no state 'start'")
    for state in d.state_list:
        with ctx.recover(), ctx.nested():
            for s in state.statements:
                with ctx.declaring(s):
                    ctx.statement(s)
            if state.transition is not None:
                _transition(ctx, d, state.transition)
    _ends(d)


def _ends(d: ast.ParserDecl) -> None:
    """Reports a parser that never ends, because its states only lead to each other."""
    reached, waiting = set(), [d.states["start"]]
    while waiting:
        state = waiting.pop()
        if state in reached:
            continue
        reached.add(state)
        if state.transition is None:
            return
        for branch in state.transition.branches:
            if branch.target is None:  # accept or reject, or an error that was reported
                return
            waiting.append(branch.target)
        if state.transition.cases and not any(isinstance(k, ast.DontCare) for k in state.transition.cases[-1].keys):
            return  # NoMatch ends it
    raise Certain(d.span, f"parser '{d.name}' never reaches accept or reject")


def _transition(ctx: Context, d: ast.ParserDecl, transition: ast.Transition) -> None:
    if transition.target_name is not None:
        transition.target = _target(d, transition, transition.target_name)
        return
    transition.keys = [value_of(ctx, key, "a key") for key in transition.keys]
    for key in transition.keys:
        if isinstance(key.type, types.InfIntType):
            fail(key.span, "a select key needs a width: write the literal as in 8w1")
        if isinstance(types.strip_new(key.type), (types.VarbitType, types.RecordType, types.StackType)):
            fail(key.span, f"cannot select on {key.type}", ["select on its fields"])
    count = len(transition.keys)
    for case in transition.cases:
        with ctx.recover():
            case.target = _target(d, case, case.target_name)
            if len(case.keys) == 1 and count != 1:
                only = case.keys[0]
                if isinstance(only, ast.DontCare):
                    case.keys = [ast.DontCare(only.span) for _ in transition.keys]
                elif _is_tuple_value_set(ctx, only):
                    continue
            keys = transition.keys
            if count == 1 and len(case.keys) > 1:  # one key of tuple or struct type
                case.keys = [ast.ListExpr(case.span, case.keys)]
            if len(case.keys) != count:
                fail(case.span, f"{counted(len(case.keys), 'value')} in this case, but select has {counted(count, 'key')}")
            case.keys = [keyset_of(ctx, e, key.type) for e, key in zip(case.keys, keys, strict=True)]


def _is_tuple_value_set(ctx: Context, e: ast.Expr) -> bool:
    """Checks a value set of structs or tuples that is matched with all keys at once; returns False for anything else."""
    if isinstance(e, ast.Name) and isinstance(ctx.scope.lookup(e.name), ast.ValueSetDecl):
        ctx.expression(e)
        return True
    return False


def _target(d: ast.ParserDecl, node: ast.Node, name: str) -> ast.ParserState | None:
    state = d.states.get(name)
    if state is None and name not in ("accept", "reject"):
        raise Certain(node.span, f"parser '{d.name}' has no state '{name}'", suggest(name, [*d.states, "accept", "reject"]))
    return state


def misplaced_value_set(ctx: Context, d: ast.ValueSetDecl) -> None:
    fail(d.span, "a value_set can only be declared in a parser")


# --- functions and actions --------------------------------------------------------------------------------------------


def resolved_parameters(ctx: Context, params: list[ast.Param]) -> list[Parameter]:
    """Resolves the types of parameters and declares them in the current scope."""
    resolved: list[Parameter] = []
    seen: dict[str, Span] = {}
    for p in params:
        if p.name in seen:
            fail(p.span, f"parameter '{p.name}' appears twice", [Note("first here", seen[p.name])])
        seen[p.name] = p.span
        p.type = resolve(ctx, p.type_ref)
        if isinstance(p.type, types.VoidType):
            fail(p.type_ref.span, f"parameter '{p.name}' cannot be void")
        if p.direction and isinstance(p.type, (types.InfIntType, types.StringType)):
            fail(
                p.type_ref.span,
                f"a parameter of type {p.type} is known at compile time: it cannot be '{p.direction}'",
            )
        if p.direction in ("out", "inout") and p.default is not None:
            fail(p.span, f"'{p.direction}' parameter '{p.name}' cannot have a default value")
        if isinstance(p.type, (types.ParserType, types.ControlType, types.PackageType)) and not p.is_ctor:
            fail(
                p.type_ref.span,
                f"parameter '{p.name}' cannot be {p.type}: parsers and controls are constructor parameters",
            )
        if p.is_ctor and isinstance(p.type, (types.ParserType, types.ControlType)) and hasattr(p.type.decl, "ctor_params"):
            kind = "parser" if isinstance(p.type, types.ParserType) else "control"
            notes = [Note("declared here", p.type.decl.span)]
            fail(p.type_ref.span, f"{kind} {p.type} has a body: the parameter needs a {kind} type without", notes)
        if isinstance(p.type, types.ExternType) and p.type.type_params and not p.type.args:
            count = len(p.type.type_params)
            fail(p.type_ref.span, f"extern {p.type.name} needs {count} type arguments: {p.type.name}<...>")
        if p.direction and isinstance(p.type, types.ExternType) and not p.type.args and p.type.name != "packet_in":
            fail(p.span, f"parameter '{p.name}' of extern type {p.type} must be directionless")
        resolved.append(Parameter(p.name, p.direction, p.type, p.annotation("optional") is not None, p))
        ctx.scope.names[p.name] = p
    for p in params:
        if p.default is not None:
            p.default = coerce(ctx, default_as(ctx, ctx.expression(p.default), p.type), p.type)
            if p.default.const is None and isinstance(p.default, ast.Call) and p.default.kind != "constructor":
                fail(p.default.span, f"the default value of parameter '{p.name}' must be known at compile time")
    return resolved


def function_body(ctx: Context, d: ast.FunctionDecl) -> None:
    """Checks parameters, return type and body, in a scope of their own."""
    d.return_type = resolve(ctx, d.return_ref)
    with ctx.nested():
        ctx.signatures[d] = Signature(d.name, (), resolved_parameters(ctx, d.params), d.return_type, d)
        with ctx.code_of("function", return_type=d.return_type):
            ctx.body(d.body)
        if not isinstance(d.return_type, types.VoidType) and not _always_returns(d.body):
            raise Certain(d.span, f"function '{d.name}' can end without returning a {d.return_type}")


def action_declaration(ctx: Context, d: ast.ActionDecl) -> None:
    with ctx.nested():
        params = resolved_parameters(ctx, d.params)
        directionless = False
        for p in d.params:
            if directionless and p.direction:
                fail(p.span, f"parameter '{p.name}' must stand before the directionless ones, which tables fill in")
            directionless = directionless or not p.direction
            if isinstance(p.type, types.InfIntType):
                fail(p.span, "an action cannot take an int: it has no width")
            if isinstance(p.type, types.CallableType):
                fail(p.span, f"an action cannot take {p.type} as a parameter")
        ctx.signatures[d] = Signature(d.name, (), params, types.VOID, d)
        with ctx.code_of("action"):
            ctx.body(d.body)
    ctx.declare(d)


def _always_returns(s: ast.Node | None) -> bool:
    match s:
        case ast.Return() | ast.Exit():
            return True
        case ast.Block():
            return any(_always_returns(x) for x in s.statements)
        case ast.If():
            return s.otherwise is not None and _always_returns(s.then) and _always_returns(s.otherwise)
        case ast.Switch():
            return any(c.label is None for c in s.cases) and all(c.body is None or _always_returns(c.body) for c in s.cases)
    return False
