"""Scenarios of known programs: the entries that a controller writes, and packets that hosts send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ina.p4.tools.equal.control import Call
from ina.p4.tools.equal.packets import Limits, Packet


@dataclass(frozen=True)
class Scenario:
    """`letters`: packets for the systematic part. `counters` are compared."""

    calls: tuple[Call, ...]
    packets: tuple[Packet, ...] = ()
    letters: tuple[Packet, ...] = ()
    ports: tuple[int, ...] = ()
    counters: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)


NOTHING = Scenario(calls=())


class KnownPrograms(Protocol):
    """Scenarios of known programs. `DEFINES`: their default macros."""

    DEFINES: dict[str, str]

    def scenario_of(self, p4info: dict[str, Any], path: Path) -> Callable[[dict[str, Any]], Scenario] | None:
        """Returns the maker of a program's scenario, from its P4Info with those macros; None: the program is not known."""
