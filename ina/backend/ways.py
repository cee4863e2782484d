"""The two ways of a collective, through the switch as sums (sums.py) and through the inner Gloo, and which one it goes.

All ranks decide alike, because they decide by properties that a collective has on all ranks (data type, operation, number of
tensors, size of the group) and by the switch process's one answer to all of them.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ina import codecs
from ina.aggregation import protocols
from ina.aggregation.lane import INT32
from ina.aggregation.worker import Route
from ina.aggregation.worker.config import ETHERNET_OVERHEAD
from ina.backend import direct, sums
from ina.backend.arguments import EXTREMA, SUMS, asynchronous, contiguous, dtypes, flat, is_one_of, octets, op_name, tensors_in
from ina.backend.calls import COLLECTIVE, Kind
from ina.backend.counters import COUNTERS
from ina.backend.eager import all_eager
from ina.backend.membership import Membership
from ina.backend.names import torch_name
from ina.backend.planner import Planner
from ina.backend.settings import Options
from ina.backend.spans import span
from ina.backend.through_gloo import INTEGERS
from ina.backend.work import Agreed, Ended, GlooWork, SwitchWork
from ina.codecs.planner import GLOO as THROUGH_GLOO
from ina.codecs.planner import allowed

GLOOS = INTEGERS | {torch.float64, torch.float32, torch.float16, torch.bfloat16}
MEASURED = "measured to be faster, or tried"
# The switch asks only that numbers of elements fit. Gloo asks for shapes, and reads a scalar's first size, which it has not.
JOINED = {"allgather_coalesced", "allgather_into_tensor_coalesced"}
IN_PIECES = JOINED | {"allgather", "_allgather_base", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced",
                      "alltoall"}


@all_eager
class Ways(Membership):
    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta, name: str, options: Options | None = None,
                 owner: Membership | None = None):
        """``owner``: as Membership's."""
        super().__init__(store, rank, size, timeout, name, options, owner)
        settings = self._settings
        self._allowed: tuple[str, ...] | None = None  # codecs that may be chosen from; None: that one
        self._codec = codecs.DEFAULT  # of floats
        self._chooses = False  # between the switch and Gloo
        self._planner: Planner | None = None
        self.plans = itertools.count()  # numbers of ina/backend/moe's
        self.most_words = 0  # that a rank had for the last of these
        if settings is not None:
            self._allowed = allowed(settings.codec, settings.values)
            self._codec = settings.codec if self._allowed is None else codecs.DEFAULT
            self._chooses = self._allowed is not None or not settings.codec_is_set

    # ---- which way

    def _why_not(self, tensors: Sequence[torch.Tensor], *reductions: int) -> str:
        """Returns "" for the switch, else why not: by common properties of all ranks, and the protocol's reductions. Requests
        admission once per group.

        Raises RuntimeError if the job is over."""
        return self._why_none(tensors) or self._why_not_these(*(reductions or [protocols.SUM]))

    def _why_none(self, tensors: Sequence[torch.Tensor]) -> str:
        """Returns the same for any reduction."""
        if self._closed:
            raise self._destroyed()
        if reason := self._why_not_tensors(tensors):
            return reason
        if self._refusal:
            return self._refusal
        if refusal := self._joined_job().admit():
            self._refusal = "refused by the switch"
            warnings.warn(f"ina: collectives of group {self.group_name!r} go through Gloo: {refusal}", stacklevel=5)
            return self._refusal
        return ""

    def _why_not_these(self, *reductions: int) -> str:
        """Returns "", or which of these the job's protocol lacks. The job is admitted."""
        job = self._joined_job()
        lacking = sorted({*reductions} - job.reductions)
        if not lacking:
            return ""
        keyed = lacking[0] in protocols.reductions(job.config.protocol)
        name = protocols.REDUCTIONS[lacking[0]].removeprefix("a ")
        return f"its protocol has no {name}{' with check words that have a key' if keyed else ''}"

    def _why_not_tensors(self, tensors: Sequence[torch.Tensor]) -> str:
        """Returns the same for the tensors alone, whatever the switch and the protocol have."""
        for tensor in tensors:
            if tensor.layout != torch.strided or tensor.device.type != "cpu":
                return f"layout {tensor.layout} on {tensor.device.type}"
        return ""

    def _why_not_root(self, options: Any) -> str:
        return "" if 0 <= options.rootRank < self.size() else "no such root"  # Gloo's message is better

    def _why_not_routed(self) -> str:
        """Returns "" if sums may be from and to some ranks only, else why not."""
        others = "INA_PROTOCOL=receivers and atp_routes have others"
        return "" if self._joined_job().routes else f"its sums are from all ranks and to all: {others}"

    def _route(self, words: int, make: Callable[..., Route], *args: object) -> Route | None:
        """Returns a route for a sum of so many words; None: the protocol has none, or it fits a packet, in one round trip."""
        job = self._joined_job()
        return make(*args) if job.routes and words > job.config.values else None

    def _fit(self, whole: Sequence[torch.Tensor], parts: Sequence[torch.Tensor]) -> bool:
        """Returns True if each of the tensors ``whole`` has room for one of ``parts`` of every rank."""
        return len(whole) == len(parts) and all(
            w.numel() == p.numel() * self.size() and w.dtype == p.dtype for w, p in zip(whole, parts, strict=True))

    def _faster(self, title: str, through_switch: Callable[[], dist.Work], through_gloo: Callable[[str], dist.Work]) -> dist.Work:
        """Runs a collective through the switch or through Gloo, whichever is measured to be faster for those of this ``title``,
        the same on all ranks; through the switch, where a codec was asked for. ``through_gloo``: gets the reason."""
        if not self._chooses:
            return through_switch()

        def start(way: str) -> dist.Work:
            return through_gloo(MEASURED) if way == THROUGH_GLOO else through_switch()

        return self._measured(title, (), None, start)

    def _faster_if_equal(self, collective: str, tensors: Sequence[torch.Tensor], through_switch: Callable[[], dist.Work],
                         through_gloo: Callable[[str], dist.Work], op: dist.ReduceOp | None = None) -> dist.Work:
        """Runs a collective as `_faster` does, where it may go either way."""
        elements = sum(tensor.numel() for tensor in tensors)
        if not self._either_way({tensor.dtype for tensor in tensors}, elements, op):
            return through_switch()
        kind = "" if op is None else f"{op_name(op)} of "
        size = 1 << elements.bit_length()
        title = f"{collective}: {kind}{size // 2:,} to {size - 1:,} {dtypes(tensors[:1])}"
        return self._faster(title, through_switch, through_gloo)

    def _either_way(self, types: set[torch.dtype], elements: int, op: dist.ReduceOp | None) -> bool:
        """Returns True if times decide, as both ways give the same bits: it moves values, or has integers that Gloo adds up or
        compares; with codec "auto", whose sums follow times anyway, also sums of float32. Not what one packet has."""
        if not self._chooses or not types <= GLOOS or elements <= self._packet_values():
            return False
        if op is None:
            return True
        summed = is_one_of(op, SUMS[:1])
        equal = types <= INTEGERS and (summed or is_one_of(op, EXTREMA))
        return equal or (self._allowed is not None and summed and types == {torch.float32})

    def _measured(self, title: str, allowed: tuple[str, ...], values: torch.Tensor | None,
                  start: Callable[[str], dist.Work]) -> dist.Work:
        """Starts a collective in the way that the planner says (planner.py), and lets it note the time."""
        planner = self._planner = self._planner or self._new_planner()
        way, began = planner.way(title, allowed, values), time.monotonic()
        work = start(way)
        planner.note(title, allowed, way, began, work)
        return work

    def _packet_values(self) -> int:
        assert self._settings is not None  # the group has a job
        return self._settings.values

    def _new_planner(self) -> Planner:
        assert self._settings is not None  # the group has a job
        values = self._settings.values
        headers = protocols.frame_bytes(self._settings.protocol or protocols.DEFAULT, values) + ETHERNET_OVERHEAD

        def latency() -> float:
            times, word = [], torch.ones(1, dtype=torch.int32, device="cpu")
            for _ in range(3):
                began = time.monotonic()
                self._through_switch("latency", [], lambda: [sums.Sum.of(word)], None, "").wait()
                times.append(time.monotonic() - began)
            return min(times)

        def usable(name: str) -> bool:
            codec, job = codecs.named(name), self._joined_job()
            return codec.operations <= job.reductions and not codec.why_not(job.config.protocol)

        return Planner(self.size(), self._ballot, latency, usable, self._settings.rate, headers / INT32.bytes(values))

    # ---- through the switch

    def _through_switch(self, collective: str, outputs: list[torch.Tensor], encode: Callable[[], list[sums.Sum]],
                        opts: object, agreed: str) -> dist.Work:
        """Runs a collective through the switch. ``agreed``: text that must be equal on all ranks, beyond the collective and its
        numbers of elements."""
        with torch.no_grad(), span(f"ina:{torch_name(collective)} encode"):
            parts = encode()
        common = Agreed.of(collective, agreed, parts)
        if len(parts) == 1 and (parts[0].elements or parts[0].route) and self._goes_directly(parts[0], asynchronous(opts)):
            return self._direct(collective, outputs, parts[0], common, asynchronous(opts))
        work = SwitchWork(self._group_state, self._joined_job(), collective, outputs, parts, common)
        COUNTERS.through_switch(collective, work.parts)
        self._forget_ended()
        work.submit(asynchronous(opts))
        self._in_flight.append(work)
        return work

    def _goes_directly(self, part: sums.Sum, asynchronous: bool) -> bool:
        """Returns True if the sum may begin in its call: one that holds memory of its own only if it also ends there."""
        return not (asynchronous and part.staged) and direct.possible(self._group_state)

    def _direct(self, collective: str, outputs: list[torch.Tensor], part: sums.Sum, agreed: Agreed,
                asynchronous: bool) -> dist.Work:
        self._forget_ended()
        work = direct.run(self._group_state, self._joined_job(), collective, outputs, part, agreed, asynchronous)
        if not isinstance(work, Ended):
            self._in_flight.append(work)
        return work

    def _forget_ended(self) -> None:
        while self._in_flight and self._in_flight[0].is_completed():
            self._in_flight.popleft()

    # ---- through Gloo

    def _delegate(self, collective: str, args: tuple[object, ...], reason: str, kwargs: dict[str, object] | None = None,
                  kind: Kind = COLLECTIVE) -> dist.Work:
        """Delegates to Gloo. The first argument is the output, if ``kind`` says that it is written to."""
        COUNTERS.delegated(collective, reason)
        outputs = tensors_in(args[:1]) if kind.writes else []
        work, copies = self._begin_gloo(collective, args, kwargs, kind)
        return self._gloo(collective, work, copies, outputs, reason, by_all=kind.by_all)

    def _begin_gloo(self, collective: str, args: tuple[object, ...], kwargs: dict[str, object] | None = None,
                    kind: Kind = COLLECTIVE) -> tuple[dist.Work, list[tuple[torch.Tensor, torch.Tensor]]]:
        """Begins Gloo's collective, with contiguous tensors: it sums strided ones wrongly. Returns its work, and the outputs that
        were not contiguous, each with its copy."""
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        args = tuple(contiguous(arg, copies if i == 0 and kind.writes else []) for i, arg in enumerate(args))
        if collective in IN_PIECES:
            args = tuple(map(flat, args))
        if self._moves_octets(collective, args):
            args = tuple(map(octets, args))
        return getattr(self._inner, collective)(*args, **(kwargs or {})), copies

    def _moves_octets(self, collective: str, args: tuple[object, ...]) -> bool:
        """Returns True if Gloo has to move bytes in place of the elements: it refuses their type, or would join several types in
        one. What does not fit together has to be seen by Gloo."""
        tensors = tensors_in(args)
        types = {tensor.dtype for tensor in tensors}
        if "reduce" in collective or not types or self._why_not_tensors(tensors):
            return False
        if len(types) == 1:
            return not types <= GLOOS
        received, sent = ([tensor.dtype for tensor in tensors_in(each)] for each in args[:2])
        return collective in JOINED and bool(sent) and received == sent * (len(received) // len(sent))

    def _gloo(self, collective: str, work: dist.Work, copies: list[tuple[torch.Tensor, torch.Tensor]],
              outputs: list[torch.Tensor], reason: str, parts: Sequence[sums.Sum] = (), by_all: bool = True) -> dist.Work:
        """Returns ``work``, wrapped: for time-outs of waits, ``copies`` to be copied back, ``parts`` to be decoded, and because
        other ranks may be in a collective through the switch."""
        agreed = f"{collective} ({reason})" if self._job is not None and not self._refusal and by_all else ""
        return GlooWork(self._group_state, work, copies, outputs, collective, agreed, self._job, parts, message=not by_all)
