"""The report of a counter-example by `ina p4 equal`, and the STF files with which `ina stf` repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ina.p4.tools.equal import control
from ina.p4.tools.equal.comparison import Difference, Twins
from ina.p4.tools.equal.control import Call, Json
from ina.p4.tools.equal.packets import Packet
from ina.p4.tools.equal.shapes import Header
from ina.p4.tools.equal.sides import Answer
from ina.p4.tools.explain import runs

ROW = 32  # bytes of a frame in a line


def lines(twins: Twins, packets: Sequence[Packet], difference: Difference) -> Iterator[str]:
    """Yields each packet with its fields, each program's answer, and the first difference."""
    twins.reset()
    for number, packet in enumerate(packets):
        a, b = twins.send(packet)
        yield f"packet {number + 1} into port {packet.port}, {len(packet.frame)} bytes"
        yield from (f"    {line}" for line in shown(packet.frame, twins.shapes.walk(packet.frame)))
        if twins.differ(packet, a, b) is None:
            yield f"  A and B: {'; '.join(_brief(a)) or 'nothing'}"
        else:
            yield from _answer("A", twins, packet, a)
            yield from _answer("B", twins, packet, b)
    yield f"first difference: packet {difference.packet + 1}: {difference.text}"


def _brief(answer: Answer) -> Iterator[str]:
    for port, frames in answer.sent:
        yield from (f"port {port}, {len(frame)} bytes" for frame in frames)
    yield from (f"digest {name}{values}" for name, values in answer.digests)


def _answer(name: str, twins: Twins, packet: Packet, answer: Answer) -> Iterator[str]:
    if not any(_brief(answer)):
        yield f"  {name}: nothing"
    for port, frames in answer.sent:
        for frame in frames:
            yield f"  {name}: port {port}, {len(frame)} bytes"
            yield from (f"    {line}" for line in shown(frame, twins.headers(frame, packet)))
    yield from (f"  {name}: digest {digest}{values}" for digest, values in answer.digests)


def shown(frame: bytes, headers: Iterable[Header]) -> Iterator[str]:
    """Yields a frame in hexadecimal digits, repeated lines as one `*`; then its fields."""
    before, starred = "", False
    for row in (frame[at : at + ROW].hex() for at in range(0, len(frame), ROW)):
        if row != before:
            yield row
        elif not starred:
            yield "*"
        before, starred = row, row == before
    yield from fields(headers, frame)


def fields(headers: Iterable[Header], frame: bytes) -> Iterator[str]:
    """Yields headers with their fields that are not 0; numbered neighbours with the same value as one."""
    end = 0
    for header in headers:
        end = header.offset + header.width
        words = []
        for run in runs([(f.name, f.get(frame)) for f in header.fields]):
            name, value = run[0]
            if value:
                words.append(f"{name if len(run) == 1 else f'{name}..{run[-1][0]}'}={value:#x}")
        yield f"{header.path}: {' '.join(words) or 'all 0'}"
    if rest := frame[end // 8 :]:
        yield f"payload: {rest[:ROW].hex()}{f' ... {len(rest) - ROW} more' if len(rest) > ROW else ''}"


def stf(calls: Iterable[Call], p4info: Json, twins: Twins, packets: Sequence[Packet], *, first: bool,
        difference: Difference) -> str:
    """Returns a test of one of the programs that expects the first one's answers. `first`: of the first program, with its port
    numbers; else of the second."""
    ports = {} if first else twins.rules.ports
    out = [*control.lines(calls, p4info), ""]
    twins.reset()
    outputs = set()
    for number, packet in enumerate(packets):
        a, b = twins.send(packet)
        out += [f"# packet {number + 1}", f"packet {ports.get(packet.port, packet.port)} {packet.frame.hex()}"]
        for port, frames in a.sent:
            out += [f"expect {ports.get(port, port)} {frame.hex()} $" for frame in frames]
        if twins.rules.digests:
            out += [f"expect_digest {_digest_name(name, p4info)} {' '.join(map(str, values))}" for name, values in a.digests]
        outputs |= {port for answer in (a, b) for port, _ in answer.sent}
    out += [f"no_packet {ports.get(port, port)}  # but what is expected" for port in sorted(outputs)]
    kind, _, name = difference.kind.partition(" ")
    pair = next((p for p in twins.rules.counters if kind == "counter" and p[0].rpartition(".")[2] == name), None)
    if pair is not None:
        ours, theirs = twins.a.counter(pair[0]), twins.b.counter(pair[1])
        out += [f"check_counter {pair[0 if first else 1]}({i}) packets == {n}" for i, n in enumerate(ours)
                if i < len(theirs) and n != theirs[i]]
    pair = next((p for p in twins.rules.registers if kind == "register" and p[0].rpartition(".")[2] == name), None)
    if pair is not None:
        out.append(f"# the cells that differ are printed by:  register_read {pair[0 if first else 1]} INDEX")
    return "\n".join(out) + "\n"


def _digest_name(digest: str, p4info: Json) -> str:
    """Returns the name of the first program's digest in either: the same name, or the only one that there is."""
    names = [d["preamble"]["name"] for d in p4info.get("digests", [])]
    last = [n for n in names if n.rpartition(".")[2] == digest.rpartition(".")[2]]
    return digest if digest in names else (last or names or [digest])[0]


def command(program: Path, test: Path, defines: dict[str, str], includes: Sequence[Path]) -> str:
    more = [f"-D {shlex.quote(f'{name}={value}')}" for name, value in defines.items()]
    more += [f"-I {shlex.quote(str(folder))}" for folder in includes]
    return " ".join([f"ina stf {shlex.quote(str(program))} {shlex.quote(str(test))}", *more])
