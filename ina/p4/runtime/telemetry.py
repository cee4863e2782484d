"""Observation of an embedded switch while it runs: the packet trace, digests, messages, its whole state."""

from __future__ import annotations

from ina.base.native import ffi, lib
from ina.p4.runtime.records import VERDICTS, Digest, TraceRecord
from ina.p4.runtime.switch_part import SwitchPart


class Telemetry(SwitchPart):
    """The part of `Switch` that observes it."""

    def trace_start(self, records: int = 4096) -> None:
        """Keeps the newest `records` frames in and out of the pipeline."""
        with self._lock:
            self._execute([{"op": lib.INA_TRACE_START, "count": records}])

    def trace_stop(self) -> None:
        with self._lock:
            self._execute([{"op": lib.INA_TRACE_STOP}])

    def trace(self, limit: int = 4096) -> tuple[list[TraceRecord], int]:
        """Up to `limit` records since the last call, oldest first, and how many were overwritten before."""
        raw = ffi.new("struct ina_trace_record[]", limit)
        with self._lock:
            commands = self._execute([{"op": lib.INA_READ_TRACE, "count": limit, "data": raw}])
        records = [
            TraceRecord(
                r.time, r.port, "out" if r.direction else "in", VERDICTS[r.verdict], r.target, r.instance_type, r.len,
                bytes(ffi.buffer(r.bytes, r.stored)),
            )
            for r in raw[0 : commands[0].count]
        ]  # fmt: skip
        return records, commands[0].offset

    def digests(self, limit: int = 256) -> tuple[list[Digest], int]:
        """Up to `limit` digests since the last call, oldest first, and how many were overwritten before."""
        head, meta = ffi.sizeof("struct ina_digest"), self.program.meta_size
        stride = head + meta
        raw = ffi.new("uint8_t[]", limit * stride)
        with self._lock:
            commands = self._execute([{"op": lib.INA_READ_DIGESTS, "count": limit, "stride": stride, "data": raw}])
        digests = []
        for i in range(commands[0].count):
            d = ffi.cast("struct ina_digest *", raw + i * stride)
            data = bytes(ffi.buffer(raw + i * stride + head, meta))
            name, fields = "", {}
            for layout in self.program.layout.get("digests", ()):
                if layout["number"] | layout.get("pipeline", 0) << 8 == d.number:
                    name = layout["name"]
                    for f in layout["fields"]:
                        fields[f["name"]] = int.from_bytes(data[f["offset"] : f["offset"] + f["bytes"]], "little")
            digests.append(Digest(d.time, d.ingress_port, name, fields, data))
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
