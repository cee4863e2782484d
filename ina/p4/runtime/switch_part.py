"""Base of the parts of the embedded switch: control_plane.py, telemetry.py, pipe_scope.py, pktgen.py."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

from ina.base.native import CData, ffi, lib
from ina.p4.runtime.cells import Cells
from ina.p4.runtime.command import Command, Span
from ina.p4.runtime.loaded_program import Program
from ina.p4.runtime.tables import Tables


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

    def _read_cells(self, span: Span, timeout: float = 60.0) -> bytes:
        data = ffi.new("uint8_t[]", span["size"] * span["count"])
        with self._lock:
            self._execute([{"op": lib.INA_READ_STATE, "data": data, **span}], timeout)
        return bytes(ffi.buffer(data))
