"""Parts of the embedded switch beside its control plane: entries by pipe and their hits, observation, packet generators.

Generators are those of "P4-16 Tofino Native Architecture" 7.17 (tna_pktgen.c).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ina.base.native import CData, ffi, lib
from ina.p4.runtime.cells import Cells, Command, Memory, Pipes, Span
from ina.p4.runtime.entities import TableEntry
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.loaded_program import Program
from ina.p4.runtime.records import Digest
from ina.p4.runtime.tables import Tables
from ina.p4.runtime.tna_entities import EntryScope


class SwitchPart(ABC):
    """`pipes`: 0 for a program that knows none. `_tables`: the control plane's copy of the tables."""

    program: Program
    pointer: CData
    pipes: int
    _cells: Cells
    _tables: Tables
    _lock: threading.RLock
    _dataplane: CData | None

    @abstractmethod
    def _execute(self, commands: Sequence[Command], timeout: float = 60.0) -> CData:
        """Runs commands on the switch, now or between two bursts of its data plane."""

    @abstractmethod
    def _need(self, running: bool) -> None:
        """Raises RuntimeError unless the data plane runs, or does not."""

    def _need_open(self) -> None:
        """Raises RuntimeError: the switch is closed."""
        if self.pointer == ffi.NULL:
            raise RuntimeError("the switch is closed")

    def _read_cells(self, span: Span, timeout: float = 60.0) -> bytes:
        data = ffi.new("uint8_t[]", span["size"] * span["count"])
        with self._lock:
            self._execute([{"op": lib.INA_READ_STATE, "data": data, **span}], timeout)
        return bytes(ffi.buffer(data))


class PipeScope(SwitchPart):
    """The part of `Switch` for entries by pipe, and their hits."""

    def entry_scope(self, name: str) -> EntryScope:
        """The scope of a table or a value set, by full name."""
        with self._lock:
            return self._tables.scope(name)

    def key_mask(self, table: str) -> dict[str, int]:
        """The masks for comparing the fields of a table's key, by the table's full name."""
        with self._lock:
            return self._tables.key_mask(table)

    def has_entry(self, entry: TableEntry) -> bool:
        with self._lock:
            return bool(self._tables.find(entry))

    def exact_keys(self, table: str) -> tuple[tuple[str, ...], Container[Any]] | None:
        """Field names and current identities (Tables.identities) of a table's entries, if its keys are exact and all pipes share
        its entries; None: the table is not one of these."""
        with self._lock:
            return self._tables.identities(table)

    def entry_number(self, entry: TableEntry) -> tuple[int | None, int]:
        """The pipe that an entry is in (the first of those that share it; None: all), and its number in the table."""
        with self._lock:
            pipes = self._tables.pipes(entry)
            return (pipes[0] if pipes else None), self._tables.row_id(entry)

    def entry_hits(self, table: str, timeout: float = 60.0) -> set[tuple[int | None, int]]:
        """Entries of a table with idle time-outs that were hit since the last call, in the form of `entry_number`."""
        with self._lock:
            hits: set[tuple[int | None, int]] = set()
            shared = {p: group[0] for group in self._tables.scope(table).groups for p in group}
            for pipe, raw in self._take("hits", table, None, timeout).items():
                hits |= {(shared.get(pipe), i) for i in np.flatnonzero(np.frombuffer(raw, np.uint8)).tolist()}
            return hits

    def take_hit(self, entry: TableEntry, timeout: float = 60.0) -> bool:
        """Tells whether an entry was hit since the last call."""
        with self._lock:
            name, number = self._tables.p4info.table(entry.table).name, self._tables.row_id(entry)
            return any(map(any, self._take("hits", name, number, timeout, self._tables.pipes(entry)).values()))

    def set_hit(self, entry: TableEntry, hit: bool, timeout: float = 60.0) -> None:
        with self._lock:
            memory: Memory = []
            name, number = self._tables.p4info.table(entry.table).name, self._tables.row_id(entry)
            self._execute(self._cells.fill("hits", name, number, self._tables.pipes(entry), bytes([hit]), memory), timeout)

    def _take(self, kind: str, name: str, index: int | None, timeout: float, pipes: Pipes = None) -> dict[int, bytes]:
        """Reads and clears cells between two bursts; returns their bytes by pipe."""
        memory: Memory = []
        cells = {}
        for pipe, span in self._cells.places(kind, name, index, pipes).items():
            data = ffi.new("uint8_t[]", span["count"] * span["size"])
            zero = ffi.new("uint8_t[]", span["count"] * span["size"])
            memory += [data, zero]
            self._execute([{"op": lib.INA_READ_STATE, "data": data, **span}, {"op": lib.INA_WRITE_STATE, "data": zero, **span}],
                          timeout)
            cells[pipe] = bytes(ffi.buffer(data))
        return cells


class Telemetry(SwitchPart):
    """The part of `Switch` that observes it."""

    def digests(self, limit: int = 256) -> tuple[list[Digest], int]:
        """Up to `limit` digests since the last call, oldest first, and how many were overwritten before."""
        head, meta = ffi.sizeof("struct ina_digest"), self.program.meta_size
        stride = head + meta
        raw = ffi.new("uint8_t[]", limit * stride)
        with self._lock:
            commands = self._execute([{"op": lib.INA_READ_DIGESTS, "count": limit, "stride": stride, "data": raw}])
        layouts = {x["number"] | x.get("pipeline", 0) << 8: x for x in self.program.layout.get("digests", ())}
        digests = []
        for i in range(commands[0].count):
            d = ffi.cast("struct ina_digest *", raw + i * stride)
            data = bytes(ffi.buffer(raw + i * stride + head, meta))
            layout = layouts.get(d.number, {"name": "", "fields": ()})
            places = {f["name"]: slice(f["offset"], f["offset"] + f["bytes"]) for f in layout["fields"]}
            fields = {name: int.from_bytes(data[place], "little") for name, place in places.items()}
            digests.append(Digest(d.time, d.ingress_port, layout["name"], fields, data))
        return digests, commands[0].offset

    def dataplane_stats(self) -> dict[str, int]:
        """bursts, packets, sleeps and commands of the running data plane."""
        with self._lock:
            self._need(running=True)
            raw = ffi.new("struct ina_dataplane_stats *")
            assert self._dataplane is not None
            lib.ina_dataplane_get_stats(self._dataplane, raw)
            return {"bursts": raw.bursts, "packets": raw.packets, "sleeps": raw.sleeps, "commands": raw.commands}

    def snapshot(self) -> bytes:
        """The program's whole state: registers, then statistics; one pipe after another."""
        size = lib.ina_switch_state_size(self.pointer)
        return self._read_cells({"offset": 0, "stride": size, "size": size, "count": 1})

    def restore(self, state: bytes) -> None:
        """The reverse of snapshot."""
        size = lib.ina_switch_state_size(self.pointer)
        if len(state) != size:
            raise ValueError(f"{len(state)} bytes: this program's state has {size}")
        data = ffi.from_buffer(state)
        with self._lock:
            if size:
                self._execute([{"op": lib.INA_WRITE_STATE, "size": size, "stride": size, "count": 1, "data": data}])

    def messages(self) -> dict[str, int]:
        """The number of executions of each `log_msg` of the program, by place and text."""
        counts: dict[str, int] = {}
        for m in self.program.layout.get("messages", ()):
            for pipe in self._cells.pipes_of({"name": m["text"], **m}, None):
                span = {"offset": m["offset"] + pipe * self._cells.stride, "stride": 16, "size": 16, "count": 1}
                text = f"{m['where']}: {m['text']}"
                counts[text] = counts.get(text, 0) + int.from_bytes(self._read_cells(span)[:8], "little")
        return counts


TRIGGERS = {"one_shot": lib.INA_TNA_ONE_SHOT, "periodic": lib.INA_TNA_PERIODIC, "port_down": lib.INA_TNA_PORT_DOWN,
            "pattern": lib.INA_TNA_PATTERN}


@dataclass(frozen=True, slots=True)
class PktgenApp:
    """An application of a pipe's generator. Each `trigger` ("one_shot", "periodic", "port_down", "pattern") sends `batches` of
    `packets` of `length` bytes at `at` in the pipe's buffer, with 6 bytes in front. Times in ns: of the timer, and from one
    packet or batch to the next (never less than a packet lasts at 100 Gb/s). `pattern` under `mask`: compared with a
    recirculated packet's first 32 bits.
    """

    trigger: str = "one_shot"
    enabled: bool = False
    timer: int = 0
    batches: int = 1
    packets: int = 1
    packet_gap: int = 0
    batch_gap: int = 0
    length: int = 0
    at: int = 0
    pattern: int = 0
    mask: int = 0
    port: int = 68
    increment: bool = False


class Generators(SwitchPart):
    """The part of `Switch` for generators: each pipe has one, with 8 applications and 16 KiB for packets."""

    def _run_command(self, command: Command) -> None:
        with self._lock:
            if not self.pipes:
                raise EntityError("packet generators are TNA's", "UNIMPLEMENTED")
            try:
                self._execute([command])
            except OSError as error:
                raise EntityError(f"packet generator: {error.strerror}") from None

    def set_app(self, pipe: int, number: int, app: PktgenApp) -> None:
        if app.trigger not in TRIGGERS or not 0 <= number < lib.INA_TNA_APPS:
            raise EntityError(f"application {number}, triggered by {app.trigger}: expected 0..7, {', '.join(TRIGGERS)}")
        data = ffi.new("struct ina_tna_app *", {
            "timer_ps": app.timer * 1000, "packet_gap_ps": app.packet_gap * 1000, "batch_gap_ps": app.batch_gap * 1000,
            "batches": app.batches, "packets": app.packets, "length": app.length, "at": app.at, "pattern": app.pattern,
            "mask": app.mask, "port": app.port, "trigger": TRIGGERS[app.trigger], "enabled": app.enabled,
            "increment": app.increment,
        })
        self._run_command({"op": lib.INA_TNA_SET_APP, "id": 8 * pipe + number, "data": data})

    def app_counters(self, pipe: int, number: int) -> tuple[int, int, int]:
        """Triggers, batches, packets."""
        counters = ffi.new("struct ina_tna_app_counters *")
        self._run_command({"op": lib.INA_TNA_READ_APP, "id": 8 * pipe + number, "data": counters})
        return counters.triggers, counters.batches, counters.packets

    def set_app_counters(self, pipe: int, number: int, triggers: int, batches: int, packets: int) -> None:
        data = ffi.new("struct ina_tna_app_counters *", [triggers, batches, packets])
        self._run_command({"op": lib.INA_TNA_READ_APP, "id": 8 * pipe + number, "data": data, "count": 1})

    def set_pktgen_buffer(self, pipe: int, at: int, packet: bytes) -> None:
        data = ffi.new("uint8_t[]", packet or b"\0")
        self._run_command({"op": lib.INA_TNA_SET_PKTGEN_BUFFER, "id": pipe, "offset": at, "count": len(packet), "data": data})

    def set_pktgen_port(self, port: int, sends: bool = False, patterns: bool = False, clear: bool = False) -> None:
        """Configures a port. `sends`: port 68 sends generated packets; `patterns`: packets that recirculate at 68 to 71 may
        trigger; `clear`: the next time that the port goes down triggers, once."""
        flags = sends * lib.INA_TNA_PKTGEN_ENABLE | patterns * lib.INA_TNA_PKTGEN_PATTERN | clear * lib.INA_TNA_PKTGEN_CLEAR
        self._run_command({"op": lib.INA_TNA_SET_PKTGEN_PORT, "id": port, "count": flags})
