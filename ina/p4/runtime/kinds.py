"""Kinds of entities of the embedded switch: for the entities of each class, how they are written and read.

A kind is one class, which `@kind_of(EntityClass)` registers; replication.py has those of the replication engine. Cells of the
program's state (counters, meters, registers, filters) always exist; entries, action profiles, value sets and settings of a whole
table are in the tables' image.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from ina.p4.runtime.cells import Cells, Command, Memory, Pipes, Span, filter_cell, filter_configs, meter_cell, meter_configs
from ina.p4.runtime.entities import (
    CounterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    E,
    Entity,
    MeterEntry,
    ProfileGroup,
    ProfileMember,
    RegisterEntry,
    TableEntry,
    ValueSetEntry,
    as_int,
    checked,
)
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.p4info import Json
from ina.p4.runtime.profiles import P
from ina.p4.runtime.tables import Tables
from ina.p4.runtime.tna_entities import EntryScope, FilterEntry, KeyMask


class ReplicationEngine(Protocol):
    """The control plane's copy of a packet replication engine: replication.py has v1model's and TNA's."""

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
        kind(entity).write(self, type_, checked(entity))


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
    if type(entity) not in KINDS:
        raise no_entity(entity)
    return KINDS[type(entity)]


def no_entity(entity: Entity) -> EntityError:
    return EntityError(f"{entity!r} is no entity of this switch")


# ---- cells

Direct = DirectCounterEntry | DirectMeterEntry
C = TypeVar("C", bound=CounterEntry | MeterEntry | RegisterEntry | FilterEntry | Direct)


class CellKind(Kind[C]):
    """Cells of one kind of object; `kind`: its name in the layout, and the entities' field with the object's name."""

    kind: ClassVar[str]

    @abstractmethod
    def cell(self, control: Control, entity: C) -> bytes:
        """The bytes of a cell. Raises EntityError."""

    @abstractmethod
    def values(self, control: Control, name: str, raw: bytes) -> Iterable[Json]:
        """The values of cells, by the entities' fields."""

    def place(self, control: Control, entity: C) -> tuple[str, int | None, Pipes]:
        """The object's full name, the cell in it (None: all of them), and its pipes: the entity's, or all pipes of its entry."""
        entry = getattr(entity, "entry", None)
        pipes = control.tables.pipes(entry) if entity.pipe is None and entry is not None else entity.pipe
        if isinstance(entity, Direct):
            return *control.tables.direct(self.kind, entity.entry), pipes
        layout = control.cells.layout(self.kind, getattr(entity, self.kind))
        return layout["name"], control.cells.index(self.kind, layout, entity.index, entry, control.tables), pipes

    def write(self, batch: Batch, type_: str, entity: C) -> None:
        if type_ != "MODIFY":
            raise EntityError(f"{type(entity).__name__}: only MODIFY is possible")
        cell = self.cell(batch, entity)
        self.fill(batch, *self.place(batch, entity), cell)

    def fill(self, batch: Batch, name: str, index: int | None, pipes: Pipes, cell: bytes) -> None:
        batch.commands += batch.cells.fill(self.kind, name, index, pipes, cell, batch.memory)

    def read(self, view: View, pattern: C) -> list[C]:
        name, index, pipes = self.place(view, pattern)
        label: Json = {} if isinstance(pattern, Direct) else {self.kind: name, "index": None}
        numbered = bool(label) and not (isinstance(pattern, FilterEntry) and pattern.entry)
        return [
            replace(pattern, pipe=pipe, **label | ({"index": i} if numbered else {}) | values)
            for pipe, raw in view.by_pipe(self.kind, name, index, pipes)
            for i, values in enumerate(self.values(view, name, raw), index or 0)
        ]


@kind_of(CounterEntry, DirectCounterEntry)
class Counters(CellKind[CounterEntry | DirectCounterEntry]):
    kind = "counter"

    def cell(self, control: Control, entity: CounterEntry | DirectCounterEntry) -> bytes:
        return b"".join(as_int(n, 64, "counter").to_bytes(8, "little") for n in (entity.packets, entity.bytes))

    def values(self, control: Control, name: str, raw: bytes) -> Iterable[Json]:
        return [{"packets": packets, "bytes": octets} for packets, octets in np.frombuffer(raw, "<u8").reshape(-1, 2).tolist()]

    def fill(self, batch: Batch, name: str, index: int | None, pipes: Pipes, cell: bytes) -> None:
        """Sets a counter in the first of `pipes`, and to zero in the others, so that their sum is right."""
        first, *others = batch.cells.pipes_of(batch.cells.layout("counter", name), pipes)
        super().fill(batch, name, index, first, cell)
        for other in others:
            super().fill(batch, name, index, other, bytes(len(cell)))


@kind_of(MeterEntry, DirectMeterEntry)
class Meters(CellKind[MeterEntry | DirectMeterEntry]):
    kind = "meter"

    def cell(self, control: Control, entity: MeterEntry | DirectMeterEntry) -> bytes:
        return meter_cell(entity.config)

    def values(self, control: Control, name: str, raw: bytes) -> Iterable[Json]:
        return [{"config": config} for config in meter_configs(raw)]


@kind_of(RegisterEntry)
class Registers(CellKind[RegisterEntry]):
    kind = "register"

    def cell(self, control: Control, entity: RegisterEntry) -> bytes:
        layout = control.cells.layout("register", entity.register)
        return as_int(entity.value, layout["width"], f"register {layout['name']}").to_bytes(layout["bytes"], "little")

    def values(self, control: Control, name: str, raw: bytes) -> Iterable[Json]:
        cells = control.cells.register_values(control.cells.layout("register", name), raw)
        return [{"value": value} for value in cells.tolist()]


@kind_of(FilterEntry)
class Filters(CellKind[FilterEntry]):
    kind = "filter"

    def cell(self, control: Control, entity: FilterEntry) -> bytes:
        return filter_cell(control.cells.layout("filter", entity.filter), entity.config)

    def values(self, control: Control, name: str, raw: bytes) -> Iterable[Json]:
        return [{"config": config} for config in filter_configs(control.cells.layout("filter", name), raw)]


# ---- tables


@kind_of(TableEntry)
class TableEntries(Kind[TableEntry]):
    def write(self, batch: Batch, type_: str, entity: TableEntry) -> None:
        batch.own_tables().apply(type_, entity)

    def read(self, view: View, pattern: TableEntry) -> list[TableEntry]:
        """Entries of the pattern's table (none: of all), with a match: that entry."""
        if pattern.match and not pattern.is_default and pattern.table:
            matches = view.tables.find(pattern)
            if matches is not None:
                return matches
        rows = view.tables.entries(pattern.table or None, pattern.pipe)
        if pattern.is_default and pattern.table:
            rows = [view.tables.default_entry(pattern.table, pattern.pipe)]
        return [
            row
            for row in rows
            if row.is_default == pattern.is_default
            and (not pattern.match or (row.match == pattern.match and row.priority == pattern.priority))
        ]


@kind_of(ProfileMember, ProfileGroup)
class OfProfiles(Kind[P]):
    def write(self, batch: Batch, type_: str, entity: P) -> None:
        batch.own_tables().apply_profile(type_, entity)

    def read(self, view: View, pattern: P) -> list[P]:
        return view.tables.profiles.read(pattern)


@kind_of(ValueSetEntry)
class ValueSetEntries(Kind[ValueSetEntry]):
    def write(self, batch: Batch, type_: str, entity: ValueSetEntry) -> None:
        batch.own_tables().value_sets.apply(type_, entity)

    def read(self, view: View, pattern: ValueSetEntry) -> Sequence[ValueSetEntry]:
        return view.tables.value_sets.read(pattern)


@kind_of(EntryScope, KeyMask)
class TableSettings(Kind[EntryScope | KeyMask]):
    """`Switch.entry_scope` and `Switch.key_mask` return them."""

    def write(self, batch: Batch, type_: str, entity: EntryScope | KeyMask) -> None:
        if not batch.pipes:
            raise EntityError(f"{type(entity).__name__}: {batch.program} is no TNA program", "UNIMPLEMENTED")
        if isinstance(entity, KeyMask):
            name, words = batch.own_tables().apply_key_mask(entity)
            for number, word in enumerate(words):
                KINDS[RegisterEntry].write(batch, "MODIFY", RegisterEntry(name, number, word))
            return
        if type_ != "MODIFY":
            raise EntityError("an entry scope: only MODIFY is possible")
        batch.own_tables().apply_scope(entity, batch.pipes)
