"""The control plane's interface to a switch, whatever it is and wherever it runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol

from ina.p4.runtime.entities import E, Update


class SwitchTarget(Protocol):
    """A loaded program's tables, groups, sessions, counters and registers, in P4Runtime's terms.

    The embedded switch is one, on one processor (`Switch`) or several (`ShardedSwitch`); so is a switch behind P4Runtime, BMv2
    or another (`RemoteSwitch`), and a Tofino behind BFRuntime (`BfRuntimeTarget`); and what worlds put in front of these.
    """

    @abstractmethod
    def write(self, updates: Iterable[Update]) -> None:
        """Makes all updates, in order, or none.

        Raises EntityError (its message begins with the number of the update) or TimeoutError.
        """

    @abstractmethod
    def read(self, entities: Sequence[E]) -> list[E]:
        """Returns the entities that match each of `entities`, which serve as patterns: see `Switch.read`."""
