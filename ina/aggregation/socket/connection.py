"""The server's end of a client's socket: bytes come in, messages with descriptors go out, and neither ever waits.

What a client does not take is queued, and meanwhile nothing more is read from it: so its queue is one answer long, and news. A
client that takes nothing for UNREAD seconds, or leaves more than MAX_UNREAD bytes, is hung up on. So is one that sends
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

from ina.aggregation.socket import descriptors
from ina.aggregation.socket.channel import ChannelClosed
from ina.aggregation.socket.messages import MAX_REQUEST

CHUNK = 4096  # bytes read in one turn: then it is the others' turn
MAX_UNREAD = 1 << 20  # bytes that may wait for a client before one more message
UNREAD = 30.0  # seconds without taking a byte of what waits


class Connection:
    """``sock`` stays in blocking mode; calls say that they do not wait. ``wants``: told when the direction that it waits for
    changes. ``broken``: why it is to be hung up on, once there is a reason. ``text``: what has come and was not taken yet."""

    def __init__(self, sock: socket.socket, wants: Callable[[Connection], None]):
        self.sock = sock
        self.broken = ""
        self.stuck_until = 0.0  # monotonic seconds: when its patience ends; 0: nothing waits for the client
        self._wants = wants
        self.text = bytearray()
        self._queue: deque[tuple[bytes, list[int]]] = deque()
        self._queued = 0

    def fileno(self) -> int:
        return self.sock.fileno()

    # ---- in

    def read(self) -> None:
        """Takes what has come to ``text``. Raises ChannelClosed."""
        try:
            data = descriptors.read(self.sock, CHUNK)
        except BlockingIOError:
            return
        except descriptors.Unwanted as error:
            raise ChannelClosed(str(error)) from error
        except OSError as error:
            raise ChannelClosed(f"its connection failed: {error.strerror}") from error
        if not data:
            raise ChannelClosed("its connection closed")
        self.text += data

    def line(self, most: int = MAX_REQUEST) -> bytes | None:
        """The next whole line of up to ``most`` bytes; None: there is none yet, or answers wait to be taken first. Raises
        ChannelClosed: it is longer."""
        if self.is_stuck:
            return None
        end = self.text.find(b"\n", 0, most + 1)
        if end < 0:
            if len(self.text) > most:
                raise ChannelClosed(f"it sent a request of more than {most} bytes")
            return None
        line = bytes(self.text[:end])
        del self.text[: end + 1]
        return line

    # ---- out

    @property
    def is_stuck(self) -> bool:
        """Something waits to be taken."""
        return bool(self._queue)

    def send(self, message: dict, fds: list[int]) -> None:
        """Sends or queues; the descriptors stay the caller's."""
        self.put(json.dumps(message, separators=(",", ":")).encode() + b"\n", fds)

    def put(self, data: bytes, fds: list[int]) -> None:
        if self.broken:
            return
        if not self._queue:
            sent = self._try(data, fds)
            if sent == len(data) or self.broken:
                return
            data, fds = data[sent:], fds if sent == 0 else []
        elif self._queued > MAX_UNREAD:
            self.broken = f"it has left more than {MAX_UNREAD} bytes unread"
            return
        try:
            kept = [os.dup(fd) for fd in fds]
        except OSError as error:
            self.broken = f"what it was to get cannot be kept: {error.strerror}"
            return
        if not self._queue:
            self.stuck_until = time.monotonic() + UNREAD
        self._queue.append((data, kept))
        self._queued += len(data)
        self._wants(self)

    def flush(self) -> None:
        """The client takes something again."""
        while self._queue:
            data, fds = self._queue[0]
            sent = self._try(data, fds)
            if not sent:
                break
            for fd in fds:
                os.close(fd)
            self._queued -= sent
            self.stuck_until = time.monotonic() + UNREAD
            if sent < len(data):
                self._queue[0] = data[sent:], []
                break
            self._queue.popleft()
        if not self._queue:
            self.stuck_until = 0.0
            self._wants(self)

    def _try(self, data: bytes, fds: list[int]) -> int:
        """How many bytes the kernel took."""
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            return self.sock.sendmsg([data], ancillary, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.broken = f"its connection failed: {error.strerror}"
            return 0

    def hang_up(self) -> None:
        """Ends both directions: the peer sees it at once, even while copies of the socket are open elsewhere."""
        for _, fds in self._queue:
            for fd in fds:
                os.close(fd)
        self._queue.clear()
        descriptors.close(self.sock)
