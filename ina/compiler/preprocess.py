"""The C preprocessor that P4_16 asks for (v1.2.5 §4.2), done by pcpp.

The output is one text with `#line` markers; `lexer.py` maps positions back through them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pcpp

from ina.compiler.errors import CompileError, Note, Span

P4INCLUDE = Path(__file__).parent / "p4include"
MAX_INCLUDE_DEPTH = 64


class _Preprocessor(pcpp.Preprocessor):
    """pcpp with located errors, paths relative to the working directory and a record of the files read."""

    def __init__(self, include_dirs: Sequence[str]) -> None:
        super().__init__()
        self.sources: dict[str, str] = {}
        self.diagnostics: list[CompileError] = []
        self.searched = list(include_dirs)
        self._depth = 0
        for directory in include_dirs:
            self.add_path(directory)

    def parsegen(self, input: str, source: str | None = None, abssource: str | None = None) -> Iterator[Any]:
        # pcpp names included files as the #include line wrote them; messages need a path that can be opened.
        if self._depth and abssource:
            source = display_path(abssource)
        if source:
            self.sources[source] = input
        self._depth += 1
        if self._depth > MAX_INCLUDE_DEPTH:
            self._fail(
                self.lastdirective.source,
                self.lastdirective.lineno,
                f"#include nested more than {MAX_INCLUDE_DEPTH} deep",
            )
        yield from super().parsegen(input, source, abssource)
        self._depth -= 1

    def on_include_not_found(self, is_malformed: bool, is_system: bool, curdir: str, path: str) -> NoReturn:
        where = self.lastdirective
        if is_malformed:
            self._fail(where.source, where.lineno, f"malformed #include: {path}")
        places = self.searched if is_system else [curdir or ".", *self.searched]
        notes = [f"searched {', '.join(display_path(p) for p in places)}", "add directories with include_dirs (-I)"]
        self._fail(where.source, where.lineno, f"include file '{path}' not found", notes)

    def on_error(self, file: str, line: int, msg: str) -> None:
        self._fail(file, line, msg)

    def on_directive_handle(self, directive: Any, toks: Any, ifpassthru: bool, precedingtoks: Any) -> bool | None:
        if directive.value == "define":
            for tok in toks:  # comments in a macro must not come out where it is used
                if tok.type in self.t_COMMENT:
                    tok.type, tok.value = self.t_SPACE, " "
        return super().on_directive_handle(directive, toks, ifpassthru, precedingtoks)

    def on_comment(self, tok: Any) -> bool:
        # Kept where it spans lines: what stands behind it would otherwise move to its first line.
        return "\n" in tok.value.rstrip("\n")

    def on_directive_unknown(self, directive: Any, toks: Any, ifpassthru: bool, precedingtoks: Any) -> bool | None:
        text = "".join(tok.value for tok in toks).strip()
        if directive.value == "error":
            self._fail(directive.source, directive.lineno, f"#error {text}")
        if directive.value in ("warning", "pragma", "line", "ident"):
            return True
        self._fail(directive.source, directive.lineno, f"unknown preprocessor directive #{directive.value}")

    def _fail(self, file: str, line: int, message: str, notes: Sequence[Note | str] = ()) -> NoReturn:
        lines = self.sources.get(file, "").splitlines()
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        col = len(text) - len(text.lstrip()) + 1
        error = CompileError(Span(file, line, col, max(1, len(text.strip()))), message, notes)
        error.sources = self.sources
        raise error


def display_path(path: str) -> str:
    """`path` relative to the working directory where it lies below it, else as it is."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def preprocess(
    path: str | Path, *, defines: Mapping[str, str] | None = None, include_dirs: Sequence[str | Path] = ()
) -> tuple[str, dict[str, str]]:
    """Returns the preprocessed text and the text of every file read, by the name its line markers use.

    Included files are looked for beside the including file (`"..."` only), then in `include_dirs`, then in the
    compiler's own `p4include`. Raises CompileError for what the preprocessor rejects and OSError when `path` cannot be
    read.
    """
    source = Path(path).read_text(encoding="utf-8", errors="replace")
    preprocessor = _Preprocessor([*(str(Path(d).absolute()) for d in include_dirs), str(P4INCLUDE)])
    for name, value in (defines or {}).items():
        preprocessor.define(f"{name} {value}")
    out = io.StringIO()
    preprocessor.parse(source, str(path))
    preprocessor.write(out)
    return out.getvalue(), preprocessor.sources
