"""Refusal of descriptors that the other end of a Unix socket sends: none is accepted, none is closed in this thread.

Closing the last copy of a descriptor closes its object, and that may block for ever: a TCP socket with SO_LINGER whose peer does
not read. Reading a message without room for its descriptors, or closing a socket that has them queued, closes them. So a socket
refuses them (SO_PASSRIGHTS, Linux 6.16: their sender gets EPERM). Older kernels accept them; there a message is peeked at before
it is read, and a closed socket's queue is left to a child process that ends: there nothing lingers.
"""

from __future__ import annotations

import socket
import subprocess
from contextlib import suppress

SO_PASSRIGHTS = 83  # asm-generic/socket.h; Python lacks it
CHUNK = 65536


class Unwanted(ConnectionError):
    """The other end has sent descriptors."""


def allow(sock: socket.socket, permitted: bool) -> None:
    """Lets ``sock``, and sockets that it accepts, take descriptors, or refuse them. No effect over TCP and in older kernels."""
    if sock.family == socket.AF_UNIX:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, int(permitted))


def read(sock: socket.socket, most: int) -> bytes:
    """Reads up to ``most`` bytes that have come. Raises Unwanted, and recv's errors: BlockingIOError where there are none."""
    if sock.family == socket.AF_UNIX:
        data, _, flags, _ = sock.recvmsg(most, 0, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        if flags & socket.MSG_CTRUNC:
            raise Unwanted("it sent descriptors, and nobody takes any")
        if not data:
            return data
        most = len(data)  # later data may have some
    return sock.recv(most, socket.MSG_DONTWAIT)


def close(sock: socket.socket) -> None:
    """Shuts both directions, so that the peer sees it at once even while copies of ``sock`` are open elsewhere, and closes it."""
    with suppress(OSError):  # already gone: nothing to shut
        sock.shutdown(socket.SHUT_RDWR)
    if sock.family == socket.AF_UNIX:
        try:
            while read(sock, CHUNK):  # nothing more comes
                pass
        except Unwanted:
            _leave(sock)
        except OSError:
            pass
    sock.close()


def _leave(sock: socket.socket) -> None:
    """Leaves the last copy to a process that ends after this one has closed its own. If none can be started, it stays open."""
    try:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[sock.fileno()])
    except OSError:
        sock.detach()
        return
    sock.close()
    child.communicate()  # its input ends, and so does it
