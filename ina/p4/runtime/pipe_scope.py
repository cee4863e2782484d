"""Which pipes of an embedded switch have which entries of a TNA program, and which entries packets hit (idle time-outs)."""

from __future__ import annotations

import threading
from collections.abc import Container
from typing import Any

import numpy as np

from ina.base.native import ffi, lib
from ina.p4.runtime.cells import Cells, Pipes
from ina.p4.runtime.entities import TableEntry
from ina.p4.runtime.tables import Tables
from ina.p4.runtime.tna_entities import EntryScope


class PipeScope:
    """Of a Switch."""

    _cells: Cells
    _lock: threading.RLock
    _tables: Tables
    _execute: Any

    def entry_scope(self, name: str) -> EntryScope:
        """Of a table or a value set, by full name."""
        with self._lock:
            return self._tables.scope(name)

    def key_mask(self, table: str) -> dict[str, int]:
        """What the fields of a table's key are compared under, by full name of the table."""
        with self._lock:
            return self._tables.key_mask(table)

    def has_entry(self, entry: TableEntry) -> bool:
        with self._lock:
            return bool(self._tables.find(entry))

    def exact_keys(self, table: str) -> tuple[tuple[str, ...], Container[Any]] | None:
        """Of a table whose keys are exact and whose entries all pipes share: the names of its fields, and what its entries are
        known by now (Tables.identities); None: the table is not one of these."""
        with self._lock:
            return self._tables.identities(table)

    def entry_number(self, entry: TableEntry) -> tuple[int | None, int]:
        """The pipe that an entry is in (the first of those that share it; None: all), and its number in the table."""
        with self._lock:
            pipes = self._tables.pipes(entry)
            return (pipes[0] if pipes else None), self._tables.row_id(entry)

    def entry_hits(self, table: str, timeout: float = 5.0) -> set[tuple[int | None, int]]:
        """Entries of a table with idle time-outs that were hit since the last time, as `entry_number` says them."""
        with self._lock:
            found: set[tuple[int | None, int]] = set()
            shared = {p: group[0] for group in self._tables.scope(table).groups for p in group}
            for pipe, raw in self._take("hits", table, None, timeout).items():
                found |= {(shared.get(pipe), i) for i in np.flatnonzero(np.frombuffer(raw, np.uint8)).tolist()}
            return found

    def take_hit(self, entry: TableEntry, timeout: float = 5.0) -> bool:
        """Whether one entry was hit since the last time."""
        with self._lock:
            name, number = self._tables.p4info.table(entry.table).name, self._tables.row_id(entry)
            return any(map(any, self._take("hits", name, number, timeout, self._tables.pipes(entry)).values()))

    def set_hit(self, entry: TableEntry, hit: bool, timeout: float = 5.0) -> None:
        with self._lock:
            keep: list[Any] = []
            name, number = self._tables.p4info.table(entry.table).name, self._tables.row_id(entry)
            self._execute(self._cells.fill("hits", name, number, self._tables.pipes(entry), bytes([hit]), keep), timeout)

    def _take(self, kind: str, name: str, index: int | None, timeout: float, pipes: Pipes = None) -> dict[int, bytes]:
        """Cells by pipe, which are zero afterwards: read and cleared between two bursts."""
        keep: list[Any] = []
        found = {}
        for pipe, where in self._cells.places(kind, name, index, pipes).items():
            into = ffi.new("uint8_t[]", where["count"] * where["size"])
            zero = ffi.new("uint8_t[]", where["count"] * where["size"])
            keep += [into, zero]
            self._execute([{"op": lib.INA_READ_STATE, "data": into, **where}, {"op": lib.INA_WRITE_STATE, "data": zero, **where}],
                          timeout)  # fmt: skip
            found[pipe] = bytes(ffi.buffer(into))
        return found
