"""Entries of p4/atp.p4, and of its twin for Tofino, p4/tofino/atp.p4, which has the same tables: jobs share all aggregators, and
a parameter server is above every root.

    job       (job)                                 -> set_job(full, incarnation, life, group, aggregate, ecn_depth, lifetime)
    worker    (job, source address, port, ingress)  -> set_worker(bits) for a child, set_parent() for the parent
    parent    (job)                                 -> to_parent(port, its address, own address)
    replica   (job, replication id)                 -> to_worker(mac, ip, port)
    one       (job, a worker's bit)                 -> to_child(port, address): the route to one worker

A child's bits are those of all workers below it, so a bitmap names workers at every level of a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ina.aggregation.entries.base import Child, JobProgram, Place, bits, child_entries, parent_entries
from ina.p4.runtime.entities import Entity, Match, TableEntry
from ina.p4.runtime.entity_error import EntityError


class ATP(JobProgram):
    """``ecn_depth``: packets in an egress queue from which congestion is marked, 0: never. ``lifetime``: seconds after which a
    job may take over another's aggregator: longer than any packet or retransmission is in flight."""

    name = "atp"
    title = "ATP"
    tables: tuple[str, ...] = ("job", "worker", "parent", "replica", "one")
    max_workers = 32  # bits of an aggregator's bitmap
    max_jobs = 256  # the header's job number has 8 bits
    max_slots = 8192  # of a window
    last_life = 2**16 - 1
    number_bits = 40
    udp_port = 0xBEF0
    job_byte = 6
    reserves = False
    needs_server = True
    floats = True
    aggregates = True
    slot_registers = {"aggregator.owners": 1, "aggregator.stamps": 1, "aggregator.kinds": 1}

    def __init__(self, ecn_depth: int = 64, lifetime: float = 0.5):
        self.ecn_depth, self.lifetime = ecn_depth, lifetime

    def job(self, place: Place) -> list[Entity]:
        if place.parent is None:
            raise ValueError(f"job {place.number}: the protocol {self.name!r} needs a parameter server above its root")
        key: dict[str, Match] = {"hdr.atp.job": place.number}
        job = {"full": place.full, "incarnation": place.incarnation, "life": place.life, "group": place.group,
               "aggregate": int(self.aggregates), "ecn_depth": self.ecn_depth, "lifetime": round(self.lifetime * 1e6)}
        return [TableEntry("job", key, "set_job", job), *parent_entries(key, place.parent)]

    def child(self, place: Place, child: Child) -> list[Entity]:
        address, key = child.address, dict[str, Match]({"hdr.atp.job": place.number})
        return [
            *child_entries(key, child, bits(child.workers)),
            *(TableEntry("one", key | {"hdr.atp.bitmap": 1 << worker}, "to_child",
                         {"port": child.port, "mac": address.mac, "ip": address.ip, "udp_port": address.port})
              for worker in child.workers),
        ]

    def held(self, read: Callable[[str], np.ndarray], places: Sequence[Place]) -> dict[int, int]:
        """Returns the number of aggregators whose bitmap is not empty, by the job that has claimed them."""
        try:
            owners = read("SwitchIngress.aggregator.owners")[read("SwitchIngress.aggregator.bitmaps") != 0]
            incarnations = owners >> np.uint64(32)
        except EntityError:  # Tofino: in two words, and with a mark
            owners = read("SwitchIngress.aggregator.owners.incarnation")
            incarnations = owners[read("SwitchIngress.aggregator.holds.held") != 0]
        return {place.number: int((incarnations == place.incarnation).sum()) for place in places}


PROGRAM = ATP()
