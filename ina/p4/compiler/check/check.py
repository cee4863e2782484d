"""Top level of the checker: declarations of a program in order (P4_16 v1.2.5 §6, §7). It collects all errors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.blocks import (
    action_declaration,
    block_type,
    control_declaration,
    function_body,
    misplaced_value_set,
    parser_declaration,
    resolved_parameters,
)
from ina.p4.compiler.check.const import wrap
from ina.p4.compiler.check.context import Context, TooManyErrors
from ina.p4.compiler.check.elaborate import elaborate
from ina.p4.compiler.check.expressions import EXPRESSIONS
from ina.p4.compiler.check.statements import STATEMENTS, const_declaration, instance_declaration
from ina.p4.compiler.check.types import record_type, resolve, type_variables
from ina.p4.compiler.check.values import constant_int
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.errors import CompileError, Note, fail
from ina.p4.compiler.types import BitType, Signature


def check_program(program: ast.Program) -> CheckedProgram:
    """Checks and annotates `program`. Raises CompileError with all errors (at most MAX_ERRORS)."""
    ctx = Context(EXPRESSIONS, STATEMENTS)
    declarations: list[ast.Node] = []
    try:
        for d in program.declarations:
            with ctx.declaring(d):
                check_annotations(d)
                if getattr(d, "name", "") == "main" and isinstance(d, (ast.ExternDecl, ast.RecordDecl)):
                    fail(d.span, "'main' must be the instantiation of a package")
                _DECLARATIONS[type(d)](ctx, d)
            declarations += [*ctx.new_declarations, *(() if d in ctx.templates else (d,))]
            ctx.new_declarations = []
    except TooManyErrors:
        pass
    if ctx.diagnostics:
        raise CompileError.collect(ctx.diagnostics)
    named = {d.name: d.type for d in declarations if isinstance(d, ast.TypeDeclaration) and d.type is not None}
    checked = CheckedProgram(
        program.filename, declarations, None, {}, ctx.error_members, ctx.match_kinds, named, warnings=ctx.warnings
    )
    elaborate(checked)
    return checked


def check_annotations(d: ast.Node) -> None:
    """Checks annotations: structured ones may appear once and hold integers, strings and bools (§18.1); `@name` holds a
    string."""
    seen: dict[str, ast.Annotation] = {}
    for note in getattr(d, "annotations", ()):
        if note.name in seen and (note.structured or seen[note.name].structured):
            fail(note.span, f"annotation @{note.name} stands twice", [Note("first here", seen[note.name].span)])
        seen[note.name] = note
        for e in (*note.exprs, *note.pairs.values()) if note.structured else ():
            if isinstance(e, (ast.ListExpr, ast.StructInit)):
                fail(e.span, f"@{note.name} can hold integers, strings and bools")
        if note.name == "name" and isinstance(next(iter(note.exprs), None), ast.IntLiteral):
            fail(note.span, "@name holds a string")
        if note.name == "deprecated" and note.exprs and isinstance(note.exprs[0], ast.Binary):
            if note.exprs[0].op != "++":
                fail(note.exprs[0].span, "@deprecated holds a string")


def record_declaration(ctx: Context, d: ast.RecordDecl) -> None:
    if d.type_params:
        variables = {p.name for p in d.type_params}
        if len(variables) != len(d.type_params):
            fail(d.span, f"{d.kind} {d.name} has a type parameter twice")
        with ctx.nested():
            record_type(ctx, d, type_variables(ctx, d.type_params), d.span)
    else:
        d.type = record_type(ctx, d, (), d.span)
    ctx.declare(d)


def enum_declaration(ctx: Context, d: ast.EnumDecl) -> None:
    seen: dict[str, ast.EnumMember] = {}
    for member in d.members:
        if member.name in seen:
            fail(
                member.span,
                f"enum {d.name} has '{member.name}' twice",
                [Note("first here", seen[member.name].span)],
            )
        seen[member.name] = member
    if not d.members:
        fail(d.span, f"enum {d.name} has no members")
    if d.underlying is None:
        for member in d.members:
            if member.value is not None:
                fail(member.span, f"only an enum with a type has values: enum bit<8> {d.name} {{ ... }}")
        d.type = types.EnumType(d.name, list(seen), d)
    else:
        underlying = resolve(ctx, d.underlying)
        if not isinstance(underlying, BitType):
            fail(d.underlying.span, f"the type of an enum must be bit<> or int<>, not {underlying}")
        t = types.SerEnumType(d.name, underlying, {}, d)
        with ctx.nested() as scope:
            scope.names[d.name] = t  # members may build on earlier ones
            for member in d.members:
                if member.value is None:
                    fail(member.span, f"'{member.name}' needs a value: {member.name} = ...")
                value = constant_int(ctx, member.value, f"value of '{member.name}'")
                if wrap(value, underlying) != value:
                    fail(member.value.span, f"{value} does not fit into {underlying}")
                t.members[member.name] = value
        d.type = t
    ctx.declare(d)


def typedef_declaration(ctx: Context, d: ast.TypedefDecl) -> None:
    target = d.target
    if isinstance(target, (ast.RecordDecl, ast.EnumDecl)):
        _DECLARATIONS[type(target)](ctx, target)
        base = target.type
        assert base is not None
    else:
        base = resolve(ctx, target)
    if d.is_new:
        plain = types.underlying(base)
        if not isinstance(plain, (BitType, types.BoolType, types.VarbitType)) or isinstance(base, types.SerEnumType):
            fail(
                d.span,
                f"'type' makes new types of bit<>, int<>, varbit<> and bool, not of {base}",
                ["use 'typedef'"],
            )
        d.type = types.NewType(d.name, base, d)
    else:
        d.type = base
    ctx.declare(d)


def error_declaration(ctx: Context, d: ast.ErrorDecl | ast.MatchKindDecl) -> None:
    kind, members = ("error", ctx.error_members) if isinstance(d, ast.ErrorDecl) else ("match_kind", ctx.match_kinds)
    for member in d.members:
        if member.name in members:
            fail(member.span, f"{kind} '{member.name}' is already declared")
        members.append(member.name)


def extern_declaration(ctx: Context, d: ast.ExternDecl) -> None:
    t = types.ExternType(d.name, decl=d)
    d.type = t
    ctx.declare(d)
    with ctx.nested():
        t.type_params = type_variables(ctx, d.type_params)
        for method in d.methods:
            with ctx.recover(), ctx.nested():
                variables = type_variables(ctx, method.type_params)
                returns = types.VOID if method.return_ref is None else resolve(ctx, method.return_ref)
                params = resolved_parameters(ctx, method.params)
                signature = Signature(method.name, variables, params, returns, method, method.abstract)
                if method.return_ref is not None and isinstance(returns, types.InfIntType):
                    fail(method.return_ref.span, f"method '{method.name}' cannot return int: it has no width")
                for other in t.ctors if method.return_ref is None else t.methods.get(method.name, []):
                    if [p.name for p in other.params] == [p.name for p in params]:
                        notes = [Note("first declared here", other.decl.span)]
                        fail(method.span, f"'{method.name}' is declared twice: no call can tell them apart", notes)
                if method.return_ref is None:
                    t.ctors.append(signature)
                else:
                    if method.name == d.name:
                        fail(method.span, f"'{method.name}' is the constructor's name: it returns nothing")
                    t.methods.setdefault(method.name, []).append(signature)


def extern_function(ctx: Context, d: ast.ExternFunctionDecl) -> None:
    with ctx.nested():
        variables = type_variables(ctx, d.type_params)
        d.return_type = resolve(ctx, d.return_ref)
        ctx.signatures[d] = Signature(d.name, variables, resolved_parameters(ctx, d.params), d.return_type, d)
    _declare_function(ctx, d)


def function_declaration(ctx: Context, d: ast.FunctionDecl) -> None:
    for p in d.params:
        if p.annotation("optional"):
            fail(p.span, f"parameter '{p.name}' cannot be optional: a function has all its arguments")
    if d.type_params:
        ctx.templates[d] = copy.deepcopy(d)
        with ctx.nested():
            # Types of the body hang on the type arguments: each list of them gets a checked copy of its own.
            variables = type_variables(ctx, d.type_params)
            returns = resolve(ctx, d.return_ref)
            ctx.signatures[d] = Signature(d.name, variables, resolved_parameters(ctx, d.params), returns, d)
        function = copy.deepcopy(ctx.templates[d])
        assert isinstance(function, ast.FunctionDecl)
        with ctx.template(d, variables):
            function_body(ctx, function)
    else:
        function_body(ctx, d)
    _declare_function(ctx, d)


def _declare_function(ctx: Context, d: ast.ExternFunctionDecl | ast.FunctionDecl) -> None:
    overloads = ctx.scope.names.get(d.name)
    if isinstance(overloads, list):
        for other in overloads:
            mine, theirs = ctx.signatures[d].params, ctx.signatures[other].params
            if [p.name for p in mine] == [p.name for p in theirs] or len(mine) == len(theirs) == 0:
                notes = [Note("first declared here", other.span)]
                fail(d.span, f"'{d.name}' is already declared with these parameters", notes)
        overloads.append(d)
    else:
        ctx.scope.declare(d.name, [d], d.span)


_DECLARATIONS: dict[type, Callable[[Context, Any], None]] = {
    ast.RecordDecl: record_declaration,
    ast.EnumDecl: enum_declaration,
    ast.TypedefDecl: typedef_declaration,
    ast.ErrorDecl: error_declaration,
    ast.MatchKindDecl: error_declaration,
    ast.ExternDecl: extern_declaration,
    ast.ExternFunctionDecl: extern_function,
    ast.FunctionDecl: function_declaration,
    ast.ActionDecl: action_declaration,
    ast.ConstDecl: const_declaration,
    ast.Instantiation: instance_declaration,
    ast.ParserTypeDecl: block_type,
    ast.ControlTypeDecl: block_type,
    ast.PackageDecl: block_type,
    ast.ParserDecl: parser_declaration,
    ast.ControlDecl: control_declaration,
    ast.ValueSetDecl: misplaced_value_set,
}
