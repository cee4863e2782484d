"""Lowering of deparsers.

A deparser only notes where each header goes: the statement at its end writes them, because the frame's new start is known only
then (the unparsed payload stays where it is).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ina.p4.compiler import ast, fold, ir, operations
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import CALL, unsupported
from ina.p4.compiler.lower.inline import Argument, Inliner
from ina.p4.compiler.lower.value_trees import Header, Record, Stack, Union, Value


def header_name(header: Header) -> str:
    return header.valid.name.removesuffix("_valid") if isinstance(header.valid, ir.Var) else "header"


class Deparsers:
    """`emitted`: the headers that the deparser emits, and for each a variable: 1 + its place in the new frame, 0 if it is not
    there."""

    def __init__(self, inliner: Inliner) -> None:
        self.context, self.code, self.values, self.inliner = inliner.context, inliner.code, inliner.values, inliner
        self.emitted: list[tuple[Header, ir.Var]] = []

    def packet_out(self, e: ast.Call) -> None:
        self._emit_value(self.values.read(self.inliner.expressions.value(e.given(0))), e)

    def _emit_value(self, value: Value, e: ast.Call) -> None:
        match value:
            case Header():
                if not isinstance(value.valid, ir.Var) and not isinstance(value.valid, ir.Const):
                    raise unsupported(e, "emitting a header selected at run time")
                if self.context.repeating:
                    raise unsupported(e, "emit within a loop", "write one emit for each round")
                width = value_trees.fixed_bits(value.type)
                if width % 8:
                    raise CompileError(e.span, f"header {value.type} has {width} bits, which is no whole number of bytes")
                length: ir.Expr = fold.const(width // 8, 32)
                for field in value.fields.values():
                    if isinstance(field, value_trees.Varbit):
                        octets = ir.Op("shr", (self.values.scalar(field.size), fold.const(3, 32)), 32)
                        length = fold.add(octets, length)
                place = self.code.temp(32, name=f"out_{header_name(value)}")
                body: list[ir.Stmt] = [
                    ir.Assign(place, fold.add(self.context.out_length, fold.const(1, 32))),  # 0: not emitted
                    ir.Assign(self.context.out_length, fold.add(self.context.out_length, length)),
                ]
                self.code.emit(
                    ir.Assign(place, fold.const(0, 32)),
                    ir.If(value.valid, body),
                    operations.Emitted(len(self.emitted)),
                )
                self.emitted.append((value, place))
            case Stack() | value_trees.Sequence():
                for item in value.items:
                    self._emit_value(item, e)
            case Union() | Record():
                for part in value_trees.members(value):
                    self._emit_value(part, e)
            case _:
                raise unsupported(e, f"emitting a value of type {e.given(0).type}")

    def _with_emitted_copies(self, body: list[ir.Stmt]) -> list[ir.Stmt]:
        """Returns a deparser's statements without their "emitted" notes. Headers are written at the end, so one that a
        statement behind its emit changes is copied there."""
        later: set[object] = set()
        copied: set[int] = set()
        for stmt in reversed(list(ir.walk(body))):
            if isinstance(stmt, operations.Emitted):
                value = self.emitted[stmt.number][0]
                if later & (self.values.keys(value) | self._regions(value)):
                    copied.add(stmt.number)
                continue
            later |= {key for target in ir.writes(stmt) for key in self.values.keys(target) | self._regions(target)}
            if isinstance(stmt, ir.Operation):
                later |= set(stmt.regions())

        def cleared(block: list[ir.Stmt]) -> list[ir.Stmt]:
            statements: list[ir.Stmt] = []
            for stmt in block:
                if isinstance(stmt, operations.Emitted):
                    copy = partial(self._copy_emitted, stmt.number)
                    statements += self.code.block(copy) if stmt.number in copied else []
                    continue
                for inner in ir.blocks(stmt):
                    inner[:] = cleared(inner)
                statements.append(stmt)
            return statements

        return cleared(body)

    def _regions(self, value: Value) -> set[object]:
        """Returns the headers in wire order that the leaves of a value lie in."""
        return {leaf.array.region for leaf in value_trees.leaves(value) if isinstance(leaf, ir.Elem) and leaf.array.region}

    def _copy_emitted(self, n: int) -> None:
        header, place = self.emitted[n]
        copy = value_trees.header(self.context.storage.place(header.type, f"emitted_{header_name(header)}"))
        self.values.assign(copy, header, CALL)
        self.emitted[n] = (copy, place)

    def deparse(self, deparser: Instance, values: Sequence[Argument]) -> None:
        """Lowers the deparser and notes the headers that it emits."""
        self.code.emit(ir.Assign(self.context.out_length, fold.const(0, 32)))
        self.code.out += self._with_emitted_copies(self.code.block(lambda: self.inliner.control(deparser, values)))

    def write_frame(self) -> None:
        """Emits the statement that gives the frame its new headers."""
        args: list[ir.Expr] = [self.context.cursor, self.context.out_length, *(place for _, place in self.emitted)]
        self.code.emit(operations.Deparse([header for header, _ in self.emitted], args=args))

    def max_grow(self) -> int:
        """Returns by how many bytes a frame can grow: headers extracted from it do not make it longer, those that became valid
        otherwise do."""
        seen: set[Header] = set()
        total = 0
        for header, _ in self.emitted:
            if header in self.context.created or header in seen:
                total += value_trees.fixed_bits(header.type)
            varbit = value_trees.varbit(header.type)
            total += varbit.max_width if varbit else 0
            seen.add(header)
        return total // 8
