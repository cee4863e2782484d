"""What the controller asks of a protocol: the entries that make a switch's program serve a job.

The controller knows jobs, slots, trees and ports; which tables and actions a program has, a JobProgram knows. Both speak
P4Runtime's terms (ina/p4/runtime/entities.py). Of our programs registers are never written: rows have the
job's incarnation, and packets its life.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ina.aggregation.worker import SWITCH
from ina.net.ports import Address
from ina.p4.runtime.entities import Entity, MulticastGroupEntry, Replica, TableEntry, Update, as_int
from ina.p4.runtime.p4info import P4Info

BITMAP = 32  # bits of the programs' bitmaps


@dataclass(frozen=True)
class Child:
    """Whose packets a switch adds up: a worker, or a switch below. ``index``: its number at this switch, from 0; ``port``:
    the switch's port towards it; ``address``: what its frames say, and where results for it go; ``workers``: the numbers in
    the job of the worker that it is, or of all below it."""

    index: int
    port: int
    address: Address
    workers: tuple[int, ...]


@dataclass(frozen=True)
class Parent:
    """The switch, or parameter server, above: ``port`` towards it, its ``address``, and the ``own`` one of the switch that is
    its child."""

    port: int
    address: Address
    own: Address


@dataclass(frozen=True)
class Place:
    """A job at one switch. ``number``, ``incarnation`` (1..2^32-1), ``life`` (1..the program's last_life) and ``slots`` are the
    same at every switch of the job;
    ``slot_base`` (in slots) and ``group`` (multicast, from 1) are this switch's. ``children``: how many there are to be;
    ``workers``: the numbers in the job of all below. ``parent``: at the root of the job's tree the parameter server, if the
    protocol needs one, else None.
    ``seats``: the job has more workers than a bitmap has bits, so its bits are the children's here."""

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

    @property
    def full(self) -> int:
        """The bits of everybody below: of workers by their number in the job, or of children by theirs."""
        return bits(range(self.children) if self.seats else self.workers)

    def bits(self, child: Child) -> int:
        """Those of one child."""
        return bits([child.index] if self.seats else child.workers)


@dataclass(frozen=True)
class Identity:
    """Values that tell a job's packets and rows from other jobs' (ina/aggregation/controller/incarnations.py)."""

    number: int
    incarnation: int
    life: int


@dataclass(frozen=True)
class Sizes:
    """What a compiled program was made for: int32 ``values`` in a packet, and ``slots`` that its jobs share."""

    values: int
    slots: int


class JobProgram(ABC):
    """One protocol's tables. Stateless: what it returns depends on its arguments only."""

    name: str  # the protocol's, as in WorkerConfig
    title: str  # for people
    tables: tuple[str, ...]  # those whose entries are the controller's, every one of them
    max_workers: int  # of one job
    max_children: int = BITMAP  # of one switch of its tree: workers, and switches below
    max_jobs: int  # job numbers are 0..max_jobs-1
    max_slots: int  # of one job, a power of two
    last_life: int = 2**8 - 1  # of a job number, as its packets carry it
    udp_port: int = SWITCH.port  # by which its packets are known
    reserves: bool = True  # a job holds slots of its own; False: all jobs share the pool
    needs_server: bool = False  # a parameter server is above the root of every job's tree: its ``parent``
    lifetime: float = 0.0  # seconds for which a row without an owner is believed, where jobs share them; 0: rows are a job's own
    floats: bool = False  # a block that integers cannot carry goes as float32; False: it becomes NaN
    multicasts: bool = True  # the switch copies a result to all workers; False: the parameter server sends each its own
    payloads: tuple[int, ...] = ()  # values of a packet that one program takes; none: it is compiled for those of ``sizes``
    pipes: int = 0  # that its switch must have
    ports: Sequence[int] = ()  # where workers can be; none: at any
    loopback: Sequence[int] = ()  # ports by which packets come back

    @abstractmethod
    def sizes(self, p4info: P4Info) -> Sizes | None:
        """Of a program of this protocol; None: it is another's."""

    def setup(self) -> list[Update]:
        """What a switch of the program is told before any job."""
        return []

    def clear(self, place: Place) -> list[Update]:
        """What comes before the entries of a job, for programs that do not know jobs apart."""
        return []

    @abstractmethod
    def job(self, place: Place) -> list[Entity]:
        """Entries that are there while the job is: of itself, and of the switch above."""

    def identity(self, entity: Entity) -> Identity | None:
        """Read a job's identity from its entry in the first table, as a switch holds it; None: the entity is no such entry."""
        if not isinstance(entity, TableEntry) or str(entity.table).rpartition(".")[2] != self.tables[0]:
            return None
        if entity.is_default or not {"incarnation", "life"} <= set(entity.params):
            return None
        (number,) = entity.match.values()
        return Identity(*(as_int(value, 32, "entry") for value in (number, entity.params["incarnation"], entity.params["life"])))

    @abstractmethod
    def child(self, place: Place, child: Child) -> list[Entity]:
        """Entries that admit one child's packets and address results to it."""

    def held(self, read: Callable[[str], np.ndarray], places: Sequence[Place]) -> dict[int, int]:
        """Slots of one switch that hold sums which are not complete, by job number: what a look at its pool shows.

        ``read`` gives a register's cells by its name, ``places`` the jobs there. A protocol that does not say has none."""
        return {}

    def reduced(self, tensors: np.ndarray) -> np.ndarray | None:
        """For experiments to check: what a protocol whose worker declares a reduction of its own (INA_OWN) makes of the workers'
        ``tensors`` (a row each, int32 or float32). None: it has none, or does not say."""
        return None

    def group(self, place: Place, children: Sequence[Child]) -> MulticastGroupEntry:
        """Results go to every child that is there; the replication id is its index."""
        return MulticastGroupEntry(place.group, tuple(Replica(c.port, c.index) for c in sorted(children, key=_index)))


def _index(child: Child) -> int:
    return child.index


def has_key(p4info: P4Info, field: str) -> bool:
    """Whether a program has a table with this key: how protocols tell their programs from others'."""
    return any(key.name == field for table in p4info.tables.values() for key in table.fields)


def held_values(p4info: P4Info, rows: str) -> tuple[int, int]:
    """How many values a packet has, and how many rows of them the program: there is a register of which the name ends in ``rows``
    with a cell for each row, and each ``SwitchIngress.values.value...`` has one for each row, or (Tofino: of a packet of more
    values than a pass handles) for each row and pass. (0, 0): not these registers."""
    registers = p4info.registers.values()
    held = next((r.size for r in registers if r.name.endswith(rows)), 0)
    cells = sum(r.size for r in registers if r.name.startswith("SwitchIngress.values.value"))
    return (cells // held, held) if held and cells else (0, 0)


def bits(workers: Iterable[int]) -> int:
    """A bitmap: worker i in bit i."""
    return sum(1 << worker for worker in workers)
