"""Entries of p4/receivers.p4: SwitchML's, and the workers below each child, so that values go to receivers only.

    ranks     (job, replication id)                 -> set_below(bits of the workers below the child)
"""

from __future__ import annotations

from ina.aggregation.entries.base import BITMAP, Child, Place
from ina.aggregation.entries.switchml import SwitchML
from ina.p4.runtime.entities import Entity, TableEntry


class Receivers(SwitchML):
    name = "receivers"
    title = "SwitchML with receivers"
    tables = (*SwitchML.tables, "ranks")
    max_workers = BITMAP  # a packet has a bit for each that may be a receiver

    def child(self, place: Place, child: Child) -> list[Entity]:
        key = {"hdr.switchml.job": place.number, "standard.egress_rid": child.index}
        return [*super().child(place, child), TableEntry("ranks", key, "set_below", {"ranks": place.bits(child)})]


PROGRAM = Receivers()
