"""Probes between the hosts of a switch, before a run (`ina doctor --target tofino`): round trips, loss, and frame sizes.

On every host an agent answers (`--agent SECONDS`); each host in turn probes its `--peer`s. Probes are UDP datagrams of the run's
own size that must not be fragmented (IP_PMTUDISC_DO, ip(7)), a bounded number of them, one after the other and then in bursts.
"""

from __future__ import annotations

import errno
import secrets
import select
import socket
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

PORT = 5589
MAGIC, ANSWER = b"ina?", b"ina!"  # answers get no answer: a forged sender cannot make two agents answer each other for ever
HEAD = struct.Struct("!4s8sI")  # magic, this probe run, number
MOST = 100_000  # probes
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2  # ip(7)


def open_socket(bind: tuple[str, int]) -> socket.socket:
    """Opens a UDP socket at `bind`: datagrams longer than the path's MTU are refused, not fragmented. Raises OSError."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        sock.bind(bind)
    except BaseException:
        sock.close()
        raise
    return sock


def answer(seconds: float, bind: str = "0.0.0.0", port: int = PORT) -> int:
    """Answers every probe to its sender for `seconds`; returns their number. Raises OSError."""
    end, count = time.monotonic() + seconds, 0
    with open_socket((bind, port)) as sock:
        sock.setblocking(False)
        while (remaining := end - time.monotonic()) > 0:
            if not select.select([sock], [], [], remaining)[0]:
                continue
            try:
                data, peer = sock.recvfrom(65536)
                if data.startswith(MAGIC):
                    sock.sendto(ANSWER + data[len(MAGIC) :], peer)
                    count += 1
            except OSError:  # a probe that cannot be answered counts as lost
                continue
    return count


@dataclass
class Probes:
    """Results of probes: `rtts` in seconds, in order of arrival; `error`: why nothing could be sent."""

    sent: int = 0
    answered: int = 0
    rtts: list[float] = field(default_factory=list)
    error: str = ""

    def quantile(self, q: float) -> float:
        ordered = sorted(self.rtts)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")


def probe(peer: str, count: int = 1000, size: int = 1024, port: int = PORT, burst: int = 1, wait: float = 0.2) -> Probes:
    """Sends `count` datagrams of `size` bytes to the agent at `peer`, `burst` at a time; waits up to `wait` s for each burst.

    Gives up after ten bursts without any answer. Raises ValueError.
    """
    if not 1 <= count <= MOST or not HEAD.size <= size <= 65507 or burst < 1:
        raise ValueError(f"count {count}, size {size}: expected 1..{MOST} probes of {HEAD.size}..65507 bytes")
    probes, run, silent = Probes(), secrets.token_bytes(8), 0
    with open_socket(("0.0.0.0", 0)) as sock:
        sock.setblocking(False)
        for first in range(0, count, burst):
            sent: dict[int, float] = {}
            for number in range(first, min(count, first + burst)):
                sent[number] = time.monotonic()
                try:
                    sock.sendto(HEAD.pack(MAGIC, run, number).ljust(size, b"\0"), (peer, port))
                except OSError as error:
                    too_long = error.errno == errno.EMSGSIZE
                    probes.error = "the path takes no datagrams of this length" if too_long else str(error.strerror)
                    return probes
                probes.sent += 1
            before = probes.answered
            _collect(sock, run, sent, probes, wait)
            silent = 0 if probes.answered > before else silent + 1
            if silent == 10 and not probes.answered:
                break
    return probes


def _collect(sock: socket.socket, run: bytes, sent: dict[int, float], probes: Probes, wait: float) -> None:
    end = time.monotonic() + wait
    while sent and (remaining := end - time.monotonic()) > 0:
        if not select.select([sock], [], [], remaining)[0]:
            return
        try:
            data = sock.recv(65536)
        except ConnectionError:  # nobody listens there
            continue
        if len(data) >= HEAD.size:
            magic, owner, number = HEAD.unpack_from(data)
            if magic == ANSWER and owner == run and number in sent:
                probes.rtts.append(time.monotonic() - sent.pop(number))
                probes.answered += 1


def neighbour(ip: str) -> str:
    """Returns the MAC address that the kernel knows for `ip`; "": none (proc_net(5))."""
    try:
        rows = [line.split() for line in Path("/proc/net/arp").read_text().splitlines()[1:]]
    except OSError:
        return ""
    return next((row[3] for row in rows if row[0] == ip and row[3] != "00:00:00:00:00:00"), "")
