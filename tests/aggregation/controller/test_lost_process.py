"""Messages for a worker when its connection to a switch process ends: which end it was, and what to do."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import closing

import pytest
from control_process import control_process, free_tcp_name
from waiting import until

from ina.aggregation.controller import lost_process
from ina.aggregation.controller.client import Client
from ina.aggregation.controller.lost_process import fate
from ina.base import tokens

CUT = "cannot receive: Connection timed out"


@pytest.mark.build
def test_a_process_of_this_machine_has_ended_or_lives(monkeypatch):
    pid = os.fork()
    if not pid:
        os._exit(0)
    assert fate("ina-test", pid, "the other end hung up") == f"the switch process {pid} ended", "nobody has waited for it yet"
    os.waitpid(pid, 0)
    assert fate("ina-test", pid, "the other end hung up") == f"the switch process {pid} ended"
    monkeypatch.setattr(lost_process, "PATIENCE", 0.01)
    assert f"process {os.getpid()} hung up (the other end hung up) though it lives" in fate(
        "ina-test", os.getpid(), "the other end hung up")


@pytest.mark.fast
def test_where_nothing_listens_any_more_it_has_ended():
    name = free_tcp_name()
    text = fate(name, 7, "the other end hung up")
    assert f"the switch process 7 at {name.removeprefix('tcp:')} ended (the other end hung up; nothing listens there" in text


@pytest.mark.fast
@pytest.mark.parametrize("error", [TimeoutError("timed out"), OSError(errno.EHOSTUNREACH, "No route to host")])
def test_a_machine_out_of_reach_is_not_said_to_have_ended(monkeypatch, error):
    def connect(*_):
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    text = fate("10.0.0.9:5588", 7, CUT)
    assert text.startswith(f"the switch process 7 at 10.0.0.9:5588 cannot be reached any more ({CUT}; a new connection: ")
    assert "it may live, but a link is cut, a firewall is in the way, or its machine is off" in text and " ended" not in text


@pytest.mark.build
def test_who_answers_in_its_place_is_compared():
    name = free_tcp_name()
    with control_process(name) as process:
        client = Client(name)
        assert "though it lives and can be reached" in fate(name, process.pid, CUT)
        assert f"the switch process 7 at {name.removeprefix('tcp:')} ended ({CUT}), and process {process.pid} is in" in fate(
            name, 7, CUT)
        started = client.ping()["process"]["start_time_seconds"]
        assert "though it lives and can be reached" in fate(name, process.pid, CUT, started=started)
        assert f"ended ({CUT}), and one that started later, with the same process id, is in its place" in fate(
            name, process.pid, CUT, started=started - 60)
        assert "and one with another token is in its place" in fate(name, 7, CUT, tokens.pass_for("an earlier token", "job"))
    with closing(client):
        until(client.poll, "the end of the connection")
        assert client.gone and client.cause
        assert client.failure == f"the connection to the switch process (socket {name}) ended: {client.cause}"
        assert "nothing listens there any more" in fate(name, process.pid, client.cause)
