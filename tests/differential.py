"""Random table entries and packets for any program, the same for every target (`ina.p4.tools.stf_file.Target`).

Entries come from a pool of small and extreme values and of the constants that the program compares with, so that some of
them match; packets are those of the program's STF test, if any, with bytes changed, and strings of the pool.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.types import fixed_width
from ina.p4.tools import stf_file as stf

GROUPS = {1: [(1, 0), (2, 1), (3, 5)], 2: [(4, 7)], 3: [(0, 1), (0, 2)]}
SESSIONS = (*range(1, 13), 32, 64, 99, 100, 250, 300, 500)
ALPHABET = bytes([0, 0, 0, 1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 64, 127, 128, 200, 255])
SHORTEST = 14  # bytes that an Ethernet interface accepts
TAGS, SHORTEST_TAGGED = (b"\x81\x00", b"\x88\xa8"), 20  # Linux drops shorter frames with a VLAN tag


@dataclass
class Scenario:
    """`entries`: (table, match, action, arguments, priority)."""

    defaults: list[tuple[str, str, dict[str, int]]] = field(default_factory=list)
    entries: list[tuple[str, dict[str, Any], str, dict[str, int], int]] = field(default_factory=list)
    packets: list[tuple[int, bytes]] = field(default_factory=list)


def constants(program: CheckedProgram) -> list[tuple[int, int]]:
    """Constants that parsers select on, as (value, width)."""
    values = []
    for parser in (d for d in program.declarations if isinstance(d, ast.ParserDecl)):
        for state in parser.state_list:
            for case in state.transition.cases if state.transition is not None else ():
                for key in case.keys:
                    key = key.value if isinstance(key, ast.Mask) else key
                    width = fixed_width(key.type) if key.type is not None else None
                    if isinstance(key.const, int) and width:
                        values.append((int(key.const) & (1 << width) - 1, width))
    return values


def scenario(
    info: dict[str, Any], program: CheckedProgram, test: str, rng: random.Random, supports: Any, count: int
) -> Scenario:
    """A random scenario. `supports(table, action)`: the other switch has both; `count`: number of packets."""
    seeds = [c.text.partition(" ") for c in stf.parse(test) if c.name == "packet"]
    frames = [(int(port), bytes.fromhex("".join(digits.split()))) for port, _, digits in seeds]
    pool = constants(program)
    result = Scenario()
    actions = {a["preamble"]["id"]: a for a in info.get("actions", [])}
    translated = {n for n, t in info["typeInfo"].get("newTypes", {}).items() if "translatedType" in t}
    for table in info.get("tables", []):
        _table(result, table, actions, translated, rng, supports, pool, frames)
    for _ in range(count):
        result.packets.append(_packet(frames, pool, rng))
    return result


def _table(
    result: Scenario, table: dict[str, Any], actions: dict[int, Any], translated: set[str], rng: random.Random, supports: Any,
    pool: list[tuple[int, int]], frames: list[tuple[int, bytes]],
) -> None:
    name, keys = table["preamble"]["name"], table.get("matchFields", [])
    if "implementationId" in table or any("otherMatchType" in k or not 0 < k.get("bitwidth", 0) <= 128 for k in keys):
        return
    if any(k.get("typeName", {}).get("name") in translated for k in keys):
        return

    def choose(scope: str) -> tuple[str, dict[str, int]] | None:
        usable = [actions[r["id"]] for r in table["actionRefs"] if r.get("scope") != scope]
        usable = [a for a in usable if supports(name, a["preamble"]["name"]) and _plain(a, translated)]
        if not usable:
            return None
        action = rng.choice(usable)
        args = {p["name"]: _argument(p, rng) for p in action.get("params", [])}
        return action["preamble"]["name"], args

    if "constDefaultActionId" not in table and rng.random() < 0.3 and (call := choose("TABLE_ONLY")):
        result.defaults.append((name, *call))
    if not keys or table.get("isConstTable") or table.get("hasInitialEntries"):
        return
    seen = set()
    for i in range(min(rng.choice([1, 4, 12]), int(table["size"]))):
        match = {k["name"]: _match(k, rng, pool, frames) for k in keys}
        match = {k: m for k, m in match.items() if m is not None}
        call = choose("DEFAULT_ONLY")
        if call and str(match) not in seen:
            seen.add(str(match))
            result.entries.append((name, match, *call, i + 1))


def _plain(action: dict[str, Any], translated: set[str]) -> bool:
    params = action.get("params", [])
    return all(p.get("bitwidth") and p.get("typeName", {}).get("name") not in translated for p in params)


def _argument(param: dict[str, Any], rng: random.Random) -> int:
    width = int(param["bitwidth"])
    if width == 9:
        return rng.randrange(8)
    return rng.choice([0, 1, 2, 3, rng.getrandbits(width), (1 << width) - 1]) & (1 << width) - 1


def _value(width: int, rng: random.Random, pool: list[tuple[int, int]], frames: list[tuple[int, bytes]]) -> int:
    kind = rng.random()
    if kind < 0.3:
        value = rng.choice([0, 0, 1, 1, 2, 3, 5, 8, (1 << width) - 1])
    elif kind < 0.5 and pool:
        value = rng.choice(pool)[0]
    elif kind < 0.8 and frames and width % 8 == 0:
        frame = rng.choice(frames)[1]
        at = rng.randrange(max(1, len(frame) - width // 8))
        value = int.from_bytes(frame[at : at + width // 8], "big")
    else:
        value = int.from_bytes(rng.choices(ALPHABET, k=(width + 7) // 8), "big")
    return value & (1 << width) - 1


def _match(key: dict[str, Any], rng: random.Random, pool: Any, frames: Any) -> Any:
    width = int(key["bitwidth"])
    value, full = _value(width, rng, pool, frames), (1 << width) - 1
    match key["matchType"]:
        case "LPM":
            length = rng.choice([0, width // 2, width - 1, width, rng.randint(0, width)])
            return value & full << (width - length) & full, length
        case "TERNARY":
            mask = rng.choice([0, 1, full, full, full >> 1, rng.getrandbits(width)])
            return (value & mask, mask) if mask else None
        case "RANGE":
            return tuple(sorted((value, _value(width, rng, pool, frames))))
        case "OPTIONAL":
            return rng.choice([None, value, value])
    return value


def _packet(frames: list[tuple[int, bytes]], pool: list[tuple[int, int]], rng: random.Random) -> tuple[int, bytes]:
    if frames and rng.random() < 0.8:
        port, frame = rng.choice(frames)
        frame = bytearray(frame)
    else:
        port, frame = 0, bytearray(rng.choices(ALPHABET, k=rng.choice([20, 40, 64, 100])))
    for _ in range(rng.choice([0, 0, 1, 2, 5])):
        if frame:
            frame[rng.randrange(len(frame))] = rng.choice(ALPHABET)
    words = [(v, w) for v, w in pool if w % 8 == 0 and w <= 64]
    if words and rng.random() < 0.5:
        value, width = rng.choice(words)
        at = rng.choice([12, rng.randrange(max(1, len(frame)))])
        frame[at : at + width // 8] = value.to_bytes(width // 8, "big")
    if rng.random() < 0.1:
        del frame[rng.randrange(len(frame) + 1) :]
    if rng.random() < 0.5:
        frame += bytes(rng.choices(ALPHABET, k=rng.randrange(30)))
    frame += bytes(max(0, SHORTEST_TAGGED + rng.randrange(4) - len(frame)))
    return rng.choice([port % 8, rng.randrange(8)]), bytes(frame)


def prepare(target: stf.Target, plan: Scenario) -> None:
    """Writes multicast groups, clone sessions, default actions and entries."""
    for group, replicas in GROUPS.items():
        target.set_multicast_group(group, replicas)
    for session in SESSIONS:
        target.set_clone_session(session, session % 8, None)
    for table, action, args in plan.defaults:
        target.set_default(table, action, args)
    for entry in plan.entries:
        target.insert(*entry)


def by_port(frames: Iterator[tuple[int, bytes]] | list[tuple[int, bytes]]) -> dict[int, list[str]]:
    """Frames of each port as hexadecimal digits, in order, without those that an Ethernet interface does not accept."""
    out: dict[int, list[str]] = {}
    for port, frame in frames:
        if port < 8 and len(frame) >= (SHORTEST_TAGGED if frame[12:14] in TAGS else SHORTEST):
            out.setdefault(port, []).append(frame.hex())
    return dict(sorted(out.items()))
