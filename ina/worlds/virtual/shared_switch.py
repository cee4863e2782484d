"""Jobs that share one switch in virtual time, each with a parameter server at a host of its own if its protocol has one.

    with Shared(program, ATP(lifetime=5e-3), hosts=18, wire=Wire(rate=100e9, delay=1e-6), pool=128) as network:
        jobs = [network.admit(f"job {i}", workers=8, slots=128, values=256) for i in range(2)]
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Unpack

from ina.aggregation.controller.admission import Controller, Job
from ina.aggregation.entries import JobProgram, Parent, pool_of
from ina.aggregation.ps.state_machine import ServerConfig
from ina.aggregation.worker import SERVER, SWITCH
from ina.aggregation.worker.block import stats_dict
from ina.base.native import CData, ffi, lib
from ina.net.ports import Address
from ina.topology import Node, load
from ina.worlds.virtual.fabric import Fabric, Source, WorkerOptions
from ina.worlds.virtual.network import Wire


@dataclass(frozen=True)
class SharedJob:
    """A job. ``machines``: of the workers in order, at ``hosts``; ``server``: the host of the parameter server, "": there is
    none."""

    job: Job
    hosts: tuple[str, ...]
    machines: tuple[int, ...]
    server: str


class Shared(Fabric):
    """``hosts`` around one switch whose program speaks ``protocol``; jobs take the next free ones.

    ``wire``: of each host, both ways, but ``slow`` times slower at those hosts (numbers from 0) that it names. ``buffer``: of the
    switch, bytes.
    """

    def __init__(
        self, program: Source, protocol: JobProgram, *, hosts: int, wire: Wire, buffer: int = 0, pool: int, latency: float = 0.0,
        seed: int = 0, slow: Mapping[int, float] | None = None, payload: bool = True,
    ):
        self._wire, self._slow = wire, dict(slow or {})
        super().__init__(program, replace(load("star", hosts=hosts), buffer=buffer), pool=pool, latency=latency, seed=seed,
                         faults=wire.faults, payload=payload)
        pool = pool_of(protocol, self.switch_at["s1"].program.p4info, pool)
        self.controller = Controller(self.switch_at["s1"], pool, protocol, self.topology, random.Random(seed))
        self._free = list(self.topology.hosts)
        self._servers: dict[int, CData] = {}  # by job number

    def wire(self, link: int, direction: int) -> Wire:
        faults = replace(self._wire.faults, seed=self._fault_seed(link, direction))
        queue = self.nic if self.topology.ends[link][direction].node[0] == "h" else self._wire.queue  # as Fabric.wire
        return replace(self._wire, faults=faults, queue=queue, rate=self._wire.rate / self._slow.get(link, 1.0))

    def admit(  # type: ignore[override]
        self, name: str, workers: int, slots: int, values: int, **options: Unpack[WorkerOptions]
    ) -> SharedJob:
        """Admits a job with a host for each worker, and one more for its parameter server; `options` are those of
        WorkerConfig."""
        program = self.controller.program
        needed = workers + program.needs_server
        if len(self._free) < needed:
            raise ValueError(f"{name}: {needed} hosts, but only {len(self._free)} of {len(self.topology.hosts)} are free")
        hosts, self._free = self._free[:needed], self._free[needed:]
        switch, server = replace(SWITCH, port=program.udp_port), None
        if program.needs_server:
            server = Address(hosts[-1].mac, hosts[-1].ip, SERVER.port)
            self.controller.servers["s1"] = Parent(self._port(hosts[-1]), server, switch)
        job = self.controller.admit(name, workers, slots, hosts=[host.name for host in hosts[:workers]],
                                    check=self.check_words(options))
        if server is not None:
            self._add_server(hosts[-1].name, self.server_config(job, server, switch, values))
        machines = []
        options.pop("check", None)  # admission has decided it
        for index, host in enumerate(hosts[:workers]):
            self.controller.attach(job, index, self._port(host))
            worker = job.config(index, switch, values=values, lane=self.lane, protocol=program.name, **options)
            machines.append(self.add_worker(self.host(host.name), worker))
        names = tuple(host.name for host in hosts)
        return SharedJob(job, names[:workers], tuple(machines), names[workers] if server else "")

    def _port(self, host: Node) -> int:
        """Returns the switch's port towards the host."""
        return self.topology.ends[host.number - 1][1].port

    def _add_server(self, host: str, config: ServerConfig) -> None:
        jobs = ffi.gc(lib.ina_ps_jobs_create(), lib.ina_ps_jobs_destroy)
        self._check(lib.ina_ps_jobs_add(jobs, config.to_c(), self.now), f"parameter server of job {config.job}")
        self.add_machine(self.host(host), ffi.addressof(lib.ina_ps_machine), jobs, config.address.port, config.workers)
        self._servers[config.job] = jobs

    def server_stats(self, job: SharedJob) -> dict[str, int]:
        """Returns counters of the job's parameter server (``struct ina_ps_stats``)."""
        stats = ffi.new("struct ina_ps_stats *")
        self._check(lib.ina_ps_jobs_stats(self._servers[job.job.number], job.job.number, stats), job.job.name)
        return stats_dict(stats)
