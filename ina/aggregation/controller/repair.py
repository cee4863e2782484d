"""Make a switch hold what its controller believes: after it was silent, after it or the controller has started anew.

Entries of a program's job tables are the controller's, every one of them, so what is there and not wanted is an older job's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ina.aggregation.controller.transaction import WriteTarget
from ina.aggregation.entries import JobProgram
from ina.p4.runtime.entities import Entity, Match, MulticastGroupEntry, TableEntry, Update, as_int, delete, insert, modify

WIDEST = 128  # bits of a match or parameter


def repair(target: WriteTarget, program: JobProgram, wanted: Iterable[Entity],
           learn: Callable[[list[Entity]], None]) -> list[Update]:
    """Reads what ``target`` holds and writes the difference, which is also what comes back. ``learn`` is called with what it
    holds before that. Raises what the target raises."""
    patterns: list[Entity] = [TableEntry(table) for table in program.tables]
    held = [entity for entity in target.read([*patterns, MulticastGroupEntry(0)]) if _is_ours(entity, program)]
    learn(held)
    return _change(target, held, wanted)


def agree(target: WriteTarget, tables: Iterable[str], wanted: Sequence[Entity]) -> list[Update]:
    """As ``repair`` for tables that have nothing to do with jobs; ``wanted`` may say what they do by default."""
    defaults = [TableEntry(e.table, is_default=True) for e in wanted if isinstance(e, TableEntry) and e.is_default]
    there = [e for e in target.read([TableEntry(table) for table in tables]) if _is_entry(e)]
    return _change(target, [*there, *(target.read(defaults) if defaults else ())], wanted)


def _change(target: WriteTarget, found: Iterable[Entity], wanted: Iterable[Entity]) -> list[Update]:
    want, there = {_key(entity): entity for entity in wanted}, {_key(entity): entity for entity in found}
    gone = [entity for key, entity in there.items() if key not in want]
    other = [entity for key, entity in want.items() if key in there and _value(there[key]) != _value(entity)]
    new = [entity for key, entity in want.items() if key not in there]
    updates = [*delete(*gone), *insert(*new), *modify(*other)]
    if updates:
        target.write(updates)
    return updates


def absent(there: Sequence[Entity], entries: Sequence[Entity]) -> list[Entity]:
    """Those of ``entries`` that are not in ``there``, or otherwise."""
    held = {(_key(entity), _value(entity)) for entity in there}
    return [entity for entity in entries if (_key(entity), _value(entity)) not in held]


def _is_ours(entity: Entity, program: JobProgram) -> bool:
    """Multicast groups of jobs have the numbers from 1 on; higher ones are others'."""
    if isinstance(entity, MulticastGroupEntry):
        return entity.group_id <= program.max_jobs
    return _is_entry(entity)


def _is_entry(entity: Entity) -> bool:
    return isinstance(entity, TableEntry) and not entity.is_default and not entity.is_const


def _key(entity: Entity) -> tuple:
    if isinstance(entity, MulticastGroupEntry):
        return ("", entity.group_id)
    assert isinstance(entity, TableEntry)
    return (_last(entity.table), entity.is_default, frozenset((name, _number(value)) for name, value in entity.match.items()))


def _value(entity: Entity) -> object:
    if isinstance(entity, MulticastGroupEntry):
        return frozenset(entity.replicas)
    assert isinstance(entity, TableEntry)
    return (_last(entity.action), frozenset((name, _number(value)) for name, value in entity.params.items()))


def _last(name: object) -> str:
    """What we call ``worker`` a switch calls ``SwitchIngress.admission.worker``."""
    return str(name).rpartition(".")[2]


def _number(value: Match) -> int:
    return as_int(value, WIDEST, "entry")
