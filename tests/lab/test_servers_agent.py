"""Agent of `ina cluster check`: nobody but the named servers gets anything out of it, and it ends with its controller."""

from __future__ import annotations

import ast
import json
import math
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import child
import pytest
import tiers
from waiting import LONG, until

from ina.lab.servers import agent, session, survey
from ina.lab.servers.agent import ANSWER, BULK, COUNT, ECHO, GO, HEAD, HELLO, MAGIC
from ina.lab.servers.hosts import Host

SOURCE = Path(agent.__file__)
SECRET, PEER, OTHER = bytes(range(16)), "127.0.0.2", "127.0.0.3"


@pytest.fixture
def own():
    """An agent at 127.0.0.1 that expects stream 7 of PEER."""
    it = agent.Agent("127.0.0.1", [PEER, OTHER], SECRET)
    it.expect({"peer": PEER, "stream": 7})
    yield it
    it.udp.close()
    it.tcp.close()
    it.close_incast()


def packet(kind=ECHO, stream=7, number=3, magic=MAGIC, secret=SECRET):
    return HEAD.pack(magic, secret, kind, stream, number, 0, 0)


@pytest.mark.fast
def test_an_echo_is_answered_by_no_more_than_it_brought(own):
    answer = own.datagram(packet() + b"more", PEER, 1000)
    magic, secret, kind, stream, number, received, answered = HEAD.unpack(answer)
    assert (magic, secret, kind, stream, number, received) == (MAGIC, SECRET, ANSWER, 7, 3, 1000) and answered > 1000
    assert len(answer) == len(packet())
    assert own.datagram(packet(COUNT).ljust(1472, b"\0"), PEER, 0) is None
    report = own.arrived({"stream": 7})
    assert report["count"] == 2 and report["lengths"] == [len(packet()) + 4 + 28, 1500]


@pytest.mark.fast
@pytest.mark.parametrize("data", [
    b"", b"\0", packet()[:-1], packet(magic=b"inaX"), packet(secret=bytes(16)), packet(stream=8), packet(ANSWER), packet(HELLO),
    packet(GO), packet(BULK), packet(255), bytes(65507)])
def test_other_bytes_get_no_answer_and_count_for_nothing(own, data):
    assert own.datagram(data, PEER, 0) is None
    assert own.arrived({"stream": 7})["count"] == 0


@pytest.mark.fast
@pytest.mark.parametrize("sender", ["127.0.0.9", OTHER])
def test_other_servers_get_no_answer(own, sender):
    """OTHER is one of the servers, but the stream is not its own."""
    assert own.datagram(packet(), sender, 0) is None
    assert own.arrived({"stream": 7})["count"] == 0


@pytest.mark.fast
@pytest.mark.parametrize("line", [
    b"", b"\xff", b"{", b"[]", b"1", b"null", b"[" * 100_000, b'{"do": "exec"}', b'{"do": ["flood"]}', b'{"id": 1, "do": null}',
    *(json.dumps(args).encode() for args in (
        {"do": "expect", "peer": "10.9.9.9", "stream": 1}, {"do": "expect", "peer": PEER, "stream": 0},
        {"do": "expect", "peer": PEER, "stream": True}, {"do": "expect", "peer": [PEER], "stream": 1},
        {"do": "arrived", "stream": 99}, {"do": "arrived"},
        {"do": "flood", "peer": "10.9.9.9", "port": 9, "stream": 1, "length": 100, "rate": 1e6, "seconds": 1},
        {"do": "flood", "peer": PEER, "port": 9, "stream": 1, "length": 100, "rate": 1e6, "seconds": 61},
        {"do": "flood", "peer": PEER, "port": 9, "stream": 1, "length": 65508, "rate": 1e6, "seconds": 1},
        {"do": "flood", "peer": PEER, "port": 9, "stream": 1, "length": 100, "rate": math.nan, "seconds": 1},
        {"do": "bulk", "peer": PEER, "port": 9, "stream": 1, "seconds": 1e9},
        {"do": "bulk", "peer": PEER, "port": 70000, "stream": 1, "seconds": 1},
        {"do": "echo", "peer": PEER, "port": 9, "stream": 1, "count": 10**6, "wait": 1, "seconds": 1},
        {"do": "ladder", "peer": PEER, "port": 9, "stream": 1, "copies": 1, "lengths": []},
        {"do": "ladder", "peer": PEER, "port": 9, "stream": 1, "copies": 1, "lengths": [1500] * 65},
        {"do": "ladder", "peer": PEER, "port": 9, "stream": 1, "copies": 1, "lengths": [20]},
        {"do": "volley", "peer": PEER, "ports": [9, 0], "stream": 1, "frames": 1, "length": 100, "rounds": 1, "seconds": 1},
        {"do": "volley", "peer": PEER, "ports": "9", "stream": 1, "frames": 1, "length": 100, "rounds": 1, "seconds": 1},
        {"do": "volley", "peer": PEER, "ports": [9], "stream": 1, "frames": 8193, "length": 100, "rounds": 1, "seconds": 1},
        {"do": "open_incast", "sockets": {"10.9.9.9": 1}, "buffer": 4096},
        {"do": "open_incast", "sockets": {PEER: 257}, "buffer": 4096},
        {"do": "run_incast", "stream": 1, "rounds": 1001, "expected": 1, "wait": 0, "seconds": 1},
    )),
])
def test_a_command_beyond_its_bounds_is_refused(own, line):
    reply = own.reply(line)
    assert reply["refused"] and "result" not in reply
    assert len(json.dumps(reply)) < 1000


@pytest.mark.fast
def test_a_stream_of_a_peer_is_counted_over_tcp(own):
    """The first bytes are not: the time runs from them on. A head that is no head of the run ends a connection without a word."""
    forged = packet(BULK, secret=bytes(16))
    for head, words in ((packet(BULK), MAGIC), (packet(COUNT), b""), (forged, b""), (b"GET / HTTP/1.1", b"")):
        ours, theirs = socket.socketpair()
        own.places.acquire()
        server = threading.Thread(target=own.serve, args=(theirs, PEER))
        server.start()
        with ours:
            ours.sendall(head)
            if words:
                assert ours.recv(100) == words
                ours.sendall(b"a")
                until(lambda: own.streams[7].count == 1, "the first byte")
                ours.sendall(bytes(10_000))
            ours.shutdown(socket.SHUT_WR)
            assert ours.recv(100) == b""
        server.join(LONG)
    assert own.arrived({"stream": 7})["bytes"] == 10_000


@pytest.mark.fast
def test_the_source_is_of_python_3_9_and_imports_the_standard_library_alone():
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 9))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names and {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


@pytest.mark.fast
def test_clocks_are_compared_by_four_timestamps(own):
    """With a peer whose clock is a minute ahead, and who takes its time to answer (RFC 5905 section 8)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind((PEER, 0))
        peer.settimeout(LONG)

        def answer():
            for _ in range(3):
                data, place = peer.recvfrom(100)
                number = HEAD.unpack(data)[4]
                peer.sendto(packet(ANSWER, number=number, secret=bytes(16)), place)  # not of this run: it is not heard
                now = agent.time.time_ns() + 60 * 10**9
                peer.sendto(HEAD.pack(MAGIC, SECRET, ANSWER, 7, number, now, now), place)

        thread = threading.Thread(target=answer)
        thread.start()
        args = {"peer": PEER, "port": peer.getsockname()[1], "stream": 7, "count": 3, "wait": 50, "seconds": 60}
        result = own.echo(args)
        thread.join(LONG)
    assert result["answered"] == result["sent"] == 3
    assert abs(result["offset"] - 60) <= result["least"] / 2 + 1e-3  # the two clocks of one machine are read one after the other
    assert result["least"] <= result["median"]


# ---- processes


def started(lifetime=LONG, address="127.0.0.1"):
    """An agent's process, and what it said at first, {} if it had no time to."""
    process = subprocess.Popen([sys.executable, SOURCE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    first = {"address": address, "peers": ["127.0.0.1"], "secret": SECRET.hex(), "lifetime": lifetime}
    process.stdin.write(json.dumps(first) + "\n")
    process.stdin.flush()
    return process, json.loads(process.stdout.readline() or '{"agent": {}}')["agent"]


@pytest.mark.build
@pytest.mark.gate
def test_it_ends_with_its_input_in_the_midst_of_a_command():
    tiers.several_processes("starts an agent")
    process, about = started()
    expect = {"id": 1, "do": "expect", "peer": "127.0.0.1", "stream": 1}
    bulk = {"id": 2, "do": "bulk", "peer": "127.0.0.1", "port": about["tcp_port"], "stream": 1, "seconds": 60}
    process.stdin.write(json.dumps(expect) + "\n" + json.dumps(bulk) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline()) == {"id": 1, "result": {}}
    process.stdin.close()
    assert child.status(process) == 0
    process.stdout.close()


@pytest.mark.build
@pytest.mark.gate
def test_it_ends_after_its_lifetime():
    tiers.several_processes("starts an agent")
    process, _ = started(lifetime=0.1)
    assert child.status(process) == 1
    process.stdin.close()
    process.stdout.close()


@pytest.mark.build
@pytest.mark.gate
def test_an_address_of_another_machine_is_named():
    tiers.several_processes("starts an agent")
    process, about = started(address="192.0.2.1")
    assert about["error"].startswith("cannot listen at 192.0.2.1: ")
    process.stdin.close()
    child.status(process)
    process.stdout.close()


def greeted(script):
    """A session with an agent behind a shell's script, whose argument $0 starts it."""
    tiers.several_processes("starts an agent")
    it = session.Session(Host("node1", "127.0.0.1"), ["sh", "-c", script], sys.executable)
    try:
        it.greet(["127.0.0.1"], SECRET, LONG)
        it.ready(session.time.monotonic() + LONG)
    except session.AgentError:
        assert it.failure
    return it


@pytest.mark.build
@pytest.mark.gate
@pytest.mark.parametrize(("script", "words"), [
    ('echo Welcome; echo "{}"; echo "[1]"; exec sh -c "$0"', ""),
    ("exit 3", "node1: the agent ended (exit status 3)"),
    ("echo no route to host >&2; exit 255", "node1: the agent ended (exit status 255): no route to host"),
    ("yes", "node1: more than 200 lines before the agent's own"),
    ("head -c 3000000 /dev/zero; sleep 600", "node1: a line of more than 1048576 bytes"),
    ("echo '{\"agent\": {\"udp_port\": \"x\"}}'; sleep 600", "node1: answers with udp_port = 'x', expected a whole number"),
    ("echo '{\"agent\": {\"error\": \"a\\u001b[2Jb\"}}'; sleep 600", "node1: a\\x1b[2Jb"),
])
def test_what_a_server_says_in_place_of_an_agent_is_reported(script, words):
    it = greeted(script)
    try:
        assert it.failure.startswith(words) and bool(it.failure) == bool(words)
        if words:
            with pytest.raises(session.AgentError):
                it.ask("arrived", stream=1)
        else:
            assert it.ask("expect", peer="127.0.0.1", stream=1) == {} and it.facts["tcp_port"]
    finally:
        it.close(0.0 if words else LONG)


@pytest.mark.build
@pytest.mark.gate
@pytest.mark.parametrize(("reply", "words"), [
    ("gibberish", "an answer that makes no sense"), ('{"id": 9}', "an answer to command 9, expected 1"),
    ('{"id": 1, "result": []}', "refuses: no result"), ('{"id": 1, "refused": "why"}', "refuses: why"),
    ('{"id": true, "result": {}}', "an answer to command True, expected 1"), ("", "an answer that makes no sense")])
def test_an_answer_that_makes_no_sense_ends_the_session(reply, words):
    about = {"agent": {"udp_port": 1, "tcp_port": 1, "rmem_max": 1, "mtu": 1, "speed": 1}}
    it = greeted(f"echo '{json.dumps(about)}'; echo '{reply}'; exec sleep 600")
    try:
        with pytest.raises(session.AgentError, match=words) as refused:
            it.ask("arrived", stream=1)
        assert refused.value.lost and it.failure
    finally:
        it.close(0.0)


@pytest.mark.build
@pytest.mark.gate
def test_an_old_python_is_named(tmp_path):
    tiers.several_processes("starts an agent")
    old = tmp_path / "python"
    old.write_text(f"#!/bin/sh\nexec {sys.executable} -c \"import sys; sys.version_info, sys.version = (3, 8), '3.8.1 x'; "
                   "exec(sys.argv[1])\" \"$2\"\n")
    old.chmod(0o755)
    it = session.Session(Host("node1", "127.0.0.1"), ["sh", "-c"], str(old))
    try:
        with pytest.raises(session.AgentError, match="expected Python 3.9 or newer, this is 3.8.1"):
            it.greet([], SECRET, LONG)
            it.ready(session.time.monotonic() + LONG)
    finally:
        it.close()
    assert not os.path.exists(f"/proc/{it._process.pid}")


class Answers:
    """A session whose agent answers each command with the same."""

    failure = ""
    host = Host("node1", "127.0.0.1")

    def __init__(self, answer):
        self.answer, self.facts = answer, {"udp_port": 1, "tcp_port": 1, "mtu": 1500}

    def ask(self, do, takes=0.0, **args):
        return self.answer


@pytest.mark.fast
@pytest.mark.parametrize("answer", [
    {}, {"count": "1"}, {"count": True}, {"count": 1e300}, {"count": 1, "bytes": 1, "first": 0, "last": 1},
    {"count": 1, "bytes": 1, "first": 0, "last": 1, "lengths": ["x"]},
    {"count": 1, "bytes": 1, "first": 0, "last": 1, "lengths": 5}])
def test_figures_that_are_none_are_an_error_of_the_pair(answer):
    sessions = [Answers(answer), Answers(answer)]
    pair = survey.Surveyor(sessions, survey.Options(), {256: 1074})._pair(*sessions)
    assert pair.error.startswith("node1: answers with ")
