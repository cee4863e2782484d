"""Entries of maximum.p4, and the result that its operation must have.

    job      (job)                                 -> set_job(full, incarnation, life, group)
    worker   (job, source address, port, ingress)  -> set_worker(bit)
    replica  (job, replication id)                 -> to_worker(mac, ip, port)
"""

import numpy as np

from ina.p4 import Entity, TableEntry
from ina.protocol import Child, JobProgram, Place, bits


class Maximum(JobProgram):
    name = title = "maximum"
    tables = ("job", "worker", "replica")
    max_workers, max_jobs, max_slots = 32, 256, 8192
    udp_port = 0xBEC2
    reserves = False  # each job has its two rows, by its number
    trees = False  # a job's workers are at one switch
    overflows = False  # the switch does not look whether sums fit

    def job(self, place: Place) -> list[Entity]:
        params = {"full": place.full, "incarnation": place.incarnation, "life": place.life, "group": place.group}
        return [TableEntry("job", {"hdr.maximum.job": place.number}, "set_job", params)]

    def reduced(self, tensors: np.ndarray) -> np.ndarray | None:
        """Returns the result of the workers' int32 ``tensors`` (a row each); None: of floats there is none."""
        return tensors.max(axis=0) if tensors.dtype == np.int32 else None

    def child(self, place: Place, child: Child) -> list[Entity]:
        at, job = child.address, {"hdr.maximum.job": place.number}
        source = {"hdr.ipv4.src_addr": at.ip, "hdr.udp.src_port": at.port, "standard.ingress_port": child.port}
        return [TableEntry("worker", job | source, "set_worker", {"worker": bits(child.workers)}),
                TableEntry("replica", job | {"standard.egress_rid": child.index}, "to_worker",
                           {"mac": at.mac, "ip": at.ip, "port": at.port})]


PROGRAM = Maximum()
