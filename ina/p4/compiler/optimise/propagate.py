"""Forward propagation of copies and constants through structured code.

A variable that holds a copy of another one (or a constant) is replaced by it while neither has been written since.
Versions of variables make this linear: a fact is (source, version of source, version of target), and every write moves
a version on. Facts from a branch end behind it: all that it wrote gets a new version. Labels end all facts.
"""

from __future__ import annotations

from ina.p4.compiler import ir


class _Facts:
    def __init__(self) -> None:
        self.version: dict[ir.Expr, int] = {}
        self.facts: dict[ir.Expr, tuple[ir.Expr, int, int]] = {}
        self.log: list[ir.Expr] = []

    def look_up(self, v: ir.Var) -> ir.Expr:
        fact = self.facts.get(v)
        if fact is None:
            return v
        source, source_version, version = fact
        if self.version.get(v, 0) != version or self.version.get(source, 0) != source_version:
            return v
        return source

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
        _rewrite(stmt, facts)
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


def _rewrite(stmt: ir.Stmt, facts: _Facts) -> None:
    match stmt:
        case ir.Assign():
            stmt.value = _expr(stmt.value, facts)
        case ir.RegRead():
            stmt.index = _expr(stmt.index, facts)
        case ir.RegWrite():
            stmt.index, stmt.value = _expr(stmt.index, facts), _expr(stmt.value, facts)
        case ir.If():
            stmt.condition = _expr(stmt.condition, facts)
        case ir.Switch():
            stmt.subject = _expr(stmt.subject, facts)
        case ir.Lookup():
            stmt.keys = [_expr(k, facts) for k in stmt.keys]
        case ir.Operation(propagates=True):
            stmt.args = [_expr(a, facts) for a in stmt.args]


def _expr(e: ir.Expr, facts: _Facts) -> ir.Expr:
    if isinstance(e, ir.Var):
        source = facts.look_up(e)
        return source if source.width == e.width and source.signed == e.signed else e
    if isinstance(e, ir.Op):
        args = tuple(_expr(a, facts) for a in e.args)
        if any(a is not b for a, b in zip(args, e.args, strict=True)):
            return ir.Op(e.op, args, e.width, e.signed)
    return e
