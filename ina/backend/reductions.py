"""Collectives that reduce: all-reduce, reduce and reduce-scatter, of dense and sparse tensors, by the group's codec or one of
the call's own."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from ina import codecs
from ina.aggregation import protocols
from ina.backend import coded, direct, sparse, sums, through_gloo
from ina.backend.arguments import (
    EXTREMA,
    SUMS,
    ListsOfTensors,
    Tensors,
    as_list,
    as_lists,
    asynchronous,
    dtypes,
    factor_of,
    is_one_of,
    is_plain,
    op_name,
    options_of,
)
from ina.backend.calls import COLLECTIVE, NO_RESULT, collective, in_place
from ina.backend.counters import COUNTERS
from ina.backend.eager import all_eager
from ina.backend.membership import Membership
from ina.backend.settings import Options
from ina.backend.ways import GLOOS, MEASURED, Ways
from ina.backend.work import Agreed, Together
from ina.codecs import Call, Codec
from ina.codecs.planner import GLOO as THROUGH_GLOO
from ina.codecs.planner import allowed

CodecOf = Callable[[str], tuple[Codec, int]]  # by name: a tensor's codec, and the number of its calls before this one
Reducing = c10d.AllreduceOptions | c10d.ReduceOptions | c10d.ReduceScatterOptions
PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)  # no subclass that has a way of its own
KNOWN = 1024  # kinds of sums, at most, of which a group remembers how they travel
PLANNED = (torch.float32, *sums.HALVES)  # which all travel as float32


def ended_or(method: Callable[..., dist.Work]) -> Callable[..., dist.Work]:
    """Decorates the all-reduce with the short way."""

    @functools.wraps(method)
    def collective(self: Reductions, *args: object, **kwargs: object) -> dist.Work:
        work = self._allreduce_direct(*args) if len(args) == 2 and not kwargs else None
        return method(self, *args, **kwargs) if work is None else work

    return collective


@all_eager
class Reductions(Ways):
    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta, name: str, options: Options | None = None,
                 owner: Membership | None = None):
        super().__init__(store, rank, size, timeout, name, options, owner)
        self._steps = itertools.count()  # sums by the group's codec, for its seeds
        self._asked: dict[str, Codec] = {}
        self._known_sums: dict[tuple[object, ...], Agreed | None] = {}  # by type, operation, length; None: the long way decides

    @ended_or
    @in_place
    def allreduce(self, tensors: Tensors, opts: object = None, timeout: timedelta | None = None, *,
                  op: object = None) -> dist.Work:
        tensors = as_list(tensors)
        return self._allreduce("allreduce", tensors, options_of(c10d.AllreduceOptions(), opts, timeout, reduceOp=op))

    def _allreduce_direct(self, tensors: object, opts: object) -> dist.Work | None:
        """All-reduces one tensor that is one sum, as the long way would. None: the long way decides."""
        if type(opts) is not c10d.AllreduceOptions or type(tensors) is not list or len(tensors) != 1:
            return None
        tensor, state = tensors[0], self._group_state
        if type(tensor) not in PLAIN_TENSORS or not tensor.is_cpu or tensor.layout != torch.strided or not is_plain(tensor):
            return None
        agreed = self._known_sum(tensor, opts.reduceOp)
        if agreed is None or not direct.possible(state) or not self._stager.idle or state.interrupted():
            return None
        begins_only = asynchronous(opts)
        if begins_only and not agreed.as_it_is:
            return None
        with state.inside("allreduce"):
            state.number(by_all=True)
            average, step = opts.reduceOp == dist.ReduceOp.AVG, next(self._steps)
            if agreed.as_it_is:
                part = sums.Sum.of(tensor, average=average)
            else:
                with torch.no_grad():
                    part, = self._sums_of(tensor, tensor, average, step)
            return self._direct("allreduce", tensors, part, agreed, begins_only)

    def _known_sum(self, tensor: torch.Tensor, op: dist.ReduceOp) -> Agreed | None:
        """Returns what the ranks have in common of the all-reduce of such a tensor; None: it is not one sum, or it is not known
        yet whether through the switch."""
        job = self._job
        if job is None or job.refusal != "":
            return None
        key = tensor.dtype, op, tensor.numel()
        if key not in self._known_sums:
            if len(self._known_sums) == KNOWN:
                self._known_sums.clear()
            self._known_sums[key] = self._one_sum(tensor, op)
        return self._known_sums[key]

    def _one_sum(self, tensor: torch.Tensor, op: dist.ReduceOp) -> Agreed | None:
        """Returns the same, of a group whose job is admitted."""
        average = op == dist.ReduceOp.AVG
        chosen = self._allowed is not None or self._either_way({tensor.dtype}, tensor.numel(), op)
        if not (is_one_of(op, SUMS[:2]) and tensor.numel()) or chosen or self._why_not_reduce([tensor], op):
            return None
        if average and tensor.dtype == torch.bool:
            return None  # an error
        with torch.no_grad():
            parts = self._sums_of(tensor, tensor, average, 0)
        if len(parts) > 1:
            return None
        return Agreed.of("allreduce", self._with_codec(self._summed(op, [tensor])), parts)

    @in_place
    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: object = None) -> dist.Work:
        return self._allreduce("allreduce_coalesced", list(tensors), options_of(c10d.AllreduceCoalescedOptions(), opts, None))

    def _allreduce(self, name: str, tensors: list[torch.Tensor], opts: c10d.AllreduceOptions) -> dist.Work:
        if name == "allreduce" and len(tensors) != 1:
            return self._delegate(name, (tensors, opts), "several tensors in one all-reduce")
        if name == "allreduce" and tensors[0].layout == torch.sparse_coo:
            return self._allreduce_sparse(sparse.whole(tensors[0]), opts)
        reason = self._why_not_reduce(tensors, opts.reduceOp)
        if reason:
            return self._allreduce_through_gloo(name, tensors, opts, reason)
        if self._allowed is not None and len(tensors) == 1 and is_one_of(opts.reduceOp, SUMS[:2]):
            title = f"all-reduce of {tensors[0].numel():,} {dtypes(tensors)}"
            return self._planned(tensors[0], opts, title, self._allowed, lambda codec: (codecs.named(codec), next(self._steps)))
        return self._faster_if_equal(name, tensors, lambda: self._reduce(name, tensors, tensors, opts),
                                     lambda reason: self._allreduce_through_gloo(name, tensors, opts, reason), opts.reduceOp)

    def _allreduce_sparse(self, tensor: torch.Tensor, opts: c10d.AllreduceOptions) -> dist.Work:
        """All-reduces a sparse_coo tensor."""
        if opts.reduceOp != dist.ReduceOp.SUM:
            reason = f"{op_name(opts.reduceOp)} of sparse tensors"
        elif not (sums.summable(tensor.dtype) or tensor.dtype in coded.WIDE):
            reason = f"SUM of {dtypes([tensor])}"
        else:
            reason = (sparse.why_not(tensor) or self._why_not([], protocols.SUM)
                      or self._why_not_coded([], self._codecs_of([tensor])))
        if reason:
            return self._sparse_through_gloo(tensor, opts, reason)
        kind = f"sparse {dtypes([tensor])} of shape {tuple(tensor.shape)}"

        def through_switch() -> dist.Work:
            step = next(self._steps)  # when it is called, as on all ranks; the values are summed later
            agreed = self._with_codec(f"SUM of {kind}, {tensor.sparse_dim()} of it sparse")

            def dense(values: torch.Tensor) -> list[sums.Sum]:
                return self._sums_of(values, values, False, step)

            own = sparse.SparseSum(tensor, self.rank(), self.size(), dense)
            return self._through_switch("allreduce", [tensor], lambda: [own], opts, agreed)

        if tensor.dtype not in GLOOS - {torch.float16}:
            return through_switch()
        return self._faster(f"all-reduce of {kind}", through_switch,
                            lambda reason: self._sparse_through_gloo(tensor, opts, reason))

    def _sparse_through_gloo(self, tensor: torch.Tensor, opts: c10d.AllreduceOptions, reason: str) -> dist.Work:
        """All-reduces a sparse_coo tensor as _reduce_through_gloo does a dense one; Gloo's own errors for other operations."""
        is_sum = opts.reduceOp == dist.ReduceOp.SUM
        if not is_sum or tensor.device.type != "cpu" or not through_gloo.encoded(opts.reduceOp, tensor.dtype):
            return self._delegate("allreduce", ([tensor], opts), reason)
        with torch.no_grad():
            part = through_gloo.sparse(tensor)
            buffer = part.begin()
        COUNTERS.delegated("allreduce", reason)
        return self._gloo("allreduce", self._inner.allreduce([buffer], opts), [], [tensor], reason, [part])

    @in_place
    def allreduce_own(self, tensor: torch.Tensor) -> dist.Work:
        """Reduces by the protocol's own reduction: see ina.backend.all_reduce_own."""
        if tensor.dtype not in (torch.float32, torch.int32):
            raise ValueError(f"ina: a protocol's own reduction is of float32 or int32, not {dtypes([tensor])}")
        if reason := self._why_not([tensor], protocols.OWN):
            raise ValueError(f"ina: no reduction of its own in group {self.group_name!r}: {reason}")
        return self._through_switch("allreduce_own", [tensor], lambda: [sums.own(tensor)], None, f"of {dtypes([tensor])}")

    @in_place
    def allreduce_coded(self, tensor: torch.Tensor, codec: Codec, average: bool, step: int = 0) -> dist.Work:
        """All-reduces floats by a codec that other collectives of the group do not have: see hooks.py."""
        options = _sum_or_average(average)
        if not coded.travels(tensor.dtype, codec):
            raise ValueError(f"ina: codec {codec.name} of {dtypes([tensor])}: expected one of {', '.join(codec.dtypes)}")
        if reason := self._why_not_coded([tensor], [codec]):
            return self._allreduce_through_gloo("allreduce", [tensor], options, reason)
        return self._by_codec(tensor, options, codec, step, codec.title)

    @in_place
    def allreduce_planned(self, tensor: torch.Tensor, average: bool, title: str, codec: str, codec_of: CodecOf) -> dist.Work:
        """All-reduces a tensor in the way that is measured to be fastest, of those that ``codec`` ("auto...") allows,
        uncompressed, and Gloo. ``title``: names it, the same on all ranks."""
        options = _sum_or_average(average)
        if reason := self._why_not_reduce([tensor], options.reduceOp):
            return self._allreduce_through_gloo("allreduce", [tensor], options, reason)
        return self._planned(tensor, options, title, allowed(codec, self._packet_values()) or (), codec_of)

    def _planned(self, tensor: torch.Tensor, opts: c10d.AllreduceOptions, title: str, allowed: tuple[str, ...],
                 codec_of: CodecOf) -> dist.Work:
        if tensor.dtype not in PLANNED or self._fits(tensor):
            return self._reduce("allreduce", [tensor], [tensor], opts)

        def start(way: str) -> dist.Work:
            if way == THROUGH_GLOO:
                return self._allreduce_through_gloo("allreduce", [tensor], opts, MEASURED)
            if way == codecs.DEFAULT:
                return self._reduce("allreduce", [tensor], [tensor], opts)
            return self._by_codec(tensor, opts, *codec_of(way), way)

        return self._measured(title, allowed, tensor, start)

    def _by_codec(self, tensor: torch.Tensor, opts: c10d.AllreduceOptions, codec: Codec, step: int, title: str) -> dist.Work:
        call = Call(self.size(), self.rank(), opts.reduceOp == dist.ReduceOp.AVG, step)
        return self._through_switch("allreduce", [tensor], lambda: coded.reduction(tensor, tensor, codec, call), opts,
                                    f"{op_name(opts.reduceOp)} of {dtypes([tensor])} by {title}")

    @in_place
    def reduce(self, tensors: Tensors, opts: object = None, op: object = None, timeout: timedelta | None = None, *,
               root: int | None = None) -> dist.Work:
        tensors = as_list(tensors)
        options = options_of(c10d.ReduceOptions(), opts if root is None else None, timeout, rootRank=root, reduceOp=op)
        reason = self._why_not_reduce(tensors, options.reduceOp)
        misfit = ("" if len(tensors) == 1 else "several tensors in one reduce") or self._why_not_root(options)
        at_root = options.rootRank == self.rank()
        if misfit:
            return self._delegate("reduce", (tensors, options), reason or misfit)
        results = tensors if at_root else [None]
        if reason:
            args = (tensors if at_root else [tensors[0].clone()], options)  # Gloo writes to the tensors of all ranks
            return self._reduce_through_gloo("reduce", args, tensors, results, options, reason)
        return self._reduce("reduce", tensors, results, options, root=options.rootRank)

    @collective
    def reduce_scatter(self, outputs: Tensors, inputs: ListsOfTensors, opts: object = None, timeout: timedelta | None = None, *,
                       op: object = None) -> dist.Work:
        outputs, lists = as_list(outputs), as_lists(inputs)
        options = options_of(c10d.ReduceScatterOptions(), opts, timeout, reduceOp=op)
        pieces = [tensor for each in lists for tensor in each]
        reason, misfit = self._why_not_reduce([*outputs, *pieces], options.reduceOp), ""
        if any(len(each) != self.size() for each in lists) or len(lists) != len(outputs):
            misfit = "wrong number of tensors"  # Gloo's message is better
        elif len({tensor.dtype for tensor in [*outputs, *pieces]}) > 1:
            misfit = "tensors of several types"
        elif any(output.numel() != each[self.rank()].numel() for output, each in zip(outputs, lists, strict=True)):
            misfit = "sizes that do not fit"
        args = (outputs, lists, options)
        if misfit or self._why_not_tensors([*outputs, *pieces]):
            return self._delegate("reduce_scatter", args, reason or misfit)
        joined = [torch.cat([tensor.detach().reshape(-1) for tensor in each]) for each in lists]
        pieces_of = [[tensor.numel() for tensor in each] for each in lists]
        if reason:
            return self._reduce_through_gloo("reduce_scatter", args, joined, outputs, options, reason, pieces_of)
        return self._reduce("reduce_scatter", joined, outputs, options, pieces_of)

    @collective
    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: object = None) -> dist.Work:
        return self._reduce_scatter_flat("_reduce_scatter_base", [output], [input], opts)

    reduce_scatter_single = _reduce_scatter_base

    @collective
    def reduce_scatter_tensor_coalesced(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor],
                                        opts: object = None) -> dist.Work:
        return self._reduce_scatter_flat("reduce_scatter_tensor_coalesced", list(outputs), list(inputs), opts)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce_scatter_flat(self, name: str, outputs: list[torch.Tensor], inputs: list[torch.Tensor],
                             opts: object) -> dist.Work:
        options = options_of(c10d.ReduceScatterOptions(), opts, None)
        reason = self._why_not_reduce([*outputs, *inputs], options.reduceOp)
        args = (outputs[0], inputs[0], options) if name == "_reduce_scatter_base" else (outputs, inputs, options)
        if not self._fit(inputs, outputs):
            return self._delegate(name, args, reason or "sizes or types that do not fit")  # Gloo's message is better
        pieces_of = [[output.numel()] * self.size() for output in outputs]

        def through_gloo(reason: str) -> dist.Work:
            return self._reduce_through_gloo(name, args, inputs, outputs, options, reason, pieces_of)

        if reason:
            return through_gloo(reason)
        return self._faster_if_equal(name, inputs, lambda: self._reduce(name, inputs, outputs, options, pieces_of), through_gloo,
                                     options.reduceOp)

    def _reduce(self, name: str, sources: list[torch.Tensor], results: Sequence[torch.Tensor | None], opts: Reducing,
                pieces_of: list[list[int]] | None = None, root: int | None = None) -> dist.Work:
        """Reduces ``sources``. ``pieces_of``: each rank gets its piece of a source, which has so many elements; ``root``:
        nobody else gets anything."""
        extremum = is_one_of(opts.reduceOp, EXTREMA)

        def parts(source: torch.Tensor, result: torch.Tensor | None, start: int) -> list[sums.Sum]:
            if extremum:
                return sums.extremum(source, result, opts.reduceOp == dist.ReduceOp.MAX, start)
            return self._sums_of(source, result, average, next(self._steps), factor_of(opts.reduceOp), start)

        def encode() -> list[sums.Sum]:
            job, encoded = self._job, []
            for i, (source, result) in enumerate(zip(sources, results, strict=True)):
                target = pieces_of[i] if pieces_of else root
                whole = parts(source, result, self._start(pieces_of, i))
                if job is not None and job.routes and target is not None and not extremum:
                    sums.direct(whole, source, target, average, job.config.values)
                encoded += whole
            return encoded

        average = opts.reduceOp == dist.ReduceOp.AVG
        outputs = [result for result in results if result is not None]
        agreed = self._summed(opts.reduceOp, sources, pieces_of) + ("" if root is None else f" to {root}")
        return self._through_switch(name, outputs, encode, opts, self._with_codec(agreed))

    def _summed(self, op: dist.ReduceOp, sources: list[torch.Tensor], pieces_of: list[list[int]] | None = None) -> str:
        each = [sums.alike([source], pieces_of[i] if pieces_of else ()) for i, source in enumerate(sources)]
        return f"{op_name(op)} of {','.join(each)}"

    def _start(self, pieces_of: list[list[int]] | None, i: int) -> int:
        """Returns the number of the first element of the ``i``-th source that this rank gets."""
        return sum(pieces_of[i][: self.rank()]) if pieces_of else 0

    def _allreduce_through_gloo(self, name: str, tensors: list[torch.Tensor], opts: c10d.AllreduceOptions,
                                reason: str) -> dist.Work:
        return self._reduce_through_gloo(name, (tensors, opts), tensors, tensors, opts, reason)

    def _reduce_through_gloo(self, name: str, args: tuple[object, ...], sources: list[torch.Tensor],
                             results: Sequence[torch.Tensor | None], opts: Reducing, reason: str,
                             pieces_of: list[list[int]] | None = None) -> dist.Work:
        """Reduces through Gloo, by its own collective with ``args``, or by its all-reduce of a buffer of ours, where its own
        breaks a promise; each type of coalesced tensors by itself, since Gloo adds up one. The others: as in _reduce."""
        outputs = [result for result in results if result is not None]
        kind = COLLECTIVE if outputs else NO_RESULT
        types = list(dict.fromkeys(source.dtype for source in sources))
        if not types or self._why_not_tensors([*sources, *outputs]):
            return self._delegate(name, args, reason, kind=kind)
        COUNTERS.delegated(name, reason)
        works: list[dist.Work] = []
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        parts: list[sums.Sum] = []
        for dtype in types:
            places = [i for i, source in enumerate(sources) if source.dtype == dtype]
            if through_gloo.encoded(opts.reduceOp, dtype):
                with torch.no_grad():
                    own = [part for i in places for part in through_gloo.parts(
                        opts.reduceOp, sources[i], results[i], self.size(), self._start(pieces_of, i))]
                    buffer, op = through_gloo.buffer_of(own)
                works.append(self._inner.allreduce([buffer], options_of(c10d.AllreduceOptions(), op, opts.timeout)))
                parts += own
            else:
                of_type = args if len(types) == 1 else (*([cast(list, each)[i] for i in places] for each in args[:-1]), args[-1])
                work, written = self._begin_gloo(name, of_type, kind=kind)
                works.append(work)
                copies += written
        return self._gloo(name, works[0] if len(works) == 1 else Together(works), copies, outputs, reason, parts)

    # ---- codecs, and what the switch cannot reduce

    def _sums_of(self, source: torch.Tensor, result: torch.Tensor | None, average: bool, step: int,
                 factor: float | torch.Tensor | None = None, start: int = 0) -> list[sums.Sum]:
        """Returns the sums of ``source``, by the group's codec where it has one. ``step``: for the codec's seeds."""
        if (name := self._codec_of(source.dtype)) and not self._fits(source):
            call = Call(self.size(), self.rank(), average, step)
            return coded.reduction(source, result, codecs.named(name), call, factor, start)
        return sums.reduction(source, result, self.size(), average, factor, start)

    def _with_codec(self, agreed: str) -> str:
        return agreed if self._codec == codecs.DEFAULT else f"{agreed} by {self._codec}"

    def _codec_of(self, dtype: torch.dtype) -> str:
        """Returns the name of the codec of such floats; "": sums.py has them."""
        if self._codec != codecs.DEFAULT and coded.travels(dtype, self._known(self._codec)):
            return self._codec
        return "exact" if dtype in coded.WIDE else ""

    def _codecs_of(self, tensors: list[torch.Tensor]) -> list[Codec]:
        return [self._known(name) for tensor in tensors if (name := self._codec_of(tensor.dtype))]

    def _known(self, name: str) -> Codec:
        """Returns a codec that is asked what it is, and sums nothing."""
        if name not in self._asked:
            self._asked[name] = codecs.named(name)
        return self._asked[name]

    def _fits(self, tensor: torch.Tensor) -> bool:
        """Returns True if a packet carries all of the floats in the protocol's exact code: without a codec, then."""
        return tensor.dtype not in coded.WIDE and tensor.numel() * (1 + tensor.is_complex()) <= self._joined_job().exact_floats

    def _why_not_reduce(self, tensors: list[torch.Tensor], op: dist.ReduceOp) -> str:
        extremum = is_one_of(op, EXTREMA)
        if not extremum and not is_one_of(op, SUMS):
            return f"operation {op_name(op)}"
        for tensor in tensors:
            if not (sums.ordered(tensor.dtype) if extremum else sums.summable(tensor.dtype) or tensor.dtype in coded.WIDE):
                return f"{op_name(op)} of {dtypes([tensor])}"
        if extremum:
            return self._why_not(tensors, protocols.MAX)
        return self._why_not(tensors, protocols.SUM) or self._why_not_coded(tensors, self._codecs_of(tensors))

    def _why_not_coded(self, tensors: list[torch.Tensor], coding: list[Codec]) -> str:
        """Returns the same as `_why_not`, for sums by these codecs, one after the other."""
        reason = self._why_none(tensors) if coding else ""
        for codec in coding:
            reason = reason or codec.why_not(self._joined_job().config.protocol) or self._why_not_these(*codec.operations)
        return reason


def _sum_or_average(average: bool) -> c10d.AllreduceOptions:
    return options_of(c10d.AllreduceOptions(), dist.ReduceOp(dist.ReduceOp.AVG if average else dist.ReduceOp.SUM), None)
