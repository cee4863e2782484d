"""Tokens of the C preprocessor (C11 §6.4), as `cpp -x assembler-with-cpp` cuts them, for P4 (strings may span lines)."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import NamedTuple

from ina.p4.compiler.errors import CompileError, Span
from ina.p4.compiler.front.lexer import LINE_END

Place = tuple[str, int]
"""File and line"""
SPACES = " \t\r\f\v"
_SPLICE = re.compile(rf"\\[{SPACES}]*\n")
_BLANK = re.compile(rf"(?:[{SPACES}]+|//[^\n]*|/\*.*?(?:\*/|\Z))*", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_SKIPPED = re.compile(r"""(?:"(?:\\[^\n]|[^"\\\n])*"?|'(?:\\[^\n]|[^'\\\n])*'?|//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)|[^\n])*""")
"""A line outside of what counts. A quote that is never closed takes the rest of the line, and no comment begins in it."""
TOKEN = re.compile(
    r"(?P<id>[A-Za-z_]\w*)"
    r"|(?P<number>\.?[0-9](?:[eE][+-]|[\w.])*)"  # takes the w255 of 8w255 and, as in C, the +1 of 0xe+1
    r'|(?P<string>"(?:\\.|[^"\\])*(?:"|\Z))'
    r"|(?P<char>'(?:\\.|[^'\\\n])*'?)"
    r"|(?P<op>\|\+\|=|\|-\|=|\|\+\||\|-\||&&&|\.\.\.|\.\.|\+:|<<=|>>=|##|\+\+|--|->|<<|>>|[<>=!+*/%&|^-]=|&&|\|\||[^\n])",
    re.DOTALL | re.ASCII,
)
_OPERATORS = frozenset("+-*/%&|^~!<>=.:#")


class Token(NamedTuple):
    """One token. `before`: the white space before it. `painted`: a macro's name that is not replaced any more (C11
    §6.10.3.4). `seam`: it was not written behind the token that now precedes it."""

    kind: str
    text: str
    before: str
    place: Place
    painted: bool = False
    seam: bool = False

    def glues(self, previous: Token) -> bool:
        """Returns whether the texts of `previous` and this, side by side, would be read as other tokens."""
        first, last = self.text[0], previous.text[-1]
        if previous.kind == "number":
            return first.isalnum() or first in "_.+-'"
        if _is_word(last):
            return _is_word(first)
        return last in _OPERATORS and first in _OPERATORS or (last == "." and first.isdigit())


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


class Reader:
    """The lines of a text, joined where a backslash ends them (C11 §5.1.1.2). `file` and `line` are those of the line at
    hand; `#line` changes them."""

    def __init__(self, text: str, file: str) -> None:
        self.file, self.line = file, 1
        parts = _SPLICE.split(text)
        self.text = "".join(parts)
        self._at = 0
        self._splices = [*accumulate(len(part) for part in parts)][:-1][::-1]
        """Where lines were joined, the last one first"""

    def done(self) -> bool:
        return self._at >= len(self.text)

    def place(self) -> Place:
        return self.file, self.line

    def blank(self) -> str:
        """Takes white space and comments. Comments within a line become a space; others stay, as positions hang on them."""
        match = _BLANK.match(self.text, self._at)
        assert match is not None
        if "/" not in match[0]:
            self._at = match.end()
            return match[0]
        for comment in _COMMENT.finditer(match[0]):
            if comment[0].startswith("/*") and (len(comment[0]) < 4 or not comment[0].endswith("*/")):
                self._fail(self._at + comment.start(), 2, "comment is never closed: expected '*/'")
        self._at = match.end()
        self.line += match[0].count("\n")
        return _COMMENT.sub(lambda m: m[0] if "\n" in m[0] else " ", match[0])

    def ahead(self, pattern: re.Pattern[str]) -> str:
        """Takes what matches `pattern` and returns it, "" if nothing does."""
        match = pattern.match(self.text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[0]

    def tokens(self, before: str = "") -> list[Token]:
        """Takes the rest of the line; `before` is the white space before its first token."""
        tokens: list[Token] = []
        while True:
            before += self.blank()
            match = TOKEN.match(self.text, self._at)
            if match is None:
                break
            kind, text = match.lastgroup or "", match[0]
            if kind == "string" and (len(text) == 1 or not text.endswith('"') or _open(text)):
                self._fail(self._at, len(text.split("\n")[0]), "string literal is never closed: expected '\"'")
            tokens.append(Token(kind, text.replace("\n", LINE_END), before, (self.file, self.line), seam=not tokens))
            self._at = match.end()
            self.line += text.count("\n")
            before = ""
        self._end_line()
        return tokens

    def skip(self) -> str:
        """Takes the rest of the line as it stands, and returns it."""
        text = self.ahead(_SKIPPED)
        self.line += text.count("\n")
        self._end_line()
        return text

    def _end_line(self) -> None:
        self._at += 1
        self.line += 1
        while self._splices and self._splices[-1] < self._at:
            self._splices.pop()
            self.line += 1

    def _fail(self, at: int, length: int, message: str) -> None:
        line = self.line + self.text.count("\n", self._at, at)
        raise CompileError(Span(self.file, line, at - self.text.rfind("\n", 0, at), length), message)


def _open(text: str) -> bool:
    """Returns whether the last quote of `text` is escaped."""
    return (len(text) - 1 - len(text[:-1].rstrip("\\"))) % 2 == 1


def is_token(text: str) -> str | None:
    """Returns the kind of the token that `text` is, or None if it is several."""
    match = TOKEN.fullmatch(text)
    return match.lastgroup if match is not None else None
