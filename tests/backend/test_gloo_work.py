"""Waiting for Gloo's work in slices of time, up to a moment: the result is the one that Gloo has at its end."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
from waiting import until

torch = pytest.importorskip("torch", reason="the back end needs torch")

from ranks import run, succeed  # noqa: E402

from ina.backend.arguments import contiguous  # noqa: E402
from ina.backend.group_state import GroupState  # noqa: E402
from ina.backend.roll_call import RollCall  # noqa: E402
from ina.backend.work import GlooWork  # noqa: E402


class Slow:
    """Ends with `failure` just when the third wait has timed out: it is complete before the waiter checks."""

    def __init__(self, failure: str = ""):
        self.failure, self.waits = failure, 0

    def is_completed(self) -> bool:
        return self.waits >= 3

    def wait(self, timeout=None) -> bool:
        if not self.is_completed():
            assert timeout is not None, "a wait for as long as it takes, where signals and news are to be looked at"
            self.waits += 1
            raise RuntimeError("Operation timed out!")
        if self.failure:
            raise RuntimeError(self.failure)
        return True


def gloo_work(work, copies, title="gather", message=False) -> GlooWork:
    traffic = GroupState(lambda: 30.0, RollCall(SimpleNamespace(), 0, 2))
    outputs, agreed = [tensor for tensor, _ in copies], "" if message else "gather of 3"
    return GlooWork(traffic, work, copies, outputs, title, agreed, message=message)


@pytest.mark.fast
def test_a_collective_that_ends_as_a_slice_of_its_wait_does_has_not_failed():
    output = torch.zeros(3)
    work = gloo_work(Slow(), [(output, torch.ones(3))])
    assert work.wait() and work.is_success() and work.exception() is None
    assert output.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.fast
def test_a_collective_that_fails_as_a_slice_of_its_wait_ends_says_why():
    work = gloo_work(Slow("Connection closed by peer"), [])
    with pytest.raises(RuntimeError, match="^Connection closed by peer$"):
        work.wait()
    assert not work.is_success()


class Never:
    """Does not end. As torch's binding does, it cuts a time-out to whole milliseconds, and takes 0 as none."""

    def is_completed(self) -> bool:
        return False

    def wait(self, timeout=None) -> bool:
        assert timeout is not None and timeout // timedelta(milliseconds=1) > 0, "a wait for ever"
        raise RuntimeError("Operation timed out!")


@pytest.mark.fast
@pytest.mark.parametrize("seconds", (0.0001, 0.0304, 0.1003))
def test_a_time_out_of_no_whole_milliseconds_is_kept(seconds):
    with pytest.raises(RuntimeError, match="was not done within the"):
        gloo_work(Never(), []).wait(timedelta(seconds=seconds))


class Deaf:
    """Ignores time-outs, as Gloo's reduce-scatter does, and never says that it is completed; a message does neither."""

    def __init__(self) -> None:
        self.comes = threading.Event()

    def is_completed(self) -> bool:
        return False

    def wait(self, timeout=None) -> bool:
        return self.comes.wait()


@pytest.mark.fast
@pytest.mark.parametrize(("title", "message"), (("_reduce_scatter_base", False), ("recv", True)))
def test_work_that_cannot_be_waited_for_up_to_a_moment_can(title, message):
    inner, output = Deaf(), torch.zeros(3)
    work = gloo_work(inner, [(output, torch.ones(3))], title, message)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="was not done within the"):
            work.wait(timedelta(seconds=0.01))
    assert not work.is_completed() and output.tolist() == [0.0] * 3
    inner.comes.set()
    until(work.is_completed, "its end")
    assert work.wait() and output.tolist() == [1.0] * 3


class Message:
    """Comes at once; notes the time-outs of its waits."""

    def __init__(self) -> None:
        self.timeouts: list[timedelta | None] = []

    def wait(self, timeout=None) -> bool:
        self.timeouts.append(timeout)
        return True


@pytest.mark.fast
@pytest.mark.parametrize("apart", (False, True))
def test_a_message_is_waited_for_as_long_as_the_group_says(apart):
    """Not as long as Gloo was told when it began: a group that has shrunk or grown begins with less than its time-out."""
    inner = Message()
    work = gloo_work(inner, [], "recv", message=True)
    assert work.wait(timedelta(seconds=100 * apart)) and inner.timeouts == [timedelta(seconds=30)]


@pytest.mark.fast
@pytest.mark.parametrize("lies", (torch._neg_view, torch.conj, lambda t: t.repeat_interleave(2)[::2]))
def test_gloo_gets_tensors_whose_memory_is_their_elements(lies):
    tensor, copies = lies(torch.arange(4) * 1j), []
    plain = contiguous([tensor], copies)[0]
    assert plain.is_contiguous() and not plain.is_neg() and not plain.is_conj() and torch.equal(plain, tensor)
    (original, copy), = copies
    assert original is tensor and copy is plain, "what Gloo writes is copied back"


@pytest.mark.build
@pytest.mark.later
def test_negated_views_through_gloo_get_the_result(tmp_path):
    """Gloo has products; the imaginary part of a conjugated tensor is a negated view."""
    for report in succeed(run(tmp_path, 2, """
rank, n = start()
def view(count): return torch._neg_view(torch.full((count,), -rank - 2.0))
outcome = {}
for op in ("PRODUCT", "BAND"):
    tensor = view(3) if op == "PRODUCT" else torch._neg_view(torch.full((3,), -rank - 2))
    dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
    outcome[op] = tensor.tolist()
tensor = view(3); dist.reduce(tensor, 0, dist.ReduceOp.PRODUCT)
outcome["reduce"] = tensor.tolist() if rank == 0 else [6.0] * 3
part = view(2); dist.reduce_scatter_tensor(part, view(4), dist.ReduceOp.PRODUCT)
outcome["reduce_scatter"] = part.tolist()
received = view(4); dist.all_to_all_single(received, view(4))
outcome["all_to_all"] = received.tolist()
if rank == 0: dist.send(view(3), 1); outcome["message"] = [2.0] * 3
else:
    tensor = view(3); dist.recv(tensor, 0); outcome["message"] = tensor.tolist()
say(**outcome, gloo=sorted(name for name, ways in ina.backend.stats()["calls"].items() if ways["gloo"]))
dist.destroy_process_group()
""")):
        assert report["PRODUCT"] == report["reduce"] == [6.0] * 3 and report["BAND"] == [2, 2, 2]
        assert report["reduce_scatter"] == [6.0] * 2 and report["all_to_all"] == [2.0, 2.0, 3.0, 3.0]
        assert report["message"] == [2.0] * 3
        assert "allreduce" in report["gloo"]
