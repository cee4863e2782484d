"""Networks in virtual time: hosts, switches and wires, and a star of workers around one switch.

    star = Star(program, up=Wire(rate=100e9, delay=1e-6), down=Wire(rate=100e9, delay=1e-6, faults=Faults(loss=0.01)))
    job = star.admit(workers=4, slots=64, values=256)
    outcome = star.all_reduce(job, arrays)          # sums in the arrays, virtual seconds in outcome.seconds

No clock is read: the same arguments and seeds give the same bytes at the same picoseconds, `stats()["digest"]`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ina._native import ffi, lib
from ina.control.controller import Controller, Job
from ina.switch.embedded import Switch
from ina.transport import protocols
from ina.transport.config import PS, WorkerConfig, fill_tensor
from ina.transport.errors import Event, event_from_c
from ina.transport.ports import Faults
from ina.transport.worker import stats_dict

_NEVER = 2**64 - 1


@dataclass(frozen=True)
class Wire:
    """One direction of a wire: rate in bit/s (0: infinite), delay in s, queue and ECN threshold in bytes (0: none)."""

    rate: float = 0.0
    delay: float = 0.0
    queue: int = 0
    ecn: int = 0
    faults: Faults = field(default_factory=Faults)

    def native(self):
        direction = ffi.new("struct ina_wire_direction *")
        direction.link.rate_bps = round(self.rate)
        direction.link.delay_ps = round(self.delay * PS)
        direction.link.queue_bytes, direction.link.ecn_bytes = self.queue, self.ecn
        direction.faults = self.faults.native()[0]
        return direction


@dataclass(frozen=True)
class Completion:
    """A tensor that has finished at a host: `time` in ps of virtual time; `event` says how."""

    ticket: int
    host: int
    time: int
    event: Event


class Network:
    """Any graph of hosts and switches. Frames up to `max_frame` bytes."""

    def __init__(self, max_frame: int = 9216):
        self.pointer = lib.ina_emulator_create(max_frame)
        if self.pointer == ffi.NULL:
            raise OSError(
                ffi.errno, f"cannot create an emulator for frames of {max_frame} bytes: {os.strerror(ffi.errno)}"
            )
        self.switches: list[Switch] = []
        self.hosts: list[WorkerConfig] = []
        self._tensors: dict[int, tuple] = {}  # arrays of a ticket, kept until its completion is read

    def close(self) -> None:
        """Frees everything. Closing twice is fine."""
        lib.ina_emulator_destroy(self.pointer)
        self.pointer = ffi.NULL
        for switch in self.switches:
            switch.close()
        self.switches.clear()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "pointer", ffi.NULL) != ffi.NULL:
            self.close()

    def _check(self, result: int, what: str) -> int:
        if result < 0:
            raise OSError(-result, f"{what}: {os.strerror(-result)}")
        return result

    def add_switch(self, switch: Switch, latency: float = 0.0) -> int:
        """Takes over a stepped switch without ports; `latency` is seconds from a frame's arrival to its ingress."""
        index = lib.ina_emulator_add_switch(self.pointer, switch.pointer, round(latency * PS))
        self.switches.append(switch)
        return self._check(index, "switch")

    def add_host(self, config: WorkerConfig) -> int:
        index = self._check(
            lib.ina_emulator_add_host(self.pointer, protocols.named(config.protocol), config.to_c()), f"host {config}"
        )
        self.hosts.append(config)
        return index

    def connect_host(self, host: int, switch: int, port: int, up: Wire, down: Wire) -> None:
        """A wire between a host and a port of a switch."""
        a = ffi.new("struct ina_wire_end *", {"kind": lib.INA_NODE_HOST, "node": host})
        b = ffi.new("struct ina_wire_end *", {"kind": lib.INA_NODE_SWITCH, "node": switch, "port": port})
        result = lib.ina_emulator_connect(self.pointer, a[0], b[0], up.native(), down.native())
        self._check(result, f"wire from host {host} to switch {switch} port {port}")

    def submit(
        self,
        host: int,
        source: np.ndarray,
        out: np.ndarray | None = None,
        *,
        average: bool = False,
        tag: int = 0,
        at: int | None = None,
    ) -> int:
        """Queues the all-reduce of a contiguous int32 or float32 array (default: in place) at `at` ps (or now)."""
        out = source if out is None else out
        tensor = ffi.new("struct ina_tensor *")
        fill_tensor(tensor, source, out, average, tag)
        ticket = lib.ina_emulator_submit(self.pointer, host, tensor, self.now if at is None else at)
        self._check(ticket, f"tensor of {source.size} elements at host {host}")
        self._tensors[ticket] = (source, out)
        return ticket

    @property
    def now(self) -> int:
        """Virtual time, ps."""
        return lib.ina_emulator_now(self.pointer)

    def run(self, until: int = _NEVER - 1, max_events: int = 10**9) -> bool:
        """Runs to `until` (ps) or until nothing is left to happen, which is True."""
        return bool(self._check(lib.ina_emulator_run(self.pointer, until, max_events), "emulator"))

    def completions(self) -> list[Completion]:
        """Tensors that have finished since the last call, oldest first."""
        raw = ffi.new("struct ina_completion[]", 256)
        found: list[Completion] = []
        while count := lib.ina_emulator_completions(self.pointer, raw, 256):
            for item in raw[0:count]:
                event = event_from_c(item.event, self.hosts[item.host].workers)
                found.append(Completion(item.ticket, item.host, item.time, event))
                del self._tensors[item.ticket]
        return found

    def stats(self) -> dict[str, int]:
        raw = ffi.new("struct ina_emulator_stats *")
        lib.ina_emulator_get_stats(self.pointer, raw)
        return stats_dict(raw)

    def host_stats(self, host: int) -> dict[str, int]:
        """Counters of a host's worker, and of its NIC link as `nic_...`."""
        worker, nic = ffi.new("struct ina_worker_stats *"), ffi.new("struct ina_link_stats *")
        self._check(lib.ina_emulator_host_stats(self.pointer, host, worker, nic), f"host {host}")
        return {**stats_dict(worker), **{f"nic_{key}": value for key, value in stats_dict(nic).items()}}


@dataclass(frozen=True)
class StarJob:
    """A job on a star: `hosts` are the numbers of its workers' hosts in order."""

    job: Job
    hosts: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """One all-reduce: `seconds` of virtual time from the first submission to the last completion."""

    seconds: float
    completions: tuple[Completion, ...]

    def raise_failed(self) -> None:
        for completion in self.completions:
            error = completion.event.error()
            if error is not None:
                raise error


class Star(Network):
    """Hosts around one switch. `program`: what `Switch` takes; `pool`: its slots, which jobs share.

    Each host's wires are `up` and `down` with fault seeds of their own.
    """

    def __init__(
        self, program, *, up: Wire = Wire(), down: Wire = Wire(), pool: int = 512, latency: float = 0.0, seed: int = 0
    ):
        super().__init__()
        self.up, self.down, self.seed = up, down, seed
        self.switch = Switch(program, seed=seed)
        self.add_switch(self.switch, latency)
        self.controller = Controller(self.switch, pool)

    def _wire(self, wire: Wire, host: int, direction: int) -> Wire:
        seed = (self.seed << 20 | wire.faults.seed << 40 | host << 1 | direction) % 2**64
        return replace(wire, faults=replace(wire.faults, seed=seed))

    def admit(
        self, workers: int, slots: int, values: int, *, name: str = "", strict: bool = True, **options: float
    ) -> StarJob:
        """A job with a new host for each worker; `options` are those of WorkerConfig (rto_min, timeout, ...)."""
        job = self.controller.admit(name or f"job{len(self.hosts)}", workers, slots, strict)
        hosts = []
        for index in range(workers):
            port = len(self.hosts)
            worker = self.controller.attach(job, index, port)
            config = WorkerConfig(
                worker=index, workers=workers, job=job.number, incarnation=job.incarnation, slots=slots, values=values,
                address=worker.address, **options,
            )  # fmt: skip
            host = self.add_host(config)
            self.connect_host(host, 0, port, self._wire(self.up, host, 0), self._wire(self.down, host, 1))
            hosts.append(host)
        return StarJob(job, tuple(hosts))

    def all_reduce(
        self, job: StarJob, arrays: Sequence[np.ndarray], *, average: bool = False, starts: Sequence[int] | None = None
    ) -> Outcome:
        """Sums `arrays` (one a worker) in place; `starts`: ps after now at which each worker submits."""
        began = self.now
        for index, (host, array) in enumerate(zip(job.hosts, arrays, strict=True)):
            self.submit(host, array, average=average, at=began + (starts[index] if starts else 0))
        self.run()
        done = tuple(self.completions())
        return Outcome((max(c.time for c in done) - began) / PS, done)
