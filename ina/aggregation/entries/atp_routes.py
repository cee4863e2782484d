"""Entries of p4/atp_routes.p4: ATP's, and the workers below each child, so that values go to receivers only.

    ranks     (job, replication id)                 -> set_below(bits of the workers below the child)
"""

from __future__ import annotations

from ina.aggregation.entries.atp import ATP
from ina.aggregation.entries.base import Child, Place
from ina.p4.runtime.entities import Entity, TableEntry


class Routes(ATP):
    name = "atp_routes"
    title = "ATP with receivers"
    tables = (*ATP.tables, "ranks")

    def child(self, place: Place, child: Child) -> list[Entity]:
        key = {"hdr.atp.job": place.number, "standard.egress_rid": child.index}
        return [*super().child(place, child), TableEntry("ranks", key, "set_below", {"ranks": place.bits(child)})]


PROGRAM = Routes()
