"""`ina doctor --target tofino`: probes to other hosts' agents, over loopback and between network namespaces. Over loopback at a
port of the test's own: somebody else's agent may answer at the usual one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from functools import partial

import pytest
from capabilities import need
from waiting import LONG, until

from ina import cli
from ina.lab.doctor import reachability
from ina.net.namespaces import own_namespace

ANSWER = "from ina.lab.doctor import reachability; reachability.answer(3600, port={port})"


@contextmanager
def answering(peer: str, *inside: str, port: int = reachability.PORT):
    """An agent, in a process that is killed at the end; it answers when the test begins."""
    process = subprocess.Popen([*inside, sys.executable, "-c", ANSWER.format(port=port)])
    try:
        until(lambda: reachability.probe(peer, 1, 64).answered, "the agent")
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def nobody(monkeypatch):
    """A socket that never answers; probes go to its port, at which nobody else can."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        monkeypatch.setattr(reachability, "probe", partial(reachability.probe, port=silent.getsockname()[1]))
        yield silent


@pytest.fixture
def agent(nobody):
    """The port of an agent, to which probes go."""
    port = nobody.getsockname()[1]
    nobody.close()
    with answering("127.0.0.1", port=port):
        yield port


@pytest.mark.build
def test_round_trips_are_measured_and_all_come_back(agent):
    result = reachability.probe("127.0.0.1", 200, 1024, wait=LONG)
    assert (result.sent, result.answered, result.error) == (200, 200, "")
    assert 0 < result.quantile(0) <= result.quantile(0.5) <= result.quantile(0.99)
    assert reachability.probe("127.0.0.1", 320, 64, burst=32, wait=LONG).answered == 320


@pytest.mark.fast
def test_nobody_answers(nobody):
    result = reachability.probe("127.0.0.1", 1000, 64, wait=0.01)
    assert result.answered == 0 and result.sent == 10  # it gives up


@pytest.mark.build
def test_foreign_datagrams_are_not_counted(agent):
    result = reachability.probe("127.0.0.1", 1, reachability.HEAD.size, wait=LONG)
    assert result.answered == 1
    with pytest.raises(ValueError, match="expected 1..100000 probes"):
        reachability.probe("127.0.0.1", 0)


@pytest.mark.build
def test_answers_are_not_answered(agent):
    """Otherwise one forged sender would make two agents answer each other for as long as they run."""
    with reachability.open_socket(("127.0.0.1", 0)) as sock:
        sock.settimeout(LONG)
        probe = reachability.HEAD.pack(reachability.MAGIC, b"12345678", 7)
        sock.sendto(probe, ("127.0.0.1", agent))
        answer = sock.recv(100)
        assert answer == reachability.HEAD.pack(reachability.ANSWER, b"12345678", 7)
        sock.sendto(answer, ("127.0.0.1", agent))
        sock.sendto(reachability.HEAD.pack(reachability.MAGIC, b"12345678", 8), ("127.0.0.1", agent))
        assert sock.recv(100)[-1] == 8, "the next one is that of the probe"


@pytest.mark.build
def test_the_command(agent, capsys, monkeypatch):
    monkeypatch.setattr(reachability, "probe", partial(reachability.probe, wait=LONG))
    assert cli.main(["doctor", "--target", "tofino", "--peer", "127.0.0.1", "--interface", "lo", "--count", "64", "--json"]) == 0
    findings = {each["what"]: each for each in json.loads(capsys.readouterr().out)}
    assert findings["127.0.0.1 round trip"]["verdict"] == "good" and "lo MTU" in findings
    assert findings["127.0.0.1 loss"]["found"] == "0 of 128 datagrams"


@pytest.mark.build
def test_a_peer_that_is_not_there(nobody, capsys):
    assert cli.main(["doctor", "--target", "tofino", "--peer", "127.0.0.1", "--count", "20"]) == 1
    assert "is the agent there" in capsys.readouterr().out


@pytest.mark.fast
@pytest.mark.parametrize("options, message", [
    (["--peer", "10.0.0.1"], "--peer and --agent are for --target tofino"),
    (["--target", "tofino"], "which --interface, and which --peer"),
])
def test_wrong_options(options, message, capsys):
    assert cli.main(["doctor", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.fast
@pytest.mark.parametrize("options, message", [
    (["--agent", "-1"], "argument --agent: -1: expected 0 to 1e+06"),
    (["--peer", "10.0.0.1", "--count", "1000000"], "argument --count: 1000000: expected 1 to 100,000"),
])
def test_numbers_out_of_range(options, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["doctor", "--target", "tofino", *options])
    assert message in capsys.readouterr().err


LINK = """link set lo up
link add left mtu {mtu} type veth peer name right mtu {mtu} netns {there}
link set left up
address add 10.9.0.1/24 dev left
"""


@pytest.mark.root
@pytest.mark.later
@pytest.mark.parametrize("mtu, fits", [(1500, True), (600, False)])
def test_a_path_that_takes_no_whole_frames(mtu, fits):
    """Two namespaces and a veth pair: the agent in one, the probes in the other."""
    need("root", "netns")
    with own_namespace():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        agent = subprocess.Popen(["unshare", "-n", "sleep", "3600"])
        try:
            here = os.readlink("/proc/thread-self/ns/net")
            until(lambda: os.readlink(f"/proc/{agent.pid}/ns/net") != here, "the other namespace")
            subprocess.run(["ip", "-batch", "-"], input=LINK.format(mtu=mtu, there=agent.pid), text=True, check=True)
            inside = ["nsenter", "-t", str(agent.pid), "-n"]
            far = "link set right up\naddress add 10.9.0.2/24 dev right\n"
            subprocess.run([*inside, "ip", "-batch", "-"], input=far, text=True, check=True)
            with answering("10.9.0.2", *inside):
                result = reachability.probe("10.9.0.2", 50, 1052, wait=LONG)
        finally:
            agent.kill()
            agent.wait()
    assert (result.answered == 50, result.error == "") == (fits, fits)
    if not fits:
        assert result.error == "the path takes no datagrams of this length"
