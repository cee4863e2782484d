"""Authentication of peers: by the user whom the kernel names on a Unix socket, by a token over TCP (greeting.py)."""

from __future__ import annotations

import argparse
import ipaddress
import os
import pwd
import socket
import struct

EVERYBODY = "everybody"


def peer(sock: socket.socket) -> tuple[int, int]:
    """Returns process (0: in a name space that we cannot see) and user of the other end of a Unix socket: at the time when a
    client connected, or a server began to listen."""
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid, uid


def address_of_peer(sock: socket.socket) -> str:
    """Returns IP address and port of the other end of a TCP connection, for messages; "": of a Unix socket's."""
    if sock.family == socket.AF_UNIX:
        return ""
    try:
        ip, port = sock.getpeername()[:2]
    except OSError:  # it has hung up already
        return "that has hung up"
    address = ipaddress.ip_address(ip.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def check_server(sock: socket.socket, name: str) -> None:
    """Checks that a socket is one's own user's, root's, or that of INA_SWITCH_USER: anyone can listen at an abstract name.

    Raises PermissionError, ValueError.
    """
    _, uid = peer(sock)
    user = os.environ.get("INA_SWITCH_USER", "")
    if uid not in (0, os.geteuid()) and (not user or uid != user_id(user, "INA_SWITCH_USER")):
        raise PermissionError(f"{name} is a socket of user {user_name(uid)}, who is neither you nor root; if that is right, set "
                              f"INA_SWITCH_USER={user_name(uid)}")


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def user_id(name: str, source: str) -> int:
    """Returns a user's id. Raises ValueError."""
    if name.isascii() and name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ValueError(f"{source}: there is no user {name!r} here; expected a name or a number") from None


def add_user_option(parser: argparse.ArgumentParser) -> None:
    """Adds ``--user``, which names the users who may have jobs."""
    parser.add_argument("--user", action="append", default=[], metavar="NAME",
                        help=f"a user who may have jobs here beside you and root: a name, a number or {EVERYBODY}; repeatable")
