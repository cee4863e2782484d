"""The network of an experiment in virtual time: topology, routes, places of workers, reduction, and figures of its links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np

from ina import topology as topologies
from ina.aggregation import protocols
from ina.aggregation.entries import program_named
from ina.aggregation.lane import DEFAULT
from ina.base import paths
from ina.base.settings import ConfigError
from ina.lab.kind import Experiment
from ina.lab.processes.hosts import with_buffer
from ina.lab.virtual.keys import Virtual
from ina.net.ports import PS, Faults
from ina.p4.compiler.build import compile_program
from ina.topology import Topology, TopologyError, routes
from ina.worlds.virtual import collectives
from ina.worlds.virtual.fabric import Fabric, FabricJob, WorkerOptions
from ina.worlds.virtual.parameter_servers import Servers

LEAST_SLOTS = 512  # smaller pools use the same program, which is compiled already
LARGEST_SUM = 2.0**126  # of the floats of a sum of all workers: docs/design/protocol.md, "Not finite"
CONGESTION = {"ideal": collectives.IDEAL, "dctcp": collectives.DCTCP}


class WrongSum(RuntimeError):
    """A worker's result is not the sum: the switch or the worker is broken."""


class Diverged(RuntimeError):
    """A training's updates are too large for any sum, infinite, or no numbers: its settings are wrong, and no switch is."""


def check_bounded(values: np.ndarray, largest: float, name: str, lr: float) -> None:
    """Raises Diverged: one of a training's ``values``, which ``name`` is, is infinite, no number, or beyond ``largest``; ``lr``
    is its learning rate."""
    if not np.abs(values).max() <= largest:  # nor is it if there is a NaN
        raise Diverged(f"the training diverged: {name} is infinite, NaN, or beyond {largest:g}; its learning rate is {lr:g}: "
                       "give a smaller lr")


def check_summable(values: np.ndarray, workers: int, name: str, lr: float) -> None:
    """Raises Diverged: a sum of values as large as these of so many workers might be no float, which is no fault of the switch.
    ``values``, ``name``, ``lr``: as of ``check_bounded``."""
    check_bounded(values, LARGEST_SUM / workers, name, lr)


def check_exact_beside(values: np.ndarray, workers: int, name: str) -> None:
    """Raises Diverged: beside such ``values`` in a block of a sum of so many workers whole numbers would be rounded to others.
    ``name``: of the values, for the message."""
    largest = float(np.abs(values).max())
    most = 2.0 ** (DEFAULT.shift(workers) - 1)  # then half a unit of a block (docs/design/protocol.md) is at most a quarter
    if not largest <= most:
        raise Diverged(f"{name} is {largest:g}, beside which whole numbers, as the staleness in the same sum, are rounded: "
                       f"expected at most {most:g} in sums of {workers} workers: give a smaller lr, or shorter compute times")


@dataclass(frozen=True)
class Place:
    """A topology with its routes. ``ways``: forwarding tables, None: shortest. ``rings``: orders of the servers' numbers that
    have circuits of their own."""

    topology: Topology
    ways: routes.Tables | None = None
    rings: tuple[tuple[int, ...], ...] = ()

    def hosts(self, config: Virtual) -> list[list[str]]:
        """Returns the hosts of each job, worker by worker. Raises ConfigError: there are not enough."""
        names = [host.name for host in self.topology.hosts]
        needed = config.workers * config.jobs
        if needed > len(names):
            raise ConfigError(f"topology = {config.topology!r}: it has {len(names)} hosts, expected {needed}, one for each of "
                              f"workers = {config.workers} in jobs = {config.jobs}")
        if config.placement == "spread":
            seats: Counter[str] = Counter()
            seat = {}
            for name in names:
                seat[name] = seats[self.topology.switch_of(name)]
                seats[self.topology.switch_of(name)] += 1
            names.sort(key=seat.__getitem__)  # stable: edge switches stay in order
        return [names[job * config.workers : (job + 1) * config.workers] for job in range(config.jobs)]

    def orders(self, hosts: Sequence[str], count: int) -> list[list[int]]:
        """Returns ``count`` rings of the ranks at ``hosts``. Raises ConfigError: there are not so many that share no circuit."""
        rank = {host: i for i, host in enumerate(hosts)}
        if self.rings:
            orders = [[rank[f"h{server}"] for server in ring if f"h{server}" in rank] for ring in self.rings]
        else:
            orders = [list(range(len(hosts))), list(range(len(hosts)))[::-1]]  # the other way round, on the links' other half
        if count > len(orders):
            raise ConfigError(f"stripes = {count}: expected at most {len(orders)}, the rings of {self.topology.name} that share "
                              "no link and direction")
        return orders[:count]


def place(config: Virtual, more: int = 0) -> Place:
    """Returns the network of ``config.topology``, a name and parameters, with the experiment's rate, delay and queue. ``more``:
    hosts of a star without a worker. Raises ConfigError."""
    number = {"hosts": config.workers * config.jobs + _needs_server(config) + more} if config.topology == "star" else {}
    try:
        name, values = topologies.parameters(config.topology, rate=config.rate, delay=config.delay, queue=config.queue, **number)
        topology = with_buffer(topologies.load(name, **values), config.buffer)
        if name != "topoopt":
            return Place(topology)
        fabric = topologies.module("topoopt").fabric(**values)  # with parameters that `parameters` has checked
        everyone = next((group for group in fabric.groups if len(group.members) == fabric.servers), None)
        return Place(topology, fabric.tables(topology), tuple(map(tuple, everyone.cycles)) if everyone else ())
    except TopologyError as error:
        raise ConfigError(f"topology = {config.topology!r}: {error}") from None


class Networked(Virtual):
    """Base of the kinds whose jobs are in such a network."""

    @classmethod
    def check_networks(cls, experiments: Sequence[Experiment]) -> None:
        places: dict[str, Place] = {}
        for experiment in experiments:
            if isinstance(experiment, Virtual) and experiment.topology != "star":  # a star has as many hosts as needed
                if experiment.topology not in places:
                    places[experiment.topology] = place(experiment)
                places[experiment.topology].hosts(experiment)

    def prepare(self) -> None:
        program(self)


def schedule(config: Virtual, place: Place, hosts: Sequence[str]) -> collectives.Schedule:
    """Returns the schedule of the baseline ``config.algorithm``. Raises ConfigError."""
    n = len(hosts)
    if config.algorithm == "ring":
        return collectives.ring(place.orders(hosts, config.stripes), config.slices)
    if config.algorithm == "halving-doubling":
        return collectives.halving_doubling(n)
    if config.algorithm == "tree":
        return collectives.tree(n, config.slices)
    return collectives.parameter_server(n, config.stripes, config.slices)


def program(config: Virtual) -> Path:
    """Returns the compiled switch program; compiles it once."""
    slots = max(LEAST_SLOTS, config.pool) if program_named(config.protocol).reserves else config.pool
    defines = {"VALUES": str(config.values), "SLOTS": str(slots)}
    return compile_program(config.program_path, defines=defines, include_dirs=[paths.p4_dir()]).so_path


def fabric(config: Virtual, place: Place, longest: int = 0) -> Fabric:
    """Makes the network, with its hosts' processors, and without jobs; for frames of ``longest`` bytes, where there are such."""
    round_trip = 2 * config.delay + config.latency
    faults = Faults(
        config.loss, config.duplicate, config.reorder, config.corrupt, 10 * round_trip, 2 * round_trip, config.seed
    )
    network = Fabric(
        program(config), place.topology, pool=config.pool, latency=config.latency, ecn=config.ecn, faults=faults,
        seed=config.seed, ways=place.ways, nic=config.nic, protocol=config.protocol, max_frame=max(longest, _longest(config)),
        payload=config.payload,
    )
    for host in place.topology.hosts:
        network.set_cpu(network.host(host.name), config.host_packet, config.host_byte, config.host_cores)
    return network


def _longest(config: Virtual) -> int:
    """Returns the longest frame, bytes: for large networks memory is scarce."""
    elements = config.values * np.dtype(config.dtype).itemsize
    return max(protocols.frame_bytes(config.protocol, config.values), collectives.HEADERS + elements, 256)


def admit(fabric: Fabric, config: Virtual, place: Place, above: Servers | None) -> list[FabricJob]:
    """Admits all jobs, with their workers. ``above``: of ``servers``. Raises AdmissionError, ConfigError."""
    return [admit_one(fabric, config, place, hosts, f"job {number}", config.window, above)
            for number, hosts in enumerate(place.hosts(config))]


def admit_one(
    fabric: Fabric, config: Virtual, place: Place, hosts: Sequence[str], name: str, slots: int, above: Servers | None
) -> FabricJob:
    """Admits a job whose workers are at ``hosts``, with the experiment's algorithm. ``above``: the protocol's parameter
    servers."""
    if config.algorithm == "in-network":
        job = fabric.admit(hosts, slots, config.values, name=name, stripes=config.stripes, **waits(config))
        if above:
            above.serve(job, config.values)
        return job
    return fabric.collective(hosts, schedule(config, place, hosts), config.values, name=name, window=config.flow,
                             congestion=CONGESTION[config.transport], rto=config.rto_min, timeout=config.timeout)


def waits(config: Virtual) -> WorkerOptions:
    """Returns the workers' time-outs, and how they make check words."""
    return {"rto_min": config.rto_min, "rto_max": config.rto_max, "rto_fixed": config.rto == "fixed", "timeout": config.timeout,
            "check": config.check}


def _needs_server(config: Virtual) -> bool:
    return config.algorithm == "in-network" and program_named(config.protocol).needs_server


def servers(fabric: Fabric, config: Virtual, place: Place) -> Servers | None:
    """Adds the parameter servers that all jobs share, if the protocol has any: at hosts without a worker, each at a switch of its
    own, as far apart as there are such switches. Raises ConfigError: there are not enough."""
    if not _needs_server(config):
        return None
    occupied = {host for hosts in place.hosts(config) for host in hosts}
    free: dict[str, str] = {}  # by switch
    for host in place.topology.hosts:
        if host.name not in occupied:
            free.setdefault(place.topology.switch_of(host.name), host.name)
    if len(free) < config.servers:
        raise ConfigError(f"servers = {config.servers}: topology = {config.topology!r} has {len(free)} switches with a host left "
                          f"for a parameter server of {config.protocol}")
    added, places = Servers(fabric), list(free.values())
    for number in range(config.servers):
        added.add(places[number * len(places) // config.servers])
    return added


class LinkFigures(TypedDict):
    """Figures of the busiest link, as in record.Reduction."""

    busiest_link: str
    busiest_bytes: int
    link_use: float | None


def link_figures(fabric: Fabric, seconds: float) -> LinkFigures:
    """Returns, for the busiest link and direction, its name, bytes with all headers, and use within ``seconds``."""
    busiest = fabric.busiest()
    use = None if busiest.utilisation is None else busiest.utilisation * fabric.now / PS / seconds
    return {"busiest_link": busiest.name, "busiest_bytes": busiest.bytes, "link_use": use}


def whole(fabric: Fabric) -> dict[str, dict]:
    """Returns the whole network's counters, and packets that were dropped other than by the program, by reason."""
    return {"network": fabric.stats(), "drops": fabric.drops()}


def counters(
    fabric: Fabric, config: Virtual, jobs: Sequence[FabricJob], hosts: Sequence[str], network: dict[str, dict] | None = None
) -> dict[str, dict]:
    """Returns sums over these jobs' workers, the ``whole`` network's (default: as it is now), and the use of the busiest host's
    cores."""
    each = [(fabric.worker_stats if job.jobs else fabric.collective_stats)(machine) for job in jobs
            for machine in (*job.machines, *job.former)]
    first = each[0] if each else dict.fromkeys(("tx_packets", "retransmissions", "timeouts"), 0)
    keys = [key for key in first if not key.endswith("_ps")]
    busy = max(fabric.cpu_busy(fabric.host(host)) for host in hosts)
    return {
        "workers": {key: sum(s[key] for s in each) for key in keys},
        **(network or whole(fabric)),
        "hosts": {"cpu_use": busy / max(1, fabric.now * config.host_cores)},
    }
