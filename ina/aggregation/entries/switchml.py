"""Entries of p4/switchml.p4, and of its twin for Tofino, p4/tofino/switchml.p4, which has the same tables.

    job       (job)                                 -> set_job(full, last, base, mask, incarnation, life, group, strict,
                                                       parent)
    worker    (job, source address, port, ingress)  -> set_worker(bits) for a child, set_parent() for the switch above
    parent    (job)                                 -> to_parent(port, its address, own address)
    replica   (job, replication id)                 -> to_worker(mac, ip, port)

A child's bits are those of all workers below it, so a slot's bitmap names workers at every level of a tree. In a job of more
workers than there are bits each switch has one for each of its children, and `pending` frames name children of some switch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ina.aggregation.entries.base import Child, JobProgram, Place, child_entries, parent_entries
from ina.p4.runtime.entities import Entity, Match, TableEntry
from ina.p4.runtime.entity_error import EntityError


class SwitchML(JobProgram):
    name = "switchml"
    title = "SwitchML"
    tables: tuple[str, ...] = ("job", "worker", "parent", "replica")
    max_workers = 1024  # the codec's head-room; a switch of their tree has up to max_children
    max_jobs = 256  # the header's job number has 8 bits
    max_slots = 8192  # slot numbers have 14 bits; a job's window is at most half of them
    slot_registers = {"phase.incarnations": 2, "phase.tsis": 2, "phase.kinds": 2}  # a row for each set

    def job(self, place: Place) -> list[Entity]:
        key, parent = _key(place), place.parent
        params = {"full": place.full, "last": place.last, "base": place.slot_base,
                  "mask": place.slots - 1, "incarnation": place.incarnation, "life": place.life, "group": place.group,
                  "strict": int(place.strict), "parent": int(parent is not None)}
        return [TableEntry("job", key, "set_job", params), *(parent_entries(key, parent) if parent else ())]

    def child(self, place: Place, child: Child) -> list[Entity]:
        return child_entries(_key(place), child, place.bits(child))

    def held(self, read: Callable[[str], np.ndarray], places: Sequence[Place]) -> dict[int, int]:
        """Returns the number of slots with contributions of some children and not of all, in either set."""
        incarnations = read("SwitchIngress.phase.incarnations")
        try:
            incomplete = (read("SwitchIngress.phase.bitmaps") != 0) & (read("SwitchIngress.phase.missing") != 0)
        except EntityError:  # Tofino: by slot, in one pipe
            missing = [read(f"SwitchIngress.phase.missing.set{n}") for n in (0, 1)]
            incomplete = np.stack(missing, axis=-1).any(axis=0).reshape(-1) != 0
            incarnations = incarnations.max(axis=0)
        counts = {}
        for place in places:
            rows = slice(2 * place.slot_base, 2 * (place.slot_base + place.slots))
            open_rows = (incarnations[rows] == place.incarnation) & (incomplete[rows] != 0)
            counts[place.number] = int(open_rows.reshape(-1, 2).any(axis=1).sum())
        return counts


def _key(place: Place) -> dict[str, Match]:
    return {"hdr.switchml.job": place.number}


PROGRAM = SwitchML()
