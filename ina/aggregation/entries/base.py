"""Interface of protocols to the controller: the entries that make a switch's program serve a job.

The controller knows jobs, slots, trees and ports; a JobProgram knows the tables and actions of a program. Both use P4Runtime's
terms (ina/p4/runtime/entities.py). Registers of our programs are never written: rows have the job's incarnation, and packets its
life.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ina.aggregation import completion, protocols
from ina.aggregation.lane import DEFAULT, LANES, Lane
from ina.aggregation.worker import SWITCH
from ina.base.native import lib
from ina.net.ports import Address
from ina.p4.runtime.entities import Entity, Match, MulticastGroupEntry, Replica, TableEntry, Update, Value, as_int
from ina.p4.runtime.p4info import P4Info

BITMAP = 32  # bits of the programs' bitmaps
ANNOTATION = '@ina_program[protocol="NAME", values=VALUES, slots=SLOTS, wire=VERSION]'  # of a program's main, or a table


@dataclass(frozen=True)
class Child:
    """A worker, or a switch below, whose packets a switch sums. ``index``: its number at this switch, from 0; ``port``: the
    switch's port towards it; ``address``: the source of its frames, and the destination of results; ``workers``: the number in
    the job of the worker, or of all workers below the switch."""

    index: int
    port: int
    address: Address
    workers: tuple[int, ...]


@dataclass(frozen=True)
class Parent:
    """The switch, or parameter server, above: ``port`` towards it, its ``address``, and ``own``, the address of the switch that
    is its child."""

    port: int
    address: Address
    own: Address


@dataclass(frozen=True)
class Place:
    """A job at one switch. ``number``, ``incarnation`` (1..2^32-1), ``life`` (1..the program's last_life) and ``slots`` are the
    same at every switch of the job; ``slot_base`` (in slots) and ``group`` (multicast, from 1) are this switch's. ``children``:
    how many there will be; ``workers``: the numbers in the job of all below. ``parent``: at the root of the job's tree the
    parameter server, if the protocol needs one, else None. ``seats``: the job has more workers than a bitmap has bits, so bits
    here stand for children. ``rule``: which of them complete a phase."""

    number: int
    incarnation: int
    life: int
    children: int
    workers: tuple[int, ...]
    slot_base: int
    slots: int
    group: int
    strict: bool
    parent: Parent | None = None
    seats: bool = False
    rule: str = completion.DEFAULT

    @property
    def full(self) -> int:
        """Bits of all below that a phase waits for: of workers by their number in the job, or of children by theirs."""
        return completion.named(self.rule).full(bits(range(self.children) if self.seats else self.workers))

    @property
    def last(self) -> int:
        """Packets of children that complete a phase, after the first one."""
        return completion.named(self.rule).last(self.children)

    def bits(self, child: Child) -> int:
        """Returns the bits of one child."""
        return bits([child.index] if self.seats else child.workers)


@dataclass(frozen=True)
class Identity:
    """Values that tell a job's packets and rows from other jobs' (ina/aggregation/controller/job_incarnations.py)."""

    number: int
    incarnation: int
    life: int


@dataclass(frozen=True)
class Sizes:
    """Sizes that a program was compiled for: int32 ``values`` in a packet, and ``slots`` that its jobs share."""

    values: int
    slots: int


class JobProgram(ABC):
    """One protocol's tables. Stateless: results depend on the arguments only."""

    name: str  # the protocol's, as in WorkerConfig
    title: str  # for people
    tables: tuple[str, ...]  # tables all of whose entries are the controller's
    max_workers: int  # of one job
    max_children: int = BITMAP  # of one switch of its tree: workers, and switches below
    max_jobs: int  # job numbers are 0..max_jobs-1
    max_slots: int  # of one job, a power of two
    last_life: int = 2**8 - 1  # largest life in packets
    number_bits: int = 32  # of a packet's number in its frames, which wraps
    udp_port: int = SWITCH.port  # of its packets
    job_byte: int = 1  # place of the job's number in a packet, counted from the end of UDP's header
    reserves: bool = True  # a job holds slots of its own; False: all jobs share the pool
    trees: bool = True  # sums of sums: a job's workers may be at several switches; False: at one
    needs_server: bool = False  # a parameter server is above the root of every job's tree: its ``parent``
    lifetime: float = 0.0  # seconds for which a shared row without an owner stays valid; 0: rows are a job's own
    floats: bool = False  # a block that integers cannot represent is sent as float32; False: it becomes NaN
    overflows: bool = True  # a result says that an int32 sum did not fit; False: sums wrap without a word
    multicasts: bool = True  # the switch copies a result to all workers; False: the parameter server sends each its own
    payloads: tuple[int, ...] = ()  # values of a packet that one program takes; none: it is compiled for those of ``sizes``
    pipes: int = 0  # of its switch
    ports: Sequence[int] = ()  # for workers; none: any
    loopback: Sequence[int] = ()  # ports that send packets back
    slot_registers: Mapping[str, int] = {}  # registers with cells for each slot, by the end of the name, and how many cells

    def sizes(self, p4info: P4Info) -> Sizes | None:
        """Returns the sizes of a program of this protocol, by its annotation; None: it is another's, or has none."""
        stated = statement(p4info)
        return stated[1] if stated and stated[0] == Path(self.name).stem else None

    def wraps(self) -> tuple[int, int]:
        """Returns the numbers at which packets' numbers wrap, signed and unsigned: where a wrong comparison of them shows."""
        return 1 << self.number_bits - 1, 1 << self.number_bits

    def limited(self, p4info: P4Info) -> JobProgram:
        """Returns itself, or a copy whose jobs have no more workers than the program of ``p4info`` states. Raises ValueError."""
        most = (p4info.annotation("ina_program") or {}).get("workers", self.max_workers)
        if not isinstance(most, int) or not 1 <= most <= self.max_workers:
            raise ValueError(f"@ina_program: workers={most}, not 1 to {self.max_workers}; expected {ANNOTATION}")
        if most == self.max_workers:
            return self
        program = copy(self)
        program.max_workers = most
        return program

    def check_slots(self, p4info: P4Info, slots: int) -> None:
        """Raises ValueError: a register of the program has fewer cells than its stated slots need, so that packets of the others
        would never be answered."""
        for register in p4info.registers.values():
            for name, cells in self.slot_registers.items():
                if register.name.endswith(f".{name}") and register.size < cells * slots:
                    raise ValueError(
                        f"the program states slots={slots} (@ina_program), but its register {register.name} has {register.size} "
                        f"cells, {cells} for each slot: expected slots={register.size // cells} at most")

    def setup(self) -> list[Update]:
        """Returns updates for a switch of the program, before any job."""
        return []

    def clear(self, place: Place) -> list[Update]:
        """Returns updates before the entries of a job, for programs that do not tell jobs apart."""
        return []

    @abstractmethod
    def job(self, place: Place) -> list[Entity]:
        """Returns entries for the time of the job: its own, and those of its parent."""

    def identity(self, entity: Entity) -> Identity | None:
        """Reads a job's identity from its entry in the first table of a switch; None: the entity is no such entry."""
        if not isinstance(entity, TableEntry) or str(entity.table).rpartition(".")[2] != self.tables[0]:
            return None
        if entity.is_default or not {"incarnation", "life"} <= set(entity.params):
            return None
        (number,) = entity.match.values()
        return Identity(*(as_int(value, 32, "entry") for value in (number, entity.params["incarnation"], entity.params["life"])))

    @abstractmethod
    def child(self, place: Place, child: Child) -> list[Entity]:
        """Returns entries that admit one child's packets and address results to it."""

    def held(self, read: Callable[[str], np.ndarray], places: Sequence[Place]) -> dict[int, int]:
        """Returns the number of slots of one switch with incomplete sums, by job number.

        ``read`` returns a register's cells by its name, ``places`` are the jobs there. {} if a protocol does not implement it.
        """
        return {}

    def reduced(self, tensors: np.ndarray) -> np.ndarray | None:
        """Returns the oracle's result for the workers' ``tensors`` (a row each, int32 or float32), where the protocol's worker
        declares a reduction of its own (INA_OWN). None: it has none, or does not implement this."""
        return None

    def group(self, place: Place, children: Sequence[Child]) -> MulticastGroupEntry:
        """Returns the multicast group of results: every attached child; the replication id is its index."""
        return MulticastGroupEntry(place.group, tuple(Replica(c.port, c.index) for c in sorted(children, key=_index)))


def _index(child: Child) -> int:
    return child.index


def parent_entries(key: dict[str, Match], parent: Parent) -> list[Entity]:
    """Returns the entries of a job, which has the ``key`` in its packets, for what is above a switch."""
    up, own = parent.address, parent.own
    above: dict[str, Value] = {"port": parent.port, "mac": up.mac, "ip": up.ip, "udp_port": up.port,
                               "own_mac": own.mac, "own_ip": own.ip, "own_port": own.port}
    return [TableEntry("parent", key, "to_parent", above), TableEntry("worker", source(key, up, parent.port), "set_parent", {})]


def child_entries(key: dict[str, Match], child: Child, worker: int) -> list[Entity]:
    """Returns those for a child of a switch, whose bits in bitmaps are ``worker``."""
    address = child.address
    return [TableEntry("worker", source(key, address, child.port), "set_worker", {"worker": worker}),
            TableEntry("replica", key | {"standard.egress_rid": child.index}, "to_worker",
                       {"mac": address.mac, "ip": address.ip, "port": address.port})]


def source(key: dict[str, Match], address: Address, port: int) -> dict[str, Match]:
    """Returns the match of a job's packets from an address at a port."""
    return key | {"hdr.ipv4.src_addr": address.ip, "hdr.udp.src_port": address.port, "standard.ingress_port": port}


def entries_of(program: JobProgram, place: Place, children: Sequence[Child]) -> list[Entity]:
    """Returns all entries of a job at one switch, to which these of its children are attached."""
    return [*program.job(place), *(entry for child in children for entry in program.child(place, child)),
            program.group(place, children)]


def has_key(p4info: P4Info, field: str) -> bool:
    """Returns True if a program has a table with this key, by which programs without an annotation are recognised."""
    return any(key.name == field for table in p4info.tables.values() for key in table.fields)


def statement(p4info: P4Info) -> tuple[str, Sizes] | None:
    """Returns the protocol and the sizes that a program's annotation states (ANNOTATION); None: it has none. Raises ValueError:
    it has other keys or values."""
    pairs = p4info.annotation("ina_program")
    if pairs is None:
        return None
    protocol, values, slots = (pairs.get(key) for key in ("protocol", "values", "slots"))
    keys = set(pairs) - {"wire", "workers", "lane"}
    expected = keys == {"protocol", "values", "slots"}
    if not expected or not isinstance(protocol, str) or not isinstance(values, int) or not isinstance(slots, int):
        raise ValueError(f"@ina_program: {pairs}, expected {ANNOTATION}")
    own = lib.INA_WIRE_VERSION
    wire = pairs.get("wire", 1 if protocol in protocols.names() else own)  # frames of users' own may have no check header
    speaks = f"@ina_program: the program speaks wire version {wire}, this ina {own}"
    if isinstance(wire, int) and wire > own:  # which may have values that mean nothing here
        raise ValueError(f"{speaks}; this ina is older: upgrade it, or load its own program")
    if values not in (fitting := lane_of(p4info).values):
        raise ValueError(f"@ina_program: values={values}, not one of {fitting}; expected {ANNOTATION}")
    if not 1 <= slots < 1 << 31:
        raise ValueError(f"@ina_program: slots={slots}, not 1 to {(1 << 31) - 1}; expected {ANNOTATION}")
    if wire != own:
        raise ValueError(f"{speaks}; the program is older: compile it from this ina's sources and load it anew")
    return protocol, Sizes(values, slots)


def lane_of(p4info: P4Info) -> Lane:
    """Returns the lane that a program was compiled for, which its annotation states. Raises ValueError: there is none of so many
    bits."""
    stated = (p4info.annotation("ina_program") or {}).get("lane", DEFAULT.bits)
    for lane in LANES:
        if lane.bits == stated:
            return lane
    raise ValueError(f"@ina_program: lane={stated}, expected bits of a lane: {', '.join(str(lane.bits) for lane in LANES)}")


def bits(workers: Iterable[int]) -> int:
    """Returns a bitmap: worker i in bit i."""
    return sum(1 << worker for worker in workers)
