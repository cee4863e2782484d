"""Keys that all-reduces, trainings and traces in virtual time share: jobs of workers in a network, and their reduction."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ina.aggregation import protocols
from ina.aggregation.entries import program_named
from ina.base.bounds import Range
from ina.base.settings import key
from ina.lab import limits
from ina.lab.kind import Check, Measured
from ina.lab.virtual import simulated
from ina.lab.virtual.simulated import Simulated

ALGORITHMS = ("in-network", "ring", "halving-doubling", "tree", "parameter-server")
STRIPED = ("in-network", "ring", "parameter-server")
LARGEST_WINDOW = 8192  # packets


@dataclass(frozen=True)
class Virtual(Simulated):
    """Keys that all-reduces, trainings and traces in virtual time share."""

    kind: str = key("", "what is done")
    name: str = key("", "the results folder's name begins with it")
    world: str = key("virtual", simulated.WORLD, choices=("virtual",))
    topology: str = key("star", "the network: star, or a topology and its parameters ('fat-tree k=4'), or a .toml file")
    algorithm: str = key("in-network", "in-network, or between the hosts: ring, halving-doubling, tree, parameter-server",
                         choices=ALGORITHMS)
    stripes: int = key(1, "trees (in-network), rings, or servers (parameter-server) that share each tensor",
                       Range(1, 64, "each is a tree, or a ring"))
    placement: str = key("packed", "of the workers: packed (hosts in order) or spread (over the edge switches)",
                         choices=("packed", "spread"))
    workers: int = key(8, "workers of each job, each at a host of its own", limits.WORKERS)
    jobs: int = key(1, "jobs that share the network, at once", limits.JOBS)
    dtype: str = key("int32", "int32 or float32", choices=("int32", "float32"))
    seed: int = key(1, "of the faults and of the tensors", limits.SEED)
    rate: float = key(100e9, "of each wire, bit/s; not of a topology's file, nor between a topoopt server and its own element",
                      limits.LINK_RATE)
    delay: float = key(1e-6, "of each wire, one way, s; not of a topology's file", limits.DELAY)
    latency: float = key(0.0, "of each switch, s", limits.DELAY)
    queue: int = key(0, "of each wire, bytes; 0: no limit; not of a topology's file", limits.LINK_QUEUE)
    buffer: int = key(0, "of each switch, bytes: what may wait for all of its wires together; 0: no limit, or a file's",
                      limits.BYTES)
    nic: int = key(0, "bytes that wait at a host's NIC before it is given more; 0: no limit; it drops nothing", limits.BYTES)
    ecn: int = key(0, "bytes that wait when a packet is marked; 0: never", limits.BYTES)
    host_packet: float = key(0.0, "s that a host's core takes for each packet that it sends or receives", limits.DELAY)
    host_byte: float = key(0.0, "s for each byte of it, headers included", limits.DELAY)
    host_cores: int = key(1, "of each host, which work on packets side by side", Range(1, 1024))
    loss: float = key(0.0, "probability that a wire loses a packet, each way", limits.PROBABILITY)
    duplicate: float = key(0.0, "probability that a packet comes twice, the second up to ten round trips late",
                           limits.PROBABILITY)
    reorder: float = key(0.0, "probability that a packet is up to two round trips late", limits.PROBABILITY)
    corrupt: float = key(0.0, "probability that a bit of a packet flips", limits.PROBABILITY)
    protocol: str = key(protocols.DEFAULT, "what switch and workers speak")
    program: str = key("", simulated.PROGRAM)
    switch: str = key("embedded", simulated.SWITCH, choices=simulated.EMBEDDED)
    values: int = key(256, "int32 per packet", limits.PACKET)
    pool: int = key(512, "slots of each switch, a power of two", limits.SLOTS)
    slots: int = key(0, "of each job and tree, a power of two; 0: the pool, split evenly", limits.SLOTS)
    servers: int = key(1, "hosts that are parameter servers, for protocols that have them; each job is given to the nearest",
                       Range(1, 1024))
    slices: int = key(8, "of what a step of ring, tree or parameter-server moves: what has come is passed on before the rest",
                      Range(1, 256))
    flow: int = key(256, "window of a flow between two hosts, packets", Range(1, 65536, "packets", "packets"))
    transport: str = key("ideal", "of these flows: ideal (the window is always full) or dctcp (which needs ecn)",
                         choices=("ideal", "dctcp"))
    rto_min: float = key(0.0, "least retransmission time-out, s; 0: 100 us in virtual time, 10 ms in processes", limits.TIME)
    rto_max: float = key(0.0, "largest, s; 0: 10 ms in virtual time, 500 ms in processes", limits.TIME)
    rto: str = simulated.rto()
    check: str = key("", "how check words protect sums: off, sum or keyed; empty: sum, where the protocol has them and packets"
                         " have values", choices=("", *protocols.CHECKS))
    timeout: float = key(30.0, "seconds after which a tensor has failed", limits.TIME)
    sample: float = simulated.sample()
    payload: bool = key(True, simulated.PAYLOAD)

    def derived(self) -> dict[str, object]:
        least, largest = (100e-6, 10e-3) if self.world == "virtual" else (10e-3, 500e-3)
        check = protocols.default_check(self.protocol) if self.payload else protocols.CHECKS[0]
        return {"rto_min": self.rto_min or least, "rto_max": self.rto_max or largest, "check": self.check or check}

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        for name in ("loss", "duplicate", "reorder", "corrupt"):
            yield getattr(self, name) < 1, name, "a probability below 1"
        for name in ("pool", "slots"):
            yield limits.power_of_two(getattr(self, name)), name, "a power of two up to 16384"
        yield self.pool > 0, "pool", "1 or more"
        yield self.stripes == 1 or self.algorithm in STRIPED, "stripes", f"1 with {self.algorithm}"
        few = self.algorithm != "parameter-server" or self.stripes <= self.workers
        yield few, "stripes", "no more servers than workers"
        halved = self.algorithm != "halving-doubling" or limits.power_of_two(self.workers)
        yield halved, "workers", "a power of two with halving-doubling"
        yield self.algorithm == "in-network" or self.workers >= 2, "workers", f"at least 2 with {self.algorithm}"
        yield self.transport == "ideal" or self.ecn > 0, "ecn", "more than 0 with transport = 'dctcp'"
        reserved = self.algorithm == "in-network" and program_named(self.protocol).reserves
        shares = self.jobs * self.stripes if reserved else 1
        room = self.window >= 1 and (self.window * shares <= self.pool or not reserved)
        yield room, "pool", f"room for {shares} jobs"
        yield 0 < self.rto_min <= self.rto_max, "rto_min", "more than 0, and no more than rto_max"
        own = protocols.checks(self.protocol)
        yield self.check in own, "check", f"{' or '.join(own)} with {self.protocol}"
        yield self.payload or self.check == "off", "check", "off with payload = false: packets have no values"

    @property
    def most_workers(self) -> int:
        if self.algorithm == "in-network" and self.topology.split()[:1] == ["star"]:
            return super().most_workers
        return program_named(self.protocol).max_workers if self.algorithm == "in-network" else 1024

    @property
    def window(self) -> int:
        """Slots of each job and tree."""
        return self.window_of(self.jobs)

    def window_of(self, jobs: int) -> int:
        """Returns slots of each of so many jobs, and tree: ``slots``, or the largest power of two that all can have."""
        share = self.pool // (jobs * self.stripes)
        return min(LARGEST_WINDOW, self.slots or (1 << share.bit_length() >> 1))

    @property
    def work(self) -> str:
        """Work of each job, for the report."""
        raise NotImplementedError

    def describe(self, results: Sequence[Measured]) -> str:
        return (
            f"{html.escape(self.topology)}, {html.escape(self.algorithm)} ({self.stripes}); "
            f"{self.workers} workers in each of {self.jobs} jobs, {html.escape(self.work)}, wires of "
            f"{self.rate / 1e9:g} Gb/s and {self.delay * 1e6:g} us, loss {self.loss:g}, world <code>{self.world}</code>, "
            f"seed {self.seed}."
        )
