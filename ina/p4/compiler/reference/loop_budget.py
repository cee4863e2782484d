"""Rounds of loops that a pass of a packet may still make (loops.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.loops import endless_states, known_rounds, loop_limit, within
from ina.p4.compiler.reference.signals import PacketFailed


class LoopBudget:
    """Counts the rounds of one pass against the program's limit."""

    def __init__(self, program: CheckedProgram) -> None:
        self.limit = loop_limit(program)
        self._known_rounds: dict[ast.Node, int | None] = {}
        self._endless: dict[ast.ParserDecl, set[ast.ParserState]] = {}
        self.start()

    def start(self) -> None:
        """Begins a pass."""
        self._rounds = 0
        self._around: int | None = 1  # rounds of the loops around, None if those are counted

    @contextmanager
    def round(self, loop: ast.ForC | ast.ForIn) -> Iterator[None]:
        """Surrounds one round of a loop that is not unrolled. Raises PacketFailed beyond the limit."""
        if loop not in self._known_rounds:
            self._known_rounds[loop] = known_rounds(loop, self.limit)
        outer = self._around
        self._around = within(outer, self._known_rounds[loop], self.limit)
        try:
            if self._around is None:
                self._count(loop)
            yield
        finally:
            self._around = outer

    @contextmanager
    def state(self, parser: ast.ParserDecl, state: ast.ParserState) -> Iterator[None]:
        """Surrounds a visit of a parser's state. Raises PacketFailed beyond the limit."""
        if parser not in self._endless:
            self._endless[parser] = endless_states(parser)
        outer = self._around
        try:
            if state in self._endless[parser]:
                self._around = None
                self._count(state)
            yield
        finally:
            self._around = outer

    def _count(self, node: ast.Node) -> None:
        self._rounds += 1
        if self._rounds > self.limit:
            raise PacketFailed("loop_limit", f"{node.span}: more than {self.limit} rounds of loops, see @loop_limit")
