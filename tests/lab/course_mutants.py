"""Mutants of a P4 program: the program with one small thing wrong, as students get it wrong. Text in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# Pairs of texts, each written in the place of the other, wherever it stands in code; spaces keep type arguments (bit<8>) out.
OPERATORS = {
    " == ": (" != ",), " != ": (" == ",), " < ": (" <= ", " > "), " <= ": (" < ", " > "), " > ": (" >= ", " < "),
    " >= ": (" > ", " < "), " && ": (" || ",), " || ": (" && ",), " + ": (" - ",), " - ": (" + ",), " & ": (" | ",),
    " | ": (" & ",), " << ": (" >> ",), " ++ ": (),
}  # fmt: skip
NAMES = {
    "CONTRIBUTION": "RESULT", "RESULT": "CONTRIBUTION", "QUESTION": "CONTRIBUTION", "STORE": "ADD", "ADD": "READ", "READ": "ADD",
    "dst": "src", "src": "dst", "ingress_port": "egress_spec", "egress_port": "ingress_port", "true": "false", "false": "true",
    "v0": "v1", "v1": "v2", "v2": "v3", "v3": "v0", "slot": "version", "version": "slot", "worker": "job", "job": "worker",
    "block": "hops", "here": "everywhere", "everywhere": "here",
}  # fmt: skip
DECLARATION = re.compile(r"\s*(bit<|bool\b|register<|counter\b|const\b|typedef\b|[A-Z]\w*\(\) )")
STATEMENT = re.compile(r"\s+[a-z][\w.]*(\(.*\)|\.\w+\(.*\)| = .*|);\s*(//.*)?")


class Mutant(NamedTuple):
    """A program with one thing wrong. `name`: the line, and the change."""

    name: str
    text: str


def mutants(program: str) -> Iterator[Mutant]:
    """Yields all mutants of what follows the headers: constants before them, parsers, controls. Some do not compile."""
    lines = program.splitlines()
    code = list(_code(lines))
    for at in code:
        line = lines[at]
        for changed in dict.fromkeys(_changed(line)):
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


def _changed(line: str) -> Iterator[str]:
    body, slashes, remark = line.partition("//")
    for changed in _changes(body):
        yield (changed + slashes + remark).rstrip()


def _changes(body: str) -> Iterator[str]:
    for operator, others in OPERATORS.items():
        for found in re.finditer(re.escape(operator), body):
            for other in others:
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
