"""Explorer: every interleaving of a small network of machines, to a stated depth.

Machines (ina/worlds/virtual/explorable.py: the compiled switch program, the C worker) are joined by wires. At every point, any
frame on its way may be the next to arrive, be lost or be duplicated, and any timer that runs may expire; losses, duplicates
and time-outs have a budget, and the number of steps is bounded. The walk is breadth first over distinct states, so the
first violation found is a shortest one. Checked:

- no step breaks what a machine checks itself (a worker: never a wrong sum, never an error);
- from every state that was reached all machines can finish: frames arrive in order, and timers that run expire when no frame
  is on its way any more.

There is a second walk, `saturate`, with no bound on faults or steps: any frame ever sent may arrive at any time, any
number of times, or never. Its states are fewer, because it does not matter how many of a frame are under way. And `wander`
takes one random path, for networks that have too many states.

A state is the states of all machines (without statistics and times) and the frames on their way: all of them values. What
a machine does is a function of its state and of the event, so it is run once for each such pair and the outcome is cached: the
real code decides every step, and a walk over millions of states runs it a few thousand times.

    explorer = Explorer([worker0, worker1, switch], [(("h1", 0), ("s1", 1)), (("h2", 0), ("s1", 2))])
    report = explorer.explore(depth=20, budget=Budget(losses=1))
    report = explorer.saturate()
"""

from __future__ import annotations

import functools
import random
from abc import ABC, abstractmethod
from array import array
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

End = tuple[str, int]  # a machine's name, and one of its ports
Sent = list[tuple[int, bytes]]  # frames and the ports that they leave by


class Machine(ABC):
    """Something that takes frames and sends some. Deterministic, and all its state is in what ``save`` returns."""

    name: str
    timers: Sequence[int] = ()  # those that may run
    quiet: Sequence[int] = ()  # those of them that expire only when no frame is on its way any more

    def start(self) -> Sent:
        """Returns the frames that it sends of its own accord, once, at the beginning."""
        return []

    @abstractmethod
    def receive(self, port: int, frame: bytes) -> Sent:
        """Receives a frame at ``port``; returns the frames that it sends in response."""

    def expire(self, timer: int) -> Sent | None:
        """Expires a timer; None: it does not run."""
        return None

    @abstractmethod
    def save(self) -> tuple[bytes, bytes]:
        """Returns the part of its state that determines its behaviour, and the state that ``restore`` takes."""

    @abstractmethod
    def restore(self, saved: bytes) -> None:
        """Goes back to a state: the second value of ``save``."""

    def violation(self) -> str | None:
        """Returns the violation of the last step, if any."""
        return None

    def done(self) -> bool:
        """Returns True if it has finished its work. Called once for each state, after ``violation``."""
        return True


@dataclass(frozen=True)
class Budget:
    """Numbers of faults that one path may have."""

    losses: int = 1
    duplicates: int = 1
    timeouts: int = 2


class Arrival(NamedTuple):
    """A frame that arrives at a machine's port, in a step of a path."""

    machine: str
    port: int
    frame: bytes


class _Step(NamedTuple):
    """A step of a path, for people; ``arrival``: None for a loss, a copy or a time-out."""

    text: str
    arrival: Arrival | None = None


@dataclass(frozen=True)
class Report:
    """Result of a walk. ``violation`` is None, or says what went wrong, and ``steps`` lead there; ``arrivals``: of each step, the
    frame that arrives, None where none does.

    ``states``: distinct ones that were walked from; ``depth``: steps from the start that were walked; ``complete``: there
    are no more states within the budget; ``local``: distinct states of each machine; ``executed``: steps that machines
    executed.
    """

    states: int
    depth: int
    complete: bool
    local: dict[str, int]
    executed: int
    violation: str | None = None
    steps: tuple[str, ...] = ()
    arrivals: tuple[Arrival | None, ...] = ()


# A state: number of each machine's state, numbers of frames in ascending order, rest of the budget.
_State = tuple[tuple[int, ...], tuple[int, ...], tuple[int, int, int]]
_NOTHING_LEFT = (0, 0, 0)


@dataclass(frozen=True)
class _Outcome:
    part: int
    frames: tuple[int, ...]
    violation: str | None


class Explorer:
    """``machines`` and the ``wires`` between their ports. ``describe``: a frame for people."""

    def __init__(
        self, machines: Sequence[Machine], wires: Iterable[tuple[End, End]], describe: Callable[[bytes], str] = bytes.hex
    ):
        self.machines = list(machines)
        self._describe = describe
        numbers = {machine.name: number for number, machine in enumerate(self.machines)}
        if len(numbers) != len(self.machines):
            raise ValueError(f"machines have names of their own; these are {', '.join(m.name for m in self.machines)}")
        self._wires: dict[tuple[int, int], tuple[int, int]] = {}
        for a, b in wires:
            for here, there in ((a, b), (b, a)):
                if (numbers[here[0]], here[1]) in self._wires:
                    raise ValueError(f"port {here[1]} of {here[0]} has two wires")
                self._wires[numbers[here[0]], here[1]] = numbers[there[0]], there[1]
        self._parts: dict[tuple[int, bytes], int] = {}  # machine and behaviour -> number
        self._saved: list[bytes] = []
        self._finished: list[bool] = []
        self._loaded = [-1] * len(self.machines)  # the part that each machine is in now
        self._frames: list[tuple[int, int, bytes]] = []  # machine, port, bytes
        self._frame_numbers: dict[tuple[int, int, bytes], int] = {}
        self._outcomes: dict[tuple[int, int], _Outcome | None] = {}  # part, and frame or ~timer
        self._start = self._begin()

    # ---- machines

    def _begin(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        frames: list[int] = []
        for number, machine in enumerate(self.machines):
            frames += self._frames_sent(number, machine.start())
        return tuple(self._number(number) for number in range(len(self.machines))), tuple(sorted(frames))

    def _number(self, machine: int) -> int:
        """Returns the number of the state that a machine is in now."""
        key, full = self.machines[machine].save()
        part = self._parts.setdefault((machine, key), len(self._saved))
        if part == len(self._saved):
            self._saved.append(full)
            self._finished.append(self.machines[machine].done())
        self._loaded[machine] = part
        return part

    def _frames_sent(self, machine: int, sent: Sent) -> list[int]:
        """Returns numbers of the frames that a machine sends: each frame has the machine and port that it goes to."""
        numbers = []
        for port, data in sent:
            if (machine, port) not in self._wires:
                raise ValueError(f"{self.machines[machine].name} sends to port {port}, which has no wire: {self._describe(data)}")
            frame = (*self._wires[machine, port], data)
            number = self._frame_numbers.setdefault(frame, len(self._frames))
            if number == len(self._frames):
                self._frames.append(frame)
            numbers.append(number)
        return numbers

    def _outcome(self, machine: int, part: int, event: int) -> _Outcome | None:
        """Returns what the machine in state ``part`` does when frame ``event`` arrives or timer ``~event`` expires."""
        try:
            return self._outcomes[part, event]
        except KeyError:
            pass
        subject = self.machines[machine]
        if self._loaded[machine] != part:
            subject.restore(self._saved[part])
            self._loaded[machine] = part
        if event < 0:
            sent = subject.expire(~event)
        else:
            _, port, data = self._frames[event]
            sent = subject.receive(port, data)
        outcome = None
        if sent is not None:
            violation = subject.violation()
            outcome = _Outcome(self._number(machine), tuple(self._frames_sent(machine, sent)), violation)
        self._outcomes[part, event] = outcome
        return outcome

    # ---- steps

    def _successors(self, state: _State) -> Iterator[tuple[_State, str | None]]:
        """Yields every state that one step leads to, with the step's violation."""
        parts, frames, budget = state
        losses, duplicates, timeouts = budget
        before = -1
        for position, frame in enumerate(frames):
            if frame == before:  # equal frames lead to equal states
                continue
            before = frame
            rest = frames[:position] + frames[position + 1 :]
            machine = self._frames[frame][0]
            outcome = self._outcome(machine, parts[machine], frame)
            assert outcome is not None  # only a timer that does not run has none
            yield (*_applied(parts, rest, machine, outcome), budget), outcome.violation
            if losses:
                yield (parts, rest, (losses - 1, duplicates, timeouts)), None
            if duplicates:
                yield (parts, frames[:position] + frames[position:position + 1] + frames[position:],
                       (losses, duplicates - 1, timeouts)), None
        if timeouts:
            for machine, subject in enumerate(self.machines):
                for timer in subject.timers:
                    if frames and timer in subject.quiet:
                        continue
                    outcome = self._outcome(machine, parts[machine], ~timer)
                    if outcome is not None:
                        yield (*_applied(parts, frames, machine, outcome), (losses, duplicates, timeouts - 1)), outcome.violation

    def _step(self, before: _State, after: _State) -> _Step:
        """Returns the step between two states."""
        (parts, frames, budget), (_, later, remaining) = before, after
        if remaining[0] < budget[0] or remaining[1] < budget[1]:
            more, fewer = (frames, later) if remaining[0] < budget[0] else (later, frames)
            rest = list(more)
            for frame in fewer:
                rest.remove(frame)
            return _Step(f"{'lost' if more is frames else 'duplicated'}: {self._name(rest[0])}")
        for frame in dict.fromkeys(frames):
            machine = self._frames[frame][0]
            rest = list(frames)
            rest.remove(frame)
            outcome = self._outcome(machine, parts[machine], frame)
            assert outcome is not None
            if (*_applied(parts, tuple(rest), machine, outcome), budget) == after:
                return self._event(machine, frame)
        for machine, subject in enumerate(self.machines):
            for timer in subject.timers:
                outcome = self._outcome(machine, parts[machine], ~timer)
                if outcome is not None and _applied(parts, frames, machine, outcome) == after[:2]:
                    return self._event(machine, ~timer)
        raise AssertionError("no step leads there")

    def _name(self, frame: int) -> str:
        machine, port, data = self._frames[frame]
        source, _ = self._wires[machine, port]
        return f"{self._describe(data)}, {self.machines[source].name} to {self.machines[machine].name}"

    # ---- walking

    def explore(self, depth: int, budget: Budget | None = None, max_states: int = 10**6) -> Report:
        """Walks all states at most ``depth`` steps from the start (or ``max_states`` of them)."""
        budget = budget or Budget()
        start = (*self._start, (budget.losses, budget.duplicates, budget.timeouts))
        visited = {_packed(start): 0}
        parents = array("q", [-1])
        level, walked, complete = [start], 0, True

        def report(violation: str | None = None, steps: Sequence[_Step] = ()) -> Report:
            return self._report(len(visited), walked, complete, violation, steps)

        def path(state: _State) -> list[_State]:
            keys, states = list(visited), [state]
            while (up := parents[visited[_packed(states[-1])]]) >= 0:
                states.append(self._unpacked(keys[up]))
            return states[::-1]

        def steps(states: list[_State]) -> list[_Step]:
            return [self._step(a, b) for a, b in zip(states, states[1:], strict=False)]

        while level:
            if walked == depth:
                complete = False
                break
            walked += 1
            following: list[_State] = []
            for state in level:
                here = visited[_packed(state)]
                for successor, violation in self._successors(state):
                    if violation:
                        return report(violation, steps([*path(state), successor]))
                    key = _packed(successor)
                    if key in visited:
                        continue
                    if len(visited) >= max_states:
                        complete = False
                        continue
                    visited[key] = len(visited)
                    parents.append(here)
                    following.append(successor)
            level = following
        finishing: set[bytes] = set()
        for key in visited:
            if stuck := self._finish(self._unpacked(key), finishing):
                return report(stuck, steps(path(self._unpacked(key))))
        return report()

    def saturate(self, max_states: int = 10**6, finish: bool = True) -> Report:
        """Walks all states that any number of faults can lead to.

        Any frame ever sent may arrive at any time, any number of times, or never, and timers expire at any time. So a
        state is the machines' states and the set of frames sent so far, which only grows, or is empty after a quiet timer. Of two
        states that differ in the set alone, the one with more frames can do all that the other can, and only it is walked from;
        the job can finish from both if it can when all frames are lost (``finish`` False: that is not checked). Violations
        come with a short way to them, not always a shortest one.
        """
        parts, frames = self._start
        start = (parts, _set(frames))
        visited: dict[tuple[tuple[int, ...], int], tuple[tuple[tuple[int, ...], int], int, int] | None] = {start: None}
        largest = {parts: [start[1]]}  # sets of frames, none of which is part of another
        level, states, walked, complete = [start], 0, 0, True

        def report(violation: str | None = None, *last: _Step, at: tuple[tuple[int, ...], int] = start) -> Report:
            steps = [*last]
            while (link := visited[at]) is not None:
                at, machine, event = link
                steps.append(self._event(machine, event))
            return self._report(states, walked, complete, violation, steps[::-1])

        while level:
            walked += 1
            following = []
            for state in level:
                parts, sent = state
                if sent not in largest[parts]:
                    continue
                if states == max_states:
                    complete = False
                    break
                states += 1
                for machine, event in self._events(sent):
                    outcome = self._outcome(machine, parts[machine], event)
                    if outcome is None:
                        continue
                    if outcome.violation:
                        return report(outcome.violation, self._event(machine, event), at=state)
                    after, more = _applied(parts, (), machine, outcome)
                    survive = 0 if event < 0 and ~event in self.machines[machine].quiet else sent
                    successor = after, survive | _set(more)
                    sets = largest.setdefault(after, [])
                    if not any(successor[1] | other == other for other in sets):
                        largest[after] = [other for other in sets if other | successor[1] != successor[1]] + [successor[1]]
                        visited[successor] = state, machine, event
                        following.append(successor)
            level = following if complete else []
        finishing: set[bytes] = set()
        for state in visited if finish else ():
            if stuck := self._finish((state[0], (), _NOTHING_LEFT), finishing):
                return report(stuck, at=state)
        return report()

    def wander(
        self, chance: random.Random, steps: int, *, loss: float = 0.03, duplicate: float = 0.05, timeout: float = 0.1,
        finish: bool = True,
    ) -> Report:
        """Takes one random path of ``steps``, and then lets the network run on without faults (``finish``).

        A step is a time-out of any timer of any machine with probability ``timeout``, else an arrival: mostly of the frame that
        has been under way longest, sometimes of any. Arriving frames are lost, or stay under way as well, with the other
        probabilities. Before a quiet timer expires all frames are lost.
        """
        parts = self._start[0]
        path: list[_Step] = []
        frames = list(self._start[1])
        timers = [(m, t) for m, machine in enumerate(self.machines) for t in machine.timers]
        for step in range(steps):
            if not frames or chance.random() < timeout:
                machine, timer = chance.choice(timers)
                event = ~timer
                if timer in self.machines[machine].quiet and self._outcome(machine, parts[machine], event) is not None:
                    frames.clear()
            else:
                place = 0 if chance.random() < 0.8 else chance.randrange(len(frames))
                event, fate = frames[place], chance.random()
                if not loss <= fate < loss + duplicate:
                    del frames[place]
                if fate < loss:
                    continue
                machine = self._frames[event][0]
            outcome = self._outcome(machine, parts[machine], event)
            if outcome is None:
                continue
            path.append(self._event(machine, event))
            if outcome.violation:
                return self._report(step, step, False, outcome.violation, path)
            parts = (*parts[:machine], outcome.part, *parts[machine + 1 :])
            frames += outcome.frames
        stuck = self._finish((parts, tuple(frames), _NOTHING_LEFT), set()) if finish else None
        return self._report(steps, steps, False, stuck, path if stuck else ())

    def _events(self, sent: int) -> Iterator[tuple[int, int]]:
        """Yields all events that may happen: machine, and frame of the set ``sent`` or ~timer."""
        while sent:
            frame = (sent & -sent).bit_length() - 1
            yield self._frames[frame][0], frame
            sent &= sent - 1
        for machine, subject in enumerate(self.machines):
            for timer in subject.timers:
                yield machine, ~timer

    def _event(self, machine: int, event: int) -> _Step:
        name = self.machines[machine].name
        if event < 0:
            return _Step(f"times out: {name}, timer {~event}")
        _, port, frame = self._frames[event]
        return _Step(f"arrives: {self._name(event)}", Arrival(name, port, frame))

    def _report(self, states: int, walked: int, complete: bool, violation: str | None, steps: Sequence[_Step]) -> Report:
        local = dict.fromkeys((machine.name for machine in self.machines), 0)
        for machine, _ in self._parts:
            local[self.machines[machine].name] += 1
        return Report(states, walked, complete and violation is None, local, len(self._outcomes), violation,
                      tuple(step.text for step in steps), tuple(step.arrival for step in steps))

    def _unpacked(self, key: bytes) -> _State:
        numbers, count = array("i", key), len(self.machines)
        losses, duplicates, timeouts = numbers[count : count + 3]
        return tuple(numbers[:count]), tuple(numbers[count + 3 :]), (losses, duplicates, timeouts)

    def _finish(self, state: _State, finishing: set[bytes], limit: int = 2000) -> str | None:
        """Lets the network run on without faults; returns None if every machine is done in the end, else the violation.

        A violation on this path is one beyond the steps that were walked. States on the path are added to ``finishing``: a later
        run that meets one of them is done.
        """
        parts, frames, _ = state
        queue = list(frames)
        path: list[bytes] = []
        for _ in range(limit):
            key = _packed((parts, tuple(queue), _NOTHING_LEFT))
            if key in finishing or (not queue and all(self._finished[part] for part in parts)):
                finishing.update(path)
                finishing.add(key)
                return None
            path.append(key)
            outcomes: list[tuple[int, _Outcome]] = []
            if queue:
                frame = queue.pop(0)
                machine = self._frames[frame][0]
                outcome = self._outcome(machine, parts[machine], frame)
                assert outcome is not None
                outcomes.append((machine, outcome))
            else:
                for machine, subject in enumerate(self.machines):
                    part = parts[machine]
                    for timer in subject.timers:
                        outcome = self._outcome(machine, part, ~timer)
                        if outcome is not None:
                            part = outcome.part
                            outcomes.append((machine, outcome))
            for machine, outcome in outcomes:
                if outcome.violation:
                    return outcome.violation
                parts = (*parts[:machine], outcome.part, *parts[machine + 1 :])
                queue += outcome.frames
            if not outcomes:
                return "nothing is on its way, no timer runs, and not all are done: " + ", ".join(
                    m.name for m, part in zip(self.machines, parts, strict=True) if not self._finished[part])
        return f"the network does not finish within {limit} steps without faults"


def _applied(
    parts: tuple[int, ...], frames: tuple[int, ...], machine: int, outcome: _Outcome
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns parts and frames after ``outcome`` of ``machine``."""
    if outcome.frames:
        more = list(frames)
        for frame in outcome.frames:
            insort(more, frame)
        frames = tuple(more)
    if outcome.part == parts[machine]:
        return parts, frames
    return (*parts[:machine], outcome.part, *parts[machine + 1 :]), frames


def _set(frames: Iterable[int]) -> int:
    return functools.reduce(lambda bits, frame: bits | 1 << frame, frames, 0)


def _packed(state: _State) -> bytes:
    parts, frames, budget = state
    return array("i", parts + budget + frames).tobytes()
