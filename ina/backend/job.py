"""A process group's job at the switch: its connection, its endpoint, and the handling of its failures.

    open: join (registers this rank with the switch process) ... first all-reduce: admit, attach, start the endpoint

Every rank sends its own requests to the switch process and all get the same answer, so no rank ever waits for another one here:
in whatever order ranks use their groups, there is no dead-lock.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist

from ina.aggregation import lane, protocols
from ina.aggregation.control_socket.channel import elsewhere
from ina.aggregation.controller.client import Attachment, Client, ControlError
from ina.aggregation.controller.keeper import Keeper
from ina.aggregation.controller.lost_process import fate
from ina.aggregation.controller.worker_ports import open_worker_port
from ina.aggregation.port_kinds import PortKind, offered_kind, setting_kind
from ina.aggregation.worker import (
    Endpoint,
    Event,
    JobAborted,
    JobError,
    JobMismatch,
    JobTimeout,
    PeerLost,
    Route,
    TensorRefused,
    WorkerConfig,
)
from ina.aggregation.worker.failover import Movable, array_at
from ina.aggregation.worker.offer import Offer, StaleOffer
from ina.backend import rendezvous
from ina.backend.coded import CodecError
from ina.backend.counters import COUNTERS, WORKER
from ina.backend.late import Late
from ina.backend.locks import Lock
from ina.backend.roll_call import Disagreement
from ina.backend.settings import Settings
from ina.base.native import lib
from ina.net.ports import Port
from ina.p4.runtime.shared import SharedPort, Turns

LEFT_GRACE = 5.0  # seconds that an all-reduce goes on after a worker that it may need has left the job
LOST_GRACE = 0.2  # seconds for what a worker that is lost has sent; the switch process hangs up later
PEER_NEWS = 60.0  # seconds to wait for the switch process's reason after its hang-up
RTO_MIN_FAULTS = 4e-3  # seconds; without faults a port's kind has its own
RTO_MAX = 0.5
START_TIMEOUT = 120.0  # seconds, at least, for a switch process that has to compile its program first
FINGERPRINT_WORDS = 3  # of a tensor's first packet (host/protocol/tensors.h)
FEW = 1e-4  # of the values: those flushed to zero that need no warning
LOOK = 256  # sums between looks at the counters, of which the first come sooner: after FIRST_LOOK, twice as many, and so on
FIRST_LOOK = 8
LONGEST = 9e5  # seconds: longer time-outs are cut to this

DTYPES = {getattr(torch, lane.dtype_name(dtype)): dtype for dtype in lane.DTYPES}  # NumPy's


class Job:
    """A job; one per process group and rank. Methods may be called from any thread, except that ``close`` must come last."""

    def __init__(self, switch: str, switch_pid: int, name: str, rank: int, size: int, timeout: float,
                 settings: Settings, token: str = "", store: dist.Store | None = None, access: str = "", runs: bool = False,
                 ranks: Callable[[], Sequence[int]] | None = None, paths: Sequence[str] = (), started: float = 0.0,
                 above: str = ""):
        """``store``: the group's own, for the ranks to agree in when a switch fails. ``token`` and ``access``: as Client's.
        ``runs``: the ranks run the job's switch, if the switch process lets them. ``ranks``: returns the ranks' names for people;
        None: 0, 1, ... ``paths``: of all ranks in a tree of switch processes (switch_trees.py); none: they are at one.
        ``started``: when the switch process started, as it says; 0: not known. ``above``: a pass for the job at the switch
        process above this rank's; "": that one has an access of its own."""
        self.name, self.rank, self.size, self.timeout = name, rank, size, timeout
        self.settings = settings
        self.refusal: str | None = None  # "" when admitted, else the reason; None: no request yet
        self.failure = ""  # the reason why the job is over
        self.difference = ""  # how the ranks disagree, if that is the reason, and known
        self.config: WorkerConfig  # once admitted
        self.reductions: frozenset[int] = frozenset()  # once admitted: those that its protocol declares
        self.routes = False  # once admitted: sums may be from and to some ranks only
        self._switch, self._switch_pid, self._switch_started = switch, switch_pid, started
        self._port = settings.port_at(switch)
        self._kind = setting_kind(self._port)
        self._runs_already = bool(settings.switch) or elsewhere(switch) or bool(paths)  # only rank 0 needs INA_SWITCH
        self.path = paths[rank] if paths else ""
        self._runs = runs
        self._seat: SharedPort | None = None  # where this rank runs the switch
        self._pid = os.getpid()
        self.lock = Lock(f"the connection of job {name!r}", lambda: self.timeout)  # also held while it opens
        self._submit_lock = Lock(f"the endpoint of job {name!r}", lambda: self.timeout)
        self._endpoint: Endpoint | Movable | None = None
        self.exact_floats = 0  # that a packet carries in the exact code, with its protocol's sums
        self._store = store
        self._closed = False
        self._keeper: Keeper | None = None
        self._tag = 0
        self._last_stats: dict[str, int] = {}
        self._told = 0  # notices
        self._late = Late(rank, size, ranks or (lambda: range(size)))
        self._warned = False
        self._incarnation = 0  # of the attachment that the endpoint has
        try:
            self.client = Client(switch, max(timeout, START_TIMEOUT), token, access=access)
            self.client.join(name, rank, paths, above=above)
        except ControlError as error:
            raise RuntimeError(f"ina: {error}{rendezvous.log_tail(switch)}") from None

    def admit(self) -> str:
        """Requests admission, once. Returns "" or why the switch refuses this job (the same on all ranks of the group).

        Raises RuntimeError if the switch has ended, or another rank is lost.
        """
        with self.lock:
            if self.failure:
                raise RuntimeError(self.failure)
            if self.refusal is None:
                try:
                    own = "" if self._runs_already else self._kind.check_words
                    self.client.admit(self.name, self.size, check=self.settings.check or own)
                    attachment = self._attach()
                except ControlError as error:
                    if error.code in ("full", "too_many_workers"):
                        self.refusal = str(error)
                        return self.refusal
                    self.failure = f"ina: {error}{rendezvous.log_tail(self._switch)}"
                    raise RuntimeError(self.failure) from None
                endpoint = self._open(attachment)
                movable = Movable(endpoint, attachment.slots, attachment.values) if attachment.moves else None
                self._endpoint = movable or endpoint
                if attachment.moves or attachment.outlives:
                    self._keeper = Keeper(self, movable, self._store, attachment.outlives)
                self.refusal = ""
                COUNTERS.job_opened(self)
            return self.refusal

    def _attach(self) -> Attachment:
        return self._attach_with(self.client)

    def _attach_with(self, client: Client, incarnation: int = 0) -> Attachment:
        kind, setting = self._kind, self._port
        request = kind.request(setting, rendezvous.number(self.rank)) if kind.own_device else kind.name
        return client.attach(self.name, self.rank, request, moves=self._store is not None, held=incarnation,
                             runs=self._runs, tags=self.settings.tags)

    def _open_own(self, kind: PortKind, attachment: Attachment, max_frame: int) -> Port:
        return kind.open_own(self._port, rendezvous.number(self.rank), attachment.address.port, max_frame,
                             self.settings.dpdk, min(self.timeout, LONGEST))

    def reopen(self) -> Endpoint:
        """Opens an endpoint where the job has been moved to. Raises ControlError, RuntimeError."""
        with self.lock:
            return self._open(self._attach())

    def reconnect(self) -> None:
        """Connects to a new controller; the endpoint goes on unchanged. Raises ControlError."""
        client = Client(self._switch, self.client.timeout, self.client.token, self.client.host, self.client.access)
        try:
            client.join(self.name, self.rank)
            attachment = self._attach_with(client, self._incarnation)
        except ControlError:
            client.close()
            raise
        for fd in attachment.fds:
            os.close(fd)
        with self.lock:
            self.client.close()
            self.client, self._told = client, 0

    def _open(self, attachment: Attachment) -> Endpoint:
        try:
            return self._start(attachment)
        finally:
            for fd in attachment.fds:
                os.close(fd)

    def _start(self, attachment: Attachment) -> Endpoint:
        """Starts an endpoint. Raises RuntimeError: the job is over."""
        if self.settings.faults is not None:
            rto_min = RTO_MIN_FAULTS
        else:
            offered = offered_kind(attachment.port)
            rto_min = offered.rto_min_network if self._runs_already else offered.rto_min
        if self.settings.protocol not in ("", attachment.protocol):
            self.failure = (f"ina: the switch process {self._switch_pid} speaks {attachment.protocol}, but INA_PROTOCOL is "
                            f"{self.settings.protocol}: its program, {self.settings.program}, is another protocol's")
            raise RuntimeError(self.failure)
        self._incarnation = attachment.incarnation
        self.config = attachment.config(rto_min=rto_min, rto_max=RTO_MAX, timeout=min(self.timeout, LONGEST))
        self.reductions = protocols.reductions(attachment.protocol, keyed=attachment.check == "keyed")
        self.routes = protocols.has_routes(attachment.protocol, attachment.check) and not attachment.moves  # Movable cuts tensors
        if not self.exact_floats and attachment.workers <= lib.INA_EXACT_WORKERS:
            self.exact_floats = (attachment.values - FINGERPRINT_WORDS) // lib.INA_EXACT_WORDS
        kind = self._kind
        own = (lambda max_frame: self._open_own(kind, attachment, max_frame)) if kind.own_device else None
        try:
            port = open_worker_port(attachment, self.settings.faults, own)
        except (OSError, ValueError) as error:
            self.failure = f"ina: job {self.name!r}: {error}"
            raise RuntimeError(self.failure) from None
        self._seat = port if isinstance(port, SharedPort) else None
        try:
            if self.settings.capture:
                folder = Path(self.settings.capture)
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise OSError(f"INA_CAPTURE={folder} cannot be made: {error}") from error
                port.with_capture(folder / f"{self.name.replace('/', '-')}-worker{attachment.worker}.pcap")
            alive = -1 if attachment.outlives else self.client.fileno()
            return Endpoint(self.config, port, alive, kind.spin, kind.yields)
        except OSError as error:
            port.close()
            self.failure = f"ina: job {self.name!r}: {error}"
            raise RuntimeError(self.failure) from None

    def submit(self, tensor: torch.Tensor, average: bool, mark: int) -> tuple[int, int]:
        """Begins the sum of a contiguous tensor over the ranks, in place. Returns ticket and number, for ``wait``; arguments and
        errors as of ``run``."""
        return self.run(tensor, average, mark, 0.0)[:2]

    def run(
        self, tensor: torch.Tensor, average: bool, mark: int, seconds: float, reduction: int = protocols.SUM,
        route: Route | None = None,
    ) -> tuple[int, int, bool]:
        """Reduces a contiguous tensor in place: its sum over the ranks, or along a ``route``, or another ``reduction``. Returns
        ticket and number, and True if the result is there, so that nobody has to wait for it.

        ``mark``: 32 bits that the ranks must agree on beyond the tensor's type and size and ``average``.
        ``seconds``: drives the packets in this thread for so long, as it has nothing else to do: a small tensor then costs no
        hand-off. Raises RuntimeError if the job is over.
        """
        pointer = tensor.data_ptr()
        with self._submit_lock:
            if self.failure:
                raise RuntimeError(self.failure)
            number = self._tag
            try:
                tag, endpoint, dtype = number << 32 | mark, self._endpoint, DTYPES[tensor.dtype]
                assert endpoint is not None  # admitted; a closed job has a failure
                complete = False
                if isinstance(endpoint, Movable):
                    array = array_at(pointer, tensor.numel(), dtype)
                    ticket = endpoint.submit(array, array, owner=tensor, average=average, tag=tag, reduction=reduction)
                elif seconds:
                    ticket, complete = endpoint.run_at(pointer, tensor.numel(), dtype, tensor, seconds, average=average, tag=tag,
                                                       reduction=reduction, route=route)
                else:
                    ticket = endpoint.submit_at(pointer, pointer, tensor.numel(), dtype, tensor, average=average, tag=tag,
                                                reduction=reduction, route=route)
            except (JobError, OSError) as error:
                kind = Disagreement if isinstance(error, JobMismatch) else RuntimeError  # of an earlier one, still on its way
                raise kind(self._end(f"collective #{number} was not begun: {self._reason(error)}")) from None
            self._tag += 1
            sooner = FIRST_LOOK <= self._tag < LOOK and not self._tag & (self._tag - 1)
            if (sooner or self._tag % LOOK == 0) and not self._warned:
                self.worker_stats()
            return ticket, number, complete

    def ask(self, out: torch.Tensor, average: bool, mark: int, offer: Offer) -> tuple[int, int]:
        """Begins a sum of those ranks that the switch chooses, into a contiguous tensor; ``give`` has this rank's values. Returns
        ticket and number; arguments and errors as of ``submit``."""
        with self._submit_lock:
            if self.failure:
                raise RuntimeError(self.failure)
            number, endpoint = self._tag, self._chooser()
            try:
                ticket = endpoint.submit_at(0, out.data_ptr(), out.numel(), DTYPES[out.dtype], out, average=average,
                                            tag=number << 32 | mark, offer=offer)
            except (JobError, OSError) as error:
                raise RuntimeError(self._end(f"collective #{number} was not begun: {self._reason(error)}")) from None
            self._tag += 1
            return ticket, number

    def give(self, ticket: int, source: torch.Tensor | None = None, least: int | None = None) -> None:
        """Says more of a sum that was begun with ``ask``: this rank's values, or, with neither, that it has none; or that fewer
        contributors are enough. It may be over already."""
        endpoint = self._chooser()
        with suppress(StaleOffer):
            if source is not None:
                endpoint.amend(ticket, source.data_ptr(), source)
            else:
                endpoint.amend(ticket, least=least, never=least is None)

    def _chooser(self) -> Endpoint:
        if self._endpoint is None:
            raise RuntimeError(self.failure)
        if isinstance(self._endpoint, Movable):
            raise RuntimeError("ina: sums of some ranks only: not where a job may move to other switches (docs/guide/torch.md)")
        return self._endpoint

    def wait(self, ticket: int, number: int, description: str, seconds: float) -> bool:
        """Waits for the operation up to ``seconds``. Returns True if it is complete. Raises RuntimeError if it has failed."""
        return self._wait(ticket, number, description, seconds)[0]

    def result(self, ticket: int, number: int, description: str, seconds: float) -> Event | None:
        """Waits for a sum that was begun with ``ask``, as ``wait`` does. Returns None if it is not complete."""
        return self._wait(ticket, number, description, seconds)[1]

    def _wait(self, ticket: int, number: int, description: str, seconds: float) -> tuple[bool, Event | None]:
        """Returns whether the operation is complete, and what became of it, where the endpoint says so."""
        endpoint = self._endpoint
        if endpoint is None:  # a signal handler has destroyed the group
            raise RuntimeError(self.failure)
        try:
            event: object = endpoint.wait(ticket, seconds)
            self._late.done(number)
            return True, event if isinstance(event, Event) else None  # None: of a job that may move
        except JobError as error:
            self._late.done(number)
            operation = f"collective #{number} ({description}) of rank {self.rank}"
            if isinstance(error, TensorRefused):
                raise RuntimeError(f"ina: {operation}: {error}") from None
            kind = Disagreement if isinstance(error, JobMismatch) else RuntimeError
            raise kind(self._end(f"{operation}: {self._reason(error)}")) from None  # the message has all of it
        except TimeoutError:
            if seconds > 0:
                stats = endpoint.stats
                self._check_left(endpoint, stats["waits_for"])
                self._late.look(number, description, stats, self._kept_by())
            return False, None

    def lost(self) -> set[int]:
        """Returns the ranks that the switch process has lost."""
        with self.lock:
            if not self._closed:
                self.client.poll()
            return {*self.client.lost}

    def explain(self, difference: str) -> None:
        """Adds to the reason why the job is over how the ranks disagree, so that whatever else is in flight, or begins later,
        fails with it, too."""
        if not self.difference:
            self.difference, self.failure = difference, f"{self.failure}: {difference}"

    def blame(self, agreed: str, coded: bool) -> str:
        """Notes that the ranks agree on the collective ``agreed`` that failed as a Disagreement. Returns the reason: the codec of
        a ``coded`` sum, else the protocol."""
        if coded:
            why = ("a round has other words on each: a codec yields as many of one kind, in the same rounds, on all ranks "
                   "(docs/guide/codecs.md)")
        else:
            why = ("the result of their first packets, which says so, is not their sum: the protocol "
                   f"{self.config.protocol} does not add up. One that makes x of n times x calls ina_tensors_idempotent after "
                   "ina_tensors_init (docs/guide/new-protocol.md)")
        self.failure = f"ina: all ranks are in {agreed}, but {why}"
        return self.failure

    def _check_left(self, endpoint: Endpoint | Movable, waits_for: int) -> None:
        """Aborts the job if a worker has left that a long operation may be waiting for, or is lost and has not taken part.
        ``waits_for``: the native worker's statistic."""
        with self.lock:
            if self._closed:  # a signal handler has destroyed the group
                return
            self.client.poll()
            self.tell()
            now = time.monotonic()
            departed = [w for w, since in self.client.left.items() if now - since > LEFT_GRACE]
            lost = [w for w, since in self.client.lost.items() if now - since > LOST_GRACE and waits_for >> w & 1]
        if lost and self.size <= lib.INA_BITMAP_WORKERS and not self.failure:
            endpoint.abort()
        if departed and not self.failure:
            self.abort(f"ina: rank {departed[0]} has left group {self.name!r} (destroy_process_group), but a collective "
                       "still waits for it")

    def tell(self) -> None:
        """Warns of notices of the controller about the job: a link is down, or back."""
        notices, self._told = self.client.notices[self._told :], len(self.client.notices)
        for notice in notices:
            warnings.warn(f"ina: {notice}", RuntimeWarning, stacklevel=2)

    def _reason(self, error: Exception) -> str:
        if isinstance(error, JobMismatch):
            return "the ranks do not agree on this collective: its kind, dtype, operation, number of elements or order differs"
        if isinstance(error, PeerLost):
            return self._hang_up_reason()
        if isinstance(error, JobAborted):
            return self.failure or self.client.failure or "the process group was aborted"
        if isinstance(error, JobTimeout) and (runner := self._kept_by()) is not None:
            return f"{error}; {self._late.stands_still(runner)}"
        return str(error)

    def _kept_by(self) -> int | None:
        """Returns the rank that was running the job's switch when this one last wanted to; None: it could, or ranks do not."""
        return None if self._seat is None else self._seat.kept_by()

    def _hang_up_reason(self) -> str:
        """Returns the reason why the switch process hung up; waits for it up to PEER_NEWS."""
        deadline = time.monotonic() + PEER_NEWS
        while not (reason := self._poll()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return reason or f"the connection to the switch process {self._switch_pid} was lost"

    def _poll(self) -> str:
        with self.lock:
            reason = self.client.poll()
        if self.client.out_of_reach:
            return f"{reason}{rendezvous.log_tail(self._switch)}"
        if self.client.gone:
            what = fate(self._switch, self._switch_pid, self.client.cause, self.client.access, self._switch_started)
            return f"{what}{rendezvous.log_tail(self._switch)}"
        return reason

    def _end(self, text: str) -> str:
        """Ends the job; the first reason stays."""
        self.failure = self.failure or (text if text.startswith("ina:") else f"ina: {text}")
        return self.failure

    def abort(self, reason: str = "ina: the process group was aborted") -> None:
        """Fails all operations in flight, and all later ones."""
        self._end(reason)
        if self._endpoint is not None and os.getpid() == self._pid:
            self._endpoint.abort()

    def fail(self, title: str, error: Exception) -> None:
        """Ends the job, unless it is over, for a collective that this rank could not begin or end: the others do not get what
        they wait for."""
        if not self.failed:
            self.abort(str(error) if isinstance(error, CodecError) else f"ina: {title}: {type(error).__name__}: {error}")

    @property
    def failed(self) -> bool:
        return bool(self.failure)

    def _warn_of_flushed(self, stats: dict[str, int]) -> None:
        """Warns, once, if more than FEW of the values were flushed to zero in the protocol's own code."""
        if not self._warned and stats["flushed"] > FEW * stats["elements"]:
            self._warned = True
            warnings.warn(f"ina: group {self.name!r}: {stats['flushed']} of rank {self.rank}'s {stats['elements']} values became "
                          "zero, since a packet has one exponent: pg_options=Options(codec='exact') keeps them, and 'two-limb' "
                          "those that are less far below the largest (docs/guide/codecs.md)", RuntimeWarning, stacklevel=2)

    def worker_stats(self) -> dict[str, int]:
        """Returns the native worker's statistics (``struct ina_worker_stats``) that add up over jobs."""
        if self._endpoint is not None:
            stats = self._endpoint.stats
            self._last_stats = {name: stats[name] for name in WORKER}
            self._warn_of_flushed(stats)
        return self._last_stats

    def turns(self) -> Turns | None:
        """Returns how often this rank ran the job's switch; None: the switch process runs it."""
        return None if self._seat is None else self._seat.turns()

    def close(self, in_peace: bool) -> None:
        """Ends the job for this rank. ``in_peace``: the other ranks may finish; else they get the error that it is lost.

        No thread may be in ``wait`` or ``submit`` any more.
        """
        if self._closed or os.getpid() != self._pid:  # a forked child owns nothing of this
            return
        with self._submit_lock:
            self._end("the process group has been destroyed")
        COUNTERS.job_closed(self)
        if self._keeper is not None:
            self._keeper.close()
        with self.lock:
            if in_peace:
                try:
                    self.client.release()
                except ControlError:  # the switch process is gone, or has given up the job: nothing left to release
                    in_peace = False
            endpoint, self._endpoint = self._endpoint, None
            if endpoint is not None:
                endpoint.close()
            self.client.close()
            self._closed = True
