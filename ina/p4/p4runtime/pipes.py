"""P4Runtime knows no pipes: what a TNA switch has once for each, as one entity.

Counters are added up. A meter's configuration and a register's cell are those that all pipes have; where pipes differ,
there is no one answer, and reading says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ina.p4.runtime import CounterEntry, DirectCounterEntry, EntityError


def together(entities: Iterable[Any]) -> list[Any]:
    """Counter, meter and register entities with one for each cell. Raises EntityError (FAILED_PRECONDITION)."""
    found: dict[Any, Any] = {}
    for e in entities:
        if e.pipe is None:
            found[len(found)] = e
            continue
        cell = getattr(e, "index", None)
        if cell not in found:
            found[cell] = replace(e, pipe=None)
        elif isinstance(e, (CounterEntry, DirectCounterEntry)):
            known = found[cell]
            found[cell] = replace(known, packets=known.packets + e.packets, bytes=known.bytes + e.bytes)
        elif replace(e, pipe=None) != found[cell]:
            raise EntityError(
                f"{_name(e)}: its pipes differ (pipe {e.pipe}: {_value(e)}, another: {_value(found[cell])}), and P4Runtime "
                "has no pipes: read it over BFRuntime", "FAILED_PRECONDITION"
            )
    return list(found.values())


def _name(e: Any) -> str:
    name = getattr(e, "register", None) or getattr(e, "meter", None) or f"meter of {e.entry.table}"
    return f"{name}[{e.index}]" if getattr(e, "index", None) is not None else str(name)


def _value(e: Any) -> Any:
    return e.value if hasattr(e, "value") else e.config
