"""Any topology in virtual time: a switch with the compiled program at each of its switches, a NIC at each of its hosts.

    fabric = Fabric(program, topologies.load("fat-tree", k=4, rate=100e9, delay=1e-6))
    job = fabric.admit(["h1", "h2", "h5", "h9"], slots=64, values=256)              # aggregated along a tree of switches
    job = fabric.collective(["h1", "h2", "h5", "h9"], collectives.ring([range(4)])) # or between the hosts, as a baseline
    outcome = fabric.all_reduce(job, arrays)        # sums in the arrays, virtual seconds in outcome.seconds

Every link is counted in both directions, and frames that left must have arrived: `links()`, `check()`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.controller.admission import Controller, Job, switch_address
from ina.aggregation.controller.forwarding import forwarding, guards
from ina.aggregation.entries import PUBLISHED, lane_of, pool_of, program_named, recognise
from ina.aggregation.ps.state_machine import ServerConfig
from ina.aggregation.worker.block import stats_dict
from ina.aggregation.worker.config import WorkerConfig, fill_address
from ina.aggregation.worker.route import Route
from ina.base.native import CData, ffi, lib
from ina.net.ports import PS, Address, Faults
from ina.p4.runtime.embedded import Switch
from ina.p4.runtime.entities import delete
from ina.p4.runtime.loaded_program import Program
from ina.topology import Topology, load, routes
from ina.topology.tree import Tree
from ina.worlds.virtual.collectives import IDEAL, Schedule
from ina.worlds.virtual.network import Completion, End, Network, Wire

COLLECTIVE_PORT = 5000  # UDP, and up
ROOM = ("tail", "no_buffer", "back_pressure", "too_long", "reentries", "no_memory")  # reasons of drops for want of room
NO_FAULTS = Faults()
UNLIMITED = Wire()


class Unbalanced(RuntimeError):
    """The counters of a run do not add up: packets or bytes appeared or vanished, a link carried more than it can, or packets
    were dropped where no setting allows it."""


class Compiled(Protocol):
    """A program on disk (ina/p4/compiler/build.py)."""

    @property
    def so_path(self) -> Path:
        """The shared object."""


Source = Program | Compiled | os.PathLike[str] | str


class WorkerOptions(TypedDict, total=False):
    """Fields of WorkerConfig that the caller of `admit` may choose."""

    rto_min: float
    rto_max: float
    rto_fixed: bool
    timeout: float
    reply_in_place: bool
    first_packet: int
    check: str
    options: Mapping[str, int]


@dataclass(frozen=True)
class Traffic:
    """One direction of a link, from the run's start to now: bytes with all headers and Ethernet's overhead.

    ``utilisation``: share of the time in which it sent; None without a rate. ``max_queue``: bytes that waited at most;
    ``mean_queue``: packets that waited on average; ``mean_wait``: of a packet, s.
    ``dropped``: packets that the queue refused; ``lost``: packets lost on the wire; ``down``: lost because it was down;
    ``marked``: met a queue over the ECN threshold.
    """

    source: str
    target: str
    link: int
    packets: int
    bytes: int
    utilisation: float | None
    max_queue: int
    mean_queue: float
    mean_wait: float
    dropped: int
    lost: int
    marked: int
    down: int = 0

    @property
    def name(self) -> str:
        """Both ends, as the frames go: h1>s1."""
        return f"{self.source}>{self.target}"


@dataclass(frozen=True)
class FabricJob:
    """A job in a fabric. ``stripes``: the machines of its workers in order, for each part of the tensor that goes its own way:
    over a tree of its own, which is one of ``jobs`` to the switches. A collective is one stripe, and no job to the switches.
    ``former``: machines that it had before it was moved."""

    name: str
    hosts: tuple[str, ...]
    stripes: tuple[tuple[int, ...], ...]
    jobs: tuple[Job, ...] = ()
    former: tuple[int, ...] = ()

    @property
    def machines(self) -> tuple[int, ...]:
        """All machines, stripe by stripe."""
        return tuple(machine for stripe in self.stripes for machine in stripe)

    def parts(self, array: np.ndarray, multiple: int = 256) -> list[np.ndarray]:
        """Splits ``array`` into a piece for each stripe, as evenly as multiples of ``multiple`` elements allow."""
        blocks = -(-array.size // multiple)
        ends = [min(array.size, multiple * (blocks * (i + 1) // len(self.stripes))) for i in range(len(self.stripes))]
        return [array[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@dataclass(frozen=True)
class Outcome:
    """One all-reduce: `seconds` of virtual time from the first submission to the last completion."""

    seconds: float
    completions: tuple[Completion, ...]

    def raise_failed(self) -> None:
        for completion in self.completions:
            completion.raise_failed()


class Fabric(Network):
    """A network of a topology. ``program``: for `Switch`, the same at every switch. ``pool``: slots of each switch, which jobs
    share; default: all that the program has. Raises ValueError: it has fewer.

    A link's rate, delay, queue and loss are the topology's, and so is the switches' ``buffer``; ``ecn`` (bytes), other
    ``faults`` and the switches' ``latency`` (s) are the same everywhere. Each direction has a fault seed of its own, from
    ``seed``. ``ways``: forwarding tables, default shortest routes. ``nic``: bytes at a host's NIC from which on its machines
    are held back (0: no limit). ``payload`` False: frames travel without their values (Network), so sums are not right.
    """

    def __init__(
        self, program: Source, topology: Topology, *, pool: int | None = None, latency: float = 0.0, ecn: int = 0,
        faults: Faults = NO_FAULTS, seed: int = 0, ways: routes.Tables | None = None, nic: int = 0, max_frame: int = 0,
        protocol: str = protocols.DEFAULT, payload: bool = True,
    ):
        max_frame = max_frame or 9216
        super().__init__(max_frame, payload)
        self.topology, self.seed, self.ecn, self.faults, self.protocol = topology, seed, ecn, faults, protocol
        self.nic = nic
        source = program if isinstance(program, (Program, str, os.PathLike)) else program.so_path
        loaded = source if isinstance(source, Program) else Program(source)
        if (recognise(loaded.p4info) or (None,))[0] is PUBLISHED:
            raise ValueError(f"{loaded.name}: {PUBLISHED.only_local}")
        served = program_named(protocol).limited(loaded.p4info)
        pool = pool_of(served, loaded.p4info, pool)
        self.lane = lane_of(loaded.p4info)
        self._collectives = 0
        self._collective_states: dict[int, CData] = {}
        self._end: dict[str, End] = {}
        self.switch_at: dict[str, Switch] = {}
        for node in topology.switches:
            switch = Switch(loaded, seed=seed, buffer=topology.buffer, max_frame=max_frame)
            self.switch_at[node.name] = switch
            self._end[node.name] = End(True, self.add_switch(switch, latency))
        for node in topology.hosts:
            self._end[node.name] = End(False, self.add_host())
        for number, link in enumerate(topology.links):
            a, b = (self.end(number, side) for side in (0, 1))
            self.connect(a, b, self.wire(number, 0), None if link.simplex else self.wire(number, 1))
        self._ways: routes.Tables | None = ways
        self._forwards: routes.Tables | None = None  # the written tables
        self.controller = Controller(self.switch_at, pool, served, topology, chance=random.Random(seed))

    def add_machine(self, host: int, protocol: CData, state: CData, udp_port: int, workers: int) -> int:
        """Adds a machine, as Network's method does; switches forward between hosts from now on."""
        self._forward()
        return super().add_machine(host, protocol, state, udp_port, workers)

    def _forward(self) -> None:
        """Writes forwarding tables, once, and only if hosts send to each other: a thousand hosts at 320 switches take a while."""
        if self._forwards is not None:
            return
        guard = guards(self.topology)
        self._forwards = self._tables()
        for name, table in self._forwards.items():
            ports = {self.topology.by_name[host].mac: hop.port for host, hop in table.items()}
            self.switch_at[name].write([*forwarding(ports), *guard[name]])

    def _tables(self) -> routes.Tables:
        down = self.controller.down_links
        return routes.tables(self.topology, down) if down or self._ways is None else self._ways

    def reroute(self) -> None:
        """Changes forwarding tables, where there are any, to ways around the links that the controller knows to be down."""
        if self._forwards is None:
            return
        before, self._forwards = self._forwards, self._tables()
        for name, table in self._forwards.items():
            old, new = ({self.topology.by_name[host].mac: hop.port for host, hop in each.items()}
                        for each in (before[name], table))
            lost = {mac: port for mac, port in old.items() if new.get(mac) != port}
            changed = {mac: port for mac, port in new.items() if old.get(mac) != port}
            self.switch_at[name].write([*delete(*(update.entity for update in forwarding(lost))), *forwarding(changed)])

    def wire(self, link: int, direction: int) -> Wire:
        """Returns one direction of a link, 0: as the topology names its ends. A host does not drop its own packets for want of
        room."""
        settings = self.topology.links[link]
        queue = self.nic if self.topology.is_host(self.topology.ends[link][direction].node) else settings.queue
        faults = replace(self.faults, loss=settings.loss or self.faults.loss, seed=self._fault_seed(link, direction))
        return Wire(settings.rate, settings.delay, queue, self.ecn, faults)

    def _fault_seed(self, link: int, direction: int) -> int:
        return (self.seed << 20 | self.faults.seed << 40 | link << 1 | direction) % 2**64

    def end(self, link: int, side: int) -> End:
        """Returns the end of a link at which its direction ``side`` begins."""
        place = self.topology.ends[link][side]
        return replace(self._end[place.node], port=place.port)

    def host(self, name: str) -> int:
        """Returns the number of a host in the network."""
        return self._end[name].node

    def addresses(self, hosts: Sequence[str], port: int) -> CData:
        """Returns a ``struct ina_address[]`` of ``hosts``, with one UDP ``port``."""
        addresses = ffi.new("struct ina_address[]", len(hosts))
        nodes = {node.name: node for node in self.topology.hosts}
        for address, host in zip(addresses, hosts, strict=True):
            fill_address(address, Address(nodes[host].mac, nodes[host].ip, port))
        return addresses

    # ---- jobs

    def collective(
        self, hosts: Sequence[str], schedule: Schedule, values: int = 256, *, name: str = "", window: int = 64,
        congestion: int = IDEAL, rto: float = 1e-3, timeout: float = 30.0, bare: bool = False,
    ) -> FabricJob:
        """Makes a job of ``schedule`` between ``hosts``, rank by rank: packets of ``values`` elements, ``window`` of them
        under way in each flow. ``congestion``: IDEAL or DCTCP. ``timeout``: seconds after which a tensor has failed, from its
        turn at a rank, or from its first packet at one that only receives. ``bare``: packets without their values, so without
        sums."""
        if len(hosts) != schedule.ranks:
            raise ValueError(f"{schedule.name}: {len(hosts)} hosts, expected {schedule.ranks}")
        port = COLLECTIVE_PORT + self._collectives
        self._collectives += 1
        addresses, machines = self.addresses(hosts, port), []
        for rank, host in enumerate(hosts):
            config = ffi.new(
                "struct ina_collective_config *",
                {
                    "rank": rank, "ranks": schedule.ranks, "values": values, "parts": schedule.parts, "gates": schedule.gates,
                    "window": window, "congestion": congestion, "ordered": schedule.ordered, "bare": bare,
                    "rto_ps": round(rto * PS), "timeout_ps": round(timeout * PS),
                },
            )
            state = lib.ina_collective_create(config, addresses, schedule.native(rank), len(schedule.transfers[rank]))
            if state == ffi.NULL:
                raise OSError(ffi.errno, f"{schedule.name}: rank {rank}: {os.strerror(ffi.errno)}")
            state = ffi.gc(state, lib.ina_collective_destroy)
            machine = self.add_machine(self.host(host), ffi.addressof(lib.ina_collective_machine), state, port, schedule.ranks)
            self._collective_states[machine] = state
            machines.append(machine)
        return FabricJob(name or schedule.name, tuple(hosts), (tuple(machines),))

    def collective_stats(self, machine: int) -> dict[str, int]:
        """Returns counters of one rank of a collective."""
        raw = ffi.new("struct ina_worker_stats *")
        lib.ina_collective_get_stats(self._collective_states[machine], raw)
        return stats_dict(raw)

    def admit(
        self, hosts: Sequence[str], slots: int, values: int, *, name: str = "", stripes: int = 1,
        trees: Sequence[Tree] = (), strict: bool = True, **options: Unpack[WorkerOptions],
    ) -> FabricJob:
        """Admits a job of a worker at each of ``hosts`` that the switches serve: each of ``stripes`` parts of its tensors over a
        tree of its own, with ``slots`` at every switch of it. ``trees``: default, those that the controller chooses.

        ``options`` are those of WorkerConfig (rto_min, timeout, ...). Raises AdmissionError.
        """
        name = name or f"job{len(self.controller.jobs)}"
        if not trees and strict:
            trees = self.controller.place(name, hosts, slots, stripes)
        jobs, machines = [], []
        check = self.check_words(options)
        for number, tree in enumerate(trees or [None]):
            label = f"{name}/{number + 1}" if len(trees) > 1 else name
            jobs.append(self.controller.admit(label, len(hosts), slots, strict, tree, hosts, check))
            machines.append(tuple(self.join(jobs[-1], i, host, values, options) for i, host in enumerate(hosts)))
        return FabricJob(name, tuple(hosts), tuple(machines), tuple(jobs))

    def check_words(self, options: WorkerOptions) -> str:
        """Returns how a job of these options makes check words. Frames without values have none, unless ``check`` says so."""
        return options.get("check") or ("" if self.payload else protocols.CHECKS[0])

    def join(self, job: Job, index: int, host: str, values: int, options: WorkerOptions) -> int:
        """Attaches a worker to a job of the controller, at ``host``. Returns its machine."""
        switch = self.topology.switch_of(host)
        port = next(end.port for node, _, end in self.topology.host_links(switch) if node.name == host)
        self.controller.attach(job, index, port)
        return self.add_worker(self.host(host), self.worker_config(job, index, host, values, **options))

    def worker_config(self, job: Job, index: int, host: str, values: int, **options: Unpack[WorkerOptions]) -> WorkerConfig:
        """Returns the configuration of a worker of ``job`` at ``host``; ``options`` are further fields of WorkerConfig."""
        options.pop("check", None)  # admission has decided it
        above = switch_address(self.topology.switch_of(host), self.controller.program.udp_port)
        return job.config(index, above, values=values, lane=self.lane, protocol=self.protocol, **options)

    def server_config(self, job: Job, address: Address, switch: Address, values: int) -> ServerConfig:
        """Returns the configuration of a job's parameter server at ``address``, to which ``switch`` relays."""
        return ServerConfig(workers=job.workers, job=job.number, life=job.life, slots=job.slots, values=values, lane=self.lane,
                            multicast=self.controller.program.multicasts, address=address, switch=switch, rule=job.rule,
                            key=job.key, routes=protocols.has_routes(self.protocol))

    def submit_all(
        self, job: FabricJob, arrays: Sequence[np.ndarray], *, average: bool = False, starts: Sequence[int] | None = None,
        tag: int = 0, reduction: int = protocols.SUM, route: Route | None = None,
    ) -> list[int]:
        """Queues the all-reduce of ``arrays`` (one a worker, in place), or their sum along a ``route``, now, or each ``starts``
        ps after now; returns its tickets."""
        return [
            ticket
            for worker, array in enumerate(arrays)
            for ticket in self.submit_one(job, worker, array, average=average, tag=tag, reduction=reduction,
                                          route=route, after=starts[worker] if starts else 0)
        ]

    def submit_one(
        self, job: FabricJob, worker: int, array: np.ndarray, out: np.ndarray | None = None, *, average: bool = False,
        tag: int = 0, after: int = 0, reduction: int = protocols.SUM, route: Route | None = None,
    ) -> list[int]:
        """Queues one worker's part of that, `after` ps from now; returns a ticket for each stripe. ValueError: a ``route`` of
        several stripes."""
        if route is not None and len(job.stripes) > 1:
            raise ValueError(f"route: job {job.name} has {len(job.stripes)} stripes, expected one")
        parts = zip(job.stripes, job.parts(array), job.parts(array if out is None else out), strict=True)
        return [
            self.submit(stripe[worker], part, into, average=average, tag=tag, at=self.now + after, reduction=reduction,
                        route=route)
            for stripe, part, into in parts
            if part.size or len(job.stripes) == 1
        ]

    def all_reduce(
        self, job: FabricJob, arrays: Sequence[np.ndarray], *, average: bool = False, starts: Sequence[int] | None = None,
        reduction: int = protocols.SUM, route: Route | None = None,
    ) -> Outcome:
        """Reduces `arrays` (one a worker) in place, or along a ``route``; `starts`: ps after now at which each worker submits."""
        began = self.now
        self.submit_all(job, arrays, average=average, starts=starts, reduction=reduction, route=route)
        self.run()
        done = tuple(self.completions())
        return Outcome((max(c.time for c in done) - began) / PS, done)

    # ---- figures

    @cached_property
    def _directions(self) -> list[tuple[int, int]]:
        return [(i, side) for i, link in enumerate(self.topology.links) for side in ((0,) if link.simplex else (0, 1))]

    def links(self) -> list[Traffic]:
        """Returns every direction of every link, in the topology's order."""
        return [self._traffic(link, side, self.wire_stats(self.end(link, side))) for link, side in self._directions]

    def _traffic(self, link: int, side: int, stats: dict[str, int]) -> Traffic:
        source, target = self.topology.ends[link][side].node, self.topology.ends[link][1 - side].node
        busy = stats["link_busy_ps"] / self.now if self.now and self.wire(link, side).rate else None
        return Traffic(
            source, target, link, stats["link_packets"], stats["link_bytes"], busy, stats["link_max_queue_bytes"],
            stats["link_queue_ps"] / max(1, self.now), stats["link_waited_ps"] / PS / max(1, stats["link_packets"]),
            stats["link_tail_drops"], stats["lost"] + stats["corrupted"], stats["link_ecn_marks"], stats["down"],
        )

    def held(self) -> dict[tuple[str, str], int]:
        """Returns numbers of slots that hold incomplete sums, by switch and job."""
        partial = {}
        for name, switch in self.switch_at.items():
            jobs = {job.number: job for job in self.controller.jobs.values() if name in job.branches}
            places = [job.place(job.branches[name]) for job in jobs.values()]
            if places:
                counts = self.controller.program.held(switch.register, places)
                partial.update({(name, jobs[number].name): slots for number, slots in counts.items()})
        return partial

    def busiest(self) -> Traffic:
        """Returns the direction of a link that sent for the longest time; without any rate, the one that carried most bytes."""
        return max(self.links(), key=lambda traffic: (traffic.utilisation or 0, traffic.bytes))

    def drops(self) -> dict[str, int]:
        """Returns packets that were dropped other than by the program, by reason, over all switches (``tail``: at a full queue;
        ``no_buffer``: of a full switch); ``wire``: lost between two nodes; ``link down``: on a link that was down. A host's NIC
        drops none."""
        stats = self.stats()
        counts: Counter[str] = Counter({"wire": stats["lost"] + stats["corrupted"], "link down": stats["down"]})
        for end in (end for pair in self.topology.ends for end in pair if end.node in self.switch_at):
            drops = self.switch_at[end.node].port_stats(end.port).drops
            counts.update({reason: n for reason, n in drops.items() if n and reason != "ingress"})
        return {reason: n for reason, n in counts.items() if n}

    def check(self) -> None:
        """Checks that packets and bytes are conserved on every wire and through every port, waiting times and queue lengths agree
        (Little's law), no link sent for longer than time has passed, and nothing was dropped for want of room but by queues
        and buffers that have a limit. To be called when no event is left.

        Raises Unbalanced, with the direction of the link that breaks a law, and both figures."""
        if self.frames_held:
            raise Unbalanced(f"{self.topology.name}: {self.frames_held} frames are left when nothing is left to happen")
        for link, side in self._directions:
            stats = self.wire_stats(self.end(link, side))
            name = " to ".join(self.topology.ends[link][s].name for s in (side, 1 - side))
            expected = stats["link_packets"] + stats["duplicated"] - stats["lost"] - stats["corrupted"] - stats["down"]
            if expected != stats["arrived"]:
                raise Unbalanced(f"{name}: {expected} packets should have arrived, {stats['arrived']} did")
            expected = stats["link_bytes"] + stats["duplicated_bytes"] - stats["lost_bytes"] - stats["down_bytes"]
            if expected != stats["arrived_bytes"]:
                raise Unbalanced(f"{name}: {expected} bytes should have arrived, {stats['arrived_bytes']} did")
            if stats["link_waited_ps"] != stats["link_queue_ps"]:
                waited, queue = stats["link_waited_ps"], stats["link_queue_ps"]
                raise Unbalanced(f"{name}: packets waited for {waited} ps, the queue's length over time says {queue} ps")
            if stats["link_busy_ps"] > self.now:
                raise Unbalanced(f"{name}: sent for {stats['link_busy_ps']} ps in {self.now} ps")
            self._check_switches(link, side, stats, name)
            self._check_drops(link, side, stats, name)

    def _check_switches(self, link: int, side: int, stats: dict[str, int], name: str) -> None:
        """Checks that a switch's own counters, kept apart from its links', agree with them at both ends of a direction."""
        source, target = (self.topology.ends[link][s] for s in (side, 1 - side))
        for end, counter, wire in ((source, "tx_packets", "link_packets"), (target, "rx_packets", "arrived")):
            if end.node in self.switch_at:
                counted = getattr(self.switch_at[end.node].port_stats(end.port), counter)
                if counted != stats[wire]:
                    raise Unbalanced(f"{name}: {stats[wire]} packets on the wire, port {end.port} of {end.node} counts {counted}")

    def _check_drops(self, link: int, side: int, stats: dict[str, int], name: str) -> None:
        """Checks that settings allow every drop at the sending end and on the wire."""
        wire, source = self.wire(link, side), self.topology.ends[link][side]
        drops = self.switch_at[source.node].port_stats(source.port).drops if source.node in self.switch_at else {}
        lost = {reason: drops[reason] for reason in ROOM if drops.get(reason)} | {
            "wire": stats["lost"], "corrupted": stats["corrupted"]}
        allowed = {"tail": wire.queue, "no_buffer": self.topology.buffer, "wire": wire.faults.loss,
                   "corrupted": wire.faults.corrupt}
        for reason, packets in lost.items():
            if packets and not allowed.get(reason):
                raise Unbalanced(f"{name}: {packets} packets were dropped ({reason}), though nothing limits the room for them")


class Star(Fabric):
    """Hosts around one switch, with wires ``up`` to it and ``down`` from it; a job's workers take the next free hosts."""

    def __init__(
        self, program: Source, *, hosts: int = 32, up: Wire = UNLIMITED, down: Wire = UNLIMITED, pool: int | None = None,
        latency: float = 0.0, seed: int = 0,
    ):
        self._wires = up, down
        super().__init__(program, load("star", hosts=hosts), pool=pool, latency=latency, seed=seed, faults=up.faults)
        self.switch = self.switch_at["s1"]
        self._used = 0

    def wire(self, link: int, direction: int) -> Wire:
        wire = self._wires[direction]
        return replace(wire, faults=replace(wire.faults, seed=self._fault_seed(link, direction)))

    def admit(  # type: ignore[override]
        self, workers: int, slots: int, values: int, **options: Unpack[WorkerOptions]
    ) -> FabricJob:
        """Admits a job of so many workers; ``options`` as of Fabric.admit."""
        hosts = self.topology.hosts[self._used : self._used + workers]
        if len(hosts) < workers:
            raise ValueError(f"star: {workers} workers, but only {len(hosts)} of {len(self.topology.hosts)} hosts are free")
        self._used += workers
        return super().admit([host.name for host in hosts], slots, values, **options)
