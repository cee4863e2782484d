"""Descriptors that any client sends to a control socket cannot make its one thread wait."""

from __future__ import annotations

import array
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from control_process import connected, control_process
from waiting import LONG

from ina.aggregation.control_socket import channel, descriptors
from ina.aggregation.control_socket.connection import ChannelClosed, Connection
from ina.aggregation.controller.client import Client, ControlError

pytestmark = pytest.mark.build
LINGER = 3600  # seconds that closing the last copy of such a descriptor takes: longer than any test


@contextmanager
def lingering(connection: socket.socket) -> Iterator[None]:
    """Sends the only descriptor of a TCP socket, whose closing waits for a peer that does not read, over ``connection``."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        if not (child := os.fork()):
            try:
                sock = socket.create_connection(listener.getsockname())
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER))
                sock.setblocking(False)
                try:
                    while True:
                        sock.send(bytes(1 << 16))
                except BlockingIOError:
                    connection.sendmsg([b"\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [sock.fileno()]))])
            finally:
                os._exit(0)  # for a process that ends nothing lingers
        peer, _ = listener.accept()
        with peer:
            os.waitpid(child, 0)
            yield


def test_a_message_with_descriptors_is_not_read():
    ours, theirs = socket.socketpair()
    connection = Connection(ours, lambda _: None)
    with lingering(theirs):
        with pytest.raises(ChannelClosed, match="it sent descriptors"):
            connection.read()
        connection.hang_up()
        theirs.settimeout(LONG)
        with pytest.raises(ConnectionResetError):  # no copy is left, and what it sent was not read
            theirs.recv(1)
    theirs.close()


def test_what_comes_before_and_without_descriptors_is_read():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"abc")
        assert descriptors.read(ours, 2) == b"ab" and descriptors.read(ours, 2) == b"c"
        with pytest.raises(BlockingIOError):
            descriptors.read(ours, 2)
        theirs.close()
        assert descriptors.read(ours, 2) == b""


def test_a_socket_in_which_descriptors_wait_is_closed():
    ours, theirs = socket.socketpair()
    with lingering(theirs):
        descriptors.close(ours)
    theirs.close()


def test_descriptors_of_a_stranger_do_not_stop_the_answers():
    name = f"test-descriptors-{os.getpid()}"
    with control_process(name) as process, connected(name) as good, connected(name) as stranger:
        good.sendall(b'{"op": "ping"}\n')
        assert good.recv(4096)
        os.kill(process.pid, signal.SIGSTOP)  # so that the process that sends has ended before anything is read
        try:
            with lingering(stranger):
                os.kill(process.pid, signal.SIGCONT)
                good.sendall(b'{"op": "ping"}\n')
                assert good.recv(4096)
        finally:
            os.kill(process.pid, signal.SIGCONT)


def test_a_client_gets_the_descriptors_that_it_asked_for():
    name = f"test-descriptors-{os.getpid()}"
    with channel.listen(name) as listener:
        channels = []
        thread = threading.Thread(target=lambda: channels.append(channel.connect(name, LONG)))
        thread.start()
        far = channel.Channel(listener.accept()[0])
        thread.join()
        far.send({"ok": True}, [0])
        message, (fd,) = channels[0].receive(time.monotonic() + LONG, "a message")
        assert message == {"ok": True}
        os.close(fd)
        far.close()
        channels[0].close()


def test_a_socket_that_takes_nobody_makes_no_client_wait_for_ever():
    name = f"test-descriptors-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen(0)
        with connected(name), pytest.raises(ControlError, match="it has taken no connection for 0.3 s") as refused:
            Client(name, timeout=0.3)
        assert refused.value.code == "timeout"
