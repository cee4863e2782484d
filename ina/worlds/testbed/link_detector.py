"""Detection of failed links between switches, from what both ends of each have noted (host/net/port_probe.h). No clock is read.

    DirectionDetector   one direction: how many probes in a row were sent and did not come, though the far end looked for them
    LinkHealth          a link, from its faults: down at once, up after it has been good for a while, longer if it flaps

A probe is missed only if it was sent, and the far end has found nothing waiting SLACK after that: a switch's thread that gets no
processor sends none and misses none, so busy processes beside raise no alarm. Any frame that comes shows that the link works.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

SLACK = 20e-3  # s for a frame on its way, which the kernel's own threads may delay
HOLD = 0.2  # s for which a link must have been good before it is used again
LONGEST_HOLD = 5.0  # s; each failure within FLAPPING of the one before doubles the hold up to this
FLAPPING = 10.0  # s
REMEMBERED = 64  # probes that may still come


@dataclass(frozen=True, slots=True)
class Sight:
    """Notes of the ends of a direction. ``sent``, ``sent_at``: the sender's last probe; ``heard``: the last one that came;
    ``heard_at``: when any frame came, ``looked_at``: when none was waiting. Times in s of one clock."""

    sent: int
    sent_at: float
    heard: int
    heard_at: float
    looked_at: float


class DirectionDetector:
    """One direction of a link. ``missed``: probes in a row, as of the last sight."""

    def __init__(self) -> None:
        self.missed = 0
        self._pending: deque[tuple[int, float]] = deque(maxlen=REMEMBERED)
        self._sent = self._heard = 0
        self._known: int | None = None  # all probes up to this one came, or do not count

    def observe(self, sight: Sight) -> int:
        """Notes a sight, and returns ``missed``."""
        if self._known is None or sight.sent < self._sent or sight.heard < self._heard:  # the first sight, or an end began anew
            self._pending.clear()
            self._known = sight.sent
        elif sight.sent > self._sent:
            self._pending.append((sight.sent, sight.sent_at))
        self._sent, self._heard = sight.sent, sight.heard
        known = max(self._known, sight.heard) if sight.heard <= sight.sent else self._known
        known = max([known, *(number for number, at in self._pending if at <= sight.heard_at)])
        while self._pending and self._pending[0][0] <= known:
            self._pending.popleft()
        self._known = known
        self.missed = max((number - known for number, at in self._pending if at + SLACK <= sight.looked_at), default=0)
        return self.missed


class LinkHealth:
    """A link, from what is wrong with it. ``reason``: why it is down; empty: it is up."""

    def __init__(self) -> None:
        self.reason = ""
        self._good_since: float | None = None
        self._failed_at = -FLAPPING
        self._hold = HOLD

    def update(self, now: float, fault: str) -> bool:
        """Takes the present fault, empty: none, and returns True if the link has gone down or come up."""
        if fault:
            self._good_since = None
            if self.reason:
                return False
            self._hold = min(2 * self._hold, LONGEST_HOLD) if now - self._failed_at < FLAPPING else HOLD
            self._failed_at, self.reason = now, fault
            return True
        if not self.reason:
            return False
        if self._good_since is None:
            self._good_since = now
        if now < self._good_since + self._hold:
            return False
        self.reason, self._good_since = "", None
        return True

    def due(self) -> float | None:
        """Returns when it comes up if nothing is wrong until then; None: it is up, or something is wrong."""
        return None if self._good_since is None else self._good_since + self._hold
