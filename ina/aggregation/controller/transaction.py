"""Changes of several switches that happen at all of them or at none."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ina.p4.runtime.entities import SwitchTarget, Update
from ina.p4.runtime.entity_error import EntityError

REFUSED = (EntityError, TimeoutError, OSError)  # errors of a target that does not perform a write

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Change:
    """Updates of one switch, and those that undo them."""

    switch: str
    updates: list[Update]
    undo: list[Update]


class WriteFailed(Exception):
    """``switch`` refused its updates, for ``reason``; those of others are undone. ``unsure``: switches whose entries are unknown
    now: that one, as not every switch makes all of a batch or nothing, and those that refused the undo."""

    def __init__(self, switch: str, reason: Exception, unsure: set[str]):
        super().__init__(f"switch {switch}: {reason}")
        self.switch, self.reason = switch, reason
        self.unsure = unsure


def write(targets: Mapping[str, SwitchTarget], changes: Sequence[Change]) -> None:
    """Writes changes at all switches or at none. Raises WriteFailed."""
    completed: list[Change] = []
    for change in changes:
        try:
            targets[change.switch].write(change.updates)
        except REFUSED as error:
            unsure = {change.switch}
            for earlier in reversed(completed):
                if not try_write(targets[earlier.switch], earlier.switch, earlier.undo):
                    unsure.add(earlier.switch)
            raise WriteFailed(change.switch, error, unsure) from error
        completed.append(change)


def try_write(target: SwitchTarget, switch: str, updates: list[Update]) -> bool:
    """Writes ``updates``; returns False if the switch refuses them, and logs why."""
    try:
        target.write(updates)
        return True
    except REFUSED as error:
        log.warning("switch %s keeps entries that are not wanted any more: %s", switch, error)
        return False
