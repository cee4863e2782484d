"""Ingress once more for usual packets: those that go the longest way through the parser and none that is called unlikely.

Only programs that call something unlikely (@likely, @unlikely at blocks) get this version. A packet that turns out to be another
before anything lasting has happened to it begins anew in the version for all packets, so that nothing of what is rare is left
here: positions of headers are constants, and the C compiler keeps what it needs in registers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ina.p4.compiler import ir
from ina.p4.compiler.optimise.bounds import copied

UNUSUAL = "unusual"  # the statement that begins anew
HARMLESS = ("restore", "clear_region", "extract_region", "extract_bits", "hash")  # externs that leave nothing behind


@dataclass(slots=True)
class Way:
    """A way through the parser. `states`: where the statements of each begin and end, and the label of the next; `size`: bytes
    that they extract; `rest`: where the statements behind the last one begin.
    """

    rest: int
    size: int = 0
    states: list[tuple[int, int, str]] = field(default_factory=list)


def longest_way(phase: ir.Phase) -> Way:
    """The way that extracts most bytes."""
    body = phase.body
    starts = {stmt.label: i for i, stmt in enumerate(body) if isinstance(stmt, ir.Label)}
    found: dict[int, Way | None] = {}  # None: a way that comes back here is none

    def way(i: int) -> Way:
        found[i] = None
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
        best = Way(i)
        for label in targets:
            if label not in starts or label == phase.reject:
                continue
            at = starts[label]
            onward = found[at] if at in found else way(at)
            if onward is not None and size + onward.size >= max(1, best.size):  # of equal ones the last, which is the default
                best = Way(onward.rest, size + onward.size, [(i, end, label), *onward.states])
        found[i] = best
        return best

    return way(0)


def extracted_region(stmt: ir.Stmt) -> ir.Region | None:
    return stmt.data if isinstance(stmt, ir.Extern) and stmt.op == "extract_region" else None


def extracted(phase: ir.Phase) -> list[ir.Region]:
    """What the longest way through the parser extracts."""
    states = longest_way(phase).states
    regions = (extracted_region(stmt) for begin, end, _ in states for stmt in phase.body[begin:end])
    return [region for region in regions if region is not None]


def hinted(phase: ir.Phase) -> bool:
    """Whether the program says of any condition whether it is likely; that of a parser's error is not."""
    errors = {id(s) for s in ir.walk(phase.body) if isinstance(s, ir.If) and _goes_to(s.then, phase.reject)}
    return any(isinstance(s, ir.If) and s.likely is not None and id(s) not in errors for s in ir.walk(phase.body))


def _goes_to(body: list[ir.Stmt], label: str) -> bool:
    return any(isinstance(stmt, ir.Goto) and stmt.label == label for stmt in body)


def usual(phase: ir.Phase) -> list[ir.Stmt] | None:
    """The statements for usual packets. None: there are none, or a way back could have them begin anew too late."""
    way = longest_way(phase)
    made: list[ir.Stmt] = []
    for begin, end, onward in way.states:
        made += _Trim({onward}).block(copied(phase.body[begin:end]))
    rest = phase.body[way.rest :]
    if not made or any(_lasting(stmt) for stmt in ir.walk(made)) or _goes_back(rest):
        return None
    labels = {stmt.label for stmt in ir.walk(rest) if isinstance(stmt, ir.Label)}
    return made + _Trim(labels).block(copied(rest))


def _goes_back(body: list[ir.Stmt]) -> bool:
    passed: set[str] = set()
    for stmt in ir.walk(body):
        if isinstance(stmt, ir.Label):
            passed.add(stmt.label)
        elif isinstance(stmt, ir.Goto) and stmt.label in passed:
            return True
    return False


def _lasting(stmt: ir.Stmt) -> bool:
    """Whether a statement itself changes what a second version would find."""
    match stmt:
        case ir.RegWrite():
            return True
        case ir.Lookup(table=table):
            direct = [d for d in (table.counter, table.meter) if d is not None and not d.explicit]
            return bool(direct) or table.hits is not None
        case ir.Extern():
            return stmt.op not in (*HARMLESS, UNUSUAL) or (stmt.op == "extract_region" and not stmt.data.in_place)
    return any(isinstance(target, ir.Elem) and target.array.region is not None for target in ir.writes(stmt))


class _Trim:
    """Leaves away what is unlikely, in the order of the text, until something lasting happens."""

    def __init__(self, labels: set[str]) -> None:
        """`labels`: where statements may go to; all others are unusual."""
        self.labels = labels
        self.clean = True

    def block(self, body: list[ir.Stmt]) -> list[ir.Stmt]:
        for stmt in body:
            if isinstance(stmt, ir.If) and stmt.likely is not None and self.clean:
                if stmt.likely:
                    stmt.otherwise = [ir.Extern(UNUSUAL, [], [])]
                else:
                    stmt.then = [ir.Extern(UNUSUAL, [], [])]
            for inner in ir.blocks(stmt):
                inner[:] = self.block(inner)
            self.clean = self.clean and not _lasting(stmt)
        return [self._jump(stmt) if isinstance(stmt, ir.Goto) else stmt for stmt in body]

    def _jump(self, stmt: ir.Goto) -> ir.Stmt:
        return stmt if stmt.label in self.labels else ir.Extern(UNUSUAL, [], [])
