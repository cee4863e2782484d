"""The front end in one call: preprocess, lex, parse, check, elaborate.

All other code uses `load()`. The result is a `CheckedProgram`; the docstring of `ast.py` lists the checker's
annotations of the tree.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ina.base.garbage import uncollected
from ina.p4.compiler import ast
from ina.p4.compiler.check.check import check_program
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.errors import CompileError, internal_errors
from ina.p4.compiler.front.lexer import tokenize
from ina.p4.compiler.front.parser import parse_program
from ina.p4.compiler.front.preprocess import preprocess

UNREADABLE = "\ufffd"  # stands for bytes that are not UTF-8
_P4_14 = re.compile(r"^\s*(header_type\s+\w+\s*\{|parser\s+start\s*\{|control\s+ingress\s*\{)", re.MULTILINE)
__all__ = ["CheckedProgram", "Instance", "check", "deep_recursion", "load", "parse_text"]


@contextmanager
def deep_recursion(frames_per_level: int = 12) -> Iterator[None]:
    """Makes room on Python's stack for a recursive pass over trees that are `ast.MAX_DEPTH` deep."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 1000 + frames_per_level * ast.MAX_DEPTH))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def load(
    path: str | Path, *, defines: Mapping[str, str] | None = None, include_dirs: Sequence[str | Path] = ()
) -> CheckedProgram:
    """Compiles the file at `path` up to a checked tree.

    `defines` are preprocessor macros, `include_dirs` are searched after the file's own directory and before the compiler's own
    `p4include`. Raises CompileError with all errors, OSError when `path` cannot be read.
    """
    with uncollected():
        text, sources = preprocess(path, defines=defines, include_dirs=include_dirs)
        try:
            program = check(parse_text(text, str(path), sources))
        except CompileError as error:
            error.sources.update(sources)
            raise
    program.sources = sources
    return program


def parse_text(text: str, filename: str, sources: dict[str, str] | None = None) -> ast.Program:
    """Lexes and parses preprocessed text (line markers allowed). Raises CompileError at the first syntax error.

    `sources` is the text of the files that line markers name, for columns and messages.
    """
    try:
        with internal_errors(filename), deep_recursion():
            return parse_program(tokenize(text, filename, sources), filename)
    except CompileError as error:
        if _P4_14.search(text):
            notes = ["translate it once, with p4c: p4test --std p4-14 --pp NEW.p4 OLD.p4"]
            error = CompileError(error.span, "this is a P4_14 program: the compiler takes P4_16", notes)
        elif UNREADABLE in error.message:
            notes = ["save the file as UTF-8 text; comments may have any bytes"]
            error = CompileError(error.span, "bytes that are not UTF-8", notes)
        error.sources.update(sources or {filename: text})
        raise error from None


def check(program: ast.Program) -> CheckedProgram:
    """Resolves and checks a parsed program, annotating its tree in place. Raises CompileError with all errors."""
    with internal_errors(program.filename), deep_recursion():
        return check_program(program)
