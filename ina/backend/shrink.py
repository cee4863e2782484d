"""A smaller group of the ranks that are left, in the same processes: what torch's `shrink_group` does for NCCL.

torch's own function builds a plain ProcessGroup around a back end written in C++, so it cannot make a group of this back end
(torch 2.13). Here the survivors meet in the old group's store, agree on who is one of them, end the old group, and make a new
one. Its job at the switch is another one, with packets of its own: nothing of the old job can get into its sums.

    the first survivor that has waited for long enough writes who has come        all others take that
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import torch.distributed as dist

from ina.backend import rendezvous
from ina.backend.membership import Membership
from ina.backend.questions import Questions

ANSWER = 30.0  # seconds for each answer of the store


def shrink_group(ranks_to_exclude: Sequence[int] | None, group: dist.ProcessGroup | None, seconds: float) -> dist.ProcessGroup:
    """As ina.backend.shrink_group."""
    ours = dist.group.WORLD if group is None else group
    if not isinstance(ours, Membership):
        raise TypeError(f"ina: a group of the back end 'ina' is expected, not a {type(ours).__name__}")
    excluded = _checked(ranks_to_exclude, ours)
    members = _members(ours, excluded, seconds)
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
        dist.init_process_group(name, store=store, rank=rank, world_size=len(members), timeout=timeout, pg_options=options)
    assert dist.group.WORLD is not None
    return dist.group.WORLD


def _checked(ranks: Sequence[int] | None, group: Membership) -> set[int] | None:
    if ranks is None:
        return None
    excluded = set(ranks)
    wrong = [rank for rank in excluded if type(rank) is not int or not 0 <= rank < group.size()]
    if wrong or not excluded:
        raise ValueError(f"ina: ranks_to_exclude is {list(ranks)}, expected some ranks of the group, 0 to {group.size() - 1}, or "
                         "None: those that are lost")
    if group.rank() in excluded:
        raise RuntimeError(f"ina: rank {group.rank()} is to be left out, so it must not call shrink_group")
    return excluded


def _members(group: Membership, excluded: set[int] | None, seconds: float) -> list[int]:
    """Returns the ranks of the new group, the same on all of them. RuntimeError: this one is none of them."""
    deadline, questions = time.monotonic() + seconds, Questions(dist.PrefixStore("members", group.store))
    own = sorted(excluded or ())
    questions.ask(lambda store: store.set(f"rank/{group.rank()}", json.dumps(own)), ANSWER)
    while True:
        left_out = group.lost() if excluded is None else excluded
        awaited = sorted({*range(group.size())} - left_out)
        absent = questions.missing([f"rank/{rank}" for rank in awaited], min(deadline, time.monotonic() + 0.1), ANSWER)
        decided = questions.ask(lambda store: store.check(["decided"]), ANSWER)
        if decided or not absent or time.monotonic() >= deadline:
            break
    if excluded is not None and absent and not decided:
        raise RuntimeError(f"ina: ranks {[int(key.partition('/')[2]) for key in absent]} did not call shrink_group within "
                           f"{seconds:g} s; exclude them, too")
    present = [rank for rank in awaited if f"rank/{rank}" not in absent]
    text = questions.ask(lambda store: store.compare_set("decided", "", json.dumps(present)), ANSWER)
    members: list[int] = json.loads(text)
    if group.rank() not in members:
        raise RuntimeError(f"ina: ranks {members} have gone on without rank {group.rank()}, which came too late, or was to be "
                           "left out by them")
    texts = questions.ask(lambda store: [store.get(f"rank/{rank}") for rank in members], ANSWER)
    for rank, others in zip(members, map(json.loads, texts), strict=True):
        if others != own:
            raise RuntimeError(f"ina: rank {rank} leaves out ranks {others}, rank {group.rank()} {own}: expected the same on all")
    return members
