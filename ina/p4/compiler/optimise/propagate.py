"""Forward propagation of copies and constants through structured code, and removal of what is then unused.

A variable that holds a copy of another one (or a constant) is replaced by it while neither has been written since.
Versions of variables make this linear: a fact is (source, version of source, version of target), and every write moves
a version on. Facts from a branch end behind it: all that it wrote gets a new version. Labels end all facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ina.p4.compiler import ir
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.operations import Deparse


class _Facts:
    def __init__(self) -> None:
        self.version: dict[ir.Expr, int] = {}
        self.facts: dict[ir.Expr, tuple[ir.Expr, int, int]] = {}
        self.log: list[ir.Expr] = []

    def current(self, e: ir.Expr) -> ir.Expr:
        """Returns what a variable is a copy of, if neither has been written since; else `e` itself."""
        source, source_version, version = self.facts.get(e, (e, 0, 0))
        same = self.version.get(e, 0) == version and self.version.get(source, 0) == source_version
        return source if same and (source.width, source.signed) == (e.width, e.signed) else e

    def write(self, target: ir.Expr) -> None:
        if isinstance(target, ir.Var):
            self.version[target] = self.version.get(target, 0) + 1
            self.log.append(target)

    def learn(self, target: ir.Var, source: ir.Expr) -> None:
        self.facts[target] = (source, self.version.get(source, 0), self.version[target])

    def forget_since(self, mark: int) -> None:
        for v in self.log[mark:]:
            self.version[v] += 1


def propagate(body: list[ir.Stmt]) -> None:
    """Rewrites the statements of a phase in place."""
    _block(body, _Facts())


def _block(body: list[ir.Stmt], facts: _Facts) -> None:
    for stmt in body:
        if not isinstance(stmt, ir.Operation) or stmt.propagates:
            ir.replace_leaves(stmt, facts.current)
        inner = ir.blocks(stmt)
        if inner:
            mark = len(facts.log)
            for block in inner:
                start = len(facts.log)
                _block(block, facts)
                facts.forget_since(start)
            facts.forget_since(mark)
        if isinstance(stmt, ir.Label):
            facts.facts.clear()
        for target in ir.writes(stmt):
            facts.write(target)
        if isinstance(stmt, ir.Assign) and isinstance(stmt.target, ir.Var) and stmt.value is not stmt.target:
            if isinstance(stmt.value, ir.Var | ir.Const):
                facts.learn(stmt.target, stmt.value)


# --- what is unused ---------------------------------------------------------------------------------------------------


def drop_dead(module: ir.Module) -> None:
    """Drops assignments to variables that nothing reads, and branches that became empty, in both phases, until nothing changes.

    The C compiler would drop them too; here they would make the C text harder to read. Lookups, externs and writes to headers
    and registers stay."""
    changed = True
    while changed:
        read = {region.valid for region in module.regions} | {leaf for leaf in reads(module) if isinstance(leaf, ir.Var)}
        changed = any([ir.drop(phase.body, partial(_is_dead, read)) for phase in (module.ingress, module.egress)])


def reads(module: ir.Module) -> Iterator[ir.Expr]:
    """Yields each leaf that something reads: a statement, the deparser, a digest, a further pass of the packet."""
    for stmt in module.statements():
        for header in stmt.headers if isinstance(stmt, Deparse) else ():
            for place in value_trees.expressions(header):
                yield from ir.leaves(place)
        for e in ir.reads(stmt):
            yield from ir.leaves(e)
    yield from (v for values in module.preserved.values() for v in values)
    yield from (f.var for digest in module.digests for f in digest.fields)


def _is_dead(read: set[ir.Var], stmt: ir.Stmt) -> bool:
    match stmt:
        case ir.Assign() if stmt.value is stmt.target:
            return isinstance(stmt.target, ir.Var)
        case ir.Assign() | ir.RegRead():
            return isinstance(stmt.target, ir.Var) and stmt.target not in read
        case ir.If():
            return not stmt.then and not stmt.otherwise
    return False
