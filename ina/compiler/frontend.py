"""The front end in one call: preprocess, lex, parse, check, elaborate.

`load()` is what everything else uses. The result is a `CheckedProgram`; see the docstring of `ast.py` for what the checker
leaves on the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ina.compiler import ast
from ina.compiler.program import CheckedProgram, Instance

__all__ = ["CheckedProgram", "Instance", "check", "load", "parse_text"]


def load(path: str | Path, *, defines: dict[str, str] | None = None, include_dirs: Sequence[str | Path] = ()) -> CheckedProgram:
    """Compile the file at `path` up to a checked tree.

    `defines` are preprocessor macros, `include_dirs` are searched after the file's own directory and before the compiler's own
    `p4include`. Raises CompileError with every error found, OSError when `path` cannot be read.
    """
    ...


def parse_text(text: str, filename: str) -> ast.Program:
    """Lex and parse preprocessed text (line markers allowed). Raises CompileError at the first syntax error."""
    ...


def check(program: ast.Program) -> CheckedProgram:
    """Resolve and check a parsed program, annotating its tree in place. Raises CompileError."""
    ...
