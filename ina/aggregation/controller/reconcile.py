"""Repair: writes the controller's entries to a switch that was silent, or after it or the controller was restarted.

All entries of a program's job tables are the controller's, so unexpected ones belong to an older job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ina.aggregation.entries import JobProgram
from ina.p4.runtime.entities import (
    Entity,
    Match,
    MulticastGroupEntry,
    SwitchTarget,
    TableEntry,
    Update,
    as_int,
    delete,
    insert,
    modify,
)

WIDEST = 128  # bits of a match or parameter


def repair(target: SwitchTarget, program: JobProgram, expected: Iterable[Entity],
           learn: Callable[[list[Entity]], None]) -> list[Update]:
    """Reads the entries of ``target`` and writes the difference to ``expected``; returns it. ``learn`` is called with the entries
    before that. Raises what the target raises."""
    patterns: list[Entity] = [TableEntry(table) for table in program.tables]
    present = [entity for entity in target.read([*patterns, MulticastGroupEntry(0)]) if _is_ours(entity, program)]
    learn(present)
    return _change(target, present, expected)


def agree(target: SwitchTarget, tables: Iterable[str], expected: Sequence[Entity]) -> list[Update]:
    """Writes the difference like ``repair``, for ``tables`` without jobs; ``expected`` may have their default actions."""
    defaults = [TableEntry(e.table, is_default=True) for e in expected if isinstance(e, TableEntry) and e.is_default]
    present = [e for e in target.read([TableEntry(table) for table in tables]) if _is_entry(e)]
    return _change(target, [*present, *(target.read(defaults) if defaults else ())], expected)


def _change(target: SwitchTarget, present: Iterable[Entity], expected: Iterable[Entity]) -> list[Update]:
    new_by_key, old_by_key = {_key(entity): entity for entity in expected}, {_key(entity): entity for entity in present}
    extra = [entity for key, entity in old_by_key.items() if key not in new_by_key]
    other = [entity for key, entity in new_by_key.items() if key in old_by_key and _value(old_by_key[key]) != _value(entity)]
    new = [entity for key, entity in new_by_key.items() if key not in old_by_key]
    updates = [*delete(*extra), *insert(*new), *modify(*other)]
    if updates:
        target.write(updates)
    return updates


def absent(present: Sequence[Entity], entries: Sequence[Entity]) -> list[Entity]:
    """Returns those of ``entries`` that are not ``present``, or differ there."""
    values = {(_key(entity), _value(entity)) for entity in present}
    return [entity for entity in entries if (_key(entity), _value(entity)) not in values]


def _is_ours(entity: Entity, program: JobProgram) -> bool:
    """Returns True for entries of jobs; their multicast groups have the numbers from 1 on, others' are higher."""
    if isinstance(entity, MulticastGroupEntry):
        return entity.group_id <= program.max_jobs
    return _is_entry(entity)


def _is_entry(entity: Entity) -> bool:
    return isinstance(entity, TableEntry) and not entity.is_default and not entity.is_const


def _key(entity: Entity) -> tuple[object, ...]:
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
    """Returns the last part of a name: a switch's ``SwitchIngress.admission.worker`` is our ``worker``."""
    return str(name).rpartition(".")[2]


def _number(value: Match) -> int:
    return as_int(value, WIDEST, "entry")
