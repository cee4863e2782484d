"""Collectives that move tensors and add nothing up: broadcast, all-gather, gather, scatter, all-to-all and barrier.

Through the switch, each is a sum in which no two ranks have values at one place (sums.placement).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from ina.aggregation.worker import Route
from ina.aggregation.worker.route import Table
from ina.backend import sums
from ina.backend.arguments import ListsOfTensors, Tensors, as_list, as_lists, contiguous, dtypes, octets, options_of
from ina.backend.calls import collective, in_place
from ina.backend.counters import COUNTERS
from ina.backend.eager import all_eager
from ina.backend.settings import Settings
from ina.backend.ways import Ways

WAITED_FOR = SimpleNamespace(asyncOp=False)  # options of a collective whose caller has nothing else to do
IN_BACKGROUND = SimpleNamespace(asyncOp=True)  # of one whose caller has
CHUNK = 4  # packets of a piece of an all-to-all, before it is the next one's turn
Places = Sequence[tuple[torch.Tensor, int]]  # tensors, each with the number of its first word in the whole


@all_eager
class Movements(Ways):
    def _move(self, name: str, args: tuple[object, ...], reason: str, outputs: list[torch.Tensor],
              encode: Callable[[], list[sums.Sum]], agreed: str, sized: Sequence[torch.Tensor] | None = None,
              as_gloo: bool = True) -> dist.Work:
        """Moves tensors through Gloo, with ``args``, the options last, if there is a ``reason``; else in the faster way, if Gloo
        can do it (``as_gloo``). ``sized``: of the same sizes on all ranks (default: ``outputs``); ``agreed``: as in
        _through_switch."""
        if reason:
            return self._delegate(name, args, reason)

        def through_switch() -> dist.Work:
            return self._through_switch(name, outputs, encode, args[-1], agreed)

        if not as_gloo:
            return through_switch()
        return self._faster_if_equal(name, outputs if sized is None else sized, through_switch,
                                     lambda reason: self._delegate(name, args, reason))

    def _placed(self, inputs: Places, results: Places, words: int, make: Callable[..., Route], *route: object) -> list[sums.Sum]:
        """Returns the sum that moves ``inputs``, of this rank, to places among ``words`` words, from which come its ``results``,
        along a route if the protocol has some; nothing for no words."""
        return [sums.placement(inputs, results, words, self._route(words, make, *route))] if words else []

    @in_place
    def broadcast(self, tensors: Tensors, opts: object = None, timeout: timedelta | None = None, *,
                  root: int | None = None) -> dist.Work:
        tensors = as_list(tensors)
        options = options_of(c10d.BroadcastOptions(), opts if root is None else None, timeout, rootRank=root)
        several = "" if len(tensors) == 1 else "several tensors in one broadcast"
        reason = self._why_not(tensors) or several or self._why_not_root(options)

        def encode() -> list[sums.Sum]:
            own = [(tensors[0], 0)]
            inputs = own if options.rootRank == self.rank() else []
            return self._placed(inputs, own, sums.words(tensors[0]), Route.broadcast, options.rootRank)

        return self._move("broadcast", (tensors, options), reason, tensors, encode,
                          f"of {sums.alike(tensors)} from {options.rootRank}")

    @collective
    def allgather(self, outputs: ListsOfTensors, inputs: Tensors, opts: object = None,
                  timeout: timedelta | None = None) -> dist.Work:
        lists, inputs = as_lists(outputs), as_list(inputs)
        return self._gather_lists("allgather", lists, inputs, opts, timeout, (lists, inputs))

    @collective
    def allgather_coalesced(self, output_lists: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor],
                            opts: object = None) -> dist.Work:
        by_input = [[of_rank[i] for of_rank in output_lists] for i in range(len(inputs))]
        return self._gather_lists("allgather_coalesced", by_input, list(inputs), opts, None, (output_lists, inputs))

    def _gather_lists(self, name: str, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: object,
                      timeout: timedelta | None, args: tuple[object, ...]) -> dist.Work:
        """All-gathers tensors. ``outputs``: for each input a tensor for each rank."""
        options = options_of(c10d.AllgatherOptions(), opts, timeout)
        received = [tensor for each in outputs for tensor in each]
        reason, misfit = self._why_not([*inputs, *received]), ""
        if len(outputs) != len(inputs) or any(len(each) != self.size() for each in outputs):
            misfit = "wrong number of tensors"  # Gloo's message is better
        elif any(each[self.rank()].numel() != own.numel() or any(t.dtype != own.dtype for t in each)
                 for each, own in zip(outputs, inputs, strict=True)):
            misfit = "sizes or types that do not fit"
        as_gloo = len({tensor.numel() for tensor in received}) <= 1  # it gathers tensors of one length
        if reason and not (misfit or as_gloo or len(inputs) > 1 or self._why_not_tensors([*inputs, *received])):
            exchange = options_of(c10d.AllToAllOptions(), options.timeout, None)
            return self._exchange_through_gloo(name, outputs[0], inputs * self.size(), exchange, reason)

        def encode() -> list[sums.Sum]:
            parts = []
            for each, own in zip(outputs, inputs, strict=True):
                lengths = list(map(sums.words, each))
                *starts, total = itertools.accumulate(lengths, initial=0)
                results = list(zip(each, starts, strict=True))
                parts += self._placed([(own, starts[self.rank()])], results, total, Route.all_gather, lengths)
            return parts

        agreed = ",".join(sums.alike([own], [tensor.numel() for tensor in each])
                          for each, own in zip(outputs, inputs, strict=False))  # those that do not fit go through Gloo
        return self._move(name, (*args, options), reason or misfit, received, encode, f"of {agreed}", as_gloo=as_gloo)

    @collective
    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: object = None) -> dist.Work:
        return self._gather_flat("_allgather_base", [output], [input], opts)

    all_gather_single = _allgather_base

    @collective
    def allgather_into_tensor_coalesced(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor],
                                        opts: object = None) -> dist.Work:
        return self._gather_flat("allgather_into_tensor_coalesced", list(outputs), list(inputs), opts)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def _gather_flat(self, name: str, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: object) -> dist.Work:
        """All-gathers tensors, each into one tensor that has room for all ranks'."""
        options = options_of(c10d.AllgatherOptions(), opts, None)
        reason = self._why_not([*outputs, *inputs])
        if not reason and not self._fit(outputs, inputs):
            reason = "sizes or types that do not fit"  # Gloo's message is better
        args = (outputs[0], inputs[0], options) if name == "_allgather_base" else (outputs, inputs, options)

        def encode() -> list[sums.Sum]:
            parts = []
            for output, own in zip(outputs, inputs, strict=True):
                length = sums.words(own)
                if sums.WORD * length == own.numel() * own.element_size():  # pieces are whole words: the output as it is
                    results = [(output, 0)]
                else:
                    results = [(piece, length * i) for i, piece in enumerate(output.view(self.size(), -1))]
                parts += self._placed([(own, length * self.rank())], results, length * self.size(), Route.all_gather,
                                      [length] * self.size())
            return parts

        return self._move(name, args, reason, outputs, encode, f"of {sums.alike(inputs)}")

    @collective
    def gather(self, outputs: ListsOfTensors, inputs: Tensors, opts: object = None, timeout: timedelta | None = None, *,
               root: int | None = None) -> dist.Work:
        lists, inputs = as_lists(outputs), as_list(inputs)
        options = options_of(c10d.GatherOptions(), opts if root is None else None, timeout, rootRank=root)
        return self._move_pieces("gather", inputs, lists, options, (lists, inputs, options))

    @collective
    def scatter(self, outputs: Tensors, inputs: ListsOfTensors, opts: object = None, timeout: timedelta | None = None, *,
                root: int | None = None) -> dist.Work:
        outputs, lists = as_list(outputs), as_lists(inputs)
        options = options_of(c10d.ScatterOptions(), opts if root is None else None, timeout, rootRank=root)
        return self._move_pieces("scatter", outputs, lists, options, (outputs, lists, options))

    def _move_pieces(self, name: str, own: list[torch.Tensor], lists: list[list[torch.Tensor]],
                     options: c10d.GatherOptions | c10d.ScatterOptions, args: tuple[object, ...]) -> dist.Work:
        """Gathers the ranks' ``own`` tensors in the root's list, or scatters that to them. All pieces have one size, as Gloo
        demands."""
        whole = lists[0] if lists and options.rootRank == self.rank() else []
        reason = self._why_not([*own, *whole]) or self._why_not_routed()
        reason = reason or self._why_not_root(options)
        if not reason and (len(own) != 1 or len(whole) != (self.size() if options.rootRank == self.rank() else 0)):
            reason = "wrong number of tensors"  # Gloo's message is better
        if not reason and any(each.numel() != own[0].numel() or each.dtype != own[0].dtype for each in whole):
            reason = "sizes or types that do not fit"

        def encode() -> list[sums.Sum]:
            length = sums.words(own[0])
            pieces, mine = [(each, length * i) for i, each in enumerate(whole)], [(own[0], length * self.rank())]
            make, inputs, results = (Route.gather, mine, pieces) if name == "gather" else (Route.scatter, pieces, mine)
            return self._placed(inputs, results, length * self.size(), make, options.rootRank, [length] * self.size())

        return self._move(name, args, reason, whole if name == "gather" else own, encode,
                          f"of {sums.alike(own)} at {options.rootRank}", sized=own)

    @collective
    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: object = None) -> dist.Work:
        """Exchanges pieces, which may differ in size. Gloo does that for one tensor only, and lists not at all in torch 2.11."""
        options = options_of(c10d.AllToAllOptions(), opts, None)
        outputs, inputs = list(outputs), list(inputs)
        reason = self._why_not([*outputs, *inputs]) or self._why_not_routed()
        if len(outputs) != self.size() or len(inputs) != self.size():
            reason = reason or "wrong number of tensors"
        if len({piece.dtype for piece in (*outputs, *inputs)}) > 1:
            reason = reason or "types that do not fit"
        return self._alltoall_through_gloo(outputs, inputs, options, reason) if reason else self._exchange(
            "alltoall", outputs, inputs, outputs, False, (outputs, inputs, options))

    @collective
    def alltoall_base(self, output: torch.Tensor, input: torch.Tensor, output_split_sizes: Sequence[int] = (),
                      input_split_sizes: Sequence[int] = (), opts: object = None) -> dist.Work:
        options = options_of(c10d.AllToAllOptions(), opts, None)
        args = (output, input, list(output_split_sizes), list(input_split_sizes), options)
        even = not output_split_sizes and not input_split_sizes
        into = list(output_split_sizes) or [len(output) // self.size()] * self.size() if output.dim() else []
        out = list(input_split_sizes) or [len(input) // self.size()] * self.size() if input.dim() else []
        reason = self._why_not([output, input]) or self._why_not_routed()
        fits = output.dim() and input.dim() and len(into) == len(out) == self.size() and output.dtype == input.dtype
        if not reason and not (fits and sum(into) == len(output) and sum(out) == len(input)):
            reason = "sizes or types that do not fit"  # Gloo's message is better
        if reason:
            return self._delegate("alltoall_base", args, reason)
        return self._exchange("alltoall_base", list(output.split(into)), list(input.split(out)), [output], even, args)

    all_to_all_single = alltoall_base

    def _exchange(self, name: str, received: list[torch.Tensor], sent: list[torch.Tensor], outputs: list[torch.Tensor],
                  even: bool, args: tuple[object, ...]) -> dist.Work:
        """Exchanges pieces, ``sent`` to each rank and ``received`` from each. Not ``even``: their sizes differ, so that ranks
        tell each other first, in one round trip, which this rank waits for."""
        ranks, rank = self.size(), self.rank()
        sizes = (torch.full((ranks, ranks), sent[0].numel(), device="cpu") if even
                 else self._exchange_sizes(name, received, sent, args[-1]))
        words = sums.words_of(sizes, sent[0].element_size()).numpy()
        into, out = list(map(sums.words, received)), list(map(sums.words, sent))

        def encode() -> list[sums.Sum]:
            *starts, total = itertools.accumulate([*out, *into], initial=0)
            results = [(piece, starts[ranks + i if i != rank else i]) for i, piece in enumerate(received)]
            route = Route.all_to_all(words, rank, CHUNK * self._joined_job().config.values)
            whole = sums.placement(list(zip(sent, starts[:ranks], strict=True)), results, max(1, total), route)
            whole.alike = False
            return [whole]

        each = f" ({sent[0].numel()} elements to each)" if even else ""
        return self._move(name, args, "", outputs, encode, f"of {dtypes(sent[:1])}{each}", as_gloo=even)

    def _exchange_sizes(self, name: str, received: list[torch.Tensor], sent: list[torch.Tensor], options: object) -> torch.Tensor:
        """Returns how many elements each rank (row) sends to each. ValueError: a rank expects another number; all ranks raise it,
        so that none waits for another one."""
        ranks, rank = self.size(), self.rank()
        own = torch.tensor([[piece.numel() for piece in pieces] for pieces in (sent, received)], device="cpu")
        sizes = torch.empty(ranks, *own.shape, dtype=own.dtype, device="cpu")
        part = sums.placement([(own, rank * sums.words(own))], [(sizes, 0)], sums.words(sizes))
        self._through_switch(name, [sizes], lambda: [part], options, f"sizes of {dtypes(sent[:1])}").wait()
        to_each, from_each = sizes.unbind(1)
        for source, target in (to_each != from_each.t()).nonzero().tolist():
            raise ValueError(f"ina: {name}: rank {target} expects {from_each[target, source]} elements of rank {source}, "
                             f"which sends {to_each[source, target]}")
        return to_each

    def _alltoall_through_gloo(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: c10d.AllToAllOptions,
                               reason: str) -> dist.Work:
        if len({piece.dtype for piece in (*outputs, *inputs)}) > 1:
            return self._delegate("alltoall", (outputs, inputs, options), reason)  # refuses them
        return self._exchange_through_gloo("alltoall", outputs, inputs, options, reason)

    def _exchange_through_gloo(self, name: str, outputs: list[torch.Tensor], inputs: list[torch.Tensor],
                               options: c10d.AllToAllOptions, reason: str) -> dist.Work:
        """Exchanges pieces of any sizes, and of one type, with each rank."""
        COUNTERS.delegated(name, reason)
        sent = [octets(contiguous(piece, [])).view(-1) for piece in inputs]
        into, out = [piece.numel() * piece.element_size() for piece in outputs], list(map(len, sent))
        received = torch.empty(sum(into), dtype=torch.uint8, device="cpu")
        work = self._inner.alltoall_base(received, torch.cat(sent), into, out, options)
        copies = [(piece, part.view(piece.dtype).view(piece.shape))
                  for piece, part in zip(outputs, received.split(into), strict=True)]
        return self._gloo(name, work, copies, outputs, reason)

    def why_no_routes(self) -> str:
        """Returns "" if ``route_words`` has a way through the switch, else the reason for ``exchange_words``."""
        return self._why_not([]) or self._why_not_routed()

    def packet_words(self) -> int:
        """Returns the number of words in a packet; of a group that goes to Gloo whole, in one of the default size."""
        return Settings.values if self._why_not([]) else self._joined_job().config.values

    @in_place
    def route_words(self, words: torch.Tensor, name: str, table: Table, agreed: str, opts: object) -> dist.Work:
        """Moves and adds up int32, each of the pieces in ``table`` (Route.of) from its sources to its receivers. ``words``: what
        this rank has and gets; ``name``: of the collective that it is counted as; ``agreed``: as in `_through_switch`; ``opts``:
        WAITED_FOR, or IN_BACKGROUND."""
        part = sums.Sum.of(words, route=Route.of(table))
        part.alike = False
        return self._through_switch(name, [words], lambda: [part], opts, agreed)

    @collective
    def exchange_words(self, received: torch.Tensor, sent: torch.Tensor, into: list[int], out: list[int], name: str,
                       reason: str) -> dist.Work:
        """Exchanges rows of int32 through Gloo: ``out[i]`` of ``sent`` go to rank i, ``into[i]`` of ``received`` come from it."""
        COUNTERS.delegated(name, reason)
        work = self._inner.alltoall_base(received, sent, into, out, c10d.AllToAllOptions())
        return self._gloo(name, work, [], [received], reason)

    @collective
    def barrier(self, opts: object = None, timeout: timedelta | None = None) -> dist.Work:
        options = options_of(c10d.BarrierOptions(), opts, timeout)
        reason = self._why_not([])
        if reason:
            return self._delegate("barrier", (options,), reason)
        route = Route.barrier() if self._joined_job().routes else None
        word = torch.ones(0 if route else 1, dtype=torch.int32, device="cpu")
        return self._through_switch("barrier", [], lambda: [sums.Sum.of(word, route=route)], options, "")
