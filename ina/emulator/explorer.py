"""Explorer: every interleaving of a small job, over the real compiled program and the real workers.

Two or more workers share one tensor through one switch. At every point, any frame on its way may be the next to arrive,
be lost or be duplicated, and any slot in flight may time out; losses, duplicates and time-outs have a budget, and the
number of steps is bounded. The walk is breadth first over distinct states, so the first violation found is a shortest
one. Checked:

- no worker ever finishes with a wrong sum, or with an error;
- from every state that was reached the job can finish: frames arrive in order, and what is in flight times out when
  nothing is on its way any more.

A state is the switch program's state (without statistics), the workers' (likewise), the results so far and the frames
on their way: all of them values, saved and restored by copying.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ina._native import ffi, lib
from ina.control.controller import Controller
from ina.switch.embedded import Switch
from ina.transport.config import MAX_OPS, WorkerConfig
from ina.transport.worker import Worker

SWITCH = -1  # destination of a frame: a worker's number, or this
Frame = tuple[int, int, bytes]  # destination, port at the switch, bytes


@dataclass(frozen=True)
class Budget:
    """How many faults one path may have."""

    losses: int = 1
    duplicates: int = 1
    timeouts: int = 2


@dataclass(frozen=True)
class State:
    """Components by number (see `_Components`), frames sorted, and what is left of the budget."""

    parts: tuple[int, ...]
    frames: tuple[Frame, ...]
    budget: Budget


@dataclass(frozen=True)
class Report:
    """What a walk saw. `violation` is None, or says what went wrong; `steps` leads there."""

    states: int
    depth: int
    finished: int
    violation: str | None = None
    steps: tuple[str, ...] = ()


class _Components:
    """Numbers for equal snapshots: `key` decides equality, `full` is what restores it."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._full: list[bytes] = []

    def number(self, key: bytes, full: bytes) -> int:
        number = self._numbers.setdefault(key, len(self._full))
        if number == len(self._full):
            self._full.append(full)
        return number

    def __getitem__(self, number: int) -> bytes:
        return self._full[number]


class Explorer:
    """A job of `workers` workers with an int32 tensor of `elements` elements, `slots` slots and `values` per packet.

    `program`: compiled with that VALUES (and a small SLOTS: its state is saved whole). `strict` 0 runs it as for
    unmodified SwitchML clients, without the tsi check.
    """

    def __init__(
        self, program, *, workers: int = 2, slots: int = 1, values: int = 32, elements: int = 64, strict: bool = True
    ):
        self.switch = Switch(program)
        controller = Controller(self.switch, slots)
        job = controller.admit("explored", workers, slots, strict)
        rng = np.random.default_rng(1)
        self.inputs = [rng.integers(-(2**31), 2**31, elements, dtype=np.int64).astype(np.int32) for _ in range(workers)]
        self.expected = np.sum(self.inputs, axis=0, dtype=np.int32).tobytes()
        self.outputs = [np.zeros(elements, np.int32) for _ in range(workers)]
        self.workers: list[Worker] = []
        for index in range(workers):
            attached = controller.attach(job, index, index)
            self.switch.add_port(index)
            config = WorkerConfig(
                worker=index, workers=workers, job=job.number, incarnation=job.incarnation, slots=slots, values=values,
                address=attached.address, rto_min=1.0, rto_max=1.0, timeout=1e5,
            )  # fmt: skip
            self.workers.append(Worker(config))
        size, head = self.switch.program.pointer.state_size, self.switch.program.pointer.stats_offset
        self._switch_state = ffi.buffer(lib.ina_switch_state(self.switch.pointer), size)
        self._head = head
        self._components = _Components()
        self._events = ffi.new("struct ina_event[]", MAX_OPS)
        self._failure: str | None = None
        self._slots = slots

    # ---- states

    def _save(self, frames: list[Frame], budget: Budget) -> State:
        number = self._components.number
        whole = bytes(self._switch_state)
        parts = [number(b"switch" + whole[: self._head], whole)]
        for worker, output in zip(self.workers, self.outputs, strict=True):
            parts.append(number(b"worker" + worker.behaviour(), worker.snapshot()))
            result = output.tobytes()
            parts.append(number(b"output" + result, result))
        return State(tuple(parts), tuple(sorted(frames)), budget)

    def _restore(self, state: State) -> None:
        self._switch_state[:] = self._components[state.parts[0]]
        for index, (worker, output) in enumerate(zip(self.workers, self.outputs, strict=True)):
            worker.restore(self._components[state.parts[1 + 2 * index]])
            output[:] = np.frombuffer(self._components[state.parts[2 + 2 * index]], np.int32)

    # ---- steps

    def _speak(self, index: int) -> list[Frame]:
        """What a worker sends now, after its finished tensors were checked."""
        worker = self.workers[index]
        for event in self._events[0 : worker._protocol.events(worker._state, self._events, MAX_OPS)]:
            if event.type != lib.INA_EVENT_DONE:
                self._failure = f"worker {index} failed with error code {event.code}"
            elif self.outputs[index].tobytes() != self.expected:
                self._failure = f"worker {index} finished with a wrong sum"
            self._done.add(index)
        return [(SWITCH, index, frame) for frame in worker.frames_to_send(0)]

    def _arrive(self, frame: Frame) -> list[Frame]:
        destination, port, data = frame
        if destination == SWITCH:
            return [(to, to, reply) for to, reply in self.switch.step(data, port, 0)]
        self.workers[destination].receive(data, 0)
        return self._speak(destination)

    def _time_out(self, index: int, slot: int) -> list[Frame] | None:
        return self._speak(index) if self.workers[index].expire(slot, 0) else None

    def _successors(self, state: State) -> Iterator[tuple[str, State]]:
        """Every step from `state`; the machines are left in the state that it leads to."""
        budget = state.budget
        seen: Frame | None = None
        for position, frame in enumerate(state.frames):
            if frame == seen:  # equal frames lead to equal states
                continue
            seen = frame
            rest = [*state.frames[:position], *state.frames[position + 1 :]]
            self._restore(state)
            yield f"arrives: {describe(frame)}", self._save(rest + self._arrive(frame), budget)
            if budget.losses:
                self._restore(state)
                less = Budget(budget.losses - 1, budget.duplicates, budget.timeouts)
                yield f"lost: {describe(frame)}", self._save(rest, less)
            if budget.duplicates:
                self._restore(state)
                less = Budget(budget.losses, budget.duplicates - 1, budget.timeouts)
                yield f"duplicated: {describe(frame)}", self._save([*state.frames, frame], less)
        if budget.timeouts:
            less = Budget(budget.losses, budget.duplicates, budget.timeouts - 1)
            for index in range(len(self.workers)):
                for slot in range(self._slots):
                    self._restore(state)
                    frames = self._time_out(index, slot)
                    if frames is not None:
                        yield f"times out: worker {index}, slot {slot}", self._save([*state.frames, *frames], less)

    # ---- walking

    def explore(self, depth: int, budget: Budget | None = None, max_states: int = 10**6) -> Report:
        """Walks all states at most `depth` steps from the start (or `max_states` of them)."""
        budget = budget or Budget()
        self._done: set[int] = set()
        frames: list[Frame] = []
        for index, (worker, source, out) in enumerate(zip(self.workers, self.inputs, self.outputs, strict=True)):
            worker.submit(source, out)
            frames += self._speak(index)
        start = self._save(frames, budget)
        came_from: dict[State, tuple[State, str] | None] = {start: None}
        finishing: set[tuple] = set()
        level = [start]
        reached = 0
        for reached in range(1, depth + 1):
            following: list[State] = []
            for state in level:
                for step, successor in self._successors(state):
                    if self._failure:
                        steps = (*self._path(came_from, state), step)
                        return Report(len(came_from), reached, len(finishing), self._failure, steps)
                    if successor not in came_from and len(came_from) < max_states:
                        came_from[successor] = (state, step)
                        following.append(successor)
            level = following
            if not level:
                break
        for state in came_from:
            stuck = self._finish(state, finishing)
            if stuck:
                return Report(len(came_from), reached, len(finishing), stuck, self._path(came_from, state))
        return Report(len(came_from), reached, len(finishing))

    @staticmethod
    def _path(came_from: dict, state: State) -> tuple[str, ...]:
        steps = []
        while (link := came_from[state]) is not None:
            state, step = link
            steps.append(step)
        return tuple(reversed(steps))

    def _all_done(self) -> bool:
        return all(output.tobytes() == self.expected for output in self.outputs)

    def _finish(self, state: State, finishing: set[tuple], limit: int = 1000) -> str | None:
        """Lets the job run on without faults; None if every worker gets its sum, else what happened instead.

        States on the way are added to `finishing`: a later run that meets one of them is done.
        """
        way: list[tuple] = []
        self._restore(state)
        frames = state.frames
        for _ in range(limit):
            key = (state.parts, frames)
            if key in finishing or (not frames and self._all_done()):
                finishing.update(way)
                finishing.add(key)
                return None
            way.append(key)
            self._restore(state)
            if frames:
                after = [*frames[1:], *self._arrive(frames[0])]
            else:
                pairs = [(i, slot) for i in range(len(self.workers)) for slot in range(self._slots)]
                after = [frame for i, slot in pairs for frame in self._time_out(i, slot) or []]
            if self._failure:
                return self._failure
            state = self._save(after, state.budget)
            frames = state.frames
        return f"the job does not finish within {limit} steps without faults"


def describe(frame: Frame) -> str:
    """A frame for people: who sends what to whom."""
    destination, port, data = frame
    tsi = int.from_bytes(data[44:48], "big")
    kind = "pending frame" if data[42] >> 4 == 2 else "packet" if destination == SWITCH else "result"
    ends = f"worker {port} to switch" if destination == SWITCH else f"switch to worker {destination}"
    return f"{kind} {tsi}, {ends}"
