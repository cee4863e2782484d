"""torch.distributed back end ``"ina"``: collectives that are sums go through a P4 switch, the rest through Gloo.

    torch.distributed.init_process_group("ina")

works under torchrun with no other configuration: rank 0 starts the switch process of the local world (all ranks on one
machine), and it ends with the job. An installed package registers the back end when torch is imported (autoload.py);
from a checkout call ``ina.backend.register()`` first.

Environment, read when a group is created (settings.py): INA_PROTOCOL, INA_PORT, INA_VALUES, INA_SLOTS, INA_FAULT, ...;
``pg_options=ina.backend.Options(protocol=..., ...)`` sets them for one group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ina.backend.autoload import register

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

__all__ = ["Options", "all_reduce_own", "register", "reset_stats", "stats"]


def __getattr__(name: str) -> object:
    if name == "Options":  # imported late: it needs the compiled part, which every `import torch` would load
        from ina.backend.settings import Options

        return Options
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def all_reduce_own(tensor: torch.Tensor, group: dist.ProcessGroup | None = None, async_op: bool = False) -> dist.Work | None:
    """Reduces all ranks' ``tensor`` (float32 or int32) in place by the own reduction of the protocol of ``group``
    (INA_OWN in host/protocol/protocol.h: a majority vote, say). ``group=None``: the default group. Returns None, or a
    torch.distributed.Work if ``async_op``.

    ValueError: the group's protocol declares no reduction of its own, or the group is not this back end's.
    """
    import torch.distributed as dist

    from ina.backend.process_group import InaProcessGroup

    group = dist.group.WORLD if group is None else group
    if not isinstance(group, InaProcessGroup):
        raise ValueError(f"ina: a group of the back end 'ina' is expected, not a {type(group).__name__}")
    work = group.allreduce_own(tensor)
    if async_op:
        return work
    work.wait()
    return None


def stats() -> dict:
    """Returns this process's counters, over all its groups: see :class:`ina.backend.counters.Counters`."""
    from ina.backend.counters import COUNTERS

    return COUNTERS.snapshot()


def reset_stats() -> None:
    """Starts counting from zero."""
    from ina.backend.counters import COUNTERS

    COUNTERS.reset()
