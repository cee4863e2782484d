"""The process in which the playground checks a program and runs packets: it gives up all privileges before it reads the text.

    python -m ina.dash.playground_process FOLDER LIMITS < request > answer

ina/p4/compiler/sandbox.py starts it. The request is JSON: ``text`` and its ``name``, ``defines``, ``folders`` and ``files`` (all
that it may include); with ``packets`` also ``port`` and ``entries``, lines of STF. The answer is a line of JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from ina.p4.compiler import ast, types
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.errors import CompileError, Diagnostic
from ina.p4.compiler.front.preprocess import preprocess_text
from ina.p4.compiler.frontend import check, parse_text
from ina.p4.compiler.reference.interpreter import InterpreterError
from ina.p4.compiler.reference.tables import TableError
from ina.p4.compiler.sandboxed_process import confine
from ina.p4.runtime.entity_error import EntityError
from ina.p4.tools import explain, parser_graph, trace
from ina.p4.tools.stf_numbers import StfError

LINES = 4000  # of an explanation or a trace
PACKETS = 64
REFUSED = (InterpreterError, TableError, EntityError, StfError, ValueError, KeyError)  # entries or packets that do not fit


def main() -> None:
    os.chdir(sys.argv[1])
    confine(json.loads(sys.argv[2]))
    sys.stdout.write(json.dumps(answer(json.load(sys.stdin))) + "\n")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Returns ``diagnostics``; of a program without errors also ``trace`` (``packets`` were asked for) or ``explanation``,
    ``graph`` (SVG) and ``headers``; or ``refused``: words about the packets or entries."""
    program, name = None, request["name"]
    try:
        text, sources = preprocess_text(request["text"], name, request["defines"], request["folders"], request["files"])
        program = check(parse_text(text, name, sources))
        program.sources = sources
        own = _packets(program, request) if "packets" in request else _explained(program)
        return {"diagnostics": _rows(name, "warning", program.warnings), **own}
    except CompileError as error:
        warnings = _rows(name, "warning", program.warnings) if program else []
        return {"diagnostics": _rows(name, "error", error.diagnostics) + warnings}


def _rows(name: str, severity: str, diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Returns diagnostics; ``line`` and ``column`` are 0 where they do not concern the text called `name` itself."""
    rows = []
    for one in diagnostics:
        own = one.span.file == name
        rows.append({"severity": severity, "line": one.span.line if own else 0, "column": one.span.col if own else 0,
                     "place": str(one.span), "message": one.message, "notes": [note.message for note in one.notes]})
    return rows


def _explained(program: CheckedProgram) -> dict[str, Any]:
    try:
        parser = explain.parser_of(program)
    except ValueError as error:
        return {"refused": str(error)}
    return {"explanation": _bounded(explain.lines(program)), "graph": parser_graph.svg(parser_graph.graphs(parser)),
            "headers": [*_headers(parser.decl.params[1].type, "")] if isinstance(parser.decl, ast.ParserDecl) else []}


def _headers(t: types.Type, path: str) -> Iterable[dict[str, Any]]:
    """Yields the headers of fixed size, each with the names and bits of its fields."""
    t = types.strip_new(t)
    if isinstance(t, types.StackType):
        yield from _headers(t.element, path)
    elif isinstance(t, types.HeaderType):
        fields = [{"name": f.name, "bits": types.fixed_width(f.type)} for f in t.fields.values()]
        if fields and all(field["bits"] for field in fields) and not t.padding():
            yield {"name": path, "fields": fields}
    elif isinstance(t, types.RecordType):
        for f in t.fields.values():
            yield from _headers(f.type, f"{path}.{f.name}".lstrip("."))


def _packets(program: CheckedProgram, request: dict[str, Any]) -> dict[str, Any]:
    try:
        frames = [_frame(line) for line in request["packets"].splitlines() if line.strip()]
        if not 1 <= len(frames) <= PACKETS:
            raise ValueError(f"{len(frames)} packets: expected 1 to {PACKETS}, each a line of hexadecimal digits")
        tracer = trace.Tracer(program, request["entries"], "entries")
        lines = itertools.chain.from_iterable(
            tracer.packet(number, frame, request["port"], 0.0) for number, frame in enumerate(frames, start=1))
        return {"trace": _bounded(lines)}
    except REFUSED as error:
        return {"refused": str(error)}


def _frame(line: str) -> bytes:
    try:
        return bytes.fromhex(line)
    except ValueError:
        raise ValueError(f"packet {line.strip()[:40]!r}: expected hexadecimal digits, two for each byte") from None


def _bounded(lines: Iterable[str]) -> list[str]:
    rest = iter(lines)
    taken = list(itertools.islice(rest, LINES))
    return [*taken, f"... cut after {LINES} lines"] if next(rest, None) is not None else taken


if __name__ == "__main__":
    main()
