"""The network of an experiment in virtual time: its topology, its routes, where workers are, and what rings it offers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import topologies
from ina.emulator import collectives
from ina.experiment.config import AllReduce, ConfigError
from topologies import Topology, TopologyError, routes, topoopt


@dataclass(frozen=True)
class Place:
    """``ways``: forwarding tables, None: shortest. ``rings``: orders of the servers' numbers that have circuits of their own."""

    topology: Topology
    ways: routes.Tables | None = None
    rings: tuple[tuple[int, ...], ...] = ()

    def hosts(self, config: AllReduce) -> list[list[str]]:
        """The hosts of each job, worker by worker. Raises ConfigError: there are not enough."""
        names = [host.name for host in self.topology.hosts]
        wanted = config.workers * config.jobs
        if wanted > len(names):
            raise ConfigError(f"topology = {config.topology!r} has {len(names)} hosts, expected {wanted}: workers = "
                              f"{config.workers} of each of jobs = {config.jobs}")  # fmt: skip
        if config.placement == "spread":
            seats: Counter[str] = Counter()
            seat = {}
            for name in names:
                seat[name] = seats[self.topology.switch_of(name)]
                seats[self.topology.switch_of(name)] += 1
            names.sort(key=seat.__getitem__)  # stable: edge switches stay in order
        return [names[job * config.workers : (job + 1) * config.workers] for job in range(config.jobs)]

    def orders(self, hosts: Sequence[str], count: int) -> list[list[int]]:
        """``count`` rings of the ranks at ``hosts``. Raises ConfigError: there are not so many that share no circuit."""
        rank = {host: i for i, host in enumerate(hosts)}
        if self.rings:
            found = [[rank[f"h{server}"] for server in ring if f"h{server}" in rank] for ring in self.rings]
        else:
            found = [list(range(len(hosts))), list(range(len(hosts)))[::-1]]  # the other way round, on the links' other half
        if count > len(found):
            raise ConfigError(f"stripes = {count}: expected at most {len(found)}, the rings of {self.topology.name} that share "
                              "no link and direction")  # fmt: skip
        return found[:count]


def place(config: AllReduce) -> Place:
    """What ``config.topology`` says: a name and parameters, with the experiment's rate, delay and queue. Raises ConfigError."""
    number = {"hosts": config.workers * config.jobs} if config.topology == "star" else {}
    try:
        name, given = topologies.parameters(config.topology, rate=config.rate, delay=config.delay, queue=config.queue, **number)
        topology = topologies.load(name, **given)
        if name != "topoopt":
            return Place(topology)
        fabric = topoopt.fabric(**given)
        everyone = next((group for group in fabric.groups if len(group.members) == fabric.servers), None)
        return Place(topology, fabric.tables(topology), tuple(map(tuple, everyone.cycles)) if everyone else ())
    except TopologyError as error:
        raise ConfigError(f"topology = {config.topology!r}: {error}") from None


def schedule(config: AllReduce, place: Place, hosts: Sequence[str]) -> collectives.Schedule:
    """Of the baseline that ``config.algorithm`` names. Raises ConfigError."""
    n = len(hosts)
    if config.algorithm == "ring":
        return collectives.ring(place.orders(hosts, config.stripes), config.slices)
    if config.algorithm == "halving-doubling":
        return collectives.halving_doubling(n)
    if config.algorithm == "tree":
        return collectives.tree(n, config.slices)
    return collectives.parameter_server(n, config.stripes, config.slices)
