"""Packet tests of a step: STF files (ina/p4/tools/stf_file.py), compared packet by packet, so that a failure is one packet's.

An `expect` belongs to the `packet` above it: all that leaves because of that packet must be expected there, and is compared port
by port. Comments carry the words for students:

    # hint: what to look at if a packet from here on fails     (further lines: `#   more of it`)
    # what this packet is                                      (the lines right above `packet`)

The first comment of a file is the test's title. Other commands run where they stand; those of multicast groups stand together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ina.base.plurals import counted
from ina.lab.course import frames
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.compiled import CompiledProgram
from ina.p4.runtime.entity_error import EntityError
from ina.p4.tools import stf_file as stf
from ina.p4.tools import trace
from ina.p4.tools.stf_numbers import StfError, number
from ina.p4.tools.stf_target import CompiledTarget

NAMES = "tables, actions, registers and counters keep the names that the skeleton has; one that is never used is left out"

ENDLESS = ("the program has no end with this packet: a loop, or states of the parser that take nothing off the packet",
           "    expected a transition to accept, to reject, or to a state that extracts")
LONGEST = 300  # characters of a line of a trace


@dataclass
class Exchange:
    """A packet and all that must leave because of it, as (port, pattern); or, with ``commands``, STF that runs in between.

    `line`: of the file. `words`: the comment above it. `hint`: the one that holds there.
    """

    line: int
    words: str
    hint: str
    port: int = 0
    frame: bytes = b""
    expected: list[tuple[int, str]] = field(default_factory=list)
    commands: str = ""


@dataclass(frozen=True)
class Failure:
    """A failed test, in lines for a student: the `message`, what to look at (`hint`), and the packet's `trace`, step by step."""

    place: str
    message: Sequence[str]
    hint: str
    trace: Sequence[str] = ()


@dataclass(frozen=True)
class Case:
    """A packet test: an STF file. Each runs on a switch of its own."""

    path: Path
    title: str
    exchanges: Sequence[Exchange]


def load(path: Path) -> Case:
    """Reads a test. Raises StfError (what is no test), OSError."""
    text = stf.read(path)
    lines = text.splitlines()
    commands = {command.line: command for command in stf.parse(text)}
    title, hint, comments = "", "", False
    words: list[str] = []
    exchanges: list[Exchange] = []
    for at, line in enumerate(lines, 1):
        command = commands.get(at)
        if command is None and line.strip() and not line.lstrip().startswith("#"):
            continue  # of the command above, which a backslash continues
        if command is None:
            comment = line.strip().removeprefix("#").strip()
            if not comment:
                words, comments = [], False
            elif comment.startswith("hint:"):
                hint, comments = comment.removeprefix("hint:").strip(), True
            elif comments:
                hint += f" {comment}"
            else:
                title = title or comment
                words.append(comment)
            continue
        comments = False
        port, _, digits = command.text.partition(" ")
        if command.name == "packet":
            try:
                exchanges.append(Exchange(at, " ".join(words), hint, number(port), bytes.fromhex(digits)))
            except ValueError as error:
                raise StfError(f"{path}:{at}: cannot read the packet: {error}") from None
        elif command.name == "expect":
            if not exchanges or exchanges[-1].commands:
                raise StfError(f"{path}:{at}: expected a packet before what it makes leave")
            exchanges[-1].expected.append((number(port), "".join(digits.split())))
        elif exchanges and exchanges[-1].commands and exchanges[-1].hint == hint:
            exchanges[-1].commands += f"\n{command.name} {command.text}"
        else:
            exchanges.append(Exchange(at, " ".join(words), hint, commands=f"{command.name} {command.text}"))
        words = []
    if not title or all(exchange.commands for exchange in exchanges):
        raise StfError(f"{path}: expected a comment with the test's title, and packets")
    return Case(path, title, exchanges)


def run(case: Case, compiled: CompiledProgram, checked: CheckedProgram) -> Failure | None:
    """Runs a test on a compiled switch of its own; ``checked``, the same program, traces the packet that fails, if one does.
    Returns the first failure. Raises OSError."""
    target, sent = CompiledTarget(compiled), 0
    with target.switch:
        for exchange in case.exchanges:
            place = f"{case.path.name}:{exchange.line}"
            if exchange.commands:
                try:
                    problems = stf.run(exchange.commands, target).failures
                except (StfError, EntityError) as error:
                    problems = [f"the test cannot use the program: {_without_line(str(error))}", NAMES]
                if problems:
                    return Failure(place, [_told(exchange), *problems], exchange.hint)
                continue
            sent += 1
            left = target.send(exchange.port, exchange.frame)
            problems = _compare(exchange.expected, left)
            if target.switch.port_stats(exchange.port).drops["loop_limit"]:
                problems = [*ENDLESS, *problems]
            if problems:
                return Failure(place, [_told(exchange), *_sent(exchange, sent), *problems], exchange.hint,
                               _trace(case, sent, checked))
    return None


def _without_line(message: str) -> str:
    return message.split(": ", 1)[1] if message.startswith("line ") else message


def _told(exchange: Exchange) -> str:
    return exchange.words or exchange.commands.replace("\n", "; ")


def _sent(exchange: Exchange, position: int) -> list[str]:
    return [f"packet {position} into port {exchange.port}: {frames.words(exchange.frame)}", f"    {exchange.frame.hex()}"]


def _compare(expected: Sequence[tuple[int, str]], left: Sequence[tuple[int, bytes]]) -> list[str]:
    """Returns what is wrong with the frames that left, in lines; nothing if they are as expected."""
    ports = sorted({port for port, _ in expected} | {port for port, _ in left})
    wrong: list[str] = []
    for port in ports:
        patterns, got = [p for q, p in expected if q == port], [f for q, f in left if q == port]
        wrong += _compare_port(port, patterns, got)
    if wrong and not left:
        wrong.append("the packet was dropped: nothing left")
    return wrong


def _compare_port(port: int, patterns: Sequence[str], got: Sequence[bytes]) -> list[str]:
    if len(patterns) == len(got) and all(stf.matches(p.upper(), f) for p, f in zip(patterns, got, strict=True)):
        return []
    lines = []
    for i in range(max(len(patterns), len(got))):
        pattern, frame = patterns[i : i + 1], got[i : i + 1]
        if pattern and frame and stf.matches(pattern[0].upper(), frame[0]):
            continue
        wanted = frames.words(bytes.fromhex(pattern[0].rstrip("$").replace("*", "0"))) if pattern else ""
        free = ", where * stands for any digit" if pattern and "*" in pattern[0] else ""
        lines.append(f"out of port {port}: expected {wanted or 'nothing'}{free}")
        lines += [f"    {pattern[0]}"] if pattern else []
        lines.append(f"out of port {port}: got {frames.words(frame[0]) if frame else 'nothing'}")
        lines += [f"    {frame[0].hex()}"] if frame else []
        if pattern and frame:
            lines += [f"  {line}" for line in frames.differences(pattern[0], frame[0])]
    if len(got) > len(patterns) > 0:
        lines.append(f"out of port {port}: expected {counted(len(patterns), 'frame')}, got {len(got)}")
    return lines


def _trace(case: Case, last: int, program: CheckedProgram) -> list[str]:
    """Returns the trace of packet number `last` (from 1), on the interpreter, after those before it."""
    places = [at for at, exchange in enumerate(case.exchanges) if not exchange.commands]
    done = case.exchanges[: places[last - 1] + 1]  # commands behind it may ask for what the program does not have
    tracer = trace.Tracer(program, "\n".join(exchange.commands for exchange in done), str(case.path))
    lines: list[str] = []
    for position, exchange in enumerate((each for each in done if not each.commands), 1):
        lines = list(tracer.packet(position, exchange.frame, exchange.port, position / 1000))
    return [line if len(line) <= LONGEST else f"{line[:LONGEST]} ..." for line in lines]
