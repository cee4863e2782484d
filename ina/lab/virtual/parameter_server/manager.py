"""The server manager: servers that die, leave and join, and workers that die (Li et al., OSDI 2014, sections 4.5 and 4.6).

A change of the servers changes chains of ranges. In two stages, before the new chains serve:

    copy      each new server of a chain gets the range with its clock from the first that has it, which goes on to serve
    freeze    messages of these ranges are dropped; what has changed meanwhile, or had not come down the chain, is copied
    switch    all nodes have the new layout: servers forget what they have not answered of these ranges, workers send it again

Of a master that has died, the next server of the chain has all that was acknowledged, and perhaps more: clocks reject what it has
already. A death during a change begins the change anew, from the layout that still serves.

Of a worker that has died, the others go on without it, as algorithms that bear the loss of some data may (section 4.6). Of its
last push each server has its part whole, or not at all: a message that has not come whole never comes.

The manager's own messages take no time, other than that it notices a death ``detect`` later: at most five of a change would
follow each other (docs/guide/experiments.md, "Kind `parameters`").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from ina.base.settings import ConfigError
from ina.lab.virtual.parameter_server import ring
from ina.lab.virtual.parameter_server.messages import header, read_state
from ina.lab.virtual.parameter_server.ring import Segment
from ina.lab.virtual.parameter_server.server import Layout, Server, overlaps
from ina.lab.virtual.virtual_network import WrongSum

DIE, LEAVE, JOIN = EVENTS = ("die", "leave", "join")


class LostRange(WrongSum):
    """All servers with a range have died."""


class Change(NamedTuple):
    """At ``time``, s, a server dies, leaves or joins, or a worker dies, by its number."""

    time: float
    event: str
    server: int
    is_worker: bool = False


def read_changes(text: str, servers: int, workers: int) -> list[Change]:
    """Returns changes from text such as '0.5 die 1, 2 join 1, 3 die worker 0', by time; ``servers`` and ``workers`` are there at
    first, numbered from 0. Raises ConfigError: it is none, or an event of one that is not there, or is there already."""
    changes, there, working = [], set(range(servers)), set(range(workers))
    for entry in filter(None, (part.strip() for part in text.split(","))):
        words = entry.split()
        is_worker = words[1:3] == [DIE, "worker"]
        if is_worker:
            del words[2]
        try:
            time, event, server = float(words[0]), words[1], int(words[2])
        except (ValueError, IndexError):
            time, event, server = -1.0, "", -1
        if len(words) != 3 or not 0 <= time < float("inf") or event not in EVENTS or server < 0:
            raise ConfigError(f"changes = {text!r}: {entry!r}: expected a time in s, die, leave or join, and a server's number, "
                              "such as '0.5 die 1', or 'die worker' and a worker's")
        changes.append(Change(time, event, server, is_worker))
    changes.sort(key=lambda change: change.time)
    for change in changes:
        if change.is_worker:
            if change.server not in working:
                raise ConfigError(f"changes = {text!r}: at {change.time:g} s worker {change.server} is not there; expected one "
                                  f"of the {workers} workers that has not died before")
            working.remove(change.server)
            if not working:
                raise ConfigError(f"changes = {text!r}: at {change.time:g} s no worker is left; let one live")
            continue
        if (change.event == JOIN) == (change.server in there):
            state = "is there already" if change.event == JOIN else "is not there"
            raise ConfigError(f"changes = {text!r}: at {change.time:g} s server {change.server} {state}")
        there ^= {change.server}
        if not there:
            raise ConfigError(f"changes = {text!r}: at {change.time:g} s no server is left; let another join before")
    return changes


@dataclass(frozen=True)
class Nodes:
    """All others, for the manager. ``send`` carries words from one server to another, and then calls back; ``kill`` and
    ``forget``: a server's connections (mail.py); ``add`` makes a server; ``switched`` is told of the ranges that have changed;
    ``stop`` ends a worker, and ``go_on`` has all others know so; ``after`` calls back so many seconds later."""

    send: Callable[[int, int, np.ndarray, Callable[[np.ndarray], None]], None]
    kill: Callable[[int], None]
    forget: Callable[[int], None]
    add: Callable[[int], Server]
    switched: Callable[[Sequence[tuple[int, int]]], None]
    stop: Callable[[int], None]
    go_on: Callable[[int], None]
    after: Callable[[float, Callable[[], None]], None]


class Manager:
    """Has the layout follow the servers that there are. ``servers``: those that live, by number; ``replicas`` and ``points``: as
    of ``ring.segments``; ``detect``: s."""

    def __init__(self, keys: int, servers: dict[int, Server], layout: Layout, replicas: int, points: int, detect: float,
                 nodes: Nodes):
        self.keys, self.layout, self.servers, self.nodes = keys, layout, servers, nodes
        self.replicas, self.points, self.detect = replicas, points, detect
        self.switches = 0
        self._members = set(servers)
        self._holders = list(layout.segments)  # servers with all that was acknowledged, known to live or not known to be dead
        self._missed: set[int] = set()  # dead, which nobody has noticed
        self._lost: set[tuple[int, int]] = set()  # ranges of servers that have died: changed, also if they come back
        self._changing = self._all = False  # all: an attempt to change dropped messages, so that all ranges count as changed
        self._attempt = self._under_way = 0

    @property
    def settled(self) -> bool:
        """True: no server's death is unnoticed, and no change is under way."""
        return not self._missed and not self._changing

    def change(self, change: Change) -> None:
        """Has a server die, leave or join, or a worker die, now."""
        server = change.server
        if change.is_worker:
            self.nodes.stop(server)
            self.nodes.after(self.detect, lambda: self.nodes.go_on(server))
        elif change.event == DIE:
            del self.servers[server]
            self.nodes.kill(server)
            self._missed.add(server)
            self.nodes.after(self.detect, lambda: self._notice(server))
        elif change.event == LEAVE:
            self._members.remove(server)
            self._begin()
        else:
            self._notice(server)  # one that comes back says so that it had died
            if server not in self.servers:  # else it has not left yet
                self.servers[server] = self.nodes.add(server)
            self._members.add(server)
            self._begin()

    def _notice(self, server: int) -> None:
        if server not in self._missed:
            return
        self._missed.remove(server)
        self._members.discard(server)
        self.nodes.forget(server)
        self._lost |= {(part.begin, part.end) for part in self.layout.segments if server in part.chain}
        self._holders = [part._replace(chain=tuple(each for each in part.chain if each != server)) for part in self._holders]
        self._begin()

    def _begin(self) -> None:
        """Begins a change to the ring of the present members; one that is under way is given up. Ranges that it has frozen stay
        so: a clock would take a later push for a sign that those dropped before it have come."""
        self._attempt += 1
        self._changing = True
        new = ring.segments(self.keys, self._members, self.replicas, self.points)
        copies = [(begin, end, target) for begin, end, have, chain in ring.refined(self._holders, new) for target in chain
                  if target not in have]
        self._copy(copies, lambda: self._freeze(new))

    def _freeze(self, new: Sequence[Segment]) -> None:
        old = self.layout.segments
        changed = [(part.begin, part.end) for part in (*old, *new)
                   if self._all or (part in old) != (part in new) or (part.begin, part.end) in self._lost]
        self.layout.frozen, self._all = changed, True
        copies = []
        for begin, end, have, chain in ring.refined(self._holders, new):
            if not overlaps(changed, begin, end):
                continue  # it goes on to be served: a copy of now would come after newer ones, and undo them
            source = self.servers.get(self._source(begin, end, have))
            for target in chain:
                there = self.servers.get(target)
                if target != have[0] and (source is None or there is None or
                                          source.clock.pieces(begin, end) != there.clock.pieces(begin, end)):
                    copies.append((begin, end, target))
        self._copy(copies, lambda: self._switch(new, changed))

    def _copy(self, copies: Sequence[tuple[int, int, int]], then: Callable[[], None]) -> None:
        """Copies ranges to servers from those that have them, and goes on. One of a server that is dead never arrives."""
        attempt, self._under_way = self._attempt, len(copies)

        def arrived(target: int, words: np.ndarray) -> None:
            if attempt == self._attempt:
                head = header(words)
                self.servers[target].take(head, *read_state(head, words))
                self._under_way -= 1
                if not self._under_way:
                    then()

        for begin, end, target in copies:
            have = next(part.chain for part in self._holders if part.begin <= begin < part.end)
            source = self._source(begin, end, have)
            if source in self.servers:
                words = self.servers[source].moved(begin, end)
                self.nodes.send(source, target, words, partial(arrived, target))
        if not copies:
            then()

    def _source(self, begin: int, end: int, have: Sequence[int]) -> int:
        if not have:
            raise LostRange(f"keys {begin} to {end}: all servers with copies have died; expected at most replicas = "
                            f"{self.replicas} deaths until a change is over")
        return have[0]

    def _switch(self, new: Sequence[Segment], changed: Sequence[tuple[int, int]]) -> None:
        layout = self.layout
        layout.epoch += 1
        layout.since = {part: layout.epoch if (part.begin, part.end) in changed else layout.since.get(part, 0) for part in new}
        layout.segments, layout.frozen, self._holders = tuple(new), [], list(new)
        self._changing, self._all, self._lost = False, False, set()
        self.switches += 1
        for server in [server for server in self.servers if server not in self._members]:
            del self.servers[server]  # it has left
        for each in self.servers.values():
            each.forget(changed)
        self.nodes.switched(changed)
