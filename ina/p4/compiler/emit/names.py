"""Names of the P4 source in the C text, and comments with the source lines that a piece of it comes from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ina.p4.compiler import ir
from ina.p4.compiler.errors import Span

COMMENT_WIDTH = 90  # characters of a source line that a comment repeats

_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm typeof bool "
    "true false linux unix NULL main"
)
_OURS = (
    "state tables pkt data meta now verdict rest start push at bytes sum bits whole key t e i m n o ingress egress init "
    "memcpy memmove memset found octets tna"
)
_RESERVED = frozenset((_KEYWORDS + " " + _OURS).split())
# Names in capitals may be macros of a header.
_RESERVED_FORMS = re.compile(r"ina_|INA_|_|[A-Z][A-Z0-9_]*$|reg_|.*_t$|.*_room$|(move|scratch|r|b|p)\d+$")


class Names:
    """Chooses C identifiers: the program's names, with a number appended where that is in use."""

    def __init__(self) -> None:
        self.names: dict[ir.Storage, str] = {}
        self.uses: dict[str, int] = {}

    def name(self, v: ir.Storage) -> str:
        if v not in self.names:
            self.names[v] = self.unique(v.name)
        return self.names[v]

    def unique(self, name: str) -> str:
        clean = "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
        if clean in _RESERVED or _RESERVED_FORMS.match(clean) or not clean or clean[0].isdigit():
            clean = f"x_{clean}"
        while True:
            count = self.uses[clean] = self.uses.get(clean, 0) + 1
            if count == 1:
                return clean
            if (numbered := f"{clean}_{count}") not in self.uses:
                self.uses[numbered] = 1
                return numbered


def accessors(registers: Iterable[ir.Register]) -> dict[ir.Register, str]:
    """Names the macro of each register: the last part of its name, with those before it where that is ambiguous, and a
    number behind it where the whole name is in use: `x_a` and `x.a` read alike in C."""
    parts = {r: re.sub(r"[^A-Za-z0-9.]", "_", r.name).split(".") for r in registers}
    names: dict[ir.Register, str] = {}
    macros: set[str] = set()
    length = 1
    while parts:
        by_name: dict[str, list[ir.Register]] = {}
        for register, words in parts.items():
            by_name.setdefault("_".join(words[-length:]), []).append(register)
        for name, members in by_name.items():
            if not all(length >= len(parts[m]) for m in members) and (len(members) > 1 or f"reg_{name}" in macros):
                continue
            for member in members:
                macro = f"reg_{name}"
                number = 1
                while macro in macros:
                    number += 1
                    macro = f"reg_{name}_{number}"
                names[member] = macro
                macros.add(macro)
        parts = {r: words for r, words in parts.items() if r not in names}
        length += 1
    return names


def c_comment(text: str) -> str:
    """Returns a C comment of one line with any text: programs choose names, and may come from strangers."""
    line = "".join(c if c.isprintable() else " " for c in text).replace("*/", "* /").replace("/*", "/ *")
    return f"/* {line} */"


class Origins:
    """Comments `/* file:line: text */`; files are named as seen from the program's folder."""

    def __init__(self, program: str, sources: Mapping[str, str]) -> None:
        self.folder = os.path.dirname(program)
        self.lines = {file: text.splitlines() for file, text in sources.items()}
        self.shown: tuple[str, int] | None = None

    def comment(self, origin: Span | None, end: Span | None = None) -> str | None:
        """Returns the comment for a statement; None if it would repeat the previous one."""
        if origin is None or not origin.line or (origin.file, origin.line) == self.shown:
            return None
        self.shown = origin.file, origin.line
        where = f"{self.file(origin.file)}:{origin.line}"
        if end is not None and end.file == origin.file and end.line > origin.line:
            where += f"-{end.line}"
        lines = self.lines.get(origin.file, [])
        text = lines[origin.line - 1].strip() if origin.line <= len(lines) else ""
        if len(text) > COMMENT_WIDTH:
            text = text[: COMMENT_WIDTH - 3] + "..."
        return c_comment(f"{where}: {text}" if text else where)

    def file(self, name: str) -> str:
        relative = os.path.relpath(name, self.folder or ".")
        return Path(name).name if relative.startswith("..") else relative
