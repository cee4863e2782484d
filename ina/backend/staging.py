"""Tensors that are not in main memory (CUDA): a collective works on pinned copies, and its results go back when it ends.

Both copies wait: before the collective for the device's pending operations on the tensor, after it for the device to have the
result, so that a caller that waits for the work may use the tensor on any stream.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import torch
import torch.distributed as dist

from ina.backend.group_state import GroupState
from ina.backend.work import GlooWork

# Collectives that read their first argument; all others only write to it.
READ_FIRST = {"allreduce", "allreduce_coalesced", "broadcast", "reduce", "send"}
WRITE_NOTHING = {"send"}


class Group(Protocol):
    """A process group (process_group.py)."""

    _group_state: GroupState


def elsewhere(tensor: torch.Tensor) -> bool:
    """Returns True if the tensor has to be staged."""
    return tensor.device.type == "cuda"


def staged(method: Callable[..., dist.Work]) -> Callable[..., dist.Work]:
    """Decorates a collective, of any arguments, for tensors on any device. Its first argument is its output."""

    @functools.wraps(method)
    def collective(self: Group, *args: object, **kwargs: object) -> dist.Work:
        if not _any_elsewhere(args):
            return method(self, *args, **kwargs)
        name = method.__name__
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        by_id: dict[int, torch.Tensor] = {}
        arguments = [_on_host(arg, i > 0 or name in READ_FIRST, copies if i == 0 and name not in WRITE_NOTHING else [], by_id)
                     for i, arg in enumerate(args)]  # fmt: skip
        work = method(self, *arguments, **kwargs)
        return GlooWork(self._group_state, work, copies, [tensor for tensor, _ in copies], name)

    return collective


def _any_elsewhere(argument: object) -> bool:
    if isinstance(argument, torch.Tensor):
        return elsewhere(argument)
    return isinstance(argument, (list, tuple)) and any(map(_any_elsewhere, argument))


def _on_host(
    argument: object, read: bool, copies: list[tuple[torch.Tensor, torch.Tensor]], by_id: dict[int, torch.Tensor],
) -> object:  # fmt: skip
    """Returns ``argument`` with copies in main memory; ``copies`` gets (original, copy); a tensor that occurs twice has one
    copy."""
    if isinstance(argument, (list, tuple)):
        return [_on_host(item, read, copies, by_id) for item in argument]
    if not isinstance(argument, torch.Tensor) or not elsewhere(argument):
        return argument
    if id(argument) not in by_id:
        by_id[id(argument)] = torch.empty(argument.shape, dtype=argument.dtype, pin_memory=torch.cuda.is_available())
    copy = by_id[id(argument)]
    if read:
        copy.copy_(argument.detach())  # from a device to pinned memory: waits for the device
    copies.append((argument.detach(), copy))
    return copy
