"""Recursive descent: top-level declarations, parsers, controls, tables (P4_16 v1.2.5 appendix H).

The whole grammar is read here; the checker determines what a construct means and whether it is allowed in its place.
"""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.errors import Span, fail
from ina.p4.compiler.front.expressions import parse_arguments, parse_expression, parse_keyset, parse_type
from ina.p4.compiler.front.lexer import Tokens
from ina.p4.compiler.front.statements import (
    parse_annotations,
    parse_array_suffix,
    parse_block,
    parse_const,
    parse_function,
    parse_instantiation,
    parse_parameters,
    parse_statement,
    parse_type_parameters,
    parse_variable_or_instance,
)
from ina.p4.compiler.front.stream import TokenStream, join

_RECORD_KINDS = frozenset(["struct", "header", "header_union"])


def parse_program(tokens: Tokens, filename: str) -> ast.Program:
    p = TokenStream(tokens)
    declarations: list[ast.Node] = []
    while p.kind != "eof":
        if not p.accept(";"):  # the grammar lets stray semicolons stand between declarations
            declarations.append(parse_declaration(p))
    return ast.Program(filename, declarations)


def parse_declaration(p: TokenStream) -> ast.Node:
    annotations = parse_annotations(p)
    kind = p.kind
    if parse := _DECLARATIONS.get(kind):
        return parse(p, annotations)
    if p.at("type") and p.following not in ("(", "<"):
        return parse_typedef(p, annotations)
    if kind == "error" and p.following == "{":
        return ast.ErrorDecl(p.expect("error"), _parse_members(p))
    if kind == "match_kind" and p.following == "{":
        return ast.MatchKindDecl(p.expect("match_kind"), _parse_members(p))
    if kind != "id" and not p.starts_type():
        p.expected("a declaration")
    type_ref = parse_type(p)
    if p.at("("):
        return parse_instantiation(p, annotations, type_ref)
    if p.kind == "id" and p.following in ("=", ";"):
        fail(p.span, "a variable cannot be declared at the top level",
            ["use 'const', or declare it in a control, parser, action or function"],
        )
    return parse_function(p, annotations, type_ref)


def parse_record(p: TokenStream, annotations: list[ast.Annotation]) -> ast.RecordDecl:
    """struct|header|header_union name <T> { type name ; ... }"""
    kind = p.kind
    p.pos += 1
    name, span = p.declared_name(f"a name of the {kind}", is_type=True)
    fields = []
    with p.scope():
        type_params = parse_type_parameters(p)
        for _ in p.braced(f"before the fields of {kind} {name}"):
            field_annotations = parse_annotations(p)
            type_ref = parse_type(p)
            field_name, field_span = p.parse_name("a name of a field")
            type_ref = parse_array_suffix(p, type_ref)
            p.expect(";", "after the field")
            fields.append(ast.StructField(field_span, field_name, type_ref, annotations=field_annotations))
    return ast.RecordDecl(span, name, kind, type_params, fields, annotations=annotations)


def parse_enum(p: TokenStream, annotations: list[ast.Annotation]) -> ast.EnumDecl:
    """enum [type] name { member [= value], ... }"""
    p.expect("enum")
    underlying = None if p.kind == "id" and p.following == "{" else parse_type(p)
    name, span = p.declared_name("a name of the enum", is_type=True)
    return ast.EnumDecl(span, name, underlying, _parse_members(p), annotations=annotations)


def _parse_members(p: TokenStream) -> list[ast.EnumMember]:
    p.expect("{")
    members = []
    for _ in p.items("}"):
        annotations = parse_annotations(p)
        name, span = p.texts[p.pos], p.span
        if not name.isidentifier() or p.kind == "eof":
            p.expected("a name of a member")
        p.pos += 1
        value = parse_expression(p) if p.accept("=") else None
        members.append(ast.EnumMember(span, name, value, annotations=annotations))
    p.expect("}", "after the members")
    return members


def parse_typedef(p: TokenStream, annotations: list[ast.Annotation]) -> ast.TypedefDecl:
    """typedef type name ; | type type name ;"""
    is_new = p.at("type")
    p.pos += 1
    inner = parse_annotations(p)
    target: ast.TypeRef | ast.RecordDecl | ast.EnumDecl
    if p.kind in _RECORD_KINDS:
        target = parse_record(p, inner)
    elif p.at("enum"):
        target = parse_enum(p, inner)
    else:
        target = parse_type(p)
    name, span = p.parse_name("a name of the new type")
    p.expect(";", "after the type definition")
    p.declare(name, is_type=True)
    return ast.TypedefDecl(span, name, target, is_new, annotations=annotations)


def parse_extern(p: TokenStream, annotations: list[ast.Annotation]) -> ast.Node:
    """extern name <T> { methods } | extern type name <T> ( parameters ) ;"""
    p.expect("extern")
    if p.kind == "id":
        start = p.pos
        p.pos += 1
        with p.scope():
            parse_type_parameters(p)  # `extern X<T> {` or `extern X<T> f(...)`
        is_object = p.at("{") or p.at(";")
        p.pos = start
        if is_object:
            return _parse_extern_object(p, annotations)
    name, span, return_ref, type_params, params = _parse_prototype(p)
    p.expect(";", "after the extern function")
    return ast.ExternFunctionDecl(span, name, return_ref, type_params, params, annotations=annotations)


def _parse_prototype(p: TokenStream) -> tuple[str, Span, ast.TypeRef, list[ast.Name], list[ast.Param]]:
    return_ref = parse_type(p)
    name, span = p.declared_name("a name of a function")
    with p.scope():
        type_params = parse_type_parameters(p)
        params = parse_parameters(p)
    return name, span, return_ref, type_params, params


def _parse_extern_object(p: TokenStream, annotations: list[ast.Annotation]) -> ast.ExternDecl:
    name, span = p.declared_name("a name of the extern", is_type=True)
    with p.scope():
        type_params = parse_type_parameters(p)
        methods = [] if p.accept(";") else [_parse_method(p, name) for _ in p.braced("before the methods of the extern")]
    return ast.ExternDecl(span, name, type_params, methods, annotations=annotations)


def _parse_method(p: TokenStream, extern: str) -> ast.ExternMethod:
    annotations = parse_annotations(p)
    abstract = p.accept("abstract")
    if p.at(extern) and p.following == "(":
        span = p.span
        p.pos += 1
        with p.scope():
            method = ast.ExternMethod(span, extern, None, [], parse_parameters(p), annotations=annotations)
    else:
        name, span, return_ref, type_params, params = _parse_prototype(p)
        method = ast.ExternMethod(span, name, return_ref, type_params, params, abstract, annotations=annotations)
    p.expect(";", "after the method")
    return method


def parse_action(p: TokenStream, annotations: list[ast.Annotation]) -> ast.ActionDecl:
    """action name ( parameters ) block"""
    p.expect("action")
    name, span = p.declared_name("a name of the action")
    with p.scope():
        params = parse_parameters(p)
        body = parse_block(p)
    return ast.ActionDecl(span, name, params, body, annotations=annotations)


def parse_package(p: TokenStream, annotations: list[ast.Annotation]) -> ast.PackageDecl:
    """package name <T> ( parameters ) ;"""
    p.expect("package")
    name, span = p.declared_name("a name of the package", is_type=True)
    with p.scope():
        type_params = parse_type_parameters(p)
        params = parse_parameters(p, is_ctor=True)
    p.expect(";", "after the package")
    return ast.PackageDecl(span, name, type_params, params, annotations=annotations)


def parse_parser(p: TokenStream, annotations: list[ast.Annotation]) -> ast.Node:
    """parser name <T> ( parameters ) ; | parser name ( parameters ) ( constructor parameters ) { locals states }"""
    p.expect("parser")
    name, span = p.declared_name("a name of the parser", is_type=True)
    with p.scope():
        type_params = parse_type_parameters(p)
        params = parse_parameters(p)
        if p.accept(";"):
            return ast.ParserTypeDecl(span, name, type_params, params, annotations=annotations)
        ctor_params = parse_parameters(p, is_ctor=True) if p.at("(") else []
        opening = p.expect("{", f"before the body of parser {name}")
        declarations: list[ast.Node] = []
        states: list[ast.ParserState] = []
        for _ in p.unclosed(opening):
            inner = parse_annotations(p)
            if p.at("state") and p.following == "id":
                states.append(_parse_state(p, inner))
            elif states:
                p.expected("'state' or '}'")
            else:
                declarations.append(_parse_local(p, inner))
    return ast.ParserDecl(span, name, type_params, params, ctor_params, declarations, states, annotations=annotations)


def _parse_local(p: TokenStream, annotations: list[ast.Annotation]) -> ast.Node:
    """Parses a local element of a parser or control."""
    kind = p.kind
    if parse := _LOCALS.get(kind):
        return parse(p, annotations)
    if kind in _RECORD_KINDS or kind in ("enum", "extern", "typedef", "parser", "control", "package"):
        fail(p.span, f"'{kind}' can only be declared at the top level of a program")
    if kind != "id" and not p.starts_type():
        p.expected("a local declaration")
    return parse_variable_or_instance(p, annotations, parse_type(p))


def parse_value_set(p: TokenStream, annotations: list[ast.Annotation]) -> ast.ValueSetDecl:
    """value_set < type > ( size ) name ;"""
    p.expect("value_set")
    p.expect("<", "and the type of the value set's elements")
    element = parse_type(p)
    p.expect(">")
    p.expect("(", "and the size of the value set")
    size = parse_expression(p)
    p.expect(")")
    name, span = p.parse_name("a name of the value set")
    p.expect(";", "after the value set")
    p.declare(name)
    return ast.ValueSetDecl(span, name, element, size, annotations=annotations)


def _parse_state(p: TokenStream, annotations: list[ast.Annotation]) -> ast.ParserState:
    """state name { statements transition }"""
    p.expect("state")
    name, span = p.parse_name("a name of the state")
    opening = p.expect("{", f"before the body of state {name}")
    statements: list[ast.Node] = []
    transition = None
    with p.scope():
        for _ in p.unclosed(opening):
            if p.at("transition"):
                transition = _parse_transition(p)
                p.expect("}", "after the transition: it ends a state")
                break
            statements.append(parse_statement(p))
    return ast.ParserState(span, name, statements, transition, annotations=annotations)


def _parse_transition(p: TokenStream) -> ast.Transition:
    """transition name ; | transition select ( expressions ) { keyset : name ; ... }"""
    span = p.expect("transition")
    if not p.accept("select"):
        name, name_span = p.parse_name("a name of a state or 'select'")
        p.expect(";", "after the transition")
        return ast.Transition(name_span, name)
    keys: list[ast.Expr] = []
    for argument in parse_arguments(p)[0]:
        if argument.value is None:
            fail(span, "select needs expressions to match")
        keys.append(argument.value)
    cases = []
    for _ in p.braced("before the cases of select"):
        case_span = p.span
        keyset = parse_keyset(p)
        p.expect(":", "after the keyset")
        name, name_span = p.parse_name("a name of a state")
        p.expect(";", "after the case")
        cases.append(ast.SelectCase(join(case_span, name_span), keyset, name))
    return ast.Transition(span, None, keys, cases)


def parse_control(p: TokenStream, annotations: list[ast.Annotation]) -> ast.Node:
    """control name <T> ( parameters ) ; | control name ( parameters ) ( constructor parameters ) { locals
    apply { } }
    """
    p.expect("control")
    name, span = p.declared_name("a name of the control", is_type=True)
    with p.scope():
        type_params = parse_type_parameters(p)
        params = parse_parameters(p)
        if p.accept(";"):
            return ast.ControlTypeDecl(span, name, type_params, params, annotations=annotations)
        ctor_params = parse_parameters(p, is_ctor=True) if p.at("(") else []
        opening = p.expect("{", f"before the body of control {name}")
        declarations: list[ast.Node] = []
        while True:
            if p.kind == "eof":
                fail(opening, "'{' is never closed")
            inner = parse_annotations(p)
            if p.following in ("{", "@") and p.accept("apply"):
                break
            if p.at("}"):
                fail(p.span, f"control {name} has no 'apply' block")
            declarations.append(_parse_local(p, inner))
        body = parse_block(p, parse_annotations(p))
        p.expect("}", "after the apply block: it ends a control")
    return ast.ControlDecl(span, name, type_params, params, ctor_params, declarations, body, annotations=annotations)


def parse_table(p: TokenStream, annotations: list[ast.Annotation]) -> ast.TableDecl:
    """table name { key = { } actions = { } [const] entries = { } [const] name = expression ; ... }"""
    p.expect("table")
    name, span = p.declared_name("a name of the table")
    table = ast.TableDecl(span, name, annotations=annotations)
    seen: dict[str, Span] = {}
    for _ in p.braced(f"before the properties of table {name}"):
        inner = parse_annotations(p)
        is_const = p.accept("const")
        prop, prop_span = p.parse_name("a property of the table")
        if prop in seen:
            fail(prop_span, f"table {name} has property '{prop}' twice")
        seen[prop] = prop_span
        p.expect("=", f"after '{prop}'")
        _parse_property(p, table, prop, prop_span, is_const, inner)
    if "actions" not in seen:
        fail(span, f"table '{name}' has no actions", ["add actions = { ... }"])
    return table


def _parse_property(
    p: TokenStream, table: ast.TableDecl, prop: str, span: Span, is_const: bool, annotations: list[ast.Annotation]
) -> None:
    match prop:
        case "key":
            if table.entries:
                fail(span, f"the key of table '{table.name}' must stand before its entries")
            for _ in p.braced("before the key of the table"):
                expr = parse_expression(p)
                p.expect(":", "and the match kind of the key")
                kind, kind_span = p.parse_name("a match kind")
                table.keys.append(ast.TableKey(join(expr.span, kind_span), expr, kind, annotations=parse_annotations(p)))
                p.expect(";", "after the key")
        case "actions":
            for _ in p.braced("before the actions of the table"):
                table.actions.append(_parse_action_ref(p, parse_annotations(p)))
                p.expect(";", "after the action")
        case "entries":
            table.const_entries = is_const
            for _ in p.braced("before the entries of the table"):
                table.entries.append(_parse_entry(p, is_const))
        case "default_action":
            if not table.actions:
                fail(span, f"the actions of table '{table.name}' must stand before its default_action")
            table.const_default = is_const
            table.default_ref = _parse_action_ref(p, annotations)
        case "size":
            table.size_expr = parse_expression(p)
        case _:
            table.properties[prop] = ast.Property(span, prop, parse_expression(p), is_const, annotations=annotations)
    if prop not in ("key", "actions", "entries"):
        p.expect(";", f"after the property '{prop}'")


def _parse_action_ref(p: TokenStream, annotations: list[ast.Annotation]) -> ast.ActionRef:
    """[.] name [ ( arguments ) ]"""
    start = p.span
    absolute = p.accept(".")
    name, span = p.parse_name("a name of an action")
    arguments = parse_arguments(p)[0] if p.at("(") else None
    return ast.ActionRef(join(start, span), name, arguments, absolute, annotations=annotations)


def _parse_entry(p: TokenStream, table_const: bool) -> ast.TableEntry:
    """[const] [priority = value :] keyset : action annotations ;"""
    span = p.span
    is_const = p.accept("const") or table_const
    priority = None
    if p.at("priority") and p.following == "=":
        p.pos += 2
        priority = parse_expression(p)
        p.expect(":", "after the priority")
    keys = parse_keyset(p)
    p.expect(":", "and an action after the keys of the entry")
    entry = ast.TableEntry(span, keys, _parse_action_ref(p, []), is_const, priority, annotations=parse_annotations(p))
    p.expect(";", "after the entry")
    return entry


_DECLARATIONS = {
    "const": parse_const,
    "extern": parse_extern,
    "action": parse_action,
    "parser": parse_parser,
    "control": parse_control,
    "package": parse_package,
    "header": parse_record,
    "struct": parse_record,
    "header_union": parse_record,
    "enum": parse_enum,
    "typedef": parse_typedef,
    "value_set": parse_value_set,
}
_LOCALS = {"const": parse_const, "value_set": parse_value_set, "action": parse_action, "table": parse_table}
