"""Parameter servers in a fabric: for protocols whose jobs have one above the root of their tree.

    servers = Servers(fabric)
    servers.add("h9")                       # roots of trees are now its switch
    job = fabric.admit(["h1", "h2", "h3"], slots=64, values=256)
    servers.serve(job, slots=64, values=256)
"""

from __future__ import annotations

import os

from ina.control.controller import switch_address
from ina.control.programs import Parent
from ina.emulator.fabric import Fabric, FabricJob
from ina.emulator.network import Network
from ina.native import ffi, lib
from ina.transport import SERVER, Address
from ina.transport.block import stats_dict
from ina.transport.parameter_server import ServerConfig


class Servers:
    """The servers of one fabric, at most one at each switch; each serves any number of jobs."""

    def __init__(self, fabric: Fabric):
        self.fabric = fabric
        self._jobs: dict[str, ffi.CData] = {}  # by the switch that they are at
        self._root: dict[int, str] = {}  # by job number

    def add(self, host: str) -> None:
        """A server at ``host``: jobs whose tree has the host's switch as its root are its own."""
        fabric, controller = self.fabric, self.fabric.controller
        switch = fabric.topology.switch_of(host)
        node, port = next((node, end.port) for node, _, end in fabric.topology.host_links(switch) if node.name == host)
        jobs = ffi.gc(lib.ina_ps_jobs_create(), lib.ina_ps_jobs_destroy)
        # Network's, not Fabric's: a server and its switch speak to each other, and nothing is forwarded.
        machine = ffi.addressof(lib.ina_ps_machine)
        Network.add_machine(fabric, fabric.host(host), machine, jobs, SERVER.port, lib.INA_BITMAP_WORKERS)
        self._jobs[switch] = jobs
        own = switch_address(switch, controller.program.udp_port)
        controller.servers[switch] = Parent(port, Address(node.mac, node.ip, SERVER.port), own)

    def serve(self, job: FabricJob, slots: int, values: int) -> None:
        """What ``fabric.admit`` has admitted, with the same ``slots`` and ``values``."""
        controller = self.fabric.controller
        for admitted in job.jobs:
            root = admitted.tree.root
            parent = controller.servers[root]
            config = ServerConfig(workers=admitted.workers, job=admitted.number, life=admitted.life, slots=slots,
                                  values=values, multicast=controller.program.multicasts, address=parent.address,
                                  switch=parent.own)  # fmt: skip
            error = lib.ina_ps_jobs_add(self._jobs[root], config.to_c(), self.fabric.now)
            if error < 0:
                raise OSError(-error, f"parameter server at {root}, job {admitted.name!r}: {os.strerror(-error)}")
            self._root[admitted.number] = root

    def stats(self, number: int) -> dict[str, int]:
        """Counters of a job's server (``struct ina_ps_stats``), by the job's number."""
        stats = ffi.new("struct ina_ps_stats *")
        error = lib.ina_ps_jobs_stats(self._jobs[self._root[number]], number, stats)
        if error < 0:
            raise OSError(-error, f"job {number}: {os.strerror(-error)}")
        return stats_dict(stats)
