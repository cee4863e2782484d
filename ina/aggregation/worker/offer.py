"""Offers: which workers' values a sum has is decided by the switch before it (p4/quorum.p4; protocol.h: enum ina_part).

    worker.submit(gradient, offer=Offer(least=7))             the sum of the first 7 workers that can contribute, or more
    handle = worker.submit(None, out, offer=Offer(least=7))   asks only: a worker whose gradient is not ready yet
    worker.amend(handle, gradient)                            now it is
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ina.base.native import CData, lib


class StaleOffer(ValueError):
    """There is no sum with such an offer, or it is over."""


ASK, GIVE, PASS = lib.INA_OFFER_ASK, lib.INA_OFFER_GIVE, lib.INA_OFFER_PASS


@dataclass(frozen=True)
class Offer:
    """A worker's offer to a sum.

    Attributes:
        least: so many contributors are enough, once all workers have asked; 1 to the workers of the job.
        rivals: numbers of the workers that would contribute the same as this one, of which one is enough.
        never: this worker never contributes: nobody waits for its values.
    """

    least: int
    rivals: Iterable[int] = ()
    never: bool = False

    def fill(self, c: CData, workers: int, worker: int, gives: bool) -> None:
        """Describes it in a ``struct ina_tensor``. Raises ValueError: it cannot be one of this ``worker`` of so many."""
        if not 1 <= self.least <= workers:
            raise ValueError(f"offer: least = {self.least}, expected 1..{workers}")
        rivals = {*self.rivals}
        if wrong := rivals - ({*range(workers)} - {worker}):
            raise ValueError(f"offer: rivals {sorted(wrong)} of worker {worker}, expected others of 0..{workers - 1}")
        if self.never and gives:
            raise ValueError("offer: values of a worker that never contributes; expected none")
        c.offer.state = PASS if self.never else GIVE if gives else ASK
        c.offer.least, c.offer.rivals = self.least, sum(1 << rival for rival in rivals)
