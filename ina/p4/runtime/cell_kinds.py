"""Kinds of entities that are cells of the program's state: counters, meters, registers and filters, which always exist."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from ina.p4.runtime.cells import Pipes, meter_cell, meter_configs
from ina.p4.runtime.command import Command
from ina.p4.runtime.entities import (
    CounterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    Entity,
    MeterEntry,
    RegisterEntry,
    TableEntry,
    as_int,
)
from ina.p4.runtime.kinds import Batch, Control, Kind, View, kind_of
from ina.p4.runtime.p4info import EntityError
from ina.p4.runtime.tna_entities import FilterEntry

C = TypeVar("C", bound=Entity)


def entry_pipes(control: Control, pipe: int | None, entry: TableEntry | None) -> Pipes:
    """The pipes of a cell: `pipe`, or (None) all pipes of its entry, if it has one."""
    return control.tables.pipes(entry) if pipe is None and entry is not None else pipe


class Cell(Kind[C]):
    """Cells of one kind of object."""

    def write(self, batch: Batch, type_: str, entity: C) -> None:
        if type_ != "MODIFY":
            raise EntityError(f"{type(entity).__name__}: only MODIFY is possible")
        batch.commands += self.commands(batch, entity)

    @abstractmethod
    def commands(self, batch: Batch, entity: C) -> list[Command]:
        """The commands that write a cell, or (index None) all of them."""


# ---- counters


def _counts(entity: CounterEntry | DirectCounterEntry) -> bytes:
    return b"".join(as_int(n, 64, "counter").to_bytes(8, "little") for n in (entity.packets, entity.bytes))


def _counter_commands(
    batch: Batch, name: str | int, index: int | None, pipe: int | None, pipes: Pipes, cell: bytes
) -> list[Command]:
    """Sets a counter in `pipe`; None: in the first of `pipes`, and to zero in the others, so that their sum is right."""
    cells, memory = batch.cells, batch.memory
    if pipe is not None:
        return cells.fill("counter", name, index, pipe, cell, memory)
    first, *others = cells.pipes_of(cells.layout("counter", name), pipes)
    commands = cells.fill("counter", name, index, first, cell, memory)
    for other in others:
        commands += cells.fill("counter", name, index, other, bytes(len(cell)), memory)
    return commands


def _read_counts(view: View, name: str, index: int | None, pipes: Pipes) -> Iterator[tuple[int | None, list[list[int]]]]:
    """(pipe, packets and bytes of each cell)."""
    for pipe, raw in view.by_pipe("counter", name, index, pipes):
        yield pipe, np.frombuffer(raw, "<u8").reshape(-1, 2).tolist()


@kind_of(CounterEntry)
class Counters(Cell[CounterEntry]):
    def commands(self, batch: Batch, entity: CounterEntry) -> list[Command]:
        return _counter_commands(batch, entity.counter, entity.index, entity.pipe, None, _counts(entity))

    def read(self, view: View, pattern: CounterEntry) -> list[CounterEntry]:
        name, first = view.cells.program.p4info.counter(pattern.counter).name, pattern.index or 0
        return [
            CounterEntry(name, first + i, packets, octets, pipe)
            for pipe, cells in _read_counts(view, name, pattern.index, pattern.pipe)
            for i, (packets, octets) in enumerate(cells)
        ]


@kind_of(DirectCounterEntry)
class DirectCounters(Cell[DirectCounterEntry]):
    def commands(self, batch: Batch, entity: DirectCounterEntry) -> list[Command]:
        cell = _counts(entity)
        name, index = batch.tables.direct_counter(entity.entry)
        return _counter_commands(batch, name, index, entity.pipe, entry_pipes(batch, entity.pipe, entity.entry), cell)

    def read(self, view: View, pattern: DirectCounterEntry) -> list[DirectCounterEntry]:
        name, index = view.tables.direct_counter(pattern.entry)
        counts = _read_counts(view, name, index, entry_pipes(view, pattern.pipe, pattern.entry))
        return [DirectCounterEntry(pattern.entry, packets, octets, pipe) for pipe, ((packets, octets),) in counts]


# ---- meters


@kind_of(MeterEntry)
class Meters(Cell[MeterEntry]):
    def commands(self, batch: Batch, entity: MeterEntry) -> list[Command]:
        return batch.cells.fill("meter", entity.meter, entity.index, entity.pipe, meter_cell(entity.config), batch.memory)

    def read(self, view: View, pattern: MeterEntry) -> list[MeterEntry]:
        name, first = view.cells.program.p4info.meter(pattern.meter).name, pattern.index or 0
        return [
            MeterEntry(name, first + i, config, pipe)
            for pipe, raw in view.by_pipe("meter", name, pattern.index, pattern.pipe)
            for i, config in enumerate(meter_configs(raw))
        ]


@kind_of(DirectMeterEntry)
class DirectMeters(Cell[DirectMeterEntry]):
    def commands(self, batch: Batch, entity: DirectMeterEntry) -> list[Command]:
        cell = meter_cell(entity.config)
        name, index = batch.tables.direct_meter(entity.entry)
        return batch.cells.fill("meter", name, index, entry_pipes(batch, entity.pipe, entity.entry), cell, batch.memory)

    def read(self, view: View, pattern: DirectMeterEntry) -> list[DirectMeterEntry]:
        name, index = view.tables.direct_meter(pattern.entry)
        cells = view.by_pipe("meter", name, index, entry_pipes(view, pattern.pipe, pattern.entry))
        return [DirectMeterEntry(pattern.entry, meter_configs(raw)[0], pipe) for pipe, raw in cells]


# ---- registers


@kind_of(RegisterEntry)
class Registers(Cell[RegisterEntry]):
    def commands(self, batch: Batch, entity: RegisterEntry) -> list[Command]:
        layout = batch.cells.layout("register", entity.register)
        value = as_int(entity.value, layout["width"], f"register {layout['name']}")
        cell = value.to_bytes(layout["bytes"], "little")
        index = entity.index if entity.entry is None else batch.cells.register_index(layout, entity.entry, batch.tables)
        pipes = entry_pipes(batch, entity.pipe, entity.entry)
        return batch.cells.fill("register", layout["name"], index, pipes, cell, batch.memory)

    def read(self, view: View, pattern: RegisterEntry) -> list[RegisterEntry]:
        layout = view.cells.layout("register", pattern.register)
        name, index = layout["name"], pattern.index
        if pattern.entry is not None:
            index = view.cells.register_index(layout, pattern.entry, view.tables)
        return [
            RegisterEntry(name, (index or 0) + i, value, pipe, pattern.entry)
            for pipe, raw in view.by_pipe("register", name, index, entry_pipes(view, pattern.pipe, pattern.entry))
            for i, value in enumerate(view.cells.register_values(layout, raw).tolist())
        ]


REGISTERS = Registers()


# ---- filters


@kind_of(FilterEntry)
class FilterCells(Cell[FilterEntry]):
    def commands(self, batch: Batch, entity: FilterEntry) -> list[Command]:
        filters = batch.cells.filters
        index, pipes = filters.index(entity, batch.tables), entry_pipes(batch, entity.pipe, entity.entry)
        return batch.cells.fill("filter", entity.filter, index, pipes, filters.cell(entity), batch.memory)

    def read(self, view: View, pattern: FilterEntry) -> list[FilterEntry]:
        filters = view.cells.filters
        index, pipes = filters.index(pattern, view.tables), entry_pipes(view, pattern.pipe, pattern.entry)
        cells = view.by_pipe("filter", pattern.filter, index, pipes)
        name = filters.layout(pattern.filter)["name"]
        return [
            FilterEntry(name, None if pattern.entry else (index or 0) + i, config, pipe, pattern.entry)
            for pipe, raw in cells
            for i, config in enumerate(filters.configs(pattern.filter, raw))
        ]
