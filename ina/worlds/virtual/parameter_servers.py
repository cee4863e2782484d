"""Parameter servers in a fabric: for protocols whose jobs have one above the root of their tree.

    servers = Servers(fabric)
    servers.add("h9")                       # roots of trees are now its switch
    job = fabric.admit(["h1", "h2", "h3"], slots=64, values=256)
    servers.serve(job, values=256)
"""

from __future__ import annotations

import os

from ina.aggregation.controller.admission import Job, switch_address
from ina.aggregation.entries import Parent
from ina.aggregation.ps.state_machine import ServerConfig
from ina.aggregation.worker import SERVER
from ina.aggregation.worker.block import stats_dict
from ina.base.native import ffi, lib
from ina.net.ports import Address
from ina.worlds.virtual.fabric import Fabric, FabricJob
from ina.worlds.virtual.network import Network


class Server:
    """One parameter server, at ``host``: the counterpart in virtual time of ina/aggregation/ps/server.py. ``parent``: its
    place above the root of a tree."""

    def __init__(self, fabric: Fabric, host: str):
        self.fabric, self.host, self.switch = fabric, host, fabric.topology.switch_of(host)
        self.jobs: dict[int, ServerConfig] = {}  # by number
        node, port = next((node, end.port) for node, _, end in fabric.topology.host_links(self.switch) if node.name == host)
        own = switch_address(self.switch, fabric.controller.program.udp_port)
        self.parent = Parent(port, Address(node.mac, node.ip, SERVER.port), own)
        self._native = ffi.gc(lib.ina_ps_jobs_create(), lib.ina_ps_jobs_destroy)
        # Network's method, not Fabric's: a server and its switch are neighbours, so nothing is forwarded.
        machine = ffi.addressof(lib.ina_ps_machine)
        self._machine = Network.add_machine(fabric, fabric.host(host), machine, self._native, SERVER.port, lib.INA_BITMAP_WORKERS)

    def add(self, config: ServerConfig) -> None:
        """Serves another job. OSError: its number is in use, or there is no memory for it."""
        self._check(lib.ina_ps_jobs_add(self._native, config.to_c(), self.fabric.now), config.job)
        self.jobs[config.job] = config

    def remove(self, number: int) -> None:
        """Ends a job. OSError: there is none of that number."""
        self._check(lib.ina_ps_jobs_remove(self._native, number), number)
        del self.jobs[number]

    def forget(self) -> None:
        """Loses all sums; the jobs stay."""
        for config in list(self.jobs.values()):
            self.remove(config.job)
            self.add(config)

    def stats(self, number: int) -> dict[str, int]:
        """Returns counters of a job (``struct ina_ps_stats``). OSError: there is none of that number."""
        stats = ffi.new("struct ina_ps_stats *")
        self._check(lib.ina_ps_jobs_stats(self._native, number, stats), number)
        return stats_dict(stats)

    def close(self) -> None:
        """Ends like a process that is killed; its place at the host is free."""
        self.fabric.stop_machine(self._machine)

    def _check(self, error: int, number: int) -> None:
        if error < 0:
            raise OSError(-error, f"parameter server at {self.switch}, job {number}: {os.strerror(-error)}")


class Servers:
    """The servers of one fabric, at most one at each switch; each serves any number of jobs."""

    def __init__(self, fabric: Fabric):
        self.fabric = fabric
        self._servers: dict[str, Server] = {}  # by the switch that they are at
        self._root: dict[int, str] = {}  # by job number

    def add(self, host: str) -> None:
        """Adds a server at ``host``: jobs whose tree has the host's switch as its root are its own."""
        server = Server(self.fabric, host)
        self._servers[server.switch] = server
        self.fabric.controller.servers[server.switch] = server.parent

    def serve(self, job: FabricJob, values: int) -> None:
        """Serves a job of ``fabric.admit``, with the same ``values``."""
        for admitted in job.jobs:
            self._serve(admitted, values)

    def _serve(self, job: Job, values: int) -> None:
        assert job.tree is not None  # the controller has placed it
        server = self._servers[job.tree.root]
        server.add(self.fabric.server_config(job, server.parent.address, server.parent.own, values))
        self._root[job.number] = job.tree.root

    def replace(self, old: Job, moved: Job, values: int) -> None:
        """Serves a job that was moved, and no longer what it was before."""
        self._servers[self._root.pop(old.number)].remove(old.number)
        self._serve(moved, values)

    def stats(self, number: int) -> dict[str, int]:
        """Returns counters of a job's server (``struct ina_ps_stats``), by the job's number."""
        return self._servers[self._root[number]].stats(number)
