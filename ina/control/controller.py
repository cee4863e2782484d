"""Controller: which jobs a switch serves, and what of it each of them holds.

A job owns a number, an incarnation (packets carry its low eight bits, so packets and slots of a finished job with the
same number are recognised), a power-of-two range of slots, a multicast group, and one port per worker. Which entries make
the switch's program serve it, the protocol knows (ina/control/programs/). All of it is written through a switch target in
P4Runtime's terms; registers are never touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ina.control.programs import Child, JobProgram, Place, program_named
from ina.switch.entities import Update, delete, insert, modify
from ina.transport import Address, worker_address


class AdmissionError(Exception):
    """A job or worker was refused. ``code``: full, too_many_workers, mismatch, duplicate, unknown or invalid."""

    def __init__(self, code: str, text: str):
        super().__init__(text)
        self.code = code


class SwitchTarget(Protocol):
    """What the controller needs of a switch; embedded, BMv2 and Tofino stand behind it."""

    def write(self, updates: list[Update]) -> None:
        """Apply entity updates in order; each is atomic."""


@dataclass
class Job:
    """One admitted job. ``slot_base`` and ``slots`` in slots; ``incarnation`` is 1..2^32-1."""

    name: str
    number: int
    incarnation: int
    workers: int
    slot_base: int
    slots: int
    strict: bool
    attached: dict[int, Child] = field(default_factory=dict)

    @property
    def group(self) -> int:
        return self.number + 1  # 0 means "no multicast"

    @property
    def place(self) -> Place:
        return Place(self.number, self.incarnation, self.workers, self.slot_base, self.slots, self.group, self.strict)


class Controller:
    """Jobs of one switch, whose program speaks ``protocol``. ``slots``: the pool of the program, shared by all jobs."""

    def __init__(self, target: SwitchTarget, slots: int, first_incarnation: int = 1, protocol: str = "switchml"):
        self.target = target
        self.program: JobProgram = program_named(protocol)
        self.slots = slots
        self.jobs: dict[str, Job] = {}
        self._incarnation = first_incarnation - 1
        self._last_number = self.program.max_jobs - 1

    def admit(self, name: str, workers: int, slots: int, strict: bool = True) -> Job:
        """Give job ``name`` its resources. Raises AdmissionError; then nothing has changed."""
        if name in self.jobs:
            raise AdmissionError("duplicate", f"job {name!r} is already running; choose another name or release it")
        most = self.program.max_children
        if not 1 <= workers <= most:
            raise AdmissionError("too_many_workers",
                                 f"job {name!r} has {workers} workers; a switch job takes 1 to {most}")
        if slots < 1 or slots & (slots - 1) or slots > self.program.max_slots:
            raise AdmissionError("invalid", f"job {name!r} asks for {slots} slots; expected a power of two "
                                            f"from 1 to {self.program.max_slots}")
        base = self._first_fit(slots)
        if base is None:
            held = ", ".join(f"{job.name}: {job.slots}" for job in self.jobs.values()) or "none"
            raise AdmissionError("full", f"job {name!r} asks for {slots} slots, but no range of that size is free in "
                                         f"the pool of {self.slots} (held: {held}); end a job, ask for fewer slots, "
                                         "or compile the program with a larger SLOTS")
        number = self._free_number()
        if number is None:
            raise AdmissionError("full", f"job {name!r}: all {self.program.max_jobs} job numbers are in use; end a job")
        self._incarnation = self._incarnation % 0xFFFFFFFF + 1
        job = Job(name, number, self._incarnation, workers, base, slots, strict)
        self.target.write(insert(*self.program.job(job.place), self.program.group(job.place, [])))
        self.jobs[name] = job
        self._last_number = number
        return job

    def attach(self, job: Job, index: int, port: int, address: Address | None = None) -> Child:
        """Register worker ``index`` of ``job`` at switch port ``port``. Raises AdmissionError.

        ``address``: default, that of the local world.
        """
        if not 0 <= index < job.workers:
            raise AdmissionError("invalid", f"job {job.name!r} has workers 0 to {job.workers - 1}; there is no {index}")
        if index in job.attached:
            raise AdmissionError("duplicate", f"worker {index} of job {job.name!r} is already attached: two processes "
                                              "have the same rank")
        worker = Child(index, port, address or worker_address(job.number, index))
        job.attached[index] = worker
        self.target.write([*insert(*self.program.child(job.place, worker)),
                           *modify(self.program.group(job.place, [*job.attached.values()]))])
        return worker

    def release(self, name: str) -> None:
        """Take everything back from job ``name``: its number, slots, group and entries. Unknown names are an error."""
        job = self.jobs.pop(name, None)
        if job is None:
            raise AdmissionError("unknown", f"there is no job {name!r}")
        place, program, attached = job.place, self.program, [*job.attached.values()]
        entries = [entry for worker in attached for entry in program.child(place, worker)]
        self.target.write(delete(*program.job(place), *entries, program.group(place, attached)))

    def free_slots(self) -> int:
        return self.slots - sum(job.slots for job in self.jobs.values())

    def _first_fit(self, slots: int) -> int | None:
        """Lowest start of a free range, aligned to its size (so ranges of powers of two never fragment needlessly)."""
        held = sorted((job.slot_base, job.slot_base + job.slots) for job in self.jobs.values())
        for base in range(0, self.slots - slots + 1, slots):
            if all(base >= end or base + slots <= start for start, end in held):
                return base
        return None

    def _free_number(self) -> int | None:
        """Numbers go round, so that one is reused as late as possible: late packets of its old job die out."""
        used = {job.number for job in self.jobs.values()}
        most = self.program.max_jobs
        order = ((self._last_number + 1 + i) % most for i in range(most))
        return next((number for number in order if number not in used), None)
