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

from ina.base.closing import Closing
from ina.base.native import CData, ffi, lib
from ina.p4.runtime.cells import Cells, Command
from ina.p4.runtime.control_plane import ControlPlane
from ina.p4.runtime.loaded_program import Program
from ina.p4.runtime.parts import Generators, PipeScope, Telemetry
from ina.p4.runtime.records import PortStats
from ina.p4.runtime.replication import Groups, TrafficManager
from ina.p4.runtime.tables import Tables

PS = 10**12


def ranges(numbers: Iterable[int]) -> list[str]:
    """Returns texts of the runs in ascending numbers: "3", "5..7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [f"{run[0]}..{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]


@dataclass(frozen=True, slots=True)
class Link:
    """Egress of a port: `rate` bit/s (0: infinite), `delay` s, `queue` and `ecn` bytes (0: no limit, never mark)."""

    rate: float = 0
    delay: float = 0.0
    queue: int = 0
    ecn: int = 0


class Switch(ControlPlane, Telemetry, PipeScope, Generators, Closing):
    """One switch. Methods may be called from any thread; stepping and a running data plane exclude each other.

    `program`: path of a compiled program, a `Program`, or anything with an `so_path`. `buffer`: bytes that may wait in the
    queues of all ports together (0: no limit), counted with Ethernet's overhead as in a link's `queue`. `reentries`: frames
    that may wait to enter again at the same time (resubmitted, recirculated, clones; 0: 1024). `max_frame`: bytes. `seed`: of the
    program's random numbers. `pipes`, of a TNA program: 1 to 4, of 128 ports each; 0: 2, or as many as it has pipelines.
    """

    def __init__(
        self,
        program: Any,
        *,
        buffer: int = 0,
        reentries: int = 0,
        max_frame: int = 0,
        max_passes: int = 0,
        seed: int = 0,
        pipes: int = 0,
    ):
        if not isinstance(program, Program):
            program = Program(getattr(program, "so_path", program))
        self.program = program
        self._tables = Tables(program.p4info, program.layout)
        self._images = [self._tables.image(n) for n in range(len(program.pipelines))]
        self._ports: dict[int, Any] = {}
        self._lock = threading.RLock()
        self._dataplane = None
        self._process = os.getpid()
        config = ffi.new(
            "struct ina_switch_config *",
            {
                "buffer": buffer, "reentries": reentries, "max_frame": max_frame, "max_passes": max_passes, "seed": seed,
                "pipes": pipes,
            },
        )
        next_tables = ffi.new("struct ina_tables *[]", [image.pointer for image in self._images[1:]] or 1)
        config.next_tables = next_tables
        if program.architecture != "tna" and pipes:
            raise ValueError(f"{program.name}: a v1model program has no pipes")
        self.pointer = lib.ina_switch_create(program.pointer, self._images[0].pointer, config)
        if self.pointer == ffi.NULL:
            raise OSError(
                ffi.errno,
                f"cannot create a switch for {program.path}: {os.strerror(ffi.errno)} "
                f"({program.pointer.table_count} tables in the program, {self._images[0].pointer.count} in its layout"
                f"{f'; {len(program.pipelines)} pipelines for {pipes} pipes' if pipes else ''})",
            )
        self.pipes = int(lib.ina_switch_pipes(self.pointer))
        self._cells = Cells(program, max(1, self.pipes), lib.ina_switch_state_stride(self.pointer))
        self._engine = TrafficManager(self.pipes, program.port_metadata) if self.pipes else Groups()
        self._recirculating = set(range(1, self.pipes, 2)) if self.pipes > 2 else set()  # pipes whose ports 64 to 67 recirculate
        self._collector = ffi.gc(ffi.new("struct ina_collector *"), lib.ina_collector_free)
        lib.ina_switch_set_output(self.pointer, lib.ina_collect, self._collector)

    # ---- life

    def start(self, *, spin: float = 0.0, yields: int = 10, batch: int = 0, poll: float = 50e-6,
              nap: float = 0.0) -> None:
        """Starts the data plane thread.

        Idle, it polls the ports for `spin` seconds (for machines with a processor to spare), then gives the
        processor away up to `yields` times (not beside threads that compute: host/net/idle.h), then sleeps until it is
        woken; it polls ports without a descriptor every `poll` seconds. `batch`: frames per burst, at most 64,
        0: 32. `nap`: after frames it sleeps so many seconds in any case, so that the next ones come together: for
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

    def stop(self, timeout: float = 60.0) -> None:
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

    def __del__(self) -> None:
        # The thread would run code of an object after its unloading; a forked child has no thread to stop.
        if getattr(self, "pointer", None) and self._process == os.getpid():
            self.close()

    @property
    def running(self) -> bool:
        return self._dataplane is not None

    def _need(self, running: bool) -> None:
        self._need_open()
        if self.running != running:
            raise RuntimeError(f"the data plane {'runs: stop() it first' if self.running else 'does not run'}")

    def _execute(self, commands: Sequence[Command], timeout: float = 60.0) -> CData:
        """Runs commands in order, up to the first error; returns them (a cffi array: its items live as long as it does) with
        their results."""
        self._need_open()
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

    def add_port(self, number: int, port: Any = None, link: Link | None = None, loopback: bool = False) -> None:
        """Makes `port` (a `struct ina_port *`, or an object that has one as `handle`) port `number`, 0..510.

        The switch drives it from now on and never closes it. None: frames come and go through `step`. To capture
        a port's frames wrap it first (`Port.with_capture`). `loopback` (TNA): frames that leave by it enter by it
        again; ports for which `recirculates` is true do so without being added (once added with a `link`, at its rate).
        """
        handle = ffi.NULL if port is None else getattr(port, "handle", port)
        config = ffi.NULL if link is None else ffi.new("struct ina_link_config *", {
            "rate_bps": round(link.rate), "delay_ps": round(link.delay * PS), "queue_bytes": link.queue, "ecn_bytes": link.ecn,
        })
        if not 0 <= number < lib.INA_DROP_PORT:
            raise ValueError(f"port {number}: expected 0..{lib.INA_DROP_PORT - 1}")
        with self._lock:
            if number in self._ports:
                raise ValueError(f"port {number} is there already: remove it first")
            if self.pipes and number >= self.pipes * lib.INA_TNA_PIPE_PORTS:
                raise ValueError(f"port {number}: expected 0..{self.pipes * lib.INA_TNA_PIPE_PORTS - 1}: "
                                 f"this switch has pipes of {lib.INA_TNA_PIPE_PORTS} ports, {self.pipes} of them")
            if loopback and (not self.pipes or port is not None):
                raise ValueError(f"port {number}: a loopback port is TNA's, and has no memory of its own")
            commands: list[Command] = [{"op": lib.INA_ADD_PORT, "id": number, "port": handle, "link": config}]
            if loopback:
                commands.append({"op": lib.INA_TNA_SET_LOOPBACK, "id": number, "count": 1})
            if self.recirculates(number):
                commands.insert(0, {"op": lib.INA_REMOVE_PORT, "id": number})
            self._execute(commands)
            self._ports[number] = port

    def remove_port(self, number: int) -> Any:
        """Removes the port and drops frames that wait for it. Returns the port that add_port got."""
        with self._lock:
            if number not in self._ports:
                raise self._no_port(number)
            self._execute([{"op": lib.INA_REMOVE_PORT, "id": number}, *self._loop_commands(number, self.recirculates(number))])
            return self._ports.pop(number)

    def set_link(self, number: int, rate: float, delay: float) -> None:
        """Changes rate and delay of a port's link, for frames that it sends from now on."""
        config = ffi.new("struct ina_link_config *", {"rate_bps": round(rate), "delay_ps": round(delay * PS)})
        with self._lock:
            if number not in self._ports:
                raise self._no_port(number)
            self._execute([{"op": lib.INA_SET_LINK, "id": number, "link": config}])

    @staticmethod
    def _loop_commands(number: int, on: bool = True) -> list[Command]:
        """Commands that make a port recirculate that has not been added."""
        add: Command = {"op": lib.INA_ADD_PORT, "id": number, "port": ffi.NULL, "link": ffi.NULL}
        return [add, {"op": lib.INA_TNA_SET_LOOPBACK, "id": number, "count": 1}] if on else []

    def recirculates(self, number: int) -> bool:
        """Tells whether a TNA switch's port loops back unless it is added otherwise: ports 68 to 71 of each pipe do, and ports
        64 to 67 of pipes that have no CPU: 1 and 3 of four, until `recirculate` changes it."""
        pipe, local = divmod(number, lib.INA_TNA_PIPE_PORTS)
        recirculating = pipe < self.pipes and (local >= lib.INA_TNA_LOOPBACK or pipe in self._recirculating)
        return recirculating and lib.INA_TNA_CPU <= local < lib.INA_TNA_LOOPBACK + 4

    def recirculate(self, pipe: int, on: bool) -> None:
        """Sets whether ports 64 to 67 of a pipe recirculate. Raises ValueError: one of them is added."""
        with self._lock:
            first = pipe * lib.INA_TNA_PIPE_PORTS + lib.INA_TNA_CPU
            ports = range(first, first + lib.INA_TNA_LOOPBACK - lib.INA_TNA_CPU)
            if not 0 <= pipe < self.pipes:
                raise ValueError(f"pipe {pipe}: expected 0..{self.pipes - 1}")
            if on == (pipe in self._recirculating):
                return
            if added := [number for number in ports if number in self._ports]:
                raise ValueError(f"port {added[0]} is there: ports {first} to {ports[-1]} change together, while none of them is")
            removals: list[Command] = [{"op": lib.INA_REMOVE_PORT, "id": number} for number in ports]
            self._execute([c for number in ports for c in self._loop_commands(number)] if on else removals)
            self._recirculating ^= {pipe}

    def set_port(self, number: int, loopback: bool | None = None, up: bool | None = None) -> None:
        """Sets a TNA switch's port: makes one without memory of its own a loopback port, or one for `step` again; a port that is
        not `up` neither takes nor sends frames, which are dropped as if it did not exist."""
        with self._lock:
            if not self.pipes:
                raise ValueError(f"{self.program.name}: loopback ports and port states are TNA's")
            if loopback and self._ports.get(number) is not None:
                raise ValueError(f"port {number} has memory of its own, and cannot loop back")
            settings = ((lib.INA_TNA_SET_LOOPBACK, loopback), (lib.INA_TNA_SET_ENABLED, up))
            self._execute([{"op": op, "id": number, "count": int(on)} for op, on in settings if on is not None])

    def _no_port(self, number: int) -> ValueError:
        """The error about a port that is not there; it names ranges of those that are."""
        return ValueError(f"port {number!r} is not there; there are: {', '.join(ranges(self.ports)) or 'none'}")

    @property
    def ports(self) -> list[int]:
        return sorted(self._ports)

    def port_stats(self, number: int) -> PortStats:
        raw = ffi.new("struct ina_switch_port_stats *")
        with self._lock:
            self._execute([{"op": lib.INA_READ_PORT, "id": number, "data": raw}])
        return PortStats.of(raw)

    # ---- stepping

    def step(self, frame: bytes | bytearray | memoryview, port: int, now: int = 0) -> list[tuple[int, bytes]]:
        """Takes a frame in at `now` (ps); returns the frames that ports without a `struct ina_port` send at that time."""
        if not isinstance(frame, (bytes, bytearray, memoryview)):
            raise TypeError(f"a frame is a {type(frame).__name__}: expected bytes, a bytearray or a memoryview")
        frame = bytes(frame)
        with self._lock:
            self._need(running=False)
            if port not in self._ports:
                raise self._no_port(port)
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
        """The time at which `poll` next has something to do (ps); None: nothing waits."""
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
            raise MemoryError(f"one step sent {lost} frames more than {c.size} bytes hold, and there is no memory for them")
        return frames
