"""The embedded switch: a compiled program run in this process, by a native thread or step by step.

    switch = Switch("program.so")
    switch.add_port(0, port)                     # a struct ina_port *, lent until remove_port or close
    switch.write(insert(TableEntry("l2", {"hdr.ethernet.dst": "00:00:00:00:00:01"}, "forward", {"port": 0})))
    switch.start()                               # or switch.step(frame, port=0, now=0) -> [(port, frame), ...]
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ina._native import ffi, lib
from ina.switch.cells import CELL_ENTRIES, Cells, meter_configs
from ina.switch.entities import (
    CloneSessionEntry,
    CounterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    Entity,
    MeterEntry,
    MulticastGroupEntry,
    ProfileGroup,
    ProfileMember,
    RegisterEntry,
    TableEntry,
    Update,
    ValueSetEntry,
    as_int,
)
from ina.switch.observation import DROP_REASONS, VERDICTS, Digest, PortStats, TraceRecord
from ina.switch.p4info import EntityError, P4Info
from ina.switch.program import Program
from ina.switch.tables import TableImage, Tables
from ina.switch.target import SwitchTarget

PS = 10**12
_GROUPS = 65535


@dataclass(frozen=True, slots=True)
class Link:
    """Egress of a port: `rate` bit/s (0: infinite), `delay` s, `queue` and `ecn` bytes (0: no limit, never mark)."""

    rate: float = 0
    delay: float = 0.0
    queue: int = 0
    ecn: int = 0


class Switch(SwitchTarget):
    """One switch. Methods may be called from any thread; stepping and a running data plane exclude each other.

    `program`: path of a compiled program, a `Program`, or anything with an `so_path`. `buffers`: frames that queues,
    clones and recirculation may hold. `max_frame`: bytes. `seed`: of the program's random numbers.
    """

    def __init__(
        self,
        program: Any,
        *,
        buffers: int = 0,
        max_frame: int = 0,
        max_passes: int = 0,
        seed: int = 0,
    ):
        if not isinstance(program, Program):
            program = Program(getattr(program, "so_path", program))
        self.program: Program = program
        self._tables = Tables(program.p4info, program.layout)
        self._image: TableImage = self._tables.image()
        self._groups: dict[int, MulticastGroupEntry] = {}
        self._sessions: dict[int, CloneSessionEntry] = {}
        self._ports: dict[int, Any] = {}
        self._cells = Cells(program)
        self._lock = threading.RLock()
        self._dataplane: Any = None
        self._process = os.getpid()
        config = ffi.new(
            "struct ina_switch_config *",
            {"buffers": buffers, "max_frame": max_frame, "max_passes": max_passes, "seed": seed},
        )
        self.pointer = lib.ina_switch_create(program.pointer, self._image.pointer, config)
        if self.pointer == ffi.NULL:
            raise OSError(
                ffi.errno,
                f"cannot create a switch for {program.path}: {os.strerror(ffi.errno)} "
                f"({program.pointer.table_count} tables in the program, {self._image.pointer.count} in its layout)",
            )
        self._collector = ffi.new("struct ina_collector *")
        self._collected = ffi.new("uint8_t[]", 1 << 20)
        self._collector.data, self._collector.size = self._collected, len(self._collected)
        lib.ina_switch_set_output(self.pointer, lib.ina_collect, self._collector)

    @property
    def p4info(self) -> P4Info:
        return self.program.p4info

    # ---- life

    def start(self, *, spin: float = 0.0, yields: int = 10, batch: int = 0, poll: float = 50e-6,
              nap: float = 0.0) -> None:
        """Starts the data plane thread.

        Idle, it looks at the ports for `spin` seconds (for machines with a processor to spare), then gives the
        processor away up to `yields` times (not beside threads that compute: host/idle.h), then sleeps until it is
        woken; ports without a descriptor are looked at every `poll` seconds. `batch`: frames per burst, at most 64,
        0: 32. `nap`: after frames it sleeps so many seconds, whatever comes, so that the next ones come together: for
        ports whose wake-up costs more than a frame (sockets).
        """
        with self._lock:
            self._need(running=False)
            config = ffi.new(
                "struct ina_dataplane_config *",
                {"spin_ps": round(spin * PS), "yields": yields, "batch": batch, "poll_ps": round(poll * PS),
                 "nap_ps": round(nap * PS)},
            )
            dataplane = lib.ina_dataplane_start(self.pointer, config)
            if dataplane == ffi.NULL:
                raise OSError(ffi.errno, f"cannot start the data plane: {os.strerror(ffi.errno)}")
            self._dataplane = dataplane

    def stop(self, timeout: float = 5.0) -> None:
        """Ends the thread; the switch keeps its state and can be stepped or started again."""
        with self._lock:
            if self._dataplane is None:
                return
            error = lib.ina_dataplane_stop(self._dataplane, round(timeout * PS))
            if error:
                raise TimeoutError(f"the data plane thread did not end within {timeout} s: {os.strerror(-error)}")
            self._dataplane = None

    def close(self) -> None:
        """Stops and frees everything; ports are their owners' again. Closing twice is fine."""
        with self._lock:
            self.stop()
            lib.ina_switch_destroy(self.pointer)
            self.pointer = ffi.NULL
            self._ports.clear()

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # The thread runs code of an object that would be unloaded; in a forked child there is no thread to stop.
        if getattr(self, "pointer", None) and self._process == os.getpid():
            self.close()

    @property
    def running(self) -> bool:
        return self._dataplane is not None

    def _need(self, running: bool) -> None:
        if self.pointer == ffi.NULL:
            raise RuntimeError("the switch is closed")
        if self.running != running:
            raise RuntimeError(f"the data plane {'runs: stop() it first' if self.running else 'does not run'}")

    def _execute(self, commands: list[dict[str, Any]], timeout: float = 5.0) -> Any:
        """Runs commands in order, all or (from the first error on) not; returns them (a cffi array: its items
        live as long as it does) with their results."""
        if self.pointer == ffi.NULL:
            raise RuntimeError("the switch is closed")
        array = ffi.new("struct ina_command[]", commands)
        if self._dataplane is None:
            lib.ina_switch_execute_all(self.pointer, array, len(commands), 1)
        else:
            error = lib.ina_dataplane_call(self._dataplane, array, len(commands), 1, round(timeout * PS))
            if error:
                raise TimeoutError(
                    f"the data plane did not run {len(commands)} commands within {timeout} s: {os.strerror(-error)}"
                )
        for i in range(len(commands)):
            if array[i].result:
                raise OSError(-array[i].result, f"command {i} ({commands[i]['op']}): {os.strerror(-array[i].result)}")
        return array

    # ---- ports

    def add_port(self, number: int, port: Any = None, link: Link | None = None) -> None:
        """Makes `port` (a `struct ina_port *`, or an object that has one as `handle`) port `number`, 0..510.

        The switch drives it from now on and never closes it. None: frames come and go through `step`. What goes through
        a port is captured by wrapping it first (`Port.with_capture`).
        """
        handle = ffi.NULL if port is None else getattr(port, "handle", port)
        config = ffi.NULL
        if link is not None:
            config = ffi.new(
                "struct ina_link_config *",
                {
                    "rate_bps": round(link.rate),
                    "delay_ps": round(link.delay * PS),
                    "queue_bytes": link.queue,
                    "ecn_bytes": link.ecn,
                },
            )
        if not 0 <= number < lib.INA_DROP_PORT:
            raise ValueError(f"port {number}: expected 0..{lib.INA_DROP_PORT - 1}")
        with self._lock:
            if number in self._ports:
                raise ValueError(f"port {number} is there already: remove it first")
            self._execute([{"op": lib.INA_ADD_PORT, "id": number, "port": handle, "link": config}])
            self._ports[number] = port

    def remove_port(self, number: int) -> Any:
        """Takes the port back out; what waits for it is dropped. Returns what was given to add_port."""
        with self._lock:
            if number not in self._ports:
                raise ValueError(f"port {number} is not there; there are: {sorted(self._ports)}")
            self._execute([{"op": lib.INA_REMOVE_PORT, "id": number}])
            return self._ports.pop(number)

    @property
    def ports(self) -> list[int]:
        return sorted(self._ports)

    def port_stats(self, number: int) -> PortStats:
        raw = ffi.new("struct ina_switch_port_stats *")
        with self._lock:
            self._execute([{"op": lib.INA_READ_PORT, "id": number, "data": raw}])
        return PortStats(
            raw.rx_packets, raw.rx_bytes, raw.tx_packets, raw.tx_bytes, raw.ecn_marks, raw.recirculated,
            dict(zip(DROP_REASONS, raw.drops, strict=True)),
        )  # fmt: skip

    # ---- control plane

    def write(self, updates: Iterable[Update], timeout: float = 5.0) -> None:
        """Makes all updates between two bursts of packets, in order, or none of them."""
        with self._lock:
            tables, groups, sessions = self._tables, dict(self._groups), dict(self._sessions)
            commands: list[dict[str, Any]] = []
            keep: list[Any] = []  # memory that commands point to
            for i, update in enumerate(updates):
                entity = update.entity
                try:
                    if update.type not in ("INSERT", "MODIFY", "DELETE"):
                        raise EntityError(f"{update.type!r}: expected INSERT, MODIFY or DELETE")
                    if isinstance(entity, TableEntry):
                        if tables is self._tables:
                            tables = tables.copy()
                        tables.apply(update.type, entity)
                    elif isinstance(entity, MulticastGroupEntry):
                        what = f"multicast group {entity.group_id}"
                        commands.append(self._members(update.type, entity.group_id, entity, groups, what, keep))
                    elif isinstance(entity, CloneSessionEntry):
                        what = f"clone session {entity.session_id}"
                        commands.append(self._members(update.type, entity.session_id, entity, sessions, what, keep))
                    elif isinstance(entity, (ProfileMember, ProfileGroup, ValueSetEntry)):
                        if tables is self._tables:
                            tables = tables.copy()
                        apply = tables.apply_value_set if isinstance(entity, ValueSetEntry) else tables.apply_profile
                        apply(update.type, entity)
                    elif isinstance(entity, CELL_ENTRIES):
                        if update.type != "MODIFY":
                            raise EntityError(f"{type(entity).__name__}: only MODIFY is possible")
                        commands.append(self._cells.write(entity, tables, keep))
                    else:
                        raise EntityError(f"{entity!r} is no entity of this switch")
                except EntityError as error:
                    raise EntityError(f"update {i}: {error}", error.code, i) from None
            image = self._image
            if tables is not self._tables:
                image = tables.image()
                commands.insert(0, {"op": lib.INA_SET_TABLES, "tables": image.pointer})
                commands[0:0] = [self._cells.clear(kind, n, i, keep) for kind, n, i in tables.reused()]
            if commands:
                self._execute(commands, timeout)
            self._tables, self._image, self._groups, self._sessions = tables, image, groups, sessions

    @staticmethod
    def _members(
        type_: str, number: int, entity: Any, known: dict[int, Any], what: str, keep: list[Any]
    ) -> dict[str, Any]:
        if not 1 <= number <= _GROUPS:
            raise EntityError(f"{what}: expected 1..{_GROUPS}")
        if type_ == "INSERT" and number in known:
            raise EntityError(f"{what} is there already", "ALREADY_EXISTS")
        if type_ != "INSERT" and number not in known:
            raise EntityError(f"{what} is not there", "NOT_FOUND")
        op = lib.INA_SET_GROUP if isinstance(entity, MulticastGroupEntry) else lib.INA_SET_SESSION
        if type_ == "DELETE":
            del known[number]
            return {"op": op, "id": number}
        pairs = []
        for r in entity.replicas:
            pairs.append((as_int(r.port, 9, f"{what}: port"), as_int(r.rid, 16, f"{what}: replication id")))
        if len(set(pairs)) != len(pairs):
            raise EntityError(f"{what}: two replicas have the same port and replication id")
        if len(pairs) > _GROUPS:
            raise EntityError(f"{what}: {len(pairs)} replicas, at most {_GROUPS} are possible", "RESOURCE_EXHAUSTED")
        known[number] = entity
        if not pairs:  # an empty group sends nothing: to the data plane it is one that goes nowhere
            pairs = [(lib.INA_DROP_PORT, 0)]
        data = ffi.new("struct ina_replica[]", pairs)
        keep.append(data)
        return {
            "op": op, "id": number, "count": len(pairs), "data": data, "size": getattr(entity, "packet_length", 0),
        }  # fmt: skip

    def _read_cells(self, where: dict[str, int], timeout: float) -> bytes:
        data = ffi.new("uint8_t[]", where["size"] * where["count"])
        with self._lock:
            self._execute([{"op": lib.INA_READ_STATE, "data": data, **where}], timeout)
        return bytes(ffi.buffer(data))

    def counter(self, name: str | int, index: int | None = None, timeout: float = 5.0) -> np.ndarray:
        """Cells of a counter as (n, 2) uint64: packets, bytes."""
        raw = self._read_cells(self._cells.place("counter", name, index), timeout)
        return np.frombuffer(raw, "<u8").reshape(-1, 2)

    def counters(self) -> dict[str, np.ndarray]:
        """All counters that the program uses, by full name."""
        return {c["name"]: self.counter(c["name"]) for c in self.program.layout["counters"]}

    def register(self, name: str | int, index: int | None = None, timeout: float = 5.0) -> np.ndarray:
        """Cells of a register: (n,) unsigned integers, or Python integers (dtype object) if wider than 64 bits."""
        layout = self._cells.layout("register", name)
        raw = self._read_cells(self._cells.place("register", name, index), timeout)
        size = layout["bytes"]
        if size <= 8:
            return np.frombuffer(raw, f"<u{size}")
        return np.array([int.from_bytes(raw[i : i + size], "little") for i in range(0, len(raw), size)], object)

    def read(self, entities: Sequence[Entity], timeout: float = 5.0) -> list[Entity]:
        """What is there: of a TableEntry's table (with a match: that entry), of a group or session (id 0: all), of a
        counter's, meter's or register's cell (index None: all), of an entry's direct counter or meter, of a profile's
        member or group (id 0: all of the profile), of a value set."""
        found: list[Entity] = []
        with self._lock:
            for e in entities:
                if isinstance(e, TableEntry):
                    rows = self._tables.entries(e.table or None)
                    if e.is_default and e.table:
                        rows = [self._tables.default_entry(e.table)]
                    found += [
                        r
                        for r in rows
                        if r.is_default == e.is_default
                        and (not e.match or (r.match == e.match and r.priority == e.priority))
                    ]
                elif isinstance(e, MulticastGroupEntry):
                    found += [g for i, g in self._groups.items() if e.group_id in (0, i)]
                elif isinstance(e, CloneSessionEntry):
                    found += [s for i, s in self._sessions.items() if e.session_id in (0, i)]
                elif isinstance(e, CounterEntry):
                    name = self.p4info.counter(e.counter).name
                    cells = self.counter(name, e.index, timeout).tolist()
                    found += [CounterEntry(name, (e.index or 0) + i, p, b) for i, (p, b) in enumerate(cells)]
                elif isinstance(e, DirectCounterEntry):
                    name, index = self._tables.direct_counter(e.entry)
                    ((packets, octets),) = self.counter(name, index, timeout).tolist()
                    found.append(DirectCounterEntry(e.entry, packets, octets))
                elif isinstance(e, RegisterEntry):
                    name = self.p4info.register(e.register).name
                    values = self.register(name, e.index, timeout).tolist()
                    found += [RegisterEntry(name, (e.index or 0) + i, v) for i, v in enumerate(values)]
                elif isinstance(e, MeterEntry):
                    name = self.p4info.meter(e.meter).name
                    configs = meter_configs(self._read_cells(self._cells.place("meter", name, e.index), timeout))
                    found += [MeterEntry(name, (e.index or 0) + i, c) for i, c in enumerate(configs)]
                elif isinstance(e, DirectMeterEntry):
                    where = self._cells.place("meter", *self._tables.direct_meter(e.entry))
                    found.append(DirectMeterEntry(e.entry, *meter_configs(self._read_cells(where, timeout))))
                elif isinstance(e, ProfileMember):
                    found += [m for m in self._tables.profiles.members.values() if self._is(e, m, "member_id")]
                elif isinstance(e, ProfileGroup):
                    found += [g for g in self._tables.profiles.groups.values() if self._is(e, g, "group_id")]
                elif isinstance(e, ValueSetEntry):
                    name = self.p4info.value_set(e.value_set)
                    found.append(self._tables.value_sets.members.get(name, ValueSetEntry(name)))
                else:
                    raise EntityError(f"{e!r} is no entity of this switch")
        return found

    def _is(self, pattern: Any, entity: Any, number: str) -> bool:
        """Of the pattern's profile, and with its number (0: any)."""
        profile = self.p4info.profile(pattern.profile).name
        return entity.profile == profile and getattr(pattern, number) in (0, getattr(entity, number))

    def messages(self) -> dict[str, int]:
        """How often each `log_msg` of the program was reached, by place and text."""
        found = {}
        for m in self.program.layout.get("messages", ()):
            where = {"offset": m["offset"], "stride": 16, "size": 16, "count": 1}
            found[f"{m['where']}: {m['text']}"] = int.from_bytes(self._read_cells(where, 5.0)[:8], "little")
        return found

    # ---- observation

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
            done = self._execute([{"op": lib.INA_READ_TRACE, "count": limit, "data": raw}])
        records = [
            TraceRecord(
                r.time, r.port, "out" if r.direction else "in", VERDICTS[r.verdict], r.target, r.instance_type, r.len,
                bytes(ffi.buffer(r.bytes, r.stored)),
            )
            for r in raw[0 : done[0].count]
        ]  # fmt: skip
        return records, done[0].offset

    def digests(self, limit: int = 256) -> tuple[list[Digest], int]:
        """Up to `limit` digests since the last call, oldest first, and how many were overwritten before."""
        head, meta = ffi.sizeof("struct ina_digest"), self.program.pointer.meta_size
        stride = head + meta
        raw = ffi.new("uint8_t[]", limit * stride)
        with self._lock:
            done = self._execute([{"op": lib.INA_READ_DIGESTS, "count": limit, "stride": stride, "data": raw}])
        found = []
        for i in range(done[0].count):
            d = ffi.cast("struct ina_digest *", raw + i * stride)
            data = bytes(ffi.buffer(raw + i * stride + head, meta))
            name, fields = "", {}
            for layout in self.program.layout.get("digests", ()):
                if layout["number"] == d.number:
                    name = layout["name"]
                    for f in layout["fields"]:
                        fields[f["name"]] = int.from_bytes(data[f["offset"] : f["offset"] + f["bytes"]], "little")
            found.append(Digest(d.time, d.ingress_port, name, fields, data))
        return found, done[0].offset

    def dataplane_stats(self) -> dict[str, int]:
        """bursts, packets, sleeps and commands of the running data plane."""
        with self._lock:
            self._need(running=True)
            raw = ffi.new("struct ina_dataplane_stats *")
            lib.ina_dataplane_get_stats(self._dataplane, raw)
            return {"bursts": raw.bursts, "packets": raw.packets, "sleeps": raw.sleeps, "commands": raw.commands}

    def snapshot(self) -> bytes:
        """The program's whole state: registers, then statistics."""
        size = self.program.pointer.state_size
        return self._read_cells({"offset": 0, "stride": size, "size": size, "count": 1}, 5.0)

    def restore(self, state: bytes) -> None:
        """The reverse of snapshot."""
        size = self.program.pointer.state_size
        if len(state) != size:
            raise ValueError(f"{len(state)} bytes: this program's state has {size}")
        data = ffi.from_buffer(state)
        with self._lock:
            if size:
                self._execute([{"op": lib.INA_WRITE_STATE, "size": size, "stride": size, "count": 1, "data": data}])

    # ---- stepped

    def step(self, frame: bytes, port: int, now: int = 0) -> list[tuple[int, bytes]]:
        """One frame in at `now` (ps): the frames that ports without a `struct ina_port` send at that time."""
        with self._lock:
            self._need(running=False)
            if port not in self._ports:
                raise ValueError(f"port {port} is not there; there are: {sorted(self._ports)}")
            error = lib.ina_switch_input_frame(self.pointer, frame, len(frame), port, now)
            if error:
                raise ValueError(f"frame of {len(frame)} bytes: {os.strerror(-error)}")
            return self._collect()

    def poll(self, now: int) -> list[tuple[int, bytes]]:
        """Frames that leave queues and links by `now` (ps)."""
        with self._lock:
            self._need(running=False)
            lib.ina_switch_poll(self.pointer, now)
            return self._collect()

    def next_due(self) -> int | None:
        """When `poll` has something to do (ps); None: nothing waits."""
        with self._lock:
            self._need(running=False)
            due = lib.ina_switch_next_due(self.pointer)
            return None if due == 2**64 - 1 else due

    def _collect(self) -> list[tuple[int, bytes]]:
        c = self._collector
        frames, at = [], 0
        data = memoryview(ffi.buffer(c.data, c.used))
        while at < c.used:
            head = ffi.cast("struct ina_collected *", c.data + at)
            at += ffi.sizeof("struct ina_collected")
            frames.append((head.port, bytes(data[at : at + head.len])))
            at += (head.len + 7) & ~7
        lost, c.used, c.lost = c.lost, 0, 0
        if lost:
            raise BufferError(f"one step sent {lost} frames more than {c.size} bytes hold")
        return frames
