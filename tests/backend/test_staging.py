"""Collectives on tensors of a device, in the order of its streams: a stand-in does each stream's work when the test says so."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
from waiting import until

torch = pytest.importorskip("torch", reason="the back end needs torch")

from fake_device import Device  # noqa: E402

from ina.backend import calls, staging  # noqa: E402
from ina.backend.group_state import GroupState  # noqa: E402

pytestmark = pytest.mark.fast


class Work:
    """A collective in main memory that ends when `gate` is open."""

    def __init__(self, gate: threading.Event, end):
        self._gate, self._end = gate, end

    def wait(self, timeout=None) -> bool:
        until(self._gate.is_set, "the gate to open")
        self._end()
        return True


class Group:
    """A group whose all-reduce adds 10, and whose all-gather into one tensor gives the input twice."""

    def __init__(self) -> None:
        self._group_state = GroupState(lambda: 60.0, None)
        self._stager = staging.Stager()
        self.begun: list[str] = []
        self.gate = threading.Event()
        self.failure = ""

    def _begin(self, name: str, end) -> Work:
        self.begun.append(name)
        if self.failure:
            raise RuntimeError(self.failure)
        return Work(self.gate, end)

    @calls.in_place
    def allreduce(self, tensors) -> Work:
        return self._begin("allreduce", lambda: tensors[0].add_(10))

    @calls.collective
    def allgather(self, output, input) -> Work:
        return self._begin("allgather", lambda: output.copy_(torch.cat([input, input])))


@pytest.fixture
def device(monkeypatch):
    device = Device()
    monkeypatch.setattr(staging, "device_of", device.device_of)
    return device


@pytest.fixture
def group():
    group = Group()
    yield group
    group.gate.set()
    group._stager.close()


def pumped(device: Device, call):
    """Returns what `call` returns, in a thread of its own, while the device works."""
    result: list = []
    thread = threading.Thread(target=lambda: result.append(call()))
    thread.start()
    while thread.is_alive():
        device.run()
        thread.join(0.001)
    return result[0]


def test_a_collective_reads_after_the_streams_work_and_blocks_neither_its_caller_nor_the_stream(device, group):
    tensor, other = device.away(torch.zeros(3)), torch.zeros(1)
    kernel = threading.Event()
    device.default.do(lambda: tensor.fill_(5), kernel.is_set)
    work = group.allreduce([tensor])
    device.default.do(lambda: other.fill_(1))  # the backward pass goes on
    device.run()
    assert group.begun == [] and not work.is_completed()
    kernel.set()
    device.run()
    assert other.item() == 1 and tensor.tolist() == [5.0] * 3
    group.gate.set()
    pumped(device, work.wait)
    assert pumped(device, lambda: device.read(tensor)) == [15.0] * 3
    assert work.is_completed() and work.is_success() and work.result() == [tensor]


def test_pinned_memory_is_free_as_soon_as_nobody_has_the_work(device, group):
    group.gate.set()
    work = group.allreduce([device.away(torch.zeros(2))])
    pumped(device, work.wait)
    reference = weakref.ref(work)
    gc.disable()
    try:
        del work
        until(lambda: reference() is None, "the end of the work, without a search for cycles")
    finally:
        gc.enable()


def test_what_follows_wait_in_the_stream_sees_the_results_though_wait_returned_before_the_device_has_them(device, group):
    tensor, seen = device.away(torch.zeros(2)), []
    work = group.allreduce([tensor])
    while not group.begun:
        device.run()
    group.gate.set()  # the device rests before there are results to copy
    work.wait()
    device.default.do(lambda: seen.append(tensor.tolist()))
    device.default.step()
    assert seen == [] and tensor.tolist() == [0, 0] and not work.is_completed()
    device.run()
    assert seen == [[10, 10]]


def test_results_come_after_what_the_stream_did_with_the_output_before(device, group):
    output, source, seen = device.away(torch.zeros(4)), device.away(torch.ones(2)), []
    group.gate.set()
    device.default.do(lambda: seen.append(output.tolist()))
    mark = threading.Event()
    device.default.do(lambda: output.fill_(3), mark.is_set)  # still writes to it when the collective is called
    work = group.allgather(output, source)
    device.run()
    mark.set()
    pumped(device, work.wait)
    assert pumped(device, lambda: device.read(output)) == [1.0] * 4 and seen == [[0.0] * 4]


def test_a_future_that_is_done_orders_the_results_into_the_stream(device, group):
    tensor = device.away(torch.zeros(2))
    future, seen = group.allreduce([tensor]).get_future(), []
    while not group.begun:
        device.run()
    group.gate.set()
    assert future.wait() == [tensor]  # while the device rests
    device.default.do(lambda: seen.append(tensor.tolist()))
    while device.default.step():
        pass
    assert seen == []
    device.run()
    assert seen == [[10, 10]]


def test_collectives_begin_in_the_order_of_their_calls_wherever_their_tensors_are(device, group):
    """The other ranks' devices may be faster: what is called after a staged collective must not begin before it."""
    tensor, near = device.away(torch.zeros(2)), torch.zeros(2)
    group.gate.set()
    work = group.allreduce([tensor])
    caller = threading.Thread(target=lambda: group.allgather(torch.zeros(4), near).wait())
    caller.start()
    caller.join(0.05)
    assert group.begun == []
    while caller.is_alive():
        device.run()
        caller.join(0.001)
    assert group.begun == ["allreduce", "allgather"]
    pumped(device, work.wait)


def test_collectives_of_groups_that_share_copies_begin_in_the_order_of_their_calls(device, group):
    """As those of a group and its lanes (membership.py), whose ranks compare all of them by number."""
    lane = Group()
    lane._stager.close()
    lane._stager, lane.begun = group._stager, group.begun
    first, second, kernel = device.away(torch.zeros(3)), device.away(torch.zeros(6)), threading.Event()
    device.default.do(lambda: first.fill_(5), kernel.is_set)
    works = [group.allreduce([first]), lane.allgather(second, first)]
    in_main_memory: list = []
    thread = threading.Thread(target=lambda: in_main_memory.append(lane.allreduce([torch.zeros(1)])))
    thread.start()
    device.run()
    assert group.begun == [] and not in_main_memory
    for gate in (kernel, group.gate, lane.gate):
        gate.set()
    for work in works:
        pumped(device, work.wait)
    thread.join()
    assert group.begun == ["allreduce", "allgather", "allreduce"]


def test_a_failure_is_raised_by_wait_and_leaves_the_tensor(device, group):
    group.failure = "the switch process ended"
    tensor = device.away(torch.ones(2))
    work = group.allreduce([tensor])
    while not work.is_completed():
        device.run()
    with pytest.raises(RuntimeError, match="^the switch process ended$"):
        work.wait()
    assert tensor.tolist() == [1, 1] and not work.is_success()


def test_a_tensor_that_occurs_twice_has_one_copy(device, group):
    """An output that is also an input is read, and gets its results."""
    tensor = device.away(torch.ones(2))
    seen = []
    group._begin = lambda name, end: (seen.append(name), Work(group.gate, end))[1]
    group.gate.set()

    work = staging.staged(lambda self, output, inputs: self._begin(output is inputs[0], lambda: output.add_(1)), False, True)(
        group, tensor, [tensor])
    pumped(device, work.wait)
    assert seen == [True] and pumped(device, lambda: device.read(tensor)) == [2, 2]


def test_a_sparse_tensor_of_a_device_is_refused(device, group):
    tensor = device.away(torch.zeros(3).to_sparse())
    with pytest.raises(ValueError, match="layout torch.sparse_coo"):
        group.allreduce([tensor])


def test_a_group_that_is_closed_has_no_staged_collectives(device, group):
    group._stager.close()
    with pytest.raises(RuntimeError, match="has been destroyed"):
        group.allreduce([device.away(torch.ones(1))])


def test_main_memory_is_not_staged(device, group):
    tensor = torch.ones(2)
    group.gate.set()
    assert isinstance(group.allreduce([tensor]), Work)
