"""One P4Runtime device: its ports, the running pipeline and the saved one, batches of updates, packet I/O."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ina.net.ports import Port, memory_pair
from ina.p4.p4runtime import pipeline as pipelines
from ina.p4.p4runtime.digests import ControllerHeader
from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.pipeline import Pipeline
from ina.p4.p4runtime.translate import type_name
from ina.p4.rpc.errors import CODES, check_enums
from ina.p4.runtime import (
    CloneSessionEntry,
    Closing,
    DirectCounterEntry,
    DirectMeterEntry,
    EntityError,
    Link,
    MulticastGroupEntry,
    MulticastPort,
    ProfileGroup,
    ProfileMember,
    Program,
    Switch,
    TableEntry,
    Update,
    ValueSetEntry,
    modify,
)
from ina.p4.runtime.shards import LocalSwitch

log = logging.getLogger(__name__)

CPU_PORT = 510
DIGEST_PERIOD = 0.01  # seconds between checks for digests, while any is enabled
IDLE_PERIOD = 0.2
CPU_FRAMES = 256
PIPELINE_ACTIONS = ("VERIFY", "VERIFY_AND_SAVE", "VERIFY_AND_COMMIT", "COMMIT", "RECONCILE_AND_COMMIT")


def cpu_port_of(pipes: int) -> int:
    """The CPU port of a TNA switch: PCI Express, or Ethernet if it has one pipe (Tofino Native Architecture 12.1)."""
    return {1: 64, 2: 192}.get(pipes, 320)


def number_in(switch: LocalSwitch, number: int) -> int:
    """A port's number in that switch: CPU_PORT stands for a TNA switch's own."""
    return cpu_port_of(switch.pipes) if switch.pipes and number == CPU_PORT else number


class BatchError(Exception):
    """Some items of a request failed: one p4.v1.Error for each item, OK ones too."""

    def __init__(self, errors: list[p4.Error]):
        first = next(i for i, e in enumerate(errors) if e.canonical_code)
        super().__init__(f"{sum(e.canonical_code != 0 for e in errors)} of {len(errors)} failed; "
                         f"the first is number {first}: {errors[first].message}")
        self.errors = errors


def error_of(code: str = "OK", message: str = "") -> p4.Error:
    return p4.Error(canonical_code=CODES[code], message=message, space="ina" if message else "")


class Device(Closing):
    """A device: calls `on_packet_in` and `on_digests` with a PacketIn or a DigestList, in a thread of its own, and `on_program`
    with each program before it runs at the device's ports.

    `arch` ("v1model", "tna"): pipelines of another architecture are refused. `pipes`: of TNA programs, as for `Switch`.
    `make`: makes the switch of a program (default: `Switch`). `start`: options of its `start`.

    A TNA program has no port 510: there CPU_PORT means the switch's own (`cpu_port_of`), to which copy_to_cpu goes.
    """

    def __init__(self, device_id: int = 0, cpu_port: int | None = CPU_PORT,
                 max_frame: int = 9216, arch: str | None = None, pipes: int = 0,
                 make: Callable[[Program], LocalSwitch] | None = None, **start: Any):
        self.device_id = device_id
        self.on_packet_in: Callable[[p4.PacketIn], None] = lambda message: None
        self.on_digests: Callable[[p4.DigestList], None] = lambda message: None
        self.on_program: Callable[[Program], None] = lambda program: None
        self._restrictions = pipelines.Wanted(arch, pipes, make)
        self._start = start
        self._lock = threading.RLock()
        self._committed: Pipeline | None = None
        self._saved: Pipeline | None = None
        self._ports: dict[int, tuple[Any, Link | None]] = {}
        self._cpu: Port | None = None
        self._cpu_number = cpu_port
        self._cpu_sending = threading.Lock()
        self._closed = threading.Event()
        if cpu_port is not None:
            self._cpu_inside, self._cpu = memory_pair(CPU_FRAMES, max_frame)
            self.add_port(cpu_port, self._cpu_inside)
        self._observer = threading.Thread(target=self._observe, name="p4runtime-observer", daemon=True)
        self._observer.start()

    def close(self) -> None:
        """Stops the switch; ports are their owners' again, except the CPU port."""
        self._closed.set()
        self._observer.join()
        with self._lock:
            for pipeline in (self._committed, self._saved):
                if pipeline is not None:
                    pipeline.switch.close()
            self._committed = self._saved = None
            self._ports.clear()
            if self._cpu is not None:
                self._cpu.close()
                self._cpu_inside.close()

    # ---- ports

    def add_port(self, number: int, port: Any, link: Link | None = None) -> None:
        """Adds a port (`Switch.add_port`), which stays through changes of the pipeline."""
        with self._lock:
            if number in self._ports:
                raise ValueError(f"port {number} is there already: remove it first")
            if self._committed is not None:
                self._committed.switch.add_port(number_in(self._committed.switch, number), port, link)
            self._ports[number] = (port, link)

    def remove_port(self, number: int) -> None:
        with self._lock:
            if self._committed is not None:
                self._committed.switch.remove_port(number_in(self._committed.switch, number))
            del self._ports[number]

    def set_link(self, number: int, rate: float, delay: float) -> None:
        """Changes rate and delay of the link that a port sends into (`Switch.set_link`), also for pipelines to come."""
        with self._lock:
            port, link = self._ports[number]
            self._ports[number] = port, replace(link or Link(), rate=rate, delay=delay)
            if (switch := self.switch) is not None:
                assert isinstance(switch, Switch)  # one of shards takes no links
                switch.set_link(number_in(switch, number), rate, delay)

    # ---- pipelines

    @property
    def switch(self) -> LocalSwitch | None:
        """The switch that runs, or None."""
        return self._committed.switch if self._committed else None

    def load(self, program: Program) -> None:
        """Runs a program of the device's owner, without a controller."""
        with self._lock:
            self._commit(pipelines.from_program(program, self._restrictions))

    def verify(self, config: p4.ForwardingPipelineConfig) -> Pipeline:
        """A pipeline that could be saved or committed. May take as long as a C compiler. Raises EntityError."""
        return pipelines.from_config(config, self._restrictions)

    def set_pipeline(self, action: str, pipeline: Pipeline | None) -> None:
        """Carries out one of PIPELINE_ACTIONS with what `verify` returned. Raises EntityError."""
        with self._lock:
            if action == "COMMIT":
                if self._saved is None:
                    raise EntityError("no config is saved: VERIFY_AND_SAVE one first", "NOT_FOUND")
                self._commit(self._saved)
                return
            assert pipeline is not None
            if action == "VERIFY":
                pipeline.switch.close()
            elif action == "VERIFY_AND_SAVE":
                if self._saved is not None:
                    self._saved.switch.close()
                self._saved = pipeline
            else:
                if action == "RECONCILE_AND_COMMIT" and self._committed is not None:
                    self._reconcile(self._committed, pipeline)
                self._commit(pipeline)

    def _commit(self, pipeline: Pipeline) -> None:
        """Moves the ports to another switch and closes the old one, with its state."""
        old = self._committed
        if old is not None:
            old.switch.stop()
            for number in self._ports:
                old.switch.remove_port(number_in(old.switch, number))
        for number, (port, link) in self._ports.items():
            pipeline.switch.add_port(number_in(pipeline.switch, number), port, link)
        if pipeline.switch.pipes and self._cpu_number in self._ports:
            cpu = number_in(pipeline.switch, self._cpu_number)
            pipeline.switch.write(modify(MulticastPort(cpu, copy_to_cpu=True)))
        self.on_program(pipeline.switch.program)
        pipeline.switch.start(**self._start)
        self._packet_in = ControllerHeader(pipeline.message, "packet_in")
        self._packet_out = ControllerHeader(pipeline.message, "packet_out")
        self._committed = pipeline
        if self._saved is not None and self._saved is not pipeline:
            self._saved.switch.close()
        self._saved = None
        if old is not None:
            old.switch.close()
        ports = ", ".join(str(number) for number in sorted(self._ports) if number != self._cpu_number)
        log.info("runs %s with ports %s", pipeline.switch.program.name, ports or "that are still to come")

    @staticmethod
    def _reconcile(old: Pipeline, new: Pipeline) -> None:
        """Copies the old switch's entries to the new one, by name; counters, registers and meters too if both have the same
        source. Raises EntityError: the new program has no place for an entry."""
        info = old.switch.p4info
        rows = [r for r in old.switch.read([TableEntry("")]) if not r.is_const]
        defaults = [r for r in old.switch.read([TableEntry("", is_default=True)]) if not r.is_const]
        profiles = [ProfileMember(name, 0) for name in info.profiles] + [ProfileGroup(name, 0) for name in info.profiles]
        objects = old.switch.read([*profiles, MulticastGroupEntry(0), CloneSessionEntry(0)])
        sets = [v for v in old.switch.read([ValueSetEntry(name) for name in info.value_sets]) if v.members]
        own_entries = [r for r in new.switch.read([TableEntry("")]) if not r.is_const]
        updates = [Update("DELETE", r) for r in own_entries]  # the program's own, which may have been changed or deleted
        updates += [Update("INSERT", e) for e in (*objects, *rows)]
        updates += [Update("MODIFY", e) for e in (*sets, *defaults)]
        try:
            new.switch.write(updates)
        except EntityError as error:
            new.switch.close()
            raise EntityError(f"the forwarding state cannot be kept: {error}") from None
        if old.switch.program.source_hash == new.switch.program.source_hash:
            new.switch.restore(old.switch.snapshot())
            # Entries may have other cells of direct counters and meters now.
            cells: list[DirectCounterEntry | DirectMeterEntry] = []
            for row in rows:
                number = info.tables[str(row.table)].id
                if number in old.translator.program.counted:
                    cells += old.switch.read([DirectCounterEntry(row)])
                if number in old.translator.program.metered:
                    cells += old.switch.read([DirectMeterEntry(row)])
            new.switch.write([Update("MODIFY", cell) for cell in cells])
        new.translator.inherit(old.translator)
        if {d.preamble.id for d in old.message.digests} <= {d.preamble.id for d in new.message.digests}:
            new.digests.inherit(old.digests)

    def config(self) -> p4.ForwardingPipelineConfig | None:
        """The ForwardingPipelineConfig of the pipeline that requests refer to."""
        with self._lock:
            pipeline = self._saved or self._committed
            return pipeline.config if pipeline is not None else None

    def _current(self) -> Pipeline:
        pipeline = self._saved or self._committed
        if pipeline is None:
            raise EntityError("no forwarding pipeline has been set", "FAILED_PRECONDITION")
        return pipeline

    # ---- updates

    def write(self, updates: Iterable[p4.Update], atomic: bool) -> None:
        """Carries out p4.v1.Update messages in order; `atomic`: all between two bursts of packets, or none.

        Otherwise each that can be carried out is. Raises BatchError, and EntityError without a pipeline.
        """
        with self._lock:
            batch = _Batch(self._current(), list(updates))
            if atomic:
                batch.all_or_none()
            else:
                batch.each()
            if any(e.canonical_code for e in batch.errors):
                raise BatchError(batch.errors)

    def read(self, patterns: Iterable[p4.Entity]) -> tuple[list[p4.Entity], BatchError | None]:
        """Entities that match the patterns, and the errors of those that failed. Raises EntityError without a pipeline."""
        entities: list[p4.Entity] = []
        errors = []
        with self._lock:
            pipeline = self._current()
            for pattern in patterns:
                try:
                    check_enums(pattern)
                    entities += pipeline.read(pattern)
                    errors.append(error_of())
                except EntityError as error:
                    errors.append(error_of(error.code, str(error)))
                except (OSError, TimeoutError) as error:
                    errors.append(error_of("INTERNAL", str(error)))
        return entities, BatchError(errors) if any(e.canonical_code for e in errors) else None

    # ---- packets and digests

    def packet_out(self, packet: p4.PacketOut) -> None:
        """Hands a PacketOut to the pipeline, on the CPU port. Raises EntityError."""
        with self._lock:
            if self._committed is None:
                raise EntityError("no forwarding pipeline has been set", "FAILED_PRECONDITION")
            header = self._packet_out
        if self._cpu is None:
            raise EntityError("this switch has no CPU port", "FAILED_PRECONDITION")
        frame = header.pack(packet)
        if not 0 < len(frame) <= self._cpu.max_frame:
            raise EntityError(f"packet_out: {len(frame)} bytes with its header: expected 1..{self._cpu.max_frame}")
        with self._cpu_sending:
            if not self._cpu.send([frame]):
                raise EntityError("the CPU port is full: the packet was dropped", "RESOURCE_EXHAUSTED")

    def acknowledge(self, digest_id: int, list_id: int) -> None:
        """Handles a DigestListAck. Raises EntityError."""
        with self._lock:
            self._current()
            if self._committed is not None:
                self._committed.digests.acknowledge(digest_id, list_id)

    def new_primary(self) -> None:
        with self._lock:
            if self._committed is not None:
                self._committed.digests.clear()

    def _observe(self) -> None:
        """Sends packet-ins and digests to the controller; runs in a thread of its own."""
        while not self._closed.is_set():
            enabled = self._committed is not None and self._committed.digests.enabled
            period = DIGEST_PERIOD if enabled else IDLE_PERIOD
            if self._cpu is None:
                self._closed.wait(period)
            elif self._cpu.wait(period):
                self._packets_in()
            if enabled:
                self._digests()

    def _packets_in(self) -> None:
        assert self._cpu is not None
        for frame in self._cpu.receive():
            with self._lock:
                packet = self._packet_in.unpack(frame) if self._committed else None
            if packet is None:
                log.warning("a frame of %d bytes on the CPU port is shorter than the packet_in header", len(frame))
            else:
                self.on_packet_in(packet)

    def _digests(self) -> None:
        with self._lock:
            if self._committed is None:
                return
            now = time.time_ns()
            self._committed.collect_digests(now)
            lists = self._committed.digests.due(now)
        for message in lists:
            self.on_digests(message)


class _Batch:
    """Updates of one Write: each becomes updates of the switch (or none), or another set of digests."""

    def __init__(self, pipeline: Pipeline, updates: list[p4.Update]):
        self.pipeline = pipeline
        self.updates = updates
        self.errors = [error_of() for _ in updates]
        if any(update.entity.WhichOneof("entity") == "digest_entry" for update in updates):
            pipeline.collect_digests(time.time_ns())  # packets so far, under the configs so far (§9.7: INSERT enables)
        self.digests = pipeline.digests.kinds()
        pipeline.translator.begin()
        self.items = [(i, t) for i in range(len(updates)) if (t := self._translate(i)) is not None]

    def _translate(self, i: int) -> list[Update] | None:
        """The switch's updates of update `i`; None: it is wrong, and its error is set."""
        update = self.updates[i]
        try:
            check_enums(update)
            if update.entity.WhichOneof("entity") == "digest_entry":
                self.digests = self.pipeline.digests.updated(self.digests, type_name(update), update.entity.digest_entry)
                return []
            return self.pipeline.translator.updates(update)
        except EntityError as error:
            self.errors[i] = error_of(error.code, str(error))
            return None

    def _write(self, items: list[tuple[int, list[Update]]]) -> int | None:
        """Writes all items at once. Returns the index in `items` of the one that failed, whose error it sets; -1: none of them
        alone; None: nothing is left to do."""
        flat = [(n, u) for n, (_, updates) in enumerate(items) for u in updates]
        try:
            self.pipeline.switch.write([u for _, u in flat])
        except EntityError as error:
            if error.update is None and len(items) > 1:
                return -1
            n = flat[error.update][0] if error.update is not None else 0
            _, _, text = str(error).partition(": ") if error.update is not None else ("", "", str(error))
            self.errors[items[n][0]] = error_of(error.code, text)
            return n
        except (OSError, TimeoutError) as error:
            for i, _ in items:
                self.errors[i] = error_of("INTERNAL", str(error))
            return None
        for i, _ in items:
            self.pipeline.translator.record(self.updates[i])
        return None

    def each(self) -> None:
        """CONTINUE_ON_ERROR. As long as nothing fails, all updates are one change of the switch."""
        todo = self.items
        self.pipeline.digests.configure(self.digests)
        while todo:
            failed = self._write(todo)
            if failed is None:
                return
            if failed < 0:  # the batch does not fit as a whole, so write one after the other
                for item in todo:
                    self._write([item])
                return
            if failed:
                self._write(todo[:failed])
            todo = todo[failed + 1 :]

    def all_or_none(self) -> None:
        """ROLLBACK_ON_ERROR and DATAPLANE_ATOMIC."""
        if len(self.items) == len(self.updates):
            failed = self._write(self.items)
            if failed is not None and failed < 0:
                self.errors[0] = error_of("RESOURCE_EXHAUSTED", "the batch as a whole does not fit the switch")
        if not any(e.canonical_code for e in self.errors):
            self.pipeline.digests.configure(self.digests)
            return
        for i, error in enumerate(self.errors):
            if not error.canonical_code:
                self.errors[i] = error_of("ABORTED", "not made: another update of this batch failed")
