"""Lives and incarnations: how a job is told from those before it that had its number or its rows (docs/protocol.md, "Jobs").

An *incarnation* (32 bits) is in the switches' entries and rows and never on the wire. No two jobs of a controller have the same,
whatever their numbers. Each controller begins at a random one and keeps none in a file: a file that is lost, or older than what
switches hold, would bring old ones back.

A *life* is what packets carry: 8 bits (SwitchML) or 16 (ATP), too few for all jobs, so it is counted for each job number. It
tells late packets of the job that had the number before; what is later than a packet's lifetime it need not tell.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

MOST_INCARNATIONS = 2**32 - 1  # 0 is what registers begin with
PACKET_LIFETIME = 2.0  # seconds after which no packet is under way any more: queues, late duplicates, retransmissions
CHANCE = random.SystemRandom()


class Incarnations:
    """Gives each incarnation once, 1..2^32-1, from a random one on; ``chance``: for runs that are to repeat exactly."""

    def __init__(self, chance: random.Random = CHANCE):
        self._next = chance.randint(1, MOST_INCARNATIONS)
        self._taken: set[int] = set()

    def take(self, incarnation: int) -> None:
        """Another controller's, of a job that may still have entries or rows: it is not given."""
        self._taken.add(incarnation)

    def give(self) -> int:
        while True:
            incarnation, self._next = self._next, self._next % MOST_INCARNATIONS + 1
            if incarnation not in self._taken:
                return incarnation


class Lives:
    """Gives the lives 1..``most`` of each job number in turn; a number that nothing is known of begins at a random one."""

    def __init__(self, most: int, chance: random.Random = CHANCE):
        self.most, self._chance = most, chance
        self._used: dict[int, set[int]] = {}  # by number: lives that packets under way may have

    def use(self, number: int, life: int) -> None:
        """A job had it: a file says so, or a switch's entry."""
        self._used.setdefault(number, set()).add(life)

    def give(self, number: int) -> int:
        """The next life of ``number``: of those that follow a used one the one from which all used ones are furthest ahead."""
        used = sorted(self._used.get(number, ()))
        if used:
            following = [*used[1:], used[0] + self.most]
            last = max(zip(used, following, strict=True), key=lambda pair: pair[1] - pair[0])[0]
        else:
            last = self._chance.randint(1, self.most)
        life = last % self.most + 1
        self._used[number] = {life}
        return life

    def snapshot(self) -> dict[str, list[int]]:
        """Used lives by number, in JSON's terms."""
        return {str(number): sorted(used) for number, used in self._used.items()}

    def restore(self, snapshot: Mapping[str, list[int]]) -> None:
        """Raises ValueError: not what ``snapshot`` returns."""
        for number, used in snapshot.items():
            for life in used:
                if not 1 <= life <= self.most:
                    raise ValueError(f"life {life} of job number {number}, expected 1..{self.most}")
                self.use(int(number), life)
