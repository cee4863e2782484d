"""Recursive descent: annotations, parameters, local declarations, statements (P4_16 v1.2.5 appendix H)."""

from __future__ import annotations

from collections.abc import Callable

from ina.p4.compiler import ast
from ina.p4.compiler.errors import CompileError, Span, fail
from ina.p4.compiler.front.expressions import parse_arguments, parse_expression, parse_postfix, parse_primary, parse_type
from ina.p4.compiler.front.stream import BASE_TYPES, TokenStream, join

COMPOUND = frozenset(["+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", "|+|=", "|-|="])
OWN_ANNOTATIONS = "ina_"  # hold pairs in parentheses, too: BFRuntime carries no structured annotations
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def parse_annotations(p: TokenStream) -> list[ast.Annotation]:
    annotations = []
    while p.kind in ("@", "pragma"):
        if p.kind == "pragma":
            _, *words = p.texts[p.pos].split()
            annotations.append(ast.Annotation(p.span, words[0] if words else "pragma", words[1:]))
            p.pos += 1
        else:
            annotations.append(_parse_annotation(p))
    return annotations


def _parse_annotation(p: TokenStream) -> ast.Annotation:
    """@name | @name ( tokens ) | @name [ expressions ] | @name [ name = expression, ... ]"""
    start = p.expect("@")
    name, span = p.texts[p.pos], p.span
    if not name.replace("_", "a").isalnum():
        p.expected("a name of an annotation after '@'")
    p.pos += 1
    annotation = ast.Annotation(join(start, span), name)
    if p.at("("):
        body = p.pos + 1
        annotation.tokens = _parse_balanced(p)
        end = p.pos
        if name.startswith(OWN_ANNOTATIONS):
            p.pos = body
            _parse_pairs(p, annotation, ")")
            p.expect(")", "at the end of the annotation")
        else:
            annotation.exprs = _try_expressions(p, body, end - 1)
            p.pos = end
    elif p.accept("["):
        annotation.structured = True
        if p.kind == "id" and p.following == "=":
            _parse_pairs(p, annotation, "]")
        else:
            annotation.exprs = [parse_expression(p) for _ in p.items("]")]
        p.expect("]", "at the end of the annotation")
    return annotation


def _parse_pairs(p: TokenStream, annotation: ast.Annotation, closing: str) -> None:
    for _ in p.items(closing):
        key, key_span = p.parse_name("a key")
        p.expect("=", "after the key of an annotation")
        if key in annotation.pairs:
            fail(key_span, f"key '{key}' appears twice in annotation @{annotation.name}")
        annotation.pairs[key] = parse_expression(p)


def _parse_balanced(p: TokenStream) -> list[str]:
    opening, start, closers = p.span, p.pos + 1, []
    while True:
        kind = p.kind
        if kind == "eof":
            fail(opening, f"'{p.texts[start - 1]}' is never closed")
        if kind in _CLOSING:
            closers.append(_CLOSING[kind])
        elif closers and kind == closers[-1]:
            closers.pop()
            if not closers:
                p.pos += 1
                return p.texts[start : p.pos - 1]
        p.pos += 1


def _try_expressions(p: TokenStream, start: int, end: int) -> list[ast.Expr]:
    """Parses the tokens from `start` to `end` as a list of expressions; returns an empty list if they are none."""
    p.pos = start
    depth, exprs = p.depth, []
    try:
        while p.pos < end:
            exprs.append(parse_expression(p))
            if p.pos < end:
                p.expect(",")
    except CompileError:
        p.depth = depth
        return []
    return exprs if p.pos == end else []


def parse_type_parameters(p: TokenStream) -> list[ast.Name]:
    """Parses < name, ... >, declared as types in the current scope."""
    params: list[ast.Name] = []
    if not p.accept("<"):
        return params
    for _ in p.items(">"):
        name, span = p.declared_name("a name of a type parameter", is_type=True)
        params.append(ast.Name(span, name))
    p.expect(">", "after the type parameters")
    return params


def parse_parameters(p: TokenStream, is_ctor: bool = False) -> list[ast.Param]:
    """( annotations direction type name = default, ... )"""
    params: list[ast.Param] = []
    p.expect("(", "before the parameters")
    for _ in p.items(")"):
        annotations = parse_annotations(p)
        direction = p.kind if p.kind in ("in", "out", "inout") else ""
        if direction:
            p.pos += 1
        type_ref = parse_type(p)
        name, span = p.declared_name("a name of a parameter")
        default = parse_expression(p) if p.accept("=") else None
        params.append(ast.Param(span, name, direction, type_ref, default, is_ctor, annotations=annotations))
    p.expect(")", "after the parameters")
    return params


def parse_const(p: TokenStream, annotations: list[ast.Annotation]) -> ast.ConstDecl:
    """const type name = expression ;"""
    p.expect("const")
    type_ref = parse_type(p)
    name, span = p.parse_name("a name of a constant")
    p.expect("=", "and the value of the constant")
    value = parse_expression(p)
    p.expect(";", "after the constant")
    p.declare(name)
    return ast.ConstDecl(span, name, type_ref, value, annotations=annotations)


def parse_variable_or_instance(p: TokenStream, annotations: list[ast.Annotation], type_ref: ast.TypeRef) -> ast.Declaration:
    """Parses the rest of a declaration behind its type: `name [= init] ;`, `(args) name [= { body }] ;`"""
    if p.at("("):
        return parse_instantiation(p, annotations, type_ref)
    variable = parse_variable(p, annotations, type_ref)
    p.expect(";", "after the declaration")
    return variable


def parse_variable(p: TokenStream, annotations: list[ast.Annotation], type_ref: ast.TypeRef) -> ast.VarDecl:
    name, span = p.parse_name("a name of a variable")
    type_ref = parse_array_suffix(p, type_ref)
    init = parse_expression(p) if p.accept("=") else None
    p.declare(name)
    return ast.VarDecl(span, name, type_ref, init, annotations=annotations)


def parse_array_suffix(p: TokenStream, type_ref: ast.TypeRef) -> ast.TypeRef:
    """Parses `[n]` behind the declared name, so that the checker can report it."""
    while p.accept("["):
        type_ref = ast.StackTypeRef(p.spans[p.pos - 1], type_ref, parse_expression(p))
        p.expect("]", "after the size")
    return type_ref


def parse_instantiation(p: TokenStream, annotations: list[ast.Annotation], type_ref: ast.TypeRef) -> ast.Instantiation:
    arguments, _ = parse_arguments(p)
    name, span = p.declared_name("a name of the instance")
    type_ref = parse_array_suffix(p, type_ref)
    body: list[ast.Node] | None = None
    if p.accept("="):
        body = []
        with p.scope():
            for _ in p.braced("and the bodies of abstract methods"):
                member_annotations = parse_annotations(p)
                member_type = parse_type(p)
                parse = parse_instantiation if p.at("(") else parse_function
                body.append(parse(p, member_annotations, member_type))
    p.expect(";", "after the instantiation")
    return ast.Instantiation(span, name, type_ref, arguments, body, annotations=annotations)


def parse_function(p: TokenStream, annotations: list[ast.Annotation], return_ref: ast.TypeRef) -> ast.FunctionDecl:
    """Parses `type name <T, ...> ( parameters ) { body }` from the name on."""
    name, span = p.declared_name("a name of a function")
    with p.scope():
        type_params = parse_type_parameters(p)
        params = parse_parameters(p)
        body = parse_block(p)
    return ast.FunctionDecl(span, name, return_ref, type_params, params, body, annotations=annotations)


def parse_block(p: TokenStream, annotations: list[ast.Annotation] | None = None) -> ast.Block:
    span = p.expect("{")
    p.enter()
    with p.scope():
        statements = [parse_statement(p) for _ in p.unclosed(span)]
    p.depth -= 1
    return ast.Block(span, statements, annotations=annotations or [])


def parse_statement(p: TokenStream) -> ast.Node:
    """Parses a statement or a local declaration."""
    annotations = parse_annotations(p) if p.kind in ("@", "pragma") else []
    kind, span = p.kind, p.span
    if kind == "id":
        return _parse_named_statement(p, annotations)
    if kind in BASE_TYPES:
        return parse_variable_or_instance(p, annotations, parse_type(p))
    if parse := _STATEMENTS.get(kind):
        return parse(p, annotations)
    if kind in (".", "this", "(", "{"):
        return _parse_simple_statement(p, ";")
    fail(span, f"expected a statement, found '{p.texts[p.pos]}'")


def _parse_named_statement(p: TokenStream, annotations: list[ast.Annotation]) -> ast.Node:
    """Parses a statement that starts with an identifier: declaration, instantiation, assignment, call."""
    following = p.following
    if following in ("id", "<", "[", "(") and (following == "id" or p.starts_type()):
        start, depth = p.pos, p.depth
        type_ref = parse_type(p)
        if p.kind == "id" or (p.at("(") and not _is_constructed_call(p)):
            return parse_variable_or_instance(p, annotations, type_ref)
        p.pos, p.depth = start, depth
    return _parse_simple_statement(p, ";")


def _is_constructed_call(p: TokenStream) -> bool:
    """Returns True if the tokens behind `T` are a call `T(...).method(...)` and not an instantiation."""
    start = p.pos
    _parse_balanced(p)
    is_call = p.at(".") or p.at(";")
    p.pos = start
    return is_call


def _parse_simple_statement(p: TokenStream, end: str | None) -> ast.Statement:
    """lvalue = expression, lvalue op= expression, call"""
    start = p.pos
    target = parse_postfix(p, parse_primary(p))
    kind = p.kind
    statement: ast.Statement
    shifts = kind == ">" and p.following == ">=" and p.pos in p.joined
    if shifts or kind == "=" or kind in COMPOUND:
        p.pos += 1 + shifts
        value = parse_expression(p)
        op = ">>" if shifts else kind.removesuffix("=") or "="
        statement = ast.Assign(join(target.span, value.span), target, op, value)
    elif isinstance(target, ast.Call):
        statement = ast.CallStatement(target.span, target)
    elif p.pos == start + 1 and kind == "id":
        p.expected(f"'=', '(' or an operator after '{p.texts[start]}'")
    else:
        p.expected("'=' or a call")
    if end:
        p.expect(end, "after the statement")
    return statement


def _parse_if(p: TokenStream, annotations: list[ast.Annotation]) -> ast.If:
    """if ( expression ) statement [else statement]; a chain of else-ifs counts as nesting"""
    span = p.expect("if")
    p.expect("(", "after 'if'")
    condition = parse_expression(p)
    p.expect(")", "after the condition")
    p.enter()
    then = _parse_branch(p)
    otherwise = _parse_branch(p) if p.accept("else") else None
    p.depth -= 1
    return ast.If(span, condition, then, otherwise)


def _parse_branch(p: TokenStream) -> ast.Statement:
    statement = parse_statement(p)
    if isinstance(statement, ast.Declaration):
        fail(statement.span, "a declaration needs a block of its own here: put it in { }")
    assert isinstance(statement, ast.Statement)
    return statement


def _parse_switch(p: TokenStream, annotations: list[ast.Annotation]) -> ast.Switch:
    """switch ( expression ) { label: block | label: ... }"""
    span = p.expect("switch")
    p.expect("(", "after 'switch'")
    subject = parse_expression(p)
    p.expect(")")
    cases = []
    for _ in p.braced("before the cases of the switch"):
        case_span = p.span
        label = None if p.accept("default") else parse_expression(p)
        p.expect(":", "after the label of a case")
        body = None
        if p.at("{") or p.kind in ("@", "pragma"):
            body = parse_block(p, parse_annotations(p))
        cases.append(ast.SwitchCase(case_span, label, body))
    return ast.Switch(span, subject, cases)


def parse_for(p: TokenStream, annotations: list[ast.Annotation]) -> ast.Statement:
    """for ( type name in collection ) | for ( init ; condition ; update )"""
    span = p.span
    p.pos += 1
    p.expect("(", "after 'for'")
    p.enter()
    with p.scope():
        statement = _parse_loop(p, span, annotations)
    p.depth -= 1
    return statement


def _parse_loop(p: TokenStream, span: Span, annotations: list[ast.Annotation]) -> ast.Statement:
    inner = parse_annotations(p)
    if p.starts_type() and not (p.kind == "id" and p.following == "in"):
        type_ref = parse_type(p)
        if p.kind == "id" and p.following == "in":
            name, name_span = p.declared_name("a name")
            variable = ast.VarDecl(name_span, name, type_ref, None, annotations=inner)
            return _parse_for_in(p, span, variable, annotations)
        return _parse_for_c(p, span, [parse_variable(p, inner, type_ref)], annotations)
    if p.at(";"):
        return _parse_for_c(p, span, [], annotations)
    if p.kind == "id" and p.following == "in":
        name, name_span = p.parse_name()
        fail(name_span, f"the variable of the loop needs a type, as in for (bit<8> {name} in ...)")
    return _parse_for_c(p, span, [_parse_simple_statement(p, None)], annotations)


def _parse_for_in(p: TokenStream, span: Span, target: ast.VarDecl, annotations: list[ast.Annotation]) -> ast.ForIn:
    p.expect("in")
    collection = parse_expression(p)
    if p.accept(".."):
        hi = parse_expression(p)
        collection = ast.Range(join(collection.span, hi.span), collection, hi)
    p.expect(")", "after the collection of the loop")
    return ast.ForIn(span, target, collection, _parse_branch(p), annotations=annotations)


def _parse_for_c(p: TokenStream, span: Span, init: list[ast.Node], annotations: list[ast.Annotation]) -> ast.ForC:
    while init and p.accept(","):
        inner = parse_annotations(p)
        init.append(parse_variable(p, inner, parse_type(p)) if p.starts_type() else _parse_simple_statement(p, None))
    p.expect(";", "after the initialisation of the loop")
    condition = parse_expression(p)
    p.expect(";", "after the condition of the loop")
    update = [_parse_simple_statement(p, None) for _ in p.items(")")]
    p.expect(")", "after the update of the loop")
    return ast.ForC(span, init, condition, update, _parse_branch(p), annotations=annotations)


def _parse_return(p: TokenStream, annotations: list[ast.Annotation]) -> ast.Return:
    span = p.expect("return")
    value = None if p.at(";") else parse_expression(p)
    p.expect(";", "after 'return'")
    return ast.Return(span, value)


def _parse_word(p: TokenStream, annotations: list[ast.Annotation]) -> ast.Statement:
    """break ; | continue ; | exit ; | ;"""
    kind, span = p.kind, p.span
    p.pos += 1
    if kind == ";":
        return ast.EmptyStatement(span)
    p.expect(";", f"after '{kind}'")
    return {"break": ast.Break, "continue": ast.Continue, "exit": ast.Exit}[kind](span)


_STATEMENTS: dict[str, Callable[[TokenStream, list[ast.Annotation]], ast.Node]] = {
    "const": parse_const,
    "{": parse_block,
    "if": _parse_if,
    "for": parse_for,
    "switch": _parse_switch,
    "return": _parse_return,
    "break": _parse_word,
    "continue": _parse_word,
    "exit": _parse_word,
    ";": _parse_word,
}
