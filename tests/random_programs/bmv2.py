"""BMv2 as one more judge: simple_switch, with the JSON of p4c, must send the oracle's frames and end in its state.

Features that BMv2 is known to treat otherwise are removed from the program before (adapt.py); programs that p4c is known to
refuse match `REFUSED`. Neither hides anything: both are part of the verdict, and are counted.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from . import tree
from .adapt import SHORTEST, adapt
from .judge import Verdict, entry_match, group_or_member, show
from .oracle import CLONE_PORT, GROUPS, Oracle
from .render import text

sys.path.insert(0, str(Path(__file__).parents[1]))
import folders  # noqa: E402, F401  (the tests' helpers for BMv2)

REFUSED = {  # a regular expression of the message of p4c or simple_switch: the reason
    "Action .* needs . parameters": "p4c makes several actions of one name, which the command-line client cannot tell apart",
    "Invalid entry in parse state key": "a select's key that p4c knows beforehand: simple_switch does not load its JSON",
}


NEEDS = ("p4c", "bmv2", "netns")  # capabilities (tests/capabilities.py)


def missing() -> str:
    """Reason why BMv2 cannot judge here; "" if it can."""
    from capabilities import PROBES

    return next(filter(None, (PROBES[capability]() for capability in NEEDS)), "")


def judge_bmv2(program: tree.Program, folder: Path) -> Verdict:
    """Runs the adapted program in BMv2. Writes `folder/bmv2.p4`. A difference counts only if it repeats with longer
    waits: packets that come back into the switch may fall behind the next one from outside."""
    from bmv2_switch import Bmv2Error
    from bmv2_target import compile_sample

    names: frozenset[str] = frozenset()
    try:
        program, names = adapt(program)
        path = folder / "bmv2.p4"
        path.write_text(text(program))
        config, info = compile_sample(path, folder)
        for patience, pause in ((1.0, 0.0), (5.0, 0.2)):
            problem, short = _play(program, config, info, patience, pause)
            if short:
                names |= {"short frames"}
            if not problem:
                return Verdict("agree", "", names)
        return Verdict("bmv2", problem, names)
    except (Bmv2Error, subprocess.TimeoutExpired) as error:
        reason = next((name for pattern, name in REFUSED.items() if re.search(pattern, str(error))), "")
        return Verdict("left out" if reason else "p4c", reason or str(error), names)
    except Exception:  # shrinking tries programs that cannot be rendered
        return Verdict("crashed", traceback.format_exc(), names)


def _play(program: tree.Program, config: Path, info: dict, patience: float, pause: float) -> tuple[str, bool]:
    """Sends the packets; returns (difference between BMv2 and the oracle or "", whether frames were too short to leave BMv2)."""
    from bmv2_target import Bmv2Target

    oracle, short = Oracle(program), False
    target = Bmv2Target(config, info)
    try:
        prepare(program, target)
        late: list[tuple[int, bytes]] = []
        for number, (port, frame) in enumerate(program.packets):
            all_expected = sorted(oracle.process(frame, number))
            expected = [(out, data) for out, data in all_expected if len(data) >= SHORTEST]
            short = short or len(expected) < len(all_expected)
            frames = target.switch.exchange(frame, port, len(expected), patience)
            time.sleep(pause)
            last = number == len(program.packets) - 1
            late = target.switch.exchange(b"", 0, 1, 0.05 if last else 0.0)
            if not target.switch.alive:
                return f"packet {number}: {frame.hex()} into port {port}: simple_switch ended", short
            if sorted(frames + late) != expected:
                lines = [f"packet {number}: {frame.hex()} into port {port}", f"    oracle       {show(expected)}"]
                return "\n".join([*lines, f"    bmv2         {show(sorted(frames + late))}"]), short
        return _state(program, oracle, target), short
    finally:
        target.close()


def prepare(program: tree.Program, target: Any) -> None:
    actions = {a.name: a for a in program.actions}
    for number, replicas in GROUPS.items():
        target.set_multicast_group(number, replicas)
    target.set_clone_session(1, CLONE_PORT, None)

    def args(e: tree.Entry) -> dict[str, int]:
        data = [p for p in actions[e.action].params if not p.direction]
        return {p.name: value & (1 << p.type.width) - 1 for p, value in zip(data, e.args, strict=True)}

    for table in program.tables:
        name, profile, members = f"I.{table.name}", f"I.profile_{table.name}", {}
        for e in () if table.const else table.entries:
            if not target.has(name, f"I.{e.action}"):
                continue
            match = {name: int(m) if isinstance(m, bool) else m for name, m in entry_match(table, e).items()}
            if not table.profile:
                target.insert(name, match, f"I.{e.action}", args(e), e.priority)
                continue
            target_of = group_or_member(
                e,
                members,
                lambda e, profile=profile: target.add_member(profile, f"I.{e.action}", args(e)),
                lambda numbers, profile=profile: target.add_group(profile, numbers),
            )
            target.point(name, match, priority=e.priority, **target_of)


def _state(program: tree.Program, oracle: Oracle, target: Any) -> str:
    """Registers of up to 63 bits (BMv2's client shows no more) and counters, without those that p4c has removed."""
    there = target.switch.program
    registers, counters = ({a["name"] for a in there[kind]} for kind in ("register_arrays", "counter_arrays"))
    for name, t, _ in program.registers:
        if t.width < 64 and f"I.{name}" in registers:
            values = [t.wrap(v) for v in target.read_registers(f"I.{name}")]
            if values != oracle.registers[name]:
                return f"register {name}: oracle {oracle.registers[name]}, bmv2 {values}"
    for name, size in program.counters:
        if f"I.{name}" in counters:
            packets = target.switch.counter(f"I.{name}", size)
            if packets != oracle.counters[name]:
                return f"counter {name}: oracle {oracle.counters[name]}, bmv2 {packets}"
    return ""
