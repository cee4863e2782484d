"""Kinds of entities of the embedded switch: for the entities of each class, how they are written and read.

A kind is one class, which `@kind_of(EntityClass)` registers: table_kinds.py, cell_kinds.py and replication.py have them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ina.p4.runtime.cells import Cells, Pipes
from ina.p4.runtime.command import Command, Memory, Span
from ina.p4.runtime.entities import E, Entity
from ina.p4.runtime.own import own
from ina.p4.runtime.p4info import EntityError
from ina.p4.runtime.tables import Tables


class ReplicationEngine(Protocol):
    """The control plane's copy of a packet replication engine: replication.py has v1model's, traffic_manager.py TNA's."""

    @property
    def classes(self) -> Container[type[Entity]]:
        """Classes of the entities that it takes."""

    def copy(self) -> ReplicationEngine:
        """A copy, for changes that are made all or not at all."""

    def apply(self, type_: str, entity: Any, memory: Memory) -> list[Command]:
        """Makes an INSERT, MODIFY or DELETE; returns the commands that bring the switch up to date. Raises EntityError."""

    def read(self, pattern: Any) -> Sequence[Any]:
        """The entities of the pattern's class with its number."""


TYPES = ("INSERT", "MODIFY", "DELETE")


@dataclass
class Control:
    """The control plane's copy of a switch. `pipes`: 0 for a program that knows none."""

    cells: Cells
    tables: Tables
    engine: ReplicationEngine
    pipes: int

    @property
    def program(self) -> str:
        return self.cells.program.name


@dataclass
class Batch(Control):
    """Updates under way: the copy as they leave it, and the commands that bring the switch up to date.

    `in_place`: the tables are the switch's own; otherwise a copy is made before their first change. `memory`: what the commands
    point to.
    """

    in_place: bool = False
    changed: bool = field(init=False)
    commands: list[Command] = field(default_factory=list)
    memory: Memory = field(default_factory=list)

    def __post_init__(self) -> None:
        self.changed = self.in_place

    def own_tables(self) -> Tables:
        """The tables, to be changed."""
        if not self.changed:
            self.tables, self.changed = self.tables.copy(), True
        return self.tables

    def apply(self, type_: str, entity: Entity) -> None:
        """Makes one update. Raises EntityError."""
        if type_ not in TYPES:
            raise EntityError(f"{type_!r}: expected INSERT, MODIFY or DELETE")
        kind(entity).write(self, type_, own(entity))


@dataclass
class View(Control):
    """The copy as reads look at it. `read_cells` reads from the data plane."""

    read_cells: Callable[[Span], bytes]

    def by_pipe(self, kind: str, name: str | int, index: int | None, pipes: Pipes) -> list[tuple[int | None, bytes]]:
        """(pipe, bytes of the cells); pipe None: the program has no pipes."""
        spans = self.cells.places(kind, name, index, pipes)
        return [(pipe if self.pipes else None, self.read_cells(span)) for pipe, span in spans.items()]


K = TypeVar("K", bound=Entity)


class Kind(ABC, Generic[K]):
    """Writes and reads the entities of one class."""

    @abstractmethod
    def write(self, batch: Batch, type_: str, entity: K) -> None:
        """Makes an update: INSERT, MODIFY or DELETE. Raises EntityError, and has changed nothing then."""

    def read(self, view: View, pattern: K) -> Sequence[K]:
        """The entities that match. Raises EntityError."""
        raise no_entity(pattern)


KINDS: dict[type[Entity], Kind[Any]] = {}
R = TypeVar("R", bound=type[Kind[Any]])


def kind_of(*classes: type[Entity]) -> Callable[[R], R]:
    """Registers a class as the kind of these entities."""

    def register(kind_class: R) -> R:
        KINDS.update(dict.fromkeys(classes, kind_class()))
        return kind_class

    return register


def kind(entity: E) -> Kind[E]:
    """The kind of an entity. Raises EntityError."""
    entry = KINDS.get(type(entity))
    if entry is None:
        raise no_entity(entity)
    return entry


def no_entity(entity: Entity) -> EntityError:
    return EntityError(f"{entity!r} is no entity of this switch")
