"""Shared switch: a switch in memory that the processes at its ports map, and that whichever of them waits runs (c/shared.h).

    shared = SharedSwitch(program, insert(*entries), seats=4, frames=128, max_frame=2048)      # its maker
    port, turns = open_seat(program.path, fds, seat)                       # a process, with the descriptors of shared.seat(seat)
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ina.base.closing import closing_on_error
from ina.base.native import CData, ffi, lib
from ina.net.ports import Bells, Port, create_bells
from ina.p4.runtime.embedded import Switch
from ina.p4.runtime.entities import Update
from ina.p4.runtime.loaded_program import Program, open_program
from ina.p4.runtime.records import PortStats

SEATS: int = lib.INA_SHARED_SEATS
FEW = "the kernel hands on no more descriptors than a process may open: raise the limit (ulimit -n)"


class Turns(NamedTuple):
    """Number of times that a process ran the switch, and of frames on which it did."""

    turns: int
    packets: int


def unfit(program: Program) -> str:
    """Returns why a program cannot run in a shared switch; "": it can. Ports have no links and nobody reads digests there."""
    if program.architecture != "v1model":
        return f"its architecture is {program.architecture}"
    return "it has digests" if program.layout.get("digests") else ""


class SharedSwitch:
    """A switch of ``program`` with the entities that ``updates`` write and ``seats`` ports, 0, 1, ..., as its maker sees it.

    ``frames``: per direction of each port, a power of two; ``max_frame``: bytes. Raises ValueError for a program that is unfit,
    OSError, and what writing the updates raises. The entities are fixed: processes at seats have copies.
    """

    def __init__(self, program: Program, updates: Iterable[Update], seats: int, frames: int, max_frame: int):
        if reason := unfit(program):
            raise ValueError(f"{program.name} cannot be shared: {reason}")
        if not 1 <= seats <= SEATS:
            raise ValueError(f"{seats} seats; expected 1 to {SEATS}")
        self.seats = seats
        self._bells: list[Bells] = []
        self._memory: CData = ffi.NULL
        self._fd = -1
        self._switch = Switch(program)
        with closing_on_error(self.close):
            self._switch.write(updates)
            config = ffi.new("struct ina_shared_config *", {"seats": seats, "frames": frames, "max_frame": max_frame})
            sizes = ffi.new("uint64_t[]", self._switch.image_sizes() or 1)
            config.table_bytes = sizes
            self._fd = lib.ina_shared_create(self._switch.pointer, config)
            if self._fd < 0:
                raise OSError(-self._fd, f"cannot create a shared switch: {os.strerror(-self._fd)}")
            self._memory = lib.ina_shared_map(self._fd)
            if self._memory == ffi.NULL:
                raise OSError(ffi.errno, f"cannot map a shared switch: {os.strerror(ffi.errno)}")
            lib.ina_switch_use_state(self._switch.pointer, lib.ina_shared_state(self._memory))
            for _ in range(seats):
                self._bells.append(create_bells())

    def seat(self, seat: int) -> list[int]:
        """Returns the descriptors for the process at a seat: the memory, its own bell, and the one that rings each seat's. The
        caller closes them. Raises OSError."""
        fds: list[int] = []
        try:
            for fd in (self._fd, self._bells[seat].of_host, *(bells.to_host for bells in self._bells)):
                fds.append(os.dup(fd))
        except OSError:
            for fd in fds:
                os.close(fd)
            raise
        return fds

    def counters(self) -> dict[str, np.ndarray]:
        """Returns all counters that the program uses, by full name: cells (packets, bytes)."""
        return self._switch.counters()

    def read(self, seat: int) -> tuple[Turns, PortStats]:
        """Returns counters of a seat, as of the last time that each process slept."""
        turns, stats = ffi.new("struct ina_shared_turns *"), ffi.new("struct ina_switch_port_stats *")
        lib.ina_shared_read(self._memory, seat, turns, stats)
        return Turns(turns.turns, turns.packets), PortStats.of(stats)

    def holder(self) -> int | None:
        """Returns the seat whose process runs the switch, or ran it when it ended; None: nobody does."""
        seat = int(lib.ina_shared_holder(self._memory))
        return seat if seat >= 0 else None

    def close(self) -> None:
        """Frees what the maker holds; the memory stays as long as a process at a seat has it. Closing twice is fine."""
        self._switch.close()
        if self._memory != ffi.NULL:
            lib.ina_shared_unmap(self._memory)
            self._memory = ffi.NULL
        for bells in self._bells:
            bells.close()
        self._bells.clear()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SharedPort(Port):
    """The port of a process at a seat, which runs the switch when the port is used."""

    def __init__(self, handle: CData, name: str, own: CData):
        super().__init__(handle, name)
        self._own = own

    def turns(self) -> Turns:
        """Returns how often it did, also once the port is closed."""
        return Turns(self._own.turns.turns, self._own.turns.packets)

    def kept_by(self) -> int | None:
        """Returns the seat whose process was running the switch when this one last wanted to; None: it could."""
        return int(self._own.kept_by) - 1 if self._own.kept_by else None


def open_seat(path: str, fds: Sequence[int], seat: int) -> SharedPort:
    """Opens the port at a seat, with the descriptors of ``SharedSwitch.seat``, which stay the caller's. ``path``: the compiled
    program, whose code this process runs from now on. Raises OSError, ValueError."""
    if not 3 <= len(fds) <= 2 + SEATS:
        raise ValueError(f"shared switch, seat {seat}: {len(fds)} descriptors have come, expected 3 to {2 + SEATS}; {FEW}")
    memory, bell, *to_hosts = fds
    program = open_program(path)
    bells = ffi.new("int[]", [*to_hosts, *[-1] * (SEATS - len(to_hosts))])
    own = ffi.new("struct ina_shared_own *")
    port = lib.ina_port_shared_open(memory, program, seat, bell, bells, own)
    if port == ffi.NULL:
        hint = FEW if ffi.errno in (errno.EBADF, errno.EMFILE) else "do switch and worker run the same version of ina?"
        raise OSError(ffi.errno, f"shared switch, seat {seat}: cannot open: {os.strerror(ffi.errno)}; {hint}")
    return SharedPort(port, f"seat {seat} of a shared switch", own)
