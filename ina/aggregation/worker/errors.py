"""Errors that end a job early. Each names what was waited for, and the missing workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ina.base.native import CData, lib


@dataclass(frozen=True)
class Event:
    """A finished tensor: ``code`` 0 is success; other fields describe the state of a failed job (times in ps)."""

    handle: int
    code: int
    overflow: bool  # a signed int32 overflow happened in some block: the sum wrapped
    slot: int
    tsi: int
    missing: tuple[int, ...] | None  # missing workers of the slot; None: the switch never answered for it
    last_rx: int  # time of the last frame that was accepted, 0: none
    contributors: tuple[int, ...] = ()  # of a sum with an offer: the workers whose values it has
    children: bool = False  # `missing` are children of some switch of the tree: the job has more workers than a bitmap has bits

    def error(self, waited: float | None = None) -> JobError | None:
        """Returns the exception for a failed tensor, else None."""
        return None if self.code == lib.INA_OK else self.exception(waited)

    def exception(self, waited: float | None = None) -> JobError:
        """Returns the exception for a tensor that has failed."""
        return _ERRORS[self.code](self, waited)


class JobError(RuntimeError):
    """The job is over; every tensor in flight has failed for this reason. ``text``: what happened, with fields of the event."""

    text: ClassVar[str]

    def __init__(self, event: Event, waited: float | None = None):
        self.event = event
        super().__init__(self.describe(event, waited))

    def describe(self, event: Event, waited: float | None) -> str:
        return self.text.format(event=event)


class JobTimeout(JobError, TimeoutError):
    """A tensor missed its deadline."""

    def describe(self, event: Event, waited: float | None) -> str:
        after = f" after {waited:g} s" if waited else ""
        if event.missing is None:
            whom = "the switch never answered for it: is it running, and is this worker admitted to the job?"
        elif event.missing and event.children:
            whom = f"a switch of the job's tree still waits for {len(event.missing)} of its children: late, stuck or dead"
        elif event.missing:
            whom = f"the switch still waits for worker {', '.join(map(str, event.missing))}: late, stuck or dead"
        else:
            whom = "the switch has all workers below it, but no result comes: lost, or waited for further up the tree"
        if event.last_rx:
            last = f"last packet from the switch at {event.last_rx / 1e12:.6f} s of the clock"
        else:
            last = "no packet ever came from the switch"
        return f"Timed out{after or ' waiting for a result'}: slot {event.slot}, packet (tsi) {event.tsi}; {whom}; {last}"


class RankTimeout(JobTimeout):
    """A tensor that hosts sum among themselves missed its deadline."""

    def describe(self, event: Event, waited: float | None) -> str:
        after, last = f" after {waited:g} s" if waited else "", "no packet ever came from it"
        if event.last_rx:
            last = f"its last packet came at {event.last_rx / 1e12:.6f} s of the clock"
        return (f"Timed out{after}: rank {event.tsi} waits for rank {event.slot}, which is late, waits itself, or cannot be "
                f"reached; {last}")


class JobMismatch(JobError, ValueError):
    """Workers submitted different tensors."""

    text = ("workers do not agree on the tensor that starts with packet (tsi) {event.tsi}: dtype, size, operation or order "
            "differ between ranks; every rank must call the same all-reduces in the same order")


class JobAborted(JobError):
    """The job was aborted by this worker."""

    text = "aborted by this worker (slot {event.slot}, packet {event.tsi})"


class PeerLost(JobError, ConnectionError):
    """The switch, or its process, went away."""

    text = "connection to the switch process lost: it ended, or disconnected this worker because another one died"


class JobCorrupt(JobError):
    """A sum does not have its check words, however often it is sent."""

    text = ("the sum of packet (tsi) {event.tsi}, slot {event.slot}, does not have the check words of the workers' values, in "
            "three transmissions: something between the workers changes bits (a switch's or a machine's memory, a link without "
            "FCS), or they use different values of `check`; no sum of this packet was used")


class TensorRefused(JobError, ValueError):
    """The protocol does not reduce such a tensor so; nothing of it was sent, and the job goes on."""

    text = ("the job's protocol does not reduce this tensor so: of another type than its own reduction takes, or with more "
            "workers than that has room for; nothing of it was sent")


class VersionRefused(JobError):
    """A switch speaks another wire version."""

    def describe(self, event: Event, waited: float | None) -> str:
        own = lib.INA_WIRE_VERSION
        older = "the worker's machine" if event.tsi > own else "the switch's machine, and load its program anew"
        return f"the switch speaks wire version {event.tsi}, this worker {own}: upgrade ina on {older}"


_ERRORS: dict[int, type[JobError]] = {
    lib.INA_ERR_TIMEOUT: JobTimeout,
    lib.INA_ERR_MISMATCH: JobMismatch,
    lib.INA_ERR_ABORTED: JobAborted,
    lib.INA_ERR_PEER: PeerLost,
    lib.INA_ERR_CORRUPT: JobCorrupt,
    lib.INA_ERR_VERSION: VersionRefused,
    lib.INA_ERR_REFUSED: TensorRefused,
    lib.INA_ERR_RANK: RankTimeout,
}


def event_from_c(event: CData, workers: int) -> Event:
    """Returns an ``Event`` from ``struct ina_event``."""
    bits = range(min(workers, lib.INA_BITMAP_WORKERS))
    missing = tuple(i for i in bits if event.missing >> i & 1) if event.have_missing else None
    contributors = tuple(i for i in bits if event.contributors >> i & 1) if event.contributors else ()
    return Event(event.op, event.code, bool(event.overflow), event.slot, event.tsi, missing, event.last_rx, contributors,
                 workers > lib.INA_BITMAP_WORKERS)
