"""Updates of workers that a queue may merge on their way to a server: their words, a judge of all that come, and the age of what
the server knows.

    words   group | senders | number of each sender's update, by sender | parameters, whole numbers (update_words)

All behind the senders is added up where updates are merged, so an update that comes names the updates that are in it, and the
judge compares it with their sum, to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ina.base.settings import ConfigError
from ina.lab.virtual.virtual_network import WrongSum
from ina.net.ports import PS
from ina.worlds.virtual.updates import HEAD

FRACTION = 16  # bits: updates travel as multiples of 2^-16


def update_words(group: int, sender: int, number: int, senders: int, values: np.ndarray) -> np.ndarray:
    """Returns int32 (HEAD + senders + n,): update ``number``, from 1 on, of a sender, with float32 (n,) ``values`` to the nearest
    multiples of 2^-FRACTION. ConfigError: a sum of as large ones of all senders might not fit."""
    largest = float(np.max(np.abs(values), initial=0.0))
    if not largest * senders * 2.0**FRACTION < 2.0**31:
        raise ConfigError(f"lr: an update has a value of {largest:g}, expected less than {2.0**(31 - FRACTION) / senders:g} with "
                          f"{senders} workers; give a lower lr")
    numbers = np.zeros(senders, np.int32)
    numbers[sender] = number
    head = np.array([group, 1 << sender], np.uint32).view(np.int32)
    return np.concatenate([head, numbers, np.rint(values.astype(np.float64) * 2**FRACTION).astype(np.int32)])


def values_of(words: np.ndarray, senders: int) -> np.ndarray:
    """Returns float32 (n,): the sum of the updates' values that ``words`` have."""
    return (words[HEAD + senders:].astype(np.float64) / 2**FRACTION).astype(np.float32)


@dataclass
class Sent:
    """An update that a worker has sent, at ``time`` ps; ``version`` of the parameters that it began with."""

    words: np.ndarray
    version: int
    time: int


class UpdateJudge:
    """Record of all updates of ``senders`` workers: what comes is a sum of some that were sent, each at most once, and in the
    order of each worker."""

    def __init__(self, senders: int):
        self.senders = senders
        self.sent: dict[tuple[int, int], Sent] = {}  # by sender and number, those that have not come
        self.count = self.came = 0  # updates that were sent, and that came, alone or merged
        self._latest = [0] * senders  # number that came

    def send(self, sender: int, number: int, words: np.ndarray, version: int, time: int) -> None:
        """Notes an update."""
        self.sent[sender, number] = Sent(words, version, time)
        self.count += 1

    def receive(self, words: np.ndarray) -> list[tuple[int, Sent]]:
        """Returns the updates that are in one that came, by sender. Raises WrongSum."""
        group, mask = (int(word) for word in words[:HEAD].view(np.uint32))
        numbers, parts = words[HEAD:HEAD + self.senders], list[tuple[int, Sent]]()
        for sender in range(self.senders):
            number = int(numbers[sender])
            if (mask >> sender & 1) != (number > 0):
                raise WrongSum(f"an update of group {group} names the senders {mask:b}, and the numbers {numbers.tolist()}")
            if not number:
                continue
            if number <= self._latest[sender] or (sender, number) not in self.sent:
                raise WrongSum(f"update {number} of worker {sender} came, which was not sent, or after number "
                               f"{self._latest[sender]}")
            self._latest[sender] = number
            parts.append((sender, self.sent.pop((sender, number))))
        if any(int(part.words[0]) != group for _, part in parts):
            senders = [each for each, _ in parts]
            raise WrongSum(f"an update of group {group} has updates of other groups: of the workers {senders}")
        if not np.array_equal(words[HEAD:], np.sum([part.words[HEAD:] for _, part in parts], axis=0, dtype=np.int32)):
            raise WrongSum(f"an update of group {group} is not the sum of the updates {numbers.tolist()} that it names")
        self.came += len(parts)
        return parts

    def check_lost(self, replaced: int, dropped: int) -> None:
        """Compares what did not come with what a queue has ``replaced`` and ``dropped``, once nothing is under way. Raises
        WrongSum."""
        if len(self.sent) != self.count - self.came or len(self.sent) != replaced + dropped:
            raise WrongSum(f"of {self.count} updates {self.came} came; the queue replaced {replaced} and dropped {dropped}, so "
                           f"{self.count - replaced - dropped} should have")


class Age:
    """Age of the newest that is known: the time since it was sent, whenever one comes. It rises with time, and falls when a newer
    one comes (the age of information; Kaul, Yates and Gruteser, INFOCOM 2012)."""

    def __init__(self) -> None:
        self.newest: int | None = None  # ps, when it was sent
        self.peaks: list[float] = []  # s, just before each fall
        self._since = self._area = self._begun = 0  # ps, ps^2, ps

    def know(self, sent: int, now: int) -> None:
        """Notes at ``now`` (ps) one that was sent at ``sent`` (ps)."""
        if self.newest is None:
            self.newest, self._since, self._begun = sent, now, now
        elif sent > self.newest:
            self._grow(now)
            self.peaks.append((now - self.newest) / PS)
            self.newest = sent

    def _grow(self, now: int) -> None:
        assert self.newest is not None
        self._area += (now - self._since) * (now + self._since - 2 * self.newest)  # twice the trapezium
        self._since = now

    def mean(self, now: int) -> float | None:
        """Returns the mean over time, s, from the first that came to ``now`` (ps); None: none did, or just now."""
        if self.newest is None or now == self._begun:
            return None
        self._grow(now)
        return self._area / 2 / (now - self._begun) / PS
