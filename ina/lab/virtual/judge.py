"""Judge of a training by sums of some workers' updates: compares each sum with the updates that it names, each copy of the
parameters with the others of its version, and each bound with the numbers of the sums."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np

from ina.aggregation import protocols
from ina.lab import oracle
from ina.lab.virtual.staleness import StalenessBound
from ina.lab.virtual.virtual_network import WrongSum


class StaleSum(WrongSum):
    """A sum has an update that is staler than the method allows, or a worker was too far ahead."""


class Judge:
    """Record of a training of ``workers`` workers. ``method`` is named in errors; ``enough`` workers complete a sum; so many
    ``copies`` in a row compute the same, of which a sum has one; ``bounds``: of each worker's updates at the beginning, which
    the judge carries on by itself, by the sums and refusals that it is told of; none: updates may have any staleness.

    Attributes:
        versions: that an update was computed at, by sum and worker it was offered to and by.
        allowed: staleness that such an update may have, where there is a bound.
        leasts: workers that are enough, by sum, where these are not ``enough``.
        sets: contributors, by sum.
        chosen: workers that compute at a version, where not all do.
    """

    def __init__(self, method: str, workers: int, enough: int, protocol: str, copies: int = 1,
                 bounds: list[StalenessBound] | None = None):
        self.method, self.workers, self.enough, self.protocol, self.copies = method, workers, enough, protocol, copies
        self.bounds = bounds or []
        self.versions: dict[tuple[int, int], int] = {}
        self.allowed: dict[tuple[int, int], int] = {}
        self.leasts: dict[int, int] = {}
        self.sets: dict[int, tuple[int, ...]] = {}
        self.chosen: dict[int, list[int]] = {}
        self._values: dict[tuple[int, int], np.ndarray] = {}
        self._plain: dict[tuple[int, int], np.ndarray] = {}
        self._right: dict[int, tuple[np.ndarray, float]] = {}  # sum of what its contributors have offered, and its largest error
        self._checked: Counter[int] = Counter()  # workers, by sum
        self._copies: dict[int, tuple[bytes, int]] = {}  # digest of each version, and how many have it
        self._begun: list[tuple[int, int]] = []  # version and worker, whenever one began

    def offer(self, number: int, worker: int, version: int, values: np.ndarray, plain: np.ndarray | None = None) -> None:
        """Notes an update, computed at ``version``, that a worker offers to a sum; ``plain``: int32, what is under the masks."""
        if plain is not None:
            self._plain[number, worker] = plain
        self.versions[number, worker], self._values[number, worker] = version, values
        if self.bounds:
            self.allowed[number, worker] = self.bounds[worker].now

    def refuse(self, number: int, worker: int, version: int) -> None:
        """Notes that a worker does not send an update, computed at ``version``, which could go to a sum, as it is too stale.
        Raises StaleSum: it is not."""
        if (stale := number - version) <= (bound := self.bounds[worker].now):
            raise StaleSum(f"worker {worker} refuses an update of staleness {stale}, expected one above {bound} with "
                           f"{self.method}")
        self.bounds[worker].refuse()

    def expect(self, number: int, worker: int, least: int) -> None:
        """Notes how many workers are enough for a sum as one of them has it. Raises WrongSum: others have it otherwise."""
        if (known := self.leasts.setdefault(number, least)) != least:
            raise WrongSum(f"sum {number}: {least} workers are enough for worker {worker}, for others {known}")

    def range_of_enough(self) -> list[int]:
        """Returns the fewest and the most workers that were enough for a sum that is over."""
        enough = [self.leasts.get(number, self.enough) for number in self.sets]
        return [min(enough), max(enough)]

    def lower(self, number: int, least: int) -> None:
        """Notes that fewer workers are enough for a sum than all have expected."""
        self.leasts[number] = least

    def choose(self, version: int, worker: int, chosen: list[int]) -> None:
        """Notes who computes at a version as one of the workers has it. Raises WrongSum: others have it otherwise."""
        if (known := self.chosen.setdefault(version, chosen)) != chosen:
            raise WrongSum(f"version {version}: the workers {chosen} compute for worker {worker}, for others {known}")

    def begin(self, version: int, worker: int) -> None:
        """Notes that a worker that has applied ``version`` sums begins to compute."""
        self._begun.append((version, worker))

    def check_sum(self, worker: int, number: int, out: np.ndarray, contributors: tuple[int, ...]) -> None:
        """Compares a sum that a worker is given with the updates that it names. Raises WrongSum."""
        if self.sets.setdefault(number, contributors) != contributors:
            raise WrongSum(f"sum {number}: worker {worker} is told the contributors {contributors}, others {self.sets[number]}")
        if len(contributors) < (enough := self.leasts.get(number, self.enough)):
            raise WrongSum(f"sum {number} is of {len(contributors)} workers, expected {enough} or more")
        if len({each // self.copies for each in contributors}) < len(contributors):
            raise WrongSum(f"sum {number} is of the workers {contributors}, expected one of each {self.copies} that compute the "
                           "same")
        for each in contributors:
            version = self.versions[number, each]
            if each not in self.chosen.get(version, contributors):
                raise WrongSum(f"sum {number} has an update of version {version} by worker {each}, expected one of "
                               f"{self.chosen[version]}")
        if self.bounds and worker in contributors:
            self.bounds[worker].take()
        if number not in self._right:
            given = [self._values[number, each] for each in contributors]
            self._right[number] = oracle.expected(given, len(given), self.protocol, protocols.SUM)
        right, error = self._right[number]
        if not np.all(np.abs(out - right) <= error):
            raise WrongSum(f"sum {number}: worker {worker} has another one than that of the workers {contributors}")
        self._checked[number] += 1
        if self._checked[number] == self.workers:
            del self._right[number]
            for each in range(self.workers):
                self._values.pop((number, each), None)
                self._plain.pop((number, each), None)

    def check_clear(self, number: int, clear: np.ndarray, contributors: tuple[int, ...]) -> None:
        """Compares a sum without masks, int32, with what is under those of the updates that it names. Raises WrongSum."""
        plain = [self._plain[number, each] for each in contributors]
        if not np.array_equal(clear, np.sum(plain, axis=0, dtype=np.int64)):
            raise WrongSum(f"sum {number}: masks of the workers {contributors} do not cancel")

    def check_copy(self, worker: int, version: int, parameters: np.ndarray) -> None:
        """Compares a worker's copy with others of its version. Raises WrongSum."""
        digest = hashlib.sha256(parameters.tobytes()).digest()
        known, count = self._copies.get(version, (digest, 0))
        if digest != known:
            raise WrongSum(f"version {version} of worker {worker} is another one than that of others")
        self._copies[version] = known, count + 1
        if count + 1 == self.workers:
            del self._copies[version]

    def staleness(self, sums: int) -> list[int]:
        """Returns that of each update in the first ``sums`` sums."""
        return [number - self.versions[number, each] for number in range(sums) for each in self.sets[number]]

    def allowances(self, sums: int) -> list[int]:
        """Returns the bound that held for each update in the first ``sums`` sums when it was offered."""
        return [self.allowed[number, each] for number in range(sums) for each in self.sets[number]]

    def check_bounds(self, sums: int, ahead: int | None) -> int:
        """Walks through the first ``sums`` sums again, by their numbers. Returns by how many updates a worker was ahead of the
        slowest where it began, at most.

        Raises:
            StaleSum: an update is staler than the bound that held when it was offered, or a worker was more than ``ahead``
                updates ahead.
        """
        for number in range(sums if self.bounds else 0):
            for each in self.sets[number]:
                stale, most = number - self.versions[number, each], self.allowed[number, each]
                if stale > most:
                    raise StaleSum(f"sum {number} has an update of staleness {stale} by worker {each}, expected at most {most} "
                                   f"with {self.method}")
        clocks, done, apart = np.zeros(self.workers, int), 0, 0
        for version, worker in sorted(self._begun):
            while done < version:
                clocks[list(self.sets[done])] += 1
                done += 1
            apart = max(apart, int(clocks[worker] - clocks.min()))
            if ahead is not None and apart > ahead:
                raise StaleSum(f"worker {worker} began at version {version}, {apart} updates ahead of the slowest; expected at "
                               f"most {ahead} with {self.method}")
        return apart
