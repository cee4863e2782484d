"""Re-rolling: runs of statements that differ only in which element they touch become loops.

Programs write one statement per payload value, through macros, actions or sub-controls. After inlining these are runs
of one *shape* (structure, operators, constants, widths; no names). If the k-th iteration's references to array
elements and registers lie k steps from the first one's, executing the run is executing a loop over them: same
statements, same order, so no other check is needed. Variables that are the same in all iterations stay; those that
differ are one variable of the loop if each of them lives within its iteration.
"""

from __future__ import annotations

import itertools
from collections import Counter as Tally
from collections.abc import Iterator
from dataclasses import dataclass, field

from ina.p4.compiler import ir
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.operations import Deparse
from ina.p4.compiler.optimise.bounds import copied
from ina.p4.compiler.optimise.propagate import reads

MIN_COUNT = 4
MAX_PERIOD = 512
MAX_CANDIDATES = 8
MAX_PERIODS_TRIED = 64


Item = ir.Var | ir.Elem | ir.Register


@dataclass(slots=True)
class Reference:
    """A place in a shape where iterations may differ. `path`: the nested block that it stands in."""

    item: Item
    path: tuple[object, ...]
    write: bool


@dataclass(slots=True)
class Shape:
    """The shape of a statement: `key` is equal for equal shapes; None: cannot be in a loop."""

    key: object
    references: list[Reference] = field(default_factory=list)


def roll(module: ir.Module) -> list[list[ir.Var]]:
    """Rewrites both phases in place. Returns lists of variables that, as elements of one array, would allow more loops."""
    uses = _uses(module)
    array_candidates: list[list[ir.Var]] = []
    for phase in (module.ingress, module.egress):
        _block(phase.body, uses, array_candidates)
    return array_candidates


def _uses(module: ir.Module) -> Tally[ir.Expr]:
    """Counts how often each variable appears in the whole module; uses outside of statements count too, so that it is kept."""
    written = (leaf for stmt in module.statements() for e in ir.writes(stmt) for leaf in ir.leaves(e))
    return Tally(itertools.chain(reads(module), written))


# --- shapes ---------------------------------------------------------------------------------------------------------


def _shape(stmt: ir.Stmt, path: tuple[object, ...], out: list[Reference]) -> object:
    match stmt:
        case ir.Assign():
            value = _expr_shape(stmt.value, path, out)
            return value and ("=", value, _target_shape(stmt.target, path, out))
        case ir.RegRead():
            index = _expr_shape(stmt.index, path, out)
            out.append(Reference(stmt.register, path, False))
            return index and ("read", index, _register_shape(stmt.register), _target_shape(stmt.target, path, out))
        case ir.RegWrite():
            index, value = _expr_shape(stmt.index, path, out), _expr_shape(stmt.value, path, out)
            out.append(Reference(stmt.register, path, True))
            return index and value and ("write", index, value, _register_shape(stmt.register))
        case ir.If():
            parts: list[object] = [_expr_shape(stmt.condition, path, out)]
            for number, block in enumerate((stmt.then, stmt.otherwise)):
                parts.append(len(block) + 1)
                parts += [_shape(inner, (*path, stmt, number), out) for inner in block]
            return ("if", *parts) if all(parts) else None
        case ir.Switch():
            parts = [_expr_shape(stmt.subject, path, out)]
            for number, block in enumerate(ir.blocks(stmt)):
                parts += [("case", stmt.cases[number][0] if number < len(stmt.cases) else "default", len(block))]
                parts += [_shape(inner, (*path, stmt, number), out) for inner in block]
            return ("switch", *parts) if all(parts) else None
    return None


def _register_shape(r: ir.Register) -> tuple[int, ...]:
    return r.width, r.bytes, r.size, r.stride, r.group


def _target_shape(e: ir.Var | ir.Elem, path: tuple[object, ...], out: list[Reference]) -> tuple[object, ...]:
    out.append(Reference(e, path, True))
    return ("e", e.array) if isinstance(e, ir.Elem) else ("v", e.width, e.signed)


def _expr_shape(e: ir.Expr, path: tuple[object, ...], out: list[Reference]) -> object:
    match e:
        case ir.Const():
            return ("c", e.value, e.width, e.signed)
        case ir.Var():
            out.append(Reference(e, path, False))
            return ("v", e.width, e.signed)
        case ir.Elem():
            out.append(Reference(e, path, False))
            return ("e", e.array)
        case ir.Op():
            args = tuple(_expr_shape(a, path, out) for a in e.args)
            return (e.op, e.width, e.signed, args) if all(args) else None
        case ir.Native():
            return ("n", e.text, e.width)
    return None


# --- finding runs ---------------------------------------------------------------------------------------------------


def _block(body: list[ir.Stmt], uses: Tally[ir.Expr], array_candidates: list[list[ir.Var]]) -> None:
    if len(body) >= MIN_COUNT:
        finder = _Finder(body, uses)
        body[:] = finder.run()
        array_candidates += finder.array_candidates
    for stmt in body:
        if not isinstance(stmt, ir.Roll):
            for inner in ir.blocks(stmt):
                _block(inner, uses, array_candidates)


class _Finder:
    def __init__(self, body: list[ir.Stmt], uses: Tally[ir.Expr]) -> None:
        self.body, self.uses = body, uses
        self.array_candidates: list[list[ir.Var]] = []
        self.scanned = 0  # statements before this one have been searched for array candidates
        self.shapes: list[Shape] = []
        self.ids: list[int] = []
        numbers: dict[object, int] = {}
        for i, stmt in enumerate(body):
            references: list[Reference] = []
            key = _shape(stmt, (), references)
            self.shapes.append(Shape(key, references))
            self.ids.append(numbers.setdefault(key, len(numbers)) if key is not None else -1 - i)
        self.next_same = [0] * len(body)
        last: dict[int, int] = {}
        for i in reversed(range(len(body))):
            self.next_same[i] = last.get(self.ids[i], 0)
            last[self.ids[i]] = i
        self.matches: dict[int, list[int]] = {}

    def run(self) -> list[ir.Stmt]:
        out: list[ir.Stmt] = []
        i = 0
        while i < len(self.body):
            rolled = self._at(i)
            if rolled is None:
                out.append(self.body[i])
                i += 1
            else:
                statement, used = rolled
                out.append(_unswitched(statement))
                i += used
        return out

    def _match_length(self, period: int, at: int) -> int:
        """Returns how many statements from `at` on have the shape of the one `period` later."""
        lengths = self.matches.get(period)
        if lengths is None:
            if len(self.matches) >= MAX_PERIODS_TRIED:
                return 0
            ids, n = self.ids, len(self.ids)
            lengths = self.matches[period] = [0] * (n + 1)
            for i in reversed(range(n - period)):
                if ids[i] == ids[i + period]:
                    lengths[i] = lengths[i + 1] + 1
        return lengths[at]

    def _at(self, i: int) -> tuple[ir.Roll, int] | None:
        j = i
        for _ in range(MAX_CANDIDATES):
            j = self.next_same[j]
            period = j - i
            if not j or period > MAX_PERIOD:
                return None
            count = self._match_length(period, i) // period + 1
            if count >= MIN_COUNT:
                rolled = self._verify(i, period, count)
                if rolled:
                    return rolled, rolled.count * period
        return None

    def _references(self, start: int, period: int) -> list[Reference]:
        return [r for shape in self.shapes[start : start + period] for r in shape.references]

    def _verify(self, start: int, period: int, count: int) -> ir.Roll | None:
        first = self._references(start, period)
        second = self._references(start + period, period)
        steps = [_step(a.item, b.item) for a, b in zip(first, second, strict=True)]
        private = [isinstance(a.item, ir.Var) and a.item is not b.item for a, b in zip(first, second, strict=True)]
        if not any(steps):
            return None
        good = 1
        for m in range(1, count):
            if not self._consistent(first, self._references(start + m * period, period), steps, private, m):
                break
            good += 1
        if good < MIN_COUNT or not (any(private) is False or self._own(first, private)):
            self._note_array_candidates(start, period, count, steps, private)
            return None
        statements = self.body[start : start + period]
        if not _hoistable(statements):
            return None
        body = _stepped(statements, iter(steps))
        rolled = ir.Roll(good, body, _independent(first, steps, good), self.body[start + good * period - 1].origin)
        rolled.origin = statements[0].origin
        return rolled

    def _consistent(
        self, first: list[Reference], other: list[Reference], steps: list[int], private: list[bool], m: int
    ) -> bool:
        renamed: dict[object, object] = {}
        for a, b, step, own in zip(first, other, steps, private, strict=True):
            if isinstance(a.item, ir.Var):
                if not own:
                    if a.item is not b.item:
                        return False
                elif a.item is b.item or renamed.setdefault(a.item, b.item) != b.item:
                    return False
            elif _distance(a.item, b.item) != step * m:
                return False
        if len(set(renamed.values())) != len(renamed):
            return False
        return not renamed or self._own(other, private)

    def _note_array_candidates(self, start: int, period: int, count: int, steps: list[int], private: list[bool]) -> None:
        """Notes the variables at each place where iterations have their own, if nothing else prevents a loop."""
        if start < self.scanned:
            return
        first = self._references(start, period)
        columns: list[list[Item]] = [[r.item] for r in first]
        for m in range(1, count):
            other = self._references(start + m * period, period)
            for a, b, step, own in zip(first, other, steps, private, strict=True):
                if isinstance(a.item, ir.Var):
                    if not own and a.item is not b.item:
                        return
                elif _distance(a.item, b.item) != step * m:
                    return
            for items, reference in zip(columns, other, strict=True):
                items.append(reference.item)
        self.array_candidates += [
            [v for v in items if isinstance(v, ir.Var)] for items, own in zip(columns, private, strict=True) if own
        ]
        self.scanned = start + count * period

    def _own(self, references: list[Reference], private: list[bool]) -> bool:
        """Returns True if the private variables of one iteration are written first and used nowhere else."""
        seen: dict[ir.Var, tuple[int, tuple[object, ...]]] = {}
        for r, own in zip(references, private, strict=True):
            if not own or not isinstance(r.item, ir.Var):
                continue
            count, path = seen.get(r.item, (0, r.path))
            if count == 0 and not r.write or r.path[: len(path)] != path:
                return False
            seen[r.item] = (count + 1, path)
        return all(self.uses[v] == count for v, (count, _) in seen.items())


def _distance(a: Item, b: Item) -> int:
    if isinstance(a, ir.Elem) and isinstance(b, ir.Elem):
        return b.index - a.index
    assert isinstance(a, ir.Register) and isinstance(b, ir.Register)  # their statements have one shape
    return b.offset - a.offset


def _step(a: Item, b: Item) -> int:
    return 0 if isinstance(a, ir.Var) else _distance(a, b)


# --- making the loop ------------------------------------------------------------------------------------------------


def _hoistable(statements: list[ir.Stmt]) -> bool:
    """Returns True if no register index changes in the loop: indices are computed before it."""
    written: set[object] = set()
    fixed: set[object] = set()
    for stmt in ir.walk(statements):
        for target in ir.writes(stmt):
            written.add(target.array if isinstance(target, ir.Elem) else target)
        if isinstance(stmt, ir.RegRead | ir.RegWrite):
            for leaf in ir.leaves(stmt.index):
                fixed.add(leaf.array if isinstance(leaf, ir.Elem) else leaf)
    return not written & fixed


def _independent(references: list[Reference], steps: list[int], count: int) -> bool:
    """Returns True if no iteration writes memory that another one touches."""
    spans: dict[object, list[tuple[int, int, int, int, bool]]] = {}
    owner: object
    for r, step in zip(references, steps, strict=True):
        if isinstance(r.item, ir.Elem):
            place, size, owner = r.item.index, 1, r.item.array
        elif isinstance(r.item, ir.Register):
            place, size, owner = r.item.offset, r.item.bytes, ("group", r.item.group)
        else:
            continue
        low, high = sorted((place, place + step * (count - 1)))
        spans.setdefault(owner, []).append((place, step, low, high + size, r.write))
    for group in spans.values():
        writers = [s for s in group if s[4]]
        for place, step, low, high, _ in writers:
            for other_place, other_step, other_low, other_high, _ in group:
                if (place, step) == (other_place, other_step):
                    if step == 0:
                        return False
                elif low < other_high and other_low < high:
                    return False
    return True


def _unswitched(loop: ir.Roll) -> ir.Stmt:
    """Moves a choice that is the same in all iterations before the loop."""
    at = next((i for i, s in enumerate(loop.body) if isinstance(s, ir.Switch)), None)
    if at is None:
        return loop
    choice = loop.body[at]
    if not isinstance(choice, ir.Switch) or not isinstance(choice.subject, ir.Var):
        return loop
    if any(target is choice.subject for stmt in ir.walk(loop.body) for target in ir.writes(stmt)):
        return loop

    def part(body: list[ir.Stmt]) -> list[ir.Stmt]:
        whole = [*copied(loop.body[:at]), *body, *copied(loop.body[at + 1 :])]
        result = ir.Roll(loop.count, whole, loop.independent, loop.end)
        result.origin = loop.origin
        return [_unswitched(result)] if whole else []

    result = ir.Switch(choice.subject, [(value, part(body)) for value, body in choice.cases], part(choice.default), choice.names)
    result.origin = loop.origin
    return result


def _stepped(statements: list[ir.Stmt], steps: Iterator[int]) -> list[ir.Stmt]:
    """Returns the statements of the loop: references get their steps, in the order in which `_shape` met them."""

    def leaf(e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Elem):
            return ir.Elem(e.array, e.index, next(steps))
        if isinstance(e, ir.Var):
            next(steps)
        return e

    body = copied(statements)
    for stmt in ir.walk(body):
        ir.replace_leaves(stmt, leaf)
        if isinstance(stmt, ir.RegRead | ir.RegWrite):
            stmt.step = next(steps)
        if isinstance(stmt, ir.Assign | ir.RegRead):
            stmt.target = value_trees.variable(leaf(stmt.target))
    return body


# --- arrays -----------------------------------------------------------------------------------------------------------

MIN_ELEMENTS = 8
WIDTHS = (8, 16, 32, 64)


def make_arrays(module: ir.Module, candidates: list[list[ir.Var]]) -> bool:
    """Turns `candidates`, lists of variables that a program numbers itself (t0, t1, ... t255) in the order of the elements, into
    arrays where possible: where all uses of a variable can be elements. Returns True if it did any."""
    if not candidates:
        return False
    fixed = _fixed(module)
    elements: dict[ir.Expr, ir.Elem] = {}
    for variables in candidates:
        first = variables[0]
        if len(variables) < MIN_ELEMENTS or first.width not in WIDTHS or len(set(variables)) < len(variables):
            continue
        if any(v in fixed or v in elements or (v.width, v.signed) != (first.width, first.signed) for v in variables):
            continue
        array = ir.Array(first.name, first.width, len(variables), first.signed)
        elements |= {v: ir.Elem(array, i) for i, v in enumerate(variables)}

    def element(e: ir.Expr) -> ir.Expr:
        return ir.Wire(element(e.pos), e.bit, e.width, e.signed) if isinstance(e, ir.Wire) else elements.get(e, e)

    for stmt in module.statements() if elements else ():
        ir.replace_leaves(stmt, element)
        if isinstance(stmt, ir.Assign | ir.RegRead):
            stmt.target = elements.get(stmt.target, stmt.target)
    return bool(elements)


def _fixed(module: ir.Module) -> set[object]:
    """Returns the variables that cannot be elements: used by both phases, or by something else than an expression."""
    fixed: set[object] = {region.valid for region in module.regions}
    fixed |= {v for values in module.preserved.values() for v in values}
    fixed |= {f.var for digest in module.digests for f in digest.fields}
    used_by_phase: list[set[object]] = []
    for phase in (module.ingress, module.egress):
        used: set[object] = set()
        for stmt in ir.walk(phase.body):
            here = {leaf for e in (*ir.reads(stmt), *ir.writes(stmt)) for leaf in ir.leaves(e)}
            used |= here
            match stmt:
                case ir.Operation():
                    fixed |= here
                    if isinstance(stmt, Deparse):
                        fixed |= {part for h in stmt.headers for leaf in value_trees.expressions(h) for part in ir.leaves(leaf)}
                case ir.Lookup():
                    fixed |= {v for v in (stmt.hit, stmt.action, stmt.color, stmt.selector)}
                case ir.Roll():  # may sum up in a variable, which memory would make slow and `ivdep` wrong
                    fixed |= {x for s in ir.walk(stmt.body) for e in (*ir.reads(s), *ir.writes(s)) for x in ir.leaves(e)}
        used_by_phase.append(used)
    return fixed | used_by_phase[0] & used_by_phase[1]
