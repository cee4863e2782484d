"""A rank's move to other switches that does not succeed: its job ends at once, and the error says why."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace

import pytest
from waiting import LONG

torch = pytest.importorskip("torch", reason="the back end needs torch")

from ina.aggregation.controller.client import ControlError  # noqa: E402
from ina.aggregation.controller.keeper import Keeper  # noqa: E402

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("error, text", [
    (ControlError("full", "switch root2 has no slot left"), "switch root2 has no slot left"),
    (AssertionError(), "AssertionError"),
    (KeyError("slots"), "KeyError: 'slots'"),
])
def test_a_move_that_fails_says_why(error, text):
    def reopen():
        raise error

    over, ends, ours = [], threading.Event(), socket.socketpair()
    client = SimpleNamespace(fileno=ours[0].fileno, moved=[(7, "switch root is lost; the job goes on over root2")], failure="",
                             gone=False, poll=lambda: "")
    member = SimpleNamespace(rank=0, size=1, client=client, lock=threading.Lock(), reopen=reopen, abort=over.append,
                             tell=lambda: None)
    movable = SimpleNamespace(halt=lambda: {"next": 0, "parts": {}}, give=lambda rank, reports: {}, missing=lambda reports: [],
                              resume=None, give_up=ends.set)
    keeper = Keeper(member, movable, torch.distributed.HashStore(), comes_back=False)
    try:
        assert ends.wait(LONG)
        assert over == [f"ina: switch root is lost; the job goes on over root2; but it could not: {text}"]
    finally:
        keeper.close()
        for end in ours:
            end.close()
