"""Shapes of packets, from a parser's states: the paths through it, and the headers of a given frame.

Headers of sub-parsers and those with varbit fields are not analysed: from there on all is payload, and `notes` say so.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ina.p4.compiler import ast, types
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.instances import walk
from ina.p4.tools.explain import parser_of


def nodes(program: CheckedProgram) -> Iterator[ast.Node]:
    """Yields all nodes but the declarations of core.p4 and the architecture."""
    return walk([d for d in program.declarations if "p4include" not in Path(d.span.file).parts])


PATHS = 64  # of a parser: loops multiply them
VISITS = 3  # of one state on one path
STEPS = 20_000  # of a search for that many paths: most of them may be rejected

Test = tuple[int, int, int]  # kind, low or value, high or mask
EQUAL, WITHIN = 0, 1


@dataclass(frozen=True, slots=True)
class Field:
    """`offset` in bits, from the beginning of its header, or (of a frame) from the frame's first bit. `key`: header and field,
    the same in programs that name the struct of headers differently."""

    key: str
    offset: int
    width: int

    @property
    def name(self) -> str:
        return self.key.partition(".")[2]

    def get(self, frame: bytes | bytearray) -> int:
        """Returns the value; bits behind the frame's end are 0."""
        end = self.offset + self.width
        first, last = self.offset // 8, -(-end // 8)
        octets = frame[first:last].ljust(last - first, b"\0")
        return int.from_bytes(octets, "big") >> -end % 8 & (1 << self.width) - 1

    def put(self, frame: bytearray, value: int) -> None:
        """Sets the value; does nothing where the frame ends before the field does."""
        end = self.offset + self.width
        first, last = self.offset // 8, -(-end // 8)
        if last > len(frame):
            return
        shift, full = -end % 8, (1 << self.width) - 1
        octets = int.from_bytes(frame[first:last], "big") & ~(full << shift) | (value & full) << shift
        frame[first:last] = octets.to_bytes(last - first, "big")


@dataclass(frozen=True, slots=True)
class Header:
    """A header, at `offset` bits of a frame."""

    path: str
    offset: int
    width: int
    fields: tuple[Field, ...]  # places in the frame

    def at(self, offset: int) -> int:
        """Returns the width of the field that begins so many bits into the header; 0: none does."""
        return next((f.width for f in self.fields if f.offset == self.offset + offset), 0)

    @property
    def is_ipv4(self) -> bool:
        """True for RFC 791's layout without options, whatever the fields' names."""
        return self.width == 160 and self.at(16) == 16 and self.at(80) == 16 and self.at(96) == self.at(128) == 32

    @property
    def is_udp(self) -> bool:
        """True for RFC 768's layout; the caller checks that it comes behind IPv4."""
        return self.width == 64 and [self.at(n) for n in (0, 16, 32, 48)] == [16] * 4

    @property
    def is_check(self) -> bool:
        """True for `check_t` of p4/include/frame.p4, whose `headers` covers all from UDP's end to its own."""
        return header_key(self.path) == "check" and self.width == 96 and self.at(16) == 16 and self.at(32) == self.at(64) == 32


@dataclass(frozen=True)
class Shape:
    """A path: its headers, and the conditions on fields for a frame to take it: (field, value, mask)."""

    headers: tuple[Header, ...]
    wants: tuple[tuple[Field, int, int], ...]

    @property
    def size(self) -> int:
        """Size of the headers in bytes."""
        return sum(h.width for h in self.headers) // 8


@dataclass(frozen=True, slots=True)
class _Key:
    """A select key: bits `high` to `low` of a field of a header that was extracted."""

    path: str
    field: str
    high: int
    low: int


@dataclass(frozen=True, slots=True)
class _State:
    steps: tuple[tuple[str, Any], ...]  # ("extract", (path, header type)), ("skip", bits), ("stop", why)
    keys: tuple[_Key | None, ...]
    cases: tuple[tuple[tuple[Test | None | str, ...], str], ...]  # "?" of a key: known only at run time


def header_key(path: str) -> str:
    """Returns the last part of a header's path; elements of a stack have the same key."""
    return re.sub(r"\[\d+\]$", "", path).rpartition(".")[2]


def field_key(name: str) -> str:
    """Returns header and field, from a field's whole path: "hdr.ipv4.ttl" -> "ipv4.ttl"."""
    parts = re.sub(r"\[[^]]*\]|\.(next|last)(?=\.)", "", name).split(".")
    return ".".join(parts[-2:])


@functools.lru_cache(maxsize=4096)
def _place(path: str, t: types.HeaderType, offset: int) -> Header | None:
    """Returns a header at an offset; None: a header of variable size."""
    padding, fields, at = t.padding(), [], 0
    for top, leaves in itertools.groupby(_leaves(t), lambda leaf: leaf[0].partition(".")[0]):
        for name, width in leaves:
            if width is None:
                return None
            fields.append(Field(f"{header_key(path)}.{name}", offset + at, width))
            at += width
        at += padding.get(top, 0)
    return Header(path, offset, at, tuple(fields))


def _leaves(t: types.RecordType, before: str = "") -> Iterator[tuple[str, int | None]]:
    for f in t.fields.values():
        inner = types.strip_new(f.type)
        if isinstance(inner, types.RecordType):
            yield from _leaves(inner, f"{before}{f.name}.")
        else:
            yield before + f.name, types.fixed_width(f.type)


class Shapes:
    """The first parser of a program. The intrinsic metadata before a Tofino's frame is not part of the frame.

    At most `paths` paths through it, none of which visits a state more than `visits` times. `notes`: parts left out.
    """

    def __init__(self, program: CheckedProgram, paths: int = PATHS, visits: int = VISITS) -> None:
        self._states = {state.name: _state(state) for state in parser_of(program).decl.state_list}
        self.notes: list[str] = []
        self.paths = list(self._paths(paths, visits)) or [Shape((), ())]  # a parser that accepts nothing

    def fields(self) -> dict[str, int]:
        """Returns the widths of all fields of all headers, by key."""
        return {f.key: f.width for shape in self.paths for h in shape.headers for f in h.fields}

    def _paths(self, paths: int, visits: int) -> Iterator[Shape]:
        stack: list[tuple[str, tuple[Header, ...], tuple[tuple[Field, int, int], ...], int, tuple[str, ...]]]
        stack, steps = [("start", (), (), 0, ())], 0
        shapes: set[Shape] = set()
        expanded: set[tuple[str, tuple[Header, ...], tuple[tuple[Field, int, int], ...], int]] = set()
        most = STEPS * -(-paths // PATHS)
        while stack:
            if len(shapes) >= paths or steps >= most:
                self.notes.append(f"{len(shapes)} paths of A's parser were tried, and it has more (--paths)")
                break
            steps += 1
            name, headers, conditions, at, visited = stack.pop()
            if (name, headers, conditions, at) in expanded:  # reached on another path already
                continue
            expanded.add((name, headers, conditions, at))
            state = self._states.get(name)
            if state is None or visited.count(name) >= visits:
                if state is not None:
                    self._note(f"no path goes through the state {name} of A's parser more than {visits} times (--visits)")
                shape = Shape(headers, conditions)
                if name != "reject" and shape not in shapes:
                    shapes.add(shape)
                    yield shape
                continue
            headers, at, stopped = _run(state, headers, at)
            if stopped:
                reason = next(detail for kind, detail in state.steps if kind == "stop")
                self._note(f"the state {name} of A's parser {reason}: packets are made up to there, and what follows is payload")
                stack.append(("accept", headers, conditions, at, visited))
                continue
            for tests, target in reversed(state.cases):
                more = [rule for key, test in zip(state.keys, tests, strict=False) if (rule := _condition(key, test, headers))]
                stack.append((target, headers, (*conditions, *more), at, (*visited, name)))

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def walk(self, frame: bytes) -> tuple[Header, ...]:
        """Returns the headers that the parser finds in a frame, also in one that is cut off."""
        headers: tuple[Header, ...] = ()
        at, name = 0, "start"
        met: set[tuple[str, int]] = set()  # the parser loops if it returns to a state without reading
        while (name, at) not in met:
            met.add((name, at))
            state = self._states.get(name)
            if state is None:
                break
            before = headers
            headers, at, stopped = _run(state, headers, at, 8 * len(frame))
            if stopped or (headers is before and name == "start" and not state.cases):
                break
            name = next((target for tests, target in state.cases if self._takes(state, tests, headers, frame)), "reject")
        return headers

    @staticmethod
    def _takes(state: _State, tests: tuple[Any, ...], headers: tuple[Header, ...], frame: bytes) -> bool:
        for key, test in zip(state.keys, tests, strict=False):
            if test is None:
                continue
            field = _find(key, headers)
            if field is None or test == "?":
                return False
            value, (kind, a, b) = field.get(frame), test
            if not (value & b == a & b if kind == EQUAL else a <= value <= b):
                return False
        return True


def _run(state: _State, headers: tuple[Header, ...], at: int, end: int | None = None) -> tuple[tuple[Header, ...], int, bool]:
    """Returns headers and offset after a state, and whether parsing stops there (unknown rest, or the frame's `end`)."""
    for kind, detail in state.steps:
        if kind == "stop":
            return headers, at, True
        if kind == "skip":
            at += detail
            continue
        path, t = detail
        if path.endswith(".next"):
            stack = path.removesuffix(".next")
            path = f"{stack}[{sum(h.path.startswith(f'{stack}[') for h in headers)}]"
        header = _place(path, t, at)
        if header is None or (end is not None and at + header.width > end):
            return headers, at, True
        headers, at = (*headers, header), at + header.width
    return headers, at, False


def _find(key: _Key | None, headers: tuple[Header, ...]) -> Field | None:
    """Returns the bits of the frame that a key reads."""
    if key is None:
        return None
    path = key.path
    if path.endswith(".last"):
        path = next((h.path for h in reversed(headers) if h.path.startswith(path.removesuffix(".last") + "[")), "")
    for header in reversed(headers):
        if header.path == path:
            for f in header.fields:
                if f.name == key.field:
                    high = min(key.high, f.width - 1)
                    return Field(f.key, f.offset + f.width - 1 - high, high - key.low + 1)
    return None


def _condition(key: _Key | None, test: Any, headers: tuple[Header, ...]) -> tuple[Field, int, int] | None:
    field = _find(key, headers)
    if field is None or test is None or test == "?":
        return None
    kind, a, b = test
    return (field, a, b) if kind == EQUAL else (field, a, (1 << field.width) - 1)


def _state(state: ast.ParserState) -> _State:
    steps: list[tuple[str, Any]] = []
    for s in state.statements:
        call = s.call if isinstance(s, ast.CallStatement) else None
        if isinstance(s, (ast.Block, ast.If, ast.Switch)) and any(_reads(n) for n in walk(s)):
            steps.append(("stop", "reads the packet on a condition, or in a block"))
        if call is None or call.kind not in ("packet_in", "parser_apply"):
            continue
        if call.kind == "parser_apply":
            steps.append(("stop", f"calls another parser, {ast.source_text(call.callee).removesuffix('.apply')}"))
        elif call.method == "extract" and call.args[0] is not None:
            t = types.strip_new(call.args[0].type)
            if isinstance(t, types.HeaderType) and not t.name.startswith(("ingress_intrinsic", "egress_intrinsic")):
                name = ast.source_text(call.args[0])
                varbit = "stop", f"extracts {name}, which has a varbit field"
                steps.append(("extract", (name, t)) if len(call.args) == 1 else varbit)
        elif call.method == "advance" and any(kind == "extract" for kind, _ in steps):  # else it skips a Tofino's port metadata
            bits = call.args[0].const if call.args[0] is not None else None
            steps.append(("skip", bits) if isinstance(bits, int) else ("stop", "advances by what a packet says"))
    transition = state.transition
    if transition is None:
        return _State(tuple(steps), (), (((), "reject"),))
    if transition.target_name is not None:
        return _State(tuple(steps), (), (((), transition.target_name),))
    keys = tuple(_key(k) for k in transition.keys)
    cases = tuple((tuple(_test(k) for k in case.keys), case.target_name) for case in transition.cases)
    return _State(tuple(steps), keys, cases)


def _reads(node: ast.Node) -> bool:
    return isinstance(node, ast.Call) and (node.kind == "parser_apply" or node.kind == "packet_in" and node.method != "lookahead")


def _key(e: ast.Expr) -> _Key | None:
    while isinstance(e, ast.Cast):
        e = e.operand
    high, low = 10**6, 0
    if isinstance(e, ast.Slice):
        high, low, e = e.hi_bit, e.lo_bit, e.base
    if isinstance(e, ast.Member) and e.kind == "field":
        return _Key(ast.source_text(e.base), e.member, high, low)
    return None


def _test(e: ast.Expr) -> Test | None | str:
    if isinstance(e, ast.DontCare):
        return None
    if isinstance(e, ast.Mask) and isinstance(e.value.const, int) and isinstance(e.mask.const, int):
        return EQUAL, int(e.value.const), int(e.mask.const)
    if isinstance(e, ast.Range) and isinstance(e.lo.const, int) and isinstance(e.hi.const, int):
        return WITHIN, int(e.lo.const), int(e.hi.const)
    return (EQUAL, int(e.const), -1) if isinstance(e.const, int) else "?"
