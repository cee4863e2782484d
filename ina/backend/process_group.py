"""The process group: collectives that are sums (sums.py) go through the switch, all others through an inner Gloo.

    calls.py        a call: any of torch's names of its arguments, one at a time, tensors on any device
    membership.py   the group's ranks, job, inner Gloo and end
    ways.py         through the switch or through Gloo
    reductions.py   all-reduce, reduce, reduce-scatter
    movements.py    broadcast, all-gather, gather, scatter, all-to-all, barrier
    here            what goes to Gloo as it is

A method that C++ calls through the trampoline and that Python does not override falls through to C++ while it holds the GIL,
which Gloo's threads want: so *every* collective is overridden in Python and delegated explicitly.
"""

from __future__ import annotations

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from ina.backend.calls import COLLECTIVE, RECEIVE, SEND, Kind, call
from ina.backend.eager import all_eager
from ina.backend.movements import Movements
from ina.backend.reductions import Reductions
from ina.backend.settings import Options


class InaProcessGroup(Reductions, Movements):
    """A group of the back end "ina"."""


def create_process_group(options: c10d._DistributedBackendOptions, backend_options: object) -> InaProcessGroup:
    """Creates a group: torch's creator (extended API), called on every member of a new group, with its store, rank, size and
    time-out.

    Raises RuntimeError on every rank if rank 0 cannot name a switch that all reach, ValueError for a bad option, variable or key.
    """
    if not isinstance(backend_options, Options | None):
        raise ValueError(f"ina: pg_options is a {type(backend_options).__name__}, expected ina.backend.Options")
    return InaProcessGroup(options.store, options.group_rank, options.group_size, options.timeout, options.group_id,
                           backend_options)


def _delegating(name: str, kind: Kind) -> None:
    """Gives the class a method that goes to Gloo with the arguments that it gets."""

    reason = "not a sum" if kind.by_all else "a message between two ranks, for which the switch has nothing to do"

    def method(self: InaProcessGroup, *args: object, **kwargs: object) -> dist.Work:
        return self._delegate(name, args, reason, kwargs, kind)

    method.__name__ = name
    setattr(InaProcessGroup, name, call(kind)(method))


# The other collectives of torch 2.7 to 2.15, under old and new names.
DELEGATED = {
    "gather_single": COLLECTIVE, "gather_into_tensor": COLLECTIVE, "send": SEND, "recv": RECEIVE, "recv_anysource": RECEIVE,
}
for _name, _kind in DELEGATED.items():
    if hasattr(dist.ProcessGroup, _name):
        _delegating(_name, _kind)
all_eager(InaProcessGroup)
