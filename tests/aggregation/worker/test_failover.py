"""Moves of a job while its tensors are in flight: finished ones stay, the rest begins again, and all sums are right."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import LONG

from ina.aggregation.worker import JobAborted
from ina.aggregation.worker.errors import event_from_c
from ina.aggregation.worker.failover import LEAST, Movable, MoveFailed, bounds_of, compare
from ina.base.native import ffi, lib

SLOTS, VALUES = 8, 256


class FakeSwitch:
    """Sums what all its machines have submitted in the same order. Each machine gets results when the test says so."""

    def __init__(self, workers):
        self.machines = [FakeMachine(self) for _ in range(workers)]

    def complete(self, worker, ticket):
        """Worker ``worker`` gets its result number ``ticket``, if all have sent all of its packets: each has submitted it, and
        has the result that was in the slot before."""
        if all(len(machine.submitted) > ticket and machine.finished >= self.before(ticket) for machine in self.machines):
            source = [machine.submitted[ticket][0] for machine in self.machines]
            self.machines[worker].submitted[ticket][1][:] = sum(source)
            self.machines[worker].finished.add(ticket)

    def before(self, ticket):
        """Tickets whose last packet is a window or more before that of ``ticket``."""
        packets, tickets = 0, set()
        for earlier in reversed(range(ticket)):
            packets += 1 + self.machines[0].submitted[earlier + 1][0].size // VALUES
            if packets >= SLOTS:
                tickets.add(earlier)
        return tickets


class FakeMachine:
    def __init__(self, switch):
        self.switch, self.submitted, self.finished, self.over = switch, [], set(), False

    def submit(self, source, out, *, average, tag, reduction):
        self.submitted.append((source.copy(), out))
        return len(self.submitted) - 1

    def wait(self, ticket, timeout):
        if ticket in self.finished:
            return
        if self.over:
            raise aborted()
        raise TimeoutError("not yet")

    def abort(self):
        self.over = True

    def close(self):
        self.over = True


def aborted():
    event = ffi.new("struct ina_event *")
    event.code = lib.INA_ERR_ABORTED
    error = event_from_c(event, 1).error()
    assert isinstance(error, JobAborted)
    return error


def move(workers, machines):
    """Moves the workers as their processes do, in one thread. Returns the parts that were copied, and those begun again."""
    reports = [worker.halt() for worker in workers]
    parts = {}
    for index, worker in enumerate(workers):
        parts |= worker.give(index, reports)
    copied = 0
    for worker, machine in zip(workers, machines, strict=True):
        mine = {key: parts[key] for key in worker.missing(reports)}
        copied += len(mine)
        again = worker.resume(machine, reports, mine)
    return copied, again


def tensors(number, workers, count):
    return [np.arange(count, dtype=np.int32) * (number + 1) + worker for worker in range(workers)]


@pytest.mark.build
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_sums_are_right_wherever_the_switch_fails(data):
    """Any number of tensors and workers, any results delivered, several moves; callers change what they have got."""
    workers = data.draw(st.integers(1, 4), "workers")
    switch = FakeSwitch(workers)
    movable = [Movable(machine, slots=SLOTS, values=VALUES) for machine in switch.machines]
    sent = [0] * workers
    results = [set() for _ in range(workers)]
    arrays = [tensors(number, workers, LEAST * 2 + 5) for number in range(4)]
    expected = [sum(each.astype(np.int64) for each in parts) for parts in arrays]
    for _ in range(data.draw(st.integers(1, 30), "steps")):
        action = data.draw(st.sampled_from(["submit", "result", "result", "take", "move"]))
        worker = data.draw(st.integers(0, workers - 1))
        if action == "submit" and sent[worker] < len(arrays):
            array = arrays[sent[worker]][worker]
            movable[worker].submit(array, array, tag=sent[worker])
            sent[worker] += 1
        elif action == "result" and switch.machines[worker].submitted:
            pending = [t for t in range(len(switch.machines[worker].submitted)) if t not in switch.machines[worker].finished]
            if pending:  # windows: a worker has results about in order
                switch.complete(worker, data.draw(st.sampled_from(pending[:3])))
        elif action == "take":
            take(movable, arrays, expected, sent, results, worker)
        elif action == "move":
            switch = FakeSwitch(workers)
            move(movable, switch.machines)
    for worker in range(workers):
        for number in range(sent[worker], len(arrays)):
            movable[worker].submit(arrays[number][worker], arrays[number][worker])
            sent[worker] += 1
    for ticket in range(len(switch.machines[0].submitted)):
        for worker in range(workers):
            switch.complete(worker, ticket)
    for worker in range(workers):
        take(movable, arrays, expected, sent, results, worker)
        assert len(results[worker]) == len(arrays)


def take(movable, arrays, expected, sent, results, worker):
    for number in set(range(sent[worker])) - results[worker]:
        try:
            movable[worker].wait(number, 0)
        except TimeoutError:
            continue
        assert (arrays[number][worker] == expected[number]).all()
        results[worker].add(number)
        arrays[number][worker][:] = -1  # it is the caller's now


@pytest.mark.fast
def test_only_what_is_lost_begins_again():
    switch = FakeSwitch(2)
    movable = [Movable(machine, slots=SLOTS, values=VALUES) for machine in switch.machines]
    arrays = tensors(0, 2, 4 * LEAST)
    for worker, array in zip(movable, arrays, strict=True):
        worker.submit(array, array)
    switch.complete(0, 0)
    switch.complete(1, 0)
    switch.complete(1, 1)
    new = FakeSwitch(2)
    assert move(movable, new.machines) == (1, 2), "one part is copied, two of four begin again"
    assert [len(machine.submitted) for machine in new.machines] == [2, 2]


@pytest.mark.fast
def test_results_are_thrown_away_when_all_must_have_them():
    switch = FakeSwitch(1)
    worker = Movable(switch.machines[0], slots=SLOTS, values=VALUES)
    for number in range(40):
        worker.wait(done(worker, switch, np.zeros(256 * 4, np.int32)), LONG)
        assert len(worker._tensors) <= 5, number
    small = [done(worker, switch, np.zeros(1, np.int32)) for _ in range(40)]
    for number in small:
        worker.wait(number, LONG)
    assert len(worker._tensors) <= 17


def done(worker, switch, array):
    number = worker.submit(array, array)
    switch.complete(0, len(switch.machines[0].submitted) - 1)
    return number


@pytest.mark.fast
def test_a_result_that_is_nowhere_is_an_error():
    reports = [{"next": 5, "parts": {"4": "1"}}, {"next": 4, "parts": {"3": "0"}}]
    with pytest.raises(MoveFailed, match="worker 0 has thrown the result of tensor 3 away"):
        compare(reports)


@pytest.mark.fast
def test_a_tensor_that_some_have_not_begun_begins_again():
    assert compare([{"next": 2, "parts": {"0": "11", "1": "00"}}, {"next": 1, "parts": {"0": "01"}}]) == (
        {(0, 0): 0}, [(1, 0), (1, 1)])


@pytest.mark.fast
@given(st.integers(0, 10_000_000))
def test_parts_are_whole_blocks(count):
    bounds = bounds_of(count)
    assert [begin for begin, _ in bounds] == [0, *(end for _, end in bounds[:-1])] and bounds[-1][1] == count
    assert len(bounds) <= 8 and all(begin % 2048 == 0 for begin, _ in bounds)


@pytest.mark.fast
def test_who_waits_meanwhile_gets_the_sum_of_the_new_switch():
    switch, new = FakeSwitch(1), FakeSwitch(1)
    worker = Movable(switch.machines[0], slots=SLOTS, values=VALUES)
    array = np.full(10, 7, np.int32)
    number = worker.submit(array, array)
    report = worker.halt()
    with pytest.raises(TimeoutError, match="is being moved to other switches"):
        worker.wait(number, 0.01)
    waiting = threading.Thread(target=lambda: worker.wait(number, LONG), daemon=True)
    waiting.start()
    original = worker._begin
    worker._begin = lambda tensor, part: (original(tensor, part), new.complete(0, 0))[0]
    assert worker.resume(new.machines[0], [report], {}) == 1
    waiting.join(LONG)
    assert not waiting.is_alive() and array.tolist() == [7] * 10
