"""Networks in virtual time: the compiled switch program and the real workers on links of any rate, in one thread and without a
clock.

    program = ina.p4.compile("p4/switchml.p4", defines={"VALUES": 256})
    with Star(program, up=Wire(rate=100e9, delay=1e-6), down=Wire(rate=100e9, delay=1e-6)) as star:
        job = star.admit(workers=8, slots=128)
        outcome = star.all_reduce(job, arrays)

The same arguments and seeds give the same results on every machine, to the bit and the picosecond.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.controller.job_records import AdmissionError
from ina.aggregation.entries import program_named, recognise
from ina.aggregation.worker.errors import JobError
from ina.net.ports import PS, Faults
from ina.p4.compiler.compiled import CompiledProgram
from ina.topology import Topology
from ina.worlds.virtual import collectives, fabric
from ina.worlds.virtual.fabric import FabricJob, Traffic, Unbalanced
from ina.worlds.virtual.network import Wire

__all__ = ["AdmissionError", "Fabric", "Faults", "Job", "JobError", "Outcome", "Star", "Traffic", "Unbalanced", "Wire"]

NO_FAULTS = Faults()
UNLIMITED = Wire()


@dataclass(frozen=True)
class Job:
    """A job that a network has admitted: its `name`, and the host of each worker, in their order."""

    name: str
    hosts: tuple[str, ...]
    _job: FabricJob = field(repr=False)


@dataclass(frozen=True)
class Outcome:
    """One all-reduce. `seconds` of virtual time from the first worker's start to the end of the last; `finished`: for each
    worker, the seconds until it had the whole sum."""

    seconds: float
    finished: tuple[float, ...]


class _Network:
    """Parts that all networks have."""

    def __init__(self, network: fabric.Fabric):
        self._fabric = network

    @property
    def topology(self) -> Topology:
        """The network's nodes and links."""
        return self._fabric.topology

    @property
    def now(self) -> float:
        """Virtual time in seconds, from 0 when the network was made."""
        return self._fabric.now / PS

    def _values(self, values: int | None) -> int:
        """Returns ``values``, by default those that a packet of the program has."""
        if values is not None:
            return values
        program = next(iter(self._fabric.switch_at.values())).program
        recognised = recognise(program.p4info)
        if recognised is None:
            raise ValueError(f"{program.name}: no annotation @ina_program of a protocol of the package: give values=")
        return recognised[1].values

    def all_reduce(self, job: Job, arrays: Sequence[np.ndarray], *, average: bool = False,
                   starts: Sequence[float] | None = None) -> Outcome:
        """Sums the workers' arrays, one for each, in place, and lets time pass until nothing is left to do.

        ``arrays``: contiguous, int32 (sums wrap) or float32 (rounded to a common exponent for each packet), of one dtype and
        size. ``average``: the sum over the number of workers. ``starts``: seconds from now at which each worker begins.

        Raises JobError: a worker gave up (JobTimeout, ...). ValueError: other than one array for each worker.
        """
        inner = job._job
        if len(arrays) != len(job.hosts) or (starts is not None and len(starts) != len(job.hosts)):
            raise ValueError(f"{job.name}: {len(arrays)} arrays{f' and {len(starts)} starts' if starts is not None else ''}, "
                             f"expected one for each of {len(job.hosts)} workers")
        delays = None if starts is None else [round(start * PS) for start in starts]
        began = self._fabric.now + min(delays or [0])
        outcome = self._fabric.all_reduce(inner, arrays, average=average, starts=delays)
        outcome.raise_failed()
        rank = {machine: worker for stripe in inner.stripes for worker, machine in enumerate(stripe)}
        finished = [0] * len(job.hosts)
        for completion in outcome.completions:
            worker = rank[completion.machine]
            finished[worker] = max(finished[worker], completion.time - began)
        return Outcome(max(finished) / PS, tuple(time / PS for time in finished))

    def links(self) -> list[Traffic]:
        """Returns what each direction of each link has carried so far, in the topology's order."""
        return self._fabric.links()

    def drops(self) -> dict[str, int]:
        """Returns the packets that were dropped other than by the program, by reason: `tail` (at a full queue), `no_buffer`,
        `wire` (lost on links), ..."""
        return self._fabric.drops()

    def check(self) -> None:
        """Checks that packets and bytes are conserved on every link, and that waiting times and queue lengths agree. Raises
        Unbalanced, which names the link and both figures."""
        self._fabric.check()

    def close(self) -> None:
        """Frees the network; closing twice is fine. `with` does it at the block's end."""
        self._fabric.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Star(_Network):
    """Hosts around one switch.

    ``program``: for the switch (`ina.p4.compile`, or the path of a shared object). ``up``, ``down``: each host's wire to the
    switch and back. ``pool``: slots of the switch, which jobs share (default: all that the program has; ValueError: it has
    fewer); ``latency``: of the switch, in seconds; ``seed``: of all that is random.
    """

    def __init__(self, program: CompiledProgram | str | os.PathLike[str], *, hosts: int = 32, up: Wire = UNLIMITED,
                 down: Wire = UNLIMITED, pool: int | None = None, latency: float = 0.0, seed: int = 0):
        super().__init__(fabric.Star(program, hosts=hosts, up=up, down=down, pool=pool, latency=latency, seed=seed))

    def admit(self, workers: int, *, slots: int = 64, values: int | None = None, rto_min: float = 1e-3,
              timeout: float = 30.0, check: str = "") -> Job:
        """Admits a job of so many ``workers``, at the next free hosts.

        ``slots``: a power of two, the job's window; ``values``: integers in a packet, None: those of the program; ``rto_min``:
        least retransmission time-out, and ``timeout``: after which a worker gives up, both in seconds; ``check``: how check words
        protect sums from worker to worker: "off", "sum" or "keyed" (default: sum, where the protocol has them). Raises
        AdmissionError (no slots are left, say) or ValueError (no hosts are left, or an argument is out of range).
        """
        assert isinstance(self._fabric, fabric.Star)
        job = self._fabric.admit(workers, slots, self._values(values), rto_min=rto_min, rto_max=max(0.1, rto_min),
                                 timeout=timeout, check=check)
        return Job(job.name, job.hosts, job)


class Fabric(_Network):
    """A network of any topology, with a switch at each of its switches.

    ``program``: the same for all switches (`ina.p4.compile`, or the path of a shared object); ``protocol``: its protocol's name,
    or the path of one's own program; one with a parameter server is a ValueError (`ina.experiment` has those). Links have the
    topology's rate, delay, queue and loss. ``pool``: slots of each switch, which jobs share (default: all that the program has;
    ValueError: it has fewer); ``latency``: of each, in seconds; ``ecn``: bytes in a queue from which on frames are marked (0:
    never); ``faults``: of every link, besides its own loss; ``seed``: of all that is random.
    """

    def __init__(self, program: CompiledProgram | str | os.PathLike[str], topology: Topology, *,
                 protocol: str = protocols.DEFAULT, pool: int | None = None, latency: float = 0.0, ecn: int = 0,
                 faults: Faults = NO_FAULTS, seed: int = 0):
        if program_named(protocol).needs_server:
            raise ValueError(f"protocol {protocol!r}: it needs a parameter server, which experiments start (ina.experiment)")
        super().__init__(fabric.Fabric(program, topology, protocol=protocol, pool=pool, latency=latency, ecn=ecn, faults=faults,
                                       seed=seed))

    def _hosts(self, hosts: Sequence[str]) -> Sequence[str]:
        """Returns ``hosts``. ValueError: one is not in the topology."""
        names = {node.name for node in self.topology.hosts}
        if missing := [host for host in hosts if host not in names]:
            raise ValueError(f"{self.topology.name}: there is no host {missing[0]!r}; it has {', '.join(sorted(names)[:8])}, ...")
        return hosts

    def admit(self, hosts: Sequence[str], *, slots: int = 64, values: int | None = None, stripes: int = 1, name: str = "",
              rto_min: float = 1e-3, timeout: float = 30.0, check: str = "") -> Job:
        """Admits a job of a worker at each of ``hosts``, whose sums are made along a tree of switches.

        ``stripes``: parts of a tensor that go over trees of their own; other arguments as of Star.admit. Raises AdmissionError
        (no slots, or no tree) or ValueError (no such host, or an argument is out of range).
        """
        job = self._fabric.admit(self._hosts(hosts), slots, self._values(values), name=name, stripes=stripes, rto_min=rto_min,
                                 rto_max=max(0.1, rto_min), timeout=timeout, check=check)
        return Job(job.name, job.hosts, job)

    def ring(self, hosts: Sequence[str], *, values: int = 256, window: int = 64, rto: float = 1e-3, timeout: float = 30.0,
             name: str = "") -> Job:
        """Makes a job that sums along a ring of ``hosts``, without the switches' help: the baseline.

        ``values``: of a packet; ``window``: packets under way from each host to the next; ``rto``: retransmission time-out,
        ``timeout``: after which a host gives up a tensor, both in seconds. ValueError: there is no such host.
        """
        schedule = collectives.ring([range(len(self._hosts(hosts)))])
        job = self._fabric.collective(hosts, schedule, values, name=name, window=window, rto=rto, timeout=timeout)
        return Job(job.name, job.hosts, job)
