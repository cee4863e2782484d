"""Control connections between machines: a cut link ends them, a process that is stopped does not."""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import child
import pytest
from capabilities import need
from waiting import LONG, until

from ina.aggregation.control_socket import liveness
from ina.aggregation.control_socket.channel import Channel, OutOfReach, listen
from ina.aggregation.control_socket.connection import Connection
from ina.net.namespaces import own_namespace

PEER = """
import socket, sys
sock = socket.create_connection(("10.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
sock.recv(1)
"""


@pytest.mark.fast
@pytest.mark.parametrize(("text", "seconds", "pause", "limit"), [("", 4, 1, 3500), ("2", 2, 1, 1500), ("15", 15, 3, 13500)])
def test_the_kernel_looks_often_enough_for_the_silence_that_is_set(text, seconds, pause, limit, monkeypatch):
    monkeypatch.setenv("INA_SILENCE", text)
    assert liveness.silence() == seconds
    with socket.socket() as sock:
        liveness.watch(sock)
        values = [sock.getsockopt(socket.IPPROTO_TCP, option)
               for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT)]
        assert values == [pause, pause, limit]
        assert f"answered nothing for {seconds} s" in liveness.verdict(sock)


@pytest.mark.fast
@pytest.mark.parametrize("text", ["1", "0", "-4", "4.5", "soon", "3601"])
def test_a_silence_that_is_none_is_said_where_a_socket_begins_to_listen(text, monkeypatch):
    monkeypatch.setenv("INA_SILENCE", text)
    with pytest.raises(ValueError, match=r"INA_SILENCE='.*': expected a whole number of seconds from 2 to 3,600 \(default: 4\)"):
        listen("tcp:127.0.0.1:0")
    with closing(listen("ina-liveness-test")):  # other machines do not reach it
        pass


@pytest.mark.fast
def test_a_process_that_reads_nothing_is_told_from_a_machine_that_is_out_of_reach(monkeypatch):
    monkeypatch.setenv("INA_SILENCE", "2")
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        sock = listener.accept()[0]
        liveness.watch(sock)
        channel = Channel(sock)
        with closing(channel), pytest.raises(OutOfReach, match="its process has read nothing for 2 s, though"):
            while True:  # until both buffers are full, and then the kernel has waited
                channel.send({"event": "notice", "reason": "x" * 60_000})


@contextmanager
def connected():
    """A watched socket of this namespace, and the process at its other end, in another one, over a veth pair ``here``."""
    with own_namespace(), socket.socket() as listener:
        child.run(["ip", "-batch", "-"], check=True, input="link set lo up\nlink add here type veth peer name there\n"
                                                           "addr add 10.0.0.1/24 dev here\nlink set here up\n")
        listener.bind(("10.0.0.1", 0))
        listener.listen()
        script = "read line; ip addr add 10.0.0.2/24 dev there && ip link set there up && exec \"$0\" -c \"$1\" \"$2\""
        peer = subprocess.Popen(["unshare", "--net", "sh", "-c", script, sys.executable, PEER, str(listener.getsockname()[1])],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            ours = Path("/proc/thread-self/ns/net").readlink()
            until(lambda: Path(f"/proc/{peer.pid}/ns/net").readlink() != ours, "a namespace of its own")
            child.run(["ip", "link", "set", "there", "netns", str(peer.pid)], check=True)
            peer.stdin.write("\n")
            peer.stdin.close()
            assert peer.stdout.readline() == "connected\n"
            with closing(listener.accept()[0]) as sock:
                liveness.watch(sock)
                yield sock, peer
        finally:
            peer.kill()
            peer.wait()
            peer.stdout.close()


def ended(sock):
    """True once the kernel, or the other end, has ended the connection."""
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(0))


def probes():
    """Probes that the kernel has sent in this namespace."""
    names, values = [line.split() for line in Path("/proc/thread-self/net/netstat").read_text().splitlines()
                     if line.startswith("TcpExt:")]
    return dict(zip(names[1:], map(int, values[1:]), strict=True))["TCPKeepAlive"]


@pytest.mark.root
@pytest.mark.later
@pytest.mark.parametrize("unacknowledged", [False, True])
def test_a_cut_link_is_noticed_by_both_kinds_of_ends(unacknowledged, monkeypatch):
    need("root", "netns")
    monkeypatch.setenv("INA_SILENCE", "2")
    for end in ("channel", "connection"):
        with connected() as (sock, _):
            child.run(["ip", "link", "set", "here", "down"], check=True)
            if unacknowledged:
                sock.send(b"x")
            if end == "channel":
                with pytest.raises(OutOfReach, match="its machine has answered nothing for 2 s: it is off, or a link between"):
                    Channel(sock).receive(time.monotonic() + LONG, "the end of the connection")
            else:
                until(lambda sock=sock: ended(sock), "the end of the connection")
                with pytest.raises(ConnectionError, match="its machine has answered nothing for 2 s: it is off, or a link"):
                    Connection(sock, lambda _: None).read()


@pytest.mark.root
@pytest.mark.later
def test_a_stopped_process_is_not_taken_for_a_cut_link(monkeypatch):
    """Probes tell how long it is: the kernel sends one a second, and gives up where two have no answer."""
    need("root", "netns")
    monkeypatch.setenv("INA_SILENCE", "2")
    with connected() as (sock, peer):
        peer.send_signal(signal.SIGSTOP)
        sock.send(json.dumps({"event": "left", "worker": 1}).encode())
        before = probes()
        until(lambda: probes() >= before + 6 or ended(sock), "six probes, or the end of the connection")
        assert not ended(sock)
        peer.send_signal(signal.SIGCONT)
        assert child.status(peer) == 0
