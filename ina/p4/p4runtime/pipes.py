"""Entities of all pipes of a TNA switch merged into one, as P4Runtime has no pipes.

Adds up counters. A meter's configuration and a register's cell are those that all pipes have; reading fails where pipes
differ, as there is no one answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from ina.p4.runtime import CounterEntry, DirectCounterEntry, DirectMeterEntry, EntityError, MeterEntry, RegisterEntry

Counts = CounterEntry | DirectCounterEntry
Cell = TypeVar("Cell", CounterEntry, DirectCounterEntry, MeterEntry, DirectMeterEntry, RegisterEntry)


def merge(entities: Iterable[Cell]) -> list[Cell]:
    """Counter, meter and register entities, one for each cell. Raises EntityError (FAILED_PRECONDITION)."""
    cells: dict[int | None, Cell] = {}
    for e in entities:
        if e.pipe is None:
            cells[len(cells)] = e
            continue
        cell = getattr(e, "index", None)
        if cell not in cells:
            cells[cell] = replace(e, pipe=None)
        elif isinstance(e, Counts):
            total = cells[cell]
            cells[cell] = replace(total, packets=total.packets + e.packets, bytes=total.bytes + e.bytes)
        elif replace(e, pipe=None) != cells[cell]:
            raise EntityError(
                f"{_name(e)}: its pipes differ (pipe {e.pipe}: {_value(e)}, another: {_value(cells[cell])}), and P4Runtime "
                "has no pipes: read it over BFRuntime", "FAILED_PRECONDITION"
            )
    return list(cells.values())


def _name(e: MeterEntry | DirectMeterEntry | RegisterEntry) -> str:
    if isinstance(e, DirectMeterEntry):
        return f"meter of {e.entry.table}"
    name = e.register if isinstance(e, RegisterEntry) else e.meter
    return f"{name}[{e.index}]" if e.index is not None else str(name)


def _value(e: object) -> object:
    return e.value if isinstance(e, RegisterEntry) else getattr(e, "config", None)
