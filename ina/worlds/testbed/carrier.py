"""Carrier of network interfaces: the kernel's notices (rtnetlink(7)) of those that lose it, or are taken down, and come back."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Collection

from ina.base.closing import closing_on_error

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTMGRP_LINK = 1
NLM_F_REQUEST_DUMP = 0x301
IFLA_IFNAME = 3
IFF_UP, IFF_RUNNING = 0x1, 0x40
CHUNK = 1 << 16  # longer than any message of the kernel


class Carrier:
    """Watch over the interfaces ``names`` of this thread's network namespace. Raises OSError."""

    def __init__(self, names: Collection[str]):
        self._names = frozenset(names)
        self._without: dict[str, str] = {}
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
                                     socket.NETLINK_ROUTE)
        with closing_on_error(self._socket.close):
            self._socket.bind((0, RTMGRP_LINK))
            self._ask()

    def fileno(self) -> int:
        """Returns a descriptor that is readable when there are notices."""
        return self._socket.fileno()

    def without(self) -> dict[str, str]:
        """Returns the interfaces without a carrier now, with the reason for each."""
        while True:
            try:
                for name, reason in notices(self._socket.recv(CHUNK)):
                    if name in self._names:
                        self._without.pop(name, None)
                        if reason:
                            self._without[name] = reason
            except BlockingIOError:
                return self._without
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._ask()  # notices were lost

    def _ask(self) -> None:
        """Asks for all interfaces; the answers have the form of notices."""
        self._socket.send(struct.pack("=IHHIIBxHiII", 32, RTM_GETLINK, NLM_F_REQUEST_DUMP, 1, 0, socket.AF_UNSPEC, 0, 0, 0, 0))

    def close(self) -> None:
        self._socket.close()


def notices(data: bytes) -> list[tuple[str, str]]:
    """Parses messages of the kernel as names of interfaces, and why they carry nothing; empty: they do."""
    changes, at = [], 0
    while at + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        if not 16 <= length <= len(data) - at:
            break
        if kind in (RTM_NEWLINK, RTM_DELLINK) and length >= 32:
            (flags,) = struct.unpack_from("=I", data, at + 24)
            name = _name(data[at + 32 : at + length])
            reason = ("it is gone" if kind == RTM_DELLINK else "it is set down" if not flags & IFF_UP
                      else "" if flags & IFF_RUNNING else "it has no carrier")
            changes.append((name, reason))
        at += (length + 3) & ~3
    return changes


def _name(attributes: bytes) -> str:
    at = 0
    while at + 4 <= len(attributes):
        length, kind = struct.unpack_from("=HH", attributes, at)
        if length < 4:
            break
        if kind == IFLA_IFNAME:
            return attributes[at + 4 : at + length].rstrip(b"\0").decode(errors="replace")
        at += (length + 3) & ~3
    return ""
