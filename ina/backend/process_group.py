"""The process group: all-reduce SUM and AVG of float32 and int32 through the switch, all else through an inner Gloo.

torch (up to 2.13) takes a Python subclass of ProcessGroup. Two rules keep it safe:
 - a method that C++ calls through the trampoline and that Python does not override falls through to C++ while it holds
   the GIL, which Gloo's threads want: so *every* collective is overridden here and delegated explicitly;
 - Gloo itself is registered inside as the CPU back end, for the calls that C++ makes past Python.

All ranks decide alike, because they decide from what a collective must have in common (data type, operation, number of
tensors, size of the group) and from the switch process's one answer to all of them.
"""

from __future__ import annotations

import atexit
import warnings
from collections import deque
from datetime import timedelta
from weakref import WeakSet

import torch
import torch.distributed as dist

from ina.backend import world
from ina.backend.counters import COUNTERS
from ina.backend.settings import Options, Settings
from ina.backend.work import Completer, CopyBackWork, LazyWork, SwitchWork
from ina.codec import MAX_WORKERS

GLOO = dist.ProcessGroup.BackendType.GLOO
_open_groups: WeakSet[InaProcessGroup] = WeakSet()


def create_process_group(options, backend_options) -> InaProcessGroup:
    """torch's creator (extended API): called on every member of a new group, with its store, rank, size and time-out.

    Raises RuntimeError on every rank if the ranks are not on one machine, ValueError for a bad environment variable.
    """
    if not isinstance(backend_options, Options | None):
        raise ValueError(f"ina: pg_options is a {type(backend_options).__name__}, expected ina.backend.Options")
    return InaProcessGroup(options.store, options.group_rank, options.group_size, options.timeout, options.group_id,
                           backend_options)


class InaProcessGroup(dist.ProcessGroup):
    def __init__(self, store, rank: int, size: int, timeout: timedelta, name: str, options: Options | None = None):
        super().__init__(rank, size)
        self._timeout = timeout
        self._job = None
        self._switch = ""
        self._refused = ""
        self._closed = False
        self._completer = Completer()
        self._in_flight: deque[LazyWork] = deque()  # what memory the endpoint may still write to
        # A store may have seen this group before (destroyed and made again): creation is collective, so the n-th time
        # that `size` ranks arrive is the n-th life of the group, and old keys are never read.
        generation = (store.add("ina/arrivals", 1) - 1) // size
        store = dist.PrefixStore(f"ina/{generation}", store)

        gloo_store = dist.PrefixStore("gloo", store)
        gloo = dist.ProcessGroupGloo(gloo_store, rank, size, timeout)
        self._inner = dist.ProcessGroup(gloo_store, rank, size)
        for group in (self, self._inner):
            group._register_backend(torch.device("cpu"), GLOO, gloo)
            group._set_default_backend(GLOO)

        if size == 1:
            self._refused = "one rank"
        elif size > MAX_WORKERS:
            self._refused = f"more than {MAX_WORKERS} ranks"
        else:
            self._open_job(dist.PrefixStore("switch", store), f"{name}/{generation}", options)
        _open_groups.add(self)

    def _open_job(self, store, name: str, options: Options | None) -> None:
        from ina.backend.job import Job

        settings = Settings.from_environment(options)
        agreed = world.agree(store, self.rank(), self.size(), self._timeout, settings)
        self._switch = agreed.switch
        try:
            self._job = Job(agreed.switch, agreed.pid, f"{name}/{agreed.nonce}", self.rank(), self.size(),
                            self._timeout.total_seconds(), settings)
        except BaseException:
            world.release(self._switch)
            raise

    # ---- all-reduce

    def allreduce(self, tensors, opts=None, timeout=None, *, op=None):
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        return self._allreduce("allreduce", tensors, _options(dist.AllreduceOptions(), opts, op, timeout))

    def allreduce_coalesced(self, tensors, opts=None):
        return self._allreduce("allreduce_coalesced", list(tensors),
                               _options(dist.AllreduceCoalescedOptions(), opts, None, None))

    def _allreduce(self, collective: str, tensors: list[torch.Tensor], opts):
        average = opts.reduceOp == dist.ReduceOp.AVG
        reason = self._why_gloo(collective, tensors, opts.reduceOp, average)
        if reason:
            return self._delegate(collective, (tensors, opts), {}, reason)
        elements = sum(tensor.numel() for tensor in tensors)
        what = f"all-reduce of {elements} elements in {len(tensors)} tensor(s)"
        work = SwitchWork(self._completer, self._job, tensors, what)
        COUNTERS.started(len(tensors), elements)
        while self._in_flight and self._in_flight[0].is_completed():
            self._in_flight.popleft()
        self._in_flight.append(work)
        work.submit(average, getattr(opts, "asyncOp", True))  # before torch 2.8 nobody says
        return work

    def _why_gloo(self, collective: str, tensors: list[torch.Tensor], op, average: bool) -> str:
        """"" for the switch, else why not. Asks the switch once per group; raises RuntimeError when that is over."""
        if self._closed:
            raise RuntimeError(f"ina: group {self.group_name!r} has been destroyed; there are no all-reduces in it")
        if collective == "allreduce" and len(tensors) != 1:
            return "several tensors in one all-reduce"
        for tensor in tensors:
            if tensor.dtype not in (torch.float32, torch.int32):
                return f"dtype {str(tensor.dtype).removeprefix('torch.')}"
            if tensor.layout != torch.strided or tensor.device.type != "cpu":
                return f"layout {tensor.layout} on {tensor.device.type}"
        if not average and op != dist.ReduceOp.SUM:
            return "operation other than SUM and AVG"
        if not self._refused and self._job is not None and (refusal := self._job.admit()):
            self._refused = "refused by the switch"
            warnings.warn(f"ina: all-reduces of group {self.group_name!r} go through Gloo: {refusal}", stacklevel=4)
        return self._refused

    # ---- everything else

    def _delegate(self, collective: str, args: tuple, kwargs: dict, reason: str = ""):
        """To Gloo, with contiguous tensors: it sums strided ones wrongly. The first argument is what it writes to."""
        COUNTERS.delegated(collective, reason)
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        args = tuple(_contiguous(arg, copies if i == 0 and collective != "send" else []) for i, arg in enumerate(args))
        work = getattr(self._inner, collective)(*args, **kwargs)
        return CopyBackWork(self._completer, work, copies, collective) if copies else work

    def monitored_barrier(self, *args, **kwargs):
        return self._inner.monitored_barrier(*args, **kwargs)

    def _set_sequence_number_for_group(self):
        self._inner._set_sequence_number_for_group()

    def _get_sequence_number_for_group(self):
        return self._inner._get_sequence_number_for_group()

    def set_timeout(self, timeout: timedelta):
        """For Gloo's collectives, and for the switch if it has not been used yet."""
        self._timeout = timeout
        self._inner.set_timeout(timeout)
        if self._job is not None:
            self._job.timeout = timeout.total_seconds()

    def name(self) -> str:
        return "ina"

    def getBackendName(self) -> str:
        return "ina"

    # ---- ends

    def abort(self):
        if self._job is not None:
            self._job.abort()
        self._inner.abort()
        self._close(in_peace=False)

    def shutdown(self):
        self._close(in_peace=True)
        self._inner.shutdown()

    def _close(self, in_peace: bool, wait: float = 2.0):
        """Leave the job; what is still in flight fails. In peace, the other ranks may finish what they have."""
        _open_groups.discard(self)
        job, self._job = self._job, None
        if job is None:
            return
        self._closed = True
        unfinished = [work for work in self._in_flight if not work.is_completed()]
        if unfinished:
            job.abort(f"ina: group {self.group_name!r} was destroyed with {len(unfinished)} all-reduce(s) in flight")
        for work in unfinished:
            work.end()
        self._in_flight.clear()
        self._completer.close()
        job.close(in_peace and not job.failed)
        world.release(self._switch, wait)


def _delegating(collective: str):
    def method(self, *args, **kwargs):
        return self._delegate(collective, args, kwargs)

    method.__name__ = collective
    return method


# Every collective of torch 2.7 to 2.13, under old and new names.
for _collective in (
    "broadcast", "reduce", "gather", "scatter", "barrier", "send", "recv", "recv_anysource",
    "allgather", "allgather_coalesced", "_allgather_base", "all_gather_single",
    "allgather_into_tensor_coalesced", "all_gather_single_coalesced",
    "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced",
    "alltoall", "alltoall_base", "all_to_all_single",
):
    if hasattr(dist.ProcessGroup, _collective):
        setattr(InaProcessGroup, _collective, _delegating(_collective))


def _options(options, given, op, timeout):
    """The overloads of ``allreduce`` as options: options, or an operation and a time-out."""
    if isinstance(given, type(options)):
        return given
    op = given if given is not None else op
    if op is not None:
        options.reduceOp = op
    if timeout is not None:
        options.timeout = timeout
    return options


def _contiguous(argument, copies: list[tuple[torch.Tensor, torch.Tensor]]):
    """``argument`` with its strided tensors contiguous; ``copies`` gets (original, copy) of those that were not."""
    if isinstance(argument, torch.Tensor):
        if argument.layout != torch.strided or argument.is_contiguous():
            return argument
        copy = argument.contiguous()
        copies.append((argument, copy))
        return copy
    if isinstance(argument, (list, tuple)):
        return [_contiguous(item, copies) for item in argument]
    return argument


@atexit.register
def _at_exit() -> None:
    """The interpreter ends with groups open: threads must not outlive it, and the switch process is let go."""
    for group in list(_open_groups):
        group._close(in_peace=False, wait=0.0)
