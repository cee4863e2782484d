"""One access to a Register in a pass: a Tofino's stateful ALU does no more.

Every path through a phase is explicit in its statements: two accesses on one path are an error, in branches that exclude each
other they are not. Of conditions, only results of tables are compared: an action that only a hit can run, and what stands behind
`if (t.apply().miss)` or in another case of `switch (t.apply().action_run)`, exclude each other. Others are not:
`if (a) ... if (!a) ...` counts as two paths that both accesses are on, and a loop may always go round once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ina.p4.compiler import ir
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import CompileError, Note, Span
from ina.p4.compiler.lower.context import TableResult
from ina.p4.compiler.operations import Access

HIT, ACTION = 0, 1
MOST_PATHS = 64  # that are told apart at one place; beyond, what tables returned is forgotten

Result = tuple[int, int]
"""A table's result: `hit` and the number of its action"""


@dataclass(frozen=True, slots=True)
class Path:
    """Paths to one place: the registers accessed on some of them, and what each table may have returned on them."""

    seen: dict[Instance, Span]
    results: dict[ir.Var, frozenset[Result]]


def check_accesses(body: list[ir.Stmt], results: list[TableResult]) -> None:
    """Raises CompileError for two accesses to one Register on one path through `body`. Removes the access statements. `results`:
    those of the tables that are applied."""
    _Walk(results).to_the_end(body, [Path({}, {})])
    ir.drop(body, lambda stmt: isinstance(stmt, Access))


class _Walk:
    """`places`: of which result a variable is which part; results are named by their `hit`. `waiting`: the paths that jump to a
    label, `walked`: those that have been followed from there."""

    def __init__(self, results: list[TableResult]) -> None:
        self.places = {v: (r.hit, part) for r in results for part, v in ((HIT, r.hit), (ACTION, r.action))}
        self.waiting: dict[str, list[Path]] = {}
        self.walked: dict[str, list[Path]] = {}

    def to_the_end(self, body: list[ir.Stmt], paths: list[Path]) -> list[Path]:
        """Returns the paths that lead from `paths` to the end of `body`, also round the loops in it."""
        ends = self._straight(body, paths)
        labels = [(at, stmt.label) for at, stmt in enumerate(body) if isinstance(stmt, ir.Label)]
        while (back := next(((at, label) for at, label in labels if label in self.waiting), None)) is not None:
            at, label = back
            walked = self.walked[label]
            following = [path for path in self.waiting.pop(label) if not any(_covers(old, path) for old in walked)]
            if following:
                walked += following
                ends = _joined([*ends, *self._straight(body[at + 1 :], following)])
        return ends

    def _straight(self, body: list[ir.Stmt], paths: list[Path]) -> list[Path]:
        """Returns the paths that lead to the end of `body`; those that jump backward in it wait."""
        for stmt in body:
            match stmt:
                case ir.Label():
                    paths = _joined([*self.waiting.pop(stmt.label, ()), *paths])
                    self.walked.setdefault(stmt.label, []).extend(paths)
                case ir.Goto():
                    self.waiting[stmt.label] = _joined([*self.waiting.get(stmt.label, ()), *paths])
                    paths = []
                case Access():
                    paths = [_accessed(path, stmt) for path in paths]
                case ir.Lookup() if stmt.hit in self.places:
                    paths = [Path(p.seen, {**p.results, stmt.hit: _possible(stmt.table)}) for p in paths]
                case ir.Assign(target=ir.Var() as target, value=ir.Const() as value) if target in self.places:
                    paths = [self._assigned(path, target, value.value) for path in paths]
                case ir.If():
                    then, otherwise = (self._where(paths, stmt.condition, truth) for truth in (True, False))
                    paths = _joined([*self.to_the_end(stmt.then, then), *self.to_the_end(stmt.otherwise, otherwise)])
                case ir.Switch():
                    paths = _joined(self._cases(stmt, paths))
        return paths

    def _cases(self, stmt: ir.Switch, paths: list[Path]) -> Iterable[Path]:
        values = {value for value, _ in stmt.cases}
        for value, body in stmt.cases:
            yield from self.to_the_end(body, self._having(paths, stmt.subject, value.__eq__))
        yield from self.to_the_end(stmt.default, self._having(paths, stmt.subject, lambda v: v not in values))

    def _where(self, paths: list[Path], condition: ir.Expr, truth: bool) -> list[Path]:
        """Returns those of `paths` on which a condition may be true (or false), with what that says about results of tables."""
        match condition:
            case ir.Var():
                return self._having(paths, condition, lambda v: bool(v) == truth)
            case ir.Op(op="lnot", args=(inner,)):
                return self._where(paths, inner, not truth)
            case ir.Op(op="eq", args=(ir.Var() as subject, ir.Const() as value)):
                return self._having(paths, subject, lambda v: (v == value.value) == truth)
            case ir.Op(op="land" | "lor", args=args) if (condition.op == "land") == truth:
                for arg in args:
                    paths = self._where(paths, arg, truth)
        return paths

    def _having(self, paths: list[Path], subject: ir.Expr, fits: Callable[[int], bool]) -> list[Path]:
        """Returns those of `paths` on which `subject` may have a value that fits; all if it is no result of a table."""
        place = self.places.get(subject) if isinstance(subject, ir.Var) else None
        if place is None:
            return paths
        hit, part = place
        kept = []
        for path in paths:
            if hit not in path.results:
                kept.append(path)
            elif results := frozenset(r for r in path.results[hit] if fits(r[part])):
                kept.append(Path(path.seen, {**path.results, hit: results}))
        return kept

    def _assigned(self, path: Path, target: ir.Var, value: int) -> Path:
        hit, part = self.places[target]
        results = path.results.get(hit, frozenset([(0, 0)]))  # `hit` is set to 0, and then both, before any look-up
        changed = frozenset((value, r[ACTION]) if part == HIT else (r[HIT], value) for r in results)
        return Path(path.seen, {**path.results, hit: changed})


def _accessed(path: Path, access: Access) -> Path:
    register = access.register
    if register in path.seen:
        raise CompileError(
            access.span,
            f"register '{register.name}' is accessed twice in one pass of a packet",
            [
                Note("the other access on this way through the program", path.seen[register]),
                "a Tofino does one access: move the second to exclusive branches, or recirculate",
            ],
        )
    return Path({**path.seen, register: access.span}, path.results)


def _possible(table: ir.Table) -> frozenset[Result]:
    """Returns what a look-up may return. A chained table's entries are comparisons that follow and set the result; without a key
    there are no entries."""
    every = range(len(table.actions))
    misses = {table.default_action} if table.const_default else {i for i in every if not _only(table, i, "tableonly")}
    if table.chained or not table.keys and table.profile is None:
        hits = set()
    elif table.const_entries:
        hits = {entry.action for entry in table.entries}
    else:
        hits = {i for i in every if not _only(table, i, "defaultonly")}
    if table.profile is not None:  # a group without members runs the default action
        hits |= misses
    return frozenset([*((0, i) for i in misses), *((1, i) for i in hits)])


def _only(table: ir.Table, action: int, where: str) -> bool:
    return table.actions[action].ref.annotation(where) is not None


def _joined(paths: Iterable[Path]) -> list[Path]:
    """Returns the paths with those as one on which the same registers have been accessed."""
    groups: dict[frozenset[Instance], Path] = {}
    for path in paths:
        key = frozenset(path.seen)
        groups[key] = _both(groups[key], path) if key in groups else path
    joined = list(groups.values())
    if len(joined) <= MOST_PATHS:
        return joined
    return [Path({register: span for path in joined for register, span in path.seen.items()}, {})]


def _covers(old: Path, new: Path) -> bool:
    """Returns True if what may follow `new` may follow `old`, too, where as many accesses were made and no more results known."""
    known = old.results.items()
    return new.seen.keys() <= old.seen.keys() and all(k in new.results and new.results[k] <= v for k, v in known)


def _both(a: Path, b: Path) -> Path:
    return Path({**a.seen, **b.seen}, {k: v | b.results[k] for k, v in a.results.items() if k in b.results})
