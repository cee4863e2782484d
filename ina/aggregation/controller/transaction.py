"""Changes of several switches that happen at all of them or at none."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ina.p4.runtime.entities import Entity, Update
from ina.p4.runtime.p4info import EntityError

REFUSED = (EntityError, TimeoutError, OSError)  # what a target raises that does not do as it is told

log = logging.getLogger("ina.aggregation.controller")


class WriteTarget(Protocol):
    """What the controller needs of a switch; embedded, BMv2 and Tofino stand behind it."""

    def write(self, updates: list[Update]) -> None:
        """Makes all updates, in order, or none."""

    def read(self, entities: Sequence[Entity]) -> list[Entity]:
        """What is there for each of ``entities``, which serve as patterns."""


@dataclass(frozen=True)
class Change:
    """Updates of one switch, and those that take them back."""

    switch: str
    updates: list[Update]
    undo: list[Update]


class WriteFailed(Exception):
    """``switch`` did not take its part, for ``reason``; what others had taken is taken back. ``unsure``: switches of which nobody
    knows what they hold now: that one, as not every switch makes all of a batch or nothing, and those that would not take it
    back."""

    def __init__(self, switch: str, reason: Exception, unsure: set[str]):
        super().__init__(f"switch {switch}: {reason}")
        self.switch, self.reason = switch, reason
        self.unsure = unsure


def write(targets: Mapping[str, WriteTarget], changes: Sequence[Change]) -> None:
    """Raises WriteFailed."""
    done: list[Change] = []
    for change in changes:
        try:
            targets[change.switch].write(change.updates)
        except REFUSED as error:
            unsure = {change.switch}
            for earlier in reversed(done):
                if not try_write(targets[earlier.switch], earlier.switch, earlier.undo):
                    unsure.add(earlier.switch)
            raise WriteFailed(change.switch, error, unsure) from error
        done.append(change)


def try_write(target: WriteTarget, switch: str, updates: list[Update]) -> bool:
    """Whether the switch took ``updates``; if not, the log says why."""
    try:
        target.write(updates)
        return True
    except REFUSED as error:
        log.warning("switch %s keeps entries that are not wanted any more: %s", switch, error)
        return False
