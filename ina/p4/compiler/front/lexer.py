"""Tokens of P4_16 (v1.2.5 §6.4), with positions mapped back through line markers.

A token's kind is "id", "INT", "STRING", "pragma" or "eof", or, for reserved words and punctuation, its own text. Words
that the grammar reserves only in some places (apply, key, actions, entries, state, type, priority, list) are plain "id"s.

`>` is always a token of its own: the parser decides whether `>>` is a shift or closes two type argument lists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from ina.p4.compiler.errors import CompileError, Span

RESERVED = frozenset(
    """abstract action bit bool break const continue control default else enum error exit extern false for header
    header_union if in inout int match_kind out package parser return select string struct switch table this
    transition true tuple typedef value_set varbit void""".split()
)

_DIGITS = r"0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|0[dD][0-9_]+|[0-9][0-9_]*"
_MASTER = re.compile(
    r"(?P<space>[ \t\r\f\v]+)"
    r"|(?P<newline>\n)"
    r"|(?P<id>[A-Za-z_][A-Za-z0-9_]*)"
    rf"|(?P<INT>(?:[0-9]+[ws])?(?:{_DIGITS})(?![A-Za-z0-9_]))"
    r"|(?P<comment>//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)"
    r"|(?P<op>\.\.\.|&&&|\|\+\|=|\|-\|=|<<=|\|\+\||\|-\||&&|\|\||==|!=|<=|>=|\+\+|\+=|-=|\*=|/=|%=|&=|\|=|\^=|<<|\.\.|\+:"
    r"|/(?!\*)|[-+*%&|^~!<>=(){}\[\];:,.?#]|[^\w\s\"@/])"
    r'|(?P<STRING>"(?:\\(?:.|\n)|[^"\\])*")'
    r"|(?P<pragma>@pragma\b(?:\"(?:\\.|[^\"\\])*\"|[^\n\"])*)"
    r"|(?P<at>@)"
)
_MARKER = re.compile(r'[ \t]*#[ \t]*(?:line[ \t]+)?([0-9]+)(?:[ \t]+("(?:\\.|[^"\\\n])*"))?[^\n]*')
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(?:pragma|ident|warning)\b[^\n]*")
_BLANK = re.compile(r"(?:\s|/\*.*?\*/|//.*)*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LINE_END = "\ue000"
"""A line's end within a string, for the preprocessor, which only supports strings of one line"""
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


@dataclass(slots=True)
class Tokens:
    """Tokens as parallel lists; the last token is "eof"."""

    kinds: list[str]
    texts: list[str]
    spans: list[Span]
    joined: set[int]
    """Numbers of the `>` that the next token's `>` or `>=` follows without space; in macros both have the same span."""


def tokenize(text: str, filename: str, sources: dict[str, str] | None = None) -> Tokens:
    """Cuts `text` into tokens. `sources` (file name -> text) gives the columns of lines that the preprocessor changed."""
    kinds: list[str] = []
    texts: list[str] = []
    spans: list[Span] = []
    joined: set[int] = set()
    originals = {name: source.split("\n") for name, source in (sources or {}).items()}
    lines = originals.get(filename, [])
    file, line, pos, end, line_start = filename, 1, 0, len(text), 0
    columns = _Columns(text, 0, lines, 1)
    match = _MASTER.match
    fresh_line = True
    while pos < end:
        if fresh_line:
            fresh_line = False
            if marker := _MARKER.match(text, pos):
                pos = marker.end() + 1
                line = int(marker[1])
                if marker[2]:
                    file = string(marker[2])
                    lines = originals.get(file, [])
                line_start, fresh_line = pos, True
                columns = _Columns(text, pos, lines, line)
                continue
            if directive := _DIRECTIVE.match(text, pos):
                pos = directive.end()
        m = match(text, pos)
        if m is None:
            if pos >= end:
                break
            _bad_token(text, pos, file, line, pos - line_start + 1)
        kind, start, pos = m.lastgroup or "", pos, m.end()
        if kind == "space":
            continue
        if kind == "newline":
            line += 1
            line_start, fresh_line = pos, True
            columns = _Columns(text, pos, lines, line)
            continue
        word = m.group()
        if kind != "comment":
            if kind == "id":
                if word in RESERVED or word == "_":
                    kind = word
            elif kind == "op" or kind == "at":
                kind = word
                if word == ">" and text[pos : pos + 1] == ">":
                    joined.add(len(kinds))
            if columns.exact:
                col, length = start - line_start + 1, len(word)
            else:
                col, length = columns.find(word)
            kinds.append(kind)
            texts.append(word.replace(LINE_END, "\n") if kind == "STRING" else word)
            spans.append(Span(file, line, col, length))
        if kind in ("comment", "STRING", "pragma") and (newlines := word.count("\n")):
            line += newlines
            line_start = start + word.rindex("\n") + 1
            columns = _Columns(text, line_start, lines, line)
            columns.at = pos - line_start
    kinds.append("eof")
    texts.append("end of file")
    spans.append(Span(file, line, max(1, pos - line_start + 1), 1))
    return Tokens(kinds, texts, spans, joined)


class _Columns:
    """Columns of one line.

    The preprocessor squeezes spaces and expands macros; tokens of such lines are looked up in the source's line. A token from a
    macro gets the place of the macro's name.
    """

    __slots__ = ("at", "exact", "line", "macro", "resume")

    def __init__(self, text: str, start: int, lines: list[str], number: int) -> None:
        self.line = lines[number - 1] if 0 < number <= len(lines) else ""
        after = start + len(self.line)
        self.exact = not self.line or (text.startswith(self.line, start) and text[after : after + 1] in ("", "\n"))
        self.at = 0
        self.macro = 1, 1
        self.resume = -1
        """The column behind the macro whose tokens are being read; -1 outside of macros."""

    def find(self, word: str) -> tuple[int, int]:
        """Returns (column, length) of the next token of the line, `word`."""
        for place in (self.at, self.resume):
            if place >= 0:
                start = _skip_blank(self.line, place)
                end = start + len(word)
                if self.line.startswith(word, start) and not (
                    word[-1:].isalnum() and self.line[end : end + 1].isalnum()
                ):
                    self.at, self.resume = end, -1
                    return start + 1, len(word)
        if self.resume < 0:
            start = _skip_blank(self.line, self.at)
            name = _WORD.match(self.line, start)
            end = name.end() if name else start
            self.macro = start + 1, max(1, end - start)
            self.resume = _skip_parentheses(self.line, end) if name else start
        return self.macro


def _skip_blank(line: str, at: int) -> int:
    match = _BLANK.match(line, at)
    assert match is not None
    return match.end()


def _skip_parentheses(line: str, at: int) -> int:
    """Returns the position behind the `(...)` that follows, or `at` if none does."""
    start, depth = _skip_blank(line, at), 0
    for i in range(start, len(line)):
        depth += (line[i] == "(") - (line[i] == ")")
        if not depth:
            return i + 1 if i > start else at
    return len(line) if depth else at


def _bad_token(text: str, pos: int, file: str, line: int, col: int) -> NoReturn:
    rest = text[pos : pos + 40].split("\n")[0]
    if text.startswith("/*", pos):
        raise CompileError(Span(file, line, col, 2), "comment is never closed: expected '*/'")
    if rest.startswith('"'):
        raise CompileError(Span(file, line, col, len(rest)), "string literal is never closed: expected '\"'")
    if rest[0].isdigit() and (literal := re.match(r"\w+", rest)):
        word = literal[0]
        raise CompileError(
            Span(file, line, col, len(word)),
            f"malformed integer literal '{word}'",
            ["write it as 10, 0x0a, 0b1010, 0o12, or with a width as in 8w10 (bit<8>) and 8s10 (int<8>)"],
        )
    raise CompileError(Span(file, line, col, 1), f"unexpected character {rest[0]!r}")


def integer(word: str) -> tuple[int, int | None, bool]:
    """Returns (value, width or None, signed) of an integer literal; the value is not yet cut to the width."""
    width: int | None = None
    signed = False
    if m := re.match(r"([0-9]+)([ws])", word):
        width, signed = int(m[1]), m[2] == "s"
        word = word[m.end() :]
    digits = word.replace("_", "")
    base = {"0x": 16, "0b": 2, "0o": 8, "0d": 10}.get(digits[:2].lower(), 0)
    return (int(digits[2:], base) if base else int(digits, 10)), width, signed


def string(word: str) -> str:
    """Returns the value of a string literal: quotes removed, escapes resolved (§6.4.3.3)."""
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), word[1:-1])


def literal(text: str) -> str:
    """Returns the string literal, of one line, whose value (``string``) is a text."""
    names = {value: letter for letter, value in _ESCAPES.items()}
    return '"' + re.sub(r'[\n\t"\\]', lambda m: "\\" + names[m[0]], text) + '"'
