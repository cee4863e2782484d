"""Recursive descent: types, expressions, keysets (P4_16 v1.2.5 appendix H)."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.errors import CompileError, Span, fail
from ina.p4.compiler.front.lexer import integer, string
from ina.p4.compiler.front.stream import BASE_TYPES, TokenStream, join

# Binding strength, weakest first (§8 and the grammar's %left declarations). Ternary is weaker than all of them.
# Unlike in C, `&`, `^` and `|` bind tighter than comparisons.
_LEVELS = [["||"], ["&&"], ["==", "!="], ["<", ">", "<=", ">="], ["|"], ["^"], ["&"], ["<<", ">>"],
           ["++", "+", "-", "|+|", "|-|"], ["*", "/", "%"]]
PRECEDENCE = {op: level for level, ops in enumerate(_LEVELS, 1) for op in ops}
_UNARY = frozenset("-+~!")


def parse_type(p: TokenStream) -> ast.TypeRef:
    """typeRef: baseType | typeName | specializedType | headerStackType | tupleType | listType"""
    kind, span = p.kind, p.span
    ref: ast.TypeRef
    if kind in BASE_TYPES:
        ref = _parse_base_type(p)
    elif kind == "id" or kind == ".":
        absolute = p.accept(".")
        name, name_span = p.parse_name("a type name")
        if name == "list" and not absolute and p.at("<"):
            p.pos += 1
            ref = ast.ListTypeRef(name_span, parse_type_argument(p))
            p.expect(">", "after the element type of list")
        else:
            args = parse_type_arguments(p) if p.at("<") else []
            ref = ast.NamedTypeRef(join(span, name_span), name, args, absolute)
    else:
        p.expected("a type")
    while p.accept("["):
        size = parse_expression(p)
        ref = ast.StackTypeRef(join(span, p.expect("]", "after the size of a header stack")), ref, size)
    return ref


def _parse_base_type(p: TokenStream) -> ast.TypeRef:
    span, kind = p.span, p.kind
    p.pos += 1
    if kind == "tuple":
        return ast.TupleTypeRef(span, parse_type_arguments(p))
    width = None
    if kind in ("int", "bit", "varbit") and p.accept("<"):
        width = _expression_within(p, in_width=True)
        span = join(span, p.expect(">", "after the width"))
    elif kind == "varbit":
        p.expected("'<' and the maximum width of varbit")
    return ast.BaseTypeRef(span, kind, width)


def parse_type_argument(p: TokenStream) -> ast.TypeRef:
    span = p.span
    return ast.BaseTypeRef(span, "_") if p.accept("_") else parse_type(p)


def parse_type_arguments(p: TokenStream) -> list[ast.TypeRef]:
    """< typeArg, ... >"""
    p.expect("<")
    args = [parse_type_argument(p) for _ in p.items(">")]
    p.expect(">", "after type arguments")
    return args


def try_type_arguments(p: TokenStream) -> list[ast.TypeRef] | None:
    """Parses type arguments followed by `(` or `.`; otherwise returns None and consumes nothing: then `<` is the operator."""
    start, depth = p.pos, p.depth
    if p.following not in BASE_TYPES and p.following not in ("id", "_", ".", ">"):
        return None
    try:
        args = parse_type_arguments(p)
        if p.at("(") or p.at("."):
            return args
    except CompileError:
        pass
    p.pos, p.depth = start, depth
    return None


def parse_expression(p: TokenStream) -> ast.Expr:
    """expression: binary | binary ? expression : expression"""
    p.enter()
    depth = p.depth
    condition = parse_binary(p, 1)
    if p.accept("?"):
        then = parse_expression(p)
        p.expect(":", "of the conditional expression")
        otherwise = parse_expression(p)
        condition = ast.Ternary(join(condition.span, otherwise.span), condition, then, otherwise)
    p.depth = depth - 1
    return condition


def _expression_within(p: TokenStream, in_width: bool) -> ast.Expr:
    outer, p.in_width = p.in_width, in_width
    try:
        return parse_expression(p)
    finally:
        p.in_width = outer


def parse_binary(p: TokenStream, floor: int) -> ast.Expr:
    """Parses by precedence climbing: operators at least as strong as `floor`, left associative."""
    depth = p.depth
    left = parse_unary(p)
    kinds, precedence = p.kinds, PRECEDENCE
    while True:
        op = kinds[p.pos]
        strength = precedence.get(op)
        if strength is None:
            break
        if op == ">" and p.in_width:
            break
        if op == ">" and p.following == ">" and p.pos in p.joined:
            op, strength = ">>", precedence[">>"]
        if strength < floor:
            break
        p.pos += 2 if op == ">>" else 1
        p.enter()
        right = parse_binary(p, strength + 1)
        left = ast.Binary(join(left.span, right.span), op, left, right)
    p.depth = depth
    return left


def parse_unary(p: TokenStream) -> ast.Expr:
    kind = p.kind
    if kind in _UNARY:
        span = p.span
        p.pos += 1
        p.enter()
        operand = parse_unary(p)
        p.depth -= 1
        return ast.Unary(join(span, operand.span), kind, operand)
    if kind == "(" and (cast := _try_cast(p)) is not None:
        return cast
    return parse_postfix(p, parse_primary(p))


def _try_cast(p: TokenStream) -> ast.Expr | None:
    start, depth, span = p.pos, p.depth, p.span
    p.pos += 1
    if not p.starts_type():
        p.pos = start
        return None
    certain = p.kind in BASE_TYPES and p.kind != "error"
    try:
        target = parse_type(p)
        p.expect(")", "after the type of a cast")
    except CompileError:
        if certain:
            raise
        p.pos, p.depth = start, depth  # `(E.A)`, `(T.minSizeInBits())`
        return None
    p.enter()
    operand = parse_unary(p)
    p.depth -= 1
    return ast.Cast(join(span, operand.span), target, operand)


def parse_postfix(p: TokenStream, expr: ast.Expr) -> ast.Expr:
    """Parses member access, index, slice, call: left to right."""
    kinds = p.kinds
    depth = p.depth
    while True:
        kind = kinds[p.pos]
        match kind:
            case ".":
                p.pos += 1
                if kinds[p.pos] != "id":
                    p.expected("a name of a member after '.'")
                expr = ast.Member(join(expr.span, p.span), expr, p.texts[p.pos])
                p.pos += 1
            case "(":
                arguments, last = parse_arguments(p)
                expr = ast.Call(join(expr.span, last), expr, [], arguments)
            case "[":
                expr = _parse_index(p, expr)
            case "<" if isinstance(expr, (ast.Name, ast.Member)):
                args = try_type_arguments(p)
                if args is None:
                    break
                if p.at("."):
                    if not isinstance(expr, ast.Name):
                        p.expected("'(' after type arguments")
                    expr = ast.TypeExpr(expr.span, ast.NamedTypeRef(expr.span, expr.name, args, expr.absolute))
                else:
                    arguments, last = parse_arguments(p)
                    expr = ast.Call(join(expr.span, last), expr, args, arguments)
            case _:
                break
        p.enter()
    p.depth = depth
    return expr


def _parse_index(p: TokenStream, base: ast.Expr) -> ast.Expr:
    p.pos += 1
    first = parse_expression(p)
    plus = p.accept("+:")
    if plus or p.accept(":"):
        second = parse_expression(p)
        return ast.Slice(join(base.span, p.expect("]", "after the bounds of a slice")), base, first, second, plus)
    return ast.Index(join(base.span, p.expect("]", "after the index")), base, first)


def parse_arguments(p: TokenStream) -> tuple[list[ast.Argument], Span]:
    """( expression | name = expression | _ , ... ); returns the span of `)` too"""
    p.expect("(")
    arguments: list[ast.Argument] = []
    for _ in p.items(")"):
        span, name = p.span, None
        if p.kind == "id" and p.following == "=":
            name, _ = p.parse_name()
            p.pos += 1
        arguments.append(ast.Argument(span, name, None if p.accept("_") else parse_expression(p)))
    return arguments, p.expect(")", "after the arguments")


def parse_primary(p: TokenStream) -> ast.Expr:
    kind, text, span = p.kind, p.texts[p.pos], p.span
    match kind:
        case "id":
            p.pos += 1
            return ast.Name(span, text)
        case "INT":
            p.pos += 1
            try:
                value, width, signed = integer(text)
            except ValueError:  # Python's limit, sys.get_int_max_str_digits()
                raise CompileError(span, f"a decimal number of {len(text)} digits: write one so long in hexadecimal") from None
            return ast.IntLiteral(span, value, width, signed)
        case "(":
            p.pos += 1
            inner = _expression_within(p, in_width=False)
            p.expect(")")
            return inner
        case "{":
            return _parse_braces(p)
    if kind in BASE_TYPES:
        return ast.TypeExpr(span, parse_type(p))
    p.pos += 1
    match kind:
        case ".":
            name, name_span = p.parse_name()
            return ast.Name(join(span, name_span), name, absolute=True)
        case "true" | "false":
            return ast.BoolLiteral(span, kind == "true")
        case "STRING":
            return ast.StringLiteral(span, string(text))
        case "this":
            return ast.Name(span, "this")
        case "...":
            return ast.Dots(span)
    p.pos -= 1
    p.expected("an expression")


def _parse_braces(p: TokenStream) -> ast.Expr:
    """{ } | { expression, ... } | { name = expression, ... } | {#}, each list optionally ending in `...`, `,` or both"""
    span = p.expect("{")
    if p.accept("#"):
        token = join(span, p.expect("}"))
        if token.length != len("{#}"):
            fail(token, "an invalid header is written {#}, without space")
        return ast.InvalidHeader(token)
    dots = False
    if p.kind == "id" and p.following == "=":
        fields: list[tuple[str, ast.Expr]] = []
        for _ in p.items("}"):
            if dots := p.accept("..."):
                p.accept(",")
                break
            name, _ = p.parse_name("a field name")
            p.expect("=", "after the field's name")
            fields.append((name, parse_expression(p)))
        last = p.expect("}", "at the end of the initialiser")
        return ast.StructInit(join(span, last), fields, dots)
    items: list[ast.Expr] = []
    for _ in p.items("}"):
        if p.at("...") and "}" in (p.following, p.kinds[p.pos + 2] if p.following == "," else ""):
            p.pos += 1
            dots = True
            p.accept(",")
            break
        items.append(parse_expression(p))
    last = p.expect("}", "at the end of the list")
    return ast.ListExpr(join(span, last), items, dots)


def parse_keyset(p: TokenStream) -> list[ast.Expr]:
    """keysetExpression: simpleKeyset | ( simpleKeyset, ... )"""
    if p.at("("):
        # `(a, b)` is a tuple of sets; `(a) ++ b`, `(bit<8>) 5` and `(a) &&& b` begin an expression.
        start, depth, may_be_cast = p.pos, p.depth, False
        try:
            p.pos += 1
            may_be_cast = p.starts_type()
            keys = [parse_simple_keyset(p)]
            if p.accept(","):
                keys += [parse_simple_keyset(p) for _ in p.items(")")]
            if p.accept(")") and (p.at(":") or p.at(")")):
                return keys
        except CompileError:
            if not may_be_cast:
                raise
        p.pos, p.depth = start, depth
    return [parse_simple_keyset(p)]


def parse_simple_keyset(p: TokenStream) -> ast.Expr:
    span = p.span
    if p.accept("default") or p.accept("_"):
        return ast.DontCare(span)
    if p.at("{"):
        return _parse_braces_keyset(p)
    first = parse_expression(p)
    if p.accept("&&&"):
        second = parse_expression(p)
        return ast.Mask(join(first.span, second.span), first, second)
    if p.accept(".."):
        second = parse_expression(p)
        return ast.Range(join(first.span, second.span), first, second)
    return first


def _parse_braces_keyset(p: TokenStream) -> ast.Expr:
    """Parses a key of struct or tuple type: { set, ... }"""
    start, depth, span = p.pos, p.depth, p.span
    try:
        return _parse_braces(p)
    except CompileError:
        p.pos, p.depth = start + 1, depth
    items = [parse_simple_keyset(p)]
    if p.accept(","):
        items += [parse_simple_keyset(p) for _ in p.items("}")]
    return ast.ListExpr(join(span, p.expect("}")), items)
