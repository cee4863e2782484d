"""Offers: which workers' values a sum has is decided by the switch before it (p4/quorum.p4), or by ATP's parameter server
(protocol.h: enum ina_part).

    worker.submit(gradient, offer=Offer(least=7))             the sum of the first 7 workers that can contribute, or more
    handle = worker.submit(None, out, offer=Offer(least=7))   asks only: a worker whose gradient is not ready yet
    worker.amend(handle, gradient)                            now it is
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ina.aggregation.worker.config import fill_tensor, set_source
from ina.base.native import CData, ffi, lib


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
        c.part = lib.INA_PART_CHOSEN
        c.offer.state = PASS if self.never else GIVE if gives else ASK
        c.offer.least, c.offer.rivals = self.least, sum(1 << rival for rival in rivals)


def fill_arrays(
    c: CData, source: np.ndarray | None, out: np.ndarray | None, average: bool, tag: int, reduction: int, offer: Offer | None,
    workers: int, worker: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Describes a sum in a ``struct ina_tensor`` as ``fill_tensor`` does; with an ``offer``, of those that the switch chooses:
    then ``source`` may be None. Returns the arrays that the caller keeps alive. Raises ValueError, TypeError."""
    out = source if out is None else out
    given = out if source is None else source
    if out is None or given is None or (source is None and offer is None):
        raise ValueError("source: None, expected an array, or an offer and `out`")
    fill_tensor(c, given, out, average, tag, reduction)
    if offer is not None:
        offer.fill(c, workers, worker, source is not None)
        set_source(c, 0 if source is None else source.ctypes.data)
    return given, out


def check_source(source: np.ndarray | None, out: np.ndarray) -> None:
    """Raises ValueError: ``source``, if there is one, is no contiguous array like ``out``."""
    if source is not None and (source.dtype != out.dtype or source.size != out.size or not source.flags.c_contiguous):
        raise ValueError(f"source: {source.dtype} x {source.size}, expected {out.dtype} x {out.size}, contiguous")


def amended(c: CData, source: int | None, least: int | None, never: bool) -> tuple[CData, CData]:
    """Returns the offer of a ``struct ina_tensor`` with what is new, a ``struct ina_offer *``, and the address of its values:
    they are at ``source``, there ``never`` are some, or ``least`` contributors are enough. Raises ValueError: it has been said
    whether there are values."""
    offer, gives = ffi.new("struct ina_offer *", c.offer), source is not None
    if (gives or never) and offer.state != ASK or gives and never:
        raise ValueError("its offer is not to be changed so: its values, or that there are none, have been said")
    offer.state = GIVE if gives else PASS if never else offer.state
    offer.least = offer.least if least is None else least
    return offer, getattr(c, "in") if source is None else ffi.cast("void *", source)
