"""A fast path for ingress: the version for packets that take the longest path through the parser and no unlikely branch.

Only programs that mark something unlikely (@likely, @unlikely at blocks) get it. A packet that turns out to need more starts
again in the general version, before anything lasting has happened to it. So the fast path has no code for rare cases: positions
of headers are constants, and the C compiler keeps what it needs in registers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ina.p4.compiler import ir, operations
from ina.p4.compiler.optimise.bounds import copied


@dataclass(slots=True)
class ParserPath:
    """A path through the parser. `states`: for each, where its statements begin and end, and the label of the next; `size`:
    bytes that they extract; `rest`: where the statements behind the last one begin."""

    rest: int
    size: int = 0
    states: list[tuple[int, int, str]] = field(default_factory=list)


def longest_path(phase: ir.Phase) -> ParserPath:
    """Returns the path that extracts most bytes."""
    body = phase.body
    starts = {stmt.label: i for i, stmt in enumerate(body) if isinstance(stmt, ir.Label)}
    paths: dict[int, ParserPath | None] = {}  # None: in progress, so reaching it again is a cycle

    def path(i: int) -> ParserPath:
        paths[i] = None
        size, targets, end = 0, [], i
        while end < len(body):
            stmt = body[end]
            end += 1
            if (region := extracted_region(stmt)) is not None:
                size += region.size
            targets += [s.label for s in ir.walk([stmt]) if isinstance(s, ir.Goto)]
            if isinstance(stmt, ir.Goto):
                break
            following = body[end] if end < len(body) else None
            if isinstance(following, ir.Label):
                targets.append(following.label)
                break
        best = ParserPath(i)
        for label in targets:
            if label not in starts or label == phase.reject:
                continue
            at = starts[label]
            onward = paths[at] if at in paths else path(at)
            if onward is not None and size + onward.size >= max(1, best.size):  # of equal ones the last, which is the default
                best = ParserPath(onward.rest, size + onward.size, [(i, end, label), *onward.states])
        paths[i] = best
        return best

    return path(0)


def extracted_region(stmt: ir.Stmt) -> ir.Region | None:
    return stmt.region if isinstance(stmt, operations.ExtractRegion) else None


def extracted(phase: ir.Phase) -> list[ir.Region]:
    """Returns the headers that the longest path through the parser extracts."""
    states = longest_path(phase).states
    regions = (extracted_region(stmt) for begin, end, _ in states for stmt in phase.body[begin:end])
    return [region for region in regions if region is not None]


def hinted(phase: ir.Phase) -> bool:
    """Returns True if the program marks any condition as likely or unlikely, beyond the built-in hints at parser errors."""
    errors = {s for s in ir.walk(phase.body) if isinstance(s, ir.If) and _goes_to(s.then, phase.reject)}
    return any(isinstance(s, ir.If) and s.likely is not None and s not in errors for s in ir.walk(phase.body))


def _goes_to(body: list[ir.Stmt], label: str) -> bool:
    return any(isinstance(stmt, ir.Goto) and stmt.label == label for stmt in body)


def fast_path(phase: ir.Phase) -> list[ir.Stmt] | None:
    """Returns the statements of the fast path. None if there are none, or if a jump back could restart a packet too late."""
    path = longest_path(phase)
    statements: list[ir.Stmt] = []
    for begin, end, onward in path.states:
        statements += _Trim({onward}).block(copied(phase.body[begin:end]))
    rest = phase.body[path.rest :]
    if not statements or any(_lasting(stmt) for stmt in ir.walk(statements)) or _goes_back(rest):
        return None
    labels = {stmt.label for stmt in ir.walk(rest) if isinstance(stmt, ir.Label)}
    return statements + _Trim(labels).block(copied(rest))


def _goes_back(body: list[ir.Stmt]) -> bool:
    labels: set[str] = set()
    for stmt in ir.walk(body):
        if isinstance(stmt, ir.Label):
            labels.add(stmt.label)
        elif isinstance(stmt, ir.Goto) and stmt.label in labels:
            return True
    return False


def _lasting(stmt: ir.Stmt) -> bool:
    """Returns True if a statement itself changes something that the general version would see."""
    match stmt:
        case ir.RegWrite():
            return True
        case ir.Lookup(table=table):
            direct = [d for d in (table.counter, table.meter) if d is not None and not d.explicit]
            return bool(direct) or table.hits is not None
        case ir.Operation():
            return stmt.lasts
    return any(isinstance(target, ir.Elem) and target.array.region is not None for target in ir.writes(stmt))


class _Trim:
    """Replaces unlikely branches by LeaveFastPath, in the order of the text, until a lasting statement."""

    def __init__(self, labels: set[str]) -> None:
        """Sets `labels`, the only ones that the fast path may jump to."""
        self.labels = labels
        self.clean = True

    def block(self, body: list[ir.Stmt]) -> list[ir.Stmt]:
        for stmt in body:
            if isinstance(stmt, ir.If) and stmt.likely is not None and self.clean:
                if stmt.likely:
                    stmt.otherwise = [operations.LeaveFastPath()]
                else:
                    stmt.then = [operations.LeaveFastPath()]
            for inner in ir.blocks(stmt):
                inner[:] = self.block(inner)
            self.clean = self.clean and not _lasting(stmt)
        elsewhere = (isinstance(stmt, ir.Goto) and stmt.label not in self.labels for stmt in body)
        return [operations.LeaveFastPath() if out else stmt for stmt, out in zip(body, elsewhere, strict=True)]
