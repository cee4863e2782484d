"""Bound of the staleness of a worker's updates: fixed, or as wide as the updates that it refuses have made it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class StalenessBound:
    """Staleness, in sums, up to which one worker sends an update; what is staler it refuses.

    With ``patience`` the bound follows the share of updates that are refused, by a rule of this project, which no paper has: one
    that is refused widens the bound by a sum, up to ``highest``, and each ``patience`` that went to sums narrow it by one, down
    to ``lowest``. Between these limits it settles where one update in ``patience`` + 1 is refused. Whole numbers, so that who
    replays it has the same bounds.

    Attributes:
        lowest: where it begins; and where it stays if ``patience`` is 0.
        highest: sums, at least ``lowest``.
        now: sums; that which holds for the next update.
        sent: updates that went to sums, from 0 again after each ``patience``.
    """

    lowest: int
    highest: int
    patience: int = 0
    now: int = field(init=False)
    sent: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.now = self.lowest

    def refuse(self) -> None:
        """Notes that an update was too stale to be sent."""
        if self.patience:
            self.now = min(self.now + 1, self.highest)

    def take(self) -> None:
        """Notes that an update went to a sum."""
        self.sent += 1
        if self.sent == self.patience:
            self.sent, self.now = 0, max(self.now - 1, self.lowest)
