"""A worker without I/O: tensors in, frames out, frames in, results out, at times that the caller passes.

It is the C state machine of the configuration's protocol (``host/<protocol>.c``) behind NumPy arrays and bytes, for
tests, emulation and exploration; ``Endpoint`` drives the same machine over a port.
"""

from __future__ import annotations

import errno
import itertools

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.worker.block import Block
from ina.aggregation.worker.config import MAX_OPS, WorkerConfig
from ina.aggregation.worker.errors import Event, event_from_c
from ina.aggregation.worker.offer import Offer, amended, check_source, fill_arrays
from ina.aggregation.worker.route import Route, fill_route
from ina.base.native import ffi, lib


class Worker(Block):
    """One worker of a job. Times are integer picoseconds of any clock; nothing here reads one."""

    def __init__(self, config: WorkerConfig, now: int = 0):
        self.config = config
        self._protocol = protocols.named(config.protocol)
        with config.lease() as c:
            self._reserve(self._protocol.state_size(c), self._protocol.stats_offset(c), config.frame_bytes)
            if self._protocol.init(self._state, c, now) < 0:
                raise ValueError(f"the protocol refuses {config}")
        self._tensors = ffi.new("struct ina_tensor[]", MAX_OPS)
        # kept alive until the handle is used again
        self._arrays: list[tuple[np.ndarray, np.ndarray, object] | None] = [None] * MAX_OPS

    def submit(
        self, source: np.ndarray | None, out: np.ndarray | None = None, *, average: bool = False, tag: int = 0, now: int = 0,
        reduction: int = protocols.SUM, route: Route | None = None, offer: Offer | None = None,
    ) -> int:
        """Starts the all-reduce of a contiguous array of one of DTYPES (``out``: default in place), or its sum along a
        ``route``, or of those that the switch chooses with an ``offer``; returns its handle. ``source`` None, only with an offer:
        ``amend`` has it later, or it has none.

        BlockingIOError: MAX_OPS tensors are in flight; BrokenPipeError: the job has failed.
        """
        protocols.check_reduction(self.config.protocol, reduction)
        if offer is not None:
            protocols.check_offer(self.config.protocol, self.config.check)
        tensor = ffi.new("struct ina_tensor *")
        arrays = fill_arrays(tensor, source, out, average, tag, reduction, offer, self.config.workers, self.config.worker)
        if route is not None:
            protocols.check_route(self.config.protocol, self.config.check)
        pieces = fill_route(tensor, route, self.config.workers, self.config.worker, self.config.values)
        handle: int = lib.ina_protocol_submit(self._protocol, self._state, self._tensors, tensor, now)
        if handle < 0:
            why = {-errno.EPIPE: "the job has failed", -errno.EAGAIN: f"{MAX_OPS} tensors in flight"}
            raise OSError(-handle, why.get(handle, "submit refused"))
        self._arrays[handle] = (*arrays, pieces)
        return handle

    def amend(self, handle: int, source: np.ndarray | None = None, *, least: int | None = None, never: bool = False,
              now: int = 0) -> None:
        """Says more of a sum with an offer: here is its ``source``, fewer contributors are enough, or it ``never`` has one.

        ValueError: it has been given, or this worker said that it never is.
        """
        tensor, arrays = self._tensors[handle], self._arrays[handle]
        if tensor.part != lib.INA_PART_CHOSEN or arrays is None:
            raise ValueError(f"tensor {handle}: has no offer")
        check_source(source, arrays[1])
        offer, address = amended(tensor, None if source is None else source.ctypes.data, least, never)
        if lib.ina_protocol_amend(self._protocol, self._state, self._tensors, handle, offer, address, now) < 0:
            raise ValueError(f"tensor {handle}: its offer is not to be changed so")
        if source is not None:
            self._arrays[handle] = (source, *arrays[1:])

    def receive(self, frame: bytes, now: int) -> bytes | None:
        """Takes a frame, any bytes; returns the frame to send in its place if the worker replies in place."""
        buffer = ffi.new("uint8_t[]", max(len(frame), self.config.frame_bytes))
        ffi.memmove(buffer, frame, len(frame))
        self._packet.data, self._packet.len = buffer, len(frame)
        self._packet.wire_len, self._packet.headroom = len(frame), 0
        self._packet.tailroom = len(buffer) - len(frame)
        if self._protocol.receive(self._state, self._tensors, self._packet, 1, now):
            return bytes(ffi.buffer(self._packet.data, self._packet.len))
        return None

    def frames_to_send(self, now: int, limit: int | None = None) -> list[bytes]:
        """Returns all frames that are due now (at most ``limit``)."""
        frames = self._frames(lambda packet: self._protocol.frames_to_send(self._state, self._tensors, packet, 1, now))
        return list(itertools.islice(frames, limit))

    def next_timer(self) -> int | None:
        """Returns when frames_to_send has to be called again even if nothing arrives; None: never."""
        t = self._protocol.next_timer(self._state)
        return None if t == 2**64 - 1 else t

    def expire(self, slot: int, now: int) -> bool:
        """Times out one slot; returns False if it has nothing in flight."""
        return bool(self._protocol.expire(self._state, slot, now) == 0)

    def abort(self, now: int, code: int = lib.INA_ERR_ABORTED) -> None:
        """Fails every tensor in flight, and the job."""
        self._protocol.abort(self._state, code, now)

    def events(self) -> list[Event]:
        """Returns tensors that have finished since the last call, in order."""
        buffer = ffi.new("struct ina_event[]", MAX_OPS)
        n = self._protocol.events(self._state, buffer, MAX_OPS)
        return [event_from_c(buffer[i], self.config.workers) for i in range(n)]

    def snapshot(self) -> bytes:
        """As Block's. With offers also what was said of tensors, which may change while they are in flight."""
        return super().snapshot() + self._said()

    def restore(self, snapshot: bytes) -> None:
        end = len(snapshot) - len(self._said())
        super().restore(snapshot[:end])
        ffi.memmove(self._tensors, snapshot[end:], len(snapshot) - end)

    def _said(self) -> bytes:
        return bytes(ffi.buffer(self._tensors)) if self._protocol.offers else b""

    @property
    def stats(self) -> dict[str, int]:
        """Counters and times (ps) of ``struct ina_worker_stats``."""
        return self._counters("ina_worker_stats")
