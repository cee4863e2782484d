"""Cells of counters, meters and registers in a program's state block: their places, and commands that write them."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from ina.base.native import ffi, lib
from ina.p4.runtime.command import Command, Memory, Span
from ina.p4.runtime.entities import MeterConfig, TableEntry
from ina.p4.runtime.filters import Filters
from ina.p4.runtime.loaded_program import Program
from ina.p4.runtime.p4info import EntityError
from ina.p4.runtime.tables import Tables

Pipes = int | tuple[int, ...] | None
CELL_BYTES = {"counter": 16, "meter": 64, "filter": 64, "hits": 1}
_METER = struct.Struct("<Q6dQ")  # struct ina_meter of the compiled program (prelude.h)


class Cells:
    """The cells of a switch with `pipes` pipes, `stride` bytes of state apart (a program without pipes: one)."""

    def __init__(self, program: Program, pipes: int = 1, stride: int = 0) -> None:
        self.program = program
        self.pipes = pipes
        self.stride = stride
        self.filters = Filters(tuple(program.layout.get("filters", ())))

    def layout(self, kind: str, name: str | int) -> dict[str, Any]:
        """The layout of a counter, meter, register or filter; "name.member" is one of the two words in a register of pairs."""
        if kind == "filter":
            return self.filters.layout(str(name))
        if kind == "hits":
            table = next((t for t in self.program.layout["tables"] if t["name"] == name and t.get("hits") is not None), None)
            if table is None:
                raise EntityError(f"table {name} has no idle time-outs", "NOT_FOUND")
            return {**table, "offset": table["hits"]}
        layouts: list[dict[str, Any]] = self.program.layout.get(f"{kind}s", [])
        for layout in layouts:
            if layout["name"] == name:
                return layout
        info = getattr(self.program.p4info, kind)(name)
        for layout in layouts:
            if layout["name"] == info.name:
                return layout
        raise EntityError(f"{kind} {info.name}: the program declares it and never uses it", "NOT_FOUND")

    def pipes_of(self, layout: dict[str, Any], pipe: Pipes) -> list[int]:
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
    def register_index(layout: dict[str, Any], entry: TableEntry, tables: Tables) -> int:
        """The index of an entry's cell in a direct register."""
        if layout.get("table") != tables.p4info.table(entry.table).name:
            raise EntityError(f"register {layout['name']}: it is not a direct one of table {entry.table}")
        return tables.row_id(entry)

    @staticmethod
    def register_values(layout: dict[str, Any], raw: bytes) -> np.ndarray:
        """Values of a register's cells: unsigned integers, or Python integers (dtype object) if wider than 64 bits."""
        size = layout["bytes"]
        if size <= 8:
            return np.frombuffer(raw, f"<u{size}")
        return np.array([int.from_bytes(raw[i : i + size], "little") for i in range(0, len(raw), size)], object)


def meter_cell(config: MeterConfig | None) -> bytes:
    """A meter with full buckets; None: one that is always green."""
    if config is None:
        return bytes(_METER.size)
    rates = (config.peak_rate, config.peak_burst, config.committed_rate, config.committed_burst)
    if not all(math.isfinite(r) and r >= 0 for r in rates):
        raise EntityError(f"{config}: rates and bursts are finite and not negative")
    return _METER.pack(1, *map(float, rates), float(config.peak_burst), float(config.committed_burst), 0)


def meter_configs(raw: bytes) -> list[MeterConfig | None]:
    configs: list[MeterConfig | None] = []
    for configured, pir, pburst, cir, cburst, _, _, _ in _METER.iter_unpack(raw):
        configs.append(MeterConfig(cir, int(cburst), pir, int(pburst)) if configured else None)
    return configs
