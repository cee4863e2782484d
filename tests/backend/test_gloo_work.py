"""Waiting for Gloo's work in slices of time, up to a moment: the result is the one that Gloo has at its end."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
from waiting import until

torch = pytest.importorskip("torch", reason="the back end needs torch")

from ina.backend.group_state import GroupState  # noqa: E402
from ina.backend.roll_call import RollCall  # noqa: E402
from ina.backend.work import GlooWork  # noqa: E402

pytestmark = pytest.mark.fast


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


def test_a_collective_that_ends_as_a_slice_of_its_wait_does_has_not_failed():
    output = torch.zeros(3)
    work = gloo_work(Slow(), [(output, torch.ones(3))])
    assert work.wait() and work.is_success() and work.exception() is None
    assert output.tolist() == [1.0, 1.0, 1.0]


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
