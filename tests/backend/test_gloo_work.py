"""Waiting for Gloo's work in slices of time: the result is the one that Gloo has at its end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

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


def gloo_work(work: Slow, copies) -> GlooWork:
    traffic = GroupState(lambda: 30.0, RollCall(SimpleNamespace(), 0, 2))
    return GlooWork(traffic, work, copies, [tensor for tensor, _ in copies], "gather", agreed="gather of 3")


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
