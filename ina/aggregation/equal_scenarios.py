"""Scenarios of our protocols for `ina p4 equal`: the controller's entries for two small jobs, and packets of their workers.

One job has two workers and this switch as its root, the other a worker and a switch below and a parent above; a port is in a
Tofino's second pipe. A user's own protocol defines its entries in its .py; packets for it are made from its parser.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ina.aggregation.entries import PUBLISHED, JobProgram, entries_of, recognise
from ina.aggregation.entries.atp import ATP
from ina.aggregation.entries.base import Child, Parent, Place
from ina.aggregation.entries.switchml import SwitchML
from ina.aggregation.wire import layout
from ina.aggregation.worker import worker_address
from ina.aggregation.worker.config import SERVER, SWITCH
from ina.base.paths import p4_dir
from ina.net.ports import Address
from ina.p4.runtime.entities import Entity, Match, MulticastGroupEntry, Replica, TableEntry, as_int
from ina.p4.runtime.p4info import P4Info
from ina.p4.tools.equal.control import entities
from ina.p4.tools.equal.packets import Limits, Packet, Scenario, checksum

DEFINES = {"VALUES": "32", "SLOTS": "4"}  # defaults: small states, and registers that packets soon meet again
SLOTS = 2  # of each job
ABOVE, FAR, GUARDED = 6, 130, 4
PORTS = (0, 1, 2, 3, GUARDED, ABOVE, FAR)
LIFETIME = 0.0035  # of an aggregator: packets come each millisecond
COUNTERS = ("drops", "fates", "forged")
NUMBERS = {"atp.sequence": 2**31 - 1}  # intended differences, as `whole`: docs/design/tna-programs.md
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
    """Returns the maker of the scenario of a protocol's program, from its P4Info; None: no known protocol's."""
    match = recognise(P4Info(p4info), path)
    return None if match is None or match[0] is PUBLISHED else partial(scenario, match[0], match[1].values)


def scenario(program: JobProgram, values: int, p4info: dict[str, Any]) -> Scenario:
    if isinstance(program, ATP):
        program = type(program)(lifetime=LIFETIME)
    own = replace(SWITCH, port=program.udp_port)
    above = SERVER if program.needs_server else Address("02:00:00:00:ff:01", "10.255.0.1", program.udp_port)
    parent = Parent(ABOVE, above, own)
    jobs = [_job(0, [(0, (0,)), (1, (1,))], parent if program.needs_server else None),
            _job(1, [(2, (0,)), (FAR, (1, 2))], parent)]
    entries = [entity for job in jobs for entity in _entries(program, job)]
    tables = {table.rpartition(".")[2] for table in P4Info(p4info).tables}
    if "l2" in tables:
        entries.append(MulticastGroupEntry(1000, tuple(Replica(port, 0) for port in PORTS)))
        entries += [TableEntry("l2", {"hdr.ethernet.dst_addr": "ff:ff:ff:ff:ff:ff"}, "flood", {"group": 1000}),
                    TableEntry("l2", {"hdr.ethernet.dst_addr": worker_address(0, 1).mac}, "forward", {"port": 1})]
    if {"guard", "host"} <= tables:  # all ports but 4 are checked
        entries.append(TableEntry("guard", {}, "check", is_default=True))
        entries.append(TableEntry("guard", {"standard.ingress_port": GUARDED}, "trust"))
        for port, ip in ((0, worker_address(0, 0).ip), (1, "0.0.0.0")):
            mac = worker_address(0, port).mac
            match: dict[str, Match] = {"standard.ingress_port": port, "hdr.ethernet.src_addr": mac, "source": ip}
            entries.append(TableEntry("host", match, "is_here"))
    counters = {c.rpartition(".")[2] for c in P4Info(p4info).counters}
    result = Scenario(tuple(entities(entries, p4info)), ports=PORTS, counters=tuple(c for c in COUNTERS if c in counters),
                   limits=Limits(NUMBERS if isinstance(program, ATP) else {}, whole=values > 32))
    make = _switchml if isinstance(program, SwitchML) else _atp if isinstance(program, ATP) else None  # by the frames it speaks
    if make is None:
        return result
    packets, letters = make(jobs, own, values)
    if program.name in MORE:
        more, first = MORE[program.name](jobs, own, values)
        packets, letters = [*packets, *more], [*first, *letters]
    plain = [_frame(layout.load(values), worker_address(0, 0), replace(worker_address(0, 1), port=53), b"plain"),
             bytes.fromhex("ffffffffffff 000000000001 0806 0001 0800 0604 0001 000000000001 0a000001 000000000000 0a000002")]
    packets += [Packet(port, frame) for port in (0, GUARDED) for frame in plain]
    return replace(result, packets=tuple(packets), letters=tuple(letters))


def _job(number: int, children: list[tuple[int, tuple[int, ...]]], parent: Parent | None) -> _Job:
    below = tuple(w for _, workers in children for w in workers)
    place = Place(number=number, incarnation=101 + number, life=5 + 4 * number, children=len(children), workers=below,
                  slot_base=SLOTS * number, slots=SLOTS, group=number + 1, strict=True, parent=parent)
    kids = [Child(i, port, worker_address(number, workers[0]), workers) for i, (port, workers) in enumerate(children)]
    return _Job(place, tuple(kids))


def _entries(program: JobProgram, job: _Job) -> list[Entity]:
    """Returns a job's entries, without a switch above where the protocol has no trees."""
    if not program.trees:
        job = replace(job, place=replace(job.place, parent=None))
    return entries_of(program, job.place, job.children)


def _frame(wire: layout.Layout, source: Address, target: Address, payload: bytes) -> bytes:
    """Returns a frame: Ethernet, IPv4 and UDP around a payload."""
    head = {"version": 4, "ihl": 5, "total_len": 28 + len(payload), "flags": 2, "ttl": 64, "protocol": 17,
            "src_addr": as_int(source.ip, 32, "ip"), "dst_addr": as_int(target.ip, 32, "ip")}
    ipv4 = wire["ipv4"].pack({**head, "hdr_checksum": checksum(wire["ipv4"].pack(head))})
    macs = as_int(target.mac, 48, "mac").to_bytes(6, "big") + as_int(source.mac, 48, "mac").to_bytes(6, "big")
    udp = wire["udp"].pack({"src_port": source.port, "dst_port": target.port, "length": 8 + len(payload)})
    return macs + b"\x08\0" + ipv4 + udp + payload


def _check(wire: layout.Layout, headers: bytes, sample: int, version: int | None = None) -> bytes:
    """Returns the check header behind the protocol's."""
    own = wire.constants["WIRE_VERSION"]
    words = {"version": own if version is None else version, "check0": 2**31 + sample, "check1": 7 * sample}
    return wire["check"].pack({**words, "headers": checksum(headers + wire["check"].pack(words))})


def _integers(sample: int, values: int) -> bytes:
    vector = VECTORS[sample % len(VECTORS)]
    return b"".join(vector[i % len(vector)].to_bytes(4, "big") for i in range(values))


def _switchml(jobs: Iterable[_Job], switch: Address, values: int) -> tuple[list[Packet], list[Packet]]:
    wire = layout.load(values)
    code, rng = wire.constants["SIZE_CODE"], random.Random(1)

    def packet(source: Address, port: int, job: _Job, tsi: int, *, kind: int = 1, sample: int = 0, empty: bool = False,
               life: int | None = None, version: int | None = None) -> Packet:
        head = {"msg_type": kind, "size": 7 if empty else code, "job": job.number, "tsi": tsi, "set": tsi // SLOTS % 2,
                "checked": version != 1, "slot": tsi % SLOTS}
        exponents = {"e0": rng.randrange(-96, 96), "e1": job.place.life if life is None else life}
        payload = bytes(4) if kind == 2 else b"" if empty else _integers(sample, values)
        frame = wire["switchml"].pack(head) + wire["exponents"].pack(exponents)
        check = b"" if version == 1 else _check(wire, frame, sample, version)
        return Packet(port, _frame(wire, source, switch, frame + check + payload))

    packets, letters = [], []
    for job in jobs:
        for child in job.children:
            sender = child.address, child.port, job
            letters += [packet(*sender, tsi, sample=child.index) for tsi in ((0, 2, 4) if job.number == 0 else (0,))]
            if job.number == child.index == 0:
                letters += [packet(*sender, 0, empty=True), packet(*sender, 2, life=4), packet(*sender, 0, kind=3),
                            packet(*sender, 0, version=1), packet(*sender, 0, version=3)]
            packets += [packet(*sender, tsi, kind=kind, sample=tsi + child.index, empty=empty)
                        for tsi in range(6) for kind, empty in ((1, False), (1, True), (3, False))]
        if (parent := job.place.parent) is not None:
            above = parent.address, parent.port, job
            letters += [packet(*above, 0, sample=3), packet(*above, 0, kind=2, empty=True)]
            packets += [packet(*above, tsi, kind=kind, sample=3, empty=kind == 2) for tsi in range(4) for kind in (1, 2)]
    return [*packets, *letters], letters


def _offers(jobs: Iterable[_Job], switch: Address, values: int) -> tuple[list[Packet], list[Packet]]:
    """Returns packets by which workers offer to contribute, and answers from above; and those of systematic sequences."""
    wire, rng = layout.load(values, p4_dir() / "include/quorum/headers.p4"), random.Random(2)
    code = wire.constants["SIZE_CODE"]
    states = {name: wire.constants[f"OFFER_{name.upper()}"] for name in ("ask", "give", "pass", "open", "decided")}

    def packet(source: Address, port: int, job: _Job, tsi: int, state: str, ranks: int, *, least: int = 1, rivals: int = 0,
               size: int = 7, life: int | None = None, version: int | None = None, payload: bytes = b"") -> Packet:
        head = {"msg_type": wire.constants["SWITCHML_OFFER"], "size": size, "job": job.number, "tsi": tsi,
                "set": tsi // SLOTS % 2, "checked": 1, "slot": tsi % SLOTS, "overflow": tsi % 3 == 2}
        exponents = {"e0": rng.randrange(-96, 96), "e1": job.place.life if life is None else life}
        offer = wire["offer"].pack({"state": states[state], "least": least, "rivals": rivals, "ranks": ranks})
        frame = wire["switchml"].pack(head) + wire["exponents"].pack(exponents)
        own = wire.constants["WIRE_VERSION"]
        words = {"version": own if version is None else version, "check0": tsi, "check1": 9}
        check = wire["check"].pack({**words, "headers": checksum(frame + wire["check"].pack(words) + offer)})
        return Packet(port, _frame(wire, source, switch, frame + check + offer + payload))

    packets, letters = [], []
    for job in jobs:
        for child in job.children:
            sender, bits = (child.address, child.port, job), [1 << worker for worker in child.workers]
            others = [1 << worker for worker in job.place.workers if worker not in child.workers]
            for tsi in range(6):
                for state in ("ask", "give", "pass"):
                    packets += [packet(*sender, tsi, state, bit, least=least, rivals=rivals)
                                for bit in bits for least in (1, 2) for rivals in (0, others[0])]
            if job.number == 0:
                letters += [packet(*sender, 0, state, bits[0], least=2) for state in ("ask", "give", "pass")]
                letters += [packet(*sender, 0, "ask", bits[0]), packet(*sender, 4, "give", bits[0]),
                            packet(*sender, 4, "ask", bits[0]),
                            packet(*sender, 0, "give", bits[0], least=2, rivals=others[0])]
            else:
                letters += [packet(*sender, 0, "give", ranks) for ranks in {*bits, sum(bits)}]
                packets.append(packet(*sender, 1, "pass", sum(bits)))
            wrong = [packet(*sender, 0, "give", ranks) for ranks in (0, 3, others[0], 1 << 31)]
            wrong += [packet(*sender, 0, state, bits[0]) for state in ("open", "decided")]
            wrong += [packet(*sender, 0, "ask", bits[0], life=4), packet(*sender, 0, "ask", bits[0], version=3),
                      packet(*sender, 0, "give", bits[0], size=code, payload=_integers(1, values)),
                      packet(*sender, 0, "give", bits[0], size=code, version=3, payload=_integers(1, values))]
            packets += wrong
        if (parent := job.place.parent) is not None:
            above = parent.address, parent.port, job
            packets += [packet(*above, tsi, state, 5) for tsi in range(3) for state in states]
    return [*packets, *letters], letters


def _routed(jobs: Iterable[_Job], switch: Address, values: int) -> tuple[list[Packet], list[Packet]]:
    """Returns packets that name receivers and members, up and from above; and those of systematic sequences."""
    wire, rng = layout.load(values, p4_dir() / "include/receivers/headers.p4"), random.Random(3)
    none = wire.constants["SIZE_NONE"]

    def packet(source: Address, port: int, job: _Job, tsi: int, ranks: int, members: int, *, empty: bool = False,
               size: int = wire.constants["SIZE_CODE"], life: int | None = None, version: int | None = None) -> Packet:
        head = {"msg_type": wire.constants["SWITCHML_TO"], "size": none if empty else size, "job": job.number, "tsi": tsi,
                "set": tsi // SLOTS % 2, "checked": 1, "slot": tsi % SLOTS, "overflow": tsi % 3 == 2}
        exponents = {"e0": rng.randrange(-96, 96), "e1": job.place.life if life is None else life}
        sets = wire["receivers"].pack({"ranks": ranks, "members": members})
        frame = wire["switchml"].pack(head) + wire["exponents"].pack(exponents)
        own = wire.constants["WIRE_VERSION"]
        words = {"version": own if version is None else version, "check0": 2**31 + tsi, "check1": 9}
        check = wire["check"].pack({**words, "headers": checksum(frame + wire["check"].pack(words) + sets)})
        payload = b"" if empty else _integers(tsi + port, values)
        return Packet(port, _frame(wire, source, switch, frame + check + sets + payload))

    packets, letters = [], []
    for job in jobs:
        inside, outside = job.place.full, 1 << 5  # a worker of another switch
        for child in job.children:
            sender, bits = (child.address, child.port, job), sum(1 << worker for worker in child.workers)
            one = bits & -bits  # of a switch below: its first worker
            sets = [(inside, inside), (one, inside), (inside & ~bits, inside), (one, one), (one, bits), (outside, bits | outside),
                    (inside & ~bits, inside | outside), (0, inside)]
            packets += [packet(*sender, tsi, *each, empty=empty) for tsi in range(5) for each in sets for empty in (False, True)]
            packets += [packet(*sender, 0, inside, inside & ~bits), packet(*sender, 0, inside, 0),
                        packet(*sender, 0, one, inside, size=6), packet(*sender, 0, one, inside, life=4),
                        packet(*sender, 0, one, inside, version=3),
                        packet(*sender, 0, one, inside, version=3, empty=True)]
            others = [(4, 1, inside), (0, 2, inside)] if job.number == 0 else [(0, 1, inside | outside)]
            letters += [packet(*sender, *each, empty=child.index == 1) for each in ((0, 1, inside), *others)]
        if (parent := job.place.parent) is not None:
            above = parent.address, parent.port, job
            packets += [packet(*above, tsi, ranks, members, empty=empty) for tsi in range(3) for ranks in (1, inside)
                        for members in (inside, inside | outside) for empty in (False, True)]
            letters.append(packet(*above, 0, 1, inside | outside))
    return [*packets, *letters], letters


MORE = {"quorum": _offers, "receivers": _routed}  # packets of programs beside SwitchML's


def _atp(jobs: Iterable[_Job], switch: Address, values: int) -> tuple[list[Packet], list[Packet]]:
    wire = layout.load_atp(values)
    data, floats, result, pending, maxima = 1, 2, 3, 5, 6

    def packet(source: Address, port: int, job: _Job, sequence: int, bitmap: int, *, kind: int = data, sample: int = 0,
               resend: int = 0, empty: bool = False, life: int | None = None, version: int | None = None) -> Packet:
        head = {"msg_type": kind, "resend": resend, "exponent": -96 + 9 * sample, "index": sequence % 2, "job": job.number,
                "life": job.place.life if life is None else life, "sequence": sequence, "bitmap": bitmap}
        payload = bytes(4) if kind == pending else b"" if empty else _integers(sample, values)
        frame = wire["atp"].pack(head)
        return Packet(port, _frame(wire, source, switch, frame + _check(wire, frame, sample, version) + payload))

    packets, letters = [], []
    for job in jobs:
        for child in job.children:
            sender, bits = (child.address, child.port, job), sum(1 << w for w in child.workers)
            letters += [packet(*sender, sequence, bits, sample=child.index) for sequence in ((0, 2) if job.number == 0 else (0,))]
            letters.append(packet(*sender, 0, bits, sample=child.index, resend=1))
            if job.number == child.index == 0:
                letters += [packet(*sender, 0, bits, kind=maxima, sample=2), packet(*sender, 0, bits, life=4),
                            packet(*sender, 0, bits, version=3)]
            if len(child.workers) > 1:  # a switch below, which may send for some of its workers
                letters += [packet(*sender, 0, 1 << w, sample=w) for w in child.workers]
            packets += [packet(*sender, sequence, bits, kind=kind, sample=sequence + child.index, resend=resend, empty=empty)
                        for sequence in range(4) for kind in (data, maxima, floats) for resend in (0, 1)
                        for empty in (False, True)]
        assert job.place.parent is not None, "every job here is below another switch"
        above, full = (job.place.parent.address, job.place.parent.port, job), job.place.full
        letters.append(packet(*above, 0, full, kind=result, sample=3))
        packets += [packet(*above, sequence, bitmap, kind=kind, sample=3) for sequence in range(4) for bitmap in (full, 1)
                    for kind in (result, 4, pending)]
    return [*packets, *letters], letters
