"""A smaller group of the ranks that are left, in the same processes: what torch's `shrink_group` does for NCCL.

torch's own function builds a plain ProcessGroup around a back end written in C++, so it cannot make a group of this back end
(torch 2.13). Here the survivors meet in the old group's store, agree on who is one of them, end the old group, and make a new
one. Its job at the switch is another one, with packets of its own: nothing of the old job can get into its sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch.distributed as dist

from ina.backend import regroup, rendezvous
from ina.backend.membership import Membership, membership_of


def shrink_group(ranks_to_exclude: Sequence[int] | None, group: dist.ProcessGroup | None, seconds: float) -> dist.ProcessGroup:
    """As ina.backend.shrink_group."""
    regroup.check_seconds(seconds)
    ours = membership_of(group)
    excluded = _checked(ranks_to_exclude, ours)
    members = regroup.members(ours.store, ours.rank(), ours.size(), excluded, ours.lost, seconds)
    options, timeout, name = ours.options, ours.timeout, dist.get_backend(ours)
    if ours is not dist.group.WORLD:
        world = dist.get_process_group_ranks(ours)
        smaller = dist.new_group([world[rank] for rank in members], timeout, name, options, use_local_synchronization=True)
        dist.destroy_process_group(ours)
        assert isinstance(smaller, dist.ProcessGroup)
        return smaller
    store, rank = dist.PrefixStore("shrunk", ours.store), members.index(ours.rank())
    with rendezvous.kept(ours.switch):
        dist.destroy_process_group()
        return regroup.make_default(name, store, rank, len(members), timeout, options)


def _checked(ranks: Sequence[int] | None, group: Membership) -> set[int] | None:
    if ranks is None:
        return None
    if not isinstance(ranks, Iterable):
        raise TypeError(f"ina: ranks_to_exclude is {ranks!r}, expected a list of ranks, or None: those that are lost")
    excluded = set(ranks)
    wrong = [rank for rank in excluded if type(rank) is not int or not 0 <= rank < group.size()]
    if wrong or not excluded:
        raise ValueError(f"ina: ranks_to_exclude is {list(ranks)}, expected some ranks of the group, 0 to {group.size() - 1}, or "
                         "None: those that are lost")
    if group.rank() in excluded:
        raise RuntimeError(f"ina: rank {group.rank()} is to be left out, so it must not call shrink_group")
    return excluded
