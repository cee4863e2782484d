"""Switches of single jobs, which their workers run (ina/p4/runtime/shared.py): the switch process makes them, and keeps control.

A job whose workers and switch process are one user's gets a switch of its own, in memory that they all map: whichever worker
waits runs it, and no packet needs the switch process. The job's entries are fixed when its first worker attaches, as all that
they depend on is known then: port i of the switch is worker i's. A worker that ends while it runs the switch leaves it dead; the
job fails as it does whenever a worker is lost, and what follows it has another switch, with fresh state.

The switch process runs the packets of all other jobs: of several users, with a parameter server, at ports that are no shared
memory, of TNA programs and those with digests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ina.aggregation.controller.job_records import Job
from ina.aggregation.controller.worker_ports import Plug, frames_for
from ina.aggregation.entries import Child, JobProgram, entries_of
from ina.aggregation.port_kinds import shm
from ina.net.ports import Address
from ina.p4.runtime.entities import insert
from ina.p4.runtime.loaded_program import Program
from ina.p4.runtime.shared import SEATS, SharedSwitch, unfit


@dataclass
class Seats:
    """A job's switch. ``worker_of``: by the port number that the worker has at the process's own switch, where its entries are
    but no frame of it comes."""

    switch: SharedSwitch
    worker_of: dict[int, int]


class SharedSwitches:
    """The shared switches of a switch process that runs ``loaded``. ``address``: the switch's, in frames; ``max_frame``: bytes.
    ``take_number``: returns a free port number of the process's own switch."""

    def __init__(self, loaded: Program, program: JobProgram, address: Address, max_frame: int, take_number: Callable[[], int]):
        self._take_number = take_number
        self._loaded, self._program, self._address, self._max_frame = loaded, program, address, max_frame
        self._jobs: dict[int, Seats] = {}  # by number
        self.unfit = unfit(loaded) or ("its jobs have a parameter server" if program.needs_server else "")

    @property
    def numbers(self) -> set[int]:
        """Port numbers that workers have."""
        return {number for seats in self._jobs.values() for number in seats.worker_of}

    def takes(self, job: Job, uid: int | None, pid: int) -> bool:
        """Tells whether a worker of the job, process ``pid`` of user ``uid``, may run its switch: the user of this process, who
        sees the same files, the compiled program's among them (its cache may have been emptied since it was loaded)."""
        alone = job.tree is None and not job.in_process_tree
        fits = not self.unfit and alone and job.workers <= SEATS and os.path.exists(self._loaded.path)
        return fits and uid == os.geteuid() and _same_files(pid)

    def open(self, job: Job, worker: int) -> Plug:
        """Opens the port of a worker. Raises ValueError: there is no free port number; OSError."""
        number = self._take_number()
        seats = self._jobs.get(job.number) or self._make(job)
        try:
            fds = seats.switch.seat(worker)
        except OSError:  # too many open files
            if not seats.worker_of:
                seats.switch.close()
            raise
        self._jobs[job.number] = seats
        seats.worker_of[number] = worker
        offer = shm.KIND.shared_offer(self._loaded.path, worker)
        return Plug(number, job.addresses[worker], self._address, offer, fds)

    def _make(self, job: Job) -> Seats:
        place, program = job.place(job.root), self._program
        children = [Child(i, i, job.addresses[i], (i,)) for i in range(job.workers)]
        updates = [*program.setup(), *insert(*entries_of(program, place, children))]
        return Seats(SharedSwitch(self._loaded, updates, job.workers, frames_for(job.slots), self._max_frame), {})

    def close(self, number: int, job: int) -> None:
        """Closes the port of a worker; after the last one of ``job`` (its number) its switch is gone."""
        seats = self._jobs[job]
        del seats.worker_of[number]
        if not seats.worker_of:
            self._jobs.pop(job).switch.close()

    def died_with(self, job: int, worker: int) -> bool:
        """Tells whether a worker of the job with this number, which has ended, ran its switch just then."""
        return job in self._jobs and self._jobs[job].switch.holder() == worker

    def counters(self) -> tuple[list[dict[str, Any]], dict[int, dict[str, Any]]]:
        """Returns the program's counters of each switch, and by port number those of a port, with ``turns``: how often its worker
        ran the switch, on how many ``run_packets``. As of the last time that workers slept."""
        ports: dict[int, dict[str, Any]] = {}
        for seats in self._jobs.values():
            for number, worker in seats.worker_of.items():
                turns, stats = seats.switch.read(worker)
                ports[number] = {"rx_packets": stats.rx_packets, "rx_bytes": stats.rx_bytes, "tx_packets": stats.tx_packets,
                                 "tx_bytes": stats.tx_bytes, "drops": stats.drops, "turns": turns.turns,
                                 "run_packets": turns.packets}
        return [seats.switch.counters() for seats in self._jobs.values()], ports

    def close_all(self) -> None:
        for seats in self._jobs.values():
            seats.switch.close()
        self._jobs.clear()


def _same_files(pid: int) -> bool:
    """Tells whether a process has this one's mount name space, so that it finds the compiled program."""
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino == os.stat("/proc/self/ns/mnt").st_ino
    except OSError:  # it has ended, or is in a name space of processes that we cannot see
        return False
