"""Signs of life on control connections between machines: one whose link is cut, or that is off, is soon out of reach.

Neither sends a hang-up, so this end asks: the kernel probes a connection on which nothing came, and repeats what was sent and
not acknowledged. The other machine's kernel answers both, whatever its processes do: one that is stopped, or starved on a busy
machine, is not taken for gone. Frames of sums are no sign either way: they are lost where buffers are full.

Three probes in a row are lost before a connection is given up: with one alone, a network that loses a packet in a thousand would
end a training within hours.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

SILENCE = 4  # seconds, where INA_SILENCE says nothing
LEAST, MOST = 2, 3600
PROBES = 3  # lost before a connection is given up; fewer with a silence below PROBES + 1 seconds: the kernel counts whole ones
OUT_OF_REACH = {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}


def silence() -> int:
    """Returns the seconds without any answer after which another machine counts as out of reach. Raises ValueError."""
    text = os.environ.get("INA_SILENCE", "")
    if not text:
        return SILENCE
    if not (text.isascii() and text.isdigit() and LEAST <= int(text) <= MOST):
        raise ValueError(f"INA_SILENCE={text[:40]!r}: expected a whole number of seconds from {LEAST} to {MOST:,} (default: "
                         f"{SILENCE}), after which a machine that answers nothing counts as out of reach")
    return int(text)


def watch(sock: socket.socket, seconds: int = 0) -> None:
    """Lets a connected TCP socket fail once nothing was heard from the other machine for ``seconds`` (0: `silence`). Raises
    ValueError."""
    seconds = seconds or silence()
    pause = max(1, seconds // (PROBES + 1))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, pause)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, pause)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    # The kernel looks after each pause, and takes this in place of the count: half a pause early, so that the last look, at
    # `seconds`, finds the time over, and the one before does not.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000 - pause * 500)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def is_out_of_reach(error: OSError) -> bool:
    """Tells whether a connection failed since nothing was heard from the other machine."""
    return error.errno in OUT_OF_REACH


def verdict(sock: socket.socket) -> str:
    """Returns the text for such an error of ``sock``."""
    limit = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    seconds = round((limit + 500 * sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)) / 1000)
    if _last_answer(sock) < limit / 2:  # the kernel also gives up where buffers stay full, though answers come
        return (f"its process has read nothing for {seconds} s, though its machine answers, and more was sent than fits: it is "
                "stopped, or starved")
    return f"its machine has answered nothing for {seconds} s: it is off, or a link between here and there is cut"


def _last_answer(sock: socket.socket) -> int:
    """Returns how long ago the other machine acknowledged anything, in milliseconds (tcpi_last_ack_recv of linux/tcp.h)."""
    return int(struct.unpack_from("=I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 56)[0])
