"""The published SwitchML program for Tofino (p4lang/p4app-switchML, dev_root/p4/switchml.p4) with the entries that its own
controller writes, for workers of the protocol "switchml".

    next_step            (size, worker, packet type, first/last, bitmap)  -> the packet's next step: once, for the switch
    switch_mac_and_ip    default                                          -> the source address of results: once
    receive_udp          (addresses, UDP port)                            -> set_bitmap(group, worker, workers, bit)
    dst_addr             (worker)                                         -> set_dst_addr(mac, ip)

It takes packets of 64 and of 256 values. 64 stay in pipe 0, with one more pass for half of a result; 256 go through all four
pipes, one for each 64, and come back for 32 at a time, by loopback ports. It keeps no phases: a duplicate that is late by two is
added again, sums wrap silently, and one job has the switch (docs/design/tna-programs.md). It lacks packets without values, with
which our workers agree on the exponents of floats: integers only.
"""

from __future__ import annotations

from ina.aggregation.entries.base import Child, JobProgram, Place, Sizes
from ina.aggregation.worker import SWITCH
from ina.p4.runtime.entities import Entity, Match, RegisterEntry, TableEntry, Update, insert, modify
from ina.p4.runtime.p4info import P4Info

UDP = 1  # worker_type
BITS = {"packet_size": 3, "worker_id": 16, "packet_type": 4, "first_last_flag": 8, "map_result": 32}
CONSUME, HARVEST = 4, 8  # the first of the packet types of these names
FIRST, LAST = 0, 1
# Loopback ports for each harvest: in pipes 3, 2, 2, 1, 1, 0, 0. The published controller names port 448 for
# the third (controller/next_step_selector.py), which is in pipe 3: then values 128 to 159 of a result are those of 192 to 223.
HARVEST_PORTS = (0, 452, 324, 324, 196, 192, 64, 68)
CONSUMED_AT = 16  # packets of 256 values go on to pipe 1 by one port for each worker, four apart


class Published(JobProgram):
    name = "switchml"
    title = "SwitchML as published"
    trees = False
    tables = ("receive_udp", "dst_addr")
    max_workers = max_children = CONSUMED_AT
    max_jobs = 1  # slots do not belong to jobs
    max_slots = 8192
    payloads = (64, 256)
    pipes = 4
    loopback = sorted({*(pipe << 7 | 4 * worker for pipe in (1, 2, 3) for worker in range(CONSUMED_AT)),
                       *(port for port in HARVEST_PORTS[1:] if port % 128 < 68)})
    ports = range(64)  # packets from other ports count as recirculated
    only_local = "the published SwitchML program has one switch with one address: it runs in the local world"

    def sizes(self, p4info: P4Info) -> Sizes | None:
        if not any(table.name.endswith("next_step_selector.next_step") for table in p4info.tables.values()):
            return None
        slots = next((r.size for r in p4info.registers.values() if r.name.endswith(".worker_bitmap")), 0)
        return Sizes(self.payloads[0], slots) if slots else None

    def setup(self) -> list[Update]:
        """Returns entries for the switch, independent of jobs."""
        own = TableEntry("Egress.udp_sender.switch_mac_and_ip", {}, "Egress.udp_sender.set_switch_mac_and_ip",
                         {"switch_mac": SWITCH.mac, "switch_ip": SWITCH.ip}, is_default=True)
        return [*insert(*_next_steps()), *modify(own)]

    def clear(self, place: Place) -> list[Update]:
        """Clears the bitmaps and counts of workers of the job before."""
        registers = "update_and_check_worker_bitmap.worker_bitmap", "workers_counter.workers_count"
        return modify(*(RegisterEntry(f"Ingress.{name}.{word}") for name in registers for word in ("first", "second")))

    def job(self, place: Place) -> list[Entity]:
        return []

    def child(self, place: Place, child: Child) -> list[Entity]:
        address = child.address
        match: dict[str, Match] = {
            "hdr.ethernet.src_addr": address.mac, "hdr.ethernet.dst_addr": SWITCH.mac, "hdr.ipv4.src_addr": address.ip,
            "hdr.ipv4.dst_addr": SWITCH.ip, "hdr.udp.dst_port": (SWITCH.port, 0xFFF0),
        }
        worker = {"mgid": place.group, "worker_type": UDP, "worker_id": child.index, "num_workers": place.last + 1,
                  "worker_bitmap": 1 << child.index}
        return [
            TableEntry("receive_udp", match, "Ingress.udp_receiver.set_bitmap", worker, priority=10),
            TableEntry("Egress.udp_sender.dst_addr", {"eg_md.switchml_md.worker_id": child.index},
                       "Egress.udp_sender.set_dst_addr", {"eth_dst_addr": address.mac, "ip_dst_addr": address.ip}),
        ]


def _next_steps() -> list[TableEntry]:
    """Returns the published controller's entries for packets of 256 B and 1024 B, in its order: the first match counts."""
    small, large = 1, 3  # packet_size
    steps: list[tuple[dict[str, int], str, int | None]] = [
        ({"packet_size": small, "packet_type": CONSUME, "first_last_flag": LAST}, "recirculate_for_HARVEST7", HARVEST_PORTS[7]),
        ({"packet_size": small, "packet_type": CONSUME, "map_result": 0}, "finish_consume", None),
        ({"packet_size": small, "packet_type": CONSUME, "first_last_flag": FIRST}, "recirculate_for_HARVEST7", HARVEST_PORTS[7]),
        ({"packet_size": small, "packet_type": CONSUME}, "drop", None),
    ]
    to_next = {"packet_size": large, "packet_type": CONSUME}
    for condition in ({"map_result": 0}, {"first_last_flag": FIRST}):  # a new contribution, or to a full slot: the same step
        steps += [({**to_next, **condition, "worker_id": worker}, "recirculate_for_CONSUME1", 1 << 7 | 4 * worker)
                  for worker in range(CONSUMED_AT)]
    steps += [
        (to_next, "drop", None),
        ({"packet_size": large, "packet_type": CONSUME + 1}, "recirculate_for_CONSUME2_same_port_next_pipe", None),
        ({"packet_size": large, "packet_type": CONSUME + 2}, "recirculate_for_CONSUME3_same_port_next_pipe", None),
    ]
    consumed = {"packet_size": large, "packet_type": CONSUME + 3}
    steps += [
        ({**consumed, "first_last_flag": LAST}, "recirculate_for_HARVEST1", HARVEST_PORTS[1]),
        ({**consumed, "map_result": 0}, "finish_consume", None),
        ({**consumed, "first_last_flag": FIRST}, "recirculate_for_HARVEST1", HARVEST_PORTS[1]),
        (consumed, "drop", None),
    ]
    steps += [({"packet_size": large, "packet_type": HARVEST + n}, f"recirculate_for_HARVEST{n + 1}", HARVEST_PORTS[n + 1])
              for n in range(7)]
    harvested = {"packet_type": HARVEST + 7}
    steps += [
        ({**harvested, "first_last_flag": LAST, "map_result": 0}, "broadcast", None),
        ({**harvested, "first_last_flag": FIRST, "map_result": 0}, "drop", None),
        ({**harvested, "first_last_flag": FIRST}, "retransmit", None),
        (harvested, "drop", None),
    ]
    count = len(steps)
    return [
        TableEntry("next_step", {f"ig_md.switchml_md.{key}": (value, (1 << BITS[key]) - 1) for key, value in match.items()},
                   f"Ingress.next_step_selector.{action}", {} if port is None else {"recirc_port": port}, priority=count - n)
        for n, (match, action, port) in enumerate(steps)
    ]


PROGRAM = Published()
