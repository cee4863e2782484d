"""p4c's STF: text files of control-plane commands, packets to send and packets to expect (`*.stf` in p4c's testdata).

    add TABLE [PRIORITY] KEY:VALUE ... ACTION(ARG:VALUE, ...) [= NAME]
    setdefault TABLE ACTION(ARG:VALUE, ...)
    packet PORT HEX...
    expect PORT [HEX... with `*` for any digit] [$]
    no_packet [PORT] | wait | remove all
    check_counter NAME(INDEX) [packets|bytes ==|!=|<|<=|>|>= N]
    mirroring_add SESSION PORT | mirroring_add_mc SESSION GROUP
    mc_mgrp_create GROUP | mc_node_create RID PORT... | mc_node_associate GROUP NODE
    register_write NAME INDEX VALUE | register_read NAME INDEX | register_reset NAME | counter_read NAME INDEX
    meter_set_rates NAME INDEX RATE:BURST RATE:BURST | meter_array_set_rates NAME RATE:BURST RATE:BURST   (units per
    microsecond)

and, beyond the commands of p4c's runner,

    member PROFILE ACTION(ARG:VALUE, ...) = NAME | group PROFILE MEMBER... = NAME
    add TABLE [PRIORITY] KEY:VALUE ... member(NAME) | add TABLE [PRIORITY] KEY:VALUE ... group(NAME)
    value_set NAME VALUE...
    direct_meter_set_rates TABLE ENTRY RATE:BURST RATE:BURST
    expect_digest NAME VALUE...

and the dialect of p4c's tests for Tofino: a backslash at the end of a line continues it, a semicolon there means nothing, an
action without arguments needs no parentheses, nor arguments commas, `check_counter` takes `=`, too, and

    check_register NAME(INDEX) [lo|hi][[HIGH:LOW]] =|==|!=|<|<=|>|>= N      (a leading 0 makes N octal)

where `lo` and `hi` are the values of a register of pairs, and `lo` the only one of others. Signed cells are signed numbers; for
them N, and what `register_write` writes, may be the number or its bits: -1 or 0xff of `int<8>`. Bits HIGH to LOW are unsigned.

Rules, those of p4c's runner for BMv2: names match by suffix; `$n` in a key is `[n]`, `h.$valid$` is `h.isValid()`;
omitted keys match anything (exact ones: 0); the higher priority wins; `$` demands the exact length, else a received
packet may be longer; `expect PORT` alone accepts any packets, but at least one; packets on ports that the file never
names are ignored (`no_packet PORT`, which p4c's runner lacks, names one); counters of bytes count the frame check
sequence (4 bytes) too.

`run` drives any `Target`: the interpreter, a compiled switch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import hexdigits
from typing import Generic, Protocol, TypeAlias, TypeVar

from ina.base.plurals import counted
from ina.base.settings import nearest
from ina.p4.compiler.reference.signals import InterpreterError
from ina.p4.compiler.reference.tables import TableError
from ina.p4.runtime.entity_error import EntityError
from ina.p4.tools.stf_checks import Checks
from ina.p4.tools.stf_numbers import Json, Register, StfError, number, words_of

FCS = 4  # bytes of the frame check sequence, which frames here lack
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b,
}


H = TypeVar("H")
MatchValue: TypeAlias = int | tuple[int, int]


class Target(Protocol[H]):
    """A switch under test. Names are full control-plane names from `p4info` (P4Info in JSON mapping).

    Matches by kind: exact int, ternary (value, mask), lpm (value, prefix length), range (low, high), optional int.
    """

    p4info: Json

    def insert(
        self, table: str, match: dict[str, MatchValue], action: str, args: dict[str, int], priority: int
    ) -> H:
        """Inserts an entry; returns its handle."""

    def set_default(self, table: str, action: str, args: dict[str, int]) -> None: ...

    def clear_tables(self) -> None: ...

    def send(self, port: int, frame: bytes) -> list[tuple[int, bytes]]: ...

    def set_clone_session(self, session: int, port: int | None, group: int | None) -> None: ...

    def set_multicast_group(self, group: int, replicas: list[tuple[int, int]]) -> None: ...

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        """Returns packets and bytes, without the frame check sequence."""

    def read_direct_counter(self, table: str, entry: H) -> tuple[int, int]: ...

    def read_register(self, name: str, index: int, half: int | None = None) -> int:
        """Returns the bits of a cell, of several pipes the first one's; `half`: of the value with this number in a struct."""

    def write_register(self, name: str, index: int, value: int) -> None:
        """Writes the bits of a cell that is one number."""

    def configure_meter(self, name: str, index: int, rates: list[tuple[float, int]]) -> None:
        """Configures a meter. `rates`: (units per second, burst) committed, then peak."""

    def configure_direct_meter(self, table: str, entry: H, rates: list[tuple[float, int]]) -> None: ...

    def add_member(self, profile: str, action: str, args: dict[str, int]) -> int: ...

    def add_group(self, profile: str, members: list[int]) -> int: ...

    def point(
        self,
        table: str,
        match: dict[str, MatchValue],
        *,
        member: int | None = None,
        group: int | None = None,
        priority: int = 0,
    ) -> H:
        """Inserts an entry that names a member or a group of the table's action profile."""

    def fill_value_set(self, name: str, members: list[int]) -> None: ...

    def digests(self) -> list[tuple[str, tuple[int, ...]]] | None:
        """Returns name and values of all messages so far; None if this target has no record of them."""


@dataclass(frozen=True)
class Command:
    """A command on one line: `name` in lower case, `text` the rest of the line without comment."""

    line: int
    name: str
    text: str


@dataclass
class Result:
    """The result of a file. `failures` is empty when it passed."""

    failures: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures


def read(path: Path) -> str:
    """Reads a file. Raises OSError; ValueError: it is no text."""
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors on Windows write a mark of the byte order
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {error.start} is not UTF-8") from None


def parse(text: str) -> list[Command]:
    """Returns the commands of a file, without comments (`#`) and empty lines."""
    out = []
    lines = ((at, line.split("#", 1)[0].strip()) for at, line in enumerate(text.splitlines(), 1))
    for at, line in lines:
        while line.endswith("\\"):
            line = f"{line[:-1].rstrip()} {next(lines, (0, ''))[1]}".strip()
        line = line.rstrip("; \t")
        if line:
            name, _, rest = line.partition(" ")
            name, tab, more = name.partition("\t")
            out.append(Command(at, name.lower(), (more + " " + rest if tab else rest).strip()))
    return out


def control(text: str) -> str:
    """Returns a file without what tests send and expect; lines keep their numbers."""
    return "\n".join("" if line.lstrip().lower().startswith(("packet", "expect")) else line for line in text.splitlines())


def run(text: str, target: Target[H], file: str = "") -> Result:
    """Runs a file against a target. ``file``: its name, for messages. Raises StfError for files that cannot be run."""
    return _Runner(target, file).run(parse(text))


class _Runner(Generic[H]):
    def __init__(self, target: Target[H], file: str) -> None:
        self.target = target
        self.file = file
        self.result = Result()
        self.checks = Checks(target.p4info)
        self.tables = {t["preamble"]["name"]: t for t in target.p4info.get("tables", [])}
        self.actions = {a["preamble"]["id"]: a for a in target.p4info.get("actions", [])}
        self.expected: dict[int, list[str] | None] = {}
        self.received: dict[int, list[bytes]] = {}
        self.handles: dict[str, tuple[str, H]] = {}
        self.nodes: list[tuple[int, list[int]]] = []
        self.groups: dict[int, list[tuple[int, int]]] = {}
        self.numbers: dict[tuple[str, str], int] = {}  # numbers of members and groups, by kind and name
        self.digests: list[tuple[str, tuple[int, ...]]] = []

    def run(self, commands: list[Command]) -> Result:
        for command in commands:
            place = f"{self.file}:{command.line}" if self.file else f"line {command.line}"
            handler = getattr(self, f"_do_{command.name}", None)
            if handler is None:
                verbs = sorted(name.removeprefix("_do_") for name in dir(self) if name.startswith("_do_"))
                raise StfError(f"{place}: unknown command '{command.name}'{nearest(command.name, verbs)}")
            try:
                handler(command.text)
            except (StfError, TableError, InterpreterError) as e:
                raise StfError(f"{place}: {e}") from None
            except EntityError as e:
                raise StfError(f"{place}: {str(e).removeprefix('update 0: ')}") from None
            except (ValueError, IndexError, OverflowError) as e:  # too few words, or one that is no number, or is too large
                raise StfError(f"{place}: cannot do '{command.name} {command.text}': {e}") from None
        self._compare()
        return self.result

    # --- packets --------------------------------------------------------------------------------------------------

    def _do_packet(self, text: str) -> None:
        port, _, digits = text.partition(" ")
        packet = "".join(digits.split())
        if len(packet) % 2 or set(packet) - set(hexdigits):
            raise StfError(f"a packet is pairs of hexadecimal digits, not '{digits.strip()}'")
        self._port(number(port))
        for out_port, frame in self.target.send(number(port), bytes.fromhex(packet)):
            self.received.setdefault(out_port, []).append(frame)

    def _do_expect(self, text: str) -> None:
        port, _, digits = text.partition(" ")
        pattern = "".join(digits.split()).upper()
        patterns = self._port(number(port))
        if not pattern:
            self.expected[number(port)] = None
        elif patterns is not None:
            patterns.append(pattern)

    def _port(self, port: int) -> list[str] | None:
        return self.expected.setdefault(port, [])

    def _do_no_packet(self, text: str) -> None:
        """Notes the port, so that unexpected packets there fail. Does nothing without a port: they fail anyway."""
        if text:
            self._port(number(text))

    def _do_wait(self, text: str) -> None:
        """Ignores the command: packets do not linger, and output is not checked."""

    _do_mirroring_get = _do_meter_get_rates = _do_wait

    def _compare(self) -> None:
        for port, patterns in sorted(self.expected.items()):
            frames = self.received.get(port, [])
            if patterns is None:
                if not frames:
                    self._fail(f"port {port}: expected some packet, got none")
                continue
            if len(frames) != len(patterns):
                hex_frames = ", ".join(f.hex().upper() for f in frames) or "none"
                self._fail(f"port {port}: expected {counted(len(patterns), 'packet')}, got {len(frames)}: {hex_frames}")
            for pattern, frame in zip(patterns, frames, strict=False):
                if not matches(pattern, frame):
                    self._fail(f"port {port}: expected {pattern}, got {frame.hex().upper()}")
        messages = self.target.digests() if self.digests else None
        digests = [self._digest(name, values) for name, values in messages or []]
        if messages is not None and digests != self.digests:
            self._fail(f"expected the digests {self.digests}, got {digests}")

    def _fail(self, message: str) -> None:
        self.result.failures.append(message)

    # --- tables ---------------------------------------------------------------------------------------------------

    def _do_add(self, text: str) -> None:
        head, name, args, handle = split_action(text)
        words = head.split()
        table = self.tables[by_suffix(words.pop(0), self.tables, "table")]
        priority = int(words.pop(0)) if words and words[0].isdigit() else 0
        table_name = table["preamble"]["name"]
        if ("implementationId" in table) and name in ("member", "group"):
            reference = {name: self._numbered(name, args.strip())}
            entry = self.target.point(table_name, self._match(table, words, priority), priority=priority, **reference)
        else:
            action, values = self._action(table["actionRefs"], name, args)
            self.checks.action(table_name, action, values)
            entry = self.target.insert(table_name, self._match(table, words, priority), action, values, priority)
        if handle:
            self.handles[handle] = (table_name, entry)

    def _do_setdefault(self, text: str) -> None:
        head, name, args, _ = split_action(text)
        table = self.tables[by_suffix(head.strip(), self.tables, "table")]
        table_name, (action, values) = table["preamble"]["name"], self._action(table["actionRefs"], name, args)
        self.checks.action(table_name, action, values, default=True)
        self.target.set_default(table_name, action, values)

    def _do_remove(self, text: str) -> None:
        if text.lower() != "all":
            raise StfError(f"'remove {text}': only 'remove all' is known")
        self.target.clear_tables()
        self.checks.entries.clear()

    def _action(self, refs: list[Json], name: str, args: str) -> tuple[str, dict[str, int]]:
        actions = {self.actions[r["id"]]["preamble"]["name"]: self.actions[r["id"]] for r in refs}
        full = by_suffix(name, actions, "action")
        params = {p["name"] for p in actions[full].get("params", [])}
        values = {}
        for item in filter(None, (a.strip() for a in re.split(r",|\s+(?=[\w.$]+\s*:)", args))):
            key, _, value = item.partition(":")
            if key.strip() not in params:
                raise StfError(f"action {full} has no parameter '{key.strip()}'; it has: {', '.join(sorted(params)) or 'none'}")
            values[key.strip()] = number(value.strip())
        return full, values

    def _match(self, table: Json, words: list[str], priority: int) -> dict[str, MatchValue]:
        """Parses the match of a new entry, and checks it."""
        keys = {f["name"]: f for f in table.get("matchFields", [])}
        match: dict[str, MatchValue] = {}
        for word in words:
            name, _, value = word.rpartition(":")
            key = keys[key_name(name, list(keys))]
            match[key["name"]] = match_value(key.get("matchType", "EXACT"), value)
        for name, key in keys.items():
            if name not in match and key.get("matchType") == "EXACT":
                match[name] = 0
        self.checks.entry(table["preamble"]["name"], match, priority)
        return match

    # --- action profiles, value sets, digests -----------------------------------------------------------------------

    def _do_member(self, text: str) -> None:
        head, name, args, handle = split_action(text)
        profile = self._object("actionProfiles", "action profile", head.strip())
        tables = [t for t in self.tables.values() if t["preamble"]["id"] in profile["tableIds"]]
        action, values = self._action([r for t in tables for r in t["actionRefs"]], name, args)
        self.checks.member(profile["preamble"]["name"], action, values)
        self.numbers["member", handle] = self.target.add_member(profile["preamble"]["name"], action, values)

    def _do_group(self, text: str) -> None:
        head, _, handle = text.partition("=")
        name, *members = head.split()
        numbers = [self._numbered("member", m) for m in members]
        profile = self._name("actionProfiles", "action profile", name)
        self.numbers["group", handle.strip()] = self.target.add_group(profile, numbers)

    def _object(self, section: str, kind: str, name: str) -> Json:
        """Returns an object from a section of P4Info."""
        objects: dict[str, Json] = {o["preamble"]["name"]: o for o in self.target.p4info.get(section, [])}
        return objects[by_suffix(name, objects, kind)]

    def _name(self, section: str, kind: str, name: str) -> str:
        return str(self._object(section, kind, name)["preamble"]["name"])

    def _numbered(self, kind: str, name: str) -> int:
        if (kind, name) not in self.numbers:
            names = ", ".join(n for k, n in self.numbers if k == kind)
            raise StfError(f"{kind} '{name}' is unknown; there are: {names}")
        return self.numbers[kind, name]

    def _do_value_set(self, text: str) -> None:
        name, *values = text.split()
        name, members = self._name("valueSets", "value set", name), [number(v) for v in values]
        self.checks.value_set(name, members)
        self.target.fill_value_set(name, members)

    def _do_expect_digest(self, text: str) -> None:
        name, *words = text.split()
        values, parts = [number(word) for word in words], self.checks.digest(name)
        if parts and len(values) != len(parts):
            raise StfError(f"digest {name} has {len(parts)} values, not {len(values)}")
        bits = [part.bits(v) for part, v in zip(parts, values, strict=True)] if parts else values
        self.digests.append(self._digest(name, bits))

    def _digest(self, name: str, values: Sequence[int]) -> tuple[str, tuple[int, ...]]:
        """Returns a digest with the numbers that its bits are."""
        parts = self.checks.digest(name)
        return name, tuple(part.value(v) for part, v in zip(parts, values, strict=True)) if parts else tuple(values)

    # --- replication, counters, registers -------------------------------------------------------------------------

    def _do_mirroring_add(self, text: str) -> None:
        session, port = map(number, text.split())
        self.target.set_clone_session(session, port, None)

    def _do_mirroring_add_mc(self, text: str) -> None:
        session, group = map(number, text.split())
        self._check_group(group)
        self.target.set_clone_session(session, None, group)

    def _check_group(self, group: int) -> None:
        if group not in self.groups:
            groups = ", ".join(map(str, self.groups)) or "none"
            raise StfError(f"multicast group {group} is unknown; there are: {groups} (mc_mgrp_create makes one)")

    def _do_mc_mgrp_create(self, text: str) -> None:
        self.groups[number(text)] = []
        self.target.set_multicast_group(number(text), [])

    def _do_mc_node_create(self, text: str) -> None:
        rid, *ports = map(number, text.split())
        self.nodes.append((rid, ports))

    def _do_mc_node_associate(self, text: str) -> None:
        group, node = map(number, text.split())
        self._check_group(group)
        if not 0 <= node < len(self.nodes):
            raise StfError(f"node {node} is unknown: mc_node_create has made {len(self.nodes)}, from 0")
        rid, ports = self.nodes[node]
        self.groups[group] += [(port, rid) for port in ports]
        self.target.set_multicast_group(group, self.groups[group])

    def _do_check_counter(self, text: str) -> None:
        parsed = re.fullmatch(r"([\w.$]+)\s*\(\s*([\w$]+)\s*\)\s*(?:(packets|bytes)\s*([=!<>]+)\s*(\d+))?", text)
        if parsed is None:
            raise StfError(f"cannot read 'check_counter {text}'")
        name, index, unit, operator, expected = parsed.groups()
        compare = comparison(operator or "==")
        if index in self.handles or index.lstrip("$") in self.handles:
            packets, octets = self.target.read_direct_counter(
                *self.handles.get(index) or self.handles[index.lstrip("$")]
            )
        else:
            packets, octets = self.target.read_counter(*self._cell("counters", "counter", name, index))
        value = octets + FCS * packets if unit == "bytes" else packets
        if operator and not compare(value, int(expected)):
            self._fail(f"counter {name}({index}): expected {unit} {operator} {expected}, got {value}")

    def _do_check_register(self, text: str) -> None:
        parsed = re.fullmatch(r"([\w.$]+)\s*\((-?\w+)\)\s*(lo|hi)?\s*(?:\[(\d+):(\d+)\])?\s*([=!<>]+)\s*(-?\w+)", text)
        if parsed is None:
            raise StfError(f"cannot read 'check_register {text}'")
        name, index, half, high, low, operator, expected = parsed.groups()
        compare = comparison(operator)
        register = self._register(name)
        which = register.half(half)
        bits = self.target.read_register(register.name, register.cell(index), which)
        wanted = int(expected, 8) if re.fullmatch("-?0[0-7]+", expected) else number(expected)
        if high is None:
            word = register.words[which]
            value, wanted = word.value(bits), word.value(wanted) if word.fits(wanted) else wanted
        else:
            width = int(high) - int(low) + 1
            if width < 1:
                raise StfError(f"[{high}:{low}] has no bits: the higher one is first")
            value = bits >> int(low) & (1 << min(width, bits.bit_length())) - 1
        if not compare(value, wanted):
            got = f"{value:#x}" if value >= 0 else f"{value} ({bits:#x})"
            self._fail(f"register {name}({index}): expected {operator} {expected}, got {got}")

    def _do_register_write(self, text: str) -> None:
        name, index, value = text.split()
        register = self._register(name)
        self.target.write_register(register.name, register.cell(index), register.number().bits(number(value)))

    def _do_register_read(self, text: str) -> None:
        name, index = text.split()
        register = self._register(name)
        word = register.number()
        value = word.value(self.target.read_register(register.name, register.cell(index)))
        self.result.log.append(f"{name}[{index}] = {value}")

    def _do_register_reset(self, text: str) -> None:
        register = self._register(text.strip())
        register.number()
        for index in range(register.size):
            self.target.write_register(register.name, index, 0)

    def _register(self, name: str) -> Register:
        info = self._object("registers", "register", name)
        spec = info["typeSpec"]
        words = words_of(spec, self.target.p4info.get("typeInfo", {}))
        return Register(info["preamble"]["name"], int(info.get("size", 0)), words, "struct" in spec or "tuple" in spec)

    def _do_meter_set_rates(self, text: str) -> None:
        name, index, *rates = text.split()
        self.target.configure_meter(*self._cell("meters", "meter", name, index), [meter_rate(r) for r in rates])

    def _do_meter_array_set_rates(self, text: str) -> None:
        name, *rates = text.split()
        meter = self._object("meters", "meter", name)
        for index in range(int(meter["size"])):
            self.target.configure_meter(meter["preamble"]["name"], index, [meter_rate(r) for r in rates])

    def _do_direct_meter_set_rates(self, text: str) -> None:
        name, handle, *rates = text.split()
        table = by_suffix(name, self.tables, "table")
        if handle not in self.handles:
            raise StfError(f"entry '{handle}' is unknown; there are: {', '.join(self.handles)}")
        if table != self.handles[handle][0]:
            raise StfError(f"entry '{handle}' is one of table {self.handles[handle][0]}, not of {table}")
        self.target.configure_direct_meter(table, self.handles[handle][1], [meter_rate(r) for r in rates])

    def _do_counter_read(self, text: str) -> None:
        name, index = text.split()
        value = self.target.read_counter(*self._cell("counters", "counter", name, index))
        self.result.log.append(f"{name}[{index}] = {value}")

    def _cell(self, section: str, kind: str, name: str, index: str) -> tuple[str, int]:
        """Returns the full name of a counter or meter, and the index of a cell."""
        full = self._name(section, kind, name)
        return full, self.checks.cell(section, kind, full, index)


def matches(pattern: str, frame: bytes) -> bool:
    """Returns True if a frame satisfies an `expect` pattern (upper-case hex digits, `*`, a final `$`)."""
    exact = pattern.endswith("$")
    pattern = pattern.removesuffix("$")
    digits = frame.hex().upper()
    if len(digits) < len(pattern) or (exact and len(digits) != len(pattern)):
        return False
    return all(p in ("*", d) for p, d in zip(pattern, digits, strict=False))


def split_action(text: str) -> tuple[str, str, str, str]:
    """Splits "KEYS ACTION(ARGS) = NAME" into its four parts; "KEYS ACTION" will do."""
    parsed = re.fullmatch(r"(.*?)\s*([\w.$\"]+)\s*\(([^()]*)\)\s*(?:=\s*(\S+))?", text)
    if parsed is None and "(" not in text:
        parsed = re.fullmatch(r"(.*?)\s+([A-Za-z_][\w.$\"]*)()\s*(?:=\s*(\S+))?", text)
    if parsed is None:
        raise StfError(f"expected an action with arguments in parentheses, got '{text}'")
    head, name, args, handle = parsed.groups()
    return head.replace('"', ""), name.replace('"', ""), args, handle or ""


def by_suffix(name: str, names: Collection[str], kind: str) -> str:
    """Returns the one of `names` that is `name`, or the only one that ends in it. Raises StfError."""
    name = name.strip('"')
    if name in names:
        return name
    matching = [n for n in names if n.endswith(name)]
    dotted = [n for n in matching if n.endswith("." + name)]
    if len(dotted) == 1:
        return dotted[0]
    if matching[1:]:
        raise StfError(f"{kind} '{name}' is ambiguous; there are: {', '.join(names)}")
    if not matching:
        left_out = "" if kind == "action" else "; what stands in a control or parser that the program does not use is left out"
        raise StfError(f"{kind} '{name}' is unknown; there are: {', '.join(names) or 'none'}{left_out}")
    return matching[0]


def key_name(name: str, names: list[str]) -> str:
    """Returns the match field that an STF key names: `$n` is `[n]`, `valid` or `$valid$` is `isValid()`."""
    name = re.sub(r"\$(\d+)", r"[\1]", name.strip('"'))
    plain = {n.replace(".isValid()", ".$valid$"): n for n in names}
    for alternative in (name, name + "$", name + ".$valid$", re.sub(r"\.valid$", ".$valid$", name)):
        if alternative in plain:
            return plain[alternative]
    for candidate, full in plain.items():
        ends = ("." + name, f".{name}$", f".{name}.$valid$", *(["$valid$"] if name == "valid" else []))
        if candidate.endswith(ends):
            return full
    raise StfError(f"key '{name}' is unknown; there are: {', '.join(names)}")


def comparison(operator: str) -> Callable[[int, int], bool]:
    if operator not in COMPARE:
        raise StfError(f"'{operator}' is no comparison; there are: {', '.join(COMPARE)}")
    return COMPARE[operator]


def meter_rate(text: str) -> tuple[float, int]:
    """Parses RATE:BURST, with the rate per microsecond (as in BMv2's command line), to (rate per second, burst)."""
    rate, _, burst = text.partition(":")
    value, size = float(rate) * 1e6, number(burst)
    if not 0 <= value < math.inf or size < 0:
        raise StfError(f"{text}: rates and bursts are finite and not negative")
    return value, size


def match_value(kind: str, text: str) -> MatchValue:
    """Parses the value of a key by its match kind; `*` digits make the mask or the prefix length."""
    base = {"0x": 4, "0b": 1, "0o": 3}.get(text[:2].lower())
    match kind:
        case "LPM":
            value, slash, length = text.partition("/")
            if slash:
                return number(value), number(length)
            bits = base or 4
            digits = text[2:] if base else f"{int(text):x}"
            return number((text[:2] + digits if base else "0x" + digits).replace("*", "0")), bits * (
                len(digits) - digits.count("*")
            )
        case "TERNARY":
            value, slash, mask = text.partition("&&&")
            if slash:
                return number(value), number(mask)
            if base is None:
                raise StfError(f"a ternary key takes 0x, 0o or 0b values, not '{text}'")
            full = f"{(1 << base) - 1:x}"
            mask_digits = "".join("0" if c == "*" else full for c in text[2:])
            return number(text.replace("*", "0")), number(text[:2] + mask_digits)
        case "RANGE":
            low, dots, high = text.partition("..")
            return (number(low), number(high)) if dots else (number(low), number(low))
    return number(text)
