"""A process group's job at the switch: its connection, its endpoint, and what its failures mean.

    open: join (the switch process knows that this rank lives) ... first all-reduce: admit, attach, start the endpoint

Every rank asks the switch process by itself and all get the same answer, so no rank ever waits for another one here;
whichever order ranks take their groups in, nothing can dead-lock.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from ipaddress import IPv4Address

import torch

from ina._native import ffi, lib
from ina.backend import world
from ina.backend.counters import COUNTERS
from ina.backend.settings import Settings
from ina.control.client import Client, ControlError
from ina.control.ports import open_worker_port
from ina.transport.config import Address as FlowEnd
from ina.transport.config import WorkerConfig
from ina.transport.ports import Address

LEFT_GRACE = 5.0  # seconds that an all-reduce goes on after a worker that it may need has left in peace
PEER_NEWS = 2.0  # seconds to wait for the switch process's reason after its hang-up
RTO_MIN = 4e-3  # seconds: below the time slice of a busy machine a time-out says nothing about loss
RTO_MAX = 0.5
LONGEST = 9e5  # seconds: a longer time-out is as good as none

DTYPES = {torch.float32: lib.INA_FLOAT32, torch.int32: lib.INA_INT32}


@dataclass(frozen=True)
class Outcome:
    """How a tensor ended: ``error`` is "" if it is complete."""

    error: str = ""
    overflow: bool = False


class Job:
    """One per process group and rank. Methods may be called from any thread, except that ``close`` must come last."""

    def __init__(self, switch: str, switch_pid: int, name: str, rank: int, size: int, timeout: float,
                 settings: Settings):
        self.name, self.rank, self.size, self.timeout = name, rank, size, timeout
        self.settings = settings
        self.refusal: str | None = None  # "" when admitted, else why not; None: not asked yet
        self.failure = ""  # why the job is over
        self._switch, self._switch_pid = switch, switch_pid
        self._pid = os.getpid()
        self._lock = threading.Lock()  # of the connection and of opening
        self._submit_lock = threading.Lock()
        self._endpoint = ffi.NULL
        self._tag = 0
        self._last_stats: dict[str, int] = {}
        try:
            self._client = Client(switch, timeout)
            self._client.join(name, rank)
        except ControlError as error:
            raise RuntimeError(f"ina: {error}{world.log_tail(switch)}") from error

    def admit(self) -> str:
        """Be admitted, once: "" or why the switch refuses this job (the same on all ranks of the group).

        Raises RuntimeError when there is no switch any more, or another rank is lost.
        """
        with self._lock:
            if self.refusal is None:
                try:
                    self._client.admit(self.name, self.size)
                    attachment = self._client.attach(self.name, self.rank, self.settings.port)
                except ControlError as error:
                    if error.code in ("full", "too_many_workers"):
                        self.refusal = str(error)
                        return self.refusal
                    self.failure = f"ina: {error}{world.log_tail(self._switch)}"
                    raise RuntimeError(self.failure) from error
                try:
                    self._start(attachment)
                finally:
                    for fd in attachment.fds:
                        os.close(fd)
                self.refusal = ""
                COUNTERS.job_opened(self)
            return self.refusal

    def _start(self, attachment) -> None:
        config = WorkerConfig(
            worker=attachment.worker, workers=attachment.workers, job=attachment.number,
            incarnation=attachment.incarnation, slots=attachment.slots, values=attachment.values, rto_min=RTO_MIN,
            rto_max=RTO_MAX, timeout=min(self.timeout, LONGEST), address=_flow_end(attachment.address),
            switch=_flow_end(attachment.switch))
        port = open_worker_port(attachment, self.settings.faults)
        endpoint = lib.ina_endpoint_start(ffi.addressof(lib.ina_switchml), config.to_c(), port.handle,
                                          self._client.fileno())
        if endpoint == ffi.NULL:
            self.failure = f"ina: cannot start the endpoint of job {self.name!r}: {os.strerror(ffi.errno)}"
            port.close()
            raise RuntimeError(self.failure)
        port.release()  # the endpoint's from now on
        self._endpoint = endpoint

    def submit(self, pointer: int, dtype: torch.dtype, count: int, average: bool, stay: float = 0.0) -> tuple[int, int]:
        """Reduce ``count`` elements at ``pointer`` in place. Returns ticket and number of the operation.

        The memory must stay as it is until the ticket is done. ``stay``: drive the packets in this thread for so many
        seconds, if it has nothing else to do: a small tensor then costs no hand-off. RuntimeError if the job is over.
        """
        tensor = ffi.new("struct ina_tensor *")
        data = ffi.cast("void *", pointer)
        tensor[0] = {"in": data, "out": data, "count": count, "dtype": DTYPES[dtype], "average": average}
        with self._submit_lock:
            if self.failure:
                raise RuntimeError(self.failure)
            tensor.tag = self._tag
            if stay:
                ticket = lib.ina_endpoint_run(self._endpoint, tensor, int(stay * 1e9), ffi.new("struct ina_event *"))
            else:
                ticket = lib.ina_endpoint_submit(self._endpoint, tensor)
            if ticket < 0:
                raise RuntimeError(self._over(f"the switch endpoint refused all-reduce #{self._tag}: "
                                              f"{os.strerror(-ticket)}"))
            self._tag += 1
            return ticket, tensor.tag

    def wait(self, ticket: int, number: int, what: str, seconds: float) -> Outcome | None:
        """The outcome of a ticket, or None if it is not done within ``seconds`` (0: look, do not wait)."""
        event = ffi.new("struct ina_event *")
        done = lib.ina_endpoint_wait(self._endpoint, ticket, int(seconds * 1e9), event)
        if done == 0:
            if seconds > 0:
                self._watch()
            return None
        if done < 0:
            return Outcome(self._over(f"the endpoint lost all-reduce #{number}: {os.strerror(-done)}"))
        if event.type == lib.INA_EVENT_DONE:
            return Outcome(overflow=bool(event.overflow))
        return Outcome(self._over(self._explain(event, number, what)))

    def _watch(self) -> None:
        """An operation takes long: has a worker left that it may be waiting for?"""
        with self._lock:
            self._client.poll()
            gone = [w for w, since in self._client.left.items() if time.monotonic() - since > LEFT_GRACE]
        if gone and not self.failure:
            self.abort(f"ina: rank {gone[0]} has left group {self.name!r} (destroy_process_group), but an all-reduce "
                       "still waits for it")

    def _explain(self, event, number: int, what: str) -> str:
        operation = f"all-reduce #{number} ({what}) of rank {self.rank}"
        if event.code == lib.INA_ERR_MISMATCH:
            return (f"{operation}: the ranks do not agree on this all-reduce: dtype, operation, number of elements or "
                    f"order differs. This rank has {what} as number {number}; compare with the other ranks")
        if event.code == lib.INA_ERR_TIMEOUT:
            missing = [i for i in range(self.size) if event.missing >> i & 1] if event.have_missing else []
            who = f"the switch waits for rank(s) {missing}" if missing else "the switch did not answer"
            last = (f"last packet {(lib.ina_now() - event.last_rx) / 1e12:.1f} s ago" if event.last_rx
                    else "no packet ever came back")
            return (f"{operation}: no result within the group's time-out of {self.timeout:g} s; {who}; slot "
                    f"{event.slot}, packet {event.tsi}, {last}")
        if event.code == lib.INA_ERR_PEER:
            return f"{operation}: {self._news()}"
        return f"{operation} was aborted"

    def _news(self) -> str:
        """Why the switch process hung up."""
        deadline = time.monotonic() + PEER_NEWS
        while not (reason := self._poll()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return reason or f"the connection to the switch process {self._switch_pid} was lost"

    def _poll(self) -> str:
        with self._lock:
            reason = self._client.poll()
        if self._client.gone:
            return f"the switch process {self._switch_pid} ended{world.log_tail(self._switch)}"
        return reason

    def _over(self, text: str) -> str:
        """The job is over: the first reason stays."""
        self.failure = self.failure or (text if text.startswith("ina:") else f"ina: {text}")
        return self.failure

    def abort(self, reason: str = "ina: the process group was aborted") -> None:
        """Fail what is in flight, and everything later."""
        self._over(reason)
        if self._endpoint != ffi.NULL and os.getpid() == self._pid:
            lib.ina_endpoint_abort(self._endpoint)

    @property
    def failed(self) -> bool:
        return bool(self.failure)

    def worker_stats(self) -> dict[str, int]:
        """The native worker's statistics (``struct ina_worker_stats``) that add up over jobs."""
        if self._endpoint != ffi.NULL:
            worker, port = ffi.new("struct ina_worker_stats *"), ffi.new("struct ina_port_stats *")
            lib.ina_endpoint_stats(self._endpoint, worker, port)
            names = [name for name, _ in ffi.typeof("struct ina_worker_stats").fields if not name.endswith("_ps")]
            self._last_stats = {name: int(getattr(worker, name)) for name in names}
        return self._last_stats

    def close(self, in_peace: bool) -> None:
        """End of the job for this rank. ``in_peace``: the other ranks may finish; else they are told that it is lost.

        Nobody may be in ``wait`` or ``submit`` any more.
        """
        if self._client is None or os.getpid() != self._pid:  # a forked child owns nothing of this
            return
        with self._submit_lock:
            self._over("the process group has been destroyed")
        COUNTERS.job_closed(self)
        with self._lock:
            if in_peace:
                try:
                    self._client.release()
                except ControlError:  # the switch process is gone, or has given up the job: nothing left to release
                    in_peace = False
            endpoint, self._endpoint = self._endpoint, ffi.NULL
            if endpoint != ffi.NULL:
                lib.ina_endpoint_stop(endpoint)
            self._client.close()
            self._client = None


def _flow_end(address: Address) -> FlowEnd:
    return FlowEnd(bytes.fromhex(address.mac.replace(":", "")), int(IPv4Address(address.ip)), address.port)
