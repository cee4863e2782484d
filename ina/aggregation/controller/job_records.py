"""Jobs of the controller: their numbers, and their branches, one at each switch of the aggregation tree."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from ina.aggregation import completion
from ina.aggregation.entries import BITMAP, Child, Parent, Place
from ina.aggregation.worker.config import WorkerConfig
from ina.net.ports import Address
from ina.topology.tree import Tree


class AdmissionError(Exception):
    """A job or worker was refused. ``code``: full, too_many_workers, mismatch, duplicate, unknown, invalid or switch (which
    refuses a write, or does not answer)."""

    def __init__(self, code: str, text: str):
        super().__init__(text)
        self.code = code


class NotYet(Exception):
    """A request must wait; the message says for what."""


@dataclass
class Branch:
    """A job at one switch. ``seats``: its children there, by child's number: the worker's number in the job, or the name of a
    switch below; ``workers``: all below it; ``attached``: children whose entries are written, by number. ``below``: the workers
    below switch processes that attach as workers do (in_tree.py), by the name that their seat has."""

    switch: str
    slot_base: int
    seats: tuple[int | str, ...]
    workers: tuple[int, ...]
    parent: Parent | None = None
    attached: dict[int, Child] = field(default_factory=dict)
    below: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def seats_by_worker(self) -> dict[int, int]:
        """Seats of those that attach, by worker's number: of a switch process that of the lowest worker below it."""
        firsts = [self.below[child][0] if isinstance(child, str) and child in self.below else child for child in self.seats]
        return {worker: seat for seat, worker in enumerate(firsts) if isinstance(worker, int)}

    @property
    def children(self) -> list[Child]:
        return [child for _, child in sorted(self.attached.items())]


@dataclass
class Job:
    """One admitted job. ``slots`` at each of its switches; ``incarnation`` and ``life``: job_incarnations.py. ``branches``: by
    switch, the root first. ``addresses``: of its workers in order, as frames have them. ``hosts``: of its workers in order, empty
    where the one switch takes workers at any port. ``check``: of protocols.CHECKS. ``rule``: of completion. ``given_key``: that
    of its workers, hexadecimal, where the switch process above has made it."""

    name: str
    number: int
    incarnation: int
    life: int
    workers: int
    slots: int
    strict: bool
    branches: dict[str, Branch]
    tree: Tree | None = None
    hosts: tuple[str, ...] = ()
    addresses: tuple[Address, ...] = ()
    check: str = "off"
    rule: str = completion.DEFAULT
    secret: str = field(default="", repr=False)  # hexadecimal; "": its workers need no key
    given_key: str = field(default="", repr=False)

    @property
    def group(self) -> int:
        return self.number + 1  # 0 means "no multicast"

    @property
    def root(self) -> Branch:
        return next(iter(self.branches.values()))

    @property
    def slot_base(self) -> int:
        """First slot at the root."""
        return self.root.slot_base

    @property
    def attached(self) -> dict[int, Child]:
        """Workers that are attached, by number; the lowest one of each switch process below that is."""
        return dict(sorted((worker, branch.attached[seat]) for branch in self.branches.values()
                           for worker, seat in branch.seats_by_worker.items() if seat in branch.attached))

    @property
    def in_process_tree(self) -> bool:
        """True if switch processes above or below sum for it, too."""
        return self.tree is None and any(branch.below or len(branch.workers) < self.workers for branch in self.branches.values())

    @property
    def is_complete(self) -> bool:
        """True if all that attach here have done so."""
        return len(self.attached) == sum(len(branch.seats_by_worker) for branch in self.branches.values())

    def check_worker(self, worker: int) -> None:
        """Raises AdmissionError: the job has no worker of this number."""
        if not 0 <= worker < self.workers:
            raise AdmissionError("invalid", f"job {self.name!r} has workers 0 to {self.workers - 1}; there is no {worker}")

    def branch_of(self, worker: int) -> Branch:
        """Returns the branch that sums a worker's packets first."""
        return next(branch for branch in self.branches.values() if worker in branch.seats_by_worker)

    @property
    def key(self) -> bytes:
        """The key of its workers and its parameter server, b"": they need none. Each incarnation has its own, as packets are
        numbered anew."""
        if self.given_key:
            return bytes.fromhex(self.given_key)
        number = self.incarnation.to_bytes(4, "big")
        return hashlib.blake2s(number, key=bytes.fromhex(self.secret), digest_size=16).digest() if self.secret else b""

    def config(self, worker: int, switch: Address, **own: Any) -> WorkerConfig:
        """Returns the configuration of a worker that shares a process with the controller. ``switch``: the one that it sends to,
        which also relays to a parameter server; ``own``: further fields (values, rto_min, ...)."""
        return WorkerConfig(
            worker=worker, workers=self.workers, job=self.number, life=self.life, slots=self.slots,
            address=self.addresses[worker], switch=switch, server=switch, check=self.check, rule=self.rule, key=self.key, **own)

    def place(self, branch: Branch) -> Place:
        return Place(self.number, self.incarnation, self.life, len(branch.seats), branch.workers, branch.slot_base, self.slots,
                     self.group, self.strict, branch.parent, self.workers > BITMAP, self.rule)
