"""The default group made anew, by ranks of which some may end meanwhile: what shrinking and growing have in common.

    members         who has come, the same on all: the first rank that has waited for long enough writes it
    make_default    init_process_group among them; where one of them has ended, among those that are left

A group counts only if the first rank that knows says so: either all have made it, or all make another one. So no two groups ever
go on side by side.
"""

from __future__ import annotations

import itertools
import json
import time
import warnings
from collections.abc import Callable, Collection
from datetime import timedelta
from numbers import Real

import torch.distributed as dist

from ina.backend.membership import Membership, membership_of
from ina.backend.questions import Questions
from ina.backend.settings import Options

ANSWER = 30.0  # seconds for each answer of the store
MAKING = 30.0  # seconds for all ranks of a new group to make it
ATTEMPTS = 3  # by ranks of which none has ended
LOOK = 0.1  # seconds between looks at who is lost


def check_seconds(seconds: float) -> None:
    """Raises ValueError: ``seconds`` is no time to wait for; NaN would be one without an end."""
    if not (isinstance(seconds, Real) and seconds >= 0):
        raise ValueError(f"ina: seconds = {seconds!r}, expected a number of seconds, 0 or more")


def members(store: dist.Store, rank: int, size: int, excluded: Collection[int] | None, lost: Callable[[], Collection[int]],
            seconds: float) -> list[int]:
    """Returns the ranks, of 0 to ``size`` - 1, that have called this; the same on all of them. Waits for all but the
    ``excluded``; None: but those that are ``lost``, and no longer than ``seconds``. RuntimeError: this one is none of them; ranks
    that should come did not; the ranks exclude different ones."""
    deadline, questions = time.monotonic() + seconds, Questions(dist.PrefixStore("members", store))
    own = sorted(excluded or ())
    questions.ask(lambda store: store.set(f"rank/{rank}", json.dumps(own)), ANSWER)
    while True:
        awaited = sorted({*range(size)} - {*(lost() if excluded is None else excluded)})
        absent = questions.missing([f"rank/{each}" for each in awaited], min(deadline, time.monotonic() + LOOK), ANSWER)
        decided = questions.ask(lambda store: store.check(["decided"]), ANSWER)
        if decided or not absent or time.monotonic() >= deadline:
            break
    if excluded is not None and absent and not decided:
        raise RuntimeError(f"ina: ranks {[int(key.partition('/')[2]) for key in absent]} did not call shrink_group within "
                           f"{seconds:g} s; exclude them, too")
    present = [each for each in awaited if f"rank/{each}" not in absent]
    ranks: list[int] = json.loads(questions.agree("decided", json.dumps(present), ANSWER))
    if rank not in ranks:
        raise RuntimeError(f"ina: ranks {ranks} have gone on without rank {rank}, which came too late, or was to be left out by "
                           "them")
    texts = questions.ask(lambda store: [store.get(f"rank/{each}") for each in ranks], ANSWER)
    for other, others in zip(ranks, map(json.loads, texts), strict=True):
        if others != own:
            raise RuntimeError(f"ina: rank {other} leaves out ranks {others}, rank {rank} {own}: expected the same on all")
    return ranks


def make_default(name: str, store: dist.Store, rank: int, size: int, timeout: timedelta, options: Options | None,
                 newcomers: Collection[int] = ()) -> Membership:
    """Makes the default group, by all its ranks; of those that are left where some have ended before it is made. ``newcomers``:
    ranks that were not in the group before, and without which it is made if it fails with them. RuntimeError: it fails; the
    others have gone on without this rank; the store is gone."""
    questions, whole = Questions(store), 0
    for attempt in itertools.count():
        place = dist.PrefixStore(f"attempt/{attempt}", store)
        error: RuntimeError | None = None
        try:
            dist.init_process_group(name, store=place, rank=rank, world_size=size, pg_options=options,
                                    timeout=min(timeout, timedelta(seconds=MAKING)))
        except RuntimeError as failed:
            error = failed
        if questions.agree(f"outcome/{attempt}", "failed" if error else "made", ANSWER) == "made":
            break
        if dist.is_initialized():
            dist.destroy_process_group()
        ranks = members(place, rank, size, None, tuple, MAKING)
        whole += len(ranks) == size
        if whole == ATTEMPTS:
            failure = error or RuntimeError(f"ina: the new group has failed {ATTEMPTS} times, on another rank: look at its error")
            if rank in newcomers or not newcomers:
                raise failure
            warnings.warn(f"ina: the group goes on without ranks {[*newcomers]}, which were to be new in it: {failure}",
                          RuntimeWarning, stacklevel=4)
            ranks, whole = [each for each in ranks if each not in newcomers], 0
        newcomers = [ranks.index(each) for each in newcomers if each in ranks]
        rank, size = ranks.index(rank), len(ranks)
    if error:
        raise RuntimeError(f"ina: the other ranks have gone on without rank {rank}, for which the new group failed: {error}")
    group = membership_of(None)
    group.set_timeout(timeout)
    group.newcomers = tuple(sorted(newcomers))
    return group
