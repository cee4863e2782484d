"""Entries of p4/switchml.p4.

    job       (job)                                 -> set_job(full, last, base, mask, incarnation, group, strict)
    worker    (job, source address, port, ingress)  -> set_worker(bit)
    replica   (job, replication id)                 -> to_worker(mac, ip, port)
"""

from __future__ import annotations

from ina.control.programs.base import Child, JobProgram, Place, Sizes
from ina.switch.entities import Entity, TableEntry
from ina.switch.p4info import P4Info


class SwitchML(JobProgram):
    name = "switchml"
    max_children = 32  # bits of a slot's bitmap
    max_jobs = 256  # the header's job number has 8 bits
    max_slots = 8192  # slot numbers have 14 bits; a job's window is at most half of them

    def sizes(self, p4info: P4Info) -> Sizes | None:
        registers = p4info.registers.values()
        values = sum(r.name.startswith("SwitchIngress.values.value") for r in registers)
        bitmaps = next((r.size for r in registers if r.name.endswith(".bitmaps")), 0)
        return Sizes(values, bitmaps // 2) if values and bitmaps else None

    def job(self, place: Place) -> list[Entity]:
        params = {"full": (1 << place.children) - 1, "last": place.children - 1, "base": place.slot_base,
                  "mask": place.slots - 1, "incarnation": place.incarnation, "group": place.group,
                  "strict": int(place.strict)}
        return [TableEntry("job", {"hdr.switchml.job": place.number}, "set_job", params)]

    def child(self, place: Place, child: Child) -> list[Entity]:
        address = child.address
        match = {"hdr.switchml.job": place.number, "hdr.ipv4.src_addr": address.ip, "hdr.udp.src_port": address.port,
                 "standard.ingress_port": child.port}
        return [
            TableEntry("worker", match, "set_worker", {"worker": 1 << child.index}),
            TableEntry("replica", {"hdr.switchml.job": place.number, "standard.egress_rid": child.index}, "to_worker",
                       {"mac": address.mac, "ip": address.ip, "port": address.port}),
        ]
