"""Lives and incarnations: numbers that tell a job from earlier ones with its number or rows (docs/design/protocol.md, "Jobs").

An *incarnation* (32 bits) is in the switches' entries and rows and never on the wire. No two jobs of a controller have the same,
whatever their numbers. Each controller begins at a random one and keeps none in a file: a file that is lost, or older than the
switches' entries, would bring old ones back.

A *life* is in packets: 8 bits (SwitchML) or 16 (ATP), too few for all jobs, so it is counted for each job number. It identifies
late packets of the job that had the number before; after a packet's lifetime there are none.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

MOST_INCARNATIONS = 2**32 - 1  # 0 is what registers begin with
PACKET_LIFETIME = 2.0  # seconds after which no packet is in flight any more: queues, late duplicates, retransmissions
CHANCE = random.SystemRandom()


class Incarnations:
    """Hands out each incarnation once, 1..2^32-1, from a random one on; ``chance``: for runs that are to repeat exactly."""

    def __init__(self, chance: random.Random = CHANCE):
        self._next = chance.randint(1, MOST_INCARNATIONS)
        self._taken: set[int] = set()

    def take(self, incarnation: int) -> None:
        """Marks another controller's incarnation, whose job may still have entries or rows, as used."""
        self._taken.add(incarnation)

    def give(self) -> int:
        while True:
            incarnation, self._next = self._next, self._next % MOST_INCARNATIONS + 1
            if incarnation not in self._taken:
                return incarnation


class Lives:
    """Hands out the lives 1..``most`` of each job number in turn, from a random one on where none is known."""

    def __init__(self, most: int, chance: random.Random = CHANCE):
        self.most, self._chance = most, chance
        self._used: dict[int, set[int]] = {}  # by number: lives that packets in flight may have

    def use(self, number: int, life: int) -> None:
        """Marks a life from a file or a switch's entry as used."""
        self._used.setdefault(number, set()).add(life)

    def give(self, number: int) -> int:
        """Returns the next life of ``number``: of the successors of used lives the one with the greatest distance to the next
        used life."""
        lives = sorted(self._used.get(number, ()))
        if lives:
            successors = [*lives[1:], lives[0] + self.most]
            last = max(zip(lives, successors, strict=True), key=lambda pair: pair[1] - pair[0])[0]
        else:
            last = self._chance.randint(1, self.most)
        life = last % self.most + 1
        self._used[number] = {life}
        return life

    def snapshot(self) -> dict[str, list[int]]:
        """Returns used lives by number, in JSON's terms."""
        return {str(number): sorted(lives) for number, lives in self._used.items()}

    def restore(self, snapshot: Mapping[str, list[int]]) -> None:
        """Restores a snapshot. Raises ValueError: it is none."""
        for number, lives in snapshot.items():
            for life in lives:
                if not 1 <= life <= self.most:
                    raise ValueError(f"life {life} of job number {number}, expected 1..{self.most}")
                self.use(int(number), life)
