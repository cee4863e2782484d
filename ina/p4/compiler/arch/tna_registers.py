"""Checks that a packet accesses each Register at most once in a pass, which is all that a Tofino's stateful ALU can do.

It works on the lowered program, where every path through a phase is explicit: two accesses on one path are an error, in
branches that exclude each other they are not. Conditions are not compared: `if (a) ... if (!a) ...` counts as two paths that
both accesses are on.
"""

from __future__ import annotations

from ina.p4.compiler import ir
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import CompileError, Note, Span
from ina.p4.compiler.operations import Access

Seen = dict[Instance, Span]
"""The register accesses on some path to a place, by register."""


def check_accesses(body: list[ir.Stmt]) -> None:
    """Raises CompileError for two accesses to one Register on one path through `body`; removes the access statements."""
    if not any(isinstance(s, Access) for s in ir.walk(body)):
        return
    waiting: dict[str, Seen] = {}
    _walk(body, {}, waiting)
    _drop(body)


def _walk(body: list[ir.Stmt], seen: Seen | None, waiting: dict[str, Seen]) -> Seen | None:
    """Returns the accesses on paths to the end of `body`; None if no path leads there. Parsers, the only place of jumps
    backward, do not access registers."""
    for stmt in body:
        match stmt:
            case ir.Label():
                jumped = waiting.pop(stmt.label, None)
                if jumped is not None:
                    seen = jumped | (seen or {})
            case ir.Goto():
                if seen is not None:
                    waiting[stmt.label] = waiting.get(stmt.label, {}) | seen
                seen = None
            case Access(register=register, span=span) if seen is not None:
                if register in seen:
                    raise CompileError(
                        span,
                        f"register '{register.name}' is accessed twice in one pass of a packet",
                        [
                            Note("the other access on this way through the program", seen[register]),
                            "a Tofino does one access: move the second to exclusive branches, or recirculate",
                        ],
                    )
                seen = {**seen, register: span}
            case ir.If() | ir.Switch():
                ends = [_walk(block, seen, waiting) for block in ir.blocks(stmt)]
                paths = [path for path in ends if path is not None]
                seen = {k: v for path in paths for k, v in path.items()} if paths else None
    return seen


def _drop(body: list[ir.Stmt]) -> None:
    body[:] = [s for s in body if not isinstance(s, Access)]
    for stmt in body:
        for inner in ir.blocks(stmt):
            _drop(inner)
