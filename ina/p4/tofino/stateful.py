"""Shapes of RegisterActions against the stateful ALU of Tofino 1.

One cell is 1, 8, 16 or 32 bits, or two of 8, 16 or 32 of one type, or 64 that are only read and set; an action makes at most two
comparisons of sums of the cell, of packet fields and of constants; computes at most two values with one operation each, by
condition; takes in two packet fields and puts out one word. A register has at most four actions, and four constants that do not
fit four bits (facts of p4c's open Tofino back end: specs/device.cpp, mau/stateful_alu.cpp, and of the published tna.p4).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ina.p4.compiler import ast, types
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import Span
from ina.p4.compiler.instances import abstract_method
from ina.p4.tofino.fields import Ref, Scope, parts, width_of

COMPARISONS, INPUTS, VALUES, ACTIONS, CONSTANTS = 2, 2, 2, 4, 4
SMALL = range(-8, 8)  # constants that an instruction holds
WORDS = (8, 16, 32)
RELATIONS = ("==", "!=", "<", "<=", ">", ">=")
COMPUTES = ("+", "-", "|+|", "|-|", "&", "|", "^")
COMPARES = ("+", "-", "&")


@dataclass
class Shape:
    """Demands of one RegisterAction on the ALU; `problems`: those that it cannot meet, with place, text, and whether it is
    sure."""

    action: Instance
    register: Instance
    words: tuple[int, ...]
    comparisons: list[str] = field(default_factory=list)
    inputs: list[Ref] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)  # by word and output, the expressions assigned to it
    constants: set[int] = field(default_factory=set)
    problems: list[tuple[Span, str, bool]] = field(default_factory=list)


def words_of(register: Instance) -> tuple[int, ...]:
    """Returns the widths of the words of a cell, from the register's first type argument."""
    bindings = register.type.args
    plain = types.strip_new(bindings[0]) if bindings else None
    if isinstance(plain, types.RecordType):
        return tuple(width_of(f.type) for f in plain.fields.values())
    return (width_of(plain),) if plain is not None else ()


def cells_of(register: Instance) -> int:
    size = register.args.get("size", register.args.get("instance_count", 0))
    return size if isinstance(size, int) else 0


def bits_of(register: Instance) -> int:
    """Returns the bits of a cell in memory: words are rounded up to a power of two."""
    return sum(1 << max(0, w - 1).bit_length() for w in words_of(register))


def shape(action: Instance, register: Instance, scope: Scope) -> Shape:
    """Analyses a RegisterAction; `scope`: that of its control."""
    result = Shape(action, register, words_of(register))
    site = (action.site or register.origin).span
    problem = register_problem(register)
    if problem:
        result.problems.append((register.site.span if register.site else site, problem, True))
    _Body(result, abstract_method(action, "apply"), scope).look()
    _limits(result, site)
    return result


def register_problem(register: Instance) -> str:
    """Returns why the cells of a register are not possible; "": they are."""
    bindings = register.type.args
    plain = types.strip_new(bindings[0]) if bindings else ast.UNCHECKED
    fields = [f.type for f in plain.fields.values()] if isinstance(plain, types.RecordType) else [plain]
    words = words_of(register)
    widths = " + ".join(f"{w} bits" for w in words)
    if len(words) > 2:
        return f"a cell of {len(words)} words ({widths}): the stateful ALU has two"
    if len(words) == 2:
        if words[0] != words[1] or words[0] not in WORDS:
            return f"a cell of {widths}: a pair has two words of 8, 16 or 32 bits"
        if signed(fields[0]) != signed(fields[1]):
            return f"a cell of {fields[0]} and {fields[1]}: both words of a pair are int or both are bit"
    if len(words) == 1 and words[0] not in (*WORDS, *((1, 64) if not isinstance(plain, types.RecordType) else ())):
        return f"a cell of {widths}: it has 1, 8, 16 or 32 bits, or is a pair"
    return ""


def signed(t: types.Type) -> bool:
    plain = types.underlying(types.strip_new(t))
    return isinstance(plain, types.BitType) and plain.signed


def _limits(s: Shape, site: Span) -> None:
    name = s.action.name.rpartition(".")[2]
    for noun, items, most, verb in (
        ("comparisons", s.comparisons, COMPARISONS, "makes {}"),
        ("fields of the packet", [r[0] for r in s.inputs], INPUTS, "takes in {}"),
    ):
        if len(items) > most:
            s.problems.append(
                (site, f"{name}: {len(items)} {noun} ({', '.join(items)}): the stateful ALU {verb.format(most)}", True)
            )
    wide = [r for r in s.inputs if r[2] - r[1] >= 32]
    for path, low, high in wide:
        s.problems.append((site, f"{name}: {path} has {high - low + 1} bits: an input of the stateful ALU has 32", True))
    for target, values in s.values.items():
        if len(values) > VALUES:
            s.problems.append(
                (site, f"{name}: {target} is given one of {len(values)} values: the stateful ALU computes {VALUES}", True)
            )
    if s.words == (1,) and s.comparisons:
        s.problems.append((site, f"{name}: a condition on a cell of one bit: those are only set, cleared and read", True))


class _Body:
    def __init__(self, s: Shape, body: ast.FunctionDecl, scope: Scope):
        self.shape, self.body = s, body
        self.scope = scope.inner()
        self.words = [p for p in body.params if p.direction == "inout"]
        self.outs = [p for p in body.params if p.direction == "out"]
        for param in body.params:
            self.scope.paths[param] = param.name
        self.own = {p.name for p in body.params}

    def look(self) -> None:
        if len(self.outs) > 1:
            self._add(self.body.span, f"{len(self.outs)} outputs: the stateful ALU of Tofino 1 has one")
        self._statement(self.body.body)

    def _add(self, span: Span, text: str, sure: bool = True) -> None:
        self.shape.problems.append((span, f"{self.shape.action.name.rpartition('.')[2]}: {text}", sure))

    def _statement(self, s: ast.Node) -> None:
        if isinstance(s, ast.Block):
            for inner in s.statements:
                self._statement(inner)
        elif isinstance(s, ast.If):
            self._condition(s.condition)
            self._statement(s.then)
            if s.otherwise is not None:
                self._statement(s.otherwise)
        elif isinstance(s, ast.Assign):
            self._assign(s.target, s.value, s.op)
        elif isinstance(s, ast.VarDecl):
            if s.init is not None:
                self._assign(s, s.init, "=")
        elif isinstance(s, (ast.Switch, ast.ForC, ast.ForIn)):
            self._add(s.span, "a switch or loop: the stateful ALU has conditions and assignments only")

    def _assign(self, target: ast.Expr | ast.VarDecl, value: ast.Expr, op: str) -> None:
        name = target.name if isinstance(target, ast.VarDecl) else source(target)
        self._inputs(value)
        text = source(value) if op == "=" else f"{name} {op} {source(value)}"
        operators = list(_operators(value)) + ([op] if op != "=" else [])
        if isinstance(value, ast.Ternary):
            self._condition(value.condition)
            for way in (value.then, value.otherwise):
                self._assign(target, way, op)
            return
        if any(o in RELATIONS for o in operators):
            self._condition(value)
        else:
            if len(operators) > 1:
                self._add(value.span, f"{text} is {len(operators)} operations: a value is computed by one")
            for operator in operators:
                if operator not in COMPUTES and operator not in ("~", "neg"):
                    self._add(value.span, f"{text}: the stateful ALU has no '{operator}'; it has {' '.join(COMPUTES)}")
        self._value(target, value, name, text)
        self.shape.constants |= {c for c in _constants(value) if c not in SMALL}
        if text != name and not isinstance(target, ast.VarDecl):
            values = self.shape.values.setdefault(name, [])
            if text not in values:
                values.append(text)

    def _value(self, target: ast.Expr | ast.VarDecl, value: ast.Expr, name: str, text: str) -> None:
        """Checks a value that is assigned to a word or output."""
        if self.shape.words == (1,) and name == self.words[0].name and value.const is None:
            self._add(value.span, f"{text}: a cell of one bit is set to a constant")
        if (len(self.shape.words) == 2 and name in {p.name for p in self.outs} and isinstance(value, ast.Binary)
                and value.op in COMPUTES and value.const is None):
            stored = {v for target, values in self.shape.values.items() if target != name for v in values}
            if text not in stored:
                self._add(value.span, f"{text}: of a pair, what is computed goes into a word, and from there out")
        if self.shape.words == (64,) and (isinstance(value, ast.Binary) or name == self.words[0].name and value.const is None):
            self._add(value.span, f"{text}: the stateful ALU computes with 32 bits")

    def _side(self, side: ast.Expr, text: str) -> None:
        """Checks one side of a comparison."""
        if isinstance(side, ast.Slice) and self.words and source(side.base).partition(".")[0] == self.words[0].name:
            self._add(side.span, f"{text}: a condition is of whole words, not of a slice")
        if isinstance(side, ast.Binary):
            if isinstance(side.left, ast.Binary) or isinstance(side.right, ast.Binary):
                self._add(side.span, f"{text}: a side of a comparison has one operation")
            if side.op == "&" and side.left.const is None and side.right.const is None:
                self._add(side.span, f"{text}: the mask of a comparison is a constant")

    def _compares(self, e: ast.Binary, text: str) -> None:
        """Checks a comparison by size: unsigned ones need constants that the ALU has, signed sums 0, since the ALU subtracts one
        side from the other and wraps."""
        sides = (e.left, e.right)
        if signed(e.left.type):
            if any(isinstance(s, ast.Binary) and s.op in ("+", "-") for s in sides) and all(s.const != 0 for s in sides):
                self._add(e.span, f"{text}: the stateful ALU takes one side from the other modulo 2^{width_of(e.left.type)} and "
                          "compares with 0: where that overflows, not what P4 says", False)
        elif any(isinstance(c.const, int) and c.const >= 1 << 31 for c in (e.left, e.right)):
            self._add(e.span, f"{text}: a constant that an unsigned word is compared with is less than 2^31")

    def _condition(self, e: ast.Expr) -> None:
        if isinstance(e, ast.Binary) and e.op in ("&&", "||"):
            self._condition(e.left)
            self._condition(e.right)
        elif isinstance(e, ast.Unary) and e.op == "!":
            self._condition(e.operand)
        elif isinstance(e, ast.Binary) and e.op in RELATIONS:
            text = source(e)
            if text not in self.shape.comparisons:
                self.shape.comparisons.append(text)
            self._inputs(e)
            if e.op not in ("==", "!="):
                self._compares(e, text)
            for side in (e.left, e.right):
                self._side(side, text)
            for operator in (*_operators(e.left), *_operators(e.right)):
                if operator not in COMPARES and operator not in ("neg", "~"):
                    self._add(e.span, f"{text}: a comparison is of sums; there is no '{operator}' in it")
            self.shape.constants |= {c for c in _constants(e) if c not in SMALL}
        elif e.const is None:
            self._inputs(e)

    def _inputs(self, e: ast.Expr) -> None:
        for ref in self.scope.reads(e):
            local = ref[0].startswith(f"{self.scope.instance.name}.") and "." not in ref[0].removeprefix(
                f"{self.scope.instance.name}."
            )
            if ref[0].partition(".")[0] not in self.own and not local and ref not in self.shape.inputs:
                self.shape.inputs.append(ref)


def source(e: ast.Expr) -> str:
    """Returns the source text of `e`, without the widths that the checker gives literals."""
    return re.sub(r"\b\d+w(?=\d)", "", ast.source_text(e))


def _operators(e: ast.Expr) -> Iterator[str]:
    if e.const is not None:
        return
    if isinstance(e, ast.Binary):
        yield e.op
        bitwise = e.op in ("&", "|", "^")
        for part in (e.left, e.right):
            # The ALU inverts an operand of its bitwise operations for free.
            yield from _operators(part.operand if bitwise and isinstance(part, ast.Unary) and part.op == "~" else part)
        return
    if isinstance(e, ast.Unary) and e.op != "+":
        yield "neg" if e.op == "-" else e.op
    elif isinstance(e, ast.Call):
        return
    for part in parts(e):
        yield from _operators(part)


def _constants(e: ast.Expr) -> Iterator[int]:
    if isinstance(e.const, int) and not isinstance(e.const, bool):
        width = width_of(e.type)
        yield e.const - (1 << width) if width and e.const >> (width - 1) == 1 else e.const
        return
    for part in parts(e):
        yield from _constants(part)
