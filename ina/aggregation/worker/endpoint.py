"""Endpoint: a worker of a job on a port, driven natively. Callers submit arrays and wait, without holding the GIL.

The C side is ``host/protocol/endpoint.c``. A tensor that fails fails the job: every later call raises the same error.
"""

from __future__ import annotations

import errno
import functools
import math
import os
import time
from collections.abc import Iterator

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.worker.block import stats_dict
from ina.aggregation.worker.config import MAX_OPS, WorkerConfig, fill_tensor, fill_tensor_at, set_source
from ina.aggregation.worker.errors import Event, event_from_c
from ina.aggregation.worker.offer import Offer, StaleOffer, amended
from ina.aggregation.worker.route import Route
from ina.base.closing import Closing
from ina.base.native import CData, ffi, lib
from ina.net.ports import PS, Port

_SLICE = 0.2  # seconds: longest delay of signals (Ctrl-C) while waiting


class Endpoint(Closing):
    """All-reduces of one worker over ``port``, which the endpoint then owns (not if it cannot start). Raises OSError; ValueError:
    a worker has begun with ``config`` before.

    ``alive_fd`` is a socket to the switch process: its hang-up fails the job at once (``PeerLost``); -1: none. ``spin``: seconds
    after the last frame for which the driver polls the port without pause, before it sleeps between polls. ``yields``: seconds
    for which it then gives its processor away and polls, as long as it gets it back at once.
    """

    def __init__(self, config: WorkerConfig, port: Port, alive_fd: int = -1, spin: float = 0.0, yields: float = 0.0):
        self.config = config
        self._reductions = protocols.reductions(config.protocol)
        with config.lease() as c:
            endpoint = lib.ina_endpoint_start(protocols.named(config.protocol), c, port.handle, alive_fd)
            if endpoint == ffi.NULL:
                reason = f"port takes frames of {port.max_frame} bytes, {config.frame_bytes} are needed"
                if port.max_frame >= config.frame_bytes:
                    reason = os.strerror(ffi.errno)
                raise OSError(ffi.errno, f"endpoint not started: {reason}")
        port.release()
        lib.ina_endpoint_spin(endpoint, round(spin * PS))
        lib.ina_endpoint_yield(endpoint, round(yields * PS))
        # Freed with the last reference: other threads may still be inside when this one closes it. Until then the port's Python
        # object stays, whose memory the port may use.
        self._endpoint = ffi.gc(endpoint, functools.partial(_stop, port))
        self._arrays: dict[int, object] = {}  # buffers of tickets that may be in flight
        self._offers: dict[int, CData] = {}  # what was said of them

    def submit(
        self, source: np.ndarray, out: np.ndarray | None = None, *, average: bool = False, tag: int = 0,
        reduction: int = protocols.SUM,
    ) -> int:
        """Starts the all-reduce of a contiguous array of one of DTYPES (``out``: default in place); returns a ticket.

        ``reduction``: one that the protocol has, else ValueError; maxima are of int32 only. Blocks while
        MAX_OPS tensors are in flight. Raises JobError if the job has failed.
        """
        tensor = ffi.new("struct ina_tensor *")
        out = source if out is None else out
        fill_tensor(tensor, source, out, average, tag, self._checked(reduction))
        return self._submit(tensor, (source, out))

    def submit_at(
        self, source: int, out: int, count: int, dtype: np.dtype | type, owner: object, *, average: bool = False,
        tag: int = 0, reduction: int = protocols.SUM, route: Route | None = None, offer: Offer | None = None,
    ) -> int:
        """Starts an all-reduce like ``submit``, or a sum along a ``route``, or of those that the switch chooses with an
        ``offer``, of ``count`` contiguous elements at two addresses, which ``owner`` keeps valid. ``source`` 0, only with an
        offer: ``amend`` has it later, or it has none.
        """
        tensor, pieces = self._described(source, out, count, np.dtype(dtype), average, tag, reduction, route)
        if offer is not None:
            protocols.check_offer(self.config.protocol, self.config.check)
            offer.fill(tensor, self.config.workers, self.config.worker, source != 0)
        elif not source and count:
            raise ValueError("source: 0, expected an address, or an offer")
        ticket = self._submit(tensor, (owner, pieces))
        if offer is not None:
            self._offers[ticket] = tensor
        return ticket

    def run_at(
        self, address: int, count: int, dtype: np.dtype | type, owner: object, seconds: float, *, average: bool = False,
        tag: int = 0, reduction: int = protocols.SUM, route: Route | None = None,
    ) -> tuple[int, bool]:
        """Starts a sum in place like ``submit_at``, and drives the protocol in this thread for up to ``seconds``. Returns the
        ticket, and True if the sum is there: then nobody has to wait for it."""
        tensor, pieces = self._described(address, address, count, np.dtype(dtype), average, tag, reduction, route)
        ticket, event = self._run(tensor, (owner, pieces), round(seconds * 1e9))
        return ticket, event is not None and event.code == lib.INA_OK

    def _run(self, tensor: CData, owner: object, nanoseconds: int) -> tuple[int, CData | None]:
        """Starts a sum, and drives it for so long. Returns its ticket, and what became of it; None: not done."""
        event = ffi.new("struct ina_event *")
        self._make_room()
        ticket = self._check(lib.ina_endpoint_run(self._endpoint, tensor, nanoseconds, event))
        if event.type and event.code == lib.INA_OK:
            return ticket, event
        self._arrays[ticket] = owner
        return ticket, event if event.type else None

    def _described(self, source: int, out: int, count: int, dtype: np.dtype, average: bool, tag: int, reduction: int,
                   route: Route | None) -> tuple[CData, object]:
        """Returns a tensor, and what the caller keeps until it is done (Route.fill)."""
        tensor = ffi.new("struct ina_tensor *")
        fill_tensor_at(tensor, source, out, count, dtype, average, tag, self._checked(reduction))
        if route is not None:
            protocols.check_route(self.config.protocol, self.config.check)
            return tensor, route.fill(tensor, self.config.workers, self.config.worker, self.config.values)
        return tensor, None

    def amend(self, ticket: int, source: int | None = None, owner: object = None, *, least: int | None = None,
              never: bool = False) -> bool:
        """Says more of a sum with an offer: its values are at ``source``, which ``owner`` keeps valid; fewer contributors are
        enough, ``least``; or this worker ``never`` has values. Returns False: too late, the sum is done.

        StaleOffer: there is no such sum, or it is over. ValueError: its values, or that there never are some, have been said.
        """
        tensor = self._offers.get(ticket)
        if tensor is None:
            raise StaleOffer(f"ticket {ticket}: no sum with an offer, or it is over")
        if least is not None and not 1 <= least <= self.config.workers:
            raise ValueError(f"least: {least}, expected 1..{self.config.workers}")
        offer, address = amended(tensor, source, least, never)
        result: int = lib.ina_endpoint_amend(self._endpoint, ticket, offer, address)
        if result < 0:
            self._check_process(result)
            raise ValueError(f"ticket {ticket}: its offer is not to be changed so")
        tensor.offer = offer[0]
        if source is not None:
            set_source(tensor, source)
            self._arrays[ticket] = self._arrays.get(ticket), owner
        return result == 0

    def run(
        self, source: np.ndarray, out: np.ndarray | None = None, *, average: bool = False, tag: int = 0,
        timeout: float | None = None, reduction: int = protocols.SUM,
    ) -> Event:
        """All-reduces an array, driving the protocol in this thread: fastest when there is nothing else to do."""
        tensor = ffi.new("struct ina_tensor *")
        out = source if out is None else out
        fill_tensor(tensor, source, out, average, tag, self._checked(reduction))
        slice_ns = next(_slices(timeout))
        ticket, event = self._run(tensor, (source, out), slice_ns)
        if event is not None:
            self._forget(ticket)
            return self._finished(event)
        return self.wait(ticket, None if timeout is None else max(0.0, timeout - slice_ns / 1e9))

    def _checked(self, reduction: int) -> int:
        if reduction not in self._reductions:
            protocols.check_reduction(self.config.protocol, reduction)
        return reduction

    def wait(self, ticket: int, timeout: float | None = None) -> Event:
        """Waits for a tensor (None: as long as its deadline allows). JobError: it failed; TimeoutError: not yet."""
        event = ffi.new("struct ina_event *")
        for slice_ns in _slices(timeout):
            result = lib.ina_endpoint_wait(self._endpoint, ticket, slice_ns, event)
            if result > 0:
                self._forget(ticket)
                return self._finished(event)
            if result < 0:
                self._check_process(result)
                raise ValueError(f"ticket {ticket}: {'too old' if result == -errno.ESTALE else 'never given'}")
        raise TimeoutError(f"tensor {ticket} is not done within {timeout} s; it is still in flight")

    def next(self, timeout: float) -> tuple[int, Event] | None:
        """Returns the next finished ticket in order of completion, failed or not; None: none within ``timeout`` seconds.

        For one completion thread. BrokenPipeError: the endpoint is closed.
        """
        event = ffi.new("struct ina_event *")
        for slice_ns in _slices(timeout):
            ticket = lib.ina_endpoint_next(self._endpoint, slice_ns, event)
            if ticket > 0:
                self._forget(ticket)
                return ticket, event_from_c(event, self.config.workers)
            if ticket < 0:
                self._check_process(ticket)
                raise BrokenPipeError("the endpoint is closed")
        return None

    def abort(self) -> None:
        """Fails all tensors in flight with JobAborted, and the job."""
        lib.ina_endpoint_abort(self._endpoint)

    @property
    def failure(self) -> Event | None:
        """The event that failed the job; None while it lives."""
        event = ffi.new("struct ina_event *")
        return event_from_c(event, self.config.workers) if lib.ina_endpoint_failure(self._endpoint, event) else None

    @property
    def stats(self) -> dict[str, int]:
        """Counters and times (ps) of the protocol."""
        stats = ffi.new("struct ina_worker_stats *")
        lib.ina_endpoint_stats(self._endpoint, stats, ffi.NULL)
        return stats_dict(stats)

    @property
    def port_stats(self) -> dict[str, int]:
        """Counters of the port."""
        stats = ffi.new("struct ina_port_stats *")
        lib.ina_endpoint_stats(self._endpoint, ffi.NULL, stats)
        return stats_dict(stats)

    def close(self) -> None:
        """Fails all tensors in flight, ends the thread, closes the port. A second call does nothing."""
        lib.ina_endpoint_close(self._endpoint)
        self._arrays.clear()

    def _submit(self, tensor: CData, owner: object) -> int:
        self._make_room()
        ticket = self._check(lib.ina_endpoint_submit(self._endpoint, tensor))
        self._arrays[ticket] = owner
        return ticket

    def _make_room(self) -> None:
        if len(self._arrays) >= 2 * MAX_OPS:
            self._forget_done()

    def _check(self, ticket: int) -> int:
        if ticket == -errno.EPIPE and (failure := self.failure):
            raise failure.exception(self.config.timeout)
        self._check_process(ticket)
        if ticket < 0:
            raise OSError(-ticket, f"tensor refused: {os.strerror(-ticket)}")
        return ticket

    def _check_process(self, result: int) -> None:
        if result == -errno.ECHILD:
            raise RuntimeError(f"ina: process {os.getpid()} was forked from the one that has the job: only that one may take "
                               "part in it; a child starts a group of its own")

    def _finished(self, c: CData) -> Event:
        event = event_from_c(c, self.config.workers)
        if error := event.error(self.config.timeout):
            raise error
        return event

    def _forget(self, ticket: int) -> None:
        self._arrays.pop(ticket, None)
        self._offers.pop(ticket, None)

    def _forget_done(self) -> None:
        event = ffi.new("struct ina_event *")
        for ticket in list(self._arrays):
            if lib.ina_endpoint_wait(self._endpoint, ticket, 0, event):
                self._forget(ticket)


def _stop(port: Port, endpoint: CData) -> None:
    lib.ina_endpoint_stop(endpoint)


def _slices(timeout: float | None) -> Iterator[int]:
    """Yields nanoseconds to wait at a time: at least once, until ``timeout`` seconds have passed."""
    end = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        rest = end - time.monotonic()
        yield int(max(0.0, min(_SLICE, rest)) * 1e9)
        if rest <= _SLICE:
            return
