"""Networks in virtual time: hosts and switches, wires between them, and machines (workers, ...) on the hosts.

`fabric.py` builds one from any topology. No clock is read: the same arguments and seeds give the same bytes at the same
picoseconds, `stats()["digest"]`.
"""

from __future__ import annotations

import errno
import heapq
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.worker.block import stats_dict
from ina.aggregation.worker.config import WorkerConfig, set_source
from ina.aggregation.worker.errors import Event, event_from_c
from ina.aggregation.worker.offer import Offer, amended, check_source, fill_arrays
from ina.aggregation.worker.route import Route
from ina.base.closing import Closing
from ina.base.native import CData, ffi, lib
from ina.net.ports import PS, Faults
from ina.p4.runtime.embedded import Switch

NEVER = 2**64 - 1
LAST = 2**63 - 1  # ps: later times are none, so that a deadline after one is not past the largest number


class EndOfTime(OverflowError):
    """A time that the emulator does not have."""


def checked(time: int) -> int:
    """Returns a time, ps. Raises EndOfTime: it is later than the emulator's last one."""
    if time > LAST:
        raise EndOfTime(f"virtual time {time / PS:.4g} s: expected at most {LAST / PS:.4g} s, the last that the emulator has; "
                        "shorten what takes so long, or have fewer steps")
    return time


@dataclass(frozen=True)
class Wire:
    """One direction of a wire: rate in bit/s (0: infinite), delay in s, queue and ECN threshold in bytes (0: none).

    A switch's port drops frames that its queue has no room for. A host's NIC drops none: its machines are held back while the
    queue is full."""

    rate: float = 0.0
    delay: float = 0.0
    queue: int = 0
    ecn: int = 0
    faults: Faults = field(default_factory=Faults)

    def native(self) -> CData:
        direction = ffi.new("struct ina_wire_direction *")
        direction.link.rate_bps = round(self.rate)
        direction.link.delay_ps = round(self.delay * PS)
        direction.link.queue_bytes, direction.link.ecn_bytes = self.queue, self.ecn
        direction.faults = self.faults.native()[0]
        return direction


@dataclass(frozen=True)
class End:
    """One end of a wire: port ``port`` of switch number ``node``, or the NIC of host number ``node``."""

    is_switch: bool
    node: int
    port: int = 0

    def native(self) -> CData:
        kind = lib.INA_NODE_SWITCH if self.is_switch else lib.INA_NODE_HOST
        end: CData = ffi.new("struct ina_wire_end *", {"kind": kind, "node": self.node, "port": self.port})[0]
        return end


@dataclass(frozen=True)
class Completion:
    """A tensor that has finished at a machine: `time` in ps of virtual time; `event`: its outcome."""

    ticket: int
    machine: int
    time: int
    event: Event

    def raise_failed(self) -> None:
        """Raises JobError: the tensor failed."""
        if (error := self.event.error()) is not None:
            raise error


class Network(Closing):
    """Any graph of hosts and switches. Frames up to `max_frame` bytes.

    ``payload`` False: of each frame only the first 96 bytes travel, and zeros arrive in the place of the rest, which the
    program and the workers treat as any other values: everything happens at the same time, but sums are not right.
    """

    def __init__(self, max_frame: int = 9216, payload: bool = True):
        self.payload = payload
        self.pointer = lib.ina_emulator_create(max_frame, not payload)
        self._stats = ffi.new("struct ina_emulator_stats *")
        if self.pointer == ffi.NULL:
            raise OSError(
                ffi.errno, f"cannot create an emulator for frames of {max_frame} bytes: {os.strerror(ffi.errno)}"
            )
        self.switches: list[Switch] = []
        self._workers: dict[int, int] = {}  # machine -> workers of its job
        self._ranks: dict[int, int] = {}  # machine -> which of them it is
        self._values: dict[int, int] = {}  # of workers: elements of a packet
        self._submitted: dict[int, int] = {}  # of them: elements submitted
        self._tensors: dict[int, tuple[np.ndarray, np.ndarray, object]] = {}  # of a ticket, until its completion is read
        self._offers: dict[int, tuple[int, CData]] = {}  # of them: the machine, and what it has said
        self._states: list[object] = []  # states of machines
        self._ended: dict[int, dict[str, int]] = {}  # counters of workers that have ended
        self._agenda: list[tuple[int, int, Callable[[], None], bool]] = []  # a heap: ps, number, action, if it is awaited
        self._actions = 0  # ever planned
        self._awaited = 0  # of those that are planned: not only to watch

    def close(self) -> None:
        """Frees everything. Idempotent."""
        lib.ina_emulator_destroy(self.pointer)
        self.pointer = ffi.NULL
        for switch in self.switches:
            switch.close()
        self.switches.clear()
        self._states.clear()

    def __del__(self) -> None:
        if getattr(self, "pointer", ffi.NULL) != ffi.NULL:
            self.close()

    def _check(self, result: int, subject: str) -> int:
        if result < 0:
            raise OSError(-result, f"{subject}: {os.strerror(-result)}")
        return result

    # ---- building

    def add_switch(self, switch: Switch, latency: float = 0.0) -> int:
        """Takes over a stepped switch without ports; `latency` is seconds from a frame's arrival to its ingress."""
        index = lib.ina_emulator_add_switch(self.pointer, switch.pointer, round(latency * PS))
        self.switches.append(switch)
        return self._check(index, "switch")

    def add_host(self) -> int:
        """Adds a host; its NIC's rate and queue are those of its wire. Returns the host's number."""
        return self._check(lib.ina_emulator_add_host(self.pointer), "host")

    def set_cpu(self, host: int, packet: float = 0.0, byte: float = 0.0, cores: int = 1) -> None:
        """Sets the time that each frame which the host receives or sends takes one of its cores: `packet` + `byte` a byte, in
        s."""
        config = ffi.new(
            "struct ina_cpu_config *", {"packet_ps": round(packet * PS), "byte_fs": round(byte * PS * 1000), "cores": cores}
        )
        self._check(lib.ina_emulator_set_cpu(self.pointer, host, config), f"processor of host {host}")

    def cpu_busy(self, host: int) -> int:
        """Returns the time of work of all the host's cores together, past and scheduled, ps."""
        return lib.ina_emulator_cpu_busy(self.pointer, host)

    def connect(self, a: End, b: End, there: Wire, back: Wire | None) -> None:
        """Adds a wire between two ends; `back` None: it carries frames from a to b only."""
        result = lib.ina_emulator_connect(
            self.pointer, a.native(), b.native(), there.native(), ffi.NULL if back is None else back.native()
        )
        self._check(result, f"wire from {a} to {b}")

    def add_worker(self, host: int, config: WorkerConfig) -> int:
        """Adds a worker at `host`, a machine; its UDP port is that of its address. Returns the machine's number."""
        protocol = protocols.named(config.protocol)
        with config.lease() as c:
            added = lib.ina_emulator_add_worker(self.pointer, host, protocol, c)
            machine = self._check(added, f"worker {config.worker} at host {host}")
        self._workers[machine], self._ranks[machine] = config.workers, config.worker
        self._values[machine], self._submitted[machine] = config.values, 0
        return machine

    def add_machine(self, host: int, protocol: CData, state: CData, udp_port: int, workers: int) -> int:
        """Adds any other machine; `state` is kept as long as the network. `udp_port` 0: it gets the frames that are no UDP."""
        added = lib.ina_emulator_add_machine(self.pointer, host, protocol, state, udp_port)
        machine = self._check(added, f"machine with UDP port {udp_port} at host {host}")
        self._workers[machine] = workers
        self._states.append(state)
        return machine

    def stop_machine(self, machine: int) -> None:
        """Ends the machine like a process that is killed; its UDP port is free, and its tensors never complete."""
        if machine in self._submitted:
            self._ended[machine] = self.worker_stats(machine)
        self._check(lib.ina_emulator_stop_machine(self.pointer, machine), f"machine {machine}")
        self._submitted.pop(machine, None)

    def set_up(self, end: End, up: bool) -> None:
        """Takes the direction of a wire that begins at ``end`` down, or up again. A frame is lost if the wire is down at any time
        between its last bit's leaving and its arrival; what waits before it goes on to leave, and is lost meanwhile."""
        self._check(lib.ina_emulator_set_up(self.pointer, end.native(), up), f"wire at {end}")

    def set_rate(self, end: End, rate: float) -> None:
        """Changes the rate of that direction, bit/s (0: no limit), for frames that begin to leave from now on, and of a host,
        those that its machines send from now on."""
        self._check(lib.ina_emulator_set_rate(self.pointer, end.native(), round(rate)), f"wire at {end}")

    def close_port(self, end: End) -> None:
        """Takes a switch's port down: frames that wait there are lost, and so are all that arrive from now on."""
        self._change_port(end, {"op": lib.INA_REMOVE_PORT, "id": end.port})

    def open_port(self, end: End, wire: Wire) -> None:
        """Brings a port up again; ``wire``: as it was connected. Counters of the port and its link begin anew."""
        direction = wire.native()
        self._change_port(end, {"op": lib.INA_ADD_PORT, "id": end.port, "link": ffi.addressof(direction, "link")})

    def _change_port(self, end: End, command: dict[str, Any]) -> None:
        native = ffi.new("struct ina_command *", command)
        self._check(lib.ina_switch_execute(self.switches[end.node].pointer, native), f"port {end.port} of switch {end.node}")

    # ---- running

    def submit(
        self,
        machine: int,
        source: np.ndarray | None,
        out: np.ndarray | None = None,
        *,
        average: bool = False,
        tag: int = 0,
        at: int | None = None,
        reduction: int = protocols.SUM,
        route: Route | None = None,
        offer: Offer | None = None,
    ) -> int:
        """Queues the all-reduce of a contiguous int32 or float32 array (default: in place), or its sum along a ``route``, at
        `at` ps (or now); or a sum of those that the switch chooses, with an ``offer``; then ``source`` may be None: ``amend``
        has it later, or it has none.

        OSError (EINVAL): a ``reduction`` that the machine's protocol does not have, or a time before that of an earlier one.
        EndOfTime: a time that the emulator does not have.
        """
        tensor = ffi.new("struct ina_tensor *")
        given, out = fill_arrays(tensor, source, out, average, tag, reduction, offer, self._workers.get(machine, 0),
                                 self._ranks.get(machine, 0))
        pieces = None
        if route is not None:
            pieces = route.fill(tensor, self._workers[machine], self._ranks[machine], self._values[machine])
        ticket = lib.ina_emulator_submit(self.pointer, machine, tensor, self.now if at is None else checked(at))
        self._check(ticket, f"tensor of {given.size} elements at machine {machine}")
        self._tensors[ticket] = (given, out, pieces)
        if offer is not None:
            self._offers[ticket] = machine, tensor
        if machine in self._submitted:
            self._submitted[machine] += given.size
        return ticket

    def amend(self, ticket: int, source: np.ndarray | None = None, *, least: int | None = None, never: bool = False) -> bool:
        """Says more of a sum with an offer, now: here is its ``source``, this worker ``never`` has one, or ``least`` contributors
        are enough. Returns False: it is over. ValueError: its offer is not to be changed so, as it has been before, or its
        machine has been stopped."""
        if (asked := self._offers.get(ticket)) is None:
            return False
        machine, tensor = asked
        check_source(source, self._tensors[ticket][1])
        terms, address = amended(tensor, None if source is None else source.ctypes.data, least, never)
        result = lib.ina_emulator_amend(self.pointer, machine, ticket, terms, address)
        if result == -errno.ENOENT:
            return False  # it is complete, and its completion waits to be read; or it fails with its job
        if result == -errno.ESRCH:
            raise ValueError(f"tensor {ticket}: machine {machine} has been stopped, and its tensors never complete; expected one "
                             "that runs")
        if result < 0:
            raise ValueError(f"tensor {ticket}: its offer is not to be changed so")
        tensor.offer = terms[0]
        if source is not None:
            set_source(tensor, source.ctypes.data)
            self._tensors[ticket] = (source, *self._tensors[ticket][1:])
        return True

    @property
    def now(self) -> int:
        """Virtual time, ps."""
        return lib.ina_emulator_now(self.pointer)

    def run(self, until: int = NEVER - 1, max_events: int = NEVER) -> bool:
        """Runs to `until` (ps) or until nothing is left, which returns True: no event, and no action other than those that only
        watch, which wait for the next run that has some. Executes the actions that are due meanwhile.

        A run that stops at completions ends before anything else happens: what is planned for their time waits for the next.
        """
        while self._agenda and self._agenda[0][0] <= until:
            due, before = self._agenda[0][0], self.events
            end = self._run(max(due, self.now), max_events)
            if end == lib.INA_RUN_COMPLETION:
                return False
            if end == lib.INA_RUN_IDLE:
                if not self._awaited:
                    return True
                self._idle(max(due, self.now))
            elif self.now < due or self.events - before >= max_events:  # events of that time may be left
                return False
            max_events -= self.events - before
            *_, action, is_awaited = heapq.heappop(self._agenda)
            self._awaited -= is_awaited
            action()
        if self._run(until, max_events) != lib.INA_RUN_IDLE:
            return False
        if self._awaited:
            self._idle(until)
        return not self._awaited

    def _run(self, until: int, max_events: int) -> int:
        return self._check(lib.ina_emulator_run(self.pointer, until, max_events), "emulator")

    def _idle(self, time: int) -> None:
        self._check(lib.ina_emulator_idle(self.pointer, time), "emulator")

    def plan(self, time: int, action: Callable[[], None], watches: bool = False) -> None:
        """Plans an action at ``time`` (ps), after the events and the earlier actions of that time; ``watches``: when nothing else
        is left to happen, a run does not wait for it. Raises EndOfTime."""
        heapq.heappush(self._agenda, (checked(time), self._actions, action, not watches))
        self._actions += 1
        self._awaited += not watches

    def stop_at_completions(self) -> None:
        """Makes `run` also end, with False, while there are completions to read: before actions of that time."""
        lib.ina_emulator_stop_at_completions(self.pointer, 1)

    def completions(self) -> list[Completion]:
        """Returns tensors that have finished since the last call, oldest first."""
        raw = ffi.new("struct ina_completion[]", 256)
        completions: list[Completion] = []
        while count := lib.ina_emulator_completions(self.pointer, raw, 256):
            for item in raw[0:count]:
                event = event_from_c(item.event, self._workers[item.machine])
                completions.append(Completion(item.ticket, item.machine, item.time, event))
                del self._tensors[item.ticket]
                self._offers.pop(item.ticket, None)
        return completions

    # ---- figures

    def stats(self) -> dict[str, int]:
        raw = ffi.new("struct ina_emulator_stats *")
        lib.ina_emulator_get_stats(self.pointer, raw)
        return stats_dict(raw)

    @property
    def events(self) -> int:
        """Events processed since the start: as in ``stats()``, but cheap enough to read often."""
        lib.ina_emulator_get_stats(self.pointer, self._stats)
        events: int = self._stats.events
        return events

    def worker_stats(self, machine: int) -> dict[str, int]:
        """Returns counters of a worker, which may have ended."""
        if machine in self._ended:
            return self._ended[machine]
        raw = ffi.new("struct ina_worker_stats *")
        self._check(lib.ina_emulator_worker_stats(self.pointer, machine, raw), f"worker {machine}")
        return stats_dict(raw)

    def wire_stats(self, end: End) -> dict[str, int]:
        """Returns counters of the direction that begins at `end`: its link's as `link_...`, arrivals, and faults (emulator.h)."""
        raw = ffi.new("struct ina_wire_stats *")
        self._check(lib.ina_emulator_wire_stats(self.pointer, end.native(), raw), f"wire at {end}")
        link = {f"link_{key}": value for key, value in stats_dict(ffi.addressof(raw.link)).items()}
        return {**link, **{key: value for key, value in stats_dict(raw).items() if key != "link"}}

    def progress(self) -> float | None:
        """Returns the share of submitted elements that are done, estimated from some workers; None: no worker has any."""
        machines = [machine for machine, elements in self._submitted.items() if elements]
        if not machines:
            return None
        sample = machines[:: -(-len(machines) // 16)]
        done = [self.worker_stats(m)["results"] * self._values[m] / self._submitted[m] for m in sample]
        return min(1.0, sum(done) / len(done))

    @property
    def frames_held(self) -> int:
        """Frames on wires and in NICs; 0 when no event is left."""
        return lib.ina_emulator_frames_held(self.pointer)
