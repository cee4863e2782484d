"""Decorators of a process group's collectives: arguments under any of torch's names, tensors on any device, one call at a
time."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from ina.backend import comms_record, flight_recorder, staging
from ina.backend.membership import Membership as Group
from ina.backend.names import torch_name
from ina.backend.work import LazyWork

Method = Callable[..., dist.Work]


@dataclass(frozen=True)
class Kind:
    """Effect of a call on its first argument (it only reads the others), and the ranks that take part.

    ``reads``, ``writes``: the tensors of the first argument; ``by_all``: all ranks of the group call it.
    """

    reads: bool = False
    writes: bool = True
    by_all: bool = True


COLLECTIVE, IN_PLACE, NO_RESULT = Kind(), Kind(reads=True), Kind(reads=True, writes=False)
SEND, RECEIVE = Kind(reads=True, writes=False, by_all=False), Kind(by_all=False)


def call(kind: Kind) -> Callable[[Method], Method]:
    """Decorates a call on tensors on any device. No signal handler may begin one by all ranks in the middle of another."""

    def decorate(method: Method) -> Method:
        observed = _observed(staging.staged(method, kind.reads, kind.writes), kind)

        @functools.wraps(method)
        def exclusive(self: Group, *args: object, **kwargs: object) -> dist.Work:
            with self._group_state.inside(method.__name__):
                return observed(self, *args, **kwargs)

        return exclusive if kind.by_all else observed

    return decorate


def _observed(method: Method, kind: Kind) -> Method:
    """Decorates a call: torch's profiler and the flight recorder see it, where there are any."""
    name = method.__name__

    @functools.wraps(method)
    def recorded(self: Group, *args: object, **kwargs: object) -> dist.Work:
        recorder = flight_recorder.recorder
        if recorder is None or (entry := recorder.begin(self, name, args, kind.writes, kind.by_all)) is None:
            return method(self, *args, **kwargs)
        try:
            work = method(self, *args, **kwargs)
        except RuntimeError as error:
            entry.ended(error)
            raise
        assert isinstance(work, LazyWork)
        work.listen(entry.ended)
        return work

    @functools.wraps(method)
    def profiled(self: Group, *args: object, **kwargs: object) -> dist.Work:
        number = self._group_state.number(kind.by_all)
        if not torch.autograd._profiler_enabled():
            return recorded(self, *args, **kwargs)
        facts = (self, number, name, args, kind.writes, kind.by_all)
        if not kind.by_all:  # Gloo's own span shows it
            comms_record.record(*facts)
            return recorded(self, *args, **kwargs)
        # The call alone: torch's profiler, once it has stopped, must not hear of the end of what it has seen begin, as it would
        # write to memory that it has freed; and a collective may end at any time, in any thread.
        with torch.profiler.record_function(f"ina:{torch_name(name)}"):
            comms_record.record(*facts)
            return recorded(self, *args, **kwargs)

    return profiled


def _named(kind: Kind) -> Callable[[Method], Method]:
    """Decorates a `call` whose arguments may have any of the names of torch's overloads: ``outputs`` is also
    ``output_tensors``, ``tensors`` also ``tensor``, ..."""

    def decorate(method: Method) -> Method:
        decorated, signature = call(kind)(method), inspect.signature(method)
        own = [*signature.parameters][1:]

        def own_name(name: str) -> str:
            if name in own:
                return name
            return own[0] if name.startswith(("output", "tensor")) else own[1] if name.startswith("input") else name

        @functools.wraps(method)
        def collective(self: Group, *args: object, **kwargs: object) -> dist.Work:
            if not kwargs:
                return decorated(self, *args)
            bound = signature.bind(self, *args, **{own_name(name): value for name, value in kwargs.items()})
            return decorated(*bound.args, **bound.kwargs)  # tensors as positional arguments, as staging needs them

        return collective

    return decorate


collective, in_place = _named(COLLECTIVE), _named(IN_PLACE)
