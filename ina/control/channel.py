"""JSON lines with file descriptors over a Unix stream socket: what the switch process and its clients speak.

One message is one line of JSON; descriptors travel as SCM_RIGHTS ancillary data of the line's first byte and are
handed out with that line. Sockets are in the abstract name space, so no file is ever left behind; but abstract names
reach as far as one network namespace, so where clients are in others, the name is a path (it has a '/').
"""

from __future__ import annotations

import array
import errno
import json
import os
import select
import socket
import struct
import time

MAX_LINE = 1 << 20
MAX_FDS = 8


class ChannelClosed(ConnectionError):
    """The other end hung up."""


class Channel:
    """One end of a connection. Not thread-safe: its owner serialises calls."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self._text = b""
        self._fds: list[int] = []

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: dict, fds: list[int] | tuple[int, ...] = ()) -> None:
        """Send one message. Raises ChannelClosed if the other end is gone."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            sent = self.sock.sendmsg([data], ancillary, socket.MSG_NOSIGNAL)
            if sent < len(data):
                self.sock.sendall(data[sent:])
        except OSError as error:
            raise ChannelClosed(f"cannot send: {error.strerror}") from error

    def receive(self, deadline: float | None, waiting_for: str) -> tuple[dict, list[int]]:
        """Next message and its descriptors (the caller owns them).

        ``deadline`` is a ``time.monotonic()`` value; None takes only what has arrived already.
        Raises ChannelClosed on hang-up, TimeoutError (saying ``waiting_for``), ValueError for what is not a message.
        """
        while b"\n" not in self._text:
            if len(self._text) > MAX_LINE:
                raise ValueError(f"message longer than {MAX_LINE} bytes")
            wait = 0.0 if deadline is None else max(0.0, deadline - time.monotonic())
            poller = select.poll()
            poller.register(self.sock, select.POLLIN)
            if not poller.poll(wait * 1000):
                raise TimeoutError(f"time-out while waiting for {waiting_for}")
            try:
                data, fds, _, _ = socket.recv_fds(self.sock, 65536, MAX_FDS)
            except OSError as error:
                raise ChannelClosed(f"cannot receive: {error.strerror}") from error
            self._fds += fds
            if not data:
                raise ChannelClosed("the other end hung up")
            self._text += data
        line, self._text = self._text.split(b"\n", 1)
        fds, self._fds = self._fds, []
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError(f"expected a JSON object, got {type(message).__name__}")
        return message, fds

    def peek(self) -> bytes:
        """The first bytes of what has arrived; it stays there. b"": the other end hung up."""
        try:
            return self.sock.recv(16, socket.MSG_PEEK)
        except OSError as error:
            raise ChannelClosed(f"cannot receive: {error.strerror}") from error

    def buffered(self) -> bool:
        """Whether a whole message waits that was read with an earlier one."""
        return b"\n" in self._text

    def hang_up(self) -> None:
        """Shut both directions: the peer sees POLLHUP at once, even while copies of the socket are open elsewhere."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # already gone: nothing to shut
            return

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        self.sock.close()


def peer_pid(sock: socket.socket) -> int:
    """Process id of the other end as the kernel knows it (0 if it is in a name space that we cannot see)."""
    pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid


def address(name: str) -> str:
    """The Unix socket address of ``name``: the path that it is, or an abstract one."""
    return name if "/" in name else "\0" + name


def shown(name: str) -> str:
    """``name`` as people write it: abstract ones with an @."""
    return name if "/" in name else "@" + name


def listen(name: str) -> socket.socket:
    """Listening socket at ``name``. OSError (EADDRINUSE) if it is taken. A path's file is the caller's to remove."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(address(name))
        sock.listen(128)
    except OSError as error:
        sock.close()
        hint = "; is another switch process using that name?" if error.errno == errno.EADDRINUSE else ""
        raise OSError(error.errno, f"cannot listen at socket {shown(name)}: {error.strerror}{hint}") from error
    return sock
