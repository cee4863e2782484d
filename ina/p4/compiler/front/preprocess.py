"""The C preprocessor that P4_16 requires (v1.2.5 §4.2): directives and included files, as `cpp -undef -nostdinc -x
assembler-with-cpp` takes them.

It is not cpp itself: the same program must give the same text on a machine without a compiler, and programs that a controller
sends may include only the files given with them. Strings may span lines here, as in P4.

The output is one text with `#line` markers; `lexer.py` maps positions back through them.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ina.base import paths
from ina.p4.compiler.errors import CompileError, Note, Span
from ina.p4.compiler.front.conditions import evaluate
from ina.p4.compiler.front.lexer import literal, string
from ina.p4.compiler.front.macros import END, Expansion, Macros
from ina.p4.compiler.front.pp_tokens import Place, Reader, Token

P4INCLUDE = Path(__file__).parent.parent / "p4include"
MAX_INCLUDE_DEPTH = 64
BYTE_ORDER_MARK = "\ufeff"
_MAX_BLANK_LINES = 6  # in a row; more are a line marker
_HASH = re.compile(r"#(?!#)")
_RULE = re.compile(r"##")
"""A line that begins with `##` is no directive: p4c skips it, as it skips `# text`."""
_WORD = re.compile(r"\w+", re.ASCII)
_LINE = re.compile(r'[ \t]*([0-9]{1,10})\b(?:[ \t]+("(?:\\.|[^"\\\n])*"))?')
_HEADER = re.compile(r'[ \t]*(?:<[^>\n]*>|"[^"\n]*")')
DIRECTIVES = ("define", "undef", "include", "if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "error",
              "line", "pragma")
_UNSUPPORTED = ("import", "include_next", "assert", "unassert")
OTHER_ARCHITECTURES = {
    "psa.p4": "the Portable Switch Architecture", "pna.p4": "the Portable NIC Architecture",
    "xsa.p4": "AMD's (Xilinx's) SmartNICs", "spectrum_model.p4": "NVIDIA's Spectrum",
    "ebpf_model.p4": "eBPF", "ubpf_model.p4": "uBPF", "xdp_model.p4": "XDP",
    "simple_model.p4": "the specification's Very Simple Switch", "very_simple_model.p4": "the specification's Very Simple Switch",
}
TOFINO_P4_14 = {f"tofino/{name}.p4" for name in (
    "constants", "intrinsic_metadata", "lpf_blackbox", "meter_blackbox", "p4_14_prim", "pktgen_headers", "primitives",
    "stateful_alu_blackbox", "wred_blackbox")}


@dataclass(slots=True)
class _Condition:
    """One #if that is open. `outer`: it stands in text that counts. `open`: so does the group at hand. `taken`: one of its
    groups did. `closing`: its #else has been met."""

    place: Place
    outer: bool
    open: bool
    taken: bool
    closing: bool = False


class _Preprocessor:
    """One run. `files`: all files that may be included, by absolute path; None: the disk's. `sources`: the text of every file
    read, by its name in messages. `lookups`: whether each file that was looked for was there, by absolute path."""

    def __init__(self, include_dirs: Sequence[str], files: Mapping[str, str] | None) -> None:
        self.files = files
        self.sources: dict[str, str] = {}
        self.lookups: dict[str, bool] = {}
        self.searched = list(dict.fromkeys(include_dirs))
        now, counter = time.localtime(), itertools.count()
        self.macros = Macros(self._fail, {
            "__LINE__": lambda token: token._replace(kind="number", text=str(token.place[1])),
            "__FILE__": lambda token: token._replace(kind="string", text=literal(token.place[0])),
            "__DATE__": lambda token: token._replace(kind="string", text=time.strftime('"%b %e %Y"', now)),
            "__TIME__": lambda token: token._replace(kind="string", text=time.strftime('"%H:%M:%S"', now)),
            "__COUNTER__": lambda token: token._replace(kind="number", text=str(next(counter))),
            "__has_include": lambda token: token,
        })
        self.place: Place = "", 0
        """Where the directive at hand stands, as `#line` has it"""
        self.file = ""
        """The file that it stands in"""
        self._once: set[str] = set()
        self._depth = 0

    def define(self, name: str, value: str) -> None:
        """Defines a macro of the command line."""
        self.macros.define(Reader(f"{name} {value}", "-D").tokens(), ("-D", 0))

    def run(self, text: str, name: str) -> Iterator[Token]:
        """Returns the tokens of a text with directives obeyed and macros replaced."""
        expansion = Expansion(self.macros, self._lines(text, name, os.path.abspath(name)))
        while (token := expansion.take()) is not None:
            if token.text:
                yield token

    def _lines(self, text: str, name: str, file: str) -> Iterator[Token]:
        """Returns the tokens of a file outside of directives, of the files that it includes, too; END where it ends, and
        before a directive that ends the search for a macro's arguments."""
        text = text.removeprefix(BYTE_ORDER_MARK)
        self.sources[name] = text
        self._depth += 1
        if self._depth > MAX_INCLUDE_DEPTH:
            self._fail(self.place, f"#include nested more than {MAX_INCLUDE_DEPTH} deep")
        reader = Reader(text, name)
        conditions: list[_Condition] = []
        while not reader.done():
            before = reader.blank()
            if reader.ahead(_RULE):
                reader.skip()
            elif reader.ahead(_HASH):
                if self.macros.seeking:
                    yield END
                self.file = file
                yield from self._directive(reader, conditions)
            elif conditions and not conditions[-1].open:
                reader.skip()
            else:
                yield from reader.tokens(before)
        if conditions:
            self._fail(conditions[-1].place, "#if without #endif")
        self._depth -= 1
        yield END

    def _directive(self, reader: Reader, conditions: list[_Condition]) -> Iterator[Token]:
        """Obeys a directive, whose # has been read; returns the tokens of the file that it includes."""
        place = self.place = reader.place()
        spaced = bool(reader.blank())
        name = reader.ahead(_WORD)
        if name.startswith(("if", "el", "end")) and self._condition(name, reader, conditions):
            return
        if conditions and not conditions[-1].open:
            reader.skip()
        elif name == "define":
            self.macros.define(reader.tokens(), place)
        elif name == "undef":
            self.macros.undefine(self.macros.name(reader.tokens(), name, place))
        elif name == "include":
            yield from self._include(*self._header(reader))
        elif name == "error":
            self._fail(place, f"#error {reader.skip().strip()}")
        elif name == "line" or name.isdigit():
            self._line(reader, name if name.isdigit() else "")
        elif name == "pragma":
            self._pragma(reader)
        elif name in _UNSUPPORTED:
            self._fail(place, f"#{name} is not supported")
        else:
            if not spaced and name not in ("warning", "ident") and (
                suggestions := difflib.get_close_matches(name, DIRECTIVES, n=1)
            ):
                self._fail(place, f"unknown preprocessor directive #{name}", [f"did you mean #{suggestions[0]}?"])
            reader.skip()  # p4c skips the line: programs have comments of that kind

    # ---- conditions

    def _condition(self, name: str, reader: Reader, conditions: list[_Condition]) -> bool:
        """Obeys #if and its kin. Returns False if the directive is none of them."""
        place = self.place
        if name in ("if", "ifdef", "ifndef"):
            outer = not conditions or conditions[-1].open
            holds = outer and self._holds(name, reader)
            conditions.append(_Condition(place, outer, holds, holds))
            if not outer:
                reader.skip()
            return True
        if name not in ("elif", "elifdef", "elifndef", "else", "endif"):
            return False
        if not conditions:
            self._fail(place, f"#{name} without #if")
        condition = conditions[-1]
        if name == "endif":
            conditions.pop()
            reader.skip()
            return True
        if condition.closing:
            self._fail(place, f"#{name} behind #else")
        if name == "else":
            condition.closing = True
        if condition.outer and not condition.taken and name != "else":
            condition.open = condition.taken = self._holds(name.removeprefix("el"), reader)
        else:
            condition.open = condition.outer and not condition.taken
            condition.taken = True
            reader.skip()
        return True

    def _holds(self, name: str, reader: Reader) -> bool:
        """Returns what an #if, #ifdef or #ifndef says of its group."""
        tokens = reader.tokens()
        if name != "if":
            return (self.macros.name(tokens, name, self.place) in self.macros) == (name == "ifdef")
        if not tokens:
            self._fail(self.place, "#if needs a condition")
        try:
            return evaluate(self._operands(tokens)) != 0
        except ValueError as error:
            self._fail(self.place, f"#if: {error}")

    def _operands(self, tokens: list[Token]) -> list[Token]:
        """Returns a condition's tokens with macros, `defined` and `__has_include` replaced. A macro's text may have them."""
        expansion = Expansion(self.macros, iter(tokens))
        operands = []
        while (token := expansion.take()) is not None:
            if token.kind == "id" and token.text == "defined":
                token = _truth(self._name(expansion) in self.macros, token)
            elif token.kind == "id" and token.text == "__has_include" and token.text in self.macros.built_in:
                token = _truth(self._has_include(expansion), token)
            operands.append(token)
        return operands

    def _name(self, expansion: Expansion) -> str:
        token = expansion.take(raw=True)
        closed = token is not None and token.text == "("
        if closed:
            token = expansion.take(raw=True)
        if token is None or token.kind != "id":
            raise ValueError("'defined' needs a name")
        if closed and ((end := expansion.take(raw=True)) is None or end.text != ")"):
            raise ValueError(f"'defined ({token.text}' is never closed: expected ')'")
        return token.text

    def _has_include(self, expansion: Expansion) -> bool:
        token = expansion.take()
        if token is None or token.text != "(":
            raise ValueError("__has_include needs (\"file\") or (<file>)")
        path, system = self._file_name(expansion)
        end = expansion.take()
        if end is None or end.text != ")":
            raise ValueError("'__has_include(' is never closed: expected ')'")
        return self._find(path, system) is not None

    def _file_name(self, expansion: Expansion) -> tuple[str, bool]:
        """Takes "file" or <file>; returns its name and whether it stood in <>. Raises ValueError."""
        token = expansion.take()
        if token is not None and token.kind == "string":
            return token.text[1:-1], False
        if token is None or token.text != "<":
            raise ValueError("expected \"file\" or <file>" + (f", not '{token.text}'" if token else ""))
        name = ""
        while (token := expansion.take()) is not None and token.text != ">":
            name += (" " if token.before and name else "") + token.text
        if token is None:
            raise ValueError(f"'<{name}' is never closed: expected '>'")
        return name, True

    # ---- other directives

    def _header(self, reader: Reader) -> tuple[str, bool]:
        """Takes what stands behind #include; returns the file's name and whether it stood in <>."""
        if header := reader.ahead(_HEADER).strip():
            reader.skip()
            return header[1:-1], header[0] == "<"
        tokens = reader.tokens()
        if not tokens:
            self._fail(self.place, "#include needs a file")
        try:
            return self._file_name(Expansion(self.macros, iter(tokens)))
        except ValueError as error:
            self._fail(self.place, f"malformed #include: {error}")

    def _include(self, path: str, system: bool) -> Iterator[Token]:
        if (file := self._find(path, system)) is None:
            self._not_found(path, system)
        if file in self._once:
            return
        if self.files is None and not os.path.isfile(file):
            self._fail(self.place, f"include file '{path}' is a device, a pipe or a socket: expected a file with text")
        try:
            text = self.files[file] if self.files is not None else Path(file).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            self._fail(self.place, f"cannot read include file '{path}': {error.strerror}")
        yield from self._lines(text, display_path(file), file)

    def _find(self, path: str, system: bool) -> str | None:
        """Returns the absolute path of an included file: beside the including file (`"..."` only), then in the folders that are
        searched; None if it is nowhere."""
        for place in self._places(system):
            file = os.path.abspath(os.path.join(place, path))
            self.lookups[file] = (file in self.files) if self.files is not None else paths.is_file(file)
            if self.lookups[file]:
                return file
        return None

    def _places(self, system: bool) -> list[str]:
        return self.searched if system else list(dict.fromkeys([os.path.dirname(self.file), *self.searched]))

    def _not_found(self, path: str, system: bool) -> NoReturn:
        if other := OTHER_ARCHITECTURES.get(Path(path).name):
            message = f"'{path}' is of {other}, which is not supported"
            self._fail(self.place, message, ["this compiler knows <v1model.p4> and <tna.p4>"])
        if path in TOFINO_P4_14:
            notes = ["its programs begin with #include <tna.p4>, and have to be written anew in P4_16"]
            self._fail(self.place, f"'{path}' is of P4_14 for Tofino: the compiler takes P4_16", notes)
        notes = [f"searched {', '.join(display_path(p) for p in self._places(system))}", "add directories with include_dirs (-I)"]
        self._fail(self.place, f"include file '{path}' not found", notes)

    def _line(self, reader: Reader, number: str) -> None:
        """Obeys `#line NUMBER "FILE"` and the `# NUMBER "FILE"` of preprocessed text: the next line is that one. A file's name is
        a string literal."""
        text = number + reader.skip()
        match = _LINE.match(text)
        if match is None:
            tokens = Expansion(self.macros, iter(Reader(text, self.place[0]).tokens())).all()
            match = _LINE.match(" ".join(token.text for token in tokens))
        if match is None:
            self._fail(self.place, "#line needs a number")
        reader.line = int(match[1])
        if match[2] is not None:
            reader.file = string(match[2])

    def _pragma(self, reader: Reader) -> None:
        text = reader.skip().split()
        if not text:
            self._fail(self.place, "#pragma needs what it says")
        if text[0] == "once":
            self._once.add(self.file)
        if text[0].startswith(("push_macro", "pop_macro")):
            self._fail(self.place, f"#pragma {text[0]} is not supported")

    def _fail(self, place: Place, message: str, notes: Sequence[Note | str] = ()) -> NoReturn:
        file, line = place
        lines = self.sources.get(file, "").splitlines()
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        col = len(text) - len(text.lstrip()) + 1
        error = CompileError(Span(file, line, col, max(1, len(text.strip()))), message, notes)
        error.sources = self.sources
        raise error


def _truth(value: bool, token: Token) -> Token:
    return token._replace(kind="number", text=str(int(value)))


def _written(tokens: Iterator[Token]) -> str:
    """Returns the text of tokens, each on the line where it was written, with `#line` markers where lines are left out."""
    out: list[str] = []
    file, line = None, 1
    previous: Token | None = None
    for token in tokens:
        target, text = token.place[1] - token.before.count("\n"), token.before
        missing = target - line
        if token.place[0] != file or not 0 <= missing <= _MAX_BLANK_LINES:
            file, line = token.place[0], target
            out.append(f'{"" if previous is None else chr(10)}#line {line} {literal(file)}\n')
            previous = None
        elif missing:
            out.append("\n" * missing)
            previous = None
        if previous is not None and token.seam and not text and token.glues(previous):
            text = " "
        out += text, token.text
        line = token.place[1]
        previous = token
    return "".join(out) + ("\n" if out else "")


def display_path(path: str) -> str:
    """Returns `path` relative to the working directory if it lies below it, else unchanged."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def macros(options: Iterable[str]) -> dict[str, str]:
    """Parses -D options: NAME, which means 1, or NAME=VALUE, where VALUE may be empty. Raises ValueError."""
    values = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise ValueError(f"-D {option}: expected NAME or NAME=VALUE, with a name of letters, digits and _")
        values[name] = value if equals else "1"
    return values


def preprocess(
    path: str | Path, *, defines: Mapping[str, str] | None = None, include_dirs: Sequence[str | Path] = (),
    lookups: dict[str, bool] | None = None,
) -> tuple[str, dict[str, str]]:
    """Returns the preprocessed text and the text of every file read, by its name in line markers.

    Included files are looked for beside the including file (`"..."` only), then in `include_dirs`, then in the compiler's own
    `p4include`. `lookups` gets whether each file that was looked for was there, by absolute path: the text depends on it. Raises
    CompileError for text that the preprocessor rejects and OSError when `path` cannot be read.
    """
    source = Path(path).read_text(encoding="utf-8", errors="replace")
    folders = [*(str(Path(d).absolute()) for d in include_dirs), str(P4INCLUDE)]
    return preprocess_text(source, str(path), defines, folders, lookups=lookups)


def preprocess_text(
    source: str, name: str, defines: Mapping[str, str] | None = None, include_dirs: Sequence[str] = (),
    files: Mapping[str, str] | None = None, lookups: dict[str, bool] | None = None,
) -> tuple[str, dict[str, str]]:
    """Preprocesses a text called `name`; see `preprocess`. `files`: all files it may include, by absolute path; None: the
    disk's."""
    preprocessor = _Preprocessor(include_dirs, files)
    try:
        for macro, value in (defines or {}).items():
            preprocessor.define(macro, value)
        text = _written(preprocessor.run(source, name))
    except RecursionError:
        file, line = preprocessor.place
        raise CompileError(Span(file or name, line, 1, 1), "arguments of macros, or a condition, are nested too deep") from None
    if lookups is not None:
        lookups |= preprocessor.lookups
    return text, preprocessor.sources
