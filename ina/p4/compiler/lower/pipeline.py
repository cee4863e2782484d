"""Parts that architectures share when they lower a pipeline: the state of lowering, applying a block, the deparser's end."""

from __future__ import annotations

from typing import Any

from ina.p4.compiler import ast, fold, ir
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.loops import loop_limit
from ina.p4.compiler.lower.parser import CALL
from ina.p4.compiler.lower.v1model_externs import Externs
from ina.p4.compiler.lower.value_trees import Record


class Pipelines(Externs):
    def __init__(self, program: CheckedProgram) -> None:
        self.program = program
        self.storage = value_trees.Storage()
        self.scope: dict[int, Any] = {}
        self.out: list[ir.Stmt] = []
        self.frames: list[Any] = []
        self.loops: list[tuple[str, str]] = []
        self.settled_calls: list[ast.Call] = []
        self.repeating = 0
        self.limit = loop_limit(program)
        self.around: int | None = 1
        self.labels = self.statements = 0
        self.cursors = 0
        self.exit_label = ""
        self.reject_label = ""
        self.error_index = {name: i for i, name in enumerate(program.errors)}
        self.tables: dict[tuple[int, int], ir.Table] = {}
        self.registers: dict[int, list[ir.Register]] = {}
        self.sliced: dict[int, int] = {}  # low bits that the program uses of a call's result, by the call's id
        self.counters: dict[int, ir.Counter] = {}
        self.meters: dict[int, ir.Meter] = {}
        self.colors: dict[int, ir.Var] = {}
        self.direct_colors: dict[int, ir.Var] = {}
        self.algorithms: dict[int, Any] = {}
        self.direct: dict[int, list[Instance]] = {}
        self.entries: dict[int, ir.Expr] = {}
        self.messages: list[tuple[str, str, ir.Counter]] = []
        self.cursor = ir.Var("cursor", 32)
        self.out_length = ir.Var("out_length", 32)
        self.emitted: list[tuple[value_trees.Header, ir.Var]] = []
        self.flags: dict[str, ir.Var] = {}
        self.digests: list[dict[str, Any]] = []
        self.uses_random = False
        self.used: set[str] = set()
        self.created: dict[int, value_trees.Header] = {}
        self.preserved: dict[int, list[Any]] = {}
        self.lists_with_headers: dict[int, int] = {}
        self.payload_at = ir.Var("payload_at", 32)
        self.length = ir.Var("cloned_length", 32)
        self.needs_original = False
        self.in_egress = False

    def control(self, instance: Instance, values: list[Any]) -> None:
        outer, self.exit_label = self.exit_label, self.new_label("exit")
        params = instance.decl.params
        assert len(params) == len(values)
        self.enter_control(instance, values, CALL)
        self.emit(ir.Label(self.exit_label))
        self.exit_label = outer

    def name_fields(self, fields: dict[str, Any], name: str, place: Any) -> None:
        if isinstance(place, value_trees.Header):
            fields[f"{name}.$valid$"] = place.valid
        if isinstance(place, Record | value_trees.Header | value_trees.Union):
            for key, part in place.fields.items():
                self.name_fields(fields, f"{name}.{key}", part)
        elif isinstance(place, value_trees.Stack | value_trees.Sequence):
            for i, part in enumerate(place.items):
                self.name_fields(fields, f"{name}[{i}]", part)
        else:
            fields[name] = place

    def deparse(self, deparser: Instance, values: list[Any]) -> None:
        """Lowers the deparser and notes the headers that it emits."""
        self.emit(ir.Assign(self.out_length, fold.const(0, 32)))
        self.out += self.with_emitted_copies(self.block(lambda: self.control(deparser, values)))

    def write_frame(self) -> None:
        """Emits the statement that gives the frame its new headers."""
        args: list[ir.Expr] = [self.cursor, self.out_length, *(place for _, place in self.emitted)]
        self.emit(ir.Extern("deparse", [], args, [(h, place) for h, place in self.emitted]))

    def max_grow(self) -> int:
        """Returns by how many bytes a frame can grow: headers extracted from it do not make it longer, those that became valid
        otherwise do."""
        seen: set[int] = set()
        total = 0
        for header, _ in self.emitted:
            if id(header) in self.created or id(header) in seen:
                total += value_trees.fixed_bits(header.type)
            varbit = value_trees.varbit(header.type)
            total += varbit.max_width if varbit else 0
            seen.add(id(header))
        return total // 8
