"""Servers, workers and their manager in one network of the emulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ina.lab.virtual.parameter_server import ring
from ina.lab.virtual.parameter_server.clocks import VectorClock
from ina.lab.virtual.parameter_server.mail import Mail
from ina.lab.virtual.parameter_server.manager import Change, LostRange, Manager, Nodes
from ina.lab.virtual.parameter_server.server import Layout, Rules, Server
from ina.lab.virtual.parameter_server.worker import Plan, Worker
from ina.lab.virtual.timeline import Timeline
from ina.lab.virtual.virtual_network import WrongSum
from ina.net.ports import PS

Update = Callable[[int, int, np.ndarray], np.ndarray]
MOVED = "moved"  # kind of messages that copy ranges when servers change


@dataclass(frozen=True)
class Shape:
    """Servers that there are at first, copies of each range, and each server's points on the ring."""

    servers: int
    replicas: int
    points: int


class Cluster:
    """A training: workers at ``hosts``, servers at ``server_hosts``, by number. ``first``: the values that all begin with,
    float32; ``update`` returns by how much they fall, of a worker, its iteration and its values; ``seconds``: how long a worker
    computes."""

    def __init__(self, mail: Mail, hosts: Sequence[str], server_hosts: Sequence[str], first: np.ndarray, shape: Shape, plan: Plan,
                 rules: Rules, update: Update, seconds: Callable[[int], float], changes: Sequence[Change] = (),
                 detect: float = 0.0, seed: int = 0):
        self.mail, self.plan, self.rules = mail, plan, rules
        self._hosts, self._server_hosts, self._first = hosts, server_hosts, first
        self.layout = Layout(ring.segments(rules.keys, range(shape.servers), shape.replicas, shape.points))
        self.servers = {number: self._server(number, 0) for number in range(shape.servers)}
        nodes = Nodes(self._move, lambda server: mail.kill(server_hosts[server]), self._forget,
                      lambda server: self._server(server, self.layout.epoch + 1), self._switched, self._stop,
                      self._go_on, mail.plan)
        self.manager = Manager(rules.keys, self.servers, self.layout, shape.replicas, shape.points, detect, nodes)
        self.workers = [
            Worker(number, rules.workers, first, plan, self.layout, np.random.default_rng((seed, 5, number)), update,
                   lambda worker, then: mail.plan(seconds(worker), then), partial(self._to_server, host))
            for number, host in enumerate(hosts)]
        for change in changes:
            mail.plan(change.time, partial(self.manager.change, change))

    def run(self, timeline: Timeline) -> None:
        """Runs until all iterations have ended, and no change of servers is under way; then checks what the servers have.

        Raises:
            JobError, Stuck: as of Mail.run.
            LostRange: more servers died than there are copies.
            StaleRead: a worker's values were older than its bound.
            WrongSum: a push of a worker is in no server, or copies differ.
        """
        for worker in self.workers:
            worker.go_on()
        self.mail.run(timeline, lambda: (self.manager.settled and all(worker.ended for worker in self.workers)
                                         and all(server.idle for server in self.servers.values())))
        self._check()

    def values(self) -> np.ndarray:
        """Returns the values of the masters, float32; of ranges whose master is dead, or has come back and not got its ranges,
        of the next that has them. Raises LostRange: there is none."""
        whole = np.empty_like(self._first)
        for part in self.layout.segments:
            server = next((self.servers[each] for each in part.chain if each in self.servers and self.servers[each].serves), None)
            if server is None:
                raise LostRange(f"keys {part.begin} to {part.end}: all servers that had them have died; give more replicas")
            whole[part.begin : part.end] = server.values[part.begin : part.end]
        return whole

    def clocks(self) -> int:
        """Returns how many ranges have times of their own in the clocks of all masters together, one worker after the other."""
        return sum(len(self.servers[part.chain[0]].clock.pieces(part.begin, part.end)) for part in self.layout.segments)

    def _check(self) -> None:
        """Compares each server's clock of its ranges with the workers' last pushes, and all copies of a range with each other. Of
        a worker that has died there may be less, but what was acknowledged."""
        last = VectorClock(self.rules.workers, self.rules.keys)
        living = [worker.number for worker in self.workers if worker.died is None]
        for iteration, block in enumerate(self.plan.order):
            for worker in living:
                last.set(worker, *self.plan.blocks[block], iteration + 1)
        for worker in set(range(self.rules.workers)).difference(living):
            for begin, end, chain in self.layout.segments:
                last.merge([piece for piece in self.servers[chain[0]].clock.pieces(begin, end) if piece.worker == worker])
            self._check_dead(self.workers[worker], last)
        for begin, end, chain in self.layout.segments:
            master = self.servers[chain[0]]
            for number in chain:
                server = self.servers[number]
                if server.clock.pieces(begin, end) != last.pieces(begin, end):
                    raise WrongSum(f"server {number}: keys {begin} to {end} lack a push, or have one that nobody has sent")
                if server.values[begin:end].tobytes() != master.values[begin:end].tobytes():
                    raise WrongSum(f"server {number}: keys {begin} to {end} differ from those of server {chain[0]}")

    @staticmethod
    def _check_dead(worker: Worker, clock: VectorClock) -> None:
        for begin, end, time in clock.ranges(worker.number, 0, len(worker.sent)):
            if np.any(worker.acknowledged[begin:end] > time) or np.any(worker.sent[begin:end] < time):
                raise WrongSum(f"keys {begin} to {end} lack an acknowledged push of worker {worker.number}, which has died, or "
                               "have one that it has not sent")

    @property
    def first_living(self) -> int:
        """Number of the first worker that has not died."""
        return next(worker.number for worker in self.workers if worker.died is None)

    # ---- messages

    def _server(self, number: int, born: int) -> Server:
        host = self._server_hosts[number]
        if host in self.mail.dead:
            self.mail.revive(host)
        return Server(number, self.rules, self.layout, self._first, partial(self._from_server, number), born)

    def _to_server(self, host: str, number: int, words: np.ndarray, kind: str) -> None:
        self.mail.send(host, self._server_hosts[number], words, kind, partial(self._at_server, number))

    def _at_server(self, number: int, words: np.ndarray) -> None:
        if number in self.servers:  # else it has left
            self.servers[number].receive(words)

    def _from_server(self, source: int, number: int, is_worker: bool, words: np.ndarray, kind: str) -> None:
        if is_worker:
            target, handler = self._hosts[number], self.workers[number].receive
        else:
            target, handler = self._server_hosts[number], partial(self._at_server, number)
        self.mail.send(self._server_hosts[source], target, words, kind, handler)

    def _move(self, source: int, target: int, words: np.ndarray, then: Callable[[np.ndarray], None]) -> None:
        self.mail.send(self._server_hosts[source], self._server_hosts[target], words, MOVED, then)

    def _forget(self, server: int) -> None:
        self.mail.forget(self._server_hosts[server])

    def _stop(self, worker: int) -> None:
        self.workers[worker].died = self.mail.now / PS
        self.mail.kill(self._hosts[worker])

    def _go_on(self, worker: int) -> None:
        """Has all others know that a worker is dead: what it has sent, and what has not come yet, never comes."""
        self.mail.forget(self._hosts[worker])
        self.layout.gone.add(worker)
        for number in sorted(self.servers):
            self.servers[number].go_on()

    def _switched(self, changed: Sequence[tuple[int, int]]) -> None:
        for worker in self.workers:
            worker.send_again(changed)
