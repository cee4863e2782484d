"""Links of the simulation that are cut, flap or become slow; and checks of the ways around those that the controller knows of."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

from ina.net.ports import PS
from ina.topology import routes
from ina.topology.topology import Topology, hop_counts
from ina.worlds.virtual.applications import Violation
from ina.worlds.virtual.fabric import Fabric

NOTICED = round(0.1e-3 * PS)  # ps for which a link is down before the controller takes it for down
INNER = 0.7  # of the faults are at links between switches, where there are any: jobs move away from those only
FLAPS = 6  # turns of a flapping link, at most


class LinkFaults:
    """``is_open``: returns False for a switch whose ports are closed."""

    def __init__(self, fabric: Fabric, chance: random.Random, is_open: Callable[[str], bool]):
        self._fabric, self._chance, self._is_open = fabric, chance, is_open
        self.names = fabric.topology.link_names()
        self._inner = [number for number, link in enumerate(fabric.topology.links)
                       if not fabric.topology.is_host(link.a) and not fabric.topology.is_host(link.b)]
        self.down_since: dict[int, int] = {}  # ps, by link: some direction is down
        self._turns: dict[int, int] = {}  # of flapping links, those that are left
        self._slow: set[int] = set()

    def begin(self, now: int, used: Collection[int]) -> tuple[str, int]:
        """Cuts a link, lets it flap, or slows it down. ``used``: links of jobs' trees. Returns what was done, and the link."""
        inner = [link for link in self._inner if link in used] or self._inner
        links = inner if inner and self._chance.random() < INNER else range(len(self.names))
        link, kind = self._chance.choice(links), self._chance.choice(("cut", "cut", "flap", "slow"))
        sides = self._chance.choice(((0, 1), (0, 1), (0,), (1,)))
        if kind == "slow":
            self._slow.add(link)
            self._set_rate(link, self._fabric.topology.links[link].rate / self._chance.choice((10, 50)))
            return f"{self.names[link]} becomes slow", link
        self._turns[link] = self._chance.randint(2, FLAPS) if kind == "flap" else 0
        self._cut(link, sides, now)
        words = {"cut": "is cut", "flap": "flaps"}
        return f"{self.names[link]} {words[kind]}{'' if len(sides) == 2 else ' in one direction'}", link

    def go_on(self, link: int, now: int, heal: bool) -> bool:
        """Ends a fault; or a flapping link takes its next turn, unless it is to ``heal``. Returns True if that is not all."""
        if link in self._slow:
            self._slow.discard(link)
            self._set_rate(link, self._fabric.topology.links[link].rate)
        if link in self.down_since:
            for side in (0, 1):
                self._fabric.set_up(self._fabric.end(link, side), True)
            del self.down_since[link]
        elif self._turns.get(link) and not heal:
            self._cut(link, (0, 1), now)
        self._turns[link] = 0 if heal else max(0, self._turns.get(link, 0) - 1)
        return bool(self._turns[link]) or link in self.down_since

    def _cut(self, link: int, sides: Collection[int], now: int) -> None:
        for side in sides:
            self._fabric.set_up(self._fabric.end(link, side), False)
        self.down_since.setdefault(link, now)

    def _set_rate(self, link: int, rate: float) -> None:
        for side, end in enumerate(self._fabric.topology.ends[link]):
            if self._is_open(end.node):
                self._fabric.set_rate(self._fabric.end(link, side), rate)

    def noticed(self, now: int) -> set[int]:
        """Returns the links that have been down for long enough."""
        return {link for link, since in self.down_since.items() if now - since >= NOTICED}


def check_routes(topology: Topology, down: Collection[int]) -> None:
    """Checks that the forwarding tables without these links use none of them, have no loop, and reach all that can be reached
    and nothing else.
    Raises Violation."""
    names = topology.link_names()
    ways = routes.tables(topology, [names[link] for link in down])
    alive = {node: [hop.node for hop in hops if hop.link not in down] for node, hops in topology.hops.items()}
    for host in topology.hosts:
        reachable = hop_counts([host.name], alive.__getitem__)  # from it as to it: the links are duplex
        for switch in topology.switches:
            node, steps = switch.name, 0
            if switch.name not in reachable:
                if host.name in ways[switch.name]:
                    raise Violation(f"a wrong route: {switch.name} has one to {host.name}, which it does not reach")
                continue
            while node != host.name:
                hop = ways[node].get(host.name)
                if hop is None or hop.link in down or steps > len(topology.switches):
                    dead = hop is not None and hop.link in down
                    problem = "no way" if hop is None else f"over {names[hop.link]}, which is down" if dead else "a loop"
                    raise Violation(f"a wrong route: from {switch.name} to {host.name}, at {node}: {problem}")
                node, steps = hop.node, steps + 1
