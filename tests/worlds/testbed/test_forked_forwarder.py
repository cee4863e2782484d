"""A switch process that ends, by what its channel says."""

from __future__ import annotations

import pytest

from ina.worlds.testbed.forwarder import ForkedForwarder

pytestmark = pytest.mark.fast


class Gone:
    """The channel of a process that has ended: closed, or reset because it ended with a question unread."""

    def __init__(self, error: type[Exception]):
        self.error = error

    def send(self, message: object) -> None:
        pass

    def poll(self, seconds: float) -> bool:
        return True

    def recv(self) -> object:
        raise self.error


@pytest.mark.parametrize("error", [EOFError, ConnectionResetError])
def test_a_switch_process_that_has_ended_is_named(error):
    switch = object.__new__(ForkedForwarder)  # without a process
    switch.name, switch.pid, switch._channel = "s1", 4711, Gone(error)
    with pytest.raises(OSError, match=r"^switch s1 \(process 4711\) ended: counters$"):
        switch.counters()
