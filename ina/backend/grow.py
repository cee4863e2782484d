"""A larger group of the ranks of the default group and of processes that want to be in it, without a restart of either.

Processes that want to join queue up in the store at the bottom of the group's own, which all can reach. The members look there
between two steps, agree on who comes in, end their group and make the new one together with the newcomers:

    newcomer      joins/N: its wish   ...                   PLACE/accepts/N   ...             make_default (regroup.py)
    each member   joins/N?   PLACE/asked: who   PLACE/here   joins/N/place    PLACE/decided   make_default

The first member writes who is asked; mostly nobody is, and that is all: no member waits for another. Else all members
come together, then those are told that are asked, and the first member that has seen all of them accept decides. Who has died in
the queue does not accept, and is not waited for; where a member has died, nobody comes in. So a member that takes a decision
knows that all others do: no group ever goes on in two parts. The new job at the switch is another one, with packets of its own:
nothing of the old job can get into its sums.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch.distributed as dist

from ina.aggregation import protocols
from ina.backend import regroup, rendezvous
from ina.backend.membership import Membership, membership_of
from ina.backend.questions import Questions
from ina.backend.regroup import ANSWER
from ina.backend.settings import Options, Settings
from ina.base.bounds import SECONDS

T = TypeVar("T")
MEET = 256  # calls after which the members wait for each other, so that what the store keeps of calls can be deleted
ACCEPT = 5.0  # seconds for those who wait to say that they still do
PAUSE = 0.02  # seconds between looks at the store
JOINS, FIRST = "ina/joins", "ina/joins/first"  # the queue, and the number of the first one that nobody has asked


class Queue:
    """The queue of processes that want to join, in a store: numbers from 0, without gaps."""

    def __init__(self, store: dist.Store):
        self._questions = Questions(store)

    def ask(self, question: Callable[[dist.Store], T]) -> T:
        return self._questions.ask(question, ANSWER)

    def enter(self, rank: int | None) -> int:
        """Queues up at the end. Returns its number."""
        wish = json.dumps({"rank": rank, "id": uuid.uuid4().hex})

        def enter(store: dist.Store) -> int:
            number = _first(store)
            while store.compare_set(f"{JOINS}/{number}", "", wish) != wish.encode():
                number += 1
            return number

        return self.ask(enter)

    def waiting(self) -> dict[int, int | None]:
        """Returns those who wait, by number, with the ranks that they want to have."""

        def waiting(store: dist.Store) -> dict[int, int | None]:
            number, ranks_wanted = _first(store), dict[int, int | None]()
            while store.check([f"{JOINS}/{number}"]):
                ranks_wanted[number] = json.loads(store.get(f"{JOINS}/{number}"))["rank"]
                number += 1
            return ranks_wanted

        return self.ask(waiting)

    def set(self, key: str, value: str) -> None:
        self.ask(lambda store: store.set(key, value))

    def get(self, key: str) -> str | None:
        return self.ask(lambda store: store.get(key).decode() if store.check([key]) else None)

    def there(self, keys: list[str]) -> list[bool]:
        """Returns which of the keys are there."""
        return self.ask(lambda store: [store.check([key]) for key in keys])

    def agree(self, key: str, value: object) -> Any:
        """Returns the value that the first one has written."""
        return json.loads(self._questions.agree(key, json.dumps(value), ANSWER))

    def forget(self, keys: list[str]) -> None:
        self.ask(lambda store: [store.delete_key(key) for key in keys])


def _first(store: dist.Store) -> int:
    return int(store.get(FIRST)) if store.check([FIRST]) else 0


class Decisions:
    """A member's decisions on who comes into its group."""

    def __init__(self, group: Membership):
        self.base = _bottom(group.store)
        self.queue = Queue(self.base)
        self.number = 0  # of the last one
        self._own = Questions(group.store).agree("grown", uuid.uuid4().hex, ANSWER)

    def place(self, number: int) -> str:
        return f"ina/grown/{self._own}/{number}"

    def forget(self, size: int) -> None:
        """Deletes what the last MEET decisions but this one have left in the store: all members have read it."""
        first = self.number - MEET
        self.queue.forget([f"{self.place(number)}/asked" for number in range(first, self.number)]
                          + [f"{self.place(first)}/decided", *(f"{self.place(first)}/here/{rank}" for rank in range(size))])


_decisions: WeakKeyDictionary[Membership, Decisions] = WeakKeyDictionary()


def grow_group(size: int | None, seconds: float) -> dist.ProcessGroup:
    """As ina.backend.grow_group."""
    regroup.check_seconds(seconds)
    ours = membership_of(None, "a default group")
    if size is not None and (type(size) is not int or size < ours.size()):
        raise ValueError(f"ina: size = {size!r}, expected None or a number of ranks, {ours.size()} or more")
    if ours.failure:
        raise RuntimeError(ours.failure)
    if ours.in_flight:
        raise RuntimeError(f"ina: {ours.in_flight} collective(s) are in flight: wait for them before the group grows")
    if (decisions := _decisions.get(ours)) is None:
        decisions = _decisions[ours] = Decisions(ours)
    decisions.number += 1
    place, meet = decisions.place(decisions.number), not decisions.number % MEET
    asked = _asked(ours, decisions.queue, place, size, seconds)
    decision = _decision(ours, decisions.queue, place, asked) if asked or meet else {"ranks": {}}
    if not decision["ranks"]:
        if meet and ours.rank() == 0:
            decisions.forget(ours.size())
        ours.newcomers = ()
        return ours
    free = [rank for rank in range(decision["size"]) if rank not in decision["ranks"].values()]
    options, timeout, name, rank = ours.options, ours.timeout, dist.get_backend(ours), free[ours.rank()]
    with rendezvous.kept(ours.switch):
        dist.destroy_process_group()
        return _make(name, decisions.base, place, decision, rank, timeout, options)


def join_group(rank: int | None, store: dist.Store | None, seconds: float) -> dist.ProcessGroup:
    """As ina.backend.join_group."""
    regroup.check_seconds(seconds)
    if rank is not None and (type(rank) is not int or rank < 0):
        raise ValueError(f"ina: rank = {rank!r}, expected None or a rank of the group that there will be")
    if store is not None and not isinstance(store, dist.Store):
        raise TypeError(f"ina: store is a {type(store).__name__}, expected a torch.distributed.Store, or None")
    if dist.is_initialized():
        raise RuntimeError("ina: this process has a default group already; its ranks call grow_group")
    Settings.read()  # an error of this process's own, before others count on it
    base = _from_environment(seconds) if store is None else _bottom(store)
    deadline, queue = time.monotonic() + seconds, Queue(base)
    number, place = queue.enter(rank), None
    while True:
        if place is None and (place := queue.get(f"{JOINS}/{number}/place")) is not None:
            queue.set(f"{place}/accepts/{number}", "")
            deadline = max(deadline, time.monotonic() + ACCEPT + ANSWER)  # the members count on this process from now on
        text = None if place is None else queue.get(f"{place}/decided")
        decision = json.loads(text) if text else None
        if place is not None and decision is not None:
            if str(number) in decision["ranks"]:
                break
            number, place = queue.enter(rank), None  # a member had died, or this process was too slow
        if time.monotonic() > deadline:
            raise RuntimeError(f"ina: no group has let this process in within {seconds:g} s: its ranks call grow_group, with the "
                               "same store at the bottom of theirs")
        time.sleep(PAUSE)
    return _make(decision["backend"], base, place, decision, decision["ranks"][str(number)],
                 timedelta(seconds=decision["timeout"]), Options(**decision["options"]))


def _asked(group: Membership, queue: Queue, place: str, size: int | None, seconds: float) -> dict[str, int | None]:
    """Returns who is asked to come in, by number, with the ranks that they want to have; the same on all members."""
    deadline = time.monotonic() + seconds
    while (text := queue.get(f"{place}/asked")) is None:
        waiting, missing = queue.waiting(), None if size is None else size - group.size()
        if time.monotonic() >= deadline or (len(waiting) >= missing if missing is not None else waiting):
            first = [*waiting.items()][:missing]
            return queue.agree(f"{place}/asked", dict(first))
        if lost := group.lost():
            raise RuntimeError(f"ina: the group does not grow: ranks {sorted(lost)} are lost")
        time.sleep(PAUSE)
    return json.loads(text)


def _decision(group: Membership, queue: Queue, place: str, asked: dict[str, int | None]) -> dict[str, Any]:
    """Returns the decision on those ``asked``, the same on all members. RuntimeError: a member is lost, or does not come."""
    queue.set(f"{place}/here/{group.rank()}", "")
    deadline, accept_by = time.monotonic() + group.timeout.total_seconds(), None
    while (text := queue.get(f"{place}/decided")) is None:
        here, now = queue.there([f"{place}/here/{rank}" for rank in range(group.size())]), time.monotonic()
        accepted = [number for number, there in zip(asked, queue.there([f"{place}/accepts/{number}" for number in asked]),
                                                    strict=True) if there]
        if all(here):
            if accept_by is None:  # not before: who accepts is told the decision soon, whatever becomes of one member
                for number in asked:
                    queue.set(f"{JOINS}/{number}/place", place)
                if asked:
                    queue.set(FIRST, str(max(map(int, asked)) + 1))
                accept_by = now + ACCEPT
            if len(accepted) == len(asked) or now > accept_by:
                return queue.agree(f"{place}/decided", _welcome(group, {number: asked[number] for number in accepted}))
        elif (lost := group.lost()) or now > deadline:
            absent = lost or {rank for rank, there in enumerate(here) if not there}
            why = "lost" if lost else f"not in grow_group, {group.timeout.total_seconds():g} s after rank {group.rank()}"
            text = json.dumps(queue.agree(f"{place}/decided", {"ranks": {}, "failed": f"ranks {sorted(absent)} are {why}"}))
            break
        time.sleep(PAUSE)
    decision = json.loads(text)
    if "failed" in decision:
        raise RuntimeError(f"ina: the group does not grow: {decision['failed']}")
    return decision


def _welcome(group: Membership, ranks_wanted: dict[str, int | None]) -> dict[str, Any]:
    """Returns the decision to let these in: the ranks that they want to have, as far as they are there and free; else the
    last ones."""
    size, ranks = group.size() + len(ranks_wanted), dict[str, int]()
    for number, rank in ranks_wanted.items():
        if rank is not None and rank < size and rank not in ranks.values():
            ranks[number] = rank
    last = [rank for rank in range(size) if rank not in ranks.values()]
    ranks |= {number: last.pop() for number in reversed(ranks_wanted) if number not in ranks}
    return {"size": size, "ranks": ranks, "backend": dist.get_backend(group), "timeout": group.timeout.total_seconds(),
            "options": _options(group)}


def _options(group: Membership) -> dict[str, Any]:
    """Returns the options for newcomers: the group's, with what the members' environment and configuration say of what all ranks
    have to agree on."""
    settings = Settings.read(group.options)
    agreed = {"protocol": settings.protocol or protocols.DEFAULT, "values": settings.values, "slots": settings.slots,
              "check": settings.check or None, "codec": settings.codec if settings.codec_is_set else None}
    own = asdict(group.options or Options())
    return {name: agreed.get(name) if value is None else value for name, value in own.items()}


def _make(name: str, base: dist.Store, place: str, decision: dict[str, Any], rank: int, timeout: timedelta,
          options: Options | None) -> dist.ProcessGroup:
    return regroup.make_default(name, dist.PrefixStore(f"{place}/group", base), rank, decision["size"], timeout, options,
                                decision["ranks"].values())


def _bottom(store: dist.Store) -> dist.Store:
    """Returns the store below all prefixes."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store


def _from_environment(seconds: float) -> dist.Store:
    """Returns the store of torchrun's variables, as a client. Waits for its server up to ``seconds``."""
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise ValueError(f"ina: without a store, {' and '.join(missing)} must be set: where the group's store is served")
    port = os.environ["MASTER_PORT"]
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError(f"ina: MASTER_PORT={port!r}: expected the port of the group's store, 1 to 65535")
    return dist.TCPStore(os.environ["MASTER_ADDR"], int(port), is_master=False, timeout=timedelta(seconds=min(seconds, SECONDS)))
