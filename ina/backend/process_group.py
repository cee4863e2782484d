"""The process group: collectives that are sums (sums.py) go through the switch, all others through an inner Gloo.

torch takes a Python subclass of ProcessGroup. Two rules keep it safe:
 - a method that C++ calls through the trampoline and that Python does not override falls through to C++ while it holds
   the GIL, which Gloo's threads want: so *every* collective is overridden here and delegated explicitly;
 - Gloo itself is registered inside as the CPU back end, for the calls that C++ makes past Python.

All ranks decide alike, because they decide by properties that a collective has on all ranks (data type, operation, number of
tensors, size of the group) and by the switch process's one answer to all of them.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import itertools
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakSet

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from ina.aggregation import protocols
from ina.backend import rendezvous, spans, sums
from ina.backend.counters import COUNTERS
from ina.backend.eager import all_eager
from ina.backend.group_state import GroupState
from ina.backend.launcher import end_with_launcher
from ina.backend.roll_call import RollCall
from ina.backend.settings import Options, Settings
from ina.backend.spans import open_trace, span
from ina.backend.staging import staged
from ina.backend.work import GlooWork, LazyWork, SwitchWork
from ina.base.native import lib

if TYPE_CHECKING:
    from ina.backend.job import Job

Tensors = torch.Tensor | Sequence[torch.Tensor]
ListsOfTensors = Sequence[torch.Tensor] | Sequence[Sequence[torch.Tensor]]
OptionsType = TypeVar("OptionsType")
Reducing = c10d.AllreduceOptions | c10d.ReduceOptions | c10d.ReduceScatterOptions
GLOO = dist.ProcessGroup.BackendType.GLOO
SUMS = (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM)
EXTREMA = (dist.ReduceOp.MAX, dist.ReduceOp.MIN)
MESSAGES = ("send", "recv", "recv_anysource")
_open_groups: WeakSet[InaProcessGroup] = WeakSet()


def create_process_group(options: c10d._DistributedBackendOptions, backend_options: object) -> InaProcessGroup:
    """Creates a group: torch's creator (extended API), called on every member of a new group, with its store, rank, size and
    time-out.

    Raises RuntimeError on every rank if the ranks are not on one machine, ValueError for a bad option, variable or key.
    """
    if not isinstance(backend_options, Options | None):
        raise ValueError(f"ina: pg_options is a {type(backend_options).__name__}, expected ina.backend.Options")
    return InaProcessGroup(options.store, options.group_rank, options.group_size, options.timeout, options.group_id,
                           backend_options)


def _exclusive(method: Callable[..., dist.Work]) -> Callable[..., dist.Work]:
    """Decorates a collective that no signal handler may begin in the middle of another one."""

    @functools.wraps(method)
    def collective(self: InaProcessGroup, *args: object, **kwargs: object) -> dist.Work:
        with self._group_state.inside(method.__name__):
            return method(self, *args, **kwargs)

    return collective


def _collective(method: Callable[..., dist.Work]) -> Callable[..., dist.Work]:
    """Decorates a collective of tensors on any device, one at a time; its arguments may have any of the names of torch's
    overloads: ``outputs`` is also ``output_tensors``, ``tensors`` also ``tensor``, ..."""
    exclusive, signature = _exclusive(staged(method)), inspect.signature(method)
    own = [*signature.parameters][1:]

    def own_name(name: str) -> str:
        if name in own:
            return name
        return own[0] if name.startswith(("output", "tensor")) else own[1] if name.startswith("input") else name

    @functools.wraps(method)
    def collective(self: InaProcessGroup, *args: object, **kwargs: object) -> dist.Work:
        if not kwargs:
            return exclusive(self, *args)
        bound = signature.bind(self, *args, **{own_name(name): value for name, value in kwargs.items()})
        return exclusive(*bound.args, **bound.kwargs)  # tensors as positional arguments, as staging needs them

    return collective


class InaProcessGroup(dist.ProcessGroup):
    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta, name: str, options: Options | None = None):
        super().__init__(rank, size)  # type: ignore[call-arg]  # torch has it, its stubs do not
        self._timeout = timeout
        self._job: Job | None = None
        self._switch = ""
        self._refusal = ""
        self._closed = False
        self._in_flight: deque[LazyWork] = deque()  # the endpoint may still write to their memory
        # A store may have seen this group before (destroyed and made again): creation is collective, so the n-th time
        # that `size` ranks arrive is the n-th life of the group, and old keys are never read.
        generation = (store.add("ina/arrivals", 1) - 1) // size
        store = dist.PrefixStore(f"ina/{generation}", store)

        gloo_store = dist.PrefixStore("gloo", store)
        gloo = dist.ProcessGroupGloo(gloo_store, rank, size, timeout)
        roll_call = RollCall(dist.PrefixStore("calls", store), rank, size)
        self._group_state = GroupState(lambda: self._timeout.total_seconds(), roll_call)
        self._inner = dist.ProcessGroup(gloo_store, rank, size)
        for group in (self, self._inner):
            for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
                group._register_backend(torch.device(device), GLOO, gloo)
            group._set_default_backend(GLOO)

        if size == 1:
            self._refusal = "one rank"
        elif size > lib.INA_BITMAP_WORKERS:
            self._refusal = f"more than {lib.INA_BITMAP_WORKERS} ranks"
        else:
            self._open_job(dist.PrefixStore("switch", store), f"{name}/{generation}", options)
        _open_groups.add(self)

    def _open_job(self, store: dist.Store, name: str, options: Options | None) -> None:
        from ina.backend.job import Job

        settings = Settings.read(options)
        end_with_launcher()
        agreed = rendezvous.agree(store, self.rank(), self.size(), self._timeout, settings)
        self._switch = agreed.switch
        open_trace(settings.trace, self.rank())
        if spans.trace is not None and self.rank() == 0:
            spans.trace.watch(agreed.switch)
        try:
            self._job = Job(agreed.switch, agreed.pid, f"{name}/{agreed.nonce}", self.rank(), self.size(),
                            self._timeout.total_seconds(), settings, agreed.token,
                            dist.PrefixStore("job", store), agreed.access)
        except BaseException:
            rendezvous.release(self._switch)
            raise

    # ---- through the switch: collectives as sums (sums.py)

    @_collective
    def allreduce(self, tensors: Tensors, opts: object = None, timeout: timedelta | None = None, *,
                  op: object = None) -> dist.Work:
        tensors = _as_list(tensors)
        return self._allreduce("allreduce", tensors, _options(c10d.AllreduceOptions(), opts, timeout, reduceOp=op))

    @_collective
    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: object = None) -> dist.Work:
        return self._allreduce("allreduce_coalesced", list(tensors), _options(c10d.AllreduceCoalescedOptions(), opts, None))

    def _allreduce(self, collective: str, tensors: list[torch.Tensor], opts: c10d.AllreduceOptions) -> dist.Work:
        if collective == "allreduce" and len(tensors) != 1:
            return self._delegate(collective, (tensors, opts), "several tensors in one all-reduce")
        reason = self._why_not_reduce(tensors, opts.reduceOp)
        if reason:
            return self._delegate(collective, (tensors, opts), reason)
        return self._reduce(collective, tensors, tensors, opts)

    @_collective
    def allreduce_own(self, tensor: torch.Tensor) -> dist.Work:
        """Reduces by the protocol's own reduction: see ina.backend.all_reduce_own."""
        if tensor.dtype not in (torch.float32, torch.int32):
            raise ValueError(f"ina: a protocol's own reduction is of float32 or int32, not {_dtypes([tensor])}")
        if reason := self._why_not([tensor], protocols.OWN):
            raise ValueError(f"ina: no reduction of its own in group {self.group_name!r}: {reason}")
        return self._through_switch("allreduce_own", [tensor], lambda: [sums.own(tensor)], None, f"of {_dtypes([tensor])}")

    @_collective
    def reduce(self, tensors: Tensors, opts: object = None, op: object = None, timeout: timedelta | None = None, *,
               root: int | None = None) -> dist.Work:
        tensors = _as_list(tensors)
        options = _options(c10d.ReduceOptions(), opts if root is None else None, timeout, rootRank=root, reduceOp=op)
        single = "" if len(tensors) == 1 else "several tensors in one reduce"
        reason = self._why_not_reduce(tensors, options.reduceOp) or single
        if reason:
            return self._delegate("reduce", (tensors, options), reason)
        results = tensors if options.rootRank == self.rank() else [None]
        return self._reduce("reduce", tensors, results, options, root=options.rootRank)

    @_collective
    def reduce_scatter(self, outputs: Tensors, inputs: ListsOfTensors, opts: object = None, timeout: timedelta | None = None, *,
                       op: object = None) -> dist.Work:
        outputs, lists = _as_list(outputs), _lists(inputs)
        options = _options(c10d.ReduceScatterOptions(), opts, timeout, reduceOp=op)
        pieces = [tensor for each in lists for tensor in each]
        reason = self._why_not_reduce([*outputs, *pieces], options.reduceOp)
        if not reason and (any(len(each) != self.size() for each in lists) or len(lists) != len(outputs)):
            reason = "wrong number of tensors"  # Gloo's message is better
        if not reason and len({tensor.dtype for tensor in [*outputs, *pieces]}) > 1:
            reason = "tensors of several types"
        if reason:
            return self._delegate("reduce_scatter", (outputs, lists, options), reason)
        joined = [torch.cat([tensor.detach().reshape(-1) for tensor in each]) for each in lists]
        starts = [sum(tensor.numel() for tensor in each[: self.rank()]) for each in lists]
        return self._reduce("reduce_scatter", joined, outputs, options, starts)

    @_collective
    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: object = None) -> dist.Work:
        return self._reduce_scatter_flat("_reduce_scatter_base", [output], [input], opts)

    @_collective
    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: object = None) -> dist.Work:
        return self._reduce_scatter_flat("_reduce_scatter_base", [output], [input], opts)

    @_collective
    def reduce_scatter_tensor_coalesced(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor],
                                        opts: object = None) -> dist.Work:
        return self._reduce_scatter_flat("reduce_scatter_tensor_coalesced", list(outputs), list(inputs), opts)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce_scatter_flat(self, collective: str, outputs: list[torch.Tensor], inputs: list[torch.Tensor],
                             opts: object) -> dist.Work:
        options = _options(c10d.ReduceScatterOptions(), opts, None)
        reason = self._why_not_reduce([*outputs, *inputs], options.reduceOp)
        if not reason and not self._fit(inputs, outputs):
            reason = "sizes or types that do not fit"  # Gloo's message is better
        if reason:
            single = collective == "_reduce_scatter_base"
            return self._delegate(collective, (outputs[0], inputs[0], options) if single else (outputs, inputs, options), reason)
        return self._reduce(collective, inputs, outputs, options, [self.rank() * output.numel() for output in outputs])

    @_collective
    def broadcast(self, tensors: Tensors, opts: object = None, timeout: timedelta | None = None, *,
                  root: int | None = None) -> dist.Work:
        tensors = _as_list(tensors)
        options = _options(c10d.BroadcastOptions(), opts if root is None else None, timeout, rootRank=root)
        reason = self._why_not(tensors) or ("" if len(tensors) == 1 else "several tensors in one broadcast")
        if reason:
            return self._delegate("broadcast", (tensors, options), reason)
        own = [(tensors[0], 0)]
        total = sums.words(tensors[0])

        def encode() -> list[sums.Sum]:
            return [sums.placement(own if options.rootRank == self.rank() else [], own, total)] if total else []

        return self._through_switch("broadcast", tensors, encode, options, f"of {_dtypes(tensors)} from {options.rootRank}")

    @_collective
    def allgather(self, outputs: ListsOfTensors, inputs: Tensors, opts: object = None,
                  timeout: timedelta | None = None) -> dist.Work:
        lists, inputs = _lists(outputs), _as_list(inputs)
        return self._allgather("allgather", lists, inputs, opts, timeout, (lists, inputs))

    @_collective
    def allgather_coalesced(self, output_lists: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor],
                            opts: object = None) -> dist.Work:
        by_input = [[of_rank[i] for of_rank in output_lists] for i in range(len(inputs))]
        return self._allgather("allgather_coalesced", by_input, list(inputs), opts, None, (output_lists, inputs))

    def _allgather(self, collective: str, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: object,
                   timeout: timedelta | None, args: tuple[object, ...]) -> dist.Work:
        """All-gathers tensors. ``outputs``: for each input a tensor for each rank."""
        options = _options(c10d.AllgatherOptions(), opts, timeout)
        received = [tensor for each in outputs for tensor in each]
        reason = self._why_not([*inputs, *received])
        if not reason and (len(outputs) != len(inputs) or any(len(each) != self.size() for each in outputs)):
            reason = "wrong number of tensors"  # Gloo's message is better
        if not reason and any(each[self.rank()].numel() != own.numel() or any(t.dtype != own.dtype for t in each)
                              for each, own in zip(outputs, inputs, strict=True)):  # fmt: skip
            reason = "sizes or types that do not fit"
        if reason:
            return self._delegate(collective, (*args, options), reason)

        def encode() -> list[sums.Sum]:
            parts = []
            for each, own in zip(outputs, inputs, strict=True):
                starts = list(itertools.accumulate(map(sums.words, each), initial=0))
                if starts[-1]:
                    results = list(zip(each, starts[:-1], strict=True))
                    parts.append(sums.placement([(own, starts[self.rank()])], results, starts[-1]))
            return parts

        return self._through_switch(collective, received, encode, options, f"of {_dtypes(inputs)}")

    @_collective
    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: object = None) -> dist.Work:
        return self._allgather_flat("_allgather_base", [output], [input], opts)

    all_gather_single = _allgather_base

    @_collective
    def allgather_into_tensor_coalesced(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor],
                                        opts: object = None) -> dist.Work:
        return self._allgather_flat("allgather_into_tensor_coalesced", list(outputs), list(inputs), opts)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def _allgather_flat(self, collective: str, outputs: list[torch.Tensor], inputs: list[torch.Tensor],
                        opts: object) -> dist.Work:
        options = _options(c10d.AllgatherOptions(), opts, None)
        reason = self._why_not([*outputs, *inputs])
        if not reason and not self._fit(outputs, inputs):
            reason = "sizes or types that do not fit"  # Gloo's message is better
        if reason:
            single = collective == "_allgather_base"
            return self._delegate(collective, (outputs[0], inputs[0], options) if single else (outputs, inputs, options), reason)

        def encode() -> list[sums.Sum]:
            parts = []
            for output, own in zip(outputs, inputs, strict=True):
                length = sums.words(own)
                if 4 * length == own.numel() * own.element_size():  # pieces are whole words: the output as it is
                    results = [(output, 0)]
                else:
                    results = [(piece, length * i) for i, piece in enumerate(output.view(self.size(), -1))]
                if length:
                    parts.append(sums.placement([(own, length * self.rank())], results, length * self.size()))
            return parts

        return self._through_switch(collective, outputs, encode, options, f"of {_dtypes(inputs)}")

    def _fit(self, whole: list[torch.Tensor], parts: list[torch.Tensor]) -> bool:
        """Returns True if each of the tensors ``whole`` has room for one of ``parts`` of every rank."""
        return len(whole) == len(parts) and all(
            w.numel() == p.numel() * self.size() and w.dtype == p.dtype for w, p in zip(whole, parts, strict=True))

    @_collective
    def barrier(self, opts: object = None, timeout: timedelta | None = None) -> dist.Work:
        options = _options(c10d.BarrierOptions(), opts, timeout)
        reason = self._why_not([])
        if reason:
            return self._delegate("barrier", (options,), reason)
        return self._through_switch("barrier", [], lambda: [sums.Sum.of(torch.ones(1, dtype=torch.int32))], options, "")

    def _reduce(self, collective: str, sources: list[torch.Tensor], results: Sequence[torch.Tensor | None], opts: Reducing,
                starts: list[int] | None = None, root: int | None = None) -> dist.Work:
        average = opts.reduceOp == dist.ReduceOp.AVG
        largest = opts.reduceOp == dist.ReduceOp.MAX
        extremum = largest or opts.reduceOp == dist.ReduceOp.MIN
        factor = _state(opts.reduceOp)[1] if opts.reduceOp == dist.ReduceOp.PREMUL_SUM else None

        def encode() -> list[sums.Sum]:
            tasks = zip(sources, results, starts or [0] * len(sources), strict=True)
            return [part for source, result, start in tasks for part in (
                sums.extremum(source, result, largest, start) if extremum else
                sums.reduction(source, result, self.size(), average, factor, start))]  # fmt: skip

        outputs = [result for result in results if result is not None]
        if average and (reason := self._why_not([])):  # an average of integers: others have been delegated
            return self._average_through_gloo(collective, outputs, encode, opts, reason)
        agreed = f"{_name(opts.reduceOp)} of {_dtypes(sources)}"
        agreed += "" if root is None else f" to {root}"
        return self._through_switch(collective, outputs, encode, opts, agreed)

    def _through_switch(self, collective: str, outputs: list[torch.Tensor], encode: Callable[[], list[sums.Sum]],
                        opts: object, agreed: str) -> dist.Work:
        """Runs a collective through the switch. ``agreed``: text that must be equal on all ranks, beyond the collective and its
        numbers of elements."""
        with torch.no_grad(), span(f"ina:{collective} encode"):
            parts = encode()
        work = SwitchWork(self._group_state, self._joined_job(), collective, outputs, parts, agreed)
        COUNTERS.through_switch(collective, work.parts)
        while self._in_flight and self._in_flight[0].is_completed():
            self._in_flight.popleft()
        work.submit(getattr(opts, "asyncOp", True))  # torch before 2.8 has no asyncOp
        self._in_flight.append(work)
        return work

    def _why_not_reduce(self, tensors: list[torch.Tensor], op: dist.ReduceOp) -> str:
        extremum = any(op == each for each in EXTREMA)  # in this order: ReduceOp defines the comparison, its kinds do not
        if not extremum and not any(op == each for each in SUMS):
            return f"operation {_name(op)}"
        for tensor in tensors:
            if not (sums.ordered if extremum else sums.summable)(tensor.dtype):
                return f"{_name(op)} of {_dtypes([tensor])}"
        if op == dist.ReduceOp.AVG and all(sums.integral(tensor.dtype) for tensor in tensors):
            return self._why_not_tensors(tensors)  # Gloo has no averages of integers: _reduce makes them of its sums
        return self._why_not(tensors, protocols.MAX if extremum else protocols.SUM)

    def _why_not(self, tensors: list[torch.Tensor], reduction: int = protocols.SUM) -> str:
        """Returns "" for the switch, else why not: by common properties of all ranks, and the protocol's reductions. Requests
        admission once per group.

        Raises RuntimeError if the job is over."""
        if self._closed:
            raise self._destroyed()
        if reason := self._why_not_tensors(tensors):
            return reason
        if self._refusal:
            return self._refusal
        job = self._joined_job()
        if refusal := job.admit():
            self._refusal = "refused by the switch"
            warnings.warn(f"ina: collectives of group {self.group_name!r} go through Gloo: {refusal}", stacklevel=4)
            return self._refusal
        return "" if reduction in job.reductions else f"its protocol has no {protocols.REDUCTIONS[reduction]}"

    def _joined_job(self) -> Job:
        """Returns the job of a group that is not refused. RuntimeError: the group has been destroyed."""
        if self._job is None:
            raise self._destroyed()
        return self._job

    def _destroyed(self) -> RuntimeError:
        return RuntimeError(f"ina: group {self.group_name!r} has been destroyed; there are no collectives in it")

    def _why_not_tensors(self, tensors: list[torch.Tensor]) -> str:
        """Returns the same for the tensors alone, whatever the switch and the protocol have."""
        for tensor in tensors:
            if tensor.layout != torch.strided or tensor.device.type != "cpu":
                return f"layout {tensor.layout} on {tensor.device.type}"
        return ""

    # ---- everything else

    def _average_through_gloo(self, collective: str, outputs: list[torch.Tensor], encode: Callable[[], list[sums.Sum]],
                              opts: Reducing, reason: str) -> dist.Work:
        """Adds up the switch's sums with Gloo, as int64: the same average to the bit."""
        with torch.no_grad():
            parts = encode()
            whole = torch.cat([torch.zeros(1, dtype=torch.int64), *(part.begin_wide() for part in parts)])  # one at least
            for part, buffer in zip(parts, whole[1:].split([part.elements for part in parts]), strict=True):
                part.buffer = buffer
        COUNTERS.delegated(collective, reason)
        work = self._inner.allreduce([whole], _options(c10d.AllreduceOptions(), None, opts.timeout))
        return self._gloo(collective, work, [], outputs, reason, parts)

    def _delegate(self, collective: str, args: tuple[object, ...], reason: str,
                  kwargs: dict[str, object] | None = None) -> dist.Work:
        """Delegates to Gloo, with contiguous tensors: it sums strided ones wrongly. The first argument is the output."""
        COUNTERS.delegated(collective, reason)
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        args = tuple(_contiguous(arg, copies if i == 0 and collective != "send" else []) for i, arg in enumerate(args))
        return self._gloo(collective, getattr(self._inner, collective)(*args, **(kwargs or {})), copies, _flat(args[:1]), reason)

    def _gloo(self, collective: str, work: dist.Work, copies: list[tuple[torch.Tensor, torch.Tensor]],
              outputs: list[torch.Tensor], reason: str, parts: Sequence[sums.Sum] = ()) -> dist.Work:
        """Returns ``work``, wrapped if needed: for ``copies`` to be copied back, ``parts`` to be decoded, or if other ranks may
        be in a collective through the switch."""
        agreed = f"{collective} ({reason})" if self._job is not None and not self._refusal and collective not in MESSAGES else ""
        if not copies and not agreed and not parts:
            return work
        outputs = [tensor for tensor, _ in copies] or outputs
        return GlooWork(self._group_state, work, copies, outputs, collective, agreed, self._job, parts)

    @_collective
    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: object = None) -> dist.Work:
        """Exchanges pieces, which may differ in size; Gloo supports that for one tensor only."""
        options = _options(c10d.AllToAllOptions(), opts, None)
        outputs, inputs = list(outputs), list(inputs)
        if len({piece.numel() for piece in (*outputs, *inputs)}) == 1 or len({piece.dtype for piece in (*outputs, *inputs)}) > 1:
            return self._delegate("alltoall", (outputs, inputs, options), "not a sum")
        COUNTERS.delegated("alltoall", "not a sum")
        sizes = [piece.numel() for piece in outputs]
        received = torch.empty(sum(sizes), dtype=outputs[0].dtype)
        sent = torch.cat([piece.detach().reshape(-1) for piece in inputs])
        work = self._inner.alltoall_base(received, sent, sizes, [piece.numel() for piece in inputs], options)
        copies = [(out, part.view(out.shape)) for out, part in zip(outputs, received.split(sizes), strict=True)]
        return self._gloo("alltoall", work, copies, outputs, "not a sum")

    def monitored_barrier(self, *args: object, **kwargs: object) -> None:
        return self._inner.monitored_barrier(*args, **kwargs)  # type: ignore[attr-defined]  # torch has it, its stubs do not

    def _set_sequence_number_for_group(self) -> None:
        self._inner._set_sequence_number_for_group()

    def _get_sequence_number_for_group(self) -> int:
        return self._inner._get_sequence_number_for_group()  # type: ignore[attr-defined]  # the same

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the time-out of Gloo's collectives, and of the switch if it has not been used yet."""
        self._timeout = timeout
        self._inner.set_timeout(timeout)
        if self._job is not None:
            self._job.timeout = timeout.total_seconds()

    def name(self) -> str:
        return "ina"

    def getBackendName(self) -> str:
        return "ina"

    # ---- ends

    def abort(self) -> None:
        if self._job is not None:
            self._job.abort()
        self._inner.abort()
        self._close(in_peace=False)

    def shutdown(self) -> None:
        self._close(in_peace=True)
        self._inner.shutdown()

    def _close(self, in_peace: bool, wait: float = 2.0) -> None:
        """Leaves the job; collectives in flight fail. In peace, the other ranks may finish theirs."""
        _open_groups.discard(self)
        job, self._job = self._job, None
        if job is None:
            return
        self._closed = True
        interrupted = self._group_state.interrupted()  # by a signal handler, the caller: the interrupted collective fails
        unfinished = [work for work in self._in_flight if not work.finished()]
        if unfinished or interrupted:
            job.abort(f"ina: group {self.group_name!r} was destroyed with {len(unfinished)} collective(s) in flight")
        for work in unfinished:
            work.give_up()
        self._in_flight.clear()
        self._group_state.completer.close()
        job.close(in_peace and not job.failed)
        rendezvous.release(self._switch, wait)


def _delegating(collective: str) -> Callable[..., dist.Work]:
    def method(self: InaProcessGroup, *args: object, **kwargs: object) -> dist.Work:
        return self._delegate(collective, args, "not a sum", kwargs)

    method.__name__ = collective
    return staged(method) if collective in MESSAGES else _exclusive(staged(method))


# The other collectives of torch 2.7 to 2.15, under old and new names.
DELEGATED = ("gather", "gather_single", "gather_into_tensor", "scatter", "send", "recv", "recv_anysource", "alltoall_base",
             "all_to_all_single")  # fmt: skip
for _delegated in DELEGATED:
    if hasattr(dist.ProcessGroup, _delegated):
        setattr(InaProcessGroup, _delegated, _delegating(_delegated))
all_eager(InaProcessGroup)


def _flat(tensors: object) -> list[torch.Tensor]:
    if isinstance(tensors, (list, tuple)):
        return [tensor for each in tensors for tensor in _flat(each)]
    return [tensors] if isinstance(tensors, torch.Tensor) else []


def _as_list(tensors: Tensors) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _lists(tensors: ListsOfTensors) -> list[list[torch.Tensor]]:
    """Returns one list or several as a list of lists."""
    single = [each for each in tensors if isinstance(each, torch.Tensor)]
    return [single] if single else [list(each) for each in tensors if not isinstance(each, torch.Tensor)]


def _options(options: OptionsType, argument: object, timeout: timedelta | None, **values: object) -> OptionsType:
    """Returns the arguments of a collective's overloads as options: from options, or single values (an operation, a root, or,
    without either, a time-out)."""
    if isinstance(argument, type(options)):
        return argument
    if isinstance(argument, timedelta):
        argument, timeout = None, argument
    if argument is not None:
        values["rootRank" if isinstance(options, c10d.BroadcastOptions) or isinstance(argument, int) else "reduceOp"] = argument
    for key, value in {**values, "timeout": timeout}.items():
        if value is not None:
            setattr(options, key, value)
    return options


def _dtypes(tensors: list[torch.Tensor]) -> str:
    return ",".join(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)


def _state(op: dist.ReduceOp) -> tuple[object, float | torch.Tensor | None]:
    """Returns the kind of an operation, and the factor of PREMUL_SUM."""
    return cast(tuple[object, float | torch.Tensor | None], op.__getstate__())


def _name(op: object) -> str:
    kind = _state(op)[0] if isinstance(op, dist.ReduceOp) else op
    return str(kind).rsplit(".", 1)[-1].split(":")[0].strip("<>")


def _contiguous(argument: object, copies: list[tuple[torch.Tensor, torch.Tensor]]) -> object:
    """Returns ``argument`` with its strided tensors made contiguous; ``copies`` gets (original, copy) of those that were not."""
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
    """Closes groups that are open at the interpreter's end: threads must not outlive it, and the switch process is released."""
    for group in list(_open_groups):
        group._close(in_peace=False, wait=0.0)
