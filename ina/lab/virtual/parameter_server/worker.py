"""A worker: computes an update of a range of keys, pushes it, pulls the range, again and again (Li et al., OSDI 2014, section 3).

Iteration t may begin when all of its own iterations before t - ``bound`` have ended: what they pushed is acknowledged, and what
they pulled is there. A pull is answered when the values have all workers' pushes of its iteration; without a bound, at once. So
``bound`` 0 is the sequential consistency of section 3.5, and no bound the eventual one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ina.lab.virtual.parameter_server.clocks import VectorClock
from ina.lab.virtual.parameter_server.filters import FILTERS, Entries
from ina.lab.virtual.parameter_server.messages import CACHED, DENSE, PULL, PUSH, PUSHED, Header, header, read_state, signature
from ina.lab.virtual.parameter_server.server import Layout, overlaps
from ina.lab.virtual.virtual_network import WrongSum


class StaleRead(WrongSum):
    """A worker computes with values that lack pushes which its bound asks for: the consistency is broken."""


@dataclass(frozen=True)
class Plan:
    """Work of every worker. ``blocks``: ranges of keys; ``order``: the block of each iteration; ``bound``: of the delay, in
    iterations, None: none; ``filter``: a name in FILTERS, with its ``threshold``; ``shrink``: as of the servers' rules;
    ``caching``: of keys that are those of the push before, their signature is sent."""

    blocks: Sequence[tuple[int, int]]
    order: Sequence[int]
    bound: int | None
    filter: str
    threshold: float
    shrink: float = 0.0
    caching: bool = False

    @cached_property
    def turns(self) -> list[list[int]]:
        """Iterations of each block."""
        return [[t for t, block in enumerate(self.order) if block == each] for each in range(len(self.blocks))]

    def staleness(self, clock: VectorClock, iteration: int, gone: Collection[int]) -> int:
        """Returns how many iterations ago the first one was that a clock lacks a push of, before this one; 0: it lacks none.
        Those of workers that are ``gone`` do not count."""
        first = iteration
        for (begin, end), turns in zip(self.blocks, self.turns, strict=True):
            place = bisect_left(turns, clock.least(begin, end, gone))
            if place < len(turns):
                first = min(first, turns[place])
        return iteration - first


@dataclass
class _Request:
    """A push or a pull that has no answer yet, of keys ``begin`` to ``end`` - 1. ``keys``: of a filtered push's values."""

    kind: str
    iteration: int
    begin: int
    end: int
    values: np.ndarray
    keys: np.ndarray | None = None

    def cut(self, begin: int, end: int) -> _Request:
        """Returns the part of a range."""
        if self.kind == PULL:
            return _Request(PULL, self.iteration, begin, end, self.values)
        if self.keys is None:
            return _Request(PUSH, self.iteration, begin, end, self.values[begin - self.begin : end - self.begin])
        first, last = np.searchsorted(self.keys, (begin, end))
        return _Request(PUSH, self.iteration, begin, end, self.values[first:last], self.keys[first:last])


Post = Callable[[int, np.ndarray, str], None]  # to which server, words, kind
NOTHING = np.empty(0, np.float32)


class Worker:
    """One worker. ``update`` returns by how much its values fall, for an iteration; ``compute`` calls back when it has been
    computed; ``post`` sends to a server."""

    def __init__(self, number: int, workers: int, first: np.ndarray, plan: Plan, layout: Layout, rng: np.random.Generator,
                 update: Callable[[int, int, np.ndarray], np.ndarray], compute: Callable[[int, Callable[[], None]], None],
                 post: Post):
        self.number, self.plan, self.layout = number, plan, layout
        self.values, self.clock = first.copy(), VectorClock(workers, len(first))
        self.iteration = 0
        self.died: float | None = None  # at that time, s
        self.sent, self.acknowledged = np.zeros(len(first), np.int32), np.zeros(len(first), np.int32)  # times of pushes, by key
        self.staleness: list[int] = []  # at the beginning of each iteration
        self.entries = self.possible = 0  # of pushes: that were sent, and that there were
        self.waits = False
        self._rest = np.zeros_like(first)  # what filters have held back
        self._rng, self._update, self._compute, self._post = rng, update, compute, post
        self._requests: dict[int, _Request] = {}  # by number
        self._left: Counter[int] = Counter()  # requests without an answer, by iteration
        self._lists: dict[tuple[int, int], np.ndarray] = {}  # keys of the latest push, by range
        self._numbers = 0
        self._busy = False

    @property
    def ended(self) -> bool:
        """True: it has died, or all iterations have ended, with all that they pushed and pulled."""
        return self.died is not None or self.iteration == len(self.plan.order) and not self._requests

    @property
    def finished(self) -> int:
        """Iterations that have ended, up to the first that has not."""
        return min((t for t, left in self._left.items() if left), default=self.iteration)

    def go_on(self) -> None:
        """Begins the next iteration, if it may."""
        plan = self.plan
        if self.died is not None or self._busy or self.iteration == len(plan.order):
            self.waits = False
            return
        self.waits = plan.bound is not None and self.finished < self.iteration - plan.bound
        if self.waits:
            return
        stale = plan.staleness(self.clock, self.iteration, self.layout.gone)
        if plan.bound is not None and stale > plan.bound:
            raise StaleRead(f"worker {self.number} begins iteration {self.iteration} without a push of {stale} iterations ago, "
                            f"expected at most {plan.bound}")
        self.staleness.append(stale)
        self._busy = True
        values = self._update(self.number, self.iteration, self.values)
        self._compute(self.number, lambda: self._computed(values))

    def _computed(self, values: np.ndarray) -> None:
        if self.died is not None:
            return
        plan, iteration = self.plan, self.iteration
        begin, end = plan.blocks[plan.order[iteration]]
        self.iteration, self._busy = iteration + 1, False
        self.sent[begin:end] = iteration + 1
        self._send(self._filtered(_Request(PUSH, iteration, begin, end, values[begin:end])))
        self._send(_Request(PULL, iteration, begin, end, NOTHING))
        self.go_on()

    def _filtered(self, push: _Request) -> _Request:
        """Returns a push with the entries that the filter lets through; the others wait for the next one, if it keeps them."""
        rule, size = FILTERS[self.plan.filter], push.end - push.begin
        self.possible += size
        if rule is None:
            self.entries += size
            return push
        rest = self._rest[push.begin : push.end]
        rest += push.values
        entries = Entries(rest, self.values[push.begin : push.end], self.plan.threshold, self.plan.shrink)
        keys = np.flatnonzero(rule.sent(entries, self._rng))
        self.entries += len(keys)
        values, rest[keys] = rest[keys], 0
        if not rule.waits:
            rest[:] = 0
        if rule.scaled:
            values /= np.float32(1 - self.plan.threshold)
        return _Request(PUSH, push.iteration, push.begin, push.end, values, (keys + push.begin).astype(np.int32))

    def _send(self, request: _Request) -> None:
        """Sends a request to the masters of its range, to each a part."""
        for segment in self.layout.parts(request.begin, request.end):
            part = request.cut(segment.begin, segment.end)
            self._numbers += 1
            self._requests[self._numbers] = part
            self._left[part.iteration] += 1
            self._post(segment.chain[0], self._words(self._numbers, part), part.kind)

    def _words(self, number: int, part: _Request) -> np.ndarray:
        head = Header(part.kind, number, self.number, self.layout.epoch, part.begin, part.end, part.iteration + 1)
        if part.kind == PULL:
            return head._replace(time=0 if self.plan.bound is None else part.iteration + 1).words()
        if part.keys is None:
            return head._replace(entries=DENSE).words(part.values)
        place = part.begin, part.end
        known = self._lists.get(place)
        self._lists[place] = part.keys
        if self.plan.caching and len(part.keys) > 1 and known is not None and np.array_equal(known, part.keys):
            return head._replace(entries=CACHED).words(np.array([signature(known)], np.int32), part.values)
        return head._replace(entries=len(part.keys)).words(part.keys, part.values)

    def receive(self, words: np.ndarray) -> None:
        """Takes an answer; one to a request that was sent again since is none."""
        head = header(words)
        request = self._requests.pop(head.number, None)
        if request is None:
            return
        if head.kind != PUSHED:
            pieces, values = read_state(head, words)
            self.values[head.begin : head.end] = values
            self.clock.merge(pieces)
        else:
            times = self.acknowledged[request.begin : request.end]
            np.maximum(times, request.iteration + 1, out=times)
        self._left[request.iteration] -= 1
        self.go_on()

    def send_again(self, changed: Sequence[tuple[int, int]]) -> None:
        """Sends again, in the order of their numbers, what has no answer yet and is of ranges that have changed."""
        if self.died is not None:
            return
        self._lists = {place: keys for place, keys in self._lists.items() if not overlaps(changed, *place)}
        for number, request in list(self._requests.items()):
            if overlaps(changed, request.begin, request.end):
                del self._requests[number]
                self._left[request.iteration] -= 1
                self._send(request)
