"""The C preprocessor that P4_16 requires (v1.2.5 §4.2), implemented with pcpp.

The output is one text with `#line` markers; `lexer.py` maps positions back through them.
"""

from __future__ import annotations

import copy
import difflib
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pcpp
from pcpp.evaluator import Value
from pcpp.ply.ply.lex import LexToken

from ina.p4.compiler.errors import CompileError, Note, Span
from ina.p4.compiler.front.lexer import LINE_END

P4INCLUDE = Path(__file__).parent.parent / "p4include"
MAX_INCLUDE_DEPTH = 64
MAX_EXPANDED = 2_000_000  # tokens: four times the largest program of this project
_STRING_OR_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"', re.DOTALL)
_SPLICED = re.compile(r"(?<=\w)\\\n(?=\w)")
_RULE = re.compile(r"^[ \t]*##.*$", re.MULTILINE)
"""A line that begins with `##` is no directive: p4c skips it, as it skips `# text`."""
DIRECTIVES = ("define", "undef", "include", "if", "ifdef", "ifndef", "elif", "else", "endif", "error", "line", "pragma")
OTHER_ARCHITECTURES = {
    "psa.p4": "the Portable Switch Architecture", "pna.p4": "the Portable NIC Architecture",
    "xsa.p4": "AMD's (Xilinx's) SmartNICs", "spectrum_model.p4": "NVIDIA's Spectrum",
    "ebpf_model.p4": "eBPF", "ubpf_model.p4": "uBPF", "xdp_model.p4": "XDP",
    "simple_model.p4": "the specification's Very Simple Switch", "very_simple_model.p4": "the specification's Very Simple Switch",
}
TOFINO_P4_14 = {f"tofino/{name}.p4" for name in (
    "constants", "intrinsic_metadata", "lpf_blackbox", "meter_blackbox", "p4_14_prim", "pktgen_headers", "primitives",
    "stateful_alu_blackbox", "wred_blackbox")}
NEED_MORE = {"define": "a name", "undef": "a name", "ifdef": "a name", "ifndef": "a name", "if": "a condition",
             "elif": "a condition", "include": "a file", "pragma": "what it says"}
_NOTHING: frozenset[str] = frozenset()
MAX_SHIFT = 1 << 16  # bits, as in the program's own expressions (check/const.py)
_shift = Value.__lshift__


def _bounded_shift(value: Value, amount: Any) -> Value:
    """Returns pcpp's `value << amount`. Raises ValueError: the number could exhaust the machine, before pcpp drops all but
    its low 64 bits."""
    bits = Value(amount)
    if bits.exception is None and not 0 <= int(bits) <= MAX_SHIFT:
        raise ValueError(f"shift by {int(bits)}: expected 0 to {MAX_SHIFT} bits")
    return _shift(value, amount)


Value.__lshift__ = _bounded_shift  # pcpp's parser knows no other class of values


def _splice(text: str) -> str:
    """Joins names that a backslash splits over two lines (C11 5.1.1.2); the removed line ends move behind the next one."""
    first, *parts = _SPLICED.split(text)
    lost = 0
    out = [first]
    for part in parts:
        lost += 1
        end = re.search(r"(?<!\\)\n", part)
        if end is not None:
            part, lost = part[: end.end()] + "\n" * lost + part[end.end() :], 0
        out.append(part)
    return "".join(out)


def _join_string(m: re.Match[str]) -> str:
    """Puts a string that spans lines, which C does not allow, on one line, followed by its line ends."""
    text = m[0]
    if text[0] != '"' or "\n" not in text:
        return text
    return text.replace("\\\n", "").replace("\n", LINE_END) + "\n" * text.count("\n")


def _copy_token(token: Any) -> Any:
    copied = object.__new__(type(token))
    copied.__dict__.update(token.__dict__)
    return copied


# Half of pcpp's time is copy.copy() of its tokens, which without this goes through the slow __reduce_ex__.
LexToken.__copy__ = _copy_token


class _Preprocessor(pcpp.Preprocessor):
    """pcpp with located errors, paths relative to the working directory and a record of the files read."""

    def __init__(self, include_dirs: Sequence[str], files: Mapping[str, str] | None) -> None:
        super().__init__()
        self.files = files
        self.sources: dict[str, str] = {}
        self.diagnostics: list[CompileError] = []
        self.searched = list(dict.fromkeys(include_dirs))
        self._depth = 0
        self._expanded = 0  # tokens of the macros replaced so far
        self.directive: Any = None
        for directory in include_dirs:
            self.add_path(directory)

    def parsegen(self, input: str, source: str | None = None, abssource: str | None = None) -> Iterator[Any]:
        # pcpp names included files as the #include line wrote them; messages need a path that can be opened.
        if self._depth and abssource:
            source = display_path(abssource)
        if source:
            self.sources[source] = input
            name = source
            self.rewrite_paths = [("^.+$", lambda _: name)]  # how pcpp spells the file in line markers
        input = _RULE.sub("", _STRING_OR_COMMENT.sub(_join_string, _splice(input)))
        self._depth += 1
        if self._depth > MAX_INCLUDE_DEPTH:
            self._fail(
                self.lastdirective.source,
                self.lastdirective.lineno,
                f"#include nested more than {MAX_INCLUDE_DEPTH} deep",
            )
        yield from super().parsegen(input, source, abssource)
        self._depth -= 1

    def expand_macros(self, tokens: list[Any], expanding_from: Sequence[str] = ()) -> list[Any]:
        """Replaces the macros in `tokens`, in place, and returns it.

        pcpp walks every expansion again at each level of nesting, which takes seconds where macros write a program. Here each
        token is examined once; names that must not be expanded again carry a hide set (C11 6.10.3.4; D. Prosser's algorithm).
        """
        out: list[Any] = []
        work = tokens[::-1]
        while work:
            tok = work.pop()
            macro = self.macros.get(tok.value) if tok.type == self.t_ID else None
            hidden = getattr(tok, "hidden", _NOTHING)
            if macro is None or tok.value in hidden:
                if tok.type == self.t_ID and tok.value == "__LINE__":
                    tok.type, tok.value = self.t_INTEGER, self.t_INTEGER_TYPE(tok.lineno)
                out.append(tok)
                continue
            if macro.arglist is None:
                body = [copy.copy(t) for t in macro.value]
            else:
                args = self._arguments(macro, tok, work)
                if args is None:  # the name alone is no call
                    out.append(tok)
                    continue
                body = self.macro_expand_args(macro, args)
                if work and work[-1].type == self.t_ID:
                    body.append(copy.copy(work[-1]))
                    body[-1].type, body[-1].value = self.t_SPACE, " "
            hidden = hidden | {tok.value}
            for i, t in enumerate(body):
                if t.type == self.t_ID and t.value in self.macros:
                    body[i] = t = copy.copy(t)  # an argument may stand in several places
                    t.hidden = getattr(t, "hidden", _NOTHING) | hidden
                t.source, t.lineno = tok.source, tok.lineno
            body.reverse()
            self._expanded += len(body)
            if self._expanded > MAX_EXPANDED:
                self._fail(tok.source, tok.lineno, f"macros make more than {MAX_EXPANDED:,} tokens of this program")
            work += body
        tokens[:] = out
        return tokens

    def _arguments(self, macro: Any, name: Any, work: list[Any]) -> list[list[Any]] | None:
        """Takes `( arguments )` off the end of `work` (which is in reverse order); None if no call is there."""
        end = len(work)
        while end and (work[end - 1].type in self.t_WS or work[end - 1].type in self.t_COMMENT):
            end -= 1
        if not end or work[end - 1].value != "(":
            return None
        start, depth = end, 0
        while start:
            start -= 1
            depth += (work[start].value == "(") - (work[start].value == ")")
            if not depth:
                break
        else:
            self._fail(name.source, name.lineno, f"arguments of macro '{name.value}' are never closed: expected ')'")
        call = work[start:end][::-1]
        del work[start:]
        args: list[list[Any]]
        count, args, positions = self.collect_args(call, True)
        arity = len(macro.arglist)
        if macro.variadic and len(args) >= arity:
            args[arity - 1 :] = [call[positions[arity - 1] : count - 1]]
        elif (macro.variadic and len(args) == arity - 1) or (arity == 1 and not args):
            args.append([])
        elif arity == 0 and args == [[]]:
            args = []
        if len(args) != arity:
            self._fail(name.source, name.lineno, f"macro '{name.value}' takes {arity} arguments, not {len(args)}")
        return args

    def on_file_open(self, is_system_include: bool, includepath: str) -> Any:
        if self.files is None:
            return super().on_file_open(is_system_include, includepath)
        if includepath not in self.files:
            raise FileNotFoundError(includepath)
        return io.StringIO(self.files[includepath])

    def on_include_not_found(self, is_malformed: bool, is_system: bool, curdir: str, path: str) -> NoReturn:
        where = self.lastdirective
        if is_malformed:
            self._fail(where.source, where.lineno, f"malformed #include: {path}")
        if other := OTHER_ARCHITECTURES.get(Path(path).name):
            message = f"'{path}' is of {other}, which is not supported"
            self._fail(where.source, where.lineno, message, ["this compiler knows <v1model.p4> and <tna.p4>"])
        if path in TOFINO_P4_14:
            notes = ["its programs begin with #include <tna.p4>, and have to be written anew in P4_16"]
            self._fail(where.source, where.lineno, f"'{path}' is of P4_14 for Tofino: the compiler takes P4_16", notes)
        places = self.searched if is_system else list(dict.fromkeys([curdir or ".", *self.searched]))
        notes = [f"searched {', '.join(display_path(p) for p in places)}", "add directories with include_dirs (-I)"]
        self._fail(where.source, where.lineno, f"include file '{path}' not found", notes)

    def on_error(self, file: str, line: int, msg: str) -> None:
        self._fail(file, line, msg)

    def on_directive_handle(self, directive: Any, toks: Any, ifpassthru: bool, precedingtoks: Any) -> bool | None:
        self.directive = directive
        if not toks and directive.value in NEED_MORE:
            self._fail(directive.source, directive.lineno, f"#{directive.value} needs {NEED_MORE[directive.value]}")
        if directive.value == "define":
            for tok in toks:  # comments in a macro must not come out where it is used
                if tok.type in self.t_COMMENT:
                    tok.type, tok.value = self.t_SPACE, " "
        handled: bool | None = super().on_directive_handle(directive, toks, ifpassthru, precedingtoks)
        return handled

    def on_comment(self, tok: Any) -> bool:
        # Kept if it spans lines: text behind it would otherwise move to its first line.
        return "\n" in tok.value.rstrip("\n")

    def on_directive_unknown(self, directive: Any, toks: Any, ifpassthru: bool, precedingtoks: Any) -> bool | None:
        text = "".join(tok.value for tok in toks).strip()
        if directive.value == "error":
            self._fail(directive.source, directive.lineno, f"#error {text}")
        if directive.value == "line" or directive.value.isdigit():
            return None  # passed on: the lexer follows it
        if directive.value in ("warning", "pragma", "ident"):
            return True
        suggestions = difflib.get_close_matches(directive.value, DIRECTIVES, n=1)
        if suggestions and not any(tok.type in self.t_WS for tok in precedingtoks[1:]):
            notes = [f"did you mean #{suggestions[0]}?"]
            self._fail(directive.source, directive.lineno, f"unknown preprocessor directive #{directive.value}", notes)
        return True  # p4c skips the line: programs have comments of that kind

    def _fail(self, file: str, line: int, message: str, notes: Sequence[Note | str] = ()) -> NoReturn:
        lines = self.sources.get(file, "").splitlines()
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        col = len(text) - len(text.lstrip()) + 1
        error = CompileError(Span(file, line, col, max(1, len(text.strip()))), message, notes)
        error.sources = self.sources
        raise error


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
    path: str | Path, *, defines: Mapping[str, str] | None = None, include_dirs: Sequence[str | Path] = ()
) -> tuple[str, dict[str, str]]:
    """Returns the preprocessed text and the text of every file read, by its name in line markers.

    Included files are looked for beside the including file (`"..."` only), then in `include_dirs`, then in the compiler's own
    `p4include`. Raises CompileError for text that the preprocessor rejects and OSError when `path` cannot be read.
    """
    source = Path(path).read_text(encoding="utf-8", errors="replace")
    return preprocess_text(source, str(path), defines, [*(str(Path(d).absolute()) for d in include_dirs), str(P4INCLUDE)])


def preprocess_text(
    source: str, name: str, defines: Mapping[str, str] | None = None, include_dirs: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
) -> tuple[str, dict[str, str]]:
    """Preprocesses a text called `name`; see `preprocess`. `files`: all files it may include, by absolute path; None: the
    disk's."""
    preprocessor = _Preprocessor(include_dirs, files)
    for macro, value in (defines or {}).items():
        preprocessor.define(f"{macro} {value}")
    out = io.StringIO()
    try:
        preprocessor.parse(source, name)
        preprocessor.write(out)
    except RecursionError:
        raise CompileError(Span(name, 0, 0, 0), "arguments of macros are nested too deep") from None
    except (IndexError, ValueError, TypeError, AttributeError) as error:  # raised by pcpp for unexpected input
        where = preprocessor.directive
        if where is None:
            raise
        preprocessor._fail(where.source, where.lineno, f"malformed #{where.value} ({type(error).__name__}: {error})")
    return out.getvalue(), preprocessor.sources
