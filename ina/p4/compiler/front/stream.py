"""The parser's state: the tokens, the place in them, and which names are types.

P4's grammar is context sensitive: `(T) x` is a cast and `T x;` a declaration only if T names a type. `scopes` records,
per scope, which names are types; the parser fills it while it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ina.p4.compiler import ast
from ina.p4.compiler.errors import Span, fail
from ina.p4.compiler.front.lexer import Tokens

BASE_TYPES = frozenset("bool error match_kind string void int bit varbit tuple".split())


def join(first: Span, last: Span) -> Span:
    """Returns the span from the start of `first` to the end of `last`, or `first` alone if they lie on several lines."""
    if first.line == last.line and first.file == last.file and last.col >= first.col:
        return Span(first.file, first.line, first.col, last.col + last.length - first.col)
    return first


class TokenStream:
    """Tokens and the position in them. The functions of the parser consume the construct in their name or docstring, or raise
    CompileError."""

    def __init__(self, tokens: Tokens) -> None:
        self.kinds, self.texts, self.spans, self.joined = tokens.kinds, tokens.texts, tokens.spans, tokens.joined
        self.pos = 0
        self.depth = 0
        self.in_width = False
        """True within `bit<...>`, where a `>` outside of parentheses is the end."""
        self.scopes: list[dict[str, bool]] = [{}]

    # --- tokens

    @property
    def kind(self) -> str:
        return self.kinds[self.pos]

    @property
    def following(self) -> str:
        """Returns the kind of the token behind the current one."""
        return self.kinds[self.pos + 1]

    @property
    def span(self) -> Span:
        return self.spans[self.pos]

    def at(self, text: str) -> bool:
        """Returns True if the current token is this reserved word, punctuation or contextual word."""
        return self.texts[self.pos] == text and self.kinds[self.pos] != "STRING"

    def accept(self, text: str) -> bool:
        if self.texts[self.pos] == text and self.kinds[self.pos] != "STRING":
            self.pos += 1
            return True
        return False

    def expect(self, text: str, context: str = "") -> Span:
        if not self.accept(text):
            self.expected(f"'{text}'" + (f" {context}" if context else ""))
        return self.spans[self.pos - 1]

    def expected(self, expectation: str) -> NoReturn:
        kind, span = self.kind, self.span
        text = self.texts[self.pos]
        found = "end of file" if kind == "eof" else f"'{text}'" if kind != "STRING" else text
        if expectation.startswith("';'") and self.pos and self.spans[self.pos - 1].line < span.line:
            previous = self.spans[self.pos - 1]  # a missing ';' belongs to the end of the line, not to the start of the next one
            after = Span(previous.file, previous.line, previous.col + previous.length, 1)
            fail(after, f"expected {expectation} before {found}")
        reserved = expectation.startswith("a name") and kind == text and text.isidentifier()
        fail(span, f"expected {expectation}, found {found}", [f"'{text}' is a reserved word of P4"] if reserved else ())

    def items(self, closing: str) -> Iterator[None]:
        """Yields once for each item of a list with commas, which the caller parses, up to `closing`."""
        while not self.at(closing):
            yield
            if not self.accept(","):
                break

    def braced(self, context: str = "") -> Iterator[None]:
        """Yields once for each item between `{` and `}`, which the caller parses."""
        self.expect("{", context)
        while not self.accept("}"):
            yield

    def unclosed(self, opening: Span) -> Iterator[None]:
        """Yields as long as the `{` at `opening` is not closed; consumes its `}`."""
        while not self.accept("}"):
            if self.kind == "eof":
                fail(opening, "'{' is never closed")
            yield

    def enter(self) -> None:
        self.depth += 1
        if self.depth > ast.MAX_DEPTH:
            fail(self.span, f"nested more than {ast.MAX_DEPTH} levels deep", ["split it with intermediate variables"])

    # --- names

    @contextmanager
    def scope(self) -> Iterator[None]:
        self.scopes.append({})
        yield
        self.scopes.pop()

    def declare(self, name: str, is_type: bool = False) -> None:
        self.scopes[-1][name] = is_type

    def is_type_name(self, name: str) -> bool:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), False)

    def parse_name(self, expectation: str = "a name") -> tuple[str, Span]:
        if self.kind != "id":
            self.expected(expectation)
        self.pos += 1
        return self.texts[self.pos - 1], self.spans[self.pos - 1]

    def declared_name(self, expectation: str, is_type: bool = False) -> tuple[str, Span]:
        """Parses a name, and declares it."""
        name, span = self.parse_name(expectation)
        self.declare(name, is_type)
        return name, span

    def starts_type(self) -> bool:
        """Returns True if the current token can only be the start of a type."""
        kind = self.kind
        if kind == "id":
            text = self.texts[self.pos]
            return self.is_type_name(text) or (text == "list" and self.texts[self.pos + 1] == "<")
        if kind == ".":
            return self.following == "id" and self.scopes[0].get(self.texts[self.pos + 1], False)
        return kind in BASE_TYPES
