"""The task of `ina p4 equal`, from its arguments: the programs, the entries of both, and the material for packets."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ina.base import paths
from ina.p4.compiler import ast, frontend
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.front.preprocess import macros
from ina.p4.compiler.p4info import p4info
from ina.p4.runtime.p4info import P4Info
from ina.p4.tools import stf_file
from ina.p4.tools.equal import control, sides, values
from ina.p4.tools.equal.comparison import Rules, Twins
from ina.p4.tools.equal.control import Call, Json, Recorder
from ina.p4.tools.equal.mapping import Mapping, load
from ina.p4.tools.equal.packets import NOTHING, KnownPrograms, Maker, Packet, Scenario
from ina.p4.tools.equal.shapes import Shapes, nodes
from ina.p4.tools.equal.sides import Side

FEW = 8  # ports, unless a mapping or scenario names others
GROUPS = ("mcast_grp", "mcast_grp_a", "mcast_grp_b")  # intrinsic metadata that names a multicast group


@dataclass
class Task:
    """`calls`: for A, for B. `letters` of the systematic part; none: chosen from the effects of random packets. `notes`: parts
    that are not tried, or not compared."""

    twins: Twins
    calls: tuple[list[Call], list[Call]]
    maker: Maker
    letters: Sequence[Packet]
    defines: dict[str, str]
    notes: list[str] = field(default_factory=list)


def prepare(args: argparse.Namespace, known: KnownPrograms) -> Task:
    """Prepares both programs with their entries, and the maker of packets, for `known` programs from their scenario. Raises
    exceptions of compiling and reading."""
    mapping = load(args.mapping) if args.mapping else Mapping()
    files = {"both": args.entries or mapping.entries("both"), "a": mapping.entries("a"), "b": mapping.entries("b")}
    texts = {scope: stf_file.read(path) for scope, path in files.items() if path}
    a, b, defines, scenario_of = _programs(args, known)
    scenario = scenario_of(a.p4info) if scenario_of is not None and "both" not in texts else NOTHING
    shapes = Shapes(a.program, args.paths, args.visits)
    recorders = {scope: control.recorded(text, (b if scope == "b" else a).p4info, str(files[scope]))
                 for scope, text in texts.items()}
    names = mapping.names(a.p4info, b.p4info, shapes)
    calls = _calls(names, (a, b), scenario, recorders)
    seeds = [*scenario.packets, *(Packet(*p) for scope in ("both", "a") if scope in recorders for p in recorders[scope].packets)]
    pool = _values(mapping, names, (a, b), shapes, calls[0])
    usable = _ports(mapping, scenario, (a, b), seeds, pool)
    for side, own in zip((a, b), calls, strict=True):
        side.open({*usable, *map(names.port, usable), *control.ports(own, side.p4info)})
        side.write(own)
    limits = mapping.limits(shapes) if mapping.get("packets") else scenario.limits
    maker = Maker(shapes, pool, usable, seeds, random.Random(args.seed), limits)
    rules = _rules(mapping, names.ports, scenario.counters, shapes, a.p4info, b.p4info)
    notes = [*shapes.notes, *_not_compared(mapping, (a, b), calls)]
    letters = scenario.letters or seeds[: args.letters]
    if not scenario.letters and len(seeds) > len(letters):
        notes.append(f"of {len(seeds)} packets in files the systematic part has the first {len(letters)} (--letters)")
    return Task(Twins(a, b, shapes, rules), calls, maker, letters, defines, notes)


# ---- the programs


def _programs(args: argparse.Namespace, known: KnownPrograms) -> tuple[Side, Side, dict[str, str],
                                                               Callable[[Json], Scenario] | None]:
    """Returns A, B, their macros, and the maker of A's scenario (None: A is not a known program)."""
    includes, defines = [*args.include, paths.p4_dir()], macros(args.define)
    try:
        checked = frontend.load(args.a, defines=known.DEFINES | defines, include_dirs=includes)
    except CompileError:  # its own macros may have these names
        checked = frontend.load(args.a, defines=defines, include_dirs=includes)
    scenario_of = known.scenario_of(p4info.build(checked), args.a)
    if scenario_of is not None:
        defines = known.DEFINES | defines
    a = sides.side(args.a, defines, includes, args.interpreter, checked if scenario_of is not None else None)
    return a, sides.side(args.b, defines, includes, args.interpreter), defines, scenario_of


# ---- entries of both


def _calls(
    names: control.Names, both: tuple[Side, Side], scenario: Scenario, recorders: dict[str, Recorder]
) -> tuple[list[Call], list[Call]]:
    shared = [*scenario.calls, *(recorders["both"].calls if "both" in recorders else ())]
    own = [recorders[scope].calls if scope in recorders else [] for scope in "ab"]
    return [*shared, *own[0]], [*control.Translator(names, *(side.p4info for side in both)).calls(shared), *own[1]]


# ---- material for packets


def _values(
    mapping: Mapping, names: control.Names, both: tuple[Side, Side], shapes: Shapes, calls: Iterable[Call]
) -> values.Values:
    a, b = both
    pool = values.Values()
    values.collect(pool, a.program, shapes, {}, {})
    values.collect(pool, b.program, shapes, mapping.fields(shapes), {theirs: ours for ours, theirs in names.ports.items()})
    values.collect_entries(pool, calls, a.p4info, shapes)
    return pool


def _ports(
    mapping: Mapping, scenario: Scenario, both: tuple[Side, Side], seeds: Iterable[Packet], pool: values.Values
) -> list[int]:
    """Returns the ports by which packets enter, by A's numbers."""
    if scenario.ports:
        return list(scenario.ports)
    usable = {*mapping.ports(), *(p.port for p in seeds)} or {*range(FEW)}
    if not mapping.ports():
        usable |= {p for p in pool.wanted_ports() if all(control.takes(p, side.p4info) for side in both)}
    return sorted(usable)


# ---- comparison


def _rules(
    mapping: Mapping, ports: dict[int, int], counters: Sequence[str], shapes: Any, a: Json, b: Json
) -> Rules:
    mine, theirs = P4Info(a), P4Info(b)
    names = _digests(a), _digests(b)
    alike = tuple((mine.counter(c).name, theirs.counter(c).name) for c in counters)
    return Rules(
        ports=ports,
        ignored=mapping.ignored(shapes),
        any_order=mapping.any_order,
        digests=mapping.digests and all(names),
        digest_names=names[0] == names[1],
        counters=(*alike, *mapping.pairs("counters", a, b)),
        registers=mapping.pairs("registers", a, b),
    )


def _digests(info: Json) -> set[str]:
    return {d["preamble"]["name"] for d in info.get("digests", [])}


def _not_compared(mapping: Mapping, both: tuple[Side, Side], calls: tuple[list[Call], list[Call]]) -> Iterable[str]:
    with_digests = [bool(_digests(side.p4info)) for side in both]
    if mapping.digests and with_digests[0] != with_digests[1]:
        yield f"only {'A' if with_digests[0] else 'B'} has digests: they are not compared"
    for name, side, own in zip("AB", both, calls, strict=True):
        if side.draws:
            yield f"{name} draws random numbers: what depends on them may differ"
        if _multicasts(side) and not any(call.method == "set_multicast_group" for call in own):
            yield (f"{name} sends to multicast groups, and no file has one: what it multicasts goes nowhere, and is not "
                   "compared (mc_mgrp_create and mc_node_associate, --entries)")


def _multicasts(side: Side) -> bool:
    return any(isinstance(n, ast.Assign) and isinstance(n.target, ast.Member) and n.target.member in GROUPS
               for n in nodes(side.program))
