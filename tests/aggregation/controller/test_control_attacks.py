"""The control socket of a real process under any input: it answers the next well-formed request."""

from __future__ import annotations

import json
import os
import resource
import socket
import uuid
from contextlib import suppress

import pytest
from control_process import connected, control_process
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from waiting import LONG, until

pytestmark = pytest.mark.build
JOBS = 256  # numbers that there are


@pytest.fixture(scope="module")
def name():
    name = f"ina-test-{uuid.uuid4().hex[:12]}"
    with control_process(name):
        yield name


def lines(sock, count=1) -> list[dict]:
    """The next messages on a connection."""
    data = b""
    while data.count(b"\n") < count:
        more = sock.recv(65536)
        assert more, f"hung up after {data[-300:]!r}"
        data += more
    return [json.loads(line) for line in data.splitlines()]


def say(sock, *messages) -> list[dict]:
    """Answers to ``messages``: each the bytes of a line, or an object for JSON."""
    sock.sendall(b"".join((m if isinstance(m, bytes) else json.dumps(m).encode()) + b"\n" for m in messages))
    return lines(sock, len(messages))


def ask(name, *messages) -> list[dict]:
    with connected(name) as sock:
        return say(sock, *messages)


# ---- messages


WRONG = [
    ({"op": "join", "job": "x", "worker": 0, "token": 4}, "token: expected text of 0 to 255 printable characters, got an int"),
    ({"op": "join", "job": 7, "worker": 0}, "join: job: expected text of 1 to 255 printable characters, got an integer"),
    ({"op": "join", "job": "", "worker": 0}, "got 0 characters"),
    ({"op": "join", "job": "x" * 10_000, "worker": 0}, "got 10000 characters"),
    ({"op": "join", "job": "a\nb", "worker": 0}, "got characters that cannot be printed"),
    ({"op": "join", "job": "\ud800", "worker": 0}, "got characters that cannot be printed"),
    ({"op": "join", "job": "\x1b[2J", "worker": 0}, "got characters that cannot be printed"),
    ({"op": "join", "job": "x", "worker": "0"}, "join: worker: expected an integer from 0 to 65535, got text"),
    ({"op": "join", "job": "x", "worker": True}, "got true or false"),
    ({"op": "join", "job": "x", "worker": 0.0}, "got a fraction"),
    ({"op": "join", "job": "x", "worker": -1}, "got -1"),
    ({"op": "join", "job": "x", "worker": 2**63}, f"got {2**63}"),
    ({"op": "join", "job": "x"}, "join: worker is missing; expected an integer"),
    ({"op": "join", "job": "x", "worker": 0, "self": 1}, "join: unknown field 'self'; expected job, worker, wire, token, host"),
    ({"op": "join", "job": "x", "worker": 0, "host": None}, "host: expected text of 0 to 100 printable characters, got null"),
    ({"op": "admit", "job": "x", "workers": 1, "hosts": ["h1", 2]}, "hosts: expected a list of up to 1024"),
    ({"op": "admit", "job": "x", "workers": 1, "hosts": "h1"}, "hosts: expected a list of up to 1024"),
    ({"op": "admit", "job": "x", "workers": 1, "hosts": ["h1"] * 1025}, "got 1025 of them"),
    ({"op": "admit", "job": "x", "workers": 1, "slots": "all"}, "slots: expected an integer from 1 to 2147483647, got text"),
    ({"op": "admit", "job": "x", "workers": 1, "strict": 1}, "strict: expected true or false, got an integer"),
    ({"op": ["join"]}, "unknown operation of this kind; expected one of ping, join"),
    ({"op": "__init__"}, "unknown operation '__init__'"),
    ({}, "unknown operation without 'op'"),
    ([], "expected a JSON object, got a list"),
    (None, "expected a JSON object, got null"),
    (b"hello", "not JSON"),
    (b"", "not JSON"),
    (b"[" * 100_000, "nested more than 16 deep"),
    (b'{"a":' * 20_000, "nested more than 16 deep"),
    (b'{"op":"ping","n":' + b"1" * 5000 + b"}", "a number of 5000 digits; expected at most 20"),
    (b'{"op":"ping","n":NaN}', "NaN is no JSON number"),
    (b'{"op":"ping","n":-Infinity}', "-Infinity is no JSON number"),
    (b'{"op":"join","op":"ping"}', "the key 'op' is there twice"),
    (b'{"op":"\xff\xfe"}', "not JSON: 'utf-8' codec can't decode"),
    ('{"op":"ping"}'.encode("utf-16"), "not JSON: 'utf-8' codec can't decode"),
    (b'{"op":"ping"}{"op":"ping"}', "not JSON: Extra data"),
    (b'"\\' * 40_000, "not JSON"),
]


@pytest.mark.parametrize(("message", "text"), WRONG, ids=range(len(WRONG)))
def test_what_is_no_request_is_refused_and_the_connection_lives_on(name, message, text):
    with connected(name) as sock:
        (reply,) = say(sock, message)
        assert (reply["ok"], reply["code"]) == (False, "invalid") and text in reply["error"]
        assert say(sock, {"op": "ping"})[0]["slots"] == 64
        assert say(sock, {"op": "jobs"})[0]["jobs"] == {}, "nothing was done"


def test_a_line_without_an_end_is_not_kept(name):
    with connected(name) as sock, pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(64):
            sock.sendall(b'{"op":"ping","x":"' + b"x" * (1 << 20))
    assert ask(name, {"op": "ping"})[0]["ok"]


VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
                      lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
                      max_leaves=8)
OPERATIONS = st.sampled_from(["ping", "join", "admit", "attach", "release", "end", "serve", "jobs", "switches", "counters"])
FIELDS = st.sampled_from(["job", "worker", "workers", "slots", "strict", "hosts", "token", "host", "port", "protocol", "values",
                          "moves"])
REQUESTS = st.dictionaries(FIELDS, VALUES | st.integers(0, 3) | st.sampled_from(["x", "shm", "udp", ["h1"], "1"]), max_size=6)


@pytest.mark.later
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.tuples(OPERATIONS, REQUESTS).map(lambda both: {**both[1], "op": both[0]}) | VALUES)
def test_any_json_gets_an_answer(name, message):
    with connected(name) as sock:
        reply, pong = say(sock, message, {"op": "ping"})
        assert reply["ok"] in (True, False) and reply.get("code") != "internal" and pong["ok"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.binary(max_size=300), st.sampled_from([b"", b'{"op":"', b'{"op":"join","job":"', b"GET / HTTP/1.1\r\n", b"POST "]))
def test_after_any_bytes_the_next_one_is_served(name, data, start):
    with connected(name) as sock:
        sock.sendall(start + data + b"\n")
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass
    assert ask(name, {"op": "ping"})[0]["ok"]


# ---- what they take


def test_a_client_that_does_not_read_stops_nobody(name):
    """Its answers wait, and its requests with them; those of other clients do not."""
    with connected(name) as deaf:
        deaf.setblocking(False)
        sent = 0
        while sent < 4 << 20:
            try:
                sent += deaf.send(b'{"op":"switches"}\n' * 1000)
            except BlockingIOError:  # it is not read from any more: the kernel's buffers are all that is kept
                break
        assert ask(name, {"op": "ping"})[0]["ok"]
        deaf.settimeout(LONG)
        assert len(lines(deaf, 1000)) >= 1000, "when it reads again, it is answered"


def test_descriptors_that_clients_send_are_not_kept(name):
    before = _descriptors(name)
    with connected(name) as sock, open("/dev/null") as file:
        with suppress(PermissionError, ConnectionError):  # refused by the kernel; or hung up on, by older ones
            for _ in range(100):
                socket.send_fds(sock, [b" "], [file.fileno()] * 8)
        assert _descriptors(name) <= before + 4, "those of the connections"


def _descriptors(name) -> int:
    return len(os.listdir(f"/proc/{ask(name, {'op': 'ping'})[0]['pid']}/fd"))


def test_when_descriptors_run_out_connections_are_refused_and_nothing_else():
    name = f"ina-test-{uuid.uuid4().hex[:12]}"
    with control_process(name, descriptors=64) as process:
        first = connected(name)
        assert say(first, {"op": "join", "job": "x", "worker": 0, "wire": 2})[0]["ok"]
        many = []
        for _ in range(200):
            many.append(connected(name))
        refused = lines(many[-1])[0]
        assert (refused["event"], refused["code"]) == ("refused", "full") and "descriptors" in refused["reason"]
        assert many[-1].recv(1) == b""
        assert say(first, {"op": "admit", "job": "x", "workers": 1}, {"op": "attach", "job": "x", "worker": 0})[1]["ok"], \
            "there is room for what jobs need"
        assert process.poll() is None
        for sock in many:
            sock.close()
        until(lambda: "ok" in _hello(name), "room for others again")
        first.close()


def test_accept_without_a_descriptor_ends_nothing():
    """No descriptor is free (the limit is lowered under it): the reserved one serves to refuse; without it, connections wait."""
    name = f"ina-test-{uuid.uuid4().hex[:12]}"
    with control_process(name) as process:
        first = connected(name)
        assert say(first, {"op": "ping"})[0]["ok"]
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        used = max(map(int, os.listdir(f"/proc/{process.pid}/fd"))) + 1
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used, before[1]))
        for _ in range(3):
            with connected(name) as sock:
                assert "it cannot open another connection: Too many open files" in lines(sock)[0]["reason"]
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        waiting = connected(name)
        reply = say(first, {"op": "ping"})[0]
        assert reply["ok"], reply
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
        waiting.close()
        until(lambda: "ok" in _hello(name), "connections again")
        first.close()


def _hello(name) -> dict:
    with connected(name) as sock:
        try:
            return say(sock, {"op": "ping"})[0]
        except (AssertionError, OSError):
            return {}


def test_half_a_request_of_http_is_waited_for_a_while_only():
    name = f"ina-test-{uuid.uuid4().hex[:12]}"
    with control_process(name, HTTP_PATIENCE=0.2):
        with connected(name) as sock:
            sock.sendall(b"GET /jobs HTTP/1.1\r\nHost")
            assert sock.recv(100) == b""
        assert ask(name, {"op": "ping"})[0]["ok"]


# ---- jobs that nobody joins


def test_admissions_without_joining_lock_nobody_out(name):
    with connected(name) as sock:
        replies = say(sock, *({"op": "admit", "job": f"job {i}", "workers": 2, "slots": 1} for i in range(JOBS)))
        assert "that nobody has joined" in replies[-1]["error"] and replies[-1]["code"] == "full"
        with connected(name) as other:
            join = {"op": "join", "job": "mine", "worker": 0, "wire": 2}
            mine = [join, {"op": "admit", "job": "mine", "workers": 1}, {"op": "release"}]
            assert [reply["ok"] for reply in say(other, *mine)] == [True, True, True]
    until(lambda: ask(name, {"op": "jobs"})[0]["jobs"] == {}, "the end of its jobs with the connection that asked for them")
