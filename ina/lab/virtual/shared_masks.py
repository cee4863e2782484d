"""Masked sums of those that are there: masks of workers that are missing are recovered from shares.

After Bonawitz et al., Practical Secure Aggregation (CCS 2017). For each sum every pair of workers has a seed, and every worker
one of its own; a worker adds the words of all its seeds to its values, those of a pair one of the two with a minus sign. Each
seed is shared among all workers (Shamir): any ``threshold`` shares give it, fewer say nothing of it. Once it is known whose
values a sum has, workers reveal their shares of the own seeds of those, and of the pairs' seeds of the missing ones: never both
of one worker, since whoever has both can take the masks off a late worker's values.

    masks = SharedMasks(seed=1, workers=8, threshold=5)
    masks.cover(3, 17, whole(update, 8))         -> what worker 3 gives to sum 17
    masks.uncover(17, total, (0, 1, 3, 4, 5, 7)) -> the sum of these workers' values, from the switch's sum

There is no agreement on keys here: seeds and shares follow from the experiment's ``seed``, and pairs' seeds are shared one by
one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from functools import lru_cache

import numpy as np

from ina.aggregation.lane import INT32

PRIME = 2**127 - 1  # of the field that seeds and shares are of


class TooFewShares(ValueError):
    """Fewer workers than the threshold have given shares."""


@lru_cache(maxsize=4096)
def share(secret: int, threshold: int, holders: int, name: str) -> tuple[int, ...]:
    """Returns the shares of a secret, 0 to PRIME - 1, for holders 0, 1, ...: values at 1, 2, ... of a polynomial of ``threshold``
    coefficients, of which the secret is the first and the others follow from ``name``, which nobody else knows."""
    terms = [secret] + [_number(f"{name} {power}") for power in range(1, threshold)]
    places = range(1, holders + 1)
    powers = range(threshold)
    return tuple(sum(terms[power] * pow(place, power, PRIME) for power in powers) % PRIME for place in places)


def recover(shares: Mapping[int, int], threshold: int) -> int:
    """Returns the secret from shares by holder: the value at 0 of the polynomial through them (Lagrange). Raises TooFewShares."""
    if len(shares) < threshold:
        raise TooFewShares(f"{len(shares)} shares, expected {threshold} or more: fewer say nothing of a secret")
    secret = 0
    for holder, value in shares.items():
        above, below = 1, 1
        for other in shares:
            if other != holder:
                above = above * (other + 1) % PRIME
                below = below * (other - holder) % PRIME
        secret = (secret + value * above * pow(below, -1, PRIME)) % PRIME
    return secret


class SharedMasks:
    """Masks of a job's ``workers``, any ``threshold`` of which can take them off a sum."""

    def __init__(self, seed: int, workers: int, threshold: int):
        self.seed, self.workers, self.threshold = seed, workers, threshold
        self._revealed: dict[tuple[int, int], frozenset[int]] = {}  # whose values a sum has, by worker and sum

    def cover(self, worker: int, number: int, values: np.ndarray) -> np.ndarray:
        """Returns int32 ``values`` with the worker's masks for sum ``number``, modulo 2^32."""
        covered = values.view(np.uint32) + _words(self._seed(worker, worker, number), values.size)
        for other in range(self.workers):
            if other != worker:
                words = _words(self._seed(worker, other, number), values.size)
                covered += words if worker < other else -words
        return covered.view(np.int32)

    def reveal(self, holder: int, number: int, there: Collection[int]) -> dict[tuple[int, int], int]:
        """Returns a holder's shares of the seeds that take the masks off a sum of the workers ``there``, by the pair of workers
        whose seed it is, or twice the one. Raises ValueError: it has given others for this sum, or there are too few."""
        if self._revealed.setdefault((holder, number), frozenset(there)) != frozenset(there):
            raise ValueError(f"sum {number}: worker {holder} has revealed its shares for the workers "
                             f"{sorted(self._revealed[holder, number])}; with those for {sorted(there)} no mask would be left")
        if len(there) < self.threshold:
            raise TooFewShares(f"sum {number} is of {len(there)} workers, expected {self.threshold} or more")
        missing = [each for each in range(self.workers) if each not in there]
        pairs = [(each, each) for each in there] + [(low, high) for low in missing for high in there]
        return {pair: self._shares(*pair, number)[holder] for pair in pairs}

    def uncover(self, number: int, total: np.ndarray, there: Collection[int],
                holders: Collection[int] | None = None) -> np.ndarray:
        """Returns the int32 sum of the values of the workers ``there``, modulo 2^32, from that of what they have given, with the
        shares of ``holders``: none are those. Raises TooFewShares."""
        parts = {holder: self.reveal(holder, number, there) for holder in (there if holders is None else holders)}
        left = total.view(np.uint32).copy()
        pairs = next(iter(parts.values())) if parts else {(each, each): 0 for each in there}
        for one, other in pairs:
            seed = recover({holder: shares[one, other] for holder, shares in parts.items()}, self.threshold)
            words = _words(seed, total.size)
            left -= words if one == other or other < one else -words  # of a pair as the one that is there, `other`, has added it
        return left.view(np.int32)

    def _seed(self, one: int, other: int, number: int) -> int:
        return _number(f"{self.seed} seed {min(one, other)} {max(one, other)} {number}")

    def _shares(self, one: int, other: int, number: int) -> tuple[int, ...]:
        name = f"{self.seed} share {min(one, other)} {max(one, other)} {number}"
        return share(self._seed(one, other, number), self.threshold, self.workers, name)


def _number(name: str) -> int:
    """Returns a number of the field that is uniform, but for 2^-127 or so, for whoever does not know the name."""
    return int.from_bytes(hashlib.shake_256(name.encode()).digest(32), "little") % PRIME


def _words(seed: int, count: int) -> np.ndarray:
    """Returns the words of a seed, uint32."""
    return np.frombuffer(hashlib.shake_256(seed.to_bytes(16, "little")).digest(INT32.bytes(count)), "<u4").astype(np.uint32)
