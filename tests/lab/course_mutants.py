"""Mutants of a P4 program: the program with one small thing wrong, as students get it wrong. Text in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# Pairs of texts, each written in the place of the other, wherever it stands in code; spaces keep type arguments (bit<8>) out.
OPERATORS = {
    " == ": (" != ", " >= ", " <= "), " != ": (" == ", " > ", " < "), " < ": (" <= ", " > "), " <= ": (" < ", " > "),
    " > ": (" >= ", " < "), " >= ": (" > ", " < "), " && ": (" || ",), " || ": (" && ",), " + ": (" - ", " |+| "),
    " - ": (" + ", " |-| "), " & ": (" | ",),
    " | ": (" & ",), " << ": (" >> ",), " ++ ": (),
}  # fmt: skip
AS_BEFORE = (" == ", " <= "), (" != ", " > ")  # if what follows is 0, as no bit<N> is less
NAMES = {
    "CONTRIBUTION": "RESULT", "RESULT": "CONTRIBUTION", "QUESTION": "CONTRIBUTION", "STORE": "ADD", "ADD": "READ", "READ": "ADD",
    "dst": "src", "src": "dst", "ingress_port": "egress_spec", "egress_port": "ingress_port", "true": "false", "false": "true",
    "v0": "v1", "v1": "v2", "v2": "v3", "v3": "v0", "slot": "version", "version": "slot", "worker": "job", "job": "worker",
    "block": "hops", "here": "everywhere", "everywhere": "here",
}  # fmt: skip
# Operands of what can be narrowed to its lowest bits: names and numbers, fields and parts of them.
OPERAND = r"[\w.]+(?:\[\d+:\d+\])?"
COMPARISON = re.compile(rf"(?<![&|] )(?<![\w.])({OPERAND}) (==|!=|<|<=|>|>=) ({OPERAND})(?![\w.(])")
SUM = re.compile(rf"(?<![\w.])({OPERAND}) [-+] ({OPERAND})(?![\w.(])")
SHIFT = re.compile(rf"(?<= << )({OPERAND})(?![\w.(])")
KEY = re.compile(r"(?<=^                )([\w.]+)(?=: exact)|(?<=^            )([\w.]+)(?=: exact)")
INDEX = re.compile(r"(?<=\.read\()\w+, (\w+)(?=\);)|(?<=\.write\()(\w+)(?=, )")
KEPT = 3, 4, 6, 7, 8, 12, 15, 24  # lowest bits of a value
KEPT_OF_INDEX = 1, 2, 4
STANDARD = {"standard.ingress_port": 5, "standard.egress_spec": 5, "standard.egress_port": 5}  # the packet tests have 32 ports
DECLARATION = re.compile(r"\s*(bit<|bool\b|register<|counter\b|const\b|typedef\b|[A-Z]\w*\(\) )")
STATEMENT = re.compile(r"\s+[a-z][\w.]*(\(.*\)|\.\w+\(.*\)| = .*|);\s*(//.*)?")


class Mutant(NamedTuple):
    """A program with one thing wrong. `name`: the line, and the change."""

    name: str
    text: str


def mutants(program: str, included: str = "") -> Iterator[Mutant]:
    """Yields all mutants of what follows the headers: constants before them, parsers, controls. Some do not compile.
    ``included``: the text that the program includes, for the widths of its fields."""
    lines = program.splitlines()
    code = list(_code(lines))
    widths = _widths(included + program)
    for at in code:
        line = lines[at]
        for changed in dict.fromkeys(_changed(line, widths)):
            if changed != line:
                text = "\n".join([*lines[:at], changed, *lines[at + 1 :]]) + "\n"
                yield Mutant(f"{at + 1}: {line.strip()} -> {changed.strip() or 'nothing'}", text)


def _code(lines: list[str]) -> Iterator[int]:
    """Yields the numbers of lines with code that may be wrong: no comments, no fields of headers, no list of parts."""
    comment = fields = False
    for at, line in enumerate(lines):
        if line.lstrip().startswith("/*"):
            comment = True
        if re.match(r"(header|struct|error)\b", line):
            fields = True
        if not (comment or fields or line.lstrip().startswith(("//", "#", "V1Switch", "parser ", "control ", "size "))):
            yield at
        if "*/" in line:
            comment = False
        if line.rstrip().endswith("}"):
            fields = False


def _widths(text: str) -> dict[str, int]:
    """Returns the bits of fields, variables and parameters by their names in code."""
    widths = dict(STANDARD)
    for header, fields in re.findall(r"header (\w+)_t \{(.*?)\}", text, re.S):
        widths |= {f"hdr.{header}.{name}": int(bits) for bits, name in re.findall(r"bit<(\d+)>\s+(\w+);", fields)}
    text = re.sub(r"header \w+ \{.*?\}", "", text, flags=re.S)
    return widths | {name: int(bits) for bits, name in re.findall(r"bit<(\d+)> ([a-z]\w*)", text)}


def _narrowed(body: str, widths: dict[str, int]) -> Iterator[str]:
    """Yields a line with a comparison, a sum, a shift, a key or an index taken by its lowest bits alone."""
    for pattern in (COMPARISON, SUM, SHIFT, KEY, INDEX):
        for found in pattern.finditer(body):
            names = [group for group in found.groups() if group in widths]
            width = max((widths[name] for name in names), default=0)
            for bits in (kept for kept in (KEPT_OF_INDEX if pattern is INDEX else KEPT) if kept < width):
                mask, text = (1 << bits) - 1, found[0]
                if pattern is SUM:
                    text = f"(({text}) & {mask:#x})"
                elif pattern is KEY:
                    text += f" & {width}w{mask:#x}: exact @name(\"{text}\"); //"
                else:
                    for name in names:
                        text = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", f"({name} & {mask:#x})", text, count=1)
                yield body[: found.start()] + text + body[found.end() :]


def _changed(line: str, widths: dict[str, int]) -> Iterator[str]:
    body, slashes, remark = line.partition("//")
    for changed in (*_changes(body), *_narrowed(body, widths)):
        yield (changed + slashes + remark).rstrip()


def _changes(body: str) -> Iterator[str]:
    for operator, others in OPERATORS.items():
        for found in re.finditer(re.escape(operator), body):
            for other in others:
                if (operator, other) in AS_BEFORE and re.match(r"0\b(?!x|w)", body[found.end() :]):
                    continue
                yield body[: found.start()] + other + body[found.end() :]
    for found in re.finditer(r"!(?=[\w(])", body):
        yield body[: found.start()] + body[found.end() :]
    # Numbers that are values: no widths, no sizes of what is declared.
    if not re.match(r"\s*(register|counter)\b", body):
        for found in re.finditer(r"(?<![\w<.])(0x[0-9A-Fa-f]+|\d+)(?![\w>])", body):
            value = int(found[0], 0)
            yield body[: found.start()] + str(value + 1) + body[found.end() :]
            if value:
                yield body[: found.start()] + str(value - 1) + body[found.end() :]
    if not DECLARATION.match(body) or " = " in body:
        for name, other in NAMES.items():
            for found in re.finditer(rf"(?<!const bit<8> )(?<!\w)(?<!state ){name}\b(?! =\s*[0-9])", body):
                yield body[: found.start()] + other + body[found.end() :]
    if found := re.search(r"if \((.*)\) \{", body):
        for condition in ("true", "false", f"!({found[1]})"):
            yield f"{body[: found.start()]}if ({condition}) {{{body[found.end() :]}"
    if STATEMENT.fullmatch(body.rstrip()) and not DECLARATION.match(body):
        yield ""
