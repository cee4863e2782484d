"""Rules for tables and actions: one address for a table's memories, hashes only where entries match, one operation per value.

Facts of p4c's open Tofino back end: mau/attached_info.cpp and midend/register_read_write.cpp (addresses), mau/table_layout.cpp
(hashes and random numbers on a miss), mau/instruction_selection.cpp (conditions, operations, random numbers), and its check of
keys (longest prefixes).
"""

from __future__ import annotations

from collections.abc import Iterator

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import Span
from ina.p4.tofino import resources
from ina.p4.tofino.stateful import bits_of
from ina.p4.tofino.units import Effect, Item, Unit, flat

Problem = tuple[str, Span, str, list[tuple[Span | None, str]]]
METERS = ("Meter", "Lpf", "Wred", "DirectMeter", "DirectLpf", "DirectWred")
SMALL_KEY = 10  # bits of an exact key that can be its entry's address: then a miss takes the same path as a hit


def problems(units: list[Item]) -> Iterator[Problem]:
    """Yields level, place, text and notes of each broken rule."""
    seen: set[ast.TableDecl] = set()
    for unit in flat(units):
        if unit.table is not None:
            if unit.table in seen:
                continue
            seen.add(unit.table)
        yield from _addresses(unit)
        yield from _operations(unit)
        if unit.table is not None:
            yield from _keys(unit)
            yield from _default(unit)


def _addresses(unit: Unit) -> Iterator[Problem]:
    """Checks that registers, meters and selectors of one table can share the wires of one address."""
    users: dict[Instance, tuple[Span, str]] = {}
    for effect in unit.effects:
        for access in effect.accesses:
            users.setdefault(access.register, (access.span, "register"))
        for instance, span in effect.objects:
            if instance.decl.name in METERS:
                users.setdefault(instance, (span, "meter"))
    attached = resources.implementation(unit) if unit.table is not None else None
    if attached is not None and attached.decl.name == "ActionSelector":
        users[attached] = unit.span, "selector"
    kinds = {kind for _, kind in users.values()}
    if len(users) < 2:
        return
    notes: list[tuple[Span | None, str]] = [(span, f"{kind} {instance.name}") for instance, (span, kind) in users.items()]
    widths = {bits_of(instance) for instance, (_, kind) in users.items() if kind == "register"}
    if len(kinds) > 1 or kinds != {"register"} or len(widths) > 1:
        text = (f"{unit.name} uses {len(users)} of registers, meters and selectors: a table has one address for all of them, and "
                "they must be of one kind and width")
        yield "error", notes[1][0] or unit.span, text, notes
    elif any(len({a.index for a in effect.accesses if a.index}) > 1 for effect in unit.effects):
        text = f"an action of {unit.name} uses {len(users)} registers at two indices: a table has one address"
        yield "error", notes[1][0] or unit.span, text, notes
    else:
        text = f"{unit.name} uses {len(users)} registers: a table has one address, so their indices must be the same one"
        yield "warning", notes[1][0] or unit.span, text, notes


def _operations(unit: Unit) -> Iterator[Problem]:
    for effect in unit.effects:
        for condition in effect.conditions:
            text = ("a condition in an action: Tofino's actions have none but simple ones of their parameters; put it into a "
                    "key, or into the control's apply")
            yield "warning", condition.span, text, []
        for statement in effect.folded:
            text = ("this value is made of what the same action computed before: a compiler folds both into one expression, and "
                    "an action computes each value with one operation")
            yield "warning", statement.span, text, []
        randoms = [(i, span) for i, span in effect.objects if i.decl.name == "Random"]
        if len(randoms) != len({i for i, _ in randoms}):
            yield "error", randoms[1][1], f"{randoms[1][0].name} is used twice in one action: once is supported", []


def _keys(unit: Unit) -> Iterator[Problem]:
    kinds = [k.match_kind for k in unit.decl.keys]
    if "lpm" in kinds and (kinds.count("lpm") > 1 or {"ternary", "range"} & set(kinds)):
        other = "another longest prefix" if kinds.count("lpm") > 1 else "ternary or range"
        yield "error", unit.span, f"{unit.name}: a longest prefix (lpm) beside {other}: make all of them ternary", []


def _default(unit: Unit) -> Iterator[Problem]:
    """Checks the default action: on a miss there is no hash, and so no address that comes from a field of the packet."""
    table = unit.decl
    actions = {r.decl: effect for r, effect in zip(table.actions, unit.effects, strict=True)}
    effect = actions.get(table.default_action.decl)
    if table.keys:
        if effect is None or not (need := hashed(effect)) or _is_address(unit):
            return
        text = (f"{table.default_action.decl.name} is what {unit.name} does where nothing matches, and uses {need}: it can only "
                "do that for an entry")
        yield "error", table.default_action.span, text, []
        return
    for reference in table.actions:
        need = hashed(actions[reference.decl])
        if need and (len(table.actions) > 1 or any(not p.direction for p in reference.decl.params)):
            obstacle = "more than one action" if len(table.actions) > 1 else "parameters of its action"
            text = (f"{unit.name} has no key and {obstacle}, and {reference.decl.name} uses {need}: it must be the only action, "
                    "without parameters")
            yield "error", reference.span, text, []


def _is_address(unit: Unit) -> bool:
    exact = all(k.match_kind == "exact" for k in unit.decl.keys)
    return exact and resources.key_bits(unit, ("exact",)) <= SMALL_KEY


def hashed(effect: Effect) -> str:
    """Returns why an action needs the hash unit or a random number; "": it does not."""
    for access in effect.accesses:
        if access.index and not access.register.decl.name.startswith("Direct"):
            return f"register {access.register.name} at an index of the packet ({access.index})"
    for instance, _ in effect.objects:
        if instance.decl.name in ("Hash", "Random"):
            return f"{'a random number' if instance.decl.name == 'Random' else 'a hash'} ({instance.name})"
    return ""
