"""Dependencies between tables: a lower bound on the match-action stages of a control.

After Jose, Yan, Varghese and McKeown, "Compiling Packet Programs to Reconfigurable Switches" (NSDI'15 §4): a table that matches
on, or whose action uses or overwrites, a field that another table's action wrote, is in a later stage (match and action
dependencies); one that overwrites a field that another reads, or that is conditional on another's result, may be in the same one.
All users of a register are in one stage. Each stage has four stateful ALUs and 16 tables, whatever the order.

A compiler may still need more stages, for memory, crossbars, containers; never fewer, except for dead code.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from operator import itemgetter

from ina.base.plurals import counted
from ina.p4.compiler.checked_program import Instance
from ina.p4.tofino.fields import Ref
from ina.p4.tofino.units import Access, Branch, Effect, Item, Unit, flat

STAGES, ALUS, TABLES = 12, 4, 16
ROUNDS = 100
METERS = ("Meter", "Lpf", "Wred")  # each takes a stateful ALU
@dataclass(eq=False)
class Placed:
    """The earliest stage of a unit (from 0), and its cause: another unit and (`why`) the field, or a register they share."""

    unit: Unit
    stage: int = 0
    cause: Placed | None = None
    why: str = ""


Reason = tuple[int, Placed | None, str]
"""The first stage that is possible, the unit that is in the way before, and the name of what they share."""
NOTHING: Reason = (0, None, "")


_stage = itemgetter(0)


@dataclass
class Fields:
    """`ready`, by field: from which stage on it can be read, and its writer; `read`: the last stage that reads it."""

    ready: dict[str, list[tuple[int, int, int, Placed | None]]] = field(default_factory=dict)
    read: dict[str, Reason] = field(default_factory=dict)

    def copy(self) -> Fields:
        return Fields({k: list(v) for k, v in self.ready.items()}, dict(self.read))

    def when(self, refs: list[Ref]) -> Reason:
        """Returns the stage at which all are ready, the last one's writer, and its name."""
        best = NOTHING
        for path, low, high in refs:
            for first, last, stage, writer in self.ready.get(path, ()):
                if first <= high and low <= last and stage > best[0]:
                    best = (stage, writer, path)
        return best

    def write(self, ref: Ref, stage: int, writer: Placed | None) -> None:
        path, low, high = ref
        rest = [(a, b, s, w) for a, b, s, w in self.ready.get(path, ()) if not low <= a <= b <= high]
        self.ready[path] = [*rest, (low, high, stage, writer)]

    def merge(self, ways: list[Fields]) -> None:
        self.ready, self.read = {}, {}
        for way in ways:
            for path, entries in way.ready.items():
                self.ready[path] = list(dict.fromkeys([*self.ready.get(path, ()), *entries]))
            for path, reader in way.read.items():
                self.read[path] = max(reader, self.read.get(path, reader), key=_stage)


@dataclass
class Bound:
    """`placed`: every unit at its earliest stage. `stages`: lower bound. `chain`: the dependencies that cause it."""

    placed: list[Placed]
    stages: int
    chain: list[Placed]


class _Pass:
    """One walk over the units, with registers at the stages of the walk before."""

    def __init__(self, registers: dict[Instance, tuple[int, Placed | None]]):
        self.registers = registers
        self.placed: list[Placed] = []

    def walk(self, items: list[Item], fields: Fields, guard: Reason | None) -> None:
        """Places the items. `guard`: when the condition that they depend on is ready; None: they are unconditional."""
        for item in items:
            if isinstance(item, Unit):
                self._unit(item, fields, guard)
            else:
                self._branch(item, fields, guard)

    def _branch(self, branch: Branch, fields: Fields, guard: Reason | None) -> None:
        inner = max(guard or NOTHING, fields.when(branch.condition), key=_stage)
        if branch.after is not None:
            table = next(p for p in reversed(self.placed) if p.unit is branch.after)
            inner = max(inner, (table.stage, table, "its result"), key=_stage)
        ends = []
        for way in branch.ways:
            own = fields.copy()
            self.walk(way, own, inner)
            ends.append(own)
        fields.merge(ends)

    def _unit(self, unit: Unit, fields: Fields, guard: Reason | None) -> None:
        reads, writes = [*unit.matched, *unit.reads], unit.writes
        if unit.copy and (guard is None or unit.local):
            stage, writer, _ = fields.when(reads)
            for ref in writes:
                fields.write(ref, stage, writer)
            return
        late = [fields.read[w[0]] for w in writes if w[0] in fields.read]
        placed = Placed(unit, *max(guard or NOTHING, fields.when(reads), fields.when(writes), *late, key=_stage))
        for access in unit.accesses:
            stage, user = self.registers.get(access.register, (0, None))
            if stage > placed.stage:
                placed.stage, placed.cause, placed.why = stage, user, f"register {access.register.name}"
        for access in unit.accesses:
            if placed.stage > self.registers.get(access.register, (0, None))[0]:
                self.registers[access.register] = (placed.stage, placed)
        for path, *_ in reads:
            reader = (placed.stage, placed, f"{path}, which it must still read")
            fields.read[path] = max(reader, fields.read.get(path, reader), key=_stage)
        for ref in writes:
            fields.write(ref, placed.stage + 1, placed)
        self.placed.append(placed)


def lower_bound(items: list[Item]) -> Bound:
    """Returns the bound of one control's units."""
    registers: dict[Instance, tuple[int, Placed | None]] = {}
    for _ in range(ROUNDS):
        before = {r: s for r, (s, _) in registers.items()}
        walk = _Pass(registers)
        walk.walk(items, Fields(), None)
        if {r: s for r, (s, _) in registers.items()} == before:
            break
    last = max(walk.placed, key=lambda p: p.stage, default=None)
    chain: list[Placed] = []
    at = last
    while at is not None and at not in chain:
        chain.append(at)
        at = at.cause
    return Bound(walk.placed, last.stage + 1 if last else 0, chain[::-1])


def crowded(bounds: list[Bound]) -> tuple[int, str]:
    """Returns the stages that registers and tables of all controls, which share the stages, need together: those that cannot be
    before stage k need stages from k on. With the reason; 0: there are none."""
    registers: dict[Instance, int] = {}
    tables: list[int] = []
    for bound in bounds:
        for placed in bound.placed:
            tables.append(placed.stage)
            users = [a.register for a in placed.unit.accesses]
            users += [i for i, _ in placed.unit.objects if i.decl.name.removeprefix("Direct") in METERS]
            for user in users:
                registers[user] = max(placed.stage, registers.get(user, 0))
    best = (0, "")
    units = (("register or meter", "registers and meters"), list(registers.values()), ALUS), (("table", "tables"), tables, TABLES)
    for noun, stages, each in units:
        for k in range(max(stages, default=-1) + 1):
            after = sum(s >= k for s in stages)
            need = k + math.ceil(after / each)
            if need > best[0]:
                best = (
                    need,
                    counted(after, *noun) + (f" that come{'s' * (after == 1)} after {counted(k, 'stage')} of others" if k else "")
                    + f", {each} in each stage",
                )
    return best


def accesses_per_pass(items: list[Item]) -> dict[Instance, list[Access]]:
    """Returns, for each register, the most accesses that one packet can make in one pass."""
    most: dict[Instance, list[Access]] = {}

    def together(all_of: list[dict[Instance, list[Access]]]) -> dict[Instance, list[Access]]:
        registers = dict.fromkeys(register for accesses in all_of for register in accesses)
        return {r: [one for accesses in all_of for one in accesses.get(r, ())] for r in registers}

    def either(ways: list[dict[Instance, list[Access]]]) -> dict[Instance, list[Access]]:
        longest: dict[Instance, list[Access]] = {}
        for way in ways:
            for register, accesses in way.items():
                longest[register] = max(longest.get(register, []), accesses, key=len)
        return longest

    def by_register(effect: Effect) -> dict[Instance, list[Access]]:
        return together([{access.register: [access]} for access in effect.accesses])

    for item, following in itertools.zip_longest(items, items[1:]):
        if isinstance(item, Unit):
            if not (isinstance(following, Branch) and following.follows and following.after is item):
                most = together([most, either([by_register(item.effects[i]) for i in item.runs if i < len(item.effects)])])
            continue
        ways = [accesses_per_pass(way) for way in item.ways]
        if item.follows and item.after is not None:
            effects = [*map(by_register, item.after.effects), {}]
            ways = [together([effects[i], way]) for way, actions in zip(ways, item.follows, strict=True) for i in actions]
        most = together([most, either(ways)])
    return most


def tables_of(items: list[Item]) -> list[Unit]:
    return [u for u in flat(items) if u.table is not None]
