"""Controller: which jobs a switch serves, and the table entries that make it serve them.

A job owns a number, an incarnation (packets carry its low eight bits, so packets and slots of a finished job with the
same number are recognised), a power-of-two range of slots, a multicast group, and one port per worker:

    job       (job)                                 -> set_job(full, last, base, mask, incarnation, group, strict)
    worker    (job, source address, port, ingress)  -> set_worker(bit)
    replica   (job, replication id)                 -> to_worker(mac, ip, port)
    multicast group: one replica per worker, its replication id is the worker's number

All of it is written through a switch target in P4Runtime's terms; registers are never touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ina.switch.entities import MulticastGroupEntry, Replica, TableEntry, Update, delete, insert, modify
from ina.transport import Address, worker_address

MAX_WORKERS = 32
MAX_JOBS = 256
MAX_JOB_SLOTS = 8192  # slot numbers have 14 bits; a job's window is at most half of them


class AdmissionError(Exception):
    """A job or worker was refused. ``code``: full, too_many_workers, mismatch, duplicate, unknown or invalid."""

    def __init__(self, code: str, text: str):
        super().__init__(text)
        self.code = code


class SwitchTarget(Protocol):
    """What the controller needs of a switch; embedded, BMv2 and Tofino stand behind it."""

    def write(self, updates: list[Update]) -> None:
        """Apply entity updates in order; each is atomic."""


@dataclass(frozen=True)
class Worker:
    """Where one worker of a job is: ``port`` is the switch's port number, ``address`` what its frames say."""

    job: int
    index: int
    port: int
    address: Address


@dataclass
class Job:
    """One admitted job. ``slot_base`` and ``slots`` in slots (a slot is two rows); ``incarnation`` is 1..2^32-1."""

    name: str
    number: int
    incarnation: int
    workers: int
    slot_base: int
    slots: int
    strict: bool
    attached: dict[int, Worker] = field(default_factory=dict)

    @property
    def group(self) -> int:
        return self.number + 1  # 0 means "no multicast"


class Controller:
    """Jobs of one switch. ``slots``: the pool of the program, shared by all jobs."""

    def __init__(self, target: SwitchTarget, slots: int, first_incarnation: int = 1):
        self.target = target
        self.slots = slots
        self.jobs: dict[str, Job] = {}
        self._incarnation = first_incarnation - 1
        self._last_number = MAX_JOBS - 1

    def admit(self, name: str, workers: int, slots: int, strict: bool = True) -> Job:
        """Give job ``name`` its resources. Raises AdmissionError; then nothing has changed."""
        if name in self.jobs:
            raise AdmissionError("duplicate", f"job {name!r} is already running; choose another name or release it")
        if not 1 <= workers <= MAX_WORKERS:
            raise AdmissionError("too_many_workers",
                                 f"job {name!r} has {workers} workers; a switch job takes 1 to {MAX_WORKERS}")
        if slots < 1 or slots & (slots - 1) or slots > MAX_JOB_SLOTS:
            raise AdmissionError("invalid", f"job {name!r} asks for {slots} slots; expected a power of two "
                                            f"from 1 to {MAX_JOB_SLOTS}")
        base = self._first_fit(slots)
        if base is None:
            held = ", ".join(f"{job.name}: {job.slots}" for job in self.jobs.values()) or "none"
            raise AdmissionError("full", f"job {name!r} asks for {slots} slots, but no range of that size is free in "
                                         f"the pool of {self.slots} (held: {held}); end a job, ask for fewer slots, "
                                         "or compile the program with a larger SLOTS")
        number = self._free_number()
        if number is None:
            raise AdmissionError("full", f"job {name!r}: all {MAX_JOBS} job numbers are in use; end a job")
        self._incarnation = self._incarnation % 0xFFFFFFFF + 1
        job = Job(name, number, self._incarnation, workers, base, slots, strict)
        self.target.write(insert(self._job_entry(job), self._group(job)))
        self.jobs[name] = job
        self._last_number = number
        return job

    def attach(self, job: Job, index: int, port: int, address: Address | None = None) -> Worker:
        """Register worker ``index`` of ``job`` at switch port ``port``. Raises AdmissionError.

        ``address``: default, that of the local world.
        """
        if not 0 <= index < job.workers:
            raise AdmissionError("invalid", f"job {job.name!r} has workers 0 to {job.workers - 1}; there is no {index}")
        if index in job.attached:
            raise AdmissionError("duplicate", f"worker {index} of job {job.name!r} is already attached: two processes "
                                              "have the same rank")
        worker = Worker(job.number, index, port, address or worker_address(job.number, index))
        job.attached[index] = worker
        self.target.write([*insert(*self._worker_entries(worker)), *modify(self._group(job))])
        return worker

    def release(self, name: str) -> None:
        """Take everything back from job ``name``: its number, slots, group and entries. Unknown names are an error."""
        job = self.jobs.pop(name, None)
        if job is None:
            raise AdmissionError("unknown", f"there is no job {name!r}")
        entries = [e for worker in job.attached.values() for e in self._worker_entries(worker)]
        self.target.write(delete(self._job_entry(job), *entries, self._group(job)))

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
        order = ((self._last_number + 1 + i) % MAX_JOBS for i in range(MAX_JOBS))
        return next((number for number in order if number not in used), None)

    @staticmethod
    def _job_entry(job: Job) -> TableEntry:
        return TableEntry(
            "job", {"hdr.switchml.job": job.number}, "set_job",
            {"full": (1 << job.workers) - 1, "last": job.workers - 1, "base": job.slot_base, "mask": job.slots - 1,
             "incarnation": job.incarnation, "group": job.group, "strict": int(job.strict)})

    @staticmethod
    def _worker_entries(worker: Worker) -> list[TableEntry]:
        address = worker.address
        match = {"hdr.switchml.job": worker.job, "hdr.ipv4.src_addr": address.ip, "hdr.udp.src_port": address.port,
                 "standard.ingress_port": worker.port}
        return [
            TableEntry("worker", match, "set_worker", {"worker": 1 << worker.index}),
            TableEntry("replica", {"hdr.switchml.job": worker.job, "standard.egress_rid": worker.index}, "to_worker",
                       {"mac": address.mac, "ip": address.ip, "port": address.port}),
        ]

    @staticmethod
    def _group(job: Job) -> MulticastGroupEntry:
        return MulticastGroupEntry(job.group, tuple(Replica(w.port, w.index) for _, w in sorted(job.attached.items())))
