"""Judges a program: compiled program, reference interpreter and oracle must send the same frames and end in the same state."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import tree
from .oracle import CLONE_PORT, GROUPS, Oracle
from .render import text

CFLAGS = ["-O1"]
TICK = 10**12 >> 10  # ps, from packet to packet: 1/1024 s, so that no meter rounds


@dataclass(frozen=True)
class Verdict:
    """`kind`: agree; refused: the compiler refuses a legal program; crashed: an unexpected exception;
    compiled, interpreted: only that one differs from the oracle; both: they differ from it. With BMv2:
    bmv2: it differs from the oracle; p4c: it refuses the program; left out: it is known to refuse it. `left_out`: names of
    the features removed from the program before."""

    kind: str
    text: str = ""
    left_out: frozenset[str] = frozenset()


def judge(program: tree.Program, folder: Path) -> Verdict:
    """Compiles and runs `program` with its entries and packets. Writes `folder/program.p4`."""
    from ina.p4.compiler.errors import CompileError

    path = folder / "program.p4"
    try:
        path.write_text(text(program))
        return _run(program, path)
    except CompileError as error:
        return Verdict("refused", str(error))
    except Exception:
        return Verdict("crashed", traceback.format_exc())


def _run(program: tree.Program, path: Path) -> Verdict:
    from ina.p4.compiler import frontend
    from ina.p4.compiler.build import compile_program
    from ina.p4.compiler.reference.interpreter import CloneSession, Interpreter
    from ina.p4.compiler.reference.values import to_bits
    from ina.p4.runtime import Switch
    from ina.p4.runtime.entities import CloneSessionEntry, MeterConfig, MeterEntry, MulticastGroupEntry, Replica, insert, modify

    oracle, interpreter = Oracle(program), Interpreter(frontend.load(path))
    interpreter.clone_sessions[1] = CloneSession(CLONE_PORT, None)
    meters = [
        (f"I.{m.name}", i, (1024.0 * cell[0], cell[1], 1024.0 * cell[2], cell[3]))
        for m in program.meters
        for i, cell in enumerate(m.cells)
        if cell
    ]
    for name, i, cell in meters:
        interpreter.meters[name].configure(i, *cell)
    for table in program.tables:
        members: dict[tuple, int] = {}
        for e in () if table.const else table.entries:
            match = entry_match(table, e)
            if not table.profile:
                interpreter.tables[table.name].insert(match, e.action, list(e.args), e.priority)
                continue
            profile = interpreter.profiles[f"profile_{table.name}"]
            target = group_or_member(
                e, members, lambda e, profile=profile: profile.add_member(e.action, list(e.args)), profile.add_group
            )
            interpreter.tables[table.name].insert(match, priority=e.priority, **target)
    for name, _, members in program.sets:
        for member in members:
            interpreter.value_sets[name].insert(member)
    for number, replicas in GROUPS.items():
        interpreter.multicast_groups[number] = list(replicas)
    compiled = compile_program(path, cflags=CFLAGS)
    # A state that is never entered may have a value set, and `if (false)` a table.
    reached = {layout["name"] for kind in ("value_sets", "tables") for layout in compiled.layout[kind]}
    with Switch(compiled.so_path) as switch:
        for port in range(16):
            switch.add_port(port)
        switch.write(insert(CloneSessionEntry(1, (Replica(CLONE_PORT, 0),))))
        switch.write(insert(*(MulticastGroupEntry(n, tuple(Replica(*r) for r in replicas)) for n, replicas in GROUPS.items())))
        switch.write(_updates(program, reached))
        switch.write(modify(*(MeterEntry(name, i, MeterConfig(*cell)) for name, i, cell in meters)))
        received: list[tuple[int, ...]] = []
        for number, (port, frame) in enumerate(program.packets):
            now = number * TICK
            expected = sorted(oracle.process(frame, number))
            answers = {
                "compiled": sorted(switch.step(frame, port, now)),
                "interpreted": sorted(interpreter.process(frame, port, now)),
            }
            for (name, t, _), at in ((r, f"I.{r[0]}") for r in program.registers):
                cells = oracle.registers[name]
                states = {
                    "compiled": [t.wrap(int(v)) for v in switch.register(at)],
                    "interpreted": [
                        t.wrap(to_bits(v, interpreter.registers[at].type)[1]) for v in interpreter.registers[at].values
                    ],
                }
                for side, state in states.items():
                    answers[side] = answers[side] + [(name, tuple(state))]
                expected = expected + [(name, tuple(cells))]
            if program.digest:
                expected = expected + [("digests", tuple(oracle.digests))]
                received += [
                    tuple(t.wrap(v) for t, v in zip(program.digest, d.fields.values(), strict=True)) for d in switch.digests()[0]
                ]
                answers["compiled"] = answers["compiled"] + [("digests", tuple(received))]
                digests = tuple(tuple(map(int, d.values)) for d in interpreter.digests)
                answers["interpreted"] = answers["interpreted"] + [("digests", digests)]
            for name, _ in program.counters:
                expected = expected + [(name, tuple(oracle.counters[name]))]
                answers["compiled"] = answers["compiled"] + [(name, tuple(int(c[0]) for c in switch.counter(f"I.{name}")))]
                answers["interpreted"] = answers["interpreted"] + [(name, tuple(interpreter.counters[f"I.{name}"].packets))]
            differing = [side for side, answer in answers.items() if answer != expected]
            if differing:
                lines = [f"packet {number}: {frame.hex()} into port {port}", f"    oracle       {show(expected)}"]
                lines += [f"    {side:<12} {show(answer)}" for side, answer in answers.items()]
                return Verdict(differing[0] if len(differing) == 1 else "both", "\n".join(lines))
    return Verdict("agree")


def show(answer: list) -> str:
    return ", ".join(f"{a}: {b.hex() if isinstance(b, bytes) else b}" for a, b in answer) or "nothing"


def entry_match(table: tree.Table, entry: tree.Entry) -> dict:
    return {
        k.name: bool(m) if k.value.type.kind == "bool" else m
        for k, m in zip(table.keys, entry.match, strict=True)
        if m is not None
    }


def group_or_member(
    entry: tree.Entry, members: dict[tuple, int], add_member: Callable[[tree.Entry], int], add_group: Callable[[list[int]], int]
) -> dict[str, int]:
    """Group or member that an entry of a table with an action profile names, created if new. `members`: by action and data."""
    key = entry.action, entry.args
    if entry.group:  # its members belong to it alone
        return {"group": add_group([add_member(entry) for _ in range(entry.group)])}
    if key not in members:
        members[key] = add_member(entry)
    return {"member": members[key]}


def _updates(program: tree.Program, reached: set[str]) -> list:
    from ina.p4.runtime.entities import ProfileGroup, ProfileMember, TableEntry, Update, ValueSetEntry, insert

    actions = {a.name: a for a in program.actions}
    entries: list = []

    def data(e: tree.Entry) -> dict[str, int]:
        names = [p for p in actions[e.action].params if not p.direction]
        return {p.name: value & (1 << p.type.width) - 1 for p, value in zip(names, e.args, strict=True)}

    for table in program.tables:
        members: dict[tuple, int] = {}
        counts: Counter[str] = Counter()
        profile = f"I.profile_{table.name}"

        def member(e: tree.Entry, profile: str = profile, counts: Counter[str] = counts) -> int:
            counts["members"] += 1
            entries.append(ProfileMember(profile, counts["members"], f"I.{e.action}", data(e)))
            return counts["members"]

        def group(numbers: list[int], profile: str = profile, counts: Counter[str] = counts) -> int:
            counts["groups"] += 1
            entries.append(ProfileGroup(profile, counts["groups"], tuple((m, 1) for m in numbers)))
            return counts["groups"]

        for e in () if table.const or f"I.{table.name}" not in reached else table.entries:
            match = {name: int(m) if isinstance(m, bool) else m for name, m in entry_match(table, e).items()}
            if table.profile:
                target = group_or_member(e, members, member, group)
                entries.append(TableEntry(f"I.{table.name}", match, priority=e.priority, **target))
            else:
                entries.append(TableEntry(f"I.{table.name}", match, f"I.{e.action}", data(e), e.priority))
    sets = [Update("MODIFY", ValueSetEntry(f"P.{name}", members)) for name, _, members in program.sets if f"P.{name}" in reached]
    return [*insert(*entries), *sets]
