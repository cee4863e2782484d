"""Entry scopes of an embedded switch's pipes (TNA), and hits of entries by packets (idle time-outs)."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np

from ina.base.native import ffi, lib
from ina.p4.runtime.cells import Pipes
from ina.p4.runtime.command import Memory
from ina.p4.runtime.entities import TableEntry
from ina.p4.runtime.switch_part import SwitchPart
from ina.p4.runtime.tna_entities import EntryScope


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
                          timeout)  # fmt: skip
            cells[pipe] = bytes(ffi.buffer(data))
        return cells
