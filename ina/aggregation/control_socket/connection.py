"""The server's end of a client's socket: bytes come in, messages with descriptors go out, and neither ever blocks.

Data that a client does not read are queued, and meanwhile nothing more is read from it: so its queue is one answer long, and
events. A client that reads nothing for UNREAD seconds, or leaves more than MAX_UNREAD bytes, is hung up on. So is one that sends
descriptors (descriptors.py).
"""

from __future__ import annotations

import array
import json
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ina.aggregation.control_socket import descriptors, liveness
from ina.aggregation.control_socket.channel import ChannelClosed
from ina.aggregation.control_socket.greeting import CODE, Seal
from ina.aggregation.control_socket.messages import MAX_REQUEST

CHUNK = 4096  # bytes read in one turn: then other clients' turn
MAX_UNREAD = 1 << 20  # bytes that may wait for a client before one more message
UNREAD = 30.0  # seconds without reading a byte of waiting data


class Connection:
    """``sock`` stays in blocking mode; calls pass MSG_DONTWAIT. ``on_change``: called when it waits for the other direction.
    ``broken``: why it is to be hung up, once there is a reason. ``text``: bytes received and not taken yet. ``seal``: over TCP,
    after the greeting."""

    def __init__(self, sock: socket.socket, on_change: Callable[[Connection], None]):
        self.sock = sock
        self.broken = ""
        self.seal: Seal | None = None
        self.stuck_until = 0.0  # monotonic seconds: deadline for the client to read; 0: nothing waits for it
        self._on_change = on_change
        self.text = bytearray()
        self._queue: deque[tuple[bytes, list[int]]] = deque()
        self._queued = 0

    def fileno(self) -> int:
        return self.sock.fileno()

    # ---- in

    def read(self) -> None:
        """Appends received bytes to ``text``. Raises ChannelClosed."""
        try:
            data = descriptors.read(self.sock, CHUNK)
        except BlockingIOError:
            return
        except descriptors.Unwanted as error:
            raise ChannelClosed(str(error)) from error
        except OSError as error:
            raise ChannelClosed(self._failure(error)) from error
        if not data:
            raise ChannelClosed("its connection closed")
        self.text += data

    def line(self, most: int = MAX_REQUEST) -> bytes | None:
        """Returns the next complete line of up to ``most`` bytes; None: there is none yet, or answers must be read first. Raises
        ChannelClosed: it is longer, or has another code than its seal's."""
        if self.is_stuck:
            return None
        most += 2 * CODE + 1 if self.seal else 0
        end = self.text.find(b"\n", 0, most + 1)
        if end < 0:
            if len(self.text) > most:
                raise ChannelClosed(f"it sent a request of more than {most} bytes")
            return None
        line = bytes(self.text[:end])
        del self.text[: end + 1]
        try:
            return self.seal.open(line) if self.seal else line
        except ValueError as error:
            raise ChannelClosed(f"its connection carried {error}") from None

    # ---- out

    @property
    def is_stuck(self) -> bool:
        """True while data wait for the client."""
        return bool(self._queue)

    def send(self, message: dict[str, Any], fds: list[int]) -> None:
        """Sends or queues a message; the descriptors stay the caller's."""
        line = json.dumps(message, separators=(",", ":")).encode()
        self.put((self.seal.close(line) if self.seal else line) + b"\n", fds)

    def put(self, data: bytes, fds: list[int]) -> None:
        if self.broken:
            return
        if not self._queue:
            count = self._try(data, fds)
            if count == len(data) or self.broken:
                return
            data, fds = data[count:], fds if count == 0 else []
        elif self._queued > MAX_UNREAD:
            self.broken = f"it has left more than {MAX_UNREAD} bytes unread"
            return
        try:
            copies = [os.dup(fd) for fd in fds]
        except OSError as error:
            self.broken = f"what it was to get cannot be kept: {error.strerror}"
            return
        if not self._queue:
            self.stuck_until = time.monotonic() + UNREAD
        self._queue.append((data, copies))
        self._queued += len(data)
        self._on_change(self)

    def flush(self) -> None:
        """Sends queued data, as the client reads again."""
        while self._queue:
            data, fds = self._queue[0]
            count = self._try(data, fds)
            if not count:
                break
            for fd in fds:
                os.close(fd)
            self._queued -= count
            self.stuck_until = time.monotonic() + UNREAD
            if count < len(data):
                self._queue[0] = data[count:], []
                break
            self._queue.popleft()
        if not self._queue:
            self.stuck_until = 0.0
            self._on_change(self)

    def _try(self, data: bytes, fds: list[int]) -> int:
        """Sends without waiting; returns how many bytes the kernel took."""
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            return self.sock.sendmsg([data], ancillary, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.broken = self._failure(error)
            return 0

    def _failure(self, error: OSError) -> str:
        if self.sock.family != socket.AF_UNIX and liveness.is_out_of_reach(error):
            return liveness.verdict(self.sock)
        return f"its connection failed: {error.strerror}"

    def hang_up(self) -> None:
        """Ends both directions: the peer sees it at once, even while copies of the socket are open elsewhere."""
        for _, fds in self._queue:
            for fd in fds:
                os.close(fd)
        self._queue.clear()
        descriptors.close(self.sock)
