"""Cells of counters, meters, registers and filters in a program's state block: their places, and commands that write them.

A command is run between two bursts of packets: fields of struct ina_command (c/switch.h), by name.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

import numpy as np

from ina.base.native import CData, ffi, lib
from ina.p4.runtime.entities import MeterConfig, TableEntry
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.loaded_program import Layout, Program
from ina.p4.runtime.p4info import find
from ina.p4.runtime.tables import Tables
from ina.p4.runtime.tna_entities import LpfConfig, WredConfig

Command = dict[str, int | CData]
Span = dict[str, int]  # the fields of a command that name cells of the program's state: offset, stride, size, count
Memory = list[CData]  # what commands point to, which must live until they have run


# struct ina_meter of the compiled program (prelude.h); of a filter: configured, rise, fall, out, low, high, average, last
CELL = struct.Struct("<Q6dQ")


class _Layout(NamedTuple):
    name: str
    id: None
    layout: Layout


Pipes = int | tuple[int, ...] | None
CELL_BYTES = {"counter": 16, "meter": 64, "filter": 64, "hits": 1}


class Cells:
    """The cells of a switch with `pipes` pipes, `stride` bytes of state apart (a program without pipes: one)."""

    def __init__(self, program: Program, pipes: int = 1, stride: int = 0) -> None:
        self.program = program
        self.pipes = pipes
        self.stride = stride

    def layout(self, kind: str, name: str | int) -> Layout:
        """The layout of a counter, meter, register or filter; "name.member" is one of the two words in a register of pairs."""
        if kind == "filter":  # its full name, or a suffix that only one has
            return find("filter", [_Layout(f["name"], None, f) for f in self.program.layout.get("filters", ())], name).layout
        if kind == "hits":
            table = next((t for t in self.program.layout["tables"] if t["name"] == name and t.get("hits") is not None), None)
            if table is None:
                raise EntityError(f"table {name} has no idle time-outs", "NOT_FOUND")
            return {**table, "offset": table["hits"]}
        layouts: list[Layout] = self.program.layout.get(f"{kind}s", [])
        for layout in layouts:
            if layout["name"] == name:
                return layout
        info = getattr(self.program.p4info, kind)(name)
        for layout in layouts:
            if layout["name"] == info.name:
                return layout
        if words := [layout["name"] for layout in layouts if layout["name"].startswith(f"{info.name}.")]:
            raise EntityError(f"{kind} {info.name} is of pairs: expected {' or '.join(words)}", "NOT_FOUND")
        raise EntityError(f"{kind} {info.name}: the program declares it and never uses it", "NOT_FOUND")

    def pipes_of(self, layout: Layout, pipe: Pipes) -> list[int]:
        """Pipes that run the pipeline of the object with `layout`: `pipe`, those of several, or (None) all of them."""
        pipelines = len(self.program.pipelines)
        pipes = [p for p in range(self.pipes) if p % pipelines == layout.get("pipeline", 0)]
        if pipe is None:
            return pipes
        if isinstance(pipe, tuple):
            return [p for p in pipes if p in pipe]
        if pipe not in pipes:
            raise EntityError(f"{layout['name']}: pipe {pipe}: it is in {', '.join(map(str, pipes))}")
        return [pipe]

    def places(self, kind: str, name: str | int, index: int | None, pipe: Pipes = None) -> dict[int, Span]:
        """Places by pipe: cell `index` of an array, None: all cells, as a command's offset, stride, size and count."""
        layout = self.layout(kind, name)
        size = CELL_BYTES.get(kind) or layout["bytes"]
        stride = layout["stride"] if kind == "register" else size
        offset, count = layout["offset"], layout["size"]
        if index is not None:
            if not 0 <= index < layout["size"]:
                raise EntityError(f"{kind} {layout['name']}: index {index}: expected 0..{layout['size'] - 1}")
            offset, count = offset + index * stride, 1
        return {
            p: {"offset": offset + p * self.stride, "stride": stride, "size": size, "count": count}
            for p in self.pipes_of(layout, pipe)
        }

    def fill(
        self, kind: str, name: str | int, index: int | None, pipe: Pipes, cell: bytes, memory: Memory
    ) -> list[Command]:
        commands: list[Command] = []
        for span in self.places(kind, name, index, pipe).values():
            data = ffi.new("uint8_t[]", cell * span["count"])
            memory.append(data)
            commands.append({"op": lib.INA_WRITE_STATE, "data": data, **span})
        return commands

    def clear(self, kind: str, name: str, index: int, pipes: Pipes, memory: Memory) -> list[Command]:
        """The commands that reset a direct cell, which a new entry takes over from a deleted one, to its initial value."""
        if kind != "register":
            return self.fill(kind, name, index, pipes, bytes(CELL_BYTES[kind]), memory)
        layout = self.layout(kind, name)
        size = layout["bytes"]
        return self.fill(kind, name, index, pipes, (int(layout["initial"]) % (1 << 8 * size)).to_bytes(size, "little"), memory)

    @staticmethod
    def index(kind: str, layout: Layout, index: int | None, entry: TableEntry | None, tables: Tables) -> int | None:
        """The index of a cell, which is an entry's in a direct object; None: all of them. Raises EntityError."""
        if kind == "filter" and (layout["table"] is None) != (entry is None):
            expected = f"a direct one: name an entry of table {layout['table']}"
            wrong = expected if entry is None else "not a direct one: it has an index, and no entry"
            raise EntityError(f"{layout['name']}: {wrong}")
        if entry is None:
            return index
        if tables.p4info.table(entry.table).name != layout.get("table"):
            wrong = f"belongs to table {layout['table']}, not to" if kind == "filter" else "is not a direct one of table"
            raise EntityError(f"{'' if kind == 'filter' else 'register '}{layout['name']}: it {wrong} {entry.table}")
        return tables.row_id(entry)

    @staticmethod
    def register_values(layout: Layout, raw: bytes) -> np.ndarray:
        """Values of a register's cells: unsigned integers, or Python integers (dtype object) if wider than 64 bits."""
        size = layout["bytes"]
        if size <= 8:
            return np.frombuffer(raw, f"<u{size}")
        return np.array([int.from_bytes(raw[i : i + size], "little") for i in range(0, len(raw), size)], object)


def meter_cell(config: MeterConfig | None) -> bytes:
    """A meter with full buckets; None: one that is always green."""
    if config is None:
        return bytes(CELL.size)
    rates = (config.peak_rate, config.peak_burst, config.committed_rate, config.committed_burst)
    if not all(math.isfinite(r) and r >= 0 for r in rates):
        raise EntityError(f"{config}: rates and bursts are finite and not negative")
    return CELL.pack(1, *map(float, rates), float(config.peak_burst), float(config.committed_burst), 0)


def meter_configs(raw: bytes) -> list[MeterConfig | None]:
    return [MeterConfig(cir, int(cburst), pir, int(pburst)) if configured else None
            for configured, pir, pburst, cir, cburst, _, _, _ in CELL.iter_unpack(raw)]


def filter_cell(layout: Layout, config: LpfConfig | WredConfig | None) -> bytes:
    """A filter that has just been configured. Raises EntityError."""
    if config is None:
        return bytes(CELL.size)
    place = f"{layout['name']}: {config}"
    if not isinstance(config, LpfConfig if layout["type"] == "lpf" else WredConfig):
        raise EntityError(f"{place}: it is a {layout['type']}")
    if isinstance(config, LpfConfig):
        values: tuple[float, ...] = (config.rise, config.fall)
        if not 0 <= config.scale_down <= 31:
            raise EntityError(f"{place}: scale_down: expected 0..31")
        packed = (2 if config.rate else 1, config.rise, config.fall, 2.0**-config.scale_down, 0.0, 0.0)
    else:
        values = (config.time_constant, config.low, config.high, config.probability)
        if config.probability > 1 or config.low > config.high:
            raise EntityError(f"{place}: expected a probability of 0 to 1, and low not above high")
        packed = (1, config.time_constant, config.time_constant, config.probability, config.low, config.high)
    if not all(math.isfinite(v) and v >= 0 for v in values):
        raise EntityError(f"{place}: times and thresholds are finite and not negative")
    return CELL.pack(*packed, 0.0, 0)


def filter_configs(layout: Layout, raw: bytes) -> list[LpfConfig | WredConfig | None]:
    return [
        None if not configured
        else LpfConfig(rise, fall, configured == 2, round(-math.log2(out))) if layout["type"] == "lpf"
        else WredConfig(rise, low, high, out)
        for configured, rise, fall, out, low, high, _, _ in CELL.iter_unpack(raw)
    ]
