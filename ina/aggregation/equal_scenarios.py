"""Scenarios of our protocols for `ina p4 equal`: what their controller writes for two small jobs, and packets of their workers.

One job has two workers and this switch as its root, the other a worker and a switch below and a parent above; a port is in a
Tofino's second pipe. Of a protocol of the user's own its .py says the entries; packets for it are made from its parser.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ina.aggregation.entries import PUBLISHED, JobProgram, recognise
from ina.aggregation.entries.atp import ATP
from ina.aggregation.entries.base import Child, Parent, Place
from ina.aggregation.wire import layout
from ina.aggregation.worker import worker_address
from ina.aggregation.worker.config import SERVER, SWITCH
from ina.net.ports import Address
from ina.p4.runtime.entities import Entity, Match, MulticastGroupEntry, Replica, TableEntry, as_int
from ina.p4.runtime.p4info import P4Info
from ina.p4.tools.equal.control import entities
from ina.p4.tools.equal.packets import Limits, Packet, checksum
from ina.p4.tools.equal.scenario import Scenario

DEFINES = {"VALUES": "32", "SLOTS": "4"}  # where nobody says others: small states, and registers that are soon met again
SLOTS = 2  # of each job
ABOVE, FAR, GUARDED = 6, 130, 4
PORTS = (0, 1, 2, 3, GUARDED, ABOVE, FAR)
LIFETIME = 0.0035  # of an aggregator: packets come each millisecond
COUNTERS = ("drops", "fates", "forged")
NUMBERS = {"atp.sequence": 2**31 - 1}  # differences that are meant, as `whole` is: docs/tna-programs.md
LARGEST = 2**31 - 1
VECTORS = ((LARGEST, 5, 2**32 - 7), (1, 9, 2**32 - 2), (2**31, 4, 3), (2**31 - 5, 2**32 - 1, 0))  # one for each child


@dataclass(frozen=True)
class _Job:
    place: Place
    children: tuple[Child, ...]

    @property
    def number(self) -> int:
        return self.place.number


def scenario_of(p4info: dict[str, Any], path: Path) -> Callable[[dict[str, Any]], Scenario] | None:
    """Maker of the scenario of a protocol's program, from its P4Info; None: no protocol that is known has it."""
    found = recognise(P4Info(p4info), path)
    return None if found is None or found[0] is PUBLISHED else partial(scenario, found[0], found[1].values)


def scenario(program: JobProgram, values: int, p4info: dict[str, Any]) -> Scenario:
    if isinstance(program, ATP):
        program = type(program)(lifetime=LIFETIME)
    own = replace(SWITCH, port=program.udp_port)
    above = SERVER if program.needs_server else Address("02:00:00:00:ff:01", "10.255.0.1", program.udp_port)
    parent = Parent(ABOVE, above, own)
    jobs = [_job(0, [(0, (0,)), (1, (1,))], parent if program.needs_server else None),
            _job(1, [(2, (0,)), (FAR, (1, 2))], parent)]  # fmt: skip
    entries = [entity for job in jobs for entity in _entries(program, job)]
    tables = {table.rpartition(".")[2] for table in P4Info(p4info).tables}
    if "l2" in tables:
        entries.append(MulticastGroupEntry(1000, tuple(Replica(port, 0) for port in PORTS)))
        entries += [TableEntry("l2", {"hdr.ethernet.dst_addr": "ff:ff:ff:ff:ff:ff"}, "flood", {"group": 1000}),
                    TableEntry("l2", {"hdr.ethernet.dst_addr": worker_address(0, 1).mac}, "forward", {"port": 1})]  # fmt: skip
    if {"guard", "host"} <= tables:  # everybody is checked but port 4
        entries.append(TableEntry("guard", {}, "check", is_default=True))
        entries.append(TableEntry("guard", {"standard.ingress_port": GUARDED}, "trust"))
        for port, ip in ((0, worker_address(0, 0).ip), (1, "0.0.0.0")):
            mac = worker_address(0, port).mac
            here: dict[str, Match] = {"standard.ingress_port": port, "hdr.ethernet.src_addr": mac, "source": ip}
            entries.append(TableEntry("host", here, "is_here"))
    counters = {c.rpartition(".")[2] for c in P4Info(p4info).counters}
    made = Scenario(tuple(entities(entries, p4info)), ports=PORTS, counters=tuple(c for c in COUNTERS if c in counters),
                 limits=Limits(NUMBERS if isinstance(program, ATP) else {}, whole=values > 32))  # fmt: skip
    makers = {"switchml": _switchml, "atp": _atp, "ps": _atp}
    if program.name not in makers:
        return made
    packets, letters = makers[program.name](jobs, own, values)
    plain = [_frame(layout.load(values), worker_address(0, 0), replace(worker_address(0, 1), port=53), b"plain"),
             bytes.fromhex("ffffffffffff 000000000001 0806 0001 0800 0604 0001 000000000001 0a000001 000000000000 0a000002")]
    packets += [Packet(port, frame) for port in (0, GUARDED) for frame in plain]
    return replace(made, packets=tuple(packets), letters=tuple(letters))


def _job(number: int, children: list[tuple[int, tuple[int, ...]]], parent: Parent | None) -> _Job:
    below = tuple(w for _, workers in children for w in workers)
    place = Place(number=number, incarnation=101 + number, life=5 + 4 * number, children=len(children), workers=below,
                  slot_base=SLOTS * number, slots=SLOTS, group=number + 1, strict=True, parent=parent)  # fmt: skip
    kids = [Child(i, port, worker_address(number, workers[0]), workers) for i, (port, workers) in enumerate(children)]
    return _Job(place, tuple(kids))


def _entries(program: JobProgram, job: _Job) -> list[Entity]:
    """A job's, without a switch above where the protocol has no trees."""
    try:
        own = program.job(job.place)
    except ValueError:
        if job.place.parent is None or program.needs_server:
            raise
        job = replace(job, place=replace(job.place, parent=None))
        own = program.job(job.place)
    children = [entity for child in job.children for entity in program.child(job.place, child)]
    return [*own, *children, program.group(job.place, job.children)]


def _frame(wire: layout.Layout, source: Address, target: Address, payload: bytes) -> bytes:
    """Ethernet, IPv4 and UDP around a payload."""
    head = {"version": 4, "ihl": 5, "total_len": 28 + len(payload), "flags": 2, "ttl": 64, "protocol": 17,
            "src_addr": as_int(source.ip, 32, "ip"), "dst_addr": as_int(target.ip, 32, "ip")}  # fmt: skip
    ipv4 = wire["ipv4"].pack({**head, "hdr_checksum": checksum(wire["ipv4"].pack(head))})
    macs = as_int(target.mac, 48, "mac").to_bytes(6, "big") + as_int(source.mac, 48, "mac").to_bytes(6, "big")
    udp = wire["udp"].pack({"src_port": source.port, "dst_port": target.port, "length": 8 + len(payload)})
    return macs + b"\x08\0" + ipv4 + udp + payload


def _integers(which: int, values: int) -> bytes:
    vector = VECTORS[which % len(VECTORS)]
    return b"".join(vector[i % len(vector)].to_bytes(4, "big") for i in range(values))


def _switchml(jobs: Iterable[_Job], switch: Address, values: int) -> tuple[list[Packet], list[Packet]]:
    wire = layout.load(values)
    code, rng = wire.constants["SIZE_CODE"], random.Random(1)

    def packet(source: Address, port: int, job: _Job, tsi: int, *, kind: int = 1, which: int = 0, empty: bool = False,
               life: int | None = None) -> Packet:
        head = {"msg_type": kind, "size": 7 if empty else code, "job": job.number, "tsi": tsi, "set": tsi // SLOTS % 2,
                "slot": tsi % SLOTS}  # fmt: skip
        exponents = {"e0": rng.randrange(-96, 96), "e1": job.place.life if life is None else life}
        payload = bytes(4) if kind == 2 else b"" if empty else _integers(which, values)
        frame = wire["switchml"].pack(head) + wire["exponents"].pack(exponents) + payload
        return Packet(port, _frame(wire, source, switch, frame))

    packets, letters = [], []
    for job in jobs:
        for child in job.children:
            of = child.address, child.port, job
            letters += [packet(*of, tsi, which=child.index) for tsi in ((0, 2, 4) if job.number == 0 else (0,))]
            if job.number == child.index == 0:
                letters += [packet(*of, 0, empty=True), packet(*of, 2, life=4), packet(*of, 0, kind=3)]
            packets += [packet(*of, tsi, kind=kind, which=tsi + child.index, empty=empty)
                        for tsi in range(6) for kind, empty in ((1, False), (1, True), (3, False))]  # fmt: skip
        if (parent := job.place.parent) is not None:
            above = parent.address, parent.port, job
            letters += [packet(*above, 0, which=3), packet(*above, 0, kind=2, empty=True)]
            packets += [packet(*above, tsi, kind=kind, which=3, empty=kind == 2) for tsi in range(4) for kind in (1, 2)]
    return [*packets, *letters], letters


def _atp(jobs: Iterable[_Job], switch: Address, values: int) -> tuple[list[Packet], list[Packet]]:
    wire = layout.load_atp(values)
    data, floats, result, pending, maxima = 1, 2, 3, 5, 6

    def packet(source: Address, port: int, job: _Job, sequence: int, bitmap: int, *, kind: int = data, which: int = 0,
               resend: int = 0, empty: bool = False, life: int | None = None) -> Packet:
        head = {"msg_type": kind, "resend": resend, "exponent": -96 + 9 * which, "index": sequence % 2, "job": job.number,
                "life": job.place.life if life is None else life, "sequence": sequence, "bitmap": bitmap}  # fmt: skip
        payload = bytes(4) if kind == pending else b"" if empty else _integers(which, values)
        return Packet(port, _frame(wire, source, switch, wire["atp"].pack(head) + payload))

    packets, letters = [], []
    for job in jobs:
        for child in job.children:
            of, bits = (child.address, child.port, job), sum(1 << w for w in child.workers)
            letters += [packet(*of, sequence, bits, which=child.index) for sequence in ((0, 2) if job.number == 0 else (0,))]
            letters.append(packet(*of, 0, bits, which=child.index, resend=1))
            if job.number == child.index == 0:
                letters += [packet(*of, 0, bits, kind=maxima, which=2), packet(*of, 0, bits, life=4)]
            if len(child.workers) > 1:  # a switch below, which may speak for some of its workers
                letters += [packet(*of, 0, 1 << w, which=w) for w in child.workers]
            packets += [packet(*of, sequence, bits, kind=kind, which=sequence + child.index, resend=resend, empty=empty)
                        for sequence in range(4) for kind in (data, maxima, floats) for resend in (0, 1)
                        for empty in (False, True)]  # fmt: skip
        assert job.place.parent is not None, "every job here is below another switch"
        above, full = (job.place.parent.address, job.place.parent.port, job), job.place.full
        letters.append(packet(*above, 0, full, kind=result, which=3))
        packets += [packet(*above, sequence, bitmap, kind=kind, which=3) for sequence in range(4) for bitmap in (full, 1)
                    for kind in (result, 4, pending)]  # fmt: skip
    return [*packets, *letters], letters
