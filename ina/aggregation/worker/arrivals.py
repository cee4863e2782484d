"""Number of contributors that are enough, chosen while a job runs from the times that its sums take.

    arrivals = Arrivals(workers=8, least=4)
    worker.submit(None, out, offer=Offer(arrivals.enough(step)))    step 0, 1, 2, ...
    arrivals.observe(len(event.contributors), event.last_rx / PS)   of each sum, in order

The idea, to choose the number of backup workers anew while a training runs, is that of Xu, Neglia and Sebastianelli ("Dynamic
backup workers for parallel machine learning", arXiv 2004.14696). The estimates and the rule below are this project's own.
"""

from __future__ import annotations

from collections import deque

MEMORY = 256  # sums whose times are kept
BLOCK = 3  # successive sums with one number: the first one's time depends on the number before, and is not counted
TRIAL = 8  # of so many blocks one tries another number


class Arrivals:
    """Times until so many workers have contributed, from sum to sum, and the number that is enough.

    Each contributor counts the same: the number is the one of which most contributions come in a second, by the mean time of
    the sums that had it. At first each number has a block of sums, all workers first; later one block of ``TRIAL`` tries them in
    turn, so that what has changed shows. When which number is tried depends on the sum's number only, so workers that do not talk
    to each other try the same one in the same sum.
    """

    def __init__(self, workers: int, least: int = 1):
        """``least``: no number below it is chosen. ValueError: it is not one of 1 to ``workers``."""
        if not 1 <= least <= workers:
            raise ValueError(f"least = {least}, expected 1..{workers}")
        self.workers, self.least = workers, least
        self._sums: deque[tuple[int, float]] = deque(maxlen=MEMORY)  # contributors, seconds
        self._last: tuple[int, float] | None = None  # the last sum's contributors, and when it was there

    def observe(self, contributors: int, time: float) -> None:
        """Notes the next sum: that so many contributed to it, and when it was there, in seconds of any clock."""
        last, self._last = self._last, (contributors, time)
        if last is not None and last[0] == contributors >= self.least:
            self._sums.append((contributors, max(0.0, time - last[1])))

    def seconds(self) -> dict[int, float]:
        """Returns for each number that sums had, in ascending order, how many seconds such a sum takes: means, made to ascend
        by pooling neighbours that do not, since more contributors never come earlier."""
        times: dict[int, list[float]] = {}
        for number, each in self._sums:
            times.setdefault(number, []).append(each)
        pools: list[tuple[list[int], float, int]] = []  # numbers, seconds of all their sums, sums
        for number in sorted(times):
            pool = ([number], sum(times[number]), len(times[number]))
            while pools and pools[-1][1] / pools[-1][2] > pool[1] / pool[2]:
                numbers, seconds, sums = pools.pop()
                pool = (numbers + pool[0], seconds + pool[1], sums + pool[2])
            pools.append(pool)
        return {number: seconds / sums for numbers, seconds, sums in pools for number in numbers}

    def best(self) -> int:
        """Returns the number of which most contributions come in a second; of equal ones the largest. All workers, while none of
        their sums is known: nothing is known against it."""
        seconds = self.seconds()
        if self.workers not in seconds:
            return self.workers
        return max(seconds, key=lambda number: (number / seconds[number] if seconds[number] else float("inf"), number))

    def enough(self, number: int) -> int:
        """Returns how many contributors are enough for the sum of this ``number``, 0, 1, ..."""
        block, numbers = number // BLOCK, self.workers - self.least + 1
        if block < numbers:
            return self.workers - block
        turn, rest = divmod(block - numbers, TRIAL)
        return self.workers - turn % numbers if rest == TRIAL - 1 else self.best()
