"""Recursive descent: the token stream, types, expressions (P4_16 v1.2.5 appendix H).

P4's grammar is context sensitive: `(T) x` is a cast and `T x;` a declaration only if T names a type. `scopes` records,
per scope, which names are types; the parser fills it while it reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from ina.p4.compiler import ast
from ina.p4.compiler.errors import CompileError, Note, Span
from ina.p4.compiler.front.lexer import Tokens, integer, string

BASE_TYPES = frozenset("bool error match_kind string void int bit varbit tuple".split())
# Binding strength, weakest first (§8 and the grammar's %left declarations). Ternary is weaker than all of them.
# Unlike in C, `&`, `^` and `|` bind tighter than comparisons.
_LEVELS = [["||"], ["&&"], ["==", "!="], ["<", ">", "<=", ">="], ["|"], ["^"], ["&"], ["<<", ">>"],
           ["++", "+", "-", "|+|", "|-|"], ["*", "/", "%"]]  # fmt: skip
PRECEDENCE = {op: level for level, ops in enumerate(_LEVELS, 1) for op in ops}
_UNARY = frozenset("-+~!")


def join(first: Span, last: Span) -> Span:
    """Returns the span from the start of `first` to the end of `last`, or `first` alone if they lie on several lines."""
    if first.line == last.line and first.file == last.file and last.col >= first.col:
        return Span(first.file, first.line, first.col, last.col + last.length - first.col)
    return first


def describe(kind: str, text: str) -> str:
    if kind == "eof":
        return "end of file"
    return f"'{text}'" if kind != "STRING" else text


class ExpressionParser:
    """Token stream, types and expressions. Every `parse_*` consumes the construct in its name or docstring, or raises
    CompileError."""

    def __init__(self, tokens: Tokens) -> None:
        self.kinds, self.texts, self.spans, self.joined = tokens.kinds, tokens.texts, tokens.spans, tokens.joined
        self.pos = 0
        self.depth = 0
        self.in_width = False
        """True within `bit<...>`, where a `>` outside of parentheses is the end."""
        self.scopes: list[dict[str, bool]] = [{}]

    # --- token stream

    def at(self, text: str) -> bool:
        """Returns True if the current token is this reserved word, punctuation or contextual word."""
        return self.texts[self.pos] == text and self.kinds[self.pos] != "STRING"

    def accept(self, text: str) -> bool:
        if self.texts[self.pos] == text and self.kinds[self.pos] != "STRING":
            self.pos += 1
            return True
        return False

    def expect(self, text: str, context: str = "") -> Span:
        if self.texts[self.pos] != text or self.kinds[self.pos] == "STRING":
            self.expected(f"'{text}'" + (f" {context}" if context else ""))
        self.pos += 1
        return self.spans[self.pos - 1]

    def expected(self, expectation: str) -> NoReturn:
        kind, text, span = self.kinds[self.pos], self.texts[self.pos], self.spans[self.pos]
        notes = []
        if expectation.startswith("';'") and self.pos and self.spans[self.pos - 1].line < span.line:
            previous = self.spans[self.pos - 1]  # a missing ';' belongs to the end of the line, not to the start of the next one
            after = Span(previous.file, previous.line, previous.col + previous.length, 1)
            raise CompileError(after, f"expected {expectation} before {describe(kind, text)}")
        if expectation.startswith("a name") and kind == text and text.isidentifier():
            notes = [f"'{text}' is a reserved word of P4"]
        raise CompileError(span, f"expected {expectation}, found {describe(kind, text)}", notes)

    def fail(self, span: Span, message: str, notes: list[Note | str] | None = None) -> NoReturn:
        raise CompileError(span, message, notes or ())

    def enter(self) -> None:
        self.depth += 1
        if self.depth > ast.MAX_DEPTH:
            self.fail(
                self.spans[self.pos],
                f"nested more than {ast.MAX_DEPTH} levels deep",
                ["split it with intermediate variables"],
            )

    # --- scopes of type names

    def declare(self, name: str, is_type: bool = False) -> None:
        self.scopes[-1][name] = is_type

    def is_type_name(self, name: str) -> bool:
        for scope in reversed(self.scopes):
            is_type = scope.get(name)
            if is_type is not None:
                return is_type
        return False

    def parse_name(self, expectation: str = "a name") -> tuple[str, Span]:
        if self.kinds[self.pos] != "id":
            self.expected(expectation)
        self.pos += 1
        return self.texts[self.pos - 1], self.spans[self.pos - 1]

    # --- types

    def starts_type(self) -> bool:
        """Returns True if the current token can only be the start of a type."""
        kind = self.kinds[self.pos]
        if kind == "id":
            text = self.texts[self.pos]
            return self.is_type_name(text) or (text == "list" and self.texts[self.pos + 1] == "<")
        if kind == ".":
            return self.kinds[self.pos + 1] == "id" and self.scopes[0].get(self.texts[self.pos + 1], False)
        return kind in BASE_TYPES

    def parse_type(self) -> ast.TypeRef:
        """typeRef: baseType | typeName | specializedType | headerStackType | tupleType | listType"""
        kind, span = self.kinds[self.pos], self.spans[self.pos]
        ref: ast.TypeRef
        if kind in BASE_TYPES:
            ref = self._parse_base_type()
        elif kind == "id" or kind == ".":
            absolute = self.accept(".")
            name, name_span = self.parse_name("a type name")
            if name == "list" and not absolute and self.at("<"):
                self.pos += 1
                ref = ast.ListTypeRef(name_span, self.parse_type_argument())
                self.expect(">", "after the element type of list")
            else:
                args = self.parse_type_arguments() if self.at("<") else []
                ref = ast.NamedTypeRef(join(span, name_span), name, args, absolute)
        else:
            self.expected("a type")
        while self.at("["):
            self.pos += 1
            size = self.parse_expression()
            ref = ast.StackTypeRef(join(span, self.expect("]", "after the size of a header stack")), ref, size)
        return ref

    def _parse_base_type(self) -> ast.TypeRef:
        span, kind = self.spans[self.pos], self.kinds[self.pos]
        self.pos += 1
        if kind == "tuple":
            return ast.TupleTypeRef(span, self.parse_type_arguments())
        width = None
        if kind in ("int", "bit", "varbit") and self.accept("<"):
            width = self._within(True, self.parse_expression)
            span = join(span, self.expect(">", "after the width"))
        elif kind == "varbit":
            self.expected("'<' and the maximum width of varbit")
        return ast.BaseTypeRef(span, kind, width, kind == "int" and width is not None)

    def _within(self, in_width: bool, parse: Callable[[], ast.Expr]) -> ast.Expr:
        outer, self.in_width = self.in_width, in_width
        try:
            return parse()
        finally:
            self.in_width = outer

    def parse_type_argument(self) -> ast.TypeRef:
        if self.kinds[self.pos] == "_":
            self.pos += 1
            return ast.BaseTypeRef(self.spans[self.pos - 1], "_")
        return self.parse_type()

    def parse_type_arguments(self) -> list[ast.TypeRef]:
        """< typeArg, ... >"""
        self.expect("<")
        args: list[ast.TypeRef] = []
        while not self.at(">"):
            args.append(self.parse_type_argument())
            if not self.accept(","):
                break
        self.expect(">", "after type arguments")
        return args

    def try_type_arguments(self) -> list[ast.TypeRef] | None:
        """Parses type arguments followed by `(` or `.`; otherwise returns None and consumes nothing: then `<` is the operator."""
        start, depth = self.pos, self.depth
        if self.kinds[start + 1] not in BASE_TYPES and self.kinds[start + 1] not in ("id", "_", ".", ">"):
            return None
        try:
            args = self.parse_type_arguments()
            if self.at("(") or self.at("."):
                return args
        except CompileError:
            pass
        self.pos, self.depth = start, depth
        return None

    # --- expressions

    def parse_expression(self) -> ast.Expr:
        """expression: binary | binary ? expression : expression"""
        self.enter()
        depth = self.depth
        condition = self.parse_binary(1)
        if self.at("?"):
            self.pos += 1
            then = self.parse_expression()
            self.expect(":", "of the conditional expression")
            otherwise = self.parse_expression()
            condition = ast.Ternary(join(condition.span, otherwise.span), condition, then, otherwise)
        self.depth = depth - 1
        return condition

    def parse_binary(self, floor: int) -> ast.Expr:
        """Parses by precedence climbing: operators at least as strong as `floor`, left associative."""
        depth = self.depth
        left = self.parse_unary()
        kinds, precedence = self.kinds, PRECEDENCE
        while True:
            op = kinds[self.pos]
            strength = precedence.get(op)
            if strength is None:
                break
            if op == ">" and self.in_width:
                break
            if op == ">" and self._shift_right():
                op, strength = ">>", precedence[">>"]
            if strength < floor:
                break
            self.pos += 2 if op == ">>" else 1
            self.enter()
            right = self.parse_binary(strength + 1)
            left = ast.Binary(join(left.span, right.span), op, left, right)
        self.depth = depth
        return left

    def _shift_right(self) -> bool:
        return self.kinds[self.pos + 1] == ">" and self.pos in self.joined

    def parse_unary(self) -> ast.Expr:
        kind = self.kinds[self.pos]
        if kind in _UNARY:
            span = self.spans[self.pos]
            self.pos += 1
            self.enter()
            operand = self.parse_unary()
            self.depth -= 1
            return ast.Unary(join(span, operand.span), kind, operand)
        if kind == "(" and (cast := self._try_cast()) is not None:
            return cast
        return self.parse_postfix(self.parse_primary())

    def _try_cast(self) -> ast.Expr | None:
        start, depth, span = self.pos, self.depth, self.spans[self.pos]
        self.pos += 1
        if not self.starts_type():
            self.pos = start
            return None
        certain = self.kinds[self.pos] in BASE_TYPES and self.kinds[self.pos] != "error"
        try:
            target = self.parse_type()
            self.expect(")", "after the type of a cast")
        except CompileError:
            if certain:
                raise
            self.pos, self.depth = start, depth  # `(E.A)`, `(T.minSizeInBits())`
            return None
        self.enter()
        operand = self.parse_unary()
        self.depth -= 1
        return ast.Cast(join(span, operand.span), target, operand)

    def parse_postfix(self, expr: ast.Expr) -> ast.Expr:
        """Parses member access, index, slice, call: left to right."""
        kinds = self.kinds
        depth = self.depth
        while True:
            kind = kinds[self.pos]
            if kind == ".":
                self.pos += 1
                if kinds[self.pos] != "id":
                    self.expected("a name of a member after '.'")
                span = join(expr.span, self.spans[self.pos])
                expr = ast.Member(span, expr, self.texts[self.pos])
                self.pos += 1
            elif kind == "(":
                arguments, last = self.parse_arguments()
                expr = ast.Call(join(expr.span, last), expr, [], arguments)
            elif kind == "[":
                expr = self._parse_index(expr)
            elif kind == "<" and isinstance(expr, (ast.Name, ast.Member)):
                args = self.try_type_arguments()
                if args is None:
                    break
                if self.at("."):
                    if not isinstance(expr, ast.Name):
                        self.expected("'(' after type arguments")
                    ref = ast.NamedTypeRef(expr.span, expr.name, args, expr.absolute)
                    expr = ast.TypeExpr(expr.span, ref)
                else:
                    arguments, last = self.parse_arguments()
                    expr = ast.Call(join(expr.span, last), expr, args, arguments)
            else:
                break
            self.enter()
        self.depth = depth
        return expr

    def _parse_index(self, base: ast.Expr) -> ast.Expr:
        self.pos += 1
        first = self.parse_expression()
        if self.at(":") or self.at("+:"):
            plus = self.at("+:")
            self.pos += 1
            second = self.parse_expression()
            return ast.Slice(
                join(base.span, self.expect("]", "after the bounds of a slice")), base, first, second, plus
            )
        return ast.Index(join(base.span, self.expect("]", "after the index")), base, first)

    def parse_arguments(self) -> tuple[list[ast.Argument], Span]:
        """( expression | name = expression | _ , ... ); returns the span of `)` too"""
        self.expect("(")
        arguments: list[ast.Argument] = []
        while not self.at(")"):
            span = self.spans[self.pos]
            name = None
            if self.kinds[self.pos] == "id" and self.kinds[self.pos + 1] == "=":
                name = self.texts[self.pos]
                self.pos += 2
            if self.kinds[self.pos] == "_":
                self.pos += 1
                arguments.append(ast.Argument(span, name, None))
            else:
                arguments.append(ast.Argument(span, name, self.parse_expression()))
            if not self.accept(","):
                break
        return arguments, self.expect(")", "after the arguments")

    def parse_primary(self) -> ast.Expr:
        kind, text, span = self.kinds[self.pos], self.texts[self.pos], self.spans[self.pos]
        if kind == "id":
            self.pos += 1
            return ast.Name(span, text)
        if kind == "INT":
            self.pos += 1
            try:
                value, width, signed = integer(text)
            except ValueError:  # Python's limit, sys.get_int_max_str_digits()
                raise CompileError(span, f"a decimal number of {len(text)} digits: write one so long in hexadecimal") from None
            return ast.IntLiteral(span, value, width, signed)
        if kind == "(":
            self.pos += 1
            inner = self._within(False, self.parse_expression)
            self.expect(")")
            return inner
        if kind == "{":
            return self._parse_braces()
        if kind in BASE_TYPES:
            return ast.TypeExpr(span, self.parse_type())
        self.pos += 1
        if kind == ".":
            name, name_span = self.parse_name()
            return ast.Name(join(span, name_span), name, absolute=True)
        if kind in ("true", "false"):
            return ast.BoolLiteral(span, kind == "true")
        if kind == "STRING":
            return ast.StringLiteral(span, string(text))
        if kind == "this":
            return ast.Name(span, "this")
        if kind == "...":
            return ast.Dots(span)
        self.pos -= 1
        self.expected("an expression")

    def _parse_braces(self) -> ast.Expr:
        """{ } | { expression, ... } | { name = expression, ... } | {#}, each list optionally ending in `...` or `,`"""
        span = self.expect("{")
        if self.accept("#"):
            token = join(span, self.expect("}"))
            if token.length != len("{#}"):
                self.fail(token, "an invalid header is written {#}, without space")
            return ast.InvalidHeader(token)
        dots, last = False, span
        if self.kinds[self.pos] == "id" and self.kinds[self.pos + 1] == "=":
            fields: list[tuple[str, ast.Expr]] = []
            while not self.at("}"):
                if self.accept("..."):
                    dots = True
                    break
                name, _ = self.parse_name("a field name")
                self.expect("=", "after the field's name")
                fields.append((name, self.parse_expression()))
                if not self.accept(","):
                    break
            last = self.expect("}", "at the end of the initialiser")
            return ast.StructInit(join(span, last), fields, dots)
        items: list[ast.Expr] = []
        while not self.at("}"):
            if self.at("...") and self.kinds[self.pos + 1] == "}":
                self.pos += 1
                dots = True
                break
            items.append(self.parse_expression())
            if not self.accept(","):
                break
        last = self.expect("}", "at the end of the list")
        return ast.ListExpr(join(span, last), items, dots)

    # --- keysets (select cases, table entries)

    def parse_keyset(self) -> list[ast.Expr]:
        """keysetExpression: simpleKeyset | ( simpleKeyset, ... )"""
        if self.at("("):
            # `(a, b)` is a tuple of sets; `(a) ++ b`, `(bit<8>) 5` and `(a) &&& b` begin an expression.
            start, depth, may_be_cast = self.pos, self.depth, False
            try:
                self.pos += 1
                may_be_cast = self.starts_type()
                keys = [self.parse_simple_keyset()]
                while self.accept(","):
                    if self.at(")"):
                        break
                    keys.append(self.parse_simple_keyset())
                if self.accept(")") and (self.at(":") or self.at(")")):
                    return keys
            except CompileError:
                if not may_be_cast:
                    raise
            self.pos, self.depth = start, depth
        return [self.parse_simple_keyset()]

    def parse_simple_keyset(self) -> ast.Expr:
        span = self.spans[self.pos]
        if self.accept("default") or self.accept("_"):
            return ast.DontCare(span)
        if self.at("{"):
            return self._parse_braces_keyset()
        first = self.parse_expression()
        if self.accept("&&&"):
            second = self.parse_expression()
            return ast.Mask(join(first.span, second.span), first, second)
        if self.accept(".."):
            second = self.parse_expression()
            return ast.Range(join(first.span, second.span), first, second)
        return first

    def _parse_braces_keyset(self) -> ast.Expr:
        """Parses a key of struct or tuple type: { set, ... }"""
        start, depth, span = self.pos, self.depth, self.spans[self.pos]
        try:
            return self._parse_braces()
        except CompileError:
            self.pos, self.depth = start + 1, depth
        items = [self.parse_simple_keyset()]
        while self.accept(","):
            if self.at("}"):
                break
            items.append(self.parse_simple_keyset())
        return ast.ListExpr(join(span, self.expect("}")), items)
