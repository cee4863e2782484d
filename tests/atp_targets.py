"""p4/atp.p4 alone on a switch, behind one small interface, for every switch that runs it.

target = open_target("bmv2")            # or "interpreter", "compiled"
world = World(target)                   # as just started
job = world.admit([0b001, 0b010, 0b100])        # a child for each set of workers
world.send(job.data(0, 5, values=range(32)), job.port(0))       -> [(port, frame), ...]
"""

from __future__ import annotations

import functools
from typing import Any

from switchml_targets import SLOTS, Bmv2Target, CompiledTarget, InterpreterTarget, Target, TnaTarget, checked, sealed

from ina.aggregation.entries.atp import ATP
from ina.aggregation.entries.base import Child, Parent, Place
from ina.aggregation.wire import layout
from ina.aggregation.worker import worker_address
from ina.aggregation.worker.config import ATP_SWITCH, SERVER
from ina.base.paths import p4_dir
from ina.net.ports import Address
from ina.p4.runtime.entities import MulticastGroupEntry, Replica, TableEntry, as_int, insert

SOURCE = p4_dir() / "atp.p4"
VALUES = 32
PARENT = 9  # the port towards the server, or the switch above
DATA, FLOATS, RESULT, FLOAT_RESULT, PENDING, OFFER, ANSWER = 1, 2, 3, 4, 5, 8, 9
HEAD = layout.ATP_HEAD
WIRE = layout.load(VALUES, p4_dir() / "include/atp/headers.p4")

SOURCES = {InterpreterTarget: SOURCE, CompiledTarget: SOURCE, TnaTarget: p4_dir() / "tofino" / "atp.p4", Bmv2Target: SOURCE}
TARGETS: dict[str, type[Target]] = {
    base.name: type(base.__name__, (base,), {"source": source}) for base, source in SOURCES.items()
}
_open: dict[str, Target] = {}


def open_target(name: str) -> Target:
    """The target, created on first use; `close_targets` closes all of them."""
    if name not in _open:
        _open[name] = TARGETS[name](VALUES)
    return _open[name]


def close_targets() -> None:
    for target in _open.values():
        if hasattr(target, "close"):
            target.close()
    _open.clear()


@functools.cache
def members(enum: str) -> list[str]:
    """Names of a P4 enum by value."""
    numbers = checked(VALUES, SOURCE).types[enum].members
    return sorted(numbers, key=numbers.get)


class Job:
    """A job whose children stand for the workers in ``children``'s bitmaps, child i on port i (+ ``first_port``)."""

    def __init__(self, world: World, number: int, incarnation: int, life: int, children: list[int], first_port: int,
                 parent: Parent, program: ATP):
        self.world, self.number, self.incarnation, self.life = world, number, incarnation, life
        self.children, self.parent = children, parent
        self.first_port, self.full = first_port, sum(children)
        workers = [tuple(w for w in range(32) if bits >> w & 1) for bits in children]
        self.addresses = [worker_address(number, ws[0]) for ws in workers]
        kids = [Child(i, self.port(i), self.addresses[i], ws) for i, ws in enumerate(workers)]
        place = Place(number=number, incarnation=incarnation, life=life, children=len(children), workers=sum(workers, ()),
                      slot_base=0, slots=8, group=number + 1, strict=True, parent=parent)
        world.target.write(insert(*program.job(place), *(e for k in kids for e in program.child(place, k)),
                                  program.group(place, kids)))

    def port(self, child: int) -> int:
        return self.first_port + child

    def fields(self, source: Address, kind: int, sequence: int, bitmap: int, payload: int, **atp: int) -> dict[str, dict]:
        """A frame of the job from `source` to the switch, by header."""
        return {
            "ethernet": {"dst_addr": as_int(ATP_SWITCH.mac, 48, "mac"), "src_addr": as_int(source.mac, 48, "mac"),
                         "ethertype": 0x0800},
            "ipv4": {"version": 4, "ihl": 5, "total_len": 56 + payload, "flags": 2, "ttl": 64, "protocol": 17,
                     "src_addr": as_int(source.ip, 32, "ip"), "dst_addr": as_int(ATP_SWITCH.ip, 32, "ip")},
            "udp": {"src_port": source.port, "dst_port": ATP_SWITCH.port, "length": 36 + payload},
            "atp": {"msg_type": kind, "exponent": -96, "index": 3, "life": self.life, "job": self.number,
                    "sequence": sequence % 2**40, "bitmap": bitmap} | atp,
            "check": {"version": WIRE.constants["WIRE_VERSION"], "check0": (1000003 * bitmap + 7 * sequence) % 2**32,
                      "check1": (sequence - 77777777 * bitmap) % 2**32},
        }

    def data(self, child: int, sequence: int, values=None, bitmap: int | None = None, **atp: int) -> bytes:
        """A data packet of a child; without `values` it has no payload. `atp`: other header fields."""
        headers = self.fields(self.addresses[child], DATA, sequence, self.children[child] if bitmap is None else bitmap,
                              0 if values is None else 4 * VALUES, **atp)
        if values is not None:
            headers["values"] = {"v": [int(v) % 2**32 for v in values]}
        return self.world.bytes(headers)

    def down(self, sequence: int, bitmap: int | None = None, kind: int = RESULT, payload: bytes = bytes(4 * VALUES),
             **atp: int) -> bytes:
        """A frame of the server."""
        bitmap = self.full if bitmap is None else bitmap
        return self.world.bytes(self.fields(self.parent.address, kind, sequence, bitmap, len(payload), **atp)) + payload

    def send(self, child: int, *args, **kwargs) -> list[tuple[int, bytes]]:
        return self.world.send(self.data(child, *args, **kwargs), self.port(child))

    def result(self, sequence: int, **kwargs) -> list[tuple[int, bytes]]:
        return self.world.send(self.down(sequence, **kwargs), self.parent.port)


class World:
    """A target as just started."""

    def __init__(self, target: Target, ports: int = 10):
        self.target, self.jobs = target, 0
        target.reset(ports)

    def admit(self, children: list[int], *, first_port: int = 0, number: int | None = None, incarnation: int | None = None,
              life: int | None = None, own: Address = ATP_SWITCH, above: Address = SERVER, port: int = PARENT,
              aggregate: bool = True, lifetime: float = 1000.0, ecn_depth: int = 0) -> Job:
        """A job; its number, incarnation and life are new unless given."""
        program = ATP(ecn_depth=ecn_depth, lifetime=lifetime)
        program.aggregates = aggregate
        number = self.jobs if number is None else number
        self.jobs += 1
        incarnation = 100 + self.jobs if incarnation is None else incarnation
        life = 0x1234 + self.jobs if life is None else life
        return Job(self, number, incarnation, life, children, first_port, Parent(port, above, own), program)

    def forward(self, address: str, port: int) -> None:
        self.target.write(insert(TableEntry("l2", {"hdr.ethernet.dst_addr": address}, "forward", {"port": port})))

    def flood(self, address: str, group: int, ports: range) -> None:
        self.target.write(insert(MulticastGroupEntry(group, tuple(Replica(p, 0) for p in ports))))
        self.target.write(insert(TableEntry("l2", {"hdr.ethernet.dst_addr": address}, "flood", {"group": group})))

    def bytes(self, headers: dict[str, dict[str, Any]]) -> bytes:
        """The frame, with both checksums filled in unless they are given."""
        return sealed(WIRE, headers)

    def send(self, frame: bytes, port: int) -> list[tuple[int, bytes]]:
        """Sends a frame; returns the frames that leave, sorted by port, in their order at each port."""
        return sorted(self.target.send(frame, port), key=lambda sent: sent[0])

    def drops(self) -> dict[str, int]:
        """Packets dropped by reason; reasons without any are left out."""
        return {name: n for name, n in zip(members("Drop"), self.target.drops(), strict=True) if n}


def parse(frame: bytes) -> dict[str, dict[str, Any]]:
    """Headers of a frame; `values`: the payload's integers, None if there is none."""
    headers = WIRE.unpack(frame, HEAD)
    payload = headers["udp"]["length"] - 36
    assert len(frame) == 70 + payload
    headers["values"] = list(WIRE["values"].unpack(frame, 70)["v"]) if payload == 4 * VALUES else None
    return headers


__all__ = ["ANSWER", "DATA", "FLOATS", "FLOAT_RESULT", "HEAD", "OFFER", "PARENT", "PENDING", "RESULT", "SLOTS", "TARGETS",
           "VALUES", "WIRE", "Job", "World", "close_targets", "members", "open_target", "parse"]
