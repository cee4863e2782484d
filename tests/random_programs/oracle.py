"""Runs random programs on packets, written from the P4_16 v1.2.5 specification and v1model's comments.

Imports nothing of `ina`: integers are Python's, a packet is one big integer, an environment is a dictionary by name.
"""

from __future__ import annotations

import zlib
from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field

from . import tree
from .tree import Expr, Function, Program, Slice, Type, Var

GROUPS = {1: [(1, 1), (2, 2), (3, 7)]}  # multicast groups: (port, replication id)
CLONE_PORT = 4  # of the only clone session
DROP_PORT = 511
ERRORS = ["NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds", "HeaderTooShort", "ParserTimeout", "ParserInvalidArgument"]


class _Leave(Exception):
    """A break, continue, return or exit on its way out."""

    def __init__(self, how: str, value: int | None = None):
        super().__init__(how)
        self.how, self.value = how, value


class _ParserError(Exception):
    pass


@dataclass
class _Pass:
    """A packet between two stages. `env`: scalars by name; `rest`: what the parser has not extracted."""

    frame: bytes
    env: dict[str, int] = field(default_factory=dict)
    valid: set[str] = field(default_factory=set)
    varbits: dict[str, tuple[int, int]] = field(default_factory=dict)  # by header: width, value
    next: dict[str, int] = field(default_factory=dict)
    rest: tuple[int, int] = (0, 0)
    again: str = ""
    digest: tuple[int, ...] | None = None


@dataclass
class _Marker:
    """Two-rate three-colour marker, colour-blind (RFC 2698 §3), of packets at whole ticks. The buckets are full at first."""

    committed_rate: int
    committed_burst: int
    peak_rate: int
    peak_burst: int
    last: int = 0

    def __post_init__(self) -> None:
        self.committed, self.peak = self.committed_burst, self.peak_burst

    def mark(self, now: int) -> int:
        ticks, self.last = now - self.last, now
        self.committed = min(self.committed_burst, self.committed + ticks * self.committed_rate)
        self.peak = min(self.peak_burst, self.peak + ticks * self.peak_rate)
        if not self.peak:
            return 2
        self.peak -= 1
        if not self.committed:
            return 1
        self.committed -= 1
        return 0


class Oracle:
    """A switch that runs `program`. `process` returns the frames that a frame causes; `registers` and `counters` are its state,
    `digests` all messages to the control plane."""

    def __init__(self, program: Program):
        self.program = program
        self.registers = {name: [0] * size for name, _, size in program.registers}
        self.counters = {name: [0] * size for name, size in program.counters}
        self.digests: list[tuple[int, ...]] = []
        self._meters = {m.name: [cell and _Marker(*cell) for cell in m.cells] for m in program.meters}
        self._functions = {f.name: f for f in (*program.functions, *program.actions)}
        self._tables = {t.name: t for t in program.tables}
        self._states = {s.name: s for s in program.states}
        self._sets = {name: set(members) for name, _, members in program.sets}
        self._headers = {h.name: h for h in program.headers}

    def process(self, frame: bytes, tick: int = 0) -> list[tuple[int, bytes]]:
        """Processes a frame; returns (port, frame) of all frames that leave, in no particular order."""
        self._tick = tick
        sent: list[tuple[int, bytes]] = []
        waiting = deque([("ingress", self._parse(frame, {}), 0, 0)])
        while waiting:
            stage, self.now, port, rid = waiting.popleft()
            if stage == "ingress":
                waiting.extend(self._ingress())
            else:
                waiting.extend(self._egress(port, rid, sent))
        return sent

    # ---- stages

    def _ingress(self) -> list[tuple]:
        now = self.now
        now.env |= {"sm.egress_spec": 1, "sm.mcast_grp": 0}
        self._control(self.program.ingress)
        ways: list[tuple] = []
        flags = now.again.split()
        now.again = ""
        if "clone" in flags:
            ways.append(("egress", self._clone(now.frame, self._field_list()), CLONE_PORT, 0))
        if now.digest is not None:
            self.digests.append(now.digest)
        if "resubmit" in flags:
            return [*ways, ("ingress", self._parse(now.frame, self._field_list()), 0, 0)]
        group, port = now.env["sm.mcast_grp"], now.env["sm.egress_spec"]
        if group:
            return ways + [("egress", deepcopy(now), port, rid) for port, rid in GROUPS.get(group, [])]
        return ways + [("egress", now, port, 0)] * (port != DROP_PORT)

    def _clone(self, frame: bytes, preserved: dict[str, int]) -> _Pass:
        """A clone: parsed again, without the metadata that the parser writes, as in BMv2 (simple_switch.cpp)."""
        clone = self._parse(frame, {})
        clone.env |= self._fresh(preserved)
        return clone

    def _fresh(self, preserved: dict[str, int]) -> dict[str, int]:
        return {f"meta.{name}": 0 for name, _ in self.program.metadata} | preserved | {"sm.parser_error": 0}

    def _egress(self, port: int, rid: int, sent: list[tuple[int, bytes]]) -> list[tuple]:
        """Sends or recirculates the packet; returns its clones and the recirculated packet."""
        now = self.now
        now.env |= {"sm.egress_rid": rid, "sm.egress_port": port}
        self._control(self.program.egress)
        ways: list[tuple] = []
        if "clone_e2e" in now.again:  # with the headers as they are, neither deparsed nor parsed (simple_switch.md)
            clone = deepcopy(now)
            clone.env |= self._fresh(self._field_list())
            clone.again = ""
            ways.append(("egress", clone, CLONE_PORT, 0))
        if self.program.checksum is not None:
            header, values, target = self.program.checksum
            if f"hdr.{header}" in now.valid:
                data, width = self._concatenated(values)
                now.env[target.name] = csum16(data.to_bytes(width // 8, "big"))
        frame = self._deparse()
        if "recirculate" in now.again:
            return [*ways, ("ingress", self._parse(frame, self._field_list()), 0, 0)]
        sent.append((port, frame))
        return ways

    def _field_list(self) -> dict[str, int]:
        """Values of the metadata in the field list."""
        return {name: value for name, value in self.now.env.items() if name.startswith("meta.kept")}

    def _control(self, body: tuple) -> None:
        try:
            self._run(body)
        except _Leave as leave:
            assert leave.how in ("exit", "return")

    # ---- parser and deparser

    def _parse(self, frame: bytes, preserved: dict[str, int]) -> _Pass:
        self.now = now = _Pass(frame)
        now.env = {f"meta.{name}": 0 for name, _ in self.program.metadata} | preserved
        now.next = {h.name: 0 for h in self.program.headers if h.size}
        now.rest = len(frame) * 8, int.from_bytes(frame, "big")
        error = "NoError"
        try:
            state: str | None = "start"
            while state not in ("accept", None):
                state = self._state(self._states[state])
        except _ParserError as stop:
            error = str(stop)
        now.env["sm.parser_error"] = ERRORS.index(error)
        return now

    def _state(self, state: tree.State) -> str:
        for step in state.steps:
            if isinstance(step, tree.Extract):
                self._extract(step)
            elif isinstance(step, tree.Lookahead):
                self._need(step.target.type.width)
                length, bits = self.now.rest
                value = bits >> length - step.target.type.width
                self.now.env[step.target.name] = step.target.type.wrap(value)
            elif isinstance(step, tree.Advance):
                self._take(self._eval(step.bits))
            elif isinstance(step, tree.Verify):
                if not self._eval(step.condition):
                    raise _ParserError(step.error)
            else:
                self._run((step,))
        values = [self._eval(key) for key in state.keys]
        for matches, target in state.cases:
            if all(self._selects(m, v, key.type) for m, v, key in zip(matches, values, state.keys, strict=True)):
                return target
        if state.default is None:
            raise _ParserError("NoMatch")
        return state.default

    def _selects(self, match: object, value: int, t: Type) -> bool:
        if match is None:
            return True
        if isinstance(match, str):
            return value in self._sets[match]
        if isinstance(match, int):
            return value == match
        kind, first, second = match
        return value & second == first & second if kind == "mask" else first <= value <= second

    def _need(self, width: int) -> None:
        if self.now.rest[0] < width:
            raise _ParserError("PacketTooShort")

    def _take(self, width: int) -> int:
        self._need(width)
        length, bits = self.now.rest
        self.now.rest = length - width, bits & (1 << length - width) - 1
        return bits >> length - width

    def _extract(self, step: tree.Extract) -> None:
        header, path = self._headers[step.header], f"hdr.{step.header}"
        extra = self._eval(step.length) if step.length is not None else 0
        if step.stack:
            if self.now.next[header.name] >= header.size:
                raise _ParserError("StackOutOfBounds")
            path += f"[{self.now.next[header.name]}]"
        self._need(header.width + extra)
        if extra > header.varbit:
            raise _ParserError("HeaderTooShort")
        for name, t in header.fields:
            self.now.env[f"{path}.{name}"] = t.wrap(self._take(t.width))
        self.now.varbits[path] = extra, self._take(extra)
        self._make_valid(path)
        if step.stack:
            self.now.next[header.name] += 1

    def _deparse(self) -> bytes:
        total, bits = 0, 0
        for header in self.program.headers:
            for path in self._elements(header):
                if path not in self.now.valid:
                    continue
                for name, t in header.fields:
                    total += t.width
                    bits = bits << t.width | self.now.env[f"{path}.{name}"] & (1 << t.width) - 1
                width, value = self.now.varbits.get(path, (0, 0)) if header.varbit else (0, 0)
                total, bits = total + width, bits << width | value
        length, rest = self.now.rest
        return (bits << length | rest).to_bytes((total + length) // 8, "big")

    @staticmethod
    def _elements(header: tree.Header) -> list[str]:
        return [f"hdr.{header.name}[{i}]" for i in range(header.size)] if header.size else [f"hdr.{header.name}"]

    # ---- statements

    def _run(self, body: tuple) -> None:
        for statement in body:
            getattr(self, f"_do_{type(statement).__name__.lower()}")(statement)

    def _store(self, target: Var | Slice, value: int) -> None:
        """Stores a value; writing a field of an invalid header has no effect."""
        env = self.now.env
        if isinstance(target, Slice):
            whole, mask = env.get(target.value.name, 0), (1 << target.high - target.low + 1) - 1
            value = target.value.type.wrap(whole & ~(mask << target.low) | (value & mask) << target.low)
            target = target.value
        env[target.name] = value

    def _do_assign(self, s: tree.Assign) -> None:
        self._store(s.target, self._eval(s.value))

    def _do_local(self, s: tree.Local) -> None:
        self.now.env[s.name] = self._eval(s.value)

    def _do_if(self, s: tree.If) -> None:
        self._run(s.then if self._eval(s.condition) else s.otherwise)

    def _do_switch(self, s: tree.Switch) -> None:
        value = self._eval(s.value)
        for labels, body in s.cases:
            if value in labels:
                return self._run(body)
        return self._run(s.otherwise)

    def _loop(self, values: object, name: str, body: tuple) -> None:
        for value in values:
            self.now.env[name] = value
            try:
                self._run(body)
            except _Leave as leave:
                if leave.how == "break":
                    return
                if leave.how != "continue":
                    raise

    def _do_forrange(self, s: tree.ForRange) -> None:
        low, high = self._eval(s.low), self._eval(s.high)
        self._loop(range(low, high + 1), s.name, s.body)

    def _do_forlist(self, s: tree.ForList) -> None:
        self._loop([self._eval(v) for v in s.values], s.name, s.body)

    def _do_forcount(self, s: tree.ForCount) -> None:
        self._loop(range(0, s.limit, s.step), s.name, s.body)

    def _do_leave(self, s: tree.Leave) -> None:
        raise _Leave(s.how)

    def _do_return(self, s: tree.Return) -> None:
        raise _Leave("return", self._eval(s.value))

    def _do_invoke(self, s: tree.Invoke) -> None:
        self._call(self._functions[s.name], s.args)

    def _do_apply(self, s: tree.Apply) -> None:
        table = self._tables[s.table]
        values = [self._eval(key.value) for key in table.keys]
        entry = self._lookup(table, values)
        action, data = (entry.action, entry.args) if entry else (table.default, table.default_args)
        function = self._functions[action]
        literals = [
            tree.Lit(p.type, value) for p, value in zip((p for p in function.params if not p.direction), data, strict=True)
        ]
        self._call(function, (*dict(table.bound).get(action, ()), *literals))
        for name, body in s.cases:
            if name == action:
                self._run(body)
        self._run(s.hit if entry else s.miss)

    def _lookup(self, table: tree.Table, values: list[int]) -> tree.Entry | None:
        fits = [e for e in table.entries if all(_matches(k, m, v) for k, m, v in zip(table.keys, e.match, values, strict=True))]
        prefixes = [i for i, key in enumerate(table.keys) if key.kind == "lpm"]
        if not fits or table.const and not prefixes:
            return fits[0] if fits else None
        return max(fits, key=lambda e: (e.priority, *(e.match[i][1] for i in prefixes)))

    def _do_read(self, s: tree.Read) -> None:
        self.now.env[s.target.name] = self.registers[s.register][self._eval(s.index)]

    def _do_write(self, s: tree.Write) -> None:
        index = self._eval(s.index)
        self.registers[s.register][index] = self._eval(s.value)

    def _do_count(self, s: tree.Count) -> None:
        self.counters[s.counter][self._eval(s.index)] += 1

    def _do_mark(self, s: tree.Mark) -> None:
        cell = self._meters[s.meter][self._eval(s.index)]
        self.now.env[s.target.name] = cell.mark(self._tick) if cell else 0

    def _do_setvalid(self, s: tree.SetValid) -> None:
        path = f"hdr.{s.header}"
        if path not in self.now.valid:
            self.now.varbits.pop(path, None)
        self._make_valid(path)
        for target, value in s.values:
            self._store(target, self._eval(value))

    def _do_setinvalid(self, s: tree.SetInvalid) -> None:
        self._make_invalid(f"hdr.{s.header}")

    def _do_copyheader(self, s: tree.CopyHeader) -> None:
        target, source = f"hdr.{s.target}", f"hdr.{s.source}"
        if source not in self.now.valid:
            self._make_invalid(target)
            return
        self._make_valid(target)
        for name in s.fields:
            self.now.env[f"{target}.{name}"] = self.now.env[f"{source}.{name}"]

    def _do_copyunion(self, s: tree.CopyUnion) -> None:
        for member, _ in s.members:
            self.now.valid.discard(f"hdr.{s.target}.{member}")
        for member, fields in s.members:
            if f"hdr.{s.source}.{member}" in self.now.valid:
                self._do_copyheader(tree.CopyHeader(f"{s.target}.{member}", f"{s.source}.{member}", fields))

    def _make_valid(self, path: str) -> None:
        self._make_invalid(path)
        self.now.valid.add(path)

    def _make_invalid(self, path: str) -> None:
        """Makes a header invalid and, if it is in a union, the union's others (§8.20)."""
        self.now.valid.discard(path)
        name = path.removeprefix("hdr.")
        if name in self._headers and (union := self._headers[name].union):
            self.now.valid -= {f"hdr.{h.name}" for h in self._headers.values() if h.union == union}

    def _do_push(self, s: tree.Push) -> None:
        """Moves elements by `count` (§8.18): new ones are invalid, those pushed out are lost."""
        header = self._headers[s.stack]
        paths = self._elements(header)
        old = [(p in self.now.valid, {n: self.now.env.get(f"{p}.{n}", 0) for n, _ in header.fields}) for p in paths]
        shift = s.count if s.how == "push_front" else -s.count
        for i, path in enumerate(paths):
            valid, values = old[i - shift] if 0 <= i - shift < len(paths) else (False, {})
            self.now.valid.discard(path)
            if valid:
                self.now.valid.add(path)
                self.now.env.update({f"{path}.{n}": v for n, v in values.items()})

    def _do_hash(self, s: tree.Hash) -> None:
        data, width = self._concatenated(s.values)
        digest = DIGESTS[s.algorithm](data.to_bytes(width // 8, "big"))
        self.now.env[s.target.name] = s.target.type.wrap(s.base + digest % s.limit)

    def _do_digest(self, s: tree.Digest) -> None:
        self.now.digest = tuple(self._eval(v) for v in s.values)

    def _do_errors(self, s: tree.Errors) -> None:
        self.now.env[s.target.name] = self.now.env["sm.parser_error"]

    def _do_again(self, s: tree.Again) -> None:
        if self.now.env["meta.kept_passes"] < s.most:
            self.now.env["meta.kept_passes"] += 1
            self.now.again += f" {s.how}"

    def _concatenated(self, values: tuple[Expr, ...]) -> tuple[int, int]:
        total = bits = 0
        for value in values:
            width = value.type.width
            total, bits = total + width, bits << width | self._eval(value) & (1 << width) - 1
        assert total % 8 == 0
        return bits, total

    # ---- calls

    def _call(self, function: Function, args: tuple[Expr, ...]) -> int | None:
        """Copies in from left to right, runs, copies out from left to right (§6.8), also where the body exits."""
        values = [None if p.direction == "out" else self._eval(a) for p, a in zip(function.params, args, strict=True)]
        for param, value in zip(function.params, values, strict=True):
            if value is None:  # to read it before it has a value is an error here: the language leaves it open
                self.now.env.pop(param.name, None)
            else:
                self.now.env[param.name] = value
        result, leaving = None, None
        try:
            self._run(function.body)
        except _Leave as leave:
            result, leaving = leave.value, leave if leave.how == "exit" else None
        outs = [self.now.env[p.name] for p in function.params]
        for param, arg, value in zip(function.params, args, outs, strict=True):
            if param.direction in ("out", "inout"):
                self._store(arg, value)
        if leaving is not None:
            raise leaving
        return result

    # ---- expressions

    def _eval(self, e: Expr) -> int:
        return getattr(self, f"_see_{type(e).__name__.lower()}")(e)

    def _see_lit(self, e: tree.Lit) -> int:
        return e.value

    def _see_var(self, e: Var) -> int:
        return self.now.env[e.name]

    def _see_unary(self, e: tree.Unary) -> int:
        value = self._eval(e.value)
        if e.op == "!":
            return int(not value)
        return e.type.wrap(-value if e.op == "-" else ~value)

    def _see_binary(self, e: tree.Binary) -> int:
        left = self._eval(e.left)
        if e.op == "&&":
            return int(bool(left and self._eval(e.right)))
        if e.op == "||":
            return int(bool(left or self._eval(e.right)))
        right = self._eval(e.right)
        if e.op in COMPARE:
            return int(COMPARE[e.op](left, right))
        if e.op == "++":
            width = e.right.type.width
            return e.type.wrap(left << width | right & (1 << width) - 1)
        if e.op == "<<":
            return e.type.wrap(left << right) if right < e.type.width else 0
        if e.op == ">>":
            return e.type.wrap(left >> min(right, e.type.width))
        if e.op in ("|+|", "|-|"):
            value = left + right if e.op == "|+|" else left - right
            return max(e.type.lowest, min(e.type.highest, value))
        return e.type.wrap(ARITHMETIC[e.op](left, right))

    def _see_cast(self, e: tree.Cast) -> int:
        """Truncates or extends by the sign of the source, then reads the bits as the target's type (§8.11)."""
        return e.type.wrap(self._eval(e.value))

    def _see_slice(self, e: Slice) -> int:
        return self._eval(e.value) >> e.low & (1 << e.high - e.low + 1) - 1

    def _see_choice(self, e: tree.Choice) -> int:
        return self._eval(e.left if self._eval(e.condition) else e.right)

    def _see_isvalid(self, e: tree.IsValid) -> int:
        path = f"hdr.{e.header}"
        return int(any(p == path or p.startswith(f"{path}.") for p in self.now.valid))

    def _see_item(self, e: tree.Item) -> int:
        path = f"hdr.{e.stack}[{self._eval(e.index) & e.size - 1}]"
        return self.now.env[f"{path}.{e.name}"] if path in self.now.valid else self._eval(e.other)

    def _see_call(self, e: tree.Call) -> int:
        result = self._call(self._functions[e.name], e.args)
        assert result is not None
        return result


def _matches(key: tree.Key, match: object, value: int) -> bool:
    if match is None or key.kind == "selector":
        return True
    width = key.value.type.width
    value &= (1 << width) - 1
    if key.kind == "lpm":
        shift = width - match[1]
        return value >> shift == match[0] >> shift
    if key.kind == "ternary":
        return value & match[1] == match[0] & match[1]
    if key.kind == "range":
        return match[0] <= value <= match[1]
    return value == match


COMPARE = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
ARITHMETIC = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def _words(data: bytes) -> list[int]:
    data += b"\0" * (len(data) % 2)
    return [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]


def csum16(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total = sum(_words(data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def _xor16(data: bytes) -> int:
    result = 0
    for word in _words(data):
        result ^= word
    return result


def _crc16(data: bytes) -> int:
    """CRC-16/ARC: polynomial 0x8005, reflected, from 0."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1
    return crc


DIGESTS = {
    "crc32": zlib.crc32,
    "crc16": _crc16,
    "csum16": csum16,
    "xor16": _xor16,
    "identity": lambda data: int.from_bytes(data, "big"),
}
