"""Source positions and compile errors.

A `Span` names a piece of the user's own text: the lexer has already mapped it back through the preprocessor's line
markers. `CompileError` carries one or more `Diagnostic`s and prints them as a compiler does:

    switch.p4:12:17: error: 'hdr.ipv4' has no field 'dts'
        x = hdr.ipv4.dts;
                     ^~~
    note: did you mean 'dst'?
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn


class Span(NamedTuple):
    """A place in a text: `length` characters of `file` from `line`, `col` (both from 1). Line 0 means "no place in a file"."""

    file: str
    line: int
    col: int
    length: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}" if self.line else self.file


NO_SPAN = Span("<built-in>", 0, 0, 0)
WIDTH = 300  # characters of a source line that an error shows: macros and generators write long ones


@dataclass(slots=True)
class Note:
    """An explanation of a diagnostic; `span` is None when it concerns no particular place."""

    message: str
    span: Span | None = None


@dataclass(slots=True)
class Diagnostic:
    """One error at one place."""

    span: Span
    message: str
    notes: list[Note] = field(default_factory=list)


class CompileError(Exception):
    """An error in the program. `str(error)` is the whole report; `diagnostics` has the parts, in order of discovery."""

    def __init__(self, span: Span, message: str, notes: Iterable[Note | str] = ()) -> None:
        super().__init__(message)
        self.diagnostics = [Diagnostic(span, message, [n if isinstance(n, Note) else Note(n) for n in notes])]
        self.sources: dict[str, str] = {}

    @classmethod
    def collect(cls, diagnostics: list[Diagnostic]) -> CompileError:
        """Returns one error for several diagnostics (at least one)."""
        first = diagnostics[0]
        error = cls(first.span, first.message)
        error.diagnostics = list(diagnostics)
        return error

    @property
    def span(self) -> Span:
        return self.diagnostics[0].span

    @property
    def message(self) -> str:
        return self.diagnostics[0].message

    def __str__(self) -> str:
        return render(self.diagnostics, self.sources)


def fail(span: Span, message: str, notes: Iterable[Note | str] = ()) -> NoReturn:
    raise CompileError(span, message, notes)


class InternalError(CompileError):
    """An error in the compiler, whatever the program is."""


@contextmanager
def internal_errors(filename: str) -> Iterator[None]:
    """Turns an exception that neither the program nor the machine caused into an InternalError, with the piece of the program
    in work and the place in the compiler."""
    try:
        yield
    except (CompileError, OSError, MemoryError):
        raise
    except RecursionError as error:
        raise CompileError(_innermost_span(error, filename), "this is nested too deep", ["name its parts"]) from None
    except Exception as error:
        if isinstance(error, ValueError) and "integer string conversion" in str(error):  # Python's limit
            raise CompileError(_innermost_span(error, filename), "a number of more than 4300 decimal digits") from None
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        raise InternalError(
            _innermost_span(error, filename),
            f"internal error of the compiler: {type(error).__name__}: {error} ({place})",
            ["the compiler is wrong here, whatever the program is: please report it with the program and these lines"],
        ) from error


def _innermost_span(error: Exception, filename: str) -> Span:
    """Returns the span of the innermost piece of the program among the functions' variables."""
    innermost = Span(filename, 0, 0, 0)
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for value in frame.f_locals.values():
            span = getattr(value, "span", None)
            if isinstance(span, Span) and span.line and not isinstance(value, Exception):
                innermost = span
    return innermost


def render(diagnostics: Iterable[Diagnostic], sources: dict[str, str], severity: str = "error") -> str:
    """Returns diagnostics as a compiler prints them, with their source lines.

    `sources` maps file names to texts. No other file is opened: a line marker may name any.
    """
    parts = []
    for diagnostic in diagnostics:
        parts.append(_show(diagnostic.span, f"{severity}: {diagnostic.message}", sources))
        parts += [_show(n.span, f"note: {n.message}", sources) for n in diagnostic.notes]
    return "\n".join(parts)


def _show(span: Span | None, text: str, sources: dict[str, str]) -> str:
    if span is None:
        return text
    line = _source_line(span, sources)
    head = f"{span}: {text}"
    if line is None:
        return head
    before, line = _excerpt(line, span.col - 1)
    # The caret's line keeps the tabs of the source's line, so that it stands under the right column.
    indent = "".join("\t" if c == "\t" else " " for c in line[:before])
    marks = "^" + "~" * (max(1, min(span.length, len(line) - before)) - 1)
    return f"{head}\n    {line}\n    {indent}{marks}"


def _excerpt(line: str, at: int) -> tuple[int, str]:
    """Returns the part of a line that an error shows: all, or of a long one the text around `at`; and the position of `at` in
    it."""
    start = max(0, min(at - WIDTH // 2, len(line) - WIDTH))
    end = start + WIDTH
    before, after = "..." if start else "", "..." if end < len(line) else ""
    return len(before) + at - start, before + line[start:end] + after


def _source_line(span: Span, sources: dict[str, str]) -> str | None:
    if not span.line:
        return None
    lines = sources.get(span.file, "").splitlines()
    return lines[span.line - 1] if span.line <= len(lines) else None
