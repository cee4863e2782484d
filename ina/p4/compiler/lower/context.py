"""The state that all parts of lowering share: the program, the statements so far, what names mean, and where a packet is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ina.p4.compiler import ast, fold, ir, operations, types
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.errors import NO_SPAN, CompileError, Span
from ina.p4.compiler.loops import loop_limit
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.value_trees import Header, Value

MAX_STATEMENTS = 100_000  # five times the largest program of this project
CALL = ast.EmptyStatement(NO_SPAN)  # the place of what no statement of the program asks for
S = TypeVar("S")
Bound = Value | Instance | str
"""Meaning of a name: a value or place, an object, or text (a packet, a name)."""


@dataclass(slots=True)
class TableResult:
    hit: ir.Var
    action: ir.Var


Lowered = Value | TableResult | None
"""The result of a call: None for void"""


@dataclass(slots=True)
class Frame:
    """One inlined callable. `label`: the target of `return`; `copy_out`: the copies of `out` parameters, made on every
    way out."""

    label: str
    result: Value | None = None
    label_used: bool = False
    copy_out: list[Callable[[], None]] = field(default_factory=list)


def unsupported(node: ast.Node, feature: str, *notes: str) -> CompileError:
    return CompileError(node.span, f"{feature} is not supported by this back end", notes)


def shape_of(t: types.Type, node: ast.Node) -> tuple[int, bool]:
    """Returns (width, signed) of a type that must be one scalar."""
    shape = value_trees.scalar_shape(t)
    if shape is None:
        raise unsupported(node, f"a value of type {t} here")
    return shape


def hint(e: ir.Expr) -> str:
    """Returns a name for a temporary that keeps `e`."""
    match e:
        case ir.Elem():
            return e.array.fields[e.index] if e.array.fields else e.array.name
        case ir.Var():
            return e.name
        case ir.Op(op="cast"):
            return hint(e.args[0])
    return "t"


class Code:
    """The statements that lowering has emitted. `here`: the source of the statement being lowered."""

    def __init__(self) -> None:
        self.out: list[ir.Stmt] = []
        self.here: Span | None = None
        self._statements = self._labels = 0

    def emit(self, *stmts: ir.Stmt) -> None:
        for stmt in stmts:
            stmt.origin = self.here
        self._statements += len(stmts)
        if self._statements > MAX_STATEMENTS:
            raise CompileError(
                self.here or NO_SPAN,
                f"the program has more than {MAX_STATEMENTS:,} statements once its calls are replaced by what they call",
                ["a table that is applied, or a control or action that is called, in many places is there as many times"],
            )
        self.out += stmts

    def temp(self, width: int, signed: bool = False, name: str = "t") -> ir.Var:
        return ir.Var(name, width, signed)

    def stable(self, e: ir.Expr) -> ir.Expr:
        """Returns `e` in a form that later assignments do not change."""
        if isinstance(e, ir.Const):
            return e
        t = self.temp(e.width, e.signed, hint(e))
        self.emit(ir.Assign(t, e))
        return t

    def block(self, lower: Callable[[], object]) -> list[ir.Stmt]:
        """Returns the statements that `lower()` emits."""
        saved, self.out = self.out, []
        try:
            lower()
            return self.out
        finally:
            self.out = saved

    def taken(self) -> list[ir.Stmt]:
        """Returns the statements so far; the next one is the first of a new list."""
        body, self.out = self.out, []
        return body

    def label(self, name: str) -> str:
        self._labels += 1
        return f"{name}_{self._labels}"


class Context:
    """One program (TNA: one pipeline) while it is lowered.

    `scope`: what declarations stand for. `around`: rounds of the loops around the current statement, None: they are counted at
    run time. `repeating`: loops of the C text around it. `cursor`: the parser's place in the frame. `created`: headers that can
    become valid without being extracted. `copies`: keys of parameters that are copied out when a call ends. `sliced`: low bits
    that the program uses of a call's result. `this`: the object whose abstract method is being lowered. `validity`: flags of
    fields that equal nothing while they are invalid (TNA's deparsers). `results`: those of each application of a table. `call`
    lowers any call (lower/calls.py sets it).
    """

    call: Callable[[ast.Call], Lowered]

    def __init__(self, program: CheckedProgram, instance: Instance) -> None:
        self.program, self.instance = program, instance
        self.code = Code()
        self.storage = value_trees.Storage()
        self.scope: dict[ast.Node, Bound] = {}
        self.frames: list[Frame] = []
        self.loops: list[tuple[str, str]] = []  # labels for break and continue
        self.limit = loop_limit(program)
        self.around: int | None = 1
        self.repeating = 0
        self.error_index = {name: i for i, name in enumerate(program.errors)}
        self.exit_label = self.reject_label = ""
        self.cursor, self.out_length = ir.Var("cursor", 32), ir.Var("out_length", 32)
        self.parser_error: Value = ir.Var("parser_error", 32)
        self.created: set[Header] = set()
        self.copies: set[object] = set()
        self.sliced: dict[ast.Expr, int] = {}
        self.this: Instance | None = None
        self.validity: dict[Value, ir.Var] = {}
        self.results: list[TableResult] = []
        self.in_egress = False
        self.flags: dict[str, ir.Var] = {}
        self.uses_random = False
        self._states: dict[type, object] = {}

    def state(self, kind: type[S]) -> S:
        """Returns what externs of one kind remember of this program, made at its first use."""
        state = self._states.setdefault(kind, kind())
        assert isinstance(state, kind)
        return state

    def flag(self, name: str, width: int = 32) -> ir.Var:
        """Returns a variable that tells the runtime what the program requests, zero at first; ingress and egress have their
        own."""
        key = f"{'egress' if self.in_egress else 'ingress'}_{name}"
        if key not in self.flags:
            self.flags[key] = ir.Var(key, width)
        return self.flags[key]

    def flag_or_zero(self, name: str) -> ir.Expr:
        """Returns the variable of a request, or zero if the program makes none."""
        return self.flags.get(f"{'egress' if self.in_egress else 'ingress'}_{name}", fold.const(0, 32))

    def check_parser(self, condition: ir.Expr, error: str, node: ast.Node) -> None:
        """Ends parsing with `error` unless `condition` holds."""
        if self.reject_label == "":
            raise unsupported(node, "this operation outside of a parser")
        if isinstance(condition, ir.Const) and condition.value:
            return
        self.code.emit(ir.If(fold.lnot(condition), self.rejected(error), likely=False))

    def rejected(self, error: str) -> list[ir.Stmt]:
        """Returns the statements that end parsing with `error`."""
        number = fold.const(self.error_index[error], 32)
        return [ir.Assign(value_trees.variable(self.parser_error), number), ir.Goto(self.reject_label)]

    def count_round(self) -> None:
        """Counts a round of this pass; beyond the limit the packet ends."""
        rounds = self.flag("rounds")
        self.code.emit(ir.Assign(rounds, fold.add(rounds, fold.const(1, 32))))
        ends: list[ir.Stmt] = [operations.Fail("INA_ENDLESS")]
        self.code.emit(ir.If(ir.Op("gt", (rounds, fold.const(self.limit, 32)), 1), ends, likely=False))
