"""The control plane's interface to a switch: the embedded one, BMv2 and Tofino implement it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from ina.p4.runtime.entities import E, Update
from ina.p4.runtime.p4info import P4Info


class SwitchTarget(ABC):
    """A loaded program's tables, groups, sessions, counters and registers, in P4Runtime's terms."""

    @property
    @abstractmethod
    def p4info(self) -> P4Info:
        """The P4Info of the program that is loaded."""

    @abstractmethod
    def write(self, updates: Iterable[Update], timeout: float = 5.0) -> None:
        """Makes all updates, in order, or none.

        Raises EntityError (its message begins with the number of the update) or TimeoutError (`timeout` in seconds).
        """

    @abstractmethod
    def read(self, entities: Sequence[E], timeout: float = 5.0) -> list[E]:
        """The entities that match each of `entities`, which serve as patterns: see `Switch.read`."""
