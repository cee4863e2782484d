"""The largest values of a tensor, at places that all workers have in common, with error feedback.

    round 1, sums: the places, of one worker          round 2, sums: everybody's values there, as float32

topk   ScaleCom's CLT-k (Chen et al., NeurIPS'20): in call t, worker t modulo n chooses the places of its own largest values
dgc    deep gradient compression (Lin et al., ICLR'18): momentum before the choice, gradients cut by their norm, a warm-up of the
       share; the places as in `topk`, since a switch adds up values only where all workers send them

Others send zeros for the leader's places, so their sum is what it sent: 16 bits a place, from the beginning of each 65,536
values, whose numbers of places come first. What is not sent is added to the next values. ScaleCom's low-pass filter, a discount
b below 1, lets it grow by b of each gradient only, and go down by b of what is sent: m <- m + b (g - sent). So sums are right in
the long run with it, too: m / b is what they miss.

An infinity or NaN of any worker makes the whole tensor NaN in this call, and what earlier sums missed stays for the next.
"""

from __future__ import annotations

import math

import numpy as np

from ina.base.native import lib
from ina.codecs.block import Block
from ina.codecs.codec import ADD, Call, Feedback, Round, Rounds, Traffic, both_ways
from ina.codecs.pointers import pointer

CHUNK = 1 << 16  # values among which 16 bits name a place


class TopK(Feedback):
    """``share``: of the values, that travel: at least one. ``discount``: of the low-pass filter, 1: none. ``missed``: what is
    added to this worker's next values."""

    name = "topk"
    accumulator = Block.accumulator
    rounds = 2

    def __init__(self, share: float = 0.01, discount: float = 1.0) -> None:
        super().__init__()
        for name, value in (("share", share), ("discount", discount)):
            if not 0 < value <= 1:
                raise ValueError(f"codec {self.name}: {name} {value}, expected more than 0, at most 1")
        self.share, self.discount = share, discount
        self.missed = np.empty(0, np.float32)

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        """Yields the places, then the values."""
        if values.size >= 1 << 32:
            raise ValueError(f"codec {self.name}: {values.size} values, expected less than 2^32: a bucket of its own for some")
        wanted, *others = self._accumulated(values, call)
        count = self._count(values.size, call.step)
        words = np.zeros(self._words(values.size, count), np.int32)
        words[0] = not np.isfinite(wanted).all()  # counted: all must know
        if call.rank == call.step % call.workers:
            words[1:] = self._packed(self._largest(wanted, count), values.size)
        words = yield Round(words, ADD)
        if words[0]:
            return np.full_like(values, np.nan)
        places = self._unpacked(words[1:], values.size, count)
        sent = wanted[places]
        self._keep(places, wanted, *others)
        sums = yield Round(sent, ADD)
        result = np.zeros_like(values)
        result[places] = sums / np.float32(call.divisor)
        return result

    def _accumulated(self, values: np.ndarray, call: Call) -> tuple[np.ndarray, ...]:
        """Returns what this worker would like to send, and what else it remembers: new arrays."""
        return (values + self.missed if self.missed.size == values.size else values.copy(),)

    def _keep(self, places: np.ndarray, missed: np.ndarray, *others: np.ndarray) -> None:
        """Remembers what is not sent. ``places``: those that are."""
        missed[places] = 0
        if self.discount < 1:
            missed *= np.float32(self.discount)
            if self.missed.size == missed.size:
                missed += np.float32(1 - self.discount) * self.missed
        self.missed = missed

    def _share(self, step: int) -> float:
        return self.share

    def _count(self, elements: int, step: int) -> int:
        """Returns the number of values that travel."""
        return min(elements, max(1, math.ceil(self._share(step) * elements)))

    @staticmethod
    def _largest(values: np.ndarray, count: int) -> np.ndarray:
        places = np.empty(count, np.uint32)
        lib.ina_topk(values.size, pointer(values), count, pointer(places))
        return places

    @staticmethod
    def _words(elements: int, count: int) -> int:
        return 1 + -(-elements // CHUNK) + -(-count // 2)

    @staticmethod
    def _packed(places: np.ndarray, elements: int) -> np.ndarray:
        """Returns the words of ascending places: how many are in each chunk, and which."""
        offsets = np.zeros(places.size + places.size % 2, np.uint16)
        offsets[: places.size] = places & (CHUNK - 1)
        counts = np.bincount(places >> 16, minlength=-(-elements // CHUNK)).astype(np.int32)
        return np.concatenate((counts, offsets.view(np.int32)))

    @staticmethod
    def _unpacked(words: np.ndarray, elements: int, count: int) -> np.ndarray:
        chunks = -(-elements // CHUNK)
        starts = np.repeat(np.arange(chunks, dtype=np.int64) * CHUNK, words[:chunks])
        return starts + words[chunks:].copy().view(np.uint16)[:count]

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns the bytes of a call after the warm-up."""
        count = min(elements, max(1, math.ceil(self.share * elements)))
        return both_ways(self._words(elements, count) + count)


class Dgc(TopK):
    """``momentum``: of the optimiser, which must have none then. ``clip``: the norm at which gradients are cut, n^-1/2 of it each
    worker's; None: nowhere. ``warm_up``: calls in which the share goes down from 1/4 by quarters, in four stages.

    ``masked``: what is sent loses its momentum, as in the paper. That is little where a value waits for much longer than momentum
    lasts, 1 / (1 - momentum) calls, and most of it where it does not."""

    name = "dgc"

    def __init__(self, share: float = 0.001, momentum: float = 0.9, clip: float | None = None, warm_up: int = 0,
                 masked: bool = True) -> None:
        super().__init__(share)
        if not 0 <= momentum < 1 or (clip is not None and clip <= 0) or warm_up < 0:
            raise ValueError(f"codec {self.name}: momentum {momentum}, clip {clip}, warm_up {warm_up}: expected a momentum from "
                             "0 up to, not including, 1, a norm above 0 and a number of calls")
        self.momentum, self.clip, self.warm_up, self.masked = momentum, clip, warm_up, masked
        self.velocity = np.empty(0, np.float32)

    def _accumulated(self, values: np.ndarray, call: Call) -> tuple[np.ndarray, ...]:
        if self.clip is not None:
            norm = math.sqrt(lib.ina_thc_squares(values.size, pointer(values)))
            limit = self.clip / math.sqrt(call.workers)
            values = values * np.float32(limit / norm) if norm > limit else values
        velocity = values + np.float32(self.momentum) * self.velocity if self.velocity.size == values.size else values.copy()
        missed = velocity + self.missed if self.missed.size == values.size else velocity.copy()
        return missed, velocity

    def _keep(self, places: np.ndarray, missed: np.ndarray, *others: np.ndarray) -> None:
        (velocity,) = others
        missed[places] = 0
        if self.masked:
            velocity[places] = 0
        self.missed, self.velocity = missed, velocity

    def _share(self, step: int) -> float:
        return max(self.share, 0.25 ** (1 + 4 * step // self.warm_up)) if step < self.warm_up else self.share
