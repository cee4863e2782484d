"""torch.distributed back end ``"ina"``: collectives that are sums go through a P4 switch, the rest through Gloo.

    torch.distributed.init_process_group("ina")

works under torchrun with no other configuration: rank 0 starts the switch process of the local world (all ranks on one
machine), and it ends with the job. An installed package registers the back end when torch is imported (autoload.py);
from a checkout call ``ina.backend.register()`` first.

Environment, read when a group is created (settings.py): INA_PROTOCOL, INA_PORT, INA_VALUES, INA_SLOTS, INA_FAULT, ...;
``pg_options=ina.backend.Options(protocol=..., ...)`` sets them for one group.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ina.backend.autoload import register

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

    from ina.backend import hooks as hooks
    from ina.backend import optimizers as optimizers
    from ina.backend import ready as ready
    from ina.backend.settings import Options as Options

__all__ = ["Options", "all_reduce_own", "grow_group", "hooks", "join_group", "optimizers", "ready", "register", "reset_stats",
           "shrink_group", "stats", "torchft_group"]


def __getattr__(name: str) -> object:
    if name == "Options":  # imported late: it needs the compiled part, which every `import torch` would load
        return import_module("ina.backend.settings").Options
    if name in ("hooks", "optimizers", "ready"):
        return import_module(f"ina.backend.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def all_reduce_own(tensor: torch.Tensor, group: dist.ProcessGroup | None = None, async_op: bool = False) -> dist.Work | None:
    """Reduces all ranks' ``tensor`` in place by the reduction that the protocol of ``group`` has of its own (a majority vote,
    say: INA_OWN in host/protocol/protocol.h).

    ``tensor``: float32 or int32, of any shape, the same on all ranks; ``group``: None, the default group. Returns None when it is
    done, or, with ``async_op``, a torch.distributed.Work to wait for. ValueError: the group's protocol has no reduction of its
    own, or the group is not this back end's.
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


def shrink_group(ranks_to_exclude: list[int] | None = None, group: dist.ProcessGroup | None = None,
                 seconds: float = 30.0) -> dist.ProcessGroup:
    """Makes a smaller group of the ranks that are left, in the same processes, and ends ``group``: after a rank has died, or to
    send ranks away. To be called by all ranks that stay; each has a new rank, in the old order.

    ``ranks_to_exclude``: ranks of ``group``; None: those that the switch process has lost, and those that have not called this
    ``seconds`` after the first one. ``group``: None, the default group. A smaller default group becomes the default one, and the
    other groups end with the old one; options and time-out stay. Models in DistributedDataParallel are to be wrapped anew. The
    ranks' steps may differ by one: one may have had its results before the failure, and another not.

    TypeError: a group of another back end. ValueError: no such ranks, or seconds. RuntimeError: this rank is left out; ranks that
    should stay did not call this in time; or the ranks leave out different ones. torch.distributed.DistStoreError, RuntimeError:
    the process that serves the group's store is gone.
    """
    from ina.backend.shrink import shrink_group

    return shrink_group(ranks_to_exclude, group, seconds)


def grow_group(size: int | None = None, seconds: float = 0.0) -> dist.ProcessGroup:
    """Makes a larger default group of its ranks and of processes that have called join_group, and ends the old one. To be called
    by all ranks at the same place, with no collective in flight; no process starts anew, and if nobody has come, the group stays.

    ``size``: of the new group: waits for so many ranks up to ``seconds``, and goes on with those that are there then; None: takes
    all that wait, and waits for one up to ``seconds``. Newcomers get the ranks that they ask for, the others the rest, in the old
    order. Options and time-out stay, and the other groups end with the old one. Models in DistributedDataParallel are to be
    wrapped anew, and newcomers need the parameters: the new group's ``newcomers`` are their ranks, so any other rank can
    broadcast them.

    TypeError: the default group is of another back end. ValueError: a smaller size, or no such seconds. RuntimeError: collectives
    are in flight; the process that serves the group's store is gone; a newcomer, or a rank, has ended before the new group was
    made.
    """
    from ina.backend.grow import grow_group

    return grow_group(size, seconds)


def join_group(rank: int | None = None, store: dist.Store | None = None, seconds: float = 300.0) -> dist.ProcessGroup:
    """Joins the default group of other processes, instead of init_process_group, when all of them call grow_group; waits for that
    up to ``seconds``. Options and time-out are those of the group.

    It takes the place of the others' call of grow_group: what comes next is what comes next there.
    ``rank``: the one to have, as far as it is free and there: a process can come back as what it was; None: one of the last.
    ``store``: the one that the group was made with (below all prefixes, such as torchrun's), connected anew; None: the TCPStore
    at MASTER_ADDR and MASTER_PORT. ValueError: no such rank or seconds, or neither store nor variables. TypeError: no store.
    RuntimeError: there is a default group already; or nobody has let this process in.
    """
    from ina.backend.grow import join_group

    return join_group(rank, store, seconds)


def torchft_group(seconds: float = 60.0, options: Options | None = None) -> dist.ProcessGroup:
    """Returns a process group for torchft's Manager (``pg``), or for ``configure`` or ``reconfigure`` by hand: replicas that die,
    leave and come back between steps.

    ``seconds``: the time-out of collectives, and of the wait for the other replicas of a quorum. ``options``: as pg_options.
    ImportError: torchft is not installed (`pip install 'ina[torchft]'`). TypeError: no Options. ValueError: no such seconds, or
    an option that does not fit.
    """
    from ina.backend.torchft import ProcessGroupIna

    return ProcessGroupIna(seconds, options)


def stats() -> dict:
    """Returns this process's counters, over all its groups, since its start or ``reset_stats``:

    - ``switch``: ``calls`` and ``sums`` of collectives through the switch; ``elements``, the words of 32 bits as which their
      values travelled (one for a float of 16 bits, too; three for an int64; one for two or three int8), and ``bytes``, four
      for each, without headers and repetitions; ``seconds`` during which at least one was in flight; and ``trees``: by the ids of
      this rank's switch process and of those above it, with slashes, how many jobs it has had there;
    - ``calls``: by collective of torch, which a round of a ``Quorum`` is not, how many went through the ``switch`` and through
      ``gloo``;
    - ``reasons``: by "collective: reason", how many calls went to Gloo for it;
    - ``plans``: by tensor, how it travels and why, where it was measured or a codec chose;
    - ``late``: by rank (of the default group), how many collectives have waited for it for half a second or longer (``waits``),
      and for how many ``seconds``;
    - ``ready``: sums of those ranks that were ready: ``rounds``, those that were ``partial`` or ``empty`` (of nobody), and by
    rank
      (of the default group) how many it was ``left_out`` of;
    - ``run_by``: who runs the switches of this process's jobs: ``jobs`` whose ``ranks`` do, with the number of ``turns`` that
      this rank took and of the ``packets`` that it ran the program on, and ``jobs`` whose switch ``process`` does;
    - ``worker``: packets, retransmissions, time-outs, drops, ... of the native workers of all jobs.
    """
    from ina.backend.counters import COUNTERS

    return COUNTERS.snapshot()


def reset_stats() -> None:
    """Sets the counters of ``stats`` to zero."""
    from ina.backend.counters import COUNTERS

    COUNTERS.reset()
