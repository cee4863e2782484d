"""Spans of collectives in torch's profiler end with their calls; listeners hear of an end before anybody can know of it.

torch writes the end of a span that ends after its profiler has stopped into memory that it has freed.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="the back end needs torch")

from ina.backend import calls, comms_record, flight_recorder  # noqa: E402
from ina.backend.group_state import GroupState  # noqa: E402
from ina.backend.roll_call import RollCall  # noqa: E402
from ina.backend.staging import Stager  # noqa: E402
from ina.backend.work import LazyWork  # noqa: E402

pytestmark = pytest.mark.fast
THREADS = 60  # seconds of patience


class Ended(LazyWork):
    """A collective that has ended when somebody looks, perhaps with a failure."""

    failure: Exception | None = None

    def _look(self, seconds):
        if self.failure is not None:
            raise self.failure
        return True


class Group:
    """A group whose completion thread gets no processor."""

    def __init__(self):
        self._group_state = GroupState(lambda: 30.0, RollCall(SimpleNamespace(), 0, 2))
        self._group_state.completer.run = lambda task: None
        self._stager = Stager()

    @calls.collective
    def allreduce(self, tensors):
        return Ended(self._group_state, tensors, "allreduce")


def test_a_span_has_ended_when_the_call_returns(monkeypatch):
    monkeypatch.setattr(flight_recorder, "recorder", None)
    monkeypatch.setattr(comms_record, "record", lambda *facts: None)
    group = Group()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        work = group.allreduce([torch.ones(2)])
        with torch.profiler.record_function("after the call"):
            work.wait()
    times = {event.name: event.time_range for event in profile.events()}
    assert times["ina:all_reduce"].end <= times["after the call"].start <= times["ina:all_reduce wait"].start


@pytest.mark.parametrize("failure", [None, RuntimeError("the job is over")])
def test_listeners_hear_of_an_end_that_no_thread_has_seen(failure):
    work, heard = Group().allreduce([torch.ones(2)]), []
    work.failure = failure

    def listener(error):
        other = threading.Thread(target=lambda: heard.append(work.is_completed()))
        other.start()
        other.join(THREADS)
        heard.append(error)

    for _ in range(2):
        work.listen(listener)
    assert work.is_completed() and work.exception() is failure
    assert heard == [False, failure] * 2
    work.listen(heard.append)
    assert heard[4:] == [failure]


def test_a_listener_that_fails_does_not_hide_the_end():
    work = Group().allreduce([torch.ones(2)])
    work.listen(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        work.is_completed()
    assert work.wait() and work.is_success()
