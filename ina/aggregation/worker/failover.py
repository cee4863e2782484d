"""All-reduces that go on when their job is moved to other switches: finished parts stay, others begin again.

A switch that fails loses partial sums, and perhaps results that some workers have and others have not. So a tensor is cut into
parts; inputs are kept until all of a tensor is done, and results until every worker must have them. When a job is moved,

    halt      stops the old endpoint, and reports which parts of which tensors this worker has
    give      compares the workers' reports, and returns parts that this one has and another one lacks
    resume    takes the parts from others; parts that nobody has are submitted again, from the kept inputs, in one order at all
              workers

The caller exchanges reports and parts (ina/aggregation/controller/keeper.py does it through a store); no clock is read here, and
only the endpoint is waited for.

When is a result not needed any more? A packet of a later tensor whose result this worker has was sent by every worker, in a slot
that each of them uses again only after it has the result before. So when as many packets of later tensors are complete as there
are slots, all workers have all results before those (docs/design/protocol.md); twice as many are waited for here.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypedDict

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.worker.errors import JobError

PARTS = 8  # of a tensor, at most
LEAST = 1 << 16  # elements of a part, at least, except for the last
BLOCK = 1 << 11  # parts are whole blocks of any program, so that sums do not depend on how a tensor is cut

Key = tuple[int, int]  # tensor, part


class Report(TypedDict):
    """JSON: number of the next tensor; by tensor's number "1" or "0" for each part: finished or not."""

    next: int
    parts: dict[str, str]


class Options(TypedDict):
    """Options of a tensor, beside its arrays."""

    average: bool
    tag: int
    reduction: int


class MoveFailed(RuntimeError):
    """The job cannot go on: a worker lacks a result that no other worker still has."""


class Machine(Protocol):
    """State machine that tensors are submitted to: an Endpoint, or one in virtual time."""

    def submit(self, source: np.ndarray, out: np.ndarray, *, average: bool, tag: int, reduction: int) -> int: ...

    def wait(self, ticket: int, timeout: float | None) -> object:
        """Waits for a tensor. Raises TimeoutError: not yet; JobError: it failed."""

    def abort(self) -> None: ...

    def close(self) -> None: ...

    @property
    def stats(self) -> dict[str, int]: ...


@dataclass
class Tensor:
    """``source``: the input, kept; ``out``: the caller's; ``result``: a copy of it, once the caller may have changed it."""

    number: int
    source: np.ndarray | None
    out: np.ndarray
    options: Options
    owner: object
    bounds: list[tuple[int, int]]
    tickets: list[int] = field(default_factory=list)  # of submitted parts, in order
    done: list[bool] = field(default_factory=list)
    result: np.ndarray | None = None

    @property
    def complete(self) -> bool:
        return all(self.done)

    def part(self, array: np.ndarray, number: int) -> np.ndarray:
        begin, end = self.bounds[number]
        return array[begin:end]


def bounds_of(count: int) -> list[tuple[int, int]]:
    """Returns beginnings and ends of the parts of a tensor of ``count`` elements: the same at every worker."""
    size = max(LEAST, -(-count // (PARTS * BLOCK)) * BLOCK)
    return [(begin, min(begin + size, count)) for begin in range(0, count, size)] or [(0, 0)]


def array_at(pointer: int, count: int, dtype: np.dtype) -> np.ndarray:
    """Returns ``count`` contiguous elements at an address, which their owner keeps."""
    memory = memoryview((ctypes.c_char * (count * dtype.itemsize)).from_address(pointer) if count else b"")
    return np.frombuffer(memory, dtype)


def compare(reports: Sequence[Report]) -> tuple[dict[Key, int], list[Key]]:
    """Returns parts that some workers have and others lack, with the first worker that has them; and parts that nobody has, in
    order.

    Raises MoveFailed.
    """
    givers: dict[Key, int] = {}
    again: list[Key] = []
    parts = [{int(number): flags for number, flags in report["parts"].items()} for report in reports]
    for number in sorted(set().union(*parts)):
        listed = {worker: own[number] for worker, own in enumerate(parts) if number in own}
        for part in range(len(next(iter(listed.values())))):
            have = [worker for worker, flags in listed.items() if flags[part] == "1"]
            if len(have) == len(listed):
                continue
            if have:
                givers[number, part] = have[0]
                continue
            forgot = [w for w, report in enumerate(reports) if w not in listed and number < report["next"]]
            if forgot:
                raise MoveFailed(f"worker {forgot[0]} has thrown the result of tensor {number} away, which others lack")
            again.append((number, part))
    return givers, again


class Movable:
    """An Endpoint that can be replaced; its tickets are numbers of tensors. ``packets``, of ``values`` elements each: a result is
    dropped when so many of later tensors are complete."""

    def __init__(self, machine: Machine, slots: int, values: int):
        self.machine = machine
        self.packets, self.values = 2 * slots, values
        self._tensors: dict[int, Tensor] = {}
        self._next = 0
        self._halted = False
        self._changed = threading.Condition(threading.RLock())

    # ---- as an endpoint

    def submit(
        self, source: np.ndarray, out: np.ndarray, *, average: bool = False, tag: int = 0, reduction: int = protocols.SUM,
        owner: object = None,
    ) -> int:
        """Starts an all-reduce; ``source`` may be ``out``. Waits while the job is being moved. Raises JobError if it has
        failed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._halted)
            self._settle()
            bounds = bounds_of(out.size)
            options: Options = {"average": average, "tag": tag, "reduction": reduction}
            tensor = Tensor(self._next, source.copy(), out, options, owner, bounds, done=[False] * len(bounds))
            self._tensors[tensor.number] = tensor
            self._next += 1
            try:
                for part in range(len(bounds)):
                    tensor.tickets.append(self._begin(tensor, part))
            except JobError:
                if not self._halted:
                    del self._tensors[tensor.number]
                    raise  # else the rest is submitted where the job goes on
            return tensor.number

    def wait(self, number: int, timeout: float | None = None) -> None:
        """Waits for a tensor. Raises TimeoutError: not yet; JobError: it failed, and the job was not moved."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._changed:
                remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not self._changed.wait_for(lambda: not self._halted, remaining):
                    raise TimeoutError(f"tensor {number}: the job is being moved to other switches")
                tensor, machine = self._tensors.get(number), self.machine
                if tensor is None:
                    return  # waited for before, and dropped
                if tensor.complete or self._settle(tensor):
                    self._keep(tensor)
                    return
                ticket = next(ticket for ticket, finished in zip(tensor.tickets, tensor.done, strict=True) if not finished)
            remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                machine.wait(ticket, remaining)
            except JobError:
                with self._changed:
                    if machine is self.machine and not self._halted:
                        raise

    def abort(self) -> None:
        self.machine.abort()

    def close(self) -> None:
        self.machine.close()

    def _begin(self, tensor: Tensor, part: int) -> int:
        assert tensor.source is not None
        source, out = tensor.part(tensor.source, part), tensor.part(tensor.out, part)
        return self.machine.submit(source, out, **tensor.options)

    def _settle(self, only: Tensor | None = None) -> bool:
        """Updates which parts are done, of one tensor or of all; returns True if all are."""
        whole = True
        for tensor in [only] if only else list(self._tensors.values()):
            for part, finished in enumerate(tensor.done):
                if not finished and part < len(tensor.tickets):
                    try:
                        self.machine.wait(tensor.tickets[part], 0)
                        tensor.done[part] = True
                    except (JobError, TimeoutError):
                        pass
            whole &= tensor.complete
        return whole

    def _keep(self, tensor: Tensor) -> None:
        """Keeps the result of ``tensor`` for the caller, and drops results that every worker must have."""
        if tensor.result is None:
            tensor.result, tensor.source, tensor.owner = tensor.out.copy(), None, None
        packets = 0
        for number in sorted(self._tensors, reverse=True):
            other = self._tensors[number]
            if other.result is None:
                continue
            if packets >= self.packets:
                del self._tensors[number]
            packets += sum(1 + (end - begin) // self.values for begin, end in other.bounds)  # one packet first describes the part

    # ---- the move

    def halt(self) -> Report:
        """Stops the old machine; returns this worker's report."""
        self._halted = True
        self.machine.abort()  # so that callers in submit return
        with self._changed:
            self._settle()
            self.machine.close()
            return {"next": self._next, "parts": {str(tensor.number): "".join("01"[finished] for finished in tensor.done)
                                                  for tensor in self._tensors.values()}}

    def give(self, worker: int, reports: Sequence[Report]) -> dict[Key, bytes]:
        """Returns the parts that this worker, ``worker``, has for others. Raises MoveFailed."""
        givers, _ = compare(reports)
        return {key: self._result(*key).tobytes() for key, giver in givers.items() if giver == worker}

    def missing(self, reports: Sequence[Report]) -> list[Key]:
        """Returns the parts that this worker lacks and others give. Raises MoveFailed."""
        givers, _ = compare(reports)
        return [(number, part) for number, part in givers if number in self._tensors and not self._tensors[number].done[part]]

    def resume(self, machine: Machine, reports: Sequence[Report], results: Mapping[Key, bytes]) -> int:
        """Continues on ``machine``; ``results``: the parts from ``missing``. Returns how many parts begin again. Raises
        MoveFailed, JobError."""
        with self._changed:
            for (number, part), data in results.items():
                tensor = self._tensors[number]
                tensor.part(tensor.out, part)[:] = np.frombuffer(data, tensor.out.dtype)
                tensor.done[part] = True
            _, again = compare(reports)
            self.machine = machine
            again = [key for key in again if key[0] in self._tensors]
            for tensor in self._tensors.values():
                tensor.tickets = [-1] * len(tensor.bounds)
            for number, part in again:
                self._tensors[number].tickets[part] = self._begin(self._tensors[number], part)
            self._halted = False
            self._changed.notify_all()
            return len(again)

    @property
    def stats(self) -> dict[str, int]:
        """Counters of the current machine."""
        return self.machine.stats

    def give_up(self) -> None:
        """Ends a failed move: callers in wait get the old machine's error."""
        with self._changed:
            self._halted = False
            self._changed.notify_all()

    def _result(self, number: int, part: int) -> np.ndarray:
        tensor = self._tensors[number]
        return tensor.part(tensor.out if tensor.result is None else tensor.result, part)
